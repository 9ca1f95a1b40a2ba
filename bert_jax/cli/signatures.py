"""Make a verb's flags from the source of the function that it calls: types, defaults, choices and meanings.

The source is parsed, not imported, so that the help of a verb does not wait for JAX.
"""

import argparse
import ast
import contextlib
import functools
import importlib.machinery
import importlib.util
import re
from collections.abc import Callable, Iterator
from importlib.abc import InspectLoader
from typing import Any, NamedTuple

from bert_jax.cli.verbs import UnusedParser


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(map(float, text.split(",")))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected numbers, found {text!r}") from None


# Annotation -> type and metavar of a flag; None = argparse derives the metavar from the flag.
_TYPES: dict[str, tuple[Callable[[str], Any], str | None]] = {
    "str": (str, None),
    "int": (int, "N"),
    "float": (float, "X"),
    "bool": (bool, None),
    "PathLike": (str, "PATH"),
    "storage.PathLike": (str, "PATH"),
    "Sequence[str]": (_names, "NAME[,NAME]"),
    "Sequence[float]": (_numbers, "X[,X]"),
}


class Parameter(NamedTuple):
    """A parameter of a function, or a field of a dataclass.

    Attributes:
        type: str, int, float, bool, or a function that parses a list of names; the value may also be None.
        metavar: the word for a value in help; None = the name of the flag.
        choices: the values of a `Literal`; None = any value of the type.
        default: the default.
        meaning: its entry in the docstring's section Args or Attributes.
    """

    type: Callable[[str], Any]
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
            names: parameters whose flags have the same name.
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
            add_flag(parser, name, known[parameter], self._unset)

    def values(self, args: argparse.Namespace) -> dict[str, Any]:
        """Return parameter -> value of its flag, without flags that are None."""
        values = {parameter: getattr(args, name) for name, parameter in self._parameter_of.items()}
        return {parameter: value for parameter, value in values.items() if value is not None}

    def flags_set(self, args: argparse.Namespace) -> list[str]:
        """Return the flags that are not None."""
        return [flag_of(name) for name in self._parameter_of if getattr(args, name) is not None]


def flag_of(name: str) -> str:
    """Return the flag of a parameter."""
    return f"--{name.replace('_', '-')}"


def add_flag(parser: Any, name: str, parameter: Parameter, unset: bool) -> None:
    """Declare the flag of a parameter; `unset` means the same as in `ParameterFlags`."""
    flag = flag_of(name)
    default = None if unset else parameter.default
    if parameter.type is bool:
        action = argparse.BooleanOptionalAction if parameter.default else "store_true"
        parser.add_argument(flag, action=action, default=default, help=help_of(parameter))
        return
    kind, metavar, choices, _, _ = parameter
    parser.add_argument(flag, type=kind, default=default, choices=choices, metavar=metavar, help=help_of(parameter))


def help_of(parameter: Parameter) -> str:
    """Return the help of a flag: its meaning and default; for None, "" or (), what the docstring says they mean."""
    text, default = parameter.meaning.removeprefix("whether to ").rstrip("."), parameter.default
    if parameter.type is float and default is not None:
        default = f"{default:g}"
    if default in (None, "", ()) and (stated := re.search(r'[;.] (?:None|""|\(\)) (?:means|=) ([^;.]+)', text)):
        text, default = text.replace(stated[0], ""), stated[1]
    if default not in (None, "", ()) and parameter.type is not bool:
        text += f" (default: {default})"
    return text.replace("%", "%%")


@functools.cache
def parameters(function: str) -> dict[str, Parameter]:
    """Return the parameters of a function that have a default and a type that one command-line word can express.

    Args:
        function: `package.module.function`, `package.module.Class.method`, a dataclass (for its fields), or another
            class (for the parameters of its constructor and, if that takes `**options`, of its bases' constructors).

    Raises:
        ModuleNotFoundError: there is no such module.
        TypeError: the module does not define the function.
    """
    module, names = _module(function)
    node = module.defined(names)
    if node is None:
        raise TypeError(f"{function}: expected a function that its module defines, found none")
    result: dict[str, Parameter] = {}
    for inner, signature, docstring in _signatures(module, node):
        meanings = _meanings(docstring)
        for name, annotation, default in _declared(signature):
            kind = _type(inner.resolved(annotation))
            with contextlib.suppress(NameError):  # skip parameters with computed defaults
                if kind is not None and name not in result:
                    result[name] = Parameter(*kind, inner.constant(default), meanings.get(name, ""))
    return result


def _signatures(module: "_Module", node: Any) -> Iterator[tuple["_Module", Any, str]]:
    """Yield (module, node, docstring) of the function, the dataclass, or each constructor of the class."""
    has_fields = isinstance(node, ast.ClassDef) and any(
        word in ast.unparse(each)
        for each in (*node.decorator_list, *node.bases)
        for word in ("dataclass", "NamedTuple")
    )
    if has_fields or not isinstance(node, ast.ClassDef):
        yield module, node, ast.get_docstring(node) or ""
        return
    functions = (child for child in node.body if isinstance(child, ast.FunctionDef))
    constructor = next((child for child in functions if child.name == "__init__"), None)
    if constructor is not None:
        yield module, constructor, ast.get_docstring(node) or ""
        if constructor.args.kwarg is None:
            return
    for base in node.bases:
        inner, names = module.imported(ast.unparse(base))
        if (above := inner.defined(names)) is not None:
            yield from _signatures(inner, above)


