"""Pruned model directories: what is in them, and who opens them."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from pruned_models import random_params

import bert_jax
from bert_jax.cli import main
from bert_jax.compression.pruning import Pruning, prune
from bert_jax.config import BertConfig
from bert_jax.conversion.huggingface import load_pretrained, save_pretrained
from bert_jax.errors import InputError
from bert_jax.inference.loading import load_model
from bert_jax.jobs.training_metadata import Columns, TrainingMetadata, write_training_metadata
from bert_jax.tokenization import train_bpe, train_sentencepiece, train_wordpiece

SIZES = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48}
TEXTS = ["the cat sat on the tree", "a dull and grey film", "the dog sees a red house", "two big birds sat under it"]
SENTIMENT = "sequence_classification"
QUESTION = {"id": "1", "question": "the cat sat on?", "answers": [{"text": "the tree", "answer_start": 15}]}


def write(path: Path, tokenizer, head=SENTIMENT, columns=None, family="bert", **fields) -> Path:
    """A model with random parameters, and the columns that it remembers."""
    sizes = SIZES | {"vocab_size": tokenizer.vocab_size, "pad_token_id": tokenizer.pad_id}
    if "id2label" in fields:
        sizes["num_labels"] = len(fields["id2label"])
    config = BertConfig.named("tiny", family, **sizes | fields)
    save_pretrained(path, config, head, random_params(config, head), tokenizer)
    write_training_metadata(path, TrainingMetadata(columns or Columns("sentence", "", "label")))
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny_tokenizer) -> Path:
    """A sentiment classifier and its table."""
    folder = tmp_path_factory.mktemp("pruning")
    write(folder / "model", tiny_tokenizer, id2label=("bad", "good"))
    rows = "".join(f"{text}\t{'bad' if i % 2 else 'good'}\n" for i, text in enumerate(TEXTS * 4))
    (folder / "train.tsv").write_text("sentence\tlabel\n" + rows)
    (folder / "corpus.txt").write_text("\n".join(TEXTS))
    return folder


@pytest.fixture(scope="module")
def fewer_heads(folder) -> Path:
    prune(folder / "model", folder / "heads", Pruning(heads=0.25, columns=0.25), data=str(folder / "train.tsv"))
    return folder / "heads"


def said(capsys, *words) -> str:
    assert main([str(word) for word in words]) == 0
    return capsys.readouterr().out


def test_shares_are_removed_from_every_layer(folder, fewer_heads):
    before, after = load_pretrained(folder / "model"), load_pretrained(fewer_heads)
    changed = {"num_attention_heads": 3, "head_dim": 8, "intermediate_size": 36}
    assert after.config == before.config.replace(**changed)
    assert json.loads((fewer_heads / "config.json").read_text())["head_dim"] == 8
    record = "bert_jax.json"
    assert (fewer_heads / record).read_bytes() == (folder / "model" / record).read_bytes()


@pytest.mark.slow
def test_every_verb_opens_a_model_with_fewer_heads(folder, fewer_heads, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = folder / "train.tsv"
    expected = load_model(fewer_heads, None, "float32")(TEXTS).logits
    assert bert_jax.from_pretrained(fewer_heads)(TEXTS).logits.shape == (4, 2)
    assert len(bert_jax.pipeline("text-classification", fewer_heads)(TEXTS)) == 4
    assert '"num_attention_heads": 3, "head_dim": 8' in said(capsys, "inspect", fewer_heads, "--json")
    said(capsys, "classify", fewer_heads, *TEXTS)
    said(capsys, "evaluate", "--model", fewer_heads, "--data", data, "--report", "report.html")
    said(capsys, "predict", "--model", fewer_heads, "--data", data, "--out", "out.tsv")
    said(capsys, "embed", fewer_heads, *TEXTS)
    for options in ((), ("--format", "flax")):
        shutil.rmtree("converted", ignore_errors=True)
        said(capsys, "convert", fewer_heads, "converted", *options)
        assert np.array_equal(load_model("converted", None, "float32")(TEXTS).logits, expected)
    small = ["--config.num_steps=2", "--config.global_batch_size=4", "--quiet", f"--config.data.train={data}"]
    start = f"--config.init_from={fewer_heads}"
    said(capsys, "finetune", "--config", "classification", "--workdir", "run", start, *small)
    assert load_pretrained("run/model").config.head_dim == 8
    said(capsys, "finetune", "--config", "classification", "--workdir", "lora", start, *small, "--config.lora.rank=2")
    said(capsys, "prune", "run/model", "--out", "again", "--heads", "0.34", "--data", data)
    assert load_pretrained("again").config.num_attention_heads == 2


@pytest.mark.slow
def test_a_model_with_fewer_heads_on_a_mesh(on_eight_devices):
    """Four of eight heads are left: a device has one head of four, and half of the rows."""
    found = on_eight_devices(Path(__file__).with_name("pruned_on_a_mesh.py"))
    assert found["losses"][0] == pytest.approx(found["losses"][1], rel=1e-5)
    assert found["apart"] < 1e-3
    assert found["share"] == [2, 16, 4]


@pytest.mark.slow
def test_transformers_opens_what_it_can_express(folder, tmp_path):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    data, corpus = str(folder / "train.tsv"), (str(folder / "corpus.txt"),)
    for name, pruning in {
        "columns": Pruning(columns=0.5),
        "layers": Pruning(layers=(0, 2)),
        "number": Pruning(num_layers=2),
        "vocabulary": Pruning(vocabulary=corpus),
        "all": Pruning(columns=0.25, layers=(1, 2), vocabulary=corpus),
    }.items():
        out = tmp_path / name
        model = prune(folder / "model", out, pruning, data=data if pruning.needs_examples else "")
        assert model.is_in_transformers
        theirs = transformers.AutoModelForSequenceClassification.from_pretrained(out)
        inputs = transformers.AutoTokenizer.from_pretrained(out)(TEXTS, return_tensors="pt", padding=True)
        with torch.no_grad():
            logits = theirs(**inputs).logits.numpy()
        np.testing.assert_allclose(load_model(out, None, "float32")(TEXTS).logits, logits, atol=1e-5)


def test_transformers_refuses_a_model_with_fewer_heads(fewer_heads):
    transformers = pytest.importorskip("transformers")
    with pytest.raises((ValueError, RuntimeError)):
        transformers.AutoModelForSequenceClassification.from_pretrained(fewer_heads)


def test_transformers_opens_a_nomic_bert_with_fewer_heads(tmp_path, tiny_tokenizer, folder):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    write(tmp_path / "model", tiny_tokenizer, head="masked_lm", family="nomic_bert")
    pruning = Pruning(heads=0.25)
    model = prune(tmp_path / "model", tmp_path / "out", pruning, data=str(folder / "corpus.txt"))
    assert model.is_in_transformers
    rows = tiny_tokenizer(TEXTS)
    ours = load_model(tmp_path / "out", "encoder", "float32")(**rows).last_hidden_state
    with torch.no_grad():
        inputs = {name: torch.tensor(array) for name, array in rows.items()}
        theirs = transformers.AutoModel.from_pretrained(tmp_path / "out")(**inputs).last_hidden_state.numpy()
    real = rows["attention_mask"] == 1
    np.testing.assert_allclose(ours[real], theirs[real], atol=1e-5)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
def test_logits_are_bitwise_equal_on_text_of_the_remaining_pieces(kind, tmp_path):
    texts = [f"{a} {b} sat on the {c}" for a in TEXTS for b in ("cat", "tree") for c in ("red house", "big bird")] * 4
    train = {"wordpiece": train_wordpiece, "bpe": train_bpe, "unigram": train_sentencepiece}[kind]
    tokenizer = train(texts, {"wordpiece": 120, "bpe": 340, "unigram": 60}[kind])
    family = "roberta" if kind == "bpe" else "bert"
    write(tmp_path / "model", tokenizer, family=family, id2label=("bad", "good"))
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(TEXTS[:2]))
    prune(tmp_path / "model", tmp_path / "out", Pruning(vocabulary=(str(corpus),)))
    before, after = (load_model(tmp_path / name, None, "float32") for name in ("model", "out"))
    assert after.config.vocab_size == after.tokenizer.vocab_size < before.config.vocab_size
    assert np.array_equal(after(TEXTS[:2]).logits, before(TEXTS[:2]).logits)
    pairs = after.tokenizer(TEXTS[:1], TEXTS[1:2]), before.tokenizer(TEXTS[:1], TEXTS[1:2])
    assert np.array_equal(after(**pairs[0]).logits, before(**pairs[1]).logits)


def test_sentences_of_minilm_keep_their_vectors_bit_for_bit(minilm, tmp_path):
    """The pieces left are those of 68 characters, with and without ##, 5 special tokens, and 18 longer words."""
    (tmp_path / "corpus.txt").write_text("\n".join(TEXTS))
    prune(minilm, tmp_path / "out", Pruning(vocabulary=(str(tmp_path / "corpus.txt"),)))
    before, after = (load_model(path, None, "float32") for path in (minilm, tmp_path / "out"))
    assert (before.config.vocab_size, after.config.vocab_size) == (30522, 68 + 68 + 5 + 18)
    assert np.array_equal(after.encode(TEXTS), before.encode(TEXTS))


