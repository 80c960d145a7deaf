#!/usr/bin/env python3
"""npudiff explain on captures of float models: half precision of the simulator, float32 of the CPU, and layers of them that were
spoilt afterwards."""
import json
import pathlib
import re
import shutil
import sys

import h5py
import numpy as np

from support import MODELS, Scratch, capture, main, npudiff, some_digits
from write_capture import digest, seal

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import onnx_write as ow  # noqa: E402

MODEL, N, PROBE = MODELS / "cnn.float.onnx", 12, "digits"
SPOILT, READER = "pointwise/conv", "pointwise/relu"


def late(x):
    return np.concatenate([x[:1], x[:-1]])


def channels_last(x):
    return x.transpose(0, 1, 3, 4, 2).reshape(x.shape)


def clamped(x):
    return np.clip(x, np.quantile(x, 0.3), np.quantile(x, 0.7))


def lost(x):
    y = x.copy()
    y.reshape(-1)[::7] = np.nan
    return y


def coarse(x):
    """Rounded to 5 bits: no fault predicts that."""
    mantissa, exponent = np.frexp(x)
    return np.ldexp(np.rint(mantissa * 32) / 32, exponent).astype(x.dtype)


class Floats(Scratch):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.probe = some_digits(cls.shared / "digits.npz", N)
        capture(MODEL, ["cpu", "htp-sim:gen1", "htp-sim:gen3"], [cls.probe], cls.shared)

    def explain(self, *paths, expect):
        done = npudiff("explain", "--float", MODEL, *paths, "--json", expect=expect)
        return json.loads(done)["devices"]

    def spoil(self, change):
        """A copy in which the layer is changed; what reads it cannot be judged any more, and is taken out."""
        copy = self.folder / f"{change.__name__}.h5"
        shutil.copyfile(self.shared / "gen3.h5", copy)
        with h5py.File(copy, "r+") as file:
            outputs = file[f"probes/{PROBE}/outputs"]
            name = SPOILT.replace("/", "%2F")
            spoilt = np.ascontiguousarray(change(outputs[name][()]))
            outputs[name][...] = spoilt
            for i in range(len(spoilt)):
                file[f"probes/{PROBE}/digests"][name][i, :, :] = digest(np.ascontiguousarray(spoilt[i]).tobytes())
            del outputs[READER.replace("/", "%2F")]
            seal(file)
        return copy

    def test_healthy_devices_are_healthy(self):
        cpu, *npus = self.explain(*(self.shared / f"{n}.h5" for n in ("cpu", "gen1", "gen3")), expect=0)
        for device in (cpu, *npus):
            self.assertEqual(device["verdict"], "healthy")
            for layer in device["layers"]:
                floats = layer["floats"]
                self.assertEqual(floats["precision"], "float32" if device is cpu else "float16")
                self.assertEqual((floats["beyond_bound"], floats["not_finite"]), (0, 0), layer["name"])
                self.assertLessEqual(floats["largest_of_bound"], 0.5, layer["name"])
        for device in npus:
            products = [la["floats"] for la in device["layers"] if la["op_type"] in ("Conv", "Gemm")]
            self.assertGreater(sum(f["rounded_once"] for f in products) / sum(f["values"] for f in products), 0.99)

    def test_error_is_that_of_the_references(self):
        """introduced, passed on and total against captures of float64: numpy finds the same."""
        capture(MODEL, ["float64"], [self.probe], self.folder / "exact")
        device, = self.explain(self.shared / "gen3.h5", expect=0)
        with h5py.File(self.shared / "gen3.h5") as npu, h5py.File(next((self.folder / "exact").glob("*.h5"))) as exact:
            for layer in device["layers"]:
                name = layer["name"].replace("/", "%2F")
                x, y = (f[f"probes/{PROBE}/outputs/{name}"][()].astype(np.float64) for f in (npu, exact))
                total = np.sqrt(np.sum((x - y)**2) / np.sum(y**2))
                self.assertAlmostEqual(layer["floats"]["total"], total, delta=1e-6 + 1e-3 * total, msg=layer["name"])

    def test_faults_are_named_in_their_layer_and_no_other(self):
        for change, kind in ((late, "stale"), (channels_last, "axis-permutation"), (clamped, "saturation"), (lost, None), (coarse, None)):
            with self.subTest(change.__name__):
                device, = self.explain(self.spoil(change), expect=1)
                states = {la["name"]: la["state"] for la in device["layers"]}
                self.assertNotEqual(states[SPOILT], "follows")
                self.assertEqual({n for n, s in states.items() if s in ("faulty", "unexplained")}, {SPOILT})
                if kind is not None:
                    self.assertEqual((device["faulty"][0]["layer"], device["faulty"][0]["kind"]), (SPOILT, kind))
                if change is coarse:
                    self.assertEqual(device["verdict"], "unexplained", "no fault predicts it, and nobody is accused")
                if change is lost:
                    self.assertEqual(device["verdict"], "faulty", "no rounding makes NaN of numbers")
                    floats = next(la["floats"] for la in device["layers"] if la["name"] == SPOILT)
                    self.assertGreater(floats["not_finite"], 0)

    def test_text_says_which_layer_matters(self):
        text = npudiff("explain", "--float", MODEL, self.shared / "gen3.h5", expect=0)
        self.assertRegex(text, r"gen3 +HEALTHY +all 13 layers follow half-precision arithmetic")
        self.assertIn("greatest effect: the error of '", text)
        self.assertIn("every value is the exact result, rounded once", " ".join(text.split()))


