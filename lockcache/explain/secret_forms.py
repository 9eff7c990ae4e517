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
    r"|://[^/\s:@]{0,64}:(?!\d{1,5}/)[^@\n]{1,200}@"  # whose password may have anything in it
    r"|(?<!\S)[\w.+-]{1,64}:[^\s@/:]{1,64}@(?!sha\d)[\w.-]"  # without a scheme, and not an image by its digest
    r"|hooks\.slack\.com/|\bweb-?hooks?\w{0,4}/[\w/@.-]{8}|\bwebhook\.office"
    r"|-{4,5} ?BEGIN"
    r"|\b(?:basic|bearer)\s+[\w+/=.-]{8}"
    # Options without a word for it: -u user:password, and what programs take for one behind a single letter.
    r"|(?<!\S)(?:-u|--(?:proxy-)?user)[\s=]*(?!\d+:\d)[^\s:=]{1,64}:[^\s:/]"
    r"|\b(?:sshpass|mysql(?:dump|admin|import|show)?|mariadb(?:-[a-z]{1,10})?|(?:redis|valkey)-cli|mongo[a-z]{0,8}"
    r"|smbclient|(?:docker|podman|helm|skopeo|buildah)(?:\s+registry)?\s+login)\s(?:[^\n]{0,200}\s)?-[apw]\s*\S",
    re.IGNORECASE,
)
# Tokens as those who issue them write them, so that a kernel's name is not taken for one: AWS, GCP, Azure, GitHub,
# GitLab, PyPI, npm, Docker, Slack, Hugging Face, NVIDIA, OpenAI and others.
_TOKENS: Final = re.compile(
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
_AWS: Final = re.compile(
    r"(?<![\w/+])(?=[\w/+]*[0-9])(?=[\w/+]*[a-z])(?=[\w/+]*[A-Z])[A-Za-z0-9+][A-Za-z0-9/+]{39}(?![\w/+])"
)


def holds_secret(text: str) -> bool:
    """Returns whether a text has the form of a secret, or one in it."""
    return any(form.search(text) is not None for form in (_ASSIGNED, _FORMS, _TOKENS, _AWS))
