"""`Refusal`: why a request is refused, and its HTTP status and body in the format of each API."""

import enum
from collections.abc import Callable
from typing import Any


class Reason(enum.Enum):
    """Why a request is refused; the value is its HTTP status in most APIs."""

    INVALID = 400
    UNAUTHORIZED = 401
    FORBIDDEN = 403
    NOT_FOUND = 404
    METHOD = 405
    SLOW_BODY = 408
    TOO_LARGE = 413
    TOKENIZER = 422
    WRONG_MODEL = 424
    OVERLOADED = 429
    BACKEND = 500
    NOT_READY = 503
    TIMEOUT = 504


class Refusal(Exception):
    """A request that is refused.

    Attributes:
        reason: the reason, which determines the status.
        message: one line that says what was expected and what was found.
        retry_after: seconds after which a client may try again; None = not given.
    """

    def __init__(self, reason: Reason, message: str, retry_after: int | None = None):
        super().__init__(message)
        self.reason, self.message, self.retry_after = reason, message, retry_after


Shaped = tuple[int, dict[str, Any]]  # status and body

_TEI_TYPES = {
    Reason.TOKENIZER: "Tokenizer",
    Reason.WRONG_MODEL: "Backend",
    Reason.OVERLOADED: "Overloaded",
    Reason.BACKEND: "Backend",
    Reason.NOT_READY: "Unhealthy",
    Reason.TIMEOUT: "Backend",
}
_OPENAI_TYPES = {
    Reason.UNAUTHORIZED: "authentication_error",
    Reason.FORBIDDEN: "permission_error",
    Reason.NOT_FOUND: "not_found_error",
    Reason.OVERLOADED: "rate_limit_error",
    Reason.BACKEND: "server_error",
    Reason.NOT_READY: "server_error",
    Reason.TIMEOUT: "server_error",
}


def tei_error(refusal: Refusal) -> Shaped:
    status = 422 if refusal.reason is Reason.INVALID else 424 if refusal.reason is Reason.BACKEND else None
    kind = _TEI_TYPES.get(refusal.reason, "Validation")
    return status or refusal.reason.value, {"error": refusal.message, "error_type": kind}


def rerank_error(refusal: Refusal) -> Shaped:
    status, body = tei_error(refusal)
    return status, {**body, "message": refusal.message, "detail": refusal.message}


def openai_error(refusal: Refusal) -> Shaped:
    kind = _OPENAI_TYPES.get(refusal.reason, "invalid_request_error")
    code = "model_not_found" if refusal.reason is Reason.NOT_FOUND else None
    return _status(refusal), {"error": {"message": refusal.message, "type": kind, "param": None, "code": code}}


def infer_error(refusal: Refusal) -> Shaped:
    return _status(refusal), {"error": refusal.message}


def _status(refusal: Refusal) -> int:
    return 400 if refusal.reason in (Reason.TOKENIZER, Reason.WRONG_MODEL) else refusal.reason.value


def error_shape(path: str) -> Callable[[Refusal], Shaped]:
    """Return the function that turns a refusal into status and body, in the format of the path's API."""
    if path.endswith("/rerank"):
        return rerank_error
    return openai_error if path.startswith("/v1/") else infer_error if path.startswith("/v2") else tei_error
