"""Sentences scored per second, beside loops that mask one token at a time: `python -m benchmarks likelihood`.

python -m benchmarks.likelihood SIDE MODEL SENTENCES
"""

import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.turns import Rival, append, ratio, serve

_SENTENCES = 8  # of a turn


def main(data: Path, minilm: Path, turns: int, record: Path | None) -> None:
    """Print medians of BERT-base with random weights, in float32, in alternation; append them to a JSON lines file.

    Args:
        data: the directory of SST-2, whose dev set has the sentences.
        minilm: a model with the vocabulary of BERT.
        turns: turns of each side.
        record: JSON lines file, or None.
    """
    import jax

    from bert_jax.config import BertConfig
    from bert_jax.conversion.huggingface import save_pretrained
    from bert_jax.modeling import Bert
    from bert_jax.tokenization import load_tokenizer

    sentences = [line.split("\t")[0] for line in (data / "dev.tsv").read_text().splitlines()[1:]]
    with tempfile.TemporaryDirectory() as directory:
        model, texts = Path(directory) / "model", Path(directory) / "sentences"
        config = BertConfig(vocab_size=30522)
        save_pretrained(model, config, "masked_lm", Bert(config, "masked_lm").init(jax.random.key(0)),
                        load_tokenizer(minilm))  # fmt: skip
        texts.write_text("\n".join(sentences[: _SENTENCES * 4]))
        rivals = {side: Rival("benchmarks.likelihood", side, str(model), str(texts)) for side in SIDES}
        for _ in range(turns):
            for rival in rivals.values():
                rival.turn(_SENTENCES)
        for rival in rivals.values():
            rival.end()
    print("| | sentences/s | the pipeline is ahead by |\n|---|---|---|")
    for side, rival in rivals.items():
        rate, ahead = statistics.median(rival.rates), ratio(rivals["pipeline"].rates, rival.rates)
        print(f"| {side} | {rate:.2f} | {ahead:.1f} |")
        append(record, {"side": side, "sentences_per_second": rate, "pipeline_ahead_by": ahead})


def _pipeline(model: str) -> Callable[[list[str]], object]:
    import bert_jax

    return bert_jax.pipeline("pseudo-log-likelihood", model)


def _loop(model: str) -> Callable[[list[str]], object]:
    """Score by compiled calls of one row, at the length of the text."""
    import bert_jax

    bert = bert_jax.from_pretrained(model)
    tokenizer = bert.tokenizer

    def score(texts: list[str]) -> list[float]:
        found = []
        for text in texts:
            ids, total = tokenizer(text)["input_ids"], 0.0
            for place in range(1, ids.shape[1] - 1):
                masked = ids.copy()
                masked[0, place] = tokenizer.mask_id
                logits = np.asarray(bert(masked, masked_positions=np.array([[place]])).logits[0, 0], np.float32)
                total += float(logits[ids[0, place]] - np.logaddexp.reduce(logits))
            found.append(total)
        return found

    return score


def _transformers(model: str) -> Callable[[list[str]], object]:
    """Score by calls of transformers with one row."""
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    bert = transformers.AutoModelForMaskedLM.from_pretrained(model).eval()

    @torch.inference_mode()
    def score(texts: list[str]) -> list[float]:
        found = []
        for text in texts:
            ids, total = tokenizer(text, return_tensors="pt")["input_ids"], 0.0
            for place in range(1, ids.shape[1] - 1):
                masked = ids.clone()
                masked[0, place] = tokenizer.mask_token_id
                total += float(bert(masked).logits[0, place].log_softmax(-1)[ids[0, place]])
            found.append(total)
        return found

    return score


SIDES: dict[str, Callable[[str], Callable[[list[str]], object]]] = {
    "pipeline": _pipeline, "a loop of compiled calls": _loop, "a loop of transformers": _transformers
}  # fmt: skip


def rival(side: str, model: str, texts: str) -> None:
    """Run one side: score sentences, further ones each time."""
    score, lines, done = SIDES[side](model), Path(texts).read_text().splitlines(), 0
    score(lines)  # compiles

    def work(count: int) -> int:
        nonlocal done
        score([lines[(done + i) % len(lines)] for i in range(count)])
        done += count
        return count

    serve(work)


if __name__ == "__main__":
    rival(*sys.argv[1:])
