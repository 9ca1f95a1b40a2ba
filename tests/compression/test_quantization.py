"""Quantizing a model directory: files, calibration, every verb on the result, and errors."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.cli import main
from bert_jax.compression.quantization import input_scales, quantize
from bert_jax.config import BertConfig
from bert_jax.config.quantization import KEEP, MODES, Quantization
from bert_jax.conversion.huggingface import load_pretrained
from bert_jax.errors import InputError
from bert_jax.inference import from_pretrained, pipeline
from bert_jax.modeling import Bert
from bert_jax.modeling.quantized import dequantize_params, quantize_params

TEXTS = ["the cat sat on the tree", "a dull and grey film", "the dog sees a red house", "two big birds sat under it"]


@pytest.fixture(scope="module")
def encoder(write_small, tmp_path_factory):
    """A float32 model for the masked-LM head."""
    return write_small(tmp_path_factory.mktemp("float") / "model", "masked_lm", num_hidden_layers=2)


def leaves(tree):
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("mode", MODES)
def test_a_model_is_written_and_read_bit_for_bit(encoder, tmp_path, mode):
    texts = TEXTS if mode == "int8_static" else ()
    done = quantize(encoder, tmp_path / "out", Quantization(mode), texts)
    loaded, before = load_pretrained(tmp_path / "out"), load_pretrained(encoder)
    assert loaded.config == before.config.replace(quantization=Quantization(mode))
    found, expected = leaves(loaded.params), leaves(quantize_params(before.params, Quantization(mode)))
    assert found.keys() == expected.keys()
    for name, leaf in expected.items():
        assert found[name].dtype == leaf.dtype
        if "input_scale" not in name:
            np.testing.assert_array_equal(found[name].view(np.uint8), np.asarray(leaf).view(np.uint8))
    assert done.bytes_after == sum(leaf.nbytes for leaf in found.values())
    loaded_again = from_pretrained(tmp_path / "out")
    loaded_again.save_pretrained(tmp_path / "again")
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("out", "again")]
    assert weights[0] == weights[1]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("mode", MODES)
def test_logits_are_near_those_of_the_float_model(encoder, tmp_path, mode):
    quantize(encoder, tmp_path / "out", Quantization(mode), TEXTS if mode == "int8_static" else ())
    before, after = (from_pretrained(path)(TEXTS).logits for path in (encoder, tmp_path / "out"))
    error = np.sqrt(np.square(after - before).mean() / np.square(before).mean())
    assert 1e-4 < error < {"int4": 0.15, "fp8": 0.1}.get(mode, 0.05)


def test_the_file_is_small_and_the_parameters_stay_quantized(minilm, tmp_path):
    quantize(minilm, tmp_path / "out", Quantization("int8"))
    before, after = ((path / "model.safetensors").stat().st_size for path in (minilm, tmp_path / "out"))
    assert before / after > 3.5
    model = from_pretrained(tmp_path / "out")
    assert sum(leaf.nbytes for leaf in jax.tree.leaves(model.params)) < before / 3.5
    texts = ["A man is playing a guitar.", "Someone plays an instrument.", "The stock market fell."]
    found, expected = model.encode(texts), from_pretrained(minilm).encode(texts)
    assert ((found * expected).sum(-1) > 0.999).all()


def test_input_scales_are_the_largest_inputs_of_the_texts(encoder, tiny_tokenizer):
    loaded = load_pretrained(encoder)
    quantization = Quantization("int8_static")
    params = quantize_params(loaded.params, quantization)
    model = Bert(loaded.config.replace(quantization=quantization), "masked_lm")
    scales = input_scales(model, params, tiny_tokenizer, TEXTS)
    # The input of the queries of layer i is hidden state i of the model with quantized kernels and float inputs.
    plain = Bert(loaded.config, "masked_lm")
    largest = np.zeros(2)
    for text in TEXTS:  # each cut to 3, 4, 6, 8, 12, ... tokens, the most that it fills
        ids = tiny_tokenizer([text])["input_ids"]
        length = max(n for n in (3, 4, 6, 8, 12, 16, 24, 32) if n <= ids.shape[1])
        ids = tiny_tokenizer([text], max_length=length)["input_ids"]
        states = plain.apply(dequantize_params(params, quantization), ids, output_hidden_states=True).hidden_states
        largest = np.maximum(largest, [np.abs(states[i]).max() for i in range(2)])
    found = scales["encoder"]["layers"]["attention"]["query"]["kernel"]["input_scale"]
    assert found.shape == (2, 1)
    np.testing.assert_allclose(found[:, 0], largest / 127.5, rtol=1e-5)


def test_padding_has_no_part_in_calibration(encoder, tiny_tokenizer):
    loaded, quantization = load_pretrained(encoder), Quantization("int8_static")
    params = quantize_params(loaded.params, quantization)
    table = params["embeddings"]["word_embeddings"]["embedding"]
    # A padding token whose one large feature is the largest input that a LayerNorm can give.
    table["scale"] = table["scale"].at[tiny_tokenizer.pad_id].set(1e3)
    table["quantized"] = table["quantized"].at[tiny_tokenizer.pad_id].set(jnp.int8(0))
    table["quantized"] = table["quantized"].at[tiny_tokenizer.pad_id, 0].set(127)
    model = Bert(loaded.config.replace(quantization=quantization), "masked_lm")
    both = input_scales(model, params, tiny_tokenizer, ["the cat", "two big birds sat under it by the river"])
    alone = [input_scales(model, params, tiny_tokenizer, [text])
             for text in ("the cat", "two big birds sat under it by the river")]  # fmt: skip
    jax.tree.map(np.testing.assert_array_equal, both, jax.tree.map(np.maximum, *alone))
    assert both["encoder"]["layers"]["attention"]["query"]["kernel"]["input_scale"][0] < 5 / 127.5  # not sqrt(31)


@pytest.mark.slow
def test_eight_devices_agree_with_one(on_eight_devices, tmp_path):
    script = tmp_path / "sharded.py"
    script.write_text(SHARDED)
    for mode, difference in on_eight_devices(script).items():
        assert difference < 1e-4, mode


SHARDED = """
import json
import jax, jax.numpy as jnp, numpy as np
from bert_jax import parameter_sharding, sharding
from bert_jax.config import BertConfig
from bert_jax.modeling import Bert
from bert_jax.modeling.quantized import quantize_params
from bert_jax.config.quantization import MODES, Quantization

