"""The layers of an encoder: their stacked parameters, and the scan or loop over them.

A family may have a `Stack` of its own (`config.stack.builds()`), and modules beside the layers, each a `Beside`.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from bert_jax.config import BertConfig
from bert_jax.modeling.attention_plan import AttentionPlan
from bert_jax.modeling.compute import Compute
from bert_jax.modeling.positions import Positions

ArrayTree = Any  # a pytree of arrays
Step = Callable[[jax.Array, Any], tuple[jax.Array, Any]]  # the body of `jax.lax.scan`: one layer
# from the number of layers, and the constructor of their last block if not `FeedForward`, to stacked layers
MakeLayers = Callable[..., nnx.Module]


class LayerParams:
    """The stacked parameters `[L, ...]` of layers without sharing: row i belongs to the i-th layer.

    A family whose layers share parameters, or alternate between kinds, has a subclass.
    """

    period = 1  # number of layers after which their kinds repeat

    def __init__(self, layers: nnx.Module):
        self.graph, self.state = nnx.split(layers)

    def slice(self, start: int, stop: int) -> ArrayTree:
        """Return the arrays for a scan over the layers `start` to `stop`, which scans their leading axis."""
        return jax.tree.map(lambda leaf: leaf[start:stop], self.state)

    def unstacked(self, rows: ArrayTree, start: int, count: int) -> list[ArrayTree]:
        """Split the result of `slice` into the rows of `count` layers, from layer `start` on."""
        return unstack(count, rows)

    def layer(self, i: int, row: ArrayTree) -> tuple[nnx.GraphDef[Any], ArrayTree]:
        """Return the graph and the parameters of the i-th layer, or of another layer of its kind, from its row."""
        return self.graph, row


@dataclasses.dataclass(frozen=True)
class Stack:
    """The layers of an encoder and their sharing of parameters; in BERT each layer has its own."""

    def build(self, config: BertConfig, make_layers: MakeLayers) -> dict[str, nnx.Module]:
        """Return the modules of the encoder that hold the layers, by name."""
        return {"layers": make_layers(config.num_hidden_layers)}

    def rows(self, config: BertConfig, encoder: Any) -> LayerParams:
        """Return the parameters of the layers that `build` made."""
        return LayerParams(encoder.layers)


@dataclasses.dataclass(frozen=True)
class Beside:
    """A module of the encoder beside its layers that serves them all, such as a shared table; BERT has none."""

    def build(self, config: BertConfig, rngs: nnx.Rngs) -> dict[str, Any]:
        """Return modules and parameters of the encoder, by name."""
        return {}

    def plan(self, encoder: Any, plan: AttentionPlan, length: int, position_ids: jax.Array | None) -> AttentionPlan:
        """Return the attention plan of layers, as this module changes it.

        It is called for the plan of each window, and again where the last layer computes only some positions.

        Args:
            encoder: the encoder, with the modules of `build`.
            plan: the plan.
            length: S, the number of tokens in a row.
            position_ids: those of the inputs, `[B, S]`; None = 0, 1, ...
        """
        return plan

    def of_layers(self, config: BertConfig, plan: AttentionPlan, length: int, training: bool) -> Any:
        """Return an array `[L, ...]` whose rows `plan_of_layer` takes, or None."""
        return None

    def plan_of_layer(self, plan: AttentionPlan, row: Any) -> AttentionPlan:
        """Return the plan of a layer, with its row of the result of `of_layers`."""
        return plan

    def first(self, encoder: Any, step: Step, inputs: "FirstInputs") -> Step | None:
        """Return a replacement of the first layer's step, or None."""
        return None


@dataclasses.dataclass(frozen=True)
class FirstInputs:
    """The inputs of `Beside.first`: embeddings `[B, S, D]`, plan, the encoder's dropout key, query positions."""

    x: jax.Array
    plan: AttentionPlan
    dropout_key: jax.Array | None
    compute: Compute
    at: Positions | None


