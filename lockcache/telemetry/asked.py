# SPDX-License-Identifier: Apache-2.0
"""The words in ``$LOCKCACHE_TELEMETRY``, separated by commas: each begins a kind of telemetry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from lockcache.arguments import configured_text, warn_once
from lockcache.errors import how_to_install
from lockcache.fork import unforked

__all__ = ["configured_telemetry", "obey"]

VARIABLE: Final = "LOCKCACHE_TELEMETRY"


def _mark_ranges() -> None:
    from lockcache.telemetry.nvtx import mark_ranges

    mark_ranges()


def _export_counters() -> None:
    from lockcache.telemetry.opentelemetry import export_counters

    export_counters()


_BEGIN: Final[dict[str, Callable[[], None]]] = {"nvtx": _mark_ranges, "opentelemetry": _export_counters}


def configured_telemetry() -> list[str]:
    """Returns the words in ``$LOCKCACHE_TELEMETRY``. Raises :class:`ValueError` naming the variable and the word."""
    words = [word.strip() for word in configured_text(VARIABLE).split(",") if word.strip()]
    for word in words:
        if word not in _BEGIN:
            raise ValueError(f"{VARIABLE}: {word!r} is not {' or '.join(_BEGIN)}")
    return words


def obey() -> None:
    """Begin what the variable asks for, unless it has begun; warn of a package that is missing, or fails.

    Raises :class:`ValueError` as :func:`configured_telemetry` does.
    """
    for word in configured_telemetry():
        try:
            with unforked:
                _BEGIN[word]()
        except ImportError as error:
            warn_once(f"{VARIABLE}={word}: {error}; {how_to_install(word)}")
        except Exception as error:  # noqa: BLE001 - of a package that is another one, or is set up wrongly
            warn_once(f"{VARIABLE}={word}: {type(error).__name__}: {error}")