class _Module:
    """The source of a module, parsed."""

    def __init__(self, name: str, source: str) -> None:
        self._name, self._body = name, ast.parse(source).body
        self._values = {ast.unparse(each.targets[0]): each.value for each in self._body if isinstance(each, ast.Assign)}

    def defined(self, names: list[str]) -> Any:
        """Return a class or function by name, or `[class, member]`; None if the module does not define it."""
        definition: Any = None
        for name in names:
            children = self._body if definition is None else definition.body
            definition = next((child for child in children if getattr(child, "name", None) == name), None)
            if definition is None:
                return None
        return definition

    def imported(self, name: str) -> tuple["_Module", list[str]]:
        """Return the module that defines a name, and the name there; this module if the name is not imported."""
        for line in (each for each in self._body if isinstance(each, ast.ImportFrom)):
            for alias in line.names:
                if (alias.asname or alias.name) == name:
                    package = self._name.rpartition(".")[0]
                    source = importlib.util.resolve_name("." * line.level + (line.module or ""), package)
                    return _module(f"{source}.{alias.name}")
        return self, [name]

    def resolved(self, expression: ast.expr) -> ast.expr:
        """Return the expression that the module assigns to a name; any other expression is returned unchanged."""
        return self._values.get(ast.unparse(expression), expression)

    def constant(self, expression: ast.expr) -> Any:
        """Return the value of a constant expression, such as `2 << 20`, or of `Class.field`, a field's default.

        Raises:
            NameError: the expression needs another name.
        """
        if isinstance(expression, ast.Attribute) and isinstance(expression.value, ast.Name):
            module, names = self.imported(expression.value.id)
            owner = module.defined(names)
            for name, _, default in _declared(owner) if isinstance(owner, ast.ClassDef) else ():
                if name == expression.attr:
                    return module.constant(default)
        code = compile(ast.Expression(self.resolved(expression)), "default", "eval")
        return eval(code, {"__builtins__": {}})


@functools.cache
def _module(function: str) -> tuple[_Module, list[str]]:
    """Return the module of a function, and the names of the function within the module."""
    package, *names = function.split(".")
    spec = importlib.util.find_spec(package)
    while spec and names and spec.submodule_search_locations:
        # Like `find_spec` of the full name, but without importing the parent packages.
        path = spec.submodule_search_locations
        if (inner := importlib.machinery.PathFinder.find_spec(f"{spec.name}.{names[0]}", path)) is None:
            break
        spec, names = inner, names[1:]
    if spec is None or not isinstance(spec.loader, InspectLoader) or not (source := spec.loader.get_source(spec.name)):
        raise ModuleNotFoundError(f"{function}: expected a module with source, found none")
    return _Module(spec.name, source), names


def _declared(node: Any) -> list[tuple[str, ast.expr, ast.expr]]:
    """Return (name, type, default) of a function's parameters, or a class's fields, that have a type and a default."""
    if isinstance(node, ast.ClassDef):
        fields = (child for child in node.body if isinstance(child, ast.AnnAssign))
        return [(ast.unparse(field.target), field.annotation, field.value) for field in fields if field.value]
    by_place = [*node.args.posonlyargs, *node.args.args]
    defaults = [*zip(by_place[len(by_place) - len(node.args.defaults) :], node.args.defaults, strict=True)]
    defaults += zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
    return [(arg.arg, arg.annotation, default) for arg, default in defaults if arg.annotation and default]


def _type(annotation: ast.expr) -> tuple[Callable[[str], Any], str | None, tuple[Any, ...] | None] | None:
    """Return type, metavar and choices of an annotation; None for a type that a command line cannot express."""
    if isinstance(annotation, ast.BinOp) and ast.unparse(annotation.right) == "None":
        return _type(annotation.left)
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Literal":
        values = ast.literal_eval(annotation.slice)
        choices = values if isinstance(values, tuple) else (values,)
        return type(choices[0]), None, choices
    known = _TYPES.get(ast.unparse(annotation))
    return None if known is None else (*known, None)


def _meanings(docstring: str) -> dict[str, str]:
    """Return name -> description for the entries of a docstring's section Args or Attributes."""
    section = re.search(r"^(?:Args|Attributes):\n((?:[ ]{4}.*\n?|\n)+)", docstring, re.MULTILINE)
    entries = re.split(r"\n(?=[ ]{4}\S)", section[1]) if section else []
    pairs = (entry.partition(":") for entry in entries)
    return {name.strip(): " ".join(meaning.split()) for name, _, meaning in pairs}
