"""Storage: local disks and object stores (gs://, s3://, az://) behind one interface.

Writes are atomic: readers never find a partial file. Unreadable files raise InputError.
"""

from typing import TYPE_CHECKING

from bert_jax.lazy import lazy_attributes
from bert_jax.storage.json_text import parse_json, read_json
from bert_jax.storage.offsets import OpenFile, open_offsets
from bert_jax.storage.paths import Path, PathLike, is_remote
from bert_jax.storage.reading import decode_text, existing, read_text

if TYPE_CHECKING:
    from bert_jax.storage.appending import GrowingFile
    from bert_jax.storage.claims import Claim, claimed
    from bert_jax.storage.decompression import (
        COMPRESSED,
        MAX_COMPRESSION,
        DamagedError,
        open_decompressed,
        without_compression,
    )
    from bert_jax.storage.local_files import local_copy, run_python
    from bert_jax.storage.memory_files import MemoryFile
    from bert_jax.storage.patterns import find_files, is_pattern, matching_files
    from bert_jax.storage.requests import Counts, request_counts
    from bert_jax.storage.writing import (
        check_output,
        check_writable,
        directory_atomically,
        directory_resumably,
        free_name,
        is_incomplete,
        is_leftover,
        local_directory,
        naming,
        new_directory,
        open_atomically,
        open_binary_atomically,
        remove_incomplete,
        remove_leftovers,
        replace_directory,
        write_atomically,
    )

__all__ = [
    "COMPRESSED", "MAX_COMPRESSION", "Claim", "Counts", "DamagedError", "GrowingFile", "MemoryFile", "OpenFile", "Path",
    "PathLike", "check_output", "check_writable", "claimed", "decode_text", "directory_atomically",
    "directory_resumably", "existing", "find_files", "free_name", "is_incomplete", "is_leftover", "is_pattern",
    "is_remote", "local_copy", "local_directory", "matching_files", "naming", "new_directory", "open_atomically",
    "open_binary_atomically", "open_decompressed", "open_offsets", "parse_json", "read_json", "read_text",
    "remove_incomplete", "remove_leftovers", "replace_directory", "request_counts", "run_python", "without_compression",
    "write_atomically",
]  # fmt: skip

# Imported on first use; reading a plain local file needs none of these.
__getattr__, __dir__ = lazy_attributes(
    __name__,
    {
        "bert_jax.storage.appending": ("GrowingFile",),
        "bert_jax.storage.claims": ("Claim", "claimed"),
        "bert_jax.storage.decompression": (
            "COMPRESSED", "MAX_COMPRESSION", "DamagedError", "open_decompressed", "without_compression",
        ),
        "bert_jax.storage.requests": ("Counts", "request_counts"),
        "bert_jax.storage.local_files": ("local_copy", "run_python"),
        "bert_jax.storage.memory_files": ("MemoryFile",),
        "bert_jax.storage.patterns": ("find_files", "is_pattern", "matching_files"),
        "bert_jax.storage.writing": (
            "check_output", "check_writable", "directory_atomically", "directory_resumably", "free_name",
            "is_incomplete", "is_leftover", "local_directory", "naming", "new_directory", "open_atomically",
            "open_binary_atomically", "remove_incomplete", "remove_leftovers", "replace_directory", "write_atomically",
        ),
    },
)  # fmt: skip
