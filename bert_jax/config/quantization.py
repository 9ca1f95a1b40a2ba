"""`Quantization`: which parameters of a model are quantized and how, as written in `config.json`."""

import dataclasses
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, Self

from bert_jax.errors import InputError, did_you_mean, printable

# Our quantization_config has `library` instead of transformers' `quant_method`: transformers raises an error if that
# key is missing, but ignores a method that it does not know, and would use our integers as parameters.
_LIBRARY = "bert_jax"
_MOST_SHOWN = 60  # characters of a value in a message


class QuantizationMode(NamedTuple):
    """The arithmetic of dense layers in a mode; embedding tables are int8 with a scale per row in every mode."""

    kernels: str  # dtype of the kernels
    inputs: str  # the layers' inputs: float, dynamic (a scale for each token) or static (a calibrated scale)
    says: str


MODES = {
    "int8": QuantizationMode("int8", "float", "int8 weights, float arithmetic"),
    "int8_dynamic": QuantizationMode("int8", "dynamic", "int8 weights, and int8 inputs with one scale per token"),
    "int8_static": QuantizationMode(
        "int8", "static", "int8 weights, and int8 inputs with one calibrated scale per layer"
    ),
    "int4": QuantizationMode("int4", "float", "int4 weights with one scale per group, float arithmetic"),
    "fp8": QuantizationMode("float8_e4m3fn", "dynamic", "float8 (e4m3) weights and inputs, with one scale per token"),
}
# Modes of quantization-aware training; scales of inputs in mode int8_static come from calibration.
TRAINED_MODES = tuple(name for name, mode in MODES.items() if mode.inputs != "static")
GROUP_SIZE = 32

# Patterns (with * and ?) of paths of parameters that stay float32, as do biases and LayerNorms: small tables, and the
# layers after the encoder.
KEEP = (
    "embeddings/position_embeddings/*",
    "embeddings/token_type_embeddings/*",
    "encoder/relative_attention_bias/*",
    "encoder/relative_embeddings/*",
    "pooler/*",
    "summary/*",
    "embedding_layers/*",
    "mlm/*",
    "nsp/*",
    "classifier/*",
    "span/*",
    "qa_outputs/*",
    "discriminator/*",
    "contact_head/*",
    "gliner/*",
)
STAGES = ("quantized", "training", "calibrating")


@dataclasses.dataclass(frozen=True)
class Quantization:
    """The quantization of a model; part of `BertConfig`.

    Attributes:
        mode: one of MODES.
        keep: patterns (with * and ?) of paths of parameters that stay float32.
        group_size: number of inputs of a dense layer that share a scale in mode int4; even.
        stage: `quantized`: the parameters are quantized. `training`: the parameters are float32 and rounded in each
            forward pass (quantization-aware training; Jacob et al. 2017, arXiv:1712.05877, section 3).
            `calibrating`: kernels are quantized, and the gradient of an input's scale is the scale to use.
    """

    mode: str
    keep: tuple[str, ...] = KEEP
    group_size: int = GROUP_SIZE
    stage: str = "quantized"

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise InputError(f"quantization mode {printable(repr(self.mode))} is not known"
                             f"{did_you_mean(str(self.mode), MODES)}")  # fmt: skip
        if type(self.group_size) is not int or self.group_size < 2 or self.group_size % 2:
            raise InputError(f"quantization: group_size: expected an even number of inputs, found {self.group_size!r}")
        if self.stage not in STAGES:
            raise ValueError(f"stage: expected one of {STAGES}, found {self.stage!r}")

    @property
    def kernels(self) -> str:
        """Return the dtype of quantized kernels."""
        return MODES[self.mode].kernels

    @property
    def inputs(self) -> str:
        """Return how inputs of dense layers are quantized: float, dynamic or static."""
        return MODES[self.mode].inputs

    def quantizes(self, path: str) -> bool:
        """Return whether the parameter of a path such as `encoder/layers/mlp/up/kernel` is quantized."""
        named = path.rpartition("/")[2] in ("kernel", "embedding")
        return named and not any(fnmatchcase(path, glob) for glob in self.keep)

    def check_keep(self, paths: Iterable[str], option: str) -> None:
        """Raise InputError when a pattern of `keep`, other than the defaults, matches no parameter to quantize.

        Args:
            paths: the paths of a model's parameters.
            option: the option that sets the patterns, for the message.
        """
        candidates = sorted(path for path in paths if path.endswith(("/kernel", "/embedding")))
        for pattern in self.keep:
            if pattern not in KEEP and not any(fnmatchcase(path, pattern) for path in candidates):
                raise InputError(
                    f"{option} {printable(repr(pattern))}: expected a pattern of parameters such as "
                    f"'encoder/layers/mlp/down/*', found no parameter that matches{did_you_mean(pattern, candidates)}"
                )

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed."""
        return dataclasses.replace(self, **changes)

    @classmethod
    def from_hf(cls, value: Any) -> Self | None:
        """Read the `quantization_config` of a config.json; None if it has none.

        Raises:
            InputError: another library has quantized the model, or a value is not known.
        """
        if value is None:
            return None
        if not isinstance(value, dict) or value.get("library") != _LIBRARY:
            library = value.get("quant_method", value.get("library", value)) if isinstance(value, dict) else value
            raise InputError(
                f"quantization_config: expected one written by `bert-jax quantize` (library {_LIBRARY!r}), found "
                f"{printable(repr(library), _MOST_SHOWN)}: quantized weights of other libraries are not supported"
            )
        known = {"library", "mode", "modules_to_not_convert", "group_size"}
        if unknown := sorted(value.keys() - known):
            raise InputError(f"quantization_config: {printable(repr(unknown[0]))} is not known"
                             f"{did_you_mean(unknown[0], known)}")  # fmt: skip
        keep = value.get("modules_to_not_convert", [])
        if not isinstance(keep, list) or not all(isinstance(glob, str) for glob in keep):
            raise InputError(f"quantization_config: modules_to_not_convert: expected a list of patterns, found "
                             f"{printable(repr(keep), _MOST_SHOWN)}")  # fmt: skip
        return cls(str(value.get("mode")), tuple(keep), value.get("group_size", GROUP_SIZE))

    def to_hf(self) -> dict[str, Any]:
        """Return the `quantization_config` of a config.json."""
        grouped = {"group_size": self.group_size} if self.kernels == "int4" else {}
        return {"library": _LIBRARY, "mode": self.mode, "modules_to_not_convert": list(self.keep)} | grouped
