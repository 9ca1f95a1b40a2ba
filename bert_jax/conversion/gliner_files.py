"""The files of a GLiNER, and the names of the tensors in them."""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from bert_jax import storage
from bert_jax.config.gliner import GlinerConfig
from bert_jax.conversion.formats.lazy_tensors import Tensors
from bert_jax.families.names import Entry, dense

GLINER_ENCODER = "token_rep_layer.bert_layer.model."  # prefix of the names of a bare encoder in a GLiNER
# Part of the head of a GLiNER -> its name in the files.
_GLINER_PARTS = {
    "start": "span_rep_layer.span_rep_layer.project_start",
    "end": "span_rep_layer.span_rep_layer.project_end",
    "span": "span_rep_layer.span_rep_layer.out_project",
    "type": "prompt_rep_layer",
}
GLINER_NAMES = ("token_rep_layer.projection.", "rnn.lstm.", "span_rep_layer.", "prompt_rep_layer.")  # of the head


class GlinerFiles(NamedTuple):
    """The description of a GLiNER.

    Attributes:
        config: the head and its prompts.
        encoder: the `config.json` of the encoder, without vocab_size and architectures.
        where: path of `gliner_config.json`.
        tokenizer: directory of the tokenizer.
    """

    config: GlinerConfig
    encoder: dict[str, Any]
    where: storage.Path
    tokenizer: storage.Path

    def encoder_tensors(self, tensors: Tensors) -> Tensors:
        """Rename the tensors of the encoder to those of a bare encoder; others keep their names."""
        return {name.removeprefix(GLINER_ENCODER): tensor for name, tensor in tensors.items()}


def gliner_entries(shapes: Mapping[str, tuple[int, ...]]) -> Iterator[Entry]:
    """Yield the entries of the head of a GLiNER.

    Args:
        shapes: canonical path -> shape.
    """
    yield from dense("token_rep_layer.projection", "gliner/projection")
    for ours, theirs in _GLINER_PARTS.items():
        yield from dense(f"{theirs}.0", f"gliner/{ours}/up")
        yield from dense(f"{theirs}.3", f"gliner/{ours}/down")
    layers = {path.split("/")[1] for path in shapes if path.startswith("gliner/lstm_")}
    sides = itertools.product(sorted(layers), (("forward", ""), ("backward", "_reverse")))
    for (layer, (side, ending)), (part, short) in itertools.product(sides, (("input", "ih"), ("recurrent", "hh"))):
        theirs, ours = f"{short}_l{layer.removeprefix('lstm_')}{ending}", f"gliner/{layer}/{side}/{part}"
        yield Entry(f"rnn.lstm.weight_{theirs}", f"{ours}/kernel", transpose=True)
        yield Entry(f"rnn.lstm.bias_{theirs}", f"{ours}/bias")
