"""Sentences from templates with two entities and their relation, and a small model that knows their words."""

import numpy as np
import random_models

from bert_jax.config import BertConfig
from bert_jax.tokenization import word_piece

PEOPLE, CITIES, FIRMS = ("ada", "bob", "eve", "dan"), ("paris", "rome", "oslo"), ("acme", "ajax", "apex")
# Relation -> its template, and the types of its arguments; of three relations the words around decide.
TEMPLATES = {
    "born_in": ("the {h} came from {t} .", "PERSON", "CITY"),
    "lives_in": ("the {h} now lives near {t} .", "PERSON", "CITY"),
    "works_for": ("{h} works at {t} .", "PERSON", "ORG"),
    "based_in": ("in {t} sits {h} .", "ORG", "CITY"),
    "no_relation": ("{h} never saw {t} .", "PERSON", "CITY"),
}
NAMES = {"PERSON": PEOPLE, "CITY": CITIES, "ORG": FIRMS}
WORDS = {word for text, *_ in TEMPLATES.values() for word in text.split() if "{" not in word}
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"@*#^.,", "person", "city", "org", *PEOPLE, *CITIES, *FIRMS,
          *sorted(WORDS - {"."}), "and", "so"]  # fmt: skip


def example(rng):
    """A row of TACRED's form."""
    relation = list(TEMPLATES)[rng.integers(len(TEMPLATES))]
    template, *types = TEMPLATES[relation]
    names = [str(rng.choice(NAMES[kind])) for kind in types]
    tokens = template.format(h=names[0], t=names[1]).split()
    places = [tokens.index(name) for name in names]
    row = {"id": f"e{rng.integers(10**9)}", "relation": relation, "token": tokens}
    for name, place, kind in zip(("subj", "obj"), places, types, strict=True):
        row |= {f"{name}_start": place, f"{name}_end": place, f"{name}_type": kind}
    return row


def rows_of(count, seed):
    rng = np.random.default_rng(seed)
    return [example(rng) for _ in range(count)]


def write_model(path, head, **fields):
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    config = BertConfig(vocab_size=len(PIECES), max_position_embeddings=48, **sizes, **fields)
    return random_models.write_model(path, config, head, word_piece(PIECES, lowercase=True))
