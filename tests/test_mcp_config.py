"""Clients' MCP configurations: six dialects, variables, off switches, secrets, duplicates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexd.errors import BadRequest, NotFound
from indexd.mcp_config import ServerSpec, Source, find_files, load, named_file, once, read
from indexd.mcp_entry import Context


@pytest.fixture
def context(tmp_path: Path) -> Context:
    home, workspace = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    workspace.mkdir()
    environment = {"PATH": "/bin", "HOME": str(home), "TOKEN": "s3cr3t-t0ken", "CI": "1"}
    return Context(home, workspace, environment)


def write(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def servers(context: Context, client: str, content: Any, name: str = "f.json") -> list[ServerSpec]:
    return read(Source(client, write(context.home / name, content)), context)


def one(context: Context, client: str, entry: Any, **more: Any) -> ServerSpec:
    key = {"vscode": "servers"}.get(client, "mcpServers")
    (spec,) = servers(context, client, {key: {"it": entry}, **more})
    return spec


# --- dialects ------------------------------------------------------------------------------


def test_kiro_fills_both_spellings_of_a_variable(context: Context) -> None:
    entry = {
        "command": "run",
        "args": ["${TOKEN}", "x"],
        "env": {"A": "${env:TOKEN}", "B": "plain"},
        "timeout": 5000,
        "disabledTools": ["drop"],
    }
    spec = one(context, "kiro", entry)
    assert (spec.command, spec.args) == ("run", ("s3cr3t-t0ken", "x"))
    assert (spec.environment["A"], spec.environment["B"]) == ("s3cr3t-t0ken", "plain")
    assert spec.timeout_s == 5
    assert spec.wants("read")
    assert not spec.wants("drop")


def test_claude_knows_defaults_and_http(context: Context) -> None:
    entry = {
        "type": "http",
        "url": "https://${HOST:-example.org}/mcp",
        "headers": {"Authorization": "Bearer ${TOKEN}"},
    }
    spec = one(context, "claude", entry)
    assert (spec.transport, spec.url) == ("http", "https://example.org/mcp")
    assert spec.headers == {"Authorization": "Bearer s3cr3t-t0ken"}


def test_claude_reads_the_projects_local_servers_before_the_users(context: Context) -> None:
    content = {
        "mcpServers": {"user": {"command": "a"}, "off": {"command": "c"}},
        "projects": {
            str(context.workspace): {
                "mcpServers": {"local": {"command": "b"}},
                "disabledMcpServers": ["off"],
            },
            "/elsewhere": {"mcpServers": {"other": {"command": "d"}}},
        },
    }
    found = {spec.name: spec.skip for spec in servers(context, "claude", content)}
    assert found == {"local": "", "user": "", "off": "disabled for this project"}


def test_cursor_fills_places_and_an_env_file(context: Context) -> None:
    write(context.workspace / ".env", "# note\nexport KEY='from file'\nOTHER=2\n")
    entry = {
        "command": "${userHome}/bin/x",
        "args": ["${workspaceFolder}", "${env:CI}"],
        "envFile": "${workspaceFolder}/.env",
        "env": {"OTHER": "3"},
    }
    spec = one(context, "cursor", entry)
    assert spec.command == f"{context.home}/bin/x"
    assert spec.args == (str(context.workspace), "1")
    assert (spec.environment["KEY"], spec.environment["OTHER"]) == ("from file", "3")


def test_vscode_servers_that_ask_are_skipped_with_the_reason(context: Context) -> None:
    content = """{
        // what it asks for
        "inputs": [{"id": "key", "type": "promptString"}],
        "servers": {
            "asks": {"type": "stdio", "command": "a", "env": {"KEY": "${input:key}"}},
            "plain": {"type": "sse", "url": "http://localhost:1/sse"}, /* "x": 1 */
        },
    }"""
    asks, plain = servers(context, "vscode", content)
    assert asks.skip == "needs interaction: it asks for 'key'"
    assert (plain.skip, plain.transport) == ("", "sse")


CODEX = """
[mcp_servers.docs]
command = "docs"
env = { A = "1" }
env_vars = ["TOKEN", { name = "CI", source = "local" }]
cwd = "/srv"
startup_timeout_sec = 20
enabled_tools = ["a", "b"]
disabled_tools = ["b"]

