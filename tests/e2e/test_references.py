#!/usr/bin/env python3
"""The references as devices: the quantised model by exact units, the float model in double precision."""
import numpy as np

from support import Capture, Scratch, capture, compare, main, npudiff, capture_command

PROBES = ["uniform:20", "zeros", "ones", "ties:4"]


class References(Scratch):
    def differing(self, report, edge):
        (pair,) = [e for e in report["tensors"] if e["name"] == edge][0]["pairs"]
        return pair

    def test_exact_is_what_the_cpu_provider_means(self):
        """Unoptimised, the CPU provider computes in float32 what the exact units compute exactly: codes differ only where a value
        lies next to a tie. Input codes are those of ONNX's own operator."""
        capture("cnn.w8a8.onnx", ["exact", "cpu"], PROBES, self.folder)
        report = compare(self.folder / "exact.h5", self.folder / "cpu.h5", expect=None)
        for edge in report["tensors"]:
            self.assertLess(edge["pairs"][0]["share"], 2e-3, edge["name"])
        self.assertEqual(self.differing(report, "image")["differing"], 0)
        with Capture(self.folder / "exact.h5") as opened:
            self.assertEqual(opened.file["device"].attrs["kind"], b"exact")
            self.assertEqual(opened.file["/probes/uniform/outputs/logits"].dtype, np.uint8)

    def test_exact_with_another_rounding_is_another_device(self):
        """Floor lowers every code that is not whole; a unit that moves codes is not touched."""
        capture("cnn.w8a8.onnx", ["exact", "exact?rounding=floor"], ["uniform:20"], self.folder)
        names = sorted(path.name for path in self.folder.glob("*.h5"))
        self.assertEqual(len(names), 2, names)
        report = compare(self.folder / "exact.h5", *[self.folder / n for n in names if n != "exact.h5"])
        first = self.differing(report, "stem/relu")
        self.assertLess(first["signed_mean_lsb"], -0.1)
        self.assertEqual(first["histogram"]["1"], 0)
        self.assertEqual(self.differing(report, "image")["differing"], 0)

    def test_float64_is_near_the_float_model(self):
        """Stored as float64 and compared with float32 by value."""
        capture("vit.float.onnx", ["float64", "cpu"], ["uniform:20"], self.folder)
        report = compare(self.folder / "float64.h5", self.folder / "cpu.h5")
        for edge in report["tensors"]:
            pair = edge["pairs"][0]
            self.assertTrue(pair["mixed"], edge["name"])
            self.assertTrue(pair["sqnr_db"] == "Infinity" or pair["sqnr_db"] > 80, edge["name"])
        with Capture(self.folder / "float64.h5") as opened:
            self.assertEqual(opened.file["/probes/uniform/outputs/logits"].dtype, np.float64)

    def test_all_golden_models_are_evaluated(self):
        """No operator of theirs is missing."""
        for model in ("vit.w8a8.onnx", "vit.w8a16.onnx", "cnn.w8a16.onnx", "mul.u8.onnx"):
            capture(model, ["exact"], ["uniform:2"], self.folder / model)
        for model in ("cnn.float.onnx", "mul.float.onnx"):
            capture(model, ["float64"], ["uniform:2"], self.folder / model)

    def test_the_wrong_reference_is_refused(self):
        """A float model has no units, and a quantised one is no float reference."""
        for model, device in (("cnn.float.onnx", "exact"), ("cnn.w8a8.onnx", "float64")):
            result = npudiff(*capture_command(model, [device], ["zeros"], self.folder), expect=None)
            self.assertNotEqual(result.returncode, 0)
            self.assertIn(f"device '{device}' is for", result.stderr)
            self.assertEqual(list(self.folder.glob("*.h5")), [])


if __name__ == "__main__":
    main()
