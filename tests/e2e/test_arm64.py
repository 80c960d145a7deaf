"""The agent on 64-bit Arm Linux, under user-mode emulation, is one more device: equal to x86-64 in what is exact, and not
in every last bit of what is rounded on the way. npudiff starts a script as its agent, and that the emulator; where there is
adbd, the same agent is also behind adb."""
import os
import subprocess
import sys

import numpy as np

import arm64
import phones
from phone_captures import device_facts, differences
from support import MODELS, Scratch, bits_equal, capture, compare, main, some_digits, text

# ---- a model in a few lines: ONNX is protocol buffers ----


def field(number, value):
    """One field of a message: an int, a float, bytes, text, or another message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint(value):
    value, out = value % 2**64, b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def tensor(name, array, dtype):
    dims = b"".join(field(1, n) for n in array.shape)
    return field(5, dims + field(2, dtype) + field(8, name) + field(9, array.tobytes()))


def value(number, name, dtype, *shape):
    dims = b"".join(field(1, field(1, n)) for n in shape)
    return field(number, field(1, name) + field(2, field(1, field(1, dtype) + field(2, dims))))


def node(op_type, inputs, output):
    return field(1, b"".join(field(1, i) for i in inputs) + field(2, output) + field(3, output) + field(4, op_type))


FLOAT, UINT8 = 1, 2


def write_softmax(path):
    """Codes -> MatMul, requantised to codes -> Softmax in float. All scales are powers of two, so that up to the codes every
    value is an integer times one of them, no sum is rounded, and its order counts for nothing."""
    weights = np.random.default_rng(7).integers(0, 256, (32, 32), dtype=np.uint8)
    scalar = lambda v: np.asarray(v, dtype=np.float32)
    graph = b"".join([
        node("DequantizeLinear", ["x", "x_scale", "zero"], "x_real"),
        node("DequantizeLinear", ["w", "w_scale", "zero"], "w_real"),
        node("MatMul", ["x_real", "w_real"], "product_real"),
        node("QuantizeLinear", ["product_real", "y_scale", "zero"], "product"),
        node("DequantizeLinear", ["product", "y_scale", "zero"], "scores"),
        node("Softmax", ["scores"], "probabilities"),
        field(2, "softmax"),
        tensor("x_scale", scalar(2**-6), FLOAT), tensor("w_scale", scalar(2**-7), FLOAT), tensor("y_scale", scalar(2**-4), FLOAT),
        tensor("zero", np.asarray(128, dtype=np.uint8), UINT8), tensor("w", weights, UINT8),
        value(11, "x", UINT8, 64, 32), value(12, "product", UINT8, 64, 32), value(12, "probabilities", FLOAT, 64, 32)])
    path.write_bytes(field(1, 8) + field(8, field(1, "") + field(2, 17)) + field(7, graph))


def ulp_distance(a, b):
    """Of two arrays of float32, element by element: how many floats lie between."""
    keys = [np.where(bits < 0, np.int64(-2**31) - bits, bits) for bits in (x.view(np.int32).astype(np.int64) for x in (a, b))]
    return np.abs(keys[0] - keys[1])


class Arm64(Scratch):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.environment = dict(os.environ, **arm64.environment_here(cls.shared))
        cls.digits = some_digits(cls.shared / "digits.npz", 20)

    def emulated(self, model, probe, path):
        """A capture by the script."""
        capture(model, [f"cpu@{arm64.HERE}"], [probe], path, env=self.environment)
        return path

    def both(self, model, probe):
        """Captures of the model on x86-64 and on emulated arm64, by the same version of ONNX Runtime."""
        here = self.folder / "x86.h5"
        capture(model, [f"cpu@{arm64.SAME_AS}"], [probe], here)
        return here, self.emulated(model, probe, self.folder / "arm64.h5")

    def test_codes_are_equal_where_arithmetic_is_exact_and_softmax_is_some_ulp_apart(self):
        write_softmax(self.folder / "softmax.onnx")
        np.savez(self.folder / "codes.npz", x=np.random.default_rng(8).integers(0, 256, (16, 64, 32), dtype=np.uint8))
        here, there = self.both(self.folder / "softmax.onnx", f"codes={self.folder / 'codes.npz'}")
        a, b = self.open(here), self.open(there)
        self.assertEqual(b.status, "complete")
        self.assert_bits_equal(a.values("codes", "product"), b.values("codes", "product"), "product")
        self.assert_bits_equal(a.digests("codes", "product"), b.digests("codes", "product"), "digests")
        self.assertGreater(len(np.unique(a.values("codes", "product"))), 50)
        distance = ulp_distance(a.values("codes", "probabilities"), b.values("codes", "probabilities"))
        print(f"# softmax: {np.count_nonzero(distance)} of {distance.size} differ, by up to {distance.max()} ULP")
        self.assertGreater(np.count_nonzero(distance), 0)
        self.assertLessEqual(distance.max(), 16)

    def test_codes_of_quantised_models_differ_seldom_and_by_one(self):
        for model in ("cnn.w8a8.onnx", "vit.w8a8.onnx"):
            with self.subTest(model):
                here, there = self.both(model, self.digits)
                a, b = self.open(here), self.open(there)
                self.assertEqual(a.edges, b.edges)
                self.assert_bits_equal(a.values("digits", "image"), b.values("digits", "image"), "image")
                steps = [np.abs(a.values("digits", e).astype(int) - b.values("digits", e)).ravel() for e in a.edges]
                steps = np.concatenate(steps)
                print(f"# {model}: {np.count_nonzero(steps)} of {steps.size} codes differ")
                self.assertGreater(steps.size, 100000)
                self.assertLessEqual(np.count_nonzero(steps), steps.size // 10000)
                self.assertLessEqual(steps.max(), 1)
                self.assertEqual(compare(here, there, expect=int(steps.any()))["verdict"],
                                 "differs" if steps.any() else "same")
                here.unlink(), there.unlink()

    def test_a_float_model_is_a_class_of_its_own(self):
        here, there = self.both("cnn.float.onnx", self.digits)
        report = compare(here, there, expect=1)
        self.assertEqual(report["verdict"], "differs")
        a, b = self.open(here), self.open(there)
        apart = {edge for edge in a.edges if not bits_equal(a.values("digits", edge), b.values("digits", edge))}
        self.assertIn("logits", apart)
        self.assertEqual({e["name"] for e in report["tensors"] if e["groups"] == [0, 1]}, apart)
        # Sums in another order, and nothing worse.
        self.assertLess(np.abs(a.values("digits", "logits") - b.values("digits", "logits")).max(), 1e-4)

    def test_the_capture_names_the_library_of_arm64(self):
        runtime = self.open(self.both("cnn.w8a8.onnx", "ones")[1]).file["runtime"].attrs
        ids = {text(v): text(runtime[k.replace("_path", "_build_id")]) for k, v in runtime.items() if k.endswith("_path")}
        library = next(path for path in ids if "/libonnxruntime.so." in path)
        notes = subprocess.run(["readelf", "-h", "-n", library], capture_output=True, text=True, check=True).stdout
        self.assertIn("AArch64", notes)
        self.assertIn(f"Build ID: {ids[library]}", notes)

    def test_a_phone_behind_adb_gives_the_same_bits(self):
        reason = phones.missing("adb", "adbd")
        if reason is not None:
            self.skipTest(reason)
        there = self.folder / "adb.h5"
        with phones.Shelf() as shelf:
            phone = shelf.phone("gen3", arm64=True)
            done = shelf.run("capture", MODELS / "cnn.float.onnx", "-d", phone.uri(f"cpu@{arm64.RUNTIME}"), "-p",
                             self.digits, "-o", there, "-q")
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(device_facts(there)["machine_abi"], "aarch64-linux")
        here = self.emulated("cnn.float.onnx", self.digits, self.folder / "arm64.h5")
        self.assertEqual(differences(here, there), [])


if __name__ == "__main__":
    try:
        arm64.launcher(), arm64.agent(), arm64.runtime()
    except arm64.Missing as reason:
        print(f"1..0 # SKIP {reason}")
        sys.exit(0)
    main()
