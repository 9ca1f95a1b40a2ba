"""Asking a finished model: arrays of any shape in and out, pipelines over text, and questions that do not fit."""

import dataclasses
import pathlib

import jax
import numpy as np
import pytest
from random_models import normal_params

import bert_jax
from bert_jax.config import BertConfig
from bert_jax.config.gliner import GlinerConfig
from bert_jax.conversion.huggingface import save_pretrained
from bert_jax.errors import InputError
from bert_jax.inference import PIPELINES, PretrainedModel, from_pretrained, pipeline
from bert_jax.inference.padding import bucket
from bert_jax.inference.programs import _programs
from bert_jax.modeling import HEADS, Compute
from bert_jax.tokenization import word_piece

WORDS = [
    "paris", "berlin", "rome", "is", "the", "capital", "of", "france", "germany", "italy", "a", "city", "big", "old",
    "and", ".", ",", "?", "##s", "##ly", "in",
]  # fmt: skip
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
CONFIG = BertConfig(
    vocab_size=len(PIECES),
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=24,
    max_position_embeddings=20,
    num_labels=3,
    id2label=("bad", "fair", "good"),
    gliner=GlinerConfig(max_width=3, hidden_size=8),
)
ORACLE = pathlib.Path(__file__).parents[3] / "shared" / "data" / "minilm_oracle"


def model_of(head: str, **changes) -> PretrainedModel:
    config = CONFIG.replace(**changes)
    tokenizer = word_piece(PIECES)
    params = normal_params(config, head, 0.3, seed=3)
    return PretrainedModel(config, head, params, tokenizer, Compute(), max_length=config.max_position_embeddings)


def saved(path: pathlib.Path, head: str, **changes) -> pathlib.Path:
    model_of(head, **changes).save_pretrained(path)
    return path


def rows(shape: tuple[int, ...], lengths: tuple[int, ...]) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    mask = np.arange(shape[-1]) < np.reshape(lengths, (-1,) + (1,) * (len(shape) - 1))
    mask = np.broadcast_to(mask, shape).astype(np.int32)
    ids = np.where(mask, generator.integers(5, len(PIECES), shape), 0)
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": (ids % 2) * mask}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("head", HEADS)
def test_padding_to_few_shapes_changes_nothing(head):
    model = model_of(head)
    shape = (3, 4, 11) if head == "multiple_choice" else (3, 11)
    inputs = rows(shape, (11, 9, 4))
    if head == "zero_shot_ner":
        inputs |= {
            "word_positions": np.array([[4, 5, 7, 9], [4, 6, 0, 0], [3, 0, 0, 0]]),
            "type_positions": [[1, 2]] * 3,
        }
    direct = jax.jit(
        lambda params, inputs: model.bert.apply(params, **inputs, output_hidden_states=True, output_attentions=True)
    )(model.params, inputs)
    out = model(**inputs, output_hidden_states=True, output_attentions=True)
    assert jax.tree.structure(out) == jax.tree.structure(direct)
    for ours, theirs in zip(jax.tree.leaves(out), jax.tree.leaves(direct), strict=True):
        assert isinstance(ours, np.ndarray) and ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=2e-5 * np.abs(theirs).max())


def test_masked_positions():
    model = model_of("masked_lm")
    inputs, places = rows((3, 9), (9, 9, 6)), np.array([[1, 2, 8], [0, 3, 4], [5, 1, 0]])
    everywhere, gathered = model(**inputs).logits, model(**inputs, masked_positions=places).logits
    expected = np.take_along_axis(everywhere, places[..., None], axis=1)
    np.testing.assert_allclose(gathered, expected, rtol=0, atol=1e-4)


def test_shapes_are_few():
    assert [bucket(n) for n in (1, 2, 3, 5, 9, 16, 17, 25, 33, 49, 100)] == [1, 2, 4, 8, 16, 16, 24, 32, 48, 64, 128]
    assert all(n <= bucket(n, 16) <= max(16, 1.5 * n) for n in range(1, 600))
    model = model_of("encoder")
    model(**rows((5, 9), (9, 9, 8, 9, 9)))
    compiled = len(_programs)
    for batch, length in ((5, 10), (6, 11), (8, 16), (5, 1)):
        assert model(**rows((batch, length), (length,) * batch)).last_hidden_state.shape == (batch, length, 16)
    assert len(_programs) == compiled


