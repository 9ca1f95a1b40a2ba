r"""Parts of speech of a treebank of Universal Dependencies: a tag for each word of CoNLL-U.

    bert-jax finetune --config part_of_speech:path/to/UD_English-EWT/en_ewt-ud --workdir runs/pos \
        --config.init_from=path/to/bert
    bert-jax evaluate --model runs/pos/model --metrics accuracy,types \
        --data path/to/UD_English-EWT/en_ewt-ud-test.conllu
    bert-jax predict --model runs/pos/model --data path/to/UD_English-EWT/en_ewt-ud-test.conllu --out tagged.conllu

The argument is the path of the treebank's files up to -train.conllu and -dev.conllu, optionally followed by a comma and
the column to learn: upos (the default), xpos, feats or deprel.

Devlin et al. 2018 (arXiv:1810.04805), section 5.3; Nivre et al. 2020 (arXiv:2004.10643).
"""

from ml_collections import ConfigDict

from bert_jax import recipes


def get_config(treebank: str = "treebank") -> ConfigDict:
    """The recipe."""
    files, _, column = treebank.partition(",")
    c = recipes.token_classification()
    c.global_batch_size = 32
    c.num_epochs = 3.0
    c.optimizer.learning_rate = 5e-5
    c.optimizer.warmup_ratio = 0.1
    c.data.train, c.data.dev = f"{files}-train.conllu", f"{files}-dev.conllu"
    c.data.label_column = column or "upos"
    c.data.max_seq_length = 128
    return c
