r"""Fine-tuning to answer questions with spans of a text, with BERT's values for SQuAD.

    bert-jax finetune --config squad --workdir runs/squad --config.init_from=path/to/bert \
        --config.data.train=train-v1.1.json --config.data.dev=dev-v1.1.json
    bert-jax finetune --config squad:v2,path/to/squad --workdir runs/squad2 --config.init_from=path/to/bert

The argument is v1 or v2, optionally followed by a comma and the directory of SQuAD's own files. The data determine
whether questions may have no answer; v2 only sets the paper's batch size and number of epochs for such data.

Devlin et al. 2018 (arXiv:1810.04805), sections 4.2 and 4.3; Rajpurkar et al. 2016 (arXiv:1606.05250) and 2018
(arXiv:1806.03822).
"""

from ml_collections import ConfigDict

from bert_jax import recipes
from bert_jax.errors import InputError, did_you_mean

# Version -> its name in file names, number of epochs, and batch size.
VERSIONS = {"v1": ("v1.1", 3.0, 32), "v2": ("v2.0", 2.0, 48)}


def get_config(data: str = "v1") -> ConfigDict:
    """The recipe, for `VERSION` or `VERSION,DIRECTORY`."""
    version, _, directory = data.partition(",")
    if version not in VERSIONS:
        raise InputError(f"squad: {version!r} is no version of SQuAD{did_you_mean(version, VERSIONS)}")
    name, epochs, batch_size = VERSIONS[version]
    c = recipes.question_answering()
    c.global_batch_size = batch_size
    c.num_epochs = epochs
    c.optimizer.learning_rate = 5e-5
    c.optimizer.warmup_ratio = 0.1
    c.data.max_seq_length = 384
    c.data.doc_stride = 128
    if directory:
        c.data.train, c.data.dev = f"{directory}/train-{name}.json", f"{directory}/dev-{name}.json"
    return c
