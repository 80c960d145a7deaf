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
            for name in ("rerun_digests", "rerun_samples"): # of values that were others
                del file[f"probes/{PROBE}"][name]
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
def half(x):
    return np.asarray(x, np.float64).astype(np.float16).astype(np.float32)


def cut(x, n_bits):
    """Floats without their last bits."""
    return (np.ascontiguousarray(x, np.float32).view(np.uint32) >> n_bits << n_bits).view(np.float32)


def brain(x):
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return cut((bits + 0x7fff + (bits >> 16 & 1)).view(np.float32), 16)


def softmax(x, axis):
    e = np.exp(x.astype(float) - x.max(axis, keepdims=True))
    return (e / e.sum(axis, keepdims=True)).astype(np.float32)


def pooled(x, counts_padding):
    """Means over windows of 3 by 3 with one line of padding."""
    padded, ones = (np.pad(a, [(0, 0)] * 3 + [(1, 1)] * 2).astype(float) for a in (x, np.ones_like(x)))
    total, n = (sum(a[..., i:i + x.shape[3], j:j + x.shape[4]] for i in range(3) for j in range(3)) for a in (padded, ones))
    return (total / (9 if counts_padding else n)).astype(np.float32)


def nearest(x, n, place):
    at = [np.clip(place((np.arange(n)), x.shape[k] / n), 0, x.shape[k] - 1).astype(int) for k in (3, 4)]
    return x[..., at[0][:, None], at[1]]


def flat_rows(b, n):
    """n rows of each sample's b, which begins again at its end."""
    rows = b.reshape(len(b), -1, b.shape[-1])
    return rows[:, np.arange(n) % rows.shape[1]]


class LongChains(Scratch):
    """Thousands of operators with no quantiser between: what they need of the stack does not grow with the operands that an operator may
    have."""

    def check(self, n):
        x = np.float32([[1, -1, 0.5, 0.2]])
        quantised = lambda read, made: [ow.node("QuantizeLinear", [read, "s", "z"], ["q" + made]), # noqa: E731
                                        ow.node("DequantizeLinear", ["q" + made, "s", "z"], [made])]
        chain = [ow.node("Neg", [f"n{i}" if i else "a"], [f"n{i + 1}"]) for i in range(n)]
        model = self.folder / "long.onnx"
        model.write_bytes(ow.model(quantised("x", "a") + chain + quantised(f"n{n}", "y"), [ow.value_info("x", ow.FLOAT, (1, 4))],
                                   [ow.value_info("y", ow.FLOAT, (1, 4))], {"s": np.float32(0.1), "z": np.uint8(128)}))
        for changed in (0, 30):
            np.savez(self.folder / "in.npz", x=x)
            np.savez(self.folder / "npu.npz", a=x, y=x + np.float32(0.1) * changed)
            npudiff("import", "numpy", self.folder / "npu.npz", "--model", model, "--inputs", self.folder / "in.npz", "-p", "in",
                    "--kind", "npu", "-o", self.folder / "npu.h5", "-f", "-q")
            done = npudiff("explain", "--quantised", model, self.folder / "npu.h5", "--json", expect=None)
            self.assertIn(done.returncode, (0, 1), done.stderr)
            device = json.loads(done.stdout)["devices"][0]
            self.assertEqual(device["verdict"] == "healthy", changed == 0, device)

    def test_two_thousand_operators(self):
        self.check(2000)

    def test_twenty_thousand_operators(self):
        self.check(20000)