def test_sequences_up_to_the_last_position():
    assert model_of("encoder")(np.full((1, 20), 5)).last_hidden_state.shape == (1, 20, 16)
    with pytest.raises(InputError, match="at most the model's 20 positions, found a sequence of 21 tokens"):
        model_of("encoder")(np.full((1, 21), 5))


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"input_ids": [[5, len(PIECES)]]}, f"input_ids: expected 0 to {len(PIECES) - 1}, found {len(PIECES)}"),
        ({"input_ids": [[5, -1]]}, "input_ids: expected 0 to .*, found -1"),
        ({"input_ids": [5, 6]}, r"expected a non-empty array \[B, S\], found shape \[2\]"),
        ({"input_ids": np.zeros((0, 4), int)}, r"expected a non-empty array \[B, S\]"),
        ({"input_ids": [[5, 6], [7]]}, "input_ids: expected rows of equal length"),
        ({"input_ids": [[5.0, 6.0]]}, "input_ids: expected integers, found float64"),
        ({"input_ids": [[5, 6]], "attention_mask": [[1]]}, r"attention_mask: expected shape \[1, 2\] like input_ids"),
        ({"input_ids": [[5, 6]], "attention_mask": [[1, 2]]}, "attention_mask: expected 0 to 1, found 2"),
        ({"input_ids": [[5, 6]], "token_type_ids": [[0, 2]]}, "token_type_ids: expected 0 to 1, found 2"),
        ({"input_ids": [[5, 6]], "position_ids": [[0, 20]]}, "position_ids: expected 0 to 19, found 20"),
        ({"input_ids": [[5, 6]], "masked_positions": [[2]]}, "masked_positions: expected 0 to 1, found 2"),
    ],
)
def test_inputs_that_do_not_fit(inputs, message):
    with pytest.raises(InputError, match=message):
        model_of("masked_lm")(**inputs)


def test_public_face(tmp_path):
    saved(tmp_path / "model", "encoder")
    model = bert_jax.from_pretrained(tmp_path / "model")
    out = model(**model.tokenizer(["paris is big", "rome"]))
    assert out.last_hidden_state.shape == (2, 5, 16) and out.pooler_output.shape == (2, 16)
    model.save_pretrained(tmp_path / "copy")
    for name in ("model.safetensors", "config.json", "vocab.txt"):
        assert (tmp_path / "copy" / name).read_bytes() == (tmp_path / "model" / name).read_bytes()
    assert "params" not in repr(model) or len(repr(model)) < 2000


def test_bfloat16_is_close(tmp_path):
    saved(tmp_path / "model", "sequence_classification")
    exact, rough = (from_pretrained(tmp_path / "model", dtype=dtype) for dtype in ("float32", "bfloat16"))
    inputs = exact.tokenizer(["paris is the capital of france", "rome"])
    a, b = exact(**inputs).logits, rough(**inputs).logits
    assert 0 < np.abs(a - b).max() < 0.1 * np.abs(a).max() and b.dtype == np.float32
    with pytest.raises(InputError, match="did you mean 'bfloat16'"):
        from_pretrained(tmp_path / "model", dtype="bf16")


def test_a_vocabulary_that_does_not_fit(tmp_path):
    small = saved(tmp_path / "small", "encoder")
    vocabulary = [*PIECES, "one", "more"]
    word_piece(vocabulary).save(small)
    with pytest.raises(InputError, match=f"does not fit the embedding: expected 1 to {len(PIECES)} pieces, .* found"):
        from_pretrained(small)
    padded = saved(tmp_path / "padded", "encoder", vocab_size=64)  # rows up to a round number
    assert from_pretrained(padded).config.vocab_size == 64
    large = saved(tmp_path / "large", "encoder", vocab_size=len(PIECES) + 1024)
    with pytest.raises(InputError, match="does not fit the embedding"):
        from_pretrained(large)


