#!/usr/bin/env python3
"""What the chipsets really do to the digits models, measured on Qualcomm's simulator, and that npudiff reports exactly
that: every number it prints about a capture is computed again here with numpy from what h5py reads."""
import fractions
import itertools
import math

import numpy as np

from support import Capture, Scratch, bits_equal, capture, compare, main, some_digits

DEVICES = ["cpu", "gen1", "gen3", "gen4", "gen5"]
URIS = ["cpu", *(f"htp-sim:{name}" for name in DEVICES[1:])]


def middle_p(b, c):
    """Two-sided mid-p McNemar, exactly."""
    n, k = b + c, min(b, c)
    below = sum(math.comb(n, i) for i in range(k))
    return float(fractions.Fraction(2 * below + math.comb(n, k), 2 ** n))


class Fleet:
    """The tests of one 8-bit model; a mixin, so that the tests run only in the classes below."""

    model = None            # file
    first_edge = None       # on which every simulated chipset first differs from the CPU
    largest_lsb = None      # {edge: most steps from the CPU on any chipset}; None: of all others. Measured + 1 (image: 0),
                            # for processors whose float kernels round otherwise
    n_digits = None         # how many of the digits
    correct = None          # of these, per device
    flips = None            # right on the CPU and wrong here, and the other way round, per device
    n_edges = None

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        digits = some_digits(cls.shared / "digits.npz", cls.n_digits)
        capture(cls.model, URIS, [digits, "ties:8"], cls.shared, "-j", "2")
        paths = [cls.shared / f"{name}.h5" for name in DEVICES]
        cls.comparison = compare(*paths)
        cls.captures = dict(zip(DEVICES, map(Capture, paths)))
        for opened in cls.captures.values():
            cls.addClassCleanup(opened.close)
        cls.edges = {edge["name"]: edge for edge in cls.comparison["tensors"]}

    def tensors(self, device):
        """{(probe, edge): codes}, in the order of comparison."""
        opened = self.captures[device]
        return {(p, e): opened.values(p, e) for e in opened.edges for p in opened.probes}

    def test_classes_are_cpu_gen1_and_gen3_to_gen5(self):
        """The equality classes as measured, over all edges and over the output alone."""
        self.assertEqual(self.comparison["verdict"], "differs")
        self.assertEqual(self.comparison["groups"], "cpu | gen1 | gen3 = gen4 = gen5")
        self.assertEqual(self.comparison["output_groups"], "cpu | gen1 | gen3 = gen4 = gen5")
        for name, edge in self.edges.items():
            expected = [0] * 5 if name == "image" else [0, 1, 2, 2, 2]
            self.assertEqual(edge["groups"], expected, name)
            self.assertTrue(edge["comparable"], name)

    def test_codes_are_equal_and_different_by_their_bits(self):
        """The same classes without npudiff's comparison: raw codes, read by h5py, of all edges and samples."""
        tensors = {device: self.tensors(device) for device in DEVICES}
        self.assertEqual(len(tensors["cpu"]), 2 * self.n_edges)
        self.assertEqual({p: self.captures["cpu"].n_samples(p) for p in self.captures["cpu"].probes},
                         {"digits": self.n_digits, "ties": 8})
        for key, codes in tensors["gen3"].items():
            self.assertEqual(codes.dtype, np.uint8)
            for device in ("gen4", "gen5"):
                self.assert_bits_equal(codes, tensors[device][key], f"{device} {key}")
        for a, b in itertools.combinations(("cpu", "gen1", "gen3"), 2):
            different = {e for (p, e), codes in tensors[a].items() if not bits_equal(codes, tensors[b][p, e])}
            self.assertEqual(different, set(self.edges) - {"image"}, f"{a} and {b}")

    def test_first_difference_is_the_lowest_that_numpy_finds(self):
        """First edge in graph order, then probe, sample and element."""
        reference = self.tensors("cpu")
        for index, device in enumerate(DEVICES[1:], 1):
            place = next((p, e, np.flatnonzero(codes != self.captures[device].values(p, e)))
                         for (p, e), codes in reference.items()
                         if not bits_equal(codes, self.captures[device].values(p, e)))
            probe, edge, flat = place
            self.assertEqual(edge, self.first_edge)
            self.assertEqual(self.comparison["devices"][index]["first_difference"], edge)
            per_sample = reference[probe, edge][0].size
            first = self.edges[edge]["pairs"][index - 1]["first"]
            self.assertEqual((first["probe"], first["sample"], first["index"]),
                             (probe, flat[0] // per_sample, flat[0] % per_sample))
            self.assertEqual(tuple(first["coordinates"]),
                             np.unravel_index(flat[0] % per_sample, reference[probe, edge].shape[1:]))
        self.assertEqual(self.comparison["first_difference"]["tensor"], self.first_edge)
        self.assertEqual(self.comparison["first_difference"]["test"], 1)

    def test_statistics_of_every_edge_equal_numpys(self):
        """Counts, largest and mean steps, signed mean, histogram, real error: 4 chipsets x every edge, both probes
        together and each alone; and no edge is further away than was measured."""
        for (index, device), name in itertools.product(enumerate(DEVICES[1:]), self.edges):
            pair = self.edges[name]["pairs"][index]
            opened, steps = self.captures["cpu"], []
            scale = float(opened.output("digits", name).attrs["scale"][0])
            for row in pair["probes"]:
                steps.append((self.captures[device].values(row["probe"], name).astype(np.int64)
                              - opened.values(row["probe"], name).astype(np.int64)).ravel())
                self.check(row, steps[-1], scale, f"{device} {name} {row['probe']}")
            self.check(pair, np.concatenate(steps), scale, f"{device} {name}")
            self.assertLessEqual(pair["max_lsb"], self.largest_lsb.get(name, self.largest_lsb[None]), name)

    def check(self, reported, steps, scale, what):
        names = ["<-3", "-3", "-2", "-1", "0", "1", "2", "3", ">3"]
        histogram = np.bincount(np.clip(steps, -4, 4) + 4, minlength=9).tolist()
        total = int(np.abs(steps).sum())
        self.assertEqual([reported["histogram"][n] for n in names], histogram, what)
        self.assertEqual(reported["elements"], steps.size, what)
        self.assertEqual(reported["differing"], int(np.count_nonzero(steps)), what)
        self.assertEqual(reported["share"], np.count_nonzero(steps) / steps.size, what)
        self.assertEqual(reported["max_lsb"], int(np.abs(steps).max()), what)
        self.assertEqual(reported["mean_lsb"], total / steps.size, what)
        self.assertEqual(reported["signed_mean_lsb"], int(steps.sum()) / steps.size, what)
        self.assertEqual(reported["max_abs"], scale * int(np.abs(steps).max()), what)
        self.assertAlmostEqual(reported["mean_abs"], scale * total / steps.size, delta=1e-12, msg=what)
        self.assertEqual((reported["nan"], reported["zero_sign"], reported["inf_mismatch"]), (0, 0, 0), what)

    def test_accuracy_and_flips_equal_numpys(self):
        """Top-1 against the labels, agreement, flips and McNemar's p: as measured, recomputed, and as reported."""
        labels = self.captures["cpu"].labels("digits")
        codes = {d: self.captures[d].values("digits", "logits").reshape(self.n_digits, 10) for d in DEVICES}
        self.assertGreater(self.captures["cpu"].output("digits", "logits").attrs["scale"][0], 0)
        chosen = {d: np.argmax(c, axis=1) for d, c in codes.items()}
        right = {d: c == labels for d, c in chosen.items()}
        report = next(a for a in self.comparison["accuracy"] if a["probe"] == "digits")
        # The simulator's integers are the same everywhere; the CPU's float kernels may move a code on another processor.
        self.assertEqual({d: int(right[d].sum()) for d in DEVICES[1:]}, {d: self.correct[d] for d in DEVICES[1:]})
        self.assertLessEqual(abs(int(right["cpu"].sum()) - self.correct["cpu"]), 2)
        is_as_measured = int(right["cpu"].sum()) == self.correct["cpu"]
        for index, device in enumerate(DEVICES):
            self.assertEqual(report["devices"][index]["correct"], int(right[device].sum()))
            self.assertEqual(report["devices"][index]["accuracy"], int(right[device].sum()) / self.n_digits)
            if device == "cpu":
                continue
            pair = report["pairs"][index - 1]
            lost = int((right["cpu"] & ~right[device]).sum())
            gained = int((~right["cpu"] & right[device]).sum())
            other = int((~right["cpu"] & ~right[device] & (chosen["cpu"] != chosen[device])).sum())
            if is_as_measured:
                self.assertEqual((lost, gained), self.flips[device], device)
            self.assertEqual((pair["right_to_wrong"], pair["wrong_to_right"], pair["wrong_to_wrong"]),
                             (lost, gained, other), device)
            self.assertEqual(pair["agree"], int((chosen["cpu"] == chosen[device]).sum()), device)
            self.assertAlmostEqual(pair["p_value"], middle_p(lost, gained), delta=1e-15, msg=device)
            self.assertEqual(pair["significant"], middle_p(lost, gained) < 0.05, device)

    def test_every_unit_ran_on_the_npu(self):
        """Placement was read back: only the quantisation of the graph's own input is on the CPU."""
        for device in DEVICES[1:]:
            opened = self.captures[device]
            on_cpu = [op for op, provider in zip(opened.column("nodes", "op_type"), opened.column("nodes", "provider"))
                      if provider != "QNNExecutionProvider"]
            self.assertEqual(on_cpu, ["QuantizeLinear"], device)
            on_cpu = [e for e, provider in zip(opened.edges, opened.column("edges", "provider"))
                      if provider != "QNNExecutionProvider"]
            self.assertEqual(on_cpu, ["image"], device)
        self.assertEqual([d["cpu_fallback_tensors"] for d in self.comparison["devices"]], [0] * 5)


class Cnn(Fleet, Scratch):
    """cnn.w8a8 on 330 digits, two of which no device gets right, and 8 samples of ties."""

    model = "cnn.w8a8.onnx"
    n_digits = 330
    n_edges = 10
    first_edge = "stem/relu"
    largest_lsb = {"image": 0, "stem/relu": 3, "depthwise/relu": 4, "pointwise/relu": 5, "logits": 4, None: 6}
    correct = {"cpu": 328, "gen1": 328, "gen3": 328, "gen4": 328, "gen5": 328}
    flips = dict.fromkeys(DEVICES[1:], (0, 0))


class Vit(Fleet, Scratch):
    """vit.w8a8 on 100 digits, among them one that gen3 to gen5 get wrong and one that every device does, and 8 samples of
    ties; its edges need two sessions on an NPU."""

    model = "vit.w8a8.onnx"
    n_digits = 100
    n_edges = 64
    first_edge = "patch/conv"
    largest_lsb = {"image": 0, "patch/conv": 2, "position/add": 2, "block0/norm1": 4, "logits": 17, None: 33}
    correct = {"cpu": 99, "gen1": 99, "gen3": 98, "gen4": 98, "gen5": 98}
    flips = {"gen1": (0, 0), "gen3": (1, 0), "gen4": (1, 0), "gen5": (1, 0)}


class Wide(Scratch):
    """16-bit activations: gen1 computes nearly everything otherwise than gen3 to gen5, which agree in all codes."""

    def check(self, model, n_digits, n_edges, least_shares):
        probe = some_digits(self.folder / "some.npz", n_digits)
        capture(model, URIS[1:], [probe], self.folder / "out", "-j", "2")
        paths = [self.folder / "out" / f"{name}.h5" for name in DEVICES[1:]]
        opened = [self.open(path) for path in paths]
        self.assertEqual(len(opened[0].edges), n_edges)
        for edge in opened[1].edges:
            codes = opened[1].values("digits", edge)
            self.assertEqual(codes.dtype, np.uint16)
            for other in opened[2:]:
                self.assert_bits_equal(codes, other.values("digits", edge), edge)
        for edge, least in least_shares.items():
            share = float(np.mean(opened[0].values("digits", edge) != opened[1].values("digits", edge)))
            self.assertGreaterEqual(share, least, edge)
        result = compare(*paths)
        self.assertEqual(result["groups"], "gen1 | gen3 = gen4 = gen5")
        self.assertEqual(result["output_groups"], "gen1 | gen3 = gen4 = gen5")

    def test_cnn_differs_nearly_everywhere_between_gen1_and_gen3(self):
        """Measured shares: 0.48 after the first convolution, 0.96 at the logits."""
        self.check("cnn.w8a16.onnx", 60, 10, {"stem/relu": 0.4, "residual/conv": 0.9, "average": 0.9, "logits": 0.9})

    def test_vit_differs_nearly_everywhere_between_gen1_and_gen3(self):
        """Measured shares: 0.9999 after the first convolution, 0.98 at the logits."""
        self.check("vit.w8a16.onnx", 10, 64, {"patch/conv": 0.99, "block0/attn/context": 0.9, "norm": 0.9, "logits": 0.9})


if __name__ == "__main__":
    main()
