"""Every file of sentence-transformers against the library itself: vectors, scores, and both again after `convert`."""

import importlib
import itertools
import json
import shutil

import numpy as np
import pytest

from bert_jax.conversion.huggingface import convert
from bert_jax.errors import InputError
from bert_jax.inference import from_pretrained, pipeline
from bert_jax.model_files import sentence_transformers as tables
from bert_jax.tokenization import load_tokenizer

torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is installed on Python 3.11 only")
library = pytest.importorskip("sentence_transformers", reason="the oracle; it is installed on Python 3.11 only")
models = importlib.import_module("sentence_transformers.models")
WIDTH = 32
TEXTS = ["the cat sat on a mat", "Red RIVER", "a river of stone " * 9, "x"]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory, write_small):
    place = tmp_path_factory.mktemp("encoder") / "model"
    write_small(place, initializer_range=0.5)
    return place


def saved(encoder, path, *modules, **options):
    torch.manual_seed(0)
    modules = [models.Transformer(str(encoder)), *modules]
    library.SentenceTransformer(modules=modules, device="cpu", **options).save(str(path))
    return path


def pooled(*modes, include_prompt=True):
    return models.Pooling(WIDTH, pooling_mode=list(modes), include_prompt=include_prompt)


def edit(path, **values):
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def check(path, tmp_path, texts=TEXTS, **options):
    """Our vectors are the library's, and so are its own of the model as we write it."""
    theirs = library.SentenceTransformer(str(path), device="cpu").encode(texts, **options)
    embed = pipeline("embed", path)
    np.testing.assert_allclose(embed(texts, **options), theirs, atol=2e-5)
    convert(path, tmp_path / "converted", load_tokenizer)
    embed.model.save_pretrained(tmp_path / "again")
    for written in ("converted", "again"):
        again = library.SentenceTransformer(str(tmp_path / written), device="cpu")
        np.testing.assert_allclose(again.encode(texts, **options), theirs, atol=2e-5)
    return embed


