"""The daemon's life, from its settings to an orderly end.

It runs in the foreground, logs to standard error and leaves the rest to whoever started it. What
it serves is an Engine; this module knows when the engine runs, not what it does.
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

import anyio
from anyio.abc import TaskStatus

from indexd import __version__, config, logs
from indexd.config import Settings
from indexd.connection import CONNECTIONS, Limits
from indexd.errors import BadRequest, IndexdError
from indexd.listener import listening
from indexd.lock import sole_daemon
from indexd.server import Method, Server
from indexd.systemd import Environment, Notifier

READY_VARIABLE = "INDEXD_READY_FD"
# Answers under way get the server's drain time, the engine this long to put its things away.
CLOSE_SECONDS = 0.5
# Whatever then still hangs, a thread for instance, is cut off: nothing of ours needs an end.
END_SECONDS = 1.8
STATUS_SECONDS = 10.0
DESCRIPTORS = 4096
# What indexing and the daemon itself may need of them; the rest is for connections.
OWN_DESCRIPTORS = 40
# How long a daemon that nobody can reach any more may go on.
GUARD_SECONDS = 2.0

log = logging.getLogger(__name__)


class Engine(Protocol):
    """What the daemon serves."""

    def methods(self) -> Mapping[str, Method]:
        """Return what answers each method of the protocol, `hello` apart."""

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Work until cancelled; `started` is called once methods can be answered."""

    def healthy(self) -> bool:
        """Say whether every part that should be running is."""

    def failed(self) -> bool:
        """Say whether `run` is to raise, as soon as nothing holds it up any more."""

    def status_text(self) -> str:
        """Return one line on how things are, for the service manager."""

    async def reload(self) -> None:
        """Read the configuration again and act on it; raises IndexdError to keep the old."""

    async def close(self) -> None:
        """Put everything away, after `run` has ended."""


Load = Callable[..., Settings]
Build = Callable[[Settings], Engine]


def build_engine(settings: Settings) -> Engine:
    """Return the search engine that `settings` describe."""
    from indexd.engine import build

    return build(settings)


def main(
    argv: Sequence[str] | None = None,
    *,
    load: Load = config.load,
    build: Build = build_engine,
) -> int:
    """Run the daemon and return its exit status: 0 when told to stop, 1 when it cannot run."""
    flags = parse_flags(argv)
    logs.set_up(flags.log_level)
    os.umask(0o077)
    raise_descriptor_limit()
    try:
        starter, notifier = Starter(os.environ), Notifier(os.environ)
        settings = load(
            os.environ, config_file=flags.config, socket=flags.socket, cache_dir=flags.cache_dir
        )
        with (
            sole_daemon(settings.cache_dir) as lock,
            listening(settings.socket, os.environ) as listener,
        ):
            settings = dataclasses.replace(settings, socket=listener.socket.getsockname())
            lock.announce(settings.socket)

            def in_place() -> bool:
                return listener.in_place() and lock.keep()

            anyio.run(live, build, settings, listener.socket, in_place, notifier, starter)
    except Exception as error:
        return _report_failure(error)
    return 0


async def live(
    build: Build,
    settings: Settings,
    listener: socket.socket,
    in_place: Callable[[], bool],
    notifier: Notifier,
    starter: Starter,
) -> None:
    """Build the engine, inside the event loop, and serve it until told to stop."""
    await Daemon(build(settings), listener, in_place, notifier, starter).run()


