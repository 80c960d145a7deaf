#!/usr/bin/env python3
"""How a model begins and ends: what the QNN provider runs on the NPU when it is untouched is captured there, too, bit for bit."""
import json
import pathlib
import sys

import numpy as np

from support import Scratch, main, npudiff

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import end_models  # noqa: E402
import onnx_write as ow  # noqa: E402

SEED = 20261124
NPU = b"QNNExecutionProvider"


class Ends(Scratch):
    def capture(self, name, model, device, *arguments, expect=0):
        """The file of the capture, opened; None where it failed, as expect=5 says that it should."""
        source, path = self.folder / (name + ".onnx"), self.folder / (name + ".h5")
        source.write_bytes(model)
        npudiff("capture", source, "-d", device, "-p", "uniform:3", "-o", path, "--force", *arguments, expect=expect)
        return self.open(path) if expect == 0 else None

    def check_tensors(self, opened, name):
        """Every tensor that the model makes is there, and from the NPU."""
        rows = json.loads(npudiff("info", "--list", self.folder / (name + ".onnx"), "--json"))["tensors"]
        made = {row["tensor"] for row in rows if row["op_types"] != "input"}
        self.assertTrue(made and made <= set(opened.edges), (name, made, opened.edges))
        self.assertNotIn("left_out", opened.file["runtime"].attrs)
        self.assertNotIn("moved_by_recording", opened.file["runtime"].attrs)
        for tensor in made:
            self.assertEqual(opened.output("uniform", tensor).attrs["provider"], NPU, (name, tensor))

    # ---- outputs after a Transpose that ONNX Runtime moves to the end ----

    def turned(self, dtype, perm, factor, with_conv):
        """Quantisers, a Conv with its own or none, a Transpose, quantisers whose scale is `factor` times the first one. perm=None: no Transpose."""
        info, shape = np.iinfo(dtype), (1, 3, 4, 5)
        constants = {"s": np.float32(6 / info.max), "t.s": np.float32(6 * factor / info.max), "z": dtype(info.max // 2 + 1)}
        nodes = [ow.node("QuantizeLinear", ["x", "s", "z"], ["x.q"]), ow.node("DequantizeLinear", ["x.q", "s", "z"], ["x.dq"])]
        last = "x.dq"
        if with_conv:
            constants.update({"c.s": np.float32(4 / info.max), "w.q": np.random.default_rng(SEED).integers(-99, 99, (4, 3, 1, 1)).astype(np.int8), "w.s": np.float32(0.01),
                              "w.z": np.int8(0)})
            nodes += [ow.node("DequantizeLinear", ["w.q", "w.s", "w.z"], ["w"]), ow.node("Conv", ["x.dq", "w"], ["c"], kernel_shape=[1, 1]),
                      ow.node("QuantizeLinear", ["c", "c.s", "z"], ["c.q"]), ow.node("DequantizeLinear", ["c.q", "c.s", "z"], ["c.dq"])]
            last, shape = "c.dq", (1, 4, 4, 5)
        if perm is not None:
            nodes.append(ow.node("Transpose", [last], ["t"], perm=perm))
            last, shape = "t", tuple(shape[p] for p in perm)
        nodes += [ow.node("QuantizeLinear", [last, "t.s", "z"], ["y.q"]), ow.node("DequantizeLinear", ["y.q", "t.s", "z"], ["y"])]
        return ow.model(nodes, [ow.value_info("x", ow.FLOAT, (1, 3, 4, 5))], [ow.value_info("y", ow.FLOAT, shape)], constants)

    def capture_turned(self, dtype, perm, factor, with_conv, device):
        """Its output, which is recorded through floats."""
        opened = self.capture("turned", self.turned(dtype, perm, factor, with_conv), device)
        self.check_tensors(opened, "turned")
        self.assertEqual(opened.file["runtime"].attrs["from_floats"], b"y")
        npudiff("verify", self.folder / "turned.h5")
        values = opened.values("uniform", "y")
        self.assertEqual((values.dtype, len(np.unique(values)) > 20), (dtype, True))
        return values

    def check_turned_input(self, factor):
        """The quantised values are those of the model without the Transpose, which gives them out itself."""
        for dtype, device in ((np.uint8, "htp-sim:gen1"), (np.uint16, "htp-sim:gen3")):
            values = self.capture_turned(dtype, [0, 2, 3, 1], factor, False, device)
            plain = self.capture("plain", self.turned(dtype, None, factor, False), device).values("uniform", "y")
            self.assert_bits_equal(values, np.ascontiguousarray(plain.transpose([0, 1, 3, 4, 2])))

    def test_turned_input_with_its_own_encoding(self):
        self.check_turned_input(1)

    def test_turned_input_with_a_new_encoding(self):
        self.check_turned_input(1.1)

    def test_turned_convolution(self):
        """The untouched model gives the very floats that these quantised values stand for."""
        for dtype, device in ((np.uint16, "htp-sim:gen1"), (np.uint8, "htp-sim:gen3")):
            model, info = self.turned(dtype, [0, 3, 1, 2], 1, True), np.iinfo(dtype)
            values = self.capture_turned(dtype, [0, 3, 1, 2], 1, True, device)
            floats = self.capture("none", model, device, "--tensors", "none").values("uniform", "y")
            steps = (values.astype(np.int64) - (info.max // 2 + 1)).astype(np.float32)
            self.assert_bits_equal(steps * np.float32(6 / info.max), floats)

    def test_output_whose_encoding_the_runtime_drops_is_left_out(self):
        """ONNX Runtime merges two quantisers after a Conv: the model's last quantised values are made nowhere. All else is captured."""
        opened = self.capture("merged", self.turned(np.uint8, None, 1, True), "htp-sim:gen3")
        self.assertEqual((opened.status, set(opened.edges)), ("complete", {"x", "c"}))
        self.assertEqual(opened.file["runtime"].attrs["left_out"].split(b"\t")[0], b"y")
        self.assertEqual(opened.output("uniform", "c").attrs["provider"], NPU)

    # ---- at random ----

    def check_seeded(self, device, seed, n):
        """At least one of the models has to run untouched, or nothing was tested."""
        print(f"# seed {seed}")
        n_checked = 0
        for number, model in enumerate(end_models.choose(seed, n)):
            name = f"m{number}"
            source, path = self.folder / (name + ".onnx"), self.folder / (name + ".none.h5")
            source.write_bytes(model.bytes())
            untouched = npudiff("capture", source, "-d", device, "-p", "uniform:3", "-o", path, "--tensors", "none", expect=None)
            self.assertIn(untouched.returncode, (0, 5), untouched.stderr)
            if untouched.returncode == 5:
                continue
            with self.subTest(model.name):
                self.check_tensors(self.capture(name, model.bytes(), device), name)
                n_checked += 1
        self.assertGreater(n_checked, n // 2)

    def test_models_at_random_on_gen1(self):
        self.check_seeded("htp-sim:gen1", SEED, 4)

    def test_models_at_random_on_gen3(self):
        self.check_seeded("htp-sim:gen3", SEED + 1, 4)

    def test_tensor_inside_that_is_shown_through_floats_alone(self):
        """A MatMul of the turned input: its quantised values are in no session of their own (seen with QAIRT 2.51.0)."""
        model = list(end_models.choose(2, 41))[40]
        opened = self.capture("inside", model.bytes(), "htp-sim:gen3")
        self.check_tensors(opened, "inside")
        self.assertEqual(opened.file["runtime"].attrs["from_floats"], b"n2")

    def test_floats_of_the_last_dequantiser_may_be_made_on_the_cpu(self):
        """What follows it moves values, or nothing: ONNX Runtime puts it at the end, by another name."""
        for number, end in enumerate(("identity-float", "transpose-float", "reshape-float")):
            name = f"f{number}"
            model = end_models.Ended(number, "plain", ["matmul", "conv"], end, np.uint8)
            self.capture(name, model.bytes(), "htp-sim:gen3", "--tensors", "none")
            self.check_tensors(self.capture(name, model.bytes(), "htp-sim:gen3"), name)


if __name__ == "__main__":
    main()
