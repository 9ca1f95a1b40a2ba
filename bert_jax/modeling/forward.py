"""The forward pass of `Bert`, and its parameters as NNX modules."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from bert_jax.config import BertConfig
from bert_jax.config.values import shortest_period
from bert_jax.errors import InputError
from bert_jax.modeling.attention_mask import AttentionMask
from bert_jax.modeling.attention_plan import AttentionPlan, plan_attention
from bert_jax.modeling.compute import Compute
from bert_jax.modeling.contacts import ContactHead
from bert_jax.modeling.cross_attention import stacked_cross_attention
from bert_jax.modeling.dropout import dropout
from bert_jax.modeling.encoder import Encoder
from bert_jax.modeling.exchange import TABLES, exchanged
from bert_jax.modeling.gliner import GlinerHead
from bert_jax.modeling.global_tokens import question_tokens, with_global_tokens
from bert_jax.modeling.head_names import (
    CLASSIFIERS,
    DECODER_HEAD,
    GLINER_HEAD,
    WITH_UNREAD_POOLER,
    WITHOUT_POOLER,
    summary_of,
)
from bert_jax.modeling.heads import (
    Discriminator,
    EmbeddingLayers,
    MaskedLMHead,
    Pooler,
    SpanFeedForward,
    Summary,
    Transform,
    l2_normalize,
    pool_segments,
    pool_tokens,
)
from bert_jax.modeling.inputs import Inputs, Options
from bert_jax.modeling.layers import Dense
from bert_jax.modeling.models import Bert, Params
from bert_jax.modeling.outputs import BertOutput
from bert_jax.modeling.parts import embeddings_of
from bert_jax.modeling.positions import Positions, gather_positions
from bert_jax.modeling.quantized import quantize_module
from bert_jax.modeling.rotary import rotation


class _Module(nnx.Module):
    """The parameters of a BERT with one head; attribute names are the paths of the canonical tree."""

    def __init__(self, config: BertConfig, head: str, *, rngs: nnx.Rngs):
        size, summary = config.hidden_size, summary_of(config, head)
        self.embeddings = embeddings_of(config)(config, rngs=rngs)
        self.encoder = Encoder(config, rngs=rngs)
        reads_pooler = head not in WITHOUT_POOLER and summary in (None, "pooler")
        if config.pooler and (reads_pooler or (config.unread_pooler and head in WITH_UNREAD_POOLER)):
            self.pooler = Pooler(config, rngs=rngs)
        if summary not in (None, "pooler"):
            kind = Transform(config, size, rngs=rngs) if summary == "transform" else Summary(config, summary, rngs=rngs)
            self.summary: Transform | Summary = kind
        if head == "sparse_embedding" and config.pooling == "lexical":
            self.token_weights = Dense(config, size, 1, rngs=rngs)
        elif head in ("pretraining", "masked_lm", "sparse_embedding", DECODER_HEAD):
            self.mlm = MaskedLMHead(config, rngs=rngs)
        if head == DECODER_HEAD:
            self.cross_attention = stacked_cross_attention(config, rngs)
        if head in ("pretraining", "next_sentence"):
            self.nsp = Dense(config, size, 2, rngs=rngs)
        if head in CLASSIFIERS:
            self.classifier = Dense(config, size, 1 if head == "multiple_choice" else config.num_labels, rngs=rngs)
        if head == "question_answering":
            self.qa_outputs = Dense(config, size, 2, rngs=rngs)
            if config.span_head == "feed_forward":
                self.span = SpanFeedForward(config, rngs=rngs)
        if head in ("sentence_embedding", "multi_vector") and config.embedding_layers:
            self.embedding_layers = EmbeddingLayers(config, rngs=rngs)
        if head == "replaced_token_detection":
            self.discriminator = Discriminator(config, rngs=rngs)
        if head == GLINER_HEAD:
            assert config.gliner is not None  # `Bert` checks it
            self.gliner = GlinerHead(config, config.gliner, rngs=rngs)
        if config.contact_head:
            self.contact_head = ContactHead(config, rngs=rngs)
        if config.quantization is not None:
            quantize_module(self, config.quantization)


def init(bert: Bert, key: jax.Array) -> Params:
    """Initialise parameters; see `Bert.init`."""
    return nnx.to_pure_dict(nnx.state(_Module(bert.config, bert.head, rngs=nnx.Rngs(params=key))))


def apply(bert: Bert, params: Params, inputs: Inputs, options: Options) -> BertOutput:
    """Run the forward pass; see `Bert.apply`."""
    choices = inputs.input_ids.shape[1] if bert.head == "multiple_choice" else None
    if choices is not None:
        inputs = inputs.with_choices_as_rows()
    module = merge_params(bert, exchanged(params, TABLES, bert.compute))
    question = None
    if hasattr(module, "span"):
        inputs, question = _with_question(bert.config, inputs)
    keys = (None, None, None) if options.dropout_key is None else jax.random.split(options.dropout_key, 3)
    mask = AttentionMask.of(inputs.attention_mask, inputs.segment_ids)
    mask = with_global_tokens(mask, bert.config, bert.head, inputs)
    plans = _attention_plans(bert, module, mask, inputs, options)
    at = None
    if not options.reads_states:
        at, inputs = _computed(bert, inputs)
    output = _encode(bert, module, inputs, mask, plans, keys, at, options)
    if bert.config.contact_head and output.attentions is not None:
        contacts = module.contact_head(output.attentions, inputs.input_ids, inputs.attention_mask)
        output = dataclasses.replace(output, contacts=contacts)
    output = dataclasses.replace(output, **_head(bert, module, output, inputs, options.sample_key, choices, keys[2]))
    if question is not None:
        output = _without_question(output, question)
    return output if options.output_last_hidden_state else dataclasses.replace(output, last_hidden_state=None)


def _with_question(config: BertConfig, inputs: Inputs) -> tuple[Inputs, jax.Array]:
    """Return the inputs of BigBird's span head with token types, and whether each token is of the question `[B, S]`."""
    if inputs.segment_ids is not None:
        raise InputError("segment_ids: expected none, as the span head looks for the question of a row, found some")
    question = question_tokens(config, inputs.input_ids)
    usual, types = 1 - question.astype(jnp.int32), inputs.token_type_ids
    types = usual if types is None else jnp.where(types.any(-1, keepdims=True), types, usual)
    return dataclasses.replace(inputs, token_type_ids=types), question


