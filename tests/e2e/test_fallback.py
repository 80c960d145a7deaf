#!/usr/bin/env python3
"""Models that an NPU cannot run, or not whole: a fallback to the CPU is never silent, and a session that cannot be made is
a result with its reason."""
import json
import pathlib
import sys

import numpy as np

from support import CASES, GOLDEN, Scratch, capture, compare, info, main, npudiff

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import attention_blocks  # noqa: E402


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


class Refusals(Scratch):
    """What a refusal says: the operators of the model, why, and what to do."""

    def write(self, named):
        """Two operators that QNN refuses, with others around them: LayerNormalization over two axes, and Erf."""
        model = attention_blocks.Attention(20261128, 0, tokens=8, width=16)
        x = model.values["image"]
        model.constants.update({"gamma": np.linspace(0.5, 1.5, 16).astype(np.float32), "beta": np.linspace(-1, 1, 16).astype(np.float32)})
        last = model.step("Mul", "square", [model.last, model.last], x * x)
        y = (x * x - (x * x).mean()) / (x * x).std()
        last = model.step("LayerNormalization", "norm", [last, "gamma", "beta"], y, axis=1)
        last = model.step("Transpose", "turned", [last], y.transpose(0, 2, 1), perm=[0, 2, 1])
        last = model.step("Erf", "erf", [last], np.tanh(y.transpose(0, 2, 1)))
        model.step("Add", "sum", [last, last], 2 * np.tanh(y.transpose(0, 2, 1)))
        data = model.bytes()
        if not named:
            for name in (b"square", b"norm", b"turned", b"erf", b"sum"):
                data = data.replace(b"\x1a" + bytes([len(name) + 5]) + name + b".node", b"\x7a" + bytes([len(name) + 5]) + name + b".node")
        path = self.folder / f"{'named' if named else 'nameless'}.onnx"
        path.write_bytes(data)
        return path

    def refused(self, model, *arguments):
        path = self.folder / "refused.h5"
        done = npudiff("capture", model, "-d", "htp-sim:gen3", "-p", "uniform:3", "-o", path, "--force", "--json", *arguments, expect=None)
        self.assertEqual(done.returncode, 5, done.stderr)
        return json.loads(done.stdout)["captures"][0], self.open(path).failure()["message"]

    def test_operators_and_reasons_come_before_quantisers(self):
        for named in (True, False):
            model = self.write(named)
            row, message = self.refused(model)
            with self.subTest(named=named):
                self.assertRegex(message, r"^2 of 5 operators \(and \d+ quantisers around them\) do not run on the NPU: LayerNormalization 'norm[^']*' "
                                          r"\(QNN LayerNorm[^)]*\), Erf 'erf[^']*' \(Operators of type `Erf` are not supported by QNN EP\);")
                self.assertIn("--allow-fallback leaves them to the CPU, 'npudiff placement' lists them all", message)
                self.assertNotIn("''", message)
                said = " ".join(npudiff("placement", model, "-d", "htp-sim:gen3", expect=1).split())
                self.assertIn("2 of 5 operators (and ", said)
                self.assertNotIn("''", said)
                share = json.loads(npudiff("placement", model, "-d", "htp-sim:gen3", "--json", expect=1))["devices"][0]["npu_share"]
                self.assertEqual((share["n_npu"], share["n_off"], share["n_unknown"]), (3, 2, 0))

    def test_placement_is_looked_at_before_tensors_are_recorded(self):
        """One session, of the untouched model; without it the search of before."""
        row, _ = self.refused(self.write(True))
        self.assertEqual((row["sessions"], row["stage"]), (1, "placement"))
        row, message = self.refused(self.write(True), "--skip-untouched")
        self.assertGreater(row["sessions"], 1)
        self.assertIn("2 of 5 operators", message)

    def test_tensor_that_changes_others_is_left_out(self):
        """Recording the transposed tensor moves a quantiser, and with it a value: the others are captured all the same."""
        model = self.write(True)
        path = self.folder / "allowed.h5"
        done = npudiff("capture", model, "-d", "htp-sim:gen3", "-p", "uniform:3", "-o", path, "--json", "--allow-fallback", expect=None)
        self.assertEqual(done.returncode, 0, done.stderr)
        (row,) = json.loads(done.stdout)["captures"]
        print(f"# left out: {row['left_out']}")
        for left_out in row["left_out"]:
            self.assertRegex(left_out["reason"], "^recording it changes the values of '|moves")
        self.assertEqual(self.open(path).status, "complete")
        npudiff("verify", path)

    def test_initializers_that_are_graph_inputs(self):
        row, message = self.refused(GOLDEN / "lint/open.u8.onnx")
        self.assertRegex(message, "^1 of 1 operators .*BatchNormalization 'norm' .*4 of its initializers are graph inputs, too, .*IR version 4")
        capture(GOLDEN / "lint/open-ir3.u8.onnx", ["htp-sim:gen3"], ["uniform:3"], self.folder / "ir3.h5")  # the near miss
        self.assertEqual(self.open(self.folder / "ir3.h5").status, "complete")


if __name__ == "__main__":
    main()
