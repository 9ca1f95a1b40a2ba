"""Read texts with two entities and the relation between them: TACRED's JSON, DocRED's JSON, and JSON lines of texts.

Zhang et al. 2017 (ACL D17-1004) for TACRED; Yao et al. 2019 (arXiv:1906.06127) for DocRED.
"""

import itertools
from array import array
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from bert_jax.data.invalid_rows import InvalidRow, InvalidRows, check_utf8, place
from bert_jax.data.json_files import json_objects
from bert_jax.errors import InputError, did_you_mean
from bert_jax.tasks.relation_extraction.markers import EntityPair, EntitySpan, RelationSettings, encode_entity_pairs
from bert_jax.tokenization import Tokenizer

NULL_LABELS = ("no_relation", "NA")  # names of the class of pairs without a relation in data sets
_SPANS = ("start", "end")
# Brackets as the Penn Treebank writes them, in TACRED's tokens.
_BRACKETS = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"}
_ROWS = 1024  # rows that are tokenized together


class RelationRow(NamedTuple):
    """A pair of entities.

    Attributes:
        line: the line or row of the file; all pairs of a document have the same.
        pair: the text and its entities.
        labels: the relations; None if they are not read, () for a pair in a DocRED document that has none.
        kept: fields that are copied to the answer.
        ids: the token ids of the row, once it is encoded.
    """

    line: int
    pair: EntityPair
    labels: tuple[str, ...] | None
    kept: Mapping[str, Any] = MappingProxyType({})
    ids: Sequence[int] = ()


def iterate_relations(spec: str, labelled: bool, bad: InvalidRows) -> Iterator[RelationRow]:
    """Yield the pairs of entities of a file in order; the caller passes them through `bad.fitting`.

    Args:
        spec: a file of JSON lines, a JSON array or Parquet, maybe compressed. A row has one of three forms:

            `token`, `subj_start`, `subj_end`, `obj_start`, `obj_end` (numbers of tokens, the last included),
            `subj_type`, `obj_type` and `relation` (TACRED);
            `sents` (lists of tokens), `vertexSet` (for each entity a list of mentions with `sent_id`, `pos` and
            `type`) and `labels` (objects of `h`, `t` and `r`), which gives a pair for any two entities (DocRED). A pair
            has the two mentions that are nearest to each other;
            `text`, `head` and `tail` (objects of `start`, `end`, which are characters, and maybe `type`) and `label`,
            a text or a list of texts.
        labelled: whether relations are read; otherwise the file needs none.
        bad: collects the invalid rows.

    Raises:
        InputError: the file is missing or damaged.
    """

    def read(json_row: tuple[int, str, dict[str, Any]]) -> list[RelationRow]:
        number, where, row = json_row
        if "vertexSet" in row:
            return _read_docred(number, where, row, labelled)
        return [(_read_tacred if "subj_start" in row else _read_text)(number, where, row, labelled)]

    if not isinstance(spec, str):
        raise InputError(f"expected the name of a file of relations, found a {type(spec).__name__}")
    for rows in bad.each(json_objects(spec, bad), read):
        yield from [rows] if isinstance(rows, InvalidRow) else rows


def encode_relations(
    spec: str,
    tokenizer: Tokenizer,
    rows: Iterator[RelationRow],
    settings: RelationSettings,
    max_length: int,
    bad: InvalidRows,
) -> Iterator[RelationRow]:
    """Yield rows with their tokens; those whose entities do not fit into a row are invalid."""

    def encoded() -> Iterator[Any]:
        while chunk := list(itertools.islice(rows, _ROWS)):
            pairs = [row.pair for row in chunk if not isinstance(row, InvalidRow)]
            encoded_rows = encode_entity_pairs(tokenizer, pairs, settings.markers, max_length)
            yield from (row if isinstance(row, InvalidRow) else (row, next(encoded_rows)) for row in chunk)

    def with_ids(item: tuple[RelationRow, list[int] | InvalidRow]) -> RelationRow:
        row, ids = item
        if isinstance(ids, InvalidRow):
            error = InvalidRow(f"{place(spec, row.line)}: {ids}", ids.reason)
            error.kept = row.kept
            raise error
        return row._replace(ids=array("i", ids))  # arrays save memory: a document of DocRED has hundreds of rows

    return bad.each(encoded(), with_ids)


