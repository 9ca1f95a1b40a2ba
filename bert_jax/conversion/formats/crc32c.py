"""Masked CRC-32C (Castagnoli) checksums, as TensorFlow's files hold them."""

import google_crc32c
import numpy as np

_STEP = 2**20  # bytes that are copied at a time
_MASK_DELTA = 0xA282EAD8


def masked_crc32c(data: np.ndarray | bytes | memoryview) -> int:
    """Return the masked CRC-32C of bytes; the mask keeps it strong for data that itself contains checksums."""
    view, crc = memoryview(data).cast("B"), 0
    for start in range(0, len(view), _STEP):
        crc = google_crc32c.extend(crc, bytes(view[start : start + _STEP]))
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF
