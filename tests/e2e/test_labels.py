"""Wrong labels are found: the same bytes that two captures call by other types, scales or zero points. The dumps are numpy's."""
import json
import pathlib
import tempfile
import unittest

import numpy as np

import onnx_bytes
import support
from support import MODELS, npudiff

SEED = 20261123
SCALE = 0.05


class Labels(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)
        rng = np.random.default_rng(SEED)
        self.codes = np.clip(rng.normal(128, 40, (5, 64)), 0, 255).astype(np.uint8)
        self.noisy = (self.codes + (rng.integers(0, 50, self.codes.shape) == 0)).astype(np.uint8)
        self.random = rng.integers(-128, 127, self.codes.shape).astype(np.int8)
        self.ref = self.make("ref", self.codes, SCALE, 128)

    def make(self, name, codes, scale=None, zero=None):
        np.savez(self.path / f"{name}.npz", x=codes, y=np.arange(15, dtype=np.float32).reshape(5, 3))
        flags = []
        if scale is not None:
            item = {"name": "x", "scale": scale, "zero_point": zero}
            (self.path / "map.yaml").write_text(json.dumps({"tensors": [item]}))
            flags = ["--map", self.path / "map.yaml"]
        npudiff("import", "numpy", self.path / f"{name}.npz", "-o", self.path / f"{name}.h5", "-f", "-q", *flags)
        return self.path / f"{name}.h5"

    def pair(self, *made, code):
        report = support.compare(self.ref, self.make("test", *made), expect=code)
        edge, = [e for e in report["tensors"] if e["name"] == "x"]
        return edge["pairs"][0]

    def test_signed_and_unsigned(self):
        signed = self.codes.view(np.int8)
        for codes, zero, apart in ((signed, 0, "128 steps apart (6.4)"), (signed, 127, "up to 255 steps apart"),
                                   (self.noisy.view(np.int8), 0, "128 steps apart")):
            pair = self.pair(codes, SCALE, zero, code=1)
            self.assertEqual(pair["verdict"], "differs")
            for part in ("the same bytes", "uint8 with scale 0.05, zero point 128 in 'ref'", f"int8 with scale 0.05, zero point {zero}",
                         "one label is wrong", apart):
                self.assertIn(part, pair["label"])
        zero = self.make("zero", self.codes, SCALE, 0)
        report = support.compare(zero, self.make("test", signed, SCALE, 0), expect=1)
        self.assertIn("up to 256 steps apart", report["tensors"][0]["pairs"][0]["label"])
        self.assertIn("the same bytes", self.pair(signed, code=1)["label"])
        text = npudiff("compare", self.ref, self.path / "test.h5", expect=1)
        self.assertIn("wrongly labelled:", text)
        self.assertIn("one label is wrong", " ".join(text.split()))

    def test_signed_codes_that_mean_the_same_are_the_same(self):
        shifted = (self.codes.astype(np.int64) - 128).astype(np.int8)
        pair = self.pair(shifted, SCALE, 0, code=0)
        self.assertEqual((pair["verdict"], pair["label"], pair["coverage"], pair["mixed"]), ("within", None, "full", True))

    def test_codes_against_floats_are_steps_apart(self):
        for dtype in np.float64, np.float32:
            values = ((self.codes.astype(np.int64) - 128) * float(np.float32(SCALE))).astype(dtype)
            values[1, 3] += 2.5 * SCALE
            pair = self.pair(values, code=1)
            self.assertEqual((pair["differing"], pair["max_ulp"], pair["mixed"]), (1, None, True))
            self.assertAlmostEqual(pair["max_steps"], 2.5, 4)
            self.assertIsNone(pair["tolerance"]["ulp"])
            text = npudiff("compare", self.ref, self.path / "test.h5", "-v", expect=1)
            self.assertIn("±2.5", text)
            self.assertIn("2.5 LSB", text)
            self.assertNotIn("ulp ", text.replace("max ulp ", "").replace("--ulp ", ""))

    def test_other_values_have_no_wrong_label(self):
        pair = self.pair(self.random, SCALE, 0, code=3)
        self.assertEqual((pair["label"], pair["reason"]), (None, "uint8 against int8"))
        shifted = (self.noisy.astype(np.int64) - 128).astype(np.int8)
        pair = self.pair(shifted, SCALE, 0, code=3)
        self.assertIsNone(pair["label"])
        self.assertIn("at most one step apart", pair["reason"])
        few = np.full((5, 64), 200, np.uint8)  # one code proves nothing
        constant = self.make("constant", few, SCALE, 128)
        report = support.compare(constant, self.make("test", few.view(np.int8), SCALE, 0), expect=3)
        self.assertIsNone(report["tensors"][0]["pairs"][0]["label"])

    def test_scales_and_zero_points(self):
        for scale, zero in ((0.1, 128), (SCALE, 120), (0.1, 120), (SCALE, 129)):
            pair = self.pair(self.codes, scale, zero, code=1)
            for part in ("the same bytes in all 320 elements", f"scale {scale:g}, zero point {zero} in 'test'", "one label is wrong"):
                self.assertIn(part, pair["label"])
        self.assertEqual(self.pair(self.codes, SCALE * (1 + 2e-7), 128, code=0)["verdict"], "within")
        pair = self.pair(self.codes, code=3)
        self.assertIn("'test' does not state their scale", pair["reason"])
        recalibrated = np.clip((self.codes.astype(np.int64) - 128) / 1.3 + 128, 0, 255).round().astype(np.uint8)
        self.assertIsNone(self.pair(recalibrated, SCALE * 1.3, 128, code=3)["label"])


    def test_codes_of_16_bits_that_are_many_steps_off(self):
        """A device's own differences are some forty steps there: the labels are wrong all the same."""
        rng = np.random.default_rng(SEED)
        codes = np.clip(rng.normal(33000, 8000, (5, 64)), 0, 65535).astype(np.uint16)
        rough = np.clip(codes + rng.normal(0, 40, codes.shape), 0, 65535).astype(np.uint16)
        self.ref = self.make("ref", codes, SCALE, 128)
        for scale, zero in ((SCALE * 2, 100), (SCALE * 0.8, 20), (SCALE, 4000)):
            pair = self.pair(rough, scale, zero, code=1)
            for part in ("nearly the same quantised values: ", "steps apart", f"scale {scale:g}, zero point {zero} in 'test'", "one label is wrong"):
                self.assertIn(part, pair["label"])
        for scale, zero in ((SCALE, 129), (SCALE * 1.002, 128)):  # less than what the device is off by: nobody is accused
            self.assertIsNone(self.pair(rough, scale, zero, code=3)["label"])
        recalibrated = np.clip((rough - 128.0) / 1.3 + 128, 0, 65535).round().astype(np.uint16)
        self.assertIsNone(self.pair(recalibrated, SCALE * 1.3, 128, code=3)["label"])
        self.ref = self.make("ref", codes)
        self.assertIn("nearly the same quantised values: ", self.pair(rough.view(np.int16), code=1)["label"])


    def test_floats_called_something_else(self):
        """The same bytes as floats and as integers; half precision and bfloat16; a device's own rounding beside."""
        rng = np.random.default_rng(SEED)
        values = np.float32(rng.normal(0, 2, (5, 64)))
        rough = np.float32(values * (1 + 2e-3 * rng.normal(0, 1, values.shape)))
        self.ref = self.make("ref", values)
        for codes in (values, rough):
            pair = self.pair(codes.view(np.int32), code=1)
            for part in ("the same bytes in ", "called float32 in 'ref' and int32 in 'test': one label is wrong"):
                self.assertIn(part, pair["label"])
        self.assertIsNone(self.pair(np.int32(values * 100), code=3)["label"])  # they are integers
        half = np.float16(rough)
        for stored, called, actual in ((half.view(np.uint16), "bfloat16", "float16"), (self.bfloat16(rough).view(np.float16), "float16", "bfloat16")):
            report = support.compare(self.ref, self.make_called("test", stored, called), expect=1)
            (found,) = [g for g in report["diagnoses"] if g["fault"]]
            self.assertEqual(found["kind"], "wrong-type")
            self.assertIn(f"called {called}, but the bytes are {actual}", found["text"])
        right = support.compare(self.ref, self.make_called("test", self.bfloat16(rough), "bfloat16"), expect=1)
        self.assertEqual([g for g in right["diagnoses"] if g["fault"]], [])
        # The reference's label is wrong: read as half precision it is what the test has.
        self.ref = self.make_called("ref", half.view(np.uint16), "bfloat16")
        report = support.compare(self.ref, self.make("test", rough), expect=1)
        self.assertIn("the reference's are called bfloat16, but the bytes are float16", report["diagnoses"][0]["text"])

    def test_bytes_of_another_width(self):
        """Half precision in a buffer of floats that is twice as long, or half as many floats; what only looks like it is left alone."""
        rng = np.random.default_rng(SEED)
        values = np.float32(rng.normal(0, 2, (5, 64)))
        half, codes = np.float16(values), np.uint8(rng.integers(0, 255, (5, 64)))
        room = np.concatenate([half.view(np.float32), np.zeros((5, 32), np.float32)], 1)
        for stored, text in ((room, "called float32, but the bytes are float16: the first half of the buffer holds all of the reference's values, 2 in each float32"),
                             (np.float16(rng.normal(0, 2, (5, 64))), None)):
            self.ref = self.make("ref", values)
            report = support.compare(self.ref, self.make("test", stored), expect=1)
            self.assertEqual([g["text"] for g in report["diagnoses"] if g["kind"] == "wrong-type"], [text] if text else [])
        for right, stored, text in ((values, half.view(np.float32), "'test' calls the bytes 32 float32; read as 64 float16 they are the values of 'ref'"),
                                    (half.view(np.float32), values, "'ref' calls the bytes 32 float32; read as 64 float16 they are the values of 'test'"),
                                    (codes, codes.view(np.uint16), "'test' calls the bytes 32 uint16; read as 64 uint8 they are the values of 'ref'"),
                                    (values, values.view(np.uint16), "'test' calls the bytes 128 uint16; read as 64 float32 they are the values of 'ref'"),
                                    (values, np.float32(rng.normal(0, 2, (5, 32))), None), (codes, np.uint8(rng.integers(0, 255, (5, 32))), None)):
            self.ref = self.make("ref", right)
            pair = self.pair(stored, code=1 if text else 3)
            self.assertEqual(pair["label"], text and text + ": the type is wrong")
        self.ref = self.make("ref", values.reshape(5, 1, 4, 4, 4)[:, :, :, :, :3])
        for shape, said in ((values.reshape(5, 1, 4, 4, 4)[:, :, :, :, :3].transpose(0, 1, 4, 2, 3), ", with the axes in the order 0, 3, 1, 2"),
                            (values.reshape(5, 1, 4, 4, 4)[:, :, :, :, :3].reshape(5, 48), ", in the same order"), (values[:, :48], None)):
            pair = self.pair(np.ascontiguousarray(shape), code=3)
            self.assertEqual("the values are the reference's" + said in pair["reason"] if said else "values are" not in pair["reason"], True)

    def bfloat16(self, values):
        bits = np.float32(values).view(np.uint32).astype(np.uint64)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)

    def make_called(self, name, array, dtype):
        np.savez(self.path / f"{name}.npz", x=array, y=np.arange(15, dtype=np.float32).reshape(5, 3))
        item = {"name": "x", "dtype": dtype} if array.dtype == np.uint16 else {"name": "x"}
        (self.path / "map.yaml").write_text(json.dumps({"tensors": [item]}))
        npudiff("import", "numpy", self.path / f"{name}.npz", "-o", self.path / f"{name}.h5", "-f", "-q", "--map", self.path / "map.yaml")
        return self.path / f"{name}.h5"


