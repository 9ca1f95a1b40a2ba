"""The forward pass of `Bert`, and its parameters as NNX modules."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from bert_jax.config import BertConfig
from bert_jax.config.positions import RotaryConfig
from bert_jax.config.values import shortest_period
from bert_jax.head_names import WITH_UNREAD_POOLER, WITHOUT_POOLER
from bert_jax.modeling.attention_mask import AttentionMask
from bert_jax.modeling.attention_plan import AttentionPlan, plan_attention
from bert_jax.modeling.encoder import Encoder
from bert_jax.modeling.exchange import TABLES, exchanged
from bert_jax.modeling.heads import Pooler, Summary, Transform
from bert_jax.modeling.inputs import Inputs, Options
from bert_jax.modeling.models import Bert, Params
from bert_jax.modeling.outputs import BertOutput
from bert_jax.modeling.parts import embeddings_of, head_of
from bert_jax.modeling.positions import Positions
from bert_jax.modeling.rotary import rotation
from bert_jax.modeling.task_heads import HeadInputs, first_tokens


class _Module(nnx.Module):
    """The parameters of a BERT with one head; attribute names are the paths of the canonical tree."""

    mlm: Any

    def __init__(self, config: BertConfig, head: str, *, rngs: nnx.Rngs):
        summary = config.summary_of(head)
        self.embeddings = embeddings_of(config)(config, rngs=rngs)
        self.encoder = Encoder(config, rngs=rngs)
        reads_pooler = head not in WITHOUT_POOLER and summary in (None, "pooler")
        if config.pooler and (reads_pooler or (config.heads.unread_pooler and head in WITH_UNREAD_POOLER)):
            self.pooler = Pooler(config, rngs=rngs)
        if summary == "transform":
            self.summary: Transform | Summary = Transform(config, config.hidden_size, rngs=rngs)
        elif summary not in (None, "pooler"):
            self.summary = Summary(config, summary, rngs=rngs)
        for name, module in head_of(config, head).build(config, rngs).items():
            setattr(self, name, module)
        if config.heads.contact_head:
            from bert_jax.modeling.contacts import ContactHead

            self.contact_head = ContactHead(config, rngs=rngs)
        if config.quantization is not None:
            from bert_jax.modeling.quantized import quantize_module

            quantize_module(self, config.quantization)


def init(bert: Bert, key: jax.Array) -> Params:
    """Initialise parameters; see `Bert.init`."""
    return nnx.to_pure_dict(nnx.state(_Module(bert.config, bert.head, rngs=nnx.Rngs(params=key))))


def apply(bert: Bert, params: Params, inputs: Inputs, options: Options) -> BertOutput:
    """Run the forward pass; see `Bert.apply`."""
    config, compute, head = bert.config, bert.compute, head_of(bert.config, bert.head)
    choices = inputs.input_ids.shape[1] if bert.head == "multiple_choice" else None
    if choices is not None:
        inputs = inputs.with_choices_as_rows()
    module = merge_params(bert, exchanged(params, TABLES, compute))
    inputs = head.read(config, inputs)
    keys = (None, None, None) if options.dropout_key is None else jax.random.split(options.dropout_key, 3)
    mask = AttentionMask.of(inputs.attention_mask, inputs.segment_ids)
    if config.attention.max_global_tokens:
        from bert_jax.modeling.global_tokens import with_global_tokens

        mask = with_global_tokens(mask, config, bert.head, inputs)
    plans = _attention_plans(bert, module, mask, inputs, options)
    at = None
    if not options.reads_states:
        at, inputs = _computed(bert, inputs)
    x = module.embeddings(inputs, mask, keys[0], compute)
    x, hidden_states, maps, projections = module.encoder(x, plans, keys[1], compute, options, at)
    has_first = at is None or bert.head != "masked_lm"  # whose last layer may compute masked positions alone
    pooled = None
    if hasattr(module, "pooler") and has_first:
        pooled = module.pooler(first_tokens(x, inputs.cls_positions), compute)
    output = BertOutput(x, pooled, hidden_states=hidden_states, attentions=maps, projections=projections)
    if config.heads.contact_head and maps is not None:
        contacts = module.contact_head(maps, inputs.input_ids, inputs.attention_mask)
        output = dataclasses.replace(output, contacts=contacts)
    encoded = HeadInputs(bert.head, config, compute, module, inputs, x, pooled, keys[2], options.sample_key, choices)
    output = dataclasses.replace(output, **head(encoded))
    return output if options.output_last_hidden_state else dataclasses.replace(output, last_hidden_state=None)


def embed_hidden_state(
    bert: Bert, params: Params, hidden_state: jax.Array, attention_mask: jax.Array | None
) -> jax.Array:
    """Return the sentence embeddings of an earlier layer; arguments as for `Bert.embed_hidden_state`."""
    module = merge_params(bert, params)
    x = module.encoder.layer_norm(hidden_state) if hasattr(module.encoder, "layer_norm") else hidden_state
    inputs = Inputs(jnp.zeros(x.shape[:2], jnp.int32), attention_mask)
    encoded = HeadInputs(bert.head, bert.config, bert.compute, module, inputs, x)
    return head_of(bert.config, bert.head)(encoded)["sentence_embedding"]


def _computed(bert: Bert, inputs: Inputs) -> tuple[Positions | None, Inputs]:
    """Return the positions that the last layer computes (None = all), and the inputs with indices into these."""
    first, masked = inputs.cls_positions, inputs.masked_positions
    batch, length = inputs.input_ids.shape
    sentences, predictions = (None if at is None else at.shape[1] for at in (first, masked))
    if bert.places_computed(length, sentences or 1, predictions) == length:
        return None, inputs
    parts = [] if bert.head == "masked_lm" else [jnp.zeros((batch, 1), jnp.int32) if first is None else first]
    before = sum(part.shape[1] for part in parts)
    if masked is not None:
        parts.append(masked)
    index = jnp.concatenate(parts, axis=1)
    places = jnp.broadcast_to(jnp.arange(index.shape[1]), index.shape)
    return Positions(index, length), dataclasses.replace(
        inputs,
        cls_positions=None if first is None else places[:, :before],
        masked_positions=None if masked is None else places[:, before:],
    )


def _attention_plans(
    bert: Bert, module: _Module, mask: AttentionMask, inputs: Inputs, options: Options
) -> tuple[AttentionPlan, ...]:
    """Return the attention plans of the first layers; they repeat through the later layers."""
    config, length = bert.config, inputs.input_ids.shape[-1]
    drops, maps = options.dropout_key is not None, options.output_attentions
    made = {}
    windows = shortest_period(config.windows)
    for window in set(windows):
        seen = dataclasses.replace(mask, window=window)
        plan = plan_attention(seen, config, bert.compute, length, drops=drops, maps=maps)
        if isinstance(config.positions, RotaryConfig):
            speeds = module.encoder.rotary_speeds(config.positions.theta(window))
            plan = dataclasses.replace(plan, rotation=rotation(length, inputs.position_ids, speeds))
        made[window] = plan
    return tuple(made[window] for window in windows)


def merge_params(bert: Bert, params: Params) -> _Module:
    """Return the NNX module of a model with its parameters."""
    graph, empty = _skeleton(bert.config, bert.head)
    state = jax.tree.map(lambda leaf: leaf, empty)  # a copy, which takes the parameters
    nnx.replace_by_pure_dict(state, params)
    return nnx.merge(graph, state)


@functools.lru_cache(maxsize=64)
def _skeleton(config: BertConfig, head: str):
    """Return the NNX graph and the abstract state of a model; cached, so that each model is traced once."""
    return nnx.split(nnx.eval_shape(lambda: _Module(config, head, rngs=nnx.Rngs(params=jax.random.key(0)))))
