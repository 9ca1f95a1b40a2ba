"""Texts per second of pipelines, compared with transformers and sentence-transformers.

python -m benchmarks.pipelines ours|theirs classify|embed MODEL DTYPE TEXTS OUT
"""

import itertools
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.convert import measured
from benchmarks.tasks import quicker_dtype
from benchmarks.turns import Rival, ratio, serve

TEXTS = 100_000
TURN = 4096  # texts of a turn, and of the comparison
BATCH = 64  # of 32, 64, 128 and 256, what theirs is quickest with
DTYPES = ("float32", "bfloat16")


def main(data: Path, model: Path, turns: int) -> None:
    """Print texts/s of both sides, the difference of their answers, and the memory of bert_jax.

    Args:
        data: the directory of SST-2, whose training sentences are the texts, repeated if necessary.
        model: all-MiniLM-L6-v2.
        turns: number of turns of `TURN` texts for each side.
    """
    with tempfile.TemporaryDirectory() as directory:
        texts, classifier = f"{directory}/texts.txt", f"{directory}/classifier"
        _write(data / "train.tsv", texts, TEXTS)
        _classifier(model, classifier)
        for what, opened in (("classify", classifier), ("embed", str(model))):
            _contest(what, opened, texts, turns, directory)
        dtype = quicker_dtype()
        for verb in (("classify", classifier, "--json"), ("embed", str(model), "--out", f"{directory}/vectors.npy")):
            for count in (TEXTS // 10, TEXTS):
                _write(data / "train.tsv", texts, count)
                command = [sys.executable, "-m", "bert_jax", *verb, "--file", texts, f"--dtype={dtype}"]
                seconds, megabytes = measured(command)
                print(f"bert-jax {verb[0]} in {dtype}, {count:,} texts: {seconds:.0f} s, {megabytes:,.0f} MB at most",
                      flush=True)  # fmt: skip


def _contest(what: str, model: str, texts: str, turns: int, directory: str) -> None:
    names = [(who, dtype) for who in ("ours", "theirs") for dtype in DTYPES]
    out = {name: f"{directory}/{'-'.join(name)}.npy" for name in names}
    rivals = {
        (who, dtype): Rival("benchmarks.pipelines", who, what, model, dtype, texts, out[who, dtype])
        for who, dtype in names
    }
    for _ in range(turns):
        for rival in rivals.values():
            rival.turn(TURN)
    for rival in rivals.values():
        rival.end()
    truth = np.load(out["theirs", "float32"])
    for name, rival in rivals.items():
        apart = np.abs(np.load(out[name]) - truth).max()
        print(f"{what:8} {name[0]:6} {name[1]:8} {np.median(rival.rates):6.0f} texts/s, {apart:.1e} apart", flush=True)
    for dtypes in (("float32", "float32"), ("bfloat16", "bfloat16"), ("bfloat16", "float32")):
        a, b = (rivals[who, dtype].rates for who, dtype in zip(("ours", "theirs"), dtypes, strict=True))
        low, high = (f(x / y for x, y in zip(a, b, strict=True)) for f in (min, max))
        print(
            f"{what:8} ours {dtypes[0]} / theirs {dtypes[1]}: {ratio(a, b):.2f} ({low:.2f} to {high:.2f})", flush=True
        )


def _write(source: Path, path: str, count: int) -> None:
    """Write the first `count` sentences, repeated if necessary."""
    sentences = [line.split("\t")[0] for line in source.read_text(encoding="utf-8").splitlines()[1:]]
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(f"{text}\n" for text in itertools.islice(itertools.cycle(sentences), count))


def _classifier(model: Path, path: str) -> None:
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


def rival(who: str, what: str, model: str, dtype: str, path: str, out: str) -> None:
    """Run one side: answer the texts of a file in order, and write the answers to the first texts."""
    run = {"ours": ours, "theirs": theirs}[who](what, model, dtype)
    texts = Path(path).read_text(encoding="utf-8").splitlines()
    np.save(out, run(texts[:TURN]))
    left = itertools.cycle(texts)

    def work(count: int) -> int:
        return len(run(list(itertools.islice(left, count))))

    serve(work)


if __name__ == "__main__":
    rival(*sys.argv[1:])
