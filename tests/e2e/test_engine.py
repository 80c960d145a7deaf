"""The comparison on real files, written by h5py alone: its numbers are those of the oracle and of docs/reference/metrics.md,
whatever the
threads, the instruction set, the memory and the way the tensors are stored."""
import json
import math
import os
import pathlib
import random
import struct
import sys

import numpy as np

from support import Capture, Scratch, capture, compare_bytes, main, npudiff, pair_of
from write_capture import Chunked, Contiguous, Edge, write_capture

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools/oracles"))
import compare_oracle
import make_compare_oracle

SEED = int(os.environ.get("ND_SEED", 20250713))
STORAGES = [Contiguous(), Chunked(100_000), Chunked(100_000, deflate=4, shuffle=True), Chunked(700, deflate=1),
            Chunked(333), Chunked(1025, deflate=6, shuffle=True), Chunked(4096, deflate=9)]


# ---- captures ----

def fleet_edges():
    return [Edge("codes", "uint8", [3, 700], [0.0125], [7]), Edge("floats", "float32", [2500]),
            Edge("halves/of it", "float16", [40, 30]), Edge("longs", "int64", [9]),
            Edge("channels", "int8", [6, 500], [0.5, 0.1, 2, 1, 0.25, 0.0078125], [0, 1, 2, -3, -128, 127], 0),
            Edge("nibbles", "uint4", [33]), Edge("brain", "bfloat16", [5000]), Edge("flags", "bool", [70]),
            Edge("scalar", "float32", []), Edge("empty", "float32", [3, 0]),
            Edge("logits", "float64", [1000], is_output=True)]  # fmt: skip


def random_tensor(rng, edge, n_samples):
    shape = (n_samples, *edge.shape)
    if edge.dtype in ("uint4", "bool"):
        return rng.integers(0, 16 if edge.dtype == "uint4" else 2, shape).astype(edge.stored)
    if edge.dtype in ("uint8", "int8", "int64", "bfloat16"):
        info = np.iinfo(edge.stored)
        return rng.integers(info.min, info.max, shape, edge.stored, endpoint=True)
    return rng.normal(size=shape).astype(edge.stored)


def disturb(rng, edge, data, share):
    """Other values in some places, among them special ones; the first sample stays."""
    data = data.copy()
    if data.size == 0:
        return data
    where = rng.random(data.shape) < share
    where[0] = False
    data[where] = random_tensor(rng, edge, len(data))[where]
    flat = data[-1:].reshape(-1)
    if edge.dtype in ("float32", "float16", "float64") and flat.size > 8:
        flat[:5] = [np.nan, np.inf, -0.0, 0.0, -np.inf]
    return data


def make_fleet(rng):
    """A reference and two tests, of which the second agrees with the first in some tensors: [{probe: {edge: tensor}}]."""
    edges = fleet_edges()
    ref = {p: {e.name: random_tensor(rng, e, n) for e in edges} for p, n in (("first", 7), ("second/1", 4))}
    few = {p: {e.name: disturb(rng, e, t[e.name], 0.01) for e in edges} for p, t in ref.items()}
    many = {p: {e.name: few[p][e.name] if e.name in ("codes", "brain") else disturb(rng, e, t[e.name], 0.6) for e in edges}
            for p, t in ref.items()}  # fmt: skip
    return edges, [ref, few, many]


DEVICES = ["cpu", "htp-sim:sm8650", "htp-sim:sm8550"]


def write_fleet(folder, edges, fleet, storages):
    return [write_capture(folder / f"{i}.h5", device, edges, probes, storage)
            for i, (device, probes, storage) in enumerate(zip(DEVICES, fleet, storages))]


# ---- docs/reference/metrics.md#sums, for tensors that are too large for exact fractions one by one ----