[mcp_servers.web]
url = "https://example.org/mcp"
bearer_token_env_var = "TOKEN"
http_headers = { X-Plain = "p" }
env_http_headers = { X-Key = "TOKEN" }

[mcp_servers.off]
command = "off"
enabled = false

[mcp_servers.mixed]
command = "x"
url = "https://example.org"

[mcp_servers.unset]
url = "https://example.org"
bearer_token_env_var = "NOWHERE"
"""


def test_codex_is_read_from_toml(context: Context) -> None:
    docs, web, off, mixed, unset = servers(context, "codex", CODEX, "config.toml")
    assert (docs.cwd, docs.timeout_s) == ("/srv", 20)
    assert docs.environment == {
        "PATH": "/bin",
        "HOME": str(context.home),
        "TOKEN": "s3cr3t-t0ken",
        "CI": "1",
        "A": "1",
    }
    assert [tool for tool in "abc" if docs.wants(tool)] == ["a"]
    assert web.headers == {
        "X-Plain": "p",
        "X-Key": "s3cr3t-t0ken",
        "Authorization": "Bearer s3cr3t-t0ken",
    }
    assert off.skip == "disabled"
    assert "mcp_servers.mixed has both command and url" in mixed.skip
    assert unset.skip == "the variable NOWHERE is not set"


def test_codex_passes_on_only_what_is_listed(context: Context) -> None:
    (spec,) = servers(context, "codex", '[mcp_servers.a]\ncommand = "a"\n', "config.toml")
    assert "TOKEN" not in spec.environment


def test_gemini_tells_streamable_from_sse_and_obeys_its_lists(context: Context) -> None:
    content = {
        "mcp": {"allowed": ["a", "b", "c"], "excluded": ["c"]},
        "mcpServers": {
            "a": {"httpUrl": "https://example.org/mcp", "timeout": 1000},
            "b": {"url": "https://example.org/sse", "includeTools": ["x"]},
            "c": {"command": "c"},
            "d": {"command": "d"},
        },
    }
    a, b, c, d = servers(context, "gemini", content)
    assert (a.transport, a.timeout_s, b.transport) == ("http", 1, "sse")
    assert [tool for tool in "xy" if b.wants(tool)] == ["x"]
    assert c.skip == d.skip == "disabled by mcp.allowed or mcp.excluded"


def test_gemini_fills_every_spelling_and_leaves_the_unset_empty(context: Context) -> None:
    entry = {"command": "x", "env": {"A": "$TOKEN-${CI}-%CI%", "B": "${NOWHERE}"}}
    spec = one(context, "gemini", entry)
    assert spec.environment["A"] == "s3cr3t-t0ken-1-1"
    assert spec.environment["B"] == ""
    assert "TOKEN" not in spec.environment
    assert spec.environment["PATH"] == "/bin"


@pytest.mark.parametrize("client", ["kiro", "claude", "cursor"])
def test_a_variable_that_is_not_set_skips_the_server_and_names_it(
    context: Context, client: str
) -> None:
    text = {"cursor": "${env:NOWHERE}"}.get(client, "${NOWHERE}")
    spec = one(context, client, {"command": "x", "args": [text]})
    assert spec.skip == "the variable NOWHERE is not set"


@pytest.mark.parametrize(
    ("client", "entry", "reason"),
    [
        ("kiro", {"command": "x", "disabled": True}, "disabled"),
        ("kiro", {"url": "https://e.org", "oauth": {"clientId": "x"}}, "needs sign-in"),
        ("claude", {"type": "http", "url": "https://e.org", "headersHelper": "x"}, "sign in"),
        ("cursor", {"url": "https://e.org", "auth": {"CLIENT_ID": "x"}}, "needs sign-in"),
        ("cursor", {"command": "${command:pick}"}, "needs its editor"),
        ("claude", {"type": "ws", "url": "wss://e.org"}, "type 'ws' is not supported"),
        ("claude", {"type": "http"}, "mcpServers.it.url is missing"),
        ("claude", {"url": "file:///etc/passwd"}, "not an http address"),
        ("claude", {}, "neither command nor url"),
        ("claude", "text", "mcpServers.it is not a map"),
        ("claude", {"command": ["a", "b"]}, "mcpServers.it.command is a list"),
        ("claude", {"command": "a", "args": [1]}, "mcpServers.it.args holds a int"),
        ("claude", {"command": "a", "env": {"K": [1]}}, "mcpServers.it.env.K is not a string"),
        ("kiro", {"command": "a", "timeout": True}, "mcpServers.it.timeout is a bool"),
        ("vscode", {"type": "stdio", "command": "a", "envFile": "/none"}, "envFile cannot be"),
    ],
)
def test_what_cannot_be_used_is_skipped_with_the_reason(
    context: Context, client: str, entry: Any, reason: str
) -> None:
    assert reason in one(context, client, entry).skip


def test_a_bad_server_costs_no_neighbour(context: Context) -> None:
    content = {"mcpServers": {"a": {"command": "a"}, "b": 3, "c": {"command": "c"}}}
    assert [not s.skip for s in servers(context, "claude", content)] == [True, False, True]


# --- files ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", '{"a": 1,\n  "b": }', "not JSON at line 2 column 8"),
        ("a.json", "[1]", "holds a list, not a map"),
        ("a.toml", "a = ", "not TOML"),
        ("b.json", '{"mcpServers": [1]}', "mcpServers is not a map of servers"),
    ],
)
def test_a_file_that_cannot_be_read_is_an_error_that_names_it(
    context: Context, name: str, text: str, message: str
) -> None:
    path = write(context.home / name, text)
    with pytest.raises(BadRequest) as error:
        read(Source("claude", path), context)
    assert error.value.message.startswith(f"{path}: ")
    assert message in error.value.message


def test_comments_and_trailing_commas_are_no_mistakes(tmp_path: Path) -> None:
    text = '\ufeff{"url": "http://x", // a, b\n "list": [1, 2,], /* } */ "t": ",}" ,}'
    assert load(write(tmp_path / "a.json", text)) == {"url": "http://x", "list": [1, 2], "t": ",}"}


@given(st.dictionaries(st.text(), st.text(), max_size=4))
def test_any_json_reads_as_itself(tmp_path_factory: Any, content: dict[str, str]) -> None:
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_text(json.dumps(content, ensure_ascii=False), "utf-8", "surrogatepass")
    try:
        path.read_text("utf-8")
    except UnicodeDecodeError:
        return
    assert load(path) == content


def test_the_default_places_of_every_client_are_found(context: Context) -> None:
    user = {
        "kiro": ".kiro/settings/mcp.json",
        "claude": ".claude.json",
        "cursor": ".cursor/mcp.json",
        "vscode": ".config/Code/User/mcp.json",
        "codex": ".codex/config.toml",
        "gemini": ".gemini/settings.json",
    }
    project = {**user, "claude": ".mcp.json", "vscode": ".vscode/mcp.json"}
    for base, places in ((context.home, user), (context.workspace, project)):
        for place in places.values():
            write(base / place, "")
    found = find_files(context)
    assert [source.project for source in found] == [True] * 6 + [False] * 6
    assert {s.client: s.path for s in found if not s.project} == {
        client: context.home / place for client, place in user.items()
    }


def test_variables_move_the_users_files(context: Context, tmp_path: Path) -> None:
    moved = {name: tmp_path / name for name in ("KIRO_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME")}
    write(moved["KIRO_HOME"] / "settings/mcp.json", {})
    write(moved["CLAUDE_CONFIG_DIR"] / ".claude.json", {})
    write(moved["CODEX_HOME"] / "config.toml", "")
    there = context._replace(environment={key: str(path) for key, path in moved.items()})
    assert [source.client for source in find_files(there)] == ["kiro", "claude", "codex"]


def test_in_the_home_directory_the_users_own_files_are_no_projects(context: Context) -> None:
    write(context.home / ".cursor/mcp.json", {"mcpServers": {}})
    write(context.home / ".mcp.json", {"mcpServers": {}})
    at_home = Context(context.home, context.home, context.environment)
    found = {(source.client, source.project) for source in find_files(at_home)}
    assert found == {("cursor", False), ("claude", True)}


@pytest.mark.parametrize(
    ("place", "content", "client"),
    [
        (".kiro/agents/a.json", {"mcpServers": {}}, "kiro"),
        (".gemini/settings.json", {"mcpServers": {}}, "gemini"),
        ("mcp.json", {"servers": {}}, "vscode"),
        ("other.toml", "[mcp_servers.a]\ncommand = 'a'", "codex"),
    ],
)
def test_a_named_file_tells_its_client(
    tmp_path: Path, place: str, content: Any, client: str
) -> None:
    assert named_file(write(tmp_path / place, content)).client == client


def test_a_named_file_without_servers_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        named_file(tmp_path / "none.json")
    with pytest.raises(BadRequest, match="none of the keys mcpServers, mcp_servers, servers"):
        named_file(write(tmp_path / "a.json", {"other": 1}))


# --- trust, duplicates, secrets ------------------------------------------------------------


def test_a_projects_servers_need_the_users_approval(context: Context) -> None:
    path = write(context.workspace / ".mcp.json", {"mcpServers": {"a": {"command": "a"}}})
    source = Source("claude", path, project=True)
    (spec,) = read(source, context)
    assert spec.skip == f"a project's file; to use it run `indexctl mcp sync {path}`"
    assert read(source, context, trusted=True)[0].skip == ""
    answers = {"projects": {str(context.workspace): {"enabledMcpjsonServers": ["a"]}}}
    write(context.home / ".claude.json", answers)
    assert read(source, context)[0].skip == ""
    write(context.home / ".claude/settings.json", {"disabledMcpjsonServers": ["a"]})
    assert read(source, context)[0].skip


def test_codex_uses_a_trusted_projects_file(context: Context) -> None:
    path = write(context.workspace / ".codex/config.toml", '[mcp_servers.a]\ncommand = "a"\n')
    source = Source("codex", path, project=True)
    assert read(source, context)[0].skip
    trust = f'[projects."{context.workspace}"]\ntrust_level = "trusted"\n'
    write(context.home / ".codex/config.toml", trust)
    assert read(source, context)[0].skip == ""


def test_the_same_server_in_two_files_is_used_once(context: Context) -> None:
    first = {"mcpServers": {"git": {"command": "g", "args": ["x"]}, "web": {"url": "http://w"}}}
    second = {
        "mcpServers": {
            "git2": {"command": "g", "args": ["x"]},
            "web": {"url": "http://other"},
            "new": {"command": "g", "args": ["y"]},
        }
    }
    specs = [*servers(context, "kiro", first, "a"), *servers(context, "cursor", second, "b")]
    skipped = {spec.name: spec.skip for spec in once(specs)[2:]}
    path = context.home / "a"
    assert skipped == {
        "git2": f"the same server as 'git' in {path}",
        "web": f"another server has this name in {path}",
        "new": "",
    }


def test_two_accounts_of_one_server_in_one_file_stay(context: Context) -> None:
    entry = {"command": "g"}
    content = {
        "mcpServers": {"a": {**entry, "env": {"T": "one"}}, "b": {**entry, "env": {"T": "two"}}}
    }
    assert [spec.skip for spec in once(servers(context, "kiro", content))] == ["", ""]


def test_hidden_values_are_in_no_repr_and_are_masked(context: Context) -> None:
    stdio = one(
        context,
        "claude",
        {
            "command": "run",
            "args": ["--key", "opt-secret", "--token=eq-secret", "${TOKEN}"],
            "env": {"PASS": "env-secret"},
        },
    )
    http = one(
        context,
        "claude",
        {
            "type": "http",
            "url": "https://example.org/path-secret?key=query-secret",
            "headers": {"Authorization": "Bearer head-secret"},
        },
    )
    said = "opt-secret eq-secret s3cr3t-t0ken env-secret"
    assert stdio.mask(said) == "*** *** *** ***"
    assert http.mask("head-secret path-secret?key=query-secret") == "*** ***"
    for spec in (stdio, http):
        assert "secret" not in repr(spec).replace("s3cr3t", "secret")


def test_the_reason_of_a_bad_value_never_shows_the_value(context: Context) -> None:
    spec = one(context, "claude", {"command": "x", "env": {"KEY": ["top-secret"]}})
    assert "top-secret" not in spec.skip
