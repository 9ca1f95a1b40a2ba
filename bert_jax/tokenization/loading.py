"""Opening a tokenizer from the files that come with a model."""

import json
import re
from typing import Any

import tokenizers

from bert_jax import storage
from bert_jax.errors import InputError
from bert_jax.storage import PathLike
from bert_jax.tokenization.families import (
    MPNET_SPECIALS,
    ROBERTA_SPECIALS,
    WITHOUT_TOKEN_TYPES,
    byte_level_bpe,
    mpnet,
    xlm_roberta,
)
from bert_jax.tokenization.huggingface import NO_TOKEN_TYPES, BackendTokenizer, part_of, word_piece
from bert_jax.tokenization.interface import Tokenizer
from bert_jax.tokenization.layout import layout_of
from bert_jax.tokenization.sentencepiece import SentencePieceTokenizer

# Names for each special token in files that do not say which it is, the likeliest first.
_SPECIAL_NAMES = {
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<cls>", "<s>"),
    "sep": ("[SEP]", "<sep>", "</s>"),
    "mask": ("[MASK]", "<mask>"),
}
# The class that each family's tokenizer has for Hugging Face, where its files do not say so.
_CLASSES = {
    "bert": "BertTokenizer",
    "distilbert": "DistilBertTokenizer",
    "electra": "ElectraTokenizer",
    "modernbert": "PreTrainedTokenizerFast",
    "mpnet": "MPNetTokenizer",
    "roberta": "RobertaTokenizer",
    "xlmroberta": "XLMRobertaTokenizer",
}
_LIMIT = 1_000_000  # what files that know no model_max_length exceed by far


def load_tokenizer(path: PathLike, lowercase: bool | None = None) -> Tokenizer:
    """Returns the tokenizer in a file or directory.

    Args:
        path: `tokenizer.json`, `vocab.txt` (one piece a line), `vocab.json` with `merges.txt` beside it (RoBERTa's), a
            SentencePiece `*.model`, or a directory that holds one of them: the one that `tokenizer_config.json` names
            as its vocab_file, else taken in the order above. In a directory, `tokenizer_config.json` is honoured:
            do_lower_case, strip_accents, tokenize_chinese_chars, add_prefix_space, trim_offsets, model_max_length,
            model_input_names, names of special tokens; and its tokenizer_class, or the model_type of `config.json`,
            tells XLM-R's model from any other and MPNet's `vocab.txt` from BERT's.
        lowercase: whether text is lower-cased, whatever the files say; RoBERTa's, XLM-R's and ModernBERT's never is.
            Where nothing says, a vocabulary is taken for an uncased one unless some piece other than the bracketed
            ones holds an ASCII capital.

    Raises:
        InputError: nothing there, or a file that is not what its name says.
    """
    path = storage.Path(path)
    if not path.exists():
        raise InputError(f"{path}: no such file or directory")
    settings: dict[str, Any] = {}
    family = ""
    if path.is_dir():
        settings = _settings(path)
        family = _family(path, settings)
        path = _vocabulary_file(path, settings)
    if lowercase is not None:
        settings["do_lower_case"] = lowercase
    try:
        return _from_file(path, settings, family)
    except InputError as error:
        raise InputError(str(error) if str(error).startswith(str(path.parent)) else f"{path}: {error}") from None


def has_tokenizer(directory: PathLike) -> bool:
    """Whether `load_tokenizer` has something to read in `directory`."""
    names = [path.name for path in storage.Path(directory).iterdir()]
    return any(name in ("tokenizer.json", "vocab.txt", "vocab.json") or name.endswith(".model") for name in names)


def _from_file(path: storage.Path, settings: dict[str, Any], family: str) -> Tokenizer:
    if path.name.endswith("vocab.json"):
        return _from_merges(path, settings)
    if path.suffix == ".json":
        return _from_json(storage.read_text(path), settings, family)
    if path.suffix == ".model" and family == "xlmroberta":
        special = _named_specials(ROBERTA_SPECIALS, settings)
        return xlm_roberta(path.read_bytes(), special=special, max_length=_max_length(settings))
    if path.suffix == ".model":
        return SentencePieceTokenizer(path.read_bytes(), settings)
    if path.suffix == ".txt":
        return _from_vocabulary(storage.read_text(path), settings, family)
    raise InputError("expected a vocab.txt, a vocab.json, a tokenizer.json, a *.model or a directory with one of them")


def _vocabulary_file(directory: storage.Path, settings: dict[str, Any]) -> storage.Path:
    for name in (settings.get("vocab_file"), "tokenizer.json", "vocab.txt", "vocab.json"):
        if isinstance(name, str) and "/" not in name and (directory / name).exists():
            return directory / name
    models = sorted(p for p in directory.iterdir() if p.suffix == ".model")
    if len(models) != 1:
        names = ", ".join(p.name for p in models) or "none"
        raise InputError(
            f"{directory}: expected a tokenizer.json, a vocab.txt, a vocab.json or one *.model, found {names}"
        )
    return models[0]