def test_a_model_without_tokenizer(tmp_path):
    save_pretrained(tmp_path / "model", CONFIG, "encoder", normal_params(CONFIG, "encoder", 0.3, seed=3))
    model = from_pretrained(tmp_path / "model")
    assert model.tokenizer is None and model([[5, 6]]).pooler_output.shape == (1, 16)
    with pytest.raises(InputError, match="expected a model with a tokenizer"):
        pipeline("feature-extraction", model)


def test_an_untrained_head_is_said_aloud(tmp_path):
    saved(tmp_path / "model", "masked_lm")
    with pytest.warns(UserWarning, match=r"no trained token_classification head.*classifier\.weight"):
        assert from_pretrained(tmp_path / "model", head="token_classification").missing
    with pytest.raises(InputError, match="text-classification needs a trained sequence_classification head"):
        pipeline("text-classification", tmp_path / "model")
    with pytest.raises(InputError, match="needs a model with a sequence_classification head, found a masked_lm head"):
        pipeline("text-classification", from_pretrained(tmp_path / "model"))
    with pytest.raises(InputError, match="did you mean 'fill-mask'"):
        pipeline("fill-masks", tmp_path / "model")


def test_fill_mask(tmp_path):
    fill = pipeline("fill-mask", saved(tmp_path / "model", "pretraining"))
    answers = fill("Paris is the [MASK] of France.", top_k=3)
    assert [set(answer) for answer in answers] == [{"score", "token", "token_str", "sequence"}] * 3
    assert [a["score"] for a in answers] == sorted((a["score"] for a in answers), reverse=True)
    model = from_pretrained(tmp_path / "model")
    inputs = model.tokenizer(["Paris is the [MASK] of France."])
    logits = model(**inputs).prediction_logits[0, 4].astype(np.float64)
    probabilities = np.exp(logits) / np.exp(logits).sum()
    for answer in answers:
        assert answer["score"] == pytest.approx(probabilities[answer["token"]], rel=1e-4)
        assert answer["token_str"] == PIECES[answer["token"]]
    everything = fill("paris is the [MASK] of france.", top_k=10_000)
    assert len(everything) == len(PIECES) and sum(a["score"] for a in everything) == pytest.approx(1)
    two = fill("paris [MASK] [MASK]", top_k=2)
    assert len(two) == 2 and all(len(answers) == 2 for answers in two)
    assert two[0][0]["sequence"].startswith("[CLS] paris") and two[0][0]["sequence"].endswith("[MASK] [SEP]")
    assert "[CLS]" not in answers[0]["sequence"]
    chosen = fill("paris is [MASK].", targets=["Old", "big"])
    assert {answer["token_str"] for answer in chosen} == {"old", "big"}
    assert fill([]) == []


def test_fill_mask_over_uneven_texts(tmp_path):
    model = from_pretrained(saved(tmp_path / "model", "masked_lm"))
    texts = [
        "[MASK]",
        "paris is the [MASK] of [MASK].",
        "rome [MASK]",
        "a big old [MASK] city in france and germany .",
    ] * 3
    together = pipeline("fill-mask", model, batch_size=5)(texts)
    alone = pipeline("fill-mask", model)
    for text, answers in zip(texts[:4], together[4:8], strict=True):
        expected = alone(text)
        first, second = (answers[0], expected[0]) if text.count("[MASK]") == 1 else (answers[1][0], expected[1][0])
        assert first["token"] == second["token"] and first["sequence"] == second["sequence"]
        assert first["score"] == pytest.approx(second["score"], rel=1e-4)


def test_fill_mask_questions_that_do_not_fit(tmp_path):
    fill = pipeline("fill-mask", saved(tmp_path / "model", "masked_lm"))
    for question, message in (
        ((["[MASK]", "no mask"],), r"text 1: expected a \[MASK\] to fill, found none in 'no mask'"),
        (("[MASK] " + "paris " * 30,), "text 0: expected at most the model's 20 positions, found 33 tokens"),
        ((["[MASK]", 3],), "text 1: expected a string, found int"),
        (("[MASK]", 0), "top_k: expected a positive integer, found 0"),
        (("[MASK]", 5, ["quux"]), "target 'quux': expected one token of the vocabulary"),
        (("[MASK]", 5, ["paris rome"]), "target 'paris rome': expected one token of the vocabulary, found 2"),
        (("[MASK]", 5, []), "targets: expected at least one token"),
    ):
        with pytest.raises(InputError, match=message):
            fill(*question)


