"""Requests whose tokenization is slow: they end in an error or wait, and nobody else waits for them."""

import concurrent.futures
import json
import time

import httpx
import pytest
from served import StandIn, running, stand_in_model

from bert_jax.tokenization import load_tokenizer, train_wordpiece, word_piece

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
CUBIC = r"\p{Greek}+\p{Greek}+\p{Lu}"
SLOW_WORDS = ("z" * 199 + " ") * 85  # 17 KB


@pytest.fixture(scope="module")
def with_pattern(tmp_path_factory):
    """A tokenizer with a pattern that takes minutes for a few thousand Greek letters."""
    path = tmp_path_factory.mktemp("pattern")
    train_wordpiece(["the cat and the dog", "a cat, the river"] * 20, 60).save(path)
    content = json.loads((path / "tokenizer.json").read_text())
    split = {"type": "Split", "pattern": {"Regex": CUBIC}, "behavior": "Isolated", "invert": False}
    (path / "tokenizer.json").write_text(json.dumps(content | {"pre_tokenizer": split}))
    return load_tokenizer(path)


@pytest.fixture(scope="module")
def of_words():
    """BERT's tokenizer, which takes cubic time in the length of a word."""
    return word_piece([*SPECIAL, "z", "##z", "the", "cat"])


def embed(client, address, inputs):
    return client.post(f"{address}/embed", json={"inputs": inputs, "truncate": True}, timeout=120)


def seconds_of_lone_requests(address, number):
    with httpx.Client() as client:
        found = []
        for _ in range(number):
            start = time.monotonic()
            assert embed(client, address, "the cat").status_code == 200
            found.append(time.monotonic() - start)
            time.sleep(0.01)
    return sorted(found)


def under_attack(address, inputs, clients):
    """Return the seconds of lone requests, and the answers to clients that send slow ones at the same time."""
    with concurrent.futures.ThreadPoolExecutor(clients) as threads:
        futures = [threads.submit(embed, httpx.Client(), address, inputs) for _ in range(clients)]
        time.sleep(0.3)
        seconds = seconds_of_lone_requests(address, 10)
        return seconds, [future.result() for future in futures]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("kind", "inputs"),
    [
        ("with_pattern", "\u03b1" * 8500),
        pytest.param("with_pattern", "\u03b1" * 900, marks=pytest.mark.slow),
        ("of_words", SLOW_WORDS),
        pytest.param("of_words", [SLOW_WORDS] * 4, marks=pytest.mark.slow),
    ],
    ids=["pattern", "short text of a pattern", "words", "texts of words"],
)
def test_a_lone_request_does_not_wait_for_slow_ones(request, kind, inputs):
    model = stand_in_model(request.getfixturevalue(kind), StandIn())
    with running([model]) as address:
        assert embed(httpx.Client(), address, inputs).status_code in (200, 422)  # starts the workers
        seconds, answers = under_attack(address, inputs, clients=8)
    assert seconds[len(seconds) // 2] < 1 and seconds[-1] < 5  # before, it waited for all of them
    assert {answer.status_code for answer in answers} <= {200, 422, 429}


def test_a_text_over_its_budget_is_refused_in_one_line(with_pattern):
    with running([stand_in_model(with_pattern, StandIn())]) as address:
        answer = embed(httpx.Client(), address, ["the cat", "\u03b1" * 3000])
        assert answer.status_code == 422 and embed(httpx.Client(), address, "the cat").status_code == 200
    message = "text 1: expected a text that is tokenized within 1.03 s and 1 GB, found one of 3000 characters that"
    assert answer.json()["error"].startswith(message)


@pytest.mark.slow
def test_slow_requests_that_would_wait_too_long_are_refused(with_pattern):
    slow = "\u03b1" * 3000  # a second of a worker; at most eight work at a time
    with running([stand_in_model(with_pattern, StandIn())], max_wait=0.3) as address, httpx.Client() as client:
        embed(client, address, slow)
        with concurrent.futures.ThreadPoolExecutor(12) as threads:
            first = [threads.submit(embed, httpx.Client(), address, slow) for _ in range(12)]
            time.sleep(0.9)
            refused = embed(client, address, slow)
            assert embed(client, address, "the cat").status_code == 200
        assert {answer.result().status_code for answer in first} <= {422, 429}
    assert refused.status_code == 429 and int(refused.headers["retry-after"]) >= 1
    assert "expected slow texts to wait at most 0.3 s, found" in refused.json()["error"]


def test_long_texts_have_the_answers_of_short_ones(of_words):
    """A worker process gives the same tokens as the thread of a short text."""
    backend = StandIn()
    with running([stand_in_model(of_words, backend)]) as address:
        long = embed(httpx.Client(), address, ["the cat z" + " the" * 20_000] * 2)
        short = embed(httpx.Client(), address, "the cat z" + " the" * 100)
    assert long.json() == short.json() * 2
    assert (backend.batches[0][0].input_ids == backend.batches[-1][0].input_ids).all()
