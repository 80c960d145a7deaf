#!/usr/bin/env python3
"""Looking must not change what is looked at: what the model computes does not depend on which tensors are recorded."""
import numpy as np

from support import CASES, MODELS, Capture, Scratch, capture, main, npudiff

CHIPSETS = ["gen1", "gen3"]


class Observing(Scratch):
    def check_compare(self, codes, floats):
        """The floats of an untouched run are the codes but for the rounding of code to float: no difference."""
        for sides in ((codes, floats), (floats, codes)):
            text = npudiff("compare", *sides, "-a")
            self.assertIn("1 tensor is equal after dequantisation (rounding moves a float by ", text)
            self.assertIn("\nverdict: within (1 of 1 tensors are equal after dequantisation)\n", text)
            self.assertNotIn("ulp", text)
            self.assertNotIn("first difference", text)

    def check(self, model):
        """The model's output is bit-equal when all edges are exposed, when only the outputs are, and (as the floats of the
        same codes) when the file is run untouched."""
        for which in ("all", "outputs", "none"):
            capture(model, ["cpu", *(f"htp-sim:{name}" for name in CHIPSETS)], ["uniform:30"], self.folder / which,
                    "--tensors", which, "-j", "2")
        for name in CHIPSETS:  # the line of ONNX Runtime about quantisers on the CPU is no fallback
            self.assertIn("no fallback", npudiff("logs", self.folder / "outputs" / f"{name}.h5"))
        for name in ("cpu", *CHIPSETS):
            self.check_compare(self.folder / "outputs" / f"{name}.h5", self.folder / "none" / f"{name}.h5")
        for name in CHIPSETS:
            opened = {}
            for which in ("all", "outputs", "none"):
                opened[which] = Capture(self.folder / which / f"{name}.h5")
                self.addCleanup(opened[which].close)
            logits = {which: c.file["/probes/uniform/outputs/logits"] for which, c in opened.items()}
            codes = logits["all"][:]
            self.assertEqual(codes.tobytes(), logits["outputs"][:].tobytes(), name)
            scale, zero_point = (logits["all"].attrs[key][0] for key in ("scale", "zero_point"))
            reals = (codes.astype(np.int64) - zero_point).astype(np.float32) * scale
            self.assertEqual(logits["none"].dtype, np.float32)
            self.assertEqual(reals.tobytes(), logits["none"][:].tobytes(), name)
            self.assertGreater(len(np.unique(codes)), 10)

    def test_cnn(self):
        """One session holds all edges."""
        self.check("cnn.w8a8.onnx")

    def test_vit(self):
        """All edges at once would move nodes to the CPU, so they are recorded in two sessions."""
        self.check("vit.w8a8.onnx")
        with Capture(self.folder / "all" / "gen3.h5") as opened:
            self.assertEqual(int(opened.file["runtime"].attrs["passes"]), 2)


class Prefixes(Scratch):
    """Every edge from a session of its own, of the model cut behind it."""

    def assert_same_codes(self, model, devices, probe, *arguments):
        for folder, options in (("all", ()), ("prefixes", ("--prefixes",))):
            capture(model, devices, [probe], self.folder / folder, *arguments, *options)
        paths = sorted((self.folder / "all").glob("*.h5"))
        self.assertEqual(len(paths), len(devices))
        for path in paths:
            together, alone = self.open(path), self.open(self.folder / "prefixes" / path.name)
            self.assertEqual((together.status, alone.status), ("complete", "complete"))
            self.assertEqual(together.edges, alone.edges)
            self.assertEqual(alone.file["runtime"].attrs["edges_in"], b"prefixes")
            for name in together.edges:
                a, b = (opened.output(probe.split(":")[0], name) for opened in (together, alone))
                self.assert_bits_equal(a[()], b[()], f"{path.name}, {name}")
                self.assertEqual(a.attrs["provider"], b.attrs["provider"], f"{path.name}, {name}")
                self.assertGreater(len(np.unique(a[()])), 1)
            npudiff("verify", alone.path)

    def test_all_edges_at_once_are_those_of_the_prefixes(self):
        """Edge by edge: exposing intermediates changes nothing on the way. And explain says the same of both."""
        self.assert_same_codes("cnn.w8a8.onnx", ["cpu", *(f"htp-sim:{name}" for name in CHIPSETS)], "uniform:10")
        said = [npudiff("explain", "--quantised", MODELS / "cnn.w8a8.onnx", "--json", self.folder / folder / "gen1.h5",
                        expect=None) for folder in ("all", "prefixes")]
        self.assertIn(said[0].returncode, (0, 1), said[0].stderr)
        self.assertEqual(said[0].returncode, said[1].returncode)
        self.assertEqual(said[0].stdout.replace("/all/", "/prefixes/"), said[1].stdout)

    def test_placement_and_latency_are_of_the_whole_model(self):
        capture("cnn.w8a8.onnx", ["htp-sim:gen3"], ["uniform:2"], self.folder / "x.h5", "--prefixes")
        capture("cnn.w8a8.onnx", ["htp-sim:gen3"], ["uniform:2"], self.folder / "y.h5", "--tensors", "logits")
        prefixes, logits = self.open(self.folder / "x.h5"), self.open(self.folder / "y.h5")
        for column in ("name", "provider"):
            self.assertEqual(prefixes.column("nodes", column), logits.column("nodes", column))
        self.assertEqual(int(prefixes.file["runtime"].attrs["passes"]), len(prefixes.edges))
        self.assertTrue(np.isfinite(prefixes.file["probes/uniform/latency_us"][:]).all())

    def test_evaluated_devices(self):
        """What an emulated device remembers, it remembers per session; what it tells of itself is the same."""
        devices = ["exact", "emu:stale@residual/conv,flip@pool=0.1", "emu:fuse@residual/conv,stale@logits"]
        self.assert_same_codes("cnn.w8a8.onnx", devices, "uniform:4", "--repeats", "2")
        for path in (self.folder / "all").glob("emu*.h5"):
            together, alone = (dict(self.open(p).file["truth"].attrs)
                               for p in (path, self.folder / "prefixes" / path.name))
            self.assertEqual(together, alone)
            self.assertNotEqual(together["faulty"], b"")

    def test_model_of_several_outputs(self):
        """Also where what is looked at is a part of the edges."""
        self.assert_same_codes("random-attention.w8a8.onnx", ["cpu", "emu:stochastic:1"], "uniform:3")

    def test_fallback_is_found_in_every_session(self):
        """Without leave it fails and names the edge; with leave the edge is marked whose own unit fell."""
        path = self.folder / "gen3.h5"
        done = capture(CASES / "erf.u8.onnx", ["htp-sim:gen3"], ["uniform:20"], path, "--prefixes", expect=None)
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertRegex(done.stderr, r"failed at stage 'placement': tensor 'y': .*Erf 'erf'")
        opened = self.open(path)
        self.assertEqual((opened.status, opened.failure()["edge"], opened.n_samples("uniform")), ("failed", "y", 0))
        npudiff("verify", path)
        self.assert_same_codes(CASES / "erf.u8.onnx", ["htp-sim:gen3"], "uniform:20", "--allow-fallback")
        opened = self.open(self.folder / "prefixes" / "gen3.h5")
        providers = {name: opened.output("uniform", name).attrs["provider"] for name in ("front", "erf", "y")}
        self.assertEqual(providers, {"front": b"QNNExecutionProvider", "erf": b"CPUExecutionProvider",
                                     "y": b"QNNExecutionProvider"})


if __name__ == "__main__":
    main()
