"""Embeddings of the chunks of long documents, each on its own or from one pass over the document (late chunking)."""

import bisect
import dataclasses
import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from bert_jax.data.corpora.sentences import sentence_starts
from bert_jax.errors import InputError, TextError
from bert_jax.inference.base import check_option, positive
from bert_jax.inference.similarity import normalize_vectors
from bert_jax.tasks.embedding.embedder import SentenceEmbedding

Boundary = Literal["tokens", "sentences", "paragraphs"]
BOUNDARIES = ("tokens", "sentences", "paragraphs")
_BLANK_LINE = re.compile(r"\n[^\S\n]*\n\s*")
_WINDOWS = 256  # windows of documents whose token vectors are computed in one call of the model's loop


@dataclasses.dataclass(frozen=True)
class Chunking:
    """How documents are cut into chunks, and how these are embedded.

    Attributes:
        chunk_tokens: maximum number of tokens in a chunk; None = a document is one vector, without chunks.
        chunk_boundary: where a chunk may end: after any token, or after sentences or paragraphs, as many as fit into
            it; a longer one is cut after the last token that fits.
        late_chunking: whether to embed a chunk as the mean of its token vectors from a pass over the whole document,
            instead of by its own text.
        window_overlap: tokens of the window before that are read again, for context, with late chunking of a document
            longer than the model's maximum length; None means an eighth of it.
    """

    chunk_tokens: int | None = None
    chunk_boundary: Boundary = "tokens"
    late_chunking: bool = False
    window_overlap: int | None = None

    def check(self, pooling: Sequence[str]) -> None:
        """Raise InputError when a value is not valid, or late chunking does not fit the poolings of the model."""
        if self.chunk_boundary not in BOUNDARIES:
            raise InputError(f"chunk_boundary: expected {', '.join(BOUNDARIES)}, found {self.chunk_boundary!r}")
        if self.chunk_tokens is None:
            for field in dataclasses.fields(self):
                if getattr(self, field.name) != field.default:
                    raise InputError(f"{field.name}: expected a number of chunk_tokens with it, found none")
            return
        positive("chunk_tokens", self.chunk_tokens)
        if self.late_chunking and tuple(pooling) != ("mean",):
            raise InputError(f"late_chunking: expected a model with mean pooling, found {', '.join(pooling)}")
        if self.window_overlap is not None and not self.late_chunking:
            raise InputError("window_overlap: expected late_chunking with it, found none")
        if self.window_overlap is not None and self.window_overlap < 0:
            raise InputError(f"window_overlap: expected at least 0, found {self.window_overlap}")


class EmbeddedChunks(NamedTuple):
    """Vectors of the chunks of N documents, which have C chunks in all.

    Attributes:
        vectors: float32 `[C, D]`.
        counts: number of chunks of each document, at least 1, int64 `[N]`.
        spans: the range of characters of each chunk in its document, int64 `[C, 2]`.
    """

    vectors: np.ndarray
    counts: np.ndarray
    spans: np.ndarray


class _Document(NamedTuple):
    """A tokenized document: ids and character ranges of its tokens, and the first token of each chunk."""

    prompt_ids: list[int]
    ids: list[int]
    offsets: np.ndarray
    starts: list[int]

    @property
    def spans(self) -> list[tuple[int, int]]:
        """Return the range of characters of each chunk."""
        ends = [*self.starts[1:], len(self.ids)]
        return [(int(self.offsets[a][0]), int(self.offsets[b - 1][1])) if b > a else (0, 0)
                for a, b in zip(self.starts, ends, strict=True)]  # fmt: skip


def embed_chunks(pipe: SentenceEmbedding, texts: Sequence[str], prompt: str, chunking: Chunking) -> EmbeddedChunks:
    """Embed documents in chunks.

    With `late_chunking` the token vectors of a document come from one pass of the model (Günther et al. 2024,
    arXiv:2409.04701, section 4.1), and the vector of a chunk is their mean over the tokens of the chunk, without
    special tokens and the prompt, followed by the layers of the model after its pooling. A document that is longer than
    the model's maximum length is read in windows; each begins with the last `window_overlap` tokens of the
    window before; a token has the vector of the first window that it is in (section 4.2). A document without tokens is
    embedded as a text.

    Args:
        pipe: the model.
        texts: N documents.
        prompt: text to put before each document, or before each chunk that is embedded on its own.
        chunking: sizes and boundaries.

    Raises:
        InputError: an option does not fit the model.
    """
    chunking.check(pipe.model.config.poolings)
    check_option("prompt", prompt)
    documents = _tokenized(pipe, texts, prompt, chunking)
    spans = [document.spans for document in documents]
    counts = np.array([len(each) for each in spans], np.int64)
    if chunking.late_chunking:
        vectors = _late(pipe, documents, chunking)
        empty = [i for i, document in enumerate(documents) if not document.ids]
        if empty:
            firsts = np.cumsum(counts) - counts
            vectors[firsts[empty]] = pipe._embed([texts[i] for i in empty], prompt, None, None, True, False)
    else:
        _check_room(pipe, documents, chunking)
        chunks = [text[start:end] for text, of_text in zip(texts, spans, strict=True) for start, end in of_text]
        vectors = pipe._embed(chunks, prompt, None, None, True, False)
    return EmbeddedChunks(vectors, counts, np.array([span for each in spans for span in each], np.int64))