def test_text_classification():
    model = model_of("sequence_classification")
    classify = pipeline("text-classification", model, batch_size=2)
    texts = ["paris is big", "rome", "berlin is the old capital of germany .", "a city", "a city in italy"]
    logits = np.concatenate([model.run(model.tokenizer([text]), ("logits",)).logits for text in texts])
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    answers = classify(texts)
    assert [answer["label"] for answer in answers] == [CONFIG.id2label[i] for i in probabilities.argmax(axis=1)]
    np.testing.assert_allclose([answer["score"] for answer in answers], probabilities.max(axis=1), rtol=1e-3)
    (alone,) = classify("rome")
    assert alone["label"] == answers[1]["label"] and alone["score"] == pytest.approx(answers[1]["score"], rel=1e-4)
    every = classify(texts, top_k=None)
    assert all(sum(answer["score"] for answer in answers) == pytest.approx(1) for answers in every)
    assert [len(answers) for answers in classify(texts, top_k=2)] == [2] * 5
    pairs = [{"text": text, "text_pair": other} for text, other in zip(texts, reversed(texts), strict=True)]
    paired = model.run(model.tokenizer(texts[:1], texts[-1:]), ("logits",)).logits[0]
    assert classify(pairs)[0]["label"] == CONFIG.id2label[paired.argmax()]
    assert classify(pairs[0])[0]["label"] == classify(pairs)[0]["label"]
    for question, message in (
        ([{"text": "a"}], "text 0: expected strings only, or dicts"),
        (["ok", float("nan")], "text 1: expected strings only, or dicts.*found nan"),
        (["ok", "fine", {"text": "a", "text_pair": "b"}], "text 2: expected strings only"),
        ([{"text": "a", "text_pair": "b"}, "ok"], "text 1: .*found 'ok'"),
        (["a", pairs[0]], "text 1: expected strings only"),
        ([pairs[0], {"text": "a", "text_pair": 3}], "text 1: expected a string, found int"),
        (["paris " * 30], "text 0: expected at most the model's 20 positions, found 32 tokens"),
    ):
        with pytest.raises(InputError, match=message):
            classify(question)
    assert len(classify(["paris " * 30], truncation=True)) == 1


class Table:
    """A DataFrame as far as a pipeline sees it: iterating over it gives the names of its columns."""

    columns = ("text",)

    def __iter__(self):
        return iter(self.columns)


@pytest.mark.parametrize("task", ["text-classification", "token-classification", "fill-mask", "sentence-embedding"])
def test_a_table_is_not_taken_for_the_names_of_its_columns(task):
    ask = pipeline(task, model_of(PIPELINES[task].head))
    with pytest.raises(InputError, match="found a table; pass one of its columns, such as 'text'"):
        ask(Table())


@pytest.mark.parametrize(
    ("verb", "task"),
    [
        ("classify", "text-classification"),
        ("tag", "token-classification"),
        ("answer", "question-answering"),
        ("embed", "sentence-embedding"),
    ],
)
def test_a_verb_of_the_command_line_names_its_pipeline(verb, task):
    kind = PIPELINES[task]
    assert type(pipeline(verb, model_of(kind.head))) is kind


def test_regression_and_independent_classes():
    texts = ["paris is big", "rome"]
    for changes, expected in (
        ({"num_labels": 1, "problem_type": "regression"}, lambda x: x),
        ({"num_labels": 1}, lambda x: 1 / (1 + np.exp(-x))),
        ({"num_labels": 4, "problem_type": "multi_label_classification"}, lambda x: 1 / (1 + np.exp(-x))),
    ):
        model = model_of("sequence_classification", id2label=None, **changes)
        scores = expected(model.run(model.tokenizer(texts), ("logits",)).logits)
        for row, answers in zip(scores, pipeline("text-classification", model)(texts, top_k=None), strict=True):
            for answer in answers:
                assert answer["score"] == pytest.approx(row[int(answer["label"].removeprefix("LABEL_"))], rel=1e-4)