def relation_names(
    spec: str, rows: Sequence[RelationRow], null_label: str, several: bool
) -> tuple[tuple[str, ...], str]:
    """Return the classes of labelled rows, and the null label: the class of pairs without a relation ("" = none).

    Args:
        spec: the file.
        rows: its rows.
        null_label: the null label; "" = the first of NULL_LABELS that the data has, else NULL_LABELS[0] if a pair has
            no relation.
        several: whether a pair may have several relations; the null label is then not a class.

    Raises:
        InputError: the data lacks the null label, or there are fewer than two classes (with `several`, none).
    """
    labels = {label for row in rows for label in row.labels or ()}
    without_relation = any(not row.labels for row in rows)
    null = null_label or next(
        (name for name in NULL_LABELS if name in labels), NULL_LABELS[0] if without_relation else ""
    )
    if null_label and null_label not in labels and not without_relation:
        hint = did_you_mean(null_label, sorted(labels))
        raise InputError(f"config.data.null_label: expected a relation in {spec}, found {null_label!r}{hint}")
    names = (
        tuple(sorted(labels - {null})) if several else tuple(sorted(labels | ({null} if without_relation else set())))
    )
    if len(names) < 2 - several:
        raise InputError(f"{spec}: expected at least {2 - several} relations, found {', '.join(names) or 'none'}")
    return names, null


def check_labels(
    spec: str, rows: Iterator[RelationRow], names: Sequence[str] | None, null: str, several: bool, bad: InvalidRows
) -> Iterator[RelationRow]:
    """Yield labelled rows; a row is invalid if its relations are not among `names` (if given), or are too many."""
    known = None if names is None else {*names, *filter(None, [null])}

    def checked(row: RelationRow) -> RelationRow:
        labels = row.labels or ()
        where = place(spec, row.line)
        if len(labels) > 1 and not several:
            message = f"{where}: expected one relation of a pair, found {', '.join(labels)}"
            raise InvalidRow(f"{message} (config.data.multi_label=true trains on several)", "several relations")
        for label in labels:
            if known is not None and label not in known:
                shown = ", ".join(map(repr, sorted(known)[:8])) + (", ..." if len(known) > 8 else "")
                raise InvalidRow(f"{where}: expected one of {shown}, found {label!r}", "an unknown relation")
        if known is not None and not labels and not several and null not in known:
            raise InvalidRow(f"{where}: expected a relation, found a pair without one", "no relation")
        return row

    return bad.each(rows, checked)


def relation_labels(rows: Sequence[RelationRow], names: Sequence[str], null: str, several: bool) -> np.ndarray:
    """Return the classes of rows, int32 `[n]`, or with `several` float32 `[n, C]`, 1 for each relation of a pair."""
    number = {name: i for i, name in enumerate(names)}
    if not several:
        return np.array([number[(row.labels or (null,))[0]] for row in rows], np.int32)
    labels = np.zeros((len(rows), len(names)), np.float32)
    for i, row in enumerate(rows):
        labels[i, [number[label] for label in row.labels or () if label != null]] = 1
    return labels


def limit_null_pairs(rows: Sequence[RelationRow], null: str, ratio: float, seed: int) -> list[RelationRow]:
    """Return rows with at most `ratio` pairs without a relation per pair with one, chosen at random with `seed`."""
    without_relation = np.array([not row.labels or row.labels == (null,) for row in rows])
    most = int(ratio * int((~without_relation).sum()))
    dropped = np.random.default_rng(seed).permutation(np.flatnonzero(without_relation))[most:]
    kept = np.ones(len(rows), bool)
    kept[dropped] = False
    return [row for row, is_kept in zip(rows, kept, strict=True) if is_kept]


