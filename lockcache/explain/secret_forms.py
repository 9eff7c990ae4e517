# SPDX-License-Identifier: Apache-2.0
"""Forms of secrets: texts that are not kept or shown, whatever the name under which they come.

A name such as ``TOKEN`` shows that its value is a secret (:func:`.key_parts.looks_secret`). Here the text itself does:
an assignment to such a name, a password in a URL, a token of a known kind. What is hidden by mistake is kept as its
hash.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator
from typing import Final

__all__ = ["SECRET_NAME", "holds_secret", "secrets_in"]

#: Words in the names of secrets.
SECRET_NAME: Final = (
    r"secret|token|pass|pwd|credential|auth|bearer|cookie|session|signature|salt|key|private|\bpin\b|\bsig\b"
)
# All are bounded: a text of a program may be long, and is searched in linear time. They are compiled at their first
# use: that takes longer than opening a cache, and a program that only reads has none.
_ASSIGNED: Final = (
    rf"(?i)(?:{SECRET_NAME})[\w.-]{{0,64}}['\"]?\s*[=:]\s*[^\s=:]"
    rf"|(?<!\S)--?[\w-]{{0,64}}(?:{SECRET_NAME})[\w-]{{0,64}}\s+\S"
)
_FORMS: Final = (
    r"(?i)://[^/\s@]+@"  # a user in a URL, mostly with a password
    r"|://[^/\s:@]{0,64}:(?!\d{1,5}/)[^@\n]{1,200}@"  # whose password may have anything in it
    r"|(?<!\S)[\w.+-]{1,64}:[^\s@/:]{1,64}@(?!sha\d)[\w.-]"  # without a scheme, and not an image by its digest
    r"|hooks\.slack\.com/|\bweb-?hooks?\w{0,4}/[\w/@.-]{8}|\bwebhook\.office"
    r"|-{4,5} ?BEGIN"
    r"|\b(?:basic|bearer)\s+[\w+/=.-]{8}"
    # Options without a word for it: -u user:password, and what programs take for one behind a single letter.
    r"|(?<!\S)(?:-u|--(?:proxy-)?user)[\s=]*(?!\d+:\d)[^\s:=]{1,64}:[^\s:/]"
    r"|\b(?:sshpass|mysql(?:dump|admin|import|show)?|mariadb(?:-[a-z]{1,10})?|(?:redis|valkey)-cli|mongo[a-z]{0,8}"
    r"|smbclient|(?:docker|podman|helm|skopeo|buildah)(?:\s+registry)?\s+login)\s(?:[^\n]{0,200}?\s)??-[apw]\s*\S"
)
# Tokens as those who issue them write them, so that a kernel's name is not taken for one: AWS, GCP, Azure, GitHub,
# GitLab, PyPI, npm, Docker, Slack, Hugging Face, NVIDIA, OpenAI and others.
_TOKENS: Final = (
    r"\bA(?:KIA|SIA|BIA|CCA)[0-9A-Z]{12}"
    r"|\b(?:AIza|ya29\.|1//0|GOCSPX-)[\w-]{12}"
    r"|\dQ~[\w.~-]{24}"
    r"|\b(?:gh[pousr]_|github_pat_)[A-Za-z0-9]{12}"
    r"|\bgl[a-z]{2,6}-[\w-]{16}"
    r"|\bpypi-AgE[\w-]{9}|\bnpm_[A-Za-z0-9]{20}|\bdckr_[a-z]{3}_[\w-]{12}"
    r"|\b(?:xox[a-z]|xapp)-[\w-]{10}"
    r"|\b(?:hf_|api_org_)[A-Za-z0-9]{20}|\bnvapi-[\w-]{12}"
    r"|\bsk-(?:[A-Za-z0-9]{20}|(?:proj|ant|svcacct|admin|or)-[\w-]{12})"
    r"|\b(?:[rsp]k_(?:live|test)_|whsec_|gsk_|r8_|lin_api_)[A-Za-z0-9]{16}"
    r"|\bSG\.[\w-]{16,32}\.[\w-]{16}|\bhv[sbr]\.[\w-]{20}|\bwandb_v\d_[\w-]{16}|\btskey-[a-z]{1,16}-\w{8}"
    r"|\b(?:dapi|shp(?:at|ca|pa|ss)_|do[opr]_v1_|PMAK-)[0-9a-f]{24}"
    r"|\bATATT3\w{12}|\bAGE-SECRET-KEY-"
    r"|\beyJ[\w-]{8,1000}\.[\w-]"  # JSON, as it begins in base64
)
# The form of a secret key of AWS: 40 letters of base64, upper and lower, and digits.
_AWS: Final = r"(?<![\w/+])(?=[\w/+]*[0-9])(?=[\w/+]*[a-z])(?=[\w/+]*[A-Z])[A-Za-z0-9+][A-Za-z0-9/+]{39}(?![\w/+])"


# What follows these names is where a secret stands, and not one.
_PLACE: Final = r"(?i)(?:file|path|dir)['\"]?\s*[=:\s]"
_URL: Final = r"://([^\s?#]{1,2000})"
# A part of a URL's path that nobody chose for its meaning.
_RANDOM: Final = r"(?a)(?=[^\d]*\d)(?=[^A-Za-z]*[A-Za-z])[\w~=-]{20,}"


def holds_secret(text: str) -> bool:
    """Returns whether a text has the form of a secret, or one in it."""
    return any(re.search(form, text) is not None for form in (_ASSIGNED, _FORMS, _TOKENS, _AWS)) or any(_in_paths(text))


def secrets_in(words: list[str]) -> list[tuple[int, int]]:
    """Returns where in the words of a command, one character between them, something has the form of a secret.

    Each place ends with its word, since nothing tells where in it a secret ends. A form may be in one word, or in a few
    next to each other, such as an option and its value.
    """
    places, begins, ends = list[tuple[int, int]](), list[int](), list[int]()
    for word in words:
        begins.append(ends[-1] + 1 if ends else 0)
        ends.append(begins[-1] + len(word))
        places += [(begins[-1] + first, ends[-1]) for first, _ in _places_in(word)]
    for first, last in _places_in(" ".join(words)):
        word_of_last = bisect.bisect_left(ends, last)
        places.append((max(first, begins[word_of_last]), ends[word_of_last]))
    return places


def _places_in(text: str) -> Iterator[tuple[int, int]]:
    for form in (_ASSIGNED, _FORMS, _TOKENS, _AWS):
        yield from _places(form, text)
    yield from _in_paths(text)


def _places(form: str, text: str) -> Iterator[tuple[int, int]]:
    """Yields where a secret begins, and where at least its first character is."""
    for match in re.finditer(form, text):
        first = match.start()
        if form is _ASSIGNED:
            if re.search(_PLACE, match[0]) is not None:
                continue
            first = match.end() - 1
        elif match[0].startswith("://"):
            first += 3
        yield first, match.end()


def _in_paths(text: str) -> Iterator[tuple[int, int]]:
    """Yields where in the path of a URL something stands that only a program can have made."""
    for url in re.finditer(_URL, text):
        at = url.start(1)
        for part in url[1].split("/"):
            if at > url.start(1) and re.fullmatch(_RANDOM, part) is not None:
                yield at, at + len(part)
            at += len(part) + 1
