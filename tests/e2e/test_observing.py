#!/usr/bin/env python3
"""Looking must not change what is looked at: what the model computes does not depend on which tensors are recorded."""
import json
import os
import pathlib
import sys

import numpy as np

from support import CASES, MODELS, NPUDIFF, Capture, Scratch, capture, main, npudiff

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import attention_blocks  # noqa: E402

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


class Untouched(Scratch):
    """The outputs are held against a run of the untouched model. The stand-in agent changes a zero point by 8 where a tensor is
    visible: the graph that is recorded gives other outputs than the one that ships."""

    STANDIN = pathlib.Path(__file__).with_name("agent_standin.py")
    AGENT = pathlib.Path(NPUDIFF).resolve().parents[1] / "devices" / "agent" / "npudiff-agent"

    def setUp(self):
        super().setUp()
        self.model = self.folder / "model.onnx"
        self.model.write_bytes(attention_blocks.Attention(20261128, 1).bytes())

    def capture(self, name, device, *arguments, tensor=None, changes=None):
        """The capture, its row, and what was said on stderr; tensor: where that is visible, the stand-in does what it does."""
        environment = dict(os.environ)
        if tensor is not None:
            environment.update(STANDIN_AGENT=str(self.AGENT), STANDIN_TENSOR=tensor, NPUDIFF_AGENT=str(self.STANDIN),
                               PYTHONPATH=str(self.STANDIN.parent), **({"STANDIN_CHANGES": changes} if changes else {}))
        path = self.folder / name
        done = npudiff("capture", self.model, "-d", device, "-p", "uniform:40", "-p", "zeros", "-o", path, "--json", *arguments, env=environment,
                       expect=None)
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.open(path), json.loads(done.stdout)["captures"][0], " ".join(done.stderr.split())

    def explained(self, opened):
        said = [npudiff("explain", "--quantised", self.model, opened.path, "-p", "uniform", *more, expect=None).stdout for more in ((), ("-v",), ("--json",))]
        return " ".join(said[0].split()), " ".join(said[1].split()), json.loads(said[2])["devices"][0]["observer"]

    def test_outputs_that_recording_changes_are_named_everywhere(self):
        opened, row, said = self.capture("x.h5", "cpu", tensor="b0/weights.q", changes="b0/sum.z")
        runtime = opened.file["runtime"].attrs
        (differs,) = row["untouched_differs"]
        self.assertEqual(differs["tensor"], "b0/sum.dq")
        # Of each probe the first 32 samples; every value that is not clipped differs by 8.
        self.assertRegex(differs["differs"], r"^\d+ of 1584 values differ in 33 of 33 samples, by at most 8 LSB$")
        self.assertEqual((int(runtime["untouched_samples"]), int(runtime["untouched_changed"]), row["sessions"]), (33, 33, 2))
        self.assertEqual(runtime["untouched_differs"].decode(), f"b0/sum.dq\t{differs['differs']}")
        self.assertIn(f"recording changes 1 output of the model: without it, of 'b0/sum.dq' {differs['differs']}", said)
        brief, full, observer = self.explained(opened)
        for text in (brief, full):
            self.assertIn(f"recording changes the outputs of 33 of 33 samples, first of 'b0/sum.dq': without it {differs['differs']}", text)
        self.assertEqual(observer, {"samples": 33, "changed": 33, "differs": f"b0/sum.dq\t{differs['differs']}"})
        self.assertIn("recording changes 'b0/sum.dq'", " ".join(npudiff("info", opened.path).split()))
        npudiff("verify", opened.path)
        # A run that is given takes the place of what the capture states: nothing is counted twice.
        whole = self.capture("whole.h5", "cpu", "--tensors", "none")[0]
        said = npudiff("explain", "--quantised", self.model, opened.path, "-p", "uniform", "--untouched", whole.path, "--json", expect=None).stdout
        self.assertEqual(json.loads(said)["devices"][0]["observer"], {"samples": 40, "changed": 40, "differs": None})

    def test_equal_outputs_are_counted_and_nothing_is_said(self):
        """The neighbours: a device that does not change, here and in the simulator, in one session and in several."""
        for device in ("cpu", "htp-sim:gen3"):
            opened, row, said = self.capture(f"{device[-4:]}.h5", device)
            runtime = opened.file["runtime"].attrs
            self.assertEqual((int(runtime["untouched_samples"]), int(runtime["untouched_changed"])), (33, 0))
            self.assertNotIn("untouched_differs", runtime)
            self.assertEqual((row["untouched_differs"], row["untouched_unknown"]), ([], None))
            self.assertNotIn("recording changes", said)
            self.assertNotIn("recording changes", self.explained(opened)[0])

    def test_it_is_left_off_where_it_says_nothing_or_is_not_wanted(self):
        for arguments in (("--skip-untouched",), ("--tensors", "outputs"), ("--tensors", "none"), ("--store", "digest")):
            opened, row, _ = self.capture("x.h5", "cpu", "--force", *arguments, tensor="b0/weights.q", changes="b0/sum.z")
            self.assertFalse([key for key in opened.file["runtime"].attrs if key.startswith("untouched")], arguments)
            self.assertEqual(row["sessions"], 1)

    def test_untouched_model_that_does_not_run_is_told(self):
        """The stand-in is killed where the float output is visible, as in the untouched model alone."""
        opened, row, said = self.capture("x.h5", "cpu", tensor="b0/sum.dq")
        self.assertEqual(opened.status, "complete")
        self.assertIn("killed", row["untouched_unknown"])
        self.assertIn("whether recording changes the outputs is not known: ", said)
        self.assertNotIn("untouched_samples", opened.file["runtime"].attrs)


if __name__ == "__main__":
    main()
