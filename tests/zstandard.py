"""Zstandard as agents use it, for tests that make compressed sessions."""

from __future__ import annotations

import sys

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

compress = zstd.compress
CompressionParameter = zstd.CompressionParameter
ZstdCompressor = zstd.ZstdCompressor
