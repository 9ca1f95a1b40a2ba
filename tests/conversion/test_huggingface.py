"""Model directories in the Hugging Face layout: round trips, what old files do to names, and what does not fit."""

import functools
import json
import sys
import tracemalloc

import jax
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from random_models import WITH_LAYERS

from bert_jax.config import BertConfig
from bert_jax.conversion.formats import safetensors_writing
from bert_jax.conversion.huggingface import load_pretrained, save_pretrained
from bert_jax.conversion.slots import slots
from bert_jax.errors import InputError
from bert_jax.families import FAMILIES
from bert_jax.families.names import EXPERT_LAYERS
from bert_jax.modeling import Bert

CONFIG = BertConfig(
    vocab_size=31,
    hidden_size=8,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=12,
    max_position_embeddings=10,
    num_labels=3,
)
WORDS = "bert.embeddings.word_embeddings.weight"


def random_params(config: BertConfig, head: str, seed: int = 0):
    """Parameters of which no two are alike, biases and LayerNorms included."""
    generator = np.random.default_rng(seed)
    shapes = Bert(config, head).abstract_params()
    return jax.tree.map(lambda leaf: generator.normal(0.0, 0.05, leaf.shape).astype(np.float32), shapes)


def equal(a, b) -> bool:
    return jax.tree.structure(a) == jax.tree.structure(b) and all(
        jax.tree.leaves(jax.tree.map(lambda x, y: x.dtype == y.dtype and np.array_equal(x, y), a, b))
    )


@pytest.fixture
def directory(tmp_path):
    """A masked-LM model with a pooler-free encoder, as a directory."""
    path = tmp_path / "model"
    save_pretrained(path, CONFIG, "masked_lm", random_params(CONFIG, "masked_lm"))
    return path


def tensors_of(directory) -> dict[str, np.ndarray]:
    return safetensors.numpy.load_file(directory / "model.safetensors")


def rewrite(directory, tensors: dict[str, np.ndarray], **config) -> None:
    """Another writer's file: no checksums, and some keys of config.json changed (None removes one)."""
    contiguous = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    safetensors.numpy.save_file(contiguous, directory / "model.safetensors")
    described = json.loads((directory / "config.json").read_text()) | config
    kept = {key: value for key, value in described.items() if value is not None}
    (directory / "config.json").write_text(json.dumps(kept))


@pytest.mark.parametrize("head", FAMILIES["bert"].names.architectures)
def test_round_trip_of_every_head(tmp_path, head):
    config = CONFIG.replace(pooling="splade_max") if head == "sparse_embedding" else CONFIG
    params = random_params(config, head)
    save_pretrained(tmp_path / "model", config, head, params)
    loaded = load_pretrained(tmp_path / "model")
    assert loaded.config == config and loaded.head == head
    assert equal(loaded.params, params)
    assert loaded.missing == [] and loaded.unused == []
    described = json.loads((tmp_path / "model" / "config.json").read_text())
    assert described["architectures"] == [FAMILIES["bert"].names.architectures[head]]
    save_pretrained(tmp_path / "again", loaded.config, loaded.head, loaded.params)
    for name in ("model.safetensors", "config.json"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "model" / name).read_bytes()


