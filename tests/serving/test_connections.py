"""Every part of a request is bounded, every state of a connection ends, and health is always answered."""

import contextlib
import socket
import time

import pytest
from raw_http import connect, count_sent, get, post, read_answer, status_of
from served import StandIn, running, stand_in_model

BODY = b'{"inputs": "a dog"}'
HEAD = b"POST /embed HTTP/1.1\r\nhost: localhost\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
MOST = 8 << 20  # bytes that the tests send at most


@pytest.fixture(scope="module")
def backend():
    return StandIn()


@pytest.fixture(scope="module")
def address(tiny_tokenizer, backend):
    limits = {"max_body_bytes": 100_000, "read_timeout": 0.5, "request_timeout": 5.0, "keep_alive": 1}
    with running([stand_in_model(tiny_tokenizer, backend)], **limits) as address:
        yield address


def is_well(address):
    return status_of(address, post(BODY)) == 200


@pytest.mark.parametrize(
    ("start", "block"),
    [
        (CHUNKED + b"0\r\n", b"a:b\r\n" * 1000),
        (CHUNKED + b"0\r\na: ", b"b" * 5000),
        (CHUNKED + b"0\r\n", b"b" * 5000),
        (CHUNKED + b"1;", b"a=b;" * 1000),
        (CHUNKED + b"0;a=", b"b" * 5000),
        (CHUNKED, b"1\r\n \r\n" * 1000),
        (CHUNKED, b"1;aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n \r\n" * 100),
        (CHUNKED, b"0" * 5000),
        (HEAD, b"a:b\r\n" * 1000),
        (HEAD + b"a:", b" " * 5000),
        (HEAD, b"a" * 5000),
        (b"GET /", b"a" * 5000),
        (b"", b"\r\n" * 2500),
        (b"", b"G" * 5000),
        (post(BODY), b"\r\n" * 2500),
        (post(BODY), post(BODY) * 50),
        (HEAD + b"content-length: 99999999999\r\n\r\n", b" " * 5000),
    ],
    ids=[
        "trailers",
        "trailer_value",
        "trailer_name",
        "chunk_extensions",
        "extension_of_the_last_chunk",
        "tiny_chunks",
        "tiny_chunks_with_extensions",
        "chunk_size",
        "headers",
        "header_value",
        "header_name",
        "url",
        "blank_lines",
        "method",
        "blank_lines_after_a_request",
        "pipelined_requests",
        "body",
    ],
)
def test_no_part_of_a_request_is_endless(address, backend, start, block):
    backend.gate.clear()  # what is pipelined waits
    try:
        with connect(address) as connection:
            connection.sendall(start)
            assert count_sent(connection, block, 2 * MOST, 10) < MOST
    finally:
        backend.gate.set()
    assert is_well(address)


def test_trailers_and_chunks_of_an_honest_request_are_accepted(address):
    with connect(address) as connection:
        chunks = b"".join(b"%x;a=b\r\n%s\r\n" % (len(part), part) for part in (BODY[:3], BODY[3:9], BODY[9:]))
        connection.sendall(CHUNKED + chunks + b"0\r\nx-checksum: 1\r\nx-more: 2\r\n\r\n")
        assert read_answer(connection)[0] == 200
        connection.sendall(b"\r\n\r\n" + post(BODY))  # blank lines before a request are allowed
        assert read_answer(connection)[0] == 200


def test_a_malformed_request_comes_after_the_answers_to_earlier_ones(address, backend):
    with connect(address) as connection:
        backend.gate.clear()
        connection.sendall(post(BODY) * 3 + b"nonsense\r\n\r\n")
        time.sleep(0.2)
        backend.gate.set()
        data = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    assert data.count(b"HTTP/1.1 200 ") == 3 and data.count(b"HTTP/1.1 ") <= 4
    assert is_well(address)


@pytest.mark.sampled(9)
@pytest.mark.parametrize("drip", [b"", b"\r\n", b"\n"])
@pytest.mark.parametrize("start", [b"", get("host: localhost"), HEAD + b"a: b", CHUNKED + b"1\r\n{\r\n0\r\n"])
def test_bytes_do_not_move_a_deadline(address, start, drip):
    """Before the first byte, after an answer, in headers, in trailers."""
    with connect(address) as connection:
        connection.sendall(start)
        started = time.monotonic()
        with contextlib.suppress(ConnectionError):
            while time.monotonic() < started + 15:
                connection.settimeout(0.3)
                with contextlib.suppress(TimeoutError):
                    if connection.recv(1 << 16) == b"":
                        break
                connection.sendall(drip)
        assert time.monotonic() < started + 14


