"""A differential fuzzer: random networks (of tools/studies/strangers, a function of the seed) on the HTP simulator, held against npudiff's
programs. A layer with values that no program gives is a mismatch; `npudiff reduce` makes the smallest model of it that still differs. What
has the same operators, types and attributes is one finding, a folder with the model, its inputs, expected and observed values, and a text.
A run continues where it was stopped.

  run --seeds 50001:50100 --minutes 60 --out DIR       networks of these seeds, as long as time permits; then the table
  run --out DIR --table                                the table again
  run --out DIR --table --write NOTE                   the table as docs/results/fuzz-htp.md, with a sentence on these seeds"""
import argparse
import logging
import pathlib
import sys
import time

import healthy
import mismatches
import rows
import texts


def parsed():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", metavar="FIRST:LAST", default="50001:50010")
    parser.add_argument("--out", metavar="DIR", default="fuzz-htp", help="the folder of rows and findings (fuzz-htp)")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no network after this time")
    parser.add_argument("-d", "--device", action="append", metavar="DEVICE", help="may be repeated (htp-sim:gen1, htp-sim:gen3)")
    parser.add_argument("--table", action="store_true", help="run nothing, print the table")
    parser.add_argument("--write", metavar="NOTE", help="write docs/results/fuzz-htp.md; NOTE says which seeds these are")
    return parser.parse_args()


def network(out, seed):
    """The files of a network, or why the quantiser refused it."""
    folder = out / "networks" / str(seed)
    if not (folder / "model.onnx").exists():
        try:
            healthy.write(seed, folder)
        except Exception as error:   # noqa: BLE001: the quantiser is not ours; the table counts what it refused
            return folder, f"{type(error).__name__}: {error}"[:300]
    return folder, None


def run(arguments, out):
    first, last = map(int, arguments.seeds.split(":"))
    done = {(row["seed"], row["device"]) for row in rows.read(out / "rows.jsonl")}
    end = time.monotonic() + 60 * arguments.minutes
    for seed in range(first, last + 1):
        for device in arguments.device or ["htp-sim:gen1", "htp-sim:gen3"]:
            if (seed, device) in done:
                continue
            if time.monotonic() > end:
                return
            folder, refused = network(out, seed)
            row = {"seed": seed, "device": device, "commit": rows.commit()}
            row.update({"refused": refused} if refused else mismatches.look(out, seed, folder, device))
            rows.append(out / "rows.jsonl", row)
            print(f"seed {seed}, {device}: {refused or row['verdict'] or row['status']} {' '.join(m['finding'] for m in row.get('mismatches', []))}",
                  file=sys.stderr, flush=True)


def main():
    arguments = parsed()
    logging.disable(logging.WARNING)
    out = pathlib.Path(arguments.out)
    if not arguments.table:
        out.mkdir(parents=True, exist_ok=True)
        run(arguments, out)
    text = texts.table(out)
    print(text)
    if arguments.write:
        texts.write_page(text, arguments.write)


if __name__ == "__main__":
    main()
