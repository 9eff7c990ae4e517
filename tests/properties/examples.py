"""Number of examples of a property: few in ``make test``, and as many times more as the hypothesis profile says.

``pytest --hypothesis-profile=nightly`` (``make properties``) looks for longer. Profiles are in ``tests/conftest.py``.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, Phase, settings

#: The share of ``max_examples`` that is a property's own number; hypothesis's default is 100.
_ORDINARY = 100


def examples(number: int, **more: Any) -> settings:
    """Settings for ``number`` examples where hypothesis tries a hundred; the profile says how many those are.

    Machines are busy: nothing is judged by time.
    """
    most = settings.default.max_examples if settings.default else _ORDINARY
    return settings(
        max_examples=max(1, number * most // _ORDINARY),
        deadline=None,
        # Not to explain: before Python 3.12 that traces every line, and a minute becomes many.
        phases=[phase for phase in Phase if phase is not Phase.explain],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        **more,
    )
