"""LoRA adapters of peft: merged into their base model, `W + alpha / r * B @ A`."""

import json
import math

import numpy as np
import pytest
import safetensors.numpy
from small_models import edit, equal, tensors_of, write_model

import bert_jax
from bert_jax.cli import main
from bert_jax.conversion.huggingface import load_pretrained
from bert_jax.errors import InputError

QUERY = "encoder.layer.0.attention.self.query"
VALUE = "encoder.layer.1.attention.self.value"


def pair(layer: str, rank: int = 2, seed: int = 1) -> dict[str, np.ndarray]:
    """The two matrices of an update, as peft names them."""
    generator = np.random.default_rng(seed)
    return {
        f"base_model.model.{layer}.lora_A.weight": generator.normal(size=(rank, 8)).astype(np.float32),
        f"base_model.model.{layer}.lora_B.weight": generator.normal(size=(8, rank)).astype(np.float32),
    }


def write_adapter(directory, tensors: dict[str, np.ndarray], **content) -> None:
    directory.mkdir(exist_ok=True)
    described = {"peft_type": "LORA", "base_model_name_or_path": str(directory.parent / "base"), "r": 2}
    (directory / "adapter_config.json").write_text(json.dumps(described | {"lora_alpha": 6} | content))
    safetensors.numpy.save_file(tensors, directory / "adapter_model.safetensors")


def kernel(params, part: str, layer: int) -> np.ndarray:
    """A dense layer's weight `[out, in]`."""
    return np.asarray(params["encoder"]["layers"]["attention"][part]["kernel"])[layer].T


@pytest.mark.parametrize(
    ("content", "rank", "scale"),
    [
        ({}, 2, 6 / 2),
        ({"use_rslora": True}, 2, 6 / math.sqrt(2)),
        ({"rank_pattern": {"query": 4}}, 4, 6 / 4),
        ({"alpha_pattern": {r"layer.0.attention.self.query": 1}}, 2, 1 / 2),
        ({"alpha_pattern": {"uery": 1, "value": 1}}, 2, 6 / 2),  # a pattern is the whole end of a name
        ({"fan_in_fan_out": True}, 2, 6 / 2),
    ],
)
def test_an_update_is_added(tmp_path, content, rank, scale):
    write_model(tmp_path / "base")
    tensors = pair(QUERY, rank)
    write_adapter(tmp_path / "adapter", tensors, **content)
    base, merged = (load_pretrained(tmp_path / name).params for name in ("base", "adapter"))
    a, b = tensors.values()
    expected = kernel(base, "query", 0) + scale * b @ a
    np.testing.assert_allclose(kernel(merged, "query", 0), expected, rtol=1e-5, atol=1e-6)
    for part, layer in (("query", 1), ("value", 0)):
        np.testing.assert_array_equal(kernel(merged, part, layer), kernel(base, part, layer))


