"""What users of transformers, sentence-transformers and Flax type first gives what they expect of it."""

import dataclasses
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import users_script

from bert_jax import BertConfig, from_pretrained, load_tokenizer, pipeline
from bert_jax.errors import InputError

TEXTS = ["the cat sat on a mat", "Red RIVER", "a river of stone " * 3, "x"]


@pytest.fixture(scope="module")
def paths(tmp_path_factory, write_small):
    root = tmp_path_factory.mktemp("familiar")
    names = {"classes": ("no", "yes", "maybe")}
    write_small(root / "encoder", initializer_range=0.5, pooler=True)
    write_small(root / "embedder", "sentence_embedding", initializer_range=0.5, normalize_embeddings=False)
    write_small(root / "classifier", "sequence_classification", num_labels=3, id2label=names["classes"])
    write_small(root / "tagger", "token_classification", num_labels=3, id2label=("O", "B-X", "I-X"))
    return root


# --- Texts into a model -----------------------------------------------------------------------------------------------


def test_a_model_takes_texts(paths):
    model = from_pretrained(paths / "encoder")
    for texts in ("a cat", TEXTS):
        expected = model(**model.tokenizer(texts))
        np.testing.assert_array_equal(model(texts).last_hidden_state, expected.last_hidden_state)
    with pytest.raises(InputError, match=r"text 0: expected at most 32 tokens, found \d+"):
        model("a river of stone " * 40)


def test_encode_is_sentence_transformers_encode(paths, capfd):
    library = pytest.importorskip("sentence_transformers", reason="the oracle; it is installed on Python 3.11 only")
    path = paths / "embedder"
    theirs, ours = library.SentenceTransformer(str(path), device="cpu"), from_pretrained(path)
    for options in ({}, {"batch_size": 2}, {"normalize_embeddings": True}, {"truncate_dim": 5},
                    {"truncate_dim": 5, "normalize_embeddings": True}, {"prompt": "the dog "}):  # fmt: skip
        for texts in (TEXTS, TEXTS[0]):
            expected = theirs.encode(texts, **options)
            np.testing.assert_allclose(ours.encode(texts, **options), expected, atol=2e-5)
    vectors = theirs.encode(TEXTS)
    np.testing.assert_allclose(ours.similarity(vectors, vectors), theirs.similarity(vectors, vectors), atol=1e-5)
    capfd.readouterr()
    ours.encode(TEXTS, show_progress_bar=True)
    out, err = capfd.readouterr()
    assert out == "" and "100%" in err
    with pytest.raises(InputError, match="prompt name 'query' is not known"):
        ours.encode(TEXTS, prompt_name="query")


def test_outputs_of_a_pipeline_are_behind_the_prompt_of_the_model(paths):
    model = from_pretrained(paths / "classifier")
    settings = dataclasses.replace(model.settings, prompts=(("query", "the dog "),), default_prompt="query")
    plain = pipeline("text-classification", model)
    prompted = pipeline("text-classification", dataclasses.replace(model, settings=settings))
    np.testing.assert_array_equal(prompted.outputs("a cat"), plain.outputs("the dog a cat"))


# --- Tokenizers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"padding": True}, {"padding": "longest"}, {"padding": "max_length", "max_length": 20, "truncation": True},
        {"padding": True, "truncation": True}, {"padding": "longest", "truncation": "longest_first", "max_length": 7},
        {"padding": True, "truncation": "only_first", "max_length": 12},
        {"padding": True, "truncation": "only_second", "max_length": 16}, {"padding": "max_length", "truncation": True},
        {"padding": True, "truncation": "do_not_truncate"}, {"padding": True, "truncation": False},
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("pairs", [False, True])
def test_a_tokenizer_gives_transformers_arrays(tmp_path, paths, options, pairs):
    transformers = pytest.importorskip("transformers", reason="the oracle; it is installed on Python 3.11 only")
    load_tokenizer(paths / "encoder").save(tmp_path)
    config = tmp_path / "tokenizer_config.json"
    config.write_text(config.read_text().replace("{", '{"model_max_length": 18, ', 1))
    theirs, ours = transformers.AutoTokenizer.from_pretrained(tmp_path), load_tokenizer(tmp_path)
    short = ["a cat", "red", "x", "a river"]
    first, second = (short, TEXTS) if options.get("truncation") == "only_second" else (TEXTS, short)
    second = second if pairs else None
    expected = theirs(first, second, return_tensors="np", **options)
    for kind, array in (("np", np.ndarray), ("jax", jax.Array)):
        found = ours(first, second, return_tensors=kind, **options)
        assert all(isinstance(value, array) for value in found.values())
        assert found.keys() == expected.keys()
        for name, value in found.items():
            np.testing.assert_array_equal(value, expected[name], err_msg=name)


def test_a_tokenizer_says_what_it_does_not_do(paths):
    tokenizer = load_tokenizer(paths / "encoder")
    for options, message in (
        ({"return_tensors": "pt"}, "return_tensors: expected 'np' or 'jax', found 'pt'"),
        ({"truncation": "first"}, "truncation: expected True, False, 'longest_first', .*, found 'first'"),
        ({"padding": "longst"}, "padding: expected True, False, .*, found 'longst'"),
        ({"truncation": False, "max_length": 4}, "expected at most 4 tokens, found"),
    ):
        with pytest.raises(InputError, match=message):
            tokenizer(TEXTS, **options)


# --- Opening models ---------------------------------------------------------------------------------------------------


def test_a_config_is_opened_and_changed(paths):
    config = BertConfig.from_pretrained(paths / "classifier")
    assert (config.num_labels, config.id2label) == (3, ("no", "yes", "maybe"))
    changed = BertConfig.from_pretrained(str(paths / "classifier"), num_labels=5, hidden_dropout_prob=0.3)
    assert (changed.num_labels, changed.id2label, changed.hidden_dropout_prob) == (5, None, 0.3)


