# SPDX-License-Identifier: Apache-2.0
"""Keys drawn by Zipf: a few are hot and most are not, as with the kernels of a real program."""

from __future__ import annotations

import random
from itertools import accumulate


class Zipf:
    """Draws 0 to ``count - 1``, number k with probability proportional to ``(k + 1) ** -exponent``."""

    def __init__(self, rng: random.Random, count: int, exponent: float = 1.0) -> None:
        self._rng = rng
        self._numbers = range(count)
        self._weights = list(accumulate((k + 1) ** -exponent for k in self._numbers))

    def draw(self) -> int:
        """Returns the next number."""
        return self._rng.choices(self._numbers, cum_weights=self._weights)[0]
