"""Which hosts the server answers to, and which browser pages may send requests to it."""

import json

import httpx
import pytest
from raw_http import connect, get, post, read_answer, status_of
from served import StandIn, running, stand_in_model

from bert_jax.errors import InputError
from bert_jax.serving.origins import AllowedHosts, check_origins, read_authority

BODY = b'{"inputs": "a dog"}'


@pytest.fixture(scope="module")
def address(tiny_tokenizer):
    more = {"allowed_hosts": ("models.example.com", "*.example.org"), "allowed_origins": ("https://app.example.com",)}
    with running([stand_in_model(tiny_tokenizer, StandIn())], **more) as address:
        yield address


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LocalHost:1",
        "localhost.",
        "127.0.0.1:8080",
        "[::1]",
        "[0:0:0:0:0:0:0:1]:80",
        "models.example.com",
        "MODELS.example.com.:443",
        "a.b.example.org",
    ],
)
def test_hosts_of_the_server(address, host):
    assert status_of(address, get(f"host: {host}")) == 200
    assert status_of(address, post(BODY, host=host)) == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "evil.localhost",
        "127.0.0.1.evil.example",
        "example.org",
        "192.0.2.1",
        "localhost@evil.example",
        "evil.example@localhost",
        "localhost:80:80",
        "localhost:x",
        "",
        ":80",
        "[::1",
        "::1",
        "[::2]",
        "localhost,evil.example",
        "localhost/",
        "localhost evil",
        "notexample.org",
        "2130706433",
    ],
)
def test_other_hosts_are_refused(address, host):
    for path in ("/health", "/", "/embed/", "/info"):
        assert status_of(address, get(f"host: {host}", path=path)) in (400, 403)
    assert status_of(address, post(BODY, host=host)) in (400, 403)


def test_hosts_that_are_absent_double_or_in_the_target(address):
    assert status_of(address, get()) == 400
    assert status_of(address, get("host: localhost", "host: localhost")) == 400
    assert status_of(address, get("host: localhost", "Host: evil.example")) == 400
    assert status_of(address, get(version="1.0")) == 200  # no browser sends HTTP/1.0
    assert status_of(address, get("host: evil.example", version="1.0")) == 403
    assert status_of(address, get("host: localhost", path="http://localhost:80/health")) == 200
    assert status_of(address, get("host: localhost", path="http://evil.example/health")) == 403
    assert status_of(address, get("host: localhost", path="http://localhost@evil.example/health")) == 400
    assert status_of(address, get("host: evil.example", path="http://localhost/health")) == 403


@pytest.mark.parametrize(
    "headers",
    [
        ("origin: http://evil.example",),
        ("origin: null",),
        ("origin: http://localhost:1",),
        ("origin: http://localhost",),
        ("origin: http://localhost:8080.evil.example",),
        ("origin: http://localhost:8080", "origin: http://evil.example"),
        ("origin: ",),
        ("origin: http://x@localhost:8080",),
        ("origin: file://",),
        ("origin: ftp://localhost:8080",),
        ("sec-fetch-site: cross-site",),
        ("sec-fetch-site: same-site",),
        ("sec-fetch-site: same-origin", "sec-fetch-site: cross-site"),
        ("sec-fetch-site: cross-site", "sec-fetch-mode: navigate"),
        ("origin: http://app.example.com",),
        ("origin: https://app.example.com.evil.example",),
    ],
)
def test_pages_of_other_sites_are_refused(address, headers):
    assert status_of(address, post(BODY, "content-type: text/plain", *headers, host="localhost:8080")) == 403


@pytest.mark.parametrize(
    ("host", "headers"),
    [
        ("localhost:8080", ()),
        ("localhost:8080", ("origin: http://localhost:8080", "sec-fetch-site: same-origin")),
        ("LOCALHOST:8080", ("origin: http://localhost:8080",)),
        ("[::1]:8080", ("origin: http://[::1]:8080",)),
        ("models.example.com", ("origin: https://models.example.com",)),
        ("localhost", ("origin: http://localhost:80",)),
        ("localhost:8080", ("origin: https://app.example.com", "sec-fetch-site: cross-site")),
        ("localhost:8080", ("sec-fetch-site: none",)),
    ],
)
def test_the_own_page_allowed_origins_and_other_clients_are_answered(address, host, headers):
    assert status_of(address, post(BODY, *headers, host=host)) == 200


def test_a_link_opens_the_page_but_nothing_is_embedded(address):
    link = ("host: localhost", "sec-fetch-site: cross-site", "sec-fetch-mode: navigate")
    for dest, status in (("document", 200), ("iframe", 403), ("object", 403)):
        with connect(address) as connection:
            connection.sendall(get(*link, f"sec-fetch-dest: {dest}", path="/"))
            assert read_answer(connection)[0] == status
    assert status_of(address, get("host: localhost", "sec-fetch-site: cross-site", "sec-fetch-mode: no-cors")) == 403


def test_cors_of_allowed_origins_only(address):
    for origin, status in (("https://app.example.com", 200), ("https://evil.example", 403)):
        headers = {
            "origin": origin,
            "access-control-request-method": "POST",
            "access-control-request-headers": "content-type",
        }
        answer = httpx.options(f"{address}/embed", headers=headers)
        assert answer.status_code == status
        assert answer.headers.get("access-control-allow-origin") == (origin if status == 200 else None)


def test_there_are_no_redirects(address):
    for path in (
        "/embed/",
        "/health/",
        "/docs/",
        "//evil.example",
        "/v2/models/sleeper/",
        "//evil.example/..//health/",
    ):
        with connect(address) as connection:
            connection.sendall(get("host: localhost", path=path))
            status, body = read_answer(connection)
            assert status in (400, 404) and json.loads(body)["error"]


def test_a_server_on_all_addresses_answers_to_addresses_and_its_name():
    import socket

    for listen in ("0.0.0.0", "::"):
        hosts = AllowedHosts(listen, ("embedder",))
        for name in ("192.0.2.1", "10.1.2.3", "2001:db8::1", "localhost", "embedder", socket.gethostname().lower()):
            assert name in hosts
        assert "evil.example" not in hosts and "192.0.2.1.evil.example" not in hosts
    assert "192.0.2.7" in AllowedHosts("192.0.2.7") and "192.0.2.8" not in AllowedHosts("192.0.2.7")
    assert "anything.example" in AllowedHosts("127.0.0.1", ("*",))


def test_invalid_names_and_origins_of_the_user():
    for name in ("http://a", "a:80", "a*", "*.", "a b", ""):
        with pytest.raises(InputError, match="allowed_hosts: expected names"):
            AllowedHosts("127.0.0.1", (name,))
    for origin in ("*", "null", "a.example", "http://a.example/", "ftp://a.example", "http://u@a.example"):
        with pytest.raises(InputError, match="allowed_origins: expected http"):
            check_origins((origin,))
    assert read_authority("a:") is None
