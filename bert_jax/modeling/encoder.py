"""The encoder: layers stacked on a leading axis, scanned or unrolled."""

import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from flax import nnx

from bert_jax.config import BertConfig
from bert_jax.config.values import shortest_period
from bert_jax.modeling.attention_plan import AttentionPlan
from bert_jax.modeling.compute import Compute, checkpointed
from bert_jax.modeling.encoder_layer import EncoderLayer
from bert_jax.modeling.exchange import KERNELS, exchanged
from bert_jax.modeling.inputs import Options
from bert_jax.modeling.layers import LayerNorm
from bert_jax.modeling.positions import Positions
from bert_jax.modeling.registry import beside_of, layer_of, stack_of
from bert_jax.modeling.stack import FirstInputs, LayerLoop, Step


class Encoder(nnx.Module):
    """The encoder, `[B, S, D] -> [B, S, D]`: layers whose parameters are stacked `[L, ...]`."""

    layers: EncoderLayer

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        self.config, layer = config, layer_of(config)
        if not config.num_hidden_layers:
            return

        def make_layers(count: int, make_last_block: Callable[..., nnx.Module] | None = None) -> nnx.Module:
            @nnx.split_rngs(splits=count)
            @nnx.vmap(in_axes=0, out_axes=0)
            def layers(rngs: nnx.Rngs) -> nnx.Module:
                return layer(config, rngs, make_last_block)

            return layers(rngs)

        modules = stack_of(config).build(config, make_layers)
        for one in beside_of(config):
            modules |= one.build(config, rngs)
        for name, module in modules.items():
            setattr(self, name, module)
        if config.norms.norm_placement == "pre":
            self.layer_norm = LayerNorm(config, config.hidden_size)

    def __call__(
        self,
        x: jax.Array,  # [B, S, D]
        plans: dict[int | None, AttentionPlan],  # window -> plan of the layers with this window
        dropout_key: jax.Array | None,
        compute: Compute,
        options: Options,
        at: Positions | None = None,
        position_ids: jax.Array | None = None,  # [B, S]
    ) -> tuple[jax.Array, tuple[Any, ...] | None, tuple[Any, ...] | None, tuple[Any, ...] | None]:
        """Return the last hidden state; all `L + 1` hidden states, `L` attention maps and `L` projections, or None.

        With `at`, the last layer computes only these P positions if layers are unrolled: the last hidden state is
        `[B, P, D]`, with the same values as at these positions of the full result.
        """
        count, beside, length = self.config.num_hidden_layers, beside_of(self.config), x.shape[1]
        if not count:
            return x, (x,) if options.output_hidden_states else None, None, None
        rows = stack_of(self.config).rows(self.config, self)
        keys = None if dropout_key is None else jax.random.split(dropout_key, count)
        skip_norm = None if self.config.norms.first_layer_norm else np.arange(count) == 0
        windows, plan_of_first = shortest_period(self.config.windows), plans[self.config.windows[0]]
        arrays = tuple(one.of_layers(self.config, plan_of_first, length, dropout_key is not None) for one in beside)

        def completed(plan: AttentionPlan) -> AttentionPlan:
            for one in beside:
                plan = one.plan(self, plan, length, position_ids)
            return plan

        def step(plan: AttentionPlan, i: int) -> Step:
            def run(x: jax.Array, layer_inputs: Any) -> tuple[jax.Array, Any]:
                row, key, skip_norm, *of_beside = layer_inputs
                graph, params = rows.layer(i, row)
                layer_plan = plan
                for one, array in zip(beside, of_beside, strict=True):
                    layer_plan = layer_plan if array is None else one.plan_of_layer(layer_plan, array)
                module = nnx.merge(graph, exchanged(params, KERNELS, compute))
                y, probabilities, projected = module(x, layer_plan, skip_norm, key, compute)
                return y, (
                    y if options.output_hidden_states else None,
                    probabilities if options.output_attentions else None,
                    projected if options.output_projections else None,
                )

            run = checkpointed(run, compute)
            # Unrolled layers are traced once: a jitted function caches its trace, and the compiler inlines it.
            return jax.jit(run) if compute.layers == "unroll" else run

        complete = {window: completed(plan) for window, plan in plans.items()}
        steps = [step(complete[windows[i % len(windows)]], i) for i in range(math.lcm(len(windows), rows.period))]
        first = last = None
        if at is not None:
            last = step(completed(plans[self.config.windows[-1]].only(at)), count - 1)
        plain_step, first_at = (last, at) if last is not None and count == 1 else (steps[0], None)
        for one in beside:
            first = one.first(self, plain_step, FirstInputs(x, plan_of_first, dropout_key, compute, first_at)) or first
        layers = LayerLoop(rows, (keys, skip_norm, *arrays), count)
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
