"""Load and save encoder-decoders in the Hugging Face layout (`EncoderDecoderModel`)."""

import functools
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from bert_jax import storage
from bert_jax.config import BertConfig
from bert_jax.conversion import state_dict, state_dict_writing
from bert_jax.conversion.formats import safetensors_writing
from bert_jax.conversion.formats.lazy_tensors import LazyTensor, Tensors
from bert_jax.conversion.generation_settings import GenerationSettings, read_generation_settings
from bert_jax.conversion.model_kinds import ENCODER_DECODER_TYPE, is_encoder_decoder
from bert_jax.conversion.tensor_names import canonical_names
from bert_jax.conversion.weights import Weights, open_weights
from bert_jax.errors import InputError, did_you_mean, logger
from bert_jax.families import FAMILIES
from bert_jax.model_files import check_keys
from bert_jax.model_files.encoder_decoder import ENCODER_DECODER, ENCODER_DECODER_GENERATION
from bert_jax.modeling import Bert, EncoderDecoder, Params
from bert_jax.storage import hub

_log = logger(__name__)
_CLASS = "EncoderDecoderModel"
_GENERATION_FILE = "generation_config.json"
_OF_DECODER = {"is_decoder": True, "add_cross_attention": True}  # keys of a decoder's config
_PROJECTION = "enc_to_dec_proj"


class LoadedEncoderDecoder(NamedTuple):
    """The contents of the directory of an encoder-decoder.

    Attributes:
        model: encoder and decoder.
        params: the parameter tree of `EncoderDecoder.init` of numpy arrays, float32.
        settings: settings of text generation.
        directory: the directory of the model and its tokenizer.
    """

    model: EncoderDecoder
    params: Params
    settings: GenerationSettings
    directory: storage.Path


def load_encoder_decoder(path: storage.PathLike) -> LoadedEncoderDecoder:
    """Read the directory of an encoder-decoder.

    Args:
        path: a directory (local or `gs://`) with `config.json` and weights in the layout of transformers'
            EncoderDecoderModel, or a name on the hub (`hub.locate`).

    Raises:
        InputError: something is missing, damaged, or does not fit; the message names the file and the tensor.
    """
    directory = hub.locate(path)
    where = directory / "config.json"
    if not is_encoder_decoder(directory):
        raise InputError(f"{where}: expected model_type {ENCODER_DECODER_TYPE!r}, found another model")
    content = storage.read_json(where, unique_keys=True)
    check_keys(content, (*ENCODER_DECODER, *ENCODER_DECODER_GENERATION), where, others=())
    parts = {name: _part(content, name, where) for name in ("encoder", "decoder")}
    settings = read_generation_settings(_generation_keys(directory, content), parts["decoder"], where)
    with open_weights(directory) as weights:
        encoder, decoder = (_config(parts[name], where, name) for name in ("encoder", "decoder"))
        tensors = {name: _own_tensors(weights, f"{name}.", parts[name]["model_type"]) for name in parts}
        kernel = f"{FAMILIES[encoder.family].names.prefix}pooler.dense.weight"
        try:
            model = EncoderDecoder(encoder.replace(pooler=kernel in tensors["encoder"]), decoder)
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
        width = parts["decoder"].get("cross_attention_hidden_size")
        if width is not None and (width != encoder.hidden_size or model.has_projection):
            raise InputError(
                f"{where}: decoder: cross_attention_hidden_size: expected none, or the hidden size of both encoder "
                f"({encoder.hidden_size}) and decoder ({decoder.hidden_size}), found {width!r}"
            )
        params = {
            name: _read(part, tensors[name], weights)
            for name, part in (("encoder", model.encoder), ("decoder", model.decoder))
        }  # fmt: skip
        if model.has_projection:
            params["projection"] = _read_projection(model, weights)
        return LoadedEncoderDecoder(model, params, settings, directory)


def _part(content: Mapping[str, Any], name: str, where: storage.Path) -> dict[str, Any]:
    """Return the config of the encoder or decoder, after checking its model_type and a decoder's keys."""
    part = content.get(name)
    if not isinstance(part, dict):
        raise InputError(f"{where}: {name}: expected a config of a model, found {type(part).__name__}")
    stated = part.get("model_type")
    if (family := FAMILIES.named(stated)) is None or family.has_own_code:
        raise InputError(f"{where}: {name}: model_type: expected a family of encoders, found {stated!r}")
    for key in _OF_DECODER if name == "decoder" else ():
        if part.get(key) is not True:
            raise InputError(f"{where}: decoder: {key}: expected true, found {part.get(key)!r}")
    return part


def _config(part: Mapping[str, Any], where: storage.Path, name: str) -> BertConfig:
    own = {key: value for key, value in part.items() if name == "encoder" or key not in _OF_DECODER}
    return BertConfig.from_hf(own, where=f"{where}: {name}")


