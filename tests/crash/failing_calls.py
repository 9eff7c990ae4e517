# SPDX-License-Identifier: Apache-2.0
"""A fixture: any call of this process may be made to fail, in every module of the package that has looked one up."""

from __future__ import annotations

import pytest

from tests.failing import KINDS, FailingCalls, replace_calls

__all__ = ["KINDS", "FailingCalls", "failing_calls"]


@pytest.fixture
def failing_calls(monkeypatch: pytest.MonkeyPatch) -> FailingCalls:
    """Replaces the functions in every module that has looked one up."""
    calls = FailingCalls()
    replace_calls(calls, monkeypatch.setattr)
    return calls
