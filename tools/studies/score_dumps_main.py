"""Measures what npudiff compare says of other people's dumps, without a model: NumPy files with one tensor spoilt, and healthy ones.

The tensors are captures of the golden models cnn.float, vit.float, cnn.w8a8 and vit.w8a16: of the CPU (the reference) and of
htp-sim:gen3 (the test; it computes floats in half precision), so that every fault lies on the simulator's own differences.
They are stored as float32, float16, bfloat16, uint8 or uint16; one random tensor of the test is spoilt; both sides go through
'npudiff import numpy' and 'npudiff compare --json'. An answer is
  right      the first fault that compare names is in the spoilt tensor and of the right kind
  kind       the first fault is in the spoilt tensor, but of a different kind
  elsewhere  the first fault is in a different tensor
  nothing    compare names no fault (it reports the difference alone)
A fault that can hardly be seen is drawn again: of the spoilt values 1 % (and 12) must be further from the reference than 1/8 of
its spread and than four steps. Truncation, ties and wrong labels change small amounts by nature: there 12 values must differ.

Healthy pairs are samples of the same captures, and of other golden models, with nothing spoilt: cpu and gen3, gen1 and gen3,
and floats beside the same floats in half precision. No fault may be named there.

Exit code 0: no healthy pair is accused, and 85 % of the faults are right; 1: not so; 2: trouble."""

import argparse
import collections
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.parse

import h5py
import numpy as np
from score_dumps_faults import CODES, FAULTS, FROM_FLOATS, LABEL, NOTES, PERMUTED, SMALL, loaded, stored

NPUDIFF = os.environ.get("NPUDIFF", "npudiff")
MODELS = pathlib.Path(__file__).resolve().parents[2] / "golden" / "models"
DEVICES = {"cpu": "cpu", "gen1": "htp-sim:gen1", "gen3": "htp-sim:gen3"}
SOURCES = {"float32": ["cnn.float", "vit.float"], "float16": ["cnn.float", "vit.float"], "bfloat16": ["cnn.float", "vit.float"],
           "uint8": ["cnn.w8a8"], "uint16": ["vit.w8a16"]}  # fmt: skip
# Healthy pairs of networks that no fault is laid on.
MORE = {"float32": ["random-attention.float", "random-residual.float"], "float16": ["random-attention.float", "random-residual.float"],
        "bfloat16": ["random-attention.float", "random-residual.float"], "uint8": ["vit.w8a8", "random-attention.w8a8"],
        "uint16": ["cnn.w8a16"]}  # fmt: skip
MIN_RIGHT = 0.85  # share of all injections; chosen: 0.95 were right on seeds 20261301 and 20261302
SAMPLES = 16  # of each dump, of the 128 that were captured; chosen
FAR, FAR_STEPS, FAR_SHARE, FAR_LEAST = 1 / 8, 4, 0.01, 12  # what an injection must change to count (see above); chosen
TRIES = 60  # tensors and numbers that are drawn for one injection; chosen


class Trouble(Exception):
    pass


