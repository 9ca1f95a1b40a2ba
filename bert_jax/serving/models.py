"""`ServedModel`: a model directory opened for a server, which tokenizes texts into rows."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from bert_jax import storage
from bert_jax.config import BertConfig
from bert_jax.conversion.text_settings import TextSettings
from bert_jax.errors import InputError
from bert_jax.inference.sparse_vectors import cut_tokens
from bert_jax.serving.batching import Row
from bert_jax.serving.scheduler import Backend
from bert_jax.serving.tasks import TASK_OF_HEAD, ServedTask
from bert_jax.tokenization import Tokenizer


@dataclasses.dataclass(frozen=True, eq=False)
class ServedModel:
    """A model as the routes see it.

    Attributes:
        name: name in requests.
        path: its directory.
        task: its task.
        config: its architecture.
        tokenizer: its tokenizer.
        settings: prompts, activation and other settings from sentence-transformers' files.
        max_length: maximum tokens in an input.
        dtype: dtype of matrix products.
        normalized: whether the backend's embeddings have length 1 already.
        backends: the model on each device.
        query_weights: a weight for each token of the vocabulary, float32 `[V]`, from which queries are embedded without
            the backend; None = they are embedded as documents are.
    """

    name: str
    path: str
    task: ServedTask
    config: BertConfig
    tokenizer: Tokenizer
    settings: TextSettings
    max_length: int
    dtype: str
    normalized: bool
    backends: list[Backend]
    query_weights: np.ndarray | None = None

    def rows(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, truncate: bool = False, prompt: str = ""
    ) -> list[Row]:
        """Tokenize texts or pairs of texts.

        Args:
            texts: N texts.
            pairs: N second texts, or None.
            truncate: whether rows over `max_length` are cut; otherwise they are an error.
            prompt: text to put before each first text.

        Raises:
            InputError: a text is too long, or is not valid Unicode.
        """
        inputs = self.tokenizer(
            [prompt + text for text in texts], pairs, max_length=self.max_length, truncation=truncate
        )
        sizes = inputs["attention_mask"].sum(axis=1).tolist()
        return [
            Row(ids[:size].copy(), types[:size].copy())
            for ids, types, size in zip(inputs["input_ids"], inputs["token_type_ids"], sizes, strict=True)
        ]

    def rows_of_ids(self, texts: Sequence[Sequence[int]], truncate: bool) -> list[Row]:
        """Return the rows of texts that are already tokenized, without special tokens.

        Raises:
            InputError: an id is outside the vocabulary, or a row is too long.
        """
        self._check_ids(texts)
        room = self.max_length - self.tokenizer.layout.num_special(False)
        return [self.row_of_ids(ids) for ids in cut_tokens(self.tokenizer, texts, room, truncate)]

    def query_rows(self, texts: Sequence[str], ids: Sequence[Sequence[int]], truncate: bool, prompt: str) -> list[Row]:
        """Tokenize queries for `query_weights`: without special tokens, and up to the length of queries.

        Args:
            texts: N texts, or none if there are `ids`.
            ids: N texts as token ids.
            truncate: whether longer queries are cut; otherwise they are an error.
            prompt: text to put before each text.

        Raises:
            InputError: a query is too long or not valid Unicode, or an id is outside the vocabulary.
        """
        if texts:
            ids = [encoded for encoded, _ in self.tokenizer.segments([prompt + text for text in texts])]
        else:
            self._check_ids(ids)
        arrays = (
            np.array(each, np.int32) for each in cut_tokens(self.tokenizer, ids, self.settings.query_length, truncate)
        )
        return [Row(array, np.zeros_like(array)) for array in arrays]

    def _check_ids(self, texts: Sequence[Sequence[int]]) -> None:
        """Raise InputError when a token id is outside the vocabulary, or a text has none."""
        vocab_size = self.tokenizer.vocab_size
        for number, ids in enumerate(texts):
            if not ids or min(ids) < 0 or max(ids) >= vocab_size:
                invalid = next((str(i) for i in ids if not 0 <= i < vocab_size), "none")
                raise InputError(f"text {number}: expected token ids 0 to {vocab_size - 1}, found {invalid}")

    def row_of_ids(self, ids: Sequence[int] | np.ndarray) -> Row:
        """Return a row of token ids, with special tokens around them."""
        layout = self.tokenizer.layout
        array = np.array([*layout.start, *ids, *layout.end], np.int32)
        return Row(array, np.zeros_like(array))


def open_jax_model(
    path: str, name: str, task: ServedTask | None, dtype: str, batch_tokens: int | None, batch_invariant: bool = False
) -> ServedModel:
    """Open a model directory for the JAX backend, on all local devices.

    Args:
        path: the directory.
        name: name in requests.
        task: the task; None = the one of the saved head.
        dtype: as for `from_pretrained`.
        batch_tokens: tokens in a full batch; None = chosen for the platform.
        batch_invariant: whether answers must be bitwise independent of other requests.

    Raises:
        InputError: the directory has no model with a tokenizer, or its head has no route.
    """
    import jax

    from bert_jax.conversion.load_pretrained import saved_head
    from bert_jax.inference.loading import load_model
    from bert_jax.inference.pipelines import pipeline
    from bert_jax.serving.jax_backend import JaxBackend

    head = saved_head(path) if task is None else task.head
    if task is None and head not in TASK_OF_HEAD:
        raise InputError(f"{path}: expected a head among {', '.join(TASK_OF_HEAD)}, found {head}")
    task = task or TASK_OF_HEAD[head]
    # A bare encoder embeds with the pooling in the settings of the head `sentence_embedding`.
    loaded = load_model(path, "sentence_embedding" if head == "encoder" else head, dtype)
    if loaded.missing:
        raise InputError(f"{path}: {task.value} needs a trained {task.head} head, found none ({loaded.missing[0]})")
    model = pipeline(task.value, loaded).model
    config, settings = model.config, model.settings
    if task is ServedTask.EMBED:  # the routes normalize, as each request may choose whether to
        model = dataclasses.replace(model, config=config.replace(normalize_embeddings=False))
    assert model.tokenizer is not None
    table = None
    if task is ServedTask.EMBED_SPARSE and config.query_weights:
        table = np.asarray(model.params["query_weights"]["weight"], np.float32)
    devices = jax.local_devices()
    backends: list[Backend] = [JaxBackend(model, task, device, batch_tokens, batch_invariant) for device in devices]
    return ServedModel(name, path, task, config, model.tokenizer, settings, model.max_length, model.compute.dtype,
                       False, backends, table)  # fmt: skip


def model_names(paths: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the name of each model: from `names` if there are any, or else the last part of its path.

    Raises:
        InputError: the number of names is not the number of models, or two models have the same name.
    """
    if names and len(names) != len(paths):
        raise InputError(f"--name: expected one per model or none, found {len(names)} for {len(paths)} models")
    all_names = list(names) or [_last_part(path) for path in paths]
    for name in all_names:
        if all_names.count(name) > 1:
            raise InputError(f"--name: expected a name of its own for each model, found {name!r} twice")
        if not name or "/" in name or not name.isprintable():
            raise InputError(f"--name: expected printable characters without a slash, found {name!r}")
    return all_names


def _last_part(path: str) -> str:
    """Return the last part of a path that names a model: `runs/sst2/model` is `sst2`."""
    parts = [part for part in str(storage.Path(path)).split("/") if part not in ("", ".", "..")]
    if len(parts) > 1 and parts[-1] == "model":
        parts.pop()
    return parts[-1] if parts else "model"
