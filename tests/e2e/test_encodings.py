#!/usr/bin/env python3
"""Encodings that the real AIMET made (tools/oracles/make_encodings.py), applied and run: the codes are those of AIMET's own simulation.
And HTP configurations that go with captures."""
import json

import numpy as np

from support import GOLDEN, MODELS, Capture, Scratch, capture, info, main, npudiff, some_digits

FLOAT = MODELS / "cnn.float.onnx"
ENCODINGS = GOLDEN / "encodings"
N = 8


def simulated(way):
    return np.load(ENCODINGS / f"cnn.{way}.simulated.npz")


class Applied(Scratch):
    def apply(self, way, version, devices=("exact",)):
        """The captures of the QDQ model."""
        model = self.folder / f"{way}.{version}.onnx"
        npudiff("encodings", "apply", FLOAT, ENCODINGS / f"cnn.{way}.{version}.encodings", "-o", model)
        output = self.folder / f"{way}.{version}"
        capture(model, devices, [some_digits(self.folder / "some.npz", N)], output)
        return [self.open(output / f"{device}.h5") for device in devices]

    def mismatches(self, opened, way, kind):
        """{tensor: how many codes are not AIMET's}, and how many there are."""
        found, total = {}, 0
        expected = simulated(way)
        for key in expected.files:
            if not key.startswith(kind + "/"):
                continue
            name = key.split("/")[1].replace("|", "/")
            codes = opened.values("digits", name)
            wanted = expected[key].reshape(codes.shape)
            self.assertEqual(codes.dtype, wanted.dtype, name)
            total += codes.size
            different = codes.astype(np.int64) - wanted
            if different.any():
                found[name] = (int(np.count_nonzero(different)), int(np.abs(different).max()))
        return found, total

    def test_8_bit_codes_are_those_of_aimets_simulation(self):
        """All of 74 704 codes, per channel and per tensor, in both versions, on the exact units and on the CPU provider."""
        for way in ("per-channel", "per-tensor"):
            for version in ("0.6.1", "1.0.0"):
                for opened in self.apply(way, version, ("exact", "cpu")):
                    with self.subTest(way=way, version=version, capture=opened.path.name):
                        self.assertEqual(self.mismatches(opened, way, "activation"), ({}, 74704))

    def test_int32_biases_are_those_of_aimets_qdq_model(self):
        """Version 2.0.0 has encodings for biases and for tensors that only move."""
        for way in ("per-channel", "per-tensor"):
            for opened in self.apply(way, "2.0.0", ("exact", "cpu")):
                with self.subTest(way=way, capture=opened.path.name):
                    self.assertEqual(self.mismatches(opened, way, "qdq"), ({}, 6224))
        (opened,) = self.apply("w8a16", "2.0.0", ("cpu",))
        self.assertEqual(self.mismatches(opened, "w8a16", "qdq"), ({}, 6224))

    def test_16_bit_codes_differ_only_where_float32_cannot_tell(self):
        """AIMET simulates in float32, whose sums are off by some hundredths of a 16-bit code. Every difference in the first unit lies
        that near to a tie; further on they are handed down, and stay below 1 % and 2 codes."""
        (opened,) = self.apply("w8a16", "1.0.0")
        found, total = self.mismatches(opened, "w8a16", "activation")
        self.assertLess(sum(n for n, _ in found.values()), 0.01 * total)
        self.assertLessEqual(max(largest for _, largest in found.values()), 2)
        expected = simulated("w8a16")
        self.assertNotIn("image", found)
        codes = opened.values("digits", "stem/relu").astype(np.int64)
        wanted = expected["activation/stem|relu"].reshape(codes.shape).astype(np.int64)
        value = self.stem_before_rounding()
        different = codes != wanted
        self.assertLess(np.abs(value[different] - np.floor(value[different]) - 0.5).max(initial=0), 0.02)
        self.assertEqual(np.count_nonzero(codes != np.rint(value)), 0) # and it is ours that is right

    def stem_before_rounding(self):
        """The first convolution of codes in double precision, in steps of its output."""
        encodings = json.loads((ENCODINGS / "cnn.w8a16.1.0.0.encodings").read_text())
        scale = {e["name"]: np.float32(e["scale"]).astype(np.float64)
                 for group in ("activation_encodings", "param_encodings") for e in encodings[group]}
        expected = simulated("w8a16")
        image = expected["activation/image"].reshape(N, 8, 8) * scale["image"][0]
        weight = expected["param/stem.weight"].reshape(24, 3, 3) * scale["stem.weight"].reshape(24, 1, 1)
        padded = np.pad(image, ((0, 0), (1, 1), (1, 1)))
        value = np.zeros((N, 24, 8, 8))
        for y in range(3):
            for x in range(3):
                value += weight[None, :, y, x, None, None] * padded[:, None, y:y + 8, x:x + 8]
        value += self.stem_bias().astype(np.float64)[None, :, None, None]
        return np.maximum(value / scale["stem/relu"][0], 0).reshape(N, 1, 24, 8, 8)

    def stem_bias(self):
        """The float bias, found in the file by its place: no onnx package is needed for 96 bytes."""
        data = FLOAT.read_bytes()
        at = data.index(b"\x42\x09stem.bias")
        raw = data.index(b"\x4a\x60", at - 110, at + 110) # raw_data (field 9) of 96 bytes
        return np.frombuffer(data[raw + 2:raw + 98], "<f4")

    def test_the_float_model_explains_with_it(self):
        """Edges keep the names of the float model."""
        model = self.folder / "2.onnx"
        npudiff("encodings", "apply", FLOAT, ENCODINGS / "cnn.per-channel.2.0.0.encodings", "-o", model)
        capture(model, ["htp-sim:gen3"], [some_digits(self.folder / "some.npz", N)], self.folder / "npu")
        told = npudiff("explain", "--float", FLOAT, "--quantised", model, self.folder / "npu" / "gen3.h5", "--json", expect=None)
        self.assertIn(told.returncode, (0, 1), told.stderr)
        (device,) = json.loads(told.stdout)["devices"]
        self.assertGreaterEqual(len(device["layers"]), 9)
        self.assertGreater(device["mean_squared_error"]["quantisation"], 0)

    def test_completed_encodings_are_those_of_version_2(self):
        """What AIMET derives for 2.0.0 (biases, moved tensors) is derived from 0.6.1 and 1.0.0, too; with it the NPU runs all."""
        for way in ("per-channel", "per-tensor", "w8a16"):
            for version in ("0.6.1", "1.0.0"):
                model = self.folder / f"{way}.{version}.onnx"
                npudiff("encodings", "apply", FLOAT, ENCODINGS / f"cnn.{way}.{version}.encodings", "-o", model, "--complete")
                told = json.loads(npudiff("encodings", "diff", ENCODINGS / f"cnn.{way}.2.0.0.encodings", model, "--json"))
                self.assertEqual((told["same"], told["different"]), (21, 0))
        capture(model, ["htp-sim:gen3"], [some_digits(self.folder / "some.npz", N)], self.folder / "npu")

    def test_check_counts_what_numpy_counts(self):
        (opened,) = self.apply("per-tensor", "1.0.0")
        told = json.loads(npudiff("encodings", "check", ENCODINGS / "cnn.per-tensor.1.0.0.encodings", opened.path, "--json"))
        self.assertEqual(told["without_encoding"], [])
        self.assertEqual(len(told["tensors"]), 9)
        for row in told["tensors"]:
            codes = opened.values("digits", row["tensor"])
            self.assertEqual(row["verdict"], "same")
            self.assertEqual(row["elements"], codes.size)
            self.assertAlmostEqual(row["low_share"], np.mean(codes == 0), places=12)
            self.assertAlmostEqual(row["high_share"], np.mean(codes == 255), places=12)
            self.assertAlmostEqual(row["used_range"], (int(codes.max()) - int(codes.min()) + 1) / 256, places=6)
        changed = json.loads((ENCODINGS / "cnn.per-tensor.1.0.0.encodings").read_text())
        changed["activation_encodings"][1]["scale"][0] /= 2
        (self.folder / "half.encodings").write_text(json.dumps(changed))
        told = json.loads(npudiff("encodings", "check", self.folder / "half.encodings", opened.path, "--json", expect=1))
        halved = [row for row in told["tensors"] if row["verdict"] != "same"]
        self.assertEqual([row["tensor"] for row in halved], [changed["activation_encodings"][1]["name"]])
        codes = opened.values("digits", halved[0]["tensor"])
        self.assertAlmostEqual(halved[0]["high_share"], np.mean(codes >= 127.5), places=12)


