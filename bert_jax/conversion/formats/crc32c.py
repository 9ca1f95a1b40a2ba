"""CRC-32C (Castagnoli) checksums for TensorFlow's files, in NumPy.

A CRC that starts from zero is linear in the data, and leading zeros do not change it. So a block is cut into lanes that
advance together, two bytes per step, and then joined: the CRC of A followed by B is the CRC of A, advanced by len(B)
zero bytes, XOR the CRC of B.
"""

import functools

import numpy as np

_POLYNOMIAL = 0x82F63B78  # bits reversed
_WIDTH = 128  # bytes of a lane
_MOST_LANES = 2048
_MASK_DELTA = 0xA282EAD8


def crc32c(data: np.ndarray | bytes | memoryview) -> int:
    """Return the CRC-32C of bytes; copies a quarter of a MB at a time."""
    values = np.frombuffer(data, np.uint8)
    if len(values) < 64:
        return _short(values.tobytes())
    block = _WIDTH * _MOST_LANES
    first = len(values) % block
    total = _block(values[:first], begins=True) if first else 0
    for start in range(first, len(values), block):
        total = int(_carried(np.uint32(total), block)) ^ _block(values[start : start + block], begins=not start)
    return total ^ 0xFFFFFFFF


def masked(crc: int) -> int:
    """Mask a CRC as TensorFlow and LevelDB store it (`crc32c::Mask`)."""
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF


def _short(data: bytes) -> int:
    table, state = _zeros(1)[0], 0xFFFFFFFF
    for byte in data:
        state = int(table[(state ^ byte) & 0xFF]) ^ (state >> 8)
    return state ^ 0xFFFFFFFF


def _block(values: np.ndarray, begins: bool) -> int:
    """Return the CRC of up to one block, starting from zero, or from all ones at the beginning of the data."""
    lanes = 1
    while lanes * _WIDTH < len(values):
        lanes *= 2
    padded = np.zeros(lanes * _WIDTH, np.uint8)
    padded[len(padded) - len(values) :] = values
    if begins:  # a state of all ones inverts the first four bytes
        padded[len(padded) - len(values) :][:4] ^= 0xFF
    words = np.ascontiguousarray(padded.view("<u2").reshape(lanes, _WIDTH // 2).T)
    table, state = _two_bytes(), np.zeros(lanes, np.uint32)
    for word in words:
        state = table[state.astype(np.uint16) ^ word] ^ (state >> 16)
    width = _WIDTH
    while len(state) > 1:
        state = _carried(state[::2], width) ^ state[1::2]
        width *= 2
    return int(state[0])


@functools.cache
def _two_bytes() -> np.ndarray:
    """Return a table `[65536]`: 16 bits of a state -> the state after two zero bytes."""
    state = np.arange(2**16, dtype=np.uint32)
    for _ in range(2):
        state = _zeros(1)[0][state & 0xFF] ^ (state >> 8)
    return state


def _carried(state: np.ndarray | np.uint32, count: int) -> np.ndarray:
    """Advance states by `count` zero bytes, a power of two."""
    tables = _zeros(count)
    return (
        tables[0][state & 0xFF]
        ^ tables[1][(state >> 8) & 0xFF]
        ^ tables[2][(state >> 16) & 0xFF]
        ^ tables[3][state >> 24]
    )


@functools.cache
def _zeros(count: int) -> np.ndarray:
    """Return a table `[4, 256]`: byte i of a state -> the state after `count` zero bytes, a power of two."""
    if count > 1:
        return _carried(_zeros(count // 2), count // 2)
    state = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        state = (state >> 1) ^ np.where(state & 1, np.uint32(_POLYNOMIAL), np.uint32(0))
    higher = np.arange(256, dtype=np.uint32)
    return np.stack([state, higher, higher << 8, higher << 16])
