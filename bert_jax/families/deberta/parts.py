"""The parts of DeBERTa: disentangled attention, embeddings whose LayerNorm follows their projection, a head."""

import dataclasses
from typing import Any

from bert_jax.config.attention import AttentionConfig
from bert_jax.config.embeddings import FactoredConfig
from bert_jax.config.fields import setting
from bert_jax.config.heads import HeadsConfig
from bert_jax.config.values import ACTIVATION_NAMES
from bert_jax.errors import InputError, printable

_MODULES = "bert_jax.families.deberta.modules"
_TERMS = ("c2p", "p2c")  # content to position, position to content


@dataclasses.dataclass(frozen=True)
class DisentangledConfig(AttentionConfig):
    """Disentangled attention (He et al. 2020, arXiv:2006.03654, section 3.1)."""

    pos_att_type: tuple[str, ...] = setting(
        (), "terms of the scores: c2p (content to position), p2c (position to content), or both; () = plain attention"
    )
    position_buckets: int = setting(
        0, "buckets of a DeBERTa's relative positions on either side; 0 = one for each distance", least=0, shapes=True
    )
    max_relative_positions: int = setting(
        0, "distance at which a DeBERTa clips relative positions; 0 = max_position_embeddings", least=0, shapes=True
    )
    share_att_key: bool = setting(False, "whether a DeBERTa projects positions like queries and keys", shapes=True)
    norm_rel_ebd: bool = setting(False, "whether a DeBERTa's relative positions have a LayerNorm", shapes=True)
    conv_kernel_size: int = setting(
        0, "width of a DeBERTa's convolution beside the first layer, an odd number; 0 = none", least=0, shapes=True
    )
    conv_act: str = setting("tanh", "activation of the convolution", choices=ACTIVATION_NAMES)
    key_bias: bool = setting(True, "whether keys, also of relative positions, have biases if queries and values do")

    def builds(self) -> str:
        return f"{_MODULES}.DisentangledAttention" if self.pos_att_type else super().builds()

    def beside(self) -> tuple[str, ...]:
        parts = {"Disentangled": self.pos_att_type, "Convolving": self.conv_kernel_size}
        return tuple(f"{_MODULES}.{name}" for name, used in parts.items() if used)

    @property
    def name(self) -> str:
        return "pos_att_type" if self.pos_att_type else ""

    @property
    def relative(self) -> bool:
        return bool(self.pos_att_type)

    @property
    def has_bias(self) -> tuple[bool, bool]:
        return self.attention_bias, self.attention_bias and self.key_bias

    def num_relative_embeddings(self, positions: int) -> int:
        return 2 * self.relative_span(positions) if self.pos_att_type else 0

    def relative_span(self, positions: int) -> int:
        """Return the number of distances on either side that have embeddings."""
        return self.position_buckets or self.max_relative_positions or positions

    def check(self, config: Any) -> None:
        super().check(config)
        types, width = self.pos_att_type, self.conv_kernel_size
        if width and width % 2 == 0:
            raise InputError(f"model config: conv_kernel_size: expected 0 or an odd number, found {width}")
        for kind in types:
            if kind not in _TERMS:
                expected = f"{' or '.join(_TERMS)}, or both"
                raise InputError(f"model config: pos_att_type: expected {expected}, found {printable(repr(kind), 60)}")
        if len(set(types)) < len(types):
            raise InputError(f"model config: pos_att_type: expected each term once, found {'|'.join(types)}")
        positions = config.max_position_embeddings
        exact, longest = self.position_buckets // 2, self.max_relative_positions or positions
        if self.position_buckets == 1:
            raise InputError("model config: position_buckets: expected 0 or at least 2, found 1")
        if types and exact and positions - 1 > exact >= longest - 1:
            raise InputError(
                f"model config: max_relative_positions: expected more than {exact + 1} with position_buckets "
                f"{self.position_buckets}, found {longest}"
            )


@dataclasses.dataclass(frozen=True)
class NormedLastConfig(FactoredConfig):
    """Embeddings whose LayerNorm follows their projection, which has no bias."""

    norm_after_projection: bool = setting(True, "whether the LayerNorm follows the projection")

    def builds(self) -> str:
        return f"{_MODULES}.NormedLastEmbeddings" if self.norm_after_projection else super().builds()

    def norm_width(self, hidden_size: int) -> int:
        return hidden_size if self.norm_after_projection else super().norm_width(hidden_size)


@dataclasses.dataclass(frozen=True)
class DebertaHeadsConfig(HeadsConfig):
    """DeBERTa's heads for masked LM and for replaced tokens."""

    legacy: bool = setting(True, "whether the files name the tensors of the masked-LM head like BERT's")
    discriminator_norm: bool = setting(
        False, "whether the head for replaced tokens adds the first token's state to each token's, with a LayerNorm"
    )
