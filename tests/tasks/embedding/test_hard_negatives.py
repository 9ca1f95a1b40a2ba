"""Hard negatives: those that sentence-transformers mines, and the verb `mine-negatives`."""

import collections
import json
import sys
import types

import numpy as np
import pytest

from bert_jax.cli import main
from bert_jax.data.finetuning.columns import Columns
from bert_jax.data.finetuning.ranked_passages import read_ranked_passages
from bert_jax.errors import InputError
from bert_jax.inference import pipeline
from bert_jax.tasks.embedding.hard_negatives import (
    MiningOptions,
    labelled_lists,
    labelled_pairs,
    mine_hard_negatives,
    triplets,
)

WORDS = "cat dog bird fish house tree river stone red green blue old runs sat sleeps eats one two three time"


def texts(count, seed):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS.split(), rng.integers(2, 6))) for _ in range(count)]


QUERIES = texts(8, 0) * 2  # each with two positives
PAIRS = list(zip(QUERIES, texts(16, 1), strict=True))
PAIRS.append(PAIRS[0])
CORPUS = texts(40, 2)
CORPUS += CORPUS[:3]


@pytest.fixture(scope="module")
def model(tmp_path_factory, write_small):
    root = tmp_path_factory.mktemp("miner")
    write_small(root / "embedding", "sentence_embedding", initializer_range=0.5)
    write_small(root / "reranker", "sequence_classification", initializer_range=0.5, num_labels=1, pooler=True)
    return root


class Table:
    """As much of `datasets.Dataset` as sentence-transformers' miner uses."""

    def __init__(self, columns):
        self.columns = columns

    column_names = property(lambda self: list(self.columns))
    from_dict = classmethod(lambda cls, columns: cls(columns))

    def __len__(self):
        return len(self.columns["query"])

    def __getitem__(self, name):
        return self.columns[name]

    def to_pandas(self):
        counts = {"positive": collections.Counter(self.columns["query"])}
        counted = types.SimpleNamespace(to_dict=lambda: counts)
        return types.SimpleNamespace(groupby=lambda name: types.SimpleNamespace(count=lambda: counted))


@pytest.fixture(scope="module")
def theirs(model):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    from sentence_transformers.util import hard_negatives

    miner = sentence_transformers.SentenceTransformer(str(model / "embedding"), device="cpu")
    reranker = sentence_transformers.CrossEncoder(str(model / "reranker"), device="cpu")
    sigmoid, identity = reranker.activation_fn, pytest.importorskip("torch").nn.Identity()
    data = Table({"query": [query for query, _ in PAIRS], "positive": [passage for _, passage in PAIRS]})

    def mine(reranked, columns=("query", "positive", "negative"), logits=False, **options):
        reranker.activation_fn = identity if logits else sigmoid
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(sys.modules, "datasets", types.SimpleNamespace(Dataset=Table))
            patch.setattr(hard_negatives, "is_datasets_available", lambda: True)
            found = hard_negatives.mine_hard_negatives(
                data, miner, corpus=CORPUS, cross_encoder=reranker if reranked else None, verbose=False, **options
            )
        return list(zip(*(found[name] for name in columns), strict=True))

    return mine


@pytest.mark.parametrize(
    ("options", "reranked"),
    [
        ({}, False),
        ({"num_negatives": 5, "range_min": 2, "range_max": 30}, False),
        ({"range_max": 20, "max_score": 0.97, "min_score": 0.5}, False),
        ({"absolute_margin": 0.005}, False),
        ({"relative_margin": 0.002, "range_min": 1}, False),
        ({"absolute_margin": 0.01, "max_score": 0.9}, True),
    ],
)
def test_the_negatives_are_those_of_sentence_transformers(model, theirs, options, reranked):
    reranker = pipeline("rerank", model / "reranker") if reranked else None
    mined = mine_hard_negatives(
        pipeline("search", model / "embedding"), PAIRS, CORPUS, MiningOptions(**options), reranker=reranker
    )
    ours = [row[:3] for row in triplets(mined)]
    assert ours == theirs(reranked, **options)
    assert len(mined) == len(set(PAIRS)) and len(ours) > 0


@pytest.mark.parametrize("options", [{"max_score": 3.0}, {"relative_margin": 0.05, "num_negatives": 5}])
def test_lists_have_the_logits_of_the_reranker(model, theirs, options):
    search, reranker = pipeline("search", model / "embedding"), pipeline("rerank", model / "reranker")
    mined = mine_hard_negatives(
        search, PAIRS, CORPUS, MiningOptions(**options, reranker_scale="logits"), reranker=reranker
    )
    lists, pairs = list(labelled_lists(mined)), list(labelled_pairs(mined))
    formats = {"labeled-list": ("query", "positive", "scores"), "labeled-pair": ("query", "positive", "score")}
    expected = {name: theirs(True, columns, logits=True, output_format=name, output_scores=True, **options)
                for name, columns in formats.items()}  # fmt: skip
    assert [row[:2] for row in lists] == [row[:2] for row in expected["labeled-list"]] and lists
    for (_, _, scores), (_, _, wanted) in zip(lists, expected["labeled-list"], strict=True):
        assert scores == pytest.approx(wanted, abs=1e-5)
    assert [row[:2] for row in pairs] == [row[:2] for row in expected["labeled-pair"]]
    assert [row[3] for row in pairs] == pytest.approx([row[2] for row in expected["labeled-pair"]], abs=1e-5)
    query, passages, scores = lists[0]
    assert scores == pytest.approx(reranker.logits([query] * len(passages), passages), abs=1e-5)
    assert {row[2] for row in pairs} == {0, 1}