def test_an_embedding_is_updated_too(tmp_path):
    write_model(tmp_path / "base")
    generator = np.random.default_rng(0)
    a, b = (generator.normal(size=shape).astype(np.float32) for shape in ((2, 31), (8, 2)))
    name = "base_model.model.embeddings.word_embeddings.lora_embedding_"
    write_adapter(tmp_path / "adapter", {f"{name}A": a, f"{name}B": b})
    base, merged = (
        load_pretrained(tmp_path / name).params["embeddings"]["word_embeddings"]["embedding"]
        for name in ("base", "adapter")
    )
    np.testing.assert_allclose(merged, base + 3 * (b @ a).T, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("wrapper", ["", "modules_to_save.", "modules_to_save.default."])
def test_a_head_and_biases_that_are_whole_in_the_file(tmp_path, wrapper):
    write_model(tmp_path / "base")
    generator = np.random.default_rng(3)
    head = {"weight": generator.normal(size=(5, 8)), "bias": generator.normal(size=5)}
    whole = {f"base_model.model.classifier.{wrapper}{name}": value.astype(np.float32) for name, value in head.items()}
    bias = {f"base_model.model.bert.{QUERY}.bias": np.arange(8, dtype=np.float32)}
    write_adapter(tmp_path / "adapter", pair(f"bert.{QUERY}") | whole | bias, task_type="SEQ_CLS", bias="all")
    loaded = load_pretrained(tmp_path / "adapter")
    assert (loaded.head, loaded.config.num_labels, loaded.missing) == ("sequence_classification", 5, [])
    np.testing.assert_array_equal(loaded.params["classifier"]["kernel"], head["weight"].astype(np.float32).T)
    query = loaded.params["encoder"]["layers"]["attention"]["query"]
    np.testing.assert_array_equal(query["bias"][0], np.arange(8))


def test_the_names_of_classes_are_the_base_models(tmp_path):
    write_model(tmp_path / "base", head="sequence_classification", id2label=("no", "yes", "maybe"))
    write_adapter(tmp_path / "adapter", pair(f"bert.{QUERY}"), task_type="SEQ_CLS")
    assert load_pretrained(tmp_path / "adapter").config.id2label == ("no", "yes", "maybe")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"use_dora": True}, "use_dora: expected False, found True: DoRA is not supported"),
        ({"peft_type": "IA3"}, "peft_type: expected 'LORA', found 'IA3'"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights: .* found 'pissa'"),
        ({"lora_alpha": "6"}, "lora_alpha: expected a positive number, found '6'"),
        ({"rank_pattern": {"(a+)+": 2}}, r"rank_pattern: expected the name of a layer, found '\(a\+\)\+'"),
        ({"base_model_name_or_path": None}, "expected base_model_name_or_path, found None"),
    ],
)
def test_an_adapter_that_is_not_merged(tmp_path, content, message):
    write_model(tmp_path / "base")
    write_adapter(tmp_path / "adapter", pair(QUERY), **content)
    with pytest.raises(InputError, match=f"adapter_config.json: {message}"):
        load_pretrained(tmp_path / "adapter")


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        (pair("encoder.layer.7.attention.self.query"), "expected updates of the base model's tensors, .*layer.7"),
        ({name: t for name, t in pair(QUERY).items() if "_A" in name}, "expected lora_B.weight beside"),
        ({name: t[:, :7] if "_A" in name else t for name, t in pair(QUERY).items()}, r"expected an update of shape"),
        ({f"base_model.model.{QUERY}.lora_magnitude_vector": np.ones(8, np.float32)}, r"expected .* lora_B alone"),
    ],
)  # fmt: skip
def test_tensors_that_do_not_fit_the_base_model(tmp_path, tensors, message):
    write_model(tmp_path / "base")
    write_adapter(tmp_path / "adapter", tensors)
    with pytest.raises(InputError, match=f"adapter_model.safetensors: {message}"):
        load_pretrained(tmp_path / "adapter")


def test_a_base_model_that_is_elsewhere(tmp_path, capfd, monkeypatch):
    write_model(tmp_path / "base")
    write_adapter(tmp_path / "adapter", pair(QUERY) | pair(VALUE, seed=2), base_model_name_or_path="bert-base-uncased")
    with pytest.raises(
        InputError, match=r"expected the base model 'bert-base-uncased' of the adapter, found none; .* --base DIR"
    ):
        load_pretrained(tmp_path / "adapter")
    expected = load_pretrained(tmp_path / "adapter", base=tmp_path / "base").params
    command = ("convert", str(tmp_path / "adapter"), str(tmp_path / "merged"), "--base", str(tmp_path / "base"))
    assert main(list(command)) == 0
    assert equal(load_pretrained(tmp_path / "merged").params, expected)
    with pytest.raises(InputError, match=r"expected an adapter .* for the base model, found none"):
        load_pretrained(tmp_path / "base", base=tmp_path / "base")
    edit(tmp_path / "base", hidden_act="relu")
    assert tensors_of(tmp_path / "merged").keys() == tensors_of(tmp_path / "base").keys()


def test_an_adapter_beside_other_files(tmp_path, caplog):
    write_model(tmp_path / "base")
    write_adapter(tmp_path / "adapter", pair(QUERY))
    expected = load_pretrained(tmp_path / "adapter").params
    (tmp_path / "adapter" / "config.json").write_text("{}")  # which some trainers leave there
    assert equal(load_pretrained(tmp_path / "adapter").params, expected)
    whole = load_pretrained(tmp_path / "base").params
    write_adapter(tmp_path / "base", pair(QUERY))
    (tmp_path / "base" / "adapter_model.safetensors").unlink()
    assert equal(load_pretrained(tmp_path / "base").params, whole)
    assert "found the config of an adapter without its weights; nothing is merged" in caplog.text


