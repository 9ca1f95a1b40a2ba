"""Metrics of tagged words: by word, and by entity as the tag scheme marks them.

An entity is right when its words and its type are (Tjong Kim Sang and De Meulder 2003, cs/0306050, section 4).
"""

from collections.abc import Sequence

import numpy as np

from bert_jax.data.finetuning.tags import BEGIN, END, INSIDE, OUTSIDE, SINGLE, TagScheme, read_scheme
from bert_jax.errors import InputError, did_you_mean

ENTITY_METRICS = ("f1", "precision", "recall")
TAGGING_METRICS = (*ENTITY_METRICS, "accuracy", "types")  # types: the first three for each type of entity


def choose_tagging_metrics(names: Sequence[str], tags: Sequence[str]) -> tuple[str, ...]:
    """The metrics to report for words with `tags`: `names` after a check, or when empty all that fit but `types`.

    Raises:
        InputError: a name is unknown, or is of entities where the tags are none of `tags.TAG_SCHEMES`.
    """
    fitting = ("accuracy",) if read_scheme(tags) is None else TAGGING_METRICS
    for name in names:
        if name not in fitting:
            what = "these tags, which are not of entities" if name in TAGGING_METRICS else "tagging"
            raise InputError(f"data.metrics: {name!r} is not a metric of {what}{did_you_mean(name, fitting)}")
    return tuple(names) or tuple(name for name in fitting if name != "types")


def entities(scheme: TagScheme, tags: np.ndarray, strict: bool = False) -> np.ndarray:
    """The entities that a sequence of tags marks.

    Args:
        scheme: what each class says.
        tags: int `[n]` classes; -1 (between sentences) is outside.
        strict: whether only those count whose tags are all as the scheme has them: IOB as IOB2. Otherwise tags are
            read as conlleval reads them: an entity also begins where one goes on that never began, or with another
            type (so IOB1 is read too), and ends where the next begins.

    Returns:
        int32 `[m, 3]`: the first word, the one behind the last, and the type.
    """
    kinds = np.where(tags < 0, OUTSIDE, scheme.kinds[tags])
    types = np.where(tags < 0, -1, scheme.types[tags])
    inside = kinds != OUTSIDE
    goes_on = np.zeros(len(tags), np.bool_)
    goes_on[1:] = np.isin(kinds[:-1], (BEGIN, INSIDE)) & np.isin(kinds[1:], (INSIDE, END)) & (types[:-1] == types[1:])
    starts = np.flatnonzero(inside & ~goes_on)
    last = np.flatnonzero(inside & ~np.append(goes_on[1:], False))
    if strict:
        if scheme.name == "IOB":
            whole = kinds[starts] == BEGIN
        else:
            whole = (kinds[starts] == SINGLE) | (kinds[starts] == BEGIN) & (kinds[last] == END)
        starts, last = starts[whole], last[whole]
    return np.stack([starts, last + 1, types[starts]], axis=1).astype(np.int32)


def both(
    scheme: TagScheme, tags: np.ndarray, predicted: np.ndarray, strict: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """The true entities and the predicted, as `entities` has them; where `tags` are -1, neither is."""
    true, found = (entities(scheme, np.where(tags >= 0, side, -1), strict) for side in (tags, predicted))
    return true, found


def tagging_scores(
    metrics: Sequence[str], names: Sequence[str], tags: np.ndarray, predicted: np.ndarray, strict: bool = False
) -> dict[str, float]:
    """Metrics of predicted tags; of nothing over nothing 0 is made.

    Args:
        metrics: of `METRICS`; for `types` there are `f1_TYPE`, `precision_TYPE` and `recall_TYPE`.
        names: of the classes.
        tags: int `[n]` true classes, sentence after sentence, with a -1 between two.
        predicted: int `[n]`, the same of the predicted.
        strict: as of `entities`.
    """
    words = tags >= 0
    accuracy = float(np.mean(tags[words] == predicted[words])) if words.any() else 0.0
    scheme = read_scheme(names)
    if scheme is None:
        return {name: accuracy for name in metrics if name == "accuracy"}
    true, found = both(scheme, tags, predicted, strict)
    of_type = len(scheme.type_names)
    right = found[np.isin(_keys(found, len(tags), of_type), _keys(true, len(tags), of_type))]
    counts = [np.bincount(part[:, 2], minlength=of_type) for part in (right, found, true)]
    overall = _ratios(*(int(count.sum()) for count in counts)) | {"accuracy": accuracy}
    result = {name: overall[name] for name in metrics if name != "types"}
    if "types" in metrics:
        for kind, *numbers in zip(scheme.type_names, *counts, strict=True):
            result |= {f"{name}_{kind}": value for name, value in _ratios(*map(int, numbers)).items()}
    return result


def _keys(found: np.ndarray, length: int, num_types: int) -> np.ndarray:
    """One number for each entity [m, 3], the same for the same."""
    start, stop, kind = found.astype(np.int64).T
    return (start * (length + 1) + stop) * num_types + kind


def _ratios(right: int, found: int, true: int) -> dict[str, float]:
    precision, recall = right / max(found, 1), right / max(true, 1)
    return {"f1": 2 * right / max(found + true, 1), "precision": precision, "recall": recall}