def test_the_pieces_of_prompts_stay(tmp_path, tiny_tokenizer):
    write(tmp_path / "model", tiny_tokenizer, head="sentence_embedding", pooler=False)
    settings = {"prompts": {"query": "question woman:"}, "default_prompt_name": "query"}
    (tmp_path / "model/config_sentence_transformers.json").write_text(json.dumps(settings))
    (tmp_path / "corpus.txt").write_text("the cat")
    model = prune(tmp_path / "model", tmp_path / "out", Pruning(vocabulary=(str(tmp_path / "corpus.txt"),)))
    prompt = tiny_tokenizer.tokenize("question woman:")
    assert model.tokenizer.tokenize("question woman:") == prompt
    for path in ("model", "out"):
        found = load_model(tmp_path / path, None, "float32").encode("the cat")
    assert found.shape == (32,)


TASKS = {
    "token_classification": ("tags.txt", {"id2label": ("O", "B-PER", "I-PER")}, Columns()),
    "question_answering": ("squad.json", {}, None),
    "multiple_choice": ("choices.jsonl", {}, Columns("context", "", "label", texts="choices")),
    "sentence_embedding": ("pairs.tsv", {"pooler": False}, Columns("sentence1", "sentence2", "score")),
    "masked_lm": ("corpus.txt", {}, None),
    "pretraining": ("corpus.txt", {}, None),
    "regression": ("numbers.tsv", {"num_labels": 1, "problem_type": "regression"}, Columns("sentence", "", "score")),
    "multi_label": (
        "several.tsv",
        {"id2label": ("a", "b", "c"), "problem_type": "multi_label_classification"},
        Columns("sentence", "", "label", separator=","),
    ),
}


