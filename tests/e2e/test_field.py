#!/usr/bin/env python3
"""Real faults from the field: every case of golden/field, its one command, and what the default output says.

    test_field.py [NAME ...]   runs the cases; a part of a case's name chooses
    test_field.py --table      prints the table of golden/field/README.md
    test_field.py --update     writes it

A case whose status is "named" must say all that its case.yaml asks for; one that is "unnamed" must not yet: when it does, the
product has become better and the mark is stale."""
import dataclasses
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

import support
from support import GOLDEN, NPUDIFF

FIELD = GOLDEN / "field"
README = FIELD / "README.md"
BEGIN, END = "<!-- made by tests/e2e/test_field.py --update -->", "<!-- end of the table -->"
LISTS = ("also", "prepare", "says", "says_not")
KEYS = {"title", "repository", "url", "found", "size", "command", "exit", "status", *LISTS}
LIMIT_S = 20  # chosen: a case takes less than 1 s
TELLING = r"verdict:|begins in|.*looks like|out of line|.*(only|every) element|npudiff: "  # lines that make an accusation
ACCUSATION = r"looks like|^out of line|fallback|by the CPU|faulty|unexplained"
LONGEST_ANSWER = 300  # characters in the table; chosen


def read_case(path):
    """case.yaml, which keeps to a part of YAML: 'key: value' and lists of '  - value', where a value is as in JSON."""
    found = {key: [] for key in LISTS}
    key = None
    for number, line in enumerate(path.read_text().splitlines(), 1):
        item = re.fullmatch(r"  - (\".*\")", line)
        field = re.fullmatch(r"([a-z_]+):(?: (.*))?", line)
        if item and key in LISTS:
            found[key].append(json.loads(item[1]))
        elif field and field[1] in KEYS:
            key = field[1]
            if field[2] is not None:
                found[key] = json.loads(field[2])
        else:
            raise ValueError(f"{path}:{number}: {line}")
    return found


@dataclasses.dataclass
class Answer:
    exit: int
    text: str

    @property
    def lines(self):
        """The lines of the output, those that were wrapped made whole again: what continues a line is indented deeper and follows a
        long one."""
        whole = []
        for line in self.text.splitlines():
            indent = len(line) - len(line.lstrip())
            if whole and whole[-1][2] > 90 and indent > whole[-1][1]:
                whole[-1] = (f"{whole[-1][0]} {line.strip()}", whole[-1][1], len(line))
            else:
                whole.append((line, indent, len(line)))
        return [" ".join(line.split()) for line, _, _ in whole if line.strip()]

    def has(self, pattern):
        """A pattern has to match within one line of the output."""
        return any(re.search(pattern, line, re.IGNORECASE) for line in self.lines)

    def complaints(self, case):
        """What of that which the case asks for is not so."""
        right = case["exit"] if isinstance(case["exit"], list) else [case["exit"]]
        found = [] if self.exit in right else [f"exit code {self.exit}, not {case['exit']}"]
        found += [f"does not say '{pattern}'" for pattern in case["says"] if not self.has(pattern)]
        return found + [f"says '{pattern}'" for pattern in case["says_not"] if self.has(pattern)]

    def summary(self, case):
        """The lines that say what is asked for; of an answer that does not, its verdict and where the difference begins."""
        wanted = case["says"] if case["status"] == "named" else []
        lines = [line for line in self.lines if any(re.search(pattern, line, re.IGNORECASE) for pattern in wanted)]
        if not lines:
            lines = [line for line in self.lines if re.match(TELLING, line)]
        said = " / ".join(lines or self.lines[-1:])
        return said if len(said) <= LONGEST_ANSWER else said[:LONGEST_ANSWER].rsplit(" ", 1)[0] + " …"


def answer_of(folder, lines):
    """What the last of some commands of npudiff answers in a folder, or the first that fails."""
    for line in lines:
        done = subprocess.run([NPUDIFF, *shlex.split(line)], cwd=folder, capture_output=True, text=True, timeout=LIMIT_S,
                              env={**os.environ, "COLUMNS": "120"})
        if done.returncode != 0:
            break
    return Answer(done.returncode, done.stdout + done.stderr)


