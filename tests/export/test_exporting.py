"""Exported directories: their files, their README's lines, their check, and what is refused."""

import json
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest
from small_models import write_model

from bert_jax.cli import main
from bert_jax.cli.export import _FORMATS
from bert_jax.compression.quantization import quantize
from bert_jax.config.quantization import Quantization
from bert_jax.conversion.huggingface import load_pretrained
from bert_jax.errors import InputError
from bert_jax.export import checking
from bert_jax.export.exporting import EXPORT_FORMATS, export_model
from bert_jax.extras import how_to_install
from bert_jax.inference import from_pretrained

ONNX = "needs onnx and onnxruntime: pip install 'bert-jax[onnx]'"
TEXTS = ["the cat sat on the tree", "two big birds", "a dog sees a red house", "he was young"] * 3


def lines_of(directory: Path) -> str:
    (block,) = re.findall("```python\n(.*?)```", (directory / "README.md").read_text(), re.S)
    return block


@pytest.fixture(scope="module")
def classifier(tmp_path_factory, write_small):
    return write_small(
        tmp_path_factory.mktemp("exporting") / "model", "sequence_classification", id2label=("bad", "good")
    )


def test_the_lines_run_where_there_is_no_bert_jax(tmp_path, classifier):
    """Python without `site` finds no editable install, whose finder a .pth file starts."""
    export_model(classifier, tmp_path / "out", "stablehlo", check=False)
    lines = lines_of(tmp_path / "out")
    assert len(lines.splitlines()) <= 15
    script = f"import importlib.util\nassert importlib.util.find_spec('bert_jax') is None\n{lines}"
    script += "print(outputs['logits'].tolist())\n"
    places = {sysconfig.get_path("purelib"), str(Path(np.__file__).parents[1])}
    paths = [place for place in places if not (Path(place) / "bert_jax").exists()]
    done = subprocess.run(
        [sys.executable, "-S", "-c", script], cwd=tmp_path / "out", capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    model = from_pretrained(classifier, dtype="float32")
    expected = model(**model.tokenizer("a text")).logits
    np.testing.assert_allclose(json.loads(done.stdout), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("format", ["onnx", "stablehlo"])
def test_the_inputs_are_those_that_the_tokenizer_gives(tmp_path, write_small, format):
    """A BERT with two segments and the tokenizer of a RoBERTa, such as multilingual-e5."""
    pytest.importorskip("onnxruntime", reason=ONNX)
    model = write_small(tmp_path / "model", "encoder", initializer_range=0.5)
    file = model / "tokenizer_config.json"
    settings = json.loads(file.read_text())
    file.write_text(json.dumps(settings | {"model_input_names": ["input_ids", "attention_mask"]}))
    (exported,) = export_model(model, tmp_path / "out", format)
    assert exported.difference is not None
    assert "token_type_ids" not in lines_of(tmp_path / "out")
    if format == "onnx":
        import onnxruntime

        session = onnxruntime.InferenceSession(tmp_path / "out" / exported.path)
        assert {given.name for given in session.get_inputs()} == {"input_ids", "attention_mask"}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("format", ["onnx", "stablehlo"])
@pytest.mark.parametrize("window", [1, 4, 8])
def test_padding_whose_window_has_no_token_is_not_compared(tmp_path, format, window):
    pytest.importorskip("onnxruntime", reason=ONNX)
    write_model(tmp_path / "model", "modernbert", "masked_lm", local_window=window, max_position_embeddings=64)
    (exported,) = export_model(tmp_path / "model", tmp_path / "out", format)
    assert exported.difference is not None and exported.difference.largest < 1e-5


def test_an_onnx_directory(tmp_path, write_small, monkeypatch, capsys):
    pytest.importorskip("onnxruntime", reason=ONNX)
    model, out, texts = write_small(tmp_path / "model", "sentence_embedding"), tmp_path / "out", tmp_path / "texts.txt"
    texts.write_text("\n".join(TEXTS))
    dtypes = ["float32", "float16", "int8_dynamic", "int8_static"]
    assert main(["export", str(model), "--out", str(out), "--format", "onnx", "--dtype", *dtypes,
                 "--calibration", str(texts)]) == 0  # fmt: skip
    printed = capsys.readouterr().out
    assert all(dtype in printed for dtype in dtypes)
    # The names that transformers.js and sentence-transformers open.
    names = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    assert {f"onnx/model{suffix}.onnx" for suffix in ("", "_fp16", "_quantized", "_int8")} <= names
    assert {"config.json", "tokenizer.json", "tokenizer_config.json", "modules.json", "1_Pooling/config.json"} <= names
    assert not {"model.safetensors", "onnx/model.onnx_data"} & names
    readme = (out / "README.md").read_text()
    assert "opset 17" in readme and "[batch_size, sequence_length] | int64" in readme
    monkeypatch.chdir(out)
    run: dict = {}
    exec(lines_of(out), run)
    opened = from_pretrained(model, dtype="float32")
    expected = opened(**opened.tokenizer("a text"))
    np.testing.assert_allclose(run["outputs"]["sentence_embedding"], expected.sentence_embedding, rtol=0, atol=1e-5)
    np.testing.assert_allclose(run["outputs"]["last_hidden_state"], expected.last_hidden_state, rtol=0, atol=1e-5)
    sizes = {path.name: path.stat().st_size for path in (out / "onnx").iterdir()}
    assert sizes["model_fp16.onnx"] < sizes["model.onnx"]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "head, has_tokenizer", [("multiple_choice", True), ("multiple_choice", False), ("encoder", False)]
)
def test_the_lines_of_other_inputs_run(tmp_path, write_small, monkeypatch, head, has_tokenizer):
    pytest.importorskip("onnxruntime", reason=ONNX)
    model = write_small(tmp_path / "model", head)
    if not has_tokenizer:
        (model / "tokenizer.json").unlink()
        (model / "vocab.txt").unlink(missing_ok=True)
    export_model(model, tmp_path / "out", "onnx", check=False)
    monkeypatch.chdir(tmp_path / "out")
    run: dict = {}
    exec(lines_of(tmp_path / "out"), run)
    assert ("row" in run) == has_tokenizer
    assert all(np.isfinite(values).all() for values in run["outputs"].values())
    if has_tokenizer:
        opened = from_pretrained(model, dtype="float32")
        inputs = {name: row[:, None] for name, row in opened.tokenizer("a question", "an answer").items()}
        np.testing.assert_allclose(run["outputs"]["logits"], opened(**inputs).logits, rtol=0, atol=1e-5)


def test_int8_without_float32_leaves_no_float32(tmp_path, classifier):
    pytest.importorskip("onnxruntime", reason=ONNX)
    (file,) = export_model(classifier, tmp_path / "out", "onnx", ["int8_dynamic"])
    assert [path.name for path in (tmp_path / "out/onnx").iterdir()] == ["model_quantized.onnx"]
    assert file.difference is not None and 1e-5 < file.difference.relative < 0.5
    kinds = {node.op_type for node in __import__("onnx").load(tmp_path / "out" / file.path).graph.node}
    assert "MatMulInteger" in kinds


def test_a_savedmodel(tmp_path, classifier, monkeypatch):
    pytest.importorskip("tensorflow", reason="needs TensorFlow: pip install 'bert-jax[savedmodel]'")
    (file,) = export_model(classifier, tmp_path / "out", "savedmodel")
    assert file.difference is not None and file.difference.largest < 1e-5
    monkeypatch.chdir(tmp_path / "out")
    run: dict = {}
    exec(lines_of(tmp_path / "out"), run)
    assert run["outputs"]["logits"].shape == (1, 2)


def test_a_wrong_program_is_not_left_behind(tmp_path, classifier, monkeypatch):
    def wrong(*args):
        run = EXPORT_FORMATS["stablehlo"].open(*args)
        return lambda inputs: {name: value + 1e-3 for name, value in run(inputs).items()}

    monkeypatch.setitem(EXPORT_FORMATS, "wrong", EXPORT_FORMATS["stablehlo"]._replace(open=wrong))
    with pytest.raises(InputError, match=r"out/model.stablehlo: expected outputs within 1e-05 .* of 0.00"):
        export_model(classifier, tmp_path / "out", "wrong")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda value: value[:1], r"logits: expected shape \[3, 2\], found \[1, 2\]"),
        (lambda value: value * np.nan, "logits: expected finite values, found NaN or infinity"),
        (lambda value: 1 / 0, "expected outputs, found ZeroDivisionError: division by zero"),
    ],
)
def test_what_the_check_finds(classifier, change, message):
    loaded = load_pretrained(classifier)
    source = checking.SourceModel(loaded.config, loaded.head, loaded.params)
    expected = from_pretrained(classifier, dtype="float32")

    def run(inputs):
        return {"logits": change(np.asarray(expected(**inputs).logits))}

    with pytest.raises(InputError, match=message):
        checking.check_outputs(run, source, "float32", "a file")


