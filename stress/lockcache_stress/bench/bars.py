"""Bars: what must hold, as a number with a side. Decides, says it in words, and shows what was measured next to it.

A shown number never contradicts its verdict: it is rounded so that it falls on the same side of the limit as what was
measured. Rounded to the nearest, 2.46 would stand as "2.5x" next to ">= 2.5x" and NO.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any, Final, Literal

__all__ = ["Bar"]

# From here on decimals say nothing that anybody reads.
_LARGE: Final = 100


@dataclass(frozen=True)
class Bar:
    """``limit`` has at most as many decimals as :meth:`show` is asked for."""

    side: Literal["<", "<=", ">="]
    limit: float
    #: Right after the number, with its space if it has one: "x", " ms".
    unit: str

    def __str__(self) -> str:
        return f"{self.side} {self.limit:,g}{self.unit}"

    def holds(self, value: float) -> bool:
        """Whether what was measured, not what is shown, is on the right side."""
        if self.side == ">=":
            return value >= self.limit
        return value < self.limit if self.side == "<" else value <= self.limit

    def judged(self, value: float | None) -> dict[str, Any]:
        """Returns a line's bar and verdict; nothing where there is no value to compare with."""
        return {} if value is None else {"bar": str(self), "ok": self.holds(value)}

    def in_ratio(self, ratio: float | None, words: str = "") -> dict[str, Any]:
        """Returns the same of a ratio, which is shown too, with ``words`` behind it."""
        return {} if ratio is None else {"ratio": f"{self.show(ratio)}{words}", **self.judged(ratio)}

    def show(self, value: float, decimals: int = 2) -> str:
        """``value`` with its unit, rounded so that it holds exactly if ``value`` does."""
        kept = 0 if abs(value) >= _LARGE else decimals
        # Up only where equality still holds: the next number below "<= 2" may be 2, the one below "< 2" must not.
        rounding = ROUND_CEILING if self.side == "<=" else ROUND_FLOOR
        # By its shortest text: 2.3 is 2.30, though the float is a little less.
        return f"{Decimal(repr(float(value))).quantize(Decimal(1).scaleb(-kept), rounding):,f}{self.unit}"