def _read_text(number: int, where: str, row: Mapping[str, Any], labelled: bool) -> RelationRow:
    text = row.get("text")
    if not isinstance(text, str) or not text.strip():
        forms = "a text in 'text', or a row of TACRED or DocRED"
        raise InvalidRow(f"{where}: expected {forms}, found {_shown(text)}", "no text")
    check_utf8(where, text)
    head, tail = (entity_of(where, name, row.get(name), text) for name in ("head", "tail"))
    labels = _labels(where, "label", row.get("label")) if labelled else None
    return RelationRow(number, EntityPair(text, head, tail), labels, _kept(row, "id"))


def entity_of(where: str, name: str, value: Any, text: str) -> EntitySpan:
    """Return the entity that `value` describes: an object of `start`, `end` and maybe `type`, or a list of these.

    Raises:
        InvalidRow: `value` has another form, or its characters are not inside the text.
    """
    if isinstance(value, Mapping):
        fields: list[Any] = [value.get(key) for key in _SPANS] + [value.get("type") or ""]
    else:
        fields = [*value, ""][:3] if isinstance(value, (list, tuple)) and len(value) in (2, 3) else [None] * 3
    start, end, kind = fields
    if not _are_numbers(start, end) or not isinstance(kind, str):
        message = f"{where}: expected start and end (characters) and maybe a type in {name!r}, found {_shown(value)}"
        raise InvalidRow(message, "no span of an entity")
    if not 0 <= start < end <= len(text):
        message = f"{where}: expected a span within the {len(text):,} characters of the text in {name!r}"
        raise InvalidRow(f"{message}, found {start} to {end}", "a span outside the text")
    check_utf8(where, kind)
    return EntitySpan(start, end, kind)


def _read_tacred(number: int, where: str, row: Mapping[str, Any], labelled: bool) -> RelationRow:
    tokens = [_BRACKETS.get(token.upper(), token) for token in _tokens(where, "token", row.get("token"))]
    ends = np.cumsum([len(token) + 1 for token in tokens]) - 1
    spans = []
    for name in ("subj", "obj"):
        fields: list[Any] = [row.get(f"{name}_{part}") for part in ("start", "end", "type")]
        first, last, kind = fields
        if not _are_numbers(first, last) or not 0 <= first <= last < len(tokens):
            message = f"{where}: expected {name}_start and {name}_end among the tokens 0 to {len(tokens) - 1}"
            raise InvalidRow(f"{message}, found {_shown(first)} and {_shown(last)}", "a span outside the text")
        if kind is not None and not isinstance(kind, str):
            raise InvalidRow(f"{where}: expected a text in {name}_type, found {_shown(kind)}", "no type of an entity")
        check_utf8(where, kind or "")
        spans.append(EntitySpan(int(ends[first]) - len(tokens[first]), int(ends[last]), kind or ""))
    labels = _labels(where, "relation", row.get("relation")) if labelled else None
    return RelationRow(number, EntityPair(" ".join(tokens), *spans), labels, _kept(row, "id"))