@pytest.mark.sampled(9)
@pytest.mark.parametrize("kind", TASKS)
def test_importance_comes_from_the_data_of_every_task(kind, tmp_path, tiny_tokenizer):
    name, fields, columns = TASKS[kind]
    questions = {"context": "the cat sat on the tree", "qas": [QUESTION]}
    written = {
        "tags.txt": "the O\ncat B-PER\nhouse I-PER\nsat O\n\nred B-PER\nhouse O\n\n" * 3,
        "squad.json": json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": [questions]}]}),
        "choices.jsonl": "".join(
            json.dumps({"context": t, "choices": TEXTS, "label": i}) + "\n" for i, t in enumerate(TEXTS)
        ),
        "pairs.tsv": "sentence1\tsentence2\tscore\n"
        + "".join(f"{t}\t{TEXTS[0]}\t{i}.5\n" for i, t in enumerate(TEXTS)),
        "corpus.txt": "\n".join(TEXTS),
        "numbers.tsv": "sentence\tscore\n" + "".join(f"{t}\t{i}.5\n" for i, t in enumerate(TEXTS)),
        "several.tsv": "sentence\tlabel\n" + "".join(f"{t}\t{'a,b' if i % 2 else 'c'}\n" for i, t in enumerate(TEXTS)),
    }
    (tmp_path / name).write_text(written[name])
    head = SENTIMENT if kind in ("regression", "multi_label") else kind
    write(tmp_path / "model", tiny_tokenizer, head, columns, **fields)
    pruning = Pruning(heads=0.5, columns=0.5, num_layers=2)
    prune(tmp_path / "model", tmp_path / "out", pruning, data=str(tmp_path / name), examples=5)
    loaded = load_pretrained(tmp_path / "out")
    assert loaded.head == head
    config = loaded.config
    assert (config.num_attention_heads, config.intermediate_size, config.num_hidden_layers) == (2, 24, 2)


def test_the_printed_table(folder, tmp_path, capsys):
    out = tmp_path / "out"
    printed = said(capsys, "prune", folder / "model", "--out", out, "--heads", "0.25", "--data", folder / "train.tsv")
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in printed.splitlines() if "│" in line]
    table = {row[0]: row[1:] for row in rows}
    assert table["heads of a layer"] == ["4", "3", "0.75"]
    before, after = (load_pretrained(path).params for path in (folder / "model", out))
    counts = [sum(leaf.size for leaf in bert_jax_leaves(params)) for params in (before, after)]
    assert table["parameters"][:2] == [f"{count:,}" for count in counts]
    assert counts[0] - counts[1] == 3 * (4 * 32 * 8 + 3 * 8)  # layers * (four matrices + three biases)
    assert "transformers cannot open this model" in printed.splitlines()[-1]
    kept = tmp_path / "layers"
    printed = said(capsys, "prune", folder / "model", "--out", kept, "--layers", "0,2", "--json")
    found = json.loads(printed)
    assert (found["before"]["layers"], found["after"]["layers"], found["in_transformers"]) == (3, 2, True)


