"""The queue of waiting processes: the order in which they are woken, and what is granted to all of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

from lockcache.filestream.disk import Queue, Woken, grant, wake_next
from tests.daemon.daemon_process import until_asleep


def test_they_are_woken_one_at_a_time_in_the_order_in_which_they_came(directory):
    layout, woken = directory.layout, []

    def wait(number):
        place = Queue(layout, layout.room_queue)
        assert place.join()
        if place.sleep(60) is Woken.IN_TURN:
            woken.append(number)

    sleepers = [threading.Thread(target=wait, args=(number,)) for number in range(4)]
    for sleeper in sleepers:
        sleeper.start()
        until_asleep(sleeper)
    for number, sleeper in enumerate(sleepers):
        wake_next(layout, layout.room_queue)
        sleeper.join(30)
        assert woken == list(range(number + 1))
    wake_next(layout, layout.room_queue)
    assert not os.path.lexists(layout.room_queue)


def test_what_is_granted_is_granted_to_all_who_had_joined_and_to_nobody_else(directory):
    layout = directory.layout
    early, late = ([Queue(layout, layout.room_queue, layout.room_bell) for _ in range(2)] for _ in range(2))
    for place in early:
        assert place.join()
        assert not place.join()

    def look():
        for place in late:
            assert place.join()
        return True

    grant(layout, layout.room_bell, look)
    assert [place.sleep(60) for place in early] == [Woken.BY_GRANT] * 2
    assert [place.sleep(0) for place in late] == [Woken.BY_NOBODY] * 2
    grant(layout, layout.room_bell, lambda: False)
    assert [place.sleep(60) for place in late] == [Woken.BY_NOBODY] * 2
    del early[:], late[:], place
    grant(layout, layout.room_bell, lambda: True)
    assert not os.path.lexists(layout.room_bell)


def test_the_death_of_a_head_grants_nothing(directory):
    layout = directory.layout
    place = Queue(layout, layout.room_queue, layout.room_bell)
    assert place.join()
    dies = "import os, sys; fd = os.open(sys.argv[1], os.O_WRONLY); os.unlink(sys.argv[1]); os.kill(os.getpid(), 9)"
    assert subprocess.run([sys.executable, "-c", dies, layout.room_bell], check=False).returncode == -signal.SIGKILL
    begin = time.monotonic()
    assert place.sleep(60) is Woken.BY_NOBODY
    assert time.monotonic() - begin < 30
    assert place.join(), "it listens for the next grant, and looks before it sleeps"


IN_A_CHILD = """
import os, sys, threading
from pathlib import Path
from lockcache import FileStreamProgramCache
from lockcache.filestream.disk import Queue
from tests.daemon.daemon_process import until_asleep

with FileStreamProgramCache(sys.argv[1]) as cache:
    layout = cache._directory.layout

    def wait():
        place = Queue(layout, layout.room_queue, layout.room_bell)
        place.join()
        place.sleep(60)

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
