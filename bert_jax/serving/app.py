"""The Starlette application: routes of all APIs, health, metrics, openapi.json, and a page to try a model."""

from collections.abc import Iterator

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bert_jax.serving import open_inference_api, openai_api, page, rerank_api, tei_api
from bert_jax.serving.bodies import encode_json
from bert_jax.serving.endpoint import Api, Call, Endpoint
from bert_jax.serving.openapi import openapi_description
from bert_jax.serving.origins import AllowedHosts, OriginGuard, check_origins
from bert_jax.serving.refusals import Reason, Refusal, error_shape
from bert_jax.serving.service import Service


async def answer_health(call: Call) -> dict[str, str]:
    """Answer `GET /health`: 200 when every shape of every model is compiled, 503 before that and while stopping."""
    call.service.check_ready()
    if call.service.stopping:
        raise Refusal(Reason.NOT_READY, "expected a ready server, found one that is stopping")
    return {"status": "ready"}


def _apis() -> Iterator[Api]:
    """Yield the routes; those of the Open Inference Protocol's models also with a version in the path."""
    v2 = open_inference_api
    yield Api("GET", "/v1/models", openai_api.answer_models, "List the models", "ModelList")
    yield Api("GET", "/info", tei_api.answer_info, "Describe models and limits, as text-embeddings-inference", "Info")
    yield Api("GET", "/health", answer_health, "200 when every model is ready, else 503", "Health", True)
    yield Api("GET", "/v2", v2.answer_server, "Open Inference Protocol v2: the server", "Health", True)
    yield Api("GET", "/v2/health/live", v2.answer_live, "Open Inference Protocol v2: liveness", "Health", True)
    yield Api("GET", "/v2/health/ready", v2.answer_ready, "Open Inference Protocol v2: readiness", "Health", True)
    yield Api("POST", "/v1/embeddings", openai_api.EMBEDDINGS, "Embed texts, as OpenAI does", "EmbeddingsResponse")
    yield Api("POST", "/embed", tei_api.EMBED, "Embed texts, as text-embeddings-inference does", "EmbedResponse")
    yield Api("POST", "/embed_sparse", tei_api.EMBED_SPARSE,
              "Embed texts as weights of tokens, as text-embeddings-inference does", "EmbedSparseResponse")  # fmt: skip
    yield Api("POST", "/predict", tei_api.PREDICT, "Classify texts or pairs of texts", "PredictResponse")
    yield Api("POST", "/rerank", rerank_api.RERANK, "Sort texts by relevance, as text-embeddings-inference does",
              "RerankResponse")  # fmt: skip
    for path in ("/v1/rerank", "/v2/rerank"):
        yield Api("POST", path, rerank_api.RERANK_DOCUMENTS, "Sort texts by relevance, as Cohere and Jina do",
                  "RerankResponse")  # fmt: skip
    for path in ("/v2/models/{name}", "/v2/models/{name}/versions/{version}"):
        yield Api("GET", path, v2.answer_metadata, "Open Inference Protocol v2: the tensors of a model",
                  "ModelMetadata")  # fmt: skip
        yield Api("GET", f"{path}/ready", v2.answer_ready, "Open Inference Protocol v2: readiness of a model",
                  "Health", True)  # fmt: skip
        yield Api("POST", f"{path}/infer", v2.INFER, "Open Inference Protocol v2: the outputs of a model",
                  "InferResponse")  # fmt: skip


APIS = tuple(_apis())


def build_app(service: Service) -> Starlette:
    """Return the application of a service."""
    routes = [Route(api.path, Endpoint(service, api), methods=[api.method]) for api in APIS]
    described = encode_json(openapi_description(APIS, service.models))

    async def metrics(request: Request) -> Response:
        service.metrics.in_flight.set(service.in_flight)
        service.metrics.ready.set(service.ready)
        for name in service.models:
            service.metrics.waiting.labels(name).set(service.scheduler.waiting_tokens(name))
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def openapi(request: Request) -> Response:
        return Response(described, media_type="application/json")

    async def try_page(request: Request) -> Response:
        return Response(page.HTML, media_type="text/html; charset=utf-8", headers=page.HEADERS)

    routes += [Route("/metrics", metrics), Route("/openapi.json", openapi)]
    routes += [Route("/", try_page), Route("/docs", try_page)]
    app = Starlette(routes=routes, middleware=_middleware(service), exception_handlers={HTTPException: _not_found})
    app.router.redirect_slashes = False  # a redirect would repeat the host that the client claims
    return app


def _middleware(service: Service) -> list[Middleware]:
    """Return the middleware that checks hosts and origins, and adds CORS headers for allowed origins."""
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
    """Answer a request for an unknown path or method, in the error format of the path's API."""
    assert isinstance(error, HTTPException)
    path = request.url.path
    if error.status_code == 405:
        refusal = Refusal(
            Reason.METHOD, f"expected another method than {request.method[:10]}; /openapi.json lists them"
        )
    else:
        refusal = Refusal(Reason.NOT_FOUND, "expected a path that /openapi.json lists, found another")
    status, body = error_shape(path)(refusal)
    return Response(encode_json(body), status, headers=dict(error.headers or {}), media_type="application/json")
