"""The recipe of zero-shot NER."""

from bert_jax.recipes.base import Key, ModelUse, TaskRecipe
from bert_jax.recipes.shared_keys import (
    FINE_TUNING_KEYS,
    fine_tuning,
    label_column,
    max_seq_length,
    text_column,
    training_data,
)

_ARGUMENTS = '"Ada Lovelace wrote it.", ["person"]'
_OF_GLINER = "not set = as in the model, else"
KEYS = FINE_TUNING_KEYS | {
    "data.train": training_data("training data: JSON of tokenized_text and ner, or tagged sentences (CoNLL, JSON, "
                                "TFDS)"),
    "data.text_column": text_column("", "column of the words; empty = tokenized_text in JSON, the first in CoNLL"),
    "data.label_column": label_column("", "column of the spans or tags; empty = ner in JSON, the last in CoNLL"),
    "data.type_names": Key((), "names in prompts for types in the data, such as ('PER=person', 'LOC=place')"),
    "data.metrics": Key((), "metrics of evaluation: any of f1, precision, recall, types (f1 of each type); () = all "
                        "but types"),
    "data.max_seq_length": max_seq_length(384, "maximum number of tokens of types and text; longer texts become "
                                          "overlapping windows", least=16),
    "data.max_width": Key(int, f"maximum number of words in an entity; {_OF_GLINER} 12", least=1),
    "data.hidden_size": Key(int, f"width of the vectors of words, spans and types; {_OF_GLINER} 512", least=2,
                            synonyms="d_model hidden_dim embed_dim dim"),
    "data.num_rnn_layers": Key(int, f"layers of the LSTM over the words; {_OF_GLINER} 1", least=0),
    "data.embed_ent_token": Key(bool, "whether a type's vector is that of the special token before its name, not of "
                                f"the name's first token; {_OF_GLINER} True"),
    "data.dropout": Key(float, f"dropout rate inside the head; {_OF_GLINER} 0.4", least=0, below=1),
    "data.max_types": Key(int, f"maximum number of types in an example; {_OF_GLINER} 25", least=1),
    "data.max_neg_type_ratio": Key(int, f"maximum number of sampled types per entity of an example; {_OF_GLINER} 1",
                                   least=0),
}  # fmt: skip

RECIPE = TaskRecipe(
    "zero-shot NER (GLiNER): texts with spans of named types",
    build="bert_jax.tasks.zero_shot_ner.task.build",
    keys=KEYS,
    defaults=fine_tuning(batch_size=8, epochs=3.0, learning_rate=2e-5),
    use=ModelUse(
        "token-classification",
        "zero-shot-ner",
        _ARGUMENTS,
        torch_import="from gliner import GLiNER",
        torch_lines=(f"print(GLiNER.from_pretrained(folder).predict_entities({_ARGUMENTS}))",),
    ),
    synthetic_rows="bert_jax.tasks.zero_shot_ner.task.synthetic_rows",
)
