"""The ONNX files of an exported folder, with the names that optimum and transformers.js expect."""

from bert_jax import storage
from bert_jax.export.onnx.int8 import quantize_dynamically, quantize_statically
from bert_jax.export.onnx.model import onnx_model, write_onnx
from bert_jax.export.signature import Arrays, Runner, SourceModel, as_int64
from bert_jax.extras import import_extra

FOLDER = "onnx"
ONNX_FILES = {
    "float32": f"{FOLDER}/model.onnx",
    "float16": f"{FOLDER}/model_fp16.onnx",
    "int8_dynamic": f"{FOLDER}/model_quantized.onnx",
    "int8_static": f"{FOLDER}/model_int8.onnx",
}


def write_onnx_files(directory: storage.Path, source: SourceModel, dtypes: tuple[str, ...]) -> None:
    """Write the `ONNX_FILES` of some dtypes into a local directory.

    Raises:
        InputError: a package is not installed.
    """
    import_extra("onnx", "onnx")
    (directory / FOLDER).mkdir()
    paths = {dtype: directory / file for dtype, file in ONNX_FILES.items()}
    if set(dtypes) != {"float16"}:  # int8 files are made from the float32 file
        write_onnx(onnx_model(source.config, source.head, source.params), paths["float32"])
    if "float16" in dtypes:
        write_onnx(onnx_model(source.config, source.head, source.params, "float16"), paths["float16"])
    if "int8_dynamic" in dtypes:
        quantize_dynamically(paths["float32"], paths["int8_dynamic"])
    if "int8_static" in dtypes:
        quantize_statically(paths["float32"], paths["int8_static"], source.texts)
    if "float32" not in dtypes:
        for path in (directory / FOLDER).iterdir():
            if path.name in ("model.onnx", "model.onnx_data"):
                path.unlink()


def open_onnx(directory: storage.Path, dtype: str) -> Runner:
    """Open an ONNX file in onnxruntime on the CPU, as a function of int32 or int64 inputs."""
    runtime = import_extra("onnxruntime", "onnx")
    session = runtime.InferenceSession(str(directory / ONNX_FILES[dtype]), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]

    def run(inputs: Arrays) -> Arrays:
        return dict(zip(names, session.run(names, as_int64(inputs)), strict=True))

    return run
