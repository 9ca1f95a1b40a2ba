"""The encoder: layers stacked on a leading axis, scanned or unrolled."""

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from bert_jax.config import BertConfig
from bert_jax.modeling.attention import SelfAttention, relative_buckets, rotary_speeds
from bert_jax.modeling.attention_mask import AttentionMask
from bert_jax.modeling.attention_plan import AttentionPlan
from bert_jax.modeling.bottleneck import Bottleneck
from bert_jax.modeling.compute import Compute, checkpointed, matmul
from bert_jax.modeling.dropout import dropout
from bert_jax.modeling.exchange import KERNELS, exchanged
from bert_jax.modeling.experts import MixtureOfExperts
from bert_jax.modeling.inputs import Options
from bert_jax.modeling.kernels.block_sparse import random_blocks
from bert_jax.modeling.layers import ACTIVATIONS, Dense, Embedding, LayerNorm, initializer
from bert_jax.modeling.positions import Positions
from bert_jax.sharding import constrain


class FeedForward(nnx.Module):
    """A feed-forward block, `[B, S, I] -> [B, S, I]`: up, activation or gate, down, dropout, residual, LayerNorm.

    `epsilon` is that of its LayerNorm; None = `layer_norm_eps`.
    """

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs, epsilon: float | None = None):
        self.config, size = config, config.inner_size
        dense = functools.partial(Dense, config, use_bias=config.mlp_bias, rngs=rngs)
        has_bias = config.mlp_bias and config.mlp_up_bias
        self.up = dense(size, config.intermediate_size, use_bias=has_bias)
        if config.gated:
            self.gate = dense(size, config.intermediate_size, use_bias=has_bias)
        self.down = dense(config.intermediate_size, size)
        self.layer_norm = LayerNorm(config, size, epsilon)

    def __call__(
        self, x: jax.Array, dropout_key: jax.Array | None, compute: Compute, at: Positions | None = None
    ) -> jax.Array:
        pre = self.config.norm_placement == "pre"
        activation = ACTIVATIONS[self.config.hidden_act]
        normed = self.layer_norm(x) if pre else x
        y = constrain(self.up(normed, compute), "batch", None, "mlp")
        if self.config.gated:
            y *= activation(constrain(self.gate(normed, compute), "batch", None, "mlp"))
        else:
            y = activation(y)
        rate, where = self.config.hidden_dropout_prob, self.config.mlp_dropout_at
        if where != "output" and dropout_key is not None:
            y = dropout(y, rate, jax.random.fold_in(dropout_key, 1), at)
        x += dropout(self.down(y, compute), rate, None if where == "input" else dropout_key, at)
        return x if pre else self.layer_norm(x)


class EncoderLayer(nnx.Module):
    """One transformer layer: attention block and feed-forward blocks; the last block may be one of experts.

    With a bottleneck the blocks are narrower than the layer's input, and only the bottleneck's output has dropout; the
    blocks between attention and the last one never have any (Sun et al. 2020, arXiv:2004.02984).
    """

    def __init__(self, config: BertConfig, rngs: nnx.Rngs, has_experts: bool = False):
        self.attention = SelfAttention(config, rngs=rngs)
        for i in range(config.num_feedforward_networks - 1):
            setattr(self, f"ffn_{i}", FeedForward(config, rngs=rngs))
        epsilon = config.embedding_mlp_norm_eps
        self.mlp = (
            MixtureOfExperts(config, rngs=rngs) if has_experts else FeedForward(config, rngs=rngs, epsilon=epsilon)
        )
        if config.intra_bottleneck_size:
            self.bottleneck = Bottleneck(config, rngs=rngs)
        self.num_between = config.num_feedforward_networks - 1

    def __call__(
        self,
        x: jax.Array,
        plan: AttentionPlan,
        is_first: jax.Array | bool | None,
        dropout_key: jax.Array | None,
        compute: Compute,
    ) -> tuple[jax.Array, jax.Array | None, tuple[jax.Array, ...]]:
        """Return `[B, S, D]` (`[B, P, D]` with query positions), attention probabilities or None, and projections."""
        keys = (None, None, None) if dropout_key is None else jax.random.split(dropout_key, 3)
        wide, inputs, drops, at = x, None, (keys[1], keys[2]), plan.query_positions
        if hasattr(self, "bottleneck"):
            x, inputs = self.bottleneck.narrow(wide, at, compute)
            drops = (None, None)
        x, probabilities, projected = self.attention(x, plan, is_first, (keys[0], drops[0]), compute, inputs)
        length = "length" if at is None else None
        x = constrain(x, "batch", length, "embed")
        for i in range(self.num_between):
            x = getattr(self, f"ffn_{i}")(x, None, compute, at)
        x = self.mlp(x, drops[1], compute, at)
        if hasattr(self, "bottleneck"):
            x = self.bottleneck.widen(x, wide, keys[2], compute, at)
        return constrain(x, "batch", length, "embed"), probabilities, projected


