"""Measures how well npudiff explain tells which units an NPU computed, on real runs whose placement is known.

Runs: both golden models in W8A8 and W8A16 and those of golden/fallback, on the CPU (with and without optimisations) and on
simulated chipsets, where operators that a chipset lacks go to the CPU. What the captures say of their placement is the truth;
explain is asked with --hide-placement, every capture by itself and all of one model together. Then it is asked with the
placement: it must agree everywhere. Last, CPU captures are dressed up as an NPU's: each must be called a whole run on the CPU.

Positive is "not on the NPU". Precision and recall are over units with a verdict. A unit is decidable when its codes or floats
are computed (not moved), and NPUs in this study are never exact in units of its kind (operator and width): "recall, decidable"
is over all of those, whatever the verdict. Every error is listed.

Captures are kept in DIR and used again when their model and number of samples are the same.
Exit code 0: precision and both recalls 0.99 or more, with placement all agree, all lies are found; 1: not so; 2: trouble."""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import h5py
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
from write_capture import content_digest, fixed  # noqa: E402

NPUDIFF = os.environ.get("NPUDIFF", "npudiff")
GOLDEN = ROOT / "golden"
MODELS = [GOLDEN / "models" / f"{m}.{q}.onnx" for m in ("cnn", "vit") for q in ("w8a8", "w8a16")]
CHIPSETS = ["htp-sim:gen1", "htp-sim:gen3", "htp-sim:gen5"]
OPTIMISED = "cpu?optimisation=all" # of the golden models and those of many operators
LIES = ["cnn.w8a8", "cnn.w8a16", "vit.w8a8", "vit.w8a16", "mixed.u8", "mixed.u16", "erf.float"]
GOAL = 0.99
VERDICTS = {"CPUExecutionProvider": "not-npu", "QNNExecutionProvider": "npu"}


def fail(text):
    print(f"score_fallback: {text}", file=sys.stderr)
    sys.exit(2)


def npudiff(*arguments, codes=(0,)):
    done = subprocess.run([NPUDIFF, *map(str, arguments)], capture_output=True, text=True, timeout=1200)
    if done.returncode not in codes:
        fail(f"npudiff {' '.join(map(str, arguments))}: exit code {done.returncode}: {done.stderr.strip()[-800:]}")
    return done.stdout


def text(value):
    return value.decode() if isinstance(value, bytes) else str(value)


# ---- runs ----


def file_name(device):
    return device.split(":")[-1].replace("?optimisation=", "-") + ".h5"


def is_kept(path, model, samples):
    try:
        sha = json.loads(npudiff("info", path, "--json"))["model"]["sha256"]
        with h5py.File(path, "r") as file:
            is_whole = int(file["probes/digits"].attrs["n_samples"]) == samples
    except (OSError, KeyError, SystemExit, ValueError):
        return False
    return is_whole and sha == model_sha(model)


def model_sha(model):
    import hashlib

    return hashlib.sha256(model.read_bytes()).hexdigest()


