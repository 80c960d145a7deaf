#!/usr/bin/python3
"""What the checks of a capture cost, on captures like those of tools/demo (cnn.w8a8 and vit.w8a8, all tensors, on the CPU and on
two emulated devices): each piece of work with its checks and without, in turn, in one run. Processor time (user and system) with
all children; the least of the rounds, and the median of the ratios of a round.

  open      nd_capture_open, and without the digest of the content (nd_capture_open_unchecked)
  compare   `compare`, and with --trust-digests
  capture   `capture -d cpu`, and with agents that are not confined (NPUDIFF_CONFINE=off)

usage: tools/bench.sh checks [ROUNDS]"""
import ctypes
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("BUILD", ROOT / "build")).resolve()
NPUDIFF, MODELS = BUILD / "src/cli/npudiff", ROOT / "golden/models"
PROBE = f"digits={MODELS / 'digits-test.npz'}"
DEVICES = ["cpu", "emu:htp-v69", "emu:htp-v73"]
OPENINGS = 20 # of each capture: one takes some milliseconds


def processor_s(work):
    def used():
        return sum(t for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN) for t in resource.getrusage(who)[:2])
    before = used()
    work()
    return used() - before


def run(*arguments, **environment):
    done = subprocess.run([NPUDIFF, *map(str, arguments)], capture_output=True, env={**os.environ, **environment})
    if done.returncode > 1: # 1: they differ
        sys.exit(done.stderr.decode())


def opened(library, function, paths):
    for path in paths * OPENINGS:
        capture = ctypes.c_void_p()
        if getattr(library, function)(os.fsencode(path), ctypes.byref(capture), None) != 0:
            sys.exit(f"{path}: not opened")
        library.nd_capture_close(ctypes.byref(capture))


def measure(name, checked, plain, rounds):
    plain() # what both read is in memory then
    pairs = [(processor_s(checked), processor_s(plain)) for _ in range(rounds)]
    least = [min(side) for side in zip(*pairs)]
    print(f"| {name} | {least[0]:.3f} s | {least[1]:.3f} s | {least[0] / least[1]:.3f} | {statistics.median(a / b for a, b in pairs):.3f} |",
          flush=True)


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 11
    library = ctypes.CDLL(str(BUILD / "src/libnpudiff.so"))
    print(f"load {os.getloadavg()[0]:.1f}, {rounds} rounds\n\n| work | checked | without | least | median |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        for model in ("cnn.w8a8", "vit.w8a8"):
            folder = pathlib.Path(name) / model
            capture = ["capture", MODELS / f"{model}.onnx", "-p", PROBE, "-q", "-f"]
            run(*capture, *(word for device in DEVICES for word in ("-d", device)), "-o", folder)
            paths = sorted(folder.glob("*.h5"))
            measure(f"open, {len(paths)} captures of {model}, {OPENINGS} times", lambda p=paths: opened(library, "nd_capture_open", p),
                    lambda p=paths: opened(library, "nd_capture_open_unchecked", p), rounds)
            measure(f"compare, {len(paths)} captures of {model}", lambda p=paths: run("compare", *p, "-q"),
                    lambda p=paths: run("compare", *p, "-q", "--trust-digests"), rounds)
            one = [*capture, "-d", "cpu", "-o", pathlib.Path(name) / "one.h5"]
            measure(f"capture, {model} on the CPU", lambda c=one: run(*c), lambda c=one: run(*c, NPUDIFF_CONFINE="off"), rounds)


if __name__ == "__main__":
    main()