REFUSED = [
    (["--format", "onxx"], "--format 'onxx' is not known; did you mean 'onnx'?"),
    (["--format", "stablehlo", "--dtype", "float16"], "--dtype: expected a dtype of stablehlo, found 'float16'"),
    (["--format", "onnx", "--dtype", "int8_static"], "--calibration: expected a file of texts, as dtype int8_static"),
    (["--format", "onnx", "--calibration", "x.txt"], "--calibration: expected only with dtype int8_static"),
    (["--format", "stablehlo", "--head", "token_classification"], "expected a trained token_classification head to"),
    (["--format", "stablehlo", "--head", "tokens"], "head 'tokens' is not known"),
]


@pytest.mark.parametrize("options, message", REFUSED)
def test_what_is_refused(options, message, tmp_path, classifier, capsys):
    assert main(["export", str(classifier), "--out", str(tmp_path / "out"), *options]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_the_help_names_every_format():
    assert tuple(EXPORT_FORMATS) == _FORMATS


def test_directories_that_are_refused(tmp_path, classifier, capsys):
    quantize(classifier, tmp_path / "int8", Quantization("int8"))
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    for model, out, message in (
        (
            tmp_path / "int8",
            "out",
            "int8: expected a model that is not quantized, found mode int8; export the model that it",
        ),
        (classifier, "full", "full: expected a new or empty directory, found one with files in it"),
    ):
        assert main(["export", str(model), "--out", str(tmp_path / out), "--format", "stablehlo"]) == 2
        assert message in capsys.readouterr().err


@pytest.mark.parametrize("format, package", [("onnx", "onnx"), ("savedmodel", "tensorflow")])
def test_a_missing_package_is_named_with_its_command(format, package, tmp_path, classifier, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, package, None)
    assert main(["export", str(classifier), "--out", str(tmp_path / "out"), "--format", format]) == 2
    error = capsys.readouterr().err
    assert f"expected the package {package}: {how_to_install(format)}; found" in error


def test_an_encoder_without_a_trained_pooler_has_no_pooler_output(tmp_path, write_small):
    write_small(tmp_path / "model", "masked_lm")
    export_model(tmp_path / "model", tmp_path / "out", "stablehlo", head="encoder", check=False)
    readme = (tmp_path / "out/README.md").read_text()
    assert "last_hidden_state" in readme and "pooler_output" not in readme


def test_minilm(tmp_path, minilm):
    pytest.importorskip("onnxruntime", reason=ONNX)
    (file,) = export_model(minilm, tmp_path / "out", "onnx")
    assert file.difference is not None and file.difference.largest < 1e-5
    session = __import__("onnxruntime").InferenceSession(str(tmp_path / "out/onnx/model.onnx"))
    model = from_pretrained(minilm, dtype="float32")
    assert model.tokenizer is not None
    inputs = {name: values.astype(np.int64) for name, values in model.tokenizer(TEXTS[:4]).items()}
    names = [value.name for value in session.get_inputs()]
    _, found = session.run(None, {name: inputs[name] for name in names})
    np.testing.assert_allclose(found, model.encode(TEXTS[:4]), rtol=0, atol=1e-5)


@pytest.mark.slow
def test_int8_of_minilm_keeps_its_score(tmp_path, minilm, shared_data):
    """Spearman correlation on pairs of STS-B: within 0.5 points of float32."""
    pytest.importorskip("onnxruntime", reason=ONNX)
    from bert_jax.data.finetuning.tables import Columns, read_examples
    from bert_jax.export.onnx.files import open_onnx
    from bert_jax.metrics.scores import spearman
    from bert_jax.storage import Path as StoragePath

    rows = list(read_examples(str(shared_data / "glue/STS-B/dev.tsv"), Columns("sentence1", "sentence2", "score")))[
        :400
    ]
    export_model(minilm, tmp_path / "out", "onnx", ["float32", "int8_dynamic"])
    tokenizer, scores = from_pretrained(minilm).tokenizer, {}
    assert tokenizer is not None
    for dtype in ("float32", "int8_dynamic"):
        run = open_onnx(StoragePath(tmp_path / "out"), dtype)
        first, second = (
            np.concatenate([run(tokenizer(texts[i : i + 32]))["sentence_embedding"] for i in range(0, 400, 32)])
            for texts in ([row.text for row in rows], [row.pair for row in rows])
        )
        scores[dtype] = spearman((first * second).sum(-1), np.array([float(row.label) for row in rows]))
    assert abs(scores["float32"] - scores["int8_dynamic"]) < 0.005
