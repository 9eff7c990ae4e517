# SPDX-License-Identifier: Apache-2.0
"""A run on two hosts: prepares and boots the guest, and yields its results trial by trial."""

from __future__ import annotations

import compileall
import functools
import json
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import Final

from lockcache.default_directory import user_cache_dir
from lockcache.errors import NoDefaultDirError, how_to_install
from lockcache_stress.errors import UnusableError
from lockcache_stress.hosts.kernel import prepare
from lockcache_stress.hosts.machine import Guest, find_accelerator, in_namespaces, in_qemu
from lockcache_stress.hosts.needs import search_path, why_no_hosts
from lockcache_stress.hosts.verdicts import Tried, parse_result
from lockcache_stress.run import Show

#: Returns the command of a guest that has this share.
Starter = Callable[[Path], Sequence[str]]

#: The beginning of lines of the guest's console that state its progress.
_MARK: Final = "@lockcache "
# The first two packages that run in the guest: they are under test, and may be from another checkout.
_UNDER_TEST: Final = (("lockcache", "."), ("lockcache_daemon", "daemon"))
_HARNESS: Final = "lockcache_stress"
_START: Final = """\
export PATH={path} PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=/run/code HOME=/run/home
mkdir -p /run/home /run/code
tar -xf /run/share/code.tar -C /run/code
exec {python} -u -m lockcache_stress.hosts.guest /run/share 2>&1
"""


@dataclass(frozen=True)
class HostsOptions:
    """The options of a run."""

    trials: Sequence[str]
    file_system: str = "nfs"
    nfs_version: str = "4.2"
    lock_manager: bool = True
    #: Options of the clients' mounts, separated by commas; an option with a dot in its name is a GlusterFS volume's.
    mount_options: str = ""
    seed: int = 0
    #: The folder in which to leave the console and the results as the guest wrote them.
    out: str | None = None
    #: The checkout whose code is under test, if it is not this program's own.
    checkout: str | None = None


def prepare_guest(options: HostsOptions, show: Show) -> Starter:
    """Returns the starter of a guest. Raises :class:`UnusableError` where a guest cannot be had."""
    why = why_no_hosts(options.file_system, options.nfs_version)
    if why is not None:
        raise UnusableError(why)
    if options.file_system != "nfs":
        return in_namespaces
    try:
        folder = Path(user_cache_dir("lockcache-stress", "set XDG_CACHE_HOME"))
    except NoDefaultDirError as error:
        raise UnusableError(str(error)) from error
    boot = prepare(folder, lambda words: show("preparing", 0.0, words))
    show("preparing", 0.5, "is there KVM?")
    accelerator = find_accelerator(boot)
    show("booting", 0.0, f"{boot.release}, {accelerator[1]}")
    return functools.partial(in_qemu, boot, accelerator)


def run_hosts(start: Starter, options: HostsOptions, show: Show) -> Iterator[Tried]:
    """Start a guest and yield the result of each trial as it ends. Raises :class:`UnusableError` if the guest fails."""
    with tempfile.TemporaryDirectory(prefix="lockcache-stress-") as folder:
        share, console = Path(folder, "share"), Path(folder, "console.log")
        _fill(share, options)
        try:
            with Guest(start(share), console) as guest:
                yield from _follow(guest, share / "results.jsonl", len(options.trials), show)
        finally:
            _keep(options.out, [console, share / "results.jsonl"])


def _follow(guest: Guest, results: Path, wanted: int, show: Show) -> Iterator[Tried]:
    done = 0
    for line in guest.lines():
        for each in _results(results)[done:]:
            done += 1
            yield each
        if _MARK in line:
            show("hosts", done / wanted, line.partition(_MARK)[2])
    rest = _results(results)[done:]
    yield from rest
    if done + len(rest) < wanted:
        raise UnusableError(f"the guest ended after {done + len(rest)} of {wanted} trials: {guest.last()}")


def _results(path: Path) -> list[Tried]:
    """Returns the results so far, without a last line that is still being written."""
    if not path.exists():
        return []
    return [parse_result(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


def _fill(share: Path, options: HostsOptions) -> None:
    """Fill the share for the guest with the job and a copy of the code, which no editor changes during the run."""
    share.mkdir()
    code = share.with_name("code")
    code.mkdir()
    for name, place in _UNDER_TEST:
        source = Path(options.checkout, place, name) if options.checkout else _installed(name)
        if not (source / "__init__.py").is_file():
            raise UnusableError(f"{source} is not there: --checkout names a checkout of lockcache")
        _copy(source, code / name)
    _copy(_installed(_HARNESS), code / _HARNESS)
    # Compiled here, because compiling in an emulated guest takes longer than all trials.
    if not compileall.compile_dir(code, quiet=2, invalidation_mode=PycInvalidationMode.UNCHECKED_HASH):
        raise UnusableError(f"{options.checkout or 'what is installed'} does not compile: nothing was booted for it")
    # One file, because each file that the guest opens through 9p takes milliseconds.
    shutil.make_archive(str(share / "code"), "tar", code)
    job = {
        "trials": list(options.trials),
        "file_system": options.file_system,
        "nfs_version": options.nfs_version,
        "lock_manager": options.lock_manager,
        "mount_options": options.mount_options.split(",") if options.mount_options else [],
        "seed": options.seed,
    }
    (share / "job.json").write_text(json.dumps(job))
    path = os.pathsep.join([search_path(), "/usr/local/sbin:/usr/sbin:/sbin"])
    (share / "start.sh").write_text(_START.format(path=shlex.quote(path), python=shlex.quote(sys.executable)))


def _installed(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise UnusableError(f"{package} is not installed next to this interpreter: {how_to_install('cli')}")
    return Path(spec.submodule_search_locations[0])


def _copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))


def _keep(folder: str | None, files: Sequence[Path]) -> None:
    if folder is None:
        return
    os.makedirs(folder, exist_ok=True)
    for path in files:
        if path.exists():
            shutil.copy(path, folder)
