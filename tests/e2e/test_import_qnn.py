"""`npudiff import qnn-net-run`: what a stand-in of the tool leaves is, bit for bit, a capture of the same chipset and SDK; folders
of many forms are read to equal bits; of generated folders with one defect each the defect is named."""
import json
import os
import pathlib
import random
import subprocess
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools/studies"))
import defects_main
import qnn_folders
from support import MODELS, NPUDIFF, Capture, Scratch, capture, compare, info, main, npudiff

STAND_IN = pathlib.Path(__file__).resolve().parents[1] / "support" / "qnn_net_run.py"
SEED = int(os.environ.get("ND_SEED", "20261122"))  # others: tools/studies/seeds, tools/studies/defects
N_DEFECTS = 300


def run_import(folder, *arguments, expect=0, **options):
    return npudiff("import", "qnn-net-run", folder, *arguments, expect=expect, **options)


class Prepared(Scratch):
    """prepare, run.sh with the stand-in, import, compare."""

    def run_tool(self, folder, style):
        tool = self.folder / "qnn-net-run"
        tool.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{STAND_IN}" "$@"\n')
        tool.chmod(0o755)
        script = folder / "run.sh"
        script.write_text(script.read_text().replace("--use_native_output_files", f"--output_data_type {style}"))
        subprocess.run(["sh", script], check=True, capture_output=True,
                       env=dict(os.environ, NPUDIFF=NPUDIFF, QNN_NET_RUN=str(tool)))

    def check(self, model, style, probes=("zeros", "uniform:3")):
        folder, local, made = self.folder / "prepared", self.folder / "local.h5", self.folder / "imported.h5"
        flags = [f for p in probes for f in ("-p", p)]
        npudiff("prepare", MODELS / model, "--chipset", "gen3", "-o", folder, "-q", *flags)
        self.run_tool(folder, style)
        runtime = json.loads((folder / "npudiff.json").read_text())["runtime"]["id"]
        capture(model, [f"htp-sim:gen3@{runtime}"], probes, local)
        run_import(folder, "--model", MODELS / model, "-o", made)
        report = compare(local, made, expect=0)
        self.assertEqual(report["verdict"], "same")
        self.assertEqual(len(report["tensors"]), len(Capture(local).edges))
        self.assertTrue(all(edge["comparable"] and edge["groups"] == [0, 0] for edge in report["tensors"]))
        with Capture(local) as expected, Capture(made) as found:
            self.assertEqual(found.probes, expected.probes)
            for probe in expected.probes:
                self.assertEqual(list(found.file[f"probes/{probe}/inputs"]), list(expected.file[f"probes/{probe}/inputs"]))
                for name, data in expected.file[f"probes/{probe}/inputs"].items():
                    self.assert_bits_equal(found.file[f"probes/{probe}/inputs/{name}"][()], data[()], name)
                for edge in expected.edges:
                    self.assert_bits_equal(found.values(probe, edge), expected.values(probe, edge), edge)
        npudiff("verify", made)
        return folder, made

    def test_native(self):
        _, made = self.check("cnn.w8a8.onnx", "native_only")
        self.assertIn("SM8650", json.dumps(info(made)))

    def test_float_only_of_which_every_value_is_the_real_of_a_code(self):
        _, made = self.check("cnn.w8a8.onnx", "float_only")
        self.assertIn("every float is exactly the real of one", json.dumps(info(made)))

    def test_float_and_native(self):
        self.check("cnn.w8a8.onnx", "float_and_native")

    def test_sixteen_bits(self):
        self.check("cnn.w8a16.onnx", "float_and_native", probes=("uniform:2",))

    def test_without_the_model_names_and_scales_are_those_of_the_manifest(self):
        folder, made = self.check("cnn.w8a8.onnx", "native_only", probes=("ties:2",))
        run_import(folder / "output", "-o", made, "--force") # the folder above is found
        report = compare(self.folder / "local.h5", made, expect=0)
        self.assertEqual(report["verdict"], "same")

    def test_labels_of_a_probe_are_kept(self):
        images = np.load(MODELS / "digits-test.npz")
        np.savez(self.folder / "few.npz", image=images["image"][:3], labels=images["labels"][:3])
        _, made = self.check("cnn.w8a8.onnx", "native_only", probes=(f"few={self.folder / 'few.npz'}", "zeros"))
        with Capture(made) as found:
            self.assertEqual(list(found.labels("few")), list(images["labels"][:3]))


