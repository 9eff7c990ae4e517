# SPDX-License-Identifier: Apache-2.0
"""Bundles with the operator's command: made, listed, verified, merged; kills and full disks leave the older one."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lockcache import BundleProgramCache, Entry, FileStreamProgramCache
from lockcache.explain import state
from lockcache.filestream import turn_to_replace
from tests.cli.command import run
from tests.processes.provable_values import value_for

KEYS = [b"%d" % number for number in range(60)]


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    root = tmp_path / "filled"
    with FileStreamProgramCache(root) as cache:
        for number, key in enumerate(KEYS):
            metadata = {"kind": "cubin", "arch": "sm_90" if number % 2 else "sm_80", "symbol_mapping": {"gemm": "_Z4"}}
            cache.put_entry(key, Entry(value_for(key, 1, 0), metadata))
    return root


@pytest.fixture
def bundle(filled: Path, tmp_path: Path) -> Path:
    assert run("bundle", "make", "-o", tmp_path / "kernels.lcb", filled).returncode == 0
    return tmp_path / "kernels.lcb"


def test_what_is_in_it_is_listed_with_names(bundle: Path) -> None:
    heading, *lines = run("bundle", "ls", bundle).stdout.splitlines()
    assert heading.split()[0] == "NAME"
    assert len(lines) == len(KEYS)
    assert all("cubin" in line and "gemm" in line for line in lines)
    entries = [json.loads(line) for line in run("bundle", "ls", "--json", bundle).stdout.splitlines()]
    assert {entry["record"] for entry in entries} == {"whole"}


def test_damage_is_found_left_out_of_the_next_one_and_never_served(bundle: Path, tmp_path: Path) -> None:
    assert run("bundle", "verify", bundle).returncode == 0
    content = bytearray(bundle.read_bytes())
    content[200] ^= 1
    bundle.write_bytes(content)
    verified = run("bundle", "verify", "--json", bundle)
    found = json.loads(verified.stdout)
    assert (verified.returncode, found["entries"], found["whole"], len(found["damaged"])) == (1, 60, 59, 1)
    assert run("bundle", "ls", bundle).returncode == 1
    merged = run("bundle", "merge", "--json", "-o", tmp_path / "merged.lcb", bundle)
    assert (merged.returncode, json.loads(merged.stdout)["entries"]) == (1, 59)
    with BundleProgramCache(bundle) as cache:
        assert sorted(cache.get(key) or b"" for key in KEYS)[0] == b""
        assert cache.stats().corrupt_entries == 1


# Is sent a signal when all entries are written, and the table is not.
ENDED = """
import os, sys
from lockcache.cli import main
from lockcache.filestream.bundle import BundleWriter

number, *sys.argv = int(sys.argv[1]), "lockcache", *sys.argv[2:]
BundleWriter.finish = lambda writer: os.kill(os.getpid(), number)
sys.exit(main())
"""


EXIT_CODES = {signal.SIGKILL: -signal.SIGKILL, signal.SIGTERM: 143}


@pytest.mark.parametrize("number", EXIT_CODES)
def test_a_signal_leaves_the_older_bundle(bundle: Path, tmp_path: Path, number: signal.Signals) -> None:
    before = bundle.read_bytes()
    with FileStreamProgramCache(tmp_path / "newer") as cache:
        cache[KEYS[0]] = b"newer"
    command = [sys.executable, "-c", ENDED, str(int(number)), "bundle", "make", "-o", bundle, tmp_path / "newer"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == EXIT_CODES[number], ended
    assert "Traceback" not in ended.stderr
    assert bundle.read_bytes() == before
    assert len(list(tmp_path.glob(".kernels.lcb.*.part"))) == (number == signal.SIGKILL)


# Another one promotes, or tries to for a moment, when all is written and nothing replaced.
PROMOTED_MEANWHILE = """
import os, sys
from lockcache.bundle import promote
from lockcache.cli import main
from lockcache.errors import LockTimeoutError
from lockcache.filestream.bundle import BundleWriter
from lockcache.lowlevel import Layout

