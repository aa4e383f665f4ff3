"""A small daemon's end of the socket: answers real frames with prepared results."""

from __future__ import annotations

import contextlib
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from indexd import protocol
from indexd.errors import IndexdError

GREETING = {"protocol": 1, "version": "0.1.0", "capabilities": ["search"]}

# What a method answers: its result, an error, bytes to send raw (then hang up), or a function
# of the parameters that returns one of these. None hangs up at once.
Prepared = Any
Answers = dict[str, Prepared]


class Peer:
    """Serves `answers` at `path` from a thread; `requests` holds what came in, in order."""

    def __init__(self, path: str, answers: Answers, hello: Prepared = GREETING) -> None:
        self.path = path
        self.answers: Answers = {"hello": hello, **answers}
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.connections: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(path)
        self._listener.listen()
        self._thread = threading.Thread(target=self._accept)

    def __enter__(self) -> Peer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.hang_up()
        self._thread.join()

    def hang_up(self) -> None:
        """Close every connection, as a daemon does with idle ones."""
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        threads = []
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                break
            self.connections.append(connection)
            threads.append(threading.Thread(target=self._serve, args=(connection,)))
            threads[-1].start()
        for thread in threads:
            thread.join()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(ConnectionError), connection.makefile("rb") as stream:
            while header := stream.read(4):
                length = protocol.body_length(header, protocol.MAX_EVENT_BYTES)
                request = protocol.decode(stream.read(length))
                self.requests.append((request["method"], request["params"]))
                prepared = self.answers[request["method"]]
                if callable(prepared):
                    prepared = prepared(request["params"])
                if prepared is None or isinstance(prepared, bytes):
                    connection.sendall(prepared or b"")
                    break
                connection.sendall(frame(request["id"], prepared))


def frame(request_id: Any, prepared: Any) -> bytes:
    """Return the answer frame for a result or an IndexdError."""
    body = (
        {"id": request_id, "error": prepared.as_map()}
        if isinstance(prepared, IndexdError)
        else {"id": request_id, "result": prepared}
    )
    return protocol.encode(body, protocol.MAX_ANSWER_BYTES)


@contextlib.contextmanager
def short_directory() -> Iterator[Path]:
    """Yield a private directory with a name short enough for a socket."""
    path = tempfile.mkdtemp(prefix="ix", dir="/tmp")
    try:
        yield Path(path)
    finally:
        shutil.rmtree(path)


Function = Callable[[dict[str, Any]], Prepared]
