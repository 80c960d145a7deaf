#!/usr/bin/env python3
"""Healthy or faulty: the verdict of npudiff explain on the simulator's own captures, and on the same with one layer spoilt."""
import json
import os
import pathlib
import shutil
import sys

import h5py
import numpy as np

from support import Capture, Scratch, capture, main, npudiff

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODELS = ROOT / "golden" / "verdict"
sys.path.insert(0, str(ROOT / "tools/studies"))
import score_healthy_main as study

sys.path.insert(1, str(ROOT / "tests" / "support"))
import onnx_write as ow  # noqa: E402

SEED = int(os.environ.get("ND_SEED", "16"))
CHIPS = {"gen1": "v69", "gen3": "v73"}


def explain(model, *captures, expect):
    done = npudiff("explain", "--quantised", MODELS / f"{model}.onnx", "--float", MODELS / f"{model.partition('.')[0]}.float.onnx",
                   "--json", *captures, expect=expect)  # fmt: skip
    return json.loads(done)


def layers(device):
    return {u["name"]: u for u in device["layers"]}


def one_operator(path, op_type, kind, shape, constants, **attributes):
    """Writes a model of one operator: x has scale s and zero point m, y has t and z."""
    nodes = [ow.node("DequantizeLinear", ["x", "s", "m"], ["real"]), ow.node(op_type, ["real"], ["made"], **attributes),
             ow.node("QuantizeLinear", ["made", "t", "z"], ["y"])]  # fmt: skip
    path.write_bytes(ow.model(nodes, [ow.value_info("x", kind, shape)], [ow.value_info("y", kind, shape)], constants))