@pytest.mark.sampled(10)
@pytest.mark.parametrize("positions", ["absolute", "sinusoidal"])
@pytest.mark.parametrize(
    ("family", "head"), [(f, head) for f in WITH_LAYERS for head in FAMILIES[f].names.architectures]
)
def test_the_tables_cover_every_parameter_once(family, head, positions):
    changes = {} if family != "bert" else {"position_embedding_type": positions}
    shape = {"num_hidden_layers": 4, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 24}
    if family in ("electra", "mobilebert"):
        shape["embedding_size"] = 4
    config = BertConfig.named("base", family, **shape | changes)
    paths = jax.tree_util.tree_leaves_with_path(Bert(config, head).abstract_params())
    shapes = {"/".join(key.key for key in path): leaf.shape for path, leaf in paths}
    found = list(slots(FAMILIES[family].names, head, shapes, has_experts=config.has_experts))
    assert {slot.path for slot in found} == shapes.keys()
    assert len({(slot.name, slot.part) for slot in found}) == len(found)
    skipped = {  # a normalisation that the first layer has not
        path: shape[1] for path, shape in shapes.items()
        if not config.norms.first_layer_norm and path.startswith("encoder/layers/attention/layer_norm/")
    }  # fmt: skip
    ours = sum(np.prod(shape) for shape in shapes.values()) - sum(skipped.values())
    assert sum(np.prod(slot.shape) // slot.part[1] for slot in found) == ours
    names = {slot.name: slot.part[1] for slot in found}
    assert sum(names.values()) == len(found), "every part of a tensor is somewhere"


@pytest.mark.parametrize("family", FAMILIES)
def test_no_name_is_in_a_table_twice(family):
    for entries in (FAMILIES[family].names.encoder, *FAMILIES[family].names.heads.values()):
        # Layers with experts have the names of the others, under other numbers.
        theirs = {(entry.theirs, entry.part, entry.ours.startswith(EXPERT_LAYERS)) for entry in entries}
        assert len(theirs) == len({entry.ours for entry in entries})
        assert len({entry.ours for entry in entries}) == len(entries)


def test_sinusoidal_positions_are_written_for_those_who_only_know_tables(tmp_path):
    config = CONFIG.replace(position_embedding_type="sinusoidal")
    params = random_params(config, "encoder")
    save_pretrained(tmp_path / "model", config, "encoder", params)
    assert tensors_of(tmp_path / "model")["embeddings.position_embeddings.weight"].shape == (10, 8)
    loaded = load_pretrained(tmp_path / "model")
    assert loaded.config == config and equal(loaded.params, params) and loaded.unused == []
    tensors = tensors_of(tmp_path / "model")
    tensors["embeddings.position_embeddings.weight"] += 1
    rewrite(tmp_path / "model", tensors)
    with pytest.raises(InputError, match="expected sinusoids"):
        load_pretrained(tmp_path / "model")


def test_old_names_a_missing_prefix_and_buffers(tmp_path):
    params = random_params(CONFIG, "encoder")
    save_pretrained(tmp_path / "model", CONFIG, "encoder", params)
    tensors = tensors_of(tmp_path / "model")
    assert "embeddings.word_embeddings.weight" in tensors  # BertModel's names have no prefix
    old = {}
    for name, tensor in tensors.items():
        head, _, last = name.rpartition(".")
        gamma_beta = {"weight": "gamma", "bias": "beta"}[last] if head.endswith("LayerNorm") else last
        old[f"bert.{head}.{gamma_beta}"] = tensor
    old["bert.embeddings.position_ids"] = np.arange(10)[None]
    rewrite(tmp_path / "model", old)
    loaded = load_pretrained(tmp_path / "model")
    assert equal(loaded.params, params) and loaded.unused == []


def test_tied_tensors_may_be_there_and_must_be_equal(directory):
    tensors = tensors_of(directory)
    decoder = {
        "cls.predictions.decoder.weight": tensors[WORDS],
        "cls.predictions.decoder.bias": tensors["cls.predictions.bias"],
    }
    rewrite(directory, tensors | decoder)
    loaded = load_pretrained(directory)
    assert equal(loaded.params, random_params(CONFIG, "masked_lm")) and loaded.unused == []
    for name, tensor in decoder.items():
        rewrite(directory, tensors | {name: tensor + 1})
        with pytest.raises(InputError, match=f"{name}.*to which it is tied"):
            load_pretrained(directory)
    alone = {name: tensor for name, tensor in (tensors | decoder).items() if name != "cls.predictions.bias"}
    rewrite(directory, alone)
    assert equal(load_pretrained(directory).params, random_params(CONFIG, "masked_lm"))


def test_another_head_is_freshly_initialised_and_listed(directory):
    loaded = load_pretrained(directory, head="sequence_classification")
    expected = ["bert.pooler.dense.weight", "bert.pooler.dense.bias", "classifier.weight", "classifier.bias"]
    assert loaded.missing == expected
    assert all(name.startswith("cls.predictions") for name in loaded.unused) and len(loaded.unused) == 5
    fresh = loaded.params["classifier"]["kernel"]
    assert fresh.shape == (8, 3) and fresh.std() > 0
    again = load_pretrained(directory, head="sequence_classification")
    other = load_pretrained(directory, head="sequence_classification", seed=1)
    assert equal(again.params, loaded.params) and not equal(other.params, loaded.params)
    assert equal(other.params["encoder"], loaded.params["encoder"])


def test_an_encoder_without_pooler(directory):
    loaded = load_pretrained(directory, head="encoder")
    assert loaded.config.pooler is False and "pooler" not in loaded.params and loaded.missing == []


def test_a_classifier_of_another_kind_is_not_taken_over(tmp_path):
    save_pretrained(
        tmp_path / "model", CONFIG, "sequence_classification", random_params(CONFIG, "sequence_classification")
    )
    loaded = load_pretrained(tmp_path / "model", head="token_classification")
    assert loaded.missing == ["classifier.weight", "classifier.bias"]
    assert "classifier.weight" in loaded.unused


def test_architecture_from_the_tensors_when_the_config_names_none(tmp_path):
    for head in ("encoder", "pretraining", "masked_lm", "question_answering"):
        path = tmp_path / head
        save_pretrained(path, CONFIG, head, random_params(CONFIG, head))
        rewrite(path, tensors_of(path), architectures=None)
        assert load_pretrained(path).head == head
    path = tmp_path / "classifier"
    save_pretrained(path, CONFIG, "token_classification", random_params(CONFIG, "token_classification"))
    rewrite(path, tensors_of(path), architectures=None)
    with pytest.raises(InputError, match="expected architectures, which name the kind of classifier"):
        load_pretrained(path)
    assert load_pretrained(path, head="token_classification").missing == []
    rewrite(path, tensors_of(path), architectures=["BertForTokenClasification"])
    with pytest.raises(InputError, match="did you mean 'BertForTokenClassification'"):
        load_pretrained(path)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_other_float_types_become_float32(directory, dtype):
    tensors = {name: tensor.astype(dtype) for name, tensor in tensors_of(directory).items()}
    rewrite(directory, tensors)
    words = load_pretrained(directory).params["embeddings"]["word_embeddings"]["embedding"]
    assert words.dtype == np.float32 and np.array_equal(words, tensors[WORDS].astype(np.float32))


def test_shards(directory):
    tensors = tensors_of(directory)
    names = sorted(tensors)
    weight_map = {}
    for i, part in enumerate((names[::2], names[1::2])):
        shard = f"model-{i + 1:05}-of-00002.safetensors"
        safetensors.numpy.save_file({name: tensors[name] for name in part}, directory / shard)
        weight_map |= dict.fromkeys(part, shard)
    (directory / "model.safetensors").unlink()
    index = directory / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    assert equal(load_pretrained(directory).params, random_params(CONFIG, "masked_lm"))
    for broken, message in (
        ({"weight_map": {WORDS: "../model.safetensors"}}, "expected the name of a file beside it"),
        ({"weight_map": weight_map | {"more": "model-00001-of-00002.safetensors"}}, "expected a tensor 'more'"),
        ({"weight_map": weight_map | {"more": "model-00003.safetensors"}}, "no such file"),
        ({}, "expected a weight_map"),
    ):
        index.write_text(json.dumps(broken))
        with pytest.raises(InputError, match=message):
            load_pretrained(directory)


def without(name):
    return lambda tensors: {key: value for key, value in tensors.items() if key != name}


def with_value(name, change):
    return lambda tensors: tensors | {name: change(tensors[name].copy())}


def poked(value):
    def change(tensor):
        tensor.flat[3] = value
        return tensor

    return change


@pytest.mark.parametrize(
    ("change", "config", "message"),
    [
        (without("bert.encoder.layer.1.output.dense.bias"), {}, "expected a tensor 'bert.encoder.layer.1.output.dense"),
        (without("cls.predictions.transform.dense.weight"), {}, "expected a tensor 'cls.predictions.transform.dense"),
        (dict, {"hidden_size": 16}, r"hidden_size: expected 8, as in tensor .* of shape \[8, 8\], found 16"),
        (dict, {"vocab_size": 30}, r"vocab_size: expected 31, as in tensor .* of shape \[31, 8\], found 30"),
        (
            dict,
            {"num_hidden_layers": 1},
            r"num_hidden_layers: expected 2, as in tensor 'bert.encoder.layer.1.* found 1",
        ),
        (dict, {"num_hidden_layers": 3}, "num_hidden_layers: expected 2, .* found 3"),
        (dict, {"model_type": "gpt2"}, "model_type 'gpt2' is not supported; known: albert, bert, "),
        (dict, {"is_decoder": True}, "is_decoder: expected False, found True: decoders are not supported"),
        (with_value(WORDS, lambda t: t.astype(np.int32)), {}, "expected floating point, found int32"),
        (with_value(WORDS, poked(np.nan)), {}, "expected finite parameters, found nan"),
        (with_value(WORDS, poked(np.inf)), {}, "expected finite parameters, found inf"),
        (with_value(WORDS, poked(-3e37)), {}, "expected finite parameters, found 3"),
        (with_value(WORDS, lambda t: t.astype(np.float64) * 1e300), {}, "finite parameters, found .*e\\+"),
        (lambda t: t | {"embeddings.word_embeddings.weight": t[WORDS]}, {}, "found it under two names"),
    ],
)
def test_what_does_not_fit_is_named_in_one_line(directory, change, config, message):
    rewrite(directory, change(tensors_of(directory)), **config)
    with pytest.raises(InputError, match=message) as caught:
        load_pretrained(directory)
    assert str(directory) in str(caught.value) and "\n" not in str(caught.value)


def test_a_flipped_bit_in_our_own_file(directory):
    path = directory / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-100] ^= 1  # the lowest bit of some parameter: no other check could see it
    path.write_bytes(content)
    with pytest.raises(InputError, match="the file is damaged"):
        load_pretrained(directory)


