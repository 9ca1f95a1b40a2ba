"""The files that the pages take to be there: small models, tables and corpora under the names that the pages use."""

import csv
import gzip
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from gliners import write_gliner
from random_models import normal_params
from safetensors.numpy import load_file, save_file

from bert_jax.config import BertConfig
from bert_jax.conversion.encoder_decoder import save_encoder_decoder
from bert_jax.conversion.generation_settings import GenerationSettings
from bert_jax.conversion.huggingface import save_pretrained
from bert_jax.demo import SEQUENCE_LENGTH
from bert_jax.modeling import EncoderDecoder
from bert_jax.recipes import load_recipe, resolve, to_json
from bert_jax.tokenization import Tokenizer

TEXTS = ["the cat sat on the tree", "a dull and grey film", "the dog sees a red house", "two big birds sat under it"]
SIZE = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
# Path of a model -> its head, and fields of its config.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "demo_workdir/pretraining/model": ("pretraining", {"max_position_embeddings": SEQUENCE_LENGTH}),
    "path/to/bert": ("pretraining", {}),
    "path/to/all-MiniLM-L6-v2": ("sentence_embedding", {}),
    "path/to/splade": ("sparse_embedding", {}),
    "path/to/colbert": ("multi_vector", {}),
    "path/to/cross-encoder": ("sequence_classification", {"num_labels": 1}),
    "runs/base/model": ("masked_lm", {}),
    "runs/write/model": ("masked_lm", {}),
    "runs/conll2003/model": ("token_classification", {"id2label": ("O", "B-PER", "I-PER", "B-LOC")}),
    "runs/mnli/model": ("sequence_classification", {"id2label": ("contradiction", "entailment", "neutral")}),
    "runs/relevance/model": ("sequence_classification", {"num_labels": 1}),
    "runs/tacred/model": ("sequence_classification", {"id2label": ("no_relation", "per:title")}),
    "runs/reviews/model": ("sequence_classification", {"id2label": ("bad", "good")}),
    "runs/squad/model": ("question_answering", {}),
    "runs/squad2/model": ("question_answering", {}),
    "runs/sst2/model": ("sequence_classification", {"id2label": ("0", "1")}),
    "runs/stsb/model": ("sentence_embedding", {}),
}
# The same models under other names.
ALIASES = {
    "bert-base": "path/to/bert",
    "bert-base-uncased": "path/to/bert",
    "old-bert": "path/to/bert",
    "pretrained": "path/to/bert",
    "uncased_L-12_H-768_A-12": "path/to/bert",
    "bucket/bert-base-uncased": "path/to/bert",
    "all-MiniLM-L6-v2": "path/to/all-MiniLM-L6-v2",
    "splade": "path/to/splade",
    "colbert": "path/to/colbert",
}


def build(folder: Path, tokenizer: Tokenizer) -> None:
    """Writes all of it into an empty folder; the models are small and have the tokenizer's vocabulary."""
    for name, (head, fields) in MODELS.items():
        model(folder / name, head, fields, tokenizer)
    for name, original in ALIASES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(folder / original)
    write_gliner(folder / "path/to/gliner", tokenizer)
    _encoder_decoder(folder / "runs/summaries/model", tokenizer)
    _adapter(folder / "adapter")
    _bare_file(folder / "model.pt", folder / "path/to/bert")
    (folder / "vocab.txt").write_text("\n".join(tokenizer.pieces) + "\n")
    (folder / "runs/sst2/config.json").write_text(to_json(resolve(load_recipe("classification"))))
    _corpora(folder)
    (folder / "words.txt").write_text("pytree\nvmap\n")
    _tables(folder)
    _tagged(folder)
    _relations(folder)
    _questions(folder)


def model(path: Path, head: str, fields: dict[str, Any], tokenizer: Tokenizer) -> None:
    """Writes a model; fields of its config may be given."""
    if "id2label" in fields:
        fields = fields | {"num_labels": len(fields["id2label"])}
    config = BertConfig(**{"vocab_size": tokenizer.vocab_size} | SIZE | fields)
    save_pretrained(path, config, head, normal_params(config, head, 0.02), tokenizer)


def _encoder_decoder(path: Path, tokenizer: Tokenizer) -> None:
    """An encoder-decoder with random parameters, which writes few tokens."""
    config = BertConfig(vocab_size=tokenizer.vocab_size, **SIZE)
    model = EncoderDecoder(config, config)
    random = np.random.default_rng(0)
    params = jax.tree.map(lambda leaf: random.normal(0, 0.02, leaf.shape).astype("f4"), model.abstract_params())
    settings = GenerationSettings(tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id, max_length=5)
    save_encoder_decoder(path, model, params, settings, tokenizer)


