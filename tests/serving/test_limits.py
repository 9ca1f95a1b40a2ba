"""What a server refuses and survives: too large, malformed, slow, half-open, cancelled and too many requests."""

import concurrent.futures
import contextlib
import json
import random
import re
import time

import httpx
import pytest
from raw_http import connect
from served import StandIn, running, stand_in_model


@pytest.fixture(scope="module")
def backend():
    return StandIn()


@pytest.fixture(scope="module")
def address(tiny_tokenizer, backend):
    limits = {"max_body_bytes": 10_000, "max_texts": 8, "max_request_tokens": 100, "read_timeout": 0.5}
    with running([stand_in_model(tiny_tokenizer, backend)], **limits) as address:
        yield address


def embed(address, **body):
    return httpx.post(f"{address}/embed", json={"inputs": "a dog"} | body)


def is_well(address):
    answer = embed(address)
    return answer.status_code == 200 and len(answer.json()[0]) == 4


def is_closed(connection):
    """Whether the server closes a connection within ten seconds, with or without a reset."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize(
    ("content", "status", "message"),
    [
        (b"{", 422, "expected JSON in UTF-8, found an error"),
        (b"", 422, "expected JSON in UTF-8"),
        (b"\xff\xfe{}", 422, "expected JSON in UTF-8"),
        (b'{"inputs": "\xc3\x28"}', 422, "expected JSON in UTF-8"),
        (b'{"inputs": "\\ud800"}', 422, "expected JSON in UTF-8"),
        (b"[" * 5000, 422, "expected JSON in UTF-8"),
        (b"[1]", 422, "expected a JSON object, found list"),
        (b'{"inputs": NaN}', 422, "expected JSON in UTF-8"),
        (b"{}", 422, "inputs: expected a string, .* found null or nothing"),
        (b'{"inputs": {"a": 1}}', 422, "found an object"),
        (b'{"inputs": ["a", 5]}', 422, "found a list of 2 items"),
        (b'{"inputs": "a", "truncate": "yes"}', 422, "truncate: expected true or false, found 'yes'"),
        (b'{"inputs": "a", "dimensions": 0}', 422, "dimensions: expected an integer from 1 to .*, found 0"),
        (json.dumps({"inputs": ["a"] * 9}).encode(), 413, "expected at most 8 texts, found 9"),
        (json.dumps({"inputs": ["a b c d e f g h i j k l m n o"] * 8}).encode(), 413, "at most 100 tokens .*found 136"),
        (b'{"inputs": "' + b"a" * 20_000 + b'"}', 413, "expected a body of at most 10000 bytes, found more"),
        (b'{"inputs": "' + b"a" * 400_000 + b'"}', 413, "expected a body of at most 10000 bytes, found more"),
    ],
)
def test_a_request_that_is_refused(address, content, status, message):
    answer = httpx.post(f"{address}/embed", content=content)
    assert answer.status_code == status, answer.text
    assert re.search(message, answer.json()["error"]), answer.json()
    assert is_well(address)


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/embed", {"inputs": None}, "inputs: expected a string, .*, found null or nothing"),
        ("/embed", {"inputs": [1, -1]}, r"inputs: expected .* lists of token ids, found -1 at inputs\[1\]"),
        ("/embed", {"inputs": [[1], [2, True]]}, r"inputs: expected .*, found a boolean at inputs\[1\]\[1\]"),
        ("/embed", {"inputs": [[1], []]}, r"inputs: expected .*, found an empty list at inputs\[1\]"),
        ("/embed", {"inputs": "a", "truncation_direction": "Left"}, "expected Right; .*, found 'Left'"),
        ("/embed", {"inputs": "a", "dimensions": 2.0}, "dimensions: expected an integer from 1 to .*, found 2.0"),
        ("/embed", {"inputs": "a", "prompt_name": ["b"]}, "prompt_name: expected a string, found a list of 1 items"),
        ("/v1/embeddings", {"input": "a", "encoding_format": " - at `$.x`"}, "one of base64, float, found ' - at"),
        ("/v1/embeddings", {"input": "a", "model": 5}, "model: expected a string, .*, found 5"),
        ("/predict", {"inputs": ["a", ["b"]]}, "inputs: expected a string, a pair of strings.*found a list of 2 items"),
        ("/predict", {"inputs": [["a", "b", "c"]]}, r"inputs: .*, found a list of 3 items at inputs\[0\]"),
        ("/rerank", {"query": "a", "texts": ["b", 5]}, r"texts: expected a list of strings, found 5 at texts\[1\]"),
        ("/rerank", {"texts": ["b"]}, "query: expected a string, found null or nothing"),
        ("/rerank", {"query": "a", "documents": [{"text": 5}]}, r"documents\[0\].text: expected a string, found 5"),
        ("/rerank", {"query": "a", "documents": [{}]}, r"documents\[0\].text: expected a string, found null or noth"),
        (
            "/v2/models/sleeper/infer",
            {"inputs": ["a"]},
            r"inputs: expected a list of tensors, found 'a' at inputs\[0\]",
        ),
        ("/v2/models/sleeper/infer", {"inputs": [{}]}, r"inputs\[0\].name: expected a string, found null or nothing"),
        (
            "/v2/models/sleeper/infer",
            {"inputs": [{"name": "text", "datatype": "FP32"}]},
            r"inputs\[0\].(datatype: expected one of BYTES, found 'FP32'|shape: expected \[n\] or \[n, 1\])",
        ),
        (
            "/v2/models/sleeper/infer",
            {"inputs": [], "parameters": {"top_k": 0}},
            "inputs: expected a list of tensors, found an empty list",
        ),
    ],
)
def test_a_field_that_is_not_as_expected(address, path, body, message):
    answer = httpx.post(f"{address}{path}", json=body)
    assert answer.status_code == (400 if path.startswith("/v") else 422)
    error = answer.json()["error"]
    assert re.search(message, error if isinstance(error, str) else error["message"]), error


def test_a_chunked_body_without_end_is_cut_off(address):
    def endless():
        while True:
            yield b"a" * 4096

    with contextlib.suppress(httpx.TransportError):  # the server may close the connection while the client sends
        assert httpx.post(f"{address}/embed", content=endless(), timeout=20).status_code == 413
    assert is_well(address)


def test_slow_and_half_open_connections_are_closed(address):
    """One that sends nothing, one that never ends its headers, one that never ends its body, byte by byte."""
    silent, headers, body = (connect(address) for _ in range(3))
    headers.sendall(b"POST /embed HTTP/1.1\r\nhost: localhost\r\nx: ")
    body.sendall(b"POST /embed HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{")
    started = time.monotonic()
    time.sleep(0.2)
    headers.sendall(b"y")
    body.sendall(b" ")
    assert b" 408 " in body.recv(4096).split(b"\r\n")[0]
    for connection in (silent, headers):
        assert is_closed(connection)
        connection.close()
    assert 0.5 < time.monotonic() - started < 5
    body.close()
    assert is_well(address)


def test_endless_headers_are_refused(address):
    """At once, and not at the end of the time limit, which is 2.5 s."""
    started = time.monotonic()
    with connect(address) as connection:
        try:
            connection.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\nx: ")
            for _ in range(40):
                connection.sendall(b"y" * 4096)
            first = connection.recv(4096)
        except ConnectionError:
            first = b""
        assert first == b"" or b" 400 " in first.split(b"\r\n")[0]
    assert time.monotonic() - started < 2
    assert is_well(address)


def test_random_bytes_are_survived(address):
    rng = random.Random(0)
    start = b"POST /embed HTTP/1.1\r\nhost: localhost\r\ncontent-length: 30\r\n\r\n"
    for _ in range(200):
        with connect(address) as connection:
            data = bytearray(start + rng.randbytes(30))
            for _ in range(rng.randint(0, 8)):
                data[rng.randrange(len(data))] = rng.randrange(256)
            connection.sendall(bytes(data) if rng.random() < 0.7 else rng.randbytes(100))
    assert is_well(address)


def waiting_tokens(address):
    (line,) = [line for line in httpx.get(f"{address}/metrics").text.splitlines() if "bert_jax_waiting_tokens{" in line]
    return float(line.rpartition(" ")[2])


def test_a_client_that_is_gone_is_dropped(address, backend):
    """Its rows that wait are never computed."""
    backend.gate.clear()
    try:
        before = len(backend.batches)
        with connect(address) as first, connect(address) as second:
            for connection, text in ((first, b"a dog"), (second, b"the cat sat")):
                body = b'{"inputs": "%s"}' % text
                connection.sendall(
                    b"POST /embed HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
                )
                time.sleep(0.3)
            assert waiting_tokens(address) > 0  # of the second; the first is on the device
        end = time.monotonic() + 5
        while waiting_tokens(address) > 0:
            assert time.monotonic() < end
            time.sleep(0.05)
    finally:
        backend.gate.set()
    assert is_well(address)
    assert len(backend.batches) == before + 2


def test_the_excess_is_refused_with_429_and_the_rest_is_answered(tiny_tokenizer):
    """Sixty-four clients in a closed loop against a device that takes 10 ms for four texts, and a wait of 50 ms."""
    backend = StandIn(0.01)
    with (
        running([stand_in_model(tiny_tokenizer, backend)], max_wait=0.05) as address,
        concurrent.futures.ThreadPoolExecutor(64) as pool,
        httpx.Client(limits=httpx.Limits(max_connections=64)) as client,
    ):
        end = time.monotonic() + 2

        def loop(_):
            found = []
            while time.monotonic() < end:
                found.append(client.post(f"{address}/embed", json={"inputs": "a dog"}, timeout=30))
            return found

        answers = [answer for found in pool.map(loop, range(64)) for answer in found]
    refused = [answer for answer in answers if answer.status_code == 429]
    assert {answer.status_code for answer in answers} == {200, 429} and len(refused) < len(answers)
    for answer in refused:
        assert int(answer.headers["retry-after"]) >= 1
        assert answer.json()["error_type"] == "Overloaded" and "overloaded" in answer.json()["error"]
    accepted = len(answers) - len(refused)
    assert sum(map(len, backend.batches)) == accepted  # none was computed in vain


def test_requests_at_a_time_and_time_limit(tiny_tokenizer):
    backend = StandIn()
    limits = {"max_concurrent_requests": 2, "request_timeout": 0.5}
    with (
        running([stand_in_model(tiny_tokenizer, backend)], **limits) as address,
        concurrent.futures.ThreadPoolExecutor(8) as pool,
    ):
        backend.gate.clear()
        answers = list(pool.map(lambda _: embed(address), range(8)))
        backend.gate.set()
        statuses = sorted(answer.status_code for answer in answers)
        assert statuses == [429] * 6 + [504] * 2
        assert "expected an answer within 0.5 s" in next(a for a in answers if a.status_code == 504).json()["error"]
        assert is_well(address)


def test_api_key(tiny_tokenizer):
    with running([stand_in_model(tiny_tokenizer, StandIn())], api_key="secret") as address:
        for key, status in (
            (None, 401),
            ("Bearer other", 401),
            ("Bearer é", 401),
            ("secret", 401),
            ("Bearer secret", 200),
        ):
            headers = {} if key is None else {"authorization": key.encode()}
            assert httpx.post(f"{address}/embed", json={"inputs": "a"}, headers=headers).status_code == status
        answer = httpx.post(f"{address}/v1/embeddings", json={"input": "a"})
        assert answer.json()["error"]["type"] == "authentication_error"
        assert answer.headers["www-authenticate"] == "Bearer"
        assert httpx.get(f"{address}/health").status_code == httpx.get(f"{address}/metrics").status_code == 200


def test_not_ready_before_the_models_are_warm(tiny_tokenizer):
    from bert_jax.serving.refusals import Reason, Refusal
    from bert_jax.serving.service import Service
    from bert_jax.serving.settings import ServerSettings

    service = Service({"sleeper": stand_in_model(tiny_tokenizer, StandIn())}, ServerSettings())
    with pytest.raises(Refusal, match="the models are being compiled") as found:
        service.check_ready()
    assert found.value.reason is Reason.NOT_READY and found.value.reason.value == 503


def test_a_failed_batch_is_424_in_tei_and_500_in_openai(tiny_tokenizer):
    backend = StandIn()
    with running([stand_in_model(tiny_tokenizer, backend)]) as address:
        backend.error = RuntimeError("out of memory")
        assert embed(address).status_code == 424
        assert httpx.post(f"{address}/v1/embeddings", json={"input": "a"}).status_code == 500
        backend.error = None
        assert is_well(address)


def test_bodies_in_memory_are_limited_in_sum(tiny_tokenizer):
    body = b'{"inputs": "a dog"%s}' % (b" " * 5000)
    head = b"POST /embed HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(body)
    with running([stand_in_model(tiny_tokenizer, StandIn())], max_buffered_bytes=8000) as address:
        for _ in range(5):  # one after another they fit
            assert httpx.post(f"{address}/embed", content=body).status_code == 200
        with connect(address) as first, connect(address) as second:
            first.sendall(head + body[:-1])
            time.sleep(0.2)
            second.sendall(head + body)
            assert b" 429 " in second.recv(4096).split(b"\r\n")[0]
            first.sendall(body[-1:])
            assert b" 200 " in first.recv(4096).split(b"\r\n")[0]
