"""Settings: where each value comes from, what is refused, and edits that keep the file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexd import config, config_edit
from indexd.config import Settings
from indexd.errors import BadRequest, NotFound
from indexd.formats import Format
from indexd.roots import Root


class Alpha(Format):
    agent = "alpha"

    def default_roots(self, environment: Mapping[str, str], home: str) -> list[str]:
        return [f"{environment.get('ALPHA_HOME', home + '/.alpha')}/sessions"]


class Beta(Format):
    agent = "beta"

    def default_roots(self, environment: Mapping[str, str], home: str) -> list[str]:
        return [f"{home}/.beta", f"{home}/.beta/inner"]


FORMATS = (Alpha(), Beta())


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path / "run")}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / ".config" / "indexd").mkdir(parents=True)
    return tmp_path / ".config" / "indexd" / "config.toml"


def load(environment: dict[str, str], **flags: str) -> Settings:
    return config.load(environment, formats=FORMATS, **flags)


def refused(environment: dict[str, str]) -> str:
    with pytest.raises(BadRequest) as caught:
        load(environment)
    return f"{caught.value.message} | {caught.value.hint}"


def test_nothing_need_be_configured(environment, tmp_path):
    settings = load(environment)

    assert settings.analysis.profile == "code"
    assert config.values(settings) == {
        "analysis.profile": "code",
        "tool_search.enabled": True,
        "tool_search.min_pct": 5,
        "tool_search.min_tokens": 50_000,
        "tool_search.threshold": 1.5,
        "tool_search.max_results": 5,
        "history.relative_score": 0.15,
        "history.snippet_chars": 240,
        "history.recency": 0,
    }
    assert settings.config_file == str(tmp_path / ".config/indexd/config.toml")
    assert settings.cache_dir == str(tmp_path / ".cache/indexd")


def test_settings_cannot_be_changed_after_reading(environment):
    with pytest.raises(AttributeError):
        load(environment).socket = "/elsewhere"


def test_the_default_roots_are_those_of_the_known_agents_outer_ones_only(environment, tmp_path):
    settings = load(environment)

    assert settings.roots == (
        Root(f"{tmp_path}/.beta", format="beta"),
        Root(f"{tmp_path}/.alpha/sessions", format="alpha"),
    )
    assert settings.left_out == (
        f"default root {tmp_path}/.beta/inner overlaps root {tmp_path}/.beta",
    )


def test_an_agents_own_variable_moves_its_default_root(environment, tmp_path):
    environment["ALPHA_HOME"] = f"{tmp_path}/moved"

    assert f"{tmp_path}/moved/sessions" in [root.path for root in load(environment).roots]


def test_an_agents_variable_that_is_no_absolute_path_costs_only_its_root(environment, tmp_path):
    environment["ALPHA_HOME"] = "relative"
    settings = load(environment)

    assert [root.path for root in settings.roots] == [f"{tmp_path}/.beta"]
    assert "default root relative/sessions is not an absolute path" in settings.left_out


def test_the_default_roots_of_all_known_agents_fit_beside_each_other(environment, tmp_path):
    settings = config.load(environment)

    assert Root(f"{tmp_path}/.claude/projects", "global", "claude") in settings.roots
    assert Root(f"{tmp_path}/.codex/archived_sessions", "archive", "codex") in settings.roots
    assert len(settings.roots) > 10
    assert settings.left_out == ()


def test_a_configured_root_replaces_the_default_ones(environment, file, tmp_path):
    file.write_text(
        '[[root]]\npath = "~/mine"\nsource = "archive"\nformat = "beta"\nexclude = ["**/x/**"]\n'
    )

    assert load(environment).roots == (Root(f"{tmp_path}/mine", "archive", "beta", ("**/x/**",)),)


def test_default_roots_can_be_kept_beside_configured_ones(environment, file, tmp_path):
    file.write_text('default_roots = true\n[[root]]\npath = "~/.alpha"\n')
    settings = load(environment)

    assert [root.path for root in settings.roots] == [f"{tmp_path}/.alpha", f"{tmp_path}/.beta"]
    assert f"default root {tmp_path}/.alpha/sessions overlaps" in "\n".join(settings.left_out)


def test_default_roots_can_be_switched_off_altogether(environment, file):
    file.write_text("default_roots = false\n")

    assert load(environment).roots == ()


def test_variables_expand_in_a_roots_path(environment, file, tmp_path):
    environment["WHERE"] = str(tmp_path / "w")
    file.write_text('[[root]]\npath = "$WHERE/a"\n[[root]]\npath = "${WHERE}/b/../c"\n')

    assert [root.path for root in load(environment).roots] == [
        f"{tmp_path}/w/a",
        f"{tmp_path}/w/c",
    ]


def test_a_root_that_does_not_exist_yet_is_kept(environment, file, tmp_path):
    file.write_text(f'[[root]]\npath = "{tmp_path}/later"\n')

    assert [root.path for root in load(environment).roots] == [f"{tmp_path}/later"]


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/", "is the whole file system"),
        ("/tmp/..", "is the whole file system"),
        ("relative/path", "is not an absolute path"),
        ("$NOWHERE_SET/x", r"uses $NOWHERE_SET, which is not set"),
        ("~/.config/indexd/config.toml", "is a file, not a directory"),
        ("~", "overlaps indexd's own directory"),
        ("~/.cache/indexd/deep", "overlaps indexd's own directory"),
        ("~/.local/state", "overlaps indexd's own directory"),
    ],
)
def test_a_doubtful_root_is_refused_with_its_reason(environment, file, path, reason):
    file.write_text(f'[[root]]\npath = "{path}"\n')

    assert reason in refused(environment)


@pytest.mark.parametrize("second", ["~/a", "~/a/b", "~/link"])
def test_roots_that_overlap_are_refused_even_through_a_link(environment, file, tmp_path, second):
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    file.write_text(f'[[root]]\npath = "~/a"\n[[root]]\npath = "{second}"\n')

    assert f"overlaps root {tmp_path}/a" in refused(environment)


def test_neighbours_with_a_common_beginning_do_not_overlap(environment, file):
    file.write_text('[[root]]\npath = "~/a"\n[[root]]\npath = "~/ab"\n')

    assert len(load(environment).roots) == 2


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("[tool_serch]\n", ["unknown key tool_serch", "did you mean tool_search?"]),
        (
            "[tool_search]\nminpct = 1\n",
            ["tool_search.minpct", "did you mean tool_search.min_pct?"],
        ),
        ("[toolSearch]\nminPct = 1\n", ["unknown key toolSearch", "did you mean tool_search?"]),
        ('[[root]]\npth = "/a"\n', ["unknown key root.pth", "did you mean root.path?"]),
        ('[[root]]\nsource = "global"\n', ["root 1 has no path"]),
        ('[root]\npath = "/a"\n', ["write [[root]]"]),
        ('[[root]]\npath = "/a"\nformat = "gamma"\n', ["'gamma'", 'allowed: "alpha" or "beta"']),
        ('[[root]]\npath = "/a"\nsource = "x"\n', ["root 1.source", '"global" or "archive"']),
        ('[[root]]\npath = "/a"\nexclude = "x"\n', ["root 1.exclude", "a list of strings"]),
        ("[tool_search]\nmin_pct = 101\n", ["tool_search.min_pct is 101", "from 0 to 100"]),
        ("[tool_search]\nmin_tokens = true\n", ["min_tokens is True", "a whole number"]),
        ("[tool_search]\nthreshold = nan\n", ["threshold is nan", "a number from 0"]),
        ('[tool_search]\nenabled = "yes"\n', ["enabled is 'yes'", "true or false"]),
        ('[analysis]\nprofile = "fast"\n', ["profile is 'fast'", '"code" or "seed"']),
        ("history = 3\n", ["history is 3, not a table", "write [history]"]),
        ("default_roots = 1\n", ["default_roots is 1", "true or false"]),
        ("a = \n", ["line 1"]),
    ],
)
def test_a_mistake_in_the_file_names_file_key_and_what_is_allowed(environment, file, text, parts):
    file.write_text(text)
    message = refused(environment)

    for part in [str(file), *parts]:
        assert part in message


def test_a_file_that_is_not_utf8_is_an_error_not_a_crash(environment, file):
    file.write_bytes(b'[analysis]\nprofile = "\xff"\n')

    assert str(file) in refused(environment)


def test_the_environment_comes_before_the_file(environment, file):
    file.write_text("[tool_search]\nthreshold = 3\nmin_pct = 7\n")
    environment["KIRO_CLI_TOOL_SEARCH_MATCHING_THRESHOLD"] = "0.5"
    assert load(environment).tool_search.threshold == 0.5

    environment["INDEXD_TOOL_SEARCH_THRESHOLD"] = "2"
    assert load(environment).tool_search.threshold == 2
    assert load(environment).tool_search.min_pct == 7


@pytest.mark.parametrize("text", ["much", "-1", "nan"])
def test_a_bad_variable_is_named(environment, text):
    environment["INDEXD_TOOL_SEARCH_THRESHOLD"] = text

    assert "INDEXD_TOOL_SEARCH_THRESHOLD is" in refused(environment)


def test_flags_come_before_the_environment(environment, tmp_path):
    environment |= {"INDEXD_SOCKET": "/e/s", "INDEXD_CACHE_DIR": "/e/c", "INDEXD_CONFIG": "/e/f"}
    (tmp_path / "own.toml").write_text("[history]\nsnippet_chars = 100\n")
    settings = load(
        environment,
        config_file=f"{tmp_path}/own.toml",
        socket="/f/s",
        cache_dir="/f/c",
        state_dir="/f/st",
    )

    assert (settings.socket, settings.cache_dir, settings.state_dir) == ("/f/s", "/f/c", "/f/st")
    assert settings.history.snippet_chars == 100


def test_a_configuration_file_that_was_named_must_be_there(environment, tmp_path):
    missing = f"{tmp_path}/none.toml"

    assert load(environment).config_file != missing
    with pytest.raises(BadRequest, match=f"{missing} does not exist"):
        load(environment, config_file=missing)
    environment["INDEXD_CONFIG"] = missing
    assert f"{missing} does not exist | correct --config or INDEXD_CONFIG" in refused(environment)
    config_edit.init(missing)
    assert load(environment).config_file == missing


# -- editing


def test_the_template_shows_exactly_the_defaults(environment, file):
    config_edit.init(str(file))
    untouched = load(environment)
    shown = tomllib.loads(
        "\n".join(
            line.removeprefix("# ") if " = " in line and "root" not in line else line
            for line in config_edit.TEMPLATE.splitlines()
            if not line.startswith(("# path", "# source", "# format", "# exclude"))
        )
    )

    assert config.values(untouched) == {
        f"{section}.{key}": value
        for section, table in shown.items()
        for key, value in table.items()
    }


def test_the_template_is_never_written_over_a_file(file):
    file.write_text("# mine\n")

    with pytest.raises(BadRequest, match="exists already"):
        config_edit.init(str(file))
    assert file.read_text() == "# mine\n"


def test_setting_a_value_keeps_comments_and_layout(file):
    file.write_text(
        '# head\n\n[[root]]\npath = "~/x"  # mine\n\n[tool_search]\n'
        "  min_pct=5# five\nthreshold = 1.5\n\n[history]\n# tail\n"
    )
    line = config_edit.set_value(str(file), "tool_search.min_pct", "10")

    assert line == "tool_search.min_pct = 10"
    assert file.read_text() == (
        '# head\n\n[[root]]\npath = "~/x"  # mine\n\n[tool_search]\n'
        "  min_pct=10# five\nthreshold = 1.5\n\n[history]\n# tail\n"
    )


def test_a_new_key_joins_its_table_and_a_new_table_the_end(file):
    file.write_text('[analysis]\nprofile = "seed"\n\n[[root]]\npath = "/a"\n')
    config_edit.set_value(str(file), "history.snippet_chars", "100")
    config_edit.set_value(str(file), "history.relative_score", "0")
    config_edit.set_value(str(file), "default_roots", "true")

    assert file.read_text() == (
        'default_roots = true\n[analysis]\nprofile = "seed"\n\n[[root]]\npath = "/a"\n\n'
        "[history]\nsnippet_chars = 100\nrelative_score = 0\n"
    )


def test_a_missing_file_is_made_for_its_owner_alone(tmp_path):
    file = tmp_path / "deep" / "config.toml"
    config_edit.set_value(str(file), "analysis.profile", "seed")

    assert file.read_text() == '[analysis]\nprofile = "seed"\n'
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_linked_file_stays_a_link_and_keeps_its_mode(tmp_path, file):
    real = tmp_path / "dotfiles.toml"
    real.write_text("")
    real.chmod(0o640)
    file.symlink_to(real)
    config_edit.set_value(str(file), "tool_search.enabled", "false")

    assert file.is_symlink()
    assert real.read_text() == "[tool_search]\nenabled = false\n"
    assert real.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("toolSearch.minPct", "tool_search.min_pct"),
        ("toolSearch.enabled", "tool_search.enabled"),
        ("tool_search.min_tokens", "tool_search.min_tokens"),
    ],
)
def test_kiros_spelling_is_understood(key, name):
    assert config_edit.canonical(key) == name


def test_an_unknown_setting_names_the_nearest(file):
    with pytest.raises(NotFound) as caught:
        config_edit.set_value(str(file), "toolSearch.minPercent", "1")
    assert caught.value.hint == "did you mean tool_search.min_pct?"


def test_a_value_out_of_bounds_leaves_the_file_alone(file):
    file.write_text("[tool_search]\nmin_pct = 5\n")

    with pytest.raises(BadRequest) as caught:
        config_edit.set_value(str(file), "tool_search.min_pct", "many")
    assert "a number from 0 to 100" in caught.value.hint
    assert file.read_text() == "[tool_search]\nmin_pct = 5\n"


@pytest.mark.parametrize(
    "text", ["tool_search.min_pct = 5\n", "tool_search = { min_pct = 5 }\n", '["tool_search"]\n']
)
def test_a_layout_that_is_not_understood_is_left_to_its_owner(file, text):
    file.write_text(text)

    with pytest.raises(BadRequest) as caught:
        config_edit.set_value(str(file), "tool_search.min_pct", "10")
    assert "by hand" in caught.value.hint
    assert file.read_text() == text


def test_the_value_in_force_is_told(environment, file):
    file.write_text("[tool_search]\nmin_pct = 9\n")
    settings, tables = load(environment), config.read(str(file))

    assert config_edit.value_of(tables, settings, "toolSearch.minPct") == 9
    assert config_edit.value_of(tables, settings, "default_roots") is True


@st.composite
def files(draw: st.DrawFn) -> str:
    """Draw configuration files of many layouts."""
    blocks = [
        f"[{section}]{draw(st.sampled_from(['', '  # about', ' ']))}\n"
        + "".join(
            draw(st.sampled_from(["", "\n", "# note\n", "  "]))
            + f"{key}{draw(st.sampled_from([' = ', '=', '  =  ']))}{value}"
            + draw(st.sampled_from(["\n", "  # why\n", " \n\n"]))
            for key, value in draw(
                st.lists(
                    st.sampled_from(DEFAULTS[section]), unique=True, max_size=len(DEFAULTS[section])
                )
            )
        )
        for section in draw(st.lists(st.sampled_from(sorted(DEFAULTS)), unique=True))
    ]
    head = draw(st.sampled_from(["", "# mine\n", "default_roots = true\n"]))
    return head + "".join(blocks)


DEFAULTS = {
    "analysis": [("profile", '"seed"')],
    "tool_search": [("enabled", "true"), ("min_pct", "5"), ("threshold", "1.5")],
    "history": [("snippet_chars", "240")],
}


@given(files(), st.sampled_from(config_edit.known_keys()))
def test_an_edit_changes_one_setting_and_no_other_byte_of_meaning(text: str, name: str):
    before = tomllib.loads(text)
    value = {"default_roots": False, "analysis.profile": "code"}.get(name, 7)
    section, _, key = name.rpartition(".")
    after = tomllib.loads(config_edit.edit(text, name, value))

    changed = after[section] if section else after
    assert changed.pop(key) == value
    (before.get(section, {}) if section else before).pop(key, None)
    if section and section not in before and not changed:
        del after[section]
    assert after == before
    kept = [line for line in text.splitlines() if line.startswith("#")]
    assert [
        line for line in config_edit.edit(text, name, value).splitlines() if line in kept
    ] == kept
