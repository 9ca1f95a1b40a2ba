"""Score, file size, memory and speed of quantized models on a CPU, beside onnxruntime and OpenVINO in int8.

    python -m benchmarks.quantization --data data --model all-MiniLM-L6-v2 --record quantization.jsonl
    python -m benchmarks.quantization --data data --model all-MiniLM-L6-v2 --sst2 runs/sst2/model \\
        --conll runs/conll2003/model --record quantization.jsonl

`--model` is scored on STS-B by cosines, `--sst2` and `--conll` are fine-tuned models. Each measurement is a process of
its own and a line of `--record`; recorded ones are skipped. onnxruntime and OpenVINO are measured if they are installed
with torch, transformers and onnx (OpenVINO's int8 with nncf; taggers with seqeval).
"""

import argparse
import importlib.util
import json
import multiprocessing
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.turns import append
from bert_jax.process import resident_memory

MODES = ("float32", "bfloat16", "int8", "int8_dynamic", "int8_static", "int4", "fp8")
COMPETITORS = {
    "onnxruntime float32": ("onnxruntime", "onnx", "torch", "transformers"),
    "onnxruntime int8": ("onnxruntime", "onnx", "torch", "transformers"),
    "OpenVINO float32": ("openvino", "torch", "transformers"),
    "OpenVINO int8": ("openvino", "nncf", "torch", "transformers"),
}
# Task -> the metric, the files below the data directory to score and to calibrate with, and the names of columns.
TASKS: dict[str, tuple[str, str, str, dict[str, str]]] = {
    "stsb": ("spearman", "glue/STS-B/dev.tsv", "glue/STS-B/train.tsv",
             {"text": "sentence1", "pair": "sentence2", "label": "score"}),
    "sst2": ("accuracy", "glue/SST-2/dev.tsv", "glue/SST-2/train.tsv", {"text": "sentence", "label": "label"}),
    "conll": ("f1", "conll2003/valid.txt", "glue/SST-2/train.tsv", {}),
}  # fmt: skip
BATCH = 32
TURNS = 3


