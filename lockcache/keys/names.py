"""Names of programs, for people: what ``lockcache ls`` shows in place of a hash, and a waiting process in its log.

A program is called by the name that its options give it, else by its name expressions, else by the kernels that its
source defines. Found by their usual spelling, not by parsing: a name that is missed, or is of a kernel in a comment, is
only words. No part of any key.
"""

from __future__ import annotations

import re
from typing import Final

from lockcache.keys.request import Request

_MOST_NAMES: Final = 3
_DEFAULT: Final = "default_program"  # cuda.core's, for a program without a name
# Bounded: between the words stand a type and a name or two.
_KERNEL: Final = {
    "c++": re.compile(rb"__global__[^;{}(]{1,200}\b(\w{1,80})\s*\("),
    "ptx": re.compile(rb"\.entry\s+([\w$]{1,80})"),
    "nvvm": re.compile(rb"\*?\s@([\w$.]{1,80}),\s*!\"kernel\"|define ptx_kernel[^@\n]{0,80}@([\w$.]{1,80})"),
}
# What is written like a function in front of one.
_ATTRIBUTE: Final = re.compile(rb"__(?:launch_bounds|attribute|maxnreg|cluster_dims|block_size)__\s*\([^;{}]{0,100}?\)")


def label_of(request: Request) -> str:
    """Returns a name for people; never the source, of which identifiers are shown."""
    name = request.options.name
    if name and name != _DEFAULT:
        return str(name)
    expressions = request.name_expressions
    if expressions:
        return _listed([each if isinstance(each, str) else each.decode(errors="replace") for each in expressions])
    return _kernels(request.code, request.code_type) or str(name or "")


def _kernels(code: bytes, code_type: str) -> str:
    matches = _KERNEL[code_type].finditer(_ATTRIBUTE.sub(b" ", code))
    return _listed([*dict.fromkeys(match[match.lastindex or 0].decode() for match in matches)])


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more