def _settings(directory: storage.Path) -> dict[str, Any]:
    """What the directory's JSON files say about its tokenizer."""
    settings: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        if (directory / name).exists():
            settings |= _json_object(storage.read_text(directory / name), directory / name)
    return settings


def _family(directory: storage.Path, settings: dict[str, Any]) -> str:
    """The family of _CLASSES that the directory's files name, or ""; what follows from it goes into `settings`."""
    place = directory / "config.json"
    config = _json_object(storage.read_text(place), place) if place.exists() else {}
    said = (settings.get("tokenizer_class"), config.get("tokenizer_class"), config.get("model_type"))
    named = [re.sub(r"tokenizer(fast)?$|[-_]", "", name.lower()) for name in said if isinstance(name, str)]
    known = [name for name in named if name in _CLASSES]
    if known:
        settings.setdefault("tokenizer_class", _CLASSES[known[0]])
    if any(name in WITHOUT_TOKEN_TYPES for name in known):
        settings.setdefault("model_input_names", NO_TOKEN_TYPES["model_input_names"])
    return known[0] if known else ""


def _json_object(text: str, where: object) -> dict[str, Any]:
    value = storage.parse_json(text, where)
    if not isinstance(value, dict):
        raise InputError(f"{where}: expected a JSON object, found {type(value).__name__}")
    return value


def _from_vocabulary(text: str, settings: dict[str, Any], family: str) -> Tokenizer:
    pieces = text.replace("\r\n", "\n").rstrip("\n").split("\n")
    if pieces == [""]:
        raise InputError("expected one piece a line, found an empty file")
    lowercase = settings.get("do_lower_case")
    options: dict[str, Any] = {
        "lowercase": looks_uncased(pieces) if lowercase is None else bool(lowercase),
        "strip_accents": settings.get("strip_accents"),
        "chinese_chars": bool(settings.get("tokenize_chinese_chars", True)),
        "max_length": _max_length(settings),
    }
    if family == "mpnet" or (not family and set(MPNET_SPECIALS.values()) <= set(pieces)):
        return mpnet(pieces, special=_named_specials(MPNET_SPECIALS, settings), **options)
    return word_piece(pieces, token_types=_has_token_types(settings), **options)


def _from_merges(path: storage.Path, settings: dict[str, Any]) -> Tokenizer:
    """RoBERTa's tokenizer from `vocab.json`, a map of pieces to ids, and the pairs of pieces in `merges.txt`."""
    vocabulary = _json_object(storage.read_text(path), path)
    ids = [i for i in vocabulary.values() if isinstance(i, int) and not isinstance(i, bool)]
    if len(ids) != len(vocabulary) or sorted(ids) != list(range(len(ids))):
        wrong = next((f"{piece!r} as {i!r}" for piece, i in vocabulary.items() if not isinstance(i, int)), None)
        holes = set(range(len(vocabulary))).difference(ids)
        raise InputError(
            f"expected a map of {len(vocabulary)} pieces to the ids 0 to {len(vocabulary) - 1}, found "
            + (wrong or f"none with id {min(holes)}")
        )
    merges_file = path.parent / (path.name.removesuffix("vocab.json") + "merges.txt")
    return byte_level_bpe(
        vocabulary,
        _merges(merges_file),
        special=_named_specials(ROBERTA_SPECIALS, settings),
        add_prefix_space=bool(settings.get("add_prefix_space", False)),
        trim_offsets=bool(settings.get("trim_offsets", True)),
        max_length=_max_length(settings),
    )


def _merges(path: storage.Path) -> list[tuple[str, str]]:
    merges = []
    for number, line in enumerate(storage.read_text(path).split("\n"), 1):
        line = line.removesuffix("\r")
        if not line or line.startswith("#version"):
            continue
        first, _, second = line.partition(" ")
        if not first or not second or " " in second:
            raise InputError(f"{path}: line {number}: expected two pieces with a space between them, found {line!r}")
        merges.append((first, second))
    return merges


def _has_token_types(settings: dict[str, Any]) -> bool:
    return "token_type_ids" in settings.get("model_input_names", ["token_type_ids"])


def _max_length(settings: dict[str, Any]) -> int | None:
    limit = settings.get("model_max_length")
    return limit if isinstance(limit, int) and 0 < limit < _LIMIT else None


def _named_specials(usual: dict[str, str], settings: dict[str, Any]) -> dict[str, str]:
    """The special tokens by role: as the settings name them, else as is usual."""
    return {role: _named(role, settings) or token for role, token in usual.items()}


