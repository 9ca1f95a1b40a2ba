"""What sentence-transformers puts around a BERT: `modules.json`, `1_Pooling`, `sentence_bert_config.json`."""

import json
from typing import Any

from bert_jax import storage
from bert_jax.config import BertConfig
from bert_jax.errors import InputError

# How its older files say which pooling, one key each, and how the newer ones do, in `pooling_mode`.
_POOLING_KEYS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_MODULES = "sentence_transformers.models."


def is_sentence_transformer(directory: storage.Path) -> bool:
    """Whether a model directory says how to make sentence embeddings of its token vectors."""
    return (directory / "modules.json").exists() or (directory / "1_Pooling").exists()


def transformer_directory(directory: storage.Path) -> storage.Path:
    """Where the BERT itself is: older folders keep it in `0_Transformer` or the like."""
    for module in _modules(directory):
        if module["type"].endswith("Transformer"):
            return directory / module["path"] if module["path"] else directory
    return directory


def pooling_settings(directory: storage.Path) -> dict[str, Any]:
    """Returns the `BertConfig` fields `pooling` and `normalize_embeddings` that a folder asks for.

    Raises:
        InputError: it asks for something that has no meaning here: another pooling, several at once, a further module.
    """
    pooling, normalize = directory / "1_Pooling", False
    for module in _modules(directory):
        kind = module["type"].rsplit(".", 1)[-1]
        if kind == "Pooling":
            pooling = directory / module["path"]
        elif kind == "Normalize":
            normalize = True
        elif kind != "Transformer":
            raise InputError(
                f"{directory / 'modules.json'}: expected Transformer, Pooling and Normalize, found {module['type']!r}"
            )
    where = pooling / "config.json"
    found = storage.read_json(where)
    mode = found.get("pooling_mode") or [ours for key, ours in _POOLING_KEYS.items() if found.get(key)] or "mean"
    modes = [mode] if isinstance(mode, str) else list(mode)
    if len(modes) != 1 or modes[0] not in ("mean", "cls", "max"):
        raise InputError(f"{where}: expected one pooling of mean, cls and max, found {', '.join(map(str, modes))}")
    return {"pooling": modes[0], "normalize_embeddings": normalize}


def max_seq_length(directory: storage.Path) -> int | None:
    """The longest input in tokens that a folder's embeddings are meant for, or None when it does not say."""
    path = directory / "sentence_bert_config.json"
    value = storage.read_json(path).get("max_seq_length") if path.exists() else None
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise InputError(f"{path}: max_seq_length must be a positive integer, found {value!r}")
    return value


def write_layout(directory: storage.Path, config: BertConfig, max_length: int | None) -> None:
    """Writes what makes a folder with a BERT in it a sentence-transformers model."""
    modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
    if config.normalize_embeddings:
        modules.append(("2_Normalize", "Normalize"))
    listed = [
        {"idx": i, "name": str(i), "path": path, "type": _MODULES + kind} for i, (path, kind) in enumerate(modules)
    ]
    modes = {key: mode == config.pooling for key, mode in _POOLING_KEYS.items()}
    pooling = {"word_embedding_dimension": config.hidden_size, **modes}
    length = max_length or config.max_position_embeddings
    _write_json(directory / "modules.json", listed)
    (directory / "1_Pooling").mkdir(exist_ok=True)
    _write_json(directory / "1_Pooling" / "config.json", pooling)
    _write_json(directory / "sentence_bert_config.json", {"max_seq_length": length, "do_lower_case": False})


def _write_json(path: storage.Path, value: Any) -> None:
    storage.write_atomically(path, json.dumps(value, indent=2) + "\n")


def _modules(directory: storage.Path) -> list[dict[str, str]]:
    path = directory / "modules.json"
    if not path.exists():
        return []
    try:
        modules = json.loads(storage.read_text(path))
    except json.JSONDecodeError as error:
        raise InputError(f"{path}: expected JSON, found {error.msg} at line {error.lineno}") from None
    try:
        listed = [{"type": str(module["type"]), "path": str(module["path"])} for module in modules]
    except (TypeError, KeyError):
        raise InputError(f"{path}: expected a list of modules with a type and a path") from None
    for module in listed:
        if ".." in module["path"].split("/") or module["path"].startswith("/"):
            raise InputError(f"{path}: module path {module['path']!r} leads out of the folder")
    return listed
