# SPDX-License-Identifier: Apache-2.0
"""``lockcache.lowlevel`` promises at most fifty names, each documented and each there; doors load what is asked for."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest

from lockcache import lowlevel
from lockcache.doors import door
from tests.docs.pages import PROJECT

OTHERS = ("TYPE_CHECKING", "annotations", "door")
NAMES = [name for name in dir(lowlevel) if not name.startswith("_") and name not in OTHERS]


def test_its_names_are_fifty_at_most_and_each_is_on_the_page():
    page = (PROJECT / "docs" / "api" / "lowlevel.md").read_text()
    documented = re.findall(r"auto\w+:: lockcache\.lowlevel\.(\w+)", page)
    assert len(NAMES) <= 50
    assert sorted(documented) == sorted(NAMES)


def test_importing_it_loads_nothing_of_the_store():
    program = "import sys, lockcache; had = set(sys.modules); import lockcache.lowlevel; print(set(sys.modules) - had)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "{'lockcache.lowlevel'}"


def test_a_door_says_which_name_it_does_not_have():
    code = "if TYPE_CHECKING:\n    from lockcache.errors import LockcacheError\nfound = door('lockcache')"
    names_of: dict[str, Any] = {"door": door, "TYPE_CHECKING": False}
    exec(code, names_of)
    find, names = names_of["found"]
    assert find("LockcacheError").__name__ == "LockcacheError"
    assert "LockcacheError" in names()
    with pytest.raises(AttributeError, match="'lockcache' has no attribute 'nothing'"):
        find("nothing")


def test_importing_lockcache_loads_nothing_that_is_not_asked_for():
    program = "import sys, lockcache; print(*sorted(name for name in sys.modules if name.startswith('lockcache.')))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == [
        f"lockcache.{name}" for name in ("arguments", "default_directory", "doors", "errors", "fork")
    ]


PROGRAM = """
import sys
from lockcache import FileStreamProgramCache
from lockcache.explain import state
with FileStreamProgramCache(sys.argv[1], max_size_bytes=200_000) as cache:
    for key in (b"%d" % number for number in range(20)):
        if len(sys.argv) > 2:
            state(key, {"option arch": "sm_90"}, "saxpy")
        cache[key] = bytes(20_000)
        assert cache.get(key) and cache.get(b"missing") is None
        cache.get_or_compute(key + b"computed", lambda: b"code")
    del cache[key]
    print(*sorted(name for name in sys.modules if name.startswith('lockcache.')))
"""


@pytest.mark.parametrize("keys", [[], ["stated"]], ids=["of bytes", "that say what they were made of"])
def test_a_program_loads_only_what_it_needs_to_read_and_write(cache_path, keys):
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(cache_path), *keys], capture_output=True, text=True, check=True
    )
    loaded = set(ran.stdout.split())
    assert "lockcache.filestream.entry.reader" in loaded
    others = {
        "accounting.run_counts",
        "accounting.run_record",
        "bundle.writer",
        "entry.verdict",
        "inspect",
        "remote",
        "repair.verify",
    }
    assert not loaded & {f"lockcache.filestream.{other}" for other in others}
    assert not loaded & {
        f"lockcache.{other}" for other in ("bundle", "cli", "cuda", "doctor", "keys", "lowlevel", "sizes")
    }