class Verdicts(Scratch):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        print(f"# seed {SEED}: ND_SEED sets another one")
        for model in ("conv_relu.u8", "silu.u8", "tanh.u16", "squeeze.u8"):
            capture(MODELS / f"{model}.onnx", ["cpu", *(f"htp-sim:{c}" for c in CHIPS)], [f"x={MODELS / model}.npz"], cls.shared / model)

    def path(self, model, name):
        return self.shared / model / f"{name}.h5"

    def test_healthy_chips_are_healthy_whatever_share_is_theirs(self):
        for model, layer in (("conv_relu.u8", "Relu_1"), ("silu.u8", "Mul_1")):
            for name, arch in CHIPS.items():
                report = explain(model, self.path(model, name), expect=0)
                device = report["devices"][0]
                self.assertEqual((report["verdict"], device["verdict"], device["difference"]), ("healthy", "healthy", "differs"))
                self.assertEqual((device["expected_arithmetic"], device["is_refuted"]), (arch, False))
                self.assertGreater(device["mean_squared_error"]["own_share"], 0.05)
                self.assertEqual((layers(device)[layer]["state"], layers(device)[layer]["why_follows"]), ("follows", "fused"))
            device = explain(model, self.path(model, "cpu"), expect=0)["devices"][0]
            self.assertEqual((device["verdict"], device["expected_arithmetic"], device["arithmetic"]), ("healthy", "float", "half-even"))

    def test_a_handful_of_exact_values_is_no_cpu(self):
        """A squeeze-and-excite block: 9 values that are exact were called a runtime that went to the CPU by itself."""
        for name in CHIPS:
            captures = ["--quantised", MODELS / "squeeze.u8.onnx", self.path("squeeze.u8", name)]
            said = npudiff("explain", *captures, expect=None).stdout
            self.assertNotRegex(said, "against the NPU|by the CPU|on the CPU by itself|fallback")
            self.assertEqual(json.loads(npudiff("explain", *captures, "--json", expect=None).stdout)["devices"][0]["faulty"], [])

    def test_forced_encodings_accuse_nobody(self):
        for name in CHIPS:
            device = explain("tanh.u16", self.path("tanh.u16", name), expect=0)["devices"][0]
            self.assertEqual((device["verdict"], device["faulty"]), ("healthy", []))
            conv = layers(device)["Conv_1"]
            self.assertEqual((conv["state"], conv["why_follows"]), ("follows", "forced-encoding"))
            self.assertRegex(conv["follows_text"], r"the provider reads 'Tanh_1' with scale 1/32768 with zero point 32768, not with the model's")
            self.assertRegex(layers(device)["Tanh_1"]["follows_text"], r"writes its values with scale 1/32768")

    def test_a_gate_in_its_own_encoding_hides_no_other_operator(self):
        """x HardSigmoid(x) whose gate the model writes as the provider does; then x + HardSigmoid(x) in its place."""
        model, folder = ROOT / "golden" / "programs" / "hardgate16.onnx", self.folder / "gate"
        folder.mkdir()
        x = np.fromfile(model.with_suffix(".x.bin"), np.uint16).reshape(-1, 1, 600)
        np.savez(folder / "inputs.npz", x=x)
        capture(model, ["htp-sim:gen3"], [f"codes={folder / 'inputs.npz'}"], folder)
        with Capture(folder / "gen3.h5") as c:
            values = {edge: c.values("codes", edge) for edge in c.edges}
        (gate,) = set(values) - {"x", "y"}
        for name, y, expect in (("healthy", values["y"], 0), ("sum", x // 2 + values[gate] // 2, 1)):
            np.savez(folder / f"{name}.npz", **{**values, "y": y})
            npudiff("import", "numpy", folder / f"{name}.npz", "--model", model, "-p", "codes", "--inputs", folder / "inputs.npz",
                    "--kind", "npu", "--chipset", "gen3", "--sdk", "2.51.0", "--fact", "simulator=yes", "-o", folder / f"{name}.h5")  # fmt: skip
            said = npudiff("explain", "--quantised", model, folder / f"{name}.h5", "--json", expect=expect)
            self.assertEqual([f["layer"] for f in json.loads(said)["devices"][0]["faulty"]], ["y"] * expect, name)

    def replaced(self, model, name, layer, values_of):
        """A copy of the capture in which one layer has other values, without what reads it."""
        copy = shutil.copyfile(self.path(model, name), self.folder / f"replaced-{name}-{layer}.h5")
        with h5py.File(copy, "r+") as file:
            values = file[f"probes/x/outputs/{layer}"]
            values[...] = values_of(values[()].astype(np.int64))
            study.seal(file)
        return copy

    def test_a_layer_behind_a_forced_encoding_may_be_faulty(self):
        """Half the distance from the middle: neither the model's encoding of the Tanh nor the provider's gives that."""
        for name in CHIPS:
            copy = self.replaced("tanh.u16", name, "Conv_1", lambda codes: 32768 + (codes - 32768) // 2)
            device = explain("tanh.u16", copy, expect=1)["devices"][0]
            (fault,) = device["faulty"]
            self.assertEqual((fault["layer"], fault["certainty"]), ("Conv_1", "likely"))
            self.assertIn("further off than any rounding", fault["evidence"])

    def test_an_operator_without_arithmetic_may_be_faulty(self):
        """uint16 Sin: the simulator's own values are no fault; three quarters of them are one."""
        model, codes = self.folder / "sin.onnx", np.random.default_rng(SEED).integers(0, 65536, (2, 1, 600), np.uint16)
        constants = {"s": np.float32(4 / 65535), "t": np.float32(2 / 65535), "z": np.uint16(32768)}
        one_operator(model, "Sin", ow.U16, (1, 600), dict(constants, m=constants["z"]))
        np.savez(self.folder / "sin.npz", x=codes)
        for name in CHIPS:
            path = self.folder / f"sin-{name}.h5"
            capture(model, [f"htp-sim:{name}"], [f"x={self.folder / 'sin.npz'}"], path)
            for expect, faulty in ((None, []), (1, ["y"])):
                said = npudiff("explain", "--quantised", model, path, "--json", expect=expect)
                device = json.loads(said if expect else said.stdout)["devices"][0]
                self.assertEqual([f["layer"] for f in device["faulty"]], faulty)
                with h5py.File(path, "r+") as file:
                    values = file["probes/x/outputs/y"]
                    values[...] = 32768 + (values[()].astype(np.int64) - 32768) * 3 // 4
                    study.seal(file)
            self.assertFalse(layers(device)["y"]["is_covered"])

    def test_a_softmax_of_fine_steps_accuses_nobody(self):
        """Shares of 1/192 in steps of 3.6e-5: the HTP has fewer bits than that."""
        model, codes = self.folder / "fine.onnx", np.random.default_rng(SEED).integers(100, 156, (4, 2, 192), np.uint8)
        constants = {"s": np.float32(0.004), "t": np.float32(3.576643e-05), "m": np.uint8(128), "z": np.uint8(0)}
        one_operator(model, "Softmax", ow.U8, (2, 192), constants, axis=-1)
        np.savez(self.folder / "fine.npz", x=codes)
        for name in CHIPS:
            path = self.folder / f"fine-{name}.h5"
            capture(model, [f"htp-sim:{name}"], [f"x={self.folder / 'fine.npz'}"], path)
            (device,) = json.loads(npudiff("explain", "--quantised", model, path, "--json", expect=None).stdout)["devices"]
            self.assertEqual(device["faulty"], [], name)

    def spoilt(self, model, name, layer, fault, number=0):
        """A copy of the capture with one layer spoilt, without what reads it."""
        copy = self.folder / f"{name}-{layer}-{fault}-{number}.h5"
        rng = np.random.default_rng([SEED, number])
        readers = {"Conv_1": ["Relu_1"], "Relu_1": ["Conv_2"]}
        for _ in range(200):
            made = study.spoil(self.path(model, name), copy, fault, rng, lambda n: readers.get(n, []))
            if made is not None and made[0] == layer:
                return copy
        self.fail(f"{layer} cannot be spoilt by {fault}, seed {SEED}")

    def test_spoilt_layer_is_named_first_with_its_evidence(self):
        kinds = {"stale": "stale", "window": "unwritten-window", "permute": "channel-permutation", "clamp": "saturation",
                 "zero": "all-zero", "noise": None}  # fmt: skip
        for fault, kind in kinds.items():
            for layer in ("Relu_1", "Conv_2"):
                copy = self.spoilt("conv_relu.u8", "gen3", layer, fault)
                device = explain("conv_relu.u8", copy, expect=1)["devices"][0]
                self.assertEqual(device["verdict"], "faulty", (fault, layer))
                self.assertEqual([f["layer"] for f in device["faulty"]], [layer], fault)
                if kind is not None:
                    self.assertEqual(device["faulty"][0]["kind"], kind, layer)
                self.assertRegex(device["faulty"][0]["evidence"], r"values are wrong, by up to \d+ LSB")
                self.assertIn(device["faulty"][0]["certainty"], ("proven", "likely"))
                text = npudiff("explain", "--quantised", MODELS / "conv_relu.u8.onnx", copy, "-v", "--width", 400, expect=1)
                first = text.split("\n\n")[1].splitlines()[0]
                self.assertRegex(first, rf"^htp-sim:SM8650\S*: FAULTY: '{layer}' \(")
                self.assertLess(text.index("faulty: "), text.index("begins in"))

    def test_values_that_follow_nothing_are_an_error_that_no_rounding_makes(self):
        device = explain("conv_relu.u8", self.spoilt("conv_relu.u8", "gen1", "Conv_2", "noise"), expect=1)["devices"][0]
        self.assertRegex(device["faulty"][0]["evidence"], "no known rounding makes such an error|further off than any rounding")

    def test_chipset_decides_and_values_choose_no_other(self):
        copy = self.folder / "relabelled.h5"
        shutil.copyfile(self.path("conv_relu.u8", "gen1"), copy)
        with h5py.File(copy, "r+") as file:
            device = file["device"].attrs
            for key, value in (("arch", b"v75"), ("chipset", b"SM8650"), ("uri", b"htp-sim:SM8650@x")):
                device.modify(key, np.bytes_(value))
            study.seal(file)
        device = explain("conv_relu.u8", copy, expect=1)["devices"][0]
        self.assertEqual((device["expected_arithmetic"], device["verdict"], device["faulty"]), ("v73", "unexplained", []))
        self.assertNotIn("htp-v69", device["possible_arithmetic"])

    def test_single_steps_between_runs_are_noise_and_more_is_a_fault(self):
        model = ROOT / "golden" / "models" / "cnn.w8a8.onnx"
        path = self.folder / "flip.h5"
        capture(model, ["emu:double:8,flip@residual/conv=0.05"], ["uniform:6"], path, "--repeats", 3)
        device = json.loads(npudiff("explain", "--quantised", model, "--json", path))["devices"][0]
        self.assertEqual((device["verdict"], layers(device)["residual/conv"]["why_follows"]), ("healthy", "noise"))
        self.assertRegex(layers(device)["residual/conv"]["follows_text"], r"^run to run it differs by up to [12] LSB, in .* of its values, while its inputs do not$")
        with h5py.File(path, "r+") as file:  # runs that are far from the first one
            stored = file["probes/uniform/repeats/residual%2Fconv"]
            stored[...] = 255 - stored[()]
            study.seal(file)
        device = json.loads(npudiff("explain", "--quantised", model, "--json", path, expect=1))["devices"][0]
        self.assertEqual([(f["layer"], f["kind"]) for f in device["faulty"]], [("residual/conv", "flips")])

    def test_worst_device_counts(self):
        good, bad = self.path("conv_relu.u8", "gen1"), self.spoilt("conv_relu.u8", "gen3", "Conv_2", "stale")
        report = explain("conv_relu.u8", good, bad, expect=1)
        self.assertEqual([report["verdict"], *(d["verdict"] for d in report["devices"])], ["faulty", "healthy", "faulty"])


if __name__ == "__main__":
    main()
