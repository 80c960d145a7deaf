"""Measures npudiff golden check on an emulated fleet.

A store holds a fleet of five chipsets (of two arithmetics) with three SDKs each. Then one thing changes (a new SDK, chipset,
option or host, at random) on one device, and with it, in an injection, one edge gets a fault of the emulator. The check must
say that it differs, blame that axis and name that edge as the first. With a clean change it must say: same.

A fault that changed no code is not an injection and is drawn anew. Captures are of emu: devices; what they say of the device
and its runtime is then rewritten, since the emulator knows no chipsets.
Exit code 0: all found and attributed, no alarm; 1: not so; 2: trouble."""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import h5py
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
from write_capture import content_digest, fixed  # noqa: E402

NPUDIFF = os.environ.get("NPUDIFF", "npudiff")
MODEL = ROOT / "golden" / "models" / "cnn.w8a8.onnx"
EDGES = ["stem/relu", "depthwise/relu", "pointwise/relu", "pool", "residual/conv", "residual/relu", "average", "features",
         "logits"]  # fmt: skip
FAULTS = ["scale@{}=*:1.05", "flip@{}=0.05", "zero-point@{}=*:1", "window@{}=0:4", "round@{}=floor"]
PROGRAMS = {"SM8450": "half-even", "SM8550": "half-even", "SM8635": "half-even", "SM8650": "double:8", "SM8750": "double:8"}
SDKS = ["qairt-1.0", "qairt-2.0", "qairt-3.0"]
AXES = {"sdk": 0.5, "chipset": 0.2, "options": 0.15, "host": 0.15}


def npudiff(*arguments, codes=(0,)):
    done = subprocess.run([NPUDIFF, *map(str, arguments)], capture_output=True, text=True, timeout=600)
    if done.returncode not in codes:
        print(f"score_golden: npudiff {' '.join(map(str, arguments))}: {done.stderr.strip()}", file=sys.stderr)
        sys.exit(2)
    return done


def set_text(item, key, value):
    item.attrs.pop(key, None)
    item.attrs.create(key, fixed([value])[0], dtype=fixed([value]).dtype)


def dress(path, chipset, sdk, kernel="6.1", option=None):
    """Rewrites what an emulated device says of itself; the codes stay. How many codes its faults changed."""
    with h5py.File(path, "r+", libver="earliest") as file:
        changed = file["truth"].attrs["n_changed"].decode().split()
        for key, value in (("kind", "htp-sim"), ("chipset", chipset), ("label", f"{chipset}@{sdk}"),
                           ("uri", f"htp-sim:{chipset}@{sdk}")):  # fmt: skip
            set_text(file["device"], key, value)
        for key in [k for k in file["runtime"].attrs if k.startswith("option_profile")]:
            del file["runtime"].attrs[key]
        set_text(file["runtime"], "id", sdk)
        set_text(file["host"], "kernel", kernel)
        if option is not None:
            set_text(file["runtime"], "option_htp_performance_mode", option)
        set_text(file, "content_digest", content_digest(file))
    return sum(map(int, changed))


class Fleet:
    def __init__(self, folder, samples):
        self.folder, self.probe, self.store = pathlib.Path(folder), f"uniform:{samples}", pathlib.Path(folder) / "store"

    def capture(self, name, chipset, sdk, fault=None, **dressing):
        path = self.folder / name
        items = f"round={PROGRAMS[chipset]}" + (f",{fault}" if fault else "")
        npudiff("capture", MODEL, "-d", f"emu:{items}", "-p", self.probe, "-o", path, "-q", "-f")
        n_changed = dress(path, dressing.pop("called", chipset), sdk, **dressing)
        return path, n_changed

    def fill(self):
        paths = [self.capture(f"{c}-{s}.h5", c, s)[0] for c in PROGRAMS for s in SDKS]
        npudiff("golden", "add", self.store, *paths, "--digest-only")

    def check(self, path):
        done = npudiff("golden", "check", self.store, path, "--json", codes=(0, 1, 2, 3, 4, 5))
        return done.returncode, json.loads(done.stdout)["checks"][0]

    def change(self, rng, axis, fault):
        """A capture of a device of which one axis is new."""
        chipset, sdk = str(rng.choice(list(PROGRAMS))), str(rng.choice(SDKS))
        dressing = {"sdk": {}, "chipset": {"called": "SM9999"}, "options": {"option": "burst"}, "host": {"kernel": "7.0"}}
        name = "changed.h5"
        return self.capture(name, chipset, "qairt-4.0" if axis == "sdk" else sdk, fault, **dressing[axis]), (chipset, sdk)


def draw_axis(rng):
    return str(rng.choice(list(AXES), p=list(AXES.values())))


def inject(fleet, rng):
    """One injection; None when all is right, else what went wrong."""
    while True:
        axis, edge = draw_axis(rng), str(rng.choice(EDGES))
        fault = str(rng.choice(FAULTS)).format(edge)
        (path, n_changed), place = fleet.change(rng, axis, fault)
        if n_changed > 0:
            break
    code, report = fleet.check(path)
    first = (report.get("first") or {}).get("name")
    found = (code, report.get("blamed"), first)
    return None if found == (1, [axis], edge) else f"{fault} on {place}, new {axis}: {found}"


def leave_clean(fleet, rng):
    axis = draw_axis(rng)
    (path, _), place = fleet.change(rng, axis, None)
    code, report = fleet.check(path)
    return None if (code, report["what_changed"]) == (0, [axis]) else f"clean {place}, new {axis}: {code}, {report['what_changed']}"


def run(options):
    rng = np.random.default_rng(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        fleet = Fleet(folder, options.samples)
        fleet.fill()
        wrong = [w for w in (inject(fleet, rng) for _ in range(options.n)) if w]
        alarms = [w for w in (leave_clean(fleet, rng) for _ in range(options.clean)) if w]
    for line in wrong + alarms:
        print(line)
    print(f"seed {options.seed}: {options.n - len(wrong)} of {options.n} injections found and attributed to the right axis, "
          f"{len(alarms)} alarms on {options.clean} clean changes")  # fmt: skip
    return bool(wrong or alarms)


def main():
    parser = argparse.ArgumentParser(prog="tools/studies/score_golden", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--n", type=int, default=200, help="injections (%(default)s)")
    parser.add_argument("--clean", type=int, default=200, help="changes without a fault (%(default)s)")
    parser.add_argument("--samples", type=int, default=3, help="of each capture (%(default)s)")
    parser.add_argument("--seed", type=int, default=20261121, help="(%(default)s)")
    return run(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
