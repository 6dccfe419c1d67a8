# SPDX-License-Identifier: BSD-3-Clause
"""Recipe for Spack: spack repo add packaging/spack; spack install sluice."""
from spack.package import *


class Sluice(MesonPackage):
    """Makes the collectives of unmodified MPI programs faster inside a node. No MPI is linked: the
    library serves whichever MPI a program loads (the MPICH family, Open MPI, the MPI standard's ABI)."""

    license("BSD-3-Clause")

    # Until there are releases: spack develop, or dev_path in an environment.
    version("develop")

    variant("hwloc", default=True, description="Topology in sluice info")
    variant("dwarf", default=True, description="Source lines of call sites in sluice trace")

    depends_on("c", type="build")
    depends_on("meson@1.0:", type="build")
    depends_on("pkgconfig", type="build")
    # sluice bench and sluice tune run it; the build does too
    depends_on("python@3.9:", type=("build", "run"))
    depends_on("hwloc@2:", when="+hwloc")
    depends_on("elfutils", when="+dwarf")

    conflicts("platform=darwin", msg="Linux only")
    conflicts("platform=windows", msg="Linux only")
    conflicts("%gcc@:10", msg="C11 atomics and Linux headers of 2021")

    def meson_args(self):
        features = [f"-D{name}={'enabled' if self.spec.satisfies('+' + name) else 'disabled'}"
                    for name in ("hwloc", "dwarf")]
        return [*features, "-Dtests=false"]

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def check_info(self):
        Executable(self.prefix.bin.sluice)("info")
