#!/usr/bin/env python3
"""Models as users have them: open shapes, images of bytes, masks of int64, and layers of floats among quantised ones."""
import json
import pathlib
import shutil
import sys

import h5py
import numpy as np

from support import Scratch, capture, main, npudiff
from write_capture import seal

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import onnx_write as ow  # noqa: E402

SEED = 20261123


class Network:
    """A model that grows, with quantisers where `quantise` is called."""

    def __init__(self):
        self.rng = np.random.default_rng(SEED)
        self.nodes, self.constants = [], {}

    def add(self, op, inputs, output, **attributes):
        self.nodes.append(ow.node(op, inputs, [output], **attributes))
        return output

    def quantise(self, name, low, high):
        scale = np.float32((high - low) / 255)
        self.constants.update({name + ".s": scale, name + ".z": np.uint8(round(-low / float(scale)))})
        self.add("QuantizeLinear", [name, name + ".s", name + ".z"], name + ".q")
        return self.add("DequantizeLinear", [name + ".q", name + ".s", name + ".z"], name + ".dq")

    def weights(self, name, shape):
        self.constants.update({name + ".q": self.rng.integers(-127, 128, shape, np.int8), name + ".s": np.float32(0.004), name + ".z": np.int8(0)})
        return self.add("DequantizeLinear", [name + ".q", name + ".s", name + ".z"], name)

    def write(self, path, inputs, output, shape):
        path.write_bytes(ow.model(self.nodes, inputs, [ow.value_info(output, ow.FLOAT, shape)], self.constants))
        return path


def image_network(path, kind):
    """An image of whole numbers becomes floats, is normalised, and is quantised then."""
    n = Network()
    n.constants.update({"mean": np.float32([[[[127.5]]]]), "factor": np.float32(1 / 127.5)})
    n.add("Cast", ["image"], "floats", to=ow.FLOAT)
    n.add("Sub", ["floats", "mean"], "centred")
    n.add("Mul", ["centred", "factor"], "normal")
    x = n.quantise("normal", -1, 1)
    n.add("Conv", [x, n.weights("w", (8, 3, 3, 3))], "conv", pads=[1] * 4)
    x = n.quantise("conv", -4, 4)
    n.add("GlobalAveragePool", [x], "pool")
    n.quantise("pool", -2, 2)
    return n.write(path, [ow.value_info("image", kind, ("N", 3, 16, 16))], "pool.dq", ("N", 8, 1, 1))


def mask_network(path):
    """Scores, a mask made of int64 in floats, and a Softmax in floats at the end."""
    n = Network()
    n.constants.update({"one": np.float32(1), "low": np.float32(-8)})
    x = n.quantise("x", -2, 2)
    n.add("MatMul", [x, n.weights("w", (16, 16))], "scores")
    scores = n.quantise("scores", -6, 6)
    n.add("Cast", ["mask"], "is_kept", to=ow.FLOAT)
    n.add("Sub", ["one", "is_kept"], "is_masked")
    n.add("Mul", ["is_masked", "low"], "bias")
    masked = n.add("Add", [scores, n.quantise("bias", -8, 0)], "masked")
    n.add("Softmax", [n.quantise(masked, -14, 6)], "shares", axis=-1)
    return n.write(path, [ow.value_info("x", ow.FLOAT, ("N", "L", 16)), ow.value_info("mask", ow.I64, ("N", "L", 16))], "shares", ("N", "L", 16))


