# SPDX-License-Identifier: Apache-2.0
"""One guest: its console, and the share through which it gets its job and returns its results.

A guest is qemu with a kernel of its own, or namespaces of this machine: pids, mounts, networks and a host name, with an
empty /run. Either way no program, no mount and no file outside of the share outlives its first process.

A guest that prints nothing for some minutes is ended, and its last lines are the error, so that no hang is waited for.
"""

from __future__ import annotations

import queue
import subprocess
import tempfile
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import psutil

from lockcache_stress.errors import UnusableError
from lockcache_stress.hosts.kernel import Boot
from lockcache_stress.processes import die_with_parent

# The guest itself gives up each part of a trial a minute earlier, and goes on with the others.
_SILENT_SECONDS: Final = 960.0
# A kernel under KVM reports after two seconds; where KVM does not work, waiting longer changes nothing.
_PROBE_SECONDS: Final = 15.0
_LAST_LINES: Final = 15
_MEMORY: Final = "3072"
#: The options of ``unshare`` that give a guest namespaces of its own for everything that it changes.
NAMESPACES: Final = ("--mount", "--pid", "--mount-proc", "--net", "--uts", "--fork", "--kill-child")
# The share may be below the /run that is hidden.
_ENTER: Final = """\
cd "$0" && mount -t tmpfs run /run && mkdir /run/share && mount --bind . /run/share && cd / || exit
exec sh /run/share/start.sh
"""


class Guest:
    """Runs for as long as its ``with`` block."""

    def __init__(self, words: Sequence[str], console: Path) -> None:
        self._words = words
        self._console = console
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._last: deque[str] = deque(maxlen=_LAST_LINES)
        self._process: subprocess.Popen[str] | None = None
        self._reader = threading.Thread(target=self._read, name="console")

    def __enter__(self) -> Guest:
        # A session of its own, so that Ctrl-C reaches only this process. The guest still dies with this process.
        self._process = subprocess.Popen(
            self._words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - one call of C, and no thread of this process holds a lock
        )
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.stdout is not None:
            # unshare ends after all processes of its namespaces, which only the death of the first process ends.
            for each in psutil.Process(self._process.pid).children() or [psutil.Process(self._process.pid)]:
                each.kill()
            self._process.wait()
            self._reader.join()
            self._process.stdout.close()

    def lines(self, silent_seconds: float = _SILENT_SECONDS) -> Iterator[str]:
        """Yield each line of the console until the guest ends. Raises :class:`UnusableError` if it falls silent."""
        while True:
            try:
                line = self._lines.get(timeout=silent_seconds)
            except queue.Empty:
                raise UnusableError(f"the guest said nothing for {silent_seconds:.0f} s: {self.last()}") from None
            if line is None:
                return
            yield line

    def last(self) -> str:
        """Returns the last lines of the console."""
        return " | ".join(self._last) or "it never said anything"

    def _read(self) -> None:
        if self._process is None or self._process.stdout is None:
            return
        with self._console.open("w") as log:
            for line in self._process.stdout:
                log.write(line)
                log.flush()
                if text := line.strip():
                    self._last.append(text)
                    self._lines.put(text)
        self._lines.put(None)


def find_accelerator(boot: Boot) -> list[str]:
    """Returns qemu's options: KVM where a guest has come up under it, translation otherwise."""
    kvm = ["-accel", "kvm", "-cpu", "host"]
    if Path("/dev/kvm").exists() and _comes_up(boot, kvm):
        return kvm
    return ["-accel", "tcg,thread=multi", "-cpu", "max"]


def _comes_up(boot: Boot, accelerator: Sequence[str]) -> bool:
    """Returns whether a guest starts: /dev/kvm may exist and can be opened on machines on which no guest runs."""
    with (
        tempfile.NamedTemporaryFile(prefix="lockcache-stress-") as console,
        Guest(in_qemu(boot, accelerator, None), Path(console.name)) as guest,
    ):
        try:
            return any("guest: probed" in line for line in guest.lines(_PROBE_SECONDS))
        except UnusableError:
            return False


def in_namespaces(share: Path) -> list[str]:
    """Returns the command of a guest that is namespaces of this machine."""
    return ["unshare", *NAMESPACES, "sh", "-c", _ENTER, str(share)]


def in_qemu(boot: Boot, accelerator: Sequence[str], share: Path | None) -> list[str]:
    """Returns the command of a guest that is an emulated machine; without a share it only comes up."""
    words = ["qemu-system-x86_64", *accelerator, "-smp", "2", "-m", _MEMORY, "-nic", "none", "-nographic", "-no-reboot"]
    words += ["-kernel", str(boot.kernel), "-initrd", str(boot.initramfs)]
    kernel = "console=ttyS0 quiet panic=-1"
    if share is None:
        return [*words, "-append", f"{kernel} lockcache.probe"]
    root = "local,path=/,mount_tag=root,security_model=none,readonly=on,multidevs=remap"
    back = f"local,path={str(share).replace(',', ',,')},mount_tag=share,security_model=none"
    return [*words, "-append", kernel, "-virtfs", root, "-virtfs", back]