def main() -> None:
    """Measure what the command line names, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quantization", description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="directory with glue/STS-B, glue/SST-2 and conll2003")
    parser.add_argument("--model", type=Path, help="sentence embedding model for STS-B")
    parser.add_argument("--sst2", type=Path, help="classifier fine-tuned on SST-2")
    parser.add_argument("--conll", type=Path, help="tagger fine-tuned on CoNLL-2003")
    parser.add_argument("--record", type=Path, required=True, help="JSON lines file of the results")
    parser.add_argument("--texts", type=int, default=512, help="texts of a turn of the speed (default: %(default)s)")
    parser.add_argument("--only", nargs="+", default=[*MODES, *COMPETITORS], help="modes and competitors to measure")
    parser.add_argument("--one", nargs=2, metavar=("TASK", "NAME"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    models = {"stsb": args.model, "sst2": args.sst2, "conll": args.conll}
    if args.one:
        task, name = args.one
        measure = _ours if name in MODES else _theirs
        print(json.dumps({"task": task, "name": name} | measure(task, name, models[task], args.data, args.texts)))
        return
    done = [json.loads(line) for line in args.record.read_text().splitlines()] if args.record.exists() else []
    for task in (task for task, model in models.items() if model is not None):
        for name in args.only:
            needed = COMPETITORS.get(name, ())
            missing = [module for module in needed if importlib.util.find_spec(module) is None]
            if any((row["task"], row["name"]) == (task, name) for row in done):
                continue
            if missing:
                print(f"{task} {name}: not measured without {', '.join(missing)}", flush=True)
                continue
            command = [sys.executable, "-m", "benchmarks.quantization", *sys.argv[1:], "--one", task, name]
            row = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.splitlines()[-1])
            done.append(row)
            append(args.record, row)
            print(_line(row), flush=True)
    for row in done:
        print(_line(row))


def _line(row: dict[str, Any]) -> str:
    return (
        f"{row['task']:6}{row['name']:21}{row['metric']} {row['score']:.4f}  {row['file_mb']:6.1f} MB  "
        f"resident {row['resident_mb']:5.0f} MB  {row['texts_per_second']:6.1f} texts/s"
    )


def _ours(task: str, name: str, model: Path, data: Path, count: int) -> dict[str, Any]:
    from bert_jax.data.finetuning.columns import Columns
    from bert_jax.evaluation.driver import evaluate
    from bert_jax.inference import pipeline

    metric, scored, calibrating, columns = TASKS[task]
    with tempfile.TemporaryDirectory() as directory:
        opened, dtype = model, name if name == "bfloat16" else "float32"
        if name not in ("float32", "bfloat16"):
            opened = Path(directory) / name
            column = TASKS["sst2" if task == "conll" else task][3]["text"]
            run_apart(_quantize, name, model, opened, data / calibrating, column)
        kinds = {"stsb": "sentence-embedding", "sst2": "text-classification", "conll": "token-classification"}
        before = resident_memory()
        run = pipeline(kinds[task], str(opened), dtype=dtype, batch_size=BATCH)
        rate = _rate(run, _texts(task, data, count))
        resident = (resident_memory() - before) / 1e6
        score = evaluate(opened, str(data / scored), Columns(**columns), metric_names=(metric,), dtype=dtype)[metric]
        size = (opened / "model.safetensors").stat().st_size / 1e6
    return _row(metric, score, size, resident, rate)


def _quantize(name: str, model: Path, out: Path, calibrating: Path, column: str) -> None:
    from bert_jax.compression.quantization import quantize
    from bert_jax.config.quantization import Quantization
    from bert_jax.data.finetuning.columns import Columns
    from bert_jax.data.finetuning.tables import read_examples

    quantize(model, out, Quantization(name), (row.text for row in read_examples(str(calibrating), Columns(column))))


def run_apart(function: Any, *args: Any) -> None:
    """Call a function in a process of its own, whose memory is not measured."""
    process = multiprocessing.get_context("spawn").Process(target=function, args=args)
    process.start()
    process.join()
    if process.exitcode:
        sys.exit(process.exitcode)


def _row(metric: str, score: float, size: float, resident: float, rate: float) -> dict[str, Any]:
    return {
        "metric": metric, "score": score, "file_mb": size, "resident_mb": resident, "texts_per_second": rate
    }  # fmt: skip


def _texts(task: str, data: Path, count: int) -> list[str]:
    """Return texts of about the same length for all tasks."""
    lines = (data / TASKS["stsb" if task == "stsb" else "sst2"][1]).read_text(encoding="utf-8").splitlines()
    header = lines[0].split("\t")
    column = header.index("sentence1" if task == "stsb" else "sentence")
    return [line.split("\t")[column] for line in lines[1 : count + 1]]


def _rate(run: Any, texts: list[str]) -> float:
    """Return the median rate of several passes, in texts/s, after one that compiles."""
    run(texts)
    rates = []
    for _ in range(TURNS):
        start = time.perf_counter()
        run(texts)
        rates.append(len(texts) / (time.perf_counter() - start))
    return float(np.median(rates))


def _theirs(task: str, name: str, model: Path, data: Path, count: int) -> dict[str, Any]:
    from transformers import AutoTokenizer

    metric, scored, _, columns = TASKS[task]
    tokenizer = AutoTokenizer.from_pretrained(model)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "model.onnx"
        file = path.with_name("int8.onnx") if name == "onnxruntime int8" else path
        run_apart(export_onnx, task, model, path, file)
        before = resident_memory()
        forward, size = open_session(name, file)

        def run(texts: list[Any], **options: Any) -> list[np.ndarray]:
            # Texts of similar length together, as in our pipelines.
            order = np.argsort([len(text) for text in texts])
            found: list[Any] = [None] * len(texts)
            for start in range(0, len(texts), BATCH):
                members = order[start : start + BATCH]
                chosen = [texts[i] for i in members]
                inputs = tokenizer(chosen, padding=True, truncation=True, return_tensors="np", **options)
                for i, output in zip(members, forward(dict(inputs)), strict=True):
                    found[i] = output
            return found

        rate = _rate(run, _texts(task, data, count))
        resident = (resident_memory() - before) / 1e6
        if task == "conll":
            score = _tagging_score(run, tokenizer, model, data / scored)
        else:
            score = _score(task, run, data / scored, columns)
    return _row(metric, score, size, resident, rate)


def export_onnx(task: str, model: Path, path: Path, file: Path) -> None:
    """Write `model` as ONNX: sentence embeddings for STS-B, otherwise logits; and quantized, if `file` is another."""
    import torch
    from transformers import (
        AutoModel,
        AutoModelForSequenceClassification,
        AutoModelForTokenClassification,
        AutoTokenizer,
    )

    tokenizer = AutoTokenizer.from_pretrained(model)
    kind = {
        "stsb": AutoModel, "sst2": AutoModelForSequenceClassification, "conll": AutoModelForTokenClassification,
    }[task]  # fmt: skip
    bert = kind.from_pretrained(model, attn_implementation="eager").eval()

    class Forward(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bert = bert

        def forward(self, input_ids, attention_mask, token_type_ids):
            output = self.bert(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)
            if task != "stsb":
                return output.logits
            mask = attention_mask[..., None].float()
            pooled = (output.last_hidden_state * mask).sum(1) / mask.sum(1)
            return torch.nn.functional.normalize(pooled, dim=1)

    example = dict(tokenizer(["a text", "another text of words"], padding=True, return_tensors="pt"))
    names = ["input_ids", "attention_mask", "token_type_ids"]
    torch.onnx.export(
        Forward(), tuple(example[name] for name in names), str(path), input_names=names, output_names=["output"],
        dynamic_axes={name: {0: "batch", 1: "length"} for name in names}
        | {"output": {0: "batch"} | ({1: "length"} if task == "conll" else {})},
        dynamo=False,
    )  # fmt: skip
    if file != path:  # int8 weights with a scale for each output, dynamic uint8 inputs; the tables too
        from onnxruntime.quantization import QuantType, quantize_dynamic

        quantize_dynamic(path, file, weight_type=QuantType.QInt8, per_channel=True)


def open_session(name: str, path: Path) -> tuple[Any, float]:
    """Return the function that runs an ONNX model, and the size of its file in MB."""
    if name.startswith("onnxruntime"):
        import onnxruntime

        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        known = {entry.name for entry in session.get_inputs()}
        size = path.stat().st_size / 1e6
        return (
            lambda inputs: session.run(None, {name: array for name, array in inputs.items() if name in known})[0],
            size,
        )
    import openvino

    graph = openvino.convert_model(str(path))
    if name == "OpenVINO int8":
        import nncf

        graph = nncf.compress_weights(graph, mode=nncf.CompressWeightsMode.INT8_SYM)
    saved = path.with_name("openvino.xml")
    openvino.save_model(graph, saved, compress_to_fp16=False)
    precision = "bf16" if name == "OpenVINO bfloat16" else "f32"
    compiled = openvino.compile_model(saved, "CPU", {"INFERENCE_PRECISION_HINT": precision})
    return lambda inputs: compiled(inputs)[0], saved.with_suffix(".bin").stat().st_size / 1e6


def _score(task: str, run: Any, path: Path, columns: dict[str, str]) -> float:
    from scipy.stats import spearmanr

    from bert_jax.data.finetuning.columns import Columns
    from bert_jax.data.finetuning.tables import read_examples

    rows = list(read_examples(str(path), Columns(**columns)))
    outputs = np.stack(run([row.text for row in rows]))
    if task == "sst2":
        return float(np.mean(outputs.argmax(-1) == [int(row.label or 0) for row in rows]))
    cosines = (outputs * np.stack(run([row.pair or "" for row in rows]))).sum(-1)
    return float(spearmanr(cosines, [float(row.label or 0) for row in rows]).statistic)


def _tagging_score(run: Any, tokenizer: Any, model: Path, path: Path) -> float:
    """Return the F1 of entities; the tag of a word is that of its first piece, O for words that are cut off."""
    from seqeval.metrics import f1_score
    from transformers import AutoConfig

    from bert_jax.data.finetuning.columns import Columns
    from bert_jax.data.finetuning.tagged import read_sentences

    names, sentences = AutoConfig.from_pretrained(model).id2label, list(read_sentences(str(path), Columns()))
    words = [list(sentence.words) for sentence in sentences]
    found = []
    for each, logits in zip(words, run(words, is_split_into_words=True), strict=True):
        owners = tokenizer(each, truncation=True, is_split_into_words=True).word_ids()
        firsts = {owner: i for i, owner in reversed(list(enumerate(owners))) if owner is not None}
        found.append([names[int(logits[firsts[i]].argmax())] if i in firsts else "O" for i in range(len(each))])
    return float(f1_score([list(sentence.tags or ()) for sentence in sentences], found))


if __name__ == "__main__":
    main()
