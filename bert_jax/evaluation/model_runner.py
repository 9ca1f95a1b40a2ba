"""`ModelRunner`: a fine-tuned model opened to run over files on all devices of this machine."""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bert_jax import sharding, storage
from bert_jax.config import BertConfig
from bert_jax.conversion.load_pretrained import load_pretrained
from bert_jax.conversion.model_tokenizer import open_tokenizer
from bert_jax.conversion.text_settings import NO_SETTINGS, TextSettings
from bert_jax.data.batches import INPUTS, Batch
from bert_jax.data.finetuning.features import Paddable
from bert_jax.errors import InputError
from bert_jax.jobs import setup
from bert_jax.modeling import Compute, Params, resolved_dtype
from bert_jax.tokenization import Tokenizer

if TYPE_CHECKING:
    from bert_jax.reports.attention import Attention

_LARGEST_MAPS = 2**28  # limit of attention weights per sequence: 1 GiB in float32, above BERT-large at 512 tokens


@dataclasses.dataclass(frozen=True, eq=False)
class ModelRunner:
    """An opened model directory.

    Attributes:
        config, params: the config and the parameters of the model.
        tokenizer: the tokenizer of the model.
        compute: dtype, attention backend and platform of the forward pass.
        max_length: maximum sequence length in tokens.
        batch_size: rows of a batch, a multiple of the number of devices.
        mesh: a mesh of all devices.
        settings: prompts, similarity and other settings from sentence-transformers' files.
        prompt: a text put before each text (for a pair, before the first).
    """

    config: BertConfig
    params: Params
    tokenizer: Tokenizer
    compute: Compute
    max_length: int
    batch_size: int
    mesh: Mesh
    settings: TextSettings = NO_SETTINGS
    prompt: str = ""

    def jitted(self, predict: Callable[[Any, Batch], dict[str, jax.Array]]) -> Callable[[Batch], dict[str, np.ndarray]]:
        """Jit `predict` as a function of a batch: rows are split over the devices, parameters are on each."""
        replicated, split = NamedSharding(self.mesh, PartitionSpec()), NamedSharding(self.mesh, sharding.batch_spec())
        params = jax.device_put(self.params, replicated)
        step = jax.jit(predict, in_shardings=(replicated, split), out_shardings=replicated)
        return lambda batch: jax.device_get(step(params, batch))

    def attention(self, head: str, features: Paddable, number: int) -> "Attention | None":
        """Return the attention maps of one sequence; None if they would be too large.

        Args:
            head: the head of the model.
            features: sequences, one per example, or one per text or choice of an example.
            number: the index of the sequence.
        """
        from bert_jax.inference.model import PretrainedModel
        from bert_jax.reports.attention import Attention

        length = int(features.lengths[number])
        if self.config.num_hidden_layers * self.config.num_attention_heads * length**2 > _LARGEST_MAPS:
            return None
        model = PretrainedModel(self.config, head, self.params, self.tokenizer, self.compute, self.max_length)
        batch = features.pad(np.array([number]), length, self.tokenizer.pad_id)
        inputs = {name: batch[name] for name in INPUTS}
        if head == "multiple_choice":
            inputs = {name: array[:, None] for name, array in inputs.items()}  # give each question a single choice
        maps = model.run(inputs, ("attentions",), output_attentions=True).attentions
        assert maps is not None
        return Attention([self.tokenizer.pieces[i] for i in batch["input_ids"][0]], np.concatenate(maps))


def open_runner(
    model_dir: storage.PathLike,
    head: str,
    *,
    batch_size: int = 32,
    max_seq_length: int = 0,
    dtype: Literal["auto", "float32", "bfloat16"] = "auto",
    prompt_name: str | None = None,
    prompt: str | None = None,
    truncate_dim: int | None = None,
) -> ModelRunner:
    """Open a model directory that was saved with `head`.

    Args:
        model_dir: a directory in the Hugging Face layout.
        head: one of `bert_jax.modeling.HEADS`.
        batch_size: rows of a batch; rounded up to a multiple of the number of devices.
        max_seq_length: maximum sequence length in tokens; longer texts are cut or windowed; 0 = the model's own limit.
        dtype: the dtype of matrix products; auto is bfloat16 on accelerators and float32 on CPU.
        prompt_name: for sentence embeddings and cross-encoders, the name of the model's prompt to put before texts;
            None = its default, "" = none.
        prompt: the text of the prompt, instead of a name.
        truncate_dim: for sentence embeddings, the number of leading dimensions to keep; None = as in the model's files.

    Raises:
        InputError: the directory holds a model with another head, or an option does not fit it.
    """
    loaded = load_pretrained(model_dir)
    if loaded.head != head:
        raise InputError(f"{model_dir}: expected a model for {head}, found one for {loaded.head}")
    setup.check_length(max_seq_length, loaded.config, "max_seq_length")
    if max_seq_length and max_seq_length < 4:
        raise InputError(f"max_seq_length: expected at least 4 tokens (or 0), found {max_seq_length}")
    tokenizer = open_tokenizer(loaded)
    positions = loaded.config.max_position_embeddings
    limit = max_seq_length or loaded.settings.longest(positions, tokenizer)
    config, settings = loaded.config, loaded.settings
    text = settings.prompt(prompt_name, prompt)
    if head == "sentence_embedding":
        config = config.replace(pooling_skip=settings.pooling_skip(tokenizer, text, limit))
        settings = dataclasses.replace(settings, truncate_dim=settings.dimension(truncate_dim))
    mesh = sharding.make_mesh()
    parts = sharding.batch_parts(mesh)
    rows = -(-batch_size // parts) * parts
    compute = Compute(dtype=resolved_dtype(dtype))
    return ModelRunner(config, loaded.params, tokenizer, compute, limit, rows, mesh, settings, text)
