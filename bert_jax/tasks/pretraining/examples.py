"""The masked-LM loss of a saved model on text."""

import itertools
from collections.abc import Iterator

import numpy as np

from bert_jax.conversion.load_pretrained import Loaded, load_pretrained
from bert_jax.conversion.model_tokenizer import open_tokenizer
from bert_jax.data.batches import Batch
from bert_jax.data.corpora.sources import open_corpus
from bert_jax.data.pretraining.masking import Masking, apply_masks
from bert_jax.errors import InputError
from bert_jax.jobs.examples import EXAMPLE_BATCH, Examples, example_length
from bert_jax.modeling import Bert, Compute
from bert_jax.tasks.pretraining.task import PretrainingTask
from bert_jax.tokenization import Tokenizer

_TEXTS = 100_000  # examples are drawn from at most this number of texts


def examples_of_model(loaded: Loaded, data: str, count: int) -> Examples:
    """Return the masked-LM loss of a saved model on texts drawn from a corpus."""
    loaded = load_pretrained(loaded.directory, "masked_lm")
    texts = list(itertools.islice(filter(str.strip, open_corpus(data).texts()), _TEXTS))
    if not texts:
        raise InputError(f"{data}: expected text, found none")
    chosen = np.random.default_rng(0).permutation(len(texts))[:count]
    batches = _masked_batches(open_tokenizer(loaded), [texts[i] for i in sorted(chosen)], example_length(loaded))
    task = PretrainingTask(Bert(loaded.config, "masked_lm", Compute()), majority_id=0, objective="mlm")
    return Examples(task, loaded.params, batches)


def _masked_batches(tokenizer: Tokenizer, texts: list[str], longest: int) -> Iterator[Batch]:
    masking = Masking(tokenizer.vocab_size, tokenizer.mask_id, max_predictions=max(1, round(0.15 * longest)))
    for start in range(0, len(texts), EXAMPLE_BATCH):
        some = texts[start : start + EXAMPLE_BATCH]
        rows = tokenizer(some, max_length=longest, padding="max_length")
        ids, mask = rows["input_ids"], rows["attention_mask"]
        candidates = (mask > 0) & ~np.isin(ids, tokenizer.special_ids)
        keys = masking.keys(np.zeros(len(some), int), np.arange(start, start + len(some)))
        masked = apply_masks(ids, candidates, mask.sum(1), keys, masking)
        yield rows | masked | {"example_weights": (candidates.any(1)).astype(np.float32)}
