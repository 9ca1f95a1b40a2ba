"""The verb `serve`: serve models over HTTP."""

import argparse
import gc
import os
import sys

from bert_jax.cli.signatures import ParameterFlags
from bert_jax.cli.verbs import Verbs, add_dtype, add_verb
from bert_jax.errors import InputError
from bert_jax.extras import how_to_install

_KEY = "BERT_JAX_API_KEY"
# Seconds that a thread keeps the interpreter lock while others wait for it. An answer passes through several threads.
_SWITCH_INTERVAL = 0.0005
_SETTINGS = ParameterFlags(
    "bert_jax.serving.settings.ServerSettings",
    "host", "port", "auto_truncate", "token_ids", "max_body_bytes", "max_texts", "max_request_tokens",
    "max_concurrent_requests", "max_connections", "max_connections_per_client", "max_wait", "read_timeout",
    "request_timeout", "stop_timeout",
)  # fmt: skip


def add_verbs(verbs: Verbs) -> None:
    """Declare the verb of this module."""
    parser = add_verb(
        verbs,
        "serve",
        run_serve,
        "serve models over HTTP",
        "Routes: /v1/embeddings (OpenAI), /embed, /embed_sparse, /predict, /rerank and /info "
        "(text-embeddings-inference; Cohere and Jina), /v2/models/NAME/infer (Open Inference Protocol), /health, "
        "/metrics, /openapi.json, and a page at /. Needs `pip install 'bert-jax[serve]'`.",
        """bert-jax serve path/to/all-MiniLM-L6-v2
           bert-jax serve path/to/all-MiniLM-L6-v2 path/to/cross-encoder --name embedder --name reranker --port 8000""",
    )
    add = parser.add_argument
    add("models", metavar="MODEL", nargs="+", help="a model directory; in requests, its last part is the model's name")
    add("--name", action="append", default=[], metavar="NAME", help="name of a model; once per MODEL, in order")
    add("--allowed-hosts", type=_split, default=(), metavar="HOST,...",
        help="hosts that requests may name, besides localhost and --host; *.a.com = all below a.com, "
        "* = any")  # fmt: skip
    add("--allowed-origins", type=_split, default=(), metavar="ORIGIN,...",
        help="origins of other sites whose pages may send requests, such as https://example.com")  # fmt: skip
    add("--task", choices=("embed", "sparse-embedding", "classify", "fill-mask", "tag"),
        help="task of the models (default: the task of each model's head)")  # fmt: skip
    add("--backend", choices=("jax", "onnxruntime"), default="jax",
        help="jax, or onnxruntime with the ONNX file in MODEL (default: %(default)s)")  # fmt: skip
    add("--onnx-file", default="onnx/model.onnx", metavar="FILE",
        help="for --backend onnxruntime: ONNX file, relative to MODEL (default: %(default)s)")  # fmt: skip
    add("--api-key", metavar="KEY", help=f"require Authorization: Bearer KEY (default: ${_KEY}, or none)")
    add("--batch-tokens", type=int, metavar="N", help="tokens in a batch (default: chosen for the device)")
    add("--batch-invariant", action="store_true",
        help="make answers bitwise independent of other requests; one text takes as long as a batch")  # fmt: skip
    _SETTINGS.declare(parser)
    add("--quiet", action="store_true", help="do not log requests")
    add_dtype(parser)


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def run_serve(args: argparse.Namespace) -> None:
    """Open the models and serve them until SIGTERM or Ctrl-C."""
    try:
        from bert_jax.serving.onnx_backend import open_onnx_model
        from bert_jax.serving.server import serve
    except ImportError as error:
        raise InputError(
            f"serve: expected the packages of the extra serve, found no {error.name}: {how_to_install('serve')}"
        ) from None
    from bert_jax.serving.models import model_names, open_jax_model
    from bert_jax.serving.settings import ServerSettings
    from bert_jax.serving.tasks import ServedTask

    if args.batch_tokens is not None and args.batch_tokens < 1:
        raise InputError(f"--batch-tokens: expected a positive integer, found {args.batch_tokens}")
    hosts = {name: getattr(args, name) for name in ("allowed_hosts", "allowed_origins")}
    key = os.environ.get(_KEY, "") if args.api_key is None else args.api_key
    settings = ServerSettings(api_key=key, log_requests=not args.quiet, **hosts, **_SETTINGS.values(args))
    task = ServedTask(args.task) if args.task else None
    models, batching = [], (args.batch_tokens, args.batch_invariant)
    for path, name in zip(args.models, model_names(args.models, args.name), strict=True):
        if args.backend == "jax":
            models.append(open_jax_model(path, name, task, args.dtype, *batching))
        else:
            models.append(open_onnx_model(path, name, args.onnx_file, task, *batching))
    # Otherwise the garbage collector would visit all imported objects during a request, which takes 0.2 s.
    gc.collect()
    gc.freeze()
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_INTERVAL)
    try:
        serve(models, settings)
    finally:
        sys.setswitchinterval(before)
