#!/usr/bin/env python3
"""Layers of quantised values that were computed with another attribute of their operator, or by another integer arithmetic: what
the exact device makes of a changed model is imported as what a device made of the model."""
import json
import os
import pathlib
import re
import sys

import h5py
import numpy as np

from support import MODELS, Scratch, main, npudiff

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import onnx_write as ow  # noqa: E402

SEED = int(os.environ.get("ND_SEED", "20261128"))  # others: tools/studies/seeds
STEP = {"a": np.float32(0.03), "b": np.float32(0.05)}


class Imported(Scratch):
    def setUp(self):
        super().setUp()
        self.random = np.random.default_rng(SEED)
        self.model, self.changed, self.inputs = (self.folder / name for name in ("model.onnx", "changed.onnx", "in.npz"))

    def explain(self, values):
        np.savez(self.folder / "out.npz", **values)
        npudiff("import", "numpy", self.folder / "out.npz", "--model", self.model, "--inputs", self.inputs, "-p", "in", "--kind", "npu",
                "--label", "npu", "-o", self.folder / "npu.h5", "-f", "-q")
        words = ["explain", "--quantised", self.model, self.folder / "npu.h5"]
        text = " ".join(npudiff(*words, expect=None).stdout.split())
        return json.loads(npudiff(*words, "--json", expect=None).stdout)["devices"][0]["verdict"], text