class FloatLayers(Scratch):
    def explain(self, model, *arguments, expect):
        return json.loads(npudiff("explain", "--quantised", model, *arguments, "--json", expect=expect))["devices"]

    def mask_captures(self):
        model, out = mask_network(self.folder / "mask.onnx"), self.folder / "out"
        rng = np.random.default_rng(SEED)
        np.savez(self.folder / "x.npz", x=rng.normal(0, 1, (4, 1, 5, 16)).astype(np.float32), mask=rng.integers(0, 2, (4, 1, 5, 16)))
        self.dims = ["--dim", "N=1", "--dim", "L=5"]
        capture(model, ["cpu", "htp-sim:gen1", "htp-sim:gen3"], [f"x={self.folder / 'x.npz'}"], out, *self.dims)
        return model, [out / f"{name}.h5" for name in ("cpu", "gen1", "gen3")]

    def test_healthy_ones_follow(self):
        print(f"# seed {SEED}")
        model, files = self.mask_captures()
        for device in self.explain(model, *files, *self.dims, expect=0):
            self.assertEqual((device["verdict"], device["not_examined"], device["findings"]), ("healthy", 0, []), device["uri"])
            floats = {u["name"]: u["floats"] for u in device["layers"] if u["floats"]}
            self.assertEqual(set(floats), {"is_kept", "is_masked", "shares"})
            precision = "float32" if device["uri"].startswith("cpu") else "float16"
            self.assertEqual({f["precision"] for f in floats.values()}, {precision})
        text = npudiff("explain", "--quantised", model, files[2], *self.dims)
        self.assertIn("follow v73 or half-precision arithmetic", " ".join(text.split()))

    def test_a_spoilt_one_is_named_and_no_other(self):
        model, files = self.mask_captures()
        spoilt = shutil.copyfile(files[2], self.folder / "spoilt.h5")
        with h5py.File(spoilt, "r+") as file:
            values = file["probes/x/outputs/shares"]
            values[...] = np.roll(values[()], 1, axis=0)
            seal(file)
        (device,) = self.explain(model, spoilt, *self.dims, expect=1)
        self.assertEqual([(f["layer"], f["kind"]) for f in device["faulty"]], [("shares", "stale")])
        self.assertEqual({u["name"] for u in device["layers"] if u["state"] != "follows"}, {"shares"})

    def test_a_layer_of_wrong_floats_is_named(self):
        """The simulator's Cast of uint8 gives 1 for all numbers but 0; that of int32 is right."""
        for kind, name, states in ((ow.U8, "bytes", {"floats"}), (ow.I32, "numbers", set())):
            model, out = image_network(self.folder / f"{name}.onnx", kind), self.folder / name
            image = np.random.default_rng(SEED).integers(0, 256, (4, 1, 3, 16, 16)).astype({ow.U8: np.uint8, ow.I32: np.int32}[kind])
            np.savez(self.folder / f"{name}.npz", image=image)
            capture(model, ["cpu", "htp-sim:gen3"], [f"x={self.folder / (name + '.npz')}"], out, "--dim", "N=1")
            cpu, npu = self.explain(model, out / "cpu.h5", out / "gen3.h5", "--dim", "N=1", expect=1 if states else 0)
            self.assertEqual(cpu["verdict"], "healthy")
            self.assertEqual({u["name"] for u in npu["layers"] if u["state"] != "follows"}, states)
            self.assertEqual([(f["layer"], f["kind"]) for f in npu["faulty"]], [("floats", "saturation")] if states else [])


class ReshapedInput(Scratch):
    def test_its_quantiser_is_judged_as_that_of_an_input(self):
        """A division in float32 gives a few values of 16 bits one step from the exact quotient; the layer is a Reshape by name."""
        n = Network()
        n.constants.update({"shape": np.int64([1, 8, 16, 16]), "s": np.float32(8.5 / 65535), "z": np.uint16(32768)})
        n.add("Reshape", ["x", "shape"], "image")
        n.add("QuantizeLinear", ["image", "s", "z"], "image.q")
        n.add("DequantizeLinear", ["image.q", "s", "z"], "image.dq")
        n.add("MaxPool", ["image.dq"], "pool", kernel_shape=[2, 2], strides=[2, 2])
        n.add("QuantizeLinear", ["pool", "s", "z"], "pool.q")
        n.add("DequantizeLinear", ["pool.q", "s", "z"], "pool.dq")
        model = n.write(self.folder / "reshape.onnx", [ow.value_info("x", ow.FLOAT, (1, 2048))], "pool.dq", (1, 8, 8, 8))
        np.savez(self.folder / "x.npz", x=np.random.default_rng(SEED).uniform(-4, 4, (16, 1, 2048)).astype(np.float32))
        capture(model, ["htp-sim:gen3"], [f"x={self.folder / 'x.npz'}"], self.folder / "gen3.h5")
        (device,) = json.loads(npudiff("explain", "--quantised", model, self.folder / "gen3.h5", "--json"))["devices"]
        (layer,) = (u for u in device["layers"] if u["op_type"] == "Reshape")
        self.assertGreater(layer["introduced"]["differing"], 0)
        self.assertEqual((device["verdict"], layer["state"], layer["why_follows"]), ("healthy", "follows", "arithmetic"))


