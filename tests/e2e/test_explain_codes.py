#!/usr/bin/env python3
"""Faults in quantised values that npudiff explain names, and healthy ones beside them: what a tool wrote of one layer, or of two,
is changed and imported."""
import json
import os
import pathlib
import sys

import h5py
import numpy as np

from support import Scratch, main, npudiff

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import onnx_write as ow  # noqa: E402

SEED = int(os.environ.get("ND_SEED", "20261128"))  # others: tools/studies/seeds
BITS = {"uint8": 8, "int8": 8, "uint16": 16, "int16": 16}
CODE_TYPES = {"int4": 22, "uint4": 21}


class Codes(Scratch):
    def setUp(self):
        super().setUp()
        self.random = np.random.default_rng(SEED)
        self.model, self.inputs = self.folder / "model.onnx", self.folder / "in.npz"

    def explain(self, **outputs):
        """The first device of JSON, and the text on one line."""
        np.savez(self.folder / "out.npz", **outputs)
        npudiff("import", "numpy", self.folder / "out.npz", "--model", self.model, "--inputs", self.inputs, "-p", "in", "--kind",
                "npu", "--label", "npu", "-o", self.folder / "npu.h5", "-f", "-q")
        words = ["explain", "--quantised", self.model, self.folder / "npu.h5"]
        text = " ".join(npudiff(*words, expect=None).stdout.split())
        return json.loads(npudiff(*words, "--json", expect=None).stdout)["devices"][0], text

    # ---- one Conv of quantised values ----

    def conv(self, dtype, shape=(1, 6, 10, 12), n_samples=6):
        """Writes a Conv, and its inputs; {tensor: what an exact device has of it}."""
        low = np.iinfo(dtype).min
        zero, scale = np.array(low + 2 ** (BITS[dtype] - 1), dtype), np.float32(8 / 2 ** BITS[dtype])
        w = self.random.integers(-90, 90, (shape[1], 3, 3, 3)).astype(np.int8)
        constants = {"xs": scale, "z": zero, "ws": np.float32(0.003), "ys": scale, "w": w}
        nodes = [ow.node("QuantizeLinear", ["x", "xs", "z"], ["xq"]), ow.node("DequantizeLinear", ["xq", "xs", "z"], ["xd"]),
                 ow.node("DequantizeLinear", ["w", "ws"], ["wd"]),
                 ow.node("Conv", ["xd", "wd"], ["c"], pads=[1, 1, 1, 1]),
                 ow.node("QuantizeLinear", ["c", "ys", "z"], ["yq"]), ow.node("DequantizeLinear", ["yq", "ys", "z"], ["y"])]
        self.model.write_bytes(ow.model(nodes, [ow.value_info("x", 1, (1, 3, *shape[2:]))], [ow.value_info("y", 1, shape)],
                                        constants))
        np.savez(self.inputs, x=self.random.normal(size=(n_samples, 1, 3, *shape[2:])).astype(np.float32))
        npudiff("capture", self.model, "-d", "exact", "-p", f"in={self.inputs}", "-o", self.folder / "exact.h5", "-q", "-f")
        with h5py.File(self.folder / "exact.h5") as file:
            probe, = file["probes"].values()
            return {name: probe["outputs"][name][()] for name in ("x", "y")}

    def changed(self, values, n, change):
        """n values of y changed, at places by chance."""
        y = values["y"].copy()
        places = self.random.choice(y.size, n, replace=False)
        y.reshape(-1)[places] = change(y.reshape(-1)[places])
        return {**values, "y": y}

    def test_a_flipped_bit_is_named(self):
        for dtype, bit in (("int8", 5), ("uint8", 7), ("uint16", 13), ("int16", 11)):
            values = self.conv(dtype)
            n = 5 if bit == 7 else values["y"].size // 500
            unsigned = f"u{BITS[dtype] // 8}"
            device, text = self.explain(**self.changed(
                values, n, lambda x: (x.view(unsigned) ^ np.array(1 << bit, unsigned)).view(dtype)))
            with self.subTest(dtype=dtype, seed=SEED):
                self.assertIn(f"FAULTY 'y' (Conv): a bit is flipped: bit {bit} in {n} of {values['y'].size} values", text)

    def test_few_large_errors_among_exact_values_are_a_fault(self):
        device, text = self.explain(**self.changed(
            self.conv("uint8"), 12, lambda x: ((x.astype(int) + self.random.integers(70, 110, x.shape)) % 256).astype("uint8")))
        self.assertEqual(device["verdict"], "faulty", f"{text} seed {SEED}")
        self.assertIn("12 of 4320 values are off by up to", text)
        self.assertIn("all others are exact", text)

    def test_small_errors_are_none(self):
        values = self.conv("uint8")
        for step, verdicts in ((1, ("healthy",)), (2, ("unexplained",))):
            device, text = self.explain(**self.changed(
                values, 14, lambda x: np.clip(x.astype(int) + self.random.choice([-step, step], x.shape), 0, 255).astype("uint8")))
            with self.subTest(step=step, seed=SEED):
                self.assertIn(device["verdict"], verdicts, text)
                self.assertIn(f"14 of 4320 values are off by up to {step} LSB, and all others are exact", text)

    def test_a_saturation_is_no_flipped_bit(self):
        values = self.conv("uint8")
        y = np.minimum(values["y"], np.sort(values["y"].reshape(-1))[-20])
        device, text = self.explain(**{**values, "y": y})
        self.assertIn("codes stop above", text)

    def test_windows_are_channels_rows_and_columns(self):
        for place, says in (((slice(None), 0, 4), "channel 4 (axis 1) holds 9, all others are right"),
                            ((slice(None), 0, slice(None), 3), "row 3 (axis 2) holds 9, all others are right"),
                            ((slice(None), 0, slice(None), slice(None), slice(2, 4)), "columns 2 to 3 (axis 3) hold 9, all others are right"),
                            ((slice(None), 0, 2, 0, slice(1, 9)), "hold 9, all others are right")):
            values = self.conv("uint8")
            values["y"][place] = 9
            with self.subTest(says=says, seed=SEED):
                self.assertIn(says, self.explain(**values)[1])

    # ---- weights of 4 bits in blocks, behind floats ----

    def block_weights(self, k, n, block, zero, dtype="uint4"):
        """Writes a MatMul; its codes, the scale of each and what it reads."""
        codes = self.random.integers(0, 16, (k, n))
        scales = (self.random.random((k // block, n)) * 0.1 + 0.01).astype(np.float32)
        first = 8 if dtype == "int4" else 0
        flat = (codes - first).reshape(-1) & 15
        data = lambda name, array, shape: (b"".join(ow.number(1, d) for d in shape) + ow.number(2, CODE_TYPES[dtype]) +
                                           ow.piece(8, name) + ow.piece(9, bytes((array[0::2] | array[1::2] << 4).astype(np.uint8))))
        constants = {"w": data("w", flat, codes.shape), "s": scales,
                     "z": data("z", (np.full(scales.size, zero) - first) & 15, scales.shape)}
        nodes = [ow.node("DequantizeLinear", ["w", "s", "z"], ["wd"], axis=0, block_size=block), ow.node("MatMul", ["x", "wd"], ["y"])]
        self.model.write_bytes(ow.model(nodes, [ow.value_info("x", 1, (1, 4, k))], [ow.value_info("y", 1, (1, 4, n))], constants))
        x = self.random.normal(size=(6, 1, 4, k)).astype(np.float32)
        np.savez(self.inputs, x=x)
        return codes, np.repeat(scales, block, 0).astype(float), x

    def test_misread_nibbles_are_named(self):
        for zero, dtype in ((8, "uint4"), (8, "int4"), (5, "uint4")):
            codes, scales, x = self.block_weights(64, 24, 16, zero, dtype)
            swapped = codes.reshape(32, 2, 24)[:, ::-1].reshape(64, 24)
            taken = 8 if zero == 5 else 0
            rows = (((codes ^ 8) - zero, "the 4-bit values of its weights are read as signed, not as unsigned less 8, or the reverse (the value xor 8)"),
                    (codes - taken, f"is taken as {taken} everywhere, not {zero}"),
                    (swapped - zero, "the two 4-bit weights of each byte are swapped"))
            for wrong, says in rows:
                with self.subTest(says=says, zero=zero, dtype=dtype, seed=SEED):
                    device, text = self.explain(y=(x @ (wrong * scales)).astype(np.float32))
                    self.assertIn(says, text)
                    self.assertEqual((device["verdict"], "computed by the CPU" in text), ("faulty", False))

    def test_what_only_looks_like_misread_nibbles_is_not_named(self):
        codes, scales, x = self.block_weights(64, 24, 16, 8)
        device, text = self.explain(y=(x @ ((codes - 8) * scales)).astype(np.float32))
        self.assertEqual(device["verdict"], "healthy", text)
        half = np.where(np.arange(24) < 12, codes ^ 8, codes)
        device, text = self.explain(y=(x @ ((half - 8) * scales)).astype(np.float32))
        self.assertNotIn("weights", text)
        self.assertNotEqual(device["verdict"], "healthy", text)

    def test_rows_of_weights_that_the_model_has_as_floats(self):
        """80 weights of 4 bits for each output are padded to 96 in memory, and read as if they were not."""
        k, n, block = 80, 20, 32
        codes = np.zeros((n, 96), int)
        codes[:, :k] = self.random.integers(-7, 8, (n, k))
        codes[:, ::block] = 7
        scales = np.repeat(self.random.random((n, 3)).astype(np.float32) + 0.1, block, 1).astype(float)
        weights = (codes * scales)[:, :k].T.astype(np.float32)
        self.model.write_bytes(ow.model([ow.node("MatMul", ["x", "w"], ["y"])], [ow.value_info("x", 1, (1, 4, k))],
                                        [ow.value_info("y", 1, (1, 4, n))], {"w": weights}))
        x = self.random.normal(size=(6, 1, 4, k)).astype(np.float32)
        np.savez(self.inputs, x=x)
        read = np.stack([codes.reshape(-1)[80 * j:80 * j + 80] for j in range(n)])
        device, text = self.explain(y=(x @ (read * scales[:, :k]).T).astype(np.float32))
        self.assertIn("output 0 is right, from output 1 on the weights are read 8 bytes a row too early", text)
        other = np.roll(codes[:, :k], 1, 0)
        self.assertNotIn("bytes a row", self.explain(y=(x @ (other * scales[:, :k]).T).astype(np.float32))[1])

    # ---- channels that share a scale ----

    def concat(self, size):
        """Boxes and scores in one encoding of int8; the text of a healthy device, and the floats with and without steps."""
        boxes, scores = self.random.random((3, 1, 40, 4)) * size, self.random.random((3, 1, 40, 9)) ** 3
        nodes = [ow.node("Relu", ["a"], ["ar"]), ow.node("Relu", ["b"], ["br"]), ow.node("Concat", ["ar", "br"], ["c"], axis=-1)]
        quantised, constants = [], {}
        for name, top in (("a", size), ("b", 1)):
            constants |= {f"{name}s": np.float32(top / 255), "z": np.int8(-128)}
            for tensor, operator in ((name, None), (f"{name}r", "Relu")):
                source = tensor
                if operator:
                    quantised.append(ow.node(operator, [f"{name}d"], [tensor]))
                quantised += [ow.node("QuantizeLinear", [source, f"{name}s", "z"], [f"{tensor}q"]),
                              ow.node("DequantizeLinear", [f"{tensor}q", f"{name}s", "z"], [f"{tensor}d"])]
        constants["ys"] = np.float32(size / 255)
        quantised += [ow.node("Concat", ["ard", "brd"], ["cc"], name="c.node", axis=-1), ow.node("QuantizeLinear", ["cc", "ys", "z"], ["yq"]),
                      ow.node("DequantizeLinear", ["yq", "ys", "z"], ["c"])]
        places = [[ow.value_info("a", 1, (1, 40, 4)), ow.value_info("b", 1, (1, 40, 9))], [ow.value_info("c", 1, (1, 40, 13))]]
        (self.folder / "float.onnx").write_bytes(ow.model(nodes, *places, {}))
        self.model.write_bytes(ow.model(quantised, *places, constants))
        np.savez(self.inputs, a=boxes.astype(np.float32), b=scores.astype(np.float32))
        npudiff("capture", self.model, "-d", "exact", "-p", f"in={self.inputs}", "-o", self.folder / "exact.h5", "-q", "-f")
        words = ["explain", "--quantised", self.model, "--float", self.folder / "float.onnx", self.folder / "exact.h5"]
        exact = np.concatenate([boxes, scores], -1).astype(np.float32)
        layers = json.loads(npudiff(*words, "--json"))["quantisation"]["layers"]
        return " ".join(npudiff(*words).split()), exact, (np.rint(exact / (size / 255)) * size / 255).astype(np.float32), layers

    def test_channels_that_the_quantisation_loses_are_told(self):
        text, exact, stepped, layers = self.concat(640)
        self.assertIn("channels 4 to 12 are below half a step of its scale 2.51, so all of them become 0; 9 of 13 channels are "
                      "constant where the float model's are not", text)
        self.assertIn("HEALTHY", text)
        self.assertEqual([layer["evidence"]["constant_channels"] for layer in layers if layer["name"] == "c"], [9])
        for name, values in (("a", exact), ("b", stepped)):
            np.savez(self.folder / f"{name}.npz", c=values)
            npudiff("import", "numpy", self.folder / f"{name}.npz", "-o", self.folder / f"{name}.h5", "-q")
        compared = npudiff("compare", self.folder / "a.h5", self.folder / "b.h5", expect=1)
        self.assertIn("9 of 13 channels (4 to 12) along axis 2 are constant, and not in the reference", " ".join(compared.split()))

    def test_channels_of_one_size_are_not(self):
        self.assertNotIn("constant where the float", self.concat(2)[0])


if __name__ == "__main__":
    main()
