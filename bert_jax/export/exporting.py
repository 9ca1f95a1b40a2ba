"""Export a model directory: `export_model`."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from bert_jax import storage
from bert_jax.compression.quantization import CALIBRATION_ROWS, Text, tokenize_texts
from bert_jax.conversion.load_pretrained import Loaded, load_pretrained
from bert_jax.conversion.model_tokenizer import open_tokenizer
from bert_jax.conversion.save_pretrained import save_description
from bert_jax.errors import InputError, did_you_mean
from bert_jax.export import readme, savedmodel, stablehlo
from bert_jax.export.checking import Difference, check_outputs
from bert_jax.export.onnx import files as onnx_files
from bert_jax.export.signature import Arrays, Runner, SourceModel, signature_of
from bert_jax.tokenization import Tokenizer, has_tokenizer

# Texts on which int8 models are checked if there are no calibration texts.
_SENTENCES: Sequence[Text] = (
    "The river was frozen for the first time in thirty years, and people walked across it to the other bank.",
    "Who wrote the letter to the editor in March 1921?",
    "I loved every minute of it: a warm, funny and beautiful film.",
    "The room was dirty, the food was cold and nobody said sorry. Never again.",
    "Anna Meyer of Siemens flew from Berlin to Tokyo on Monday.",
    "To make the dough, mix the flour with water and salt, and let it rest for an hour.",
)


class Format(NamedTuple):
    """A format of exported models.

    Attributes:
        files: dtype -> file or folder with the program.
        write: function that writes the files of some dtypes into a local directory.
        open: function that opens the file of a dtype in its runtime.
    """

    files: dict[str, str]
    write: Callable[[storage.Path, SourceModel, tuple[str, ...]], None]
    open: Callable[[storage.Path, str], Runner]


EXPORT_FORMATS = {
    "stablehlo": Format(stablehlo.PROGRAMS, stablehlo.write_stablehlo, stablehlo.open_stablehlo),
    "onnx": Format(onnx_files.ONNX_FILES, onnx_files.write_onnx_files, onnx_files.open_onnx),
    "savedmodel": Format(savedmodel.FOLDER_OF_DTYPE, savedmodel.write_savedmodel, savedmodel.open_savedmodel),
}


class ExportedFile(NamedTuple):
    """A file of an exported model.

    Attributes:
        path: path relative to the exported directory.
        dtype: its dtype.
        bytes: size of the file, or of the folder, with the parameters that it reads.
        difference: difference from bert_jax in float32; None without a check.
    """

    path: str
    dtype: str
    bytes: int
    difference: Difference | None


def export_model(
    model: storage.PathLike,
    out: storage.PathLike,
    format: str,
    dtypes: Sequence[str] = ("float32",),
    *,
    head: str | None = None,
    calibration: Iterable[Text] = (),
    rows: int = CALIBRATION_ROWS,
    check: bool = True,
) -> list[ExportedFile]:
    """Export a model directory for a runtime other than bert_jax, with its tokenizer, its config and a README.md.

    The exported program takes any batch size and any length up to the model's positions.

    Args:
        model: as `path` of `huggingface.load_pretrained`.
        out: a new or empty directory.
        format: one of `EXPORT_FORMATS`.
        dtypes: one or more of the format's dtypes; a file is written for each.
        head: one of `modeling.HEADS`; None means the saved head.
        calibration: texts or pairs that resemble the future inputs, for dtype int8_static.
        rows: number of texts of `calibration` to use.
        check: whether to run each file in its runtime and to compare its outputs with those of bert_jax.

    Raises:
        InputError: the format or a dtype is not known, a package is missing, the model is quantized or lacks the
            head, the calibration texts are missing or not needed, `out` is not empty, or a check failed.
    """
    if format not in EXPORT_FORMATS:
        raise InputError(f"--format {format!r} is not known{did_you_mean(format, EXPORT_FORMATS)}")
    exporter, dtypes = EXPORT_FORMATS[format], tuple(dict.fromkeys(dtypes))
    for dtype in dtypes:
        if dtype not in exporter.files:
            raise InputError(f"--dtype: expected a dtype of {format}, found {dtype!r}"
                             f"{did_you_mean(dtype, exporter.files)}")  # fmt: skip
    storage.new_directory(out)
    loaded = _exportable(load_pretrained(model, head), model)
    tokenizer = open_tokenizer(loaded) if has_tokenizer(loaded.directory) else None
    if tokenizer is not None and tokenizer.layout.second_type == 0:
        loaded = _with_one_segment(loaded)
    texts: Sequence[Text] = list(itertools.islice(calibration, rows)) if "int8_static" in dtypes else _SENTENCES
    if not texts:
        raise InputError("--calibration: expected texts, from which int8_static takes the scales of inputs, found none")
    if tokenizer is None and "int8_static" in dtypes:
        raise InputError(f"{loaded.directory}: expected a tokenizer for the calibration texts, found none")
    tokenized = [] if tokenizer is None else _tokenized(loaded, tokenizer, texts)
    source = SourceModel(loaded.config, loaded.head, loaded.params, tokenized)
    with storage.directory_atomically(out) as beside:
        save_description(beside, loaded.config, loaded.head, loaded.params, tokenizer, loaded.settings)
        exporter.write(beside, source, dtypes)
        done = []
        for dtype in dtypes:
            path = exporter.files[dtype]
            difference = check_outputs(exporter.open(beside, dtype), source, dtype, f"{out}/{path}") if check else None
            done.append(ExportedFile(path, dtype, _size(beside, path), difference))
        programs = {dtype: exporter.files[dtype] for dtype in dtypes}
        text = readme.exported_readme(format, programs, source, (beside / "tokenizer.json").exists())
        storage.write_atomically(beside / "README.md", text)
    return done


def _exportable(loaded: Loaded, model: storage.PathLike) -> Loaded:
    """Check that a model can be exported, and drop its pooler if that is untrained.

    Raises:
        InputError: the model is quantized, its head is not trained, or its pooling leaves out prompts.
    """
    if loaded.config.quantization is not None:
        raise InputError(f"{model}: expected a model that is not quantized, found mode "
                         f"{loaded.config.quantization.mode}; export the model that it was made from")  # fmt: skip
    if loaded.head == "sentence_embedding" and loaded.settings.prompts and not loaded.settings.include_prompt:
        raise InputError(f"{model}: expected a model that pools the tokens of prompts, found include_prompt false; "
                         "export it with the head encoder, and pool in your program")  # fmt: skip
    if loaded.head == "sparse_embedding" and loaded.config.pooling == "lexical":
        raise InputError(f"{model}: expected another head to export, found the token weights of BGE-M3")
    if loaded.head == "zero_shot_ner":
        raise InputError(
            f"{model}: expected another head to export, found a GLiNER; --head encoder exports its encoder"
        )
    missing = [name for name in loaded.missing if "pooler" not in name]
    if len(missing) < len(loaded.missing) and loaded.head in ("encoder", "sentence_embedding"):
        params = {name: part for name, part in loaded.params.items() if name != "pooler"}
        loaded = loaded._replace(config=loaded.config.replace(pooler=False), params=params, missing=missing)
    if loaded.missing:
        raise InputError(f"{model}: expected a trained {loaded.head} head to export, found no {loaded.missing[0]}")
    return loaded


def _with_one_segment(loaded: Loaded) -> Loaded:
    """Return a model without the input `token_type_ids`, as its tokenizer returns none: all tokens have type 0."""
    if loaded.config.type_vocab_size < 2:
        return loaded
    embeddings = loaded.params["embeddings"]
    types = {"embedding": embeddings["token_type_embeddings"]["embedding"][:1]}
    params = {**loaded.params, "embeddings": {**embeddings, "token_type_embeddings": types}}
    return loaded._replace(config=loaded.config.replace(type_vocab_size=1), params=params)


def _tokenized(loaded: Loaded, tokenizer: Tokenizer, texts: Iterable[Text]) -> list[Arrays]:
    """Tokenize texts one by one, so that no batch has padding."""
    names, found = signature_of(loaded.config, loaded.head).inputs, []
    longest = loaded.settings.longest(loaded.config.max_position_embeddings, tokenizer)
    for text in texts:
        inputs = tokenize_texts(tokenizer, [text], max_length=longest)
        arrays = {name: np.asarray(inputs[name], np.int32) for name in names}
        found.append(
            {name: array[:, None] if loaded.head == "multiple_choice" else array for name, array in arrays.items()}
        )
    return found


def _size(directory: storage.Path, path: str) -> int:
    """Return the size of a file or folder in bytes, including parameters in a file beside it."""
    if (directory / path).is_dir():
        return sum((directory / path).sizes_below().values())
    beside = [directory / f"{path}_data"] + [directory / stablehlo.WEIGHTS] * path.endswith(".stablehlo")
    return sum(file.size() for file in (directory / path, *beside) if file.exists())
