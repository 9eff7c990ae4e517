# SPDX-License-Identifier: Apache-2.0
"""The metrics file, written again and again for the node exporter's textfile collector.

Keeps the work apart from the disk of the file: a thread of its own writes, and a disk that is full or hangs costs
metrics, not sweeps. Keeps the file whole: it is replaced by renaming, so a reader sees the old file or the new one.
Keeps to its folder, which the operator names and which may be reached through a symlink: the folder is opened once for
each write, so exchanging it meanwhile leads the write nowhere else; and a file under the name is replaced, never
written through.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
from collections.abc import Callable
from typing import Final

from lockcache.filestream.disk import open_folder

# As often as Prometheus scrapes by default.
_INTERVAL_SECONDS: Final = 15.0
# A daemon that ends waits so long for the last write.
_PATIENCE_SECONDS: Final = 1.0
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW


class MetricsFile:
    """Keeps ``path`` up to date with what ``render`` gives, from :meth:`start` to :meth:`close`.

    ``note`` is called with the first error after a write that worked.
    """

    def __init__(self, path: str, render: Callable[[], bytes], note: Callable[[OSError], object]) -> None:
        self.path = path
        self._render = render
        self._note = note
        self._is_reported = False
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metrics-file", daemon=True)

    def start(self) -> None:
        """Write the file for the first time, in this thread. Raises :class:`OSError` if it cannot be written."""
        self.write()
        self._thread.start()

    def close(self) -> None:
        """Write the file once more, unless the disk hangs, so that it shows that the daemon ended."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(_PATIENCE_SECONDS)

    def write(self) -> None:
        """Replace the file. Raises :class:`OSError`."""
        self.stage(publishes=True)

    def stage(self, *, publishes: bool = False) -> None:
        """Write a staged file next to the file, to see whether it can be written. Raises :class:`OSError`."""
        folder, name = os.path.split(self.path)
        # Not *.prom while it is being written: the collector reads all of those.
        staged = f".{name}.{secrets.token_hex(8)}.tmp"
        with open_folder(folder or ".") as folder_fd:
            fd = os.open(staged, _NEW, 0o600, dir_fd=folder_fd)
            try:
                with open(fd, "wb") as file:
                    os.fchmod(fd, 0o644)  # the node exporter is another user
                    file.write(self._render())
                if publishes:
                    os.rename(staged, name, src_dir_fd=folder_fd, dst_dir_fd=folder_fd)
            finally:
                with contextlib.suppress(OSError):  # after a rename it is not there any more
                    os.unlink(staged, dir_fd=folder_fd)

    def _run(self) -> None:
        while True:
            is_last = self._ending.wait(_INTERVAL_SECONDS)
            try:
                self.write()
                self._is_reported = False
            except OSError as error:
                if not self._is_reported:
                    self._is_reported = True
                    self._note(error)
            if is_last:
                return
