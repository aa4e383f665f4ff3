"""How much of a query a session holds, in all of its selected documents together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from indexd.segment import Array


def session_masses(
    file_ids: Sequence[Array], held: Sequence[Sequence[Array]], weights: Sequence[float]
) -> list[Array]:
    """Return for each part the weight that each of its files holds, wherever that is stored.

    `file_ids[p]` are the files of part p; `held[p][t]` the files (positions in file_ids[p],
    repeated at will) with a selected document that holds term t; `weights[t]` is what t weighs.
    Weights are added up in the order of terms, whatever the parts.
    """
    numbers, sessions = _numbered(file_ids)
    masses = np.zeros(sessions)
    for at, weight in enumerate(weights):
        holds = np.zeros(sessions, bool)
        for number, terms in zip(numbers, held, strict=True):
            holds[number[terms[at]]] = True
        masses[holds] += weight
    return [masses[number] for number in numbers]


def _numbered(file_ids: Sequence[Array]) -> tuple[list[Array], int]:
    """Return a number for each file of each part, the same for the same id, and how many."""
    if len(file_ids) == 1:
        return [np.arange(len(file_ids[0]))], len(file_ids[0])
    known = np.unique(np.concatenate([np.zeros(0, np.uint32), *file_ids]))
    return [known.searchsorted(ids) for ids in file_ids], len(known)
