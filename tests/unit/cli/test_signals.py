# SPDX-License-Identifier: Apache-2.0
"""A command that is asked to end does, also where the exception that is to end it cannot get out."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from lockcache.cli.signals import FATAL

# The destructor is where the signal comes; who is asked to end there would go on for ever.
_PROGRAM = """
import os, signal, sys
from lockcache.cli.signals import end_in_order

class Dying:
    def __del__(self):
        os.kill(os.getpid(), int(sys.argv[1]))
        for _ in range(1000):
            pass

end_in_order()
try:
    Dying()
    print("goes on", flush=True)
    signal.pause()
finally:
    print("cleaned up", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_comes_in_a_destructor_ends_the_command_all_the_same(number: signal.Signals) -> None:
    command = [sys.executable, "-c", _PROGRAM, str(int(number))]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert ran.stdout.split("\n") == ["goes on", "cleaned up", ""]
    assert ran.returncode == (-number if number == signal.SIGINT else 128 + number)


def test_other_errors_of_destructors_are_printed_as_ever() -> None:
    program = (
        "from lockcache.cli.signals import end_in_order\nclass A:\n    def __del__(self): 1 / 0\nend_in_order()\nA()\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)
    assert (ran.returncode, "ZeroDivisionError" in ran.stderr) == (0, True)


_HELD_BACK = """
import os, signal
from lockcache.cli.signals import EndedBySignal, held_back, interruptible

def send(number):
    os.kill(os.getpid(), number)

with held_back((signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)):
    send(signal.SIGTERM)
    assert signal.sigwaitinfo({signal.SIGTERM}).si_signo == signal.SIGTERM
    send(signal.SIGTERM)
    send(signal.SIGINT)
    with interruptible():
        print("goes on", flush=True)
    for number, error in ((signal.SIGTERM, EndedBySignal), (signal.SIGINT, KeyboardInterrupt)):
        try:
            with interruptible():
                send(number)
        except error:
            print("ended", flush=True)
        send(number)
    send(signal.SIGUSR1)
print("goes on", flush=True)
send(signal.SIGTERM)
"""


def test_signals_that_are_held_back_end_what_they_may_and_nothing_else() -> None:
    ran = subprocess.run([sys.executable, "-c", _HELD_BACK], capture_output=True, text=True, timeout=30, check=False)
    assert ran.stdout.split("\n") == ["goes on", "ended", "ended", "goes on", ""], ran
    assert ran.returncode == -signal.SIGTERM


# In a process of its own, which is small: each child is a copy of it.
_ENDS = """
import os, resource, signal, sys

resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
stopping = {signal.SIGKILL, signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}
for number in signal.valid_signals() - stopping:
    child = os.fork()
    if child == 0:
        if number not in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        os._exit(0)
    if os.WIFSIGNALED(os.waitpid(child, 0)[1]):
        print(int(number))
"""


def test_the_signals_that_end_a_program_are_those_that_do() -> None:
    ran = subprocess.run([sys.executable, "-c", _ENDS], capture_output=True, text=True, timeout=30, check=True)
    assert set(map(int, ran.stdout.split())) == FATAL
