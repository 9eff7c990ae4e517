# SPDX-License-Identifier: Apache-2.0
"""lockcache-daemon: keeps cache directories under their caps, so that writers never have to.

Needs the extra ``cli``. Nothing in the library depends on a daemon running; see :mod:`.keeper.keeper` for what one
adds.
"""

from __future__ import annotations

__all__: list[str] = []
