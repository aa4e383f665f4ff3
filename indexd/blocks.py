"""Columns of numbers in compressed blocks, for what is wanted of few documents at a time."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from indexd.segment import Array
from indexd.source import Source, misfits_are_damage

# Documents of a block; one is read and unpacked for each hit that is shown.
BLOCK = 512
_REMEMBERED = 64
_CODES = ("<u1", "<u2", "<u4", "<u8")


def pack(columns: Mapping[str, Array]) -> list[bytes]:
    """Return the blocks of parallel columns of whole numbers."""
    count = len(next(iter(columns.values())))
    return [
        _packed([column[start : start + BLOCK] for column in columns.values()])
        for start in range(0, count, BLOCK)
    ]


class Blocks:
    """Parallel columns in blocks; `offsets` say where each block begins in the source."""

    def __init__(
        self, source: Source, offsets: Array, dtypes: Mapping[str, str], count: int
    ) -> None:
        self._source, self._offsets, self._count = source, offsets, count
        self._dtypes = dict(dtypes)
        self._remembered: dict[int, dict[str, Array]] = {}

    def take(self, name: str, at: Array) -> Array:
        """Return the elements of a column at some positions."""
        numbers = at // BLOCK
        order = numbers.argsort(kind="stable")
        numbers = numbers[order]
        first = np.flatnonzero(np.diff(numbers, prepend=-1)).tolist()
        taken = np.empty(len(at), self._dtypes[name])
        for start, stop in pairwise([*first, len(at)]):
            number, mine = int(numbers[start]), order[start:stop]
            taken[mine] = self._block(number)[name][at[mine] - number * BLOCK]
        return taken

    def _block(self, number: int) -> dict[str, Array]:
        known = self._remembered.get(number)
        if known is None:
            start, stop = self._offsets[number : number + 2].tolist()
            data = self._source.read(start, stop - start)
            with misfits_are_damage():
                known = _unpacked(data, self._dtypes, min(BLOCK, self._count - number * BLOCK))
            for oldest in list(self._remembered)[: 1 - _REMEMBERED]:
                self._remembered.pop(oldest, None)
            self._remembered[number] = known
        return known


class Column:
    """One column in blocks."""

    def __init__(self, blocks: Blocks, name: str) -> None:
        self._blocks, self._name = blocks, name

    def take(self, at: Array) -> Array:
        """Return the elements at some positions."""
        return self._blocks.take(self._name, at)


def _packed(columns: Sequence[Array]) -> bytes:
    pieces = []
    for column in columns:
        steps: Array = np.diff(column.astype(np.int64), prepend=np.int64(0))
        folded = (steps << 1 ^ steps >> 63).view(np.uint64)
        most = int(folded.max())
        code = next(code for code in _CODES if most <= np.iinfo(code).max)
        pieces += [bytes([_CODES.index(code)]), folded.astype(code).tobytes()]
    return zlib.compress(b"".join(pieces), 1)


def _unpacked(data: bytes | memoryview, dtypes: Mapping[str, str], count: int) -> dict[str, Array]:
    raw = zlib.decompress(data)
    found, at = {}, 0
    for name, dtype in dtypes.items():
        code = _CODES[raw[at]]
        folded = np.frombuffer(raw, code, count, at + 1).astype(np.uint64)
        at += 1 + count * np.dtype(code).itemsize
        steps = (folded >> np.uint64(1)).view(np.int64) ^ -(folded & np.uint64(1)).view(np.int64)
        found[name] = steps.cumsum().astype(dtype)
    return found
