"""Read the layers after the Pooling of sentence-transformers: Dense, LayerNorm, Normalize and Dropout."""

from bert_jax.config.values import EmbeddingLayer
from bert_jax.conversion.module_files import EmbeddingModule, checked_object, optional_boolean, optional_integer
from bert_jax.conversion.torch_activations import read_activation
from bert_jax.errors import InputError
from bert_jax.model_files import FileKey
from bert_jax.model_files import sentence_transformers as tables


def read_layer(module: EmbeddingModule, width: int) -> EmbeddingLayer:
    """Read the config of a module after the Pooling, whose input has `width` dimensions.

    Raises:
        InputError: a value does not fit, or is not supported.
    """
    table = {"Dense": tables.DENSE, "LayerNorm": tables.LAYER_NORM, "Dropout": tables.DROPOUT}
    content, where = checked_object(module.folder / "config.json", table.get(module.kind, tables.NORMALIZE))
    if module.kind == "Normalize":
        return EmbeddingLayer("normalize", width, width)
    if module.kind == "Dropout":
        rate = content.get("dropout", 0.2)
        if not isinstance(rate, int | float) or isinstance(rate, bool) or not 0 <= rate < 1:
            raise InputError(f"{where}: dropout: expected a rate in [0, 1), found {rate!r}")
        return EmbeddingLayer("dropout", width, width, rate=float(rate))
    if module.kind == "Dense":
        return read_dense(module, width, tables.DENSE)
    _check_width(optional_integer(content, "dimension", where), width, where)
    return EmbeddingLayer("layer_norm", width, width)


def read_dense(module: EmbeddingModule, width: int, table: tuple[FileKey, ...]) -> EmbeddingLayer:
    """Read the config of a Dense, whose input has `width` dimensions.

    Raises:
        InputError: a value does not fit, or is not supported.
    """
    content, where = checked_object(module.folder / "config.json", table)
    _check_width(optional_integer(content, "in_features", where), width, where)
    features = optional_integer(content, "out_features", where)
    if features is None:
        raise InputError(f"{where}: expected out_features, found none")
    return EmbeddingLayer(
        "dense",
        width,
        features,
        bias=optional_boolean(content, "bias", True, where),
        activation=read_activation(content.get("activation_function", "torch.nn.Tanh"), where),
        residual=optional_boolean(content, "use_residual", False, where),
    )


def _check_width(inputs: int | None, width: int, where: object) -> None:
    if inputs != width:
        raise InputError(f"{where}: expected {width} inputs, the output size of the module before, found {inputs}")
