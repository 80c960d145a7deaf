#!/usr/bin/env python3
"""The next command that is printed answers the verdict: in a handful of situations every one that is printed is run."""
import html
import re
import shlex
import subprocess

import numpy as np

from support import CASES, Capture, MODELS, NPUDIFF, Scratch, main, npudiff, some_digits

CNN = MODELS / "cnn.w8a8.onnx"
# What a command may end with (docs/reference/exit-codes.md), and not: 2 trouble, 3 not comparable.
ANSWERS = (0, 1, 4, 5)


class NextCommands(Scratch):
    def setUp(self):
        super().setUp()
        self.digits = some_digits(self.folder / "digits.npz", 24)

    def run_here(self, words):
        return subprocess.run([NPUDIFF, *map(str, words)], capture_output=True, text=True, timeout=900, cwd=self.folder)

    def commands_of(self, text):
        """The commands of a text, as a shell reads them; a model whose folder is not known is put in."""
        text = text.replace("\\\n", " ").replace("CAPTURE.h5", str(self.folder / "exact.h5"))
        found = re.findall(r"^ +npudiff (.*)$", text, re.MULTILINE)
        return [[str(CNN) if word in (CNN.name, "MODEL.onnx") else word for word in shlex.split(line)] for line in found]

    def answers(self, *words, expect, says=(), never=()):
        """Runs the command, then what it prints; the commands."""
        done = self.run_here(words)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        flat = " ".join(done.stdout.split())
        for text in says:
            self.assertIn(text, flat)
        commands = self.commands_of(done.stdout)
        for command in commands:
            self.assertNotIn(command[0], never, done.stdout)
            ran = self.run_here(command)
            self.assertIn(ran.returncode, ANSWERS, f"{command}\n{ran.stdout}{ran.stderr}")
        return commands

    def capture(self, *devices, model=CNN, name=None):
        for device in devices:
            npudiff("capture", model, "-d", device, "-p", self.digits, "-o", self.folder / f"{name or device[-5:]}.h5", "-q")

    def imported(self, name, change=None, inputs=True, **outputs):
        """An import of what 'exact' gives, with one tensor changed."""
        if not (self.folder / "exact.h5").exists():
            self.capture("exact")
        with Capture(self.folder / "exact.h5") as exact:
            arrays = {edge: exact.output("digits", edge)[:] for edge in exact.edges}
        if change is not None:
            arrays[change] = np.ascontiguousarray(arrays[change][..., ::-1])
        np.savez(self.folder / f"{name}.npz", **arrays)
        images = np.load(self.folder / "digits.npz")["image"]
        np.savez(self.folder / "in.npz", image=images)
        more = ["--inputs", self.folder / "in.npz"] if inputs else []
        npudiff("import", "numpy", self.folder / f"{name}.npz", "--model", CNN, "-p", "digits", "--kind", "npu", "--label",
                name, "-o", self.folder / f"{name}.h5", "-q", *more)

    def test_healthy(self):
        self.capture("exact", name="exact")
        self.capture("emu:htp-v69", name="v69")
        self.capture("emu:htp-v73", name="v73")
        self.assertEqual([c[0] for c in self.answers("explain", "exact.h5", expect=0)], ["init"])
        self.assertEqual([c[0] for c in self.answers("explain", "v69.h5", "v73.h5", expect=0)], ["align"])
        self.assertEqual([c[0] for c in self.answers("compare", "v69.h5", "v73.h5", expect=1)], ["explain"])
        self.assertEqual(self.answers("compare", "v69.h5", "v69.h5", expect=0), [])

    def test_aligned_chips_are_not_aligned_again(self):
        npudiff("align", CNN, "-o", self.folder / "aligned.onnx")
        for chip in ("v69", "v73"):
            self.capture(f"emu:htp-{chip}", model=self.folder / "aligned.onnx", name=chip)
        self.answers("compare", "v69.h5", "v73.h5", expect=0, never=("align",))
        self.answers("explain", "v69.h5", "v73.h5", expect=0, never=("align",))

    def test_faulty(self):
        self.capture("exact", name="exact")
        with Capture(self.folder / "exact.h5") as exact:
            tensor = exact.edges[-1]
        self.capture(f"emu:htp-v73,stale@{tensor}", name="stale")
        self.assertEqual([c[0] for c in self.answers("explain", "stale.h5", expect=1)], ["reduce"])

    def test_floats(self):
        for device in ("cpu", "float64"):
            self.capture(device, model=MODELS / "cnn.float.onnx", name=device)
        self.assertEqual([c[0] for c in self.answers("compare", "float64.h5", "cpu.h5", expect=1)], ["explain"])

    def test_imports(self):
        with self.subTest("with inputs"):
            self.imported("healthy")
            self.imported("broken", change="logits")
            self.assertEqual([c[0] for c in self.answers("explain", "healthy.h5", expect=0)], ["report"])
            self.answers("explain", "broken.h5", expect=1, never=("reduce",))
            self.answers("compare", "healthy.h5", "broken.h5", expect=1, never=("reduce",))
            self.run_here(["report", "--quantised", CNN, "healthy.h5", "broken.h5", "-o", "page.html"])
            page = (self.folder / "page.html").read_text()
            commands = re.findall(r'<p>Next[^<]*<code class="command"[^>]*>npudiff ([^<]*)</code>', page)
            self.assertTrue(commands)
            for command in map(shlex.split, map(html.unescape, commands)):
                self.assertNotEqual(command[0], "reduce")
                ran = self.run_here([CNN if word == "MODEL.onnx" else word for word in command])
                self.assertIn(ran.returncode, ANSWERS, f"{command}\n{ran.stderr}")
        with self.subTest("without inputs"):
            self.imported("blind", inputs=False)
            self.imported("blind-too", change="logits", inputs=False)
            commands = self.answers("compare", "blind.h5", "blind-too.h5", expect=1,
                                    says=["import 'blind.h5' again with --inputs"])
            self.assertEqual(commands, [])
            refused = self.run_here(["explain", "--quantised", CNN, "blind.h5"])
            self.assertEqual((refused.returncode, "ND-807" in refused.stderr), (3, True))
            self.assertIn("--inputs", npudiff("help", "ND-807"))

    def test_captures_that_do_not_fit(self):
        self.capture("exact", name="exact")
        npudiff("capture", CNN, "-d", "emu:floor", "-p", self.digits, "-p", "zeros", "-o", self.folder / "more.h5", "-q")
        for words in (("compare", "exact.h5", "more.h5"), ("compare", "more.h5", "exact.h5")):
            done = self.run_here(words)
            for command in self.commands_of(done.stdout):
                ran = self.run_here(command)
                self.assertIn(ran.returncode, ANSWERS, f"{command}\n{ran.stdout}{ran.stderr}")

    def test_failed_gates(self):
        """The command after a failed gate is of what the gate asks."""
        head = (f"models:\n- {{name: cnn, quantised: '{CNN}', float: '{MODELS / 'cnn.float.onnx'}', "
                f"probes: [digits=digits.npz]}}\ndevices: ['emu:ceil']\nrepeats: 3\n")
        stale = head.replace("emu:ceil", "emu:htp-v73,stale@logits")
        erf = head.replace(str(CNN), str(CASES / "erf.u8.onnx")).replace("emu:ceil", "htp-sim:gen3")
        erf = re.sub(r", float: '[^']*', probes: [^}]*", ", probes: uniform", erf)
        cases = [("latency", head, "latency-cv, warn: 0, fail: 0"), ("explain", head, "lsb, max: 0"),
                 ("explain", head, "sqnr, min: 200"), ("explain", stale, "accuracy-drop, margin: 0.1"),
                 ("placement", erf, "fallback"), ("info", erf, "finalize")]
        for number, (command, models, gate) in enumerate(cases):
            with self.subTest(gate=gate):
                (self.folder / "c.yaml").write_text(f"{models}output: out{number}\npolicy:\n- {{gate: {gate}}}\n")
                done = self.run_here(["qualify", "c.yaml"])
                if models is erf and "ND-544" in done.stderr:
                    continue
                commands = self.answers("qualify", "c.yaml", expect=done.returncode)
                self.assertIn(done.returncode, (1, 5), done.stderr)
                self.assertEqual([c[0] for c in commands], [command])


if __name__ == "__main__":
    main()
