# SPDX-License-Identifier: Apache-2.0
"""Without CUDA: importing and plain use load nothing of it, and work where it is not installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

USE = """
import sys
import lockcache
from lockcache import *
for cache in (InMemoryProgramCache(max_size_bytes=10_000), FileStreamProgramCache(sys.argv[1], max_size_bytes=10_000)):
    with cache:
        cache["k"] = bytearray(b"code")
        cache.put_entry("e", Entry(b"code", {"a": (1,)}))
        assert cache["k"] == b"code" and cache.get_entry("e").metadata == {"a": (1,)}
        assert isinstance(cache, ProgramCacheResource) and not isinstance(cache, dict)
        try:
            cache["k"] = object()
        except TypeError as error:
            assert "object" in str(error), error
        else:
            raise SystemExit("an object was stored")
        del cache["k"]
        cache.clear()
        cache.stats()
"""


def run(code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-I", "-c", code, *arguments], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def loaded(code: str, *arguments: str) -> set[str]:
    """The modules loaded after ``code``, by their top name."""
    names = run(f"{code}\nimport sys\nprint(*sys.modules, sep='\\n')", *arguments).split()
    return {name.partition(".")[0] for name in names} | {name for name in names if name.startswith("cuda")}


@pytest.mark.unmeasured
def test_importing_lockcache_loads_no_cuda_module_and_nothing_heavy():
    names = loaded("import lockcache")
    assert "lockcache" in names
    assert not names & {"cuda", "numpy", "sqlite3", "platformdirs", "psutil", "click", "rich", "asyncio"}


def test_plain_use_loads_no_cuda_module(cache_path: Path):
    assert "cuda" not in loaded(USE, str(cache_path))


def test_everything_works_where_cuda_cannot_be_imported(cache_path: Path):
    run("import sys\nsys.modules['cuda'] = None\nsys.modules['cuda.core'] = None\n" + USE, str(cache_path))


@pytest.mark.slow
def test_every_public_name_is_there():
    run("import lockcache\nfor name in lockcache.__all__: getattr(lockcache, name)")
    run("import lockcache\nassert set(lockcache.__all__) <= set(dir(lockcache))")


@pytest.mark.slow
def test_modules_are_attributes_as_if_all_were_imported():
    rooms = "bundle composition errors keys memory remote resource single_flight sqlite tiered"
    check = "assert getattr(lockcache, name).__name__ == f'lockcache.{name}'"
    run(f"import lockcache\nfor name in '{rooms}'.split(): {check}")


_FORK_DURING_AN_IMPORT = """
import os, signal, sys, threading
import lockcache

begun, forking = threading.Event(), threading.Event()

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "lockcache.composition.cache":
            begun.set()
            forking.wait()

sys.meta_path.insert(0, Slow())
os.register_at_fork(before=forking.set)
thread = threading.Thread(target=lambda: lockcache.FileStreamProgramCache)
thread.start()
begun.wait()
child = os.fork()
signal.alarm(30)
assert lockcache.FileStreamProgramCache
if not child:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
thread.join()
"""


def test_a_child_that_is_forked_while_a_thread_asks_for_a_name_has_it_too():
    run(_FORK_DURING_AN_IMPORT)


@pytest.mark.slow
def test_a_missing_name_is_an_attribute_error():
    run("import lockcache\ntry: lockcache.nothing\nexcept AttributeError as error: assert 'nothing' in str(error)")