class Layers(unittest.TestCase):
    """What `explain` says of dumps of a whole model: every tensor but one is what the model gives."""

    @classmethod
    def setUpClass(cls):
        cls.shared = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.shared.cleanup)
        cls.path = pathlib.Path(cls.shared.name)
        cls.dumps = {m: cls.dump(MODELS / m) for m in ("cnn.w8a8.onnx", "vit.w8a8.onnx")}

    @classmethod
    def dump(cls, model):
        support.capture(model, ["cpu"], ["uniform:6"], cls.path / "real.h5", "-f")
        with support.Capture(cls.path / "real.h5") as capture:
            np.savez(cls.path / f"{model.name}.in.npz", image=capture.file["probes/uniform/inputs/image"][:])
            return {name: capture.values("uniform", name) for name in capture.edges}

    def explain(self, model, arrays, expect=1):
        np.savez(self.path / "o.npz", **arrays)
        npudiff("import", "numpy", self.path / "o.npz", "--model", MODELS / model, "--inputs", self.path / f"{model}.in.npz",
                "--probe", "uniform", "-o", self.path / "o.h5", "-f", "-q")
        done = npudiff("explain", "--quantised", MODELS / model, self.path / "o.h5", "--json", expect=None)
        self.assertIn(done.returncode, (0, 1, 4) if expect is None else (expect,), done.stderr)
        report = json.loads(done.stdout)
        return {f["layer"]: f for f in report["devices"][0]["faulty"]}

    def changed(self, model, changes):
        """The dump of the model with other bytes for some initializers."""
        data = bytearray((MODELS / model).read_bytes())
        found = onnx_bytes.initializers(bytes(data))
        for name, change in changes.items():
            dims, begin, end = found[name]
            data[begin:end] = change(bytes(data[begin:end]), dims)
        (self.path / model.replace(".", "-changed.", 1)).write_bytes(bytes(data))
        return self.dump(self.path / model.replace(".", "-changed.", 1))

    def test_what_is_as_it_should_be_has_no_fault(self):
        for model, arrays in self.dumps.items():
            self.assertEqual(self.explain(model, arrays, expect=0), {})

    def test_transposed_weights(self):
        def turn(data, dims):
            return np.ascontiguousarray(np.frombuffer(data, np.int8).reshape(dims).T).tobytes()
        faults = self.explain("vit.w8a8.onnx", self.changed("vit.w8a8.onnx", {"block1/attn/v.weight_quantized": turn}))
        found, = faults.items()
        self.assertIn("block1/attn/v", found[0])
        self.assertEqual(found[1]["kind"], "transposed-weights")
        self.assertIn("weights are transposed", found[1]["text"])

    def test_output_alone_that_is_one_code(self):
        """No layer can be examined, but no arithmetic makes one code of all samples."""
        logits = self.dumps["cnn.w8a8.onnx"]["logits"]
        for arrays, code, health in (({"logits": logits}, 4, "inconclusive"), ({"logits": np.zeros_like(logits)}, 1, "faulty")):
            self.explain("cnn.w8a8.onnx", arrays, expect=None)
            report = json.loads(npudiff("explain", "--quantised", MODELS / "cnn.w8a8.onnx", self.path / "o.h5", "--json", expect=code))
            self.assertEqual(report["verdict"], health)

    def test_unsigned_codes_called_signed(self):
        arrays = dict(self.dumps["cnn.w8a8.onnx"])
        arrays["pointwise/relu"] = arrays["pointwise/relu"].view(np.int8)
        self.explain("cnn.w8a8.onnx", arrays, expect=None)
        self.assertIn("int8, where the model has uint8", support.info(self.path / "o.h5")["attributes"]["import"]["types"])
        report = json.loads(npudiff("explain", "--quantised", MODELS / "cnn.w8a8.onnx", self.path / "o.h5", "--json", expect=None).stdout)
        self.assertEqual([(f["tensor"], f["kind"]) for f in report["devices"][0]["findings"]], [("pointwise/relu", "wrong-type")])
        self.assertEqual(report["verdict"], "faulty")
        self.assertEqual([u["name"] for u in report["devices"][0]["layers"] if u["state"] == "faulty"][:1], ["pointwise/relu"])
        np.savez(self.path / "o.npz", **arrays)
        (self.path / "map.yaml").write_text(json.dumps({"tensors": [{"name": "pointwise/relu", "dtype": "uint8"}]}))
        npudiff("import", "numpy", self.path / "o.npz", "--model", MODELS / "cnn.w8a8.onnx", "--map", self.path / "map.yaml",
                "-o", self.path / "o.h5", "-f", "-q")
        with support.Capture(self.path / "o.h5") as capture:
            stored = capture.values("numpy", "pointwise/relu")
        self.assertEqual((stored.dtype, stored.tolist()), (np.uint8, self.dumps["cnn.w8a8.onnx"]["pointwise/relu"].tolist()))

    def test_an_encoding_of_another_tensor(self):
        arrays = dict(self.dumps["cnn.w8a8.onnx"])
        dump = self.changed("cnn.w8a8.onnx", {
            "pointwise/relu_scale": lambda data, _: (np.frombuffer(data, np.float32) * np.float32(1.25)).tobytes(),
            "pointwise/relu_zero_point": lambda data, _: bytes([21])})
        arrays["pointwise/relu"] = dump["pointwise/relu"]
        faults = self.explain("cnn.w8a8.onnx", arrays)
        self.assertEqual(faults["pointwise/relu"]["kind"], "scale-and-zero-point")
        self.assertAlmostEqual(faults["pointwise/relu"]["amount"], 0.8, delta=0.01)
        self.assertIn("+21", faults["pointwise/relu"]["text"])

    def test_permuted_axes_beside_single_steps(self):
        rng = np.random.default_rng(SEED)
        arrays = dict(self.dumps["cnn.w8a8.onnx"])
        codes = arrays["depthwise/relu"]  # [S, 1, C, H, W] as [S, 1, H, W, C]
        moved = np.moveaxis(codes, 2, -1).reshape(codes.shape).astype(np.int64)
        steps = (rng.integers(0, 10, moved.shape) == 0) * rng.choice([-1, 1], moved.shape)
        arrays["depthwise/relu"] = np.clip(moved + steps, 0, 255).astype(np.uint8)
        faults = self.explain("cnn.w8a8.onnx", arrays)
        self.assertEqual(faults["depthwise/relu"]["kind"], "axis-permutation")
        self.assertIn("single steps besides", faults["depthwise/relu"]["text"])


if __name__ == "__main__":
    support.main()