def _adapter(folder: Path) -> None:
    """A LoRA adapter of `path/to/bert`, whose only layer is 32 wide, as peft writes it."""
    folder.mkdir()
    config = {"peft_type": "LORA", "base_model_name_or_path": "elsewhere/bert", "r": 2, "lora_alpha": 4}
    (folder / "adapter_config.json").write_text(json.dumps(config | {"target_modules": ["query"]}))
    layer = "base_model.model.bert.encoder.layer.0.attention.self.query"
    update = {f"{layer}.lora_A.weight": np.ones((2, 32), "f4"), f"{layer}.lora_B.weight": np.ones((32, 2), "f4")}
    save_file(update, folder / "adapter_model.safetensors")


def _bare_file(path: Path, original: Path) -> None:
    """A file of an encoder in wrappers, with a classifier. Its content is safetensors, as PyTorch may be missing."""
    encoder = {
        name: tensor for name, tensor in load_file(original / "model.safetensors").items() if name[:5] == "bert."
    }
    head = {"fc.weight": np.ones((2, 32), "f4"), "fc.bias": np.ones(2, "f4")}
    save_file({f"module.model.{name}": tensor for name, tensor in (encoder | head).items()}, path)


def _corpora(folder: Path) -> None:
    sentences = [text.capitalize() + "." for text in TEXTS]
    documents = [" ".join(sentences[i:] + sentences[:i]) for i in range(4)] * 30
    for name in ("corpus", "books"):
        (folder / name).mkdir()
        (folder / name / "text.txt").write_text("\n\n".join(documents))
    _json_lines(folder / "articles.jsonl", [{"text": text} for text in documents])
    pages = "".join(json.dumps({"body": text}) + "\n" for text in TEXTS)
    (folder / "pages.jsonl.gz").write_bytes(gzip.compress(pages.encode()))
    for name in ("documents.txt", "found.txt", "reviews.txt", "sentences.txt", "articles.txt"):
        (folder / name).write_text("\n".join(TEXTS) + "\n")
    (folder / "scifact/qrels").mkdir(parents=True)
    for name in ("corpus", "queries"):
        rows = [{"_id": f"{name}{i}", "text": text} for i, text in enumerate(TEXTS)]
        _json_lines(folder / f"scifact/{name}.jsonl", rows)
    (folder / "scifact/qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\nqueries0\tcorpus0\t1\n")
    (folder / "article.txt").write_text("Merkel met Obama in Berlin. The cat sat.\n")


