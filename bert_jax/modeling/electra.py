"""ELECTRA: a generator fills in masked tokens, and a discriminator detects the replaced ones.

Clark et al. 2020 (arXiv:2003.10555). Gradient-disentangled embedding sharing: He et al. 2021 (arXiv:2111.09543),
section 3.3.
"""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from bert_jax.config import BertConfig
from bert_jax.errors import InputError, did_you_mean
from bert_jax.modeling.compute import Compute
from bert_jax.modeling.models import Bert
from bert_jax.modeling.spec import Params

# How generator and discriminator share their embeddings. `es`: one table that both losses train. `gdes`: the
# discriminator adds a difference of its own to the generator's table. `none`: each has its own table.
EMBEDDING_SHARINGS = ("es", "gdes", "none")


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ElectraOutput:
    """The output of a forward pass of generator and discriminator, float32 except `is_replaced`.

    Attributes:
        masked_lm_losses: `[B, P]`, the generator's cross entropy of each label.
        masked_lm_correct: `[B, P]`, 1 where the label has the generator's greatest logit.
        logits: `[B, S]`, the discriminator's logits that a token was replaced.
        is_replaced: `[B, S]` bool, whether a token differs from the original; False where the generator sampled the
            original token.
    """

    masked_lm_losses: jax.Array
    masked_lm_correct: jax.Array
    logits: jax.Array
    is_replaced: jax.Array


