"""Attention masks, and their forms for the attention backends."""

import dataclasses

import jax
import jax.numpy as jnp

from bert_jax.modeling.positions import Positions

# Added to the scores of masked keys. Finite, so that a row in which all keys are masked is uniform, not NaN.
MASKED = -1e9


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class AttentionMask:
    """An attention mask: a query attends to keys with its id that are within the window or of global tokens.

    Attributes:
        query_ids: `[B, S]` int32; None means that all are 1.
        key_ids: `[B, S]` int32; None means the ids of the queries.
        window: greatest distance between a query and a key; None means no limit.
        global_tokens: positions of the G tokens with global attention, `[B, G]` int32 ascending; unused entries are S.
        is_global: whether a token has global attention, bool `[B, S]`.
    """

    query_ids: jax.Array | None = None
    key_ids: jax.Array | None = None
    window: int | None = dataclasses.field(default=None, metadata={"static": True})
    global_tokens: jax.Array | None = None
    is_global: jax.Array | None = None

    @classmethod
    def of(cls, attention_mask: jax.Array | None, segment_ids: jax.Array | None) -> "AttentionMask":
        """Make a mask from `attention_mask [B, S]` (1 for tokens, 0 for padding) or `segment_ids [B, S]`."""
        if segment_ids is not None:
            return cls(segment_ids, segment_ids)
        return cls(None, None if attention_mask is None else (attention_mask > 0).astype(jnp.int32))

    def bias(self, length: int, at: Positions | None = None) -> jax.Array | None:
        """Return the mask as a float32 bias of scores, of the shape of `seen`; None if nothing is masked."""
        seen = self.seen(length, at)
        return None if seen is None else jnp.where(seen, 0.0, MASKED).astype(jnp.float32)

    def seen(self, length: int, at: Positions | None = None) -> jax.Array | None:
        """Return whether queries attend to keys, bool `[B or 1, 1, 1 or S, S]`; None if nothing is masked.

        For queries at P positions, the shape is `[B or 1, 1, 1 or P, S]`.
        """
        seen = None
        if self.key_ids is not None:
            ids = self.query_ids if self.query_ids is None or at is None else at.of(self.query_ids)
            queries = jnp.int32(1) if ids is None else ids[:, None, :, None]
            seen = queries == self.key_ids[:, None, None, :]
        # A symbolic length (`jax.export`) may be longer than the window.
        if self.window is not None and not (isinstance(length, int) and length - 1 <= self.window):
            place = jnp.arange(length)
            query_places = place[None] if at is None else at.index
            near = (abs(query_places[..., None] - place) <= self.window)[:, None]
            near = near if self.is_global is None else near | self.is_global[:, None, None]
            seen = near if seen is None else seen & near
        return seen

    def global_queries(self, length: int) -> Positions:
        """Return the positions of the global tokens; unused entries are the last position."""
        assert self.global_tokens is not None
        return Positions(jnp.minimum(self.global_tokens, length - 1), length)

    def neighbours(self, x: jax.Array, reach: int) -> list[jax.Array]:
        """Return the states of the tokens from `reach` before each token to `reach` after it: `2 reach + 1` arrays.

        The states of tokens that the mask hides are 0: outside the row, of padding, and of other examples.

        Args:
            x: states `[B, S, D]`.
            reach: the greatest distance.
        """
        length, count = x.shape[1], 2 * reach + 1
        padded = jnp.pad(x, ((0, 0), (reach, reach), (0, 0)))
        neighbours = [jax.lax.slice_in_dim(padded, i, i + length, axis=1) for i in range(count)]
        if self.key_ids is None:
            return neighbours
        queries, keys = self.ids(*x.shape[:2])
        keys = jnp.pad(keys, ((0, 0), (reach, reach)))
        seen = [jax.lax.slice_in_dim(keys, i, i + length, axis=1) == queries for i in range(count)]
        return [jnp.where(shown[..., None], state, 0) for shown, state in zip(seen, neighbours, strict=True)]

    def ids(self, batch: int, length: int) -> tuple[jax.Array, jax.Array]:
        """Return the ids of queries and of keys, both `[B, S]` int32."""
        ones = jnp.ones((batch, length), jnp.int32)
        queries = ones if self.query_ids is None else self.query_ids.astype(jnp.int32)
        keys = queries if self.key_ids is None else self.key_ids.astype(jnp.int32)
        return queries, keys
