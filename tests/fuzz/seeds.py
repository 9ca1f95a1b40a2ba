"""Whole files of every kind that a user can hand us, each small; what `mutations` damages."""

import gzip
import json
import os
import pathlib
import tempfile
from typing import Any

import jax
import numpy as np
from cases import Seeds
from mutations import Files

from bert_jax import recipes
from bert_jax.config import BertConfig
from bert_jax.config.gliner import GlinerConfig
from bert_jax.conversion.huggingface import save_pretrained
from bert_jax.data.pretraining.prepare import prepare
from bert_jax.families import FAMILIES
from bert_jax.head_names import EMBEDDING_HEADS
from bert_jax.inference import pipeline
from bert_jax.modeling import Bert
from bert_jax.tokenization import Tokenizer, train_bpe, train_sentencepiece, train_wordpiece, word_piece
from bert_jax.tokenization.special_tokens import with_special_tokens

TEXT = (
    "the cat sat on the mat. a dog saw the red bird, and it ran.\n\n"
    "old trees stand by the river; two birds sing there all day.\na stone fell.\n\n"
    "who wrote this book? nobody knows, but it is a good one (of 1815).\n"
) * 6
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,;?!()'-"
TAGS = ("O", "B-PER", "I-PER", "B-LOC")
CLASSES = ("bad", "good")
TABLE = [("the cat sat", "good"), ("a dog ran", "bad"), ('the "red" bird, and', "good"), ("old trees", "bad")] * 2
CONLL = "Ada NNP B-PER\nByron NNP I-PER\nmet VBD O\nParis NNP B-LOC\n\nthe DT O\ncat NN O\n\n"
SQUAD = {
    "version": "v2.0",
    "data": [{"title": "a", "paragraphs": [{
        "context": "the cat sat on the mat. a dog saw the red bird.",
        "qas": [
            {"id": "1", "question": "?", "answers": [{"text": "the cat", "answer_start": 0}], "is_impossible": False},
            {"id": "2", "question": "who flew?", "answers": [], "is_impossible": True},
        ],
    }]}],
}  # fmt: skip


def whole() -> Seeds:
    """Directories of every kind that `targets.KINDS` names."""
    pieces = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *LETTERS,
        *(f"##{letter}" for letter in LETTERS),
        "the",
        "cat",
    ]
    tokenizer = word_piece(pieces, lowercase=True)
    tokenizers = _tokenizers(tokenizer)
    models = {head: _model(tokenizer, head) for head in _HEADS}
    return {
        "config": [_with_hf_keys(family) for family in FAMILIES],
        "tokenizer": tokenizers,
        "model": [models[head] for head in _HEADS if head != "sentence_embedding"]
        + [_model(tokenizer, "masked_lm", "flax")],
        "sentence_embedding": [
            models["sentence_embedding"]
            | {"config_sentence_transformers.json": _json(
                {"prompts": {"query": "query: "}, "default_prompt_name": None, "similarity_fn_name": "cosine"}
            )}
        ],
        "classifier": _tables(models["sequence_classification"]),
        "tagger": _sentences(models["token_classification"]),
        "squad": _questions(models["question_answering"]),
        "lines": _lines(models["sequence_classification"]),
        "corpus": _corpora(),
        "recipe": [{"config.json": recipes.to_json(recipe()).encode()} for recipe in recipes.RECIPES.values()],
        "prepared": _prepared(tokenizer),
        "run": [_run()],
        "index": [_index(_model(tokenizer, head)) for head in EMBEDDING_HEADS],
        "gliner": [gliner := _gliner(tokenizer)],
        "typed_spans": _typed_spans(gliner),
        "relations": _relations(models["sequence_classification"]),
    }  # fmt: skip