def test_directories_that_are_not_models(tmp_path, directory):
    with pytest.raises(InputError, match="no such model directory"):
        load_pretrained(tmp_path / "absent")
    with pytest.raises(InputError, match="found a file"):
        load_pretrained(directory / "config.json")
    (directory / "model.safetensors").unlink()
    with pytest.raises(InputError, match=r"expected weights \(model.safetensors, .*\), found config.json"):
        load_pretrained(directory)
    (directory / "config.json").write_text("{")
    with pytest.raises(InputError, match="expected JSON"):
        load_pretrained(directory)
    (directory / "config.json").unlink()
    with pytest.raises(InputError, match=r"expected a model directory .*, found nothing"):
        load_pretrained(directory)
    with pytest.raises(InputError, match="did you mean 'masked_lm'"):
        load_pretrained(directory, head="masked_ml")


def test_hub_names_are_looked_up_only_when_they_are_the_users(tmp_path, directory, monkeypatch):
    huggingface_hub = pytest.importorskip("huggingface_hub", reason="hub names need huggingface_hub")
    asked = []

    def snapshot_download(name, **kwargs):
        asked.append(name)
        if name in ("some/model", "org-less"):
            return str(directory)
        raise OSError("not in the cache")

    def offline(*_, **__):
        raise OSError("offline\nand more")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", offline)
    monkeypatch.chdir(tmp_path)
    assert load_pretrained("some/model").head == load_pretrained("hf://some/model").head == "masked_lm"
    assert load_pretrained("org-less").head == "masked_lm"
    assert asked == ["some/model"] * 2 + ["org-less"]
    for name in ("model/absent", "modl", "./absent/model", "a/b/c", "../org-less"):
        with pytest.raises(InputError, match="no such model directory"):
            load_pretrained(name)
    assert len(asked) == 3
    with pytest.raises(InputError, match=r"the Hugging Face hub did not provide it \(offline\)"):
        load_pretrained("another/model")


