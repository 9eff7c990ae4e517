# SPDX-License-Identifier: Apache-2.0
"""Two hosts certify a directory: each runs this, and they try on each other what one host alone cannot know.

Promises that nothing is left behind on either host, that no wait is longer than its limit, and that what the other
host writes decides nothing but the text of a finding: it is read up to a bound, and no file is named by it.

May use: checks_process, examine, files, findings, probe_dir, second_process, sharing.
"""

# mypy: implicit-reexport

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache.doctor.pair.certificate import TIMEOUT_SECONDS, WAITING, Certificate, certify
    from lockcache.doctor.pair.hosts import RANK_VARIABLES, prints
else:
    __getattr__, __dir__ = door(__name__)
