# SPDX-License-Identifier: Apache-2.0
"""Other ways to call a cache: a decorator, asyncio, and several files as one entry.

Promises what ``begin`` and ``get_or_compute`` promise, in another form: of the callers that miss one key, in all
processes, one computes.

May use: lockcache.keys.
"""

# mypy: implicit-reexport

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache.calling.aio import aget_or_compute
    from lockcache.calling.files import FILES, joined_files, parted_files
    from lockcache.calling.memoize import memoized
else:
    __getattr__, __dir__ = door(__name__)