class LayerLoop:
    """A loop over an encoder's layers, each of which reads the hidden state and its row of parameters and other arrays.

    Attributes:
        rows: the parameters.
        others: arrays with a row for each layer, or None.
        count: the number of layers.
    """

    def __init__(self, rows: LayerParams, others: tuple[Any, ...], count: int):
        self.rows, self.others, self.count = rows, others, count

    def run(
        self, steps: Sequence[Step], x: jax.Array, *, scans: bool, first: Step | None, last: Step | None
    ) -> tuple[jax.Array, list[Any]]:
        """Return the last hidden state, and the outputs of each layer.

        Args:
            steps: the steps of the first layers, repeated for later layers.
            x: the hidden state `[B, S, D]`.
            scans: whether complete repetitions of the steps are scanned; all other layers are unrolled.
            first: replacement of the first layer's step, or None; the first repetition of the steps is then unrolled.
            last: replacement of the last layer's step if that layer is unrolled, or None.
        """
        period, outputs = len(steps), []

        def unrolled(x: jax.Array, start: int, stop: int) -> jax.Array:
            for i, layer_inputs in enumerate(
                self._unstacked(self._slice(start, stop), start, stop - start), start=start
            ):
                step = steps[i % period]
                if last is not None and i == self.count - 1:
                    step = last
                if first is not None and i == 0:
                    step = first
                x, y = step(x, layer_inputs)
                outputs.append(y)
            return x

        before = min(period, self.count) if scans and first is not None else 0
        scanned = (self.count - before) // period * period if scans else 0
        if before:
            x = unrolled(x, 0, before)
        if scanned:
            x, ys = self._scan(steps, x, before, before + scanned)
            outputs += [jax.tree.map(lambda leaf, i=i: leaf[i], ys) for i in range(scanned)]
        return unrolled(x, before + scanned, self.count), outputs

    def _scan(self, steps: Sequence[Step], x: jax.Array, start: int, stop: int) -> tuple[jax.Array, Any]:
        """Scan the layers, all steps in each iteration; return the hidden state, and the layers' outputs, stacked."""
        period, layers = len(steps), self._slice(start, stop)
        if period == 1:
            return jax.lax.scan(steps[0], x, layers)

        def repetition(x: jax.Array, layers: Any) -> tuple[jax.Array, Any]:
            ys = []
            for step, layer_inputs in zip(steps, self._unstacked(layers, start, period), strict=True):
                x, y = step(x, layer_inputs)
                ys.append(y)
            return x, jax.tree.map(lambda *leaves: jnp.stack(leaves), *ys)

        repetitions = (stop - start) // period
        x, ys = jax.lax.scan(
            repetition, x, jax.tree.map(lambda leaf: leaf.reshape(repetitions, -1, *leaf.shape[1:]), layers)
        )
        return x, jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), ys)

    def _slice(self, start: int, stop: int) -> tuple[Any, ...]:
        return self.rows.slice(start, stop), *jax.tree.map(lambda leaf: leaf[start:stop], self.others)

    def _unstacked(self, layers: tuple[Any, ...], start: int, count: int) -> list[tuple[Any, ...]]:
        rows, *others = layers
        split_others = [[None] * count if x is None else [x[i] for i in range(count)] for x in others]
        return list(zip(self.rows.unstacked(rows, start, count), *split_others, strict=True))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def unstack(length: int, tree: ArrayTree) -> list[ArrayTree]:
    """Split a tree of stacked leaves into `length` trees; its gradient stacks, while that of indexing pads and adds."""
    return [jax.tree.map(lambda leaf, i=i: leaf[i], tree) for i in range(length)]


unstack.defvjp(
    lambda length, tree: (unstack(length, tree), None),
    lambda length, _, cotangents: (jax.tree.map(lambda *leaves: jnp.stack(leaves), *cotangents),),
)
