from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from indexd.sandbox import probe

REPOSITORY = Path(__file__).parent.parent
PROBE = "import json, sys; from indexd.sandbox import probe; print(json.dumps(probe(sys.argv[1])))"


def probed(home: Path, *wrapper: str) -> dict[str, bool]:
    run = subprocess.run(
        [*wrapper, sys.executable, "-c", PROBE, home],
        cwd=REPOSITORY, capture_output=True, text=True,
    )  # fmt: skip
    if run.returncode:
        pytest.skip(f"not permitted here: {run.stderr.strip()}")
    seen: dict[str, bool] = json.loads(run.stdout)
    return seen


def test_looking_leaves_nothing_behind(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    assert probe(str(tmp_path))["home_read_only"] is False
    assert list(tmp_path.iterdir()) == []
    assert os.listdir("/proc/self/fd") == before


@pytest.mark.skipif(not shutil.which("setpriv"), reason="setpriv is not installed")
def test_a_process_that_can_gain_nothing_says_so(tmp_path: Path) -> None:
    plain, bound = probed(tmp_path), probed(tmp_path, "setpriv", "--no-new-privs")
    assert bound["no_new_privileges"]
    assert bound == {**plain, "no_new_privileges": True}


def test_a_home_that_is_mounted_read_only_shows(tmp_path: Path) -> None:
    script = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && exec "$@"'
    seen = probed(tmp_path, "unshare", "-m", "bash", "-c", script, "bash", str(tmp_path))
    assert seen["home_read_only"]
