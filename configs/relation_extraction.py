r"""Relation extraction: the relation between two entities of a text, as in TACRED and DocRED.

    bert-jax finetune --config relation_extraction:path/to/tacred --workdir runs/tacred --config.init_from=path/to/bert
    bert-jax evaluate --model runs/tacred/model --data path/to/tacred/test.json

The argument is the directory of the data's train.json and dev.json, with rows in TACRED's format, or with text, head,
tail and label. For DocRED it is the directory of train_annotated.json and dev.json, followed by `,docred`: each two
entities of a document are a pair, with any number of relations.

Zhou and Chen 2021 (arXiv:2102.01373), section 3 and appendix A; Yao et al. 2019 (arXiv:1906.06127).
"""

from ml_collections import ConfigDict

from bert_jax import recipes
from bert_jax.errors import InputError


def get_config(data: str = "tacred") -> ConfigDict:
    """The recipe, for `DIRECTORY` or `DIRECTORY,docred`."""
    directory, _, form = data.partition(",")
    if form not in ("", "docred"):
        raise InputError(f"relation_extraction: expected a directory, optionally followed by ,docred, found ,{form}")
    c = recipes.relation_extraction()
    c.global_batch_size = 32
    c.num_epochs = 5.0
    c.optimizer.learning_rate = 3e-5
    c.optimizer.warmup_ratio = 0.1
    c.data.train, c.data.dev = f"{directory}/train.json", f"{directory}/dev.json"
    c.data.max_seq_length = 256
    if form == "docred":
        c.data.train = f"{directory}/train_annotated.json"
        c.data.multi_label, c.data.null_ratio, c.data.max_seq_length = True, 3.0, 512
    return c
