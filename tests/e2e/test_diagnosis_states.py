#!/usr/bin/env python3
"""What the diagnosis says of captures that state something wrong: real ones, changed through h5py."""
import json
import random
import shutil

import h5py
import numpy as np

from support import MODELS, Scratch, capture, main, npudiff, some_digits, stored_name, text
from write_capture import seal

N = 12
N_VARIANTS = 20
SEED = 20251122
DEVICES = ["cpu", "htp-sim:gen1", "htp-sim:gen3"]
QUANTISED = ["cnn.w8a8", "cnn.w8a16", "vit.w8a8"]


def utf8(value):
    return h5py.string_dtype("utf-8", len(value))


class Changed:
    """A copy of a capture, and one of its edges to change. Its digests follow: nothing is concluded from damage."""

    def __init__(self, source, path):
        shutil.copy(source, path)
        self.path = path
        self.file = h5py.File(path, "r+")
        table = self.file["edges"]
        self.edges = [text(n) for n in table["name"][:]]
        self.starts = np.concatenate([[0], np.cumsum(table["quant_n"][:])])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        seal(self.file, [self.stored])
        self.file.close()

    def choose(self, edge):
        self.row = self.edges.index(edge)
        self.at = int(self.starts[self.row])
        self.group = self.file["probes/digits/outputs"]
        self.stored = stored_name(edge)

    @property
    def codes(self):
        return self.group[self.stored][()]

    @property
    def zero_point(self):
        return int(self.file["edges/zero_point"][self.at])

    @property
    def limits(self):
        return np.iinfo(self.codes.dtype)

    def encode(self, **parameters):
        """Another scale or zero point, in both places where it is said."""
        for name, value in parameters.items():
            self.file["edges"][name][self.at] = value
            values = self.group[self.stored].attrs[name]
            values[:] = value
            self.group[self.stored].attrs.modify(name, values)

    def store(self, values):
        """Other values, of another type perhaps."""
        old = self.group[self.stored]
        if old.dtype == values.dtype:
            old[...] = values
            return
        attributes = dict(old.attrs)
        del self.group[self.stored]
        new = self.group.create_dataset(self.stored, data=values, track_times=False)
        for name, value in attributes.items():
            new.attrs.create(name, value, dtype=utf8(value) if name == "provider" else value.dtype)
        names = [text(n) for n in self.file["edges/dtype"][:]]
        names[self.row] = values.dtype.name
        del self.file["edges/dtype"]
        names = [n.encode() for n in names]
        self.file["edges"].create_dataset("dtype", data=names, dtype=utf8(max(names, key=len)), track_times=False)