def embed_hidden_state(
    bert: Bert, params: Params, hidden_state: jax.Array, attention_mask: jax.Array | None
) -> jax.Array:
    """Return the sentence embeddings of an earlier layer; arguments as for `Bert.embed_hidden_state`."""
    module = merge_params(bert, params)
    x = module.encoder.layer_norm(hidden_state) if hasattr(module.encoder, "layer_norm") else hidden_state
    inputs = Inputs(jnp.zeros(x.shape[:2], jnp.int32), attention_mask)
    return _sentence(bert, module, x, inputs, None)


def _first(x: jax.Array, cls_positions: jax.Array | None) -> jax.Array:
    return x[:, 0] if cls_positions is None else gather_positions(x, cls_positions)


def _pool(x: jax.Array, inputs: Inputs, poolings: tuple[str, ...], skip: int = 0) -> jax.Array:
    if inputs.segment_ids is not None and inputs.cls_positions is not None:
        if skip:
            raise InputError("pooling_skip: expected rows of one example each, found rows of several")
        return pool_segments(x, inputs.segment_ids, inputs.cls_positions, poolings)
    mask = jnp.ones(x.shape[:2], jnp.int32) if inputs.attention_mask is None else inputs.attention_mask
    if poolings == ("cls",) and not skip:
        return x[:, 0].astype(jnp.float32)
    return pool_tokens(x, mask, poolings, skip)


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
        if config.position_embedding_type == "rotary":
            theta = (config.local_rope_theta if window else None) or config.rope_theta
            speeds = module.encoder.rotary_speeds(theta)
            plan = dataclasses.replace(plan, rotation=rotation(length, inputs.position_ids, speeds))
        made[window] = plan
    return tuple(made[window] for window in windows)


def _encode(
    bert: Bert,
    module: _Module,
    inputs: Inputs,
    mask: AttentionMask,
    plans: tuple[AttentionPlan, ...],
    keys: Any,
    at: Positions | None,
    options: Options,
) -> BertOutput:
    x = module.embeddings(inputs, mask, keys[0], bert.compute)
    x, hidden_states, maps, projections = module.encoder(x, plans, keys[1], bert.compute, options, at)
    pooled = module.pooler(_first(x, inputs.cls_positions), bert.compute) if hasattr(module, "pooler") else None
    return BertOutput(x, pooled, hidden_states=hidden_states, attentions=maps, projections=projections)