def _tables(folder: Path) -> None:
    reviews = [(text, ("bad", "good")[i % 2]) for i, text in enumerate(TEXTS * 4)]
    for name in ("train.csv", "dev.csv", "reviews.csv"):
        _csv(folder / name, ("review", "label"), reviews)
    for name in ("train.tsv", "dev.tsv"):
        (folder / name).write_text("sentence\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in reviews))
    around = list(zip(TEXTS, TEXTS[1:] + TEXTS[:1], TEXTS[2:] + TEXTS[:2], strict=True))
    (folder / "triplets.tsv").write_text("a\tb\tc\n" + "".join("\t".join(row) + "\n" for row in around))
    duplicates = "".join(f"{a}\t{b}\t{i % 2}\n" for i, (a, b, _) in enumerate(around))
    (folder / "duplicates.tsv").write_text("sentence1\tsentence2\tscore\n" + duplicates)
    _json_lines(folder / "answers.jsonl", [{"query": a, "positive": b, "negative": [c]} for a, b, c in around])
    (folder / "texts.tsv").write_text("text\n" + "".join(f"{text}\n" for text in TEXTS * 4))
    glue = folder / "path" / "to"
    for task in ("SST-2", "CoLA", "STS-B"):
        (glue / task).mkdir(parents=True)
        for split in ("train", "dev"):
            if task == "CoLA":
                rows = "".join(f"x\t{i % 2}\t*\t{text}\n" for i, text in enumerate(TEXTS * 4))
            elif task == "SST-2":
                rows = "sentence\tlabel\n" + "".join(f"{text}\t{i % 2}\n" for i, text in enumerate(TEXTS * 4))
            else:
                pairs = zip(TEXTS * 4, TEXTS[1:] * 5, strict=False)
                rows = "sentence1\tsentence2\tscore\n" + "".join(
                    f"{a}\t{b}\t{i % 5}.0\n" for i, (a, b) in enumerate(pairs)
                )
            (glue / task / f"{split}.tsv").write_text(rows)
    for name in ("SST-2", "CoLA"):
        (folder / name).symlink_to(glue / name)
    for name, separator in (("pairs.csv", ","), ("pairs.tsv", "\t")):
        lines = [("a", "b"), *itertools.pairwise(TEXTS)]
        (folder / name).write_text("".join(separator.join(line) + "\n" for line in lines))
    (glue / "embedding_data").mkdir()
    for name in ("sts", "sts_dev"):
        split = "train" if name == "sts" else "dev"
        (glue / f"embedding_data/{name}.tsv").write_text((glue / f"STS-B/{split}.tsv").read_text())
    triples = zip(TEXTS * 3, TEXTS[1:] * 4, TEXTS[2:] * 6, strict=False)
    _json_lines(glue / "embedding_data/nli.jsonl", [{"anchor": a, "positive": b, "negative": c} for a, b, c in triples])
    questions = [{"question": a, "answer": b} for a in TEXTS for b in TEXTS]
    _json_lines(glue / "embedding_data/questions.jsonl", questions)
    mixed = [f"{a}, {b}" for a in TEXTS for b in TEXTS if a != b]
    rows = [{"query": text, "positive": mixed[i]} for i, text in enumerate(TEXTS * 2)]
    _json_lines(folder / "questions.jsonl", rows)
    (folder / "passages.txt").write_text("\n".join(mixed))
    answered = [{"prompt": first, "answer": second} for first, second in itertools.pairwise(TEXTS * 4)]
    for name in ("train.jsonl", "prompts.jsonl"):
        _json_lines(folder / name, answered)
    (folder / "prompts.txt").write_text("\n".join(TEXTS))
    _json_lines(folder / "chats.jsonl", [{"messages": _chat(row)} for row in answered])
    endings = [f"ending{i}" for i in range(4)]
    _csv(folder / "swag.csv", ("sent1", "sent2", *endings), [(text, "it", *TEXTS) for text in TEXTS])
    for name in ("summaries.jsonl", "held_out.jsonl"):
        _json_lines(folder / name, [{"source": f"{a} {b}", "target": a} for a in TEXTS for b in TEXTS])
    (folder / "found").mkdir()
    _json_lines(folder / "found" / "a.jsonl", [{"query": text, "texts": TEXTS} for text in TEXTS])
    (glue / "hellaswag").mkdir()
    for split in ("train", "val"):
        rows = [{"context": text, "choices": TEXTS, "label": i % 4} for i, text in enumerate(TEXTS * 4)]
        _json_lines(glue / "hellaswag" / f"{split}.jsonl", rows)


def _chat(row: dict[str, str]) -> list[dict[str, str]]:
    return [{"role": "user", "content": row["prompt"]}, {"role": "assistant", "content": row["answer"]}]


def _tagged(folder: Path) -> None:
    words = "the O\ncat B-PER\nhouse I-PER\nsat O\n\nred B-LOC\nhouse O\n\n" * 6
    (folder / "path/to/conll2003").mkdir()
    for name in ("path/to/conll2003/train.txt", "path/to/conll2003/valid.txt", "path/to/conll2003/test.txt"):
        (folder / name).write_text(words)
    (folder / "test.txt").write_text(words)
    (folder / "path/to/UD_English-EWT").mkdir()
    tagged = zip(("the", "cat", "sees", "it"), ("DET", "NOUN", "VERB", "PRON"), strict=True)
    lines = [f"{i}\t{word}\t_\t{tag}" + "\t_" * 6 for i, (word, tag) in enumerate(tagged, 1)]
    for part in ("train", "dev", "test"):
        (folder / f"path/to/UD_English-EWT/en_ewt-ud-{part}.conllu").write_text(("\n".join(lines) + "\n\n") * 6)
    rows = [{"tokenized_text": text.split(" "), "ner": [[1, 1 + i % 2, "person"], [4, 4, "city"]]} for i, text in
            enumerate(TEXTS * 6)]  # fmt: skip
    _json_lines(folder / "entities.jsonl", rows)


def _relations(folder: Path) -> None:
    settings = {"markers": "entity_marker_punct", "null_label": "no_relation"}
    (folder / "runs/tacred/model/bert_jax.json").write_text(json.dumps({"relations": settings}))
    (folder / "path/to/tacred").mkdir()
    row = {"subj_start": 1, "subj_end": 1, "obj_start": 5, "obj_end": 5, "subj_type": "PERSON", "obj_type": "CITY"}
    rows = [row | {"id": str(i), "token": TEXTS[0].split(), "relation": ("no_relation", "per:title")[i % 2]} for i in
            range(8)]  # fmt: skip
    for name in ("train", "dev", "test"):
        (folder / f"path/to/tacred/{name}.json").write_text(json.dumps(rows))


def _questions(folder: Path) -> None:
    context = "the cat sat on the tree. the dog sees a red house."

    def question(i: int, impossible: bool) -> dict[str, Any]:
        answers = [] if impossible else [{"text": "the tree", "answer_start": context.index("the tree")}]
        return {"id": str(i), "question": "the cat sat on it?", "answers": answers, "is_impossible": impossible}

    (folder / "path/to/squad").mkdir()
    for version in ("v1.1", "v2.0"):
        questions = [question(i, version == "v2.0" and i % 3 == 0) for i in range(12)]
        if version == "v1.1":
            for asked in questions:
                del asked["is_impossible"]
        data = {"version": version, "data": [{"title": "t", "paragraphs": [{"context": context, "qas": questions}]}]}
        for split in ("train", "dev"):
            (folder / "path/to/squad" / f"{split}-{version}.json").write_text(json.dumps(data))
    (folder / "dev-v2.0.json").symlink_to(folder / "path/to/squad/dev-v2.0.json")


def _csv(path: Path, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def _json_lines(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
