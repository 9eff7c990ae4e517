"""What a run leaves as files: ``--report FILE.html`` and ``--junit FILE.xml``. Needs the ``report`` extra.

Nothing of that extra is imported before one of the two is asked for; then at once, before the run, so that an hour of
work never ends in "not installed" or "no such directory".
"""

from __future__ import annotations

from lockcache_stress.reporting.files import Files
from lockcache_stress.reporting.written import Ran, Written

__all__ = ["Files", "Ran", "Written"]
