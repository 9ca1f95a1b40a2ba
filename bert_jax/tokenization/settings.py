"""Read, check and merge the JSON files beside a vocabulary, as transformers merges them."""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import tokenizers

from bert_jax import storage
from bert_jax.errors import InputError, printable
from bert_jax.families import FAMILIES
from bert_jax.model_files import FileKey, check_keys
from bert_jax.model_files.tokenizer import ADDED_TOKEN, SPECIAL_TOKENS_MAP, TOKENIZER_CONFIG
from bert_jax.tokenization.classes import algorithm_of, short_name

ROLES = ("pad", "unk", "cls", "sep", "mask")
TOKEN_TYPES = {"model_input_names": ["input_ids", "token_type_ids", "attention_mask"]}
NO_TOKEN_TYPES = {"model_input_names": ["input_ids", "attention_mask"]}  # settings of models with one segment
_LIMIT = 1_000_000  # a model_max_length above this means "no limit"
MAX_ID = 1 << 22  # the largest vocabularies have a quarter of this
_MAX_TOKEN = 1000  # characters
_BOOLEANS = (
    "do_lower_case", "tokenize_chinese_chars", "add_prefix_space", "trim_offsets", "clean_up_tokenization_spaces",
    "split_special_tokens", "split_by_punct", "keep_accents",
)  # fmt: skip
_FLAGS = ("lstrip", "rstrip", "single_word", "normalized", "special")
_OTHER_ROLES = ("bos_token", "eos_token")
_EXTRA = ("extra_special_tokens", "additional_special_tokens")  # keys of transformers 5 and of earlier versions


@dataclasses.dataclass(frozen=True)
class TokenizerFiles:
    """The contents of a tokenizer's JSON files, without its vocabulary.

    Attributes:
        settings: the keys of tokenizer_config.json, overridden by special_tokens_map.json.
        added: tokens outside the vocabulary, by their ids in the files.
        further: special tokens without an id in the files, in the order in which they get ids.
        algorithm: an algorithm of `bert_jax.tokenization.classes`; None = not known.
        explicit: whether a tokenizer class names the algorithm, and not only a model type.
        family: model type without "-" and "_"; "" = not known.
        rows: number of rows in the model's word embedding; None = not known.
        model_type: model_type of config.json; None = there is none.
        either_padding: that of the family.
    """

    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    added: dict[int, tokenizers.AddedToken] = dataclasses.field(default_factory=dict)
    further: tuple[tokenizers.AddedToken, ...] = ()
    algorithm: str | None = None
    explicit: bool = False
    family: str = ""
    rows: int | None = None
    model_type: Any = None
    either_padding: bool = False


def read_files(directory: storage.Path) -> TokenizerFiles:
    """Read the JSON files of a directory that describe its tokenizer.

    Raises:
        InputError: a file is damaged, a key has an invalid value, or the tokenizer class is not supported.
    """
    config = _read(directory / "config.json")
    settings = _read(directory / "tokenizer_config.json")
    named = [settings.get("tokenizer_class"), config.get("tokenizer_class"), config.get("model_type")]
    named = [name for name in named if isinstance(name, str) and name]
    known = [kind for name in named if (kind := FAMILIES.of_tokenizer(short_name(name)))]
    either_padding = any(kind.either_padding for kind in known)
    if either_padding and settings.get("padding_side") == "left":
        del settings["padding_side"]
    try:
        algorithm = algorithm_of(named[:1], (directory / "tokenizer.json").exists())
    except InputError as error:
        raise InputError(f"{directory}: {error}") from None
    _check(settings, TOKENIZER_CONFIG, directory / "tokenizer_config.json")
    if not settings.get(_EXTRA[0]) and _EXTRA[1] in settings:
        settings[_EXTRA[0]] = settings.pop(_EXTRA[1])
    added: dict[int, tokenizers.AddedToken] = {}
    where = directory / "tokenizer_config.json"
    if "added_tokens_decoder" in settings:
        added = _decoder(settings.pop("added_tokens_decoder"), where)
    else:
        special_map = _read(directory / "special_tokens_map.json")
        _check(special_map, SPECIAL_TOKENS_MAP, directory / "special_tokens_map.json")
        _merge_map(settings, special_map)
        added = _encoder(directory / "added_tokens.json", set(_names(settings)))
    _check_types(settings, where)
    further = tuple(_further_specials(settings, where))
    explicit = bool(settings.get("tokenizer_class") or config.get("tokenizer_class"))
    if explicit and named:  # config.json may have any value here
        settings.setdefault("tokenizer_class", named[0])
    elif known:
        settings["tokenizer_class"] = known[0].tokenizer_class
    if any(not kind.token_types for kind in known):
        settings.setdefault("model_input_names", NO_TOKEN_TYPES["model_input_names"])
    rows = config.get("vocab_size")
    rows = rows if isinstance(rows, int) and not isinstance(rows, bool) else None
    family = short_name(known[0].name) if known else ""
    model_type = config.get("model_type")
    return TokenizerFiles(settings, added, further, algorithm, explicit, family, rows, model_type, either_padding)


