"""Read a Router of sentence-transformers: queries and documents go through different modules."""

import ast
from typing import Any, NamedTuple, NoReturn

from bert_jax import storage
from bert_jax.conversion.module_files import EmbeddingModule, ModuleLayout, checked_object, optional_boolean
from bert_jax.errors import InputError, printable
from bert_jax.model_files import check_keys
from bert_jax.model_files import routed_encoders as tables

ROUTER_CONFIG = "router_config.json"


class Routes(NamedTuple):
    """The modules of a Router's routes.

    Attributes:
        query: those of queries.
        document: those of documents.
        default: `query` or `document`: the route of a text that is neither.
    """

    query: tuple[EmbeddingModule, ...]
    document: tuple[EmbeddingModule, ...]
    default: str


def read_routes(router: EmbeddingModule) -> Routes:
    """Read the routes of queries and of documents from the file of a Router.

    Raises:
        InputError: the file is missing or damaged, or has no route for queries, documents or other texts.
    """
    older = router.folder / "config.json"
    where = router.folder / ROUTER_CONFIG
    where = older if not where.exists() and older.exists() else where
    content, _ = checked_object(where, tables.ROUTER)
    types, structure = (_mapping(content, key, where) for key in ("types", "structure"))
    parameters = content.get("parameters") or {}
    if not isinstance(parameters, dict):
        raise InputError(f"{where}: parameters: expected an object, found {_shown(parameters)}")
    check_keys(parameters, tables.ROUTER_PARAMETERS, f"{where}: parameters")
    routes = {name: _modules(router.folder, names, types, where) for name, names in structure.items()}
    mappings = _mappings(parameters, routes, where)
    chosen = {}
    for task in ("query", "document"):
        name = _route(task, mappings, routes)
        if name is None:
            raise InputError(f"{where}: structure: expected a route {task}, found {', '.join(routes) or 'none'}")
        chosen[task] = routes[name]
    first = next(iter(routes)) if optional_boolean(parameters, "allow_empty_key", True, where) else "document"
    name = _route(None, mappings, routes) or parameters.get("default_route") or first
    if name not in routes or routes[name] not in chosen.values():
        expected = "the route of queries or of documents"
        raise InputError(f"{where}: default_route: expected {expected}, found {_shown(name)}")
    default = "document" if routes[name] == chosen["document"] else "query"
    return Routes(chosen["query"], chosen["document"], default)


def split_routes(
    modules: tuple[EmbeddingModule, ...],
) -> tuple[tuple[EmbeddingModule, ...], tuple[EmbeddingModule, ...], str]:
    """Return the modules of documents, those of queries if they are others, and the default route.

    Args:
        modules: a Router and the modules behind it, which follow either route.

    Raises:
        InputError: as `read_routes`.
    """
    routes, behind = read_routes(modules[0]), modules[1:]
    queries = () if routes.query == routes.document else (*routes.query, *behind)
    return (*routes.document, *behind), queries, routes.default


def refuse_query_modules(layout: ModuleLayout) -> NoReturn:
    """Raise InputError for a model whose queries have modules of their own, which only a SparseEncoder may have."""
    found = ", ".join(module.kind for module in layout.query_modules)
    raise InputError(
        f"{layout.root}: expected the same modules for queries and documents in a Router of a {layout.model_type}, "
        f"found {found} for queries; only a SparseEncoder may have others"
    )


def _mapping(content: dict[str, Any], key: str, where: storage.Path) -> dict[str, Any]:
    value = content.get(key)
    if not isinstance(value, dict) or not value:
        raise InputError(f"{where}: {key}: expected an object with the modules of the routes, found {_shown(value)}")
    return value


def _modules(root: storage.Path, names: Any, types: dict[str, Any], where: storage.Path) -> tuple[EmbeddingModule, ...]:
    """Return the modules of a route, whose names are their directories."""
    if not isinstance(names, list) or not names or not all(isinstance(types.get(str(name)), str) for name in names):
        raise InputError(f"{where}: structure: expected lists of modules that types names, found {_shown(names)}")
    for name in names:
        if ".." in name.split("/") or name.startswith("/"):
            raise InputError(f"{where}: module path {name!r} leads out of the directory")
    return tuple(EmbeddingModule(types[name], root / name if name else root) for name in names)


def _mappings(parameters: dict[str, Any], routes: dict[str, Any], where: storage.Path) -> dict[Any, str]:
    """Return (task, modality) -> route, from keys that are written as Python tuples."""
    content = parameters.get("route_mappings") or {}
    mappings: dict[Any, str] = {}
    for key, route in content.items() if isinstance(content, dict) else [(content, None)]:
        try:
            pair = ast.literal_eval(key)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            pair = None
        if not isinstance(pair, tuple) or len(pair) != 2 or route not in routes:
            expected = "(task, modality) and a route"
            raise InputError(f"{where}: route_mappings: expected {expected}, found {_shown(key)}: {_shown(route)}")
        mappings[pair] = route
    return mappings


def _route(task: str | None, mappings: dict[Any, str], routes: dict[str, Any]) -> str | None:
    """Return the route of texts for a task, in the order in which sentence-transformers looks it up."""
    for pair in ((task, "text"), (task, None), (None, "text"), (None, None)):
        if pair in mappings:
            return mappings[pair]
    return next((name for name in (task, "text") if name in routes), None)


def _shown(value: Any) -> str:
    return printable(repr(value), 60)
