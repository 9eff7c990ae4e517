# SPDX-License-Identifier: Apache-2.0
"""The entry points of the three programs: until one has loaded, Ctrl-C ends it as it ends a program in C.

Python's own handler raises in the midst of an import: a traceback, in the best case, for up to a second. So this is not
in any of their packages, whose imports take that long, and imports nothing of them before the handler is away. A
program that has something to undo puts it back: :func:`lockcache.cli.signals.interrupts_raise`.
"""

import _signal  # type: ignore[import-not-found] # not signal, whose enumerations take 5 ms more


def lockcache() -> None:
    """Be ``lockcache``."""
    _let_interrupts_end_it()
    from lockcache.cli import main

    main()


def daemon() -> None:
    """Be ``lockcache-daemon``."""
    _let_interrupts_end_it()
    from lockcache_daemon.cli import main

    main()


def stress() -> None:
    """Be ``lockcache-stress``."""
    _let_interrupts_end_it()
    from lockcache_stress.cli import main

    main()


def _let_interrupts_end_it() -> None:
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:  # and not ignored, as in a shell's background
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
