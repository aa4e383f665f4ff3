"""Memory that is not used any more goes back to the system."""

from __future__ import annotations

import ctypes


def give_back() -> None:
    """Return freed memory to the system, where the C library knows how.

    Arrays of a merge leave the heap full of holes, which would count as resident for days.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
