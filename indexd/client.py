"""Talking to the daemon: a method for every socket method, plain maps for answers.

`Client` blocks; `AsyncClient` (anyio) has the same methods, to be awaited, and is loaded when it
is first asked for. Everything `indexctl query` pays for is paid here, so this module takes the
standard library and msgpack and nothing else.
"""

from __future__ import annotations

import os
import socket
import struct
import time

from indexd import __version__, paths, protocol
from indexd.errors import BadRequest, Internal, NotAllowed, Timeout, Unavailable, from_map
from indexd.methods import Methods
from indexd.peer import credentials

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, Self

    from indexd.aio import AsyncClient as AsyncClient
    from indexd.errors import IndexdError

TIMEOUT_SECONDS = 30.0
START_HINT = "start it with: indexctl status, or: systemctl --user start indexd.socket"


class Client(Methods):
    """One blocking connection to the daemon, opened by `connect`, `with` or the first call.

    Finds the socket as `indexctl` does. `timeout` bounds each call, in seconds. The daemon
    closes connections that stay idle; the next call opens a new one.
    """

    def __init__(
        self,
        socket_path: str | None = None,
        *,
        timeout: float = TIMEOUT_SECONDS,
        name: str = "indexd.client",
    ) -> None:
        self.socket_path = find_socket(socket_path)
        self.timeout = timeout
        self.name = name
        self._socket: socket.socket | None = None
        self._greeting: Any = None
        self._request_id = 0
        self._deadline = 0.0

    def __enter__(self) -> Self:
        self.connect()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def connect(self) -> None:
        """Open the connection unless it is open.

        Raises Unavailable when nothing answers, NotAllowed when it belongs to another user.
        """
        if self._socket is not None:
            return
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # A time-out of Python's own would make the call one that does not wait for its turn.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(self.timeout))
            connection.connect(self.socket_path)
            check_peer(connection, self.socket_path)
        except OSError as error:
            connection.close()
            raise unreachable(self.socket_path, error) from error
        except NotAllowed:
            connection.close()
            raise
        self._socket = connection
        self._greeting = None

    def close(self) -> None:
        """Close the connection; harmless when there is none."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    @property
    def peer_pid(self) -> int:
        """The process at the other end when it began to listen; 0 when it cannot be seen."""
        self.connect()
        assert self._socket is not None
        return credentials(self._socket)[0]

    def hello(self) -> Any:
        """Return the daemon's `protocol`, `version` and `capabilities`."""
        self._answer(b"")
        return self._greeting

    def call(self, method: str, params: dict[str, Any]) -> Any:
        """Return the result of `method` with `params`.

        Raises the IndexdError the daemon answered, Timeout, or Unavailable.
        """
        self._request_id += 1
        request = request_frame(self._request_id, method, params)
        return result_of(self._answer(request), self._request_id)

    def _answer(self, request: bytes) -> dict[str, Any]:
        """Return the answer to `request`, or nothing to an empty one, once hello is said."""
        while True:
            fresh = self._socket is None
            try:
                return self._exchange(request)
            except EOFError as error:
                self.close()
                # Else the daemon had closed an idle connection: every method may be asked again.
                if fresh:
                    raise closed(self.socket_path) from error
            except BaseException:
                # Whatever cut the exchange short left an answer on its way.
                self.close()
                raise

    def _exchange(self, request: bytes) -> dict[str, Any]:
        self.connect()
        self._deadline = time.monotonic() + self.timeout
        if self._greeting is None:
            # Both at once: the daemon answers in order, and a round trip is saved.
            self._send(hello_frame(self.name) + request)
            self._greeting = result_of(self._receive(), 0)
        else:
            self._send(request)
        return self._receive() if request else {}

    def _send(self, frames: bytes) -> None:
        assert self._socket is not None
        try:
            self._socket.settimeout(self.timeout)
            self._socket.sendall(frames)
        except TimeoutError as error:
            raise too_late(self.timeout) from error
        except ConnectionError:
            # A daemon that refuses us answers and closes without reading: its answer is next.
            return

    def _receive(self) -> dict[str, Any]:
        header = self._receive_exactly(protocol.HEADER.size)
        length = protocol.body_length(header, protocol.MAX_ANSWER_BYTES)
        return protocol.decode(self._receive_exactly(length))

    def _receive_exactly(self, count: int) -> bytes:
        assert self._socket is not None
        received = bytearray()
        while len(received) < count:
            left = self._deadline - time.monotonic()
            if left <= 0:
                raise too_late(self.timeout)
            try:
                self._socket.settimeout(left)
                chunk = self._socket.recv(min(count - len(received), 1 << 20))
            except TimeoutError as error:
                raise too_late(self.timeout) from error
            except ConnectionError as error:
                raise EOFError from error
            if not chunk:
                raise EOFError
            received += chunk
        return bytes(received)


