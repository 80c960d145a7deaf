#!/usr/bin/env python3
"""Graphs that the NPU refuses, each in its own way: a failed cell says stage, code, operator and node, and its findings."""
import json
import os

from support import GOLDEN, Scratch, capture, info, main, npudiff

FAILING = GOLDEN / "failing"
# model, chipset: what /failure has, and a word of a finding
CASES = {
    ("instance-norm.u8", "SM8350"): {"qnn_stage": "finalize", "raw_code": 1002, "symbol": "QNN_COMMON_ERROR_MEM_ALLOC",
                                     "operator": "q::ForceFormat_Crouton", "n_roots": 1, "n_followers": 0},
    ("lstm.u8", "SM8350"): {"qnn_stage": "finalize", "raw_code": 1002, "operator": "q::QNN_LSTM_FAIL", "node": "broken",
                            "log_node": "broken_cell0_forward"},
    ("selu.u8", "SM8350"): {"qnn_stage": "finalize", "raw_code": 1002, "operator": "q::QNN_Elu", "node": "broken"},
    ("scatter-nd.u8", "SM8350"): {"qnn_stage": "finalize", "raw_code": 1002, "operator": "q::ScatterNd.tcm",
                                  "node": "broken"},
    ("depthwise63.u16", "gen3"): {"qnn_stage": "finalize", "raw_code": 1002, "operator": "q::Transpose.2D"},
    ("nan-scale.u8", "gen3"): {"qnn_stage": "compose", "raw_code": 6007, "symbol": "QNN_GRAPH_ERROR_UNCONNECTED_NODE",
                               "operator": "Conv2d", "node": "broken"},
    ("zero-dim.u8", "gen3"): {"qnn_stage": "compose", "raw_code": 7004, "operator": "MatMul", "node": "broken"},
    ("lrn.u16", "gen5"): {"qnn_stage": "compose", "operator": "LRN", "node": "broken", "log_node": "broken_token_2"},
    ("conv-int16.u8", "gen1"): {"qnn_stage": "compose", "operator": "Conv", "node": "broken"},
}


class Failures(Scratch):
    def refused(self, model, chipset):
        path = self.folder / f"{model}.{chipset}.h5"
        done = capture(FAILING / f"{model}.onnx", [f"htp-sim:{chipset}"], ["zeros"], path, expect=None)
        self.assertEqual(done.returncode, 5, done.stderr)
        return path, done

    def test_cells_say_stage_code_operator_and_node(self):
        for (model, chipset), expected in CASES.items():
            with self.subTest(model=model):
                path, done = self.refused(model, chipset)
                failure = info(path)["attributes"]["failure"]
                self.assertEqual({key: failure.get(key) for key in expected}, expected)
                self.assertNotIn("root:", failure["message"])  # the provider's own words
                self.assertIn(f"root: {expected['operator']}", done.stderr)
                self.assertEqual("cannot be constructed, not memory" in done.stderr, expected.get("raw_code") == 1002)
                self.assertIn("the logs say", npudiff("info", path))
                npudiff("verify", path)

    def test_findings_of_capture_and_of_its_logs_are_the_same(self):
        path, _ = self.refused("selu.u8", "SM8350")
        stored = info(path)["findings"]
        read = json.loads(npudiff("logs", path, "--json", "--model", FAILING / "selu.u8.onnx", expect=1))
        self.assertEqual([(f["line"], f["kind"], f["text"][:240]) for f in read["findings"]],
                         [(f["line"], f["kind"], f["text"]) for f in stored])
        self.assertEqual([(f["role"], f["operator"], f["node"]) for f in read["cascade"]["failures"]],
                         [("root", "q::QNN_Elu", "broken")])
        # What is stored is what a log file says, too.
        text = self.folder / "selu.log"
        text.write_text(npudiff("info", path, "--log", "onnxruntime"))
        lines = json.loads(npudiff("logs", text, "--json", expect=1))
        self.assertEqual([f["text"] for f in lines["findings"]],
                         [f["text"] for f in read["findings"] if f["log"].endswith("onnxruntime")])

    def test_whole_runs_have_no_failure_in_their_logs(self):
        """Even at the most talkative, where a healthy backend warns of operators that it did not find at first."""
        path = self.folder / "good.h5"
        capture(FAILING / "lstm.u8.onnx", ["htp-sim:gen3"], ["zeros"], path, "--log-level", "verbose")
        read = json.loads(npudiff("logs", path, "--json"))
        self.assertEqual([f["text"] for f in read["findings"] if f["severity"] == "failure"], [])
        kinds = {f["kind"] for f in read["findings"]}
        self.assertTrue({"arch", "version", "placement", "validation"} <= kinds, kinds)

    def test_reproducible_captures_keep_findings_only_of_failures(self):
        env = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}
        good, bad = self.folder / "good.h5", self.folder / "bad.h5"
        npudiff("capture", FAILING / "selu.u8.onnx", "-d", "htp-sim:gen3", "-p", "zeros", "-o", good, env=env)
        npudiff("capture", FAILING / "selu.u8.onnx", "-d", "htp-sim:SM8350", "-p", "zeros", "-o", bad, env=env, expect=5)
        self.assertEqual((info(good)["findings"], info(good)["logs"]), ([], []))
        self.assertNotEqual(info(bad)["findings"], [])

    def test_node_on_the_cpu_is_a_fallback_and_io_quantisation_is_not(self):
        path = self.folder / "erf.h5"
        capture(GOLDEN / "cases/erf.u8.onnx", ["htp-sim:gen3"], ["zeros"], path, "--allow-fallback", "--log-level", "verbose")
        read = json.loads(npudiff("logs", path, "--json", expect=1))
        self.assertEqual({(f["operator"], f["node"]) for f in read["findings"]
                          if f["kind"] == "fallback" and f["severity"] == "failure"}, {("Erf", "erf")})


if __name__ == "__main__":
    main()
