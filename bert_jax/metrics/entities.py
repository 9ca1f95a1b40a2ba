"""Metrics of tagged words, by word and by entity, and of relations between entities.

An entity is right if its words and its type are right (Tjong Kim Sang and De Meulder 2003, cs/0306050, section 4).
"""

from collections.abc import Sequence

import numpy as np

from bert_jax.data.finetuning.tags import BEGIN, END, INSIDE, OUTSIDE, SINGLE, TagScheme, read_scheme
from bert_jax.errors import InputError, did_you_mean, logger
from bert_jax.metrics import measure, metrics_of

_log = logger(__name__)
ENTITY_METRICS = ("f1", "precision", "recall")
TAGGING_METRICS = (*ENTITY_METRICS, "accuracy", "types")  # types: the first three for each type of entity, or each tag


def choose_tagging_metrics(names: Sequence[str], tags: Sequence[str]) -> tuple[str, ...]:
    """Return the metrics to report for words with `tags`: `names`, or all that apply except `types`.

    Raises:
        InputError: a name is unknown, or is a metric of entities although the tags follow none of `tags.TAG_SCHEMES`.
    """
    default_metrics = ("accuracy", "types") if read_scheme(tags) is None else TAGGING_METRICS
    fitting = (*default_metrics, *metrics_of("tags"))
    if read_scheme(tags) is None and "O" in tags:
        others = sorted((tag for tag in tags if tag != "O"), key=lambda tag: tag.partition("-")[0] in "BIESUL")
        _log.warning("no F1 of entities: expected tags B-TYPE, I-TYPE and O, found %s", ", ".join(others[:3]))
    for name in names:
        if name not in fitting:
            what = "these tags, which mark no entities" if name in TAGGING_METRICS else "tagging"
            raise InputError(f"data.metrics: {name!r} is not a metric of {what}{did_you_mean(name, fitting)}")
    return tuple(names) or tuple(name for name in default_metrics if name != "types")


def entities(scheme: TagScheme, tags: np.ndarray, strict: bool = False) -> np.ndarray:
    """Return the entities that a sequence of tags marks.

    Args:
        scheme: the tag scheme.
        tags: int `[n]` classes; -1 (between sentences) is outside.
        strict: whether to count only entities with valid tags of the scheme (IOB means IOB2). Otherwise tags are read
            as by conlleval: an inside tag after no entity, or after another type, also begins an entity (as in IOB1),
            and an entity ends where the next begins.

    Returns:
        int32 `[m, 3]`: first word, word after the last, type.
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
            is_valid = kinds[starts] == BEGIN
        else:
            is_valid = (kinds[starts] == SINGLE) | (kinds[starts] == BEGIN) & (kinds[last] == END)
        starts, last = starts[is_valid], last[is_valid]
    return np.stack([starts, last + 1, types[starts]], axis=1).astype(np.int32)


def both(
    scheme: TagScheme, tags: np.ndarray, predicted: np.ndarray, strict: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return the gold and the predicted entities (see `entities`); words with a tag of -1 are outside in both."""
    gold, guessed = (entities(scheme, np.where(tags >= 0, side, -1), strict) for side in (tags, predicted))
    return gold, guessed


def tagging_scores(
    metrics: Sequence[str], names: Sequence[str], tags: np.ndarray, predicted: np.ndarray, strict: bool = False
) -> dict[str, float]:
    """Return metrics of predicted tags; a ratio of 0 / 0 is 0.

    Args:
        metrics: names of `TAGGING_METRICS`, or registered ones; `types` yields `f1_TYPE`, `precision_TYPE` and
            `recall_TYPE`, for each tag where tags mark no entities.
        names: names of the classes.
        tags: gold classes, int `[n]`, with a -1 between sentences.
        predicted: predicted classes, int `[n]`.
        strict: as for `entities`.
    """
    if others := [name for name in metrics if name in metrics_of("tags")]:
        ours = tagging_scores([name for name in metrics if name not in others], names, tags, predicted, strict)
        return ours | measure("tags", others, *(_sentences(side, tags, names) for side in (tags, predicted)))
    words = tags >= 0
    accuracy = float(np.mean(tags[words] == predicted[words])) if words.any() else 0.0
    scheme = read_scheme(names)
    if scheme is None:
        result = {name: accuracy for name in metrics if name == "accuracy"}
        if "types" in metrics:
            sides = (tags[words & (tags == predicted)], predicted[words], tags[words])
            result |= _of_types(names, [np.bincount(side, minlength=len(names)) for side in sides])
        return result
    gold, guessed = both(scheme, tags, predicted, strict)
    of_type = len(scheme.type_names)
    right = guessed[np.isin(_keys(guessed, len(tags), of_type), _keys(gold, len(tags), of_type))]
    counts = [np.bincount(part[:, 2], minlength=of_type) for part in (right, guessed, gold)]
    return _of_counts(metrics, scheme.type_names, counts, accuracy)