def capture(model, folder, probe, samples):
    """One model on all devices; the captures that did not fail."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    is_optimised = model in MODELS or model.stem.startswith(("healthy", "operators"))
    for device in ["cpu", *([OPTIMISED] if is_optimised else []), *CHIPSETS]:
        path = folder / file_name(device)
        if not (path.exists() and is_kept(path, model, samples)):
            npudiff("capture", model, "-d", device, "-p", probe, "-o", path, "-q", "-f", "--allow-fallback", codes=(0, 5))
        with h5py.File(path, "r") as file:
            if text(file.attrs["status"]) == "complete":
                paths.append(path)
    return model, paths


def make_probe(folder, samples):
    whole = np.load(GOLDEN / "models/digits-test.npz")
    np.savez(folder / "digits.npz", image=whole["image"][:samples], labels=whole["labels"][:samples])
    return f"digits={folder / 'digits.npz'}"


# ---- what is said of them ----


def explain(model, *paths, hide=True):
    flags = ["--hide-placement"] if hide else []
    said = npudiff("explain", "--quantised" if "float" not in model.name else "--float", model, *paths, "--effect-samples", 0,
                   "--json", *flags, codes=(0, 1, 4))  # fmt: skip
    return json.loads(said)["devices"]


def truth(path):
    """{edge: provider}"""
    with h5py.File(path, "r") as file:
        return dict(zip(map(text, file["edges/name"][:]), map(text, file["edges/provider"][:])))


def widths(path):
    with h5py.File(path, "r") as file:
        return dict(zip(map(text, file["edges/name"][:]), map(text, file["edges/dtype"][:])))


def units_of(model, path, device):
    """(model, device, unit, operator, width, what is true, what is said) of every unit whose place is known."""
    providers, width = truth(path), widths(path)
    for unit in device["layers"]:
        provider = providers.get(unit["name"], "")
        if provider == "" or unit["op_type"] == "input":
            continue
        yield {"model": model.stem, "run": path.stem, "unit": unit["name"], "op": unit["op_type"].split("+")[0],
               "width": width[unit["name"]], "truth": VERDICTS[provider], **unit["execution"]}  # fmt: skip


class Score:
    def __init__(self, name, units):
        self.name, self.units = name, units
        said = [u for u in units if u["verdict"] != "unknown"]
        n = collections.Counter((u["truth"], u["verdict"]) for u in said)
        self.true, self.false = n["not-npu", "not-npu"], n["npu", "not-npu"]
        self.missed, self.right = n["not-npu", "npu"], n["npu", "npu"]
        self.errors = [u for u in said if u["verdict"] != u["truth"]]
        self.coverage = len(said) / len(units)
        off = [u for u in units if u["verdict"] == "unknown" and u["truth"] == "not-npu"]
        kinds = decidable_kinds(units)
        self.undecided = [u for u in off if (u["op"], u["width"]) in kinds and is_computed(u)]
        self.computed = [u for u in off if is_computed(u) and u not in self.undecided]

    def precision(self):
        return self.true / max(self.true + self.false, 1)

    def recall(self):
        return self.true / max(self.true + self.missed, 1)

    def recall_decidable(self):
        return self.true / max(self.true + self.missed + len(self.undecided), 1)

    def print(self):
        print(f"\n{self.name}: {len(self.units)} units, {sum(u['truth'] == 'not-npu' for u in self.units)} not on the NPU; "
              f"with a verdict {100 * self.coverage:.1f}%")  # fmt: skip
        print(f"  precision {self.precision():.4f} ({self.true} of {self.true + self.false}), recall {self.recall():.4f} "
              f"({self.true} of {self.true + self.missed}), recall, decidable {self.recall_decidable():.4f} "
              f"({self.true} of {self.true + self.missed + len(self.undecided)})")  # fmt: skip
        for title, units in (("error", self.errors), ("undecided", self.undecided)):
            for u in units:
                print(f"  {title}: {u['model']} {u['run']} '{u['unit']}' ({u['op']}, {u['width']}): {u['verdict']}, "
                      f"truly {u['truth']}; {u['off']} of {u['deciding']} codes off, {u['far']} far; {u['balance']:.1f} bits")  # fmt: skip
        kinds = collections.Counter((u["op"], u["width"]) for u in self.computed)
        rest = ", ".join(f"{n} {op} {width}" for (op, width), n in sorted(kinds.items()))
        print(f"  not decidable, computed off the NPU: {rest or 'none'}")

    def summary(self):
        return {"units": len(self.units), "coverage": self.coverage, "precision": self.precision(), "recall": self.recall(),
                "recall_decidable": self.recall_decidable(), "errors": len(self.errors), "undecided": len(self.undecided)}  # fmt: skip

    def is_good(self):
        return min(self.precision(), self.recall(), self.recall_decidable()) >= GOAL


def is_computed(unit):
    return unit["deciding"] > 0 or any(e["kind"].startswith(("off-fp16", "fp16")) for e in unit["evidence"])


def decidable_kinds(units):
    """Operators and widths of which the NPU's units all have codes that float arithmetic does not give."""
    exact, off = set(), set()
    for u in units:
        if u["truth"] == "npu" and u["deciding"] > 0:
            (off if u["far"] > 0 or u["off"] > 0.01 * u["deciding"] else exact).add((u["op"], u["width"]))
    return off - exact


# ---- lies ----


def set_text(item, key, value):
    item.attrs.pop(key, None)
    item.attrs.create(key, fixed([value])[0], dtype=fixed([value]).dtype)