@dataclasses.dataclass(frozen=True)
class Electra:
    """A generator and a discriminator.

    The object holds no parameters. Their tree is `{"discriminator": canonical tree, "generator": canonical tree}`. With
    `embedding_sharing` `es`, the generator uses the discriminator's embeddings; its tree has none, except for the dense
    layer after them. With `gdes`, the tables in the discriminator's tree (of words, positions and token types) are the
    differences from the generator's tables, initially 0: the discriminator looks up the sum, and its loss has no
    gradient in the generator's tables.

    Attributes:
        config: the discriminator's architecture.
        generator_config: the generator's architecture.
        compute: compute options of both.
        embedding_sharing: one of `EMBEDDING_SHARINGS`.

    Raises:
        InputError: the embeddings of generator and discriminator differ in shape, or the sharing is not known.
    """

    config: BertConfig
    generator_config: BertConfig
    compute: Compute = dataclasses.field(default_factory=Compute)
    embedding_sharing: str = "es"
    head = "replaced_token_detection"

    def __post_init__(self) -> None:
        if self.embedding_sharing not in EMBEDDING_SHARINGS:
            known = did_you_mean(self.embedding_sharing, EMBEDDING_SHARINGS)
            raise InputError(f"embedding_sharing {self.embedding_sharing!r} is not known{known}")
        for name in ("vocab_size", "embedding_width", "max_position_embeddings", "type_vocab_size"):
            expected, actual = getattr(self.config, name), getattr(self.generator_config, name)
            if expected != actual:
                raise InputError(f"the generator's {name}: expected the discriminator's, {expected}, found {actual}")

    @property
    def discriminator(self) -> Bert:
        """Return the discriminator, whose parameters are `discriminator_params`."""
        return Bert(self.config, self.head, self.compute)

    @property
    def generator(self) -> Bert:
        """Return the generator, whose parameters are `generator_params`."""
        return Bert(self.generator_config, "masked_lm", self.compute)

    @property
    def models(self) -> tuple[Bert, ...]:
        """Return the models that a forward pass runs, in order."""
        return self.generator, self.discriminator

    def init(self, key: jax.Array) -> Params:
        """Initialise float32 parameters; jit with `out_shardings` to create them sharded."""
        keys = jax.random.split(key)
        discriminator, generator = self.discriminator.init(keys[0]), self.generator.init(keys[1])
        if self.embedding_sharing == "gdes":  # the differences are 0
            discriminator["embeddings"] |= self._tables(generator)
        return self.joined(discriminator, generator)

    def joined(self, discriminator: Params, generator: Params) -> Params:
        """Join the parameters of both into one tree; with `es`, the shared embeddings are the discriminator's.

        With `gdes`, adding the differences again gives the discriminator's tables up to rounding.
        """
        if self.embedding_sharing == "gdes":
            tables = self._tables(generator)
            shared = {name: part for name, part in discriminator["embeddings"].items() if name in tables}
            differences = jax.tree.map(lambda x, y: x - y, shared, tables)
            discriminator = {**discriminator, "embeddings": {**discriminator["embeddings"], **differences}}
        if self.embedding_sharing == "es":
            unshared = {name: part for name, part in generator["embeddings"].items() if name in self._not_shared}
            others = {name: part for name, part in generator.items() if name != "embeddings"}
            generator = others | ({"embeddings": unshared} if unshared else {})
        return {"discriminator": discriminator, "generator": generator}

    def generator_params(self, params: Params) -> Params:
        """Return the generator's parameters as a canonical tree, with the shared embeddings."""
        if self.embedding_sharing != "es":
            generator: Params = params["generator"]
            return generator
        of_both = params["discriminator"]["embeddings"]
        shared = {name: part for name, part in of_both.items() if name not in self._not_shared}
        own_embeddings = params["generator"].get("embeddings", {})
        return {**params["generator"], "embeddings": {**shared, **own_embeddings}}

    def discriminator_params(self, params: Params) -> Params:
        """Return the discriminator's parameters as a canonical tree; the generator's tables get no gradient."""
        discriminator: Params = params["discriminator"]
        if self.embedding_sharing != "gdes":
            return discriminator
        tables = self._tables(params["generator"])
        own_tables = {name: discriminator["embeddings"][name] for name in tables}
        sums = jax.tree.map(lambda x, y: x + jax.lax.stop_gradient(y), own_tables, tables)
        return {**discriminator, "embeddings": {**discriminator["embeddings"], **sums}}

    @property
    def _not_shared(self) -> tuple[str, ...]:
        """Return the parts of the embeddings that `es` does not share: those as wide as the layers."""
        return ("projection", "layer_norm") if self.config.setting("norm_after_projection") else ("projection",)

    @staticmethod
    def _tables(generator: Params) -> Params:
        return {name: part for name, part in generator["embeddings"].items() if name.endswith("_embeddings")}

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
        """Run generator and discriminator; a pure function, to be jitted by the caller.

        No gradient flows through the sampled tokens.

        Args:
            params: the tree of `init`.
            input_ids: `[B, S]` int32 with masked tokens; the next three, and segment_ids, as for `Bert.apply`.
            masked_positions: `[B, P]`, positions that the generator fills.
            masked_labels: `[B, P]`, the original tokens at these positions.
            masked_weights: `[B, P]`, 0 for unused entries of positions and labels.
            sample_key: key of the generator's samples.
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
            self.discriminator_params(params), put(input_ids, samples), attention_mask, token_type_ids, position_ids,
            segment_ids=segment_ids, dropout_key=keys[1],
        )  # fmt: skip
        assert judged.logits is not None
        return ElectraOutput(
            masked_lm_losses=filled.masked_lm_losses,
            masked_lm_correct=filled.masked_lm_correct,
            logits=judged.logits,
            is_replaced=put(jnp.zeros(input_ids.shape, bool), samples != masked_labels),
        )


def generator_config(config: BertConfig, size: float, layers: int = 0) -> BertConfig:
    """Return the architecture of a generator with `size` times the width of the discriminator `config`.

    `size` scales the number of heads (rounded), and with it the hidden size, and the feed-forward layer. The head size
    stays the same (section 3.2).

    Args:
        config: the architecture of the discriminator.
        size: the width of the generator as a fraction of the discriminator's.
        layers: number of layers of the generator; 0 = that of the discriminator.
    """
    heads = max(1, round(size * config.num_attention_heads))
    return config.replace(
        embedding_size=config.embedding_width,
        hidden_size=heads * config.head_size,
        num_hidden_layers=layers or config.num_hidden_layers,
        num_attention_heads=heads,
        intermediate_size=max(1, round(size * config.intermediate_size)),
    )


def _put(positions: jax.Array, x: jax.Array, values: jax.Array) -> jax.Array:
    """Return `x [B, S]` with `values [B, P]` at `positions [B, P]`; values at position S are dropped."""
    # Row by row, so that a batch that is split over devices stays split.
    put: Callable[..., jax.Array] = jax.vmap(lambda row, at, new: row.at[at].set(new, mode="drop"))
    return put(x, positions, values)
