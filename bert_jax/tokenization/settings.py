"""Read, check and merge the JSON files beside a vocabulary, as transformers merges them."""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import tokenizers

from bert_jax import storage
from bert_jax.errors import InputError, printable
from bert_jax.model_files import FileKey, check_keys
from bert_jax.model_files.tokenizer import ADDED_TOKEN, SPECIAL_TOKENS_MAP, TOKENIZER_CONFIG
from bert_jax.tokenization.classes import algorithm_of, short_name

ROLES = ("pad", "unk", "cls", "sep", "mask")
WITHOUT_TOKEN_TYPES = ("roberta", "xlmroberta", "mpnet", "distilbert", "modernbert")  # segments are not told apart
NO_TOKEN_TYPES = {"model_input_names": ["input_ids", "attention_mask"]}  # settings of models with one segment
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
MAX_ID = 1 << 22  # the largest vocabularies have a quarter of it
_MAX_TOKEN = 1000  # characters
_BOOLEANS = (
    "do_lower_case", "tokenize_chinese_chars", "add_prefix_space", "trim_offsets", "clean_up_tokenization_spaces",
    "split_special_tokens",
)  # fmt: skip
_FLAGS = ("lstrip", "rstrip", "single_word", "normalized", "special")
_OTHER_ROLES = ("bos_token", "eos_token")
_EXTRA = ("extra_special_tokens", "additional_special_tokens")  # names of transformers 5 and of those before


@dataclasses.dataclass(frozen=True)
class TokenizerFiles:
    """What the files of a directory say, its vocabulary aside.

    Attributes:
        settings: the keys of tokenizer_config.json, those of special_tokens_map.json over them.
        added: tokens beside the model's by the ids that the files give them.
        further: special tokens that the files name without an id, in the order in which they get one.
        algorithm: of `bert_jax.tokenization.classes`, where a class or model type names one.
        explicit: whether a class, rather than a model type, named it.
        family: model type without "-" and "_", "" where none is known.
        rows: of the model's word embedding, where config.json says so.
    """

    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    added: dict[int, tokenizers.AddedToken] = dataclasses.field(default_factory=dict)
    further: tuple[tokenizers.AddedToken, ...] = ()
    algorithm: str | None = None
    explicit: bool = False
    family: str = ""
    rows: int | None = None


def read_files(directory: storage.Path) -> TokenizerFiles:
    """Read the JSON files of a directory that say something about its tokenizer.

    Raises:
        InputError: a file that is not what it should be, a key with a value that it cannot have, or a class of an
            algorithm that is not here.
    """
    config = _read(directory / "config.json")
    settings = _read(directory / "tokenizer_config.json")
    named = [settings.get("tokenizer_class"), config.get("tokenizer_class"), config.get("model_type")]
    named = [name for name in named if isinstance(name, str) and name]
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
        over = _read(directory / "special_tokens_map.json")
        _check(over, SPECIAL_TOKENS_MAP, directory / "special_tokens_map.json")
        _merge_map(settings, over)
        added = _encoder(directory / "added_tokens.json", set(_names(settings)))
    _check_types(settings, where)
    further = tuple(_further_specials(settings, where))
    known = [short_name(name) for name in named if short_name(name) in _CLASSES]
    explicit = bool(settings.get("tokenizer_class") or config.get("tokenizer_class"))
    if explicit and named:  # a config.json of something else may hold any value there
        settings.setdefault("tokenizer_class", named[0])
    elif known:
        settings["tokenizer_class"] = _CLASSES[known[0]]
    if any(name in WITHOUT_TOKEN_TYPES for name in known):
        settings.setdefault("model_input_names", NO_TOKEN_TYPES["model_input_names"])
    rows = config.get("vocab_size")
    rows = rows if isinstance(rows, int) and not isinstance(rows, bool) else None
    return TokenizerFiles(settings, added, further, algorithm, explicit, known[0] if known else "", rows)