def _read_docred(number: int, where: str, row: Mapping[str, Any], labelled: bool) -> list[RelationRow]:
    """Return a row for each ordered pair of different entities of a document of DocRED."""
    sentences = row.get("sents")
    if not isinstance(sentences, list) or not sentences:
        raise InvalidRow(f"{where}: expected lists of tokens in 'sents', found {_shown(sentences)}", "no text")
    tokens: list[str] = []
    firsts: list[int] = []  # the number of the first token of each sentence
    for sentence in sentences:
        firsts.append(len(tokens))
        tokens += _tokens(where, "sents", sentence)
    ends = np.cumsum([len(token) + 1 for token in tokens]) - 1
    lasts = [*firsts[1:], len(tokens)]
    text = " ".join(tokens)
    entities: list[list[tuple[int, int, str]]] = []  # for each entity its mentions: first token, end, type
    for entity in row["vertexSet"] if isinstance(row["vertexSet"], list) else [None]:
        mentions = entity if isinstance(entity, list) and entity else [None]
        entities.append([_mention(where, mention, firsts, lasts) for mention in mentions])
    relations = _pair_labels(where, row, len(entities)) if labelled else {}
    rows = []
    for h, t in itertools.permutations(range(len(entities)), 2):
        mentions = min(itertools.product(entities[h], entities[t]), key=_distance)
        spans = [
            EntitySpan(int(ends[first]) - len(tokens[first]), int(ends[end - 1]), kind) for first, end, kind in mentions
        ]
        kept = _kept(row, "title") | {"h_idx": h, "t_idx": t}
        labels = tuple(relations.get((h, t), ())) if labelled else None
        rows.append(RelationRow(number, EntityPair(text, *spans), labels, kept))
    return rows


def _mention(where: str, value: Any, firsts: Sequence[int], lasts: Sequence[int]) -> tuple[int, int, str]:
    fields: dict[str, Any] = value if isinstance(value, dict) else {}
    sentence: Any = fields.get("sent_id")
    position, kind = fields.get("pos"), fields.get("type") or ""
    pair: list[Any] = position if isinstance(position, list) and len(position) == 2 else [None, None]
    if _are_numbers(sentence, *pair) and isinstance(kind, str) and 0 <= sentence < len(firsts):
        first, end = (firsts[sentence] + at for at in pair)
        if firsts[sentence] <= first < end <= lasts[sentence]:
            check_utf8(where, kind)
            return first, end, kind
    message = f"{where}: expected mentions with sent_id, pos within its sentence and type in 'vertexSet'"
    raise InvalidRow(f"{message}, found {_shown(value)}", "no span of an entity")


def _distance(mentions: tuple[tuple[int, int, str], tuple[int, int, str]]) -> int:
    (first, end, _), (other_first, other_end, _) = mentions
    return max(first - other_end, other_first - end)


def _pair_labels(where: str, row: Mapping[str, Any], entities: int) -> dict[tuple[int, int], list[str]]:
    """Return (head, tail) -> distinct relations, for the pairs of a document that have any."""
    relations: dict[tuple[int, int], list[str]] = {}
    labels = row.get("labels")
    for label in labels if isinstance(labels, list) else [labels]:
        fields: list[Any] = [label.get(name) if isinstance(label, dict) else None for name in ("h", "t", "r")]
        h, t, r = fields
        if not _are_numbers(h, t) or not (0 <= h < entities and 0 <= t < entities) or not isinstance(r, str) or not r:
            message = f"{where}: expected objects of h and t (entities 0 to {entities - 1}) and r in 'labels'"
            raise InvalidRow(f"{message}, found {_shown(label)}", "no relation")
        check_utf8(where, r)
        if r not in relations.setdefault((h, t), []):
            relations[h, t].append(r)
    return relations


def _labels(where: str, name: str, value: Any) -> tuple[str, ...]:
    labels = value if isinstance(value, list) else [value]
    for label in labels:
        if not isinstance(label, str) or not label.strip():
            raise InvalidRow(f"{where}: expected a relation in {name!r}, found {_shown(label)}", "no relation")
        check_utf8(where, label)
    return tuple(dict.fromkeys(labels))


def _tokens(where: str, name: str, value: Any) -> list[str]:
    if not isinstance(value, list) or not value or not all(isinstance(token, str) and token for token in value):
        raise InvalidRow(f"{where}: expected a list of tokens in {name!r}, found {_shown(value)}", "no text")
    check_utf8(where, *value)
    return value


def _kept(row: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {name: row[name]} if name in row else {}


def _are_numbers(*values: Any) -> bool:
    return all(isinstance(value, int) and not isinstance(value, bool) for value in values)


def _shown(value: Any) -> str:
    return "nothing" if value is None else repr(value)[:80]
