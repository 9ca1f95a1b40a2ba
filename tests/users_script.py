"""A user's script over the public API, which `make types` checks with mypy --strict and a test runs.

python tests/users_script.py MODEL_DIR
"""

import sys

import jax
import numpy as np

import bert_jax
from bert_jax import BertConfig, BertOutput, InputError, PretrainedModel, Tokenizer, from_pretrained, load_tokenizer


def embed(model: PretrainedModel, texts: list[str]) -> np.ndarray:
    return model.encode(texts, batch_size=2, normalize_embeddings=True)


def first_vector(output: BertOutput) -> jax.Array:
    assert output.last_hidden_state is not None
    return output.last_hidden_state[0, 0]


def main(directory: str) -> float:
    config: BertConfig = BertConfig.from_pretrained(directory)
    tokenizer: Tokenizer = load_tokenizer(directory)
    inputs = tokenizer(["a cat", "a dog"], padding="longest", truncation=True, max_length=8, return_tensors="jax")
    model = from_pretrained(directory, dtype="float32")
    vector = first_vector(model(**inputs))
    halved = jax.tree.map(lambda leaf: leaf / 2, model)
    assert first_vector(halved("a cat")).shape == vector.shape == (config.hidden_size,)
    vectors = embed(model, ["a cat", "a dog", "a river"])
    similar = model.similarity(vectors[:1], vectors[1:])
    answers = bert_jax.pipeline("embed", model, batch_size=1)(["a cat"])
    assert np.allclose(answers / np.linalg.norm(answers), vectors[:1], atol=1e-5)
    return float(similar.max())


if __name__ == "__main__":
    try:
        print(f"{main(sys.argv[1]):.3f}")
    except InputError as error:
        raise SystemExit(str(error)) from None