class Forms(Scratch):
    """Folders that are read to equal bits."""

    def setUp(self):
        super().setUp()
        self.output = self.folder / "out"
        self.made = self.folder / "made.h5"

    def write(self, name, samples, results=None):
        for i, sample in enumerate(samples):
            folder = (results or self.output) / f"Result_{i}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(np.ascontiguousarray(sample).tobytes())

    def model(self, names, shape):
        (self.folder / "m.onnx").write_bytes(qnn_folders.onnx_model(names, shape))
        return ["--model", self.folder / "m.onnx"]

    def context(self, *outputs, inputs=(), graph="g"):
        """(name, type, dimensions, quantizeParams) each."""
        tensors = lambda items: [{"info": {"name": n, "dataType": t, "dimensions": d, "quantizeParams": q}}
                                 for n, t, d, q in items]
        graphs = [{"info": {"graphName": graph, "graphInputs": tensors(inputs), "graphOutputs": tensors(outputs)}}]
        (self.folder / "context.json").write_text(json.dumps({"info": {"backendId": 6, "graphs": graphs}}))
        return ["--context-json", self.folder / "context.json"]

    def read(self, *arguments, expect=0):
        text = run_import(self.output, "-o", self.made, *arguments, expect=expect)
        self.capture = Capture(self.made)
        self.addCleanup(self.capture.close)
        return text

    def values(self, name):
        return self.capture.values("qnn-net-run", name)

    def floats(self, *shape):
        return np.random.default_rng(7).standard_normal(shape).astype(np.float32)

    def test_channels_are_moved_where_the_dimensions_say_so(self):
        data = self.floats(3, 1, 4, 5, 3)
        self.write("stem_relu.raw", data)
        text = self.read(*self.model(["stem/relu"], (1, 3, 4, 5)),
                         *self.context(("stem_relu", "QNN_DATATYPE_FLOAT_32", [1, 4, 5, 3], None)))
        self.assertIn("channels last, moved", text)
        self.assert_bits_equal(self.values("stem/relu"), np.ascontiguousarray(data.transpose(0, 1, 4, 2, 3)), "moved")

    def test_channels_are_moved_where_the_user_says_so(self):
        data = self.floats(2, 1, 4, 4, 4)
        self.write("a.raw", data)
        (self.folder / "map.yaml").write_text("tensors: [{name: a, layout: NHWC}]\n")
        for said in (["--layout", "NHWC"], ["--map", self.folder / "map.yaml"]):
            self.read(*self.model(["a"], (1, 4, 4, 4)), *said, "--force")
            self.assert_bits_equal(self.values("a"), np.ascontiguousarray(data.transpose(0, 1, 4, 2, 3)), str(said))
        self.read(*self.model(["a"], (1, 4, 4, 4)), "--layout", "NCHW", "--force")
        self.assert_bits_equal(self.values("a"), data, "NCHW")

    def test_scales_along_an_axis(self):
        codes = np.arange(2 * 6, dtype=np.uint8).reshape(2, 2, 3)
        pairs = [{"scale": 0.5, "offset": -1}, {"scale": 0.25, "offset": 0}, {"scale": 2.0, "offset": -3}]
        self.write("a_native.raw", codes)
        reals = (codes.astype(np.float64) + [-1, 0, -3]) * [0.5, 0.25, 2.0]
        self.write("a.raw", reals.astype(np.float32))
        self.read(*self.context(("a", "QNN_DATATYPE_UFIXED_POINT_8", [2, 3], {
            "quantizationEncoding": "QNN_QUANTIZATION_ENCODING_AXIS_SCALE_OFFSET",
            "axisScaleOffset": {"axis": 1, "numScaleOffsets": 3, "scaleOffset": pairs}})))
        self.assert_bits_equal(self.values("a"), codes, "codes")
        attributes = self.capture.output("qnn-net-run", "a").attrs
        self.assertEqual(list(np.atleast_1d(attributes["scale"])), [0.5, 0.25, 2.0])
        self.assertEqual(list(np.atleast_1d(attributes["zero_point"])), [1, 0, 3])
        self.assertEqual(int(attributes["axis"]), 1)
        (self.output / "Result_1" / "a.raw").write_bytes((reals[1] + [0, 0, 2]).astype(np.float32).tobytes())
        done = run_import(self.output, "-o", self.folder / "x.h5", "--context-json", self.folder / "context.json", expect=None)
        self.assertEqual((done.returncode, "element 2 of 'a'" in done.stderr), (2, True), done.stderr)

    def test_floats_that_are_no_reals_of_codes_stay_floats(self):
        data = self.floats(2, 3)
        self.write("a.raw", data)
        self.read(*self.context(("a", "QNN_DATATYPE_UFIXED_POINT_8", [3], {"scaleOffset": {"scale": 0.5, "offset": -4}})))
        self.assert_bits_equal(self.values("a"), data, "floats")

    def test_names_of_snpe(self):
        data = self.floats(2, 1, 10)
        self.write("softmax:0.raw", data)
        self.read(*self.model(["softmax:0"], (1, 10)))
        self.assert_bits_equal(self.values("softmax:0"), data, "softmax:0")

    def test_outputs_without_names(self):
        first, second = self.floats(2, 3), self.floats(2, 5)
        self.write("named.raw", first)
        self.write("Output_1.raw", second)
        self.read(*self.context(("named", "QNN_DATATYPE_FLOAT_32", [3], None), ("", "QNN_DATATYPE_FLOAT_32", [5], None)))
        self.assert_bits_equal(self.values("Output_1"), second, "Output_1")

    def test_nothing_is_assumed_unless_asked(self):
        data = self.floats(2, 7)
        self.write("a.raw", data)
        done = run_import(self.output, "-o", self.made, expect=None)
        self.assertEqual((done.returncode, self.made.exists()), (2, False))
        self.assertIn("nothing states the shape of 'a'", done.stderr)
        self.assertIn("not stated: --assume float32", self.read("--assume", "float32"))
        self.assert_bits_equal(self.values("a"), data, "a")

    def test_files_of_several_samples(self):
        data = self.floats(6, 1, 4)
        self.write("a.raw", data.reshape(2, 3, 4))
        self.read(*self.model(["a"], (1, 4)), "--batch", "3")
        self.assert_bits_equal(self.values("a"), data, "a")

    def test_several_graphs(self):
        left, right = self.floats(2, 3), self.floats(2, 3) + 1
        self.write("a.raw", left, self.output / "left")
        self.write("a.raw", right, self.output / "right")
        self.read(*self.model(["a"], (3,)), "--graph", "right")
        self.assert_bits_equal(self.values("a"), right, "a")

    def test_what_the_model_lacks_is_an_edge_of_its_own(self):
        self.write("a.raw", self.floats(2, 3))
        self.write("b.raw", self.floats(2, 4))
        stated = [*self.model(["a"], (3,)), *self.context(("a", "QNN_DATATYPE_FLOAT_32", [3], None),
                                                          ("b", "QNN_DATATYPE_FLOAT_32", [4], None))]
        self.assertIn("not a tensor of the model", self.read(*stated))
        self.assertEqual(set(self.capture.edges), {"a", "b"})
        self.assertIn("no tensor 'b'", run_import(self.output, "-o", self.folder / "x.h5", *stated, "--strict", expect=None).stderr)

    def test_inputs_of_a_list_are_stored(self):
        fed = self.floats(2, 1, 4)
        self.write("a.raw", self.floats(2, 1, 4))
        for i in range(2):
            (self.folder / f"in{i}.raw").write_bytes(fed[i].tobytes())
        (self.folder / "list.txt").write_text("%a\n\nx:=in0.raw\n# comment\nx:=in1.raw\n")
        self.read(*self.model(["a"], (1, 4)), "--input-list", self.folder / "list.txt")
        self.assert_bits_equal(self.capture.file["probes/qnn-net-run/inputs/x"][()], fed, "x")

    def test_logs_and_profile_are_stored(self):
        self.write("a.raw", self.floats(1, 3))
        csv = "Msg Timestamp,Message,Time,Unit of Measurement,Timing Source,Event Level,Event Identifier\nUNKNOWN,NODE,1,US\n"
        (self.output / "p.csv").write_text(csv)
        (self.output / "qnn-profiling-data.log").write_bytes(b"\x00\x01")
        (self.output / "tool.log").write_text("Finished Executing Graphs\n")
        text = self.read(*self.model(["a"], (3,)))
        self.assertEqual(self.capture.file["logs/qnn-profile"][()].tobytes().decode(), csv)
        self.assertEqual(self.capture.file["logs/tool.log"][()].tobytes().decode(), "Finished Executing Graphs\n")
        self.assertNotIn("qnn-profiling-data.log", self.capture.file["logs"])
        self.assertIn("'qnn-profiling-data.log' is binary", text)

    def test_fewer_inferences_make_a_partial_capture(self):
        data = self.floats(4, 3)
        self.write("a.raw", data)
        (self.output / "execution_metadata.yaml").write_text("inferences_completed: 2\n")
        said = json.loads(self.read(*self.model(["a"], (3,)), "--json", expect=5))
        self.assertEqual((said["status"], said["samples"]), ("partial", 2))
        self.assertEqual(self.capture.status, "partial")
        self.assert_bits_equal(self.values("a"), data[:2], "a")


class Defects(Scratch):
    def test_each_defect_is_named(self):
        print(f"# ND_SEED={SEED}")
        results = defects_main.study(N_DEFECTS, SEED)
        wrong = [f"{kind}: {p}" for kind, problems in results.items() for p in problems if p]
        self.assertEqual(wrong, [])
        self.assertEqual(set(results), {None, *qnn_folders.KINDS})


if __name__ == "__main__":
    main()
