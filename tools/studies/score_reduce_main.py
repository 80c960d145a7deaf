#!/usr/bin/env python3
"""Every failing operator of golden/failing, put into a golden ViT, and what `npudiff reduce` leaves of it.

Prints a table: the case, the device, sessions used, operators left of how many, how they fail, whether that is the
failure of the small model, seen again when the reproducer was run once more, and the time. Exit code 1 when a case whose
small model fails is not cut to --operators, `broken` among them, with that error in --sessions.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEVICES = {"instance-norm.u8": "SM8350", "lstm.u8": "SM8350", "selu.u8": "SM8350", "scatter-nd.u8": "SM8350",
           "where.u16": "SM8350"}


def reduce(model, device, sessions, folder):
    start = time.monotonic()
    done = subprocess.run([os.environ["NPUDIFF"], "reduce", str(model), "-d", f"htp-sim:{device}", "--json", "-q",
                           "--sessions", str(sessions), "-o", str(folder)], capture_output=True, text=True)
    if done.returncode not in (0, 1, 4):
        raise SystemExit(f"{model}: {done.stderr}")
    return json.loads(done.stdout), time.monotonic() - start


def error_of(result):
    """None where nothing failed."""
    failure = result["failure"]
    return failure and tuple(failure[key] for key in ("stage", "code", "qnn_stage", "raw_code", "operator"))


def row(case, device, result, is_same, seconds):
    if result["failure"] is None:
        return f"| {case} | {device} | {result['result']} | {result['sessions']} | | none | | {seconds:.0f} |"
    stage, _, qnn_stage, code, operator = error_of(result)
    error = " ".join(str(part) for part in (qnn_stage or stage, code, f"`{operator}`") if part not in (None, "``"))
    left = f"{result['operators_left']} of {result['operators']}: {', '.join(result['operator_names'])}"
    return (f"| {case} | {device} | {result['result']} | {result['sessions']} | {left} | {error} | "
            f"{'yes' if is_same else 'no'} | {seconds:.0f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operators", type=int, default=3, help="left at most (3)")
    parser.add_argument("--sessions", type=int, default=60, help="used at most (60)")
    parser.add_argument("--case", action="append", help="only that one; may be repeated")
    parser.add_argument("--models", type=pathlib.Path, help="made by make_reduce_models.py; made anew without it")
    parser.add_argument("--small", action="store_true", help="the models of golden/failing themselves, not in a ViT")
    arguments = parser.parse_args()
    n_bad = 0
    with tempfile.TemporaryDirectory() as scratch:
        models = arguments.models or pathlib.Path(scratch, "models")
        if arguments.models is None and not arguments.small:
            subprocess.run([sys.executable, ROOT / "tools/oracles/make_reduce_models.py", models], check=True,
                           stdout=subprocess.DEVNULL)
        print("| case | device | result | sessions | operators left | error | same error | seconds |\n"
              "|---|---|---|---|---|---|---|---|")
        for path in sorted((ROOT / "golden/failing").glob("*.onnx")):
            if arguments.case and path.stem not in arguments.case:
                continue
            device = DEVICES.get(path.stem, "gen3")
            alone, _ = reduce(path, device, 5, pathlib.Path(scratch, f"{path.stem}.alone"))
            model = path if arguments.small else models / f"vit-{path.name}"
            result, seconds = reduce(model, device, arguments.sessions, pathlib.Path(scratch, path.stem))
            is_same = error_of(result) == error_of(alone) and result["confirmed"] is True
            n_bad += error_of(alone) is not None and not (
                result["result"] == "reduced" and result["operators_left"] <= arguments.operators and is_same and
                any("broken" in n for n in result["operator_names"]))
            print(row(path.stem, device, result, is_same, seconds), flush=True)
    return n_bad > 0


if __name__ == "__main__":
    sys.exit(main())
