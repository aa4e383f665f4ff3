from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexd.secrets import mask

# Assembled here, so that no scanner takes this file for a leak.
BODY = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
KEYS = {
    "openai": "sk-" + BODY,
    "openai project": "sk-proj-" + BODY + "_x-" + BODY,
    "anthropic": "sk-ant-" + "api03-" + BODY + "-" + BODY,
    "github": "ghp_" + BODY,
    "github app": "ghs_" + BODY,
    "github fine": "github_pat_" + "11" + BODY[:20] + "_" + BODY,
    "aws": "AKIA" + "IOSFODNN7EXAMPLE",
    "aws session": "ASIA" + "IOSFODNN7EXAMPLE",
    "google": "AIza" + "Sy" + BODY[:33],
    "slack": "xoxb-" + "123456789012-123456789012-" + BODY[:24],
    "gitlab": "glpat-" + BODY[:20],
    "hugging face": "hf_" + BODY[:34],
    "npm": "npm_" + BODY,
    "pypi": "pypi-" + "AgEIcHlwaS5vcmc" + BODY,
    "web token": "eyJ" + "hbGciOiJIUzI1NiJ9" + ".eyJ" + "zdWIiOiIxMjM0In0" + "." + BODY,
}


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize(
    "around", ["{}", "KEY={} # end", '{{"key":"{}"}}', "first\\n{}\\nlast", "見て{}。"]
)
def test_a_key_is_masked_and_nothing_else(name: str, around: str) -> None:
    assert mask(around.format(KEYS[name])) == around.format("[secret]")


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer " + BODY,
        "authorization: bearer " + BODY,
        "curl -H 'Authorization: Bearer " + BODY + "'",
    ],
)
def test_a_bearer_token_is_masked_but_not_the_word(text: str) -> None:
    assert BODY not in mask(text)
    assert "earer [secret]" in mask(text)


def test_a_private_key_block_is_masked_whole() -> None:
    block = "-----BEGIN RSA PRIVATE" + " KEY-----\n" + "MIIEow" + BODY * 3 + "\n" + BODY + "==\n"
    end = "-----END RSA PRIVATE" + " KEY-----"
    assert mask(f"before\n{block}{end}\nafter") == "before\n[secret]\nafter"
    escaped = (block + end).replace("\n", "\\n")
    assert mask(f'{{"key":"{escaped}"}}') == '{"key":"[secret]"}'


def test_a_private_key_that_is_cut_off_is_masked_as_far_as_it_goes() -> None:
    block = "-----BEGIN OPENSSH PRIVATE" + " KEY-----\n" + BODY * 2 + "\n" + BODY
    assert BODY not in mask(f"{block}\nthe rest of the talk")
    assert mask(f"{block}\nthe rest of the talk").endswith("the rest of the talk")


def test_a_password_in_a_url_is_masked_and_its_user_and_host_are_kept() -> None:
    text = "postgres://ana:s3cr3t!pw@db.local:5432/kettle and redis://:pw@cache"
    wanted = "postgres://ana:[secret]@db.local:5432/kettle and redis://:[secret]@cache"
    assert mask(text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "task-management-of-something-long and risk-free-as-it-can-possibly-be",
        "sk-learn-compatible-estimators-everywhere",
        "export npm_config_registry and npm_lifecycle_event",
        "from huggingface_hub import hf_hub_download",
        "the bearer of bad news, bearer authentication",
        "https://example.org:8080/@scope/package and git@github.com:ana/kettle.git",
        "http://localhost:3000/a?mail=ana@example.org",
        "AKIA is a prefix, AIza another, eyJ a third, ghp_ a fourth",
        "grep -- '-----BEGIN' file; the PRIVATE KEY header",
        "",
    ],
)
def test_what_only_looks_like_a_secret_is_left_alone(text: str) -> None:
    assert mask(text) == text


@given(st.text())
def test_masking_twice_is_masking_once(text: str) -> None:
    assert mask(mask(text)) == mask(text)


@given(st.text(), st.sampled_from(sorted(KEYS)), st.text())
def test_a_key_between_any_texts_is_never_shown(before: str, name: str, after: str) -> None:
    assert KEYS[name] not in mask(f"{before} {KEYS[name]} {after}")
