"""`Bert`: an encoder with a head, as pure functions of its parameters."""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from bert_jax.config import BertConfig
from bert_jax.errors import InputError, did_you_mean
from bert_jax.modeling.attention import AttentionPlan, plan_attention, rotation
from bert_jax.modeling.attention_mask import AttentionMask
from bert_jax.modeling.compute import Compute
from bert_jax.modeling.dropout import dropout
from bert_jax.modeling.embeddings import Embeddings
from bert_jax.modeling.encoder import Encoder
from bert_jax.modeling.heads import (
    CLASSIFIERS,
    HEADS,
    WITHOUT_POOLER,
    Discriminator,
    EmbeddingLayers,
    MaskedLMHead,
    Pooler,
    Summary,
    Transform,
    l2_normalize,
    pool_segments,
    pool_tokens,
    summary_of,
)
from bert_jax.modeling.layers import Dense
from bert_jax.modeling.outputs import BertOutput
from bert_jax.modeling.positions import Positions, gather_positions
from bert_jax.modeling.quantized import quantize_module

Params = dict[str, Any]  # the canonical tree: nested dicts of arrays


class _Module(nnx.Module):
    """The parameters of a BERT with one head; attribute names are the paths of the canonical tree."""

    def __init__(self, config: BertConfig, head: str, *, rngs: nnx.Rngs):
        size, summary = config.hidden_size, summary_of(config, head)
        self.embeddings = Embeddings(config, rngs=rngs)
        self.encoder = Encoder(config, rngs=rngs)
        if config.pooler and head not in WITHOUT_POOLER and summary in (None, "pooler"):
            self.pooler = Pooler(config, rngs=rngs)
        if summary not in (None, "pooler"):
            kind = Transform(config, size, rngs=rngs) if summary == "transform" else Summary(config, summary, rngs=rngs)
            self.summary: Transform | Summary = kind
        if head in ("pretraining", "masked_lm"):
            self.mlm = MaskedLMHead(config, rngs=rngs)
        if head in ("pretraining", "next_sentence"):
            self.nsp = Dense(config, size, 2, rngs=rngs)
        if head in CLASSIFIERS:
            self.classifier = Dense(config, size, 1 if head == "multiple_choice" else config.num_labels, rngs=rngs)
        if head == "question_answering":
            self.qa_outputs = Dense(config, size, 2, rngs=rngs)
        if head == "sentence_embedding" and config.embedding_layers:
            self.embedding_layers = EmbeddingLayers(config, rngs=rngs)
        if head == "replaced_token_detection":
            self.discriminator = Discriminator(config, rngs=rngs)
        if config.quantization is not None:
            quantize_module(self, config.quantization)


