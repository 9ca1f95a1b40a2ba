"""The README.md of an exported model: its files, inputs and outputs, and the code that runs it."""

import jax

import bert_jax
from bert_jax.export.onnx.graph import OPSET
from bert_jax.export.savedmodel import SIGNATURE
from bert_jax.export.signature import SourceModel, signature_of
from bert_jax.export.stablehlo import PLATFORMS, WEIGHTS

_TITLES = {"stablehlo": "StableHLO", "onnx": "ONNX", "savedmodel": "TensorFlow SavedModel"}
_DTYPES = {
    "float32": "float32",
    "float16": "float16 parameters and activations; outputs are float32",
    "bfloat16": "bfloat16 matrix products and activations, float32 parameters and outputs",
    "int8_dynamic": "int8 parameters of dense layers and word embedding; inputs are quantized at run time",
    "int8_static": "int8 parameters of dense layers and word embedding; inputs have calibrated scales",
}
_PACKAGES = {"stablehlo": "jax flatbuffers", "onnx": "onnxruntime", "savedmodel": "tensorflow"}
# Reads the parameters with numpy alone, since safetensors may not be installed.
_STABLEHLO = """\
import json, jax, jax.export, numpy as np

file = np.fromfile("{weights}", np.uint8)
start = 8 + int(file[:8].view("<u8")[0])
tensors = json.loads(file[8:start].tobytes())
del tensors["__metadata__"]
values = {{k: file[start:][slice(*t["data_offsets"])].view("<f4").reshape(t["shape"]) for k, t in tensors.items()}}
weights = jax.device_put(values)
run = jax.jit(jax.export.deserialize(bytearray(open("{path}", "rb").read())).call)
outputs = run(weights, {arguments})  # {names}
"""
_ONNX = """\
import numpy as np, onnxruntime

session = onnxruntime.InferenceSession("{path}")
inputs = {{{inputs}}}
outputs = dict(zip([output.name for output in session.get_outputs()], session.run(None, inputs)))
"""
_SAVEDMODEL = """\
import tensorflow as tf

module = tf.saved_model.load("{path}")
run = module.signatures["{signature}"]
outputs = run({inputs})
"""
_TOKENIZER = """\
from tokenizers import Tokenizer

row = Tokenizer.from_file("tokenizer.json").encode({texts})
"""
_IDS = {"input_ids": "[[{0}, {1}, {2}]]", "attention_mask": "[[1, 1, 1]]", "token_type_ids": "[[0, 0, 0]]"}
_OF_ROW = {"input_ids": "[row.ids]", "attention_mask": "[row.attention_mask]", "token_type_ids": "[row.type_ids]"}


def exported_readme(format: str, files: dict[str, str], source: SourceModel, from_text: bool) -> str:
    """Return the text of README.md in an exported directory.

    Args:
        format: a key of `exporting.EXPORT_FORMATS`.
        files: dtype -> file or folder of each program.
        source: the model.
        from_text: whether the code starts from a text, which needs a `tokenizer.json` in the directory.
    """
    config, signature = source.config, signature_of(source.config, source.head)
    dtype_of_inputs = "int64" if format == "onnx" else "int32"
    path = next(iter(files.values()))
    lines = [f"# A {config.family} model ({source.head.replace('_', ' ')}) as {_TITLES[format]}", ""]
    lines += [f"Exported by bert_jax {bert_jax.__version__}{_versions(format)}.", "", "| file | dtype |", "|---|---|"]
    lines += [f"| `{file}` | {_DTYPES[dtype]} |" for dtype, file in files.items()]
    if format == "stablehlo":
        lines += [f"| `{WEIGHTS}` | the parameters, float32 |"]
    lines += ["", "| input | shape | dtype |", "|---|---|---|"]
    lines += [f"| `{name}` | {_shape(axes)} | {dtype_of_inputs} |" for name, axes in signature.inputs.items()]
    lines += ["", "| output | shape | dtype |", "|---|---|---|"]
    lines += [f"| `{name}` | {_shape(axes)} | float32 |" for name, axes in signature.outputs.items()]
    lines += ["", f"Any batch size is accepted, and any length up to {config.max_position_embeddings} "
              "tokens. `attention_mask` is 1 for tokens and 0 for padding. "
              "`config.json` and the tokenizer's files are those of Hugging Face transformers."]  # fmt: skip
    if source.head == "sentence_embedding":
        lines += ["", "`sentence_embedding` is pooled and, where the model does so, normalized."]
    lines += ["", f"These lines need `pip install {_PACKAGES[format]}{' tokenizers' if from_text else ''}`:"]
    lines += ["", "```python", _program(format, path, source, from_text).rstrip(), "```", ""]
    return "\n".join(lines)


def _versions(format: str) -> str:
    if format == "onnx":
        return f", ONNX opset {OPSET}"
    return f", JAX {jax.__version__}, for the platforms {', '.join(PLATFORMS)}"


def _shape(axes: tuple[str | int, ...]) -> str:
    return f"[{', '.join(map(str, axes))}]"


def _program(format: str, path: str, source: SourceModel, from_text: bool) -> str:
    """Return the code that runs the program on a text, or on a row of three tokens."""
    signature, size = signature_of(source.config, source.head), source.config.vocab_size
    forms = _OF_ROW if from_text else _IDS
    rows = {name: forms[name].format(size - 1, size // 2, size // 3) for name in signature.inputs}
    texts = '"a text"'
    if source.head == "multiple_choice":
        rows, texts = {name: f"[{row}]" for name, row in rows.items()}, '"a question", "an answer"'
    return _TOKENIZER.format(texts=texts) * from_text + _run(format, path, source, rows)


def _run(format: str, path: str, source: SourceModel, rows: dict[str, str]) -> str:
    """Return the code that runs the program on `rows` (name of an input -> Python expression)."""
    if format == "stablehlo":
        arguments = ", ".join(f"np.int32({row})" for row in rows.values())
        return _STABLEHLO.format(path=path, weights=WEIGHTS, arguments=arguments, names=", ".join(rows))
    if format == "onnx":
        inputs = ", ".join(f'"{name}": np.int64({row})' for name, row in rows.items())
        return _ONNX.format(path=path, inputs=inputs)
    inputs = ", ".join(f"{name}=tf.constant({row})" for name, row in rows.items())
    return _SAVEDMODEL.format(path=path, signature=SIGNATURE, inputs=inputs)
