"""Outputs of a teacher for the training rows, computed once and cached on disk in shards.

    DIR/<fingerprint of teacher and rows>/outputs-00000.npy ...   float32 [rows, ...], in the order of the rows
                                         /manifest.json           written last

The name of the directory is a hash of the teacher and of the rows that it reads, so a cache of another teacher or of
other rows is never used. An interrupted computation resumes after its last complete shard.
"""

import dataclasses
import functools
import hashlib
import io
import json
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from bert_jax import program_cache, storage
from bert_jax.data.batches import TEXT_INPUTS, Batch
from bert_jax.data.finetuning.batching import EvalSource, few_buckets
from bert_jax.data.finetuning.features import Paddable
from bert_jax.errors import InputError, logger
from bert_jax.jobs.distillation.teachers import Teacher
from bert_jax.modeling import Bert, Params

TOKEN_HEAD = "token_classification"  # the head with one output per token
OUTPUTS = "teacher_outputs"  # the name of the outputs in a batch
_SHARD = 4096  # rows per shard, and rows padded and hashed at a time
_log = logger(__name__)


@dataclasses.dataclass(frozen=True, eq=False)
class RowsWithOutputs:
    """Tokenized rows whose batches include the teacher's outputs (see `bert_jax.data.finetuning.features.Packable`).

    Attributes:
        rows: the n rows.
        outputs: float32 `[n, ...]`.
        of_tokens: whether the outputs are per token, `[n, S, C]`.
        name: the name of the outputs in a batch.
    """

    rows: Any
    outputs: np.ndarray
    of_tokens: bool = False
    name: str = OUTPUTS

    @property
    def lengths(self) -> np.ndarray:
        """The numbers of tokens of the rows, int64 `[n]`."""
        return self.rows.lengths

    @property
    def token_fills(self) -> Mapping[str, int]:
        """The padding value of each array of tokens in the rows."""
        return self.rows.token_fills

    def __len__(self) -> int:
        return len(self.rows)

    def pad(self, index: np.ndarray, length: int, pad_id: int) -> Batch:
        """Return the batch of the rows with their outputs `[B, ...]`, 0 where the index is -1."""
        real = (index >= 0).reshape(-1, *[1] * (self.outputs.ndim - 1))
        outputs = np.where(real, self.outputs[index], 0).astype(np.float32)
        if self.of_tokens:
            outputs = _with_length(outputs, length)
        return self.rows.pad(index, length, pad_id) | {self.name: outputs}


@dataclasses.dataclass(frozen=True, eq=False)
class _Part:
    """Rows `start` to `stop` of tokenized rows."""

    rows: Paddable
    start: int
    stop: int

    @property
    def lengths(self) -> np.ndarray:
        return self.rows.lengths[self.start : self.stop]

    def __len__(self) -> int:
        return self.stop - self.start

    def pad(self, index: np.ndarray, length: int, pad_id: int) -> Batch:
        return self.rows.pad(np.where(index >= 0, index + self.start, -1), length, pad_id)


def cached_outputs(
    teacher: Teacher, rows: Paddable, directory: storage.PathLike, batch_size: int, max_length: int
) -> np.ndarray:
    """Return the teacher's outputs for rows, read from the cache or computed and cached.

    On several hosts, the first computes them and all read them, so the directory must be shared.

    Args:
        teacher: a teacher with head `sequence_classification`, `sentence_embedding` or `token_classification`.
        rows: n rows, tokenized for the teacher.
        directory: the cache, local or `gs://`.
        batch_size: rows per forward pass.
        max_length: maximum number of tokens in a row.

    Returns:
        float32 `[n, C]` logits, `[n, K, C]` logits of K pairs in a row, `[n, T, D]` embeddings of T texts, or
        `[n, S, C]` logits of tokens, S the longest row.

    Raises:
        InputError: a file of the cache is damaged.
    """
    home = storage.Path(directory) / _fingerprint(teacher, rows)
    buckets = few_buckets(rows.lengths, max_length)
    params = functools.cache(lambda: jax.tree.map(jax.numpy.asarray, teacher.params))

    def compute(start: int, stop: int) -> np.ndarray:
        source = EvalSource(_Part(rows, start, stop), batch_size, buckets, teacher.tokenizer.pad_id)
        outputs = [np.asarray(_forward(teacher.model, params(), source.batch(i))) for i in range(source.num_batches)]
        if teacher.model.head == TOKEN_HEAD:
            outputs = [_with_length(output, int(rows.lengths.max())) for output in outputs]
        return source.restore(outputs)

    return in_shards(home, len(rows), _SHARD, compute)