def test_a_name_that_is_no_directory_says_what_helps(tmp_path, directory, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    message = r"^bert-base-uncased: no such model directory, .*huggingface_hub, .* is not installed; .*`hf download"
    with pytest.raises(InputError, match=message):
        load_pretrained("bert-base-uncased")
    with pytest.raises(InputError, match=f"no such model directory; did you mean '{directory}'"):
        load_pretrained(tmp_path / "modle")
    with pytest.raises(InputError, match=r"^models: no such model directory; did you mean .model.\?"):
        load_pretrained("models")


def test_saving_refuses_what_is_there_unless_told(directory):
    params = random_params(CONFIG, "masked_lm", seed=1)
    with pytest.raises(InputError, match="expected a new or empty directory"):
        save_pretrained(directory, CONFIG, "masked_lm", params)
    save_pretrained(directory, CONFIG, "masked_lm", params, overwrite=True)
    assert equal(load_pretrained(directory).params, params)
    assert sorted(path.name for path in directory.parent.iterdir()) == ["model"]
    for name in ("thesis.txt", "README.md", "3_Chapter/thesis.txt", "model.safetensors.old"):
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text("of the user")
        with pytest.raises(InputError, match=f"found {name} in it, which would be removed"):
            save_pretrained(directory, CONFIG, "masked_lm", params, overwrite=True)
        assert (directory / name).read_text() == "of the user"
        (directory / name).unlink()
    (directory / "config.json").unlink()
    with pytest.raises(InputError, match=r"found one without config\.json"):
        save_pretrained(directory, CONFIG, "masked_lm", params, overwrite=True)


def test_a_full_disk_leaves_what_was_there(directory, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(safetensors_writing, "write", full)
    params = random_params(CONFIG, "masked_lm", seed=1)
    for target in (directory, directory.parent / "new"):
        with pytest.raises(OSError, match="No space left"):
            save_pretrained(target, CONFIG, "masked_lm", params, overwrite=True)
    assert [path.name for path in directory.parent.iterdir()] == ["model"]
    assert equal(load_pretrained(directory).params, random_params(CONFIG, "masked_lm"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: p | {"extra": np.zeros(3)}, "parameter 'extra' .* expected no such parameter, found shape"),
        (lambda p: {k: v for k, v in p.items() if k != "mlm"}, "parameter 'mlm/bias' .* found none"),
        (lambda p: p | {"mlm": p["mlm"] | {"bias": np.zeros(3)}}, r"'mlm/bias' .* expected shape \[31\], found shape"),
    ],
)
def test_parameters_that_do_not_fit_are_not_saved(tmp_path, change, message):
    with pytest.raises(InputError, match=message):
        save_pretrained(tmp_path / "model", CONFIG, "masked_lm", change(random_params(CONFIG, "masked_lm")))
    assert not list(tmp_path.iterdir())


def peak_of(function):
    """What a function returns, and the most memory that it held at once, in bytes."""
    tracemalloc.start()
    try:
        return function(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("family", "weights", "models", "tensors"),
    [
        ("bert", "safetensors", 1, 1),
        ("modernbert", "safetensors", 1, 1),
        ("bert", "flax", 2, 4),  # Flax's functions read a whole file, and copy an array three times to write it
    ],
)
def test_at_most_the_model_and_one_tensor_are_in_memory(tmp_path, family, weights, models, tensors):
    shape = {"num_hidden_layers": 4, "hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024}
    config = BertConfig.named("base", family, vocab_size=8000, pad_token_id=1, max_position_embeddings=64, **shape)
    params = random_params(config, "masked_lm")
    if family == "modernbert":  # what the first layer does not use is not written
        params["encoder"]["layers"]["attention"]["layer_norm"]["scale"][0] = 1
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(params))
    largest = 8000 * 256 * 4
    save = functools.partial(save_pretrained, tmp_path / "model", config, "masked_lm", params, weights=weights)
    assert peak_of(save)[1] < 1.1 * tensors * largest
    load_pretrained(tmp_path / "model")  # what is imported and traced once is not what is measured
    loaded, peak = peak_of(functools.partial(load_pretrained, tmp_path / "model"))
    assert equal(loaded.params, params)
    assert size < peak < models * size + 1.1 * largest + 2e6


def test_dtypes_of_what_is_written(tmp_path):
    params = random_params(CONFIG, "masked_lm")
    for dtype in ("bfloat16", "float16"):
        save_pretrained(tmp_path / dtype, CONFIG, "masked_lm", params, dtype=dtype)
        assert json.loads((tmp_path / dtype / "config.json").read_text())["dtype"] == dtype
        loaded = load_pretrained(tmp_path / dtype)
        assert {kind for kind, _ in loaded.read.values()} == {dtype}
        for found, expected in zip(jax.tree.leaves(loaded.params), jax.tree.leaves(params), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-2, atol=1e-2)
    with pytest.raises(InputError, match="dtype 'float8' is not known"):
        save_pretrained(tmp_path / "no", CONFIG, "masked_lm", params, dtype="float8")
    with pytest.raises(InputError, match="weights 'flaxx' is not known; did you mean 'flax'"):
        save_pretrained(tmp_path / "no", CONFIG, "masked_lm", params, weights="flaxx")
    assert not (tmp_path / "no").exists()


def test_a_head_that_a_family_has_not_is_refused(tmp_path):
    config = BertConfig.named("tiny", "nomic_bert", vocab_size=20, pooler=False)
    save_pretrained(tmp_path / "model", config, "encoder", random_params(config, "encoder"))
    with pytest.raises(InputError, match="family nomic_bert has no head 'question_answering'"):
        load_pretrained(tmp_path / "model", "question_answering")
    with pytest.raises(InputError, match=r"expected a tensor 'bert\.embeddings\.position_embeddings\.weight'"):
        load_pretrained(tmp_path / "model", "encoder", family="bert")


def test_a_decoder_of_its_own(tmp_path):
    config = CONFIG.replace(tie_word_embeddings=False)
    params = random_params(config, "masked_lm")
    save_pretrained(tmp_path / "model", config, "masked_lm", params)
    loaded = load_pretrained(tmp_path / "model")
    assert loaded.config == config and equal(loaded.params, params)
    assert not np.array_equal(
        params["mlm"]["decoder"]["embedding"], params["embeddings"]["word_embeddings"]["embedding"]
    )