MODULES = {
    "every pooling": lambda: [pooled("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")],
    "poolings in another order": lambda: [pooled("mean", "cls")],
    "last token": lambda: [pooled("lasttoken")],
    "dense": lambda: [pooled("cls"), models.Dense(WIDTH, 12), models.Normalize()],
    "dense without bias": lambda: [
        pooled("mean"),
        models.Dense(WIDTH, 12, bias=False, activation_function=torch.nn.Identity()),
    ],
    "dense twice": lambda: [
        pooled("mean", "max"),
        models.Dense(2 * WIDTH, 12, activation_function=torch.nn.GELU(), use_residual=True),
        models.Dense(12, 12, activation_function=torch.nn.Sigmoid(), use_residual=True),
    ],
    "layer norm": lambda: [pooled("weightedmean"), models.Normalize(), models.LayerNorm(WIDTH), models.Dropout(0.3)],
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", MODULES)
def test_modules(encoder, tmp_path, name):
    path = saved(encoder, tmp_path / "model", *MODULES[name]())
    for module in path.glob("*_Dense"):  # in either format
        if name == "dense":
            weights = models.Dense.load(str(module)).state_dict()
            torch.save(weights, module / "pytorch_model.bin")
            (module / "model.safetensors").unlink()
    check(path, tmp_path)


PROMPTS = {"query": "the dog: ", "passage": "one two "}


@pytest.mark.parametrize("include_prompt", [True, False])
def test_prompts(encoder, tmp_path, include_prompt):
    pooling = pooled("cls", "mean", "weightedmean", include_prompt=include_prompt)
    path = saved(encoder, tmp_path / "model", pooling, prompts=PROMPTS, default_prompt_name="query")
    embed = check(path, tmp_path)
    theirs = library.SentenceTransformer(str(path), device="cpu")
    plain = theirs.encode(TEXTS, prompt="")
    assert np.abs(plain - embed(TEXTS)).max() > 0.01
    for options in ({"prompt_name": "passage"}, {"prompt": "a tree "}, {"prompt": ""}):
        np.testing.assert_allclose(embed(TEXTS, **options), theirs.encode(TEXTS, **options), atol=2e-5)
    with pytest.raises(InputError, match="prompt name 'pasage' is not known; did you mean 'passage'"):
        embed(TEXTS, prompt_name="pasage")
    with pytest.raises(InputError, match="expected a prompt or the name of one, found both"):
        embed(TEXTS, prompt_name="passage", prompt="x")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("similarity", ["cosine", "dot", "euclidean", "manhattan"])
def test_similarity_and_truncation(encoder, tmp_path, similarity):
    path = saved(encoder, tmp_path / "model", pooled("mean"), truncate_dim=8, similarity_fn_name=similarity,
                 prompts=PROMPTS, default_prompt_name="passage")  # fmt: skip
    theirs = library.SentenceTransformer(str(path), device="cpu")
    for options in ({}, {"truncate_dim": 3}, {"truncate_dim": 99}):
        vectors = theirs.encode(TEXTS, **options)
        expected = theirs.similarity(vectors, vectors).numpy()
        # The square root of a rounding error is what is left of the distance of equal vectors.
        np.testing.assert_allclose(
            pipeline("similarity", path)(TEXTS, TEXTS, **options), expected, rtol=2e-4, atol=1e-3
        )
        found = pipeline("search", path)(TEXTS[1], corpus=TEXTS, corpus_prompt_name="passage", **options)
        np.testing.assert_allclose([a["score"] for a in found], sorted(expected[1])[::-1], rtol=2e-4, atol=1e-3)
        assert found[0]["corpus_id"] == expected[1].argmax()
    if similarity == "dot":
        assert check(path, tmp_path)(TEXTS).shape == (4, 8)


def test_search_has_prompts_of_its_own_for_queries_and_documents(encoder, tmp_path):
    path = saved(encoder, tmp_path / "model", pooled("mean"), prompts={"query": "the dog: ", "document": "one two "})
    theirs = library.SentenceTransformer(str(path), device="cpu")
    expected = theirs.similarity(theirs.encode_query(TEXTS[0]), theirs.encode_document(TEXTS)).numpy()[0]
    search = pipeline("search", path)
    found = search(TEXTS[0], corpus=TEXTS)
    np.testing.assert_allclose([a["score"] for a in found], sorted(expected)[::-1], atol=2e-5)
    search.index(TEXTS)
    assert search(TEXTS[0]) == found


def test_lower_case(tmp_path, write_small, encoder):
    """Of a tokenizer that knows capitals, and accents, which stay."""
    place = tmp_path / "cased"
    shutil.copytree(encoder, place)
    edit(place / "tokenizer_config.json", do_lower_case=False, strip_accents=False)
    path = saved(place, tmp_path / "model", pooled("mean"))
    texts = ["Red RIVER [MASK] cat", "CAFÉ red", "all lower"]
    assert np.abs(np.diff(pipeline("embed", path)(["RED", "red"]), axis=0)).max() > 0.01
    edit(path / "sentence_bert_config.json", do_lower_case=True)
    check(path, tmp_path, texts)
    np.testing.assert_array_equal(*pipeline("embed", path)(["RED", "red"]))


@pytest.mark.parametrize("name", ["sentence_bert_config.json", "sentence_roberta_config.json"])
def test_old_layout(encoder, tmp_path, name):
    path = saved(encoder, tmp_path / "model", models.Pooling(WIDTH))
    shutil.copytree(encoder, path / "0_Transformer")
    (path / "model.safetensors").unlink()
    (path / "config.json").unlink()
    modules = json.loads((path / "modules.json").read_text())
    (path / "modules.json").write_text(json.dumps([modules[0] | {"path": "0_Transformer"}, modules[1]]))
    (path / "sentence_bert_config.json").unlink()
    (path / "0_Transformer" / name).write_text(json.dumps({"max_seq_length": 9, "do_lower_case": False}))
    assert check(path, tmp_path).model.max_length == 9


def test_length_of_the_tokenizer_is_no_other_after_convert(encoder, tmp_path):
    path = saved(encoder, tmp_path / "model", models.Pooling(WIDTH))
    edit(path / "tokenizer_config.json", model_max_length=11)
    assert check(path, tmp_path).model.max_length == 11
    edit(path / "sentence_bert_config.json", max_seq_length=13)  # which comes before
    assert from_pretrained(path).max_length == library.SentenceTransformer(str(path), device="cpu").max_seq_length == 13


# Cross-encoders

PAIRS = [("the cat", "a dog sat"), ("red", "a river of stone"), ("red", "blue " * 50)]
IDENTITY, SIGMOID = "torch.nn.modules.linear.Identity", "torch.nn.modules.activation.Sigmoid"


@pytest.fixture(scope="module")
def cross(tmp_path_factory, encoder):
    """Number of outputs -> a classifier as transformers writes it, with our tokenizer's files."""
    from transformers import BertForSequenceClassification

    places = {}
    for outputs in (1, 3):
        torch.manual_seed(0)
        places[outputs] = tmp_path_factory.mktemp("cross") / "model"
        model = BertForSequenceClassification.from_pretrained(str(encoder), num_labels=outputs)
        torch.nn.init.normal_(model.classifier.weight, std=0.7)
        model.save_pretrained(places[outputs])
        load_tokenizer(encoder).save(places[outputs])
    return places


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"sentence_transformers": {"activation_fn": IDENTITY, "version": "4.1"}},
        {"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Tanh"}},
        {"sbert_ce_default_activation_function": IDENTITY},
        {"sbert_ce_default_activation_function": SIGMOID},
    ],
)
@pytest.mark.parametrize("outputs", [1, 3])
def test_cross_encoder_activation(cross, tmp_path, said, outputs):
    path = tmp_path / "model"
    shutil.copytree(cross[outputs], path)
    edit(path / "config.json", **said)
    expected = library.CrossEncoder(str(path), device="cpu").predict(PAIRS)
    rerank = pipeline("rerank", path)
    np.testing.assert_allclose(rerank.predict(PAIRS), expected, atol=1e-5)
    convert(path, tmp_path / "converted", load_tokenizer)
    np.testing.assert_allclose(
        library.CrossEncoder(str(tmp_path / "converted"), device="cpu").predict(PAIRS), expected, atol=1e-5
    )
    if outputs == 1:
        query, documents = PAIRS[1][0], [pair[1] for pair in PAIRS]
        ranked = library.CrossEncoder(str(path), device="cpu").rank(query, documents)
        found = rerank(query, documents)
        assert [a["corpus_id"] for a in found] == [a["corpus_id"] for a in ranked]
        np.testing.assert_allclose([a["score"] for a in found], [a["score"] for a in ranked], atol=1e-5)
    else:
        with pytest.raises(InputError, match=r"one output or two, found 3 \(LABEL_0, LABEL_1, LABEL_2\)"):
            rerank("a", ["b"])