def in_shards(home: storage.Path, count: int, size: int, compute: Callable[[int, int], np.ndarray]) -> np.ndarray:
    """Return an array of `count` rows, read from a directory of shards or computed and written there.

    An interrupted computation resumes after the last complete shard. On several hosts, the first computes and all read.

    Args:
        home: the directory, which names what it holds.
        count: number of rows.
        size: number of rows per shard.
        compute: function of (start, stop) that returns these rows.

    Raises:
        InputError: a file is damaged.
    """
    if jax.process_index() == 0 and not (home / "manifest.json").exists():
        _write(home, count, size, compute)
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices("bert_jax: teacher outputs")
    shards = storage.read_json(home / "manifest.json").get("shards")
    if not isinstance(shards, list) or not all(isinstance(name, str) for name in shards):
        raise InputError(f"{home / 'manifest.json'}: expected a list of shards, found none; remove {home}")
    cached = np.concatenate([_read(home / name) for name in shards])
    if len(cached) != count:
        raise InputError(f"{home}: expected outputs for {count:,} rows, found {len(cached):,}; remove the directory")
    return cached


def abstract_outputs(model: Bert, rows: Paddable) -> np.ndarray:
    """Return zeros shaped like a teacher's outputs for rows of one token; a broadcast view, which takes no memory."""
    batch = rows.pad(np.zeros(1, np.int64), 1, 0)
    inputs = _inputs(batch)
    shape = jax.eval_shape(functools.partial(_outputs, model), model.abstract_params(), inputs).shape
    return np.broadcast_to(np.float32(0), (len(rows), *shape[1:]))


def _write(home: storage.Path, count: int, size: int, compute: Callable[[int, int], np.ndarray]) -> None:
    home.mkdir(parents=True, exist_ok=True)
    names = []
    for start in range(0, count, size):
        stop = min(start + size, count)
        path = home / f"outputs-{start // size:05}.npy"
        names.append(path.name)
        if path.exists():
            continue
        content = io.BytesIO()
        np.save(content, compute(start, stop))
        storage.write_atomically(path, content.getvalue())
        _log.info("cached teacher outputs of %s of %s rows in %s", f"{stop:,}", f"{count:,}", home)
    storage.write_atomically(home / "manifest.json", json.dumps({"rows": count, "shards": names}))


def _forward(model: Bert, params: Params, batch: Batch) -> jax.Array:
    return _outputs(model, params, _inputs(batch))


def _inputs(batch: Batch) -> Batch:
    return {name: batch[name] for name in TEXT_INPUTS if name in batch}


@functools.partial(jax.jit, static_argnames="model")
def _outputs(model: Bert, params: Params, inputs: dict[str, jax.Array]) -> jax.Array:
    """Return logits `[B, C]`, `[B, K, C]` of K pairs in a row or `[B, S, C]` of tokens, or embeddings `[B, T, D]`."""
    rows, length = inputs["input_ids"].shape[0], inputs["input_ids"].shape[-1]
    flat: dict[str, Any] = {name: array.reshape(-1, length) for name, array in inputs.items()}
    output = model.apply(params, **flat, output_last_hidden_state=False)
    if model.head == "sentence_embedding":
        assert output.sentence_embedding is not None
        return output.sentence_embedding.reshape(rows, -1, output.sentence_embedding.shape[-1])
    assert output.logits is not None
    return output.logits if inputs["input_ids"].ndim == 2 else output.logits.reshape(rows, -1, output.logits.shape[-1])


def _with_length(outputs: np.ndarray, length: int) -> np.ndarray:
    """Return outputs of tokens `[B, S, C]`, cut or padded with zeros to `[B, length, C]`."""
    return np.pad(outputs[:, :length], ((0, 0), (0, max(0, length - outputs.shape[1])), (0, 0)))


def _read(path: storage.Path) -> np.ndarray:
    try:
        return np.load(io.BytesIO(path.read_bytes()), allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise InputError(f"{path}: expected an array of the teacher's outputs, found {error}; remove the file and "
                         "the manifest beside it") from error  # fmt: skip


def _fingerprint(teacher: Teacher, rows: Paddable) -> str:
    """Return a hash of the teacher, its dtype, this package, and the rows as the teacher reads them."""
    made_by = (teacher.fingerprint, str(teacher.model.compute.dtype), program_cache.fingerprint_of_sources())
    digest = hashlib.blake2b(repr(made_by).encode(), digest_size=12)
    longest = int(rows.lengths.max())
    for start in range(0, len(rows), _SHARD):
        batch = rows.pad(np.arange(start, min(start + _SHARD, len(rows))), longest, teacher.tokenizer.pad_id)
        for array in _inputs(batch).values():
            digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
