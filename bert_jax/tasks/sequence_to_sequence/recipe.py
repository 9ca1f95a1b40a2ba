"""The recipe of sequence to sequence."""

import math

from bert_jax.recipes.base import CONTENT, Key, ModelUse, TaskRecipe
from bert_jax.recipes.shared_keys import (
    FINE_TUNING_KEYS,
    HAS_HEADER,
    TABLE_KEYS,
    column,
    fine_tuning,
    label_smoothing,
    max_seq_length,
)

KEYS = {name: key for name, key in FINE_TUNING_KEYS.items() if name != "keep_head"} | TABLE_KEYS | {
    "decoder_init_from": Key("", "model directory that the decoder starts from; empty = that of init_from",
                             may_change=CONTENT),
    "model.decoder_layers": Key(0, "number of layers of a decoder with random parameters; 0 = as in the encoder",
                                least=0),
    "label_smoothing": label_smoothing("fraction of a token's probability that is spread evenly over the vocabulary"),
    "data.source_column": column("source", "column of the text to read"),
    "data.target_column": column("target", "column of the text to write"),
    "data.has_header": HAS_HEADER,
    "data.max_seq_length": max_seq_length(512, "maximum number of tokens in a source; longer texts are cut", least=3),
    "data.max_target_length": Key(128, "maximum number of tokens in a target; longer texts are cut", least=3),
    "generation.num_beams": Key(4, "number of beams in the trained model's beam search; 1 = greedy search", least=1),
    "generation.length_penalty": Key(1.0, "exponent of the length by which beam search divides log probabilities",
                                     above=-math.inf),
    "generation.no_repeat_ngram_size": Key(0, "the trained model generates no sequence of this number of tokens twice; "
                                           "0 = no limit", least=0),
}  # fmt: skip

RECIPE = TaskRecipe(
    "encoder-decoders from two encoders: pairs of a text to read and a text to write",
    build="bert_jax.tasks.sequence_to_sequence.task.build",
    keys=KEYS,
    defaults=fine_tuning(batch_size=32, epochs=3.0, learning_rate=5e-5),
    use=ModelUse(
        "text2text-generation",
        "text2text-generation",
        '"A text."',
        torch_lines=(
            ModelUse.torch_lines[0],
            'print(tokenizer.decode(model.generate(**tokenizer("A text.", return_tensors="pt"))[0]))',
        ),
    ),
    synthetic_rows="bert_jax.tasks.sequence_to_sequence.task.synthetic_rows",
)
