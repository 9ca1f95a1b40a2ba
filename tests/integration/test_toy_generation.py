"""Tasks with exact answers, learned by masked diffusion from random weights and written in half as many passes."""

import json

import numpy as np
import pytest

from bert_jax import recipes
from bert_jax.inference import pipeline
from bert_jax.training.loop import train

WORDS = [f"w{i}" for i in range(20)]
LONGEST = 8  # words of a prompt
TOY = {
    "reverse": lambda words: list(reversed(words)),
    "sort": lambda words: sorted(words, key=WORDS.index),
    "copy": lambda words: [*words[: len(words) // 2], "gap", *words[len(words) // 2 :]],
}
SIZE = {"hidden_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 256,
        "max_position_embeddings": 32, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}  # fmt: skip


def rows(name, count, seed):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        words = [str(word) for word in rng.choice(WORDS, rng.integers(2, LONGEST + 1))]
        yield {"prompt": " ".join(words), "answer": " ".join(TOY[name](words))}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(TOY))
def test_answers_are_exact(name, tmp_path):
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows(name, 30_000, 0)))
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "gap"]
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    recipe = recipes.load_recipe(f"masked_diffusion:{tmp_path / 'train.jsonl'}")
    keys = {"tokenizer": str(tmp_path / "vocab.txt"), "num_steps": 3000, "num_epochs": 0.0, "global_batch_size": 64,
            "optimizer.learning_rate": 1e-3, "data.max_seq_length": 24, "data.answer_length": LONGEST + 2}  # fmt: skip
    recipe.update_from_flattened_dict(keys | {f"model.{field}": value for field, value in SIZE.items()})
    train(recipes.resolve(recipe), tmp_path / "run", progress=False)
    write, held_out = pipeline("text-generation", tmp_path / "run" / "model"), list(rows(name, 400, 1))
    answers = write([row["prompt"] for row in held_out], steps=(LONGEST + 2) // 2)
    right = [found[0]["generated_text"] == row["answer"] for found, row in zip(answers, held_out, strict=True)]
    assert np.mean(right) >= 0.95
