"""The families of encoders: each is a file here, or in another package, and `FAMILIES` finds it by name.

A family with Flax modules of its own is a folder: `family.py` is its file. Its config parts that have settings are in
`parts.py`, so that recipes and messages know the settings without importing the family.

A family's file describes its `config.json`, tensor names, sizes and tokenizer, and how to recognise its weights. It is
imported when the family is looked up, so that loading a BERT imports no other family.
"""

import functools
import importlib
import importlib.util
import pkgutil
import re
from collections.abc import Iterator, Mapping
from importlib import metadata

from bert_jax.errors import InputError
from bert_jax.families.base import Family, Json, shown
from bert_jax.model_files.config import OF_OTHER_MODELS, SHARED_BY_FAMILIES
from bert_jax.model_files.keys import FileKey, honoured, unread_keys

ENTRY_POINTS = "bert_jax.families"  # group of the entry points of other packages: name -> `module:FAMILY`
_MACHINERY = ("base", "names")  # modules here that define no family


class _Families(Mapping[str, Family]):
    """The families by name: those of other packages first, then BERT, then the others by file name.

    A lookup imports the file of that name, or all files if it has no such family; iterating imports all files.
    """

    def __init__(self) -> None:
        is_folder_of = {info.name: info.ispkg for info in pkgutil.iter_modules(__path__)}
        names = is_folder_of.keys() - {*_MACHINERY}
        self._folders = {name for name, is_folder in is_folder_of.items() if is_folder}
        self._files = sorted(names, key=lambda name: (name != "bert", name))
        self._of_file: dict[str, dict[str, Family]] = {}  # file -> the families that it defines, once it is imported
        self._added: dict[str, Family] = {}  # families added by `register_family`

    def __getitem__(self, name: str) -> Family:
        first = self._added | self._read(re.sub(r"\W", "_", name))
        return first[name] if name in first else self._all()[name]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and super().__contains__(name)

    def named(self, name: object) -> Family | None:
        """Return the family of a name, such as a value of `config.json`; None if there is none."""
        return self.get(name) if isinstance(name, str) else None

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def __bool__(self) -> bool:
        return True

    def add(self, family: Family) -> None:
        """Add a family of another package, or replace it."""
        if family.name in self._own():
            raise InputError(f"register_family: expected a new name, found {family.name!r}, a family here")
        self._added[family.name] = family

    def of_tokenizer(self, short: str) -> Family | None:
        """Return the family that is called `short`, without "-" and "_", if it has a tokenizer class; else None."""
        file = next((file for file in self._files if file.replace("_", "") == short), None)
        families = self._all() if file is None else self._read(file)
        named = (kind for name, kind in families.items() if re.sub("[-_]", "", name) == short)
        return next((kind for kind in named if kind.tokenizer_class), None)

    def _read(self, file: str) -> dict[str, Family]:
        """Return the families that a file here defines; empty if there is no such file."""
        if file not in self._files:
            return {}
        if file not in self._of_file:
            module = importlib.import_module(f"{__name__}.{file}" + ".family" * (file in self._folders))
            families = (value for value in vars(module).values() if isinstance(value, Family))
            self._of_file[file] = {family.name: family for family in families}
        return self._of_file[file]

    def _own(self) -> dict[str, Family]:
        return {name: family for file in self._files for name, family in self._read(file).items()}

    def _all(self) -> dict[str, Family]:
        return self._added | _of_entry_points() | self._own()


@functools.cache
def _of_entry_points() -> dict[str, Family]:
    return {point.name: _loaded(point) for point in metadata.entry_points(group=ENTRY_POINTS)}


def _loaded(point: metadata.EntryPoint) -> Family:
    """Return the family of an entry point; raises InputError if it is not a `Family`, or has another name."""
    family = point.load()
    if not isinstance(family, Family) or family.name != point.name:
        name = family.name if isinstance(family, Family) else shown(family)
        raise InputError(f"{ENTRY_POINTS}: entry point {point.name!r}: expected the Family of that name, found {name}")
    return family


FAMILIES = _Families()


def register_family(family: Family) -> None:
    """Add a family of your own, which is then read, written, trained and planned like those of this package.

    Args:
        family: the family. It replaces an earlier registered family of the same name.

    Raises:
        InputError: the name is that of a family of this package.
    """
    FAMILIES.add(family)


