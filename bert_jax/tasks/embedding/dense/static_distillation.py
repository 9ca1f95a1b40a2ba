"""Distil static embeddings from an encoder, as model2vec does (https://github.com/MinishLab/model2vec).

Each token of the vocabulary is embedded alone, between the special tokens of a row. A principal component analysis
reduces the vectors, and a weight by the rank of the token, which estimates its frequency by Zipf's law, takes the place
of counts of a corpus (smooth inverse frequency; Arora et al. 2017, section 3).
"""

import dataclasses
import json
import re
from typing import Any

import numpy as np
import tokenizers

from bert_jax import storage
from bert_jax.config import BertConfig
from bert_jax.conversion.text_settings import TextSettings
from bert_jax.errors import InputError, logger
from bert_jax.inference.loading import load_model
from bert_jax.inference.model import PretrainedModel
from bert_jax.tokenization.backends import backend_of
from bert_jax.tokenization.huggingface import BackendTokenizer
from bert_jax.tokenization.settings import NO_TOKEN_TYPES
from bert_jax.tokenization.static_tokenizer import StaticTokenizer, special_tokens

UNUSED_TOKENS = r"\[unused\d+\]"  # BERT's tokens without a meaning
_BATCH = 256  # tokens that are embedded at a time
_log = logger(__name__)


@dataclasses.dataclass(frozen=True)
class StaticDistillation:
    """Options of `distill_static`.

    Attributes:
        dims: number of dimensions of the vectors; 0 = as the encoder's, without a principal component analysis.
        sif: coefficient a of the weights a / (a + p) of a token with estimated frequency p; 0 = no weights.
        remove: regular expression of tokens to leave out of the vocabulary, from their beginning; "" = none.
        dtype: dtype of matrix products of the encoder, as for `from_pretrained`.
    """

    dims: int = 256
    sif: float = 1e-4
    remove: str = UNUSED_TOKENS
    dtype: str = "auto"


def distill_static(path: storage.PathLike, options: StaticDistillation | None = None) -> PretrainedModel:
    """Return static embeddings distilled from an encoder, whose vectors of texts have length 1.

    Args:
        path: a model directory; its encoder is used, whatever its head or pooling.
        options: None = the defaults.

    Raises:
        InputError: the model has no tokenizer that tokenizer.json describes, or an option is out of range.
    """
    options = options or StaticDistillation()
    if options.dims < 0 or not 0 <= options.sif < 1:
        raise InputError(f"expected dims of at least 0 and sif in [0, 1), found {options.dims} and {options.sif}")
    model = load_model(path, "encoder", options.dtype)
    backend, ids = _own_tokens(model.tokenizer, options.remove, path)
    vectors = _principal_components(_embed_tokens(model, ids), options.dims)
    vectors *= zipf_weights(len(vectors), options.sif)[:, None]
    config = BertConfig.named("base", "static_embedding", vocab_size=len(vectors), hidden_size=vectors.shape[1])
    tokenizer = StaticTokenizer(backend, special_tokens(backend), {**NO_TOKEN_TYPES})
    config = config.replace(normalize_embeddings=True, pad_token_id=tokenizer.pad_id, pooler=False)
    params = {"embeddings": {"word_embeddings": {"embedding": vectors.astype(np.float32)}}}
    return PretrainedModel(
        config, "sentence_embedding", params, tokenizer, model.compute,
        max_length=config.max_position_embeddings, settings=TextSettings(),
    )  # fmt: skip


def zipf_weights(count: int, sif: float) -> np.ndarray:
    """Return the weights of tokens by rank, float64 `[count]`: a / (a + p), with p proportional to 1 / (rank + 2).

    Args:
        count: number of tokens, the most frequent first.
        sif: the coefficient a; 0 = all weights are 1.
    """
    if not sif:
        return np.ones(count)
    share = 1 / np.arange(2, count + 2)
    weights: np.ndarray = sif / (sif + share / share.sum())
    return weights


