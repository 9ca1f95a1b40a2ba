"""The forward pass of `Bert`, and its parameters as NNX modules."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from bert_jax.config import BertConfig
from bert_jax.head_names import WITHOUT_POOLER
from bert_jax.modeling.attention_mask import AttentionMask
from bert_jax.modeling.attention_plan import AttentionPlan, kind_of_attention, plan_attention
from bert_jax.modeling.encoder import Encoder
from bert_jax.modeling.exchange import TABLES, exchanged
from bert_jax.modeling.heads import Summary, Transform
from bert_jax.modeling.inputs import Inputs, Options
from bert_jax.modeling.outputs import BertOutput
from bert_jax.modeling.positions import Positions
from bert_jax.modeling.registry import embeddings_of, further_heads, head_of, pooler_of
from bert_jax.modeling.spec import ModelSpec, Params
from bert_jax.modeling.task_heads import HeadInputs, Read, first_tokens


class _Module(nnx.Module):
    """The parameters of a BERT with one head; attribute names are the paths of the canonical tree."""

    mlm: Any

    def __init__(self, config: BertConfig, head: str, *, rngs: nnx.Rngs):
        summary = config.summary_of(head)
        self.embeddings = embeddings_of(config)(config, rngs=rngs)
        self.encoder = Encoder(config, rngs=rngs)
        reads_pooler = head not in WITHOUT_POOLER and summary in (None, "pooler")
        if config.pooler and (reads_pooler or config.heads.has_unread_pooler(head)):
            self.pooler = pooler_of(config)(config, rngs=rngs)
        if summary == "transform":
            self.summary: Transform | Summary = Transform(config, config.hidden_size, rngs=rngs)
        elif summary not in (None, "pooler", "embedding"):
            self.summary = Summary(config, summary, rngs=rngs)
        for kind in (head_of(config, head), *further_heads(config)):
            for name, module in kind.build(config, rngs).items():
                setattr(self, name, module)
        if config.quantization is not None:
            from bert_jax.modeling.quantized import quantize_module

            quantize_module(self, config.quantization)


def init(bert: ModelSpec, key: jax.Array) -> Params:
    """Initialise parameters; see `Bert.init`."""
    return nnx.to_pure_dict(nnx.state(_Module(bert.config, bert.head, rngs=nnx.Rngs(params=key))))


def apply(bert: ModelSpec, params: Params, inputs: Inputs, options: Options) -> BertOutput:
    """Run the forward pass; see `Bert.apply`."""
    config, compute, head = bert.config, bert.compute, head_of(bert.config, bert.head)
    choices = inputs.input_ids.shape[1] if bert.head == "multiple_choice" else None
    if choices is not None:
        inputs = inputs.with_choices_as_rows()
    module = merge_params(bert, exchanged(params, TABLES, compute))
    inputs = head.prepare(config, inputs)
    keys = (None, None, None) if options.dropout_key is None else jax.random.split(options.dropout_key, 3)
    mask = AttentionMask.of(inputs.attention_mask, inputs.segment_ids)
    mask = kind_of_attention(config).mask_of(mask, config, bert.head, inputs)
    plans = _attention_plans(bert, mask, inputs, options)
    at, inputs = (None, inputs) if options.reads_states else _of_last_layer(bert, inputs)
    x = module.embeddings(inputs, mask, keys[0], compute)
    x, hidden_states, maps, projections = module.encoder(x, plans, keys[1], compute, options, at, inputs.position_ids)
    has_first = at is None or bert.head != "masked_lm"  # with masked LM, `at` may lack the first position
    pooled = None
    if hasattr(module, "pooler") and has_first:
        pooled = module.pooler(first_tokens(x, inputs.cls_positions), compute)
    output = BertOutput(x, pooled, hidden_states=hidden_states, attentions=maps, projections=projections)
    encoded = HeadInputs(
        name=bert.head,
        config=config,
        compute=compute,
        module=module,
        inputs=inputs,
        states=x,
        pooled=pooled,
        dropout_key=keys[2],
        sample_key=options.sample_key,
        choices=choices,
        maps=maps,
    )
    for each in (head, *further_heads(config)):
        output = dataclasses.replace(output, **each(encoded))
    return output if options.output_last_hidden_state else dataclasses.replace(output, last_hidden_state=None)


def positions_read(bert: ModelSpec) -> Read | None:
    """Return the positions that the last layer computes if no last hidden state is requested; None = all."""
    return head_of(bert.config, bert.head).positions_read(bert.config) if bert.compute.layers == "unroll" else None


def _of_last_layer(bert: ModelSpec, inputs: Inputs) -> tuple[Positions | None, Inputs]:
    """Return the positions that the last layer computes (None = all), and the inputs with positions renumbered."""
    first, masked = inputs.cls_positions, inputs.masked_positions
    batch, length = inputs.input_ids.shape
    read = positions_read(bert)
    if read is None or (read.masked and masked is None) or inputs.pooling_mask is not None:
        return None, inputs
    columns = [jnp.zeros((batch, 1), jnp.int32) if first is None else first] if read.first else []
    before = sum(column.shape[1] for column in columns)
    if read.masked and masked is not None:
        columns.append(masked)
    index = jnp.concatenate(columns, axis=1)
    if index.shape[1] >= length:  # query positions would save nothing
        return None, inputs
    places = jnp.broadcast_to(jnp.arange(index.shape[1]), index.shape)
    return Positions(index, length), dataclasses.replace(
        inputs,
        cls_positions=None if first is None else places[:, :before],
        masked_positions=None if masked is None else places[:, before:],
    )


def _attention_plans(
    bert: ModelSpec, mask: AttentionMask, inputs: Inputs, options: Options
) -> dict[int | None, AttentionPlan]:
    """Return window -> attention plan of the layers with this window."""
    config, length = bert.config, inputs.input_ids.shape[-1]
    drops, maps = options.dropout_key is not None, options.output_attentions
    return {
        window: plan_attention(
            dataclasses.replace(mask, window=window), config, bert.compute, length, drops=drops, maps=maps
        )
        for window in dict.fromkeys(config.windows)
    }


def merge_params(bert: ModelSpec, params: Params) -> _Module:
    """Return the NNX module of a model with its parameters."""
    graph, empty = _skeleton(bert.config, bert.head)
    state = jax.tree.map(lambda leaf: leaf, empty)  # copy the state, as the parameters are set in it
    nnx.replace_by_pure_dict(state, params)
    return nnx.merge(graph, state)


@functools.lru_cache(maxsize=64)
def _skeleton(config: BertConfig, head: str) -> tuple[nnx.GraphDef[_Module], Any]:
    """Return the NNX graph and the abstract state of a model; cached, so that each model is traced once."""
    return nnx.split(nnx.eval_shape(lambda: _Module(config, head, rngs=nnx.Rngs(params=jax.random.key(0)))))
