"""Texts per second of pipelines, beside transformers, sentence-transformers, onnxruntime and OpenVINO.

python -m benchmarks.pipelines SIDE classify|embed MODEL DTYPE TEXTS OUT
"""

import importlib.util
import itertools
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.convert import measured
from benchmarks.limits import limits, peak_of
from benchmarks.quantization import export_onnx, open_session, run_apart
from benchmarks.tasks import PRODUCT, quicker_dtype
from benchmarks.turns import Rival, append, ratio, serve

TEXTS = 100_000
TURN = 4096  # texts of a turn, and of the comparison
LONG = 20  # sentences of a long text; the model reads its first 256 tokens
BATCH = 64  # of 32, 64, 128 and 256, what theirs is quickest with
DTYPES = ("float32", "bfloat16")


class Contest(NamedTuple):
    """What all sides do.

    Attributes:
        name: name in the table.
        what: `classify` or `embed`.
        model: directory of the model.
        texts: file with a text a line.
        turn: texts of a turn.
        exported: directory with the model as ONNX, or None.
    """

    name: str
    what: str
    model: str
    texts: str
    turn: int
    exported: str | None = None


def main(data: Path, model: Path, turns: int, record: Path | None) -> None:
    """Print texts/s of all sides, the difference of their answers, and the memory of bert_jax.

    Args:
        data: the directory of SST-2, whose training sentences are the texts, repeated if necessary.
        model: all-MiniLM-L6-v2.
        turns: number of turns of `TURN` texts for each side.
        record: JSON lines file to which each row is appended, or None.
    """
    with tempfile.TemporaryDirectory() as directory:
        for contest in contests(data, model, directory):
            hold(contest, turns, directory, record)
        texts, classifier = f"{directory}/texts.txt", f"{directory}/classifier"
        dtype = quicker_dtype()
        for verb in (("classify", classifier, "--json"), ("embed", str(model), "--out", f"{directory}/vectors.npy")):
            for count in (TEXTS // 10, TEXTS):
                _write(data / "train.tsv", texts, count)
                command = [sys.executable, "-m", "bert_jax", *verb, "--file", texts, f"--dtype={dtype}"]
                seconds, megabytes = measured(command)
                print(f"bert-jax {verb[0]} in {dtype}, {count:,} texts: {seconds:.0f} s, {megabytes:,.0f} MB at most",
                      flush=True)  # fmt: skip


def contests(data: Path, model: Path, directory: str) -> list[Contest]:
    """Write the texts, a classifier and the exported model into a directory, and return what to measure with them."""
    texts, long_texts = f"{directory}/texts.txt", f"{directory}/long.txt"
    classifier, exported = f"{directory}/classifier", Path(directory, "exported")
    _write(data / "train.tsv", texts, TEXTS)
    _write(data / "train.tsv", long_texts, TURN // LONG, LONG)
    write_classifier(model, classifier)
    exported.mkdir()
    run_apart(export_onnx, "stsb", model, exported / "model.onnx", exported / "model.onnx")
    return [
        Contest("classify", "classify", classifier, texts, TURN),
        Contest("embed", "embed", str(model), texts, TURN, str(exported)),
        Contest("embed, long", "embed", str(model), long_texts, TURN // LONG, str(exported)),
    ]


def hold(contest: Contest, turns: int, directory: str, record: Path | None, dtypes: tuple[str, ...] = DTYPES) -> None:
    """Measure a contest in alternation, and print its rows."""
    names = [(who, dtype) for who in ("ours", "theirs") for dtype in dtypes]
    if contest.exported and "float32" in dtypes and importlib.util.find_spec("onnxruntime"):
        names.append(("onnxruntime", "float32"))
    if contest.exported and importlib.util.find_spec("openvino"):
        names += [("OpenVINO", dtype) for dtype in dtypes]
    out = {name: f"{directory}/{'-'.join(name)}.npy" for name in names}
    rivals = {
        (who, dtype): Rival(
            "benchmarks.pipelines", who, contest.what, contest.model, dtype, contest.texts, out[who, dtype],
            *([contest.exported] if contest.exported else []),
        )
        for who, dtype in names
    }  # fmt: skip
    products = {dtype: limits(dtype, PRODUCT) for dtype in dtypes}
    for _ in range(turns):
        for product in itertools.chain(*products.values()):
            product.turn(50)
        for rival in rivals.values():
            rival.turn(contest.turn)
    for rival in (*rivals.values(), *itertools.chain(*products.values())):
        rival.end()
    peaks = {dtype: peak_of(of_dtype) for dtype, of_dtype in products.items()}
    flops, truth = _flops_of_a_text(contest), np.load(out["theirs", dtypes[0]])
    for (who, dtype), rival in rivals.items():
        rate = statistics.median(rival.rates)
        ahead = [a / b for a, b in zip(rivals["ours", dtype].rates, rival.rates, strict=True)]
        row = {
            "what": contest.name, "side": who, "dtype": dtype, "texts_per_second": round(rate, 1),
            "ratio": round(statistics.median(ahead), 3), "ratio_least": round(min(ahead), 3),
            "ratio_most": round(max(ahead), 3), "share_of_peak": round(rate * flops / peaks[dtype], 4),
            "peak_gflops": round(peaks[dtype] / 1e9, 1),
            "apart": float(np.abs(np.load(out[who, dtype]) - truth).max()),
        }  # fmt: skip
        print(
            f"{contest.name:12} {who:12} {dtype:8} {rate:7.1f} texts/s, {row['share_of_peak']:.0%} of "
            f"{row['peak_gflops']:.0f} GFLOP/s, answers {row['apart']:.1e} apart; ours / this: {row['ratio']:.2f} "
            f"({row['ratio_least']:.2f} to {row['ratio_most']:.2f})", flush=True,
        )  # fmt: skip
        append(record, row)
    if {"float32", "bfloat16"} == set(dtypes):
        both = ratio(rivals["ours", "bfloat16"].rates, rivals["theirs", "float32"].rates)
        print(f"{contest.name:12} ours bfloat16 / theirs float32: {both:.2f}", flush=True)


def _flops_of_a_text(contest: Contest) -> float:
    """Return the mean FLOPs of a forward pass of a text, without any padding."""
    from bert_jax import from_pretrained
    from bert_jax.training.flops import forward_flops

    model = from_pretrained(contest.model)
    texts = Path(contest.texts).read_text(encoding="utf-8").splitlines()[:TURN]
    lengths = [min(len(model.tokenizer.tokenize(text)) + 2, model.max_length) for text in texts]
    return statistics.mean(forward_flops(model.config, model.head, 1, length) for length in lengths)


def _write(source: Path, path: str, count: int, joined: int = 1) -> None:
    """Write `count` texts, each of the next `joined` sentences, which are repeated if necessary."""
    sentences = [line.split("\t")[0] for line in source.read_text(encoding="utf-8").splitlines()[1:]]
    with open(path, "w", encoding="utf-8") as file:
        left = itertools.cycle(sentences)
        file.writelines(" ".join(itertools.islice(left, joined)) + "\n" for _ in range(count))


def write_classifier(model: Path, path: str) -> None:
    """Write the encoder of `model` with a random head of two classes."""
    import torch
    import transformers

    torch.manual_seed(0)
    transformers.AutoModelForSequenceClassification.from_pretrained(model, num_labels=2).save_pretrained(path)
    transformers.AutoTokenizer.from_pretrained(model).save_pretrained(path)


def ours(what: str, model: str, dtype: str):
    """Texts to an array [n, ...]."""
    import bert_jax

    if what == "embed":
        return bert_jax.pipeline("embed", model, dtype=dtype)
    classify = bert_jax.pipeline("text-classification", model, dtype=dtype)

    def run(texts: list[str]) -> np.ndarray:
        answers = [{answer["label"]: answer["score"] for answer in row} for row in classify(texts, top_k=None)]
        return np.array([[row["LABEL_0"], row["LABEL_1"]] for row in answers])

    return run


def theirs(what: str, model: str, dtype: str):
    """Texts to an array [n, ...]: what sentence-transformers does, and its like for a classifier of transformers, whose
    pipeline sorts nothing."""
    import torch

    from benchmarks.pytorch import precision

    if what == "embed":
        import sentence_transformers

        embedder = sentence_transformers.SentenceTransformer(model, device="cpu")

        def embed(texts: list[str]) -> np.ndarray:
            with precision(dtype):
                return embedder.encode(texts, batch_size=BATCH, show_progress_bar=False)

        return embed
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    classifier = transformers.AutoModelForSequenceClassification.from_pretrained(model).eval()

    def classify(texts: list[str]) -> np.ndarray:
        order = np.argsort([-len(text) for text in texts], kind="stable")
        answers = np.zeros((len(texts), classifier.config.num_labels))
        with torch.inference_mode(), precision(dtype):
            for at in range(0, len(texts), BATCH):
                rows = order[at : at + BATCH]
                batch = tokenizer([texts[i] for i in rows], padding=True, truncation=True, return_tensors="pt")
                answers[rows] = classifier(**batch).logits.float().softmax(-1).numpy()
        return answers

    return classify


def exported_embedder(name: str, model: str, exported: str, limit: int = 256) -> Callable[[list[str]], Any]:
    """Return a function from texts to vectors, which runs texts of similar length together.

    Args:
        name: library and dtype, as for `open_session`.
        model: directory of the tokenizer.
        exported: directory of `model.onnx`.
        limit: the most tokens of a text.
    """
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(f"{model}/tokenizer.json")
    tokenizer.enable_padding()
    tokenizer.enable_truncation(limit)
    forward, _ = open_session(name, Path(exported, "model.onnx"))

    def embed(texts: list[str]) -> np.ndarray:
        order, vectors = np.argsort([-len(text) for text in texts], kind="stable"), [np.zeros(0)] * len(texts)
        for at in range(0, len(texts), BATCH):
            rows = order[at : at + BATCH]
            found = tokenizer.encode_batch([texts[i] for i in rows])
            fields = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
            inputs = {key: [getattr(each, field) for each in found] for key, field in fields.items()}
            batch = {key: np.array(values, np.int64) for key, values in inputs.items()}
            for i, vector in zip(rows, forward(batch), strict=True):
                vectors[i] = vector
        return np.stack(vectors)

    return embed


def rival(who: str, what: str, model: str, dtype: str, path: str, out: str, exported: str = "") -> None:
    """Run one side: answer the texts of a file in order, and write the answers to the first texts."""
    if who in ("onnxruntime", "OpenVINO"):
        run = exported_embedder(f"{who} {dtype}", model, exported)
    else:
        run = {"ours": ours, "theirs": theirs}[who](what, model, dtype)
    texts = Path(path).read_text(encoding="utf-8").splitlines()
    np.save(out, run(texts[:TURN]))
    left = itertools.cycle(texts)

    def work(count: int) -> int:
        return len(run(list(itertools.islice(left, count))))

    serve(work)


if __name__ == "__main__":
    rival(*sys.argv[1:])