@functools.cache
def import_parts() -> None:
    """Import the parts of all families, also those of entry points, so that their settings are known."""
    for folder in sorted(FAMILIES._folders):
        if importlib.util.find_spec(name := f"{__name__}.{folder}.parts"):
            importlib.import_module(name)
    _of_entry_points()


def own_keys(family: Family) -> tuple[FileKey, ...]:
    """Return the keys of a family's config.json that not all families have: those of fields, and `file_keys`.

    A field's key has the name of the field as its meaning.
    """
    known = {key.name for key in SHARED_BY_FAMILIES if key.fate == "honoured"} | {key.name for key in family.file_keys}
    fields = {key: field for field, key in (*family.older_keys.items(), *family.keys.items()) if key not in known}
    return (*(honoured(key, field) for key, field in fields.items()), *family.file_keys)


def config_keys(family: str) -> tuple[FileKey, ...]:
    """Return the keys of a family's config.json."""
    keys = own_keys(FAMILIES[family])
    own = {key.name for key in keys}
    return (*(key for key in SHARED_BY_FAMILIES if key.name not in own), *keys)


def keys_of_any_model() -> Iterator[str]:
    """Yield the names of keys of config.json that change the outputs of some model; imports all families."""
    yield from OF_OTHER_MODELS
    for family in FAMILIES.values():
        yield from (key.name for key in own_keys(family) if key.fate != "harmless")


def architectures_of(hf: Json, where: object) -> tuple[str, ...]:
    """Return the Hugging Face classes in a `config.json`. Raises InputError unless they are a list of names."""
    classes = hf.get("architectures")
    if classes is None:
        return ()
    if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
        raise InputError(f"{where}: architectures: expected a list of class names, found {shown(classes)}")
    # BertModel, TFBertModel and FlaxBertModel are the same
    return tuple(re.sub("^(TF|Flax)(?=[A-Z])", "", name) for name in classes)


def family_of(hf: Json, where: object = "config.json") -> str:
    """Return the family of a `config.json`, by model_type, or else by architectures.

    Raises:
        InputError: the family is not known or not given, or model_type and architectures contradict each other.
    """
    stated, classes = hf.get("model_type"), architectures_of(hf, where)
    family_of_type = of_model_type(hf)
    if stated is not None and family_of_type is None:
        from bert_jax.model_files.refused_types import why_refused

        raise InputError(f"{where}: model_type {shown(stated)} is not supported{why_refused(str(stated), FAMILIES)}")
    if family_of_type is not None and (not classes or any(_is_class_of(name, family_of_type) for name in classes)):
        return family_of_type
    of_classes = [family for name in classes for family in FAMILIES if _is_class_of(name, family)]
    if stated is None and not of_classes:
        raise InputError(
            f"{where}: expected a model_type, found none, and architectures {shown(list(classes))} do not imply it"
        )
    if family_of_type is None:
        return next((family for family in of_classes if FAMILIES[family].shows(hf)), of_classes[0])
    # XLM-R is RoBERTa with another vocabulary.
    same = {"roberta", "xlm-roberta"} if family_of_type in ("roberta", "xlm-roberta") else {family_of_type}
    same |= set(FAMILIES[family_of_type].other_model_types)
    if of_classes and not same & set(of_classes):
        raise InputError(f"{where}: model_type is {stated!r}, but architectures are {shown(list(classes))}")
    return family_of_type


def of_model_type(hf: Json) -> str | None:
    """Return the family of the model_type of a `config.json`; None if no family has it, or there is none.

    The family of that name comes first if it knows all keys, and there is no `auto_map`. Otherwise, those come first
    whose `other_model_types` and `shows` accept the file.
    """
    if not isinstance(stated := hf.get("model_type"), str):
        return None
    if stated in FAMILIES and not hf.get("auto_map") and _describes(stated, hf):
        return stated
    others = (name for name, kind in FAMILIES.items() if stated in kind.other_model_types and kind.shows(hf))
    return next(others, stated if stated in FAMILIES else None)


def _describes(family: str, hf: Json) -> bool:
    """Return whether a family knows every key of a `config.json`, and refuses none of the values."""
    keys = config_keys(family)
    refused = any(key.fate == "refused" and hf.get(key.name) not in key.defaults for key in keys)
    return not refused and not unread_keys(hf, keys)


def _is_class_of(name: str, family: str) -> bool:
    """Return whether a class, such as BertForMaskedLM, belongs to a family."""
    return re.fullmatch(f"{FAMILIES[family].classes}((Encoder)?Model|For[A-Z].*|LMHeadModel|LMHead|)", name) is not None
