"""TSDAE: sentence embeddings from texts alone, by a denoising autoencoder (Wang et al. 2021, arXiv:2104.06979).

Some tokens of a text are deleted, the rest is embedded, and a decoder reconstructs the text from that vector. The
parameters are `{"student": tree of the model, "decoder": ...}`; only the student's are saved.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.conversion.load_pretrained import load_pretrained
from bert_jax.data.batches import INPUTS, Batch
from bert_jax.errors import InputError
from bert_jax.jobs.base import Job, Metrics, Task
from bert_jax.modeling import Params
from bert_jax.recipes import Recipe
from bert_jax.storage import PathLike


@dataclasses.dataclass(frozen=True)
class DenoisingTask:
    """The denoising autoencoder; a task of sentence embeddings does the evaluation.

    Attributes:
        task: a SentenceEmbeddingTask.
        deletion: fraction of the tokens that a training step deletes; at least one token of a text remains.
        special_ids: ids of tokens that are never deleted.
    """

    task: Task
    deletion: float
    special_ids: tuple[int, ...] = ()

    @property
    def model(self) -> Any:
        return self.task.model

    def weights(self, batch: Batch) -> dict[str, jax.Array]:
        """Return the number of tokens to reconstruct."""
        return {"tokens": jnp.maximum(_real(batch).sum(), 1.0)}

    def loss(
        self, params: Any, batch: Batch, dropout_key: jax.Array | None, weights: dict[str, jax.Array]
    ) -> tuple[jax.Array, Metrics]:
        """Return the loss and the metrics of a batch or micro-batch (see `bert_jax.jobs.base.Task`)."""
        from bert_jax.modeling.reconstruction import reconstruction_losses  # imports Flax

        keys = (None, None, None) if dropout_key is None else tuple(jax.random.split(dropout_key, 3))
        ids, mask, types = (batch[name][:, 0] for name in INPUTS)  # [B, S]
        kept = mask if keys[0] is None else mask * self._kept(ids, mask, keys[0])
        places = jnp.maximum(jnp.cumsum(kept, axis=1) - 1, 0)  # positions as if the deleted tokens were absent
        vectors = self.model.apply(
            params["student"], ids, kept, types, places, dropout_key=keys[1], output_last_hidden_state=False
        ).sentence_embedding
        losses, right = reconstruction_losses(
            self.model, params["student"], params["decoder"], vectors, ids[:, :-1], ids[:, 1:], keys[2]
        )
        real = _real(batch)
        total, count = (losses * real).sum(), real.sum()
        metrics = {"reconstruction_loss": (total, count), "reconstruction_accuracy": ((right * real).sum(), count)}
        return total / weights["tokens"], metrics

    def predict(self, params: Any, batch: Batch) -> dict[str, jax.Array]:
        return self.task.predict(params["student"], batch)

    def score(self, predictions: list[dict[str, np.ndarray]], batches: list[Batch]) -> dict[str, float]:
        return self.task.score(predictions, batches)

    def _kept(self, ids: jax.Array, mask: jax.Array, key: jax.Array) -> jax.Array:
        """Return 1 for tokens that are not deleted, 0 for others, int32 `[B, S]`."""
        fixed = jnp.isin(ids, jnp.array(self.special_ids)) | (mask == 0)
        fixed |= jnp.arange(ids.shape[1]) < self.model.config.pooling_skip  # tokens of a prompt are never deleted
        draws = jnp.where(fixed, -1.0, jax.random.uniform(key, ids.shape))
        kept: jax.Array = (fixed | (draws >= self.deletion) | (draws == draws.max(1, keepdims=True))).astype(mask.dtype)
        return kept


def _real(batch: Batch) -> jax.Array:
    """Return 1 for tokens to reconstruct: all after the first except padding, `[B, S - 1]`."""
    real: jax.Array = batch["attention_mask"][:, 0, 1:].astype(jnp.float32) * batch["example_weights"][:, None]
    return real


def with_decoder(job: Job, recipe: Recipe) -> Job:
    """Return the training job in which a decoder reconstructs texts from their embeddings.

    The decoder starts from the masked-LM head of `init_from`, if there is one.

    Raises:
        InputError: the model's family has no such decoder, or TSDAE does not support a recipe key.
    """
    wrap, init_params = _wrapped(job, recipe)
    pretrained: Params = {} if job.pretrained is None else {"student": job.pretrained}
    if recipe.init_from:
        loaded = load_pretrained(recipe.init_from, "masked_lm", dequantize=True)
        if not any(name.startswith("mlm/") for name in loaded.missing):
            pretrained["decoder"] = {"mlm": loaded.params["mlm"]}

    def save(directory: PathLike, params: Params) -> None:
        job.save(directory, params["student"])

    return job.with_wrapped_task(wrap, init_params=init_params, pretrained=pretrained or None, save=save)


def _wrapped(of: Job, recipe: Recipe) -> tuple[Callable[[Any], DenoisingTask], Any]:
    from bert_jax.modeling.reconstruction import check_reconstruction, init_decoder  # imports Flax

    for name, value in (("lora.rank", recipe.lora.rank), ("distillation.teacher", recipe.distillation.teacher),
                        ("keep_head", recipe.keep_head), ("quantization.mode", recipe.quantization.mode)):  # fmt: skip
        if value:
            raise InputError(f"config.{name}: expected none for loss 'tsdae', found {value}")
    config = of.task.model.config
    check_reconstruction(config)

    def init_params(key: jax.Array) -> Params:
        return {"student": of.init_params(key), "decoder": init_decoder(config, jax.random.fold_in(key, 1))}

    return lambda task: DenoisingTask(task, recipe.data.deletion, of.tokenizer.special_ids), init_params
