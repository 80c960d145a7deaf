#!/usr/bin/env python3
"""Prints what failed and why, and "N passed, N failed", for a testlog.json that meson wrote; exit code 1 when a test failed,
or none ran.

Of a case that failed it prints the program's own words: the comments beside its line in TAP. A program that ended badly
without a failing case of its own (a crash, a time-out) counts as one failed case, and its last output is printed. What was
skipped is listed before, each with its reason; a case that gives none counts as failed.

--allowed FILE: what is skipped counts as failed, too, unless a line of the file allows it: a pattern of "program: case", two
spaces or more, and the reason. tests/allowed_skips is that of CI.
"""
import argparse
import fnmatch
import json
import re
import sys

CASE = re.compile(r"^(not )?ok\b\s*\d*\s*-?\s*(.*?)(?:\s*#\s*(SKIP|TODO)\b\s*(.*))?$", re.IGNORECASE)
# What tests/e2e/support.py and tests/cli/run.py print of each case when all have ended.
TOOK = re.compile(r"^# took ([0-9.]+) s, ([0-9.]+) s of processor time: (.*)$")
N_CASES = 40  # of which --times tells
N_MESSAGE_LINES = 200  # of one failed case
N_LAST_LINES = 30  # of a program that ended badly
GOOD_ENDS = {"OK", "EXPECTEDFAIL", "SKIP"}


class Case:
    def __init__(self, name, is_failed, skipped_because, comments):
        self.name = name
        self.is_failed = is_failed
        self.skipped_because = skipped_because  # None: it ran; "": it does not say
        self.comments = comments


def cases_of(stdout):
    """The cases of a program's TAP. A comment belongs to the failed case before it, else to the case after it."""
    cases, waiting = [], []
    for line in stdout.splitlines():
        found = CASE.match(line)
        if found:
            is_failed = found[1] is not None and found[3] is None
            reason = found[4] if found[3] is not None else None
            is_next_of_failed = bool(cases) and cases[-1].is_failed  # whose comments they are then
            cases.append(Case(found[2], is_failed, reason, waiting if is_failed and not is_next_of_failed else []))
            waiting = cases[-1].comments if is_failed else []
        elif not re.match(r"^\d+\.\.\d+", line) and not TOOK.match(line):
            waiting.append(line.removeprefix("# "))
    return cases


def show(lines, n_most):
    """The lines, indented; of too many the first and the last."""
    if len(lines) > n_most:
        n_first = n_most // 4
        lines = [*lines[:n_first], f"... {len(lines) - n_most} lines ...", *lines[len(lines) - (n_most - n_first):]]
    for line in lines:
        print(f"    {line}".rstrip())


def show_end(program):
    """The last output of a program that ended badly."""
    for stream in ("stdout", "stderr"):
        lines = program.get(stream, "").rstrip().splitlines()
        if lines:
            print(f"  the last of its {stream}:")
            show(lines[-N_LAST_LINES:], N_LAST_LINES)


def end_of(program):
    """How it ended, in words."""
    if program["result"] == "TIMEOUT":
        return f"timed out after {program['duration']:.0f} s"
    if program["result"] == "INTERRUPT":
        return "was interrupted"
    code = program.get("returncode", 0)
    return f"was killed by signal {-code}" if code < 0 else f"ended badly, with exit code {code}"


def whole_program(program):
    """The only case of a program that reports none."""
    if program["result"] != "SKIP":
        return [Case("", False, None, [])] if program["result"] in GOOD_ENDS else []
    said = program.get("stdout", "").strip()
    plan = re.search(r"^1\.\.0 # SKIP\s+(.+)$", said, re.MULTILINE)
    return [Case("", False, plan[1] if plan else said, [])]


def read_patterns(path):
    """What may be skipped: the patterns of a file."""
    with open(path, encoding="utf-8") as file:
        lines = [line.strip() for line in file if line.strip() and not line.startswith("#")]
    without_reason = [line for line in lines if "  " not in line]
    if without_reason:
        sys.exit(f"{path}: this line has no reason: {without_reason[0]}")
    return [line.partition("  ")[0] for line in lines]


def why_not_skipped(case, name, allowed):
    """Why a case that was skipped should not have been; None: it may be. allowed: patterns, or None where all may be."""
    if case.skipped_because == "":
        return "skipped, and does not say why"
    if allowed is None or any(fnmatch.fnmatchcase(name.partition(" / ")[2], pattern) for pattern in allowed):
        return None
    return f"skipped, which is not allowed here: {case.skipped_because}"


def count(program, allowed):
    """[passed, failed, skipped] of one program; prints what is not good."""
    n = [0, 0, 0]
    cases = cases_of(program.get("stdout", "")) or whole_program(program)
    for case in cases:
        name = f"{program['name']}: {case.name}" if case.name else program["name"]
        forbidden = why_not_skipped(case, name, allowed) if case.skipped_because is not None else None
        if case.is_failed or forbidden:
            n[1] += 1
            print(f"failed: {name}" + (f" ({forbidden})" if forbidden else ""))
            show(case.comments, N_MESSAGE_LINES)
        elif case.skipped_because is not None:
            n[2] += 1
            print(f"skipped: {name}: {case.skipped_because}")
        else:
            n[0] += 1
    if program["result"] not in GOOD_ENDS and (n[1] == 0 or program["result"] == "TIMEOUT"):
        n[1] += 1
        print(f"failed: {program['name']} {end_of(program)}")
        show_end(program)
    return n


def show_times(programs):
    """Two tables, the longest first: programs, and cases of those programs that tell what their cases took."""
    begin = min(p["starttime"] for p in programs)
    end = max(p["starttime"] + p["duration"] for p in programs)
    found = {p["name"]: [TOOK.match(line) for line in p.get("stdout", "").splitlines() if TOOK.match(line)] for p in programs}
    print(f"{end - begin:.0f} s for {len(programs)} programs, which took {sum(p['duration'] for p in programs):.0f} s together\n")
    print(f"{'began':>8} {'took s':>8} {'processor s':>12}  program")
    for p in sorted(programs, key=lambda p: -p["duration"]):
        used = f"{sum(float(t[2]) for t in found[p['name']]):.1f}" if found[p["name"]] else "-"
        print(f"{p['starttime'] - begin:8.1f} {p['duration']:8.1f} {used:>12}  {p['name']}")
    cases = [(float(t[1]), float(t[2]), f"{name}: {t[3]}") for name, times in found.items() for t in times]
    print(f"\n{'took s':>8} {'processor s':>12}  case")
    for wall_s, processor_s, name in sorted(cases, reverse=True)[:N_CASES]:
        print(f"{wall_s:8.1f} {processor_s:12.1f}  {name}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", help="a testlog.json of meson")
    parser.add_argument("--allowed", metavar="FILE", help="what may be skipped, and nothing else")
    parser.add_argument("--times", action="store_true", help="print what each program, and the longest cases, took instead")
    options = parser.parse_args()
    with open(options.log, encoding="utf-8", errors="replace") as file:
        programs = [json.loads(line) for line in file if line.strip()]
    if options.times:
        return show_times(programs)
    allowed = read_patterns(options.allowed) if options.allowed else None
    counts = [count(program, allowed) for program in programs]
    n_passed, n_failed, n_skipped = (sum(column) for column in zip(*counts)) if counts else (0, 0, 0)
    if n_skipped:
        print(f"{n_skipped} skipped: what this machine cannot run, for the reasons above")
    print(f"{n_passed} passed, {n_failed} failed")
    return n_failed > 0 or n_passed == 0


if __name__ == "__main__":
    sys.exit(main())
