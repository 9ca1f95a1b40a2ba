"""Parts of speech, from a treebank in CoNLL-U to a finished model that fills the column of another."""

import numpy as np
import pytest

from bert_jax import evaluation
from bert_jax.cli import main
from bert_jax.data.finetuning.conll import CONLL_U_COLUMNS
from bert_jax.data.finetuning.tables import Columns
from bert_jax.errors import InputError
from bert_jax.recipes import load_recipe
from bert_jax.tasks.token_classification.evaluation import TokenClassificationEvaluator
from bert_jax.training.loop import train

WORDS = {"DET": ("the", "a"), "NOUN": ("man", "tree", "river"), "VERB": ("sat", "runs"), "ADJ": ("big", "red")}
PATTERNS = (("DET", "NOUN", "VERB"), ("DET", "ADJ", "NOUN", "VERB"), ("NOUN", "VERB", "DET", "NOUN"))


def treebank(sentences, seed):
    """Sentences with comments, a multiword token, an empty node, and a mark that no space precedes."""
    rng = np.random.default_rng(seed)
    lines = ["# newdoc id = a"]
    for number in range(sentences):
        tags = PATTERNS[rng.integers(len(PATTERNS))]
        words = [str(rng.choice(WORDS[tag])) for tag in tags]
        lines += [f"# sent_id = {number}", f"1-2\t{''.join(words[:2])}" + "\t_" * 8]
        for i, (word, tag) in enumerate(zip(words, tags, strict=True), 1):
            misc = "SpaceAfter=No" if i == len(words) else "_"
            lines.append(f"{i}\t{word}\t{word}\t{tag}\t{tag[:2]}\tA=b\t0\troot\t_\t{misc}")
        lines += [f"{len(words)}.1\tit" + "\t_" * 8, f"{len(words) + 1}\t.\t.\tPUNCT\tPU\t_\t1\tpunct\t_\t_", ""]
    return "\n".join([*lines, "# the end", ""])


@pytest.fixture(scope="module")
def folder(tmp_path_factory, write_small):
    root = tmp_path_factory.mktemp("treebank")
    for name, sentences in (("train", 160), ("dev", 40), ("test", 40)):
        (root / f"xx-ud-{name}.conllu").write_text(treebank(sentences, seed=sentences + len(name)))
    write_small(root / "encoder")
    return root


def recipe(folder, column=""):
    """The recipe that comes with bert_jax, for a small encoder with random parameters."""
    c = load_recipe(f"part_of_speech:{folder}/xx-ud{column}", [])
    c.init_from, c.data.max_seq_length, c.data.length_buckets = str(folder / "encoder"), 16, (16,)
    c.global_batch_size, c.optimizer.learning_rate = 16, 5e-3
    return c


@pytest.fixture(scope="module")
def tuned(folder):
    results = train(recipe(folder), folder / "run", progress=False)
    return results, folder / "run" / "model"


def without(column, text):
    """The lines of CoNLL-U without a column of words."""
    number = CONLL_U_COLUMNS.index(column)
    rows = [line.split("\t") for line in text.split("\n")]
    return [row[:number] + row[number + 1 :] if row[0].isdigit() else row for row in rows]


def test_tags_are_learned_and_each_is_scored(folder, tuned):
    results, model = tuned
    assert results["eval/accuracy"] > 0.95
    data = str(folder / "xx-ud-test.conllu")
    scores = evaluation.evaluate(model, data, metric_names=("accuracy", "types"))
    labels, answers = (
        [row[3] for line in text.split("\n") if (row := line.split("\t"))[0].isdigit()]
        for text in ((folder / "xx-ud-test.conllu").read_text(), predicted(folder, model))
    )
    metrics = pytest.importorskip("sklearn.metrics")
    assert scores["accuracy"] == pytest.approx(metrics.accuracy_score(labels, answers))
    tags = sorted({*labels, "ADJ"})
    precision, recall, f1, _ = metrics.precision_recall_fscore_support(labels, answers, labels=tags, zero_division=0)
    for i, tag in enumerate(tags):
        found = [scores[f"{name}_{tag}"] for name in ("precision", "recall", "f1")]
        assert found == pytest.approx([precision[i], recall[i], f1[i]])
    assert "f1_NOUN" not in evaluation.evaluate(model, data)


def predicted(folder, model):
    """What the model writes for the treebank without its tags."""
    text = (folder / "xx-ud-test.conllu").read_text()
    for tag in {*WORDS, "PUNCT"}:
        text = text.replace(f"\t{tag}\t", "\t_\t")
    (folder / "blank.conllu").write_text(text)
    out = folder / "filled.conllu"
    assert main(["predict", "--model", str(model), "--data", str(folder / "blank.conllu"), "--out", str(out)]) == 0
    return out.read_text()


def test_the_column_is_filled_and_all_else_stays(folder, tuned):
    filled = predicted(folder, tuned[1])
    assert without("UPOS", filled) == without("UPOS", (folder / "xx-ud-test.conllu").read_text())
    assert "\tNOUN\t" in filled


@pytest.mark.slow
def test_another_column(folder, tmp_path):
    c = recipe(folder, ",xpos")
    c.num_steps = 2
    train(c, tmp_path / "run", progress=False)
    before = (folder / "xx-ud-dev.conllu").read_text().rstrip("\n").replace("\n", "\r\n")
    data, out = tmp_path / "marked.conllu", tmp_path / "filled.conllu"
    data.write_bytes(b"\xef\xbb\xbf" + before.encode())
    evaluation.predict(tmp_path / "run" / "model", str(data), out)
    mark, after = out.read_bytes()[:3], out.read_bytes()[3:].decode()
    assert mark == b"\xef\xbb\xbf"
    assert without("XPOS", after) == without("XPOS", before) and after != before
    names = TokenClassificationEvaluator(tmp_path / "run" / "model").task.names
    assert names == ("AD", "DE", "NO", "PU", "VE")


def test_files_that_cannot_be_filled(folder, tuned, write_small, tmp_path):
    (tmp_path / "a.conll").write_text("the DET\n")
    with pytest.raises(InputError, match="line 1: expected the ten columns of CoNLL-U, found 2"):
        evaluation.predict(tuned[1], str(tmp_path / "a.conll"), tmp_path / "b.conllu", Columns("0"))
    model = write_small(tmp_path / "model", "token_classification", num_labels=3)
    (model / "bert_jax.json").write_text('{"columns": {"label": "3"}}')
    with pytest.raises(InputError, match="expected a model that was trained on a column of CoNLL-U by its name"):
        evaluation.predict(model, str(folder / "xx-ud-dev.conllu"), tmp_path / "b.conllu")
    assert not (tmp_path / "b.conllu").exists()