class WeightsOfFloats(Scratch):
    def test_their_quantiser_divides_in_float32(self):
        """Runtimes work out constants in float32: a quotient that is a tie there, and not exactly, is rounded to even."""
        scale, rng = np.float32(0.00382122), np.random.default_rng(SEED)
        weights = ((rng.integers(-100, 100, (16, 64)) + 0.5) * scale).astype(np.float32)
        n_other = int((np.rint(weights / scale) != np.rint(weights.astype(np.float64) / np.float64(scale))).sum())
        self.assertGreater(n_other, 50)
        n = Network()
        n.constants.update({"s": np.float32(2 / 65535), "z": np.uint16(32768), "w": weights, "w.s": scale, "w.z": np.uint8(120)})
        n.add("QuantizeLinear", ["x", "s", "z"], "x.q")
        n.add("DequantizeLinear", ["x.q", "s", "z"], "x.dq")
        n.add("QuantizeLinear", ["w", "w.s", "w.z"], "w.q")
        n.add("Gemm", ["x.dq", n.add("DequantizeLinear", ["w.q", "w.s", "w.z"], "w.dq")], "sum", transB=1)
        n.constants.update({"y.s": np.float32(8 / 65535)})
        n.add("QuantizeLinear", ["sum", "y.s", "z"], "y.q")
        model = n.write(self.folder / "weights.onnx", [ow.value_info("x", ow.FLOAT, (4, 64))],
                        n.add("DequantizeLinear", ["y.q", "y.s", "z"], "y"), (4, 16))
        np.savez(self.folder / "x.npz", x=rng.uniform(-1, 1, (8, 4, 64)).astype(np.float32))
        capture(model, ["cpu", "htp-sim:gen1", "htp-sim:gen3"], [f"x={self.folder / 'x.npz'}"], self.folder)
        files = [self.folder / f"{name}.h5" for name in ("cpu", "gen1", "gen3")]
        for device in json.loads(npudiff("explain", "--quantised", model, *files, "--json"))["devices"]:
            self.assertEqual((device["verdict"], [u["unexplained"] for u in device["layers"]]), ("healthy", [0, 0]), device["uri"])


class SumsOfOne(Scratch):
    def test_a_sum_in_the_encoding_of_its_input_accuses_nobody(self):
        """AIMET gives a sum the encoding of its input. The HTP adds one step to some of these, 2 x 2 elements or one."""
        for side in (1, 2):
            n = Network()
            n.constants["axes"] = np.int64([2, 3])
            n.add("Conv", [n.quantise("x", -1, 1), n.weights("w", (16, 4, 1, 1))], "conv")
            n.constants.update({"conv.s": np.float32(0.04974625), "conv.z": np.uint8(40)})
            for name in ("conv", "sum"):
                n.add("QuantizeLinear", [name, "conv.s", "conv.z"], name + ".q")
                last = n.add("DequantizeLinear", [name + ".q", "conv.s", "conv.z"], name + ".dq")
                if name == "conv":
                    n.add("ReduceSum", [last, "axes"], "sum", keepdims=1)
            model = n.write(self.folder / f"sum{side}.onnx", [ow.value_info("x", ow.FLOAT, (1, 4, side, side))], last, (1, 16, 1, 1))
            np.savez(self.folder / "x.npz", x=np.random.default_rng(SEED).uniform(-1, 1, (16, 1, 4, side, side)).astype(np.float32))
            capture(model, ["htp-sim:gen1", "htp-sim:gen3"], [f"x={self.folder / 'x.npz'}"], self.folder / str(side))
            for name in ("gen1", "gen3"):
                done = npudiff("explain", "--quantised", model, self.folder / str(side) / f"{name}.h5", "--json", expect=None)
                (device,) = json.loads(done.stdout)["devices"]
                self.assertEqual(device["faulty"], [], name)
                (layer,) = (u for u in device["layers"] if u["op_type"] == "ReduceSum")
                self.assertFalse(layer["is_covered"])


