"""64-bit Arm Linux on this machine: the agent built for it, ONNX Runtime's own library for it, and user-mode emulation.

What is real: the compiler, the C library, the agent, and ONNX Runtime as others run it on Arm. What stands in: the CPU,
by qemu, and what Linux says of it, by a few files in a folder that the emulated programs take for the root.
Run by hand, it prints what to put before the agent.
"""
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import tempfile

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "npudiff"
LIBRARIES = pathlib.Path("/usr/aarch64-linux-gnu/lib") # of Debian's packages lib*-arm64-cross
CPU = "neoverse-n1" # on cortex-a72 the wheel of ONNX Runtime meets instructions that are not there
RUNTIME = "ort-1.31.1" # tools/runtimes/aarch64-linux; the same version as the x86-64 runtime SAME_AS
SAME_AS = "qairt-2.51.0"

# ONNX Runtime reads what CPU it runs on, and ends where that is not told.
CPUINFO = "".join(f"""processor\t: {i}
BogoMIPS\t: 50.00
Features\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x4
CPU part\t: 0xd0c
CPU revision\t: 1

""" for i in range(2))
SYSTEM = {"possible": "0-1", "present": "0-1", "online": "0-1", "kernel_max": "1"}
PER_CPU = {"topology/physical_package_id": "0", "topology/core_id": "{i}", "topology/core_siblings_list": "0-1",
           "topology/package_cpus_list": "0-1", "topology/thread_siblings_list": "{i}",
           "cpufreq/cpuinfo_min_freq": "1000000", "cpufreq/cpuinfo_max_freq": "3000000",
           "regs/identification/midr_el1": "0x00000000413fd0c1"}


class Missing(Exception):
    """What this machine lacks."""


def emulator():
    found = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
    if found is None:
        raise Missing("qemu-aarch64 is missing (package qemu-user)")
    return found


def sysroot():
    """The folder that emulated programs take for the root, made once."""
    for name in ("libc.so.6", "ld-linux-aarch64.so.1", "libstdc++.so.6", "libgcc_s.so.1"):
        if not (LIBRARIES / name).exists():
            raise Missing(f"{LIBRARIES / name} is missing (packages libc6-arm64-cross, libstdc++6-arm64-cross)")
    folder = CACHE / "arm64" / "sysroot"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = pathlib.Path(tempfile.mkdtemp(dir=folder.parent, prefix=".sysroot"))
        made.chmod(0o755)
        (made / "lib").symlink_to(LIBRARIES)
        texts = {"proc/cpuinfo": CPUINFO}
        texts.update((f"sys/devices/system/cpu/{name}", text + "\n") for name, text in SYSTEM.items())
        texts.update((f"sys/devices/system/cpu/cpu{i}/{name}", text.format(i=i) + "\n")
                     for i in range(2) for name, text in PER_CPU.items())
        for name, text in texts.items():
            (made / name).parent.mkdir(parents=True, exist_ok=True)
            (made / name).write_text(text)
        try:
            made.rename(folder)
        except OSError: # another one was first
            shutil.rmtree(made)
    return folder


def launcher():
    """What to put before an arm64 program, as words: the value of NPUDIFF_LAUNCHER, split."""
    return [emulator(), "-cpu", CPU, "-L", str(sysroot())]


def agent():
    """npudiff-agent for 64-bit Arm Linux, beside the npudiff that is tested, where that one looks for it."""
    build = pathlib.Path(os.environ["NPUDIFF"]).resolve().parents[2]
    if shutil.which("aarch64-linux-gnu-gcc") is None:
        raise Missing("aarch64-linux-gnu-gcc is missing (package gcc-aarch64-linux-gnu)")
    done = subprocess.run([TOOLS / "build_agent", "aarch64-linux", "-C", build], capture_output=True, text=True)
    if done.returncode == 77:
        raise Missing(done.stderr.strip().splitlines()[-1])
    if done.returncode != 0:
        raise AssertionError(f"tools/build_agent: {done.stdout}{done.stderr}")
    return build / "agents" / "aarch64-linux" / "npudiff-agent"


def runtime():
    """The folder of ONNX Runtime for 64-bit Arm Linux."""
    folder = pathlib.Path(os.environ.get("NPUDIFF_RUNTIMES") or CACHE / "runtimes") / f"{RUNTIME}.aarch64-linux"
    if not (folder / "runtime.json").exists():
        raise Missing(f"{folder} is missing (tools/setup --runtime {RUNTIME}.aarch64-linux)")
    return folder


HERE = "arm64" # the runtime of environment_here


def environment_here(folder):
    """What makes `cpu@arm64` a device of this machine, without adb: a script as the agent that starts the emulator, and a
    runtime that to npudiff is one of this machine, since the script makes it one. Both go into the folder."""
    script = folder / "agent"
    script.write_text(f'#!/bin/sh\nexec {shlex.join([*launcher(), str(agent())])} "$@"\n')
    script.chmod(0o755)
    made = folder / "runtimes" / HERE
    made.mkdir(parents=True)
    (made / "onnxruntime").symlink_to(runtime() / "onnxruntime")
    manifest = json.loads((runtime() / "runtime.json").read_text())
    manifest.update(id=HERE, abi="x86_64-linux")
    (made / "runtime.json").write_text(json.dumps(manifest))
    return {"NPUDIFF_AGENT": str(script), "NPUDIFF_RUNTIMES": str(folder / "runtimes")}


if __name__ == "__main__":
    print(*launcher())