class OtherWays(Scratch):
    """Single layers on a device that does something else than the model says, or the same in fewer bits. What the device
    gives is worked out here."""
    def setUp(self):
        super().setUp()
        self.random = np.random.default_rng(20261128)

    def numbers(self, *shape):
        return self.random.normal(size=shape).astype(np.float32)

    def explain(self, nodes, constants, inputs, device, again=None):
        """The device's verdict and text; again: what its second run gave."""
        path, y = self.folder / "float.onnx", device["y"]
        infos = [ow.value_info(k, ow.onnx_type(v.dtype), v.shape[1:]) for k, v in inputs.items()]
        path.write_bytes(ow.model(nodes, infos, [ow.value_info("y", ow.onnx_type(y.dtype), y.shape[1:])], constants))
        np.savez(self.folder / "in.npz", **inputs)
        np.savez(self.folder / "npu.npz", **device)
        repeats = []
        if again is not None:
            np.savez(self.folder / "again.npz", **again)
            repeats = ["--repeat", self.folder / "again.npz"]
        npudiff("import", "numpy", self.folder / "npu.npz", *repeats, "--model", path, "--inputs", self.folder / "in.npz", "-p", "in",
                "--kind", "npu", "-o", self.folder / "npu.h5", "-f", "-q")
        done = npudiff("explain", "--float", path, self.folder / "npu.h5", "--json", expect=None)
        text = npudiff("explain", "--float", path, self.folder / "npu.h5", expect=None).stdout
        self.assertNotIn("computed by the CPU", text)
        return json.loads(done.stdout)["devices"][0], " ".join(text.split())

    def expect(self, node, constants, inputs, right, wrong, sentence, **more):
        """What is right is healthy; what is wrong is the fault of that sentence, also where one value is a step off beside it."""
        nodes = node if isinstance(node, list) else [node]
        device, text = self.explain(nodes, constants, inputs, {"y": right, **more})
        self.assertEqual(device["faulty"] + device["unexplained"], [], text)
        beside = wrong.copy()
        if wrong.dtype == np.float32:
            beside.reshape(-1)[wrong.size // 2] *= np.float32(1 + 2**-20)
        for y in (wrong, beside):
            device, text = self.explain(nodes, constants, inputs, {"y": y, **more})
            self.assertEqual((device["verdict"], [f["layer"] for f in device["faulty"]]), ("faulty", ["y"]), text)
            self.assertIn(sentence, text)

    def test_attributes(self):
        x = self.numbers(4, 1, 3, 6, 6)
        node = lambda op, *rest, **more: ow.node(op, ["x", *rest], ["y"], **more) # noqa: E731
        size = {"size": np.int64([1, 3, 11, 11])}
        cases = (
            (node("Softmax", axis=1), {}, softmax(x, 2), softmax(x, -1), "computed with axis 3, not 1"),
            (node("LeakyRelu", alpha=0.1), {}, np.where(x < 0, x * np.float32(0.1), x), np.where(x < 0, x / 4, x),
             "computed with alpha 0.25, not 0.1"),
            (node("Elu"), {}, np.where(x < 0, np.expm1(x), x), np.where(x < 0, np.expm1(x) / 2, x), "computed with alpha 0.5, not 1"),
            (node("AveragePool", kernel_shape=[3, 3], pads=[1] * 4), {}, pooled(x, False), pooled(x, True),
             "computed with count_include_pad 1, not 0"),
            (node("Resize", "", "", "size", mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"), size,
             nearest(x, 11, lambda i, s: i * s), nearest(x, 11, lambda i, s: np.ceil((i + 0.5) * s - 0.5 - 0.5)),
             "computed as with nearest_mode round_prefer_floor, not floor and coordinate_transformation_mode half_pixel"))
        for node, constants, right, wrong, sentence in cases:
            with self.subTest(sentence):
                self.expect(node, constants, {"x": x}, right, wrong, sentence)

    def test_constants(self):
        x, w, b = self.numbers(6, 3, 8), self.numbers(8, 5), self.numbers(5)
        product = lambda w, b: (x.astype(float) @ w + b).astype(np.float32) # noqa: E731
        gemm = ow.node("Gemm", ["x", "w", "b"], ["y"])
        for wrong, sentence in ((product(w, 0), "its bias is lost"), (product(w, -b), "its bias has the wrong sign"),
                                (product(w, 2 * b), "the constant 'b' is 2 times as large"),
                                (product(w / 4, b), "the constant 'w' is 0.25 times as large")):
            with self.subTest(sentence):
                self.expect(gemm, {"w": w, "b": b}, {"x": x}, product(w, b), wrong, sentence)
        x *= np.float32(0.003)
        self.expect(ow.node("Add", ["x", "k"], ["y"]), {"k": np.float32(1e-6)}, {"x": x}, x + np.float32(1e-6), x + np.float32(1e-4),
                    "the constant 'k' is 0.0001, not 1e-06")
        rows = np.ones((1, 8), np.float32)
        norm = lambda e: ((x - x.mean(-1, keepdims=True, dtype=float)) / # noqa: E731
                          np.sqrt(x.astype(float).var(-1, keepdims=True) + e)).astype(np.float32)
        self.expect(ow.node("LayerNormalization", ["x", "g"], ["y"], epsilon=1e-6), {"g": rows[0]}, {"x": x}, norm(1e-6), norm(1e-4),
                    "computed with epsilon 0.0001, not 1e-06")

    def test_lines(self):
        x, w = self.numbers(6, 1, 3, 8), self.numbers(8, 5)
        y = (x.astype(float) @ w).astype(np.float32)
        channels = np.float32([1, 0.5, 2, 1.5, 0.75])
        for wrong, sentence in ((y / 2, "all values are 0.5 times as large"), (-y, "all signs are turned"), (y + np.float32(0.0625), "all values are 0.0625 higher"),
                                (y * 2 - 1, "values are 2 x - 1"), (y * channels, "each by a factor of its own"),
                                (y + channels, "each by a constant of its own"), (y * np.float32([1, 1, 0.5, 1, 1]), "channel 2")):
            with self.subTest(sentence):
                self.expect(ow.node("MatMul", ["x", "w"], ["y"]), {"w": w}, {"x": x}, y, wrong, sentence)

    def test_an_operand_that_is_read_by_a_flat_index(self):
        x, b = self.numbers(4, 3, 4, 6, 5), self.numbers(4, 3, 4, 1, 5)
        flat = flat_rows(b, 72).reshape(x.shape)
        self.expect(ow.node("Add", ["x", "b"], ["y"]), {}, {"x": x, "b": b}, x + b, x + flat, "the second operand 'b' is read by a flat index")
        b = self.numbers(4, 3, 4, 3, 5) # repeated by a Tile that is part of the operator, and not captured
        nodes = [ow.node("Tile", ["b", "n"], ["t"]), ow.node("Mul", ["x", "t"], ["y"])]
        self.expect(nodes, {"n": np.int64([1, 1, 2, 1])}, {"x": x, "b": b}, x * np.tile(b, (1, 1, 1, 2, 1)),
                    x * flat_rows(b, 72).reshape(x.shape), "the second operand 't' is read by a flat index")

    def test_whole_numbers(self):
        x = self.random.integers(0, 40000, (20, 1, 9)).astype(np.float32)
        x[:, 0, 2], x[:, 0, 7] = 49406, 49407
        first = ow.node("ArgMax", ["x"], ["y"], axis=-1, keepdims=0)
        self.expect(first, {}, {"x": x}, x.argmax(-1), brain(x).argmax(-1), "computed of its inputs rounded to bfloat16 or half precision: the index is that of the first")
        x = self.numbers(12, 2, 700)
        self.expect(first, {}, {"x": x}, x.argmax(-1), x.argmax(-1) % 256, "the right values modulo 256")
        m = self.random.integers(0, 50, (6, 2, 8))
        self.expect(ow.node("Sub", ["one", "m"], ["y"]), {"one": np.int64(1)}, {"m": m}, 1 - m, 3 - m, "all values are 2 higher")
        wrong = 1 - m
        wrong.reshape(-1)[::7] += self.random.integers(1, 9, wrong.size // 7 + 1)[:len(wrong.reshape(-1)[::7])]
        device, text = self.explain([ow.node("Sub", ["one", "m"], ["y"])], {"one": np.int64(1)}, {"m": m}, {"y": wrong})
        self.assertEqual(device["verdict"], "unexplained", "wrong, and nothing predicts it")
        self.assertIn("of its values are not those that its inputs give", text)

    def test_arithmetics_are_told_apart(self):
        x, k = self.numbers(6, 4, 30), self.numbers(30)
        nodes = [ow.node("Mul", ["x", "x"], ["s"]), ow.node("Add", ["s", "k"], ["y"])]
        def device(to):
            s = to(to(x).astype(float)**2)
            return {"s": s, "y": to(s.astype(float) + to(k))}
        for to, name, precision in ((np.float32, "float32", "float32"), (half, "half-precision", "float16"), (brain, "bfloat16", "bfloat16")):
            found, text = self.explain(nodes, {"k": k}, {"x": x}, device(to))
            self.assertEqual((found["verdict"], found["layers"][1]["floats"]["precision"]), ("healthy", precision), text)
            self.assertIn(f"all 2 layers follow {name} arithmetic", text)
        for to, name in ((lambda x: cut(x, 13), "half precision"), (lambda x: cut(x, 16), "bfloat16")):
            found, text = self.explain(nodes, {"k": k}, {"x": x}, device(to))
            self.assertEqual((found["verdict"], found["faulty"][0]["kind"]), ("faulty", "truncation"), text)
            self.assertIn(f"values are cut off toward zero to {name}, and not rounded", text)

    def test_what_no_rounding_makes_is_a_fault(self):
        """Values that an operator only moves; a tenth of a product's; an error as large as the values."""
        x, w = self.numbers(6, 1, 6, 1, 8), self.numbers(8, 5)
        y = np.broadcast_to(x, (6, 1, 6, 4, 8)).copy()
        other = lambda y, share: np.where(self.random.random(y.shape) < share, self.numbers(*y.shape), y) # noqa: E731
        expand = ow.node("Expand", ["x", "to"], ["y"])
        self.expect(expand, {"to": np.int64([1, 6, 4, 8])}, {"x": x}, y, other(y, 0.4), "the operator only moves values")
        x = x.reshape(6, 1, 6, 8)
        y = (x.astype(float) @ w).astype(np.float32)
        product = ow.node("MatMul", ["x", "w"], ["y"])
        self.expect(product, {"w": w}, {"x": x}, y, other(y, 0.1), "its other values keep to the bound")
        self.expect(product, {"w": w}, {"x": x}, y, 3 * other(y, 1), "the error is as large as the values are")
        found, text = self.explain([product], {"w": w}, {"x": x}, {"y": other(y, 0.6)})
        self.assertEqual(found["verdict"], "unexplained", "near miss: most values are off, and none by as much as all are large")

    def test_floats_that_are_not_repeatable(self):
        x, w = self.numbers(6, 1, 6, 8), self.numbers(8, 5)
        y = (x.astype(float) @ w).astype(np.float32)
        product = [ow.node("MatMul", ["x", "w"], ["y"])]
        again = y.copy()
        again[:, :, ::3] = 0
        found, text = self.explain(product, {"w": w}, {"x": x}, {"y": y}, {"y": again})
        self.assertEqual((found["verdict"], found["faulty"][0]["kind"]), ("faulty", "flips"), text)
        found, text = self.explain(product, {"w": w}, {"x": x}, {"y": y}, {"y": y * np.float32(1 + 2**-22)})
        self.assertEqual(found["verdict"], "healthy", "near miss: sums in another order")

    def test_what_no_way_predicts_is_no_fault(self):
        """Noise; a function that is approximated, and one layer that is kept in bfloat16, as devices may do."""
        x, w = self.numbers(6, 1, 3, 8), self.numbers(8, 5)
        y = (x.astype(float) @ w).astype(np.float32)
        for change in (lambda y: y * (1 + 0.01 * self.numbers(*y.shape)), lambda y: y + 0.01 * self.numbers(*y.shape)):
            found, text = self.explain([ow.node("MatMul", ["x", "w"], ["y"])], {"w": w}, {"x": x}, {"y": change(y).astype(np.float32)})
            self.assertEqual(found["verdict"], "unexplained", text)
            self.assertIn("no known fault predicts these values", text)
        gelu = (x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x.astype(float)**3))) / 2).astype(np.float32)
        found, text = self.explain([ow.node("Gelu", ["x"], ["y"])], {}, {"x": x}, {"y": gelu})
        self.assertEqual(found["verdict"], "unexplained", "devices approximate functions")
        self.assertIn("computed with approximate tanh, not none", text)
        nodes = [ow.node("MatMul", ["x", "w"], ["s"]), ow.node("Exp", ["s"], ["y"])]
        found, text = self.explain(nodes, {"w": w}, {"x": x}, {"s": brain(y), "y": np.exp(brain(y))})
        self.assertEqual([la["state"] for la in found["layers"]], ["unexplained", "follows"], text)
        self.assertIn("the right values rounded to bfloat16", text)


if __name__ == "__main__":
    main()
