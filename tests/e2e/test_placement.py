#!/usr/bin/env python3
"""What runs where: the assignment that the runtime reports, the profiles beside it, and that looking changes nothing."""
import json
import shutil

import h5py
import numpy as np
from support import CASES, GOLDEN, MODELS, Scratch, capture, compare, main, npudiff
from write_capture import seal

NPU, CPU = "QNNExecutionProvider", "CPUExecutionProvider"


def placement(model, *arguments, expect):
    return json.loads(npudiff("placement", model, *arguments, "--json", expect=expect))


def replace_log(path, name, text):
    with h5py.File(path, "r+") as file:
        del file[f"logs/{name}"]
        file[f"logs/{name}"] = np.frombuffer(text, np.uint8)
        seal(file, changed=())


class Placement(Scratch):
    def test_matrix_of_an_operator_that_the_npu_lacks(self):
        """QNN has no Erf: with its quantisation it runs on the CPU and cuts the graph in two, on every chipset; the CPU is no
        NPU. The real MatMuls count 2*16*16 and 2*16*8 operations."""
        report = placement(CASES / "erf.u8.onnx", "-d", "htp-sim:gen1", "-d", "htp-sim:gen3", "-d", "cpu", expect=1)
        self.assertEqual([d["uri"].split("@")[0] for d in report["devices"]], ["htp-sim:SM8450", "htp-sim:SM8650", "cpu"])
        for device in report["devices"][:2]:
            where = {n["name"]: n["provider"] for n in device["nodes"]}
            self.assertEqual({n: where[n] for n in ("front", "erf", "back")}, {"front": NPU, "erf": CPU, "back": NPU})
            share = device["npu_share"]
            self.assertEqual((share["n_npu"], share["n_off"], share["n_unknown"]), (2, 1, 0)) # operators
            self.assertEqual(share["nodes"], 2 / 3)
            self.assertEqual(share["flops"], 768 / 784)
            self.assertEqual(share["n_runs"], 4)
            self.assertTrue(0 < share["time"] < 1)
            self.assertEqual([p["where"] for p in device["pieces"]], ["off", "npu", "off", "npu", "off"])
            self.assertEqual([p["io_quantisation"] for p in device["pieces"]], [True, False, False, False, True])
            self.assertTrue(all(p["us"] > 0 for p in device["pieces"]))
            self.assertEqual([c["bytes"] for c in device["cuts"]], [16, 16, 16, 8])
            self.assertEqual(device["problems"], [])
            self.assertTrue(any("front:OpId" in e["identifier"] for e in device["provider_events"]))
        self.assertEqual(report["devices"][2]["npu_share"]["nodes"], 0)
        rows = {r["op_type"]: r["cells"] for r in report["operators"]}
        self.assertEqual(rows["MatMul"], ["NPU", "NPU", "CPU"])
        self.assertEqual(rows["Erf"], ["CPU", "CPU", "CPU"])

    def test_models_of_which_all_is_on_the_npu(self):
        """Renamed and replaced nodes are found again; the quantisation of input and output is told apart."""
        for model, device in (("cnn.w8a8.onnx", "htp-sim:gen1"), ("vit.w8a16.onnx", "htp-sim:gen3")):
            device = placement(MODELS / model, "-d", device, expect=0)["devices"][0]
            share = device["npu_share"]
            self.assertEqual((share["nodes"], share["flops"], share["n_off"], share["n_unknown"]), (1, 1, 0, 0))
            self.assertTrue(0.5 < share["time"] < 1)
            self.assertEqual([p["where"] for p in device["pieces"]], ["off", "npu", "off"])
            self.assertEqual({n["op_type"] for n in device["nodes"] if n["io_quantisation"]},
                             {"QuantizeLinear", "DequantizeLinear"})
            self.assertTrue(any(n["renamed_to"] for n in device["nodes"]))

    def test_fallback_that_depends_on_the_chipset(self):
        """MatMuls of uint16 with int16 weights run on the CPU of v69 and on the NPU from v73 on; the others everywhere."""
        report = placement(GOLDEN / "fallback/wide.u16.onnx", "-d", "htp-sim:gen1", "-d", "htp-sim:gen3", "--repeats", "2",
                           expect=1)
        cells = next(r["cells"] for r in report["operators"] if r["op_type"] == "MatMul")
        self.assertEqual(cells, ["6 of 8", "NPU"])

    def test_operators_that_run_on_the_cpu_of_every_chipset(self):
        for model, operator in (("instance5.u8", "InstanceNormalization"), ("norm1.u8", "LayerNormalization"),
                                ("product.u8", "ReduceProd"), ("turned.u8", "Einsum"), ("transposed.u8", "ConvTranspose")):
            report = placement(GOLDEN / f"fallback/{model}.onnx", "-d", "htp-sim:gen3", "--repeats", "1", expect=1)
            nodes = [n for n in report["devices"][0]["nodes"] if n["op_type"] == operator and n["where"] != "npu"]
            self.assertTrue(nodes, model)
            self.assertEqual({n["provider"] for n in nodes}, {CPU}, model)
            self.assertIsNone(report["devices"][0]["npu_share"]["time"]) # the only run is the first

    def test_device_that_refuses_is_a_failed_cell(self):
        report = placement(GOLDEN / "failing/selu.u8.onnx", "-d", "htp-sim:SM8350", "-d", "htp-sim:gen3", "--repeats", "1",
                           expect=5)
        self.assertEqual([d["status"] for d in report["devices"]], ["failed", "complete"])
        self.assertIn("1002", report["devices"][0]["failure"])
        cells = next(r["cells"] for r in report["operators"] if r["op_type"] == "Selu")
        self.assertEqual(cells, ["failed", "NPU"])

    def test_profiling_changes_no_bit(self):
        for model in ("cnn.w8a8.onnx", "vit.w8a16.onnx"):
            capture(model, ["htp-sim:gen3"], ["uniform:3"], self.folder / "plain.h5", "-f")
            capture(model, ["htp-sim:gen3"], ["uniform:3"], self.folder / "profiled.h5", "-f", "--profile")
            with h5py.File(self.folder / "profiled.h5") as file:
                self.assertLessEqual({"profile", "qnn-profile"}, set(file["logs"]))
            self.assertEqual(compare(self.folder / "plain.h5", self.folder / "profiled.h5", expect=0)["verdict"], "same")

    def test_options_of_the_user_are_left_alone(self):
        """The level that was asked for is kept; a file that was asked for is written there, and not into the capture."""
        csv = self.folder / "mine.csv"
        for device, has_log in (("htp-sim:gen3?profiling_level=basic", True),
                                (f"htp-sim:gen3?profiling_level=detailed&profiling_file_path={csv}", False)):
            capture(CASES / "erf.u8.onnx", [device], ["zeros"], self.folder / "a.h5", "--profile", "--allow-fallback", "-f",
                    "--trust-options")
            with h5py.File(self.folder / "a.h5") as file:
                self.assertIn("profile", file["logs"])
                self.assertEqual("qnn-profile" in file["logs"], has_log)
                if has_log:
                    self.assertNotIn(b",NODE,", file["logs/qnn-profile"][:].tobytes())
        self.assertIn(b",NODE,", csv.read_bytes())

    def test_captures_with_bad_evidence(self):
        """A profile that is cut off and a CSV of another version are told; contradictions show both sides; the capture of
        another model is refused."""
        path = self.folder / "a.h5"
        capture(CASES / "erf.u8.onnx", ["htp-sim:gen3"], ["zeros"], path, "--profile", "--allow-fallback", "--repeats", "3")
        good = placement(CASES / "erf.u8.onnx", path, expect=1)["devices"][0]
        self.assertTrue(0 < good["npu_share"]["time"] <= 1)
        with h5py.File(path) as file:
            profile = file["logs/profile"][:].tobytes()
        bad = self.folder / "bad.h5"
        shutil.copy(path, bad)
        replace_log(bad, "profile", profile[:len(profile) // 2])
        replace_log(bad, "qnn-profile", b"Time,Name\n1,x\n")
        device = placement(CASES / "erf.u8.onnx", bad, expect=1)["devices"][0]
        self.assertIsNone(device["npu_share"]["time"])
        self.assertEqual(device["npu_share"]["nodes"], 6 / 9)
        self.assertIn("cut off", device["problems"][0])
        self.assertIn("'Time,Name'", device["problems"][1])
        replace_log(bad, "profile", profile.replace(b"erf_kernel_time", b"front_kernel_time"))
        device = placement(CASES / "erf.u8.onnx", bad, expect=1)["devices"][0]
        front = next(n for n in device["nodes"] if n["name"] == "front")
        self.assertEqual((front["provider"], front["profile_provider"], front["contradicted"]), (NPU, CPU, True))
        said = npudiff("placement", CASES / "erf.u8.onnx", bad, "-v", expect=1)
        self.assertIn("but the profile says CPUExecutionProvider", said)
        npudiff("placement", CASES / "dense.u8.onnx", path, expect=3)

    def test_compare_shows_the_share(self):
        capture(CASES / "erf.u8.onnx", ["cpu", "htp-sim:gen3"], ["uniform:3"], self.folder, "--allow-fallback", "--profile")
        paths = [self.folder / "cpu.h5", self.folder / "gen3.h5"]
        devices = compare(*paths, expect=None)["devices"]
        self.assertIsNone(devices[0]["npu_share"])
        share = devices[1]["npu_share"]
        self.assertEqual((share["n_npu"], share["n_off"]), (2, 1))
        self.assertTrue(0 < share["time"] < 1)
        self.assertIn("gen3: 2 of 3 operators (66.7%)", npudiff("compare", *paths, expect=None).stdout)


if __name__ == "__main__":
    main()