def _named(role: str, settings: dict[str, Any]) -> str | None:
    named = settings.get(f"{role}_token")
    named = named.get("content") if isinstance(named, dict) else named
    return named if isinstance(named, str) and named else None


def looks_uncased(pieces: list[str]) -> bool:
    """Whether no piece, those in brackets aside, holds an ASCII capital."""
    bare = (piece for piece in pieces if not (piece.startswith("[") and piece.endswith("]")))
    return not any("A" <= c <= "Z" for piece in bare for c in piece)


def _from_json(text: str, settings: dict[str, Any], family: str) -> Tokenizer:
    content = _json_object(text, "tokenizer.json")
    model = content.get("model")
    if isinstance(model, dict) and model.get("type", "WordPiece") == "WordPiece":
        _override_normalizer(content.get("normalizer"), settings)
    if family == "mpnet":  # unlike BERT's
        settings.setdefault("clean_up_tokenization_spaces", False)
    if family == "roberta":
        _override_byte_level(content, settings)
    try:
        backend = tokenizers.Tokenizer.from_str(json.dumps(content))
    except Exception as error:  # the library raises bare Exception
        reason = " ".join(str(error).split())
        raise InputError(f"expected a tokenizer.json of the tokenizers library, found {reason}") from None
    special = _specials_of(backend, settings)
    known = {token.content for token in backend.get_added_tokens_decoder().values() if token.special}
    # A token that is there keeps its own settings, such as the space that RoBERTa's mask takes with it.
    plain = (tokenizers.AddedToken(token, normalized=False) for token in special.values() if token not in known)
    backend.add_special_tokens(list(plain))
    if backend.decoder is None and isinstance(backend.model, tokenizers.models.WordPiece):
        backend.decoder = tokenizers.decoders.WordPiece()
    if layout_of(part_of(backend.post_processor), backend.get_vocab(with_added_tokens=True)) is None:
        _lay_out(backend, special)
    return BackendTokenizer(backend, special, settings)


def _parts_of(part: Any, several: str) -> list[dict[str, Any]]:
    """The parts of a normalizer, pre_tokenizer or post_processor, which may be a sequence of them; none of what the
    library will refuse."""
    parts = part.get(several, [part]) if isinstance(part, dict) else []
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []


def _override_byte_level(content: dict[str, Any], settings: dict[str, Any]) -> None:
    """Lets `tokenizer_config.json` have the last word on the space before a text and on ranges without it, and takes
    from the file what it does not say."""
    parts = [*_parts_of(content.get("pre_tokenizer"), "pretokenizers"),
             *_parts_of(content.get("post_processor"), "processors")]  # fmt: skip
    for part in parts:
        for name in ("add_prefix_space", "trim_offsets"):
            if name in part:
                part[name] = settings.setdefault(name, part[name])


def _override_normalizer(normalizer: Any, settings: dict[str, Any]) -> None:
    """Lets `tokenizer_config.json` have the last word on what a BertNormalizer does, as Hugging Face does."""
    for part in _parts_of(normalizer, "normalizers"):
        if part.get("type") != "BertNormalizer":
            continue
        for ours, theirs in (
            ("do_lower_case", "lowercase"),
            ("strip_accents", "strip_accents"),
            ("tokenize_chinese_chars", "handle_chinese_chars"),
        ):
            if settings.get(ours) is not None:
                part[theirs] = settings[ours]


def _lay_out(backend: tokenizers.Tokenizer, special: dict[str, str]) -> None:
    """Gives a tokenizer that says nothing about rows those of RoBERTa, if its names are RoBERTa's, or else BERT's."""
    first, sep = special["cls"], special["sep"]
    pair = f"{first} $A {sep} {sep} $B {sep}" if first == "<s>" else f"{first} $A {sep} $B:1 {sep}:1"
    rows = tokenizers.processors.TemplateProcessing(
        single=f"{first} $A {sep}",
        pair=pair,
        special_tokens=[(token, backend.token_to_id(token)) for token in (first, sep)],
    )
    other = backend.post_processor
    backend.post_processor = rows if other is None else tokenizers.processors.Sequence([other, rows])


def _specials_of(backend: tokenizers.Tokenizer, settings: dict[str, Any]) -> dict[str, str]:
    """The special tokens by role: as the settings name them, else by their usual names, those that the file declares
    special before pieces that merely have the name (MPNet's vocabulary holds all of BERT's)."""
    declared = {token.content for token in backend.get_added_tokens_decoder().values() if token.special}
    special = {}
    for role, usual in _SPECIAL_NAMES.items():
        likely = (_named(role, settings), *sorted(usual, key=lambda name: name not in declared))
        found = [token for token in likely if token and backend.token_to_id(token) is not None]
        if not found:
            size = backend.get_vocab_size()
            raise InputError(f"expected a {role} token ({' or '.join(usual)}), found none in a vocabulary of {size}")
        special[role] = found[0]
    return special