def _generation_keys(directory: storage.Path, content: Mapping[str, Any]) -> dict[str, Any]:
    known = {key.name for key in ENCODER_DECODER_GENERATION}
    keys = {name: value for name, value in content.items() if name in known}
    where = directory / _GENERATION_FILE
    if where.exists():
        own = storage.read_json(where)
        check_keys(own, ENCODER_DECODER_GENERATION, where, others=())
        keys |= {name: value for name, value in own.items() if value is not None}
    return keys


def _own_tensors(weights: Weights, prefix: str, family: str) -> Tensors:
    own = {name.removeprefix(prefix): x for name, x in weights.tensors.items() if name.startswith(prefix)}
    return canonical_names(own, FAMILIES[family].names, weights.where)


def _read(model: Bert, tensors: Tensors, weights: Weights) -> Params:
    matched = state_dict.match(model, tensors, False, weights.where)
    if unused := sorted(tensors.keys() - matched.used):
        _log.warning("%s: tensors that the %s does not use: %s", weights.where, model.head, ", ".join(unused[:5]))
    return state_dict.read_params(model, matched, 0, weights.where)


def _read_projection(model: EncoderDecoder, weights: Weights) -> Params:
    shape = (model.decoder_config.hidden_size, model.config.hidden_size)
    arrays = {}
    for name, expected in (("weight", shape), ("bias", shape[:1])):
        tensor = weights.tensors.get(f"{_PROJECTION}.{name}")
        if tensor is None or tensor.shape != expected:
            seen = "none" if tensor is None else f"shape {list(tensor.shape)}"
            raise InputError(f"{weights.where}: tensor '{_PROJECTION}.{name}': expected shape {list(expected)}, as "
                             f"encoder and decoder have different hidden sizes, found {seen}")  # fmt: skip
        arrays[name] = tensor.read().astype(np.float32)
    return {"kernel": np.ascontiguousarray(arrays["weight"].T), "bias": arrays["bias"]}


def save_encoder_decoder(
    directory: storage.PathLike,
    model: EncoderDecoder,
    params: Params,
    settings: GenerationSettings,
    tokenizer: Any = None,
    *,
    overwrite: bool = False,
    dtype: str = "float32",
) -> None:
    """Write a directory that transformers' EncoderDecoderModel can load, completely or not at all.

    Args:
        directory: a new or empty directory.
        model: encoder and decoder.
        params: the parameter tree, of jax or numpy arrays.
        settings: settings of text generation.
        tokenizer: a tokenizer to save with the model.
        overwrite: whether to replace an existing model directory; it must not have other files in it.
        dtype: dtype of the tensors in the file: float32, bfloat16 or float16.

    Raises:
        InputError: the parameters do not fit the model, or the directory is not empty.
    """
    from bert_jax.conversion.replacing import place_of_new
    from bert_jax.conversion.write_checkpoint import SAVED_DTYPES  # not imported where models are only read

    if dtype not in SAVED_DTYPES:
        raise InputError(f"dtype {dtype!r} is not known{did_you_mean(dtype, SAVED_DTYPES)}")
    kind = np.dtype(SAVED_DTYPES[dtype])
    tensors: Tensors = {}
    for name, part in (("encoder", model.encoder), ("decoder", model.decoder)):
        own = state_dict_writing.stored_params(part.config, part.head, params[name], kind)
        tensors |= {f"{name}.{tensor}": values for tensor, values in own.items()}
    if model.has_projection:
        kernel, bias = (np.asarray(params["projection"][name], kind) for name in ("kernel", "bias"))
        for name, values in (("weight", np.ascontiguousarray(kernel.T)), ("bias", bias)):
            tensors[f"{_PROJECTION}.{name}"] = LazyTensor(values.shape, kind, functools.partial(np.asarray, values))
    classes = FAMILIES[model.decoder_config.family].names
    described = {
        "architectures": [_CLASS],
        "model_type": ENCODER_DECODER_TYPE,
        "is_encoder_decoder": True,
        "dtype": dtype,
        "encoder": model.config.to_hf(),
        "decoder": model.decoder_config.to_hf(classes.decoder) | _OF_DECODER,
        **{name: getattr(settings, name) for name in ("decoder_start_token_id", "eos_token_id", "pad_token_id")},
    }
    home = storage.Path(directory)
    target = place_of_new(home, overwrite)
    with storage.directory_atomically(target) as beside:
        if tokenizer is not None:
            tokenizer.save(beside)
        safetensors_writing.write(beside / "model.safetensors", tensors)
        for name, keys in ((_GENERATION_FILE, settings.to_hf()), ("config.json", described)):
            storage.write_atomically(beside / name, json.dumps(keys, indent=2, sort_keys=True) + "\n")
    if target != home:
        storage.replace_directory(home, target)
