"""`ModelSpec`: architecture, head and compute options of a model; `Bert` adds the methods that compute."""

import dataclasses
from typing import Any, Self

from bert_jax.config import BertConfig
from bert_jax.errors import InputError, did_you_mean
from bert_jax.head_names import DECODER_HEAD, GLINER_HEAD, HEADS
from bert_jax.modeling.compute import Compute

Params = dict[str, Any]  # the canonical tree: nested dicts of arrays


@dataclasses.dataclass(frozen=True)
class ModelSpec:
    """A BERT with a head: its architecture, and how it is computed.

    Attributes:
        config: the architecture.
        head: one of `HEADS`, or `decoder`: parameters of a decoder, which `EncoderDecoder` applies.
        compute: compute options.

    Raises:
        InputError: the head is not known, or needs a pooler or `gliner` that `config` lacks.
    """

    config: BertConfig
    head: str = "encoder"
    compute: Compute = dataclasses.field(default_factory=Compute)

    def __post_init__(self) -> None:
        if self.head not in (*HEADS, DECODER_HEAD):
            raise InputError(f"head {self.head!r} is not known{did_you_mean(self.head, HEADS)}")
        if self.config.summary_of(self.head) == "pooler" and not self.config.pooler:
            raise InputError(f"head {self.head!r} needs a pooler, and the model config has pooler=False")
        if self.head == GLINER_HEAD and self.config.gliner is None:
            raise InputError(f"head {self.head!r} needs a model config with gliner, found none")

    @property
    def models(self) -> tuple[Self, ...]:
        """Return the models that a forward pass runs: only this one."""
        return (self,)
