"""The client of object stores: fsspec file systems (gcsfs for gs://) with retries, uniform errors and request counts.

gcsfs itself repeats a request after status 408, 429 or 5xx, or after a broken connection, six times within about half a
minute. `attempt` repeats the whole operation, for outages of some minutes and for expired credentials.
"""

import errno
import functools
import json
import random
import re
import time
from collections.abc import Callable
from typing import Any, TypeVar

from bert_jax.errors import InputError, logger
from bert_jax.extras import how_to_install
from bert_jax.storage.requests import RETRIED, counts

URL_SCHEMES = {"gs": "gcs", "s3": "s3", "az": "az"}  # scheme -> the extra of this package that installs its client
_CLIENTS = {"gs": "gcsfs", "s3": "s3fs", "az": "adlfs"}
_ATTEMPTS = 4  # attempts of an operation, each with the client's own retries
_FIRST_WAIT, _LONGEST_WAIT = 1.0, 30.0  # seconds between attempts; doubled each time, with jitter
_SILENCE = 60  # seconds without data after which a connection is closed
_T = TypeVar("_T")

log = logger(__name__)


def filesystem(url: str) -> Any:
    """Return the fsspec file system of a URL. Raises InputError when its client is not installed."""
    import fsspec

    scheme = url.partition("://")[0]
    try:
        if scheme == "gs":
            # Not gcsfs.GCSFileSystem: it would call a gRPC service to find out the type of each bucket.
            from gcsfs.core import GCSFileSystem

            return GCSFileSystem(use_listings_cache=False, consistency="md5", **_connection())
        return fsspec.filesystem(scheme, use_listings_cache=False)
    except ImportError:
        extra = URL_SCHEMES.get(scheme, scheme)
        raise InputError(
            f"{url}: {scheme}:// needs the package {_CLIENTS.get(scheme, scheme)}: {how_to_install(extra)}"
        ) from None


@functools.cache
def _connection() -> dict[str, Any]:
    import aiohttp

    trace = aiohttp.TraceConfig()

    async def ended(_session: Any, _context: Any, params: aiohttp.TraceRequestEndParams) -> None:
        counts.requests += 1
        counts.retries += params.response.status in RETRIED

    async def failed(_session: Any, _context: Any, params: aiohttp.TraceRequestExceptionParams) -> None:
        counts.requests += 1
        counts.retries += isinstance(params.exception, aiohttp.ClientError | TimeoutError)  # not if it was cancelled

    trace.on_request_end.append(ended)
    trace.on_request_exception.append(failed)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=_SILENCE, sock_read=_SILENCE)
    return {"session_kwargs": {"trace_configs": [trace]}, "requests_timeout": timeout}


def attempt(url: str, operation: Callable[[Any], _T]) -> _T:
    """Return `operation(filesystem)`, repeated with growing waits after errors of the store or the connection.

    The response to a successful operation may be lost, so operations must be idempotent.

    Raises:
        FileNotFoundError: there is no such object, or no such bucket (then `filename` is the bucket).
        OSError: any other error, with the URL as `filename` and one line as `strerror`.
    """
    bucket = bucket_of(url)
    if bucket.endswith("://"):
        raise OSError(errno.EINVAL, "expected a bucket and a path after ://", url)
    store = filesystem(url)
    if not url.startswith("gs://"):
        counts.requests += 1
    for tries in range(1, _ATTEMPTS + 1):
        try:
            return operation(store)
        except FileNotFoundError:
            if url != bucket:
                check_bucket(url)
            raise FileNotFoundError(errno.ENOENT, "no such file or directory", url) from None
        except FileExistsError:
            raise
        except Exception as error:  # clients raise errors of several libraries
            if tries == _ATTEMPTS or not _is_transient(error, store):
                raise as_os_error(error, url) from error
            wait = min(_FIRST_WAIT * 2 ** (tries - 1), _LONGEST_WAIT) * random.uniform(0.5, 1)
            log.info("%s: %s; attempt %d of %d", url, _reason(error), tries + 1, _ATTEMPTS)
            counts.retries += 1
            time.sleep(wait)
    raise AssertionError("unreachable")


def _is_transient(error: Exception, store: Any) -> bool:
    status = status_of(error)
    if status == 401:
        return _refreshed(store)
    if status is not None:
        return status in RETRIED
    family = type(error).__module__.partition(".")[0]
    return isinstance(error, ConnectionError | TimeoutError) or family in ("aiohttp", "requests", "urllib3", "gcsfs")


def _refreshed(store: Any) -> bool:
    """Refresh the credentials of a file system; return whether that succeeded."""
    credentials = getattr(getattr(store, "credentials", None), "credentials", None)
    if credentials is None:  # anonymous access
        return False
    try:
        from google.auth.transport.requests import Request

        credentials.refresh(Request())
    except Exception:  # after any error, the old credentials remain
        return False
    return True


def status_of(error: BaseException) -> int | None:
    """Return the HTTP status of a client's error, or None."""
    code = str(getattr(error, "code", None) or getattr(error, "status", None))
    return int(code) if code.isdigit() else None


def as_os_error(error: BaseException, url: str) -> OSError:
    """Convert a client's error to an OSError with a message of one line."""
    text, status = _reason(error), status_of(error)
    if status == 401:
        text = f"the credentials were refused ({text}); `gcloud auth application-default login` creates new ones"
        return PermissionError(errno.EACCES, text, url)
    if status == 403 or text.startswith("Forbidden"):
        # gcsfs: "Forbidden: URL", and the service's message from the second line on
        said = str(error).partition("\n")[2] or text
        return PermissionError(errno.EACCES, f"access denied: {_one_line(said)}", url)
    if isinstance(error, OSError) and error.errno:
        return OSError(error.errno, error.strerror or text, url)
    return OSError(errno.EIO, text, url)


def _reason(error: BaseException) -> str:
    """Return the message of an error, on one line."""
    return _one_line(str(error)) or type(error).__name__


def _one_line(text: str) -> str:
    if message := re.search(r'"message": *("(?:[^"\\]|\\.)*")', text):
        text = json.loads(message[1])
    return " ".join(text.split())[:300]


def bucket_of(url: str) -> str:
    """Return the bucket of a URL: `gs://bucket/a/b` -> `gs://bucket`."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}"


def check_bucket(url: str) -> None:
    """Raise FileNotFoundError when the bucket of `url` is missing; the check is cached per bucket."""
    _check_bucket(bucket_of(url))


@functools.cache
def _check_bucket(bucket: str) -> None:
    name = bucket.partition("://")[2]

    def look(store: Any) -> bool:
        if bucket.startswith("gs://"):  # list objects, since the bucket's metadata may not be readable
            store.call("GET", "b/{}/o", name, maxResults=1, json_out=True)
            return True
        return store.exists(name)

    try:
        exists = attempt(bucket, look)
    except FileNotFoundError:
        exists = False
    except PermissionError:
        return  # listing is not allowed, but reading named objects may be
    if not exists:
        raise FileNotFoundError(errno.ENOENT, "no such bucket", bucket)
