"""Measures npudiff explain against devices with a known truth.

tools/studies/score study       injects faults, one at a time and always over a benign background (double rounding, or --background), at random units of
                        six models, and counts how often the first unit that explain names is the faulty one; explains captures
                        without a fault and counts alarms; says what distances to the reference find in the same captures.
tools/studies/score identities  holds the energies of rounding down and of stochastic rounding against their laws.
tools/studies/score one MODEL INPUTS DEVICE   shows one capture of the study again: its truth and what explain says.
tools/studies/score             study and identities.

A fault that changed no code is not an injection and is drawn anew. explain sees one capture at a time and never its /truth.
Exit code 0: at least 99.5 % of the faulty units found, at most 1 % false alarms, all laws within 1 %; 1: not so; 2: trouble."""

import argparse
import dataclasses
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import score_faults
import score_identities
import score_table
from score_run import MODELS, NPUDIFF, Capture, Trouble, capture_all, model_path, write_inputs
from score_study import Study

MIN_FOUND, MAX_ALARMS = 0.995, 0.01


def parse(arguments):
    parser = argparse.ArgumentParser(prog="tools/studies/score", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("command", nargs="?", default="all", choices=["all", "study", "identities", "one"])
    parser.add_argument("which", nargs="*", help="of one: MODEL INPUTS DEVICE, as the study prints them")
    parser.add_argument("--n", type=int, default=4800, help="injections (%(default)s)")
    parser.add_argument("--healthy", type=int, default=1000, help="captures without a fault (%(default)s)")
    parser.add_argument("--models", default=",".join(MODELS), help="with commas (%(default)s)")
    parser.add_argument("--background", default=score_faults.BACKGROUND.partition("=")[2], metavar="PROGRAM",
                        help="what injected devices do elsewhere: %(default)s, or a program of whole units as htp-v73, over which "
                             "nothing is fused")  # fmt: skip
    parser.add_argument("--samples", type=int, default=8, help="of each capture (%(default)s)")
    parser.add_argument("--seed", type=int, default=20251121, help="(%(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="at once; changes no result (%(default)s)")
    parser.add_argument("--repeats", type=int, default=1, help="runs of each sample, of one (%(default)s)")
    parser.add_argument("--keep", type=pathlib.Path, metavar="DIR", help="keep the captures that went wrong")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write every outcome")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")
    options = parser.parse_args(arguments)
    options.models = options.models.split(",")
    score_faults.BACKGROUND = f"round={options.background}"
    unknown = [m for m in options.models if m not in MODELS]
    if unknown:
        parser.error(f"unknown model '{unknown[0]}'; there are {', '.join(MODELS)}")
    if (options.command == "one") != (len(options.which) == 3) or (options.command != "one" and options.which):
        parser.error("'one' takes MODEL INPUTS DEVICE, the others nothing")
    return options


def is_kind_right(outcome):
    return outcome.is_found and score_faults.is_named(outcome.word, outcome.named.get(outcome.first, ""))


def write_json(path, options, outcomes, healthy, seconds):
    rows = [dataclasses.asdict(o) | {"is_found": o.is_found, "is_kind_right": is_kind_right(o)} for o in outcomes]
    document = {"seed": options.seed, "samples": options.samples, "seconds": seconds, "injections": rows,
                "healthy": [dataclasses.asdict(o) | {"is_alarm": o.is_alarm} for o in healthy]}  # fmt: skip
    path.write_text(json.dumps(document, indent=1))


def run_study(options):
    start = time.monotonic()
    study = Study(options)
    study.learn()
    missing = study.inject()
    healthy = study.stay_healthy()
    outcomes, seconds = study.outcomes, time.monotonic() - start
    print(f"{len(outcomes)} injections over {score_faults.BACKGROUND} and {len(healthy)} healthy captures of "
          f"{options.samples} samples each (seed {options.seed}, {seconds:.0f} s, {options.jobs} at once)\n")  # fmt: skip
    score_table.print_injections(outcomes, options.models, list(score_faults.FAULTS), is_kind_right)
    print()
    score_table.print_methods(outcomes, healthy)
    misses, alarms = [o for o in outcomes if not o.is_found], [o for o in healthy if o.is_alarm]
    score_table.print_wrong("misses", misses, options)
    score_table.print_wrong("false alarms", alarms, options)
    if study.ineffective:
        print("\ndrawn anew, as no code changed: "
              + ", ".join(f"{w} {n}" for w, n in sorted(study.ineffective.items())))  # fmt: skip
    for (word, op_type), why in sorted(study.refusals.items()):
        print(f"refused by the emulator: {word} at {op_type}: {why}")
    for (model, word), n in missing.items():
        print(f"not injected: {n} of {word} on {model}")
    if options.json:
        write_json(options.json, options, outcomes, healthy, seconds)
    n_found = len(outcomes) - len(misses)
    is_met = n_found >= MIN_FOUND * len(outcomes) > 0 and len(alarms) <= MAX_ALARMS * len(healthy)
    print(f"\nexact unit at least {100 * MIN_FOUND:g}%, false alarms at most {100 * MAX_ALARMS:g}%: {'yes' if is_met else 'NO'}")
    return is_met


def run_one(options):
    model, inputs, device = options.which
    with tempfile.TemporaryDirectory(prefix="score-") as name:
        folder = options.keep or pathlib.Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / "inputs.npz"
        write_inputs(probe, options.seed, model, inputs, options.samples)
        captures, refused = capture_all(pathlib.Path(name), model, probe, [device], options.repeats)
        if refused:
            raise Trouble(refused[0][1])
        path = captures[device]
        for unit, word, n in Capture(path).faults:
            print(f"truth: {unit}: {word}, {n} codes")
        command = [NPUDIFF, "explain", "--quantised", model_path(model), path]
        code = subprocess.run(command, check=False).returncode
        if options.keep:
            kept = options.keep / path.name
            path.replace(kept)
            print(f"\n{NPUDIFF} explain --quantised {model_path(model)} {kept}")
        return code == 0


def main(arguments=None):
    options = parse(arguments)
    try:
        if options.command == "one":
            return 0 if run_one(options) else 1
        is_met = True
        if options.command in ("all", "study"):
            is_met = run_study(options)
        if options.command == "all":
            print()
        if options.command in ("all", "identities"):
            is_met = score_identities.run(options.seed) and is_met
        return 0 if is_met else 1
    except Trouble as trouble:
        print(f"score: {trouble}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
