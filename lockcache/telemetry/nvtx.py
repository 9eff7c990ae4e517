# SPDX-License-Identifier: Apache-2.0
"""NVTX: a range for each compilation, and for each wait for another process's, as Nsight Systems shows them.

Without a profiler, NVTX's own functions do nothing. A range belongs to the process and to no thread, because any thread
may end a turn. Not promised: ranges of compilations that are stored without a turn, which nobody saw begin.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from lockcache.arguments import warn_once
from lockcache.serving import watch
from lockcache.sizes import printable

__all__ = ["mark_ranges"]

_DOMAIN: Final = "lockcache"
_COLORS: Final = {"compile": "orange", "wait for": "blue"}
_LONGEST_NAME: Final = 200


def mark_ranges() -> None:
    """Mark the compilations and waits of this process from now on, in the domain ``lockcache`` of NVTX.

    Nothing happens if it was called before. Raises :class:`ImportError` without the package ``nvtx``.
    """
    import nvtx

    watch.follow(_DOMAIN, partial(_begin, nvtx.get_domain(_DOMAIN)))


def _begin(domain: Any, what: str, label: str) -> Callable[[], object]:
    """Begin a range. Returns what ends it. Neither raises: a compilation would end with it."""
    message = printable(f"{what} {label}")[:_LONGEST_NAME]

    def begin() -> Any:
        return domain.start_range(domain.get_event_attributes(message=message, color=_COLORS[what], category=what))

    begun = _or_warned(begin)
    return int if begun is None else partial(_or_warned, partial(domain.end_range, begun))


def _or_warned(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - of NVTX, or of the profiler behind it
        warn_once(f"NVTX: no range: {type(error).__name__}: {error}")
        return None
