"""A client of bare sockets, for saying what no proper client says."""

from __future__ import annotations

import socket
from typing import Any, Self

from indexd import protocol

HELLO = {"id": 0, "method": "hello", "params": {"protocol": [1, 1], "client": "test"}}


def frame(message: dict[str, Any]) -> bytes:
    """Return `message` as a frame, whatever its size."""
    return protocol.encode(message, 1 << 31)


class Talk:
    """One connection; `hello` is said unless `greet` is false."""

    def __init__(self, path: str, *, greet: bool = True) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(20)
        try:
            self.socket.connect(path)
        except BaseException:
            self.socket.close()
            raise
        if greet:
            assert "result" in self.ask(HELLO)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send one request and return what comes back."""
        self.socket.sendall(frame(message))
        return self.hear()

    def call(self, method: str, **params: Any) -> Any:
        """Return the result of `method`, or its error map."""
        answer = self.ask({"id": 7, "method": method, "params": params})
        assert answer["id"] == 7
        return answer.get("result", answer.get("error"))

    def hear(self) -> dict[str, Any]:
        """Return the next answer; an empty map when the daemon has hung up."""
        header = self._exactly(4)
        if not header:
            return {}
        return protocol.decode(self._exactly(protocol.body_length(header, 1 << 31)))

    def rest(self) -> bytes:
        """Return everything until the daemon hangs up."""
        received = b""
        while True:
            try:
                chunk = self.socket.recv(65536)
            except ConnectionResetError:
                return received
            if not chunk:
                return received
            received += chunk

    def _exactly(self, count: int) -> bytes:
        received = b""
        while len(received) < count:
            try:
                chunk = self.socket.recv(count - len(received))
            except ConnectionResetError:
                return b""
            if not chunk:
                return b""
            received += chunk
        return received