def test_random_negatives_are_allowed_ones(model):
    search = pipeline("search", model / "embedding")
    options = {"num_negatives": 3, "range_min": 2, "range_max": 12}
    range_of = mine_hard_negatives(search, PAIRS, CORPUS, MiningOptions(**options | {"num_negatives": 10}))
    one, same, other = (
        mine_hard_negatives(search, PAIRS, CORPUS, MiningOptions(**options, sampling="random", seed=seed))
        for seed in (0, 0, 1)
    )
    assert one == same != other
    for row, whole in zip(one, range_of, strict=True):
        assert set(row.negatives) <= set(whole.negatives) and len(row.negatives) == 3
        assert list(row.scores) == sorted(row.scores, reverse=True)


def test_the_verb_writes_a_table_that_training_reads(model, tmp_path, capsys):
    lines = [json.dumps({"query": query, "answer": passage}) for query, passage in PAIRS]
    (tmp_path / "pairs.jsonl").write_text("\n".join(lines))
    (tmp_path / "corpus.txt").write_text("\n".join(CORPUS))
    command = ["mine-negatives", str(model / "embedding"), "--data", str(tmp_path / "pairs.jsonl")]
    command += ["--corpus", str(tmp_path / "corpus.txt"), "--positive-column", "answer", "--num-negatives", "2"]
    assert main([*command, "--out", str(tmp_path / "triplets.jsonl")]) == 0
    rows = [json.loads(line) for line in (tmp_path / "triplets.jsonl").read_text().splitlines()]
    assert len(rows) == 32 and "32 rows from 16 pairs, of which 0 have fewer" in capsys.readouterr().out
    search = pipeline("search", model / "embedding")
    row = rows[0]
    scores = search.pair_scores([row["query"]] * 2, [row["answer"], row["negative"]])
    assert row["margin"] == pytest.approx(scores[0] - scores[1], abs=1e-5)
    assert main([*command, "--out", str(tmp_path / "tuples.jsonl"), "--format", "n-tuple"]) == 0
    rows = [json.loads(line) for line in (tmp_path / "tuples.jsonl").read_text().splitlines()]
    assert len(rows) == 16 and rows[0].keys() == {"query", "answer", "negative_1", "negative_2"}
    command += ["--reranker", str(model / "reranker")]
    assert main([*command, "--out", str(tmp_path / "lists.jsonl"), "--format", "labeled-list"]) == 0
    lists = read_ranked_passages(str(tmp_path / "lists.jsonl"), Columns("query", "", "scores", texts="passages"))
    assert len(lists) == 16 and {len(row.passages) for row in lists} == {3}
    logits = pipeline("rerank", model / "reranker").logits([lists[0].query] * 3, lists[0].passages)
    assert lists[0].relevance == pytest.approx(logits, rel=1e-4)
    assert main([*command, "--out", str(tmp_path / "pairs.out.jsonl"), "--format", "labeled-pair"]) == 0
    rows = [json.loads(line) for line in (tmp_path / "pairs.out.jsonl").read_text().splitlines()]
    assert len(rows) == 16 + 2 * 8 and rows[0].keys() == {"query", "passage", "label", "score"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_negatives": 0}, "num_negatives: expected a positive integer"),
        ({"range_min": -1}, "range_min: expected at least 0, found -1"),
        ({"range_min": 4, "range_max": 6}, r"range_max: expected at least range_min \+ num_negatives = 7, found 6"),
        ({"sampling": "best"}, "sampling: expected top or random, found 'best'"),
        ({"reranker_scale": "sigmoid"}, "reranker_scale: expected activated or logits, found 'sigmoid'"),
        ({"max_score": float("nan")}, "max_score: expected a finite number"),
    ],
)
def test_invalid_options(options, message):
    with pytest.raises(InputError, match=message):
        MiningOptions(**options)


def test_no_candidate_is_left(model, tmp_path, capsys):
    (tmp_path / "pairs.jsonl").write_text(json.dumps({"query": "the cat", "positive": "a dog"}))
    command = ["mine-negatives", str(model / "embedding"), "--data", str(tmp_path / "pairs.jsonl")]
    assert main([*command, "--out", str(tmp_path / "out.jsonl")]) == 2
    assert "expected negatives within the range" in capsys.readouterr().err
    assert not (tmp_path / "out.jsonl").exists()
    assert main([*command, "--out", str(tmp_path / "out.tsv")]) == 2
    assert "--out: expected a file named .jsonl" in capsys.readouterr().err
