"""Calls of one pipeline in several threads, and inside of each other, give the answers of calls one after the other."""

import itertools
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import pytest
from gliners import write_gliner

from bert_jax.config import BertConfig
from bert_jax.conversion.encoder_decoder import save_encoder_decoder
from bert_jax.conversion.generation_settings import GenerationSettings
from bert_jax.inference import PIPELINES, PretrainedModel, pipeline
from bert_jax.inference.padded_lengths import PaddedLengths
from bert_jax.modeling import EncoderDecoder

TEXTS = ["the cat sat", "a red river of stone", "dog", "the old house is good and red", "a bird"]
MASKED = ["the [MASK] sat", "a red [MASK] of stone", "the old [MASK] is good and red"]
PAIR = {"text": "the cat sat on a stone", "head": (4, 7), "tail": (17, 22)}
QUESTIONS = [{"question": "what sat?", "context": text} for text in TEXTS]
HEAD_FIELDS = {
    "sequence_classification": {"num_labels": 2, "id2label": ("contradiction", "entailment")},
    "token_classification": {"num_labels": 3, "id2label": ("O", "B-X", "I-X")},
}


def found_in(texts):
    return [[{"start": 0, "end": 1, "label": "X"}, {"start": 2, "end": 3, "label": "Y"}] for _ in texts]


# Pipeline -> calls with different options; each is made with several batch sizes.
CALLS = {
    "feature-extraction": [(TEXTS, {}), (["the cat " * 40], {"truncation": True})],
    "fill-mask": [(MASKED, {}), (MASKED, {"top_k": 1}), (MASKED, {"targets": ["cat", "stone"]})],
    "pseudo-log-likelihood": [(TEXTS, {}), (TEXTS, {"tokens": True, "within_word": "left-to-right"})],
    "text-classification": [(TEXTS, {}), (TEXTS, {"top_k": None}), (TEXTS, {"windows": True, "max_length": 6})],
    "zero-shot-classification": [(TEXTS, {"candidate_labels": "cat,dog"}),
                                 (TEXTS, {"candidate_labels": ["river"], "multi_label": True})],
    "sentence-embedding": [(TEXTS, {}), (TEXTS, {"prompt": "a dog "}), (TEXTS, {"truncate_dim": 4})],
    "similarity": [(TEXTS, {"second": TEXTS[:2]}), (TEXTS, {"second": TEXTS[2:], "prompt": "a dog "})],
    "search": [(TEXTS[:2], {"corpus": TEXTS}), (TEXTS[:2], {"top_k": 1}), (TEXTS, {"prompt": "a dog "})],
    "sparse-embedding": [(TEXTS, {}), (TEXTS, {"max_active_dims": 3}), (TEXTS, {"prompt": "a dog "})],
    "sparse-similarity": [(TEXTS, {"second": TEXTS[:2]}), (TEXTS, {"second": TEXTS[2:]})],
    "sparse-search": [(TEXTS[:2], {"corpus": TEXTS, "max_active_dims": 3}), (TEXTS, {"top_k": 1})],
    "multi-vector-embedding": [(TEXTS, {}), (TEXTS, {"task": "query"}), (TEXTS, {"prompt": "a dog "})],
    "multi-vector-similarity": [(TEXTS, {"second": TEXTS[:2]}), (TEXTS, {"second": TEXTS[2:]})],
    "multi-vector-search": [(TEXTS[:2], {"corpus": TEXTS}), (TEXTS, {"top_k": 1})],
    "text-generation": [(TEXTS, {"max_new_tokens": 6}), (TEXTS, {"length": 4, "temperature": 1.0, "seed": 3}),
                        (TEXTS, {"max_new_tokens": 6, "forbidden": ["cat"], "steps": 2})],
    "fill-in": [(MASKED, {}), (MASKED, {"gap_lengths": (1, 2)}), (MASKED, {"forbidden": ["cat"], "temperature": 0.5})],
    "question-answering": [(QUESTIONS, {}), (QUESTIONS, {"top_k": 2, "max_answer_len": 2})],
    "relation-extraction": [([PAIR] * 3, {"markers": "typed_entity_marker_punct"}),
                            (TEXTS, {"markers": "entity_marker_punct", "tagger": found_in})],
    "rerank": [("a cat", {"documents": TEXTS}), ("a dog", {"documents": TEXTS[:3], "top_k": 1, "prompt": "the "})],
    "text2text-generation": [(TEXTS, {}), (TEXTS, {"max_length": 4}), (TEXTS, {"do_sample": True, "seed": 1})],
    "token-classification": [(TEXTS, {}), (TEXTS, {"aggregation_strategy": "first", "ignore_labels": ()})],
    "zero-shot-ner": [(TEXTS, {"labels": "cat,stone"}), (TEXTS, {"labels": ["old"], "threshold": 0.1})],
}  # fmt: skip
BATCH_SIZES = (None, 1, 2)


def write_encoder_decoder(path, tokenizer):
    size = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64, "max_position_embeddings": 32}
    config = BertConfig(vocab_size=tokenizer.vocab_size, num_hidden_layers=1, initializer_range=0.4, **size)
    model = EncoderDecoder(config, config)
    ids = {"decoder_start_token_id": tokenizer.cls_id, "eos_token_id": tokenizer.sep_id}
    settings = GenerationSettings(**ids, pad_token_id=tokenizer.pad_id, max_length=8)
    save_encoder_decoder(path, model, model.init(jax.random.key(0)), settings, tokenizer)
    return path


