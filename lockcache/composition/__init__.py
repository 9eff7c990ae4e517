# SPDX-License-Identifier: Apache-2.0
"""FileStreamProgramCache: a directory, the sources behind it, a reader and a writer, joined into the mapping API.

Promises the class, and the check of its arguments. What these, its variables and its directory ask for is decided here,
once and at opening; the store (:mod:`lockcache.filestream`) knows neither of servers nor of programs.

May use: the store, and the servers (:mod:`lockcache.remote`) where a variable names one.
"""

# mypy: implicit-reexport

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache.composition.cache import FileStreamProgramCache
    from lockcache.composition.parts import coerce_arguments
else:
    __getattr__, __dir__ = door(__name__)
