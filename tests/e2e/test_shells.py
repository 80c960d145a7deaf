"""Manual pages and completions that the build makes: pages without warnings, and TAB pressed in bash, zsh and fish."""
import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import tempfile
import time
import unittest

import support
from support import MODELS, NPUDIFF, npudiff

FILES = pathlib.Path(NPUDIFF).resolve().parents[2] / "tools/shell"
COMMANDS = re.findall(r"^  ([a-z]+) +[a-z]", npudiff("help").split("\nhelp:")[0], re.M)
MODEL = MODELS / "cnn.w8a8.onnx"
RUNTIMES = os.environ.get("NPUDIFF_RUNTIMES") or f"{os.environ.get('XDG_CACHE_HOME') or pathlib.Path.home() / '.cache'}/npudiff/runtimes"


class Pages(unittest.TestCase):
    def test_every_command_has_a_page_without_warnings(self):
        pages = [FILES / "npudiff.1"] + [FILES / f"npudiff-{command}.1" for command in COMMANDS]
        self.assertEqual(sorted(FILES.glob("*.1")), sorted(pages))
        for page in pages:
            with self.subTest(page.name):
                lint = subprocess.run(["mandoc", "-Tlint", "-Wwarning", page], capture_output=True, text=True)
                self.assertEqual((lint.returncode, lint.stdout), (0, ""))
                shown = subprocess.run(["man", "--warnings", "-l", page], capture_output=True, text=True,
                                       env=dict(os.environ, MANWIDTH="100", MANPAGER="cat", LC_ALL="C.UTF-8"))
                self.assertEqual((shown.returncode, shown.stderr), (0, ""))

    def test_a_page_has_what_the_help_has(self):
        shown = subprocess.run(["man", "-l", FILES / "npudiff-capture.1"], capture_output=True, text=True, check=True,
                               env=dict(os.environ, MANWIDTH="1000", MANPAGER="cat", LC_ALL="C.UTF-8", MANOPT="--nh --nj")).stdout
        for option in re.findall(r"--[a-z-]+", npudiff("help", "capture").split("\noptions:")[1].split("--help")[0]):
            self.assertIn(option, shown)
        self.assertIn("npudiff capture model.onnx -d 'adb:*' -o captures --resume", shown)


class Terminal:
    """A shell on a terminal."""

    def __init__(self, folder, *command):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.environ.update(PATH=f"{pathlib.Path(NPUDIFF).parent}:{os.environ['PATH']}", TERM="dumb", PS1="> ", HOME=str(folder),
                              INPUTRC="/dev/null", COLUMNS="200", NPUDIFF_RUNTIMES=RUNTIMES)
            os.execvp(command[0], command)
        self.seen = ""

    def type(self, text):
        os.write(self.fd, text.encode())

    def read_until(self, pattern, limit_s=60):
        end = time.monotonic() + limit_s
        while not re.search(pattern, self.seen):
            if time.monotonic() > end or not select.select([self.fd], [], [], end - time.monotonic())[0]:
                raise AssertionError(f"{pattern!r} did not come: {self.seen!r}")
            try:
                self.seen += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\x07|\r", "", os.read(self.fd, 4096).decode(errors="replace"))
            except OSError as end_of_shell:
                raise AssertionError(f"the shell ended: {self.seen!r}") from end_of_shell

    def close(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)


# What is typed before TAB, and what stands there afterwards.
TYPED = [
    ("npudiff fing", "npudiff fingerprint "),
    ("npudiff capture --allow-f", "npudiff capture --allow-fallback "),
    ("npudiff capture m.onnx -d htp-sim:SM64", "npudiff capture m.onnx -d htp-sim:SM6450 "),
    ("npudiff capture m.onnx -p unif", "npudiff capture m.onnx -p uniform "),
    ("npudiff capture m.onnx --log-level verb", "npudiff capture m.onnx --log-level verbose "),
    ("npudiff capture m.onnx -t logi", "npudiff capture m.onnx -t logits "),
    ("npudiff compare a.h5 b.h5 --tensors depth", "npudiff compare a.h5 b.h5 --tensors depthwise/relu "),
    ("npudiff explain --quantised m.onnx a.h5 -p zer", "npudiff explain --quantised m.onnx a.h5 -p zeros "),
    ("npudiff prepare --chipset QCM", "npudiff prepare --chipset QCM6490 "),
    ("npudiff prepare --runtime ort-1.31", "npudiff prepare --runtime ort-1.31.1 "),
    ("npudiff golden pru", "npudiff golden prune "),
    ("npudiff info only", "npudiff info only.h5 "),
]


class Completion(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(subprocess.run, ["rm", "-rf", cls.folder])
        (cls.folder / "m.onnx").symlink_to(MODEL)
        support.capture("cnn.w8a8.onnx", ["exact"], ["zeros"], cls.folder / "a.h5")
        for name in ("b", "only"):
            (cls.folder / f"{name}.h5").symlink_to("a.h5")
        cls.typed = [(text, line) for text, line in TYPED if "ort-1.31" not in text or "ort-1.31.1" in npudiff("runtimes")]

    def drive(self, terminal, begin):
        self.addCleanup(terminal.close)
        terminal.read_until("> ")
        terminal.type(begin)
        terminal.read_until("READY")
        for text, line in self.typed:
            with self.subTest(text):
                terminal.type("\x15" + text + "\t") # what was typed before is forgotten
                terminal.seen = ""
                terminal.read_until(re.escape(line), 6)

    def test_bash(self):
        self.drive(Terminal(self.folder, "bash", "--norc", "--noprofile", "-i"), f". '{FILES}/npudiff'; echo REA''DY\n")

    def test_zsh(self):
        self.drive(Terminal(self.folder, "zsh", "-f", "-i"),
                   f"PS1='> '; autoload -U compinit; compinit -D -u; . '{FILES}/_npudiff'; echo REA''DY\n")

    def test_fish(self):
        for text, line in self.typed:
            with self.subTest(text):
                done = subprocess.run(["fish", "--no-config", "-c", f"source '{FILES}/npudiff.fish'; complete -C '{text}'"], cwd=self.folder,
                                      env=dict(os.environ, PATH=f"{pathlib.Path(NPUDIFF).parent}:{os.environ['PATH']}", HOME=str(self.folder), NPUDIFF_RUNTIMES=RUNTIMES),
                                      capture_output=True, text=True)
                words = [candidate.split("\t")[0] for candidate in done.stdout.splitlines()]
                # fish 4 also offers words in which the letters only occur in this order.
                words = [word for word in words if word.startswith(text.split()[-1])]
                self.assertEqual(words, [line.split()[-1]], done.stderr)

    def test_candidates_of_files_that_cannot_be_read_are_none(self):
        for kind in ("tensor", "probe-name", "unheard"):
            self.assertEqual(npudiff("--complete", kind, self.folder / "missing.h5", "/dev/null"), "")


if __name__ == "__main__":
    support.main()
