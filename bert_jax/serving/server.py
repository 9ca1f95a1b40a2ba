"""Run a server: listen, warm the models, answer, and stop gracefully."""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Generator, Sequence

import uvicorn
import uvloop

from bert_jax.errors import InputError
from bert_jax.serving.app import build_app
from bert_jax.serving.connection_pool import ConnectionPool
from bert_jax.serving.connections import protocol_class
from bert_jax.serving.logs import log_event
from bert_jax.serving.models import ServedModel
from bert_jax.serving.service import Service
from bert_jax.serving.settings import ServerSettings

_BACKLOG = 2048  # maximum connections that wait in the kernel for the server to accept them
_DRAIN = 0.3  # seconds from closing the port to closing idle connections
_POLL = 0.05  # seconds between checks for the end of the warm-up


class _Server(uvicorn.Server):
    """uvicorn's server without its signal handlers; `serve` handles signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


def serve(models: Sequence[ServedModel], settings: ServerSettings | None = None) -> None:
    """Serve models until SIGTERM or SIGINT, then answer the accepted requests and return.

    The port is open before the models are compiled; until then `/health` and all requests are answered with status
    503.

    Args:
        models: the models, whose names differ.
        settings: address, limits and timeouts; None = the defaults.

    Raises:
        InputError: the port cannot be opened, or a model cannot be compiled.
    """
    settings = settings or ServerSettings()
    listener = open_port(settings)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_until_signal(models, settings, listener))
    finally:
        listener.close()


async def _until_signal(models: Sequence[ServedModel], settings: ServerSettings, listener: socket.socket) -> None:
    """Run a server until the first SIGTERM or SIGINT; a second one ends the process."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    signals = (signal.SIGTERM, signal.SIGINT)

    def handle() -> None:
        stop.set()
        for number in signals:
            loop.remove_signal_handler(number)

    for number in signals:
        loop.add_signal_handler(number, handle)
    await run_server(models, settings, listener, stop)


def open_port(settings: ServerSettings) -> socket.socket:
    """Open the port. Raises InputError when it is taken, or the address is not this machine's."""
    try:
        family = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((settings.host, settings.port))
        listener.listen(_BACKLOG)
    except OSError as error:
        why = error.strerror or str(error)
        raise InputError(f"{settings.host}:{settings.port}: expected a free port, found: {why}") from None
    listener.setblocking(False)
    return listener


async def run_server(
    models: Sequence[ServedModel], settings: ServerSettings, listener: socket.socket, stop: asyncio.Event
) -> None:
    """Serve models in the running event loop until `stop` is set, then answer the accepted requests.

    The event loop should be uvloop's, which accepts one connection at a time, so that the pool makes room before file
    descriptors run out; asyncio's own loop accepts all waiting connections at once.

    Args:
        models: the models, whose names differ.
        settings: limits and timeouts.
        listener: the open port (`open_port`).
        stop: the event that ends the server.

    Raises:
        InputError: a model cannot be compiled.
    """
    service = Service({model.name: model for model in models}, settings)
    pool = ConnectionPool(settings)
    config = uvicorn.Config(
        build_app(service),
        http=protocol_class(settings, pool),
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        timeout_keep_alive=settings.keep_alive,
        timeout_graceful_shutdown=max(1, round(settings.stop_timeout)),
        backlog=_BACKLOG,
    )
    server = _Server(config)
    loop = asyncio.get_running_loop()
    begun = loop.time()
    host, port = listener.getsockname()[:2]
    log_event("started", host=host, port=port, models=", ".join(service.models))
    service.scheduler.start()
    warming = asyncio.create_task(_warmed(service, stop))
    stopping = asyncio.create_task(_stopped(service, server, stop))
    sweeping = asyncio.create_task(pool.sweep())
    try:
        await server.serve(sockets=[listener])
        stop.set()
        await asyncio.wait({warming, stopping})
        warming.result()
    finally:
        sweeping.cancel()
        await loop.run_in_executor(None, service.close)
        log_event("stopped", seconds=loop.time() - begun)


async def _stopped(service: Service, server: uvicorn.Server, stop: asyncio.Event) -> None:
    """Wait for the event `stop`, then close the port, and make the server finish the requests that it has accepted.

    Open connections stay open for `_DRAIN` seconds, and answers ask clients to close them, so that a request that is
    already on its way is answered too.
    """
    await stop.wait()
    log_event("stopping", in_flight=service.in_flight)
    service.stopping = True
    for port in getattr(server, "servers", ()):  # none if it stops before it has started
        port.close()
    await asyncio.sleep(_DRAIN)
    server.should_exit = True


async def _warmed(service: Service, stop: asyncio.Event) -> None:
    """Wait for the warm-up, and log its time. Raises InputError, and stops the server, when it fails."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    while not service.scheduler.ready and not stop.is_set():
        if (error := service.scheduler.failed) is not None:
            stop.set()
            raise InputError(f"warm-up: expected models that run, found {type(error).__name__}: {error}") from error
        await asyncio.sleep(_POLL)
    if service.scheduler.ready:
        shapes = sum(len(model.backends[0].shapes) for model in service.models.values())
        log_event("ready", seconds=loop.time() - begun, shapes=shapes)
