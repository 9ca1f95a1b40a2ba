"""The positions of special tokens in a row, by family or by `tokenizer.json`."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from bert_jax.errors import InputError


@dataclasses.dataclass(frozen=True)
class RowLayout:
    """The layout of rows: `start A end` for texts, `start A between B end` for pairs.

    Attributes:
        start, between, end: ids of special tokens.
        second_type: token type of B and of the end after it; all other tokens have type 0.
    """

    start: tuple[int, ...]
    between: tuple[int, ...]
    end: tuple[int, ...]
    second_type: int = 1

    @classmethod
    def bert(cls, first: int, sep: int) -> "RowLayout":
        """Return BERT's layout: `[CLS] A [SEP]` and `[CLS] A [SEP] B [SEP]`."""
        return cls((first,), (sep,), (sep,))

    @classmethod
    def roberta(cls, first: int, sep: int) -> "RowLayout":
        """Return RoBERTa's layout: `<s> A </s>` and `<s> A </s></s> B </s>`, with one token type."""
        return cls((first,), (sep, sep), (sep,), 0)

    def num_special(self, pair: bool) -> int:
        """Return the number of special tokens in a row of one text, or of a pair."""
        return len(self.start) + len(self.between) * pair + len(self.end)


def layout_of(post_processor: Mapping[str, Any] | None, ids: Mapping[str, int], typed: bool = True) -> RowLayout | None:
    """Return the layout that a `post_processor` of `tokenizer.json` describes; None if it adds no tokens.

    Args:
        post_processor: the JSON of the post_processor.
        ids: ids of all tokens, including added tokens.
        typed: whether the tokenizer distinguishes token types; if not, all are 0.

    Raises:
        InputError: a special token is not in the vocabulary, or RowLayout cannot describe the layout.
    """
    if post_processor is None:
        return None
    kind = post_processor["type"]
    if kind == "Sequence":
        layouts_of_parts = [layout_of(part, ids, typed) for part in post_processor["processors"]]
        layouts = [layout for layout in layouts_of_parts if layout is not None]
        if len(layouts) > 1:
            raise InputError(f"post_processor: expected one row layout, found {len(layouts)}")
        return layouts[0] if layouts else None
    if kind in ("BertProcessing", "RobertaProcessing"):
        first, sep = (_known(post_processor[role][0], [post_processor[role][1]], ids)[0] for role in ("cls", "sep"))
        layout = RowLayout.bert(first, sep) if kind == "BertProcessing" else RowLayout.roberta(first, sep)
        return layout if typed else dataclasses.replace(layout, second_type=0)
    return _of_template(post_processor, ids, typed) if kind == "TemplateProcessing" else None


def _of_template(template: Mapping[str, Any], ids: Mapping[str, int], typed: bool) -> RowLayout:
    special = {name: tuple(_known(name, token["ids"], ids)) for name, token in template["special_tokens"].items()}
    single, pair = template["single"], template["pair"]
    if _segments(single) == ["A"] and _segments(pair) == ["A", "B"]:
        types = [_content(item)["type_id"] if typed else 0 for item in pair]
        second = next(i for i, item in enumerate(pair) if item.get("Sequence", {}).get("id") == "B")
        plain = not any(types[:second]) and not (typed and any(_content(item)["type_id"] for item in single))
        start, between, end = _around(pair, special)
        if plain and len(set(types[second:])) == 1 and _around(single, special) == [start, end]:
            return RowLayout(start, between, end, types[second])
    raise InputError(
        "post_processor: expected special tokens of type 0 around a single text, and in a pair the same ones "
        f"before the first text and after the second, found {_written(single)!r} for one text and "
        f"{_written(pair)!r} for a pair"
    )


def _segments(template: list[dict[str, Any]]) -> list[str]:
    return [item["Sequence"]["id"] for item in template if "Sequence" in item]


def _around(template: list[dict[str, Any]], special: Mapping[str, tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return the ids of special tokens before the first segment, between segments, and after the last."""
    parts: list[tuple[int, ...]] = [()]
    for item in template:
        if "Sequence" in item:
            parts.append(())
        elif (name := item["SpecialToken"]["id"]) in special:
            parts[-1] += special[name]
        else:
            raise InputError(f"post_processor: expected a special token among {', '.join(special)}, found {name!r}")
    return parts


def _content(item: dict[str, Any]) -> dict[str, Any]:
    return next(iter(item.values()))


def _written(template: list[dict[str, Any]]) -> str:
    named = (("$" if "Sequence" in item else "", _content(item)) for item in template)
    return " ".join(f"{mark}{content['id']}:{content['type_id']}" for mark, content in named)


def _known(name: str, token_ids: list[int], ids: Mapping[str, int]) -> list[int]:
    """Return the ids of a special token. Raises InputError when the vocabulary has other ids for it."""
    last = max(ids.values(), default=-1)
    if not all(0 <= i <= last for i in token_ids) or (len(token_ids) == 1 and ids.get(name) != token_ids[0]):
        there = f"id {ids[name]}" if name in ids else "none"
        raise InputError(f"post_processor: expected tokens of the vocabulary, found {name!r} with ids {token_ids}, "
                         f"which has {there} in the vocabulary")  # fmt: skip
    return token_ids