class Configured(Scratch):
    def captured(self, name, inner):
        (self.folder / "htp.json").write_text(json.dumps(inner))
        (self.folder / "outer.json").write_text(json.dumps({"backend_extensions": {
            "shared_library_path": "libQnnHtpNetRunExtensions.so", "config_file_path": "htp.json"}}))
        path = self.folder / f"{name}.h5"
        capture("mul.u8.onnx", ["exact"], ["zeros"], path, "--htp-config", self.folder / "outer.json")
        return path

    def test_a_configuration_is_kept_whole_and_compared(self):
        first = {"graphs": [{"graph_names": ["g"], "vtcm_mb": 8, "O": 3}], "devices": [{"cores": [{"perf_profile": "burst"}]}]}
        other = {"graphs": {"graph_names": ["g"], "vtcm_mb": 4, "O": 3}, "devices": [{"cores": [{"perf_profile": "default"}]}]}
        a, b = self.captured("a", first), self.captured("b", other)
        with Capture(a) as opened:
            self.assertEqual(json.loads(opened.file["runtime"].attrs["htp_config"]), first)
        self.assertIn("config_file_path", info(a)["attributes"]["runtime"]["htp_config_outer"])
        (pair,) = json.loads(npudiff("compare", "--config", a, b, "--json", expect=1))["pairs"]
        self.assertEqual(pair["can_change_bits"], 1)
        self.assertEqual(pair["settings"], [
            {"key": "htp.graphs[0].vtcm_mb", "ref": "8", "test": "4", "effect": "can change bits"},
            {"key": "htp.devices[0].cores[0].perf_profile", "ref": "burst", "test": "default", "effect": "performance only"}])
        npudiff("compare", "--config", a, a)

    def test_devices_differ_in_what_they_are(self):
        capture("mul.u8.onnx", ["cpu", "exact"], ["zeros"], self.folder)
        (pair,) = json.loads(npudiff("compare", "--config", self.folder / "cpu.h5", self.folder / "exact.h5", "--json", expect=1))["pairs"]
        keys = {row["key"]: row["effect"] for row in pair["settings"]}
        self.assertEqual(keys["device.kind"], "can change bits")
        self.assertEqual(pair["can_change_bits"], sum(effect == "can change bits" for effect in keys.values()))


if __name__ == "__main__":
    main()
