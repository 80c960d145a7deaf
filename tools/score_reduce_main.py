#!/usr/bin/env python3
"""Every failing operator of golden/failing, put into a golden ViT, and what `npudiff reduce` leaves of it.

Prints a table: the case, whether the whole model fails, sessions, operators left, whether what is left fails in the same
way, and the time. Exit code 1 when a case that fails is not cut to --operators with the same error in --sessions.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEVICES = {"instance-norm.u8": "SM8350", "lstm.u8": "SM8350", "selu.u8": "SM8350", "scatter-nd.u8": "SM8350",
           "where.u16": "SM8350"}


def reduce(model, device, sessions, folder):
    start = time.monotonic()
    done = subprocess.run([os.environ["NPUDIFF"], "reduce", str(model), "-d", f"htp-sim:{device}", "--json", "-q",
                           "--sessions", str(sessions), "-o", str(folder)], capture_output=True, text=True)
    if done.returncode not in (0, 1, 4):
        raise SystemExit(f"{model}: {done.stderr}")
    return json.loads(done.stdout), time.monotonic() - start


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
            subprocess.run([sys.executable, ROOT / "tools/make_reduce_models.py", models], check=True,
                           stdout=subprocess.DEVNULL)
        print("| case | device | result | sessions | operators left | same error | seconds |\n|---|---|---|---|---|---|---|")
        for path in sorted((ROOT / "golden/failing").glob("*.onnx")):
            if arguments.case and path.stem not in arguments.case:
                continue
            device = DEVICES.get(path.stem, "gen3")
            model = path if arguments.small else models / f"vit-{path.name}"
            result, seconds = reduce(model, device, arguments.sessions, pathlib.Path(scratch, path.stem))
            is_good = (result["result"] == "reduced" and result["operators_left"] <= arguments.operators and
                       result["confirmed"] is True and any("broken" in n for n in result["operator_names"]))
            n_bad += not is_good
            print(f"| {path.stem} | {device} | {result['result']} | {result['sessions']} | "
                  f"{result['operators_left']} of {result['operators']}: {', '.join(result['operator_names'])} | "
                  f"{'yes' if result['confirmed'] else 'no'} | {seconds:.0f} |", flush=True)
    return n_bad > 0


if __name__ == "__main__":
    sys.exit(main())
