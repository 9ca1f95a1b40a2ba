"""List labels on one line; of many, only the first."""

from collections.abc import Mapping, Sequence

from bert_jax.errors import printable


def list_counts(counts: Mapping[str, int], limit: int = 20) -> str:
    """List the first few labels, each with the number of its rows."""
    more = f" and {len(counts) - limit} more" if len(counts) > limit else ""
    first_labels = ", ".join(f"{label!r} ({count:,})" for label, count in list(counts.items())[:limit])
    return printable(first_labels) + more


def list_names(names: Sequence[str], limit: int = 8) -> str:
    """List the first few labels, in quotes, and the number of other labels."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(map(repr, names[:limit])) + more