def find_socket(socket_path: str | None) -> str:
    """Return the socket to connect to: the one named, else where `indexctl` looks."""
    if socket_path:
        return paths.check_socket_path(socket_path)
    return paths.socket_path(os.environ)


def hello_frame(name: str) -> bytes:
    """Return the first frame of a connection, by which both sides agree on a version."""
    params = {
        "protocol": [protocol.PROTOCOL_MIN, protocol.PROTOCOL_MAX],
        "client": f"{name} {__version__}",
    }
    return request_frame(0, "hello", params)


def request_frame(request_id: int, method: str, params: dict[str, Any]) -> bytes:
    """Return one request's frame; raise BadRequest when it is too big or cannot travel."""
    limit = protocol.MAX_EVENT_BYTES if method == "mcp_event" else protocol.MAX_REQUEST_BYTES
    try:
        return protocol.encode({"id": request_id, "method": method, "params": params}, limit)
    except UnicodeEncodeError as error:
        raise BadRequest(
            f"a text holds {error.object[error.start]!a}, half of a surrogate pair",
            "send whole characters",
        ) from error
    except (OverflowError, TypeError, ValueError, RecursionError) as error:
        raise BadRequest(f"a parameter cannot travel: {error}", "send plain values") from error


def result_of(answer: dict[str, Any], request_id: int) -> Any:
    """Return an answer's result, or raise the error it carries."""
    if "error" in answer:
        error = answer["error"]
        raise from_map(error if isinstance(error, dict) else {"message": str(error)})
    if answer.get("id") != request_id:
        raise Internal(
            f"answer {answer.get('id')!r} came to request {request_id}",
            "report this, with the daemon's log",
        )
    return answer.get("result")


def check_peer(connection: socket.socket, path: str) -> None:
    """Raise NotAllowed when another user listens, who would learn what we ask for."""
    uid = credentials(connection)[1]
    if uid != os.geteuid():
        raise NotAllowed(
            f"the daemon at {path} belongs to user {uid}, not to user {os.geteuid()}",
            "name a socket of your own with --socket or INDEXD_SOCKET",
        )


def unreachable(path: str, error: OSError) -> IndexdError:
    """Return what a failed connection means for the one who asked."""
    if isinstance(error, FileNotFoundError | ConnectionRefusedError):
        return Unavailable(f"no daemon at {path}", START_HINT)
    if isinstance(error, TimeoutError | BlockingIOError):
        return Timeout(f"the daemon at {path} accepts no connection", "see its log")
    return Unavailable(f"no connection to {path}: {error.strerror}", "check the path")


def _timeval(seconds: float) -> bytes:
    return struct.pack("@ll", int(seconds), int(seconds % 1 * 1_000_000))


def closed(path: str) -> IndexdError:
    """Return the error for a daemon that hung up instead of answering."""
    return Unavailable(f"the daemon at {path} closed the connection", "see its log, then try again")


def too_late(seconds: float) -> IndexdError:
    """Return the error for an answer that did not come in time."""
    return Timeout(f"no answer within {seconds:g} s", "see: indexctl status")


def __getattr__(name: str) -> Any:
    # anyio costs as much as ten queries, so only those who await pay for it.
    if name == "AsyncClient":
        from indexd.aio import AsyncClient

        return AsyncClient
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
