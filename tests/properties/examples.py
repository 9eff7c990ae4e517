# SPDX-License-Identifier: Apache-2.0
"""The number of examples of a property: few in ``make test``, and more by the factor of the hypothesis profile.

``pytest --hypothesis-profile=nightly`` (``make properties``) tries more. Profiles are in ``tests/conftest.py``.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, Phase, settings

#: hypothesis's default of ``max_examples``, for which a property has its own number of examples.
_ORDINARY = 100


def examples(number: int, **more: Any) -> settings:
    """Returns settings with ``number`` examples for each hundred of the profile, and without a time limit."""
    most = settings.default.max_examples if settings.default else _ORDINARY
    return settings(
        max_examples=max(1, number * most // _ORDINARY),
        deadline=None,
        # Without the phase "explain", which traces every line before Python 3.12, and takes many times as long.
        phases=[phase for phase in Phase if phase is not Phase.explain],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        **more,
    )
