# SPDX-License-Identifier: Apache-2.0
"""Variables of NVIDIA's compilers that change while a process runs: nothing is stored under the key of another value.

Some compilers read some of them once, when they are loaded, and others at each compilation.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cuda.core")

from lockcache.keys import variable_names
from tests.cuda.keys import run_script

pytestmark = pytest.mark.cuda

# Another program first, by cuda.core alone: the compiler is loaded by then.
SCRIPT = """
import hashlib, json, os, sys
import cuda.core
from lockcache import FileStreamProgramCache
from lockcache.cuda import Program
from tests.cuda.keys import NVVM, SOURCE, make_options

path, kind, target, changes = sys.argv[1:]
code, options = (NVVM if kind == "nvvm" else SOURCE), make_options(link_time_optimization=target == "ltoir" or None)
cuda.core.Program(code.replace("simple", "other"), kind, options).compile(target)
for name, value in json.loads(changes):
    os.environ.pop(name, None)
    os.environ.update({name: value} if value else {})
with FileStreamProgramCache(path) as cache:
    made = Program(code, kind, options).compile(target, cache=cache).code
    print(hashlib.sha256(made).hexdigest(), cache.stats().hits, cache.stats().uncacheable)
"""
VALUES = {"LLVM_OVERRIDE_PRODUCER": "someone", "FINALIZER_USE_LEGACY_ELF_BUILDER": "1"}


def run(path: Path, kind: tuple[str, str], *changes: tuple[str, str], **variables: str) -> list[Any]:
    """Returns the digest of what a process compiled or found, and whether it was a hit, and whether it had no key."""
    digest, hits, uncacheable = run_script(SCRIPT, os.fspath(path), *kind, json.dumps(changes), **variables)
    return [digest, int(hits), int(uncacheable)]


@pytest.mark.parametrize(
    "name, kind",
    [
        ("NV_NVVM_VERSION", ("c++", "cubin")),
        pytest.param("NV_NVVM_VERSION", ("nvvm", "ptx"), marks=pytest.mark.long),
        pytest.param("LIBNVVM_NVVM_VERSION", ("nvvm", "ptx"), marks=pytest.mark.long),
        pytest.param("LLVM_OVERRIDE_PRODUCER", ("c++", "ltoir"), marks=pytest.mark.long),
        pytest.param("LLVM_OVERRIDE_PRODUCER", ("nvvm", "ltoir"), marks=pytest.mark.long),
        pytest.param("FINALIZER_USE_LEGACY_ELF_BUILDER", ("c++", "cubin"), marks=pytest.mark.long),
    ],
    ids=str,
)
def test_what_is_compiled_after_a_change_is_stored_under_no_key(
    name: str, kind: tuple[str, str], tmp_path: Path
) -> None:
    value = VALUES.get(name, "nvvm-latest")
    assert run(tmp_path, kind, (name, value))[1:] == [0, 1]
    assert run(tmp_path, kind, (name, ""), **{name: value})[1:] == [0, 1]
    assert run(tmp_path, kind, (name, value), (name, ""))[1:] == [0, 0], "it was seen by nobody"
    plain, changed = run(tmp_path, kind), run(tmp_path, kind, **{name: value})
    assert plain[0] != changed[0], "this compiler no longer minds the variable"
    assert (plain[1:], changed[1:]) == ([1, 0], [0, 0])


CHANGED = """
import os, sys
from lockcache import UncacheableError
from tests.cuda.keys import key

names = sys.argv[1:]
for name in names:
    if os.fork():
        os.wait()
        continue
    for change in (lambda: None, lambda: os.environ.update({name: "other"}), lambda: os.environ.pop(name)):
        change()
        try:
            key(code="", target_type="ltoir")
            print(name, "has a key", flush=True)
        except UncacheableError as error:
            print(name, "has none" if name in str(error) else error, flush=True)
    os._exit(0)
"""


def test_a_process_in_which_any_of_them_changed_makes_no_key_from_then_on() -> None:
    names = variable_names()
    said = " ".join(run_script(CHANGED, *names))
    for name in names:
        assert said.count(f"{name} has a key") == 1
        assert said.count(f"{name} has none") == 2


OVERWRITTEN = """
import ctypes, os
with open("/proc/self/stat") as file:
    begin, end = map(int, file.read().rpartition(")")[2].split()[47:49])
ctypes.memset(begin, 0, end - begin)  # as setproctitle does
from tests.cuda.keys import key
print(len(key(code="", target_type="ltoir")))
"""


def test_a_process_that_wrote_its_title_over_its_variables_makes_keys() -> None:
    assert run_script(OVERWRITTEN, LLVM_OVERRIDE_PRODUCER="someone")
