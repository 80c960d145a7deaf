#!/usr/bin/env python3
"""The Python package (python/) over the command that was built: the arrays are those of the capture, results and
errors are typed, and the fixture for pytest fails the right tests."""
import os
import pathlib
import subprocess
import sys
import unittest

import h5py
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCE = [] if os.environ.get("NPUDIFF_PACKAGE") == "installed" else [str(ROOT / "python" / "src")]
sys.path[:0] = [*SOURCE, str(ROOT / "tests" / "e2e")]
import npudiff # noqa: E402
from support import MODELS, Scratch, main # noqa: E402

MODEL = MODELS / "cnn.w8a8.onnx"


class Python(Scratch):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.captures = npudiff.capture(MODEL, ["exact", "emu:zero@stem/relu"], ["uniform:3", "zeros"],
                                       cls.shared / "captures", repeats=2)

    def test_captures_are_told_with_their_files(self):
        self.assertEqual([(c.device, c.status) for c in self.captures],
                         [("exact", "complete"), ("emu:zero@stem/relu", "complete")])
        self.assertTrue(all(c.path.exists() for c in self.captures))

    def test_arrays_are_those_of_the_file(self):
        with npudiff.load(self.captures[0]) as capture, h5py.File(self.captures[0].path) as file:
            self.assertEqual(capture.probes, ["uniform", "zeros"])
            self.assertEqual((capture.status, capture.device["kind"]), ("complete", "exact"))
            edge = capture.edges["stem/relu"]
            stored = file["probes/uniform/outputs/stem%2Frelu"]
            codes = capture.outputs("stem/relu", "uniform")
            self.assertEqual((codes.dtype.name, codes.shape), (edge.dtype, (3, *edge.shape)))
            np.testing.assert_array_equal(codes, stored[()])
            np.testing.assert_array_equal(capture.outputs("stem/relu", "uniform", slice(1, 2)), stored[1:2])
            np.testing.assert_array_equal(edge.scale, stored.attrs["scale"])
            real = np.float64(edge.scale[0]) * (stored[()].astype(np.float64) - edge.zero_point[0])
            np.testing.assert_array_equal(capture.values("stem/relu", "uniform"), real)
            self.assertEqual([n for n, e in capture.edges.items() if e.is_model_output], ["logits"])
            self.assertEqual([a.shape[0] for a in capture.inputs("uniform").values()], [3])
            self.assertEqual(capture.latency_us("uniform").shape, (3, 2))
            self.assertIsNone(capture.labels("uniform"))

    def test_what_a_capture_lacks_is_said(self):
        with npudiff.load(self.captures[0].path) as capture:
            for call, error, words in [(lambda: capture.outputs("logits"), ValueError, "uniform"),
                                       (lambda: capture.outputs("nothing", "zeros"), KeyError, "stem/relu"),
                                       (lambda: capture.outputs("logits", "ones"), KeyError, "no probe 'ones'")]:
                with self.assertRaisesRegex(error, words):
                    call()
        other = self.folder / "other.h5"
        h5py.File(other, "w").close()
        with self.assertRaisesRegex(ValueError, "no capture"):
            npudiff.load(other)

    def test_values_per_channel_have_the_scale_of_their_channel(self):
        path = self.folder / "channels.h5"
        with h5py.File(self.captures[0].path) as source, h5py.File(path, "w") as file:
            for name in source:
                source.copy(name, file)
            file.attrs.update(source.attrs)
            row = list(source["edges/name"][()]).index(b"stem/relu")
            channels = int(source["edges/dims"][row][0])
            count = source["edges/quant_n"][()]
            before = int(count[:row].sum())
            scale = np.arange(1, channels + 1, dtype=np.float32)
            for column, new in [("scale", scale), ("zero_point", np.arange(channels))]:
                old = source[f"edges/{column}"][()]
                del file[f"edges/{column}"]
                file[f"edges/{column}"] = np.concatenate([old[:before], new.astype(old.dtype), old[before + 1:]])
            file["edges/quant_n"][row], file["edges/quant_axis"][row] = channels, 0
        with npudiff.load(path) as capture:
            codes = capture.outputs("stem/relu", "uniform").astype(np.float64)
            values = capture.values("stem/relu", "uniform")
            for c in range(channels):
                np.testing.assert_array_equal(values[:, c], (c + 1) * (codes[:, c] - c))

    def test_a_difference_is_a_result_that_can_be_checked(self):
        same = npudiff.compare(self.captures[0], self.captures[0])
        self.assertEqual((same.verdict, same.exit_code, same.check()), ("same", 0, same))
        result = npudiff.compare(*self.captures)
        self.assertEqual((result.verdict, result.passed), ("differs", False))
        with self.assertRaisesRegex(npudiff.DifferenceError, "'stem/relu'"):
            result.check()
        self.assertTrue(npudiff.compare(*self.captures, lsb=255).passed)

    def test_a_gate_names_the_tensor_that_fails_it(self):
        result = npudiff.compare(*self.captures, lsb=1)
        failing = [row for row in result.rows if row["failing"]]
        worst = max(failing, key=lambda row: row["failing"] / row["elements"])
        with self.assertRaisesRegex(npudiff.DifferenceError, f"'{worst['name']}' fails lsb <= 1 on .* in {worst['failing']} of"):
            result.check()

    def test_results_print_as_a_line_and_as_rows(self):
        result = npudiff.compare(*self.captures)
        self.assertRegex(repr(result), r"^<npudiff comparison: differs, exit code 1: the first difference is at 'stem/relu'>$")
        self.assertEqual([row["name"] for row in result.rows], [tensor["name"] for tensor in result["tensors"]])
        self.assertEqual(result._repr_html_().count("<tr>"), len(result.rows) + 1)
        layers = npudiff.explain(self.captures, quantised=MODEL, probe="uniform").rows
        self.assertIn(("faulty", "stem/relu"), [(row["verdict"], row["layer"]) for row in layers])
        self.assertEqual(npudiff.compare(self.captures[0], self.captures[0]).rows[0]["verdict"], "same")
        self.assertIn(f'version = "{npudiff.__version__}"', (ROOT / "python" / "pyproject.toml").read_text())

    def test_frames_have_the_numbers_of_the_capture(self):
        try:
            import pandas, xarray # noqa: E401, F401
        except ImportError:
            raise unittest.SkipTest("there is no pandas, or no xarray")
        self.assertEqual(len(npudiff.compare(*self.captures).to_dataframe()), len(npudiff.compare(*self.captures).rows))
        frames = npudiff.load(self.captures[0].path, xarray=True, probe="uniform")
        with npudiff.load(self.captures[0].path) as capture:
            np.testing.assert_array_equal(frames["logits"].values, capture.values("logits", "uniform"))
        self.assertEqual(frames["logits"].dims, ("sample", "logits_0", "logits_1")[:frames["logits"].ndim])

    def test_a_faulty_device_is_named(self):
        self.assertTrue(npudiff.explain(self.captures[:1], quantised=MODEL).passed)
        result = npudiff.explain(self.captures, quantised=MODEL, probe="uniform")
        self.assertEqual((result.verdict, result.exit_code), ("faulty", 1))
        with self.assertRaisesRegex(npudiff.DifferenceError, "faulty at stem/relu"):
            result.check()

    def test_errors_have_the_class_of_their_exit_code(self):
        with self.assertRaises(npudiff.TroubleError) as raised:
            npudiff.compare("missing.h5", "other.h5")
        self.assertEqual((raised.exception.id, raised.exception.object), ("ND-204", "missing.h5"))
        with self.assertRaises(npudiff.TroubleError):
            npudiff.compare(*self.captures, lsb="x")
        other = npudiff.capture(MODELS / "cnn.w8a16.onnx", ["exact"], ["zeros"], self.folder / "other")
        with self.assertRaises(npudiff.NotComparableError):
            npudiff.compare(self.captures[0], other[0])

    def agent(self, command):
        """An agent that only does this."""
        for name in ("agent", "agent-exact"):
            (self.folder / name).write_text(f"#!/bin/sh\n{command}\n")
            (self.folder / name).chmod(0o755)
        return self.folder / "agent"

    def test_a_device_that_dies_is_an_error_or_told(self):
        agent = self.agent("kill -9 $$")
        with self.assertRaisesRegex(npudiff.DeviceError, "device 'exact' failed at"):
            npudiff.capture(MODEL, ["exact"], ["zeros"], self.folder / "died", agent=agent)
        died = npudiff.capture(MODEL, ["exact"], ["zeros"], self.folder / "also", agent=agent, check=False)
        self.assertEqual((died[0].status, died[0].path.exists()), ("failed", True))

    def test_trouble_with_one_of_the_captures_is_an_error(self):
        with self.assertRaisesRegex(npudiff.TroubleError, "exact") as raised:
            npudiff.capture(MODEL, ["exact"], ["zeros"], self.folder / "none", agent=self.agent("exit 3"))
        self.assertEqual(raised.exception.id, "ND-211")

    def test_the_fixture_of_pytest_fails_the_right_tests(self):
        try:
            import pytest # noqa: F401
        except ImportError:
            raise unittest.SkipTest("there is no pytest")
        test = self.folder / "test_model.py"
        test.write_text(f'''
MODEL = {str(MODEL)!r}

def test_healthy(npudiff):
    made = npudiff.capture(MODEL, ["exact"], ["uniform:2"])
    npudiff.assert_healthy(made, quantised=MODEL)
    npudiff.assert_same(made[0], made[0])

def test_faulty(npudiff):
    npudiff.assert_same(*npudiff.capture(MODEL, ["exact", "emu:zero@stem/relu"], ["uniform:2"]))
''')
        plugin = ["-p", "npudiff.pytest_plugin"] if SOURCE else [] # one that is installed is found by itself
        done = subprocess.run([sys.executable, "-m", "pytest", "-q", *plugin, "-p", "no:cacheprovider", test],
                              capture_output=True, text=True, cwd=self.folder,
                              env={**os.environ, "PYTHONPATH": os.pathsep.join(SOURCE)})
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("1 failed, 1 passed", done.stdout)
        self.assertIn("DifferenceError: the verdict is 'differs': the first difference is at 'stem/relu'", done.stdout)


if __name__ == "__main__":
    main()
