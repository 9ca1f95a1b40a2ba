"""Tokenizers of the `sentencepiece` library, from its `*.model` files."""

import dataclasses
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any
from unittest import mock

import sentencepiece
import tokenizers
from google.protobuf import runtime_version
from google.protobuf.message import DecodeError

from bert_jax import storage
from bert_jax.errors import InputError
from bert_jax.storage import PathLike
from bert_jax.tokenization.backends import continuation_pieces
from bert_jax.tokenization.charsmap import check_charsmap
from bert_jax.tokenization.huggingface import named_errors
from bert_jax.tokenization.interface import Encoded, SpecialIds, Tokenizer
from bert_jax.tokenization.layout import RowLayout
from bert_jax.tokenization.saving import saved_settings
from bert_jax.tokenization.settings import TokenizerFiles, max_length_of, named_special

# The generated module rejects a protobuf older than its compiler, though it uses no new features; Apache Beam and
# TensorFlow need older versions.
with mock.patch.object(runtime_version, "ValidateProtobufRuntimeVersion"):
    from sentencepiece import sentencepiece_model_pb2

# Default names of each special token, in order of preference.
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
        settings: settings that override those of `files`; `do_lower_case` lower-cases text before the model's own
            normalisation.
        files: contents of the files beside the model: settings and added tokens.

    Raises:
        InputError: the bytes are not a SentencePiece model, or it has no token for cls, sep, pad or unk.
    """

    def __init__(self, model: bytes, settings: dict[str, Any] | None = None, files: TokenizerFiles | None = None):
        self._model = model
        self._files = files = files or TokenizerFiles()
        self._settings = files.settings | (settings or {})
        self.lowercase = bool(self._settings.get("do_lower_case", False))
        self._proto = sentencepiece_proto(model)
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        except (RuntimeError, TypeError, ValueError):
            raise InputError(f"expected a SentencePiece model, found {len(model)} bytes that are not one") from None
        pieces = [self._processor.id_to_piece(i) for i in range(self._processor.vocab_size())]
        self._num_own = len(pieces)
        added = [files.added[i] for i in sorted(files.added)] + list(files.further)
        self._added = {token.content: token for token in added}
        pieces += [content for content in self._added if content not in set(pieces)]
        special = _special_ids(pieces, self._processor.unk_id(), self._settings)
        super().__init__(
            pieces,
            special,
            continuation_pieces(pieces, None),
            max_length_of(self._settings),
            RowLayout.bert(special.cls, special.sep),
            self._settings.get("truncation_side", "right"),
        )
        self.is_continuation[self._num_own :] = False
        self._roles = {
            role: self.pieces[i] for role, i in dataclasses.asdict(special).items() if i is not None and role != "unk"
        }
        self._hidden_ids = {*self.special_ids, *(self._ids[t.content] for t in self._added.values() if t.special)}
        self._special_pattern = self._pattern()

    def __reduce__(self) -> tuple[type["SentencePieceTokenizer"], tuple[bytes, dict[str, Any], TokenizerFiles]]:
        return SentencePieceTokenizer, (self._model, self._settings, self._files)

    @property
    def saved_files(self) -> tuple[str, ...]:
        return MODEL_FILE, "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"

    @property
    def model(self) -> bytes:
        """Return the bytes of the `*.model` file."""
        return self._model

    @property
    def settings(self) -> dict[str, Any]:
        """Return the settings, as in `tokenizer_config.json`."""
        return dict(self._settings)

    @property
    def added_tokens(self) -> tuple[tokenizers.AddedToken, ...]:
        """Return the tokens outside the model, in the order of their ids."""
        return tuple(self._added.values())

    def encode_batch(self, texts: Sequence[str], parse_special: bool = True) -> list[list[int]]:
        with named_errors(texts):
            if not parse_special or self._settings.get("split_special_tokens"):
                return self._encode([self._lower(text) for text in texts])
            parts = [self._special_pattern.split(text) for text in texts]
            encoded = iter(self._encode([self._lower(part) for split in parts for part in split[::2]]))
            rows = []
            for split in parts:
                row = list(next(encoded))
                for mark in split[1::2]:
                    row.append(self._id_of(mark))
                    row += next(encoded)
                rows.append(row)
            return rows

    def encode_batch_with_offsets(self, texts: Sequence[str]) -> list[Encoded]:
        with named_errors(texts):
            return [self._encode_with_offsets(text) for text in texts]

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = True) -> str:
        runs: list[str | list[int]] = [[]]
        for i in map(int, ids):
            if i not in self._hidden_ids and i < self._num_own:
                runs[-1].append(i)  # type: ignore[union-attr]
            elif i not in self._hidden_ids or not skip_special_tokens:
                runs += [self.pieces[i], []]
        texts = (run if isinstance(run, str) else self._processor.decode(run) for run in runs)
        return " ".join(text for text in texts if text)

    def lowercased(self) -> "SentencePieceTokenizer":
        return SentencePieceTokenizer(self._model, self._settings | {"do_lower_case": True})

    def save(self, directory: PathLike) -> None:
        """Write the model, and for unigram models also a tokenizer.json for transformers."""
        directory = storage.Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        roles = {**self._roles, "unk": self.pieces[self.unk_id]}
        tokens = {f"{role}_token": token for role, token in roles.items()}
        storage.write_atomically(directory / MODEL_FILE, self._model)
        settings = {
            **saved_settings(self._settings, tokens),
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
            "vocab_file": MODEL_FILE,
        }
        if self._added:
            settings["added_tokens_decoder"] = {
                str(self._ids[token.content]): token.__getstate__() for token in self._added.values()
            }
        storage.write_atomically(directory / "tokenizer_config.json", json.dumps(settings, indent=2) + "\n")
        storage.write_atomically(directory / "special_tokens_map.json", json.dumps(tokens, indent=2) + "\n")
        backend = _unigram_backend(self._proto, self, list(self._added.values()))
        if backend is not None:
            storage.write_atomically(directory / "tokenizer.json", backend.to_str(pretty=True))

    def _pattern(self) -> re.Pattern[str]:
        """Return the pattern of special and added tokens, the longest first, with the spaces that they absorb."""
        plain = {token: tokenizers.AddedToken(token) for token in self._roles.values()}
        written = []
        for content, token in sorted({**plain, **self._added}.items(), key=lambda item: -len(item[0])):
            alone = re.escape(content)
            alone = rf"(?<!\w){alone}(?!\w)" if token.single_word else alone
            written.append((r"\s*" if token.lstrip else "") + alone + (r"\s*" if token.rstrip else ""))
        return re.compile("(" + "|".join(written) + ")")

    def _id_of(self, mark: str) -> int:
        """Return the id of a special or added token from its text, which may include absorbed spaces."""
        return self._ids[mark if mark in self._ids else mark.strip()]

    def _encode(self, texts: list[str]) -> list[list[int]]:
        return self._processor.encode(texts, out_type=int) if texts else []

    def _lower(self, text: str) -> str:
        return text.lower() if self.lowercase else text

    def _encode_with_offsets(self, text: str) -> Encoded:
        ids: list[int] = []
        offsets: list[tuple[int, int]] = []
        start = 0
        for part in [text] if self._settings.get("split_special_tokens") else self._special_pattern.split(text):
            if self._special_pattern.fullmatch(part):
                ids.append(self._id_of(part))
                offsets.append((start, start + len(part)))
            else:
                # Lower-case letter by letter and keep the length, so that ranges stay valid ("\u0130".lower() has two
                # characters).
                lowered = "".join(c if len(c.lower()) != 1 else c.lower() for c in part) if self.lowercase else part
                encoded = self._processor.encode(lowered, out_type="offset_mapping")
                ids += encoded["ids"]
                offsets += [_trimmed(part, begin, end, start) for begin, end in encoded["offsets"]]
            start += len(part)
        return ids, offsets


def sentencepiece_proto(model: bytes) -> Any:
    """Parse the bytes of a `*.model` file, and check its normalisation rules, which the libraries do not check.

    Raises:
        InputError: the bytes are not a SentencePiece model, or its normalisation rules are damaged.
    """
    proto = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]
    try:
        proto.ParseFromString(model)
    except DecodeError:
        raise InputError(f"expected a SentencePiece model, found {len(model)} bytes that are not one") from None
    for spec in ("normalizer_spec", "denormalizer_spec"):
        if charsmap := getattr(proto, spec).precompiled_charsmap:
            check_charsmap(charsmap, f"{spec}.precompiled_charsmap")
    return proto


def _unigram_backend(
    proto: Any, tokenizer: SentencePieceTokenizer, added: list[tokenizers.AddedToken]
) -> tokenizers.Tokenizer | None:
    """Return the unigram model as a tokenizer of the `tokenizers` library; None for other types of models."""
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
    backend.add_tokens(added)
    return backend


def _trimmed(text: str, begin: int, end: int, shift: int) -> tuple[int, int]:
    """Return a token's character range without the leading whitespace that SentencePiece includes."""
    while begin < end and text[begin].isspace():
        begin += 1
    return begin + shift, end + shift


def _special_ids(pieces: Sequence[str], unk_id: int, settings: dict[str, Any]) -> SpecialIds:
    ids = {piece: i for i, piece in enumerate(pieces)}
    special_ids = {"unk": unk_id}
    for role, names in _CANDIDATES.items():
        ids_of_role = [ids[name] for name in (named_special(role, settings), *names) if name in ids]
        if ids_of_role:
            special_ids[role] = ids_of_role[0]
        elif role != "mask":
            raise InputError(f"expected a {role} token ({' or '.join(names)}) in the model, found none")
    return SpecialIds(**special_ids)
