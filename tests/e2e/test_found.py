#!/usr/bin/env python3
"""What was found in the wild still shows in the simulator, with models of one operator: docs/results/found.md. A case that
fails here means that an SDK has changed: measure again, and say so on that page."""
import json
import pathlib
import sys

import numpy as np

sys.path[1:1] = [str(pathlib.Path(__file__).resolve().parents[k] / name) for k, name in ((2, "tools/oracles"), (1, "support"))]

import known_defects
import onnx_bytes
import onnx_write as ow
from support import GOLDEN, Capture, Scratch, bits_equal, capture, main, npudiff

FOUND = GOLDEN / "found"
OLD, NEW = "qairt-2.50.40", "qairt-2.51.0"
# What `explain` has to say of a model: the known defect that src/arithmetic/known/defects.def has for it.
DEFECTS = known_defects.defects()
KNOWN = {model: DEFECTS[row.condition].what for row in known_defects.found() if row.condition in DEFECTS for model in row.models}


class Found(Scratch):
    def codes(self, model, devices, probe):
        """{device: {tensor: codes}}"""
        capture(FOUND / model, devices, [probe], self.folder / model)
        found = {}
        for device in devices:
            with Capture(self.folder / model / f"{device.removeprefix('htp-sim:')}.h5") as c:
                found[device] = {edge: c.values(probe.split(":")[0], edge).astype(int) for edge in c.edges}
        return found

    def test_batch_norm_takes_the_largest_bias_with_the_wrong_sign(self):
        npu = ["htp-sim:gen1", "htp-sim:gen3", "htp-sim:gen5"]
        codes = self.codes("batch-norm.u8.onnx", ["cpu", *npu], "uniform:2")
        for device in npu:
            off = codes[device]["y"] - codes["cpu"]["y"]
            self.assertLessEqual(np.abs(off[..., :7, :, :]).max(), 1, device)
            # The bias is 8, which is 64 steps of the output: with the other sign 128 steps less.
            self.assertLessEqual(np.abs(off[..., 7, :, :] + 128).max(), 1, device)
            self.is_named_and_predicted("batch-norm.u8.onnx", device, "the wrong sign")

    def is_named_and_predicted(self, model, device, text, is_alone=True):
        """The layer y, alone or with the one before it, is faulty by a known defect that gives every one of its values."""
        layer = self.faulty(model, device, "y")
        self.assertIn(text, layer["known_defect"])
        self.assertEqual((layer["unexplained"], layer["certainty"], layer["is_covered"]), (0, "proven", is_alone), device)
        self.assertIn("the defect predicts every value", layer["evidence"])

    def test_a_defect_that_nothing_reads_is_no_fault(self):
        """The Pow of a uint16 Gelu in parts is clipped too early; the device makes the Gelu of its input, unless it is none."""
        for function, verdict in (("Tanh", "healthy"), ("Sigmoid", "faulty")):
            constants, nodes = {}, []

            def quantised(name, scale, zero, nodes=nodes, constants=constants):
                constants |= {f"{name}_s": np.float32(scale), f"{name}_z": np.uint16(zero)}
                nodes.extend(ow.node(op, [f"{name}{a}", f"{name}_s", f"{name}_z"], [f"{name}{b}"]) for op, a, b in (("QuantizeLinear", "", "_q"), ("DequantizeLinear", "_q", "_d")))
                return f"{name}_d"

            def number(name, value, nodes=nodes, constants=constants):
                constants |= {f"{name}_q": np.uint16(65535), f"{name}_s": np.float32(value / 65535), f"{name}_z": np.uint16(0)}
                nodes.append(ow.node("DequantizeLinear", [f"{name}_q", f"{name}_s", f"{name}_z"], [f"{name}_d"]))
                return f"{name}_d"

            def op(kind, inputs, name, scale, zero=32768, nodes=nodes, quantised=quantised):
                nodes.append(ow.node(kind, inputs, [name]))
                return quantised(name, scale, zero)

            w = np.random.default_rng(7).integers(-127, 128, (16, 24)).astype(np.int8)
            constants |= {"w_q": w, "w_s": np.float32(0.004)}
            nodes.append(ow.node("DequantizeLinear", ["w_q", "w_s"], ["w_d"]))
            real = op("MatMul", [quantised("x", 4 / 65535, 32768), "w_d"], "real", 8 / 65535)
            cube = op("Pow", [real, number("three", 3)], "cube", 80 / 65535, 50000)
            bent = op("Mul", [cube, number("k", 0.044715)], "bent", 4 / 65535)
            inner = op("Mul", [op("Add", [real, bent], "total", 12 / 65535), number("c", 0.7978845608)], "inner", 10 / 65535)
            constants |= {"one_q": np.uint16(32768), "one_s": np.float32(1 / 32768), "one_z": np.uint16(0)}
            nodes.append(ow.node("DequantizeLinear", ["one_q", "one_s", "one_z"], ["one_d"]))
            gate = op("Add", [op(function, [inner], "bend", 2 / 65536), "one_d"], "gate", 2.1 / 65535, 0)
            op("Mul", [op("Mul", [real, number("half", 0.5)], "halved", 4 / 65535), gate], "y", 5 / 65535, 4000)
            path = self.folder / f"{function}.onnx"
            path.write_bytes(ow.model(nodes, [ow.value_info("x", 1, (1, 8, 16))], [ow.value_info("y_d", 1, (1, 8, 24))], constants))
            capture(path, ["htp-sim:gen3"], ["uniform:4"], self.folder / function)
            done = npudiff("explain", "--quantised", path, self.folder / function / "gen3.h5", "--json", expect=None)
            device, = json.loads(done.stdout)["devices"]
            pow_layer, = (la for la in device["layers"] if la["op_type"] == "Pow")
            self.assertEqual((device["verdict"], pow_layer["state"]), (verdict, "follows" if verdict == "healthy" else "faulty"), done.stdout[:3000])

    def test_a_prelu_by_floats_behind_a_gemm_is_no_fault(self):
        """It was held against a Relu that is made with the Gemm, which gives fewer of its values than plain rounding. Neighbour: one slope."""
        for seed in range(4):
            numbers = np.random.default_rng(seed)
            constants = {"x_s": np.float32(0.02), "x_z": np.uint8(120), "w_s": np.float32(0.01), "w": numbers.integers(-127, 128, (24, 12)).astype(np.int8),
                         "a_s": np.float32(numbers.uniform(0.02, 0.08)), "a_z": np.uint8(numbers.integers(90, 160)), "y_s": np.float32(numbers.uniform(0.01, 0.05)),
                         "y_z": np.uint8(numbers.integers(20, 120)), "slope": numbers.uniform(0.05, 0.6, (1 if seed == 1 else 12,)).astype(np.float32)}
            nodes = [ow.node("QuantizeLinear", ["x", "x_s", "x_z"], ["x_q"]), ow.node("DequantizeLinear", ["x_q", "x_s", "x_z"], ["x_d"]),
                     ow.node("DequantizeLinear", ["w", "w_s"], ["w_d"]), ow.node("Gemm", ["x_d", "w_d"], ["a"]),
                     ow.node("QuantizeLinear", ["a", "a_s", "a_z"], ["a_q"]), ow.node("DequantizeLinear", ["a_q", "a_s", "a_z"], ["a_d"]),
                     ow.node("PRelu", ["a_d", "slope"], ["b"]), ow.node("QuantizeLinear", ["b", "y_s", "y_z"], ["y_q"]),
                     ow.node("DequantizeLinear", ["y_q", "y_s", "y_z"], ["y"])]
            path = self.folder / f"{seed}.onnx"
            path.write_bytes(ow.model(nodes, [ow.value_info("x", 1, (16, 24))], [ow.value_info("y", 1, (16, 12))], constants))
            capture(path, ["htp-sim:gen3"], ["uniform:6"], self.folder / str(seed))
            done = npudiff("explain", "--quantised", path, self.folder / str(seed) / "gen3.h5", "--json", expect=None)
            device, = json.loads(done.stdout)["devices"]
            self.assertEqual(device["faulty"], [], seed)

    def test_an_sdk_rounds_products_in_another_way(self):
        codes = self.codes("mul.u8.onnx", ["cpu", f"htp-sim:gen3@{OLD}", f"htp-sim:gen3@{NEW}"], "ramp")
        old, new, cpu = (codes[d]["y"] for d in (f"htp-sim:gen3@{OLD}", f"htp-sim:gen3@{NEW}", "cpu"))
        self.assertEqual(np.abs(old - new).max(), 1)
        self.assertGreater((old != cpu).sum(), 2 * (new != cpu).sum())

    def test_an_lstm_differs_between_two_generations_that_agree_elsewhere(self):
        codes = self.codes("lstm.u16.onnx", ["htp-sim:gen3", "htp-sim:gen4", "htp-sim:gen5"], "uniform:4")
        gen3, gen4, gen5 = (codes[f"htp-sim:gen{n}"] for n in (3, 4, 5))
        for edge in ("y", "hidden", "cell"):
            self.assertTrue(bits_equal(gen3[edge], gen4[edge]), edge)
            self.assertGreater((gen3[edge] != gen5[edge]).mean(), 0.1, edge)

    def test_the_provider_writes_tanh_and_sigmoid_in_its_own_scale(self):
        for model, function, scale, zero_point in (("tanh.u16.onnx", np.tanh, 1 / 32768, 32768),
                                                   ("sigmoid.u16.onnx", lambda x: 1 / (1 + np.exp(-x)), 1 / 65536, 0)):
            codes = self.codes(model, ["cpu", "htp-sim:gen3"], "ramp")
            real = (codes["cpu"]["x"] - 32768) / 16 / 256
            own = np.clip(np.rint(function(real) / scale) + zero_point, 0, 65535)
            self.assertLessEqual(np.abs(codes["htp-sim:gen3"]["y"] - own).max(), 4, model)
            self.assertGreater(np.abs(codes["htp-sim:gen3"]["y"] - codes["cpu"]["y"]).max(), 5000, model)

    def test_a_reciprocal_takes_a_small_step_for_a_larger_one(self):
        npu = ["htp-sim:gen1", "htp-sim:gen3", "htp-sim:gen5"]
        codes = self.codes("reciprocal.u16.onnx", ["cpu", *npu], "ramp")
        x = codes["cpu"]["x"]
        rest = x >= 2048  # below, the model's output is clipped
        self.assertLessEqual(np.abs(codes["cpu"]["y"] - 2**27 / np.maximum(x, 1))[rest].max(), 1)
        for device in npu:  # as if the input's step were 2^-16, where the model says 2^-20
            self.assertLessEqual(np.abs(codes[device]["y"] - 2**23 / np.maximum(x, 1))[rest].max(), 24, device)
            self.assertIn("divides the number 1", self.faulty("reciprocal.u16.onnx", device, "y")["known_defect"])

    def test_a_softmax_of_bytes_has_the_zero_point_0(self):
        devices = ["htp-sim:gen1", f"htp-sim:gen3@{OLD}", f"htp-sim:gen3@{NEW}", "htp-sim:gen5"]
        codes = self.codes("softmax.u8.onnx", ["cpu", *devices], "uniform:2")
        whole = codes["cpu"]["y"] < 255  # the others are clipped
        for device in devices:  # the model's is 64
            self.assertLessEqual(np.abs(codes[device]["y"] + 64 - codes["cpu"]["y"])[whole].max(), 1, device)
            self.assertIn("with the zero point 0", self.faulty("softmax.u8.onnx", device, "y")["known_defect"])

    def test_a_softmax_in_parts_does_not_clip_its_sum(self):
        """The devices make one operation of it: the Div is no fault, and is not called known either."""
        model, devices = "shares.u8.onnx", ["htp-sim:gen1", "htp-sim:gen3", "htp-sim:gen5"]
        codes = self.codes(model, ["cpu", *devices], "uniform:8")
        for device in devices:
            e, s, y = (codes[device][edge].reshape(8, -1) for edge in ("e", "s", "y"))
            shares = e / np.maximum(e.sum(axis=1, keepdims=True), 1) * 255
            recorded = e / np.maximum(s * 6, 1) * 255
            self.assertLessEqual(np.abs(y - shares).max(), 3, device)
            self.assertGreater(np.abs(y - recorded).max(), 10, device)
        captures = [self.folder / model / f"{device[8:]}.h5" for device in devices]
        for device in json.loads(npudiff("explain", "--quantised", FOUND / model, *captures, "--json", expect=1))["devices"]:
            self.assertEqual(device["faulty"], [])
            (share,) = (layer for layer in device["layers"] if layer["name"] == "y")
            self.assertFalse(share["is_covered"])

    def test_cast_of_bytes_gives_ones(self):
        codes = self.codes("cast.u8.onnx", ["cpu", "htp-sim:gen1", "htp-sim:gen3"], "ramp")
        self.assertEqual(codes["cpu"]["y"].ravel().tolist(), list(range(256)))
        for device in ("htp-sim:gen1", "htp-sim:gen3"):
            self.assertEqual(codes[device]["y"].ravel().tolist(), [0] + 255 * [1])
            done = npudiff("explain", "--float", FOUND / "cast.u8.onnx", self.folder / "cast.u8.onnx" / f"{device[8:]}.h5", "--json", expect=1)
            (fault,) = json.loads(done)["devices"][0]["faulty"]
            self.assertEqual((fault["layer"], fault["kind"]), ("y", "saturation"))

    def test_an_input_reaches_a_concat_with_its_own_codes(self):
        devices = ["htp-sim:gen1", f"htp-sim:gen3@{OLD}", f"htp-sim:gen3@{NEW}", "htp-sim:gen5"]
        codes = self.codes("concat.u8.onnx", ["cpu", *devices], "uniform:2")
        x = codes["cpu"]["x"]
        rescaled = np.clip(np.rint((x - 100) / 2) + 50, 0, 255)
        self.assertLessEqual(np.abs(codes["cpu"]["joined"][..., 8:, :, :] - rescaled).max(), 1)
        for device in devices:
            self.assertEqual(codes[device]["joined"][..., 8:, :, :].tolist(), x.tolist(), device)
            self.assertLessEqual(np.abs(codes[device]["joined"][..., :8, :, :] - codes["cpu"]["joined"][..., :8, :, :]).max(), 1, device)
            done = npudiff("explain", "--quantised", FOUND / "concat.u8.onnx", self.folder / "concat.u8.onnx" / f"{device[8:]}.h5", "--json", expect=1)
            (layer,) = [row for row in json.loads(done)["devices"][0]["layers"] if row["name"] == "joined"]
            self.assertIn("without rescaling them", layer["known_defect"])
            self.assertEqual((layer["unexplained"], layer["certainty"]), (0, "proven"), device)
            self.assertNotIn("not measured", layer["known_defect"])

    def test_hard_swish_behind_a_matmul_adds_3_in_one_column(self):
        devices = ["htp-sim:gen1", f"htp-sim:gen3@{OLD}", f"htp-sim:gen3@{NEW}"]
        codes = self.codes("hard-swish.u8.onnx", ["cpu", *devices], "uniform:2")
        for device in devices:
            x = (codes[device]["made"] - 108) * 3 / 32
            right, without = (np.clip(np.rint(x * np.clip(x + c, 0, 6) / 6 * 18) + 7, 0, 255) for c in (3, 0))
            self.assertGreater(np.abs(right - without)[..., 1:].max(), 20)
            self.assertLessEqual(np.abs(codes[device]["y"] - right)[..., 0].max(), 1, device)
            self.assertLessEqual(np.abs(codes[device]["y"] - without)[..., 1:].max(), 1, device)
            self.assertIn("in the first column", self.faulty("hard-swish.u8.onnx", device, "y")["known_defect"])

    def test_an_add_reads_a_hard_swish_that_lacks_the_3(self):
        """It ends in a Div, whose record is right."""
        codes = self.codes("hard-swish-div.u8.onnx", ["cpu", *self.EVERY], "uniform:2")
        for device in self.EVERY:
            x = (codes[device]["made"] - 108) * 3 / 32
            right, without = (x * np.clip(x + c, 0, 6) / 6 * 18 for c in (3, 0))
            self.assertLessEqual(np.abs(codes[device]["swish"] - 7 - np.clip(right, -7, 248)).max(), 1, device)
            off = codes[device]["y"] - codes["cpu"]["y"]
            self.assertGreater(np.abs(off)[..., 1:].max(), 20, device)
            inside = (codes[device]["y"] > 0) & (codes[device]["y"] < 255) & (codes["cpu"]["y"] > 0) & (codes["cpu"]["y"] < 255)
            inside[..., 0] = False
            self.assertLessEqual(np.abs(off - (without - right))[inside].max(), 3, device)
            self.assertIn("in the first column", self.faulty("hard-swish-div.u8.onnx", device, "y")["known_defect"])

    def test_a_pad_is_recorded_with_values_that_nothing_reads(self):
        devices = ["htp-sim:gen1", f"htp-sim:gen3@{OLD}", f"htp-sim:gen3@{NEW}", "htp-sim:gen5"]
        codes = self.codes("pads.u16.onnx", devices, "uniform:2")
        for device in devices:
            padded = codes[device]["padded"][..., 1:-1, 1:-1]
            is_wrong = padded != codes[device]["wide"]
            rows = [*range(4, 8), *range(12, 16)]
            self.assertEqual(np.unique(np.argwhere(is_wrong)[:, -1]).tolist(), [0], device)   # padding of the first Pad
            self.assertEqual(np.unique(np.argwhere(is_wrong)[:, -2]).tolist(), rows, device)
            done = npudiff("explain", "--quantised", FOUND / "pads.u16.onnx", self.folder / "pads.u16.onnx" / f"{device[8:]}.h5", "--json", expect=1)
            (explained,) = json.loads(done)["devices"]
            self.assertEqual([(fault["layer"], fault["kind"]) for fault in explained["faulty"]], [("padded", "wrong-record")], device)
            (reader,) = [layer for layer in explained["layers"] if layer["name"] == "y"]
            self.assertEqual((reader["state"], reader["why_follows"], reader["unexplained"]), ("follows", "made-inputs", 0), device)

    EVERY = ["htp-sim:gen1", f"htp-sim:gen3@{OLD}", f"htp-sim:gen3@{NEW}", "htp-sim:gen5"]

    def test_rows_cut_off_a_norm_before_a_conv_crash(self):
        for device in self.EVERY:
            done = capture(FOUND / "slice-conv.u8.onnx", [device], ["uniform:1"], self.folder / device[8:], expect=None)
            self.assertNotEqual(done.returncode, 0, device)
            self.assertIn("killed by signal 11", done.stderr, device)

    def test_a_gather_of_words_leaves_its_last_codes_0(self):
        codes = self.codes("gather.u16.onnx", ["cpu", *self.EVERY], "uniform:2")
        for device in self.EVERY:
            gathered, expected = (codes[d]["y"].reshape(2, 128) for d in (device, "cpu"))
            self.assertTrue((gathered[:, :124] == expected[:, :124]).all(), device)
            self.assertTrue((gathered[:, 124:] == 0).all() and expected[:, 124:].all(), device)
            self.assertIn("in the place of the last row", self.faulty("gather.u16.onnx", device, "y")["known_defect"])

    def test_a_gather_of_bytes_leaves_its_last_row_0(self):
        codes = self.codes("gather.u8.onnx", ["cpu", *self.EVERY], "uniform:2")
        for device in self.EVERY:
            gathered, expected = (codes[d]["y"].reshape(2, 32, 8) for d in (device, "cpu"))
            self.assertTrue((gathered[:, :31] == expected[:, :31]).all(), device)
            self.assertTrue((gathered[:, 31] == 0).all() and expected[:, 31].any(), device)
            self.assertIn("in the place of the last row", self.faulty("gather.u8.onnx", device, "y")["known_defect"])

    def test_a_bias_of_more_than_32_bits_wraps(self):
        """On gen1 the zero point, 2^31 steps of the sum, is part of it."""
        codes = self.codes("bias.u8.onnx", ["cpu", *self.EVERY], "uniform:2")
        for device in self.EVERY:
            y, expected = (codes[d]["y"].reshape(2, 6, 16) for d in (device, "cpu"))
            n = 4 if "gen1" in device else 1
            self.assertTrue((y[:, :n] == 0).all() and (expected[:, :n] >= 128).all(), device)
            self.assertLessEqual(np.abs(y[:, n:] - expected[:, n:]).max(), 1, device)
            self.is_named_and_predicted("bias.u8.onnx", device, "keeps 32 bits of a bias")

    def test_a_tanh_of_a_matmul_takes_every_second_pair_of_rows(self):
        codes = self.codes("tanh-rows.u16.onnx", self.EVERY, "uniform:2")
        rows = [0, 1, 4, 5, 8, 9, 12, 13]  # of the MatMul, in the first half of the Tanh's rows
        for device in self.EVERY:
            tanh = np.rint(np.tanh((codes[device]["made"].reshape(2, 16, 24) - 32768) / 32 / 256) * 32768) + 32768
            written = codes[device]["y"].reshape(2, 16, 24)
            self.assertLessEqual(np.abs(written[:, :8] - np.clip(tanh, 0, 65535)[:, rows]).max(), 4, device)
            self.assertGreater((np.abs(written - tanh)[:, 8:] > 16).mean(), 0.5, device)
            self.assertIn("every second pair of rows", self.faulty("tanh-rows.u16.onnx", device, "y")["known_defect"])

    def test_a_softplus_in_floats_takes_parts_twice_and_writes_into_what_it_reads(self):
        """The Conv's record is that of the Softplus in 8 of 12 rows of 4 channels; Softplus and Tanh of what is recorded are others, too."""
        codes = self.codes("softplus.u8.onnx", ["cpu", *self.EVERY], "uniform:2")
        for device in self.EVERY:
            wrong = (np.abs(codes[device]["made"] - codes["cpu"]["made"]) > 1).reshape(2, 8, 12, 8)
            self.assertGreater(wrong[:, :4, :8].mean(), 0.5, device)
            self.assertLess(wrong[:, 4:].mean(), 0.1, device)
            for layer in "made", "y":
                self.assertIn("takes parts of a picture twice", self.faulty("softplus.u8.onnx", device, layer)["known_defect"])

    def test_a_constant_added_to_a_transposed_conv_becomes_a_whole_number(self):
        codes = self.codes("transposed-sum.u8.onnx", ["cpu", *self.EVERY], "uniform:2")
        for device in self.EVERY:
            y, made = (codes[device][edge].reshape(2, 8, 144) for edge in ("y", "made"))
            added = np.where((y > 0) & (y < 255), (y - 112) - (made - 128), np.nan)
            steps = np.array([0, 0, 0, 16, 16, 16, 32, 32])  # of 1/16; the model's are 3, 6, 7, 10, 21, 22, 27, 35
            self.assertLessEqual(np.nanmax(np.abs(added - steps[None, :, None])), 1, device)
            self.assertIn("rounded to a whole number", self.faulty("transposed-sum.u8.onnx", device, "y")["known_defect"])

    def test_a_hard_swish_of_a_matmul_wraps(self):
        codes = self.codes("swish-wraps.u8.onnx", ["cpu", *self.EVERY], "uniform:2")
        for device in self.EVERY:
            far = codes["cpu"]["made"] > 128 + 16 * 2.2
            self.assertGreater(far.sum(), 20)
            if "gen1" in device:
                self.assertTrue((codes[device]["y"][far] == 255).all(), device)
                continue
            self.assertTrue((codes[device]["y"][far] < 255).any(), device)
            self.is_named_and_predicted("swish-wraps.u8.onnx", device, "keeps 15 bits of the sum", is_alone=False)

    def faulty(self, model, device, name):
        """The layer `name`, which `explain` calls faulty on that device."""
        capture_file = self.folder / model / f"{device.removeprefix('htp-sim:')}.h5"
        done = npudiff("explain", "--quantised", FOUND / model, capture_file, "--json", expect=1)
        (layer,) = [row for row in json.loads(done)["devices"][0]["layers"] if row["name"] == name]
        self.assertIn(KNOWN[model.removesuffix(".onnx")], layer["known_defect"])
        return layer

    def test_every_model_of_the_table_is_here(self):
        """The two others are right: each stands beside one that is wrong."""
        models = {name for row in known_defects.found() for name in row.models}
        here = {path.name.removesuffix(".onnx") for path in FOUND.glob("*.onnx")}
        self.assertEqual((here - models, models - here), ({"matmul.int4-blocks.u16", "shares.u8"}, set()))

    def test_a_norm_of_columns_that_are_cut_off_reads_other_places(self):
        codes = self.codes("slice-norm.u8.onnx", ["cpu", *self.EVERY], "uniform:2")
        for device in self.EVERY:
            off = np.abs(codes[device]["y"] - codes["cpu"]["y"])
            if "gen1" in device:
                self.assertLessEqual(off.max(), 2)
                continue
            self.assertGreater((off > 1).mean(), 0.9, device)
            self.assertLessEqual(np.abs(codes[device]["cut_off"] - codes["cpu"]["cut_off"]).max(), 1, device)
            self.assertIn("columns that a Slice cut out", self.faulty("slice-norm.u8.onnx", device, "y")["known_defect"])

    def test_a_mean_of_columns_that_are_cut_off_begins_at_a_multiple_of_8(self):
        codes = self.codes("slice-pool.u8.onnx", ["cpu", *self.EVERY], "uniform:2")
        for device in self.EVERY:
            self.assertGreater((np.abs(codes[device]["y"] - codes["cpu"]["y"]) > 1).mean(), 0.9, device)
            self.assertTrue(bits_equal(codes[device]["cut_off"], codes[device]["made"][..., 11:15]), device)
            read = codes[device]["made"][..., 8:12]  # the Slice begins at 11
            n, _, channels, rows, columns = read.shape
            means = read.reshape(n, 1, channels, rows // 2, 2, columns // 2, 2).mean(axis=(4, 6))
            self.assertLessEqual(np.abs(codes[device]["y"] - means).max(), 1, device)
            self.assertIn("begins at a multiple of 8", self.faulty("slice-pool.u8.onnx", device, "y")["known_defect"])

    def test_a_mean_of_what_is_padded_begins_at_a_multiple_of_8(self):
        """With count_include_pad: of one row and column of padding it reads eight."""
        codes = self.codes("pad-pool.u8.onnx", ["cpu", *self.EVERY], "uniform:2")
        for device in self.EVERY:
            made, padded, y = (codes[device][edge] for edge in ("made", "padded", "y"))
            self.assertTrue(bits_equal(padded, np.pad(made, [(0, 0)] * 3 + [(1, 1)] * 2, constant_values=100)), device)
            self.assertTrue((y[..., :4, :] == 100).all() and (y[..., :4] == 100).all(), device)
            self.assertGreater((np.abs(y - codes["cpu"]["y"]) > 1).mean(), 0.8, device)
            self.assertIn("begins at a multiple of 8", self.faulty("pad-pool.u8.onnx", device, "y")["known_defect"])

    def test_codes_of_an_input_are_moved_without_being_rescaled(self):
        for model in ("depth-to-space.u8.onnx", "space-to-depth.u8.onnx"):
            codes = self.codes(model, ["cpu", *self.EVERY], "uniform:2")
            for device in self.EVERY:
                x, y = (np.sort(codes[device][edge].reshape(2, -1)) for edge in ("x", "y"))
                self.assertTrue(bits_equal(x, y), (model, device))
                self.assertGreater(np.abs(codes["cpu"]["y"] - codes[device]["y"]).max(), 30)
                self.assertIn("without rescaling them", self.faulty(model, device, "y")["known_defect"])

    def test_a_mean_of_what_is_padded_leaves_the_padding_out_of_its_count(self):
        codes = self.codes("pad-mean.u8.onnx", ["cpu", *self.EVERY], "uniform:2")
        for device in self.EVERY:
            made, y = codes[device]["made"] - 100.0, codes[device]["y"]
            corners = made[..., :: made.shape[-2] - 1, :: made.shape[-1] - 1]  # alone in their windows
            self.assertLessEqual(np.abs(y[..., ::8, ::8] - 100 - corners).max(), 1, device)
            self.assertGreater((np.abs(y - codes["cpu"]["y"]) > 1).mean(), 0.3, device)
            self.assertIn("padding out of its count", self.faulty("pad-mean.u8.onnx", device, "y")["known_defect"])

    def test_a_clip_behind_a_conv_is_left_out(self):
        """With uint8 where it cuts at one end; with uint16 always."""
        for model, most in (("clip.u8.onnx", 160), ("clip.u16.onnx", 160 * 256)):
            codes = self.codes(model, ["cpu", *self.EVERY], "uniform:2")
            self.assertLessEqual(codes["cpu"]["y"].max(), most)
            for device in self.EVERY:
                off = np.abs(codes[device]["y"] - codes[device]["made"])
                self.assertEqual(off.max(), 0, device)
                self.assertGreater((codes[device]["y"] > most).mean(), 0.2, device)
                self.assertIn("leaves out a Clip", self.faulty(model, device, "y")["known_defect"])

    def test_a_pad_of_copies_does_not_rescale_an_input(self):
        for model in ("pad.u8.onnx", "pad.u16.onnx"):
            codes = self.codes(model, ["cpu", *self.EVERY], "uniform:2")
            x = codes["cpu"]["x"].reshape(2, 4, 8, 8)
            border = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), mode="reflect")
            self.assertGreater((np.abs(codes["cpu"]["y"].reshape(border.shape) - border) > 1).mean(), 0.9)
            for device in self.EVERY:
                self.assertTrue((codes[device]["y"].reshape(border.shape) == border).all(), device)
                self.is_named_and_predicted(model, device, "a Pad with mode reflect or edge")

    def test_a_concat_does_not_rescale_what_was_moved(self):
        model = "concat-moved.u8.onnx"
        codes = self.codes(model, ["cpu", *self.EVERY], "uniform:2")
        for device in self.EVERY:
            y = codes[device]["y"].reshape(2, 12, 8, 8)
            parts = np.concatenate([codes[device][part].reshape(2, 4, 8, 8) for part in ("turned", "deep", "pooled")], 1)
            self.assertTrue((y == parts).all(), device)
            self.assertGreater((np.abs(y - codes["cpu"]["y"].reshape(y.shape)) > 2)[:, :8].mean(), 0.5, device)
            layer = self.faulty(model, device, "y")
            self.assertIn("a Concat takes over the quantised values of a SpaceToDepth", layer["known_defect"])
            self.assertEqual((layer["unexplained"], layer["certainty"]), (0, "proven"), device)
            self.assertIn("the defect predicts every value", layer["evidence"])

    def test_a_concat_does_not_rescale_a_part_of_a_split(self):
        """The scores of a head with five axes are taken as they are."""
        model = "concat-split.u8.onnx"
        codes = self.codes(model, ["cpu", *self.EVERY], "uniform:2")
        for device in self.EVERY:
            y = codes[device]["y"].reshape(2, 3, 4, 4, 10)
            self.assertTrue((y[..., 4:] == codes[device]["score"].reshape(2, 3, 4, 4, 6)).all(), device)
            self.assertTrue((y[..., :4] == codes["cpu"]["y"].reshape(y.shape)[..., :4]).all(), device)
            layer = self.faulty(model, device, "y")
            self.assertIn("a Concat of five axes takes over the quantised values of a part of a Split", layer["known_defect"])
            self.assertEqual((layer["unexplained"], layer["certainty"]), (0, "proven"), device)
            self.assertIn("the defect predicts every value", layer["evidence"])

    def test_a_max_pool_behind_a_pad_reads_other_places(self):
        for model in ("max-pool.u8.onnx", "max-pool.u16.onnx"):
            codes = self.codes(model, self.EVERY, "uniform:2")
            for device in self.EVERY:
                padded = np.pad(codes[device]["padded"].reshape(2, 8, 18, 18), ((0, 0), (0, 0), (1, 1), (1, 1)))
                windows = np.lib.stride_tricks.sliding_window_view(padded, (2, 2), (2, 3))[:, :, ::2, ::2]
                is_wrong = codes[device]["y"].reshape(2, 8, 10, 10) != windows.max((-1, -2))
                self.assertEqual(np.unique(np.argwhere(is_wrong)[:, -1]).tolist(), [0], device)
                self.assertIn("a MaxPool with padding of its own", self.faulty(model, device, "y")["known_defect"])

    def test_a_mean_of_floats_reads_other_places(self):
        codes = self.codes("average-pool.float.u8.onnx", ["cpu", *self.EVERY], "uniform:2")
        for device in self.EVERY:
            self.assertGreater((np.abs(codes[device]["y"] - codes["cpu"]["y"]) > 1).mean(), 0.9, device)
            self.assertIn("padding is not counted", self.faulty("average-pool.float.u8.onnx", device, "y")["known_defect"])

    def test_a_zero_point_of_blocks_is_added(self):
        """Weights of uint4 in blocks: scale times (code + zero point). With int4 around 0 nothing is wrong."""
        npu = ["htp-sim:gen1", "htp-sim:gen3"]
        for kind, zero_point in (("int4", 0), ("uint4", 8)):
            model = FOUND / f"matmul.{kind}-blocks.u16.onnx"
            data = model.read_bytes()
            dims, begin, end = onnx_bytes.initializers(data)["w_scale"]
            scale = np.frombuffer(data[begin:end], "<f4").reshape(dims).astype(float)
            codes = self.codes(model.name, ["cpu", *npu], "uniform:8")
            real = (codes["cpu"]["x"] - 32768) / 32 / 256
            moved = 2 * zero_point * real @ np.repeat(scale, 16, 0) * 8 * 256
            expected = np.clip(codes["cpu"]["y"] + moved, 0, 65535)
            is_inside = (codes["cpu"]["y"] > 0) & (codes["cpu"]["y"] < 65535)
            for device in npu:
                off = np.abs(codes[device]["y"] - expected)[is_inside]
                self.assertLess(np.median(off), 4, (kind, device))
                self.assertLess(off.max(), 256, (kind, device))
                print(f"# {kind}, {device}: median {np.median(off):.2f}, at most {off.max():.1f} LSB")
                error = np.abs(codes[device]["y"] - codes["cpu"]["y"]).max()
                (self.assertGreater if zero_point else self.assertLess)(error, 1000, (kind, device))


if __name__ == "__main__":
    main()
