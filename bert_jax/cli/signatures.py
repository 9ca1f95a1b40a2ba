"""Flags from the function that a verb calls: its source says their types, defaults, choices and meanings.

The source is parsed and not imported, so that the help of a verb does not wait for JAX.
"""

import argparse
import ast
import contextlib
import functools
import importlib.machinery
import importlib.util
import re
from importlib.abc import InspectLoader
from typing import Any, NamedTuple

from bert_jax.cli.verbs import UnusedParser

# Annotation -> type and metavar of a flag; argparse makes a metavar of None from the flag.
_TYPES: dict[str, tuple[type, str | None]] = {
    "str": (str, None),
    "int": (int, "N"),
    "float": (float, "X"),
    "bool": (bool, None),
    "PathLike": (str, "PATH"),
    "storage.PathLike": (str, "PATH"),
}


class Parameter(NamedTuple):
    """A parameter of a function, or a field of a dataclass.

    Attributes:
        type: str, int, float or bool; None may be a value too.
        metavar: the word for a value in help; None = the name of the flag.
        choices: the values of a `Literal`; None = any value of the type.
        default: the default.
        meaning: its entry in the docstring's section Args or Attributes.
    """

    type: type
    metavar: str | None
    choices: tuple[Any, ...] | None
    default: Any
    meaning: str


class ParameterFlags:
    """Flags of a verb, each of which sets one parameter of a function."""

    def __init__(self, function: str, *names: str, unset: bool = False, **renamed: str) -> None:
        """Choose the parameters.

        Args:
            function: `package.module.function`, `package.module.Class.method`, or a dataclass.
            names: parameters whose flags have their names.
            unset: whether a flag that is not given is None, instead of the parameter's default.
            renamed: name of a flag -> its parameter.
        """
        self._function, self._unset = function, unset
        self._parameter_of = {name: name for name in names} | renamed

    def declare(self, parser: Any) -> None:
        """Declare the flags."""
        if isinstance(parser, UnusedParser):
            return
        known = parameters(self._function)
        for name, parameter in self._parameter_of.items():
            if parameter not in known:
                raise TypeError(f"{self._function}: expected a parameter {parameter!r} with a default, found none")
            _add_flag(parser, _flag(name), known[parameter], self._unset)

    def values(self, args: argparse.Namespace) -> dict[str, Any]:
        """Return the parameters with the values of their flags, without those that are None."""
        values = {parameter: getattr(args, name) for name, parameter in self._parameter_of.items()}
        return {parameter: value for parameter, value in values.items() if value is not None}

    def given(self, args: argparse.Namespace) -> list[str]:
        """Return the flags that are not None."""
        return [_flag(name) for name in self._parameter_of if getattr(args, name) is not None]


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _add_flag(parser: Any, flag: str, parameter: Parameter, unset: bool) -> None:
    default = None if unset else parameter.default
    if parameter.type is bool:
        action = argparse.BooleanOptionalAction if parameter.default else "store_true"
        parser.add_argument(flag, action=action, default=default, help=_help(parameter))
        return
    kind, metavar, choices, _, _ = parameter
    parser.add_argument(flag, type=kind, default=default, choices=choices, metavar=metavar, help=_help(parameter))


def _help(parameter: Parameter) -> str:
    """Return the meaning as the help of a flag, which cannot say None or "" but can be left out."""
    text, default = parameter.meaning.removeprefix("whether to ").rstrip("."), parameter.default
    if parameter.type is float and default is not None:
        default = f"{default:g}"
    if default in (None, "") and (said := re.search(r'[;.] (?:None|"") (?:means|=) ([^;.]+)', text)):
        text, default = text.replace(said[0], ""), said[1]
    if default not in (None, "") and parameter.type is not bool:
        text += f" (default: {default})"
    return text.replace("%", "%%")


@functools.cache
def parameters(function: str) -> dict[str, Parameter]:
    """Return the parameters of a function that have a default and a type that a word of a command line can have.

    Args:
        function: `package.module.function`, `package.module.Class.method`, or a dataclass, whose fields are returned.

    Raises:
        ModuleNotFoundError: there is no such module.
        TypeError: the module does not define the function.
    """
    source, names = _source(function)
    node: Any = (module := ast.parse(source))
    for name in names:
        node = next((child for child in node.body if getattr(child, "name", None) == name), None)
        if node is None:
            raise TypeError(f"{function}: expected a function that its module defines, found none")
    assigned = {ast.unparse(child.targets[0]): child.value for child in module.body if isinstance(child, ast.Assign)}
    meanings, found = _meanings(ast.get_docstring(node) or ""), {}
    for name, annotation, default in _declared(node):
        kind = _type(assigned.get(ast.unparse(annotation), annotation))
        with contextlib.suppress(NameError):  # a default that is computed
            if kind is not None:
                value = _constant(assigned.get(ast.unparse(default), default))
                found[name] = Parameter(*kind, value, meanings.get(name, ""))
    return found


def _source(function: str) -> tuple[str, list[str]]:
    """Return the source of the module of a function, and the names below the module."""
    package, *names = function.split(".")
    spec = importlib.util.find_spec(package)
    while spec and names and spec.submodule_search_locations:
        # As `find_spec` of the full name, but without an import of the packages above.
        path = spec.submodule_search_locations
        if (inner := importlib.machinery.PathFinder.find_spec(f"{spec.name}.{names[0]}", path)) is None:
            break
        spec, names = inner, names[1:]
    if spec is None or not isinstance(spec.loader, InspectLoader) or not (source := spec.loader.get_source(spec.name)):
        raise ModuleNotFoundError(f"{function}: expected a module with source, found none")
    return source, names


def _declared(node: Any) -> list[tuple[str, ast.expr, ast.expr]]:
    """Return the name, type and default of each parameter of a function or field of a class that has them."""
    if isinstance(node, ast.ClassDef):
        fields = (child for child in node.body if isinstance(child, ast.AnnAssign))
        return [(ast.unparse(field.target), field.annotation, field.value) for field in fields if field.value]
    by_place = [*node.args.posonlyargs, *node.args.args]
    defaults = [*zip(by_place[len(by_place) - len(node.args.defaults) :], node.args.defaults, strict=True)]
    defaults += zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
    return [(arg.arg, arg.annotation, default) for arg, default in defaults if arg.annotation and default]


def _constant(expression: ast.expr) -> Any:
    """Return the value of a constant expression, such as `2 << 20`. Raises NameError for one with names."""
    return eval(compile(ast.Expression(expression), "default", "eval"), {"__builtins__": {}})


def _type(annotation: ast.expr) -> tuple[type, str | None, tuple[Any, ...] | None] | None:
    """Return type, metavar and choices of an annotation; None for a type that a command line cannot have."""
    if isinstance(annotation, ast.BinOp) and ast.unparse(annotation.right) == "None":
        return _type(annotation.left)
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Literal":
        values = ast.literal_eval(annotation.slice)
        choices = values if isinstance(values, tuple) else (values,)
        return type(choices[0]), None, choices
    known = _TYPES.get(ast.unparse(annotation))
    return None if known is None else (*known, None)


def _meanings(docstring: str) -> dict[str, str]:
    """Return the name and the description of each entry of a docstring's section Args or Attributes."""
    section = re.search(r"^(?:Args|Attributes):\n((?:[ ]{4}.*\n?|\n)+)", docstring, re.MULTILINE)
    entries = re.split(r"\n(?=[ ]{4}\S)", section[1]) if section else []
    pairs = (entry.partition(":") for entry in entries)
    return {name.strip(): " ".join(meaning.split()) for name, _, meaning in pairs}
