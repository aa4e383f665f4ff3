"""The hits of the last query, so that `indexctl around 3` can mean the third of them.

A small file in the cache directory, readable by its owner alone. Forgetting it costs nothing but
the convenience, so a failure to write it never fails a query.
"""

from __future__ import annotations

import os

from indexd import paths, protocol
from indexd.errors import BadRequest, IndexdError, NotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

KEPT = ("session_path", "message_index")


def remember(
    cache: str, hits: list[dict[str, Any]], query: str = "", generation: int | None = None
) -> None:
    """Keep where each of `hits` lies, by its rank, in place of those of the query before.

    `query` is what was asked, `generation` that of the index that answered.
    """
    kept: dict[str, Any] = {"query": query, "generation": generation}
    kept |= {"hits": {str(hit["rank"]): {n: hit[n] for n in KEPT if n in hit} for hit in hits}}
    body = protocol.encode(kept, protocol.MAX_ANSWER_BYTES)
    try:
        paths.private_directory(cache)
        temporary = os.path.join(cache, f"last-hits.{os.getpid()}")
        with open(temporary, "wb", opener=_private) as stream:
            stream.write(body)
        os.replace(temporary, os.path.join(cache, "last-hits"))
    except (OSError, IndexdError):
        return


def recall(cache: str, number: int) -> dict[str, Any]:
    """Return where hit `number` of the last query lies; raise NotFound when there is none."""
    hits: dict[str, dict[str, Any]] | None = (_kept(cache) or {}).get("hits")
    if not hits:
        reason = "no query is remembered" if hits is None else "the last query found nothing"
        raise NotFound(reason, "search first: indexctl query TEXT")
    if str(number) not in hits:
        ranks = sorted(map(int, hits))
        raise NotFound(
            f"the last query has no hit {number}", f"it had hits {ranks[0]} to {ranks[-1]}"
        )
    return hits[str(number)]


def generation(cache: str, query: str) -> int | None:
    """Return the generation that answered the last query, if it was `query`."""
    kept = _kept(cache) or {}
    found: int | None = kept.get("generation") if kept.get("query") == query else None
    return found


def _kept(cache: str) -> dict[str, Any] | None:
    try:
        with open(os.path.join(cache, "last-hits"), "rb") as stream:
            stream.seek(protocol.HEADER.size)
            kept = protocol.decode(stream.read())
    except (OSError, BadRequest):
        return None
    return kept


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)
