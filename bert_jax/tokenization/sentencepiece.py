"""Tokenizers run by the `sentencepiece` library, from its `*.model` files."""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

import sentencepiece
import tokenizers
from sentencepiece import sentencepiece_model_pb2

from bert_jax import storage
from bert_jax.errors import InputError
from bert_jax.storage import PathLike
from bert_jax.tokenization.huggingface import continuation_pieces
from bert_jax.tokenization.interface import Encoded, SpecialIds, Tokenizer
from bert_jax.tokenization.layout import RowLayout

# Pieces that may stand for each special token, the likeliest first.
_CANDIDATES = {
    "pad": ("<pad>", "[PAD]"),
    "cls": ("[CLS]", "<cls>", "<s>"),
    "sep": ("[SEP]", "<sep>", "</s>"),
    "mask": ("[MASK]", "<mask>"),
}
MODEL_FILE = "spiece.model"


class SentencePieceTokenizer(Tokenizer):
    """A Tokenizer over a SentencePiece model (unigram or BPE).

    Args:
        model: the bytes of a `*.model` file.
        settings: what `tokenizer_config.json` says about it; `do_lower_case` lower-cases text before the model's own
            normalisation.

    Raises:
        InputError: not a SentencePiece model, or one without a piece for [CLS], [SEP], <pad>, [MASK] or unknown.
    """

    def __init__(self, model: bytes, settings: dict[str, Any] | None = None):
        self._model = model
        self._settings = dict(settings or {})
        self.lowercase = bool(self._settings.get("do_lower_case", False))
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        except (RuntimeError, TypeError, ValueError):
            raise InputError(f"expected a SentencePiece model, found {len(model)} bytes that are not one") from None
        pieces = [self._processor.id_to_piece(i) for i in range(self._processor.vocab_size())]
        special = _special_ids(pieces, self._processor.unk_id(), self._settings)
        limit = self._settings.get("model_max_length")
        super().__init__(
            pieces,
            special,
            continuation_pieces(pieces, None),
            int(limit) if isinstance(limit, int) and 0 < limit < 1_000_000 else None,
            RowLayout.bert(special.cls, special.sep),
        )
        written = (self.pieces[i] for i in (self.pad_id, self.cls_id, self.sep_id, self.mask_id))
        self._special_pattern = re.compile("(" + "|".join(map(re.escape, written)) + ")")

    @property
    def saved_files(self) -> tuple[str, ...]:
        return MODEL_FILE, "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"

    def encode_batch(self, texts: Sequence[str], parse_special: bool = True) -> list[list[int]]:
        if not parse_special:
            return self._encode([self._lower(text) for text in texts])
        parts = [self._special_pattern.split(text) for text in texts]
        encoded = iter(self._encode([self._lower(part) for split in parts for part in split[::2]]))
        rows = []
        for split in parts:
            row = next(encoded)
            for mark in split[1::2]:
                row = [*row, self._ids[mark], *next(encoded)]
            rows.append(row)
        return rows

    def encode_batch_with_offsets(self, texts: Sequence[str]) -> list[Encoded]:
        return [self._encode_with_offsets(text) for text in texts]

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = True) -> str:
        runs: list[str | list[int]] = [[]]
        for i in map(int, ids):
            if i not in self.special_ids:
                runs[-1].append(i)  # type: ignore[union-attr]
            elif not skip_special_tokens:
                runs += [self.pieces[i], []]
        texts = (run if isinstance(run, str) else self._processor.decode(run) for run in runs)
        return " ".join(text for text in texts if text)

    def save(self, directory: PathLike) -> None:
        """Writes the model, and for unigram models the tokenizer.json that Hugging Face wants beside it."""
        directory = storage.Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        roles = {"pad": self.pad_id, "unk": self.unk_id, "cls": self.cls_id, "sep": self.sep_id, "mask": self.mask_id}
        tokens = {f"{role}_token": self.pieces[i] for role, i in roles.items()}
        storage.write_atomically(directory / MODEL_FILE, self._model)
        settings = {
            **self._settings,
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
            "vocab_file": MODEL_FILE,
            **tokens,
        }
        storage.write_atomically(directory / "tokenizer_config.json", json.dumps(settings, indent=2) + "\n")
        storage.write_atomically(directory / "special_tokens_map.json", json.dumps(tokens, indent=2) + "\n")
        backend = _unigram_backend(self._model, self)
        if backend is not None:
            storage.write_atomically(directory / "tokenizer.json", backend.to_str(pretty=True))

    def _encode(self, texts: list[str]) -> list[list[int]]:
        return self._processor.encode(texts, out_type=int) if texts else []

    def _lower(self, text: str) -> str:
        return text.lower() if self.lowercase else text

    def _encode_with_offsets(self, text: str) -> Encoded:
        ids: list[int] = []
        offsets: list[tuple[int, int]] = []
        start = 0
        for part in self._special_pattern.split(text):
            if part in self._ids and self._special_pattern.fullmatch(part):
                ids.append(self._ids[part])
                offsets.append((start, start + len(part)))
            else:
                # Lower-casing letter by letter keeps every character in its place ("\u0130".lower() has two).
                lowered = "".join(c if len(c.lower()) != 1 else c.lower() for c in part) if self.lowercase else part
                encoded = self._processor.encode(lowered, out_type="offset_mapping")
                ids += encoded["ids"]
                offsets += [_trimmed(part, begin, end, start) for begin, end in encoded["offsets"]]
            start += len(part)
        return ids, offsets