def max_length_of(settings: Mapping[str, Any]) -> int | None:
    """Return model_max_length in tokens; None if it is missing or means "no limit".

    Raises:
        InputError: it is not a positive integer.
    """
    name = "model_max_length" if settings.get("model_max_length") is not None else "max_len"
    limit = settings.get(name)
    if limit is None:
        return None
    number = isinstance(limit, int | float) and not isinstance(limit, bool)
    if not number or not limit > 0 or (limit < _LIMIT and limit != math.floor(limit)):
        raise InputError(f"{name}: expected a number of tokens above 0, found {printable(repr(limit), 60)}")
    return int(limit) if limit < _LIMIT else None


def named_special(role: str, settings: Mapping[str, Any]) -> str | None:
    """Return the special token of a role in the settings; None if they do not name it."""
    named = settings.get(f"{role}_token")
    named = named.get("content") if isinstance(named, dict) else named
    return named if isinstance(named, str) and named else None


def named_specials(defaults: Mapping[str, str], settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the special tokens by role: from the settings, else from `defaults`.

    If mask_token is null, the tokenizer has no mask token.
    """
    special = {role: named_special(role, settings) or token for role, token in defaults.items()}
    if "mask_token" in settings and settings["mask_token"] is None:
        del special["mask"]
    return special


def token_of(value: Any, where: object, special: bool | None = None) -> tokenizers.AddedToken:
    """Return the added token that a string or an object describes.

    Args:
        value: a string, or an object with `content`.
        where: name of the value in messages.
        special: whether the token is special, overriding the object; None = as in the object; strings are special.

    Raises:
        InputError: the value is neither a string nor such an object, or a flag is not a boolean.
    """
    if isinstance(value, str):
        _check_token(value, where)
        return tokenizers.AddedToken(value, special=special is not False)
    if not isinstance(value, dict) or not isinstance(value.get("content"), str):
        found = printable(repr(value), 60)
        raise InputError(f"{where}: expected a string or an object with its content, found {found}")
    _check_token(value["content"], where)
    check_keys(value, ADDED_TOKEN, where)
    flags = {name: value[name] for name in _FLAGS if value.get(name) is not None}
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            raise InputError(f"{where}: {name}: expected true or false, found {printable(repr(flag), 60)}")
    if special is not None:
        flags["special"] = special
    return tokenizers.AddedToken(value["content"], **flags)


def check_id(value: Any, where: object) -> int:
    """Return a token id. Raises InputError when it is not an integer from 0 to MAX_ID - 1."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < MAX_ID:
        raise InputError(f"{where}: expected an id from 0 to {MAX_ID - 1}, found {printable(repr(value), 60)}")
    return value


def _check_token(content: str, where: object) -> None:
    if not 0 < len(content) <= _MAX_TOKEN:
        raise InputError(f"{where}: expected a token of 1 to {_MAX_TOKEN} characters, found {len(content)}")


def _read(path: storage.Path) -> dict[str, Any]:
    """Read the JSON object in a file; empty if there is no such file."""
    return storage.read_json(path) if path.exists() else {}


def _check(content: dict[str, Any], table: Iterable[FileKey], where: storage.Path) -> None:
    check_keys({key: value for key, value in content.items() if not _is_named_token(key, value)}, table, where, ())


def _is_named_token(key: str, value: Any) -> bool:
    return key.endswith("_token") and isinstance(value, str)


def _decoder(value: Any, where: storage.Path) -> dict[int, tokenizers.AddedToken]:
    """Parse `added_tokens_decoder`: tokens by id."""
    place = f"{where}: added_tokens_decoder"
    if not isinstance(value, dict):
        raise InputError(f"{place}: expected a map of ids to tokens, found {type(value).__name__}")
    tokens = {}
    for key, token in value.items():
        number = int(key) if key.isascii() and key.isdigit() and len(key) < 10 else key
        if isinstance(token, str):
            raise InputError(f"{place}: {printable(key, 60)}: expected an object with its content, found a string")
        tokens[check_id(number, place)] = token_of(token, f"{place}: {printable(key, 60)}")
    return tokens


def _encoder(path: storage.Path, special: set[str]) -> dict[int, tokenizers.AddedToken]:
    """Read `added_tokens.json`: tokens by id; those named in `special` are special."""
    tokens = {}
    for content, i in _read(path).items():
        _check_token(content, path)
        is_special = content in special
        token = tokenizers.AddedToken(content, normalized=not is_special, special=is_special)
        tokens[check_id(i, f"{path}: {printable(content, 60)}")] = token
    return tokens


def _merge_map(settings: dict[str, Any], special_map: dict[str, Any]) -> None:
    """Override settings with special_tokens_map.json; its extra special tokens are added to those of the settings."""
    for name, value in special_map.items():
        if name in _EXTRA and isinstance(value, list) and isinstance(settings.get(_EXTRA[0]), list):
            known = settings[_EXTRA[0]]
            settings[_EXTRA[0]] = known + [token for token in value if name == _EXTRA[0] and token not in known]
        elif name in _EXTRA:
            settings.setdefault(_EXTRA[0], value)
        else:
            settings[name] = value


def _further_specials(settings: Mapping[str, Any], where: object) -> Iterator[tokenizers.AddedToken]:
    """Yield special tokens outside `ROLES`: bos, eos, extra tokens, and those of other keys that end in `_token`."""
    for name in _OTHER_ROLES:
        if settings.get(name) is not None:
            yield token_of(settings[name], f"{where}: {name}", special=True)
    roles = {*_OTHER_ROLES, *(f"{role}_token" for role in ROLES)}
    for name, value in settings.items():
        if _is_named_token(name, value) and name not in roles:
            yield token_of(value, f"{where}: {name}", special=True)
    further = settings.get(_EXTRA[0])
    values = further.items() if isinstance(further, dict) else ((_EXTRA[0], token) for token in further or ())
    for name, value in values:
        yield token_of(value, f"{where}: {name}", special=None if isinstance(value, dict) else True)


def _names(settings: Mapping[str, Any]) -> Iterator[str]:
    """Yield the name of every special token in the settings."""
    further = settings.get(_EXTRA[0]) or ()
    values = [settings.get(name) for name in (*_OTHER_ROLES, *(f"{role}_token" for role in ROLES))]
    if isinstance(further, dict | list):
        values += further.values() if isinstance(further, dict) else further
    for value in values:
        content = value.get("content") if isinstance(value, dict) else value
        if isinstance(content, str):
            yield content


def _check_types(settings: dict[str, Any], where: object) -> None:
    for name in _BOOLEANS:
        _expect(settings, name, isinstance(settings.get(name), bool), "true or false", where)
    accents = settings.get("strip_accents")
    _expect(settings, "strip_accents", isinstance(accents, bool), "true, false or null", where)
    names = settings.get("model_input_names")
    are_names = isinstance(names, list) and all(isinstance(name, str) for name in names)
    _expect(settings, "model_input_names", are_names, "a list of names", where)
    _expect(settings, "truncation_side", settings.get("truncation_side") in ("left", "right"), "left or right", where)
    _expect(settings, "tokenizer_class", isinstance(settings.get("tokenizer_class"), str), "a name", where)
    _expect(settings, _EXTRA[0], isinstance(settings.get(_EXTRA[0]), list | dict), "a list or map of tokens", where)
    for role in ROLES:
        if settings.get(f"{role}_token") is not None:
            token_of(settings[f"{role}_token"], f"{where}: {role}_token", special=True)
    try:
        max_length_of(settings)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _expect(settings: dict[str, Any], name: str, fits: bool, expected: str, where: object) -> None:
    """Raise InputError for an invalid value of a setting; drop a null value."""
    if settings.get(name) is None:
        settings.pop(name, None)
    elif not fits:
        raise InputError(f"{where}: {name}: expected {expected}, found {printable(repr(settings[name]), 60)}")
