"""Filters of documents: by language and by functions of the user, in any number of processes."""

import json

import pytest
from prepared_corpora import write_corpus

from bert_jax.cli import main
from bert_jax.data.pretraining.manifest import Manifest
from bert_jax.data.pretraining.prepare import prepare
from bert_jax.errors import InputError

OPTIONS = {"max_seq_length": 32, "dupe_factor": 1, "validation_fraction": 0.1, "shard_bytes": 2_000}
FUNCTIONS = '''
def short(text):
    return len(text) < 1_000

def shout(text):
    """Change the text, and leave out what has a bird."""
    return "" if "bird" in text else text.replace("cat", "dog")

def broken(text):
    return text.nonsense

def number(text):
    return 3
'''
ENGLISH = "The rain stopped in the morning, and the children went to the river with their dog number {}."
GERMAN = "Am Morgen war der Regen vorbei, und die Kinder gingen mit ihrem Hund Nummer {} an den Fluss."


def contents(directory):
    return {p.relative_to(directory): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


@pytest.fixture
def functions(tmp_path):
    (tmp_path / "quality.py").write_text(FUNCTIONS)
    return tmp_path / "quality.py"


@pytest.mark.parametrize("deduplicate", ["", "exact"])
def test_functions_leave_out_and_change(tiny_tokenizer, tmp_path, functions, deduplicate):
    texts = [f"The cat {i} sat.\nIt ran." for i in range(40)]
    texts += ["A bird flew.", "x" * 1_000, "The cat 1 sat.\nIt ran.", "The dog 1 sat.\nIt ran."]
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    names = (f"{functions}:short", f"{functions}:shout")
    for name, workers in (("one", 1), ("two", 2)):
        given = OPTIONS | {"num_workers": workers, "filters": names, "deduplicate": deduplicate}
        manifest = prepare(str(path), tiny_tokenizer, tmp_path / name, **given)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert Manifest.read(tmp_path / "one").filtered == manifest.filtered == dict.fromkeys(names, 1)
    assert sum(manifest.documents.values()) == 40 + 2 * (not deduplicate)  # the copies are equal once they are changed
    changed = tmp_path / "changed.jsonl"
    kept = [text.replace("cat", "dog") for text in texts if text not in texts[40:42]]
    changed.write_text("".join(json.dumps({"text": text}) + "\n" for text in kept))
    prepare(str(changed), tiny_tokenizer, tmp_path / "by_hand", **OPTIONS, deduplicate=deduplicate)
    of_filters, by_hand = contents(tmp_path / "one"), contents(tmp_path / "by_hand")
    shards = [name for name in by_hand if "train" in name.name or "validation" in name.name]
    assert shards and all(of_filters[name] == by_hand[name] for name in shards)


def test_by_language(tiny_tokenizer, tmp_path, capsys):
    path = tmp_path / "corpus.txt"
    path.write_text("\n\n".join(text.format(i) for i in range(30) for text in (ENGLISH, GERMAN)))
    tiny_tokenizer.save(tmp_path / "tokenizer")
    words = ["prepare", path, "--tokenizer", tmp_path / "tokenizer", "--dupe-factor", "1"]
    assert main([*map(str, words), "--out", str(tmp_path / "out"), "--language", "en"]) == 0
    assert "30 documents left out by their language" in capsys.readouterr().out
    manifest = Manifest.read(tmp_path / "out")
    assert manifest.filtered == {"language": 30} and sum(manifest.documents.values()) == 30
    assert main([*map(str, words), "--out", str(tmp_path / "both"), "--language", "en,de"]) == 0
    assert sum(Manifest.read(tmp_path / "both").documents.values()) == 60


WRONG = {
    "broken": "quality.py:broken: .*corpus.txt( after byte [0-9]+)?#0: "  # whichever half of the file fails first
    "AttributeError: 'str' object has no attribute 'nonsense'",
    "number": "quality.py:number: expected a text, True, False or None, found int",
    "shor": "quality.py:shor: expected a function; did you mean 'short'",
}


@pytest.mark.parametrize("name", WRONG)
def test_functions_that_do_not_work(tiny_tokenizer, tmp_path, functions, name):
    corpus = write_corpus(tmp_path / "corpus.txt", 20)
    with pytest.raises(InputError, match=WRONG[name]):
        prepare(str(corpus), tiny_tokenizer, tmp_path / "out", filters=[f"{functions}:{name}"], **OPTIONS)


@pytest.mark.parametrize(
    ("given", "message"),
    [({"filters": ["nothing"]}, "expected FILE.py:FUNCTION or MODULE:FUNCTION"),
     ({"filters": ["no_such_module:keep"]}, "filter no_such_module:keep: ModuleNotFoundError"),
     ({"filters": ["no/such.py:keep"]}, "no/such.py: no such file"),
     ({"languages": ["english"]}, "expected codes of ISO 639-1 such as en, found 'english'")],
)  # fmt: skip
def test_what_is_not_known_is_an_error_before_work_begins(tiny_tokenizer, tmp_path, given, message):
    corpus = write_corpus(tmp_path / "corpus.txt", 20)
    with pytest.raises(InputError, match=message):
        prepare(str(corpus), tiny_tokenizer, tmp_path / "out", **given, **OPTIONS)
    assert not (tmp_path / "out").exists()
