"""The sharding of parameters: one table from parameter paths to logical axes."""

import re
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding

from bert_jax.errors import InputError
from bert_jax.sharding import LOGICAL_AXIS_RULES, axis_parts, spec_of

_PROJECTIONS = "query|key|value|position_query|position_key|global_query|global_key|global_value"
# Pattern of the end of a parameter's path -> logical axes of its *last* dimensions. Leading dimensions (the stacked
# layers) are never split. The first match is used. Vectors of the hidden size are not split, as they are tiny.
AXES: tuple[tuple[str, tuple[str | None, ...]], ...] = (
    (r"v_(row|col)/.*", ()),  # Adafactor's row and column vectors are tiny
    (r"(kernel|embedding)/scale", (None, None)),  # the scales of a quantized parameter are small
    (r"kernel/input_scale", (None,)),
    (r"(word_embeddings|decoder|further_decoder)/embedding", ("vocab", "embed")),
    (r"(position|token_type|task_type)_embeddings/embedding", (None, "embed")),
    (r"layer_norm/(scale|bias)", (None,)),
    (r"attention/(query|key|output)_norm/(scale|bias)", (None,)),
    (r"bottleneck/(input|query_key|output)_norm/(scale|bias)", (None,)),
    (r"bottleneck/(input|query_key)/kernel", ("embed", None)),
    (r"bottleneck/output/kernel", (None, "embed")),
    (r"cross_attention/value/kernel", (None, "heads")),  # its input is a vector of any width
    (r"cross_attention/output/kernel", ("heads", "embed")),
    (r"cross_attention/(query|key)/kernel", ("embed", "heads")),
    (r"cross_attention/(query|key|value)/bias", ("heads",)),
    (rf"attention/({_PROJECTIONS})/kernel", ("embed", "heads")),
    (rf"attention/({_PROJECTIONS})/bias", ("heads",)),
    (r"attention/output/kernel", ("heads", "embed")),
    (r"(mlp|ffn_\d+|span)/(up|gate)/kernel", ("embed", "mlp")),
    (r"(mlp|ffn_\d+|span)/(up|gate)/bias", ("mlp",)),
    (r"(mlp|ffn_\d+|span)/down/kernel", ("mlp", "embed")),
    (r"mlp/experts/(up|down)", (None, "embed")),  # a scan goes over the experts, so they are not split
    (r"mlp/router/kernel", ("embed", None)),
    (r"mlm/bias", ("vocab",)),
    (r"query_weights/weight", ("vocab",)),
    (r"relative_attention_bias/embedding", (None, None)),
    (r"relative_embeddings/embedding", (None, "embed")),
    (r"conv/kernel", (None, "embed", None)),
    (r"lora/.*/[ab]", (None, None)),  # LoRA matrices are thin
    (r"embedding_layers/.*/kernel", (None, None)),  # may have any width
    (r"gliner/.*/kernel", (None, None)),  # may have any width
    (r"projections/.*/kernel", (None, None)),  # distillation projections may have any width
    (r"encoder/inverse_frequencies", (None,)),
    (r"contact_head/dense/kernel", (None, None)),
    (r"(pooler|mlm|summary|discriminator)/dense/kernel", ("embed", None)),
    (r"(projection|nsp|classifier|qa_outputs|discriminator/output)/kernel", ("embed", None)),
    (r"bias", (None,)),
    (r"ns_coeffs", (None,)),  # coefficients in Muon's state
)

# Axes that are not split if their size is not divisible: any vocabulary size is allowed (30,522 is not divisible by 4).
# For other axes an indivisible size is an error, since uneven splits silently waste devices.
_MAY_STAY_WHOLE = frozenset({"vocab"})


def param_specs(tree: Any) -> Any:
    """Return the PartitionSpec of every leaf of `tree` (parameters, or optimizer state with copies of their tree).

    Raises:
        ValueError: a path has no row in AXES.
    """
    return jax.tree_util.tree_map_with_path(lambda path, leaf: spec_of(logical_axes(path, len(leaf.shape))), tree)


def param_shardings(mesh: Mesh, tree: Any) -> Any:
    """Return the NamedSharding of every leaf of `tree` on `mesh`; an indivisible vocabulary is not split.

    Arrays in an optimizer's state (`opt_state`) whose path has no row in AXES are not split.

    Raises:
        InputError: an axis other than the vocabulary is not divisible.
    """

    def place(path: Any, leaf: Any) -> NamedSharding:
        try:
            axes = list(logical_axes(path, len(leaf.shape)))
        except ValueError:
            if getattr(path[0], "name", "") != "opt_state":
                raise
            axes = [None] * len(leaf.shape)
        for i, axis in enumerate(axes):
            parts = axis_parts(mesh, axis)
            if leaf.shape[i] % parts == 0:
                continue
            if axis not in _MAY_STAY_WHOLE:
                raise InputError(
                    f"mesh: {parameter_name(path)} {tuple(leaf.shape)}: expected axis {i} ({axis}) to be divisible by "
                    f"the {parts} devices of {'x'.join(LOGICAL_AXIS_RULES[axis or ''])}"
                )
            axes[i] = None
        return NamedSharding(mesh, spec_of(axes))

    return jax.tree_util.tree_map_with_path(place, tree)


def logical_axes(path: Any, ndim: int) -> tuple[str | None, ...]:
    """Return the logical axes of a parameter by its path in a tree.

    Raises:
        ValueError: the path has no row in AXES.
    """
    if ndim == 0:
        return ()
    name = re.sub("/(quantized|packed)$", "", parameter_name(path))
    for pattern, axes in AXES:
        if re.search(rf"(^|/){pattern}$", name):
            # A leaf with fewer dimensions is a placeholder of shape (1,) in Adafactor's state.
            return (None,) * (ndim - len(axes)) + (axes if ndim >= len(axes) else (None,) * ndim)
    raise ValueError(f"no row of bert_jax.parameter_sharding.AXES fits parameter {name!r}")


def parameter_name(path: Any) -> str:
    """Return the name of a leaf in a tree of parameters, such as `encoder/layers/mlp/up/kernel`."""
    return jax.tree_util.keystr(path, simple=True, separator="/")