def run(slug, case):
    """The answer of the case's command in a folder that holds its files and what `prepare` makes of them; of the first of those that
    fails, if one does."""
    with tempfile.TemporaryDirectory() as folder:
        for path in (FIELD / slug).iterdir():
            shutil.copy(path, folder)
        return answer_of(folder, [*case["prepare"], case["command"]])


CASES = {path.parent.name: read_case(path) for path in sorted(FIELD.glob("*/case.yaml"))}


class Field(unittest.TestCase):
    def check(self, slug):
        case = CASES[slug]
        answer = run(slug, case)
        complaints = answer.complaints(case)
        if case["status"] == "named":
            self.assertEqual(complaints, [], f"npudiff {case['command']}\n{answer.text}")
        else:
            self.assertEqual(case["status"], "unnamed")
            self.assertNotEqual(complaints, [], f"'{slug}' is named now: its mark in case.yaml and the table are stale\n{answer.text}")

    def test_every_case_has_its_data_and_its_source(self):
        self.assertGreaterEqual(len(CASES), 25)
        for slug, case in CASES.items():
            self.assertEqual(set(case), KEYS, slug)
            self.assertRegex(case["url"], rf"https://github\.com/{case['repository']}/(issues|pull)/\d+$", slug)
            self.assertTrue(case["found"] and case["size"] and case["says"], slug)
            self.assertLess(sum(p.stat().st_size for p in (FIELD / slug).iterdir()), 32 * 1024, slug)
            for name in re.findall(r"\S+\.(?:npz|onnx|log|txt)\b", " ".join([*case["prepare"], case["command"]])):
                self.assertTrue((FIELD / slug / name).is_file(), f"{slug}: {name}")

    def test_the_table_has_every_case_with_its_status(self):
        text = README.read_text()
        rows = dict(re.findall(r"^\| \[`([^`]+)`\].*\| (named|unnamed) \|", text, re.MULTILINE))
        self.assertEqual(rows, {slug: case["status"] for slug, case in CASES.items()}, "test_field.py --update writes the table")

    def test_a_device_without_the_fault_is_accused_of_nothing(self):
        """The exact device, on the model and the inputs of every case."""
        for slug, case in CASES.items():
            if case["command"].startswith("explain"):
                with self.subTest(slug), tempfile.TemporaryDirectory() as folder:
                    for name in ("model.onnx", "inputs.npz"):
                        shutil.copy(FIELD / slug / name, folder)
                    answer = answer_of(folder, ["capture model.onnx -d exact -p p=inputs.npz -o made -q",
                                                "explain --quantised model.onnx made/exact.h5"])
                    self.assertEqual(answer.exit, 0, answer.text)
                    self.assertFalse(answer.has(ACCUSATION), answer.text)

    def test_the_simulator_gives_what_the_thread_of_clip_prints(self):
        slug = "clip-in-half-precision"
        with tempfile.TemporaryDirectory() as folder:
            for path in (FIELD / slug).iterdir():
                shutil.copy(path, folder)
            answer = answer_of(folder, [*CASES[slug]["prepare"], "capture model.onnx -d htp-sim:gen3 -p p=inputs.npz -o made -q",
                                        "compare htp.h5 made/gen3.h5 --bitwise"])
            self.assertEqual(answer.exit, 0, answer.text)


for name in CASES:
    setattr(Field, f"test_{name}", lambda self, slug=name: self.check(slug))


def table():
    """A row for every case, from the answers of now."""
    def cell(text):
        return text.replace("|", "\\|")

    rows = ["| case | what the thread found in the end | command | exit | what we say | |", "|---|---|---|---|---|---|"]
    for slug, case in CASES.items():
        answer = run(slug, case)
        thread = f"[{case['repository']}#{case['url'].rsplit('/', 1)[1]}]({case['url']})"
        rows.append(f"| [`{slug}`]({slug}/case.yaml): {cell(case['title'])} | {thread}: {cell(case['found'])} | "
                    f"`{case['command']}` | {answer.exit} | {cell(answer.summary(case))} | {case['status']} |")
    named = sum(case["status"] == "named" for case in CASES.values())
    return "\n".join([f"{named} of {len(CASES)} cases are named.", "", *rows])


def main():
    if "--table" in sys.argv:
        print(table())
    elif "--update" in sys.argv:
        before, _, rest = README.read_text().partition(BEGIN)
        README.write_text(f"{before}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}")
    else:
        support.main()


if __name__ == "__main__":
    main()