class MovedGates(Scratch):
    def test_a_gate_that_is_brought_to_the_models_scale_accuses_nobody(self):
        """QNN writes a uint16 HardSigmoid in steps of 1/65536. A Transpose behind it brings it to the model's 1/65535, half of the codes
        by one step."""
        n = Network()
        n.constants.update({"x.s": np.float32(8 / 65535), "x.z": np.uint16(32768), "g.s": np.float32(1 / 65535), "g.z": np.uint16(0),
                            "shape": np.int64([1, 4, 36])})
        n.add("QuantizeLinear", ["x", "x.s", "x.z"], "x.q")
        n.add("MaxPool", [n.add("DequantizeLinear", ["x.q", "x.s", "x.z"], "x.dq")], "pool", kernel_shape=[2, 2], strides=[2, 2])
        n.add("QuantizeLinear", ["pool", "x.s", "x.z"], "pool.q")
        n.add("HardSigmoid", [n.add("DequantizeLinear", ["pool.q", "x.s", "x.z"], "pool.dq")], "gate", alpha=1 / 6, beta=0.5)
        for made, op, inputs, attributes in (("gate", "Reshape", ["shape"], {}), ("flat", "Transpose", [], {"perm": [0, 2, 1]}), ("turned", None, [], {})):
            n.add("QuantizeLinear", [made, "g.s", "g.z"], made + ".q")
            last = n.add("DequantizeLinear", [made + ".q", "g.s", "g.z"], made + ".dq")
            if op is not None:
                n.add(op, [last, *inputs], "flat" if op == "Reshape" else "turned", **attributes)
        model = n.write(self.folder / "gate.onnx", [ow.value_info("x", ow.FLOAT, (1, 4, 12, 12))], last, (1, 36, 4))
        np.savez(self.folder / "x.npz", x=np.random.default_rng(SEED).uniform(-4, 4, (4, 1, 4, 12, 12)).astype(np.float32))
        capture(model, ["htp-sim:gen1", "htp-sim:gen3"], [f"x={self.folder / 'x.npz'}"], self.folder)
        for name in ("gen1", "gen3"):
            done = npudiff("explain", "--quantised", model, self.folder / f"{name}.h5", "--json", expect=None)
            (device,) = json.loads(done.stdout)["devices"]
            self.assertEqual((device["verdict"], device["faulty"]), ("healthy", []), name)
            self.assertEqual(device["layers"][-1]["why_follows"], "forced-encoding")


class Halves(Scratch):
    def test_a_function_of_a_half_is_one_table_with_the_change_of_the_encoding(self):
        """Also one that v73 makes with a product, where there is one."""
        for op in ("HardSwish", "LeakyRelu", "Sigmoid"):
            n = Network()
            n.constants.update({"parts": np.int64([4, 4]), "h.s": np.float32(0.0323), "h.z": np.uint8(121), "f.s": np.float32(0.021), "f.z": np.uint8(20)})
            n.nodes.append(ow.node("Split", [n.quantise("x", -5.3, 5.3), "parts"], ["left", "right"], axis=1))
            for name in ("left", "right"):
                n.add("QuantizeLinear", [name, "h.s", "h.z"], name + ".q")
                n.add("DequantizeLinear", [name + ".q", "h.s", "h.z"], name + ".dq")
            n.add(op, ["left.dq"], "made")
            n.add("Mul", ["made.dq", "right.dq"], "y")
            n.add("QuantizeLinear", ["made", "f.s", "f.z"], "made.q")
            n.add("DequantizeLinear", ["made.q", "f.s", "f.z"], "made.dq")
            n.nodes.append(n.nodes.pop(-3))
            model = n.write(self.folder / f"{op}.onnx", [ow.value_info("x", ow.FLOAT, (1, 8, 16, 16))], n.quantise("y", -20, 20), (1, 4, 16, 16))
            np.savez(self.folder / "x.npz", x=np.random.default_rng(SEED).uniform(-5, 5, (4, 1, 8, 16, 16)).astype(np.float32))
            capture(model, ["htp-sim:gen1", "htp-sim:gen3"], [f"x={self.folder / 'x.npz'}"], self.folder / op)
            for name in ("gen1", "gen3"):
                done = npudiff("explain", "--quantised", model, self.folder / op / f"{name}.h5", "--json", expect=None)
                (device,) = json.loads(done.stdout)["devices"]
                (layer,) = (u for u in device["layers"] if u["op_type"] == op)
                self.assertEqual((layer["state"], layer["unexplained"]), ("follows", 0), (op, name))


