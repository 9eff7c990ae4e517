# SPDX-License-Identifier: Apache-2.0
"""The queue of waiting processes: the order in which they are woken."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

from lockcache.filestream.disk import Waiter, ring
from tests.daemon.daemon_process import until_asleep


def test_they_are_woken_one_at_a_time_in_the_order_in_which_they_came(directory):
    layout, woken = directory.layout, []

    def wait(number):
        place = Waiter(layout, layout.room_queue, is_queue=True)
        assert place.listen()
        while not place.sleep(time.monotonic() + 60):
            pass
        woken.append(number)

    sleepers = [threading.Thread(target=wait, args=(number,)) for number in range(4)]
    for sleeper in sleepers:
        sleeper.start()
        until_asleep(sleeper)
    for number, sleeper in enumerate(sleepers):
        ring(layout, layout.room_queue, is_queue=True)
        sleeper.join(30)
        assert woken == list(range(number + 1))
    ring(layout, layout.room_queue, is_queue=True)
    assert not os.path.lexists(layout.room_queue)


IN_A_CHILD = """
import os, sys, threading, time
from pathlib import Path
from lockcache import FileStreamProgramCache
from lockcache.filestream.disk import Waiter
from tests.daemon.daemon_process import until_asleep

with FileStreamProgramCache(sys.argv[1]) as cache:
    layout = cache._directory.layout

    def wait():
        place = Waiter(layout, layout.room_queue, is_queue=True)
        place.listen()
        while True:
            place.sleep(time.monotonic() + 60)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    until_asleep(thread)
    child = os.fork()
    if not child:
        left = []
        for number in os.listdir("/proc/self/fd"):
            try:
                left.append(os.readlink(f"/proc/self/fd/{number}"))
            except FileNotFoundError:
                pass
        os._exit(any("/locks/room." in path for path in left))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os._exit(status)
"""


def test_a_forked_child_has_no_place_in_the_queue(cache_path):
    """A thread of its parent has: nobody in the child would read what is written to wake it."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", IN_A_CHILD, str(cache_path)], check=False, timeout=120)
    assert done.returncode == 0