def test_feature_extraction_and_embeddings():
    model = model_of("pretraining")
    texts = ["paris is big", "rome", "berlin is the old capital of germany ."]
    features = pipeline("feature-extraction", model, batch_size=2)(texts)
    assert [array.shape for array in features] == [(5, 16), (3, 16), (10, 16)]
    whole = model(**model.tokenizer(texts))
    np.testing.assert_allclose(features[2], whole.last_hidden_state[2], rtol=0, atol=1e-4)
    embed = pipeline("embed", model, batch_size=2)
    embeddings = embed(texts)
    means = np.stack([array.mean(axis=0) for array in features])
    np.testing.assert_allclose(embeddings, means / np.linalg.norm(means, axis=1, keepdims=True), atol=1e-5)
    np.testing.assert_allclose(embed("rome"), embeddings[1], atol=1e-5)
    assert embed([]).shape == (0, 16)
    assert embed("paris " * 40).shape == (16,)  # cut, as sentence-transformers does
    with pytest.raises(InputError, match="found 42 tokens"):
        embed("paris " * 40, truncation=False)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("compiling", "lengths"), [(10**9, [20]), (4000, [20, 8]), (0, [20, 8, 6, 4])])
def test_another_length_is_compiled_once_it_pays(monkeypatch, compiling, lengths):
    monkeypatch.setattr("bert_jax.inference.padded_lengths._COMPILING", {"cpu": compiling})
    embed = pipeline("embed", model_of("encoder"))
    texts = [" ".join(["paris"] * (1 + i % 6)) for i in range(2000)] + ["paris " * 28]
    seen, begin = {}, PretrainedModel.begin

    def watched(self, inputs, fields, **shape):
        seen[shape["length"]] = shape["rows"]
        return begin(self, inputs, fields, **shape)

    monkeypatch.setattr(PretrainedModel, "begin", watched)
    together = embed(texts)
    assert list(seen) == lengths
    assert all(512 < rows * length <= 1024 for length, rows in seen.items())
    np.testing.assert_allclose(together[:5], [embed(text) for text in texts[:5]], atol=1e-5)


def test_what_a_length_would_have_spared_is_remembered(monkeypatch):
    monkeypatch.setattr("bert_jax.inference.padded_lengths._COMPILING", {"cpu": 30})
    embed, seen, begin = pipeline("embed", model_of("encoder")), [], PretrainedModel.begin

    def watched(self, inputs, fields, **shape):
        seen.append(shape["length"])
        return begin(self, inputs, fields, **shape)

    monkeypatch.setattr(PretrainedModel, "begin", watched)
    for words in (18, 1, 1, 1):
        embed("paris " * words)
    assert seen == [20, 20, 4, 4]  # 16 of each row of 20 were padding


def test_batches_are_begun_before_the_first_is_waited_for(monkeypatch):
    begin, events = PretrainedModel.begin, []

    def watched(self, *args, **shape):
        output = begin(self, *args, **shape)
        events.append("begun")

        def wait():
            events.append("waited")
            return output()

        return wait

    monkeypatch.setattr(PretrainedModel, "begin", watched)
    pipeline("embed", model_of("encoder"), batch_size=1)(["paris"] * 5)
    assert events == ["begun"] * 3 + ["waited", "begun"] * 2 + ["waited"] * 3


def test_windows_keep_the_order(monkeypatch):
    monkeypatch.setattr("bert_jax.inference.base.TEXT_WINDOW", 4)
    embed = pipeline("embed", model_of("encoder"), batch_size=3)
    texts = [" ".join(["paris"] * (1 + 7 * i % 11)) for i in range(11)]
    together = embed(texts)
    for text, row in zip(texts[::3], together[::3], strict=True):
        np.testing.assert_allclose(embed(text), row, atol=1e-5)
    with pytest.raises(InputError, match="text 6: expected at most"):
        pipeline("feature-extraction", model_of("encoder"))([*texts[:6], "paris " * 30])


def snapshot(name: str) -> np.ndarray:
    """A matrix in the oracle's YAML: `- - x` opens a row, `  - x` goes on with it."""
    lines = (ORACLE / f"test_bert__bert_{name}.snap").read_text().split("---\n")[2].splitlines()
    matrix: list[list[float]] = []
    for line in lines:
        if line.startswith("- - "):
            matrix.append([])
        matrix[-1].append(float(line.split()[-1]))
    return np.array(matrix)


