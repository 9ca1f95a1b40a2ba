"""The parts of Qwen3: attention to earlier tokens alone, with norms of heads, and heads that read the last token."""

import dataclasses

from bert_jax.config.heads import HeadsConfig
from bert_jax.config.positions import RotaryConfig

_MODULES = "bert_jax.families.qwen3.modules"


@dataclasses.dataclass(frozen=True)
class CausalRotaryConfig(RotaryConfig):
    """Rotary positions in attention to earlier tokens alone, with norms of each head's query and key."""

    def attention(self) -> str:
        return f"{_MODULES}.QwenAttention"


@dataclasses.dataclass(frozen=True)
class LastTokenHeadsConfig(HeadsConfig):
    """Heads of decoders: a sequence classifier reads the last token, without a layer of its own."""

    def head(self, name: str) -> str:
        return f"{_MODULES}.LastTokenClassifier" if name == "sequence_classification" else ""
