"""Forms of secrets, and where none of them may be kept: values, names and labels of parts, and keys in words."""

from __future__ import annotations

import json
import time

import pytest

from lockcache.explain import key_in_words, make_part, state, statement_of
from lockcache.explain.secret_forms import holds_secret

_SECRETS = [
    "-DTOKEN=hunter3secret",
    "--define-macro=API_KEY=hunter3secret",
    "--password hunter3secret",
    "-p --client-secret hunter3secret",
    "password: hunter3secret",
    "'db_passwd' : hunter3secret",
    "https://user:hunter3secret@host/x",
    "redis://:hunter3secret@host",
    "git+ssh://hunter3secret@host/x",
    "https://host/x?sig=hunter3secret",
    "https://host/x?X-Amz-Signature=hunter3secret",
    "AccountKey=hunter3secret;EndpointSuffix=x",
    "Authorization: Bearer hunter3secret",
    "bearer hunter3secret",
    "Basic dXNlcjpodW50ZXI=",
    "-----BEGIN PRIVATE KEY-----",
    "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    "github_pat_11ABCDEFG0abcdefghij",
    "glpat-abcdefghijklmnopqrst",
    "hf_abcdefghijklmnopqrstuvwxyzABCD",
    "sk-proj-abcdefghijklmnopqrst",
    "xoxb-123456789012-abcdefghijkl",
    "AKIAIOSFODNN7EXAMPLE",
    "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "AIzaSyD-abcdefghijklmnopqrstuvwxyz12345",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc",
    "npm_abcdefghijklmnopqrstuvwxyz0123456789",
    "pypi-AgEIcHlwaS5vcmcCJDabcdef",
    "nvapi-abcdefghijklmnopqrstuvwxyz",
]
_PLAIN = [
    "sm_90a",
    "c++17",
    "scale<float, 128>",
    "fused bypass kernel",
    "key value attention",
    "/usr/local/cuda/include:/home/User1/Project2",
    "https://host/path",
    "std::pass::key",
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "_Z5scaleIfLi128EEvPT_S1_ifffffffffffffffffff",
    "12.8, 13.0",
    "--gpu-architecture=sm_90",
    "basic blocks",
]


@pytest.mark.parametrize("text", _SECRETS)
def test_what_has_the_form_of_a_secret_is_kept_nowhere(text: str) -> None:
    assert holds_secret(text)
    part = make_part("option", text.encode(), text)
    assert part.value == ""
    named = make_part(text, b"content", "shown")
    assert text[-8:] not in named.name
    state(b"key of the test", {"url": text, text: "value"}, label=text)
    stated = statement_of(b"key of the test")
    assert stated is not None
    kept = json.dumps([stated.label, stated.parts]) + stated.note().decode(errors="replace")
    assert text[-8:] not in kept
    assert key_in_words(text) == ""


@pytest.mark.parametrize("text", _PLAIN)
def test_what_is_not_a_secret_is_shown(text: str) -> None:
    assert not holds_secret(text)


@pytest.mark.parametrize("piece", ["key", "eyJa-", "--key"])
def test_a_long_text_is_searched_in_linear_time(piece: str) -> None:
    began = time.process_time()
    holds_secret(piece * 20_000)
    holds_secret("--" + piece * 20_000)
    assert time.process_time() - began < 2
