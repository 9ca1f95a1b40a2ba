"""What every task settles before it starts: how the model runs, where it starts from, and whether its data fit it."""

import math
from typing import Any

from bert_jax.config import BertConfig
from bert_jax.conversion.huggingface import load_pretrained
from bert_jax.errors import InputError
from bert_jax.modeling import Compute
from bert_jax.tokenization import Tokenizer, load_tokenizer


def compute(recipe: Any) -> Compute:
    """How the model of a resolved recipe runs."""
    return Compute(dtype=recipe.dtype, layers=recipe.layers, remat=recipe.remat)


def tokenizer(recipe: Any, default: str = "") -> Tokenizer:
    """The tokenizer of a recipe: its own, else the one in `default`, else that of the model it starts from."""
    place = recipe.tokenizer or default or recipe.init_from
    if not place:
        raise InputError("config.tokenizer: expected a tokenizer, since there is no init_from to take it from")
    return load_tokenizer(place)


def pretrained(recipe: Any, head: str) -> tuple[BertConfig | None, dict[str, Any] | None]:
    """Config and parameters (numpy, as far as the files have them) of `init_from`; two Nones without one."""
    if not recipe.init_from:
        return None, None
    loaded = load_pretrained(recipe.init_from, head)
    return loaded.config, loaded.params


def check_vocabulary(tokenizer: Tokenizer, config: BertConfig) -> None:
    """Raises InputError when the tokenizer has ids that the word embedding has no row for."""
    if tokenizer.vocab_size > config.vocab_size:
        raise InputError(
            f"the tokenizer has {tokenizer.vocab_size} pieces, more than the {config.vocab_size} rows of the model's "
            "word embedding (vocab_size)"
        )


def check_length(length: int, config: BertConfig, key: str) -> None:
    """Raises InputError when sequences of `length` tokens, set by recipe key `key`, are longer than the positions."""
    if length > config.max_position_embeddings:
        raise InputError(
            f"{key}: expected at most the model's {config.max_position_embeddings} positions "
            f"(max_position_embeddings), found {length}"
        )


def num_steps(recipe: Any, num_examples: int, batch_size: int) -> int:
    """Optimizer steps of a run: `num_steps`, or `num_epochs` of so many batches, the last of each maybe not full."""
    return recipe.num_steps or math.ceil(recipe.num_epochs * -(-num_examples // batch_size))
