#!/usr/bin/env python3
"""Aligned models in the simulator: chips that differ before are one group in every tensor after."""
import json

import numpy as np

from support import GOLDEN, MODELS, Capture, Scratch, main, npudiff

CHIPS = ("htp-sim:gen1", "htp-sim:gen3")


class Align(Scratch):
    def few(self, n):
        """The first n labelled digits."""
        digits = np.load(MODELS / "digits-test.npz")
        np.savez(self.folder / "few.npz", **{k: digits[k][:n] for k in digits.files})
        return f"digits={self.folder / 'few.npz'}"

    def align(self, model, *arguments, expect=0):
        """The document, with the model run on both chips."""
        out = self.folder / f"{model}.aligned.onnx"
        verify = [word for chip in CHIPS for word in ("--verify", chip)]
        return json.loads(npudiff("align", MODELS / f"{model}.onnx", "-o", out, "--json", "-q", *verify, *arguments, expect=expect))

    def check_one_group(self, document, n_tensors):
        self.assertEqual(document["result"], "aligned")
        self.assertEqual(document["counts"]["differ"] + document["counts"]["unknown"], 0)
        verification = document["verification"]
        self.assertEqual((verification["groups"], verification["tensors"], verification["tensors_equal"]), ("gen1 = gen3", n_tensors, n_tensors))
        self.assertEqual(verification["refuted"], 0)

    def differing(self, model, probe):
        """Tensors of the model as it is that differ between the chips."""
        for chip in CHIPS:
            npudiff("capture", MODELS / f"{model}.onnx", "-d", chip, "-p", probe, "-o", self.folder / f"{chip[-4:]}.h5", "-q")
        compared = json.loads(npudiff("compare", self.folder / "gen1.h5", self.folder / "gen3.h5", "--json", expect=1))
        return sum(edge["verdict"] == "differs" for edge in compared["tensors"])

    def test_cnn_is_one_group_with_every_layer_proven(self):
        digits = self.few(40)
        self.assertGreater(self.differing("cnn.w8a8", digits), 5)
        certificate = self.folder / "cert.json"
        document = self.align("cnn.w8a8", "--float", MODELS / "cnn.float.onnx", "-p", digits, "-p", "ties", "-p", "uniform:8:9",
                              "--certificate", certificate)
        self.check_one_group(document, 10)
        self.assertEqual(document["counts"]["proven"], document["counts"]["layers"])
        self.assertEqual(document["counts"]["from_float"], 5)
        (output,) = document["accuracy_cost"]["outputs"]
        self.assertLess(output["loss_db"], 0.5)
        self.assertAlmostEqual(output["loss_db"], output["sqnr_before_db"] - output["sqnr_after_db"])
        self.assertEqual(document["accuracy_cost"]["labelled"], 40)
        self.assertGreaterEqual(document["accuracy_cost"]["right_after"], document["accuracy_cost"]["right_before"] - 1)

        self.check_certificate(certificate, digits)

    def check_certificate(self, certificate, digits):
        """It names the chips with their SDK, and holds on them again, with other inputs, too."""
        stated = json.loads(certificate.read_text())
        self.assertEqual(stated["verification"]["groups"], "gen1 = gen3")
        for device in stated["verification"]["devices"]:
            self.assertIn("QAIRT", device["environment"])
        model = self.folder / "cnn.w8a8.aligned.onnx"
        chips = [word for chip in CHIPS for word in ("-d", chip)]
        again = json.loads(npudiff("verify", certificate, model, "--json", *chips, "-p", "uniform:4:77"))
        self.assertEqual((again["verdict"], again["groups"]), ("holds", "gen1 = gen3"))
        priced = json.loads(npudiff("verify", certificate, model, "--json", "--model", MODELS / "cnn.w8a8.onnx", "--float",
                                    MODELS / "cnn.float.onnx", "-p", digits, "-p", "ties", "-p", "uniform:8:9"))
        self.assertTrue(priced["accuracy_cost_checked"])

    def test_a_folded_norm_is_one_group(self):
        """And its values are those of the model as it came, but for roundings."""
        for name in ("norm.u8", "norm-bias.u8"):
            with self.subTest(name):
                model, out = GOLDEN / f"align/{name}.onnx", self.folder / f"{name}.aligned.onnx"
                verify = [word for chip in CHIPS for word in ("--verify", chip)]
                document = json.loads(npudiff("align", model, "-o", out, "--json", "-q", *verify, "-p", "uniform:8:3"))
                self.assertEqual((document["counts"]["folded"], document["counts"]["layers"]), (1, 1))
                self.check_one_group(document, 2)
                values = []
                for number, path in enumerate((model, out)):
                    capture = self.folder / f"{name}-{number}.h5"
                    npudiff("capture", path, "-d", CHIPS[1], "-p", "uniform:8:3", "-o", capture, "-q")
                    with Capture(capture) as c:
                        values.append(c.values("uniform", "y") * float(c.file["edges/scale"][c.edges.index("y")]))
                off = np.abs(values[0] - values[1]).max() * 48
                print(f"# {name}: at most {off:.2f} steps from the model as it came")
                self.assertLess(off, 6)

    def test_explain_compares_equalised_pairs_with_the_same_factors(self):
        digits, aligned, capture = self.few(200), self.folder / "aligned.onnx", self.folder / "cpu.h5"
        floats = ("--float", MODELS / "cnn.float.onnx")
        npudiff("align", MODELS / "cnn.w8a8.onnx", *floats, "--fit", digits, "-p", digits, "-o", aligned, "-q")
        npudiff("capture", aligned, "-d", "cpu", "-p", digits, "-o", capture, "-q")
        explained = json.loads(npudiff("explain", "--quantised", aligned, *floats, capture, "--json", "-q"))["quantisation"]
        self.assertEqual([(pair["layers"], pair["is_followed"]) for pair in explained["equalised"]],
                         [(["stem/relu", "depthwise/relu"], True), (["depthwise/relu", "pointwise/relu"], True)])  # fmt: skip
        layers = {layer["name"]: layer for layer in explained["layers"]}
        for name in ("stem/relu", "depthwise/relu", "pointwise/relu"):
            print(f"# {name}: {layers[name]['sqnr_db']:.1f} dB, weights {layers[name]['evidence']['weight_sqnr_db']:.1f} dB")
            self.assertGreater(layers[name]["sqnr_db"], 30)
            self.assertGreater(layers[name]["evidence"]["weight_sqnr_db"], 35)
        text = " ".join(npudiff("explain", "--quantised", aligned, *floats, capture).split())
        self.assertIn("2 pairs of layers are equalised: the float model is compared with the same factors.", text)

    def test_16_bit_cnn_is_one_group(self):
        document = self.align("cnn.w8a16", "-p", self.few(20), "-p", "ties")
        self.check_one_group(document, 10)
        self.assertEqual([layer["operators"] for layer in document["layers"] if layer["state"] == "tested"], ["GlobalAveragePool"])

    def test_vits_are_one_group(self):
        """What rests on calculated uint16 operands included."""
        digits = self.few(8)
        for model, proven in (("vit.w8a8", 63), ("vit.w8a16", 58)):
            with self.subTest(model):
                document = self.align(model, "-p", digits)
                self.check_one_group(document, 64)
                self.assertEqual((document["counts"]["proven"], document["counts"]["tested"]), (proven, 63 - proven))

    def test_weights_per_channel_with_biases_are_proven(self):
        document = self.align("random-residual.u8", "-p", "uniform:20:3", "-p", "ties")
        self.check_one_group(document, 15)
        states = {layer["tensor"]: layer["state"] for layer in document["layers"]}
        self.assertEqual(states["stem/relu"], "proven")
        self.assertEqual({layer["state"] for layer in document["layers"] if layer["scaling"]}, {"proven"})


if __name__ == "__main__":
    main()