@dataclasses.dataclass(frozen=True)
class Bert:
    """A BERT with a head, without parameters: its methods take and return the canonical tree of `abstract_params`.

    Attributes:
        config: the architecture.
        head: one of `HEADS`.
        compute: compute options.

    Raises:
        InputError: the head is not known, or needs a pooler and `config` has none.
    """

    config: BertConfig
    head: str = "encoder"
    compute: Compute = dataclasses.field(default_factory=Compute)

    def __post_init__(self) -> None:
        if self.head not in HEADS:
            raise InputError(f"head {self.head!r} is not known{did_you_mean(self.head, HEADS)}")
        if summary_of(self.config, self.head) == "pooler" and not self.config.pooler:
            raise InputError(f"head {self.head!r} needs a pooler, and the model config has pooler=False")

    @property
    def parts(self) -> tuple["Bert", ...]:
        """Return the models that a forward pass runs: only this one."""
        return (self,)

    def init(self, key: jax.Array) -> Params:
        """Initialise parameters, float32 if not quantized; jit with `out_shardings` to create them sharded."""
        return nnx.to_pure_dict(nnx.state(self._create(key)))

    def abstract_params(self) -> Params:
        """Return the tree of `init` with `jax.ShapeDtypeStruct` leaves."""
        return jax.eval_shape(self.init, jax.random.key(0))

    def apply(
        self,
        params: Params,
        input_ids: jax.Array,
        attention_mask: jax.Array | None = None,
        token_type_ids: jax.Array | None = None,
        position_ids: jax.Array | None = None,
        masked_positions: jax.Array | None = None,
        masked_labels: jax.Array | None = None,
        segment_ids: jax.Array | None = None,
        cls_positions: jax.Array | None = None,
        *,
        dropout_key: jax.Array | None = None,
        sample_key: jax.Array | None = None,
        output_last_hidden_state: bool = True,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
        output_projections: bool = False,
    ) -> BertOutput:
        """Run the forward pass; a pure function, to be jitted by the caller.

        Args:
            params: the canonical tree.
            input_ids: `[B, S]` int32; `[B, K, S]` for multiple choice, as are the next three.
            attention_mask: 1 for tokens, 0 for padding; None means no padding.
            token_type_ids: segment ids; None means 0.
            position_ids: positions, from 0 in every family. None means 0, 1, ...; in a family with a `position_offset`
                it means the number of earlier tokens that are not padding.
            masked_positions: `[B, P]`, positions at which to compute masked-LM logits; None means all positions.
            masked_labels: `[B, P]`, the original tokens at these positions. If given, the output has losses instead of
                masked-LM logits, which takes a fraction of the memory.
            segment_ids: `[B, S]`, for packed rows, in place of `attention_mask`: tokens attend only to tokens with the
                same number. Padding has a number of its own.
            cls_positions: `[B, M]`, the first position of each example in packed rows. Sequence outputs are then
                computed for each example. None means the first token.
            dropout_key: None means no dropout.
            sample_key: if given with `masked_labels`, the output has samples too.
            output_last_hidden_state: whether to return the last hidden state. Without it and the next three, the last
                layer computes only the positions that the head reads if layers are unrolled, with the same results.
            output_hidden_states: whether to return all hidden states.
            output_attentions: whether to return all attention maps.
            output_projections: whether to return the queries, keys and values of all layers.

        Raises:
            InputError: the sequence is longer than the model's positions, or `compute.attention` does not support it.
        """
        limit = self.config.max_position_embeddings
        if input_ids.shape[-1] > limit:
            raise InputError(
                f"expected at most the model's {limit} positions (max_position_embeddings), "
                f"found a sequence of {input_ids.shape[-1]} tokens"
            )
        choices = input_ids.shape[1] if self.head == "multiple_choice" else None
        inputs = (input_ids, attention_mask, token_type_ids, position_ids)
        if choices is not None:
            inputs = jax.tree.map(lambda ids: ids.reshape(-1, ids.shape[-1]), inputs)
        module = self._merge(params)
        keys = (None, None, None) if dropout_key is None else jax.random.split(dropout_key, 3)
        mask = AttentionMask.of(inputs[1], segment_ids)
        plans = self._attention_plans(mask, inputs[3], input_ids.shape[-1], dropout_key is not None, output_attentions)
        rows, at = _Rows(inputs[1], segment_ids, cls_positions, masked_positions), None
        if not (output_last_hidden_state or output_hidden_states or output_attentions or output_projections):
            at, rows = self._computed(rows, *inputs[0].shape)
        wanted = (output_hidden_states, output_attentions, output_projections)
        output = self._encode(module, inputs, plans, rows, keys, at, wanted)
        output = dataclasses.replace(
            output, **self._head(module, output, rows, (masked_labels, sample_key), choices, keys[2])
        )
        return output if output_last_hidden_state else dataclasses.replace(output, last_hidden_state=None)

    def places_computed(self, length: int, sentences: int = 1, predictions: int | None = None) -> int:
        """Return the number of positions per row that the last layer computes if no last hidden state is requested.

        These are the positions that the head reads if layers are unrolled, else all.

        Args:
            length: S, the number of tokens in a row.
            sentences: number of examples in a row.
            predictions: P, the number of masked positions; None means all positions.
        """
        config = self.config
        match self.head:
            case _ if self.compute.layers != "unroll":
                count = length
            case "pretraining" | "masked_lm":
                count = length if predictions is None else predictions + sentences * (self.head == "pretraining")
            case "sequence_classification" | "multiple_choice" | "next_sentence":
                of_all = summary_of(config, self.head) != "pooler" and config.classifier_pooling == "mean"
                count = length if of_all else sentences
            case "sentence_embedding" if config.pooling == "cls" and not config.pooling_skip:
                count = sentences
            case _:
                count = length
        return min(count, length)

    def _computed(self, rows: "_Rows", batch: int, length: int) -> tuple[Positions | None, "_Rows"]:
        """Return the positions that the last layer computes (None = all), and the rows with indices into these."""
        first, masked = rows.cls_positions, rows.masked_positions
        sentences, predictions = (None if at is None else at.shape[1] for at in (first, masked))
        if self.places_computed(length, sentences or 1, predictions) == length:
            return None, rows
        parts = [] if self.head == "masked_lm" else [jnp.zeros((batch, 1), jnp.int32) if first is None else first]
        before = sum(part.shape[1] for part in parts)
        if masked is not None:
            parts.append(masked)
        index = jnp.concatenate(parts, axis=1)
        places = jnp.broadcast_to(jnp.arange(index.shape[1]), index.shape)
        return Positions(index, length), rows._replace(
            cls_positions=None if first is None else places[:, :before],
            masked_positions=None if masked is None else places[:, before:],
        )

    def _attention_plans(self, mask, position_ids, length: int, drops: bool, maps: bool) -> tuple[AttentionPlan, ...]:
        """Return the attention plans of the first layers; they repeat through the later layers."""
        config = self.config
        made = {}
        windows = config.windows[: config.global_every if config.local_window else 1]
        for window in set(windows):
            seen = dataclasses.replace(mask, window=window)
            plan = plan_attention(seen, config, self.compute, length, drops=drops, maps=maps)
            if config.position_embedding_type == "rotary":
                theta = (config.local_rope_theta if window else None) or config.rope_theta
                plan = dataclasses.replace(plan, rotation=rotation(length, position_ids, config.head_size, theta))
            made[window] = plan
        return tuple(made[window] for window in windows)

    def _encode(self, module, inputs, plans, rows, keys, at, wanted):
        input_ids, _, token_type_ids, position_ids = inputs
        x = module.embeddings(input_ids, token_type_ids, position_ids, keys[0], self.compute)
        x, hidden_states, maps, projections = module.encoder(x, plans, keys[1], self.compute, *wanted, at)
        pooled = module.pooler(_first(x, rows.cls_positions), self.compute) if hasattr(module, "pooler") else None
        return BertOutput(x, pooled, hidden_states=hidden_states, attentions=maps, projections=projections)

    def _head(self, module, output, rows, masked, choices, key) -> dict[str, jax.Array]:
        x = output.last_hidden_state
        assert x is not None
        drop = functools.partial(dropout, rate=self._classifier_dropout, key=key)

        def dense(
            layer, x
        ):  # [..., D] -> [..., out], in float32: these products are small and their outputs are logits
            return layer(x.astype(jnp.float32), Compute(platform=self.compute.platform))

        def masked_lm(logits_name: str) -> dict[str, jax.Array]:
            labels, sample_key = masked
            at = x if rows.masked_positions is None else gather_positions(x, rows.masked_positions)
            table = module.embeddings.word_embeddings.table()
            if labels is None:
                return {logits_name: module.mlm.logits(at, table, self.compute)}
            if sample_key is None:
                losses, correct = module.mlm.losses(at, labels, table, self.compute)
                return {"masked_lm_losses": losses, "masked_lm_correct": correct}
            found = module.mlm.losses_and_samples(at, labels, table, sample_key, self.compute)
            return dict(zip(("masked_lm_losses", "masked_lm_correct", "masked_lm_samples"), found, strict=True))

        match self.head:
            case "pretraining":
                labels = dense(module.nsp, output.pooler_output)
                return masked_lm("prediction_logits") | {"seq_relationship_logits": labels}
            case "masked_lm":
                return masked_lm("logits")
            case "next_sentence":
                return {"logits": dense(module.nsp, output.pooler_output)}
            case "sequence_classification":
                return {"logits": dense(module.classifier, drop(self._summary(module, output, rows, key)))}
            case "token_classification":
                return {"logits": dense(module.classifier, drop(self._of_tokens(module, x)))}
            case "multiple_choice":
                summary = self._summary(module, output, rows, None)
                return {"logits": dense(module.classifier, drop(summary)).reshape(-1, choices)}
            case "question_answering":
                x = dropout(self._of_tokens(module, x), self.config.qa_dropout, key)
                logits = dense(module.qa_outputs, x)
                return {"start_logits": logits[..., 0], "end_logits": logits[..., 1]}
            case "replaced_token_detection":
                return {"logits": module.discriminator(x, self.compute)}
            case "sentence_embedding":
                return {"sentence_embedding": self._sentence(module, x, rows, key)}
        return {}

    def _sentence(self, module, x: jax.Array, rows: "_Rows", key: jax.Array | None) -> jax.Array:
        config = self.config
        pooled = _pool(x, rows, config.poolings, config.pooling_skip)
        if hasattr(module, "embedding_layers"):
            pooled = module.embedding_layers(pooled, config, self.compute, key)
        return l2_normalize(pooled) if config.normalize_embeddings else pooled

    @property
    def _classifier_dropout(self) -> float:
        rate = self.config.classifier_dropout
        return self.config.hidden_dropout_prob if rate is None else rate

    def _summary(self, module, output: BertOutput, rows: "_Rows", dropout_key) -> jax.Array:
        """Return the input of a sequence classifier: `[B, D]`, or `[B, M, D]` with cls_positions."""
        if not hasattr(module, "summary"):
            assert output.pooler_output is not None
            return output.pooler_output
        x, config = output.last_hidden_state, self.config
        assert x is not None
        if config.classifier_pooling == "mean":
            first = _pool(x, rows, ("mean",)).astype(x.dtype)
        else:
            first = _first(x, rows.cls_positions)
        if config.drop_before_summary:
            key = None if dropout_key is None else jax.random.fold_in(dropout_key, 1)
            first = dropout(first, self._classifier_dropout, key)
        return module.summary(first, self.compute)

    def _of_tokens(self, module, x: jax.Array) -> jax.Array:
        """Return the input `[B, S, D]` of a head for tokens or spans."""
        return module.summary(x, self.compute) if hasattr(module, "summary") else x

    def _create(self, key: jax.Array) -> _Module:
        return _Module(self.config, self.head, rngs=nnx.Rngs(params=key))

    def _merge(self, params: Params) -> _Module:
        graph, empty = _skeleton(self.config, self.head)
        state = jax.tree.map(lambda leaf: leaf, empty)  # a copy, which takes the parameters
        nnx.replace_by_pure_dict(state, params)
        return nnx.merge(graph, state)


