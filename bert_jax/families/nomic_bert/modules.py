"""A feed-forward block of experts; a token uses a few of them (Shazeer et al. 2017, arXiv:1701.06538, section 2)."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from bert_jax.config import BertConfig
from bert_jax.config.part import expect
from bert_jax.families.nomic_bert.parts import ExpertsConfig
from bert_jax.modeling.compute import Compute, matmul
from bert_jax.modeling.dropout import dropout
from bert_jax.modeling.layers import ACTIVATIONS, Dense, LayerNorm, initializer
from bert_jax.modeling.positions import Positions
from bert_jax.modeling.stack import ArrayTree, LayerParams, MakeLayers, Stack, unstack
from bert_jax.sharding import constrain


def _experts(config: BertConfig) -> ExpertsConfig:
    return expect(config.stack, ExpertsConfig)


class Experts(nnx.Module):
    """The experts: `up` and `down`, both `[E * F, D]`, and one bias for their weighted sum."""

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        shape = (_experts(config).num_experts * config.intermediate_size, config.hidden_size)
        self.up = nnx.Param(initializer(config)(rngs.params(), shape, jnp.float32))
        self.down = nnx.Param(initializer(config)(rngs.params(), shape, jnp.float32))
        self.bias = nnx.Param(jnp.zeros((config.hidden_size,), jnp.float32))


class MixtureOfExperts(nnx.Module):
    """The block, `[B, S, D] -> [B, S, D]`: the weighted sum of a token's experts, dropout, residual, LayerNorm.

    One expert after another computes all tokens, with weight 0 for those that do not use it. So shapes are static, no
    token is dropped, and only one expert's activations `[B, S, F]` are in memory at a time.
    """

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        self.config = config
        self.router = Dense(config, config.hidden_size, _experts(config).num_experts, use_bias=False, rngs=rngs)
        self.experts = Experts(config, rngs=rngs)
        self.layer_norm = LayerNorm(config, config.hidden_size)

    def __call__(
        self, x: jax.Array, dropout_key: jax.Array | None, compute: Compute, at: Positions | None = None
    ) -> jax.Array:
        config = self.config
        activation = ACTIVATIONS[config.hidden_act]
        pre = config.norms.norm_placement == "pre"
        normed = self.layer_norm(x) if pre else x

        @jax.checkpoint
        def add(total, expert):
            up, down, weight = expert  # [F, D], [F, D], [B, S]
            y = activation(constrain(matmul(normed, up, compute, transposed=True), "batch", None, "mlp"))
            return total + weight[..., None] * matmul(y, down, compute, dtype=jnp.float32), None

        shape = (_experts(config).num_experts, config.intermediate_size, config.hidden_size)
        kernels = (kernel[...].reshape(shape) for kernel in (self.experts.up, self.experts.down))
        weights = jnp.moveaxis(self._weights(normed, compute), -1, 0)  # [E, B, S]
        y, _ = jax.lax.scan(add, jnp.zeros(x.shape, jnp.float32), (*kernels, weights))
        y = (y + self.experts.bias[...]).astype(x.dtype)
        x += dropout(y, config.hidden_dropout_prob, dropout_key, at)
        return x if pre else self.layer_norm(x)

    def _weights(self, x: jax.Array, compute: Compute) -> jax.Array:
        """Return float32 weights `[B, S, E]`: the router's largest probabilities, not rescaled, and 0 elsewhere."""
        logits = self.router(x.astype(jnp.float32), Compute(platform=compute.platform))
        probabilities = jax.nn.softmax(logits, axis=-1)
        # Not `top_k`, an operation that TensorFlow 2.21 cannot read. Among equal probabilities, the first is chosen.
        part = _experts(self.config)
        chosen = jnp.argsort(probabilities, axis=-1, stable=True, descending=True)[..., : part.moe_top_k]
        return probabilities * jax.nn.one_hot(chosen, part.num_experts).sum(axis=-2)


class ParamsOfKinds(LayerParams):
    """The parameters of layers of two kinds, with one stack for each kind; `kinds[i]` is the kind of layer i."""

    def __init__(self, stacks: Sequence[nnx.Module], kinds: Sequence[int], period: int):
        self.period, self.kinds = period, kinds
        self.graphs, self.states = zip(*map(nnx.split, stacks), strict=True)

    def slice(self, start: int, stop: int) -> ArrayTree:
        bounds = [(self.kinds[:start].count(kind), self.kinds[:stop].count(kind)) for kind in range(len(self.states))]
        pairs = zip(self.states, bounds, strict=True)
        return tuple(jax.tree.map(lambda leaf, a=a, b=b: leaf[a:b], state) for state, (a, b) in pairs)

    def unstacked(self, rows: ArrayTree, start: int, count: int) -> list[ArrayTree]:
        kinds = self.kinds[start : start + count]
        layers_of_kind = [iter(unstack(kinds.count(kind), stack)) for kind, stack in enumerate(rows)]
        return [next(layers_of_kind[kind]) for kind in kinds]

    def layer(self, i: int, row: ArrayTree) -> tuple[nnx.GraphDef, ArrayTree]:
        return self.graphs[self.kinds[i]], row


@dataclasses.dataclass(frozen=True)
class ExpertsInTurn(Stack):
    """Every nth layer has experts; these layers are a stack of their own."""

    def build(self, config: BertConfig, make_layers: MakeLayers) -> dict[str, nnx.Module]:
        with_experts = sum(config.has_experts)
        return {
            "layers": make_layers(config.num_hidden_layers - with_experts),
            "moe_layers": make_layers(with_experts, functools.partial(MixtureOfExperts, config)),
        }

    def rows(self, config: BertConfig, encoder: Any) -> LayerParams:
        stacks = (encoder.layers, encoder.moe_layers)
        return ParamsOfKinds(stacks, tuple(map(int, config.has_experts)), _experts(config).moe_every_n_layers)