class Attributes(Imported):
    def write(self, path, op, out, w, padded=None, copied=None, zero_points=None, bound=None, **attributes):
        """x -> Conv -> a -> op -> y, with quantisers between; w: the weights of a Conv that op is; padded: a is, by one, with that;
        copied: of a Concat of several, whether the codes of all, or of the first, have the output's encoding; zero_points: of w; bound: the operator
        behind op; operator: in place of op."""
        op = attributes.pop("operator", op)
        constants = {"s": np.float32(0.02), "z": np.uint8(128), "sa": STEP["a"], "sb": STEP["b"], "ws": np.float32(0.01), "w1": self.w1}
        operands = ["ad"]
        nodes = [ow.node("QuantizeLinear", ["x", "s", "z"], ["xq"]), ow.node("DequantizeLinear", ["xq", "s", "z"], ["xd"]),
                 ow.node("DequantizeLinear", ["w1", "ws"], ["w1d"]), ow.node("Conv", ["xd", "w1d"], ["a"], pads=[1, 1, 1, 1]),
                 ow.node("QuantizeLinear", ["a", "sa", "z"], ["aq"]), ow.node("DequantizeLinear", ["aq", "sa", "z"], ["ad"])]
        if w is not None:
            constants["w2"] = w
            scales = ["ws"]
            if zero_points is not None:
                constants |= {"wz": np.array(zero_points, np.uint8), "wss": np.full(len(zero_points), 0.01, np.float32)}
                scales = ["wss", "wz"]
            nodes.append(ow.node("DequantizeLinear", ["w2", *scales], ["w2d"], axis=0))
            operands.append("w2d")
        if op == "Concat":
            nodes.append(ow.node("DequantizeLinear", ["aq", "sb", "z"], ["ac"]))
            operands = {None: ["ad", "ad"], "all": ["ac", "ac"], "first": ["ac", "ad"]}[copied]
        if op == "Softmax":
            constants |= {"sb": np.float32(1 / 256), "zb": np.uint8(0)}
        zero = "zb" if op == "Softmax" else "z"
        if padded is not None:
            constants |= {"pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]), "padding": np.float32(padded)}
            nodes.append(ow.node("Pad", ["ad", "pads", "padding"], ["ap"]))
            operands[0] = "ap"
        nodes += [ow.node(op, operands, ["c" if bound else "b"], **attributes)]
        if bound:
            nodes.append(ow.node(bound, ["c"], ["b"]))
        nodes += [ow.node("QuantizeLinear", ["b", "sb", zero], ["bq"]),
                  ow.node("DequantizeLinear", ["bq", "sb", zero], ["y"])]
        path.write_bytes(ow.model(nodes, [ow.value_info("x", 1, (1, 3, 8, 8))], [ow.value_info("y", 1, out)], constants))

    def values(self, path):
        npudiff("capture", path, "-d", "exact", "-p", f"in={self.inputs}", "-o", self.folder / "exact.h5", "-q", "-f")
        with h5py.File(self.folder / "exact.h5") as file:
            probe, = file["probes"].values()
            return {name: probe["outputs"][name][()] for name in ("x", "a", "y")}

    def make(self, op, out, own, other, w=None, channels=4, other_w=None):
        """What exact devices have of the model, and of the model with the other attributes."""
        self.w1 = self.random.integers(-90, 90, (channels, 3, 3, 3)).astype(np.int8)
        np.savez(self.inputs, x=self.random.normal(size=(6, 1, 3, 8, 8)).astype(np.float32))
        self.write(self.model, op, out, w, **own)
        self.write(self.changed, op, out, w if other_w is None else other_w, **other)
        return self.values(self.model), self.values(self.changed)

    def assert_named(self, says, *arguments, **options):
        """The other attribute is named, and one step here and there beside the model's own is no fault."""
        right, wrong = self.make(*arguments, **options)
        with self.subTest(says=says, seed=SEED):
            verdict, text = self.explain(wrong)
            self.assertRegex(text, rf"'y' \({arguments[0]}[+a-zA-Z]*\): {re.escape(says)}")
            self.assertEqual(verdict, "faulty", text)
        noisy = right["y"].astype(int) + self.random.choice([-1, 0, 1], right["y"].shape, p=[0.01, 0.98, 0.01])
        with self.subTest(near_miss=says, seed=SEED):
            verdict, text = self.explain({**right, "y": np.clip(noisy, 0, 255).astype(np.uint8)})
            self.assertNotIn(says, text)
            self.assertNotEqual(verdict, "faulty", text)

    def test_another_attribute_is_named(self):
        w = self.random.integers(-90, 90, (4, 4, 3, 3)).astype(np.int8)
        dilated, same = ({"dilations": [n, n], "pads": 4 * [n], "kernel_shape": [3, 3]} for n in (2, 1))
        for says, *arguments, options in (
                ("computed with axis 1, not", "Softmax", (1, 4, 8, 8), {"axis": 3}, {"axis": 1}, {}),
                ("computed with alpha 0.01, not 0.2", "LeakyRelu", (1, 4, 8, 8), {"alpha": 0.2}, {"alpha": 0.01}, {}),
                ("computed with mode DCR, not CRD", "DepthToSpace", (1, 2, 16, 16), {"blocksize": 2, "mode": "CRD"}, {"blocksize": 2, "mode": "DCR"},
                 {"channels": 8}),
                ("computed with dilations [1, 1], not [2, 2]", "Conv", (1, 4, 8, 8), dilated, {"pads": [2, 2, 0, 0], "kernel_shape": [3, 3]}, {"w": w}),
                ("computed with pads with begin and end exchanged", "Conv", (1, 4, 8, 8), {"pads": [0, 1, 2, 1]}, {"pads": [2, 1, 0, 1]}, {"w": w})):
            self.assert_named(says, *arguments, **options)
        right, wrong = self.make("Conv", (1, 4, 8, 8), dilated, same, w=w)
        verdict, text = self.explain(wrong) # centred: two attributes say it
        self.assertEqual((verdict, "dilations [1, 1]" in text, "auto_pad SAME" in text), ("faulty", True, True), text)

    def test_another_padding_is_named(self):
        w, bare, own = self.random.integers(-90, 90, (4, 4, 3, 3)).astype(np.int8), {"kernel_shape": [3, 3]}, {"pads": [1, 1, 1, 1]}
        for says, op, padding, w in (("computed with padding -128, not 0", "Conv", -128, w), ("computed with padding 13, not 0", "Conv", 13, w), ("computed with padding 0, not -inf", "MaxPool", 0, None)):
            self.assert_named(says, op, (1, 4, 8, 8), {**bare, **own}, {**bare, "padded": padding * STEP["a"]}, w=w)

    def test_quantised_values_that_are_copied_are_named(self):
        self.assert_named("the quantised values of its inputs are taken over as they are", "Concat", (1, 8, 8, 8), {"axis": 1},
                          {"axis": 1, "copied": "all"})
        _, wrong = self.make("Concat", (1, 8, 8, 8), {"axis": 1}, {"axis": 1, "copied": "first"})
        self.assertNotIn("taken over as they are", self.explain(wrong)[1])

    def test_another_operator_and_a_lost_one_are_named(self):
        w, of = self.random.integers(-90, 90, (4, 4, 3, 3)).astype(np.int8), {"pads": [1, 1, 1, 1]}
        for says, op, own, other, w in (
                ("computed with operator HardSigmoid, not HardSwish", "HardSwish", {}, {"operator": "HardSigmoid", "alpha": 1 / 6}, None),
                ("computed with operator MaxPool, not AveragePool", "AveragePool", {"kernel_shape": [3, 3], **of},
                 {"operator": "MaxPool", "kernel_shape": [3, 3], **of}, None),
                ("its Relu or Clip is left out", "Conv", {**of, "bound": "Relu"}, of, w)):
            self.assert_named(says, op, (1, 4, 8, 8), own, other, w=w)

    def test_a_zero_point_of_the_first_channel_alone_is_named(self):
        w, of = self.random.integers(0, 255, (4, 4, 3, 3)).astype(np.uint8), {"pads": [1, 1, 1, 1], "zero_points": 4 * [120]}
        for says, others in (("taken as 0 in all channels but the first, not 120", [120, 0, 0, 0]), ("taken as 0 everywhere, not 120", 4 * [0])):
            _, wrong = self.make("Conv", (1, 4, 8, 8), of, {**of, "zero_points": others}, w=w)
            verdict, text = self.explain(wrong)
            self.assertEqual(verdict, "faulty")
            self.assertIn(says, text)
        _, wrong = self.make("Conv", (1, 4, 8, 8), of, {**of, "zero_points": [120, 120, 0, 0]}, w=w)
        self.assertNotIn("the zero point of its weights is taken", self.explain(wrong)[1])

    def test_a_product_that_is_far_off_beside_an_exact_one_is_faulty(self):
        w = self.random.integers(-90, 90, (4, 4, 3, 3)).astype(np.int8)
        part = w.copy()
        part[:, ::2] = 0 # half of what is summed, here and there
        right, wrong = self.make("Conv", (1, 4, 8, 8), {"pads": [1, 1, 1, 1]}, {"pads": [1, 1, 1, 1]}, w=w, other_w=part)
        verdict, text = self.explain(wrong)
        self.assertEqual(verdict, "faulty", text)
        self.assertIn("no rounding of a product by constants makes that", text)
        few = right["y"].astype(int) + self.random.choice([-3, 0, 3], right["y"].shape, p=[0.2, 0.6, 0.2])
        verdict, text = self.explain({**right, "y": np.clip(few, 0, 255).astype(np.uint8)})
        self.assertNotIn("no rounding of a product", text) # 3 LSB: other arithmetic may be that coarse


class Indices(Imported):
    """A Gather of quantised values, whose indices an ArgMax makes: whole numbers of 64 or 32 bits, which rounding does not move."""

    def write_gather(self, is_wide):
        self.w1, w2 = (self.random.integers(-90, 90, (4, n, 3, 3)).astype(np.int8) for n in (3, 4))
        constants = {"s": np.float32(0.02), "z": np.uint8(128), "sa": STEP["a"], "sc": np.float32(0.061), "sb": np.float32(0.031),
                     "ws": np.float32(0.01), "w1": self.w1, "w2": w2}
        both = lambda read, made, step: [ow.node("QuantizeLinear", [read, step, "z"], [read + "q"]), # noqa: E731
                                         ow.node("DequantizeLinear", [read + "q", step, "z"], [made])]
        conv = lambda read, w, made: [ow.node("DequantizeLinear", [w, "ws"], [w + "d"]), # noqa: E731
                                      ow.node("Conv", [read, w + "d"], [made], pads=[1, 1, 1, 1])]
        argmax = [ow.node("ArgMax", ["ad"], ["k" if is_wide else "k64"], axis=1, keepdims=0)]
        nodes = [*both("x", "xd", "s"), *conv("xd", "w1", "a"), *both("a", "ad", "sa"), *conv("ad", "w2", "c"), *both("c", "cd", "sc"), *argmax,
                 *([] if is_wide else [ow.node("Cast", ["k64"], ["k"], to=6)]), ow.node("Gather", ["cd", "k"], ["b"], axis=3), *both("b", "y", "sb")]
        outputs = [ow.value_info("y", 1, (1, 4, 8, 1, 8, 8)), ow.value_info("k", 7 if is_wide else 6, (1, 8, 8))]
        self.model.write_bytes(ow.model(nodes, [ow.value_info("x", 1, (1, 3, 8, 8))], outputs, constants))

    def test_a_fault_of_a_layer_that_reads_indices_is_told(self):
        np.savez(self.inputs, x=self.random.normal(size=(6, 1, 3, 8, 8)).astype(np.float32))
        for is_wide in (True, False):
            self.write_gather(is_wide)
            npudiff("capture", self.model, "-d", "emu:htp-v73", "-p", f"in={self.inputs}", "-o", self.folder / "v73.h5", "-q", "-f")
            with h5py.File(self.folder / "v73.h5") as file:
                right = {name: values[()] for name, values in file["probes/in/outputs"].items()}
            self.assertEqual(right["k"].dtype.itemsize, 8 if is_wide else 4)
            wrong = right["y"] + self.random.choice([-40, 0, 40], right["y"].shape, p=[0.15, 0.7, 0.15])
            for off, expect in ((wrong, "faulty"), (right["y"], "healthy")):
                with self.subTest(is_wide=is_wide, expect=expect, seed=SEED):
                    verdict, text = self.explain({**right, "y": np.clip(off, 0, 255).astype(np.uint8)})
                    self.assertEqual(verdict, expect, text)
                    self.assertEqual("'y' (Gather): an error that no rounding makes" in text, expect == "faulty", text)


class Engines(Scratch):
    """Devices that multiply as integer processors do have no fault; one layer that does beside others that do not has."""

    def explain(self, model, profile):
        out = self.folder / "device.h5"
        npudiff("capture", MODELS / model, "-d", f"emu:{profile}", "-p", "uniform:40", "-o", out, "-q", "-f")
        return " ".join(npudiff("explain", out, expect=None).stdout.split())

    def test_integer_processors_are_healthy(self):
        for model, profile, follows in (("cnn.w8a8.onnx", "round=gemmlowp", "all 10 layers follow gemmlowp"),
                                        ("cnn.w8a8.onnx", "round=tosa-double", "all 10 layers follow"),
                                        ("vit.w8a8.onnx", "round=multiplier:16", "all 64 layers follow multiplier:16"),
                                        ("cnn.w8a16.onnx", "round=multiplier:15:half-up", "all 10 layers follow multiplier:15")):
            with self.subTest(model=model, profile=profile):
                text = self.explain(model, profile)
                self.assertIn("HEALTHY", text[:10], text)
                self.assertIn(follows, text)

    def test_one_layer_of_another_arithmetic_is_not(self):
        text = self.explain("cnn.w8a8.onnx", "round=half-even,round@stem/relu=gemmlowp")
        self.assertIn("FAULTY 'stem/relu' (Conv)", text)


if __name__ == "__main__":
    main()
