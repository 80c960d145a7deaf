#!/usr/bin/env python3
"""The runners that npudiff ships, where tools/setup --tests has installed their packages. Each passes the trials of devices --check.
Two engines of integer arithmetic, LiteRT's reference kernels and TOSA's reference model, give what npudiff's own program of that
arithmetic gives, bit for bit, from the image to the layer before the mean."""
import json
import os
import pathlib
import shutil

from support import MODELS, Scratch, capture, compare, info, main, npudiff, some_digits

ROOT = pathlib.Path(__file__).resolve().parents[2]
INSTALLED = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "npudiff/runners"
# Trials that an engine of 8 bits may refuse.
REFUSED = {"litert": ["values of 16 bits"], "tosa": ["values of 16 bits"], "rknn-sim": ["values of 16 bits"]}


class ShippedRunners(Scratch):
    def setUp(self):
        super().setUp()
        self.runners = self.folder / "runners"
        package = self.runners / "python/npudiff"
        shutil.copytree(ROOT / "python/src/npudiff/runners", package / "runners")
        shutil.copy(ROOT / "python/src/npudiff/runner.py", package)
        (package / "__init__.py").touch()
        self.environment = dict(os.environ, NPUDIFF_RUNNERS=str(self.runners))

    def install(self, name):
        """The runner of this tree with the packages that are installed."""
        python = INSTALLED / name / "bin/python"
        if not python.exists() or (INSTALLED / name / "made.txt").read_text() != (ROOT / f"tools/runners/{name}.txt").read_text():
            self.skipTest(f"tools/setup --tests has not installed the packages of runner {name}, or others")
        path = self.runners / f"npudiff-runner-{name}"
        path.write_text(f"#!/bin/sh\nexec env PYTHONDONTWRITEBYTECODE=1 PYTHONPATH={self.runners}/python {python} "
                        f"-m npudiff.runners.{name.replace('-', '_')}\n")
        path.chmod(0o755)

    def check(self, name):
        self.install(name)
        report = json.loads(npudiff("devices", "--check", f"exec:{name}", "--json", expect=0, env=self.environment))
        states = {trial["trial"]: trial["state"] for trial in report["trials"]}
        self.assertEqual([trial for trial, state in states.items() if state == "refused"], REFUSED.get(name, []))
        self.assertEqual(set(states.values()) - {"refused"}, {"passed"})

    def test_ort_passes(self):
        self.check("ort")

    def test_openvino_passes(self):
        self.check("openvino")

    def test_litert_passes(self):
        self.check("litert")

    def test_tosa_passes(self):
        self.check("tosa")

    def test_rknn_sim_passes(self):
        self.check("rknn-sim")

    def differing(self, device):
        """{tensor: whether it differs} from npudiff's own program of the arithmetic."""
        probe = some_digits(self.folder / "digits.npz", 20)
        captures = [self.folder / f"{i}.h5" for i in range(2)]
        for path, uri in zip(captures, ("emu:gemmlowp", device)):
            capture("cnn.w8a8.onnx", [uri], ["ramp", probe], path, "--force", env=self.environment)
        report = compare(*captures)
        self.assertEqual(len(report["tensors"]), 10)
        return {tensor["name"]: tensor["groups"] != [0, 0] for tensor in report["tensors"]}

    def test_litert_reference_kernels_are_gemmlowp(self):
        self.install("litert")
        differs = self.differing("exec:litert?kernels=reference")
        self.assertEqual([name for name, yes in differs.items() if yes], ["average", "features", "logits"])
        # XNNPACK rounds once in the first layer; npudiff sees that, so that the equality above says something.
        self.assertTrue(self.differing("exec:litert?kernels=xnnpack")["stem/relu"])

    def test_tosa_is_gemmlowp(self):
        self.install("tosa")
        differs = self.differing("exec:tosa")
        self.assertEqual([name for name, yes in differs.items() if yes], ["average", "features", "logits"])
        self.assertTrue(self.differing("exec:tosa?rounding=single")["stem/relu"])

    def test_products_and_means_of_integer_runners_are_named(self):
        for runner, device in (("litert", "exec:litert?kernels=reference"), ("tosa", "exec:tosa")):
            self.install(runner)
            for model, op in (("mul.u8.onnx", "Mul"), ("cnn.w8a8.onnx", "GlobalAveragePool")):
                with self.subTest(device=device, op=op):
                    path = self.folder / f"{runner}-{op}.h5"
                    capture(model, [device], ["uniform:20"], path, env=self.environment)
                    report = json.loads(npudiff("explain", "--identify", "--quantised", MODELS / model, path, "--json", expect=None).stdout)
                    found = next(t for t in report["identification"]["devices"][0]["types"] if t["op_type"] == op)
                    self.assertEqual(found["exceptions"], 0)
                    self.assertIn("gemmlowp" if runner == "litert" else "tosa-double", sum(found["groups"], []))

    def test_attention_on_tosa_with_one_rounding_equals_onnx_runtime(self):
        self.install("tosa")
        captures = [self.folder / "cpu.h5", self.folder / "tosa.h5"]
        for path, uri in zip(captures, ("cpu", "exec:tosa?rounding=single")):
            capture("vit.w8a8.onnx", [uri], ["ramp", "uniform:3"], path, env=self.environment)
        report = compare(*captures, expect=0)
        self.assertEqual((len(report["tensors"]), report["verdict"]), (64, "same"))
        self.assertIn("a LayerNormalization is computed in floats", npudiff("info", captures[1], "--log", "runner"))

    def test_attention_on_litert_rounds_each_layer_once_where_it_has_no_integer_kernel(self):
        self.install("litert")
        path = self.folder / "litert.h5"
        capture("vit.w8a8.onnx", ["exec:litert"], ["uniform:2"], path, env=self.environment)
        report = json.loads(npudiff("explain", "--identify", "--quantised", MODELS / "vit.w8a8.onnx", path, "--json", expect=None).stdout)
        exceptions = {t["op_type"]: t["exceptions"] for t in report["identification"]["devices"][0]["types"]}
        self.assertEqual({exceptions[op] for op in ("LayerNormalization", "Gelu", "ReduceMean", "Add", "Conv", "Gemm")}, {0})

    def test_integer_runners_refuse_what_they_cannot_convert(self):
        for runner, vendor in (("litert", "TFLite"), ("tosa", "TOSA")):
            self.install(runner)
            for model, says in ((ROOT / "golden/found/shares.u8.onnx", f"layer 'exp': this runner has no Exp for {vendor}"),
                                (MODELS / "cnn.w8a16.onnx", "this runner takes 8 bits only"),
                                (MODELS / "cnn.float.onnx", "this runner takes quantised models only")):
                with self.subTest(runner=runner, model=model.name):
                    path = self.folder / f"{runner}-{model.name}.h5"
                    capture(model, [f"exec:{runner}"], ["ramp"], path, expect=5, env=self.environment)
                    self.assertIn(says, info(path)["attributes"]["failure"]["message"])


if __name__ == "__main__":
    main()