@pytest.fixture(scope="module")
def opened(tmp_path_factory, write_small, tiny_tokenizer):
    """Returns a pipeline over a small model; each text is padded to its own rounded length."""
    root, directories = tmp_path_factory.mktemp("models"), {}

    def directory(head):
        if head == "encoder_decoder":
            return write_encoder_decoder(root / head, tiny_tokenizer)
        if head == "zero_shot_ner":
            return write_gliner(root / head, tiny_tokenizer)
        return write_small(root / head, head, initializer_range=0.5, **HEAD_FIELDS.get(head, {}))

    def open_one(name):
        head = PIPELINES[name].head
        if head not in directories:
            directories[head] = directory(head)
        pipe = pipeline(name, directories[head])
        pipe.use_every_length()
        if name.endswith("search"):
            pipe.index(TEXTS)
        return pipe

    return open_one


def calls_of(name):
    """The calls of a pipeline, as functions of it."""
    of_one = [(texts, options, size) for (texts, options), size in itertools.product(CALLS[name], BATCH_SIZES)]
    return [lambda pipe, call=call: pipe(call[0], batch_size=call[2], **call[1]) for call in of_one]


def same(ours, theirs):
    """Whether two answers are equal to the last bit."""
    if isinstance(ours, dict):
        return ours.keys() == theirs.keys() and all(same(ours[name], theirs[name]) for name in ours)
    if isinstance(ours, list | tuple):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if hasattr(ours, "tocsr"):
        ours, theirs = ours.toarray(), theirs.toarray()
    return np.array_equal(ours, theirs)


@pytest.fixture
def often():
    """Threads take turns often."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def test_every_pipeline_is_called():
    assert CALLS.keys() == set(PIPELINES)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CALLS)
def test_threads(name, opened, often):
    pipe, calls = opened(name), calls_of(name)
    expected = [call(pipe) for call in calls]
    before = dict(vars(pipe))
    together = threading.Barrier(4)

    def made(start):
        together.wait()
        order = [*range(start, len(calls)), *range(start)]
        return {i: calls[i](pipe) for i in order}

    with ThreadPoolExecutor(4) as threads:
        for found in threads.map(made, range(4)):
            for i, answers in found.items():
                assert same(answers, expected[i]), (CALLS[name][i // len(BATCH_SIZES)], BATCH_SIZES[i % 3])
    assert all(vars(pipe)[attribute] is value for attribute, value in before.items())


def test_each_thread_has_its_own_batch_size(opened, monkeypatch, often):
    embed, seen, begin, together = opened("sentence-embedding"), set(), PretrainedModel.begin, threading.Barrier(3)
    current = threading.local()

    def watched(self, inputs, *args, **options):
        seen.add((current.size, len(inputs["input_ids"])))
        return begin(self, inputs, *args, **options)

    monkeypatch.setattr(PretrainedModel, "begin", watched)

    def made(size):
        current.size = size
        together.wait()
        for _ in range(20):
            embed(["the cat"] * 6, batch_size=size)

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(made, (1, 2, 3)))
    assert seen == {(1, 1), (2, 2), (3, 3)}


def inside(name, pipe, inner):
    """Call a pipeline with a callback, or an iterable, that calls it too; return its answer and those of the calls."""
    found = []

    def notice(*_):
        found.append(inner(pipe))

    def texts():
        notice()
        yield from TEXTS

    def tagger(texts):
        notice()
        return found_in(texts)

    match name:
        case "text-generation" | "fill-in":
            answer = pipe(MASKED, steps=2, batch_size=2, on_pass=notice)
        case "relation-extraction":
            answer = pipe(TEXTS, markers="typed_entity_marker_punct", tagger=tagger, batch_size=2)
        case "rerank":
            answer = pipe("a cat", texts(), batch_size=2)
        case _:
            answer = pipe(TEXTS[:3], texts(), top_k=2, batch_size=2)
    return answer, found


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "name",
    ["text-generation", "fill-in", "relation-extraction", "rerank", "search", "sparse-search", "multi-vector-search"],
)
def test_calls_inside_of_a_call(name, opened):
    pipe = opened(name)
    expected, _ = inside(name, pipe, lambda pipe: None)
    for call in calls_of(name):
        answer, found = inside(name, pipe, call)
        assert same(answer, expected)
        assert found and all(same(each, call(pipe)) for each in found)


def test_a_corpus_may_be_replaced_during_a_call(opened):
    search = opened("search")
    expected = search(TEXTS, TEXTS[:2])

    def corpus():
        search.index(["dog"], truncate_dim=4)
        yield from TEXTS[:2]

    assert same(search(TEXTS, corpus()), expected)
    assert search.nearest(TEXTS)[1].tolist() == [[0]] * len(TEXTS)


def test_padded_lengths_are_shared_by_threads(often):
    lengths = PaddedLengths(512, "cpu")
    some = [np.random.default_rng(seed).integers(1, 512, 400) for seed in range(8)]

    def chosen(own):
        return [max(lengths.choose(own[:n])) >= own[:n].max() for n in range(1, 400)]

    with ThreadPoolExecutor(8) as threads:
        assert all(map(all, threads.map(chosen, some)))