def test_cross_encoder_with_files_of_its_own(cross, tmp_path):
    """As the library writes one today: modules.json, a prompt, and the activation beside it."""
    theirs = library.CrossEncoder(str(cross[1]), device="cpu", prompts=PROMPTS, default_prompt_name="passage",
                                  activation_fn=torch.nn.Tanh(), max_length=10)  # fmt: skip
    theirs.save(str(tmp_path / "model"))
    expected = theirs.predict(PAIRS)
    rerank = pipeline("rerank", tmp_path / "model")
    np.testing.assert_allclose(rerank.predict(PAIRS), expected, atol=1e-5)
    named = theirs.predict(PAIRS, prompt_name="query")
    np.testing.assert_allclose(rerank.predict(PAIRS, prompt_name="query"), named, atol=1e-5)
    answers = pipeline("classify", tmp_path / "model")([{"text": a, "text_pair": b} for a, b in PAIRS], truncation=True)
    np.testing.assert_allclose([answer["score"] for answer in answers], expected, atol=1e-5)
    convert(tmp_path / "model", tmp_path / "converted", load_tokenizer)
    again = library.CrossEncoder(str(tmp_path / "converted"), device="cpu")
    np.testing.assert_allclose(again.predict(PAIRS), expected, atol=1e-5)


def test_activations_that_are_code_are_refused(cross, tmp_path):
    path = tmp_path / "model"
    shutil.copytree(cross[1], path)
    edit(path / "config.json", sentence_transformers={"activation_fn": "my_code.Act"})
    with pytest.raises(InputError, match=r"expected a class of torch\.nn .*, found 'my_code\.Act'"):
        from_pretrained(path)


