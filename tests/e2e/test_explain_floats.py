#!/usr/bin/env python3
"""npudiff explain on captures of float models: half precision of the simulator, float32 of the CPU, and layers of them that were
spoilt afterwards."""
import json
import shutil

import h5py
import numpy as np

from support import MODELS, Scratch, capture, main, npudiff, some_digits
from write_capture import digest, seal

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
                    floats = next(la["floats"] for la in device["layers"] if la["name"] == SPOILT)
                    self.assertGreater(floats["not_finite"], 0)

    def test_text_says_which_layer_matters(self):
        text = npudiff("explain", "--float", MODEL, self.shared / "gen3.h5", expect=0)
        self.assertRegex(text, r"gen3 +HEALTHY +all 13 layers follow half-precision arithmetic")
        self.assertIn("greatest effect: the error of '", text)
        self.assertIn("every value is the exact result, rounded once", " ".join(text.split()))


if __name__ == "__main__":
    main()
