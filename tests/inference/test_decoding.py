"""Greedy search, beam search and sampling beside transformers' `generate` and its processors of logits."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from encoder_decoders import IDS, saved, sources, theirs

from bert_jax.conversion.encoder_decoder import load_encoder_decoder
from bert_jax.conversion.generation_settings import GenerationSettings
from bert_jax.errors import InputError
from bert_jax.inference.decoding import allowed, candidates, generate
from bert_jax.modeling import Compute

run = jax.jit(generate, static_argnums=(0, 4))


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("encoder_decoders")


def check_written(model, loaded, **options):
    torch = pytest.importorskip("torch")

    settings = loaded.settings.changed(**options)
    ids, mask = sources()
    with torch.no_grad():
        expected = model.generate(
            torch.tensor(ids, dtype=torch.long), attention_mask=torch.tensor(mask), do_sample=False, **options
        ).numpy()
    found = np.asarray(run(loaded.model, loaded.params, ids, mask, settings))
    lengths = []
    for ours, other in zip(found, expected, strict=True):
        ends = np.flatnonzero(other == 3)  # behind the end, transformers fills up with one token or another
        stop = ends[0] + 1 if len(ends) else len(other)
        assert ours[:stop].tolist() == other[:stop].tolist()
        assert (ours[stop:] == 0).all()
        lengths.append(stop)
    return lengths


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("name", ["bert", "bert_deep", "roberta"])
def test_greedy_and_beam_search_write_what_transformers_writes(name, seed, root):
    model, loaded = theirs(name, seed), load_encoder_decoder(saved(root, name, seed))
    assert max(check_written(model, loaded, max_length=21)) > 5
    assert max(check_written(model, loaded, max_length=21, num_beams=4)) > 5


OPTIONS = [
    {"num_beams": 4, "length_penalty": 2.0},
    {"num_beams": 4, "length_penalty": 0.0, "early_stopping": "never"},
    {"num_beams": 4, "length_penalty": -1.0},
    {"num_beams": 3, "early_stopping": True},
    {"num_beams": 3, "early_stopping": "never", "min_length": 8},
    {"num_beams": 4, "no_repeat_ngram_size": 2},
    {"no_repeat_ngram_size": 1, "min_length": 12},
    {"no_repeat_ngram_size": 3},
]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_options_of_generation_are_those_of_transformers(options, root):
    lengths = []
    for seed in range(2):
        model, loaded = theirs("bert_narrow", seed), load_encoder_decoder(saved(root, "bert_narrow", seed))
        lengths += check_written(model, loaded, max_length=16, **options)
    assert len(set(lengths)) > 1  # some texts end before the others


def test_a_text_does_not_depend_on_the_others_of_its_batch(root):
    loaded = load_encoder_decoder(saved(root, "bert_deep"))
    ids, mask = sources()
    for beams in (1, 3):
        settings = loaded.settings.changed(max_length=12, num_beams=beams)
        together = np.asarray(run(loaded.model, loaded.params, ids, mask, settings))
        for i in range(len(ids)):
            alone = run(loaded.model, loaded.params, ids[i : i + 1], mask[i : i + 1], settings)
            assert together[i].tolist() == np.asarray(alone)[0].tolist()


def test_a_program_is_compiled_once_per_shape(root):
    loaded = load_encoder_decoder(saved(root, "bert_narrow"))
    settings = loaded.settings.changed(max_length=6)
    ids, mask = sources()
    fresh = jax.jit(lambda *args: generate(*args), static_argnums=(0, 4))
    for seed in range(3):
        fresh(loaded.model, loaded.params, sources(seed)[0], mask, settings)
    assert fresh._cache_size() == 1
    fresh(loaded.model, loaded.params, ids[:, :8], mask[:, :8], settings)
    assert fresh._cache_size() == 2


@pytest.mark.parametrize("options", [{"temperature": 0.5}, {"top_k": 4}, {"top_p": 0.6}, {"top_k": 9, "top_p": 0.3}])
def test_candidates_are_those_of_transformers(options):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    options = {"top_k": 0, **options}
    scores = np.random.default_rng(0).normal(0, 2, (7, 30)).astype(np.float32)
    expected = torch.tensor(scores)
    if "temperature" in options:
        expected = transformers.TemperatureLogitsWarper(options["temperature"])(None, expected)
    if options["top_k"]:
        expected = transformers.TopKLogitsWarper(options["top_k"])(None, expected)
    if "top_p" in options:
        expected = transformers.TopPLogitsWarper(options["top_p"])(None, expected)
    found = candidates(jnp.asarray(scores), GenerationSettings(**IDS, **options))
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-6)


def test_samples_repeat_with_their_key_and_follow_the_probabilities(root):
    loaded = load_encoder_decoder(saved(root, "bert"))
    ids, mask = (np.repeat(x[:1], 400, axis=0) for x in sources())
    settings = loaded.settings.changed(max_length=2, do_sample=True, top_k=0)
    keys = jax.random.split(jax.random.key(1), 400)
    found = np.asarray(run(loaded.model, loaded.params, ids, mask, settings, keys))
    again = np.asarray(run(loaded.model, loaded.params, ids, mask, settings, keys))
    assert np.array_equal(found, again)
    other = run(loaded.model, loaded.params, ids, mask, settings, jax.random.split(jax.random.key(2), 400))
    assert not np.array_equal(found, np.asarray(other))
    logits = loaded.model.apply(loaded.params, ids[:1], mask[:1], np.array([[2]])).logits[0, 0]
    probabilities = np.asarray(jax.nn.softmax(logits))
    shares = np.bincount(found[:, 1], minlength=60) / 400
    likely = probabilities > 0.05
    assert likely.any()
    assert (abs(shares - probabilities)[likely] < 4 * np.sqrt(probabilities * (1 - probabilities) / 400)[likely]).all()
    greedy = run(loaded.model, loaded.params, ids[:1], mask[:1], loaded.settings.changed(max_length=2))
    narrow = run(loaded.model, loaded.params, ids, mask, settings.changed(top_p=1e-6), keys)
    assert (np.asarray(narrow)[:, 1] == int(greedy[0, 1])).all()


def test_a_repeated_ngram_is_banned_where_it_would_end():
    settings = GenerationSettings(**IDS, no_repeat_ngram_size=2)
    tokens = jnp.array([[2, 5, 6, 7, 5, 0, 0], [2, 5, 6, 7, 8, 5, 9]])
    found = np.asarray(allowed(jnp.zeros((2, 10)), tokens, jnp.int32(5), settings))
    assert np.flatnonzero(np.isinf(found[0])).tolist() == [6]
    assert not np.isinf(found[1]).any()  # what is behind the length does not count


@pytest.mark.parametrize(
    "options",
    [{"num_beams": 0}, {"max_length": 1}, {"temperature": 0.0}, {"top_p": 1.5}, {"early_stopping": "always"},
     {"do_sample": True, "num_beams": 2}, {"min_length": 20}, {"length_penalty": float("nan")}, {"top_k": -1}],
)  # fmt: skip
def test_invalid_settings_are_errors(options):
    with pytest.raises(InputError, match=next(iter(options)) if len(options) == 1 else "num_beams"):
        GenerationSettings(**IDS, **options)


@pytest.mark.parametrize("beams", [1, 3])
def test_bfloat16_on_cpu_and_as_on_an_accelerator(beams, root):
    loaded = load_encoder_decoder(saved(root, "bert_narrow"))
    ids, mask = sources()
    settings = loaded.settings.changed(max_length=8, num_beams=beams)
    half = dataclasses.replace(loaded.model, compute=Compute(dtype="bfloat16"))
    found = np.asarray(run(half, loaded.params, ids, mask, settings))
    assert found.shape == (4, 8) and (found[:, 0] == 2).all()
    first = run(loaded.model, loaded.params, ids, mask, settings)[:, 1]
    assert (found[:, 1] == np.asarray(first)).mean() > 0.5  # rounding seldom changes the most likely token
    # There activations and the cache are bfloat16 too: the loops have one type from step to step.
    there = dataclasses.replace(loaded.model, compute=Compute(dtype="bfloat16", platform="tpu"))
    shape = jax.eval_shape(lambda *args: generate(there, *args, settings), loaded.params, ids, mask)
    assert shape.shape == (4, 8)
