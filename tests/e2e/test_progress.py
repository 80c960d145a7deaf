"""How far a command is: lines with bars on terminals of 40 and 80 columns, lines in a log, and what Ctrl-C says."""
import fcntl
import os
import pathlib
import pty
import re
import shlex
import shutil
import signal
import struct
import subprocess
import tempfile
import termios
import time
import unittest

import support
from support import MODELS, NPUDIFF

MODEL = MODELS / "vit.w8a8.onnx"

BAR = r"run \[#+\.+\] \d+/\d+" # of a run that is neither at its begin nor at its end


class Progress(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def on_terminal(self, columns, *arguments, enough=None, **variables):
        """What the command drew on a terminal; with `enough`, a pattern, it is stopped by Ctrl-C once that was drawn."""
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        environment = {k: v for k, v in os.environ.items() if k != "COLUMNS"}
        process = subprocess.Popen([NPUDIFF, *map(str, arguments)], stderr=slave, stdout=subprocess.DEVNULL, cwd=self.folder,
                                   env=dict(environment, TERM="xterm", **variables), start_new_session=True)
        os.close(slave)
        drawn = ""
        while True:
            try:
                read = os.read(master, 65536)
            except OSError:
                break
            if not read:
                break
            drawn += read.decode()
            if enough and re.search(enough, drawn):
                process.send_signal(signal.SIGINT)
                enough = None
        os.close(master)
        return drawn, process.wait(60)

    def lines_of(self, drawn):
        return [line for line in re.split(r"\r|\n|\x1b\[A|\x1b\[J", drawn) if line]

    def drawn_with_rate(self, columns):
        """Lines of a capture that is long enough for the remaining time, which is shown after the first seconds, and for
        each device to be seen between its first samples and its last."""
        for n_samples in (400, 1600, 6400):
            drawn, code = self.on_terminal(columns, "capture", MODEL, "-d", "exact", "-d", "emu:htp-v73", "-j", 2, "-p",
                                           f"uniform:{n_samples}", "-o", f"out{columns}-{n_samples}", "--json")
            self.assertEqual(code, 0, drawn)
            self.assertTrue(drawn.endswith("\x1b[J"), drawn[-200:]) # nothing is left
            lines = self.lines_of(drawn)
            if any(re.search(r"\d:\d\d left$", line) for line in lines) and any(re.match(f"exact {BAR}", line) for line in lines):
                return lines
        return self.fail(f"no remaining time, or no bar: {lines}")

    def test_bars_fit_and_go(self):
        share = r"run \d+% \d:\d\d left$"
        for columns in (40, 80):
            with self.subTest(columns=columns):
                lines = self.drawn_with_rate(columns)
                self.assertLess(max(map(len, lines)), columns)
                # Beside a long name and the remaining time 40 columns have no room for a bar.
                long = BAR if columns == 80 else f"({BAR}|{share})"
                self.assertTrue(any(re.match(f"emu:htp-v73 {long}", line) for line in lines), lines)
                self.assertEqual(any(re.search(r"\d/s  ", line) for line in lines), columns == 80, lines)

    def test_two_devices_have_two_lines(self):
        drawn, _ = self.on_terminal(80, "capture", MODEL, "-d", "exact", "-d", "emu:htp-v73", "-j", 2, "-p", "uniform:600", "-o", "out")
        self.assertRegex(drawn, r"exact run [^\r]*\r?\nemu:htp-v73 run ")

    def test_a_log_has_one_line_for_each_stage_and_device(self):
        done = subprocess.run([NPUDIFF, "capture", MODEL, "-d", "exact", "-d", "cpu", "-p", "uniform:20", "-o", self.folder / "out", "--json"],
                              capture_output=True, text=True)
        lines = done.stderr.splitlines()
        self.assertEqual(len(lines), len(set(lines)), lines)
        for device in ("exact", "cpu"):
            self.assertIn(f"{device}: run, 20 samples", lines)
        self.assertNotIn("\x1b", done.stderr)

    def test_explain_has_a_bar_when_it_takes_longer_than_a_second(self):
        drawn = ""
        for n_samples in (64, 256, 1024): # until the machine needs a second
            support.capture("vit.w8a8.onnx", ["emu:htp-v73"], [f"uniform:{n_samples}"], self.folder / "a.h5", "-f")
            more, code = self.on_terminal(40, "explain", "--quantised", MODEL, "a.h5", "--effect-samples", n_samples, "--threads", 1)
            self.assertEqual(code, 0)
            drawn += more
            if drawn:
                break
        self.assertRegex(drawn, r"explain layers ")
        self.assertLess(max(map(len, self.lines_of(drawn))), 40)

    def test_ctrl_c_says_what_is_kept_and_the_command_that_continues(self):
        name = "it's a folder" # needs quotes in a shell
        temporary = self.folder / "tmp"
        temporary.mkdir()
        drawn, code = self.on_terminal(80, "capture", MODEL, "-d", "exact", "-d", "emu:htp-v73", "-p", "uniform:600", "-o", name, "--force",
                                       enough=r"emu:htp-v73 run", TMPDIR=str(temporary))
        self.assertEqual(code, -signal.SIGINT)
        # The second device may have acknowledged samples by then, or not.
        begun = ", and the samples of 1 more for a day" if any(temporary.iterdir()) else ""
        self.assertIn(f"npudiff: stopped; 1 of 2 captures are complete and kept{begun}\r\n", drawn)
        command = re.search(r"npudiff: to continue, run: (npudiff .*?)\r\n", drawn)[1]
        self.assertNotIn("--force", command)
        words = shlex.split(command)
        self.assertEqual(words[-1], "--resume")
        self.assertEqual(os.listdir(self.folder / name), ["exact.h5"])
        since = (self.folder / name / "exact.h5").stat().st_mtime
        subprocess.run([NPUDIFF, *words[1:], "-q"], check=True, cwd=self.folder, env=dict(os.environ, TMPDIR=str(temporary)))
        self.assertEqual(os.listdir(temporary), [])
        self.assertEqual(sorted(os.listdir(self.folder / name)), ["emu-htp-v73.h5", "exact.h5"])
        self.assertEqual((self.folder / name / "exact.h5").stat().st_mtime, since)

    def test_explain_says_on_ctrl_c_that_nothing_is_lost(self):
        for n_samples in (300, 1200, 4800): # until the machine needs long enough to be stopped
            support.capture("vit.w8a8.onnx", ["exact"], [f"uniform:{n_samples}"], self.folder, "-f")
            name = next(p.name for p in self.folder.iterdir())
            drawn, code = self.on_terminal(80, "explain", "--quantised", MODEL, name, "--threads", 1, enough=r"explain layers")
            if code == -signal.SIGINT:
                break
        self.assertEqual(code, -signal.SIGINT)
        self.assertIn("npudiff: stopped; the captures are as they were, and no result is kept\r\n", drawn)
        self.assertIn(f"npudiff: to continue, run: npudiff explain --quantised {MODEL} {name}", drawn)

    def test_compare_has_a_bar_and_stops(self):
        """The bar comes although the stage that takes longest tells nothing while it works."""
        for n_samples in (300, 1200, 4800): # until the machine needs long enough to be stopped
            support.capture("vit.w8a8.onnx", ["cpu", "cpu?optimisation=all"], [f"uniform:{n_samples}"], self.folder, "-f")
            first, second = sorted(p.name for p in self.folder.iterdir() if not p.name.startswith("copy"))
            copies = [f"copy{i}.h5" for i in range(6)]
            for copy in copies:
                shutil.copy(self.folder / second, self.folder / copy)
            drawn, code = self.on_terminal(40, "compare", first, second, *copies, "--threads", 1, enough=r"compare (values|patterns|diagnosis)")
            if code == -signal.SIGINT:
                break
        self.assertEqual(code, -signal.SIGINT)
        self.assertLess(max(len(line) for line in self.lines_of(drawn) if line.startswith("compare")), 40)
        self.assertIn("npudiff: stopped; the captures are as they were, and no result is kept\r\n", drawn)
        self.assertIn(f"npudiff: to continue, run: npudiff compare {first} {second} copy0.h5", drawn.replace("'", ""))

    def test_qualify_has_a_bar_for_each_capture(self):
        (self.folder / "campaign.yaml").write_text(f"models: [{{quantised: {MODEL}, probes: 'uniform:1600'}}]\ndevices: [exact, 'emu:htp-v73']\n"
                                                   "output: out\npolicy: [{gate: finalize}]\n")
        drawn, code = self.on_terminal(80, "qualify", "campaign.yaml", enough=r"emu:htp-v73 run")
        self.assertEqual(code, -signal.SIGINT)
        self.assertRegex(drawn, r"exact run \[")
        self.assertIn("npudiff: stopped; complete captures are kept\r\n", drawn)
        self.assertIn("npudiff: to continue, run: npudiff qualify campaign.yaml", drawn)


if __name__ == "__main__":
    support.main()