def test_minilm_knows_what_is_alike(minilm):
    embeddings = pipeline("sentence-embedding", minilm)(
        ["A man is eating food.", "Somebody has a meal.", "The stock market fell sharply today."]
    )
    alike, unlike = embeddings[0] @ embeddings[1], embeddings[0] @ embeddings[2]
    assert alike > 0.5 > 0.2 > unlike
    assert np.linalg.norm(embeddings, axis=1) == pytest.approx(np.ones(3), abs=1e-6)


@pytest.fixture(scope="module")
def minilm_outputs(minilm):
    """By snapshot: what we answer, with tanh GELU as the oracle was made."""
    if not ORACLE.is_dir():
        pytest.skip("needs ../shared/data/minilm_oracle")
    model = from_pretrained(minilm)
    config = model.config.replace(hidden_act="gelu_tanh", normalize_embeddings=False)
    model = dataclasses.replace(model, config=config)
    outputs = {}
    question = "What is Deep Learning?"
    for name, texts in (("batch", [question, "Deep Learning is...", question]), ("single", [question])):
        inputs = model.tokenizer(texts)
        out = model(**inputs)
        outputs[name] = out.sentence_embedding
        outputs[f"{name}_pooled"] = out.last_hidden_state[:, 0]
        outputs[f"{name}_raw"] = out.last_hidden_state[inputs["attention_mask"] > 0]
    return outputs


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """The largest difference over the largest value."""
    assert a.shape == b.shape
    return float(np.abs(a - b).max() / np.abs(b).max())


@pytest.mark.parametrize("kind", ["batch", "batch_pooled", "batch_raw"])
def test_minilm_against_another_implementation(minilm_outputs, kind):
    assert distance(minilm_outputs[kind], snapshot(kind)) < 1e-5


@pytest.mark.parametrize("kind", ["", "_pooled", "_raw"])
def test_minilm_alone_against_another_implementation(minilm_outputs, kind):
    """The oracle's single sentence is its batch's first, but its two answers for it are up to 7e-4 apart.

    They come from text-embeddings-inference (`backends/candle/tests/test_bert.rs`), which takes two numbers within
    5e-3, or later two vectors whose cosine is above 0.999, for equal, and so asserts that these two are. No float32
    result is within 1e-5 of both: ours is that near to the batch's. The single one, which is of one forward pass as its
    three snapshots agree to 2e-7, is then as far from us as from the oracle's own batch, in norm as well.
    """
    ours, theirs, same = minilm_outputs[f"single{kind}"], snapshot(f"single{kind}"), snapshot(f"batch{kind}")
    same = same[: len(theirs)]
    assert distance(ours, same) < 1e-5
    apart = distance(theirs, same)
    assert apart < 1e-3 and distance(ours, theirs) < 1.01 * apart
    assert np.linalg.norm(ours - theirs) < 1.01 * np.linalg.norm(same - theirs)
    raw = snapshot("single_raw")
    pooled = {"": raw.mean(0, keepdims=True), "_pooled": raw[:1], "_raw": raw}[kind]
    assert np.abs(theirs - pooled).max() < 2e-7


def test_the_same_answers_as_the_pipelines_of_transformers(tmp_path):
    pytest.importorskip("torch", reason="PyTorch is the oracle; it is installed on Python 3.11 only")
    transformers = pytest.importorskip("transformers", reason="transformers is the oracle, on Python 3.11 only")
    for head, task, questions in (
        ("masked_lm", "fill-mask", ["Paris is the [MASK] of France.", "[MASK] and [MASK]."]),
        ("sequence_classification", "text-classification", ["paris is big", "rome is old"]),
    ):
        path = saved(tmp_path / head, head)
        tokenizer = transformers.AutoTokenizer.from_pretrained(path)
        theirs = transformers.pipeline(task, model=str(path), tokenizer=tokenizer)(questions)
        ours = pipeline(task, path)(questions)
        assert jax.tree.structure(ours) == jax.tree.structure(theirs)
        for mine, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
            assert mine == (pytest.approx(other, rel=1e-4) if isinstance(other, float) else other)
