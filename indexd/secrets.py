"""Keys, tokens and passwords in a text, replaced by `[secret]` before anybody sees or counts them.

Every text that is indexed or shown passes here and almost none holds a secret, so the cost of
finding nothing is what matters: each family of secrets has a beginning that is looked for first,
anchored at a letter that is rare in text, and its exact pattern runs only where that was found.
"""

from __future__ import annotations

import re

SECRET = "[secret]"

# No secret that is recognised here is shorter.
MIN_LENGTH = 12

# What may stand before a key: nothing of a longer word, but the `\n` of a text quoted once more.
_START = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))"
# A body is no row of plain words: it soon has a digit or a capital.
_BODY = r"(?=[a-z_-]{0,40}[A-Z0-9])[A-Za-z0-9_-]"

# The beginnings start with a single literal, which `re` searches an order of magnitude faster
# than a choice of several; what must precede it is looked for backwards.
_DASHED = re.compile(
    r"-[A-Za-z0-9](?:(?<=sk-.)(?:(?<![A-Za-z0-9]sk-.)|(?<=\\[nrt]sk-.))"
    r"|(?<=xox[a-z]-.)|(?<=glpat-.)|(?<=pypi-.))"
).search
_DASHED_KEY = re.compile(
    rf"{_START}(?:(?:sk|glpat|pypi)-{_BODY}{{16,}}|xox[a-z]-{_BODY}{{10,}})",
)
_LINED = re.compile(
    r"_[A-Za-z0-9]{6}(?:(?<=gh[oprsu]_.{6})|(?<=_pat_.{6})|(?<=hf_.{6})|(?<=npm_.{6}))"
).search
_LINED_KEY = re.compile(rf"{_START}(?:gh[oprsu]|github_pat|hf|npm)_{_BODY}{{16,}}")
_CAPITAL = re.compile(r"I(?:(?<=A[KS]I)A|(?<=AI)za|(?<=PRI)VATE KEY)").search
_CAPITAL_KEY = re.compile(
    rf"{_START}(?:A[KS]IA[A-Z0-9]{{16}}(?![A-Za-z0-9])|AIza{_BODY}{{30,}})"
    r"|-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"
    r"(?:(?:(?!-----BEGIN).){0,20000}?-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"
    r"|(?:[A-Za-z0-9+/=]{16,}|\s|\\[nr])*)",
    re.DOTALL,
)
_TOKEN = re.compile(r"J(?<=eyJ)").search
_WEB_TOKEN = re.compile(
    rf"(?<![_-]){_START}eyJ[A-Za-z0-9_-]{{5,}}\.[A-Za-z0-9_-]{{5,}}(?:\.[A-Za-z0-9_-]*)?"
)
_BEARER = re.compile(r"\b([Bb]earer +)(?=[a-z._~+/-]{0,40}[A-Z0-9])[A-Za-z0-9._~+/-]{12,}=*")
_URL_PASSWORD = re.compile(r"(://[^\s/:@\"'<>]{0,256}:)[^\s/@\"'<>]{1,256}(?=@)")


def mask(text: str) -> str:
    """Return `text` with every recognised secret replaced by `[secret]`.

    Recognised are provider keys (OpenAI, Anthropic, GitHub, GitLab, AWS, Google, Slack,
    Hugging Face, npm, PyPI), bearer tokens, JSON web tokens, private-key blocks, and passwords
    inside URLs.
    """
    if len(text) < MIN_LENGTH:
        return text
    if "-" in text and _DASHED(text):
        text = _DASHED_KEY.sub(SECRET, text)
    if "_" in text and _LINED(text):
        text = _LINED_KEY.sub(SECRET, text)
    if "I" in text and _CAPITAL(text):
        text = _CAPITAL_KEY.sub(SECRET, text)
    if "J" in text and _TOKEN(text):
        text = _WEB_TOKEN.sub(SECRET, text)
    if "earer " in text:
        text = _BEARER.sub(rf"\1{SECRET}", text)
    if "@" in text and "://" in text:
        text = _URL_PASSWORD.sub(rf"\1{SECRET}", text)
    return text
