# SPDX-License-Identifier: Apache-2.0
"""``make shape``: print all counts, what is allowed and what is aimed at; fail where a count is too high."""

from __future__ import annotations

import json
import sys
from typing import NamedTuple

from tests.shape.code import circles, code_lines, function_lengths, sources, special_cases
from tests.shape.limits import LIMITS, Limit
from tests.shape.operations import count_operations
from tests.shape.system_calls import count_system_calls


class Count(NamedTuple):
    """One count, and its limit."""

    name: str
    found: int
    limit: Limit

    @property
    def is_too_high(self) -> bool:
        """Whether it is above what is allowed."""
        return self.found > self.limit.allowed


def count_all() -> dict[str, int]:
    """Returns all counts by their names."""
    counts: dict[str, int] = {}
    for name, passed in count_operations().items():
        counts[f"{name}: functions"] = passed.functions
        if f"{name}: calls" in LIMITS:  # not of what lists a directory, which depends on what is in it
            counts[f"{name}: calls"] = passed.calls
    counts |= count_system_calls()
    library = sources("lockcache")
    lengths = function_lengths([*library, *sources("daemon"), *sources("stress")])
    counts["lines of a function, nine of ten"] = lengths[len(lengths) * 9 // 10]
    counts["lines of a function, the longest"] = lengths[-1]
    counts["conditions on a special case, lockcache"] = special_cases(library)
    by_modules, by_packages = circles("lockcache")
    counts["circles of imports, modules"] = by_modules
    counts["circles of imports, packages"] = by_packages
    for folder in ("lockcache", "daemon", "stress", "tests"):
        counts[f"code lines, {folder}"] = sum(map(code_lines, sources(folder)))
    return counts


def main() -> int:
    """Print the table, or JSON with ``--json``. Returns 1 where a count is too high."""
    counts = [Count(name, found, LIMITS[name]) for name, found in count_all().items()]
    if "--json" in sys.argv[1:]:
        print(json.dumps({each.name: each.found for each in counts}, indent=2))
    else:
        print(f"{'':45} {'now':>7} {'allowed':>8} {'aim':>7}")
        for each in counts:
            aim = "" if each.limit.aim is None else str(each.limit.aim)
            print(f"{each.name:45} {each.found:7} {each.limit.allowed:8} {aim:>7}{' too high' * each.is_too_high}")
    return int(any(each.is_too_high for each in counts))


if __name__ == "__main__":
    sys.exit(main())
