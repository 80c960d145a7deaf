#!/usr/bin/env python3
"""Campaigns end to end: what is captured again and what is not, what is judged, and who can read it."""
import csv
import fcntl
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest.mock as mock
import xml.etree.ElementTree as ET

import numpy as np

from support import (CASES, Capture, GOLDEN, MODELS, NPUDIFF, Scratch, StopPoint, agents_of, capture, is_stopped, main, npudiff,
                     some_digits, wait_until)

POLICY = "policy:\n- {gate: finalize}\n- {gate: lsb, max: 255}\n"


class Qualify(Scratch):
    def campaign(self, devices, policy=POLICY, n=40, model="cnn.w8a8.onnx", probes=None, more=""):
        """Writes the campaign; its path."""
        if probes is None:
            some_digits(self.folder / "digits.npz", n)
            probes = "[digits=digits.npz]"
        path = self.folder / "c.yaml"
        path.write_text(f"models:\n- {{name: cnn, quantised: '{MODELS / model}', float: '{MODELS / 'cnn.float.onnx'}', "
                        f"probes: {probes}}}\ndevices: [{devices}]\noutput: out\n{more}\n{policy}")
        return path

    def qualify(self, path, *arguments, expect=0):
        """The result, and what was captured."""
        done = npudiff("qualify", path, *arguments, expect=None)
        if expect is not None:
            self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        made = re.findall(r"^npudiff: captured '[^']*' on ([^:\n]*)", done.stderr, re.MULTILINE)
        text = (self.folder / "out/result.json").read_text()
        for number in re.findall(r"(?<=[ \[])-?\d+\.\d+(?:e[-+]\d+)?(?=[,\n\]])", text):  # as short as reads back equal
            self.assertLessEqual(len(number), max(len(repr(float(number))), 3), number)
        return json.loads(text), made

    def cases(self, result, gate):
        """{device: case} of one gate."""
        index = [g["gate"] for g in result["gates"]].index(gate)
        return {c["device"]: c for c in result["cases"] if c["gate"] == index}

    def test_nothing_is_done_twice(self):
        """Unchanged: no capture, the same bytes. Changed: what depends on it."""
        path = self.campaign("cpu, 'emu:floor'")
        first, made = self.qualify(path)
        self.assertEqual(made, ["cpu", "emu", "quantised", "float"])
        files = {p: p.read_bytes() for p in (self.folder / "out").rglob("*") if p.is_file()}
        self.assertEqual(self.qualify(path), (first, []))
        self.assertEqual({p: p.read_bytes() for p in (self.folder / "out").rglob("*") if p.is_file()}, files)
        (self.folder / "out/captures/cnn/cpu.h5").unlink()
        self.assertEqual(self.qualify(path)[1], ["cpu"])
        with open(self.folder / "out/captures/cnn/quantised.h5", "ab") as file: # not what was captured
            file.write(b"x")
        self.assertEqual(self.qualify(path)[1], ["quantised"])
        some_digits(self.folder / "digits.npz", 41)
        self.assertEqual(len(self.qualify(path)[1]), 4)
        path.write_text(path.read_text().replace("max: 255", "max: 0"))
        result, made = self.qualify(path, expect=1)
        self.assertEqual((made, result["verdict"]), ([], "failed"))
        self.assertEqual(len(self.qualify(path, "--force", expect=1)[1]), 4)

    def test_killed_in_the_middle_it_goes_on(self):
        """kill -9 after the second capture: those that were whole are not made again."""
        path = self.campaign("'emu:floor', 'emu:ceil', 'emu:half-away', 'emu:half-up', 'emu:to-zero'", n=200)
        stop = StopPoint(self.folder / "stop")
        stop.ask("stage load")
        running = subprocess.Popen([NPUDIFF, "qualify", path, "-q"], env=dict(os.environ, **stop.environment))
        self.addCleanup(running.kill)
        captures = self.folder / "out/captures/cnn"
        while True: # each agent stops before it begins, until two captures are there
            agents = wait_until(lambda: [a for a in agents_of(running.pid) if is_stopped(a)], 300, "agent that stopped")
            if len(list(captures.glob("*.key"))) >= 2:
                break
            stop.ask("stage load")
            for agent in agents:
                os.kill(agent, signal.SIGCONT)
        running.send_signal(signal.SIGKILL)
        running.wait()
        whole = {p.name: p.stat().st_mtime_ns for p in captures.glob("*.key")}
        self.assertGreaterEqual(len(whole), 2)
        self.assertFalse((self.folder / "out/result.json").exists())
        result, made = self.qualify(path)
        self.assertEqual(len(made), 7 - len(whole))
        self.assertEqual({name: (captures / name).stat().st_mtime_ns for name in whole}, whole)
        self.assertEqual([d["status"] for d in result["models"][0]["devices"]], ["complete"] * 5)

    def test_two_at_once_are_refused(self):
        path = self.campaign("'emu:floor'")
        self.qualify(path)
        with open(self.folder / "out/.lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.assertIn("a different process already runs", npudiff("qualify", path, expect=None).stderr)

    def test_numbers_are_those_of_the_captures(self):
        """Worst step, share, SQNR, agreement and flips, recomputed from the HDF5 files."""
        policy = ("policy:\n- {gate: lsb, max: 255, tensors: residual/conv}\n- {gate: differing-share, max: 1, tensors: residual/conv}\n"
                  "- {gate: sqnr, min: -100, tensors: residual/conv}\n- {gate: agreement, min: 0}\n- {gate: accuracy-drop, margin: 0.5}\n")
        result, _ = self.qualify(self.campaign("'emu:flip@residual/conv=0.05,seed=3'", policy, n=300))
        with Capture(self.folder / "out/captures/cnn/quantised.h5") as ref, \
                Capture(next((self.folder / "out/captures/cnn").glob("emu*.h5"))) as test:
            edge = {name: (ref.values("digits", name).astype(float), test.values("digits", name).astype(float))
                    for name in ("residual/conv", "logits")}
            a, b = edge["residual/conv"]
            zero = float(np.ravel(ref.output("digits", "residual/conv").attrs["zero_point"])[0])
            labels = ref.labels("digits")
            classes = [x.reshape(len(x), -1).argmax(1) for x in edge["logits"]]
        value = {gate: list(self.cases(result, gate).values())[0]["value"]
                 for gate in ("lsb", "differing-share", "sqnr", "agreement")}
        self.assertEqual(value["lsb"], np.abs(a - b).max())
        self.assertEqual(value["differing-share"], (a != b).mean())
        changed = (a != b).reshape(len(a), -1).any(1)
        sqnr = 10 * np.log10(((a[changed] - zero) ** 2).sum() / ((a - b) ** 2).sum())
        self.assertAlmostEqual(value["sqnr"], sqnr, 9)
        self.assertEqual(value["agreement"], (classes[0] == classes[1]).mean())
        pair = [p for p in result["models"][0]["accuracy"][0]["devices"][0]["against"] if p["reference"] == "quantised"][0]
        right = [c == labels for c in classes]
        self.assertEqual([pair[k] for k in ("right_before", "right_after", "right_to_wrong", "wrong_to_right")],
                         [right[0].sum(), right[1].sum(), (right[0] & ~right[1]).sum(), (~right[0] & right[1]).sum()])

    def test_suggestion_passes_and_is_tight(self):
        """Pasted, it passes; with any of its bounds lower, it does not."""
        path = self.campaign("exact, 'emu:floor', 'emu:flip@logits=0.1'", policy="")
        suggested = npudiff("qualify", path, "--suggest", "-q")
        text = path.read_text()
        path.write_text(text + suggested)
        self.assertEqual(self.qualify(path)[0]["verdict"], "passed")
        self.assertEqual(npudiff("qualify", path, "--suggest", "-q"), suggested)
        tightened = 0
        lines = suggested.splitlines()
        for i, line in enumerate(lines):
            key, _, number = line.strip().partition(": ")
            if key not in ("max", "margin") or float(number) == 0:
                continue
            lower = repr(float(number) * 0.999) if key == "margin" or float(number) < 1 else str(int(float(number)) - 1)
            path.write_text(text + "\n".join([*lines[:i], f"    {key}: {lower}", *lines[i + 1:]]) + "\n")
            done = npudiff("qualify", path, "-q", expect=None)
            self.assertIn(done.returncode, (1, 4), line)
            tightened += 1
        self.assertGreater(tightened, 3)

    def test_exit_codes(self):
        """Inconclusive, ended loosening, failed device, fallback that may or may not be, latency of one run."""
        question = "policy:\n- {gate: accuracy-drop, margin: 0.001}\n"
        result, _ = self.qualify(self.campaign("'emu:floor'", question), expect=4)
        case = result["cases"][0]
        self.assertIn("samples needed, 40 given", case["message"])
        self.assertGreater(case["samples_needed"], 40)
        self.assertEqual(len(ET.parse(self.folder / "out/junit.xml").findall(".//error[@type='inconclusive']")), 1)
        old = "policy:\n- {gate: lsb, max: 255, reason: none, owner: me, until: 2020-02-29}\n"
        result, _ = self.qualify(self.campaign("'emu:floor'", old), expect=1)
        self.assertIn("ended on 2020-02-29 (owner me: none)", result["cases"][0]["message"])
        self.qualify(self.campaign("cpu", "policy:\n- {gate: latency-cv}\n", n=1), expect=4)
        self.qualify(self.campaign("cpu", "policy:\n- {gate: latency-cv, fail: 1000}\n", n=8, more="repeats: 3"))

    def test_failed_device_and_fallback(self):
        path = self.folder / "c.yaml"
        head = f"models: [{{name: erf, quantised: '{CASES / 'erf.u8.onnx'}', probes: uniform}}]\n" \
               "devices: [cpu, 'htp-sim:gen3']\noutput: out\n"
        path.write_text(head + "policy:\n- {gate: finalize}\n- {gate: lsb, max: 255}\n")
        result, _ = self.qualify(path, expect=5)
        self.assertEqual({d: c["verdict"] for d, c in self.cases(result, "finalize").items()},
                         {"cpu": "passed", "gen3": "device failed"})
        self.assertEqual(result["verdict"], "device failed")
        root = ET.parse(self.folder / "out/junit.xml").getroot()
        self.assertEqual((root.get("tests"), root.get("errors")), ("4", "2"))
        devices = {d["device"]: d for d in result["models"][0]["devices"]}
        self.assertEqual((devices["cpu"]["status"], devices["gen3"]["status"]), ("complete", "failed"))
        self.assertIn("node 'erf' (Erf) runs on the CPU", devices["gen3"]["failure"])
        path.write_text(head + "policy:\n- {gate: fallback}\n")
        result, made = self.qualify(path, expect=1)
        self.assertEqual(made, []) # the policy changes what is said of captures, not captures
        self.assertIn("node 'erf' (Erf) runs on the CPU; ", self.cases(result, "fallback")["gen3"]["message"])
        path.write_text(head + "policy:\n- {gate: fallback, allow: Erf}\n")
        self.assertEqual(self.qualify(path)[1], [])

    def spoil_labels(self, n, n_spoilt):
        """The first n digits, of which the first n_spoilt have another label; the model is right on all of the first 40."""
        some_digits(self.folder / "digits.npz", n)
        arrays = dict(np.load(self.folder / "digits.npz"))
        arrays["labels"][:n_spoilt] = (arrays["labels"][:n_spoilt] + 1) % 10
        np.savez(self.folder / "digits.npz", **arrays)

    def test_reference_that_is_never_right_is_broken(self):
        """Device and reference agree in every bit, and both are wrong on every sample."""
        policy = "policy:\n- {gate: finalize}\n- {gate: bit-equal-to}\n- {gate: accuracy-drop, margin: 0.2, reference: float}\n"
        path = self.campaign("exact, 'emu:floor'", policy)
        self.spoil_labels(40, 40)
        result, _ = self.qualify(path, expect=3)
        self.assertEqual({c["verdict"] for gate in ("bit-equal-to", "accuracy-drop") for c in self.cases(result, gate).values()},
                         {"not comparable"})
        for reference in result["models"][0]["references"]:
            self.assertIn("not one of the 40 labelled samples of 'digits' is right at 'logits'", reference["broken"])
        self.assertIn("the reference 'quantised' is broken: not one", (self.folder / "out/result.txt").read_text())
        self.spoil_labels(19, 19) # too few to say so
        self.assertEqual([r["broken"] for r in self.qualify(path, expect=None)[0]["models"][0]["references"]], [None, None])
        self.spoil_labels(40, 39) # one is right
        self.assertEqual([r["broken"] for r in self.qualify(path, expect=None)[0]["models"][0]["references"]], [None, None])

    def test_reference_that_fell_with_the_device_is_broken(self):
        """From 40 right ones to 20, device and reference alike; again the same; accepted by --force."""
        path = self.campaign("'emu:half-even'", "policy:\n- {gate: bit-equal-to}\n")
        self.qualify(path)
        self.spoil_labels(40, 20)
        for _ in range(2):
            result, _ = self.qualify(path, expect=3)
            self.assertIn("20 of 40 samples of 'digits' are right at 'logits', and 40 were last time",
                          self.cases(result, "bit-equal-to")["emu:half-even"]["message"])
            path.write_text(path.read_text() + "# judged anew\n")
        self.assertEqual(self.qualify(path, "--force")[0]["verdict"], "passed")
        path.write_text(path.read_text() + "# judged anew\n")
        self.assertEqual(self.qualify(path)[0]["verdict"], "passed")
        self.spoil_labels(40, 23) # within ten points of what was accepted
        self.assertEqual(self.qualify(path)[0]["verdict"], "passed")

    def test_the_same_device_twice_is_refused(self):
        """By two names, before anything runs; a file that is prepared for one of them makes it another."""
        for devices in ("'htp-sim:gen3', 'htp-sim:SM8650'", "{chipsets: [gen1, SM8650, gen3]}",
                        "'htp-sim:gen3?vtcm_mb=4&device_id=0', 'htp-sim:SM8650?device_id=0&vtcm_mb=4'"):
            done = npudiff("qualify", self.campaign(devices, n=1), expect=None)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertRegex(done.stderr, r"c.yaml:\d+:\d+: .*are the same device, SM8650; name it once")
            self.assertFalse((self.folder / "out").exists())

    def test_a_library_beside_the_backend_counts_by_content(self):
        """Changed, but of its old size and time: captured again. Touched, but of its old content: not."""
        installed = pathlib.Path(os.environ.get("NPUDIFF_RUNTIMES") or pathlib.Path(
            os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache", "npudiff/runtimes"))
        name = "qairt-2.51.0"
        shutil.copytree(installed / name, self.folder / "runtimes" / name, copy_function=os.symlink)
        backend = next((self.folder / "runtimes" / name).rglob("libQnnHtp.so"))
        extra = backend.parent / "libExtra.so"
        extra.write_text("one")
        path = self.folder / "c.yaml"
        path.write_text(f"models: [{{name: mul, quantised: '{MODELS / 'mul.u8.onnx'}', probes: zeros}}]\n"
                        f"devices: ['htp-sim:gen3@{name}']\noutput: out\npolicy: [{{gate: finalize}}]\n")
        self.enterContext(mock.patch.dict(os.environ, {"NPUDIFF_RUNTIMES": str(self.folder / "runtimes")}))
        self.assertEqual(len(self.qualify(path)[1]), 2)
        self.assertEqual(self.qualify(path)[1], [])
        before = extra.stat()
        with open(extra, "r+") as file:
            file.write("two")
        os.utime(extra, ns=(before.st_atime_ns, before.st_mtime_ns))
        self.assertEqual(self.qualify(path)[1], [f"gen3@{name}"])
        os.utime(extra)
        self.assertEqual(self.qualify(path)[1], [])

    def test_gates_do_not_change_the_captures(self):
        """Recording all tensors in one session would move layers of this model to the CPU. The gate finds no fallback, and
        without it nothing is captured again."""
        head = f"models: [{{name: attention, quantised: '{MODELS / 'random-attention.w8a8.onnx'}', probes: 'uniform:2'}}]\n" \
               "devices: ['htp-sim:gen3']\noutput: out\npolicy:\n- {gate: finalize}\n- {gate: lsb, max: 255}\n"
        path = self.folder / "c.yaml"
        path.write_text(head + "- {gate: fallback}\n")
        gated, made = self.qualify(path)
        self.assertEqual(made, ["gen3", "quantised"])
        opened = self.open(self.folder / "out/captures/attention/gen3.h5")
        self.assertEqual(int(opened.file["runtime"].attrs["passes"]), 2)
        nodes = zip(opened.column("nodes", "op_type"), opened.column("nodes", "provider"))
        self.assertLessEqual({op for op, provider in nodes if provider == "CPUExecutionProvider"},
                             {"QuantizeLinear", "DequantizeLinear"}) # of inputs and outputs
        path.write_text(head)
        plain, made = self.qualify(path)
        self.assertEqual(made, [])
        for result in (gated, plain):
            self.assertEqual(result["models"][0]["devices"][0]["status"], "complete")
        for gate in ("finalize", "lsb"):
            self.assertEqual(self.cases(gated, gate), self.cases(plain, gate))

    def test_what_is_prepared_takes_the_place_of_the_model(self):
        """Another file goes to the device; its outputs, floats, are held against the codes of the model."""
        shutil.copy(MODELS / "cnn.w8a8.onnx", self.folder / "ctx.onnx")
        prepared = "{device: 'htp-sim:gen3', prepared: {cnn: ctx.onnx}}"
        policy = "policy:\n- {gate: bit-equal-to, devices: gen3, to: gen3@qairt-2.51.0}\n- {gate: lsb, max: 0, to: gen3@qairt-2.51.0}\n"
        result, _ = self.qualify(self.campaign(f"'htp-sim:gen3@qairt-2.51.0', {prepared}", policy, n=5))
        with Capture(self.folder / "out/captures/cnn/gen3.h5") as capture:
            self.assertEqual(capture.values("digits", "logits").dtype, np.float32)
        self.assertEqual(result["models"][0]["devices"][1]["prepared"], "ctx.onnx")
        self.assertEqual(self.cases(result, "bit-equal-to")["gen3"]["checked"], 1)
        shutil.copy(MODELS / "cnn.w8a16.onnx", self.folder / "ctx.onnx")
        result, made = self.qualify(self.folder / "c.yaml", expect=1) # floats between two steps are held to the limit
        self.assertEqual(made, ["gen3"])

    def test_evidence_is_that_of_the_samples_in_order(self):
        """e-values by the recursion of Krichevsky and Trofimov, one sample after the other."""
        result, _ = self.qualify(self.campaign("'emu:flip@logits=0.5,seed=3', 'emu:stale@logits', exact", n=300), expect=None)
        path = self.folder / "out/captures/cnn"
        with Capture(path / "quantised.h5") as ref:
            labels, before = ref.labels("digits"), ref.values("digits", "logits").reshape(300, -1).argmax(1) == ref.labels("digits")
        stops = 0
        for device in result["models"][0]["accuracy"][0]["devices"]:
            file = next(d["capture"] for d in result["models"][0]["devices"] if d["device"] == device["device"])
            with Capture(self.folder / "out" / file) as capture:
                after = capture.values("digits", "logits").reshape(300, -1).argmax(1) == labels
            counts, e, largest, stop = {True: 0, False: 0}, 1.0, 1.0, None
            for i in range(300):
                if before[i] != after[i]:
                    side = bool(after[i])
                    e *= 2 * (counts[side] + 0.5) / (sum(counts.values()) + 1)
                    counts[side] += 1
                largest = max(largest, e)
                stop = i + 1 if stop is None and largest >= 20 else stop
            stops += stop is not None
            found = next(p for p in device["against"] if p["reference"] == "quantised")["evidence"]
            self.assertAlmostEqual(found["e_value"] / e, 1, 9)
            self.assertAlmostEqual(found["largest"] / largest, 1, 9)
            self.assertEqual(found["stop"], stop)
        self.assertEqual("one could have stopped there" in npudiff("qualify", self.folder / "c.yaml", "-v", expect=None).stdout, stops > 0)
        self.assertGreater(stops, 0)

    def test_error_against_a_target(self):
        """A target tensor of the user's own: errors and their difference as NumPy has them, and what it judges."""
        some_digits(self.folder / "plain.npz", 120)
        plain = np.load(self.folder / "plain.npz")
        target = np.random.default_rng(7).normal(0, 3, (120, 1, 10)).astype(np.float32)
        target[3, 0, 2] = np.nan # such elements are left out
        np.savez(self.folder / "digits.npz", image=plain["image"], **{"target:logits": target})
        gate = "- {gate: target-error, metric: %s, max: %g, devices: 'emu*'}\n"
        policy = "policy:\n" + gate % ("mean-error", 10) + gate % ("sqnr", 20)
        path = self.campaign("'emu:floor', 'emu:flip@logits=0.5,seed=3'", policy, probes="[digits=digits.npz]")
        result, made = self.qualify(path)
        self.assertEqual(len(made), 4)
        is_there = ~np.isnan(target)
        reals = {}
        for file in (self.folder / "out/captures/cnn").glob("*.h5"):
            with Capture(file) as capture:
                output = capture.output("digits", "logits")
                values = output[()].astype(float)
                if output.dtype == np.uint8:
                    values = (values - float(np.ravel(output.attrs["zero_point"])[0])) * float(np.ravel(output.attrs["scale"])[0])
                reals[capture.file.attrs.get("label", file.stem)] = values
        mean = lambda v: np.abs(v - target)[is_there].mean()
        sqnr = lambda v: 10 * np.log10((target[is_there] ** 2.).sum() / ((v - target)[is_there] ** 2).sum())
        pairs = {(p["device"], p["reference"]): p for p in result["models"][0]["targets"][0]["against"]}
        self.assertEqual(len(pairs), 4)
        self.assertEqual({r for _, r in pairs}, {"float", "quantised"})
        pair, before, after = pairs[("emu:floor", "quantised")], reals["quantised"], reals[next(k for k in reals if "floor" in k)]
        for f, key in ((mean, "mean_error"), (sqnr, "sqnr_db")):
            self.assertAlmostEqual(pair[f"{key}_before"]["value"], f(before), 6)
            self.assertAlmostEqual(pair[f"{key}_after"]["value"], f(after), 6)
            self.assertAlmostEqual(pair[f"{key}_change"]["value"], f(after) - f(before), 6)
            low, high = pair[f"{key}_change"]["interval"]
            self.assertTrue(low <= f(after) - f(before) <= high)
        value = self.cases(result, "target-error")["emu:floor"]["value"]
        self.assertAlmostEqual(value, mean(after) - mean(before), 6)
        text = npudiff("qualify", path, "-v")
        self.assertIn("error against the target of 'logits' with 'digits', 120 samples", text)
        path.write_text(path.read_text().replace("max: 10", "max: 0"))
        np.savez(self.folder / "digits.npz", image=plain["image"], **{"target:logits": before.astype(np.float32)})
        result, made = self.qualify(path, expect=1) # the reference is the target: any difference is worse
        self.assertEqual(made, []) # captures do not depend on targets
        self.assertEqual(self.cases(result, "target-error")["emu:floor"]["verdict"], "failed")
        for name, array, word in (("target:nothing", target, "no output of model"), ("target:logits", target[:5], "5 targets"),
                                  ("target:logits", np.nan_to_num(target).astype(int), "expected float32"), ("target:logits", target[:, :, :9], "9 elements")):
            np.savez(self.folder / "digits.npz", image=plain["image"], **{name: array})
            done = npudiff("qualify", path, expect=None)
            self.assertEqual((done.returncode, word in done.stderr), (2, True), done.stderr)

    def prepare(self, device, name):
        """What goes to a phone: npudiff has the provider write an EPContext model and its binary."""
        path = self.folder / f"{name}.onnx"
        capture("cnn.w8a8.onnx", [f"{device}?ep.context_enable=1&ep.context_file_path={path}&ep.context_embed_mode=0"],
                ["uniform:1:1"], self.folder / f"{name}.h5", "--tensors", "none", "--trust-options")
        self.assertTrue(path.with_name(f"{name}_qnn.bin").exists())
        return path

    def test_binaries_that_ship(self):
        """Real ones: on their own SDK and chipset the outputs of the source model, elsewhere a finding."""
        for chipset, sdk in (("gen1", "2.51.0"), ("gen3", "2.51.0"), ("gen3", "2.50.40")):
            self.prepare(f"htp-sim:{chipset}@qairt-{sdk}", f"{chipset}-{sdk}")
        runs = {"gen1": "gen1-2.51.0", "gen3": "gen3-2.51.0", "gen4": "gen3-2.51.0", "gen3@qairt-2.50.40": "gen3-2.51.0",
                "gen1@qairt-2.50.40": "gen3-2.50.40", "gen5": "gen3-2.50.40"}
        devices = ", ".join(["'htp-sim:gen1@qairt-2.51.0', 'htp-sim:gen3@qairt-2.51.0'"] + [
            f"{{device: 'htp-sim:{device}', prepared: {{cnn: {model}.onnx}}}}" for device, model in runs.items()])
        policy = ("policy:\n- {gate: bit-equal-to, devices: gen1, to: gen1@qairt-2.51.0}\n"
                  "- {gate: bit-equal-to, devices: gen3, to: gen3@qairt-2.51.0}\n")
        path = self.campaign(devices, policy)
        result, _ = self.qualify(path, expect=5)
        rows = {d["device"]: d for d in result["models"][0]["devices"]}
        self.assertEqual([c["verdict"] for c in result["cases"]], ["passed", "passed"])
        sdk = {d: rows[d]["prepared_sdk"] for d in runs}
        for device, model in runs.items():
            self.assertTrue(sdk[device].startswith(model.split("-")[1] + "."), sdk)
            self.assertEqual(rows[device]["prepared_chipset"], {"gen1": "SM8450", "gen3": "SM8650"}[model.split("-")[0]])
        self.assertEqual({d: row["findings"] for d, row in rows.items()}, {
            "gen1@qairt-2.51.0": [], "gen3@qairt-2.51.0": [], "gen1": [], "gen3": [],
            "gen4": ["binary prepared for chipset SM8650 (v75), run as SM8750 (v79)"],
            "gen3@qairt-2.50.40": [f"binary prepared with SDK {sdk['gen3']}, run with SDK 2.50.40"],
            "gen1@qairt-2.50.40": ["binary prepared for chipset SM8650 (v75), run as SM8450 (v69)"],
            "gen5": [f"binary prepared with SDK {sdk['gen5']}, run with SDK 2.51.0",
                     "binary prepared for chipset SM8650 (v75), run as SM8850 (v81)"]})
        # compare of captures of one binary says so, of the device for which it was not made alone.
        capture(self.folder / "gen3-2.51.0.onnx", ["htp-sim:gen1", "htp-sim:gen3"], ["uniform:2:1"], self.folder / "of-binary", "--trust-options")
        text = " ".join(npudiff("compare", *sorted((self.folder / "of-binary").glob("*.h5"))).split())
        self.assertIn("simulator, but the binary is for SM8650 (v75), not for SM8450 (gen1)", text)
        self.assertEqual(text.count("but the binary is for"), 1)
        self.assertEqual({d for d, row in rows.items() if row["status"] == "failed"}, {"gen3@qairt-2.50.40"})
        self.assertIn("finding: gen4: binary prepared for chipset SM8650", npudiff("qualify", path, expect=5))
        with open(self.folder / "gen1-2.51.0_qnn.bin", "ab") as binary: # it counts as part of the model
            binary.write(b"x")
        self.assertEqual(self.qualify(path, expect=None)[1], ["gen1"])

    def test_prepared_model_as_a_device_would_get_it(self):
        """Captured by itself its outputs are codes; without its binary, or of another model, it is refused."""
        path = self.prepare("htp-sim:gen3", "ctx")
        capture(path, ["htp-sim:gen3"], ["uniform:4:1"], self.folder / "ctx-codes.h5")
        capture("cnn.w8a8.onnx", ["htp-sim:gen3"], ["uniform:4:1"], self.folder / "whole.h5")
        with Capture(self.folder / "ctx-codes.h5") as a, Capture(self.folder / "whole.h5") as b:
            self.assertEqual(a.values("uniform", "logits").dtype, np.uint8)
            np.testing.assert_array_equal(a.values("uniform", "logits"), b.values("uniform", "logits"))
        prepared = "{device: 'htp-sim:gen3', prepared: {cnn: ctx.onnx}}"
        path.with_name("ctx_qnn.bin").rename(self.folder / "elsewhere.bin")
        done = npudiff("qualify", self.campaign(prepared), expect=None)
        self.assertEqual(done.returncode, 2)
        self.assertIn("ctx_qnn.bin", done.stderr)
        shutil.copy(CASES / "erf.u8.onnx", path)
        done = npudiff("qualify", self.campaign(prepared), expect=None)
        self.assertEqual(done.returncode, 2)
        self.assertIn("does not take the inputs of", done.stderr)

    def test_result_is_read_by_others(self):
        """JUnit by Python's expat and by a library of JUnit's users, CSV by Python: the same cases everywhere."""
        result, _ = self.qualify(self.campaign("exact, 'emu:floor'", "policy:\n- {gate: finalize}\n- {gate: lsb, max: 1}\n"
                                               "- {gate: accuracy-drop, margin: 0.001}\n"), expect=1)
        self.assertEqual((result["verdict"], result["counts"]["failed"], result["counts"]["inconclusive"]), ("failed", 1, 2))
        wanted = {}
        for case in result["cases"]:
            wanted[(case["device"], result["gates"][case["gate"]]["text"])] = case["verdict"]
        junit = self.folder / "out/junit.xml"
        kinds = {"failure": "failed", "error": "inconclusive"}
        seen = {(t.get("classname").split(".cnn.")[1], t.get("name")): t[0].get("type") if len(t) else "passed"
                for t in ET.parse(junit).iter("testcase")}
        self.assertEqual(seen, wanted)
        with open(self.folder / "out/result.csv", newline="") as file:
            rows = {(r["device"], r["text"]): r["verdict"] for r in csv.DictReader(file)}
        self.assertEqual(rows, wanted)
        self.assertEqual(self.second_reader(junit, kinds), wanted)

    def second_reader(self, path, kinds):
        """junitparser from PyPI; where that cannot be had, libxml2's validator, which only says yes or no."""
        with tempfile.TemporaryDirectory() as library:
            done = subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps",
                                   "--target", library, "junitparser==3.2.0"], capture_output=True, timeout=120)
            if done.returncode == 0:
                script = ("import sys, json; sys.path.insert(0, sys.argv[1]); import junitparser as j\n"
                          "x = j.JUnitXml.fromfile(sys.argv[2])\n"
                          "print(json.dumps([[c.classname, c.name, type(c.result[0])._tag if c.result else ''] "
                          "for s in x for c in s]))")
                read = subprocess.run([sys.executable, "-c", script, library, str(path)], capture_output=True, text=True)
                self.assertEqual(read.returncode, 0, read.stderr)
                return {(c.split(".cnn.")[1], n): kinds.get(tag, "passed") for c, n, tag in json.loads(read.stdout)}
        subprocess.run(["xmllint", "--noout", "--relaxng", GOLDEN / "junit.rng", path], check=True, capture_output=True)
        return {(t.get("classname").split(".cnn.")[1], t.get("name")): kinds[t[0].tag] if len(t) else "passed"
                for t in ET.parse(path).iter("testcase")}

    def test_killed_politely_it_stops_its_agents(self):
        path = self.campaign("'emu:floor', 'emu:ceil'", n=600)
        stop = StopPoint(self.folder / "stop")
        stop.ask("acknowledged 5")
        running = subprocess.Popen([NPUDIFF, "qualify", path, "-q"],
                                   env=dict(os.environ, TMPDIR=str(self.shared), **stop.environment))
        self.addCleanup(running.kill)
        wait_until(lambda: any(map(is_stopped, agents_of(running.pid))), 300, "agent that stopped")
        running.send_signal(signal.SIGTERM)
        self.assertEqual(running.wait(60), -signal.SIGTERM)
        self.assertEqual(list(pathlib.Path(self.shared).iterdir()), [])


if __name__ == "__main__":
    main()
