"""Random networks as quantisers emit them: what `npudiff explain` says of healthy simulated devices (the default), and of devices that
run a model with a fault in it (--faults). Whoever wrote the generator had not read the code that it judges. Every network is a function
of its seed. Rows go to a file, so that a run is resumed where it stopped; the table is printed from them.

  run --seeds 1:60 --rows rows.jsonl              networks 1 to 60, then the table
  run --seeds 1:60 --rows rows.jsonl --faults     the same networks with one fault each
  run --rows rows.jsonl --table                   the table again
  run --rows rows.jsonl --table --write NOTE      the table as docs/results/strangers.md, with a sentence on these seeds
  run --emit 17 DIR                               the files of one network"""
import argparse
import logging
import sys
import time

import faults
import healthy
import page
import rows
import table


def parsed():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", metavar="FIRST:LAST", default="1:5")
    parser.add_argument("--rows", metavar="FILE", default="strangers.jsonl", help="what was found, a JSON object a line (strangers.jsonl)")
    parser.add_argument("--faults", action="store_true", help="one fault in the model that the simulator runs")
    parser.add_argument("--table", action="store_true", help="run nothing, print the table")
    parser.add_argument("--write", metavar="NOTE", help="write docs/results/strangers.md; NOTE says which seeds these are")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no network after this time")
    parser.add_argument("--keep", metavar="DIR", help="keep models and captures in DIR/SEED")
    parser.add_argument("--emit", nargs=2, metavar=("SEED", "DIR"), help="write the files of one network")
    return parser.parse_args()


def run(arguments, study, part):
    first, last = map(int, arguments.seeds.split(":"))
    done = {row["seed"] for row in rows.read(arguments.rows) if row["part"] == part}
    end = time.monotonic() + 60 * arguments.minutes
    for seed in range(first, last + 1):
        if seed in done:
            continue
        if time.monotonic() > end:
            break
        row = study(seed, arguments.rows, arguments.keep)
        print(f"seed {seed}: " + line_of(row), file=sys.stderr, flush=True)


def line_of(row):
    if row.get("refused"):
        return row["refused"]
    if row["part"] == "faults":
        return f"{row.get('kind')} at {row.get('layer')}: {row.get('outcome')}"
    return ", ".join(f"{name} {device.get('verdict') or device['status']}" for name, device in row["devices"].items())


def main():
    arguments = parsed()
    logging.disable(logging.WARNING)
    if arguments.emit:
        _, habits = healthy.write(int(arguments.emit[0]), arguments.emit[1])
        print(habits.text())
        return
    if not arguments.table:
        run(arguments, faults.study if arguments.faults else healthy.study, "faults" if arguments.faults else "healthy")
    text = table.text(rows.read(arguments.rows))
    print(text)
    if arguments.write:
        page.write(text, arguments.write)


if __name__ == "__main__":
    main()
