"""The cache of compiled plans tells apart what the compiler would compile differently."""

from types import SimpleNamespace

from bert_jax.planning import compiling


def test_options_of_the_environment_make_another_plan(monkeypatch):
    lowered, place = SimpleNamespace(as_text=lambda: "step"), SimpleNamespace(name="v5e:4x4", num_slices=1)
    monkeypatch.delenv("LIBTPU_INIT_ARGS", raising=False)
    before = compiling._fingerprint(lowered, {"data": 16}, place)
    assert before == compiling._fingerprint(lowered, {"data": 16}, place)
    monkeypatch.setenv("LIBTPU_INIT_ARGS", "--xla_tpu_enable_windowed_einsum_for_reduce_scatter=false")
    assert before != compiling._fingerprint(lowered, {"data": 16}, place)