def max_length_of(settings: Mapping[str, Any]) -> int | None:
    """Return the longest row in tokens, None where the files say that nobody knows.

    Raises:
        InputError: no number above 0.
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
    """Return the name of the special token of a role; None where the settings do not say it."""
    named = settings.get(f"{role}_token")
    named = named.get("content") if isinstance(named, dict) else named
    return named if isinstance(named, str) and named else None


def named_specials(usual: Mapping[str, str], settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the names of the special tokens by role: as the settings name them, else as is usual.

    A mask_token that is null means that there is none.
    """
    special = {role: named_special(role, settings) or token for role, token in usual.items()}
    if "mask_token" in settings and settings["mask_token"] is None:
        del special["mask"]
    return special


def token_of(value: Any, where: object, special: bool | None = None) -> tokenizers.AddedToken:
    """Return the added token that a string or an object says.

    Args:
        value: a string, or an object with `content`.
        where: names it in messages.
        special: whether it is special, whatever the object says; None: as the object says, and a string is.

    Raises:
        InputError: neither, or a flag that is not a boolean.
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
    """Return an id of a token. Raises InputError when it is not an integer from 0 to four million."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < MAX_ID:
        raise InputError(f"{where}: expected an id from 0 to {MAX_ID - 1}, found {printable(repr(value), 60)}")
    return value


def _check_token(content: str, where: object) -> None:
    if not 0 < len(content) <= _MAX_TOKEN:
        raise InputError(f"{where}: expected a token of 1 to {_MAX_TOKEN} characters, found {len(content)}")


def _read(path: storage.Path) -> dict[str, Any]:
    """The JSON object in a file; nothing where there is no such file."""
    return storage.read_json(path) if path.exists() else {}


def _check(content: dict[str, Any], table: Iterable[FileKey], where: storage.Path) -> None:
    check_keys({key: value for key, value in content.items() if not _is_named_token(key, value)}, table, where)


def _is_named_token(key: str, value: Any) -> bool:
    return key.endswith("_token") and isinstance(value, str)


def _decoder(value: Any, where: storage.Path) -> dict[int, tokenizers.AddedToken]:
    """`added_tokens_decoder`: tokens by id."""
    place = f"{where}: added_tokens_decoder"
    if not isinstance(value, dict):
        raise InputError(f"{place}: expected a map of ids to tokens, found {type(value).__name__}")
    found = {}
    for key, token in value.items():
        number = int(key) if key.isascii() and key.isdigit() and len(key) < 10 else key
        if isinstance(token, str):
            raise InputError(f"{place}: {printable(key, 60)}: expected an object with its content, found a string")
        found[check_id(number, place)] = token_of(token, f"{place}: {printable(key, 60)}")
    return found


def _encoder(path: storage.Path, special: set[str]) -> dict[int, tokenizers.AddedToken]:
    """`added_tokens.json`: ids of tokens, special those that are named elsewhere."""
    found = {}
    for content, i in _read(path).items():
        _check_token(content, path)
        is_special = content in special
        token = tokenizers.AddedToken(content, normalized=not is_special, special=is_special)
        found[check_id(i, f"{path}: {printable(content, 60)}")] = token
    return found


def _merge_map(settings: dict[str, Any], over: dict[str, Any]) -> None:
    """Lets special_tokens_map.json have the last word; its extra tokens come beside those of tokenizer_config.json."""
    for name, value in over.items():
        if name in _EXTRA and isinstance(value, list) and isinstance(settings.get(_EXTRA[0]), list):
            known = settings[_EXTRA[0]]
            settings[_EXTRA[0]] = known + [token for token in value if name == _EXTRA[0] and token not in known]
        elif name in _EXTRA:
            settings.setdefault(_EXTRA[0], value)
        else:
            settings[name] = value


def _further_specials(settings: Mapping[str, Any], where: object) -> Iterator[tokenizers.AddedToken]:
    """Special tokens other than those of `ROLES`: bos and eos, further ones, and those of keys that end in `_token`."""
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
    """Every special token that the settings name."""
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
    listed = isinstance(names, list) and all(isinstance(name, str) for name in names)
    _expect(settings, "model_input_names", listed, "a list of names", where)
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
    """Raises InputError for a value that does not fit; one that is null says nothing, and is dropped."""
    if settings.get(name) is None:
        settings.pop(name, None)
    elif not fits:
        raise InputError(f"{where}: {name}: expected {expected}, found {printable(repr(settings[name]), 60)}")
