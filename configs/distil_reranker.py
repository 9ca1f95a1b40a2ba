r"""A reranker with a third of its teacher's layers, which learns the teacher's logits and hidden states.

    bert-jax mine-negatives path/to/all-MiniLM-L6-v2 --data questions.jsonl --corpus passages.txt --out lists.jsonl \
        --format labeled-list --num-negatives 7
    bert-jax distill --config distil_reranker:lists.jsonl,6 --workdir runs/reranker_small \
        --config.distillation.teacher=runs/reranker/model
    bert-jax rerank runs/reranker_small/model "how do cats sleep?" --corpus documents.txt

The arguments are a table of queries with lists of passages (columns query and passages), and the teacher's number of
layers; the student starts from every third. Labels of the table are read only for evaluation (column labels).

Hofstatter et al. 2020 (arXiv:2010.02666), section 4.1; Jiao et al. 2020 (arXiv:1909.10351), section 3.
"""

from ml_collections import ConfigDict

from bert_jax import recipes
from bert_jax.errors import InputError


def get_config(table_and_layers: str = "lists.jsonl,12") -> ConfigDict:
    """The recipe, for a table and the teacher's number of layers."""
    table, _, layers = table_and_layers.rpartition(",")
    if not table or not layers.isdigit() or int(layers) < 3:
        raise InputError("distil_reranker: expected a table and the number of layers of the teacher, as in "
                         f"lists.jsonl,12, found {table_and_layers!r}")  # fmt: skip
    c = recipes.reranking()
    c.global_batch_size, c.eval_batch_size = 16, 32
    c.num_epochs = 3.0
    c.optimizer.learning_rate = 1e-4
    c.optimizer.schedule = "linear"
    c.optimizer.warmup_ratio = 0.1
    c.optimizer.bias_correction = True
    c.data.train = table
    c.data.text_column, c.data.passages_column, c.data.label_column = "query", "passages", "labels"
    c.data.max_seq_length = 256
    c.distillation.student_layers = tuple(range(2, int(layers), 3))
    c.distillation.score_loss = "mse"
    c.distillation.weights.labels = 0.0
    c.distillation.weights.soft_labels = 1.0
    c.distillation.weights.hidden_states = 1.0
    return c
