from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from tests import path_table

REPOSITORY = Path(__file__).parent.parent
UNITS = REPOSITORY / "systemd"
USER = 1000
WORST_SCORE = 3.0

pytestmark = pytest.mark.skipif(
    not shutil.which("systemd-analyze"), reason="systemd is not installed"
)


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A home with the units in it, and a command where they look for it."""
    units = tmp_path / ".config" / "systemd" / "user"
    units.mkdir(parents=True)
    command = tmp_path / ".local" / "bin" / "indexd"
    command.parent.mkdir(parents=True)
    command.symlink_to("/bin/true")
    shutil.copytree(UNITS, units, dirs_exist_ok=True)
    service = units / "indexd.service"
    # The tool takes %h from the password database, where this home is not.
    service.write_text(service.read_text().replace("%h", str(tmp_path)))
    return tmp_path


def analyze(home: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {"HOME": str(home), "XDG_RUNTIME_DIR": str(home), "PATH": os.environ["PATH"]}
    return subprocess.run(
        ["systemd-analyze", "--user", *words], env=environment, capture_output=True, text=True
    )


def test_the_units_are_well_formed(installed: Path) -> None:
    units = installed / ".config" / "systemd" / "user"
    run = analyze(installed, "verify", units / "indexd.service", units / "indexd.socket")
    assert (run.stdout + run.stderr, run.returncode) == ("", 0)


def test_the_service_is_exposed_no_more_than_it_must_be(installed: Path) -> None:
    service = installed / ".config" / "systemd" / "user" / "indexd.service"
    run = analyze(installed, "security", "--offline=yes", service)
    found = re.search(r"exposure level for indexd.service: ([0-9.]+)", run.stdout)
    assert found, run.stderr
    assert float(found[1]) <= WORST_SCORE


def directives(file: str) -> dict[str, str]:
    lines = [line for line in (UNITS / file).read_text().splitlines() if "=" in line]
    return dict(line.split("=", 1) for line in lines if not line.startswith("#"))


def test_what_would_break_the_service_is_left_out() -> None:
    # The first makes openat2 fail, the others the start of a user's unit.
    left_out = {"RestrictSUIDSGID", "CapabilityBoundingSet", "DynamicUser"}
    assert not left_out & directives("indexd.service").keys()
    text = (UNITS / "indexd.service").read_text()
    assert all(f"# {name}" in text for name in left_out)


def test_the_socket_is_where_clients_look_and_named_as_the_daemon_expects() -> None:
    socket_unit = directives("indexd.socket")
    assert socket_unit["ListenStream"] == "%t/indexd/indexd.sock"
    assert socket_unit["FileDescriptorName"] == "indexd"
    assert (socket_unit["SocketMode"], socket_unit["DirectoryMode"]) == ("0600", "0700")


@pytest.fixture
def stage(tmp_path: Path) -> Path:
    """What user_manager.sh wants to find: a home, a planted tree, and a script."""
    units = tmp_path / "home" / ".config" / "systemd" / "user"
    shutil.copytree(UNITS, units)
    drop_ins = units / "indexd.service.d"
    drop_ins.mkdir()
    (drop_ins / "test.conf").write_text(
        "[Service]\nEnvironment=PYTHONPATH=/srv/repository:/srv/site\nWatchdogSec=2\n"
        "Environment=LD_LIBRARY_PATH=/srv/base/lib\n"
        "StandardError=append:%t/indexd.log\n"
    )
    python = f"/srv/base/bin/python{sysconfig.get_python_version()}"
    write_script(
        tmp_path / "home" / ".local" / "bin" / "indexd",
        f'exec {python} -m tests.tiny_daemon "$@"',
    )
    write_script(tmp_path / "script", f"{python} -m tests.unit_probe /srv/stage/paths")
    (tmp_path / "paths").mkdir()
    path_table.plant(tmp_path / "paths")
    # Deeper than a path can be long, hence not by our own hand.
    subprocess.run(["chown", "-hR", str(USER), tmp_path / "paths"], check=True)
    os.chown(tmp_path / "paths" / "root" / "other-owner.jsonl", 12345, 12345)
    for path in (tmp_path, tmp_path / "paths"):
        path.chmod(0o755)
    return tmp_path


def write_script(path: Path, line: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


def seen_by_a_user(stage: Path) -> dict[str, Any]:
    """Return what tests/unit_probe.py saw under a user manager of its own."""
    run = subprocess.run(
        ["unshare", "-m", "-p", "-f", "--mount-proc", REPOSITORY / "tests" / "user_manager.sh",
         stage, sys.base_prefix, sysconfig.get_path("purelib"), REPOSITORY, str(USER)],
        capture_output=True, text=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    subprocess.run(["rm", "-rf", stage / "paths"], check=True)
    assert run.returncode == 0, run.stderr
    seen: dict[str, Any] = json.loads(run.stdout)
    return seen


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to set a user manager up")
def test_under_a_real_manager_the_units_do_what_they_say(stage: Path) -> None:
    seen = seen_by_a_user(stage)
    assert seen["before"] == "inactive"
    assert seen["modes"] == [0o600, 0o700]
    assert seen["socket"] == f"/run/user/{USER}/indexd/indexd.sock"
    assert seen["sandbox"] == {
        "home_read_only": True,
        "network_blocked": True,
        "no_new_privileges": True,
        "system_calls_filtered": True,
        "openat2": True,
    }
    assert seen["attempts"] == {
        "write_home": "EROFS",
        "write_config": "EROFS",
        "write_cache": "done",
        "inet": "EAFNOSUPPORT",
        "write_execute": "EPERM",
        "user_namespace": "EPERM",
        "device": "ENOENT",
    }
    assert seen["wrong_paths"] == []
    assert seen["status_text"] == "0 reloads"
    assert seen["restart_seconds"] < 2
    assert seen["thaw_seconds"] < 8
    assert seen["stopped"] == "success"
    assert seen["woken_pid"] != seen["frozen_pid"]


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to set a user manager up")
def test_with_openat2_filtered_away_the_same_paths_are_refused(stage: Path) -> None:
    drop_in = stage / "home/.config/systemd/user/indexd.service.d/suid.conf"
    drop_in.write_text("[Service]\nRestrictSUIDSGID=yes\n")
    seen = seen_by_a_user(stage)
    assert seen["sandbox"]["openat2"] is False
    by_openat2 = [line for line in seen["wrong_paths"] if "resolve_by_openat2" in line]
    assert seen["wrong_paths"] == by_openat2
    assert all(line.endswith("instead of b'inside'") or "46" in line for line in by_openat2)


def drop_in(heading: str) -> str:
    """Return the first drop-in that docs/security.md shows after `heading`."""
    text = (REPOSITORY / "docs" / "security.md").read_text()
    return text.split(heading, 1)[1].split("```ini\n", 1)[1].split("```", 1)[0]


def test_the_drop_in_for_want_of_user_namespaces_turns_off_all_that_needs_one() -> None:
    turned_off = {
        line.split("=")[0] for line in drop_in("without user namespaces").splitlines()[1:]
    }
    assert turned_off == {
        name for name in directives("indexd.service") if name.startswith(("Private", "Protect"))
    }


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to set a user manager up")
def test_without_user_namespaces_the_service_starts_and_has_no_network(stage: Path) -> None:
    file = stage / "home/.config/systemd/user/indexd.service.d/namespaces.conf"
    file.write_text(drop_in("without user namespaces"))
    seen = seen_by_a_user(stage)
    assert seen["attempts"] == {
        "write_home": "done",
        "write_config": "done",
        "write_cache": "done",
        "inet": "EAFNOSUPPORT",
        "write_execute": "EPERM",
        "user_namespace": "EPERM",
        "device": "EPERM",
    }
    assert seen["sandbox"]["home_read_only"] is False
    assert seen["sandbox"]["system_calls_filtered"]
    assert seen["wrong_paths"] == []