config = BertConfig(vocab_size=48, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128)
params = Bert(config, "masked_lm").init(jax.random.key(0))
ids = jnp.arange(8 * 16, dtype=jnp.int32).reshape(8, 16) % 48
mesh, found = sharding.make_mesh(data=2, fsdp=2, tensor=2), {}
for mode in MODES:
    quantization = Quantization(mode, group_size=16)
    model = Bert(config.replace(quantization=quantization), "masked_lm")
    quantized = quantize_params(params, quantization)
    alone = jax.jit(model.apply)(quantized, ids).logits
    with jax.set_mesh(mesh):
        split = jax.device_put(quantized, parameter_sharding.param_shardings(mesh, quantized))
        kernel = split["encoder"]["layers"]["mlp"]["up"]["kernel"]
        kernel = kernel.get("quantized", kernel.get("packed"))
        assert kernel.addressable_shards[0].data.size * 4 == kernel.size  # over fsdp and tensor
        logits = jax.jit(model.apply)(split, ids).logits
    found[mode] = float(np.median(np.abs(np.asarray(logits) - np.asarray(alone))))
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def quantized(write_small, tmp_path_factory):
    """Quantized models by their heads."""
    folder, made = tmp_path_factory.mktemp("quantized"), {}
    heads = {
        "masked_lm": {}, "sentence_embedding": {}, "sequence_classification": {"id2label": ("bad", "good")},
        "token_classification": {"num_labels": 3, "id2label": ("O", "B-PER", "I-PER")}, "question_answering": {},
    }  # fmt: skip
    for head, fields in heads.items():
        model = write_small(folder / f"{head}-float", head, **fields)
        quantize(model, folder / head, Quantization("int8_dynamic"))
        made[head] = str(folder / head)
    return made


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("head", "words"),
    [
        ("masked_lm", ["fill-mask", "the [MASK] sat"]),
        ("masked_lm", ["inspect"]),
        ("sentence_embedding", ["embed", "the cat", "a dog"]),
        ("sentence_embedding", ["similarity", "the cat", "a dog"]),
        ("sentence_embedding", ["search", "the cat", "--corpus", "texts.txt"]),
        ("sequence_classification", ["classify", "the cat"]),
        ("token_classification", ["tag", "the cat"]),
        ("question_answering", ["answer", "who sat", "--context", "context.txt"]),
    ],
)
def test_verbs_open_it(quantized, tmp_path, monkeypatch, capsys, head, words):
    monkeypatch.chdir(tmp_path)
    for name in ("texts.txt", "context.txt"):
        (tmp_path / name).write_text("\n".join(TEXTS))
    assert main([words[0], quantized[head], *words[1:]]) == 0, capsys.readouterr()
    capsys.readouterr()