@pytest.mark.parametrize("base", ["base", "both"])
def test_an_adapter_beside_the_weights_of_a_model_is_merged(tmp_path, base):
    """As in transformers with peft, into the base model that the adapter names."""
    for name in ("base", "both"):
        write_model(tmp_path / name)
    safetensors.numpy.save_file(
        {name: tensor + 1 for name, tensor in tensors_of(tmp_path / "base").items()},
        tmp_path / "base" / "model.safetensors",
    )
    write_adapter(tmp_path / "adapter", pair(QUERY), base_model_name_or_path=str(tmp_path / base))
    expected = load_pretrained(tmp_path / "adapter").params
    write_adapter(tmp_path / "both", pair(QUERY), base_model_name_or_path=str(tmp_path / base))
    params = load_pretrained(tmp_path / "both").params
    assert equal(params, expected)
    assert not equal(params, load_pretrained(tmp_path / "base").params)


def test_an_adapter_beside_weights_whose_base_is_unknown_is_refused(tmp_path):
    write_model(tmp_path / "both")
    write_adapter(tmp_path / "both", pair(QUERY), base_model_name_or_path="bert-base-uncased")
    message = "expected the base model 'bert-base-uncased' of the adapter, found none; set base=DIR .*--base DIR"
    with pytest.raises(InputError, match=message):
        load_pretrained(tmp_path / "both")
    load_pretrained(tmp_path / "both", base=tmp_path / "both")
    with pytest.raises(InputError, match="expected a base model, found an adapter in"):
        write_adapter(tmp_path / "other", pair(QUERY))
        load_pretrained(tmp_path / "other", base=tmp_path / "both")


def test_an_adapter_in_a_folder_of_sentence_transformers(tmp_path):
    """The folder's own weights are the base; embeddings are those of sentence-transformers with peft."""
    peft = pytest.importorskip("peft", reason="peft is the oracle")
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    sentence_transformers = pytest.importorskip("sentence_transformers")
    write_model(tmp_path / "base")
    (tmp_path / "base" / "vocab.txt").write_text(
        "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(26))]) + "\n"
    )
    encoder = transformers.AutoModel.from_pretrained(tmp_path / "base")
    model = peft.get_peft_model(encoder, peft.LoraConfig(r=2, target_modules=["query"]))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) if parameter.requires_grad else 0)
    model.save_pretrained(tmp_path / "base")
    modules = sentence_transformers.sentence_transformer.modules
    transformer = modules.Transformer(str(tmp_path / "base"))
    pooling = modules.Pooling(transformer.get_embedding_dimension())
    theirs = sentence_transformers.SentenceTransformer(modules=[transformer, pooling], device="cpu")
    (tmp_path / "base" / "modules.json").write_text(
        json.dumps(
            [
                {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
                {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
            ]
        )
    )
    (tmp_path / "base" / "1_Pooling").mkdir()
    pooling.save(str(tmp_path / "base" / "1_Pooling"))
    texts = ["w1 w2 w3", "w9"]
    embed = bert_jax.pipeline("sentence-embedding", tmp_path / "base")
    np.testing.assert_allclose(embed(texts), theirs.encode(texts), atol=1e-5)


def test_peft_computes_the_same(tmp_path):
    peft = pytest.importorskip("peft", reason="peft is the oracle")
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    from bert_jax import from_pretrained

    config = transformers.BertConfig(
        vocab_size=31, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12, num_labels=3
    )
    transformers.BertForSequenceClassification(config).save_pretrained(tmp_path / "base")
    base = transformers.BertForSequenceClassification.from_pretrained(tmp_path / "base")
    lora = peft.LoraConfig(
        task_type="SEQ_CLS", target_modules=["query", "dense"], bias="lora_only", r=4, rank_pattern={"query": 2},
        alpha_pattern={"output.dense": 3}, lora_alpha=16, use_rslora=True,
    )  # fmt: skip
    model = peft.get_peft_model(base, lora).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter) if parameter.requires_grad else 0)
    model.save_pretrained(tmp_path / "adapter")
    ids = np.arange(10, 26).reshape(2, 8)
    expected = model(torch.tensor(ids)).logits.detach().numpy()
    np.testing.assert_allclose(from_pretrained(tmp_path / "adapter")(ids).logits, expected, rtol=1e-4, atol=1e-5)