def _own_tokens(tokenizer: Any, remove: str, path: storage.PathLike) -> tuple[tokenizers.Tokenizer, list[int]]:
    """Return a tokenizer with no special tokens but padding and unknown, and the old id of each of its tokens."""
    if not isinstance(tokenizer, BackendTokenizer):
        raise InputError(f"{path}: expected a tokenizer that tokenizer.json describes, found another kind")
    try:
        pattern = re.compile(remove) if remove else None
    except re.error as error:
        raise InputError(f"remove: expected a regular expression, found {remove!r}: {error}") from None
    content = json.loads(tokenizer.backend.to_str())
    part, kept_specials = content["model"], {*special_tokens(tokenizer.backend).items()}
    kept = {name for role, name in kept_specials if role in ("pad", "unk")}
    added = {token["content"] for token in content["added_tokens"]} - kept
    listed = isinstance(part["vocab"], list)  # a unigram model, whose ids are positions
    old = {token: i for i, (token, _) in enumerate(part["vocab"])} if listed else part["vocab"]
    tokens = [token for token in sorted(old, key=old.__getitem__)
              if token not in added and not (pattern and pattern.match(token) and token not in kept)]  # fmt: skip
    if not tokens:
        raise InputError(f"remove: expected an expression that leaves tokens of the vocabulary, found {remove!r}")
    new = {token: i for i, token in enumerate(tokens)}
    if listed:
        part["vocab"] = [part["vocab"][old[token]] for token in tokens]
        if part.get("unk_id") is not None:
            unknown = next(token for token, i in old.items() if i == part["unk_id"])
            part["unk_id"] = new.get(unknown)
    else:
        part["vocab"] = new
    content["added_tokens"] = [
        token | {"id": new[token["content"]]} for token in content["added_tokens"] if token["content"] in new
    ]
    content |= {"post_processor": None, "truncation": None, "padding": None}
    for step in _steps(content.get("pre_tokenizer")):
        if step.get("type") == "ByteLevel":  # so that the first word of a text is a word like the others
            step["add_prefix_space"] = True
    return backend_of(content), [old[token] for token in tokens]


def _steps(pre_tokenizer: Any) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = (pre_tokenizer or {}).get("pretokenizers", [pre_tokenizer] if pre_tokenizer else [])
    return steps


def _embed_tokens(model: PretrainedModel, ids: list[int]) -> np.ndarray:
    """Return the mean of the last hidden state over `[CLS] token [SEP]` for each token, float32 `[V, D]`."""
    assert model.tokenizer is not None
    plain = model.config.replace(pooling="mean", embedding_layers=(), normalize_embeddings=False)
    embedder = dataclasses.replace(model, config=plain, head="sentence_embedding")
    layout, rows = model.tokenizer.layout, np.array(ids, np.int32)[:, None]
    around = [np.tile(np.array(part, np.int32), (len(rows), 1)) for part in (layout.start, layout.end)]
    inputs = np.concatenate([around[0].reshape(len(rows), -1), rows, around[1].reshape(len(rows), -1)], axis=1)
    parts = []
    for start in range(0, len(rows), _BATCH):
        batch = inputs[start : start + _BATCH]
        arrays = {"input_ids": batch, "attention_mask": np.ones_like(batch)}
        output = embedder.begin(arrays, ("sentence_embedding",), rows=_BATCH, length=batch.shape[1])()
        parts.append(np.asarray(output.sentence_embedding, np.float32))
    return np.nan_to_num(np.concatenate(parts))


def _principal_components(vectors: np.ndarray, dims: int) -> np.ndarray:
    """Return the first principal components of vectors `[V, D]`, float64 `[V, dims]`.

    Each has the sign with which its largest value is positive.
    """
    wide = vectors.astype(np.float64)
    if not dims:
        return wide
    if dims > wide.shape[1]:
        _log.warning("dims: the encoder's vectors have %d dimensions, which are kept", wide.shape[1])
        dims = wide.shape[1]
    if dims >= len(wide):
        raise InputError(f"dims: expected fewer than the {len(wide)} tokens of the vocabulary, found {dims}")
    wide -= wide.mean(axis=0)
    _, components = np.linalg.eigh(wide.T @ wide / (len(wide) - 1))
    scores: np.ndarray = wide @ components[:, ::-1][:, :dims]
    scores *= np.sign(scores[np.abs(scores).argmax(axis=0), np.arange(dims)])
    return scores
