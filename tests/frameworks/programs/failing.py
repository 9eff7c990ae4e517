# SPDX-License-Identifier: Apache-2.0
"""A program's compilations, in each of which one call of the system that lockcache makes fails, or all later ones too.

Calls that the framework makes itself do not fail: their errors are the framework's.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

from lockcache.integrations.adapter import installing
from tests.failing import KINDS, FailingCalls, replace_calls


def compile_with_failures(compile_kernel: Callable[[int], bool], kernels: Sequence[int]) -> dict[str, object]:
    """Compile each of ``kernels`` at most once. Returns what was wrong or raised, and how many calls failed.

    With the word "few", the first call of each kind and all later ones.
    """
    calls = FailingCalls(_is_of_lockcache)
    replace_calls(calls, setattr)
    numbers, wrong = iter(kernels), list[str]()
    count, is_short, failed = 0, "few" in sys.argv, set[str]()
    for kind in KINDS:
        for left in calls.sites(lambda: compile_kernel(next(numbers)), kind):
            if is_short and kind in failed:
                continue
            failed.add(kind)
            for goes_on in (True,) if is_short else (False, True):
                for shared in installing._installed.values():
                    shared.has_failed = False
                count += 1
                wrong += _compile(
                    calls, compile_kernel, next(numbers), f"{kind} {left} {goes_on}", (kind, left, goes_on)
                )
    return {"failures": count, "wrong": wrong}


def _compile(
    calls: FailingCalls, compile_kernel: Callable[[int], bool], number: int, name: str, fails: tuple[str, int, bool]
) -> Iterator[str]:
    kind, left, goes_on = fails
    try:
        with calls.failing(kind, left, errno.EIO, goes_on=goes_on):
            if not compile_kernel(number):
                yield f"{name}: another result"
    except Exception as error:  # noqa: BLE001 - the test hears of it
        yield f"{name}: {type(error).__name__}: {error}"


def _is_of_lockcache(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).startswith("lockcache.") and os.sep in frame.f_code.co_filename
