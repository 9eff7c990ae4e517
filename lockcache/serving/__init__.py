# SPDX-License-Identifier: Apache-2.0
"""Serving: from warm-up on, a compilation is reported, or refused.

Promises that a hit costs nothing for it, and a miss one attribute (:data:`watch.is_on`) in a process that is not
sealed; that what is reported is bounded; and that nothing of it fails a program, unless it asked for ``error``.

May use: explain. Used by the calls, the back ends, cuda.core's replacements and the adapters, each where it finds out
that its caller compiles.
"""

# mypy: implicit-reexport

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache.serving.callers import awaiting
    from lockcache.serving.compilations import compiled_unshared, compiling, refuse, stored, unawaited, watched
    from lockcache.serving.state import MODES, Missed, configured_seal, obey_variables, seal, unreported, unseal
    from lockcache.serving.state import unsealed, watch
else:
    __getattr__, __dir__ = door(__name__)