node, path, *sys.argv = *sys.argv[1:3], "lockcache", *sys.argv[3:]
finish = BundleWriter.finish

def finish_next_to_a_promoter(writer):
    BundleWriter.finish = finish
    finish(writer)
    child = os.fork()
    if not child:
        try:
            promote(Layout(node), path, wait_seconds=0.0)
        except LockTimeoutError:
            os._exit(3)
        os._exit(0)
    print("waits" if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3 else "promotes", file=sys.stderr)

BundleWriter.finish = finish_next_to_a_promoter
sys.exit(main())
"""


WITHOUT_WAITING = """
import sys
from functools import partial
from lockcache.cli import main
from lockcache.cli.commands import bundle

bundle.turn_to_replace = partial(bundle.turn_to_replace, seconds=0.0)
sys.argv[0] = "lockcache"
sys.exit(main())
"""


def test_who_promotes_into_the_output_waits_while_it_is_merged(bundle: Path, tmp_path: Path) -> None:
    """``merge -o K K NEW`` is how a site adds to the bundle that its jobs promote into."""
    for name in ("node", "new"):
        with FileStreamProgramCache(tmp_path / name) as cache:
            cache[name.encode()] = b"code"
    run("bundle", "make", "-o", tmp_path / "new.lcb", tmp_path / "new")
    words = ["bundle", "merge", "-o", bundle, bundle, tmp_path / "new.lcb"]
    command = [sys.executable, "-c", PROMOTED_MEANWHILE, tmp_path / "node", bundle, *words]
    merged = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (merged.returncode, merged.stderr) == (0, "waits\n"), merged
    assert run("promote", tmp_path / "node", bundle).returncode == 0
    with BundleProgramCache(bundle) as reopened:
        assert (len(reopened), reopened[b"node"], reopened[b"new"]) == (len(KEYS) + 2, b"code", b"code")


def test_a_bundle_is_made_while_another_one_promotes_into_it_and_stays_made(bundle: Path, tmp_path: Path) -> None:
    """Reading the directory holds nobody up. But it replaces nothing in another one's turn, who would put it back."""
    with FileStreamProgramCache(tmp_path / "node") as cache:
        cache[b"node"] = b"code"
    words = ["bundle", "make", "-o", bundle, tmp_path / "filled"]
    command = [sys.executable, "-c", PROMOTED_MEANWHILE, tmp_path / "node", bundle, *words]
    made = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (made.returncode, made.stderr) == (0, "promotes\n"), made
    with turn_to_replace(str(bundle), 0.0):
        before = bundle.read_bytes()
        made = subprocess.run(
            [sys.executable, "-c", WITHOUT_WAITING, *words], capture_output=True, text=True, check=False
        )
        assert made.returncode == 1
        assert "others have added to it" in made.stderr
        assert bundle.read_bytes() == before
    assert list(tmp_path.glob(".kernels.lcb.*.part")) == []


def test_a_bundle_and_a_packed_one_keep_the_names_that_ls_shows(tmp_path: Path) -> None:
    with FileStreamProgramCache(tmp_path / "made") as cache:
        state(b"k", {"arch": "sm_90"}, "gemm_kernel")
        cache[b"k"] = b"code"
    assert "gemm_kernel" in run("ls", tmp_path / "made").stdout
    assert run("bundle", "make", "-o", tmp_path / "k.lcb", tmp_path / "made").returncode == 0
    assert "gemm_kernel" in run("bundle", "ls", tmp_path / "k.lcb").stdout
    assert run("pack", tmp_path / "k.lcb.zst", tmp_path / "made").returncode == 0
    assert run("unpack", tmp_path / "k.lcb.zst", tmp_path / "unpacked").returncode == 0
    assert "gemm_kernel" in run("ls", tmp_path / "unpacked").stdout