def dress(path, to):
    """A CPU capture that calls itself one of a simulated chipset, as a runtime that retried on the CPU leaves it."""
    shutil.copy(path, to)
    with h5py.File(to, "r+", libver="earliest") as file:
        for key, value in (("kind", "htp-sim"), ("chipset", "SM8650"), ("label", "SM8650"), ("uri", "htp-sim:SM8650")):
            set_text(file["device"], key, value)
        set_text(file, "content_digest", content_digest(file))
    return to


def find_lies(runs, folder):
    lies, missed = 0, []
    for model, paths in runs:
        if model.stem not in LIES:
            continue
        for path in [p for p in paths if p.stem.startswith("cpu")]:
            lies += 1
            device = explain(model, dress(path, folder / f"{model.stem}-{path.name}"))[0]["execution"]
            kinds = [e["kind"] for e in device["evidence"]]
            if device["verdict"] != "not-npu" or "whole-run-cpu" not in kinds:
                missed.append(f"{model.stem} {path.stem}: {device['verdict']}, {kinds}")
    return lies, missed


# ---- all of it ----


def run(options):
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(options.output or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        probe = make_probe(folder, options.samples)
        models = MODELS + sorted((GOLDEN / "fallback").glob("*.onnx"))
        models = [m for m in models if not options.models or m.stem in options.models]
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            runs = list(pool.map(lambda m: capture(m, folder / m.stem, probe, options.samples), models))
            alone = list(pool.map(lambda r: [u for p in r[1] for u in units_of(r[0], p, explain(r[0], p)[0])], runs))
            fleets = list(pool.map(lambda r: explain(r[0], *r[1]), runs))
            placed = list(pool.map(lambda r: explain(r[0], *r[1], hide=False), runs))
        together = [[u for p, d in zip(r[1], f) for u in units_of(r[0], p, d)] for r, f in zip(runs, fleets)]
        known = [u for r, f in zip(runs, placed) for p, d in zip(r[1], f) for u in units_of(r[0], p, d)]
        lies, missed = find_lies(runs, folder)
    scores = [Score("every run by itself", sum(alone, [])), Score("all runs of a model together", sum(together, []))]
    wrong = [u for u in known if u["verdict"] != u["truth"]]
    n_partly = sum({u["truth"] for u in units_of(r[0], p, d)} == {"npu", "not-npu"}
                   for r, f in zip(runs, fleets) for p, d in zip(r[1], f))  # fmt: skip
    print(f"{sum(len(r[1]) for r in runs)} runs of {len(runs)} models, {options.samples} samples each; {n_partly} of them partly on "
          f"the NPU; {time.monotonic() - begun:.0f} s")  # fmt: skip
    for score in scores:
        score.print()
    print(f"\nwith placement: {len(known) - len(wrong)} of {len(known)} units agree")
    for u in wrong:
        print(f"  {u['model']} {u['run']} '{u['unit']}': {u['verdict']}, truly {u['truth']}, {u['balance']:.1f} bits")
    print(f"CPU runs that call themselves an NPU's: {lies - len(missed)} of {lies} found")
    for line in missed:
        print(f"  missed: {line}")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({"runs": sum(len(r[1]) for r in runs), "partly": n_partly,
                                                          "alone": scores[0].summary(), "together": scores[1].summary(),
                                                          "placed": len(known), "placed_wrong": len(wrong), "lies": lies,
                                                          "lies_missed": len(missed)}, indent=2) + "\n")  # fmt: skip
    return 0 if all(s.is_good() for s in scores) and not wrong and not missed else 1


def main():
    parser = argparse.ArgumentParser(prog="score_fallback", description=__doc__.split("\n\n")[0],
                                     epilog="\n\n".join(__doc__.split("\n\n")[1:]),
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("-o", "--output", metavar="DIR", help="keep the captures there (a folder that is removed)")
    parser.add_argument("--samples", type=int, default=16, metavar="N", help="digits that every run is given (16)")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="runs at once (2)")
    parser.add_argument("--models", nargs="*", metavar="NAME", help="only those (cnn.w8a8, erf.u16 ...)")
    parser.add_argument("--json", metavar="FILE", help="write the summary there, too")
    sys.exit(run(parser.parse_args()))


if __name__ == "__main__":
    main()
