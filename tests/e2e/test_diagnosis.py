#!/usr/bin/env python3
"""What the values of captures show without a model: NumPy dumps of broken devices, and healthy devices of every kind."""
import json
import os

import h5py
import numpy as np

from support import MODELS, Scratch, capture, main, npudiff, some_digits, stored_name, text
from test_diagnosis_states import Changed
from write_capture import content_digest, digest, fixed

SEED = 20261122
SAMPLES = 6
SCALE = 0.03125  # of uint8 codes
SHAPE = (SAMPLES, 1, 8, 12, 12)


def to_bfloat16(values, rounds=True):
    """Bits of bfloat16: rounded half to even, or cut."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32).astype(np.uint64)
    if rounds:
        bits = bits + 0x7fff + (bits >> 16 & 1)
    return (bits >> 16).astype(np.uint16)


def cut_to_half(values):
    half = values.astype(np.float16)
    over = np.abs(half.astype(np.float64)) > np.abs(values.astype(np.float64))
    return np.where(over, np.nextafter(half, np.float16(0)), half)


class Dumps(Scratch):
    """Two dumps, imported without a model. A dump is {tensor: array}; bits of bfloat16 are uint16."""

    def setUp(self):
        super().setUp()
        self.seed = int(os.environ.get("ND_SEED", SEED))
        self.random = np.random.default_rng([self.seed, sum(map(ord, self.id()))])
        print(f"# ND_SEED={self.seed}")

    def normal(self, scale=1.0):
        return (scale * self.random.standard_normal(SHAPE)).astype(np.float32)

    def load(self, name, tensors):
        np.savez(self.folder / f"{name}.npz", **tensors)
        items = "".join(f"  - {{name: {t}, dtype: bfloat16}}\n" for t, x in tensors.items() if x.dtype == np.uint16)
        items += "".join(f"  - {{name: {t}, scale: {SCALE}, zero_point: 100}}\n" for t, x in tensors.items() if x.dtype == np.uint8)
        arguments = []
        if items:
            (self.folder / "map.yaml").write_text("tensors:\n" + items)
            arguments = ["--map", self.folder / "map.yaml"]
        npudiff("import", "numpy", self.folder / f"{name}.npz", "-o", self.folder / f"{name}.h5", "--probe", "p", "-f", *arguments)
        return self.folder / f"{name}.h5"

    def diagnose(self, ref, test, *arguments):
        done = npudiff("compare", self.load("ref", ref), self.load("test", test), "--json", *arguments, expect=None)
        self.assertIn(done.returncode, (0, 1), done.stderr)
        return json.loads(done.stdout)

    def assert_found(self, ref, test, kind, says=(), tensor="y"):
        """Named, and nothing but it accuses the device."""
        found = self.diagnose(ref, test)["diagnoses"]
        here = [d for d in found if d["tensor"] == tensor and d["kind"] == kind]
        self.assertEqual(len(here), 1, found)
        for part in [says] if isinstance(says, str) else says:
            self.assertIn(part, here[0]["text"])
        self.assertEqual({d["kind"] for d in found if d["fault"]} - {kind}, set(), found)
        return here[0]

    def assert_no_fault(self, ref, test):
        found = self.diagnose(ref, test)["diagnoses"]
        self.assertEqual([d for d in found if d["fault"]], [])
        return found

    def forms(self, values):
        """The same values as a device of each float type has them, rounded."""
        return {"float32": values * np.float32(1 + 1e-7), "float16": values.astype(np.float16),
                "bfloat16": to_bfloat16(values)}

    def test_rounding_to_a_narrower_type_is_no_fault(self):
        x, y = self.normal(), self.normal()
        for name, stored in self.forms(y).items():
            with self.subTest(type=name):
                self.assert_no_fault({"x": x, "y": y}, {"x": x, "y": stored})

    def test_truncation(self):
        y = self.normal()
        for stored in (cut_to_half(y), cut_to_half(y).astype(np.float32), to_bfloat16(y, rounds=False)):
            with self.subTest(type=stored.dtype):
                found = self.assert_found({"y": y}, {"y": stored}, "truncation", ["cut toward zero", "not rounded"])
                self.assertLess(found["log10_chance"], -100)

    def test_half_precision_of_few_values(self):
        y = self.normal().reshape(SAMPLES, -1)[:1, :4]
        found = self.assert_no_fault({"y": y}, {"y": y.astype(np.float16).astype(np.float32)})
        self.assertEqual([d["kind"] for d in found], ["fp16-grid"])
        self.assertAlmostEqual(found[0]["log10_chance"], 4 * np.log10(3 / 8192), places=6)
        self.assertEqual(self.diagnose({"y": y[:, :1]}, {"y": y[:, :1].astype(np.float16).astype(np.float32)})["diagnoses"], [])

    def test_gross_faults_of_every_type(self):
        x, y = self.normal(), self.normal()
        late, window, rows = y.copy(), y.copy(), y.copy()
        late[1:] = y[:-1]
        window[:, 0, 2, 3:6] = window[:1, 0, 2, 3:6]
        rows[..., 4:] = rows[..., :8]
        rows[..., 8:] = rows[..., :4]
        cases = {"stale": (late, "the result of the sample before it"),
                 "passed-through": (x, "equal to 'x'"),
                 "saturation": (np.clip(1.5 * y, -2, 2), "clamped at both ends, to -2..2, values between are 1.5"),
                 "wrap": (y - 2 * np.rint(y / 2), "off by multiples of 2"),
                 "hard-cliff": (np.where(y > 1.5, 0, y), "0 where the value is 1.5"),
                 "unwritten-window": (window, "the same values in every sample"),
                 "periodic": (rows, "repeat themselves after 4 elements"),
                 "all-zero": (0 * y, "every value is 0")}
        for kind, (broken, says) in cases.items():
            for name, stored in self.forms(broken.astype(np.float32)).items():
                with self.subTest(kind=kind, type=name, seed=self.seed):
                    self.assert_found({"x": x, "y": y}, {"x": x, "y": stored}, kind, says if name == "float32" else ())

    def test_stale_operand(self):
        a, b = self.normal(), self.normal()
        late = a.copy()
        late[1:] = a[:-1]
        ref = {"a": a, "b": b, "y": a + b}
        self.assert_found(ref, {"a": a, "b": b, "y": late + b}, "stale-operand", "computed with 'a' of the previous sample")
        self.assert_found({**ref, "y": a * b}, {"a": a, "b": b, "y": late * b}, "stale-operand", "'a'")

    def test_overflow_is_explained(self):
        y = self.normal(30000)
        with np.errstate(over="ignore"):
            half = y.astype(np.float16)
        self.assertGreater(np.isinf(half).sum(), 10)
        self.assert_found({"y": y}, {"y": half}, "hard-cliff", ["infinite where the magnitude", "half precision ends at 65504"])
        x = self.normal(5)
        ref, test = np.cos(x), np.cos(x).astype(np.float16) # whatever comes after an exp of x
        test[x > 11.0899] = np.nan
        self.assert_found({"x": x, "y": ref}, {"x": x, "y": test}, "hard-cliff",
                          ["NaN where the value of 'x' is 11.",  "exp of more than 11.09 overflows half precision"])
        report = npudiff("compare", self.load("ref", {"y": self.normal()}), self.load("test", {"y": self.normal().astype(np.float16)}),
                         "-v", expect=1)
        self.assertIn("do not come near the end of half precision", " ".join(report.split()))

    def test_step_function(self):
        x = 10 * self.normal()
        x[..., ::5] = np.rint(x[..., ::5]) + np.float32(1e-5)
        moved = x.copy()
        moved[..., ::5] -= np.float32(2e-5)
        found = self.assert_no_fault({"x": x, "y": np.ceil(x)}, {"x": moved, "y": np.ceil(moved)})
        self.assertEqual([(d["tensor"], d["kind"]) for d in found], [("y", "step")])
        self.assertIn("Ceil amplifies: its input 'x'", found[0]["text"])

    def test_step_function_of_codes_and_argmax(self):
        x = self.random.integers(0, 250, SHAPE).astype(np.uint8)
        x[:, :, :, 0] = 132 # 1.0: one step more gives 2.0
        moved = x.copy()
        moved[:, :, :, 0] += 1
        ceil = [np.clip(np.rint(np.ceil(SCALE * (c.astype(float) - 100)) / SCALE) + 100, 0, 255).astype(np.uint8) for c in (x, moved)]
        found = self.assert_no_fault({"x": x, "y": ceil[0]}, {"x": moved, "y": ceil[1]})
        self.assertEqual([(d["tensor"], d["kind"]) for d in found], [("y", "step")])
        logits = self.normal()
        logits[:, 0, 0, :3] = logits[:, 0, 1, :3] + np.float32(1e-5) + 10
        logits[:, 0, 1, :3] += 10
        near = logits.copy()
        near[:, 0, 0, :3] -= np.float32(1e-4)
        index = [np.argmax(values, axis=2).astype(np.int64) for values in (logits, near)]
        self.assertGreater((index[0] != index[1]).sum(), 10)
        found = self.assert_no_fault({"x": logits, "y": index[0]}, {"x": near, "y": index[1]})
        self.assertEqual([(d["tensor"], d["kind"]) for d in found], [("y", "step")])
        self.assertIn("ArgMax amplifies", found[0]["text"])

    def test_comparisons(self):
        """Values that are multiples of 1/32: every eighth moves by one where the two tensors are equal."""
        a, b = (np.float32(np.rint(self.normal(32))) / 32 for _ in range(2))
        a[..., ::4] = b[..., ::4]
        moved = a.copy()
        moved[..., ::8] += np.float32(1 / 32)
        for function, says in ((np.greater, "Greater or Less"), (np.equal, "Equal")):
            ref, test = ({"a": x, "b": b, "y": function(x, b)} for x in (a, moved))
            self.assert_found(ref, test, "step", (says, "by at most 0.0312 in the"))
        ref, test = ({"a": x, "y": x < np.float32(0.5)} for x in (a, moved))
        self.assert_found(ref, test, "step", ("Greater or Less (a constant from", "'a' differs by at most 0.0312"))

    def test_growth_over_depth(self):
        layers = [self.normal() for _ in range(12)]
        laws = {"linear": lambda k: k + 1, "constant-rate": lambda k: 1.5**k, "none": lambda k: 1}
        for growth, law in laws.items():
            with self.subTest(growth=growth):
                errors = [1e-4 * law(k) * self.normal() for k in range(12)]
                report = self.diagnose({f"l{k:02}": x for k, x in enumerate(layers)},
                                       {f"l{k:02}": x + e for k, (x, e) in enumerate(zip(layers, errors))})
                self.assertEqual(report["depth"][0]["growth"], growth)
                self.assertEqual(report["diagnoses"], [])
                if growth == "constant-rate":
                    self.assertAlmostEqual(report["depth"][0]["factor"], 1.5, delta=0.05)

    def test_signed_statistics(self):
        y = np.abs(self.normal()) + 1
        low = (y * np.float32(1 - 1e-3)).astype(np.float32)
        pair = self.diagnose({"y": y}, {"y": low})["tensors"][0]["pairs"][0]
        self.assertEqual((pair["share_below"], pair["share_above"]), (1, 0))
        self.assertAlmostEqual(pair["signed_mean"], float((low.astype(np.float64) - y).mean()), delta=1e-9)
        codes = self.random.integers(20, 200, SHAPE).astype(np.uint8)
        pair = self.diagnose({"y": codes}, {"y": codes - np.uint8(1)})["tensors"][0]["pairs"][0]
        self.assertEqual((pair["share_below"], pair["signed_mean"]), (1, -SCALE))

    def test_ties_of_a_quantiser(self):
        """A quarter of the inputs are ties; the values differ there alone."""
        x = (SCALE / 4 * np.rint(60 * self.normal())).astype(np.float32)
        quotient = x.astype(np.float64) / SCALE
        rules = {"to even": np.rint(quotient), "up": np.floor(quotient + 0.5), "down": np.ceil(quotient - 0.5),
                 "away from zero": np.copysign(np.floor(np.abs(quotient) + 0.5), quotient)}
        codes = {rule: np.clip(rounded + 100, 0, 255).astype(np.uint8) for rule, rounded in rules.items()}
        for rule in ("up", "down", "away from zero"):
            with self.subTest(rule=rule):
                found = self.assert_no_fault({"x": x, "y": codes["to even"]}, {"x": x, "y": codes[rule]})
                self.assertEqual([(d["tensor"], d["kind"]) for d in found], [("y", "ties")])
                self.assertIn(f"the reference rounds half to even, the test half {rule}", found[0]["text"])
        broken = codes["up"].copy()
        broken[quotient % 1 == 0.25] += 1
        found = self.diagnose({"x": x, "y": codes["to even"]}, {"x": x, "y": broken})["diagnoses"]
        self.assertNotIn("ties", [d["kind"] for d in found])


def seal(path, edge, values):
    """The digests of a changed edge follow, those of later runs are of `values`, and so does the file's."""
    with h5py.File(path, "r+") as file:
        table = file[f"probes/digits/digests/{stored_name(edge)}"]
        digests = table[()]
        first = file[f"probes/digits/outputs/{stored_name(edge)}"][()]
        for sample in range(len(first)):
            digests[sample, 0] = digest(first[sample])
            digests[sample, 1:] = digest(values[sample])
        table[...] = digests
        file["probes/digits"].pop("edge_digests", None)
        text = fixed([content_digest(file)])
        file.attrs.pop("content_digest")
        file.attrs.create("content_digest", text[0], dtype=text.dtype)


