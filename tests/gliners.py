"""Small GLiNERs with random parameters, rows to learn, and their head in NumPy (arXiv:2311.08526, section 2)."""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bert_jax.config import BertConfig
from bert_jax.config.gliner import GlinerConfig
from bert_jax.conversion.huggingface import save_pretrained
from bert_jax.modeling import Bert
from bert_jax.tokenization import Tokenizer
from bert_jax.tokenization.special_tokens import with_special_tokens

SIZE: dict[str, Any] = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24,
    "max_position_embeddings": 64,
}  # fmt: skip
HEAD = GlinerConfig(max_width=3, hidden_size=12, dropout=0.2, max_len=40)
PLACES, PEOPLE = ["house", "river", "stone"], ["man", "child", "cat"]
NEITHER = ["the", "sat", "on", "a", "by", "and", "is", "good"]


def gliner(tokenizer: Tokenizer, family: str = "bert", head: GlinerConfig = HEAD, **fields: Any) -> Any:
    """The config, the parameters and the tokenizer of a GLiNER; `tokenizer` gets the tokens of prompts."""
    tokenizer = with_special_tokens(tokenizer, head.added_tokens)
    ids = {"vocab_size": tokenizer.vocab_size, "pad_token_id": tokenizer.pad_id, "gliner": head}
    config = BertConfig.named("tiny", family, **SIZE | ids | fields)
    return config, random_params(config), tokenizer


def random_params(config: BertConfig, head: str = "zero_shot_ner") -> Any:
    """Parameters so large that the scores of spans are far apart."""
    generator = np.random.default_rng(0)
    shapes = Bert(config, head).abstract_params()

    def draw(path: Any, leaf: Any) -> jax.Array:
        name, scale = jax.tree_util.keystr(path), 0.3 if len(leaf.shape) > 1 else 0.1
        return jax.numpy.asarray(generator.normal("scale" in name, scale, leaf.shape), np.float32)

    return jax.tree_util.tree_map_with_path(draw, shapes)


def write_gliner(directory: Path, tokenizer: Tokenizer, family: str = "bert", **fields: Any) -> Path:
    """Writes a GLiNER."""
    config, params, tokenizer = gliner(tokenizer, family, **fields)
    save_pretrained(directory, config, "zero_shot_ner", params, tokenizer)
    return directory


def write_rows(path: Path, count: int, seed: int) -> Path:
    """Sentences with a place or a person of one or two words now and then; the types are words of the vocabulary."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        words, ner = [], []
        for _ in range(rng.integers(3, 10)):
            kind = rng.choice(["tree", "old", ""], p=[0.2, 0.2, 0.6])
            if kind:
                start = len(words)
                words.append(str(rng.choice(PLACES if kind == "tree" else PEOPLE)))
                words += [{"tree": "big", "old": "young"}[kind]] * int(rng.integers(0, 2))
                ner.append([start, len(words) - 1, str(kind)])
            else:
                words.append(str(rng.choice(NEITHER)))
        rows.append({"tokenized_text": words, "ner": ner})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def head_in_numpy(
    params: Any, states: np.ndarray, words: list[int], types: list[int], max_width: int
) -> dict[tuple[int, int, int], float]:
    """(first word, last word, type) -> logit, for one row without padding: `states [S, hidden]`."""
    p = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params["gliner"])

    def dense(layer: Any, x: np.ndarray) -> np.ndarray:
        return x @ layer["kernel"] + layer["bias"]

    def feed_forward(block: Any, x: np.ndarray) -> np.ndarray:
        return dense(block["down"], np.maximum(dense(block["up"], x), 0))

    def sigmoid(x: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-x))

    def lstm(cell: Any, x: np.ndarray) -> np.ndarray:
        hidden = memory = np.zeros(cell["recurrent"]["kernel"].shape[0])
        found = []
        for vector in x:
            gates = dense(cell["input"], vector) + dense(cell["recurrent"], hidden)
            ingoing, forget, candidate, out = np.split(gates, 4)
            memory = sigmoid(forget) * memory + sigmoid(ingoing) * np.tanh(candidate)
            hidden = sigmoid(out) * np.tanh(memory)
            found.append(hidden)
        return np.stack(found)

    states = states.astype(np.float64)
    states = dense(p["projection"], states) if "projection" in p else states
    text, number = states[words], 0
    while layer := p.get(f"lstm_{number}"):
        back = lstm(layer["backward"], text[::-1])[::-1]
        text, number = np.concatenate([lstm(layer["forward"], text), back], axis=1), number + 1
    kinds = feed_forward(p["type"], states[types])
    starts, ends = feed_forward(p["start"], text), feed_forward(p["end"], text)
    logits = {}
    for first in range(len(words)):
        for last in range(first, min(first + max_width, len(words))):
            both = np.maximum(np.concatenate([starts[first], ends[last]]), 0)
            for kind, score in enumerate(kinds @ feed_forward(p["span"], both)):
                logits[first, last, kind] = float(score)
    return logits
