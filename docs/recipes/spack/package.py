# Copyright Spack Project Developers. See COPYRIGHT file for details.
#
# SPDX-License-Identifier: (Apache-2.0 OR MIT)

from spack.package import *
from spack_repo.builtin.build_systems.python import PythonPackage


class PyLockcache(PythonPackage):
    """Compile each GPU kernel once: a disk cache for NVRTC and cuda.core, shared by processes."""

    pypi = "lockcache/lockcache-0.3.0.tar.gz"

    license("Apache-2.0", checked_by="")

    # Of the archive that the release published: `spack checksum py-lockcache`.
    version("0.3.0", sha256="0" * 64)

    variant("zstd", default=False, description="Compressed bundles")
    variant("metrics", default=False, description="Metrics of the daemon for Prometheus")

    conflicts("platform=darwin", msg="needs Linux: flock, extended attributes, /proc")
    conflicts("platform=windows", msg="needs Linux: flock, extended attributes, /proc")

    depends_on("python@3.10:", type=("build", "run"))
    depends_on("py-hatchling@1.27:", type="build")
    depends_on("py-click@8.1.7:", type=("build", "run"))
    depends_on("py-filelock@3.30:", type=("build", "run"))
    depends_on("py-platformdirs@4.2:", type=("build", "run"))
    depends_on("py-psutil@5.9.8:", type=("build", "run"))
    depends_on("py-tomli@2:", type=("build", "run"), when="^python@:3.10")
    depends_on("py-xxhash@3.4.1:", type=("build", "run"))
    depends_on("py-zstandard@0.23:", type=("build", "run"), when="+zstd")
    depends_on("py-prometheus-client@0.21:", type=("build", "run"), when="+metrics")