def test_a_head_gets_as_many_classes_as_asked_for(paths):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fresh = from_pretrained(paths / "encoder", "sequence_classification", num_labels=4)
        named = from_pretrained(paths / "encoder", "token_classification", id2label={0: "O", "1": "B"})
    assert fresh("a cat").logits.shape == (1, 4)
    assert named.config.label_names == ("O", "B")
    trained = from_pretrained(paths / "classifier", id2label=["a", "b", "c"], num_labels=3)
    assert trained.config.label_names == ("a", "b", "c") and not trained.missing
    np.testing.assert_array_equal(trained("a cat").logits, from_pretrained(paths / "classifier")("a cat").logits)
    assert from_pretrained(paths / "classifier", num_labels=3).config.label_names == ("no", "yes", "maybe")
    for options, message in (
        ({"num_labels": 2}, "expected the 3 classes of the trained sequence_classification head, found 2"),
        ({"num_labels": 2, "id2label": ["a", "b", "c"]}, r"id2label: expected 2 names \(num_labels\), found 3"),
        ({"id2label": {0: "a", 2: "b"}}, "id2label: expected a name for each of the numbers 0, 1, ..."),
        ({"head": "masked_lm", "num_labels": 3}, "num_labels: expected head='sequence_classification'"),
    ):
        with pytest.raises(InputError, match=message):
            from_pretrained(paths / "classifier", **options)


def test_a_pipeline_takes_its_options_when_it_is_made_or_called(paths):
    text = "the cat sat on a mat"
    plain = pipeline("ner", paths / "tagger")
    options = {"aggregation_strategy": "simple", "ignore_labels": ()}
    made = pipeline("ner", paths / "tagger", batch_size=2, device="cpu", **options)
    assert made(text) == plain(text, **options)
    found = made([text, text], batch_size=1, aggregation_strategy="none")
    assert [[token["entity"] for token in row] for row in found] == [
        [token["entity"] for token in row] for row in plain([text, text], ignore_labels=())
    ]
    assert made.batch_size == 2
    top = pipeline("classify", paths / "classifier", top_k=2, device=0)
    assert len(top(text)) == 2 and len(top(text, 3)) == 3
    with pytest.raises(InputError, match="'agregation_strategy' is not known; did you mean 'aggregation_strategy'"):
        pipeline("ner", paths / "tagger", agregation_strategy="simple")
    with pytest.raises(InputError, match=r"device: expected one of cpu:0.*, cpu or all, found 'cuda:1'"):
        pipeline("ner", paths / "tagger", device="cuda:1")


# --- JAX's own functions ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_models_and_outputs_are_pytrees(paths):
    model = from_pretrained(paths / "classifier")
    inputs = {name: jnp.asarray(array) for name, array in model.tokenizer(TEXTS).items()}
    expected = model(**inputs).logits
    halved = jax.tree.map(lambda x: x / 2, model)
    assert type(halved) is type(model) and halved.tokenizer is model.tokenizer
    assert np.abs(halved(**inputs).logits - expected).max() > 1e-3
    moved = jax.device_put(model, jax.devices()[0])
    np.testing.assert_allclose(moved(**inputs).logits, expected, atol=1e-6)
    jitted = jax.jit(lambda model, inputs: model(**inputs))
    np.testing.assert_allclose(jitted(model, inputs).logits, expected, atol=1e-5)
    rows = jax.vmap(lambda row: model(**jax.tree.map(lambda x: x[None], row)).logits[0])(inputs)
    np.testing.assert_allclose(rows, expected, atol=1e-5)

    def loss(model):
        return -jax.nn.log_softmax(model(**inputs).logits)[:, 1].mean()

    gradient = jax.grad(loss)(model)
    assert jax.tree.structure(gradient) == jax.tree.structure(model)
    bias = jax.nn.softmax(expected).mean(0) - np.array([0, 1, 0])  # of the cross entropy, by arithmetic
    np.testing.assert_allclose(gradient.params["classifier"]["bias"], bias, atol=1e-5)
    doubled = jax.tree.map(lambda x: 2 * x, model(**inputs))
    np.testing.assert_array_equal(doubled.logits, 2 * expected)


@pytest.mark.parametrize(("name", "head"), [("encoder", "BertModel"), ("classifier", "BertForSequenceClassification")])
@pytest.mark.parametrize("more", [{}, {"output_hidden_states": True, "output_attentions": True}], ids=["plain", "all"])
def test_outputs_are_ordered_as_those_of_transformers(paths, name, head, more):
    torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is installed on Python 3.11 only")
    transformers = pytest.importorskip("transformers", reason="the oracle; it is installed on Python 3.11 only")
    theirs = getattr(transformers, head).from_pretrained(paths / name, attn_implementation="eager").eval()
    model = from_pretrained(paths / name)
    inputs = model.tokenizer(TEXTS)
    with torch.no_grad():
        outputs = theirs(**{key: torch.from_numpy(array).long() for key, array in inputs.items()}, **more).to_tuple()
    expected = [part for part in outputs if len(part)]  # maps of cross attention, of which there are none
    found = model(**inputs, **more)
    assert len(found.to_tuple()) == len(expected)
    mask = inputs["attention_mask"][..., None] if name == "encoder" else 1
    np.testing.assert_allclose(found[0] * mask, expected[0].numpy() * mask, atol=1e-4)
    assert found["logits"] is found.logits
    assert [len(part) for part in found[-2:]] == [len(part) for part in expected[-2:]]


def test_a_users_script_runs(paths):
    """`make types` checks it as `mypy --strict` does."""
    assert -1 <= users_script.main(str(paths / "embedder")) <= 1
