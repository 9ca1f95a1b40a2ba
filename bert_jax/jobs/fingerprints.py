"""Fingerprints of a run's data, which are compared when the run is resumed.

Only the content counts: files may be moved, renamed, compressed or written in another format.
"""

import hashlib
import json
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from bert_jax.config import BertConfig
from bert_jax.data.batches import POOLING_MASK
from bert_jax.jobs.base import MODEL_INPUTS, QUERY_INPUTS
from bert_jax.modeling import Params
from bert_jax.tokenization import Tokenizer

if TYPE_CHECKING:
    from bert_jax.data.finetuning.features import Paddable
    from bert_jax.data.pretraining.manifest import Manifest

_ROWS = 4096  # rows padded and hashed at a time
_TEXTS = (*MODEL_INPUTS, *QUERY_INPUTS)  # all other arrays are labels
# Arrays that are not content: row numbers, and masks that follow from the prompts in the recipe.
_NUMBERS = ("example_weights", "documents", "windows", "first_word", POOLING_MASK)
_OF_CLASSES = ("id2label", "label2id", "architectures", "num_labels")  # keys of config.json that `classes` covers


def of_fine_tuning(
    tokenizer: Tokenizer, config: BertConfig, train: "Paddable", dev: "Paddable | None", lengths: tuple[int, ...]
) -> dict[str, Any]:
    """Return the fingerprints of a fine-tuning run.

    Args:
        tokenizer: the tokenizer of the rows.
        config: the architecture, with the names of its classes.
        train, dev: tokenized rows.
        lengths: padded lengths of batches, or the length of packed rows.
    """
    classes = {"classes": list(config.id2label)} if config.id2label else {}
    return classes | {
        "vocabulary": of_tokenizer(tokenizer),
        "model": of_config(config),
        "train": of_rows(train, tokenizer.pad_id),
        "dev": of_rows(dev, tokenizer.pad_id) if dev is not None else None,
        "lengths": list(lengths),
    }


def of_prepared(tokenizer: Tokenizer, config: BertConfig, stages: tuple[tuple[str, ...], ...]) -> dict[str, Any]:
    """Return the fingerprints of a pretraining run, with one or more prepared directories per stage."""
    prepared = []
    for directories in stages:
        from bert_jax.data.pretraining.manifest import Manifest

        parts = [_of_manifest(Manifest.read(directory)) for directory in directories]
        content = parts[0][1] if len(parts) == 1 else _hash(json.dumps([content for _, content in parts]).encode())
        prepared.append({"examples": sum(examples for examples, _ in parts), "content": content})
    return {"vocabulary": of_tokenizer(tokenizer), "model": of_config(config), "prepared": prepared}


def _of_manifest(manifest: "Manifest") -> tuple[int, str]:
    """Return the number of examples of a prepared directory, and a hash of its content."""
    sets = [
        [part.split, part.max_seq_length, part.examples, *((shard.rows, shard.sha256) for shard in part.shards)]
        for part in manifest.sets
    ]
    return sum(part.examples for part in manifest.sets), _hash(json.dumps([manifest.objective, sets]).encode())


def of_tokenizer(tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the size and a hash of a vocabulary."""
    return {"tokens": tokenizer.vocab_size, "content": tokenizer.fingerprint[:32]}


def of_config(config: BertConfig) -> dict[str, Any]:
    """Return the architecture, as in `config.json`."""
    return {key: value for key, value in config.to_hf().items() if key not in _OF_CLASSES}


def of_params(params: Params) -> str:
    """Return a hash of the names and values of parameters."""
    digest = hashlib.blake2b(digest_size=16)
    add_params(digest, params)
    return digest.hexdigest()


def add_params(digest: hashlib.blake2b, params: Params) -> None:
    """Add the names and values of parameters to a hash."""
    for path, array in jax.tree_util.tree_leaves_with_path(params):
        digest.update(jax.tree_util.keystr(path).encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def of_rows(rows: "Paddable", pad_id: int) -> dict[str, Any]:
    """Return hashes of tokenized rows: of inputs and of labels in order, and of both in any order."""
    longest = int(rows.lengths.max())
    texts, labels, either = [], [], []
    for start in range(0, len(rows), _ROWS):
        index = np.arange(start, min(start + _ROWS, len(rows)))
        batch = rows.pad(index, longest, pad_id)
        names = sorted(name for name in batch if name not in _NUMBERS)
        read = [np.ascontiguousarray(batch[name]) for name in names if name in _TEXTS]
        targets = [np.ascontiguousarray(batch[name]) for name in names if name not in _TEXTS]
        for row in range(len(index)):
            parts = [b"".join(array[row].tobytes() for array in arrays) for arrays in (read, targets)]
            texts.append(_digest(parts[0]))
            labels.append(_digest(parts[1]))
            either.append(texts[-1] + labels[-1])
    return {
        "rows": len(rows),
        "texts": _hash(b"".join(texts)),
        "labels": _hash(b"".join(labels)),
        "any_order": _hash(b"".join(sorted(either))),
    }


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def _hash(data: bytes) -> str:
    return _digest(data).hex()
