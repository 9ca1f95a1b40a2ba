"""Validate the compiled normalisation rules of a SentencePiece model."""

import struct

import numpy as np

from bert_jax.errors import InputError

_MAX_REPLACEMENT = 256  # bytes; the longest replacement of NFKC has 33


def check_charsmap(charsmap: bytes, where: str = "precompiled_charsmap") -> None:
    """Check the compiled normalisation rules of a SentencePiece model by walking their trie.

    A charsmap consists of the size of a double-array trie in bytes, the trie (Darts-clone, 32-bit units), and the
    replacements, each terminated by NUL. A damaged charsmap makes the libraries read outside of it and crash.

    Args:
        charsmap: the bytes of the charsmap.
        where: its name in messages.

    Raises:
        InputError: the charsmap is damaged, or has a replacement of more than 256 bytes.
    """
    size = struct.unpack("<I", charsmap[:4])[0] if len(charsmap) >= 4 else -1
    if size < 1024 or size % 4 or size + 4 > len(charsmap):
        raise InputError(f"{where}: expected a trie and its replacements, found {len(charsmap)} bytes with a trie of "
                         f"{size} bytes")  # fmt: skip
    texts = charsmap[4 + size :]
    starts = _leaves(np.frombuffer(charsmap, "<u4", size // 4, offset=4), where)
    ends = np.flatnonzero(np.frombuffer(texts, np.uint8) == 0)
    after = np.searchsorted(ends, starts)
    if len(starts) and (starts.max() >= len(texts) or after.max() >= len(ends)):
        raise InputError(
            f"{where}: expected replacements that begin and end within their {len(texts)} bytes, found a "
            "replacement that does not"
        )
    longest = int((ends[after] - starts).max()) if len(starts) else 0
    if longest > _MAX_REPLACEMENT:
        raise InputError(f"{where}: expected replacements of at most {_MAX_REPLACEMENT} bytes, found {longest}")
    try:
        texts.decode("utf-8")
        for start in np.unique(starts):
            if texts[start] & 0xC0 == 0x80:
                raise InputError(
                    f"{where}: expected replacements of whole characters, found a replacement that begins inside a "
                    "character"
                )
    except UnicodeDecodeError:
        raise InputError(f"{where}: expected replacements in UTF-8, found other bytes") from None


def _leaves(units: np.ndarray, where: str) -> np.ndarray:
    """Return the values of all reachable leaves. Raises InputError for a step outside the trie."""
    last = len(units)
    offsets = (units >> 10) << ((units & 512) >> 6)
    seen = np.zeros(last, np.bool_)
    nodes, leaves = np.zeros(1, np.int64), []
    labels = np.arange(1, 256, dtype=np.int64)
    while len(nodes):
        seen[nodes] = True
        bases = nodes ^ offsets[nodes].astype(np.int64)
        with_leaf = (units[nodes] >> 8 & 1).astype(np.bool_)
        if (bases >= last).any():
            raise InputError(f"{where}: expected a trie of {last} units, found a step outside it")
        leaves.append(units[bases[with_leaf]] & 0x7FFFFFFF)
        children = []
        for start in range(0, len(bases), 4096):
            places = bases[start : start + 4096, None] ^ labels
            if (places >= last).any():
                raise InputError(f"{where}: expected a trie of {last} units, found a step outside it")
            is_child = (units[places] & 0x800000FF) == labels
            children.append(places[is_child])
        nodes = np.unique(np.concatenate(children))
        nodes = nodes[~seen[nodes]]  # the trie's compiler shares equal suffixes
    return np.concatenate(leaves).astype(np.int64)