def _head(
    bert: Bert,
    module: _Module,
    output: BertOutput,
    inputs: Inputs,
    sample_key: jax.Array | None,
    choices: int | None,
    key: jax.Array | None,
) -> dict[str, Any]:
    x: Any = output.last_hidden_state
    drop = functools.partial(dropout, rate=_classifier_dropout(bert), key=key)

    def dense(layer, x):  # [..., D] -> [..., out], in float32: these products are small and their outputs are logits
        return layer(x.astype(jnp.float32), Compute(platform=bert.compute.platform))

    def masked_lm(logits_name: str) -> dict[str, jax.Array]:
        labels = inputs.masked_labels
        at = x if inputs.masked_positions is None else gather_positions(x, inputs.masked_positions)
        table = module.embeddings.word_embeddings.table()
        if labels is None:
            return {logits_name: module.mlm.logits(at, table, bert.compute)}
        if sample_key is None:
            losses, correct = module.mlm.losses(at, labels, table, bert.compute)
            return {"masked_lm_losses": losses, "masked_lm_correct": correct}
        found = module.mlm.losses_and_samples(at, labels, table, sample_key, bert.compute)
        return dict(zip(("masked_lm_losses", "masked_lm_correct", "masked_lm_samples"), found, strict=True))

    def classify(summary: jax.Array) -> jax.Array:  # [..., D] -> [B or B, M, C]
        logits = dense(module.classifier, drop(summary))
        return _pool(logits, inputs, ("mean",)) if _is_late(bert) else logits

    match bert.head:
        case "pretraining":
            labels = dense(module.nsp, output.pooler_output)
            return masked_lm("prediction_logits") | {"seq_relationship_logits": labels}
        case "masked_lm":
            return masked_lm("logits")
        case "next_sentence":
            return {"logits": dense(module.nsp, output.pooler_output)}
        case "sequence_classification":
            return {"logits": classify(_summary(bert, module, output, inputs, key))}
        case "token_classification":
            return {"logits": dense(module.classifier, drop(_of_tokens(bert, module, x)))}
        case "multiple_choice":
            summary = _summary(bert, module, output, inputs, None)
            return {"logits": classify(summary).reshape(-1, choices)}
        case "question_answering":
            x = dropout(_of_tokens(bert, module, x), bert.config.qa_dropout, key)
            x = module.span(x, bert.compute, key) if hasattr(module, "span") else x
            logits = dense(module.qa_outputs, x)
            return {"start_logits": logits[..., 0], "end_logits": logits[..., 1]}
        case "replaced_token_detection":
            return {"logits": module.discriminator(x, inputs.segment_ids, bert.compute)}
        case "sentence_embedding":
            return {"sentence_embedding": _sentence(bert, module, x, inputs, key)}
        case "multi_vector":
            return {"token_embeddings": _layered(bert, module, x.astype(jnp.float32), key)}
        case "zero_shot_ner":
            words, types = inputs.word_positions, inputs.type_positions
            if words is None or types is None:
                raise InputError("zero_shot_ner: expected word_positions and type_positions, found none")
            return {"logits": module.gliner(x, words, types, key, bert.compute)}
        case "sparse_embedding":
            if bert.config.pooling == "lexical":
                return {"token_weights": jax.nn.relu(dense(module.token_weights, x))[..., 0]}
            return {"sentence_embedding": _sparse(bert, module, x, inputs)}
    return {}


def _without_question(output: BertOutput, question: jax.Array) -> BertOutput:
    """Return the output with such logits of the question's tokens, except the first token, that no span is there."""
    penalty = 1e6 * question.at[:, 0].set(False)
    starts, ends = output.start_logits, output.end_logits
    assert starts is not None and ends is not None
    return dataclasses.replace(output, start_logits=starts - penalty, end_logits=ends - penalty)


def _sentence(bert: Bert, module, x: jax.Array, inputs: Inputs, key: jax.Array | None) -> jax.Array:
    return _layered(bert, module, _pool(x, inputs, bert.config.poolings, bert.config.pooling_skip), key)


def _layered(bert: Bert, module, x: jax.Array, key: jax.Array | None) -> jax.Array:
    """Apply the layers after the pooling, or after the encoder in a model with a vector for each token."""
    if hasattr(module, "embedding_layers"):
        x = module.embedding_layers(x, bert.config, bert.compute, key)
    return l2_normalize(x) if bert.config.normalize_embeddings else x


def _sparse(bert: Bert, module, x: jax.Array, inputs: Inputs) -> jax.Array:
    if inputs.segment_ids is not None:
        raise InputError("sparse_embedding: expected rows of one example each, found rows of several")
    mask = jnp.ones(x.shape[:2], jnp.int32) if inputs.attention_mask is None else inputs.attention_mask
    table = module.embeddings.word_embeddings.table()
    return module.mlm.sparse(x, mask, table, bert.config.pooling, bert.compute)


def _classifier_dropout(bert: Bert) -> float:
    rate = bert.config.classifier_dropout
    return bert.config.hidden_dropout_prob if rate is None else rate


def _summary(bert: Bert, module, output: BertOutput, inputs: Inputs, dropout_key) -> jax.Array:
    """Return the input of a sequence classifier: `[B, D]`, or `[B, M, D]` with cls_positions; `[B, S, D]` if late."""
    if not hasattr(module, "summary"):
        assert output.pooler_output is not None
        return output.pooler_output
    x, config = output.last_hidden_state, bert.config
    assert x is not None
    if _is_late(bert):
        first = x
    elif config.classifier_pooling == "mean":
        first = _pool(x, inputs, ("mean",)).astype(x.dtype)
    else:
        first = _first(x, inputs.cls_positions)
    if rate := _classifier_dropout(bert) if config.drop_before_summary else config.pooler_dropout:
        key = None if dropout_key is None else jax.random.fold_in(dropout_key, 1)
        first = dropout(first, rate, key)
    return module.summary(first, bert.compute)


def _is_late(bert: Bert) -> bool:
    """Return whether a classifier's logits are the mean of those of all tokens."""
    return bert.config.classifier_pooling == "late" and summary_of(bert.config, bert.head) != "pooler"


def _of_tokens(bert: Bert, module, x: jax.Array) -> jax.Array:
    """Return the input `[B, S, D]` of a head for tokens or spans."""
    return module.summary(x, bert.compute) if hasattr(module, "summary") else x


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