def _sentences(side: np.ndarray, tags: np.ndarray, names: Sequence[str]) -> list[list[str]]:
    """Return the names of classes `[n]` as a list for each sentence; `tags` are -1 between sentences."""
    parts = np.split(side, np.flatnonzero(tags < 0))
    return [[names[i] for i in part.tolist() if i >= 0] for part in (parts[0], *(part[1:] for part in parts[1:]))]


def span_scores(
    metrics: Sequence[str], names: Sequence[str], gold: np.ndarray, predicted: np.ndarray
) -> dict[str, float]:
    """Return metrics of predicted spans; a ratio of 0 / 0 is 0.

    Args:
        metrics: names of `ENTITY_METRICS`, or `types`, as for `tagging_scores`.
        names: names of the types.
        gold, predicted: spans, int `[m, 4]`: text, first word, word after the last, type; each once.
    """
    gold_set = {tuple(span) for span in gold.tolist()}
    right = np.array([tuple(span) in gold_set for span in predicted.tolist()], np.bool_)
    return _of_counts(
        metrics, names, [np.bincount(part[:, 3], minlength=len(names)) for part in (predicted[right], predicted, gold)]
    )


def choose_relation_metrics(names: Sequence[str], best: str = "") -> tuple[str, ...]:
    """Return the metrics of relations to report: `names` (or all except `types`) and `best`.

    Raises:
        InputError: a name is unknown.
    """
    fitting = (*TAGGING_METRICS, *metrics_of("relations"))
    for name in names:
        if name not in fitting:
            raise InputError(f"data.metrics: {name!r} is not a metric of relations{did_you_mean(name, fitting)}")
    chosen = tuple(names) or tuple(name for name in TAGGING_METRICS if name != "types")
    if best and best not in fitting:
        raise InputError(f"config.best_metric: {best!r} is not measured{did_you_mean(best, fitting)}")
    return chosen if not best or best in chosen else (*chosen, best)


def relation_scores(
    metrics: Sequence[str], names: Sequence[str], null: str, labels: np.ndarray, predicted: np.ndarray
) -> dict[str, float]:
    """Return metrics of predicted relations, as TACRED's scorer computes them: over all relations except `null`.

    A ratio of 0 / 0 is 0.

    Args:
        metrics: names of `TAGGING_METRICS`, or registered ones; `types` yields the three ratios of each relation.
            `accuracy` and registered metrics count `null`.
        names: names of the classes.
        null: the class of pairs without a relation; "" or no class of `names` where there is none.
        labels: gold classes, int `[n]`, or 0 and 1 `[n, C]`.
        predicted: predicted classes, in the same form.
    """
    registered_scores = measure("relations", metrics, labels, predicted)
    metrics = [name for name in metrics if name not in registered_scores]
    if labels.ndim == 1:
        accuracy = float(np.mean(labels == predicted))
        sides = (predicted[labels == predicted], predicted, labels)
        counts = [np.bincount(side, minlength=len(names)) for side in sides]
    else:
        labels, predicted = labels > 0, predicted > 0
        accuracy = float(np.mean((labels == predicted).all(axis=1)))
        counts = [side.sum(axis=0) for side in (labels & predicted, predicted, labels)]
    relations = [i for i, name in enumerate(names) if name != null]
    counts = [count[relations] for count in counts]
    return _of_counts(metrics, [names[i] for i in relations], counts, accuracy) | registered_scores


def _of_counts(
    metrics: Sequence[str], names: Sequence[str], counts: Sequence[np.ndarray], accuracy: float = 0.0
) -> dict[str, float]:
    """Return metrics from the numbers `[types]` of right, predicted and gold items of each type."""
    overall = _ratios(*(int(count.sum()) for count in counts)) | {"accuracy": accuracy}
    result = {name: overall[name] for name in metrics if name != "types"}
    return result | (_of_types(names, counts) if "types" in metrics else {})


def _keys(entity_array: np.ndarray, length: int, num_types: int) -> np.ndarray:
    """Map each entity [m, 3] to a unique number."""
    start, stop, kind = entity_array.astype(np.int64).T
    return (start * (length + 1) + stop) * num_types + kind


def _of_types(names: Sequence[str], counts: Sequence[np.ndarray]) -> dict[str, float]:
    """Return the ratios of each type from its numbers `[types]` of right, predicted and gold entities or words."""
    result: dict[str, float] = {}
    for kind, *numbers in zip(names, *counts, strict=True):
        result |= {f"{name}_{kind}": value for name, value in _ratios(*map(int, numbers)).items()}
    return result


def _ratios(num_right: int, num_predicted: int, num_gold: int) -> dict[str, float]:
    precision, recall = num_right / max(num_predicted, 1), num_right / max(num_gold, 1)
    return {"f1": 2 * num_right / max(num_predicted + num_gold, 1), "precision": precision, "recall": recall}