def test_evaluate_and_predict_open_it(quantized, tmp_path, capsys):
    (tmp_path / "dev.tsv").write_text("sentence\tlabel\n" + "".join(f"{text}\tgood\n" for text in TEXTS))
    words = ["--model", quantized["sequence_classification"], "--data", str(tmp_path / "dev.tsv")]
    columns = ["--text-column", "sentence"]
    assert main(["evaluate", *words, *columns, "--label-column", "label"]) == 0, capsys.readouterr()
    assert main(["predict", *words, *columns, "--out", str(tmp_path / "out.jsonl")]) == 0, capsys.readouterr()
    classify = pipeline("text-classification", quantized["sequence_classification"])
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["label"] for row in rows] == [answer["label"] for answer in classify(TEXTS)]


def test_convert_writes_it_as_float32_again(quantized, tmp_path, caplog):
    assert main(["convert", quantized["masked_lm"], str(tmp_path / "float")]) == 0
    assert "quantized (int8_dynamic); its parameters are dequantized" in caplog.text
    loaded, back = load_pretrained(quantized["masked_lm"]), load_pretrained(tmp_path / "float")
    assert "quantization_config" not in json.loads((tmp_path / "float" / "config.json").read_text())
    expected = leaves(dequantize_params(loaded.params, loaded.config.quantization))
    for name, leaf in leaves(back.params).items():
        np.testing.assert_array_equal(leaf, expected[name])


def test_transformers_says_that_it_cannot_open_it(quantized):
    transformers = pytest.importorskip("transformers")
    with pytest.raises(ValueError, match="no `quant_method` attribute"):
        transformers.AutoModel.from_pretrained(quantized["masked_lm"])


def test_what_training_remembers_goes_along(write_small, tmp_path):
    from bert_jax.data.finetuning.columns import Columns
    from bert_jax.jobs.training_metadata import TrainingMetadata, read_training_metadata, write_training_metadata

    model = write_small(tmp_path / "model", "sequence_classification")
    write_training_metadata(model, TrainingMetadata(Columns("review", label="stars"), {"a": 3, "b": 4}))
    quantize(model, tmp_path / "out", Quantization("int8"))
    assert read_training_metadata(tmp_path / "out") == read_training_metadata(model)


def run(capsys, *words):
    """The only line of a command that fails."""
    assert main(["quantize", *map(str, words)]) == 2
    line = capsys.readouterr().err.strip()
    assert "\n" not in line
    return line.removeprefix("bert-jax: ")


