#!/usr/bin/env python3
"""Layers that get more bits, in the simulator: what is kept helps there, and the model that is written does the same again."""
import json

import numpy as np

from support import MODELS, Scratch, main, npudiff

CHIPS = ("htp-sim:gen1", "htp-sim:gen3")


class Promote(Scratch):
    def few(self, n):
        """The first n labelled digits."""
        digits = np.load(MODELS / "digits-test.npz")
        np.savez(self.folder / "few.npz", **{k: digits[k][:n] for k in digits.files})
        return f"digits={self.folder / 'few.npz'}"

    def promote(self, *arguments, expect=0):
        return json.loads(npudiff("promote", MODELS / "cnn.w8a8.onnx", "--float", MODELS / "cnn.float.onnx", "--json", "-q",
                                  *arguments, expect=expect))

    def sqnr_db(self, model, device, probe):
        """Of the logits of a model on a device to the float model, by commands that promote does not use."""
        out = self.folder / f"{model.stem}-{device[-4:]}"
        npudiff("capture", MODELS / "cnn.float.onnx", "-d", "float64", "-p", probe, "-o", self.folder / "float.h5", "-f", "-q")
        npudiff("capture", model, "-d", device, "-p", probe, "-t", "outputs", "-o", f"{out}.h5", "-q")
        compared = json.loads(npudiff("compare", self.folder / "float.h5", f"{out}.h5", "--allow-different-models", "-t", "outputs",
                                      "--json", expect=1))
        (edge,) = [e for e in compared["tensors"] if e["name"] == "logits"]
        return edge["pairs"][0]["sqnr_db"]

    def test_what_is_kept_helps_on_both_chips(self):
        digits, promoted = self.few(40), self.folder / "promoted.onnx"
        chips = [word for chip in CHIPS for word in ("-d", chip)]
        document = self.promote(*chips, "-p", digits, "-o", promoted)
        kept = [layer for layer in document["layers"] if layer["fate"] == "kept"]
        self.assertEqual((document["result"], document["kept"]), ("promoted", len(kept)))
        self.assertGreaterEqual(len(kept), 2)
        for layer in kept:
            self.assertEqual(layer["measured_db"], min(layer["devices_db"]))
            self.assertGreaterEqual(layer["measured_db"], 0.05)
        for chip, device in zip(CHIPS, document["devices"]):
            self.assertGreater(device["after_db"], device["before_db"] + 3)
            self.assertGreaterEqual(device["right_after"], device["right_before"] - 1)
            # Without promote: the same numbers.
            self.assertAlmostEqual(self.sqnr_db(MODELS / "cnn.w8a8.onnx", chip, digits), device["before_db"], 6)
            self.assertAlmostEqual(self.sqnr_db(promoted, chip, digits), device["after_db"], 6)

    def test_a_budget_is_kept_and_16_bits_run_on_the_chip(self):
        document = self.promote("-d", CHIPS[1], "-p", "uniform", "--layers", "4", "--budget", "2")
        self.assertLessEqual(document["cost"]["percent"], 2)
        self.assertIn("over-budget", {layer["fate"] for layer in document["layers"]})
        ran = [layer for layer in document["layers"] if layer["change"] == "16-bits" and layer["measured_db"] is not None]
        self.assertTrue(ran, "no tensor of 16 bits ran on the chip")
        self.assertFalse([layer["reason"] for layer in document["layers"] if layer["fate"] == "refused"])


if __name__ == "__main__":
    main()
