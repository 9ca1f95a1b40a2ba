"""Opening a tokenizer from the files that come with a model."""

import json
from typing import Any

import tokenizers
from etils import epath

from bert_jax import files
from bert_jax.errors import InputError
from bert_jax.files import PathLike
from bert_jax.tokenization.huggingface import WORD_PIECE_SPECIALS, BackendTokenizer, word_piece
from bert_jax.tokenization.interface import Tokenizer
from bert_jax.tokenization.sentencepiece import SentencePieceTokenizer

# Names for each special token in files that do not say which it is, the likeliest first.
_SPECIAL_NAMES = {
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<cls>", "<s>"),
    "sep": ("[SEP]", "<sep>", "</s>"),
    "mask": ("[MASK]", "<mask>"),
}


def load_tokenizer(path: PathLike, lowercase: bool | None = None) -> Tokenizer:
    """Returns the tokenizer in a file or directory.

    Args:
        path: `tokenizer.json`, `vocab.txt` (one piece a line), a SentencePiece `*.model`, or a directory that holds one
            of them: the one that `tokenizer_config.json` names as its vocab_file, else taken in the order above. In a
            directory, `tokenizer_config.json` is honoured: do_lower_case, strip_accents, tokenize_chinese_chars,
            model_max_length, names of special tokens.
        lowercase: whether text is lower-cased, whatever the files say. Where nothing says, a vocabulary is taken for
            an uncased one unless some piece other than the bracketed ones holds an ASCII capital.

    Raises:
        InputError: nothing there, or a file that is not what its name says.
    """
    path = epath.Path(path)
    if not path.exists():
        raise InputError(f"{path}: no such file or directory")
    settings: dict[str, Any] = {}
    if path.is_dir():
        settings = _settings(path)
        path = _vocabulary_file(path, settings)
    if lowercase is not None:
        settings["do_lower_case"] = lowercase
    try:
        if path.suffix == ".json":
            return _from_json(files.read_text(path), settings)
        if path.suffix == ".model":
            return SentencePieceTokenizer(path.read_bytes(), settings)
        if path.suffix == ".txt":
            return _from_vocabulary(files.read_text(path), settings)
    except InputError as error:
        raise InputError(str(error) if str(error).startswith(str(path)) else f"{path}: {error}") from None
    raise InputError(f"{path}: expected a vocab.txt, a tokenizer.json, a *.model or a directory with one of them")


def has_tokenizer(directory: PathLike) -> bool:
    """Whether `load_tokenizer` has something to read in `directory`."""
    names = [path.name for path in epath.Path(directory).iterdir()]
    return any(name in ("tokenizer.json", "vocab.txt") or name.endswith(".model") for name in names)


def _vocabulary_file(directory: epath.Path, settings: dict[str, Any]) -> epath.Path:
    for name in (settings.get("vocab_file"), "tokenizer.json", "vocab.txt"):
        if isinstance(name, str) and "/" not in name and (directory / name).exists():
            return directory / name
    models = sorted(p for p in directory.iterdir() if p.suffix == ".model")
    if len(models) != 1:
        names = ", ".join(p.name for p in models) or "none"
        raise InputError(f"{directory}: expected a tokenizer.json, a vocab.txt or one *.model, found {names}")
    return models[0]


def _settings(directory: epath.Path) -> dict[str, Any]:
    """What the directory's JSON files say about its tokenizer."""
    settings: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        if (directory / name).exists():
            settings |= _json_object(files.read_text(directory / name), directory / name)
    return settings


def _json_object(text: str, where: object) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{where}: expected JSON, found {error.msg} at line {error.lineno}") from None
    if not isinstance(value, dict):
        raise InputError(f"{where}: expected a JSON object, found {type(value).__name__}")
    return value


def _from_vocabulary(text: str, settings: dict[str, Any]) -> Tokenizer:
    pieces = text.replace("\r\n", "\n").rstrip("\n").split("\n")
    if pieces == [""]:
        raise InputError("expected one piece a line, found an empty file")
    lowercase = settings.get("do_lower_case")
    limit = settings.get("model_max_length")
    return word_piece(
        pieces,
        lowercase=looks_uncased(pieces) if lowercase is None else bool(lowercase),
        strip_accents=settings.get("strip_accents"),
        chinese_chars=bool(settings.get("tokenize_chinese_chars", True)),
        max_length=limit if isinstance(limit, int) and 0 < limit < 1_000_000 else None,
    )


def looks_uncased(pieces: list[str]) -> bool:
    """Whether no piece, those in brackets aside, holds an ASCII capital."""
    bare = (piece for piece in pieces if not (piece.startswith("[") and piece.endswith("]")))
    return not any("A" <= c <= "Z" for piece in bare for c in piece)


def _from_json(text: str, settings: dict[str, Any]) -> Tokenizer:
    content = _json_object(text, "tokenizer.json")
    if content.get("model", {}).get("type", "WordPiece") == "WordPiece":
        _override_normalizer(content.get("normalizer") or {}, settings)
    try:
        backend = tokenizers.Tokenizer.from_str(json.dumps(content))
    except Exception as error:  # the library raises bare Exception
        raise InputError(f"expected a tokenizer.json of the tokenizers library, found {error}") from None
    special = {role: _special_token(backend, role, settings) for role in WORD_PIECE_SPECIALS}
    backend.add_special_tokens([tokenizers.AddedToken(token, normalized=False) for token in special.values()])
    if backend.decoder is None and isinstance(backend.model, tokenizers.models.WordPiece):
        backend.decoder = tokenizers.decoders.WordPiece()
    return BackendTokenizer(backend, special, settings)


def _override_normalizer(normalizer: dict[str, Any], settings: dict[str, Any]) -> None:
    """Lets `tokenizer_config.json` have the last word on what a BertNormalizer does, as Hugging Face does."""
    for part in normalizer.get("normalizers", [normalizer]):
        if part.get("type") != "BertNormalizer":
            continue
        for ours, theirs in (
            ("do_lower_case", "lowercase"),
            ("strip_accents", "strip_accents"),
            ("tokenize_chinese_chars", "handle_chinese_chars"),
        ):
            if settings.get(ours) is not None:
                part[theirs] = settings[ours]


def _special_token(backend: tokenizers.Tokenizer, role: str, settings: dict[str, Any]) -> str:
    named = settings.get(f"{role}_token")
    named = named.get("content") if isinstance(named, dict) else named
    for token in (named, *_SPECIAL_NAMES[role]):
        if token and backend.token_to_id(token) is not None:
            return token
    names = " or ".join(_SPECIAL_NAMES[role])
    raise InputError(f"expected a {role} token ({names}), found none in a vocabulary of {backend.get_vocab_size()}")