def _unigram_backend(model: bytes, tokenizer: SentencePieceTokenizer) -> tokenizers.Tokenizer | None:
    """The same unigram model for the `tokenizers` library; None for other kinds, which it has no equal to."""
    proto = sentencepiece_model_pb2.ModelProto.FromString(model)  # type: ignore[attr-defined]
    if proto.trainer_spec.model_type != proto.trainer_spec.UNIGRAM:
        return None
    cls, sep = tokenizer.pieces[tokenizer.cls_id], tokenizer.pieces[tokenizer.sep_id]
    vocabulary = [(piece.piece, piece.score) for piece in proto.pieces]
    backend = tokenizers.Tokenizer(tokenizers.models.Unigram(vocabulary, tokenizer.unk_id))
    charsmap = proto.normalizer_spec.precompiled_charsmap
    backend.normalizer = tokenizers.normalizers.Sequence(
        [
            *([tokenizers.normalizers.Lowercase()] if tokenizer.lowercase else []),
            *([tokenizers.normalizers.Precompiled(charsmap)] if charsmap else []),
            tokenizers.normalizers.Strip(),
            tokenizers.normalizers.Replace(tokenizers.Regex(" {2,}"), " "),
        ]
    )
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    backend.decoder = tokenizers.decoders.Metaspace()
    backend.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"{cls} $A {sep}",
        pair=f"{cls} $A {sep} $B:1 {sep}:1",
        special_tokens=[(cls, tokenizer.cls_id), (sep, tokenizer.sep_id)],
    )
    special = [tokenizers.AddedToken(tokenizer.pieces[i], normalized=False) for i in tokenizer.special_ids]
    backend.add_special_tokens(special)
    return backend


def _trimmed(text: str, begin: int, end: int, shift: int) -> tuple[int, int]:
    """A piece's range without the whitespace that SentencePiece counts to the word after it."""
    while begin < end and text[begin].isspace():
        begin += 1
    return begin + shift, end + shift


def _special_ids(pieces: Sequence[str], unk_id: int, settings: dict[str, Any]) -> SpecialIds:
    ids = {piece: i for i, piece in enumerate(pieces)}
    found = {"unk": unk_id}
    for role, names in _CANDIDATES.items():
        named = settings.get(f"{role}_token")
        named = named.get("content") if isinstance(named, dict) else named
        present = [ids[name] for name in (named, *names) if name in ids]
        if not present:
            raise InputError(f"expected a piece for the {role} token ({' or '.join(names)}), found none of them")
        found[role] = present[0]
    return SpecialIds(**found)
