# SPDX-License-Identifier: Apache-2.0
"""A process that began with other variables of NVIDIA's compilers, for tests of keys that compile nothing."""

from __future__ import annotations

import pytest

from lockcache.keys import environment


def start_with(monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    """Have the process look as if it had begun with these variables and no other ones of the compilers."""
    for name in environment.variable_names():
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(environment, "_at_start", [[name, variables[name]] for name in sorted(variables)])
