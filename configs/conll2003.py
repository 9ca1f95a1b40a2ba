r"""Named entities of CoNLL-2003: persons, organisations, places and others in news.

    bert-jax finetune --config conll2003:path/to/conll2003 --workdir runs/conll2003 \
        --config.init_from=path/to/bert
    bert-jax evaluate --model runs/conll2003/model --data path/to/conll2003/test.txt

The argument is the directory of the data's train.txt and valid.txt, with a word per line, its tag in the last column,
and a blank line after each sentence. The model should be cased. For other data of this format, set
--config.data.train=FILE; for parts of speech, the second column here, set --config.data.label_column=1.

Devlin et al. 2018 (arXiv:1810.04805), section 5.3 and appendix A.3; Tjong Kim Sang and De Meulder 2003 (cs/0306050).
"""

from ml_collections import ConfigDict

from bert_jax import recipes


def get_config(directory: str = "conll2003") -> ConfigDict:
    """The recipe."""
    c = recipes.token_classification()
    c.global_batch_size = 32
    c.num_epochs = 3.0
    c.optimizer.learning_rate = 5e-5
    c.optimizer.warmup_ratio = 0.1
    c.data.train, c.data.dev = f"{directory}/train.txt", f"{directory}/valid.txt"
    c.data.max_seq_length = 128
    return c
