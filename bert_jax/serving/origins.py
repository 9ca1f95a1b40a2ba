"""Hosts and origins: which names the server answers to, and which browser pages may send requests to it."""

import fnmatch
import ipaddress
import re
import socket
from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from bert_jax.errors import InputError, printable
from bert_jax.serving.bodies import encode_json
from bert_jax.serving.refusals import Reason, Refusal, error_shape

_LOCAL = ("localhost", "127.0.0.1", "::1")
_AUTHORITY = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9_.-]+))(?::([0-9]{1,5}))?")
_PATTERN = re.compile(r"\*|(?:\*\.)?[a-z0-9_-][a-z0-9_.-]*|[0-9a-f:.]+")
_PORTS = {"http": 80, "https": 443}
_SHOWN = 60  # characters of a client's header in an error message


def read_authority(text: str) -> tuple[str, int | None] | None:
    """Return the normalized host and the port of `host[:port]`; None if malformed, for example with a user name."""
    match = _AUTHORITY.fullmatch(text.strip(" \t").lower())
    if match is None:
        return None
    host = normalized_host(match[1] or match[2])
    if host is None or (match[1] is not None and ":" not in host and "." not in host):
        return None
    return host, int(match[3]) if match[3] else None


def normalized_host(host: str) -> str | None:
    """Return a host in lower case without a trailing dot, an IPv6 address in its shortest form; None = malformed."""
    host = host.lower().removesuffix(".")
    if ":" not in host:
        return host or None
    try:
        address = ipaddress.IPv6Address(host)
    except ValueError:
        return None
    return str(address.ipv4_mapped or address)


class AllowedHosts:
    """The hosts that requests may name.

    `localhost`, 127.0.0.1, [::1] and the address that the server listens on are always allowed. A server that listens
    on all addresses also answers to the name of the machine and to any IP address, because a page of another site
    reaches it by DNS rebinding only under a name.

    Args:
        listen: the host to listen on.
        more: further names; `*.example.com` = all names below a domain, `*` = any host.

    Raises:
        InputError: a name is malformed.
    """

    def __init__(self, listen: str, more: Sequence[str] = ()):
        self._any_address = listen in ("", "0.0.0.0") or normalized_host(listen) == "::"
        self._patterns = [*_LOCAL, socket.gethostname().lower() if self._any_address else normalized_host(listen) or ""]
        for name in more:
            host = normalized_host(name.strip("[]"))
            if host is None or not _PATTERN.fullmatch(name.strip("[]").lower()):
                raise InputError(f"allowed_hosts: expected names without port, *.DOMAIN or *, found {name!r}")
            self._patterns.append(host)

    def __contains__(self, host: str) -> bool:
        if any(fnmatch.fnmatchcase(host, pattern) for pattern in self._patterns):
            return True
        return self._any_address and _is_address(host)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def check_origins(origins: Sequence[str]) -> None:
    """Raise InputError for an origin that is not `scheme://host[:port]`."""
    for origin in origins:
        parts = urlsplit(origin)
        if (
            parts.scheme not in _PORTS
            or origin != f"{parts.scheme}://{parts.netloc}"
            or not read_authority(parts.netloc)
        ):
            raise InputError(f"allowed_origins: expected http://HOST:PORT or https://HOST, found {origin!r}")


class OriginGuard:
    """Middleware that refuses requests that name another host, or that pages of other sites send.

    Args:
        app: the application.
        hosts: the hosts that requests may name.
        origins: origins of other sites whose pages may send requests.
    """

    def __init__(self, app: ASGIApp, hosts: AllowedHosts, origins: Sequence[str]):
        self._app, self._hosts, self._origins = app, hosts, frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            host = self._check_host(scope)
            self._check_origin(scope, host)
        except Refusal as refusal:
            body = error_shape(scope["path"])(refusal)[1]
            answer = Response(encode_json(body), refusal.reason.value, {"connection": "close"}, "application/json")
            await answer(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _check_host(self, scope: Scope) -> tuple[str, int | None] | None:
        """Return the host and port that a request names; None for HTTP/1.0 without a host. Raises `Refusal`."""
        names = _values(scope, b"host")
        if target := scope["state"].get("authority"):  # host of a request target in absolute form
            names.append(target)
        if not names and scope["http_version"] == "1.0":
            return None
        hosts = [read_authority(name) for name in names]
        if not hosts or len(_values(scope, b"host")) > 1 or None in hosts:
            shown = ", ".join(_shown(name) for name in names) or "none"
            raise Refusal(Reason.INVALID, f"Host: expected one header with a name and a port, found {shown}")
        for name, host in zip(names, hosts, strict=True):
            assert host is not None
            if host[0] not in self._hosts:
                message = f"Host: expected a name of this server, found {_shown(name)}; --allowed-hosts adds names"
                raise Refusal(Reason.FORBIDDEN, message)
        return hosts[-1]

    def _check_origin(self, scope: Scope, host: tuple[str, int | None] | None) -> None:
        """Raise `Refusal` for a request that a page of another site sends."""
        origins = _values(scope, b"origin")
        if origins:
            if len(origins) > 1 or not (origins[0] in self._origins or _same_origin(origins[0], host)):
                shown = ", ".join(map(_shown, origins))
                message = f"Origin: expected the server's own page, found {shown}; --allowed-origins adds origins"
                raise Refusal(Reason.FORBIDDEN, message)
            return
        sites = _values(scope, b"sec-fetch-site")
        if set(sites) <= {"none", "same-origin"} or _is_navigation(scope):
            return
        raise Refusal(
            Reason.FORBIDDEN, f"Sec-Fetch-Site: expected the server's own page, found {_shown(', '.join(sites))}"
        )


def _is_navigation(scope: Scope) -> bool:
    """Return whether a browser opens an address in a tab, as after a click on a link; no page reads the answer then."""
    return (
        scope["method"] in ("GET", "HEAD")
        and _values(scope, b"sec-fetch-mode") == ["navigate"]
        and _values(scope, b"sec-fetch-dest") in ([], ["document"])
    )


def _same_origin(origin: str, host: tuple[str, int | None] | None) -> bool:
    """Return whether an origin is the host of a request; schemes may differ, as with a TLS proxy before the server."""
    scheme, _, rest = origin.lower().partition("://")
    authority = read_authority(rest) if scheme in _PORTS else None
    if authority is None or host is None:
        return False
    default = _PORTS[scheme]
    return (authority[0], authority[1] or default) == (host[0], host[1] or default)


def _values(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


def _shown(text: str) -> str:
    return repr(printable(text[:_SHOWN]))
