"""Scores identification of programs: see tools/studies/score_programs.

A label is a program of the table. For a device whose program is h, and for each scope (every unit, every operator type,
the whole device):

    right     the set holds h
    single    the verdict is one class; wrong single: one class, and h is not in it
    foreign   what else is in the set: programs that are not equal to h on everything seen

Programs that no code seen tells apart are one class, and holding the whole class is right. "Told apart" programs differ
from h on at least LEAST codes (with contamination two more, for one of them may be spoiled): with fewer a spoiled code
would decide, and to leave them in the set is what is asked for. Programs of chance are told apart by enough codes that
are open. "Strict" counts whatever differs on one code. F1 of a label counts it right where h is in the set, missed where it is not, and false where it is a told-apart
foreigner in the set of another device."""

import argparse
import collections
import concurrent.futures
import functools
import json
import math
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODELS = ["cnn.w8a8", "cnn.w8a16", "vit.w8a8", "vit.w8a16"]
SCOPES = ["unit", "type", "device"]
LEAST = {0: 3, 0.01: 5}  # ln(programs / 1e-4) over ln(199), see src/explain/identify/identify.h; with one of them spoiled
NATS = 28  # what two programs of chance must differ by in all: ln(programs / 1e-4), with two standard deviations more


def chance_of(program):
    """P(up | fraction) on a grid, or None."""
    grid = [(i + 0.5) / 1024 for i in range(1024)]
    if program == "stochastic":
        return grid
    if program == "stochastic-equal":
        return [0.5 for _ in grid]
    if program.startswith("stochastic-bits:"):
        steps = 2 ** int(program.split(":")[1])
        return [math.floor(f * steps) / steps for f in grid]
    return None


@functools.cache
def nats_per_code(truth, program):
    """What a code says for the truth and against the program, on average, with 1 % of contamination; None: not by chance."""
    p, q = chance_of(truth), chance_of(program)
    if p is None or q is None:
        return None
    total = 0
    for a, b in zip(p, q):
        for x, y in ((a, b), (1 - a, 1 - b)):
            x, y = 0.99 * x + 0.005, 0.99 * y + 0.005
            total += x * math.log(x / y)
    return total / len(p)


class Scope:
    def __init__(self, eps):
        self.eps = eps
        self.right = collections.Counter()
        self.missed = collections.Counter()
        self.false = collections.Counter()  # differs from the truth on LEAST codes and more
        self.false_strict = collections.Counter()  # on any
        self.verdicts = collections.Counter()
        self.wrong_single = []
        self.lost = []
        self.explained = []

    def add(self, row):
        truth, classmates = row["truth"], set(row["true_class"])
        self.verdicts[row["verdict"]] += 1
        if row["verdict"] == "too-few" or not row["applies"]:
            return
        if row["has_truth"]:
            self.right[truth] += 1
        else:
            self.missed[truth] += 1
            self.lost.append(row)
            if row["verdict"] == "single":
                self.wrong_single.append(row)
        for program, n_apart in row["set"].items():
            if program not in classmates:
                self.false_strict[program] += 1
                self.false[program] += self.are_apart(row, program, n_apart)
        if row["explained"] is not None and row["has_truth"]:
            self.explained.append(row["explained"])

    def are_apart(self, row, program, n_apart):
        nats = nats_per_code(row["truth"], program)
        return n_apart >= LEAST[self.eps] if nats is None else nats * row["open"] >= NATS

    def f1(self, false):
        labels = set(self.right) | set(self.missed)
        scores = [2 * self.right[p] / (2 * self.right[p] + self.missed[p] + false[p]) for p in labels]
        return sum(scores) / len(scores) if scores else float("nan"), len(labels)


def run(command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"score_programs: {done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def study(args):
    probe = ROOT / "golden/models/digits-calibration.npz"
    tasks = [
        (eps, [args.tool, "study", ROOT / f"golden/models/{model}.onnx", args.samples, probe, first, args.step * 8, eps])
        for eps in (0, 0.01)
        for model in args.models.split(",")
        for first in range(0, args.step * 8, args.step)
    ]
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        yield from zip([eps for eps, _ in tasks], pool.map(run, [command for _, command in tasks]))


def unknown(args):
    """Devices that are not in the table: a single verdict on them is wrong."""
    probe = ROOT / "golden/models/digits-calibration.npz"
    tasks = [
        [args.tool, "unknown", ROOT / f"golden/models/{model}.onnx", args.samples, probe, eps]
        for eps in (0, 0.01)
        for model in args.models.split(",")
    ]
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for rows in pool.map(run, tasks):
            yield from rows


def main():
    parser = argparse.ArgumentParser(prog="tools/studies/score_programs", description="How often identification finds the program.")
    parser.add_argument("tool")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--samples", type=int, default=16, help="of the calibration digits, beside the ties (16)")
    parser.add_argument("--step", type=int, default=1, help="every how manieth program of the table (1)")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--rows", type=pathlib.Path, action="append", default=[], help="score these instead of running: EPS=FILE")
    parser.add_argument("--unknown", action="store_true", help="devices whose programs are not in the table instead")
    args = parser.parse_args()
    begun = time.monotonic()
    if args.unknown:
        return score_unknown(args)
    scopes = {(eps, scope): Scope(eps) for eps in (0, 0.01) for scope in SCOPES}
    if args.rows:
        batches = []
        for spec in args.rows:
            eps, path = str(spec).split("=", 1)
            batches.append((float(eps), [json.loads(line) for line in open(path)]))
    else:
        batches = study(args)
    n_devices = 0
    for eps, rows in batches:
        for row in rows:
            n_devices += row["scope"] == "device"
            scopes[eps, row["scope"]].add(row)
    print(f"{n_devices} devices, {time.monotonic() - begun:.0f} s")
    print("eps   scope   labels  macro-F1  (strict)  truth in set  single  several  none  too few  wrong single")
    is_good = True
    for (eps, name), scope in scopes.items():
        f1, n = scope.f1(scope.false)
        strict, _ = scope.f1(scope.false_strict)
        right, missed = sum(scope.right.values()), sum(scope.missed.values())
        v = scope.verdicts
        print(
            f"{eps:<5g} {name:7s} {n:6d}  {f1:8.4f}  {strict:8.4f}  {right:6d} of {right + missed:<6d}"
            f" {v['single']:6d}  {v['several']:7d}  {v['none']:4d}  {v['too-few']:7d}  {len(scope.wrong_single):6d}"
        )
        for row in scope.lost[:5]:
            print(f"    lost: {row['truth']} in {row['name'] or 'the device'}: {row['verdict']}, left {list(row['set'])[:4]}")
        worst = sorted(((n, p) for p, n in scope.false.items() if n), reverse=True)[:5]
        if worst:
            print("    foreigners: " + ", ".join(f"{p} {n}" for n, p in worst))
        is_good = is_good and not scope.wrong_single and (name == "unit" or f1 >= 0.99)
    return 0 if is_good else 1


def score_unknown(args):
    verdicts, singles = {scope: collections.Counter() for scope in SCOPES}, []
    for row in unknown(args):
        verdicts[row["scope"]][row["verdict"]] += 1
        if row["verdict"] == "single" and row["explained"] is not None and row["explained"] < 0.999:
            singles.append(row)
    for scope, counts in verdicts.items():
        print(f"{scope:7s} {dict(counts)}")
    print(f"single verdicts with an explained fraction below .999: {len(singles)}")
    for row in singles[:10]:
        print(f"    {row['scope']} {row['name']}: {list(row['set'])[:3]} explains {row['explained']}")
    return 0 if not singles else 1


if __name__ == "__main__":
    sys.exit(main())