def parse(arguments):
    parser = argparse.ArgumentParser(prog="tools/studies/score_dumps", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--n", type=int, default=6, help="injections of each fault on each type (%(default)s)")
    parser.add_argument("--healthy", type=int, default=3, help="healthy pairs of each sort, model and type (%(default)s)")
    parser.add_argument("--seed", type=int, default=20261122, help="(%(default)s)")
    parser.add_argument("--faults", default="", metavar="NAMES", help="only these, with commas (all)")
    parser.add_argument("--captures", type=pathlib.Path, metavar="DIR", help="keep the captures there, or take those that are there")
    parser.add_argument("--keep", type=pathlib.Path, metavar="DIR", help="keep the dumps and captures of what is not right")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write every outcome")
    parser.add_argument("-v", "--verbose", action="store_true", help="print every injection that is not right")
    options = parser.parse_args(arguments)
    options.faults = options.faults.split(",") if options.faults else list(FAULTS)
    unknown = [f for f in options.faults if f not in FAULTS]
    if unknown:
        parser.error(f"unknown fault '{unknown[0]}'; there are {', '.join(FAULTS)}")
    return options


def run(command, codes):
    done = subprocess.run([NPUDIFF, *map(str, command)], capture_output=True, text=True, timeout=600)
    if done.returncode not in codes:
        raise Trouble(f"npudiff {' '.join(map(str, command))}: exit code {done.returncode}: {done.stderr.strip()[:300]}")
    return done


# ---- tensors and their types ----


def read_captures(folder):
    """{model: {device: {tensor: values}}}, in the order of the graph; values are float64, codes as whole numbers."""
    made = {}
    for model in sorted({m for models in [*SOURCES.values(), *MORE.values()] for m in models}):
        probe = MODELS / ("random-probe.npz" if model.startswith("random") else "digits-calibration.npz")
        missing = [d for d in DEVICES if not (folder / model / f"{d}.h5").exists()]
        if missing:
            (folder / model).mkdir(parents=True, exist_ok=True)
            for d in missing:
                run(["capture", MODELS / f"{model}.onnx", "-d", DEVICES[d], "-q", "-p", f"digits={probe}",
                     "-o", folder / model / f"{d}.h5"], [0])  # fmt: skip
        made[model] = {}
        for d in DEVICES:
            with h5py.File(folder / model / f"{d}.h5") as file:
                outputs = {urllib.parse.unquote(k): v for k, v in file["probes/digits/outputs"].items()}
                order = [n.decode() for n in file["edges/name"][:]]
                made[model][d] = {n: outputs[n][()].astype(np.float64) for n in order if n in outputs and n != "image"}
    return made


class Dumps:
    """The two sides of one comparison. Each is {tensor: values}; types holds tensors of a type of their own; maps says of each
    side what the files do not; runs are further runs of the test."""

    def __init__(self, ref, test, form):
        self.sides, self.form, self.types, self.maps, self.runs = [dict(ref), dict(test)], form, {}, [{}, {}], []
        self.is_relabelled = None  # a type with the same bytes, for the test's spoilt tensor

    def write(self, folder):
        """The arguments of import numpy for both sides."""
        commands = []
        for side, word in enumerate("ab"):
            files = []
            for k, tensors in enumerate([self.sides[side], *(self.runs if side else [])]):
                arrays = {n: stored(v, self.types.get(n, self.form)) for n, v in tensors.items()}
                if side and self.is_relabelled:
                    name, kind = self.is_relabelled
                    arrays[name] = arrays[name].view(kind)
                files.append(folder / f"{word}{k}.npz")
                np.savez(files[-1], **arrays)
            items = dict(self.maps[side])
            if self.form == "bfloat16":
                items |= {n: {"dtype": "bfloat16"} for n in self.sides[side] if n not in self.types and n not in items}
            lines = ["tensors:"] + [f"  - {json.dumps({'name': n, **item})}" for n, item in items.items()]
            (folder / f"{word}.yaml").write_text("\n".join(lines) + "\n")
            more = ["--map", folder / f"{word}.yaml"] if items else []
            commands.append(["import", "numpy", files[0], "--probe", "p", "--samples-axis", "first", "-q", "-f", *more,
                             *(a for f in files[1:] for a in ("--repeat", f)), "-o", folder / f"{word}.h5"])  # fmt: skip
        return commands

    def compare(self, folder):
        for command in self.write(folder):
            run(command, [0])
        return json.loads(run(["compare", folder / "a.h5", folder / "b.h5", "--json"], [0, 1, 3]).stdout)


# ---- one injection ----


def is_visible(word, before, after, ref, form):
    if word in ("signedness", "scale-and-zero", "float-label"):
        return len(np.unique(ref)) >= FAR_LEAST
    away = np.abs(loaded(after, form) - loaded(ref, form))
    if word in SMALL:  # a cut of values that the device has on that grid already changes nothing
        moved = stored(after, form) != stored(before, form)
        return np.count_nonzero(away) >= FAR_LEAST and np.count_nonzero(moved) >= max(FAR_LEAST, FAR_SHARE * moved.size)
    limit = max(FAR * ref.std(), FAR_STEPS if form in CODES else 0)
    n = np.count_nonzero(~(away <= limit) & ~(np.abs(loaded(before, form) - loaded(ref, form)) > limit))
    return n >= max(FAR_LEAST, FAR_SHARE * away.size)


def inject(rng, captures, word, form):
    """The Dumps with one tensor spoilt, its name and the model; None where no tensor suits."""
    fault = FAULTS[word][0]
    for _ in range(TRIES):
        models = SOURCES["float32"] if word in FROM_FLOATS else SOURCES[form]
        model = models[int(rng.integers(len(models)))]
        d = draw(rng, captures[model], "cpu", "gen3", form)
        names = list(d.sides[1])
        name = names[int(rng.integers(len(names)))]
        if word in FROM_FLOATS and form in CODES:  # of all others the CPU's codes would be of floats, too
            d.sides = [{name: side[name]} for side in d.sides]
        after = fault(rng, name, d.sides[1][name], d.sides[0][name], form, d)
        if after is not None and is_visible(word, d.sides[1][name], after, d.sides[0][name], form):
            d.sides[1][name] = after
            return d, name, model
    return None


def draw(rng, capture, ref, test, form):
    """The same random samples of two devices."""
    n = len(next(iter(capture[ref].values())))
    which = np.sort(rng.permutation(n)[:SAMPLES])
    return Dumps({k: v[which] for k, v in capture[ref].items()}, {k: v[which] for k, v in capture[test].items()}, form)


def answers_of(result):
    """Faults as (tensor, kind), wrong labels first; and notes on arithmetic."""
    pairs = [(e["name"], p) for e in result["tensors"] for p in e["pairs"]]
    faults = [(n, LABEL) for n, p in pairs if p.get("label")]
    faults += [(g["tensor"], g["kind"]) for g in result["diagnoses"] if g["fault"]]
    faults += [(n, PERMUTED) for n, p in pairs if p.get("structure") and p["structure"].get("permutation")]
    return faults, [(g["tensor"], g["kind"]) for g in result["diagnoses"] if not g["fault"]]


def judge(word, name, result):
    faults, notes = answers_of(result)
    kinds = FAULTS[word][1]
    if not faults and any((name, k) in notes for k in kinds & NOTES):
        return "right", faults
    if not faults:
        return "nothing", faults
    if faults[0][0] != name:
        return "elsewhere", faults
    return ("right" if faults[0][1] in kinds else "kind"), faults


# ---- the study ----


def wilson(k, n, z=1.959964):
    """The 95 % interval of a share."""
    if n == 0:
        return 0.0, 1.0
    p, q = k / n, z * z / n
    middle, half = (p + q / 2) / (1 + q), z * math.sqrt(p * (1 - p) / n + q / n / 4) / (1 + q)
    return max(0.0, middle - half), min(1.0, middle + half)


def share(k, n):
    low, high = wilson(k, n)
    return f"{100 * k / n:5.1f} % [{100 * low:.0f} to {100 * high:.0f}]" if n else "-"


def study_faults(options, captures):
    outcomes = []
    for f, word in enumerate(FAULTS):
        if word not in options.faults:
            continue
        for t, form in enumerate(SOURCES):
            for k in range(options.n):
                made = inject(np.random.default_rng([options.seed, f, t, k]), captures, word, form)
                if made is None:
                    break
                d, name, model = made
                with tempfile.TemporaryDirectory(prefix="score-dumps-") as scratch:
                    state, faults = judge(word, name, d.compare(pathlib.Path(scratch)))
                outcomes.append({"fault": word, "type": form, "number": k, "model": model, "tensor": name, "state": state, "named": faults})
                if state != "right":
                    report_miss(options, outcomes[-1], d)
    return outcomes


def report_miss(options, outcome, d):
    title = f"{outcome['fault']}-{outcome['type']}-{outcome['number']}"
    if options.verbose:
        named = ", ".join(f"{k} in '{n}'" for n, k in outcome["named"][:3]) or "nothing"
        print(f"  {title}: {outcome['model']} '{outcome['tensor']}': {outcome['state']}; named: {named}", flush=True)
    if options.keep:
        (options.keep / title).mkdir(parents=True, exist_ok=True)
        for command in d.write(options.keep / title):
            run(command, [0])


def study_healthy(options, captures):
    outcomes = []
    for t, (form, models) in enumerate(SOURCES.items()):
        sorts = [("cpu", "gen3"), ("gen1", "gen3")] + [("cpu", "half")] * (form == "float32")
        for m, model in enumerate(models + MORE[form]):
            for s, (ref, test) in enumerate(sorts):
                for k in range(options.healthy):
                    rng = np.random.default_rng([options.seed, 1000, t, m, s, k])
                    d = draw(rng, captures[model], ref, "cpu" if test == "half" else test, form)
                    if test == "half":
                        d.sides[1] = {n: loaded(v, "float16") for n, v in d.sides[1].items()}
                    with tempfile.TemporaryDirectory(prefix="score-dumps-") as scratch:
                        faults, _ = answers_of(d.compare(pathlib.Path(scratch)))
                    outcomes.append({"pair": f"{ref} and {test}", "type": form, "model": model, "number": k, "named": faults})
    return outcomes


def print_table(options, outcomes):
    counts = collections.Counter((w, f, o["state"]) for o in outcomes for w in (o["fault"], "all") for f in (o["type"], "all")
                                 if (w, f) == (o["fault"], o["type"]) or f == "all" or w == "all")  # fmt: skip
    print(f"{'fault':15}" + "".join(f"{f:>10}" for f in SOURCES) + "      kind  elsewhere  nothing  right, with its 95 % interval")
    for word in [*options.faults, "all"]:
        total = lambda form: sum(counts[word, form, s] for s in ("right", "kind", "elsewhere", "nothing"))  # noqa: E731
        cells = "".join(f"{counts[word, f, 'right']}/{total(f)}".rjust(10) if total(f) else f"{'-':>10}" for f in SOURCES)
        print(f"{word:15}{cells}{counts[word, 'all', 'kind']:10}{counts[word, 'all', 'elsewhere']:11}{counts[word, 'all', 'nothing']:9}"
              f"  {counts[word, 'all', 'right']}/{total('all')} {share(counts[word, 'all', 'right'], total('all'))}")  # fmt: skip


def study(options, folder):
    start = time.monotonic()
    captures = read_captures(options.captures or folder)
    outcomes, healthy = study_faults(options, captures), study_healthy(options, captures)
    print_table(options, outcomes)
    accused = [o for o in healthy if o["named"]]
    print(f"\nhealthy pairs accused: {len(accused)} of {len(healthy)}, {share(len(accused), len(healthy))}")
    for o in accused:
        print(f"  {o['pair']}, {o['model']} as {o['type']}, number {o['number']}: " + ", ".join(f"{k} in '{n}'" for n, k in o["named"][:3]))
    n_right = sum(o["state"] == "right" for o in outcomes)
    is_met = not accused and n_right >= MIN_RIGHT * len(outcomes) and len(outcomes) > 0
    print(f"at least {100 * MIN_RIGHT:g} % right and no healthy pair accused: {'yes' if is_met else 'NO'} "
          f"(seed {options.seed}, {time.monotonic() - start:.0f} s)")  # fmt: skip
    if options.json:
        options.json.write_text(json.dumps({"seed": options.seed, "injections": outcomes, "healthy": healthy}, indent=1))
    return 0 if is_met else 1


def main():
    options = parse(sys.argv[1:])
    try:
        with tempfile.TemporaryDirectory(prefix="score-dumps-") as folder:
            return study(options, pathlib.Path(folder))
    except (Trouble, subprocess.TimeoutExpired, OSError) as trouble:
        print(f"score_dumps: {trouble}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
