# SPDX-License-Identifier: Apache-2.0
"""The guest's program: ``python -m lockcache_stress.hosts.guest SHARE`` sets up the site and runs the trials."""

from __future__ import annotations

import json
import signal
import sys
import time
import traceback
from pathlib import Path
from types import FrameType
from typing import Any, Final

from lockcache_stress.hosts.guest.glusterfs import GlusterSite
from lockcache_stress.hosts.guest.juicefs import JuiceSite
from lockcache_stress.hosts.guest.nfs import NfsSite
from lockcache_stress.hosts.guest.site import Site
from lockcache_stress.hosts.guest.trials import RUNS

# A minute less than the time after which the host ends a silent guest.
_STEP_SECONDS: Final = 900


def main(share: Path) -> None:
    """Run the trials that ``job.json`` names, and write a line to ``results.jsonl`` for each, also after an error."""
    job = json.loads((share / "job.json").read_text())
    signal.signal(signal.SIGALRM, _too_long)
    if job["file_system"] == "nfs":
        site: Site = NfsSite(job["mount_options"], job["nfs_version"], lock_manager=job["lock_manager"])
    else:
        site = {"juicefs": JuiceSite, "glusterfs": GlusterSite}[job["file_system"]](job["mount_options"])
    _say("setting up the server and two clients")
    site.set_up()
    with (share / "results.jsonl").open("w") as results:
        for name in job["trials"]:
            _say(name)
            results.write(json.dumps(_run(name, site, job["seed"])) + "\n")
            results.flush()
            _say(f"{name} has ended")


def _run(name: str, site: Site, seed: int) -> dict[str, Any]:
    began = time.monotonic()
    numbers: dict[str, Any] = {}
    result: dict[str, Any] = {"trial": name, "numbers": numbers}
    signal.alarm(_STEP_SECONDS)
    try:
        for what, found in RUNS[name](site, seed):
            numbers[what] = found
            _say(f"{name}: {what}")
            print(json.dumps(found), flush=True)  # so that the console has the results of a guest that is ended early
            signal.alarm(_STEP_SECONDS)
    except Exception:  # noqa: BLE001 - the others are run all the same
        result["error"] = traceback.format_exc(limit=-8)
    finally:
        signal.alarm(0)
    return {**result, "seconds": round(time.monotonic() - began, 1)}


def _too_long(signum: int, frame: FrameType | None) -> None:
    raise TimeoutError(f"this part of the trial took longer than {_STEP_SECONDS} s")


def _say(words: str) -> None:
    print(f"@lockcache {words}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