class RelativeEmbeddings(Embedding):
    """The embeddings of relative positions of disentangled attention, `[R, D]`, with an optional LayerNorm."""

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        super().__init__(config, 2 * config.relative_span, config.hidden_size, rngs=rngs)
        if config.norm_rel_ebd:
            self.layer_norm = LayerNorm(config, config.hidden_size)

    def rows(self) -> jax.Array:
        """Return all rows, normalised if the model does so."""
        return self.layer_norm(self.table()) if hasattr(self, "layer_norm") else self.table()


class Convolution(nnx.Module):
    """A convolution over the tokens, `[B, S, D] -> [B, S, D]`, as in DeBERTa-v2 (github.com/microsoft/DeBERTa).

    Its output is added to that of the first layer, and a LayerNorm follows. A token sees only tokens that its mask
    shows: no padding, and in packed rows only its own example.
    """

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        self.config = config
        shape = (config.conv_kernel_size, config.hidden_size, config.hidden_size)  # [K, in, out]
        self.kernel = nnx.Param(initializer(config)(rngs.params(), shape, jnp.float32))
        self.bias = nnx.Param(jnp.zeros((config.hidden_size,), jnp.float32))
        self.layer_norm = LayerNorm(config, config.hidden_size)

    def __call__(
        self,
        x: jax.Array,  # [B, S, D], the embeddings
        residual: jax.Array,  # [B, S, D], or [B, P, D] with `at`
        mask: AttentionMask,
        dropout_key: jax.Array | None,
        compute: Compute,
        at: Positions | None,
    ) -> jax.Array:
        taps = mask.neighbours(x, self.config.conv_kernel_size // 2)
        y = matmul(jnp.concatenate(taps, axis=-1), self.kernel[...].reshape(-1, x.shape[-1]), compute)
        y += self.bias[...].astype(y.dtype)
        y = ACTIVATIONS[self.config.conv_act](dropout(y, self.config.hidden_dropout_prob, dropout_key))
        return self.layer_norm(residual + (y if at is None else at.of(y)))


class Encoder(nnx.Module):
    """The encoder, `[B, S, D] -> [B, S, D]`: layers whose parameters are stacked `[L, ...]`.

    If layers are tied, the leading axis has `config.num_parameter_rows` rows; several layers use a row. Layers
    with experts are a stack of their own.
    """

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        self.config = config

        def stacked(count: int, has_experts: bool) -> EncoderLayer:
            @nnx.split_rngs(splits=count)
            @nnx.vmap(in_axes=0, out_axes=0)
            def layers(rngs: nnx.Rngs) -> EncoderLayer:
                return EncoderLayer(config, rngs, has_experts)

            return layers(rngs)

        with_experts = sum(config.has_experts)
        self.layers = stacked(config.num_parameter_rows - with_experts, False)
        if with_experts:
            self.moe_layers = stacked(with_experts, True)
        if config.relative_attention_buckets:
            buckets, heads = config.relative_attention_buckets, config.num_attention_heads
            self.relative_attention_bias = Embedding(config, buckets, heads, rngs=rngs)
        if config.pos_att_type:
            self.relative_embeddings = RelativeEmbeddings(config, rngs=rngs)
        if config.conv_kernel_size:
            self.conv = Convolution(config, rngs=rngs)
        if config.stored_rotation:
            self.inverse_frequencies = nnx.Param(rotary_speeds(config.head_size, config.rope_theta, config.rope_factor))
        if config.norm_placement == "pre":
            self.layer_norm = LayerNorm(config, config.hidden_size)

    def rotary_speeds(self, theta: float) -> jax.Array:
        """Return the speeds of rotary positions `[H / 2]`: those that the model's files hold, or those of a base."""
        if self.config.stored_rotation:
            return jax.lax.stop_gradient(self.inverse_frequencies[...])
        return rotary_speeds(self.config.head_size, theta, self.config.rope_factor)

    def __call__(
        self,
        x: jax.Array,  # [B, S, D]
        plans: tuple[AttentionPlan, ...],  # plans of the first layers, repeated for later layers
        dropout_key: jax.Array | None,
        compute: Compute,
        options: Options,
        at: Positions | None = None,
    ) -> tuple[jax.Array, tuple | None, tuple | None, tuple | None]:
        """Return the last hidden state; all `L + 1` hidden states, `L` attention maps and `L` projections, or None.

        With `at`, the last layer computes only these P positions if layers are unrolled: the last hidden state is
        `[B, P, D]`, with the same values as at these positions of the full result.
        """
        count, kinds = self.config.num_hidden_layers, self.config.has_experts
        stacks = [nnx.split(stack) for stack in (self.layers, getattr(self, "moe_layers", None)) if stack is not None]
        layers: Stacks = tuple(state for _, state in stacks)
        period = math.lcm(len(plans), self.config.moe_every_n_layers if len(stacks) > 1 else 1)
        tied, rows = None, None
        if self.config.num_hidden_groups:  # a layer takes its row of these, so that nothing is copied
            tied, layers, rows = layers[0], (), np.array(self.config.parameter_rows)
        keys = None if dropout_key is None else jax.random.split(dropout_key, count)
        first = None if self.config.first_layer_norm else np.arange(count) == 0
        last = plans[(count - 1) % len(plans)]
        drawn = None if keys is None else self._random_blocks(plans[0], x.shape[1])
        plans = tuple(self._with_relative_positions(plan, x.shape[1]) for plan in plans)

        def step(plan: AttentionPlan, graph):
            def run(x, layer_and_key):
                layer, row, key, is_first, drawn = layer_and_key
                if tied is not None:
                    layer = jax.tree.map(lambda leaf: leaf[row], tied)
                layer = exchanged(layer, KERNELS, compute)
                its = plan if drawn is None else _with_random_blocks(plan, drawn)
                y, probabilities, projected = nnx.merge(graph, layer)(x, its, is_first, key, compute)
                return y, (
                    y if options.output_hidden_states else None,
                    probabilities if options.output_attentions else None,
                    projected if options.output_projections else None,
                )

            run = checkpointed(run, compute)
            # Unrolled layers are traced once: a jitted function remembers its trace, and the compiler inlines it.
            return jax.jit(run) if compute.layers == "unroll" else run

        def graph(i: int):
            return stacks[kinds[i % count]][0]

        steps = [step(plans[i % len(plans)], graph(i)) for i in range(period)]
        start, stacked, outputs = x, (layers, rows, keys, first, drawn), []

        def run_apart(x: jax.Array, begin: int, end: int) -> jax.Array:
            for i, layer in enumerate(_apart(kinds[begin:end], _rows(stacked, begin, end, kinds)), start=begin):
                run, here = steps[i % period], at if i == count - 1 else None
                if here is not None:
                    run = step(self._with_relative_positions(last.only(here), start.shape[1]), graph(i))
                x, y = run(x, layer)
                if hasattr(self, "conv") and i == 0:
                    key = None if dropout_key is None else jax.random.fold_in(dropout_key, count)
                    x = self.conv(start, x, plans[0].mask, key, compute, here)
                    y = (x if options.output_hidden_states else None, *y[1:])
                outputs.append(y)
            return x

        lead = min(period, count) if hasattr(self, "conv") and compute.layers == "scan" else 0  # those before the scan
        # Layers in complete periods.
        whole = (count - lead) // period * period if compute.layers == "scan" else 0
        if lead:
            x = run_apart(x, 0, lead)
        if whole:
            x, ys = _scan(steps, x, _rows(stacked, lead, lead + whole, kinds), kinds[lead : lead + period])
            outputs += [jax.tree.map(lambda leaf, i=i: leaf[i], ys) for i in range(whole)]
        x = run_apart(x, lead + whole, count)
        if hasattr(self, "layer_norm"):
            x = self.layer_norm(x)
        states, maps, projections = zip(*outputs, strict=True)
        return (
            x,
            (start, *states[:-1], x) if options.output_hidden_states else None,
            maps if options.output_attentions else None,
            projections if options.output_projections else None,
        )

    def _random_blocks(self, plan: AttentionPlan, length: int) -> np.ndarray | None:
        """Return the random blocks of block-sparse attention `[L, N, C - 2, R]`, drawn for training; or None."""
        config, blocks = self.config, plan.blocks
        if blocks is None or not blocks.num_random:
            return None
        heads, longest = config.num_attention_heads, config.max_position_embeddings
        return random_blocks(config.num_hidden_layers, heads, length, blocks.size, blocks.num_random, longest)

    def _with_relative_positions(self, plan: AttentionPlan, length: int) -> AttentionPlan:
        if self.config.pos_att_type:
            plan = dataclasses.replace(plan, relative_embeddings=self.relative_embeddings.rows())
        if not self.config.relative_attention_buckets:
            return plan
        table = self.relative_attention_bias.table()
        # A symbolic length (`jax.export`) is at most the model's positions.
        longest = length if isinstance(length, int) else self.config.max_position_embeddings
        buckets = jnp.asarray(relative_buckets(longest, len(table)))[None, :length, :length]
        bias = table[buckets if plan.query_positions is None else plan.query_positions.of(buckets)].transpose(
            0, 3, 1, 2
        )
        return dataclasses.replace(plan, bias=bias if plan.bias is None else bias + plan.bias)


Stacks = tuple[Any, ...]  # stacked parameters of the layers, and of those with experts; () if layers are tied


def _scan(steps, x, stacked, kinds: tuple[bool, ...]):
    """Scan stacked layers with the steps in alternation; return the final state and the stacked outputs."""
    if len(steps) == 1:
        layers, *others = stacked
        return jax.lax.scan(steps[0], x, (layers[0] if layers else None, *others))

    def turn(x, layers):
        ys = []
        for step, layer in zip(steps, _apart(kinds, layers), strict=True):
            x, y = step(x, layer)
            ys.append(y)
        return x, jax.tree.map(lambda *leaves: jnp.stack(leaves), *ys)

    count = sum(len(leaf) for leaf in [jax.tree.leaves(part)[0] for part in stacked[0]] or [stacked[1]]) // len(steps)
    turns = jax.tree.map(lambda leaf: leaf.reshape(count, -1, *leaf.shape[1:]), stacked)
    x, ys = jax.lax.scan(turn, x, turns)
    return x, jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), ys)