class Captures(Scratch):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.probe = some_digits(cls.shared / "digits.npz", 12)
        for model in ("cnn.w8a8", "cnn.float"):
            capture(f"{model}.onnx", ["cpu", "htp-sim:gen1", "htp-sim:gen3"], [cls.probe], cls.shared / model)

    def test_healthy_devices_are_not_accused(self):
        for model in ("cnn.w8a8", "cnn.float"):
            with self.subTest(model=model):
                report = json.loads(npudiff("compare", *(self.shared / model / f"{d}.h5" for d in ("cpu", "gen1", "gen3")),
                                            "--json", expect=1))
                self.assertEqual([d for d in report["diagnoses"] if d["fault"]], [])
        found = json.loads(npudiff("explain", "--float", MODELS / "cnn.float.onnx", self.shared / "cnn.float/gen1.h5", "--json",
                                   expect=None).stdout)["devices"][0]["findings"]
        self.assertEqual(found, []) # half precision is how an HTP computes floats

    def test_operand_of_the_previous_sample(self):
        """An Add of codes whose second operand is late: with the model, and with captures alone."""
        def dequantised(file, name):
            stored = file[f"probes/digits/outputs/{stored_name(name)}"]
            return stored.attrs["scale"][0].astype(np.float64) * (stored[()].astype(np.float64) - stored.attrs["zero_point"][0])

        with h5py.File(self.shared / "cnn.w8a8/cpu.h5") as file:
            names = [text(n) for n in file["edges/name"][:]]
            self.assertIn("residual/relu", names)
            a, b = dequantised(file, "residual/conv"), dequantised(file, "pool")
            stored = file[f"probes/digits/outputs/{stored_name('residual/relu')}"]
            scale, zero = stored.attrs["scale"][0].astype(np.float64), stored.attrs["zero_point"][0]
            fresh = np.clip(np.rint(np.maximum(a + b, 0) / scale) + zero, 0, 255)
            self.assertGreater((fresh == stored[()]).mean(), 0.999)
            late = np.concatenate([b[:1], b[:-1]])
            codes = np.clip(np.rint(np.maximum(a + late, 0) / scale) + zero, 0, 255).astype(np.uint8)
        with Changed(self.shared / "cnn.w8a8/cpu.h5", self.folder / "late.h5") as changed:
            changed.choose("residual/relu")
            changed.store(codes)
        seal(self.folder / "late.h5", "residual/relu", codes)
        device = json.loads(npudiff("explain", "--quantised", MODELS / "cnn.w8a8.onnx", self.folder / "late.h5", "--json",
                                    expect=None).stdout)["devices"][0]
        faulty = {f["layer"]: f for f in device["faulty"]}
        self.assertEqual(faulty["residual/relu"]["kind"], "stale-operand", device["faulty"])
        self.assertIn("'pool' of the previous sample", faulty["residual/relu"]["text"])

    def runs(self, path):
        """What is said of the runs of one device. Both sides are the same file."""
        report = json.loads(npudiff("compare", path, path, "--json", expect=None).stdout)
        self.assertTrue(all(d["of_runs"] for d in report["diagnoses"]))
        return [d for d in report["diagnoses"] if d["device"] == 0]

    def test_a_window_that_the_first_run_does_not_write(self):
        capture("cnn.w8a8.onnx", ["emu:flip@pool=0.5"], [self.probe], self.folder / "c", "--repeats", 3)
        path = next((self.folder / "c").iterdir())
        self.assertEqual(self.runs(path), [])  # single steps in any element are noise
        with h5py.File(path, "r+") as file:
            probe, name = file["probes/digits"], stored_name("pool")
            right = np.full_like(probe[f"outputs/{name}"][()], 70)
            right += (np.arange(right[0].size) % 50).astype(np.uint8).reshape(right[0].shape)
            first = right.copy()
            first.reshape(len(first), -1)[:, 20:36] = 0
            probe[f"outputs/{name}"][...] = first
            stored = probe[f"repeat_index/{name}"][()]
            self.assertEqual(len(stored), 2 * len(right))
            probe[f"repeats/{name}"][...] = right[stored[:, 0]]
        seal(path, "pool", right)
        found = self.runs(path)
        self.assertEqual([(d["tensor"], d["kind"]) for d in found], [("pool", "unwritten-window")])
        self.assertIn("elements 20 to 35 differ between the first and all later runs", found[0]["text"])
        self.assertIn("the first run holds", found[0]["text"])


if __name__ == "__main__":
    main()
