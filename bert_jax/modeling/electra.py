"""ELECTRA: a generator fills in masked tokens, and a discriminator detects the replaced ones.

Clark et al. 2020 (arXiv:2003.10555).
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp

from bert_jax.config import BertConfig
from bert_jax.errors import InputError
from bert_jax.modeling.compute import Compute
from bert_jax.modeling.models import Bert, Params

_OWN = "projection"  # what of its embeddings a model does not share: they have the same width, but not the layers


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ElectraOutput:
    """What a forward pass of both gives; float32 but for the last.

    Attributes:
        masked_lm_losses: `[B, P]`, the generator's cross entropy of each label.
        masked_lm_correct: `[B, P]`, 1 where the label has its greatest logit.
        logits: `[B, S]`, the discriminator's of a token having been replaced.
        is_replaced: `[B, S]` bool, where the token is another than the original: one that the generator draws right is
            not.
    """

    masked_lm_losses: jax.Array
    masked_lm_correct: jax.Array
    logits: jax.Array
    is_replaced: jax.Array


@dataclasses.dataclass(frozen=True)
class Electra:
    """A generator and a discriminator that share their embeddings. Holds no parameters: they are
    `{"discriminator": the canonical tree, "generator": the same without what is shared}`.

    Attributes:
        config: the discriminator's architecture.
        generator_config: the generator's (`generator_config`).
        compute: how both run.

    Raises:
        InputError: their embeddings are not of one shape.
    """

    config: BertConfig
    generator_config: BertConfig
    compute: Compute = dataclasses.field(default_factory=Compute)
    head = "replaced_token_detection"

    def __post_init__(self) -> None:
        for name in ("vocab_size", "embedding_width", "max_position_embeddings", "type_vocab_size"):
            expected, found = getattr(self.config, name), getattr(self.generator_config, name)
            if expected != found:
                raise InputError(f"the generator's {name}: expected the discriminator's, {expected}, found {found}")

    @property
    def discriminator(self) -> Bert:
        """The discriminator by itself."""
        return Bert(self.config, self.head, self.compute)

    @property
    def generator(self) -> Bert:
        """The generator by itself; its parameters are `generator_params`."""
        return Bert(self.generator_config, "masked_lm", self.compute)

    @property
    def parts(self) -> tuple[Bert, ...]:
        """The models that a forward pass runs, one after the other."""
        return self.generator, self.discriminator

    def init(self, key: jax.Array) -> Params:
        """Fresh float32 parameters; jit with `out_shardings` to make them in shards."""
        keys = jax.random.split(key)
        return self.joined(self.discriminator.init(keys[0]), self.generator.init(keys[1]))

    def joined(self, discriminator: Params, generator: Params) -> Params:
        """The parameters of both as one tree; the embeddings that they share are the discriminator's."""
        own = {name: part for name, part in generator["embeddings"].items() if name == _OWN}
        others = {name: part for name, part in generator.items() if name != "embeddings"}
        return {"discriminator": discriminator, "generator": others | ({"embeddings": own} if own else {})}

    def generator_params(self, params: Params) -> Params:
        """The generator's parameters as a tree of its own, with the embeddings that it shares."""
        shared = {name: part for name, part in params["discriminator"]["embeddings"].items() if name != _OWN}
        own = params["generator"].get("embeddings", {})
        return {**params["generator"], "embeddings": {**shared, **own}}

    def apply(
        self,
        params: Params,
        input_ids: jax.Array,
        attention_mask: jax.Array | None,
        token_type_ids: jax.Array | None,
        position_ids: jax.Array | None,
        *,
        masked_positions: jax.Array,
        masked_labels: jax.Array,
        masked_weights: jax.Array,
        segment_ids: jax.Array | None = None,
        sample_key: jax.Array,
        dropout_key: jax.Array | None = None,
    ) -> ElectraOutput:
        """The forward pass of both; pure, to be jitted by the caller. No gradient goes through what is drawn.

        Args:
            params: as `init` gives.
            input_ids: `[B, S]` int32, with masks; the next three, and segment_ids, as for `Bert.apply`.
            masked_positions: `[B, P]`, where the generator fills in.
            masked_labels: `[B, P]`, the tokens that were there.
            masked_weights: `[B, P]`, 0 where the last two mean nothing.
            sample_key: of the tokens that it draws.
            dropout_key: None means no dropout.
        """
        keys = (None, None) if dropout_key is None else jax.random.split(dropout_key)
        filled = self.generator.apply(
            self.generator_params(params), input_ids, attention_mask, token_type_ids, position_ids, masked_positions,
            masked_labels, segment_ids, dropout_key=keys[0], sample_key=sample_key,
            output_last_hidden_state=False,
        )  # fmt: skip
        assert filled.masked_lm_losses is not None and filled.masked_lm_correct is not None
        samples = filled.masked_lm_samples
        assert samples is not None
        put = functools.partial(_put, jnp.where(masked_weights > 0, masked_positions, input_ids.shape[1]))
        judged = self.discriminator.apply(
            params["discriminator"], put(input_ids, samples), attention_mask, token_type_ids, position_ids,
            segment_ids=segment_ids, dropout_key=keys[1],
        )  # fmt: skip
        assert judged.logits is not None
        return ElectraOutput(
            masked_lm_losses=filled.masked_lm_losses,
            masked_lm_correct=filled.masked_lm_correct,
            logits=judged.logits,
            is_replaced=put(jnp.zeros(input_ids.shape, bool), samples != masked_labels),
        )


def generator_config(config: BertConfig, size: float) -> BertConfig:
    """The architecture of a generator that is `size` as wide as the discriminator: in heads (whole ones, of the same
    size), so in hidden size, and in the feed-forward layer. It has as many layers (section 3.2)."""
    heads = max(1, round(size * config.num_attention_heads))
    return config.replace(
        embedding_size=config.embedding_width,
        hidden_size=heads * config.head_size,
        num_attention_heads=heads,
        intermediate_size=max(1, round(size * config.intermediate_size)),
    )


def _put(positions: jax.Array, x: jax.Array, values: jax.Array) -> jax.Array:
    """`x [B, S]` with `values [B, P]` at `positions [B, P]`, S being nowhere."""
    # Row by row, so that a batch that is split over devices stays so.
    return jax.vmap(lambda row, at, new: row.at[at].set(new, mode="drop"))(x, positions, values)
