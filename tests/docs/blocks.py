"""Runs the shell blocks of pages that are marked as tested, and holds what they print against the page.

    <!-- test: suite -->            before a ```sh block: it runs in the suite (seconds; no simulator)
    <!-- test: study -->            it runs in tools/studies/docs alone (minutes; needs the simulator)
    <!-- test: suite, exit 1 -->    its last command ends with that exit code, all others with 0
    <!-- output -->                 before the block after it: what it prints on stdout

In an expected output a line of three dots stands for any number of lines, and … for any text within a line. The
blocks of a page run in order in one folder of their own, in which golden/ and tools/ are those of the project and
`npudiff` is the program under test. A block of the suite may need only blocks of the suite.
"""
import os
import pathlib
import re
import subprocess
import sys

MARK = re.compile(r"^<!-- test: (suite|study)(?:, exit (\d))? -->\n+```(?:sh|bash)\n(.*?)^```$"
                  r"(?:\n+<!-- output -->\n+```\w*\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
MARKER = re.compile(r"^<!-- (?:test|output)\b.*", re.MULTILINE)
TIME_LIMIT_S = {"suite": 120, "study": 1800}


class Block:
    def __init__(self, page, line, kind, exit_code, script, output):
        self.page, self.line, self.kind = page, line, kind
        self.exit_code, self.script, self.output = exit_code, script, output

    def __str__(self):
        return f"{self.page}:{self.line}"


def blocks_of(page):
    """The marked blocks of a page, in order. A marker that is not understood is an error."""
    text = pathlib.Path(page).read_text()
    found, n_markers = [], 0
    for m in MARK.finditer(text):
        n_markers += 1 + (m[4] is not None)
        found.append(Block(page, text[:m.start(3)].count("\n") + 1, m[1], int(m[2] or 0), m[3], m[4]))
    if n_markers != len(MARKER.findall(text)):
        raise ValueError(f"{page}: a marker of a tested block without its block, or misspelt")
    return found


def is_expected(output, expected):
    """Whether the output is what the page shows, with its dots."""
    parts = []
    for line in expected.splitlines():
        parts.append(r"(?:.*\n)*?" if line == "..." else
                     ".*?".join(re.escape(piece) for piece in line.rstrip().split("…")) + r" *\n")
    return re.fullmatch("".join(parts), output) is not None


class Bench:
    """A folder in which the blocks of one page run."""

    def __init__(self, root, npudiff, folder):
        self.folder = pathlib.Path(folder)
        (self.folder / "bin").mkdir()
        (self.folder / "work").mkdir()
        for name in ("golden", "tools"):
            (self.folder / "work" / name).symlink_to(pathlib.Path(root) / name)
        program = self.folder / "bin/npudiff"
        program.write_text(f'#!/bin/sh\nexec "{npudiff}" "$@"\n')
        program.chmod(0o755)
        (self.folder / "bin/python3").symlink_to(sys.executable)

    def run(self, block):
        """What is wrong, in words; None when nothing is."""
        environment = dict(os.environ, PATH=f"{self.folder / 'bin'}:{os.environ['PATH']}")
        done = subprocess.run(["bash", "-eu", "-c", block.script], cwd=self.folder / "work", capture_output=True, text=True,
                              env=environment, stdin=subprocess.DEVNULL, timeout=TIME_LIMIT_S[block.kind])
        said = f"it printed\n{done.stdout}and said\n{done.stderr}"
        if done.returncode != block.exit_code:
            return f"{block}: exit code {done.returncode}, not {block.exit_code}; {said}"
        if block.output is not None and not is_expected(done.stdout, block.output):
            return f"{block}: it does not print what the page shows; {said}"
        return None
