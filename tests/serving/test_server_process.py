"""`bert-jax serve` as a process: SIGTERM under load, its log, and errors before it starts."""

import concurrent.futures
import http.client
import json
import re
import signal
import threading

import httpx
import served

from bert_jax.cli import main


def test_sigterm_under_load_loses_nothing_that_was_accepted(models, tmp_path):
    """Every request on an accepted connection is answered whole; only new connections are refused. Exit status 0."""
    sent, stopped = threading.Semaphore(0), threading.Event()
    body = json.dumps({"inputs": ["a dog", "the cat sat"] * 8})
    with served.process(tmp_path / "log", str(models["embedder"]), "--batch-tokens", "16", "--quiet") as process:
        address = process.address.removeprefix("http://")

        def loop(_):
            """Counts the answers until a new connection is refused."""
            count = 0
            while True:
                connection, accepted = http.client.HTTPConnection(address, timeout=30), False
                while True:
                    try:
                        connection.request("POST", "/embed", body)
                        answer = connection.getresponse()
                        vectors = json.loads(answer.read())
                    except (ConnectionError, http.client.RemoteDisconnected):
                        assert stopped.is_set() and not accepted
                        return count
                    assert answer.status == 200 and len(vectors) == 16
                    accepted, count = True, count + 1
                    sent.release()
                    if answer.will_close:
                        break
                connection.close()

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            loops = [pool.submit(loop, number) for number in range(8)]
            for _ in range(24):
                assert sent.acquire(timeout=60)
            text = httpx.get(f"{process.address}/metrics").text
            stopped.set()
            process.popen.send_signal(signal.SIGTERM)
            answered = sum(loop.result(timeout=60) for loop in loops)
        assert process.popen.wait(30) == 0
        assert process.events("stopping") and process.events("stopped") and not process.events("error")
    counted = int(re.search(r'bert_jax_requests_total{route="/embed",status="200"} (\d+)', text)[1])
    assert answered >= counted + 7  # those that were on the device or waited are answered too


def test_errors_before_the_server_starts(models, tmp_path, capsys):
    for words, message in (
        ([str(tmp_path)], "config.json"),
        ([str(models["embedder"]), "--task", "tag"], "tag needs a trained token_classification head, found none"),
        (
            [str(models["embedder"]), str(models["embedder"])],
            "a name of its own for each model, found 'embedder' twice",
        ),
        ([str(models["embedder"]), "--name", "a", "--name", "b"], "expected one per model or none, found 2 for 1"),
        ([str(models["embedder"]), "--name", "a/b"], "without a slash, found 'a/b'"),
        ([str(models["embedder"]), "--port", "70000"], "port: expected 0 to 65535, found 70000"),
        ([str(models["embedder"]), "--max-wait", "0"], "max_wait: expected a positive number, found 0"),
        ([str(models["embedder"]), "--host", "203.0.113.1"], "203.0.113.1:8080: expected a free port, found"),
        ([str(models["embedder"]), "--backend", "onnxruntime"], "onnx/model.onnx: no such file"),
    ):
        assert main(["serve", *words]) == 2
        printed = capsys.readouterr().err
        assert message in printed and printed.count("\n") == 1


def test_names_of_models():
    from bert_jax.serving.models import model_names

    assert model_names(["runs/sst2/model", "all-MiniLM-L6-v2/", "gs://bucket/bge"], []) == [
        "sst2",
        "all-MiniLM-L6-v2",
        "bge",
    ]
