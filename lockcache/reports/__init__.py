# SPDX-License-Identifier: Apache-2.0
"""Reports of a process: what its caches count, for others to read, now and then and when the process ends.

Promises that what was counted is reported however a process ends, unless it is killed or ends by ``os._exit`` itself;
that a forked child reports nothing of its parent's; and that nothing here raises.
Where the numbers go each cache says. A trace has the times of compilations and waits.

May use: fork, arguments, sizes.
"""

# mypy: implicit-reexport

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache.reports.counters import Counters, CountersReport, Numbers, difference, total
    from lockcache.reports.process import Report, reports
    from lockcache.reports.trace import Trace
else:
    __getattr__, __dir__ = door(__name__)