def bert_jax_leaves(tree):
    return [leaf for child in tree.values() for leaf in bert_jax_leaves(child)] if isinstance(tree, dict) else [tree]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "expected --heads, --columns, --layers, --num-layers or --vocabulary, found none of them"),
        (["--heads", "1", "--data", "train.tsv"], "--heads: expected a share from 0 to below 1, found 1"),
        (["--columns", "-0.5", "--data", "train.tsv"], "--columns: expected a share from 0 to below 1, found -0.5"),
        (["--heads", "nan", "--data", "train.tsv"], "--heads: expected a share from 0 to below 1, found nan"),
        (["--heads", "0.9", "--data", "train.tsv"],
         "--heads: expected a share that leaves at least one of 4 heads of a layer, found 0.9"),
        (["--heads", "0.1", "--data", "train.tsv"],
         "--heads: expected a share that removes at least one of 4 heads of a layer, found 0.1"),
        (["--heads", "0.25"], "--data: expected data from which importance is computed, found none"),
        (["--heads", "0.25", "--data", "none.tsv"], "none.tsv: no such file"),
        (["--layers", "0,3"], "--layers: expected ascending numbers from 0 to 2, found 0, 3"),
        (["--layers", "2,0"], "--layers: expected ascending numbers from 0 to 2, found 2, 0"),
        (["--layers", "0,1,1"], "--layers: expected ascending numbers from 0 to 2, found 0, 1, 1"),
        (["--layers", "a"], "--layers: expected numbers separated by commas, found 'a'"),
        (["--num-layers", "4", "--data", "train.tsv"], "--num-layers: expected at most the model's 3 layers, found 4"),
        (["--layers", "0", "--num-layers", "1"], "--layers: expected --layers or --num-layers, found both"),
        (["--layers", "0", "--data", "train.tsv"],
         "--data: expected --heads, --columns or --num-layers, which need it, found none of them"),
        (["--vocabulary", "empty.txt"], "empty.txt: expected text, found an empty file"),
        (["--vocabulary", "blank.txt"], "blank.txt: expected text, found only blank lines"),
        (["--layers", "0", "--examples", "0"], "--examples: expected at least 1, found 0"),
        (["--layers", "0", "--rounds", "2"],
         "--rounds: expected --config, the recipe of recovery training, found none"),
        (["--layers", "0", "--config.seed=1"],
         "--config.seed=1: expected --config, the recipe of recovery training, found none"),
        (["--layers", "0", "--config", "classification"],
         "--workdir: expected a directory for recovery training, found none"),
        (["--layers", "0", "--config", "classification", "--workdir", "w", "--rounds", "0"],
         "--rounds: expected at least 1, found 0"),
        (["--layers", "0", "--config", "classification", "--workdir", "w", "--data", "train.tsv"],
         "--data: expected none with --config, whose training data is used, found one"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(options, says, folder, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(folder / "train.tsv", "train.tsv")
    Path("empty.txt").write_text("")
    Path("blank.txt").write_text("\n \n")
    assert main(["prune", str(folder / "model"), "--out", "out", *options]) == 2
    assert capsys.readouterr().err.splitlines() == [f"bert-jax: {says}"]
    assert not Path("out").exists()


def test_models_that_cannot_be_pruned(folder, tmp_path, tiny_tokenizer):
    corpus = (str(folder / "corpus.txt"),)
    bare = shutil.copytree(folder / "model", tmp_path / "bare")
    for name in ("tokenizer.json", "vocab.txt"):
        (bare / name).unlink()
    with pytest.raises(InputError, match="bare: expected a tokenizer with a vocabulary to prune, found none"):
        prune(bare, tmp_path / "out", Pruning(vocabulary=corpus))
    write(tmp_path / "encoder", tiny_tokenizer, head="encoder")
    with pytest.raises(InputError, match="as importance is computed from the loss, found one for encoder"):
        prune(tmp_path / "encoder", tmp_path / "out", Pruning(heads=0.5), data=corpus[0])
    with pytest.raises(InputError, match="expected a new or empty directory, found one with files in it"):
        prune(folder / "model", bare, Pruning(layers=(0,)))
