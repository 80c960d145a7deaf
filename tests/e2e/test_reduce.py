#!/usr/bin/env python3
"""Models that a device refuses, cut down to what it refuses: golden/reduce holds golden ViTs with one operator more that
the NPU cannot take, golden/failing the small models that these come from (tools/oracles/make_reduce_models.py)."""
import json
import shlex

import numpy as np

from support import GOLDEN, MODELS, Scratch, main, npudiff

FAILING = GOLDEN / "failing"


def reduce(model, device, *arguments, expect=0):
    return json.loads(npudiff("reduce", model, "-d", device, "--json", "-q", *arguments, expect=expect))


class Reduce(Scratch):
    def check_reproducer(self, folder, result, stage="session"):
        """The command in README.txt does in the folder what it says."""
        names = {p.name for p in folder.iterdir()}
        self.assertLessEqual({"README.txt", "reproducer.onnx", "inputs.npz", "reference.h5"}, names)
        said = (folder / "README.txt").read_text()
        self.assertIn(result["command"], said)
        self.assertIn(result["failure"]["message"], said)
        words = shlex.split(result["command"])
        self.assertEqual(words[0], "npudiff")
        npudiff(*words[1:], cwd=folder, expect=5)
        with self.open(folder / "again.h5") as again:
            self.assertEqual((again.status, again.failure()["stage"]), ("failed", stage))

    def test_operator_inside_a_vit_is_found_by_its_kind(self):
        """v68 lacks an operator that LSTM becomes; the log names that, and other nodes that are not to blame."""
        result = reduce(GOLDEN / "reduce/vit-lstm.u8.onnx", "htp-sim:SM8350", "-o", self.folder / "out")
        self.assertEqual((result["result"], result["operator_names"]), ("reduced", ["LSTM 'case/broken'"]))
        self.assertGreater(result["operators"], 60)
        self.assertLessEqual(result["sessions"], 20)
        failure = result["failure"]
        self.assertEqual(failure["operator"], "q::QNN_LSTM_FAIL")
        self.assertEqual((failure["qnn_stage"], failure["raw_code"], failure["symbol"]),
                         ("finalize", 1002, "QNN_COMMON_ERROR_MEM_ALLOC"))
        self.assertEqual(failure["cause"], "could not create op: q::QNN_LSTM_FAIL")
        self.assertIs(result["confirmed"], True)
        self.assertEqual(result["inputs"], "cpu")
        self.check_reproducer(self.folder / "out", result)
        # Its inputs are the codes that were there in the whole model: no zeros.
        inputs = np.load(self.folder / "out/inputs.npz")
        self.assertEqual([inputs[n].dtype for n in inputs], [np.uint8])
        self.assertGreater(len(np.unique(inputs[inputs.files[0]])), 4)
        self.assertEqual([p.name for p in self.folder.iterdir()], ["out"])

    def test_failure_to_compose_inside_a_vit_is_found(self):
        result = reduce(GOLDEN / "reduce/vit-zero-dim.u8.onnx", "htp-sim:gen3")
        self.assertEqual(result["operator_names"], ["MatMul 'case/broken'"])
        self.assertIs(result["minimal"], True)
        self.assertEqual((result["failure"]["qnn_stage"], result["failure"]["raw_code"]), ("compose", 7004))

    def test_small_models_are_cut_to_their_one_operator(self):
        for name, device, operator in (("selu.u8", "SM8350", "Selu"), ("nan-scale.u8", "gen3", "Conv"),
                                       ("conv3d-dilated.u8", "gen3", "Conv")):
            with self.subTest(name):
                result = reduce(FAILING / f"{name}.onnx", f"htp-sim:{device}", "-o", self.folder / name)
                self.assertEqual(result["operator_names"], [f"{operator} 'broken'"])
                self.check_reproducer(self.folder / name, result)

    def test_fallback_is_a_failure_unless_allowed(self):
        model = GOLDEN / "cases/erf.u8.onnx"
        self.assertEqual(reduce(model, "htp-sim:gen3")["operator_names"], ["Erf 'erf'"])
        self.assertEqual(reduce(model, "htp-sim:gen3", "--allow-fallback", expect=4)["result"], "nothing to reduce")

    def test_difference_is_cut_to_a_unit_that_makes_it(self):
        """The NPU's Softmax, LayerNormalization and products round in other ways than to nearest."""
        result = reduce(MODELS / "cnn.w8a8.onnx", "htp-sim:gen3", "--differs", "0lsb", "-o", self.folder / "out",
                        "-p", f"digits={MODELS / 'digits-test.npz'}", "--samples", "2")
        self.assertEqual(result["result"], "reduced")
        self.assertEqual(result["inputs"], "exact")
        self.assertLess(result["operators_left"], result["operators"])
        self.assertGreaterEqual(result["difference_left"]["max_lsb"], 1)
        self.assertGreater(result["difference_left"]["fraction"], 0)
        self.assertTrue((self.folder / "out/reference.h5").exists())

    def test_sessions_end_the_search_honestly(self):
        result = reduce(GOLDEN / "reduce/vit-zero-dim.u8.onnx", "htp-sim:gen3", "--sessions", "5")
        self.assertLessEqual(result["sessions"], 5)
        done = npudiff("reduce", MODELS / "cnn.w8a8.onnx", "-d", "cpu", expect=4)
        self.assertIn("NOTHING TO REDUCE: the whole model does not fail", done)

    def test_answer_is_one_screen(self):
        """Emulated devices have no runtime of their own: the CPU that gives the inputs has the newest."""
        text = npudiff("reduce", MODELS / "cnn.w8a8.onnx", "-d", "emu:htp-v73", "--differs", "0lsb")
        self.assertIn("REDUCED to 1 of 9 operators", text.splitlines()[0])
        self.assertIn("REMAINING OPERATOR", text)
        self.assertLessEqual(len(text.splitlines()), 24)
        self.assertLessEqual(max(map(len, text.splitlines())), 80)


if __name__ == "__main__":
    main()
