#!/usr/bin/env python3
"""The faults that `npudiff lint` finds in a file are there on the NPU, and are gone from the copy that --fix writes."""
import json

import numpy as np

from support import GOLDEN, Capture, Scratch, capture, main, npudiff

LINT, NPUS = GOLDEN / "lint", ("htp-sim:gen1", "htp-sim:gen3")


class Lint(Scratch):
    def findings(self, model):
        return json.loads(npudiff("lint", model, "--json", expect=None).stdout)["findings"]

    def off(self, model, tensor="y", probe="uniform:2"):
        """{device: the most steps by which the tensor differs from the CPU's}"""
        folder = self.folder / f"captures-{len(list(self.folder.iterdir()))}"
        capture(model, ["cpu", *NPUS], [probe], folder)
        values = {}
        for name in ("cpu", "gen1", "gen3"):
            with Capture(folder / f"{name}.h5") as c:
                values[name] = c.values(probe.split(":")[0], tensor).astype(int)
        return {name: int(np.abs(values[name] - values["cpu"]).max()) for name in ("gen1", "gen3")}

    def mended(self, model):
        path = self.folder / f"mended-{model.name}"
        npudiff("lint", model, "--fix", "-o", path)
        self.assertEqual(self.findings(path), [])
        return path

    def test_mended_faults_are_gone_on_the_npu(self):
        """The model, the rule, the most that may be left (LSB)."""
        for model, rule, left in ((LINT / "bias-twice.u8.onnx", "bias-scale", 1), (LINT / "bias-twice.u16.onnx", "bias-scale", 200),
                                  (LINT / "moved.u8.onnx", "moved-unscaled", 0), (GOLDEN / "found/tanh.u16.onnx", "forced-encoding", 3),
                                  (GOLDEN / "found/sigmoid.u16.onnx", "forced-encoding", 4)):
            with self.subTest(model=model.name):
                (finding,) = self.findings(model)
                self.assertEqual(finding["rule"], rule)
                before, after = self.off(model), self.off(self.mended(model))
                print(f"# {model.name}: {before} LSB from the CPU, mended {after}; lint says {finding['effect_lsb']:.1f}")
                for npu in before:
                    # The probe need not reach the worst value, and rounding and clipping come on top.
                    self.assertGreater(before[npu], finding["effect_lsb"] / 2)
                    self.assertLessEqual(before[npu], finding["effect_lsb"] + left + 1)
                    self.assertLessEqual(after[npu], left)

    def test_a_model_in_qoperator_format_is_not_called_clean(self):
        model, out = LINT / "qoperator.u8.onnx", self.folder / "cpu.h5"
        says = npudiff("lint", model, expect=4)
        self.assertTrue(says.startswith("NOT EXAMINED"), says)
        self.assertIn("2 operators (QLinearConv...) in QOperator format", says)
        document = json.loads(npudiff("lint", model, "--json", expect=4))
        self.assertEqual((document["result"], document["counts"]["qoperators"]), ("not-examined", 2))
        done = npudiff("capture", model, "-d", "cpu", "-p", "uniform:2", "-o", out, expect=None)
        self.assertEqual(done.returncode, 0)
        self.assertIn("QuantFormat.QDQ", done.stderr)
        self.assertIn("in QOperator format", " ".join(npudiff("explain", out, expect=4).split()))
        # A neighbour in QDQ form has layers.
        self.assertIn("CLEAN", npudiff("lint", LINT / "quantised.u8.onnx"))

    def test_an_encoding_is_mended_past_a_reshape(self):
        model = LINT / "sigmoid-moved.u16.onnx"
        mended = self.mended(model)
        before, after = self.off(model, "s"), self.off(mended, "s")
        product = self.off(model), self.off(mended)
        print(f"# recorded: {before} LSB from the CPU, mended {after}; the layers behind: {product[0]}, mended {product[1]}")
        self.assertGreater(min(before.values()), 5000)
        self.assertLessEqual(max(after.values()), 4)
        self.assertLessEqual(max(product[1].values()), 8)

    def test_other_faults_are_there_and_their_near_misses_are_right(self):
        for fault, near_miss, least in (("bias-one.u8", "bias-right.u8", 9), ("overflow.u8", "no-overflow.u8", 100), ("axis-0.u8", "axis-1.u8", 5),
                                        ("leaky-wraps.u16", "leaky.u16", 60000), ("missing.u16", "matmul-add.u16", 5), ("joined.u8", None, 40)):
            with self.subTest(model=fault):
                off = self.off(LINT / f"{fault}.onnx")
                print(f"# {fault}: {off} LSB from the CPU")
                self.assertGreaterEqual(max(off.values()), least)
                if near_miss:
                    # gen1 keeps 10 bits of the multiplier, which is up to 14 LSB of uint16.
                    self.assertLessEqual(self.off(LINT / f"{near_miss}.onnx")["gen3"], 1, near_miss)

    def test_qnn_refuses_activations_with_channels(self):
        out = npudiff("capture", LINT / "channels.u8.onnx", "-d", "htp-sim:gen3", "-p", "uniform", "-o", self.folder / "c", "--json", expect=5)
        self.assertIn("Failed to compose Qnn graph", json.dumps(json.loads(out)))


if __name__ == "__main__":
    main()
