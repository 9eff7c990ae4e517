"""The tables of layouts know each layout that an operator may name."""

from __future__ import annotations

import pytest

from lockcache_daemon.settings.model import LAYOUTS
from lockcache_daemon.stores.layouts import store_of, view


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_layout_that_can_be_named_has_a_store_and_a_view(layout: str) -> None:
    assert callable(store_of(layout))
    assert callable(view(layout))