class Overflow(Scratch):
    """log(sum(exp(x))) where half precision has no room for the sum, and what a device makes of its infinity."""

    def explained(self, most):
        x = np.repeat(np.linspace(-4, most, 600)[:, None], 32, 1).astype(np.float16).astype(np.float32)[None]
        nodes = [ow.node("Exp", ["x"], ["e"]), ow.node("ReduceSum", ["e", "axis"], ["s"], keepdims=0), ow.node("Log", ["s"], ["y"])]
        model = self.folder / "float.onnx"
        model.write_bytes(ow.model(nodes, [ow.value_info("x", ow.FLOAT, (1, 600, 32))], [ow.value_info("y", ow.FLOAT, (1, 600))],
                                   {"axis": np.int64([-1])}))
        def half(values):
            with np.errstate(over="ignore"):
                return values.astype(np.float16).astype(np.float32)
        e = half(np.exp(x.astype(float)))
        s = half(e.astype(float).sum(-1))
        y = np.where(np.isinf(s), 0, half(np.log(s.astype(float)))).astype(np.float32)
        np.savez(self.folder / "in.npz", x=x)
        np.savez(self.folder / "npu.npz", e=e, s=s, y=y)
        npudiff("import", "numpy", self.folder / "npu.npz", "--model", model, "--inputs", self.folder / "in.npz", "-p", "in",
                "--samples-axis", "batch", "--kind", "npu", "-o", self.folder / "npu.h5", "-f", "-q")
        done = npudiff("explain", "--float", model, self.folder / "npu.h5", "--json", expect=int(bool(np.isinf(s).any())))
        return json.loads(done)["devices"][0], npudiff("explain", "--float", model, self.folder / "npu.h5", expect=None).stdout

    def test_an_infinity_where_a_number_fits_is_a_fault_and_the_output_has_its_error(self):
        device, text = self.explained(11)
        self.assertEqual((device["verdict"], device["faulty"][0]["layer"]), ("faulty", "s"))
        self.assertIn("infinite or not a number, where the exact ones fit the tensor's type (half precision ends at 65504)",
                      " ".join(text.split()))
        decibel = re.search(r"off double precision by [0-9.]+% \((-?[0-9]+) dB\)", " ".join(text.split()))
        self.assertLess(int(decibel[1]), 10) # 22 % of the outputs are 0 where 11 to 14 are right

    def test_what_fits_is_none(self):
        device, text = self.explained(7)
        self.assertEqual(device["verdict"], "healthy", text)


class InnerShapes(Scratch):
    """Dumps of inner tensors that the model declares no shape of: the shape follows from the nodes before."""

    def explained(self, n, inner_shape=(-1, 6, 4), **arrays):
        x = np.random.default_rng(n).normal(size=(n, 2, 3, 4)).astype(np.float32)
        a, r = x + np.float32(0.5), np.maximum((x + np.float32(0.5)).reshape(n, 6, 4), 0)
        nodes = [ow.node("Add", ["x", "half"], ["a"]), ow.node("Reshape", ["a", "shape"], ["m"]), ow.node("Relu", ["m"], ["r"]),
                 ow.node("Transpose", ["r"], ["y"], perm=[0, 2, 1])]
        model = self.folder / "float.onnx"
        model.write_bytes(ow.model(nodes, [ow.value_info("x", ow.FLOAT, (1, 2, 3, 4))], [ow.value_info("y", ow.FLOAT, (1, 4, 6))],
                                   {"half": np.float32([0.5]), "shape": np.int64([1, 6, 4])}))
        np.savez(self.folder / "in.npz", x=x)
        np.savez(self.folder / "npu.npz", a=a, m=a.reshape(n, 6, 4), r=r.reshape(inner_shape), y=r.transpose(0, 2, 1))
        npudiff("import", "numpy", self.folder / "npu.npz", "--model", model, "--inputs", self.folder / "in.npz", "-p", "in",
                "-o", self.folder / "npu.h5", "-f", "-q")
        done = npudiff("explain", "--float", model, self.folder / "npu.h5", "--json", expect=None)
        with h5py.File(self.folder / "npu.h5") as f:
            shapes = {name: f["probes/in/outputs"][name].shape for name in ("a", "r", "y")}
        return json.loads(done.stdout)["devices"][0], shapes

    def test_one_run_and_several(self):
        for n in (1, 3):
            device, shapes = self.explained(n)
            self.assertEqual(shapes, {"a": (n, 1, 2, 3, 4), "r": (n, 1, 6, 4), "y": (n, 1, 4, 6)})
            self.assertEqual((device["verdict"], device["follow"], device["not_examined"]), ("healthy", 4, 0), device)

    def test_what_has_a_shape_of_its_own_is_taken_as_it_lies(self):
        _, shapes = self.explained(2, (2, 24))
        self.assertEqual(shapes["r"], (2, 24))


if __name__ == "__main__":
    main()