class _Rows(NamedTuple):
    """The arguments of `Bert.apply` that tell which tokens belong to which example, and which are read."""

    attention_mask: jax.Array | None
    segment_ids: jax.Array | None
    cls_positions: jax.Array | None
    masked_positions: jax.Array | None


def _first(x: jax.Array, cls_positions: jax.Array | None) -> jax.Array:
    return x[:, 0] if cls_positions is None else gather_positions(x, cls_positions)


def _pool(x: jax.Array, rows: _Rows, poolings: tuple[str, ...], skip: int = 0) -> jax.Array:
    if rows.segment_ids is not None and rows.cls_positions is not None:
        if skip:
            raise InputError("pooling_skip: expected rows of one example each, found rows of several")
        return pool_segments(x, rows.segment_ids, rows.cls_positions, poolings)
    mask = jnp.ones(x.shape[:2], jnp.int32) if rows.attention_mask is None else rows.attention_mask
    if poolings == ("cls",) and not skip:
        return x[:, 0].astype(jnp.float32)
    return pool_tokens(x, mask, poolings, skip)


@functools.lru_cache(maxsize=64)
def _skeleton(config: BertConfig, head: str):
    """Return the NNX graph and the abstract state of a model; cached, so that each model is traced once."""
    return nnx.split(nnx.eval_shape(lambda: _Module(config, head, rngs=nnx.Rngs(params=jax.random.key(0)))))
