"""Run in an empty folder: walks README's commands and every verb's help with whatever bert_jax is importable there.

Reads `{"home": where bert_jax must come from, "commands": [words, ...], "added": {verb: words}}` from
stdin, where `added` makes a command take seconds; exits 1 and prints what failed.
"""

import contextlib
import io
import json
import shutil
import sys
import traceback
from pathlib import Path

import bert_jax
from bert_jax.cli import build_parser, main

SENTENCES = ["the cat sat on the mat", "a dull and grey film", "a gripping , funny film", "two hours lost"]
ORDER = ["config", "train-tokenizer", "prepare", "pretrain", "finetune", "evaluate", "predict"]
# Where README's models come from: the head that the pretrained model is given.
HEADS = {
    "path/to/all-MiniLM-L6-v2": "sentence_embedding",
    "runs/conll2003/model": "token_classification",
    "runs/squad/model": "question_answering",
}


def write_data():
    """The files that README's commands read."""
    Path("corpus").mkdir()
    Path("corpus/text.txt").write_text("\n\n".join(". ".join(SENTENCES[i:] + SENTENCES[:i]) for i in range(4)) * 40)
    Path("SST-2").mkdir()
    rows = [f"{text}\t{number % 2}\n" for number, text in enumerate(SENTENCES * 4)]
    for name in ("train", "dev"):
        Path(f"SST-2/{name}.tsv").write_text("sentence\tlabel\n" + "".join(rows))
        labelled = [f'"{text}",{"good" if number % 2 else "bad"}\n' for number, text in enumerate(SENTENCES * 4)]
        Path(f"{name}.csv").write_text("review,label\n" + "".join(labelled))
    Path("reviews.csv").write_text(
        "review,stars\n" + "".join(f'"{text}",{i % 2}\n' for i, text in enumerate(SENTENCES * 10))
    )
    Path("more.csv").write_text("review\n" + "".join(f'"{text}"\n' for text in SENTENCES))
    Path("article.txt").write_text("Merkel met Obama in Berlin.\n")
    Path("documents.txt").write_text("\n".join(SENTENCES) + "\n")


def run(words):
    """What went wrong with a command line, or ""."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            status = main(words)
    except SystemExit as error:
        status = error.code or 0
    except BaseException:
        return f"{words}: {traceback.format_exc()}"
    return "" if status == 0 else f"{words}: status {status}: {printed.getvalue()[-600:]}"


def walk(commands, added):
    """All commands in the order in which each finds what it needs."""
    commands = sorted(commands, key=lambda words: ORDER.index(words[0]) if words[0] in ORDER else len(ORDER))
    finetuned = False
    for words in commands:
        if words[0] == "finetune" and not finetuned:
            finetuned = True
            for name in ("path/to/bert", "uncased_L-12_H-768_A-12"):
                shutil.copytree("runs/base/model", name)
            for name, head in HEADS.items():
                yield run(["convert", "path/to/bert", name, "--head", head])
        if not any("gs://" in word for word in words):
            yield run([*words, *added.get(words[0], [])])


if __name__ == "__main__":
    task = json.load(sys.stdin)
    assert str(Path(bert_jax.__file__).resolve()).startswith(task["home"]), bert_jax.__file__
    write_data()
    _, verbs = build_parser()
    failures = [run([verb, "--help"]) for verb in verbs] + list(walk(task["commands"], task["added"]))
    failures = [failure for failure in failures if failure]
    print("\n".join(failures) or f"{len(verbs)} verbs and {len(task['commands'])} commands")
    sys.exit(bool(failures))
