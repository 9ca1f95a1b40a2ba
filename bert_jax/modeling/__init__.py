"""The model; only this package, and the modules of families, use Flax NNX."""

from typing import TYPE_CHECKING

from bert_jax.head_names import HEADS
from bert_jax.lazy import lazy_attributes
from bert_jax.modeling.compute import Compute, resolved_dtype
from bert_jax.modeling.inputs import Inputs, Options
from bert_jax.modeling.models import Bert
from bert_jax.modeling.outputs import BertOutput
from bert_jax.modeling.spec import Params

if TYPE_CHECKING:
    from bert_jax.modeling.electra import Electra
    from bert_jax.modeling.encoder_decoder import EncoderDecoder

__all__ = [
    "HEADS", "Bert", "BertOutput", "Compute", "Electra", "EncoderDecoder", "Inputs", "Options", "Params",
    "resolved_dtype",
]  # fmt: skip

__getattr__, __dir__ = lazy_attributes(
    __name__,
    {"bert_jax.modeling.electra": ("Electra",), "bert_jax.modeling.encoder_decoder": ("EncoderDecoder",)},
)
