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
import time
import xml.etree.ElementTree as ET

import numpy as np

from support import CASES, Capture, GOLDEN, MODELS, NPUDIFF, Scratch, main, npudiff, some_digits

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
        return json.loads((self.folder / "out/result.json").read_text()), made

    def cases(self, result, gate):
        """{device: case} of one gate."""
        index = [g["gate"] for g in result["gates"]].index(gate)
        return {c["device"]: c for c in result["cases"] if c["gate"] == index}

    def test_nothing_is_done_twice(self):
        """Unchanged: no capture, the same bytes, within 3 s. Changed: what depends on it."""
        path = self.campaign("cpu, 'emu:floor'")
        first, made = self.qualify(path)
        self.assertEqual(made, ["cpu", "emu", "quantised", "float"])
        files = {p: p.read_bytes() for p in (self.folder / "out").rglob("*") if p.is_file()}
        begin = time.monotonic()
        self.assertEqual(self.qualify(path), (first, []))
        self.assertLess(time.monotonic() - begin, 3)
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
        running = subprocess.Popen([NPUDIFF, "qualify", path, "-q"])
        captures = self.folder / "out/captures/cnn"
        end = time.monotonic() + 120
        while len(list(captures.glob("*.key"))) < 2 and time.monotonic() < end:
            time.sleep(0.005)
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
            self.assertIn("another process", npudiff("qualify", path, expect=None).stderr)

    def test_numbers_are_those_of_the_captures(self):
        """Worst step, share, SQNR, agreement and flips, recomputed from the HDF5 files."""
        policy = ("policy:\n- {gate: lsb, max: 255, edges: residual/conv}\n- {gate: differing-share, max: 1, edges: residual/conv}\n"
                  "- {gate: sqnr, min: -100, edges: residual/conv}\n- {gate: agreement, min: 0}\n- {gate: accuracy-drop, margin: 0.5}\n")
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
        self.assertEqual(len(ET.parse(self.folder / "out/junit.xml").findall(".//skipped")), 1)
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
        path.write_text(head + "policy:\n- {gate: fallback}\n")
        result, _ = self.qualify(path, expect=1)
        self.assertIn("node 'erf' (Erf) runs on the CPU; ", self.cases(result, "fallback")["gen3"]["message"])
        path.write_text(head + "policy:\n- {gate: fallback, allow: Erf}\n")
        self.qualify(path)

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
        result, made = self.qualify(self.folder / "c.yaml", expect=3) # floats on another grid
        self.assertEqual(made, ["gen3"])

    def test_result_is_read_by_others(self):
        """JUnit by Python's expat and by a library of JUnit's users, CSV by Python: the same cases everywhere."""
        result, _ = self.qualify(self.campaign("exact, 'emu:floor'", "policy:\n- {gate: finalize}\n- {gate: lsb, max: 1}\n"
                                               "- {gate: accuracy-drop, margin: 0.001}\n"), expect=4)
        wanted = {}
        for case in result["cases"]:
            wanted[(case["device"], result["gates"][case["gate"]]["text"])] = case["verdict"]
        junit = self.folder / "out/junit.xml"
        kinds = {"failure": "failed", "skipped": "inconclusive", "error": "device failed"}
        seen = {(t.get("classname").split(".cnn.")[1], t.get("name")): kinds[t[0].tag] if len(t) else "passed"
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
        running = subprocess.Popen([NPUDIFF, "qualify", path, "-q"], env=dict(os.environ, TMPDIR=str(self.shared)))
        time.sleep(0.6)
        running.send_signal(signal.SIGTERM)
        self.assertEqual(running.wait(60), -signal.SIGTERM)
        self.assertEqual(list(pathlib.Path(self.shared).iterdir()), [])


if __name__ == "__main__":
    main()
