"""Where indexd's files live, configuration, socket, cache, state, and where a project begins.

Client and daemon must come to the same answer from the same environment, or they never meet.
The client imports this module on its way to every answer, so it takes nothing but `os`.
Relative XDG variables are ignored, as the XDG specification asks.
"""

from __future__ import annotations

import os
import stat

from indexd.errors import BadRequest, NotAllowed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# struct sockaddr_un has 108 bytes for the path, the last of which ends it.
MAX_SOCKET_PATH_BYTES = 107

# What follows a session's name when its agent has compressed it.
COMPRESSED_ENDS = (".zst", ".zstd")

_OURS_ALONE = 0o700
_OTHERS = 0o077


def home(environment: Mapping[str, str]) -> str:
    """Return the home directory: `HOME`, else the password database's."""
    found = environment.get("HOME", "")
    if os.path.isabs(found):
        return found.rstrip("/") or "/"
    import pwd

    return pwd.getpwuid(os.getuid()).pw_dir


def config_file(environment: Mapping[str, str]) -> str:
    """Return the path of the configuration file, which need not exist."""
    return _own(environment, "INDEXD_CONFIG") or os.path.join(
        _xdg(environment, "XDG_CONFIG_HOME", ".config"), "indexd", "config.toml"
    )


def cache_dir(environment: Mapping[str, str]) -> str:
    """Return the directory of the disk cache, which may be deleted at any time."""
    return _own(environment, "INDEXD_CACHE_DIR") or os.path.join(
        _xdg(environment, "XDG_CACHE_HOME", ".cache"), "indexd"
    )


def state_dir(environment: Mapping[str, str]) -> str:
    """Return the directory of what cannot be rebuilt from sessions: the event journals."""
    return _own(environment, "INDEXD_STATE_DIR") or os.path.join(
        _xdg(environment, "XDG_STATE_HOME", ".local/state"), "indexd"
    )


def events_dir(state: str) -> str:
    """Return the directory of MCP event journals below the state directory `state`."""
    return os.path.join(state, "mcp-events")


def project(directory: str) -> str:
    """Return the git top level that `directory` lies in, else `directory` itself."""
    at = directory
    while True:
        try:
            os.stat(os.path.join(at, ".git"))
            return at
        except OSError:
            parent = os.path.dirname(at)
        if parent == at:
            return directory
        at = parent


def plain_path(path: str) -> str:
    """Return what a session file at `path` is called when it is not compressed."""
    for end in COMPRESSED_ENDS:
        path = path.removesuffix(end)
    return path


def socket_path(environment: Mapping[str, str]) -> str:
    """Return the path of the daemon's socket.

    `INDEXD_SOCKET`, else below the runtime directory, else below the cache directory, since
    containers and plain ssh have no runtime directory. Raises BadRequest when the path is
    longer than the system allows.
    """
    own = _own(environment, "INDEXD_SOCKET")
    if own:
        return check_socket_path(own)
    runtime = _runtime_dir(environment)
    if runtime:
        return check_socket_path(os.path.join(runtime, "indexd", "indexd.sock"))
    return check_socket_path(os.path.join(cache_dir(environment), "run", "indexd.sock"))


def check_socket_path(path: str) -> str:
    """Return `path`, absolute; raise BadRequest when no socket can have that name."""
    path = os.path.abspath(path)
    length = len(os.fsencode(path))
    if length > MAX_SOCKET_PATH_BYTES:
        raise BadRequest(
            f"the socket path {path} has {length} bytes, the system allows {MAX_SOCKET_PATH_BYTES}",
            "set INDEXD_SOCKET to a shorter path in a directory of your own",
        )
    return path


def private_directory(path: str) -> str:
    """Make directory `path` (0700) where it is missing, check it, and return it.

    Raises NotAllowed when it cannot be made or somebody else could reach into it.
    """
    try:
        _make(path)
    except FileExistsError:
        pass
    except OSError as error:
        raise NotAllowed(
            f"{path} cannot be made: {error.strerror}", "choose another directory"
        ) from error
    check_private(path)
    return path


def check_private(path: str) -> None:
    """Raise NotAllowed unless `path` is a directory, ours, reachable by nobody else."""
    try:
        status = os.lstat(path)
    except OSError as error:
        raise NotAllowed(
            f"{path} cannot be used: {error.strerror}", "choose another directory"
        ) from error
    if stat.S_ISLNK(status.st_mode):
        raise NotAllowed(
            f"{path} is a symbolic link, which somebody could turn elsewhere",
            "name the directory it points to",
        )
    if not stat.S_ISDIR(status.st_mode):
        raise NotAllowed(f"{path} is not a directory", "move it away or choose another directory")
    if status.st_uid != os.geteuid():
        raise NotAllowed(
            f"{path} belongs to user {status.st_uid}, not to user {os.geteuid()}",
            "choose a directory of your own",
        )
    if status.st_mode & _OTHERS:
        raise NotAllowed(
            f"{path} is open to other users (mode {stat.S_IMODE(status.st_mode):04o})",
            f"close it: chmod 700 {path}",
        )


def _make(path: str) -> None:
    # Parents too are made for us alone: os.makedirs would open them to everybody.
    try:
        os.mkdir(path, _OURS_ALONE)
    except FileNotFoundError:
        _make(os.path.dirname(path))
        os.mkdir(path, _OURS_ALONE)


def _own(environment: Mapping[str, str], name: str) -> str:
    """Return the path in indexd's own variable `name`; one that is relative is a mistake."""
    path = environment.get(name, "")
    if path.startswith("~/"):
        path = home(environment) + path[1:]
    if path and not os.path.isabs(path):
        raise BadRequest(f"{name} is {path!r}, not an absolute path", f"set {name} to /...")
    return os.path.normpath(path) if path else ""


def _xdg(environment: Mapping[str, str], name: str, default: str) -> str:
    path = environment.get(name, "")
    return (
        os.path.normpath(path) if os.path.isabs(path) else os.path.join(home(environment), default)
    )


def _runtime_dir(environment: Mapping[str, str]) -> str:
    """Return the runtime directory, or nothing where the login made none for this user."""
    named = environment.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(named) and (_is_ours(named) or _can_be_made(named)):
        return os.path.normpath(named)
    usual = f"/run/user/{os.getuid()}"
    return usual if _is_ours(usual) else ""


def _is_ours(path: str) -> bool:
    # After `su`, XDG_RUNTIME_DIR still names the other user's directory.
    try:
        status = os.stat(path)
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def _can_be_made(path: str) -> bool:
    return not os.path.lexists(path) and os.access(os.path.dirname(path), os.W_OK)