def _tokenized(pipe: SentenceEmbedding, texts: Sequence[str], prompt: str, chunking: Chunking) -> list[_Document]:
    documents: list[_Document] = []
    for ids, ranges in pipe.tokenizer.segments([prompt + text for text in texts], offsets=True):
        offsets = np.array(ranges, np.int64).reshape(-1, 2) - len(prompt)
        # A token that ends behind the prompt belongs to the document.
        first = int(np.searchsorted(offsets[:, 1], 0, "right")) if prompt else 0
        offsets = np.maximum(offsets[first:], 0)
        text = texts[len(documents)]
        starts = _chunk_starts(text, offsets, chunking.chunk_tokens or 1, chunking.chunk_boundary)
        documents.append(_Document(ids[:first], ids[first:], offsets, starts))
    return documents


def _chunk_starts(text: str, offsets: np.ndarray, size: int, boundary: str) -> list[int]:
    """Return the first token of each chunk; at least one."""
    count, starts = len(offsets), [0]
    if boundary == "tokens":
        return list(range(0, count, size)) or starts
    if boundary == "sentences":
        places = [line.end() for line in re.finditer(r"\n\s*", text)] + sentence_starts(text)
    else:
        places = [match.end() for match in _BLANK_LINE.finditer(text)]
    # The first token that does not end before a boundary, so that no token is cut.
    ends = sorted({*np.searchsorted(offsets[:, 1], sorted(places), "right").tolist(), count} - {0})
    while starts[-1] + size < count:
        end = ends[bisect.bisect_right(ends, starts[-1] + size) - 1]
        starts.append(end if starts[-1] < end <= starts[-1] + size else starts[-1] + size)
    return starts


def _check_room(pipe: SentenceEmbedding, documents: Sequence[_Document], chunking: Chunking) -> None:
    """Raise InputError when the model would cut chunks that are embedded on their own."""
    layout = pipe.tokenizer.layout
    special = len(layout.start) + len(layout.end) + max((len(document.prompt_ids) for document in documents), default=0)
    room = pipe.model.max_length - special
    if (chunking.chunk_tokens or 0) > room:
        raise InputError(
            f"chunk_tokens: expected at most {room} without late_chunking, as the model reads {pipe.model.max_length} "
            f"tokens, found {chunking.chunk_tokens}"
        )


def _late(pipe: SentenceEmbedding, documents: Sequence[_Document], chunking: Chunking) -> np.ndarray:
    """Return the vectors of all chunks by late chunking; those of a document without tokens are not set."""
    chunk_of, first = [], 0  # of each document, the number of the chunk of each of its tokens
    for document in documents:
        of_token = np.zeros(len(document.ids), np.int64)
        of_token[document.starts[1:]] = 1
        chunk_of.append(first + np.cumsum(of_token))
        first += len(document.starts)
    sums = np.zeros((first, pipe.model.config.hidden_size), np.float32)
    windows = [(number, *window) for number, document in enumerate(documents)
               for window in _windows(pipe, document, number, chunking.window_overlap)]  # fmt: skip
    for start in range(0, len(windows), _WINDOWS):
        group = windows[start : start + _WINDOWS]
        inputs = _padded(pipe, [row for _, row, _, _ in group])
        for rows, _, output in pipe._batches(inputs, ("last_hidden_state",)):
            for row, states in zip(rows, np.asarray(output.last_hidden_state, np.float32), strict=True):
                number, _, place, tokens = group[row]
                chunks = chunk_of[number][tokens.start : tokens.stop]
                firsts = np.flatnonzero(np.diff(chunks, prepend=-1))
                sums[chunks[firsts]] += np.add.reduceat(states[place : place + len(tokens)], firsts, axis=0)
    lengths = np.bincount(np.concatenate(chunk_of), minlength=first)
    return _layered(pipe, sums / np.maximum(lengths, 1)[:, None].astype(np.float32))


def _windows(
    pipe: SentenceEmbedding, document: _Document, number: int, overlap: int | None
) -> Iterator[tuple[list[int], int, range]]:
    """Yield the windows of a document: a row of ids, and the first place in it of new tokens, and these tokens."""
    layout, longest = pipe.tokenizer.layout, pipe.model.max_length
    before = [*layout.start, *document.prompt_ids]
    room = longest - len(before) - len(layout.end)
    overlap = longest // 8 if overlap is None else overlap
    if room <= overlap:
        expected = f"expected a window_overlap below {room}, as {longest} tokens are read"
        raise TextError(number, f"{expected}, found {overlap}")
    done = 0
    while done < len(document.ids):
        first = max(0, done - overlap)
        stop = min(first + room, len(document.ids))
        yield [*before, *document.ids[first:stop], *layout.end], len(before) + done - first, range(done, stop)
        done = stop


def _padded(pipe: SentenceEmbedding, rows: Sequence[Sequence[int]]) -> dict[str, np.ndarray]:
    lengths = np.array([len(row) for row in rows])
    attended = np.arange(lengths.max()) < lengths[:, None]
    ids = np.full(attended.shape, pipe.tokenizer.pad_id, np.int32)
    ids[attended] = np.concatenate(rows)
    return {"input_ids": ids, "attention_mask": attended.astype(np.int32)}


def _layered(pipe: SentenceEmbedding, pooled: np.ndarray) -> np.ndarray:
    """Apply the layers after pooling to vectors `[C, D]`."""
    config = pipe.model.config
    if not config.embedding_layers:
        return normalize_vectors(pooled) if config.normalize_embeddings else pooled
    from bert_jax.modeling.pooled_states import embed_pooled

    count = len(pooled)
    rows = 1 << max(count - 1, 0).bit_length()  # a few static sizes, so that few programs are compiled
    padded = np.pad(pooled, ((0, rows - count), (0, 0)))
    embeddings: Any = embed_pooled(pipe.model.bert, pipe.model.params, padded)
    return np.asarray(embeddings, np.float32)[:count]
