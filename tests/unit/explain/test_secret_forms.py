# SPDX-License-Identifier: Apache-2.0
"""Forms of secrets, and where none of them may be kept: values, names and labels of parts, and keys in words."""

from __future__ import annotations

import json
import time

import pytest

from lockcache.explain import key_in_words, make_part, state, statement_of
from lockcache.explain.secret_forms import holds_secret
from tests.secret_texts import PLAIN, SECRETS


@pytest.mark.parametrize("text", SECRETS)
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


@pytest.mark.parametrize("token", [text for text in SECRETS if " " not in text and "/" not in text])
def test_nothing_of_a_token_is_kept_in_the_name_of_a_part(token: str) -> None:
    assert token[:12] not in make_part(token, b"content").name


@pytest.mark.parametrize("text", PLAIN)
def test_what_is_not_a_secret_is_shown(text: str) -> None:
    assert not holds_secret(text)


@pytest.mark.parametrize("piece", ["key", "eyJa-", "--key", "mysql ", "a:b", "://a:", "webhook/", "-u a"])
def test_a_long_text_is_searched_in_linear_time(piece: str) -> None:
    began = time.process_time()
    holds_secret(piece * 20_000)
    holds_secret("--" + piece * 20_000)
    assert time.process_time() - began < 2
