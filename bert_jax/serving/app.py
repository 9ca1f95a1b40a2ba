"""The Starlette application: the routes of all APIs, health, metrics, the OpenAPI page and the page to try a model."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bert_jax.serving import open_inference_api, openai_api, openapi, page, refusals, rerank_api, tei_api
from bert_jax.serving.endpoint import Call, Endpoint, Handler
from bert_jax.serving.origins import AllowedHosts, OriginGuard, check_origins
from bert_jax.serving.refusals import Reason, Refusal, Shaped
from bert_jax.serving.service import Service


class Api(NamedTuple):
    """A route: its method, path, handler, the shape of its errors, and whether it needs no key."""

    method: str
    path: str
    handler: Handler
    shape: Callable[[Refusal], Shaped]
    public: bool = False


async def answer_health(call: Call) -> dict[str, Any]:
    """Answer `GET /health`: 200 when every shape of every model is compiled, 503 before and while stopping."""
    call.service.check_ready()
    if call.service.stopping:
        raise Refusal(Reason.NOT_READY, "expected a ready server, found one that stops")
    return {"status": "ready"}


def _apis() -> Iterator[Api]:
    """Yield the routes; those of the Open Inference Protocol also with a version, which is always 1."""
    openai, rerank, tei, v2 = (
        refusals.openai_error,
        refusals.rerank_error,
        refusals.tei_error,
        refusals.open_inference_error,
    )
    yield Api("POST", "/v1/embeddings", openai_api.answer_embeddings, openai)
    yield Api("GET", "/v1/models", openai_api.answer_models, openai)
    for path in ("/rerank", "/v1/rerank", "/v2/rerank"):
        yield Api("POST", path, rerank_api.answer_rerank, rerank)
    yield Api("POST", "/embed", tei_api.answer_embed, tei)
    yield Api("POST", "/predict", tei_api.answer_predict, tei)
    yield Api("GET", "/info", tei_api.answer_info, tei)
    yield Api("GET", "/health", answer_health, tei, public=True)
    yield Api("GET", "/v2", open_inference_api.answer_server, v2, public=True)
    yield Api("GET", "/v2/health/live", open_inference_api.answer_live, v2, public=True)
    yield Api("GET", "/v2/health/ready", open_inference_api.answer_ready, v2, public=True)
    for path in ("/v2/models/{name}", "/v2/models/{name}/versions/{version}"):
        yield Api("GET", path, open_inference_api.answer_metadata, v2)
        yield Api("GET", f"{path}/ready", open_inference_api.answer_ready, v2, public=True)
        yield Api("POST", f"{path}/infer", open_inference_api.answer_infer, v2)


APIS = tuple(_apis())


def build_app(service: Service) -> Starlette:
    """Return the application of a service."""
    routes = [
        Route(api.path, Endpoint(service, api.path, api.handler, api.shape, api.public), methods=[api.method])
        for api in APIS
    ]

    async def metrics(request: Request) -> Response:
        service.metrics.in_flight.set(service.in_flight)
        service.metrics.ready.set(service.ready)
        for name in service.models:
            service.metrics.waiting.labels(name).set(service.scheduler.waiting_tokens(name))
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def described(request: Request) -> Response:
        return Response(openapi.as_json(service.models), media_type="application/json")

    async def try_page(request: Request) -> Response:
        return Response(page.HTML, media_type="text/html; charset=utf-8", headers=page.HEADERS)

    routes += [Route("/metrics", metrics), Route("/openapi.json", described)]
    routes += [Route("/", try_page), Route("/docs", try_page)]
    app = Starlette(routes=routes, middleware=_middleware(service), exception_handlers={HTTPException: _not_found})
    app.router.redirect_slashes = False  # a redirect would carry the host that the client names
    return app


def _middleware(service: Service) -> list[Middleware]:
    """Return the checks of hosts and origins, and for the origins that are allowed the headers of CORS."""
    settings = service.settings
    hosts = AllowedHosts(settings.host, settings.allowed_hosts)
    check_origins(settings.allowed_origins)
    checks = [Middleware(OriginGuard, hosts=hosts, origins=settings.allowed_origins)]
    if settings.allowed_origins:
        headers = ("authorization", "content-type")
        checks.append(
            Middleware(CORSMiddleware, allow_origins=settings.allowed_origins, allow_headers=headers,
                       allow_methods=("GET", "POST"))
        )  # fmt: skip
    return checks


async def _not_found(request: Request, error: Exception) -> Response:
    """Answer a path or method that there is not, in the shape of the API of its path."""
    assert isinstance(error, HTTPException)
    path = request.url.path
    if error.status_code == 405:
        refusal = Refusal(
            Reason.METHOD, f"expected another method than {request.method[:10]}; /openapi.json lists them"
        )
    else:
        refusal = Refusal(Reason.NOT_FOUND, "expected a path that /openapi.json lists, found another")
    status, body = refusals.error_shape(path)(refusal)
    return Response(orjson.dumps(body), status, headers=dict(error.headers or {}), media_type="application/json")
