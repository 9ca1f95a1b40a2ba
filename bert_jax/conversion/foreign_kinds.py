"""Recognise files of models in unsupported formats, and say in an error how to get weights from them."""

import fnmatch

from bert_jax import storage
from bert_jax.conversion.formats import tf1
from bert_jax.conversion.formats.tf1_files import tf1_indices
from bert_jax.conversion.weights import is_weights
from bert_jax.errors import InputError

# File name pattern -> what the file is, and how to get supported weights.
# DeepSpeed's patterns come first, as its folders also match other patterns.
_KINDS = {
    "mp_rank_*_model_states.pt": "a checkpoint of DeepSpeed, whose weights are in one file; open {file}",
    "*zero_pp_rank_*": "a checkpoint of DeepSpeed, whose parameters are in parts; run `python zero_to_fp32.py . OUT` "
    "in {checkpoint}, and open the file in OUT",
    "*.distcp": "a distributed checkpoint of PyTorch (FSDP); run `python -m torch.distributed.checkpoint.format_utils "
    "dcp_to_torch {folder} model.pt` (dcp_to_torch_save), and open model.pt",
    "*.h5": "Keras' weights of a TensorFlow model; with transformers 4 and TensorFlow, run "
    "AutoModel.from_pretrained({at!r}, from_tf=True).save_pretrained('OUT'), and open OUT",
    "saved_model.pb": "a SavedModel of TensorFlow, which is a program; open the weights that it was exported from",
    "*.onnx": "an ONNX graph, which is a program; open the weights that it was exported from",
    "*.gguf": "weights in GGUF, mostly quantized; open the weights that they were converted from",
    "openvino_model.*": "an OpenVINO graph, which is a program; open the weights that it was exported from",
    "rust_model.ot": "weights of rust-bert; open the weights that they were converted from",
}
# The first bytes of a file -> its pattern in `_KINDS`.
_BEGINNINGS = {b"\x89HDF\r\n\x1a\n": "*.h5", b"GGUF": "*.gguf"}
_BARE = ("*.pt", "*.pth", "*.ckpt", "*.bin", "*.safetensors")  # files that can be opened alone
_NO_MODEL = ("training_args.bin", "optimizer*", "scheduler*", "rng_state*", "scaler*")  # trainers' own files


def refuse_foreign_directory(directory: storage.Path) -> None:
    """Raise InputError when a directory without a config or weights has a model in an unsupported format."""
    if is_weights(directory):
        for index in tf1_indices(directory)[:1]:
            with tf1.open_variables(index):  # raises for an object-based checkpoint
                return
        return
    inside = sorted(directory.iterdir())
    files = inside + [file for folder in inside if folder.is_dir() for file in sorted(folder.iterdir())]
    for pattern, kind in _KINDS.items():
        if file := next((file for file in files if fnmatch.fnmatch(file.name, pattern)), None):
            raise InputError(
                f"{directory}: expected weights, found {file.relative_to(directory)}: {_way_out(kind, file)}"
            )
    bare = [file for file in inside if _matches(file, _BARE) and not _matches(file, _NO_MODEL)]
    if bare:
        raise InputError(
            f"{directory}: expected a model directory (config.json, model.safetensors, ...), found {bare[0].name}; to "
            f"open that file, name it: {bare[0]}"
        )


def _matches(file: storage.Path, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatch(file.name, pattern) for pattern in patterns)


def refuse_foreign_file(path: storage.Path) -> None:
    """Raise InputError when a file holds a model in an unsupported format."""
    with path.open("rb") as file:
        start = file.read(8)
    named = (pattern for pattern in _KINDS if fnmatch.fnmatch(path.name, pattern) and "model_states" not in pattern)
    pattern = next((kind for beginning, kind in _BEGINNINGS.items() if start.startswith(beginning)), next(named, None))
    if pattern is not None:
        raise InputError(f"{path}: expected weights, found {_way_out(_KINDS[pattern], path)}")


def _way_out(kind: str, file: storage.Path) -> str:
    """Fill a file's paths into its description; DeepSpeed's script is beside the folder `global_step*`."""
    folder = file.parent
    checkpoint = folder.parent if folder.name.startswith("global_step") else folder
    return kind.format(at=str(folder), folder=folder, file=file, checkpoint=checkpoint)
