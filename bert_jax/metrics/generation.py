"""Scores of generated texts: exact matches, distinct n-grams, and BLEU, chrF and ROUGE by their libraries."""

import importlib
import importlib.util
from collections.abc import Sequence
from typing import Any

from bert_jax.errors import InputError, did_you_mean
from bert_jax.extras import how_to_install
from bert_jax.metrics import measure, metrics_of
from bert_jax.tokenization import Tokenizer

_ROUGE = ("rouge1", "rouge2", "rougeL")
_DISTINCT = {"distinct1": 1, "distinct2": 2}
# Metric -> the package that computes it; "" = none.
_PACKAGES = {"exact_match": "", **dict.fromkeys(_DISTINCT, ""), "bleu": "sacrebleu", "chrf": "sacrebleu",
             **dict.fromkeys(_ROUGE, "rouge_score")}  # fmt: skip
TEXT_METRICS = tuple(_PACKAGES)


def choose_text_metrics(names: Sequence[str]) -> tuple[str, ...]:
    """Return the metrics `names`, or by default all of `TEXT_METRICS` whose packages are installed.

    Raises:
        InputError: a name is not known, or its package is not installed.
    """
    registered = metrics_of("texts")
    for name in names:
        if name in registered:
            continue
        if name not in _PACKAGES:
            fitting = (*TEXT_METRICS, *registered)
            raise InputError(f"metrics: {name!r} is not a metric of texts{did_you_mean(name, fitting)}")
        if not _is_installed(_PACKAGES[name]):
            distribution = _PACKAGES[name].replace("_", "-")
            message = f"metrics: {name}: expected the package {distribution}, found none"
            raise InputError(f"{message}: {how_to_install('generation')}")
    return tuple(names) or tuple(name for name in TEXT_METRICS if _is_installed(_PACKAGES[name]))


def _is_installed(package: str) -> bool:
    return not package or importlib.util.find_spec(package) is not None


def text_scores(
    names: Sequence[str], written: Sequence[str], references: Sequence[str], tokenizer: Tokenizer | None = None
) -> dict[str, float]:
    """Return metrics of `TEXT_METRICS`, or registered ones, of texts against one reference each.

    `exact_match` is the share, 0 to 1, of texts that equal their reference except for spaces at the ends. `distinct1`
    and `distinct2` are `distinct_ngrams` of the texts' words, split at spaces. BLEU and chrF are sacrebleu's corpus
    scores from 0 to 100. ROUGE is the mean F1 from 0 to 1 by rouge-score, with stems (Lin 2004).

    Args:
        names: the metrics.
        written: the generated texts.
        references: the reference of each.
        tokenizer: encodes and decodes all texts first, so that what it drops, such as capitals, is not compared.
    """
    if tokenizer is not None:
        written, references = (
            [tokenizer.decode(ids) for ids in tokenizer.encode_batch(list(texts))] for texts in (written, references)
        )
    scores = measure("texts", names, list(references), list(written))
    if "exact_match" in names:
        pairs = zip(written, references, strict=True)
        scores["exact_match"] = sum(text.strip() == other.strip() for text, other in pairs) / len(references)
    words = [text.split() for text in written]
    scores |= {name: distinct_ngrams(words, size) for name, size in _DISTINCT.items() if name in names}
    for name, function in (("bleu", "corpus_bleu"), ("chrf", "corpus_chrf")):
        if name in names:
            corpus = getattr(importlib.import_module("sacrebleu"), function)
            scores[name] = float(corpus(list(written), [list(references)]).score)
    if rouge := [name for name in _ROUGE if name in names]:
        scorer: Any = importlib.import_module("rouge_score.rouge_scorer").RougeScorer(rouge, use_stemmer=True)
        rouge_scores = [scorer.score(other, text) for text, other in zip(written, references, strict=True)]
        scores |= {name: sum(each[name].fmeasure for each in rouge_scores) / len(rouge_scores) for name in rouge}
    return {name: scores[name] for name in names}


def distinct_ngrams(texts: Sequence[Sequence[Any]], size: int) -> float:
    """Return the ratio, 0 to 1, of distinct n-grams of `size` words or tokens to all n-grams; 0 if there are none.

    Li et al. 2016 (arXiv:1510.03055), section 5: a measure of the diversity of texts.
    """
    grams = [tuple(text[i : i + size]) for text in texts for i in range(len(text) - size + 1)]
    return len(set(grams)) / max(len(grams), 1)