def _index(model: Files) -> Files:
    """An index of two texts, beside the model that wrote it."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in model.items():
            path = pathlib.Path(folder, "model", name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        pipeline("search", f"{folder}/model").write_index(["the cat", "a mat on the cat"], f"{folder}/index")
        return _beside(model, {f"index/{name}": content for name, content in read(f"{folder}/index").items()})


_HEADS = {
    "sequence_classification": {"id2label": CLASSES},
    "token_classification": {"id2label": TAGS, "num_labels": len(TAGS)},
    "question_answering": {},
    "masked_lm": {},
    "sentence_embedding": {},
}


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1) + "\n").encode()


def read(folder: str | os.PathLike[str]) -> Files:
    """The files of a directory and those below."""
    paths = sorted(path for path in pathlib.Path(folder).rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def _with_hf_keys(family: str) -> Files:
    """A config.json, with keys that Hugging Face writes and we do not."""
    more = {"transformers_version": "4.40.0", "use_cache": True, "torch_dtype": "float32", "is_decoder": False}
    return {"config.json": _json(BertConfig.named("tiny", family, num_hidden_layers=6).to_hf() | more)}


def _tokenizers(tokenizer: Tokenizer) -> list[Files]:
    """As each kind is saved: with its tokenizer.json and without."""
    texts = TEXT.split("\n")
    made: list[Tokenizer] = [
        tokenizer, train_wordpiece(texts, 120, min_frequency=1), train_bpe(texts, 300, min_frequency=1),
        train_sentencepiece(texts, 60), train_sentencepiece(texts, 60, model_type="bpe"),
    ]  # fmt: skip
    found = []
    for each in made:
        with tempfile.TemporaryDirectory() as folder:
            each.save(folder)
            files = read(folder)
        found.append(files)
        without = {name: content for name, content in files.items() if name != "tokenizer.json"}
        if "tokenizer.json" in files and any(name.endswith((".txt", ".model")) for name in without):
            found.append(without | {"added_tokens.json": _json({"[NEW]": len(each.pieces)})})
    return found


def _model(tokenizer: Tokenizer, head: str, weights: str = "safetensors", **more: Any) -> Files:
    fields: dict[str, Any] = {
        "vocab_size": tokenizer.vocab_size, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
        "intermediate_size": 16, "max_position_embeddings": 64, **_HEADS.get(head, {}), **more,
    }  # fmt: skip
    config = BertConfig(**fields)
    random = np.random.default_rng(0)
    shapes = Bert(config, head).abstract_params()
    params = jax.tree.map(lambda leaf: random.normal(size=leaf.shape, scale=0.2).astype(np.float32), shapes)
    with tempfile.TemporaryDirectory() as folder:
        save_pretrained(f"{folder}/model", config, head, params, tokenizer, weights=weights)
        return read(f"{folder}/model")


def _gliner(tokenizer: Tokenizer) -> Files:
    head = GlinerConfig(max_width=3, hidden_size=8, max_len=40)
    return _model(with_special_tokens(tokenizer, head.added_tokens), "zero_shot_ner", gliner=head)


def _typed_spans(model: Files) -> list[Files]:
    rows = [{"tokenized_text": ["Ada", "Byron", "met", "Paris"], "ner": [[0, 1, "person"], [3, 3, "city"]]},
            {"tokenized_text": ["the", "cat"], "ner": []}]  # fmt: skip
    lines = "".join(json.dumps(row) + "\n" for row in rows * 2)
    files = {"a.jsonl": lines.encode(), "a.json": _json(rows), "a.conll": (CONLL * 2).encode()}
    return [_beside(model, {name: content}) for name, content in files.items()]


def _relations(model: Files) -> list[Files]:
    """Rows of TACRED, of texts and of DocRED, beside a classifier that reads marked entities."""
    record = {"relations": {"markers": "entity_marker_punct", "null_label": CLASSES[0]}}
    model = model | {"bert_jax.json": _json(record)}
    tokens = {"token": ["Ada", "met", "Bob"], "subj_start": 0, "subj_end": 0, "obj_start": 2, "obj_end": 2,
              "subj_type": "PER", "obj_type": "PER", "relation": CLASSES[0], "id": "e1"}  # fmt: skip
    text = {"text": "the cat on a mat", "head": {"start": 4, "end": 7, "type": "animal"}, "tail": [13, 16],
            "label": CLASSES[1]}  # fmt: skip
    mentions = [[{"sent_id": 0, "pos": [at, at + 1], "type": "PER", "name": "x"}] for at in (0, 2)]
    document = {"title": "T", "sents": [["Ada", "met", "Bob"]], "vertexSet": mentions,
                "labels": [{"h": 0, "t": 1, "r": CLASSES[1], "evidence": []}]}  # fmt: skip
    lines = "".join(json.dumps(row) + "\n" for row in (tokens, text, document) * 2)
    files = {"a.jsonl": lines.encode(), "a.json": _json([document, tokens])}
    return [_beside(model, {name: content}) for name, content in files.items()]


def _beside(model: Files, files: Files) -> Files:
    """Files to be read by a model, which stays as it is."""
    return {f"model/{name}": content for name, content in model.items()} | files


def _tables(model: Files) -> list[Files]:
    tsv = "sentence\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in TABLE)
    csv = "sentence,label,id\n" + "".join(
        f'"{text.replace(chr(34), chr(34) * 2)}",{label},{i}\n' for i, (text, label) in enumerate(TABLE)
    )
    jsonl = "".join(json.dumps({"sentence": text, "label": label}) + "\n" for text, label in TABLE)
    files = {"a.tsv": tsv, "a.csv": csv, "a.jsonl": jsonl}
    found = [_beside(model, {name: text.encode()}) for name, text in files.items()]
    return found + [
        _beside(model, {f"{name}.gz": gzip.compress(text.encode(), mtime=0)}) for name, text in files.items()
    ]


CONLL_U = """# text = Ada met him.
1-2\tAda met\t_\t_\t_\t_\t_\t_\t_\tSpaceAfter=No
1\tAda\tAda\tB-PER\tNN\t_\t2\tnsubj\t_\t_
2\tmet\tmeet\tO\tVB\t_\t0\troot\t_\t_
2.1\tit\tit\tO\t_\t_\t_\t_\t_\t_
3\thim\the\tO\tPR\t_\t2\tobj\t_\tSpaceAfter=No