class States(Scratch):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        probe = some_digits(cls.shared / "digits.npz", N)
        for model in QUANTISED:
            capture(f"{model}.onnx", DEVICES, [probe], cls.shared / model)
        capture("cnn.w8a8.onnx", DEVICES, [probe], cls.shared / "floats", "--tensors", "none")
        capture("cnn.float.onnx", ["cpu", "htp-sim:gen3", "float64"], [probe], cls.shared / "cnn.float")

    def setUp(self):
        super().setUp()
        self.random = random.Random(f"{SEED} {self.id()}")

    def explain(self, model, *captures, option="--quantised"):
        done = npudiff("explain", option, MODELS / f"{model}.onnx", "--effect-samples", 0, "--json", *captures, expect=None)
        self.assertIn(done.returncode, (0, 1, 4), done.stderr)
        return json.loads(done.stdout)["devices"]

    def variant(self, change, may_change=lambda changed: True):
        """One edge of one capture after change(); (its findings, those of other edges, the edge, the device)."""
        model, device = self.random.choice(QUANTISED), self.random.choice(["cpu", "gen1", "gen3"])
        with Changed(self.shared / model / f"{device}.h5", self.folder / "changed.h5") as changed:
            for edge in self.random.sample(changed.edges, len(changed.edges)):
                changed.choose(edge)
                if may_change(changed):
                    break
            else:
                self.fail(f"no edge of {model} can be changed so")
            wanted = change(changed)
        found = self.explain(model, changed.path)[0]
        # Only the record changes, not what is read of it, and explain may say that, too.
        here = [f for f in found["findings"] if f["tensor"] == edge and f["kind"] != "wrong-record"]
        elsewhere = [f for f in found["findings"] if f["tensor"] != edge]
        return wanted, here, elsewhere, found, edge

    def assert_named(self, kind, change, may_change=lambda changed: True):
        """In every variant, as that kind alone and with the amount that change() returns."""
        for number in range(N_VARIANTS):
            with self.subTest(kind=kind, number=number, seed=SEED):
                amount, here, elsewhere, _, edge = self.variant(change, may_change)
                self.assertEqual([f["kind"] for f in here], [kind], edge)
                self.assertAlmostEqual(here[0]["amount"], amount, delta=1e-5 * max(1, abs(amount)))
                self.assertEqual(elsewhere, [])

    # ---- nothing is wrong ----

    def test_healthy_captures_have_no_findings(self):
        for model in QUANTISED + ["floats"]:
            for devices in (["cpu"], ["gen1"], ["gen3"], ["cpu", "gen1", "gen3"]):
                found = self.explain(model if model != "floats" else "cnn.w8a8",
                                     *(self.shared / model / f"{d}.h5" for d in devices))
                self.assertEqual([d["findings"] for d in found], [[]] * len(devices), model)

    # ---- quantisation ----

    def test_another_scale(self):
        def change(changed):
            factor = self.random.choice([0.5, 2, 255 / 256, 1.001, self.random.uniform(1.01, 3)])
            scale = np.float32(changed.file["edges/scale"][changed.at])
            changed.encode(scale=np.float32(factor) * scale)
            return float(np.float32(factor) * scale) / float(scale)
        self.assert_named("scale", change)

    def test_another_zero_point(self):
        def change(changed):
            zero = changed.zero_point
            by = self.random.choice([d for d in (-7, -2, -1, 1, 2, 5, 40) if d != -2 * zero])
            changed.encode(zero_point=zero + by)
            return by
        self.assert_named("zero-point", change)

    def test_offset_by_256(self):
        def change(changed):
            by = self.random.choice([d for d in (-256, 256) if d != -2 * changed.zero_point])
            changed.encode(zero_point=changed.zero_point + by)
            return by
        self.assert_named("offset-256", change)

    def test_offset_of_the_other_sign(self):
        def change(changed):
            zero = changed.zero_point
            changed.encode(zero_point=-zero)
            return -2 * zero
        self.assert_named("offset-sign", change, lambda changed: changed.zero_point != 0)

    # ---- types ----

    def test_type_that_is_called_by_another_name(self):
        other = {"uint8": "int8", "int8": "uint8", "uint16": "int16", "int16": "uint16"}
        for number in range(N_VARIANTS):
            with self.subTest(number=number, seed=SEED):
                _, here, elsewhere, device, edge = self.variant(
                    lambda changed: changed.store(changed.codes.view(other[changed.codes.dtype.name])),
                    lambda changed: np.ptp(changed.codes[:4].astype(int)) > 0)
                self.assertEqual([f["kind"] for f in here], ["wrong-type"], edge)
                self.assertEqual(elsewhere, [])
                unit = [u for u in device["layers"] if u["name"] == edge][0]
                self.assertFalse(unit["examined"])

    def test_codes_of_another_type_are_not_called_wrong(self):
        """Signed with a zero point of its own is another way to say the same."""
        def change(changed):
            signed = {"uint8": np.int8, "uint16": np.int16}[changed.codes.dtype.name]
            half = changed.limits.max // 2 + 1
            changed.store((changed.codes.astype(int) - half).astype(signed))
            changed.encode(zero_point=changed.zero_point - half)

        def may_change(changed):
            return np.ptp(changed.codes[:4].astype(int)) > (changed.limits.max - changed.limits.min) // 16
        for number in range(N_VARIANTS):
            with self.subTest(number=number, seed=SEED):
                here, elsewhere = self.variant(change, may_change)[1:3]
                self.assertEqual(here + elsewhere, [])

    # ---- codes ----

    def test_codes_that_pile_up_at_an_end(self):
        def change(changed):
            codes, limits = changed.codes.astype(int), changed.limits
            is_low = self.random.random() < 0.5
            far = [limits.min, limits.max][not is_low]
            hit = (codes < np.quantile(codes, 0.3)) if is_low else (codes > np.quantile(codes, 0.7))
            changed.store(np.where(hit, far, codes).astype(changed.codes.dtype))
            return far

        def may_change(changed): # both ends are far from the codes
            codes, limits = changed.codes.astype(int), changed.limits
            margin = (limits.max - limits.min) // 16
            low, high = np.quantile(codes[:4], [0.3, 0.7])
            return (limits.min + margin < codes.min() or low > limits.min + margin) and high < limits.max - margin and \
                np.mean(codes[:4] <= limits.min) < 0.02 and np.ptp(codes[:4]) > 8
        self.assert_named("saturation", change, may_change)

    def test_codes_that_never_change(self):
        def change(changed):
            changed.store(np.full_like(changed.codes, self.value(changed)))
            return self.value(changed)

        def may_change(changed):
            return np.ptp(changed.codes[:4].astype(int)) > (changed.limits.max - changed.limits.min) // 16
        self.value = lambda changed: changed.zero_point
        self.assert_named("all-zero", change, may_change)
        self.value = lambda changed: changed.zero_point + 3 if changed.zero_point < 100 else changed.zero_point - 3
        self.assert_named("constant", change, lambda c: may_change(c) and self.value(c) != 0)

    # ---- floats ----

    def floats(self, change):
        """cpu's floats of the output, changed; what is found with gen1's before it."""
        with Changed(self.shared / "floats/cpu.h5", self.folder / "changed.h5") as changed:
            changed.choose("logits")
            with h5py.File(self.shared / "cnn.w8a8/cpu.h5") as codes:
                scale = float(codes["probes/digits/outputs/logits"].attrs["scale"][0])
            changed.store(change(changed.codes.astype(float), scale).astype(np.float32))
        return self.explain("cnn.w8a8", self.shared / "floats/cpu.h5", changed.path)[1]["findings"]

    def test_floats_that_are_no_codes(self):
        for number in range(N_VARIANTS):
            with self.subTest(number=number, seed=SEED):
                noise = np.random.default_rng([SEED, number])
                found = self.floats(lambda x, scale: x + scale * noise.uniform(-0.5, 0.5, x.shape))
                self.assertEqual([(f["tensor"], f["kind"]) for f in found], [("logits", "off-grid")])

    def test_floats_of_the_same_codes(self):
        for number in range(N_VARIANTS):
            with self.subTest(number=number, seed=SEED):
                factor = 1 + 10 ** self.random.uniform(-6.5, -3.5)
                found = self.floats(lambda x, scale: x * factor)
                self.assertEqual([(f["tensor"], f["kind"]) for f in found], [("logits", "same-code-other-float")])
                self.assertIn("cpu", found[0]["text"])

    def test_float_model_in_half_precision(self):
        """Which an HTP has: no finding, but what its layers are held to."""
        cpu, double, gen3 = self.explain("cnn.float", *(self.shared / "cnn.float" / f"{d}.h5" for d in
                                                         ("cpu", "float64", "gen3")), option="--float")
        self.assertEqual(cpu["findings"] + double["findings"] + gen3["findings"], [])
        self.assertEqual({u["floats"]["precision"] for u in gen3["layers"]}, {"float16"})
        self.assertEqual({u["floats"]["precision"] for u in cpu["layers"] + double["layers"]}, {"float32"})

    def test_floats_of_a_narrower_type(self):
        """Rounded to half precision; cut to bfloat16, which is found, too."""
        narrow = {"fp16-grid": (lambda x: x.astype(np.float16).astype(np.float32), []),
                  "bf16-grid": (lambda x: (x.view(np.uint32) & 0xffff0000).view(np.float32), ["truncation"])}
        for kind, (change, others) in narrow.items():
            for number in range(N_VARIANTS):
                with self.subTest(kind=kind, number=number, seed=SEED):
                    with Changed(self.shared / "cnn.float/cpu.h5", self.folder / "changed.h5") as changed:
                        edge = self.random.choice(changed.edges)
                        changed.choose(edge)
                        changed.store(change(changed.codes))
                    found = self.explain("cnn.float", changed.path, option="--float")[0]["findings"]
                    self.assertEqual([(f["tensor"], f["kind"]) for f in found], [(edge, k) for k in [kind, *others]])

    def test_text_says_it_first(self):
        with Changed(self.shared / "cnn.w8a8/cpu.h5", self.folder / "changed.h5") as changed:
            changed.choose("pool")
            changed.encode(zero_point=5)
        lines = npudiff("explain", "--quantised", MODELS / "cnn.w8a8.onnx", changed.path, "-v", expect=1).splitlines()
        at = [i for i, line in enumerate(lines) if line.startswith("cpu")][0]
        self.assertEqual(lines[at + 2], "  the capture of 'pool' (MaxPool): zero-point: the zero point is 5 where the "
                                        "model says 0")
        self.assertRegex(lines[at], "FAULTY: 'pool' .*the zero point is 5 where the model says 0")
        self.assertTrue(lines[at + 3].startswith("  faulty: 'pool' (MaxPool), zero-point: "), lines[at + 3])

    def test_scale_written_with_few_digits_accuses_nobody(self):
        with Changed(self.shared / "cnn.w8a8/cpu.h5", self.folder / "changed.h5") as changed:
            changed.choose("pool")
            changed.encode(scale=changed.file["edges/scale"][changed.at] * (1 + 1e-4))
        device, = self.explain("cnn.w8a8", changed.path)
        self.assertEqual([f["kind"] for f in device["findings"]], ["scale"])
        self.assertEqual(device["faulty"], [])


if __name__ == "__main__":
    main()
