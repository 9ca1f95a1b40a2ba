"""Replace a model directory by a new one: only files that this package writes into model directories are removed."""

import re
import secrets

from bert_jax import storage
from bert_jax.conversion.file_names import GLINER_FILE
from bert_jax.errors import InputError

_MODEL_FILE = re.compile(
    r"([0-9]+_[A-Za-z]+/)?(config|bert_jax|generation_config|gliner_config|modules|sentence_bert_config|"
    r"config_sentence_transformers|tokenizer|tokenizer_config|special_tokens_map|vocab|model[.]safetensors[.]index|"
    r"flax_model[.]msgpack[.]index)[.]json|([0-9]+_[A-Za-z]+/)?model(-[0-9]{5}-of-[0-9]{5})?[.]safetensors|"
    r"flax_model(-[0-9]{5}-of-[0-9]{5})?[.]msgpack|vocab[.]txt|merges[.]txt|bpe[.]codes|(spiece|spm|sentencepiece[.]bpe)[.]model"
)


def place_of_new(home: storage.Path, overwrite: bool) -> storage.Path:
    """Return the directory to write a model into: `home`, or another that will replace it.

    Args:
        home: a new directory; or with `overwrite`, a model directory.
        overwrite: whether to replace a model directory.

    Raises:
        InputError: the directory to replace is not a model directory, or has other files in it.
    """
    if not overwrite or not home.is_dir() or not any(home.iterdir()):
        return home
    if not any((home / name).exists() for name in ("config.json", GLINER_FILE)):
        raise InputError(f"{home}: expected a model directory to replace, found one without config.json")
    for file in home.files_below():
        if not _MODEL_FILE.fullmatch(str(file.relative_to(home))):
            raise InputError(f"{home}: expected a model directory to replace, found {file.relative_to(home)} in it, "
                             "which would be removed; move it elsewhere")  # fmt: skip
    return home.parent / f".{home.name}.bert_jax-{secrets.token_hex(8)}.new"