class FineShares(Scratch):
    def test_shares_that_are_all_alike_accuse_nobody(self):
        """A uint8 Softmax of a Softmax, in steps of a 250th of a 48th: fewer bits than that are left of the shares on a healthy HTP, which
        writes 255 where 252 is right."""
        n = Network()
        n.constants.update({"a.s": np.float32(0.00015), "b.s": np.float32(8.2e-5), "z": np.uint8(0)})
        n.add("Softmax", [n.quantise("x", -2.5, 2.5)], "a", axis=-1)
        n.add("QuantizeLinear", ["a", "a.s", "z"], "a.q")
        n.add("Softmax", [n.add("DequantizeLinear", ["a.q", "a.s", "z"], "a.dq")], "b", axis=-1)
        n.add("QuantizeLinear", ["b", "b.s", "z"], "b.q")
        model = n.write(self.folder / "shares.onnx", [ow.value_info("x", ow.FLOAT, (4, 48))],
                        n.add("DequantizeLinear", ["b.q", "b.s", "z"], "b.dq"), (4, 48))
        np.savez(self.folder / "x.npz", x=np.random.default_rng(SEED).uniform(-0.5, 0.5, (4, 4, 48)).astype(np.float32))
        capture(model, ["htp-sim:gen1", "htp-sim:gen3"], [f"x={self.folder / 'x.npz'}"], self.folder)
        for name in ("gen1", "gen3"):
            done = npudiff("explain", "--quantised", model, self.folder / f"{name}.h5", "--json", expect=None)
            (device,) = json.loads(done.stdout)["devices"]
            self.assertEqual(device["faulty"], [], name)
            self.assertGreater(device["layers"][-1]["unexplained"], 0)


class NoNumbers(Scratch):
    def test_a_mask_of_minus_infinity_is_named_first(self):
        """A quantiser gives minus infinity the scale infinity, whose product with 0 is no number: layer 'top' has none then."""
        rng = np.random.default_rng(SEED)
        np.savez(self.folder / "x.npz", x=rng.normal(0, 1, (4, 1, 4, 16)).astype(np.float32))
        for name in ("float", "quantised"):
            n = Network()
            is_float = name == "float"
            n.constants.update({"least": np.float32(-np.inf)} if is_float else {"l.q": np.uint8(0), "l.s": np.float32(np.inf), "l.z": np.uint8(0)})
            x = "x" if is_float else n.quantise("x", -4, 4)
            n.constants["axes"] = np.int64([-1])
            n.add("ReduceMax", [x, "axes"], "largest")
            largest = "largest" if is_float else n.quantise("largest", 0, 4)
            least = "least" if is_float else n.add("DequantizeLinear", ["l.q", "l.s", "l.z"], "least_DequantizeLinear_Output")
            n.add("Max", [least, largest], "top")
            n.add("Sub", [x, "top" if is_float else n.quantise("top", 0, 4)], "rest.dq" if is_float else "rest")
            last = "rest.dq" if is_float else n.quantise("rest", -8, 0)
            n.write(self.folder / f"{name}.onnx", [ow.value_info("x", ow.FLOAT, (1, 4, 16))], last, (1, 4, 16))
        capture(self.folder / "quantised.onnx", ["cpu", "htp-sim:gen3"], [f"x={self.folder / 'x.npz'}"], self.folder / "out")
        files = [self.folder / "out" / f"{name}.h5" for name in ("cpu", "gen3")]
        arguments = ["explain", "--quantised", self.folder / "quantised.onnx", "--float", self.folder / "float.onnx", *files]
        document = json.loads(npudiff(*arguments, "--json", expect=4))
        for device in document["devices"]: # nobody can be held against what is no number
            (layer,) = (u for u in device["layers"] if u["name"] == "top")
            self.assertEqual((device["verdict"], layer["state"]), ("inconclusive", "not-examined"))
            self.assertIn("none of its exact values is a number", layer["why_not"])
        found = document["quantisation"]
        first = next(layer for layer in found["layers"] if layer["name"] == found["ranked"][0])
        self.assertEqual((first["name"], first["cause"], first["is_accused"]), ("top", "not-finite", True))
        text = " ".join(npudiff(*arguments, expect=None).stdout.split())
        self.assertIn("Mainly in 'top' (Max): its constant 'least_DequantizeLinear_Output' has an infinite scale", text)