# File of an embedding model -> where its keys lie in it, and their table.
FILES = {
    "sentence_bert_config.json": ((), tables.SENTENCE_BERT_CONFIG),
    "1_Pooling/config.json": ((), tables.POOLING),
    "2_Dense/config.json": ((), tables.DENSE),
    "3_LayerNorm/config.json": ((), tables.LAYER_NORM),
    "4_Dropout/config.json": ((), tables.DROPOUT),
    "5_Normalize/config.json": ((), tables.NORMALIZE),
    "config_sentence_transformers.json": ((), tables.CONFIG_SENTENCE_TRANSFORMERS),
    "modules.json": ((0,), tables.MODULES),
}
CLASS = "torch.nn.modules.activation.Sigmoid"
VALUES = (True, False, 0, 1, 5, 32, 0.5, "", "max", "dot", "left", CLASS, [], ["cls", "max"], {}, {"x": 1},
          {"query": "the dog: "}, {"model_max_length": 7}, {"do_lower_case": True}, {"padding_side": "left"},
          {"truncation_side": "left"}, {"dtype": "bfloat16"})  # fmt: skip
QUICK = ("max_seq_length", "pooling_mode", "activation_function", "similarity_fn_name", "truncate_dim", "path")


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("name", "keys"),
    [
        *((name, QUICK) for name in ("1_Pooling/config.json", "config_sentence_transformers.json", "modules.json")),
        *(pytest.param(name, None, marks=pytest.mark.slow) for name in FILES),
    ],
)
def test_every_key_of_every_file(encoder, tmp_path, name, keys, caplog):
    """With any value: the library's vectors, an error, or a word."""
    modules = [pooled("mean"), models.Dense(WIDTH, WIDTH), models.LayerNorm(WIDTH), models.Dropout(0.1)]
    path = saved(encoder, tmp_path / "model", *modules, models.Normalize())
    where, table = FILES[name]
    before = (path / name).read_text() if (path / name).exists() else "{}"
    theirs_by_default = library.SentenceTransformer(str(path), device="cpu").encode(TEXTS)
    changed, wrong = 0, []
    for key, value in itertools.product([key.name for key in table], VALUES):
        if keys and key not in keys:
            continue
        content = json.loads(before)
        entry = content
        for step in where:
            entry = entry[step]
        entry[key] = value
        (path / name).write_text(json.dumps(content))
        caplog.clear()
        try:
            ours = pipeline("embed", path)(TEXTS)
        except InputError:
            continue
        if any(key in record.getMessage() for record in caplog.records):
            continue
        try:
            theirs = library.SentenceTransformer(str(path), device="cpu").encode(TEXTS)
        except Exception:  # which of them depends on the key
            continue
        changed += theirs.shape != theirs_by_default.shape or np.abs(theirs - theirs_by_default).max() > 1e-3
        rounding = 0.05 if value == {"dtype": "bfloat16"} else 1e-4
        if ours.shape != theirs.shape or not np.abs(ours - theirs).max() < rounding:
            wrong.append(f"{key}={value!r}")
    assert not wrong
    if name in ("sentence_bert_config.json", "1_Pooling/config.json", "2_Dense/config.json"):
        assert changed, "no value made a difference to the library"


def test_a_router_with_the_same_modules_for_queries_and_documents(encoder, tmp_path):
    read, options = [models.Transformer(str(encoder)), pooled("mean")], {"prompts": {"query": "the dog: "}}
    for name, queries in (("shared", read), ("others", [read[0], pooled("max")])):
        router = models.Router.for_query_document(queries, read)
        parts = [router, models.Normalize()]
        library.SentenceTransformer(modules=parts, device="cpu", **options).save(str(tmp_path / name))
    theirs = library.SentenceTransformer(str(tmp_path / "shared"), device="cpu")
    model = from_pretrained(tmp_path / "shared")
    for kind in ("encode", "encode_query", "encode_document"):
        np.testing.assert_allclose(getattr(model, kind)(TEXTS), getattr(theirs, kind)(TEXTS), atol=2e-6)
    with pytest.raises(InputError, match=r"expected the same modules .* found Transformer, Pooling, Normalize for "):
        from_pretrained(tmp_path / "others")
