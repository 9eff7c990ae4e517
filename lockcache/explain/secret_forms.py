"""Forms of secrets: texts that are not kept, whatever the name under which they come.

A name such as ``TOKEN`` shows that its value is a secret (:func:`.key_parts.looks_secret`). Here the text itself does:
an assignment to such a name, a password in a URL, a token of a known kind. What is hidden by mistake is kept as its
hash.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["SECRET_NAME", "holds_secret"]

#: Words in the names of secrets.
SECRET_NAME: Final = (
    r"secret|token|pass|pwd|credential|auth|bearer|cookie|session|signature|salt|key|private|\bpin\b|\bsig\b"
)
# All are bounded: a text of a program may be long, and is searched in linear time.
_ASSIGNED: Final = re.compile(
    rf"(?:{SECRET_NAME})[\w.-]{{0,64}}['\"]?\s*[=:]\s*[^\s=:]"
    rf"|(?<!\S)--?[\w-]{{0,64}}(?:{SECRET_NAME})[\w-]{{0,64}}\s+\S",
    re.IGNORECASE,
)
_FORMS: Final = re.compile(
    r"://[^/\s@]+@"  # a user in a URL, mostly with a password
    r"|-----BEGIN"
    r"|\b(?:basic|bearer)\s+[\w+/=.-]{8}"
    r"|\b(?:gh[pousr]_|github_pat_|glpat-|hf_|sk-|pypi-|npm_|nvapi-|dckr_pat_|ya29\.|xox[abeprs]-|AIza)[\w-]{12}"
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{12}"
    r"|\beyJ[\w-]{8,1000}\.[\w-]",  # JSON, as it begins in base64
    re.IGNORECASE,
)
# The form of a secret key of AWS: 40 letters of base64, upper and lower, and digits.
_AWS: Final = re.compile(
    r"(?<![\w/+])(?=[\w/+]*[0-9])(?=[\w/+]*[a-z])(?=[\w/+]*[A-Z])[A-Za-z0-9+][A-Za-z0-9/+]{39}(?![\w/+])"
)


def holds_secret(text: str) -> bool:
    """Returns whether a text has the form of a secret, or one in it."""
    return any(form.search(text) is not None for form in (_ASSIGNED, _FORMS, _AWS))