def test_errors_are_one_line(encoder, quantized, tmp_path, capsys):
    out, empty = ("--out", tmp_path / "out"), tmp_path / "empty.txt"
    empty.write_text("\n\n")
    static = (*out, "--mode", "int8_static")
    line = run(capsys, quantized["masked_lm"], *out, "--mode", "int8")
    assert "expected a model that is not quantized, found mode int8_dynamic" in line
    line = run(capsys, encoder, *out, "--mode", "int3")
    assert line.startswith("--mode 'int3' is not known") and all(mode in line for mode in MODES)
    assert run(capsys, encoder, *static).startswith("--calibration: expected a file of texts")
    assert "expected texts, from which mode int8_static" in run(capsys, encoder, *static, "--calibration", empty)
    line = run(capsys, encoder, *out, "--mode", "int8", "--calibration", empty)
    assert line.startswith("--calibration: expected only with mode int8_static") and line.endswith("found int8")
    line = run(capsys, encoder, *out, "--mode", "int8", "--keep", "encoder/layer/*")
    assert line.startswith("--keep 'encoder/layer/*': expected a pattern of parameters such as")
    assert run(capsys, encoder, *out, "--mode", "int8", "--keep", "*").startswith(
        "--keep: expected patterns that leave"
    )
    line = run(capsys, encoder, *out, "--mode", "int4", "--group-size", "24")
    assert line.startswith("quantization: group_size: expected a divisor of the 32 inputs of encoder/layers/")
    line = run(capsys, encoder, *out, "--mode", "int4", "--group-size", "7")
    assert "group_size: expected an even number" in line and line.endswith("found 7")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            {"quant_method": "gptq", "bits": 4},
            "expected one written by `bert-jax quantize` (library 'bert_jax'), found 'gptq'",
        ),
        ("int8", "found 'int8'"),
        ({"library": "bert_jax", "mode": "int7"}, "quantization mode 'int7' is not known"),
        ({"library": "bert_jax", "mode": "int8", "bits": 3}, "'bits' is not known"),
        ({"library": "bert_jax", "mode": "int8", "modules_to_not_convert": "mlm"}, "expected a list of patterns"),
        ({"library": "bert_jax", "mode": "int4", "group_size": 5}, "expected an even number of inputs, found 5"),
    ],
)
def test_a_config_that_does_not_fit(value, message):
    config = BertConfig().to_hf() | {"quantization_config": value}
    with pytest.raises(InputError, match="quantization") as error:
        BertConfig.from_hf(config)
    assert message in str(error.value)


def test_a_config_keeps_its_quantization():
    quantization = Quantization("int4", (*KEEP, "encoder/layers/mlp/*"), 64)
    config = BertConfig(quantization=quantization)
    assert BertConfig.from_hf(json.loads(json.dumps(config.to_hf()))) == config
    assert "quantization_config" not in BertConfig(quantization=quantization.replace(stage="training")).to_hf()


def test_a_file_with_other_dtypes_than_its_config_says(encoder, tmp_path):
    quantize(encoder, tmp_path / "out", Quantization("int8"))
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    config["quantization_config"]["mode"] = "fp8"
    (tmp_path / "out" / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="expected float8_e4m3fn, as quantization_config says, found int8"):
        load_pretrained(tmp_path / "out")
    del config["quantization_config"]
    (tmp_path / "out" / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="expected floating point, found int8"):
        load_pretrained(tmp_path / "out")


def test_jax_arrays_of_a_model_may_be_moved(encoder, tmp_path):
    quantize(encoder, tmp_path / "out", Quantization("int8"))
    model = from_pretrained(tmp_path / "out")
    moved = jax.device_put(model, jax.devices()[0])
    np.testing.assert_array_equal(moved(TEXTS).logits, model(TEXTS).logits)
    jitted = jax.jit(lambda model, ids: model(ids).logits)
    assert jitted(model, jnp.ones((1, 4), jnp.int32)).shape[:2] == (1, 4)
