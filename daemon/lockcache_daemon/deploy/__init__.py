# SPDX-License-Identifier: Apache-2.0
"""Deployment files: units, manifests, scripts, a dashboard and alert rules, as they come with the package.

Promises that what is printed is what the tests of this project check, with paths of this installation where a file
names the program.

May use: nothing else of the package.
"""

# mypy: implicit-reexport

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache_daemon.deploy.files import FOLDER, deployment_files, read_file, systemd_unit
else:
    __getattr__, __dir__ = door(__name__)