def _with_random_blocks(plan: AttentionPlan, random: jax.Array) -> AttentionPlan:
    assert plan.blocks is not None
    return dataclasses.replace(plan, blocks=dataclasses.replace(plan.blocks, random=random))


def _rows(stacked, start: int, stop: int, kinds: tuple[bool, ...]):
    """Return layers `start` to `stop` of the stacked layers; `kinds` tells which have experts."""
    if stop - start == len(kinds):
        return stacked
    layers, *others = stacked
    bounds = [(kinds[:start].count(kind), kinds[:stop].count(kind)) for kind in (False, True)]
    parts = zip(layers, bounds, strict=False)  # without experts there is one stack, or none
    layers = tuple(jax.tree.map(lambda leaf, a=a, b=b: leaf[a:b], part) for part, (a, b) in parts)
    return layers, *jax.tree.map(lambda leaf: leaf[start:stop], others)


def _apart(kinds: tuple[bool, ...], stacked) -> list:
    """Split stacked (layers, rows of tied layers, dropout keys, is_first, random blocks) into a list of tuples."""
    layers, *others = stacked
    apart = [[None] * len(kinds) if x is None else [x[i] for i in range(len(kinds))] for x in others]
    own = [iter(_unstack(kinds.count(bool(kind)), part)) for kind, part in enumerate(layers)]
    rows = [next(own[kind]) if own else None for kind in kinds]
    return list(zip(rows, *apart, strict=True))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _unstack(length: int, tree):
    """Split a tree of stacked leaves into `length` trees; its gradient stacks, while that of indexing pads and adds."""
    return [jax.tree.map(lambda leaf, i=i: leaf[i], tree) for i in range(length)]


_unstack.defvjp(
    lambda length, tree: (_unstack(length, tree), None),
    lambda length, _, cotangents: (jax.tree.map(lambda *leaves: jnp.stack(leaves), *cotangents),),
)
