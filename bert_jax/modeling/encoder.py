"""The encoder: layers stacked on a leading axis, scanned or unrolled."""

import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from flax import nnx

from bert_jax.config import BertConfig
from bert_jax.config.part import expect
from bert_jax.config.positions import RotaryConfig
from bert_jax.lazy import import_object
from bert_jax.modeling.attention_plan import AttentionPlan
from bert_jax.modeling.compute import Compute, checkpointed
from bert_jax.modeling.encoder_layer import EncoderLayer
from bert_jax.modeling.exchange import KERNELS, exchanged
from bert_jax.modeling.inputs import Options
from bert_jax.modeling.layers import LayerNorm
from bert_jax.modeling.parts import beside_of
from bert_jax.modeling.positions import Positions
from bert_jax.modeling.rotary import rotary_speeds
from bert_jax.modeling.stack import FirstInputs, Layers, Step


class Encoder(nnx.Module):
    """The encoder, `[B, S, D] -> [B, S, D]`: layers whose parameters are stacked `[L, ...]`."""

    layers: EncoderLayer

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        self.config, layer = config, import_object(config.layer.builds())

        def make_layers(count: int, last_block: Callable[..., nnx.Module] | None = None) -> nnx.Module:
            @nnx.split_rngs(splits=count)
            @nnx.vmap(in_axes=0, out_axes=0)
            def layers(rngs: nnx.Rngs) -> nnx.Module:
                return layer(config, rngs, last_block)

            return layers(rngs)

        modules = import_object(config.stack.builds())().build(config, make_layers)
        for part in beside_of(config):
            modules |= part.build(config, rngs)
        for name, module in modules.items():
            setattr(self, name, module)
        if isinstance(rotary := config.positions, RotaryConfig) and rotary.stored_rotation:
            speeds = rotary_speeds(config.head_size, rotary.rope_theta, rotary.rope_factor)
            self.inverse_frequencies = nnx.Param(speeds)
        if config.norms.norm_placement == "pre":
            self.layer_norm = LayerNorm(config, config.hidden_size)

    def rotary_speeds(self, theta: float) -> jax.Array:
        """Return the speeds of rotary positions `[H / 2]`: those that the model's files hold, or those of a base."""
        rotary = expect(self.config.positions, RotaryConfig)
        if rotary.stored_rotation:
            return jax.lax.stop_gradient(self.inverse_frequencies[...])
        return rotary_speeds(self.config.head_size, theta, rotary.rope_factor)

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
        count, beside, length = self.config.num_hidden_layers, beside_of(self.config), x.shape[1]
        rows = import_object(self.config.stack.builds())().rows(self.config, self)
        keys = None if dropout_key is None else jax.random.split(dropout_key, count)
        is_first = None if self.config.norms.first_layer_norm else np.arange(count) == 0
        arrays = tuple(part.of_layers(self.config, plans[0], length, dropout_key is not None) for part in beside)

        def completed(plan: AttentionPlan) -> AttentionPlan:
            for part in beside:
                plan = part.plan(self, plan, length)
            return plan

        def step(plan: AttentionPlan, i: int) -> Step:
            def run(x: jax.Array, layer_inputs: Any) -> tuple[jax.Array, Any]:
                row, key, is_layer_0, *of_beside = layer_inputs
                graph, params = rows.layer(i, row)
                layer_plan = plan
                for part, array in zip(beside, of_beside, strict=True):
                    layer_plan = layer_plan if array is None else part.plan_of_layer(layer_plan, array)
                module = nnx.merge(graph, exchanged(params, KERNELS, compute))
                y, probabilities, projected = module(x, layer_plan, is_layer_0, key, compute)
                return y, (
                    y if options.output_hidden_states else None,
                    probabilities if options.output_attentions else None,
                    projected if options.output_projections else None,
                )

            run = checkpointed(run, compute)
            # Unrolled layers are traced once: a jitted function remembers its trace, and the compiler inlines it.
            return jax.jit(run) if compute.layers == "unroll" else run

        period = math.lcm(len(plans), rows.period)
        steps = [step(completed(plans[i % len(plans)]), i) for i in range(period)]
        first = last = None
        if at is not None:
            last = step(completed(plans[(count - 1) % len(plans)].only(at)), count - 1)
        plain_step, first_at = (last, at) if last is not None and count == 1 else (steps[0], None)
        for part in beside:
            first = part.first(self, plain_step, FirstInputs(x, plans[0], dropout_key, compute, first_at)) or first
        layers = Layers(rows, (keys, is_first, *arrays), count)
        y, outputs = layers.run(steps, x, scans=compute.layers == "scan", first=first, last=last)
        if hasattr(self, "layer_norm"):
            y = self.layer_norm(y)
        states, maps, projections = zip(*outputs, strict=True)
        return (
            y,
            (x, *states[:-1], y) if options.output_hidden_states else None,
            maps if options.output_attentions else None,
            projections if options.output_projections else None,
        )
