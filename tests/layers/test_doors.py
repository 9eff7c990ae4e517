# SPDX-License-Identifier: Apache-2.0
"""The contract of doors notices each of the faults that it names, in a house of three rooms made for it."""

from __future__ import annotations

import importlib
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import grimp
import pytest

from tests.docs.pages import PROJECT
from tests.layers import doors

DOORS = sorted(
    ".".join(path.parent.relative_to(PROJECT / folder).parts)
    for folder in (".", "daemon", "stress")
    for house in (PROJECT / folder).glob("lockcache*")
    for path in house.rglob("__init__.py")
    if "door(__name__)" in path.read_text()
)

GOOD = {
    "__init__": "",
    "kitchen/__init__": '''
        """Cooks. Promises :func:`cook`.

        May use: cellar.
        """
        from typing import TYPE_CHECKING
        from lockcache.doors import door
        if TYPE_CHECKING:
            from lockcache_house.kitchen.stove import cook
        else:
            __getattr__, __dir__ = door(__name__)
        ''',
    "kitchen/stove": "from lockcache_house.cellar import fetch\ndef cook(): return fetch()\n",
    "cellar/__init__": '''
        """Keeps. Promises :func:`fetch`.

        May use: nothing else of the package.
        """
        from typing import TYPE_CHECKING
        from lockcache.doors import door
        if TYPE_CHECKING:
            from lockcache_house.cellar.shelf import fetch
        else:
            __getattr__, __dir__ = door(__name__)
        ''',
    "cellar/shelf": "def fetch(): return 1\n",
}


@pytest.fixture
def faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., list[str]]]:
    """The faults of the house with these modules changed or added; ``None`` removes one."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def find(**changes: str) -> list[str]:
        for module, text in {**GOOD, **{name.replace("__of__", "/"): text for name, text in changes.items()}}.items():
            path = tmp_path / "lockcache_house" / f"{module}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text).lstrip())
        importlib.invalidate_caches()
        graph = grimp.build_graph("lockcache_house", cache_dir=None, exclude_type_checking_imports=True)
        options = {"houses": ["lockcache_house"], "name": "doors", "type": "doors"}
        contract = doors.DoorsContract("doors", session_options={}, contract_options=options)
        return list(contract.check(graph, verbose=False).metadata["faults"])

    yield find
    doors._tree.cache_clear()
    for module in [name for name in sys.modules if name.startswith("lockcache_house")]:
        del sys.modules[module]


@pytest.mark.parametrize("package", DOORS)
def test_a_door_gives_each_name_of_its_imports_that_never_run(package: str) -> None:
    room = importlib.import_module(package)
    homes = list(doors._homes(package))
    assert homes
    for module, names in homes:
        for name in names:
            assert name in dir(room)
            try:
                assert getattr(room, name) is getattr(importlib.import_module(module), name)
            except ModuleNotFoundError as error:
                if error.name != "triton":  # which makes a class when it is asked for, and may be missing here
                    raise


def test_a_house_in_order_has_no_faults(faults):
    assert faults() == []


def test_a_module_behind_a_door_is_not_imported_from_outside(faults):
    [fault] = faults(kitchen__of__stove="from lockcache_house.cellar.shelf import fetch\ncook = fetch\n")
    assert (
        fault
        == "lockcache_house.kitchen.stove imports lockcache_house.cellar.shelf: import from lockcache_house.cellar"
    )


def test_a_use_that_the_docstring_does_not_name_is_one_too_many(faults):
    [fault] = faults(cellar__of__stairs="from lockcache_house.kitchen import cook\n")
    assert fault == 'lockcache_house.cellar uses kitchen, which its "May use" does not name'


def test_a_room_says_what_it_promises_and_uses(faults):
    [fault] = faults(cellar__of____init__=re.sub(r'""".*"""', '"""Keeps."""', GOOD["cellar/__init__"], flags=re.DOTALL))
    assert fault.startswith("lockcache_house.cellar: its docstring must say")


def test_a_folder_holds_no_more_than_one_can_overlook(faults):
    more = {f"cellar__of__shelf{number}": "" for number in range(13)}
    [fault] = faults(**more)
    assert fault == "lockcache_house.cellar has 15 Python files: at most 14"
