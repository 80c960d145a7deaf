"""Builds the command with Meson and puts it into the wheel: npudiff/bin holds the programs, npudiff/lib the library.

Needs what tools/setup installs (a C compiler, meson, ninja, HDF5 and so on). Other libraries are not put in: run
`auditwheel repair` on the wheel for machines that lack them, as tools/studies/wheel does.

For another machine, NPUDIFF_WHEEL_PLATFORM is its platform ("linux_aarch64"), and NPUDIFF_WHEEL_CROSS Meson's cross files,
separated by ':'."""
import os
import pathlib
import shutil
import subprocess
import sysconfig

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = pathlib.Path(__file__).resolve().parent.parent
PROGRAMS = ["npudiff", "npudiff-agent", "npudiff-agent-exact", "npudiff-agent-exec"]


class BuildHook(BuildHookInterface):
    def initialize(self, version, build_data):
        if version == "editable":
            return # the command of the build folder is used: set NPUDIFF
        # One folder for all calls: pip asks for the metadata first, and gets it from a whole build.
        platform = os.environ.get("NPUDIFF_WHEEL_PLATFORM") or sysconfig.get_platform().replace("-", "_").replace(".", "_")
        cross = [word for file in os.environ.get("NPUDIFF_WHEEL_CROSS", "").split(":") if file for word in ("--cross-file", file)]
        build = SOURCE / f"build-wheel-{platform}"
        installed = build / "installed"
        if not (build / "build.ninja").exists():
            # auditwheel sets where libraries are looked for, too, but not for who does without it. A cross file has link
            # arguments of its own, which this option would replace.
            rpath = [] if cross else ["-Dc_link_args=-Wl,-rpath,$ORIGIN/../lib"]
            subprocess.run(["meson", "setup", build, SOURCE, "--buildtype=release", "-Dtests=disabled", "--prefix=/",
                            "--libdir=lib", *rpath, *cross], check=True)
        subprocess.run(["ninja", "-C", build, *os.environ.get("NPUDIFF_NINJA_ARGS", "").split()], check=True)
        shutil.rmtree(installed, ignore_errors=True)
        subprocess.run(["meson", "install", "-C", build, "--no-rebuild", "--strip", "--destdir", installed], check=True)
        library = sorted((installed / "lib").glob("libnpudiff.so.*"))[-1]
        soname = ".".join(library.name.split(".")[:3])
        build_data["force_include"].update({str(installed / "bin" / name): f"npudiff/bin/{name}" for name in PROGRAMS})
        build_data["force_include"][str(library)] = f"npudiff/lib/{soname}"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"
