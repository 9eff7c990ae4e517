"""How many examples a property gets: few in ``make test``, and as many times more as the hypothesis profile says.

``pytest --hypothesis-profile=nightly`` (``make properties``) looks for longer. Profiles are in ``tests/conftest.py``.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, Phase, settings

#: The share of ``max_examples`` that is a property's own number; hypothesis's default is 100.
_ORDINARY = 100


def examples(number: int, **more: Any) -> settings:
    """Settings for ``number`` examples in an ordinary run. Machines are busy: nothing is judged by time."""
    times = max(1, settings.default.max_examples // _ORDINARY) if settings.default else 1
    return settings(
        max_examples=number * times,
        deadline=None,
        # Not to explain: before Python 3.12 that traces every line, and a minute becomes many.
        phases=[phase for phase in Phase if phase is not Phase.explain],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        **more,
    )
