"""BM25 as Robertson and Zaragoza give it, with the idf that is never negative.

score(d, q) = sum over the query's terms t with term_freq > 0 of
    ln(1 + (N - doc_freq + 0.5) / (doc_freq + 0.5))
    * term_freq * (K1 + 1) / (term_freq + K1 * (1 - B + B * length / average_length))

N, doc_freq and average_length are those of the documents a request selects.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

K1 = 1.2
B = 0.75


def idf(documents: int, doc_freq: int) -> float:
    """Return the inverse document frequency of a term held by `doc_freq` of `documents`."""
    return math.log(1 + (documents - doc_freq + 0.5) / (doc_freq + 0.5))


def average_length(documents: int, tokens: int) -> float:
    """Return the mean document length in tokens; 1 when there is nothing to average."""
    return tokens / documents if documents and tokens else 1.0


def weights(
    term_freqs: NDArray[Any], lengths: NDArray[Any], average: float, idf: float | Floats
) -> Floats:
    """Return what a term adds to the score of each document; parallel arrays.

    The order of operations is fixed, so that equal inputs give bit-equal scores wherever the
    documents are stored.
    """
    added: Floats = (
        term_freqs * (idf * (K1 + 1)) / (lengths * (K1 * B / average) + K1 * (1 - B) + term_freqs)
    )
    return added


def weight(term_freq: int, length: int, average: float, idf: float) -> float:
    """Return what `weights` returns of one document."""
    added = term_freq * (idf * (K1 + 1)) / (length * (K1 * B / average) + K1 * (1 - B) + term_freq)
    return added


def most(idf: float) -> float:
    """Return a bound that `weights` never exceeds for a term of this idf."""
    return idf * (K1 + 1)
