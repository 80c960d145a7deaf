#!/usr/bin/env python3
"""npudiff explain on real devices: what it says is what numpy finds in the captures of the references."""
import json

import numpy as np

from support import MODELS, Scratch, capture, main, npudiff, some_digits

N = 24
QUANTISED, FLOAT = MODELS / "cnn.w8a8.onnx", MODELS / "cnn.float.onnx"


class Explain(Scratch):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        probe = some_digits(cls.shared / "digits.npz", N)
        capture("cnn.w8a8.onnx", ["exact", "cpu", "htp-sim:gen1", "htp-sim:gen3"], [probe], cls.shared)
        capture("cnn.float.onnx", ["float64"], [probe], cls.shared / "float")
        cls.report = cls.explain("exact", "cpu", "gen1", "gen3")

    @classmethod
    def explain(cls, *names, arguments=("--float", FLOAT), expect=1):
        captures = [cls.shared / f"{name}.h5" for name in names]
        done = npudiff("explain", "--quantised", QUANTISED, *arguments, "--json", *captures, expect=expect)
        return json.loads(done)

    def device(self, name):
        return [d for d in self.report["devices"] if d["capture"].endswith(f"/{name}.h5")][0]

    def test_total_is_local_and_inherited(self):
        """In every code, and total is what the captures say of the device and the quantised reference."""
        exact = self.open(self.shared / "exact.h5")
        for name in ("cpu", "gen1", "gen3"):
            test = self.open(self.shared / f"{name}.h5")
            for unit in self.device(name)["units"]:
                self.assertTrue(unit["examined"], unit["name"])
                self.assertEqual(unit["identity_violations"], 0)
                a, b = (c.values("digits", unit["name"]).astype(int) for c in (exact, test))
                self.assertEqual(unit["codes"], a.size)
                self.assertEqual(unit["total"]["differing"], np.count_nonzero(a != b))
                self.assertAlmostEqual(unit["total"]["energy"], np.mean((b - a) ** 2.0), places=12)
                parts = [round(unit[part]["mean"] * a.size) for part in ("total", "local", "inherited")]
                self.assertEqual(parts[0], parts[1] + parts[2])

    def test_energies_are_those_of_the_references(self):
        """Quantisation, divergence and interaction at the output, worked out from the captures of exact and float64."""
        exact, real = self.open(self.shared / "exact.h5"), self.open(self.shared / "float" / "float64.h5")
        output = exact.output("digits", "logits")
        scale, zero = np.ravel(output.attrs["scale"])[0], int(np.ravel(output.attrs["zero_point"])[0])
        codes = exact.values("digits", "logits").astype(float)
        q = codes - zero - real.values("digits", "logits") / float(scale)
        for name in ("gen1", "gen3"):
            d = self.open(self.shared / f"{name}.h5").values("digits", "logits").astype(float) - codes
            energy = self.device(name)["energy"]
            for key, value in (("quantisation", np.mean(q * q)), ("divergence", np.mean(d * d)),
                               ("interaction", 2 * np.mean(q * d)), ("bias", np.mean(d)),
                               ("own_share", np.mean(d * d) / (np.mean(d * d) + np.mean(q * q)))):
                self.assertAlmostEqual(energy[key], value, delta=1e-9 * max(1, abs(value)), msg=key)
            low, high = energy["own_share_interval"]
            self.assertTrue(0 < low < energy["own_share"] < high < 1)

    def test_chipsets_diverge_from_the_first_convolution_on(self):
        for name in ("gen1", "gen3"):
            self.assertEqual(self.device(name)["verdict"], "differs")
            self.assertEqual(self.device(name)["sources"][0], "stem/relu")
        self.assertEqual(self.device("exact")["verdict"], "same")
        self.assertEqual(self.device("exact")["sources"], [])

    def test_text_has_the_sentence(self):
        text = npudiff("explain", "--quantised", QUANTISED, "--float", FLOAT, self.shared / "gen1.h5", "--width", 400,
                       expect=1)
        self.assertRegex(text, r"\d% of its output error is quantisation and common to all; [\d.]+% \[95%: [\d.]+ to "
                               r"[\d.]+%\] is its own, made first in 'stem/relu' \(Conv\)")

    def test_exit_codes(self):
        self.explain("exact", arguments=(), expect=0)
        for arguments, code in (([QUANTISED, self.folder / "missing.h5"], 2),
                                ([MODELS / "cnn.w8a16.onnx", self.shared / "exact.h5"], 3),
                                ([QUANTISED, self.shared / "exact.h5", "-p", "nowhere"], 2)):
            self.assertEqual(npudiff("explain", "--quantised", *arguments, expect=None).returncode, code)
        capture("cnn.w8a8.onnx", ["exact"], ["zeros"], self.folder / "outputs.h5", "--edges", "outputs")
        done = npudiff("explain", "--quantised", QUANTISED, self.folder / "outputs.h5", expect=4)
        self.assertIn("not captured", done)


if __name__ == "__main__":
    main()