"""


def _sentences(model: Files) -> list[Files]:
    row = {"tokens": ["Ada", "met", "Paris"], "tags": ["B-PER", "O", "B-LOC"]}
    files = {"a.conll": CONLL * 2, "a.txt": CONLL.replace(" ", "\t"), "a.jsonl": (json.dumps(row) + "\n") * 3}
    files |= {"a.conllu": CONLL_U * 2, "a.json": json.dumps([row, {"tokens": ["a"], "ner_tags": ["O"]}])}
    return [_beside(model, {name: text.encode()}) for name, text in files.items()]


def _questions(model: Files) -> list[Files]:
    first = json.loads(json.dumps(SQUAD))
    first["version"] = "1.1"
    first["data"][0]["paragraphs"][0]["qas"].pop()
    row = {"id": "q1", "question": "?", "context": "the cat", "answers": {"text": ["cat"], "answer_start": [4]}}
    trees = (SQUAD, first, {name: [value] for name, value in row.items()})
    lines = "".join(json.dumps(row | {"id": i}) + "\n" for i in range(3))
    return [_beside(model, {"a.json": _json(tree)}) for tree in trees] + [_beside(model, {"a.jsonl": lines.encode()})]


def _lines(model: Files) -> list[Files]:
    plain = "the cat sat\na dog ran\nold trees\n"
    objects = "".join(json.dumps({"text": line, "id": i}) + "\n" for i, line in enumerate(plain.split("\n")[:-1]))
    return [_beside(model, files) for files in (
        {"a.txt": plain.encode()}, {"a.jsonl": objects.encode()}, {"a.txt.gz": gzip.compress(plain.encode(), mtime=0)}
    )]  # fmt: skip


def _corpora() -> list[Files]:
    rows = "".join(json.dumps({"text": part, "title": "a"}) + "\n" for part in TEXT.split("\n\n"))
    return [
        {"a.txt": TEXT.encode()},
        {"a.txt.gz": gzip.compress(TEXT.encode(), mtime=0)},
        {"a.jsonl": rows.encode()},
        {"a.jsonl.gz": gzip.compress(rows.encode(), mtime=0)},
        {"a/b.txt": TEXT.encode(), "a/c.jsonl": rows.encode(), "a/.hidden": b"\xff"},
    ]


def _prepared(tokenizer: Tokenizer) -> list[Files]:
    found = []
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "a.txt").write_text(TEXT)
        for packed in (False, True):
            out = f"{folder}/{packed}"
            prepare(f"{folder}/a.txt", tokenizer, out, packed=packed, max_seq_length=32, dupe_factor=1,
                    validation_fraction=0.1, num_workers=1)  # fmt: skip
            found.append(read(out))
    return found


def _run() -> Files:
    """What a run of a few steps leaves: checkpoints with a merit, the recipe, metrics."""
    from targets import state, tiny_run

    with tempfile.TemporaryDirectory() as folder:
        checkpoints = tiny_run(folder)
        for step, accuracy in ((1, 0.5), (2, 0.75), (3, 0.25)):
            checkpoints.save(state(step), {"accuracy": accuracy})
        checkpoints.wait()
        checkpoints.close()
        lines = [{"step": step, "train/loss": 1 / step, "eval/accuracy": 0.5} for step in (1, 2, 3)]
        more = {
            "config.json": recipes.to_json(recipes.classification()).encode(),
            "metrics.jsonl": "".join(json.dumps(line) + "\n" for line in lines).encode(),
        }
        return read(folder) | more
