r"""GLiNER (zero-shot NER): finds entities of the types that are given when the model is called.

    bert-jax finetune --config gliner:entities.jsonl --workdir runs/gliner --config.init_from=path/to/deberta-v3-small
    bert-jax tag runs/gliner/model "Angela Merkel met Barack Obama in Berlin." --labels person,city

The argument is a JSON file whose rows are {"tokenized_text": ["Angela", "Merkel"], "ner": [[0, 1, "person"]]}, with the
indices of each entity's first and last word; or a CoNLL file. init_from is an encoder, or a GLiNER to train further.

Zaratiana et al. 2023 (arXiv:2311.08526), section 3.
"""

from ml_collections import ConfigDict

from bert_jax import recipes


def get_config(train: str = "entities.jsonl") -> ConfigDict:
    """The recipe."""
    c = recipes.zero_shot_ner()
    c.global_batch_size = 8
    c.num_epochs = 3.0
    c.optimizer.learning_rate = 2e-5
    c.optimizer.warmup_ratio = 0.1
    c.data.train, c.data.validation_split = train, 0.05
    c.data.max_seq_length = 384
    return c
