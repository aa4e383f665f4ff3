"""Where configuration, socket, cache and state live, and which directories are safe."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from indexd import paths
from indexd.errors import BadRequest, NotAllowed


def test_without_any_variable_everything_lies_below_the_home():
    environment = {"HOME": "/h"}

    assert paths.config_file(environment) == "/h/.config/indexd/config.toml"
    assert paths.cache_dir(environment) == "/h/.cache/indexd"
    assert paths.state_dir(environment) == "/h/.local/state/indexd"
    assert paths.events_dir("/h/.local/state/indexd") == "/h/.local/state/indexd/mcp-events"


def test_xdg_variables_move_the_directories():
    environment = {
        "HOME": "/h",
        "XDG_CONFIG_HOME": "/c",
        "XDG_CACHE_HOME": "/k/",
        "XDG_STATE_HOME": "/s",
    }

    assert paths.config_file(environment) == "/c/indexd/config.toml"
    assert paths.cache_dir(environment) == "/k/indexd"
    assert paths.state_dir(environment) == "/s/indexd"


def test_our_own_variables_come_before_xdg():
    environment = {
        "HOME": "/h",
        "XDG_CACHE_HOME": "/k",
        "INDEXD_CACHE_DIR": "~/mine",
        "INDEXD_CONFIG": "/etc/indexd.toml",
        "INDEXD_STATE_DIR": "/var/s/",
        "INDEXD_SOCKET": "/run/x/i.sock",
    }

    assert paths.cache_dir(environment) == "/h/mine"
    assert paths.config_file(environment) == "/etc/indexd.toml"
    assert paths.state_dir(environment) == "/var/s"
    assert paths.socket_path(environment) == "/run/x/i.sock"


def test_a_relative_xdg_variable_is_ignored():
    assert paths.cache_dir({"HOME": "/h", "XDG_CACHE_HOME": "k"}) == "/h/.cache/indexd"


def test_a_relative_variable_of_ours_is_refused_by_name():
    with pytest.raises(BadRequest, match=r"INDEXD_SOCKET is 'x\.sock'"):
        paths.socket_path({"HOME": "/h", "INDEXD_SOCKET": "x.sock"})


def test_an_empty_home_falls_back_to_the_password_database():
    assert os.path.isabs(paths.home({"HOME": ""}))


def test_the_socket_lies_in_the_runtime_directory(tmp_path: Path):
    environment = {"HOME": "/h", "XDG_RUNTIME_DIR": str(tmp_path)}

    assert paths.socket_path(environment) == str(tmp_path / "indexd" / "indexd.sock")


def test_a_runtime_directory_still_to_be_made_is_taken_at_its_word(tmp_path: Path):
    environment = {"HOME": "/h", "XDG_RUNTIME_DIR": str(tmp_path / "run")}

    assert paths.socket_path(environment) == str(tmp_path / "run" / "indexd" / "indexd.sock")


@pytest.mark.parametrize("runtime", ["/nowhere/at/all", "/proc/1/cmdline", "relative"])
def test_without_a_runtime_directory_the_socket_lies_beside_the_cache(runtime: str):
    if os.path.isdir(f"/run/user/{os.getuid()}"):
        pytest.skip("this login has a runtime directory of its own")
    environment = {"HOME": "/h", "XDG_CACHE_HOME": "/k", "XDG_RUNTIME_DIR": runtime}

    assert paths.socket_path(environment) == "/k/indexd/run/indexd.sock"


def test_a_socket_path_longer_than_the_system_allows_is_refused_with_its_length():
    fits = "/" + "s" * 106

    assert paths.check_socket_path(fits) == fits
    with pytest.raises(BadRequest, match="108 bytes") as caught:
        paths.check_socket_path(fits + "s")
    assert "INDEXD_SOCKET" in caught.value.hint


def test_the_length_of_a_socket_path_counts_bytes():
    with pytest.raises(BadRequest):
        paths.check_socket_path("/" + "ü" * 60)


def test_a_missing_directory_is_made_for_us_alone(tmp_path: Path):
    made = paths.private_directory(str(tmp_path / "a" / "b"))

    assert made == str(tmp_path / "a" / "b")
    assert os.stat(made).st_mode & 0o777 == 0o700
    assert os.stat(tmp_path / "a").st_mode & 0o777 == 0o700
    assert paths.private_directory(made) == made


def test_a_directory_open_to_others_is_refused_with_the_command_that_closes_it(tmp_path: Path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o750)

    with pytest.raises(NotAllowed, match="0750") as caught:
        paths.private_directory(str(shared))
    assert caught.value.hint == f"close it: chmod 700 {shared}"


def test_a_symbolic_link_is_refused(tmp_path: Path):
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")

    with pytest.raises(NotAllowed, match="symbolic link"):
        paths.private_directory(str(tmp_path / "link"))


def test_a_file_in_the_place_of_a_directory_is_refused(tmp_path: Path):
    (tmp_path / "file").touch(mode=0o600)

    with pytest.raises(NotAllowed, match="not a directory"):
        paths.private_directory(str(tmp_path / "file"))
    with pytest.raises(NotAllowed, match="cannot be made"):
        paths.private_directory(str(tmp_path / "file" / "below"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_another_user_is_refused(tmp_path: Path):
    theirs = tmp_path / "theirs"
    theirs.mkdir(mode=0o700)
    os.chown(theirs, 12345, -1)

    with pytest.raises(NotAllowed, match="belongs to user 12345"):
        paths.check_private(str(theirs))
