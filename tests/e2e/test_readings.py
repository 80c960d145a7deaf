#!/usr/bin/env python3
"""A small part of tools/studies/readings: changed files are refused, or read as a second reader reads them. The seed is from ND_SEED."""
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import subprocess
import sys

from support import NPUDIFF, Scratch, main

STUDY = pathlib.Path(__file__).resolve().parents[2] / "tools/studies/readings"
PROGRAM = pathlib.Path(NPUDIFF).parents[2] / "tests/fuzz/kind_reading"


def load(path):
    spec = importlib.util.spec_from_loader(path.name, importlib.machinery.SourceFileLoader(path.name, str(path)))
    module = importlib.util.module_from_spec(spec)
    sys.dont_write_bytecode = True
    spec.loader.exec_module(module)
    return module


readings = load(STUDY)


class Readings(Scratch):
    def read(self, kind, data):
        path = self.folder / "x.yaml"
        path.write_bytes(data)
        reads, done = readings.read_all(PROGRAM, kind, [path])
        self.assertEqual(done.returncode, 0, done.stderr)
        return reads[0], path

    def test_changed_files(self):
        seed = os.environ.get("ND_SEED", "20261124")
        print(f"# ND_SEED={seed}", flush=True)
        done = subprocess.run([sys.executable, STUDY, "--seed", seed, "-n", "300", "--program", PROGRAM], capture_output=True, text=True,
                              cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        rows = [line.split("|") for line in done.stdout.splitlines()[2:]]
        self.assertEqual([row[1].strip() for row in rows], list(readings.SOURCES))
        for row in rows: # some are refused; those without a digest are also read
            self.assertGreater(int(row[3]), 30, row)
            if row[1].strip() not in ("part", "certificate", "explanation", "sheet", "datasheet"):
                self.assertGreater(int(row[4]), 10, row)

    def test_originals_are_read(self):
        for kind, source in readings.SOURCES.items():
            data = (readings.ROOT / source).read_bytes()
            read, path = self.read(kind, data)
            self.assertIsNotNone(read, kind)
            self.assertIsNone(readings.judge(kind, read, data, readings.beside_of(PROGRAM, kind, path, data)), kind)

    def test_other_readings_are_found(self):
        """A reading that is wrong in one value is found in every kind."""
        for kind, source, old, new in (("frame", "frame", b"\x03\x04", b"\x03\x05"), ("took", "took", b"0.041", b"0.042"),
                                       ("part", "part", b"512 213", b"512 214"), ("certificate", "certificate", b"x.onnx", b"nul.onnx"),
                                       ("forged", "certificate", b"mul.u8", b"mul.u8"), ("campaign", "campaign", b"margin: 0.003", b"margin: 0.004")):
            data = (readings.ROOT / readings.SOURCES[source]).read_bytes()
            self.assertIn(old, data)
            read, path = self.read(kind, data)
            if kind == "forged":
                read["proven"] = 2
            changed = data.replace(old, new)
            self.assertIsNotNone(readings.judge(kind, read, changed, path if kind == "campaign" else data), kind)
        for kind in ("explanation", "sheet", "datasheet"):
            answer = readings.beside_of(PROGRAM, kind, None, None)
            self.assertIsNotNone(readings.judge(kind, {**answer, "kind": "x"}, b"", answer), kind)

    def test_what_was_believed(self):
        """What the study found first: each of these was read as if the change were not there."""
        took, part, certificate = ((readings.ROOT / readings.SOURCES[k]).read_bytes() for k in ("took", "part", "certificate"))
        lines = took.splitlines(keepends=True)
        changed = [("took", took[:-2]), ("took", took + b"\nmore"), ("took", b"".join([*lines[:5], lines[2], *lines[6:]])),
                   ("took", took.replace(b"device ", b"device \0x")), ("part", part.replace(b"512 213", b"512 214"))]
        changed += [("forged", readings.forge(certificate.replace(old, new)))
                    for old, new in ((b'"name": "a"', b'"name": "b"'), (b'"accuracy_cost": null', b'"accuracy_cost": 1'), (b'"accuracy_cost": null,', b""),
                                     (b'"sums": null', b'"sums": 9.0'))]
        campaign = b"models: [{quantised: m.onnx, probes: zeros}]\npolicy: [{gate: finalize}]\ndevices: "
        changed += [("campaign", campaign + devices) for devices in (
            b'["cpu\\0x"]', b'[{device: cpu, prepared: {"m\\0x": a.onnx}}]', b'[{device: cpu, prepared: {m: "a.onnx\\0x"}}]')]
        part, sheet = (json.loads((readings.ROOT / readings.SOURCES[k]).read_text()) for k in ("explanation", "sheet"))
        for records in ("evaluated", "tallies"): # each with a digest of its own, and in the place of another
            changed.append(("explanation", json.dumps({**part, records: part[records][::-1]}).encode()))
        sheet["sections"]["quantise"][0]["evidence"]["off"] += 1
        changed += [(kind, json.dumps({**sheet, "npudiff_datasheet": n}).encode()) for kind in ("sheet", "datasheet") for n in (2, 3)]
        for kind, data in changed:
            self.assertIsNone(self.read(kind, data)[0], data[-200:])
        self.assertIsNotNone(self.read("campaign", campaign + b"[{device: cpu, prepared: {m: a.onnx}}]")[0])


if __name__ == "__main__":
    main()