class BeyondFloat(Scratch):
    def test_a_mask_that_overflows_in_float32_accuses_nobody(self):
        """As in MiniLM W8A16: -3.4e38 is code -65535 times 5.192376e33, which is minus infinity in float32; 0 times that is no number."""
        n, scale = Network(), np.float32(5.192376e33)
        n.constants.update({"m.q": np.uint16(0), "s": scale, "z": np.uint16(65535), "o": np.float32(1 / 65535), "o.z": np.uint16(0)})
        n.add("QuantizeLinear", ["x", "o", "o.z"], "x.q")
        n.add("DequantizeLinear", ["x.q", "o", "o.z"], "x.dq")
        n.add("DequantizeLinear", ["m.q", "s", "z"], "least")
        n.add("Mul", ["x.dq", "least"], "bias")
        n.add("QuantizeLinear", ["bias", "s", "z"], "bias.q")
        model = n.write(self.folder / "mask.onnx", [ow.value_info("x", ow.FLOAT, (1, 64))], n.add("DequantizeLinear", ["bias.q", "s", "z"], "y"), (1, 64))
        np.savez(self.folder / "x.npz", x=np.random.default_rng(SEED).integers(0, 2, (4, 1, 64)).astype(np.float32))
        capture(model, ["cpu"], [f"x={self.folder / 'x.npz'}"], self.folder / "cpu.h5")
        (device,) = json.loads(npudiff("explain", "--quantised", model, self.folder / "cpu.h5", "--json", expect=4))["devices"]
        (layer,) = (u for u in device["layers"] if u["op_type"] == "Mul")
        self.assertEqual((device["faulty"], layer["state"]), ([], "not-examined"))
        self.assertIn("float32 does not hold", layer["why_not"])


class OpenShapes(Scratch):
    def test_the_model_as_it_is_runs_with_its_dimensions_set(self):
        """A provider takes no open shapes: --dim has to reach it when no tensor is made visible, too."""
        model = image_network(self.folder / "image.onnx", ow.I32)
        devices, dims = ["cpu", "htp-sim:gen3"], ["--dim", "N=2"]
        capture(model, devices, ["ramp"], self.folder / "none", *dims, "--tensors", "none")
        capture(model, devices, ["ramp"], self.folder / "all", *dims)
        for name in ("cpu", "gen3"):
            with h5py.File(self.folder / "none" / f"{name}.h5") as a, h5py.File(self.folder / "all" / f"{name}.h5") as b:
                real, codes = a["probes/ramp/outputs/pool.dq"][()], b["probes/ramp/outputs/pool.dq"][()].astype(np.float64)
            step = np.float32(4 / 255)
            np.testing.assert_allclose(real, (codes - round(2 / float(step))) * step, rtol=1e-3, atol=1e-3)
            self.assertEqual(real.shape[1], 2)


if __name__ == "__main__":
    main()
