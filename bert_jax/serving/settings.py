"""`ServerSettings`: address, limits, timeouts and API key of a server."""

import dataclasses
import math
from typing import Any

from bert_jax.errors import InputError


@dataclasses.dataclass(frozen=True)
class ServerSettings:
    """Settings of a server. Every limit has a default that protects a small machine.

    Attributes:
        host: address to listen on; 0.0.0.0 = all.
        port: TCP port; 0 = any free port.
        allowed_hosts: hosts that requests may name, besides `localhost`, 127.0.0.1, [::1] and `host`;
            `*.example.com` = all names below a domain, `*` = any.
        allowed_origins: origins (`https://example.com`) of other sites whose pages may send requests.
        api_key: key that requests must carry as `Authorization: Bearer KEY`; "" = none.
        auto_truncate: whether to cut texts over the model's limit if a request does not say; otherwise they are an
            error.
        token_ids: whether to accept token ids of the model's own tokenizer in place of texts.
        max_body_bytes: maximum bytes in the body of a request.
        max_texts: maximum number of texts (or pairs) in a request.
        max_request_tokens: maximum number of tokens in a request, after truncation.
        max_concurrent_requests: maximum number of requests in flight; more are refused with status 429.
        max_buffered_bytes: maximum bytes of bodies in memory at a time; more are refused with status 429.
        max_wait: seconds; a request is refused with status 429 if its last text is expected to wait longer.
        read_timeout: seconds in which the headers and the body of a request must arrive.
        request_timeout: seconds after which a request is answered with status 504.
        stop_timeout: seconds in which accepted requests are answered after SIGTERM.
        max_connections: maximum number of open connections; None = as file descriptors allow, at most 4,096.
        max_connections_per_client: maximum number of open connections per address (IPv6: per /64 network); None = half
            of all.
        keep_alive: seconds after which an idle connection is closed.
        log_requests: whether to log a line per request.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    api_key: str = dataclasses.field(default="", repr=False)
    auto_truncate: bool = False
    token_ids: bool = False
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    max_body_bytes: int = 2 << 20
    max_texts: int = 2048
    max_request_tokens: int = 1 << 17
    max_concurrent_requests: int = 1024
    max_buffered_bytes: int = 64 << 20
    max_wait: float = 10.0
    read_timeout: float = 10.0
    request_timeout: float = 60.0
    stop_timeout: float = 30.0
    max_connections: int | None = None
    max_connections_per_client: int | None = None
    keep_alive: int = 65
    log_requests: bool = True

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value: Any = getattr(self, field.name)
            if field.name == "port":
                if not 0 <= value <= 65535:
                    raise InputError(f"port: expected 0 to 65535, found {value}")
            elif isinstance(value, int | float) and not (value > 0 and math.isfinite(value)) and value is not False:
                raise InputError(f"{field.name}: expected a positive number, found {value}")
        if not self.api_key.isascii():
            raise InputError("api_key: expected ASCII characters, found others")