def test_a_client_that_does_not_read_its_answer_is_closed(tiny_tokenizer):
    body = b'{"inputs": [%s]}' % b",".join([b'"a dog"'] * 2048)
    limits = {"read_timeout": 0.5, "keep_alive": 1, "max_request_tokens": 1 << 20}
    with running([stand_in_model(tiny_tokenizer, StandIn())], **limits) as address, socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        connection.connect(("127.0.0.1", int(address.rpartition(":")[2])))
        connection.settimeout(20)
        with contextlib.suppress(ConnectionError, TimeoutError):
            for _ in range(200):  # whatever the kernel holds
                connection.sendall(post(body))
        connection.settimeout(30)
        data = 0
        with contextlib.suppress(ConnectionError):
            while part := connection.recv(1 << 16):
                data += len(part)
        assert data < 200 * 20_000
        assert is_well(address)


def half_closed(address, request):
    """What the server sends to a client that half-closes its connection after a request."""
    with connect(address) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def test_a_client_that_half_closes_gets_its_answer(address, backend):
    assert half_closed(address, post(BODY)).startswith(b"HTTP/1.1 200 ")
    assert half_closed(address, get("host: localhost", "connection: keep-alive")).startswith(b"HTTP/1.1 200 ")
    answers = half_closed(address, post(BODY) * 3)
    assert answers.count(b"HTTP/1.1 200 ") == 3
    assert half_closed(address, post(BODY)[:-1]) == b""  # its request can never be whole
    with connect(address) as connection:
        backend.gate.clear()
        connection.sendall(post(BODY))
        connection.shutdown(socket.SHUT_WR)
        time.sleep(2)  # the server finds out whether the client is still there
        backend.gate.set()
        data = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    head, _, body = data.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n") and b"content-length: %d" % len(body) in head


def taken(address, count, start=b""):
    """Connections that are open until the test ends."""
    connections = [connect(address) for _ in range(count)]
    for connection in connections:
        with contextlib.suppress(ConnectionError):
            connection.sendall(start)
    return connections


@pytest.mark.sampled(6)
@pytest.mark.parametrize("start", [b"", HEAD + b"a: b\r\n", HEAD + b"content-length: 9\r\n\r\n{", post(BODY), b"\r\n"])
def test_health_and_new_clients_get_through_when_all_places_are_taken(tiny_tokenizer, start):
    backend = StandIn()
    limits = {"max_connections": 8, "max_connections_per_client": 6}
    with running([stand_in_model(tiny_tokenizer, backend)], **limits) as address:
        connections = taken(address, 40, start)
        time.sleep(0.5)
        for _ in range(3):
            assert status_of(address, get("host: localhost")) == 200
        assert is_well(address)
        for connection in connections:
            connection.close()


def test_health_gets_through_when_all_connections_wait_for_answers(tiny_tokenizer):
    backend = StandIn()
    with running([stand_in_model(tiny_tokenizer, backend)], max_connections=8) as address:
        backend.gate.clear()
        try:
            connections = [taken(address, 1, post(BODY))[0] for _ in range(24)]
            time.sleep(0.5)
            for _ in range(3):
                assert status_of(address, get("host: localhost")) == 200
                assert status_of(address, get("host: localhost", path="/v2/health/live")) == 200
            with connect(address) as connection:  # anything else is refused
                connection.sendall(post(BODY))
                with contextlib.suppress(ConnectionError):
                    assert b" 200 " not in connection.recv(1 << 16)
        finally:
            backend.gate.set()
        statuses = []
        for connection in connections:
            with contextlib.suppress(ConnectionError, AssertionError):
                statuses.append(read_answer(connection)[0])
            connection.close()
        assert 200 in statuses and set(statuses) <= {200, 503}


def test_clients_of_an_ipv6_network_are_one():
    from bert_jax.serving.connection_pool import client_key

    assert client_key("2001:db8::1") == client_key("2001:db8::ffff:1") != client_key("2001:db8:0:1::1")
    assert client_key("::ffff:192.0.2.1") == client_key("192.0.2.1") != client_key("192.0.2.2")
