#!/usr/bin/env python3
"""Models that an NPU cannot run, or not whole: a fallback to the CPU is never silent, and a session that cannot be made is
a result with its reason."""
from support import CASES, Scratch, capture, compare, info, main, npudiff


class Fallback(Scratch):
    def test_operator_that_the_npu_lacks_is_refused(self):
        """QNN has no Erf. Without leave the device fails before the first sample, naming the operator."""
        path = self.folder / "gen3.h5"
        done = capture(CASES / "erf.u8.onnx", ["htp-sim:gen3"], ["uniform:20"], path, expect=None)
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertIn("failed at stage 'placement'", done.stderr)
        self.assertIn("Erf 'erf'", done.stderr)
        opened = self.open(path)
        self.assertEqual(opened.status, "failed")
        self.assertEqual(opened.failure()["stage"], "placement")
        self.assertIn("Erf 'erf'", opened.failure()["message"])
        self.assertEqual(opened.n_samples("uniform"), 0)
        providers = dict(zip(opened.column("nodes", "name"), opened.column("nodes", "provider")))
        self.assertEqual((providers["erf"], providers["front"]), ("CPUExecutionProvider", "QNNExecutionProvider"))
        npudiff("verify", path)

    def test_fallback_is_taken_when_allowed_and_marked(self):
        """With leave the capture is complete, says which nodes ran where, and a comparison marks the edge."""
        capture(CASES / "erf.u8.onnx", ["cpu", "htp-sim:gen3"], ["uniform:20"], self.folder, "--allow-fallback")
        opened = self.open(self.folder / "gen3.h5")
        self.assertEqual(opened.status, "complete")
        self.assertEqual(opened.n_samples("uniform"), 20)
        self.assertEqual(opened.file["runtime"].attrs["fallback_allowed"], 1)
        providers = dict(zip(opened.column("nodes", "name"), opened.column("nodes", "provider")))
        self.assertEqual({n: providers[n] for n in ("front", "erf", "back")},
                         {"front": "QNNExecutionProvider", "erf": "CPUExecutionProvider", "back": "QNNExecutionProvider"})
        self.assertEqual(opened.output("uniform", "erf").attrs["provider"], b"CPUExecutionProvider")
        self.assertEqual(opened.output("uniform", "front").attrs["provider"], b"QNNExecutionProvider")
        result = compare(self.folder / "cpu.h5", self.folder / "gen3.h5", expect=None)
        marked = {e["name"]: [d["cpu_fallback"] for d in e["devices"]] for e in result["tensors"]}
        self.assertEqual(marked, {"x": [False, False], "front": [False, False], "erf": [False, True],
                                  "y": [False, False]})
        self.assertEqual([d["cpu_fallback_tensors"] for d in result["devices"]], [0, 1])
        said = npudiff("compare", self.folder / "cpu.h5", self.folder / "gen3.h5", "-a", expect=None).stdout
        self.assertIn("computed by the CPU provider, not by the NPU", said)

    def test_session_that_cannot_be_made_is_a_result(self):
        """v68 has no half precision: the float ViT cannot be finalised there. The provider's own words are kept, and the
        log names the operator, although only warnings were asked for."""
        path = self.folder / "SM8350.h5"
        done = capture("vit.float.onnx", ["htp-sim:SM8350"], ["zeros"], path, expect=None)
        self.assertEqual(done.returncode, 5, done.stderr)
        opened = self.open(path)
        self.assertEqual((opened.status, opened.failure()["stage"]), ("failed", "session"))
        for words in ("Failed to finalize QNN graph", "Code: 1002"):
            self.assertIn(words, done.stderr)
            self.assertIn(words, opened.failure()["message"])
        self.assertEqual(opened.n_samples("zeros"), 0)
        self.assertIn("onnxruntime", info(path)["logs"])
        self.assertIn("could not create op: q::QNN_Gelu", npudiff("info", path, "--log", "onnxruntime"))

    def test_comparison_with_a_failed_device_fails_and_says_why(self):
        """One failed cell of the matrix: exit 5, the reason in both reports, the other devices still compared."""
        devices = ["cpu", "htp-sim:SM8350", "cpu?optimisation=all"]
        capture("vit.float.onnx", devices, ["zeros"], self.folder, expect=5)
        paths = [self.folder / name for name in ("cpu.h5", "SM8350.h5", "cpu-optimisation-all.h5")]
        result = compare(*paths, expect=5)
        self.assertEqual(result["verdict"], "failed")
        self.assertEqual([d["status"] for d in result["devices"]], ["complete", "failed", "complete"])
        self.assertIn("Code: 1002", result["devices"][1]["failure"])
        logits = next(e for e in result["tensors"] if e["name"] == "logits")
        self.assertEqual([p["coverage"] for p in logits["pairs"]], ["none", "full"])
        said = npudiff("compare", *paths, expect=5)
        self.assertIn("SM8350 failed: ", said)
        self.assertRegex(said, "^FAILED: 1 of 3 devices failed")


if __name__ == "__main__":
    main()