def parse_flags(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the command line's flags; exits with status 2 when they are wrong."""
    parser = argparse.ArgumentParser(
        prog="indexd",
        description="Index coding-agent sessions and MCP tools, and answer indexctl.",
        epilog="SIGHUP reads the configuration again, SIGTERM ends it.",
    )
    parser.add_argument("--config", metavar="FILE", help="configuration file")
    parser.add_argument("--socket", metavar="PATH", help="socket to listen at")
    parser.add_argument("--cache-dir", metavar="DIR", help="directory of the disk cache")
    parser.add_argument(
        "--log-level", choices=logs.LEVELS, default="info", help="least level to log (info)"
    )
    parser.add_argument("--version", action="version", version=f"indexd {__version__}")
    return parser.parse_args(argv)


def raise_descriptor_limit() -> None:
    """Allow this process as many descriptors as it may have, up to what it could need."""
    with suppress(OSError, ValueError):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def limits() -> Limits:
    """Return the server's limits: as many connections as leave indexing its descriptors."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = CONNECTIONS if soft == resource.RLIM_INFINITY else max(1, soft - OWN_DESCRIPTORS)
    return Limits(connections=min(CONNECTIONS, most))


class Starter:
    """The client that started us and waits at a pipe to hear that we listen, if there is one."""

    def __init__(self, environment: Environment) -> None:
        """Take the pipe's number from the environment; raises BadRequest when it is none."""
        text = environment.pop(READY_VARIABLE, "")
        self._fd = int(text) if text.isdecimal() else None
        try:
            if self._fd is not None:
                os.set_inheritable(self._fd, False)
        except OSError:
            self._fd = None
        if text and self._fd is None:
            raise BadRequest(
                f"{READY_VARIABLE} {text!r} is no open descriptor", "leave it to indexctl to set it"
            )

    def tell(self) -> None:
        """Say that requests are answered; one that has gone away does not mind."""
        if self._fd is not None:
            with suppress(BrokenPipeError):
                os.write(self._fd, b"\n")
            os.close(self._fd)
            self._fd = None


class Daemon:
    """An engine behind a listening socket, from start to stop.

    `in_place` says whether it still holds what makes it the one that clients find.
    """

    def __init__(
        self,
        engine: Engine,
        listener: socket.socket,
        in_place: Callable[[], bool],
        notifier: Notifier,
        starter: Starter,
    ) -> None:
        self._engine = engine
        self._in_place = in_place
        self._notifier = notifier
        self._starter = starter
        self._listener = listener
        self._server = Server(listener, engine.methods(), limits())
        self._starting = anyio.CancelScope()
        self._started = anyio.Event()
        self._reload_turn = anyio.Lock()
        # What to end with, should the end be cut off: nobody has told us to stop as yet.
        self._status = 1

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT; SIGHUP reloads."""
        signals = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        try:
            with anyio.open_signal_receiver(*signals) as received:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._obey, received)
                    tasks.start_soon(self._bound_the_end)
                    with self._starting:
                        await tasks.start(self._engine.run)
                        tasks.start_soon(self._report)
                        tasks.start_soon(self._guard)
                        await self._serve()
                    tasks.cancel_scope.cancel()
        finally:
            with anyio.move_on_after(CLOSE_SECONDS, shield=True):
                await self._engine.close()

    async def _serve(self) -> None:
        async with anyio.create_task_group() as serving:
            await serving.start(self._server.run)
            self._started.set()
            self._starter.tell()
            self._notifier.ready()
            log.info("ready pid=%d socket=%s", os.getpid(), self._listener.getsockname())

    async def _obey(self, received: AsyncIterator[signal.Signals]) -> None:
        async with anyio.create_task_group() as reloads:
            async for number in received:
                log.info("received signal=%s", number.name)
                if number == signal.SIGHUP:
                    reloads.start_soon(self._reload)
                else:
                    self._stop()

    def _stop(self) -> None:
        self._notifier.stopping()
        self._status = 0
        _end_soon(self._status)
        self._server.stop()
        if not self._started.is_set():
            self._starting.cancel()

    async def _bound_the_end(self) -> None:
        """Have the process end soon once the tasks beside this one are being ended."""
        try:
            await anyio.sleep_forever()
        finally:
            _end_soon(self._status)

    async def _reload(self) -> None:
        await self._started.wait()
        async with self._reload_turn:
            self._notifier.reloading()
            try:
                await self._engine.reload()
            except IndexdError as error:
                log.error("reload refused reason=%s hint=%s", error.message, error.hint)
            except Exception:
                log.exception("reload failed")
            self._notifier.ready()

    async def _guard(self) -> None:
        """Stop when our socket or our lock was removed: clients will have started another.

        And when the engine has failed, which may not come out by itself.
        """
        await self._started.wait()
        while self._in_place():
            if self._engine.failed():
                _end_soon(self._status)
                return
            await anyio.sleep(GUARD_SECONDS)
        log.warning("stopping, the socket or the lock is not ours any more")
        self._stop()

    async def _report(self) -> None:
        """Tell the manager that we live, from the event loop, so that a stuck one shows."""
        await self._started.wait()
        told = ""
        while self._notifier:
            if self._engine.healthy():
                self._notifier.alive()
            else:
                log.error("unhealthy; the watchdog is left to wait")
            text = self._engine.status_text()
            if text != told:
                self._notifier.status(told := text)
            await anyio.sleep((self._notifier.watchdog_seconds or 3 * STATUS_SECONDS) / 3)


def _end_soon(status: int) -> None:
    """Let everything END_SECONDS to end; then cut off what has not, with this exit status."""
    cut_off = threading.Timer(END_SECONDS, _cut_off, (status,))
    cut_off.daemon = True
    cut_off.start()


def _cut_off(status: int) -> None:
    log.error("stopping took over seconds=%s", END_SECONDS)
    os._exit(status)


def _report_failure(error: Exception) -> int:
    failure: BaseException = error
    while isinstance(failure, BaseExceptionGroup) and len(failure.exceptions) == 1:
        failure = failure.exceptions[0]
    if isinstance(failure, IndexdError):
        # The last line: a client that started us shows it to its user.
        reason = "; ".join(filter(None, (failure.message, failure.hint)))
        sys.stderr.write(f"indexd: {reason}\n")
    else:
        log.critical("indexd failed", exc_info=error)
    return 1
