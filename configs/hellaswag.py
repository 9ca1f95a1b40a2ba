r"""HellaSwag, or another multiple-choice data set, with BERT's values for SWAG.

    bert-jax finetune --config hellaswag:path/to/hellaswag --workdir runs/hellaswag \
        --config.init_from=path/to/bert

The argument is the directory of train.jsonl and val.jsonl, whose lines hold `context`, a list of `choices` and the
`label` of the right one. The published files of SWAG, HellaSwag and RACE use other names:

    SWAG (CSV)         --config.data.context_column=sent1 --config.data.question_column=sent2 \
                       --config.data.choice_columns="('ending0', 'ending1', 'ending2', 'ending3')"
    HellaSwag          --config.data.context_column=ctx --config.data.choice_columns="('endings',)"
    RACE (JSON lines)  --config.data.context_column=article --config.data.question_column=question \
                       --config.data.choice_columns="('options',)" --config.data.label_column=answer

Zellers et al. 2019 (arXiv:1905.07830); Devlin et al. 2018 (arXiv:1810.04805), section 4.4.
"""

from ml_collections import ConfigDict

from bert_jax import recipes


def get_config(directory: str = "hellaswag") -> ConfigDict:
    """The recipe."""
    c = recipes.multiple_choice()
    c.global_batch_size = 16
    c.num_epochs = 3.0
    c.best_metric, c.eval_every = "accuracy", 500
    c.optimizer.learning_rate = 2e-5
    c.optimizer.warmup_ratio = 0.1
    c.data.train, c.data.dev = f"{directory}/train.jsonl", f"{directory}/val.jsonl"
    c.data.max_seq_length = 128
    return c
