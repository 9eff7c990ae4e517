# SPDX-License-Identifier: Apache-2.0
"""Compile server: compiles for all processes of a user on a node, with headers that are compiled once.

NVRTC's precompiled headers live at one address of one process, and survive a fork. So the server has a *holder* for
each prefix (compiler, options, first includes), and a holder forks a child for each compilation. What comes back is
byte for byte what NVRTC gives in the caller's process, at a third of the processor time where headers are large.

Promises that it is never needed: :func:`ask` returns ``None`` where anything is wrong, and the caller compiles itself.
It reads no cache and writes none: whose turn it is to compile is decided before, by the store. :mod:`.wire` is the
protocol, :mod:`.place` where the server is, :mod:`.asking` and :mod:`.starting` what callers use, :mod:`.server` with
:mod:`.prefixes` the server, :mod:`.holder` and :mod:`.nvrtc` what holds headers and compiles, :mod:`.signs` whether
one of these hangs.

May use: the headers, the versions of compilers, and of the store what it knows of Linux.
"""

# mypy: implicit-reexport

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache.compile_server.asking import Answer, ask, describe_state, read_state, stop
    from lockcache.compile_server.place import open_place
    from lockcache.compile_server.prefix import Mode, Request, Target, configured_mode, head_of, identity_here
    from lockcache.compile_server.starting import start
else:
    __getattr__, __dir__ = door(__name__)
