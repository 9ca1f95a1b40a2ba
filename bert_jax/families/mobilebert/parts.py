"""The parts of MobileBERT: bottlenecks, embeddings of three tokens, and a wide masked-LM head."""

import dataclasses
from typing import Any, Self

from bert_jax.config.embeddings import FactoredConfig
from bert_jax.config.fields import setting
from bert_jax.config.heads import HeadsConfig
from bert_jax.config.layers import LayerConfig
from bert_jax.errors import InputError

_MODULES = "bert_jax.families.mobilebert.modules"


@dataclasses.dataclass(frozen=True)
class BottleneckConfig(LayerConfig):
    """A layer with a bottleneck and several feed-forward blocks (Sun et al. 2020, arXiv:2004.02984, section 3)."""

    intra_bottleneck_size: int = setting(
        0, "width inside the layers of a MobileBERT; 0 = hidden_size, without bottlenecks", least=0, shapes=True
    )
    key_query_shared_bottleneck: bool = setting(
        False, "whether queries and keys of a MobileBERT share a bottleneck of their own", shapes=True
    )
    use_bottleneck_attention: bool = setting(
        False, "whether queries, keys and values of a MobileBERT read the bottleneck of the layer's input", shapes=True
    )
    num_feedforward_networks: int = setting(1, "feed-forward blocks in a layer of a MobileBERT", least=1, shapes=True)

    def builds(self) -> str:
        return f"{_MODULES}.BottleneckLayer"

    def of_other_size(self) -> Self:
        return dataclasses.replace(self, intra_bottleneck_size=0)

    def inner_size(self, hidden_size: int) -> int:
        return self.intra_bottleneck_size or hidden_size

    def value_input_size(self, hidden_size: int) -> int:
        return self.inner_size(hidden_size) if self.use_bottleneck_attention else hidden_size

    @property
    def blocks_before_last(self) -> int:
        return self.num_feedforward_networks - 1

    @property
    def has_bottleneck(self) -> bool:
        return self.intra_bottleneck_size > 0

    def check(self, config: Any) -> None:
        if not (size := self.intra_bottleneck_size):
            return
        others = {"norm_placement pre": config.norms.norm_placement == "pre", "num_experts": any(config.has_experts),
                  config.attention.name: config.attention.name}  # fmt: skip
        for name in (name for name, used in others.items() if used):
            raise InputError(f"model config: intra_bottleneck_size: expected 0 with {name}, found {size}")
        from_bottleneck = self.key_query_shared_bottleneck or self.use_bottleneck_attention
        if not from_bottleneck and size != config.hidden_size:
            raise InputError(
                f"model config: key_query_shared_bottleneck: expected true where use_bottleneck_attention is false and "
                f"intra_bottleneck_size {size} is not hidden_size {config.hidden_size}, found false"
            )


@dataclasses.dataclass(frozen=True)
class ProjectedWordsConfig(FactoredConfig):
    """Word embeddings that are projected before others are added (Sun et al. 2020, arXiv:2004.02984, 3.4)."""

    word_projection: bool = setting(True, "whether words are projected before positions and token types are added")
    trigram_input: bool = setting(
        False, "whether a MobileBERT's embeddings read both neighbouring tokens too", shapes=True
    )

    def builds(self) -> str:
        return f"{_MODULES}.ProjectedWords" if self.word_projection else super().builds()

    def projects(self, hidden_size: int) -> bool:
        return self.trigram_input or super().projects(hidden_size)

    def added_width(self, hidden_size: int) -> int:
        return hidden_size if self.word_projection else super().added_width(hidden_size)

    def check(self, config: Any) -> None:
        if self.trigram_input and not self.word_projection:
            raise InputError("model config: trigram_input: expected false without word_projection, found true")


@dataclasses.dataclass(frozen=True)
class MobileBertHeadsConfig(HeadsConfig):
    """MobileBERT's heads, with a wide masked-LM head."""

    pooler_dense: bool = setting(True, "whether the pooler of a MobileBERT has a dense layer", shapes=True)
    wide_decoder: bool = setting(
        True, "whether the masked-LM head is hidden_size wide; it then adds columns to narrower word embeddings"
    )

    def pooler(self) -> str:
        return super().pooler() if self.pooler_dense else f"{_MODULES}.FirstState"

    def masked_lm(self) -> str:
        return f"{_MODULES}.WideVocabularyProjection" if self.wide_decoder else super().masked_lm()

    def transform_width(self, hidden_size: int, embedding_width: int) -> int:
        return hidden_size if self.wide_decoder else super().transform_width(hidden_size, embedding_width)

    def check(self, config: Any) -> None:
        if self.wide_decoder and config.embedding_width > config.hidden_size:
            raise InputError(
                f"model config: embedding_size: expected at most hidden_size {config.hidden_size}, as the masked-LM "
                f"head only adds columns to those of the word embedding, found {config.embedding_width}"
            )