def lane_sum(x):
    """By lanes and blocks; fsum rounds the exact sum of the blocks once."""
    padded = np.zeros(-(-x.size // 1024) * 1024)
    padded[: x.size] = x
    lanes = np.zeros((padded.size // 1024, 16))
    for row in np.moveaxis(padded.reshape(-1, 64, 16), 1, 0):
        lanes = lanes + row
    while lanes.shape[1] > 1:
        lanes = lanes[:, ::2] + lanes[:, 1::2]
    return math.fsum(lanes[:, 0])


def number(value):
    """Of JSON, where NaN and infinities are text."""
    return float(value)


def oracle_edges(rng):
    """(edge of the reference, of the test, case)"""
    ways = [[256, 0], [200, 50], [250, 6], [0, 0], [256, 0]]
    cases = []

    def add(shape, ref, test, sides=None, near=True):
        use = [[e, n if near else 0] for e, n in ways]
        cases.append(make_compare_oracle.recipe_case(rng, shape, ref, test, use, sides))

    for i, dtype in enumerate([*compare_oracle.INTEGERS, *compare_oracle.FLOATS]):
        recipe = (make_compare_oracle.calm, make_compare_oracle.wild, make_compare_oracle.spiced)[i % 3](dtype)
        add([3, 7, 55] if i % 2 else [300], recipe, recipe, near=dtype not in ("bool", "uint4", "int4"))
    for dtype in ("uint8", "int8", "uint16", "int4"):
        for shape, axis in (([500], -1), ([40, 3, 10], 1)):
            side = make_compare_oracle.quantised(rng, dtype, shape, axis)
            recipe = make_compare_oracle.spiced(dtype)
            add(shape, recipe, recipe, [side, side], dtype != "int4")
    ways = [[0, 0]] * 5
    for left, right in (("uint8", "float32"), ("float16", "float32"), ("bfloat16", "float16"), ("float8_e5m2", "int8")):
        sides = [make_compare_oracle.quantised(rng, d, [200], -1) if d in compare_oracle.INTEGERS else {"dtype": d}
                 for d in (left, right)]
        add([200], make_compare_oracle.calm(left), make_compare_oracle.spiced(right), sides)
    for i, case in enumerate(cases):
        is_integer = case["ref"]["dtype"] == case["test"]["dtype"] and case["ref"]["dtype"] in compare_oracle.INTEGERS
        case.update(gate={"lsb": 1} if is_integer else {"ulp": 2}, ulp_in="float16", n_worst=3, name=f"e{i}")
        pair = compare_oracle.Pair(case)
        expected = {**pair.expected(), **pair.signal_of_all()}
        if is_code_against_float(case): # in steps, not ULP (test_labels.py)
            expected["max_ulp"] = None
            expected["tolerance"]["ulp"] = None
        yield case, expected


def is_code_against_float(case):
    return (case["ref"]["dtype"] in compare_oracle.INTEGERS) != (case["test"]["dtype"] in compare_oracle.INTEGERS)


def array_of(dtype, elements, shape):
    edge = Edge("", dtype, shape)
    size = compare_oracle.size_of(dtype)
    return np.frombuffer(b"".join(b.to_bytes(size, "little") for b in elements), edge.stored).reshape(shape)


class Oracle(Scratch):
    """Every number of the report, to the bit."""

    COUNTS = {"samples": "n_samples", "samples_differing": "n_samples_differing", "elements": "n_elems",
              "differing": "n_differing", "share": "share", "failing": "n_failing", "max_lsb": "max_lsb",
              "mean_lsb": "mean_lsb", "signed_mean_lsb": "signed_mean_lsb", "max_ulp": "max_ulp",
              "max_ulp_in": "max_ulp_in", "nan_mismatch": "n_nan_mismatch", "nan_payload": "n_nan_payload",
              "inf_mismatch": "n_inf_mismatch", "zero_sign": "n_zero_sign",
              "saturation_mismatch": "n_saturation_mismatch", "rmse": "rmse", "sqnr_db": "sqnr_db", "cosine": "cosine",
              "norm_ratio": "norm_ratio", "pearson": "pearson", "gain": "gain", "offset": "offset"}  # fmt: skip

    def check(self, where, got, expected):
        """Equal to the bit; the logarithm may differ in the last one."""
        if got is None or expected is None:
            return self.assertEqual(got, expected, where)
        a, b = number(got), float(expected)
        if where.endswith("sqnr_db") and math.isfinite(b):
            return self.assertLessEqual(abs(a - b), 2.0**-52 * abs(b), where)
        if math.isnan(a) and math.isnan(b):
            return None
        return self.assertEqual(struct.pack("<d", a), struct.pack("<d", b), f"{where}: {got}, not {expected}")

    def check_pair(self, name, pair, expected):
        for key, of in self.COUNTS.items():
            self.check(f"{name} {key}", pair[key], expected.get(of))
        for key in ("abs", "rel"):
            for of in ("max", "mean", "median", "p99"):
                self.check(f"{name} {key}.{of}", pair[key][of], expected[f"{key}.{of}"])
        self.check(f"{name} undefined", pair["rel"]["undefined"], expected["n_rel_undefined"])
        for side in ("ref_side", "test_side"):
            for key in ("elements", "nan", "inf", "zero", "subnormal", "saturated", "stuck_samples", "min", "max"):
                self.check(f"{name} {side}.{key}", pair[side][key], expected[f"{side}.{key.removesuffix('_samples')}"])
        structure = expected["structure"]
        self.assertEqual(pair["structure"]["pattern"], structure["pattern"], name)
        for key, of in (("first_index", "first_index"), ("last_index", "last_index"), ("stride", "stride"),
                        ("runs", "n_runs"), ("longest_run", "longest_run")):
            self.assertEqual(pair["structure"][key], structure[of], f"{name} {key}")
        self.assertEqual([list(a.values()) for a in pair["structure"]["axes"]], structure["axes"], name)
        for key in ("lsb", "ulp", "atol", "rtol"):
            tolerance = expected["tolerance"].get(key) if expected["tolerance"]["is_possible"] else None
            self.check(f"{name} tolerance.{key}", pair["tolerance"][key], tolerance)
        self.assertEqual(len(pair["worst"]), len(expected["worst"]), name)
        for got, (probe, sample, index, *values) in zip(pair["worst"], expected["worst"]):
            self.assertEqual((got["probe"], got["sample"], got["index"]), (f"p{probe}", sample, index), name)
            for key, value in zip(("abs_error", "ref", "test", "ref_real", "test_real"), values):
                self.check(f"{name} worst {key}", got[key], value)

    def test_every_number_is_that_of_the_oracle(self):
        print(f"# ND_SEED={SEED}")
        cases = list(oracle_edges(random.Random(SEED)))
        paths = []
        for which, side in enumerate(("ref", "test")):
            edges, probes = [], {f"p{p}": {} for p in range(3)}
            for case, _ in cases:
                edges.append(Edge(case["name"], case[side]["dtype"], case["shape"], case[side].get("scales", []),
                                  case[side].get("zero_points", []), case[side].get("axis", -1)))
                for p, tensors in enumerate(probes.values()):
                    parts = [s[1 + which] for s in case["samples"] if s[0][0] == p]
                    tensors[case["name"]] = np.stack([array_of(case[side]["dtype"], s, case["shape"]) for s in parts])
            storage = (Chunked(100, deflate=3), Contiguous())[which]
            paths.append(write_capture(self.folder / f"{side}.h5", side, edges, probes, storage))
        report = json.loads(npudiff("compare", *paths, "--json", "--lsb", 1, "--ulp", 2, "--ulp-in", "float16", "--worst", 3,
                                    expect=1))
        for edge, (case, expected) in zip(report["tensors"], cases):
            with self.subTest(edge=case["name"], types=(case["ref"]["dtype"], case["test"]["dtype"])):
                self.assertEqual(edge["pairs"][0]["mixed"], case["ref"]["dtype"] != case["test"]["dtype"])
                self.check_pair(case["name"], edge["pairs"][0], expected)


class SameBytes(Scratch):
    """The JSON of one comparison, but for the paths, is one text."""

    OPTIONS = ["--json", "--ulp-in", "float16", "--worst", "7", "--all-pairs", "--lsb", "2", "--ulp", "4"]

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        print(f"# ND_SEED={SEED}")
        cls.edges, cls.fleet = make_fleet(np.random.default_rng(SEED))
        cls.paths = write_fleet(cls.shared, cls.edges, cls.fleet, [Chunked(700, deflate=1)] * 3)
        cls.expected = compare_bytes(*cls.paths, *cls.OPTIONS)

    def test_the_files_are_sound(self):
        npudiff("verify", *self.paths)

    def test_threads_and_instruction_sets_change_nothing(self):
        for threads in (1, 2, 3):
            for cpu in ("scalar", "avx2", "avx512", None):
                with self.subTest(threads=threads, cpu=cpu):
                    got = compare_bytes(*self.paths, *self.OPTIONS, "--threads", threads, cpu=cpu)
                    self.assertEqual(got, self.expected)

    def test_storage_changes_nothing(self):
        for i, storage in enumerate(STORAGES):
            with self.subTest(storage=vars(storage)):
                paths = write_fleet(self.folder, self.edges, self.fleet, [storage] * 3)
                self.assertEqual(compare_bytes(*paths, *self.OPTIONS, "--threads", 1 + i % 3), self.expected)

    def test_storage_may_differ_between_captures(self):
        for i in range(len(STORAGES)):
            storages = [STORAGES[(i + k) % len(STORAGES)] for k in (0, 2, 3)]
            with self.subTest(storages=[vars(s) for s in storages]):
                paths = write_fleet(self.folder, self.edges, self.fleet, storages)
                self.assertEqual(compare_bytes(*paths, *self.OPTIONS), self.expected)

    def test_little_memory_changes_nothing(self):
        self.assertEqual(compare_bytes(*self.paths, *self.OPTIONS, "--memory", 16), self.expected)

    def test_verified_digests_change_nothing(self):
        self.assertEqual(compare_bytes(*self.paths, *self.OPTIONS, "--verify-digests"), self.expected)

    def test_the_order_of_the_tests_changes_no_pair(self):
        ref, few, many = self.paths
        reports = [json.loads(compare_bytes(*paths, *self.OPTIONS)) for paths in ((ref, few, many), (ref, many, few))]
        for one, other in zip(reports[0]["tensors"], reports[1]["tensors"]):
            self.assertEqual(one["name"], other["name"])
            for uri in DEVICES[1:]:
                self.assertEqual(pair_of(reports[0], one, DEVICES[0], uri), pair_of(reports[1], other, DEVICES[0], uri))

    def test_all_pairs_are_the_pairs_alone(self):
        whole = json.loads(self.expected)
        for i, j in ((0, 1), (0, 2), (1, 2)):
            alone = json.loads(compare_bytes(self.paths[i], self.paths[j], *self.OPTIONS))
            for one, other in zip(whole["tensors"], alone["tensors"]):
                self.assertEqual(pair_of(whole, one, DEVICES[i], DEVICES[j]), pair_of(alone, other, DEVICES[i], DEVICES[j]))

    def test_what_npudiff_writes_compares_the_same(self):
        """Its own chunks and filters, through its own writer: what it captured, read by h5py and written again."""
        capture("cnn.float.onnx", ["cpu", "cpu?optimisation=all"], ["uniform:5", "zeros"], self.folder)
        theirs = [self.folder / "cpu.h5", self.folder / "cpu-optimisation-all.h5"]
        ours = []
        for i, path in enumerate(theirs):
            with Capture(path) as made:
                shape = {n: made.output(made.probes[0], n).shape[1:] for n in made.edges}
                inputs, outputs = (made.column("edges", f"is_model_{k}put") for k in ("in", "out"))
                edges = [Edge(n, d, shape[n], is_input=a, is_output=b)
                         for n, d, a, b in zip(made.edges, made.column("edges", "dtype"), inputs, outputs)]
                probes = {p: {n: made.values(p, n) for n in made.edges} for p in made.probes}
            ours.append(write_capture(self.folder / f"h5py{i}.h5", f"d{i}", edges, probes, Chunked(50)))
        one, other = (json.loads(compare_bytes(*paths, "--json"))["tensors"] for paths in (theirs, ours))
        self.assertEqual([[e["name"], e["pairs"]] for e in one], [[e["name"], e["pairs"]] for e in other])


class Channels(Scratch):
    def test_a_channel_is_what_it_is_as_a_tensor(self):
        rng = np.random.default_rng(SEED)
        edge = Edge("x", "float32", [3, 1500, 2])
        ref = random_tensor(rng, edge, 4)
        test = disturb(rng, edge, ref, 0.02)
        test[3, 0, 7, 1] = np.nan
        paths = [write_capture(self.folder / f"{i}.h5", f"d{i}", [edge], {"p": {"x": data}}, Chunked(777))
                 for i, data in enumerate((ref, test))]
        for axis in (0, 2, -1):
            whole = json.loads(compare_bytes(*paths, "--json", "--per-channel", axis))["tensors"][0]["pairs"][0]["channels"]
            at = axis + 1 if axis >= 0 else axis
            self.assertEqual(len(whole), ref.shape[at])
            for c, channel in enumerate(whole):
                parts = [np.take(data, c, at) for data in (ref, test)]
                part = Edge("x", "float32", parts[0].shape[1:])
                alone = [write_capture(self.folder / f"c{i}.h5", f"d{i}", [part], {"p": {"x": data}})
                         for i, data in enumerate(parts)]
                expected = json.loads(compare_bytes(*alone, "--json"))["tensors"][0]["pairs"][0]
                self.assertGreater(expected["differing"], 0)
                shared = set(channel) & set(expected) - {"channel"}
                self.assertGreater(len(shared), 25)
                self.assertEqual({k: channel[k] for k in shared}, {k: expected[k] for k in shared})


class Large(Scratch):
    """Samples of more than one unit of work."""

    N = 3 * 1024 * 1024 + 517

    def places(self, size):
        unit = 4 * 1024 * 1024 // size
        edges = {0, 1, 1023, 1024, unit - 1, unit, unit + 1, 2 * unit - 1, 2 * unit, self.N - 1, self.N - 2}
        return sorted(p for p in edges if p < self.N)

    def compare(self, dtype, ref, test, *options, **more):
        edge = Edge("x", dtype, [ref.shape[1]], **more)
        paths = [write_capture(self.folder / f"{i}.h5", f"d{i}", [edge], {"p": {"x": data}}, storage)
                 for i, (data, storage) in enumerate(((ref, Contiguous()), (test, Chunked(300_001, deflate=1))))]
        texts = {compare_bytes(*paths, "--json", *options, "--threads", n, "--memory", m) for n, m in ((1, 512), (2, 64))}
        self.assertEqual(len(texts), 1)
        return json.loads(texts.pop())["tensors"][0]["pairs"][0]

    def test_codes(self):
        rng = np.random.default_rng(SEED)
        ref = rng.integers(5, 250, (2, self.N), np.uint8)
        where, steps = self.places(1), [1, -1, 2, 5, -5]
        test = ref.copy()
        for k, place in enumerate(where):
            test[1, place] = int(test[1, place]) + steps[k % 5]
        pair = self.compare("uint8", ref, test, "--worst", 100)
        self.assertEqual((pair["differing"], pair["samples_differing"], pair["elements"]), (len(where), 1, 2 * self.N))
        self.assertEqual(pair["first"], {"probe": "p", "sample": 1, "index": 0, "coordinates": [0]})
        self.assertEqual(sorted(w["index"] for w in pair["worst"]), where)
        d = test.astype(int) - ref
        self.assertEqual(pair["signed_mean_lsb"], int(d.sum()) / d.size)
        self.assertEqual(pair["histogram"]["-1"], int((d == -1).sum()))
        self.assertEqual(pair["structure"]["last_index"], self.N - 1)
        self.assertEqual(pair["structure"]["runs"], len({p for p in where if p - 1 not in where or p % 1024 == 0}))

    def test_floats(self):
        rng = np.random.default_rng(SEED)
        ref = rng.normal(size=(1, self.N)).astype(np.float32)
        where = self.places(4)
        test = ref.copy()
        test[0, where] += np.float32(0.5)
        test[0, where[3]], test[0, where[5]] = np.nan, np.inf
        pair = self.compare("float32", ref, test, "--worst", 100)
        self.assertEqual((pair["nan_mismatch"], pair["inf_mismatch"], pair["differing"]), (1, 1, len(where)))
        self.assertEqual([w["index"] for w in pair["worst"][:2]], [where[3], where[5]])
        self.assertEqual(sorted(w["index"] for w in pair["worst"]), where)
        r, t = ref[0].astype(float), test[0].astype(float)
        r[[where[3], where[5]]] = t[[where[3], where[5]]] = 0
        d, n = t - r, self.N - 2
        rr, tt, dd, rd = (lane_sum(x) for x in (r * r, t * t, d * d, r * d))
        self.assertEqual(pair["abs"]["mean"], lane_sum(abs(d)) / n)
        self.assertEqual(pair["rmse"], math.sqrt(dd / n))
        self.assertEqual(pair["cosine"], min(1.0, (rr + rd) / (math.sqrt(rr) * math.sqrt(tt))))
        self.assertEqual(pair["norm_ratio"], math.sqrt(tt / rr))
        s, u = lane_sum(r), lane_sum(t)
        self.assertEqual(pair["gain"], (rr + rd - s * u / n) / (rr - s * s / n))

    def test_one_value_everywhere_is_stuck_and_over_units_too(self):
        n = 1024 * 1024 + 517 # two units of floats
        ref = np.arange(n, dtype=np.float32).reshape(1, -1)
        pair = self.compare("float32", ref, np.full_like(ref, 3))
        self.assertEqual((pair["ref_side"]["stuck_samples"], pair["test_side"]["stuck_samples"]), (0, 1))
        self.assertEqual((pair["cosine"] > 0, pair["pearson"]), (True, 0))
        other = np.full_like(ref, 3)
        other[0, -1] = 4
        self.assertEqual(self.compare("float32", ref, other)["test_side"]["stuck_samples"], 0)


class Structure(Scratch):
    def test_exchanged_axes_are_named(self):
        """Up to 2^18 elements."""
        rng = np.random.default_rng(SEED)
        turns = ([4, 5, 6], (2, 0, 1)), ([16, 16], (1, 0)), ([2, 3, 4, 5], (3, 1, 0, 2)), ([64, 32, 128], (2, 0, 1))
        for shape, axes in turns:
            edge = Edge("x", "float32", shape)
            ref = random_tensor(rng, edge, 3)
            test = ref.copy()
            test[1] = np.transpose(ref[1], axes).reshape(shape)
            paths = [write_capture(self.folder / f"{i}.h5", f"d{i}", [edge], {"p": {"x": data}}, Chunked(1000))
                     for i, data in enumerate((ref, test))]
            with self.subTest(shape=shape, axes=axes):
                found = json.loads(compare_bytes(*paths, "--json"))["tensors"][0]["pairs"][0]["structure"]
                self.assertEqual((found["pattern"], found["permutation"]), ("permuted axes", list(axes)))


class Digests(Scratch):
    def setUp(self):
        super().setUp()
        self.edge = Edge("x", "int16", [1000])
        self.data = random_tensor(np.random.default_rng(SEED), Edge("x", "int64", [1000]), 3).astype(np.int16)

    def write(self, name, data, **more):
        return write_capture(self.folder / f"{name}.h5", name, [self.edge], {"p": {"x": data}}, Chunked(64), **more)

    def test_equal_digests_are_trusted_unless_told_otherwise(self):
        other = self.data.copy()
        other[2, 999] ^= 1
        paths = self.write("a", self.data), self.write("b", other, digests_of={"x": self.data})
        npudiff("compare", *paths, expect=0)
        for threads in (1, 2):
            done = npudiff("compare", *paths, "--verify-digests", "--threads", threads, expect=None)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertRegex(done.stderr, "sample 2")

    def test_digests_that_differ_over_equal_data_are_an_error(self):
        other = self.data.copy()
        other[1, 5] ^= 1
        paths = self.write("a", self.data), self.write("b", self.data, digests_of={"x": other})
        for threads in (1, 2):
            done = npudiff("compare", *paths, "--threads", threads, expect=None)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertRegex(done.stderr, "sample 1")


if __name__ == "__main__":
    main()
