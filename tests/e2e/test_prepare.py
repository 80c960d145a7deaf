"""Folders for qnn-net-run: what they hold, and that what a stand-in of the tool makes of them is, bit for bit, what a
capture on the same chipset and SDK records."""
import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np

import phones
from support import MODELS, NPUDIFF, Scratch, Capture, capture, capture_command, main, npudiff

STAND_IN = pathlib.Path(__file__).resolve().parents[1] / "support" / "qnn_net_run.py"
PROBES = ["zeros", "uniform:3", "ties:2"]


def prepare(model, chipset, folder, *arguments, expect=0, probes=PROBES):
    flags = [f for p in probes for f in ("-p", p)]
    path = MODELS / model if not os.path.isabs(model) else model
    return npudiff("prepare", path, "--chipset", chipset, "-o", folder, *flags, *arguments, expect=expect)


def manifest(folder):
    return json.loads(pathlib.Path(folder, "npudiff.json").read_text())


class Prepared(Scratch):
    def tool(self):
        """The stand-in as one executable, as the script finds qnn-net-run."""
        path = self.folder / "qnn-net-run"
        path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{STAND_IN}" "$@"\n')
        path.chmod(0o755)
        return path

    def run_script(self, folder, *arguments, expect=0, **environment):
        done = subprocess.run(["sh", pathlib.Path(folder, "run.sh"), *arguments], capture_output=True, text=True, cwd="/",
                              env=dict(os.environ, NPUDIFF=NPUDIFF, QNN_NET_RUN=str(self.tool()), **environment))
        self.assertEqual(done.returncode, expect, done.stderr)
        self.assertEqual(pathlib.Path(folder, "exit_code").read_text(), f"{expect}\n")
        return done

    def assert_as_captured(self, folder, path):
        """Every output of every inference, and every input that is an edge, as in the capture."""
        said = manifest(folder)
        n = 0
        with Capture(path) as captured:
            for i, result in enumerate(said["results"]):
                probe = said["probes"][result["probe"]]["name"]
                for tensor in said["outputs"]:
                    expected = captured.values(probe, tensor["name"])[result["sample"]]
                    suffix = "" if tensor["dtype"] == "float32" else "_native"
                    data = pathlib.Path(folder, "output", f"Result_{i}", tensor["context_name"] + suffix + ".raw").read_bytes()
                    self.assertEqual(len(data), tensor["size_bytes"])
                    self.assertEqual(list(expected.shape), tensor["shape"])
                    self.assert_bits_equal(np.frombuffer(data, tensor["dtype"]).reshape(tensor["shape"]), expected,
                                           f"{probe} {result['sample']} {tensor['name']}")
                    n += 1
                for fed in said["fed"]:
                    data = pathlib.Path(folder, result["inputs"][fed["input"]]["file"]).read_bytes()
                    expected = captured.values(probe, fed["edge"])[result["sample"]]
                    self.assert_bits_equal(np.frombuffer(data, expected.dtype).reshape(expected.shape), expected,
                                           f"{probe} {result['sample']} {fed['edge']}")
            names = {t["name"] for t in said["outputs"]} | {f["edge"] for f in said["fed"]}
            self.assertEqual(names, set(captured.edges))
        self.assertEqual(n, len(said["results"]) * len(said["outputs"]))
        return n

    def check(self, model, chipset, *arguments, probes=PROBES, edges="all"):
        folder = self.folder / "prepared"
        prepare(model, chipset, folder, "-q", "--tensors", edges, *arguments, probes=probes)
        runtime = manifest(folder)["runtime"]["id"]
        command = capture_command(model, [f"htp-sim:{chipset}@{runtime}"], probes, self.folder / "local.h5", "--tensors", edges)
        with subprocess.Popen([NPUDIFF, *map(str, command)], stderr=subprocess.PIPE, text=True) as local:
            self.run_script(folder)
            said = local.communicate(timeout=300)[1]
        self.assertEqual(local.returncode, 0, said)
        return self.assert_as_captured(folder, self.folder / "local.h5")


class Run(Prepared):
    """prepare, run.sh with the stand-in, and the local capture of the same chipset and SDK."""

    def test_cnn_u8_gen3(self):
        self.assertEqual(self.check("cnn.w8a8.onnx", "gen3"), 6 * 9)

    def test_cnn_u8_gen4(self):
        self.check("cnn.w8a8.onnx", "gen4")

    def test_cnn_u8_gen1_of_an_older_sdk(self):
        self.check("cnn.w8a8.onnx", "gen1", "--runtime", "qairt-2.50.40")

    def test_cnn_u16(self):
        self.check("cnn.w8a16.onnx", "gen4")

    def test_residual(self):
        self.check("random-residual.u8.onnx", "gen3")

    def test_one_of_codes_with_two_inputs(self):
        folder = self.folder / "prepared"
        prepare("mul.u8.onnx", "gen3", folder, probes=["uniform:3"])
        said = manifest(folder)
        self.assertEqual([t["context_name"] for t in said["inputs"]], ["a", "b"])
        self.assertEqual(len((folder / "input_list.txt").read_text().splitlines()[0].split(" ")), 2)
        self.run_script(folder)
        capture("mul.u8.onnx", ["htp-sim:gen3"], ["uniform:3"], self.folder / "local.h5")
        with Capture(self.folder / "local.h5") as captured:
            expected = captured.values("uniform", "product")
        for i in range(3):
            data = (folder / "output" / f"Result_{i}" / (said["outputs"][0]["context_name"] + "_native.raw")).read_bytes()
            self.assertEqual(data, expected[i].tobytes())

    def test_float_model(self):
        """fp16 on the NPU: inputs and outputs of the context are float32."""
        self.check("cnn.float.onnx", "gen3", probes=["zeros", "uniform:3"], edges="outputs")
        said = manifest(self.folder / "prepared")
        self.assertEqual([t["dtype"] for t in said["inputs"] + said["outputs"]], ["float32", "float32"])
        self.assertIsNone(said["outputs"][0]["scale"])

    def test_vit_of_which_only_the_outputs_stay_on_the_npu(self):
        self.check("vit.w8a8.onnx", "gen4", probes=["uniform:2"], edges="outputs")

    def test_float_files(self):
        """Without native flags: dequantised outputs."""
        folder = self.folder / "prepared"
        prepare("cnn.w8a8.onnx", "gen3", folder, "-q")
        self.run_script(folder)
        tensor = next(t for t in manifest(folder)["outputs"] if t["name"] == "logits")
        name = folder / "output" / "Result_1" / tensor["context_name"]
        codes = np.frombuffer(pathlib.Path(f"{name}_native.raw").read_bytes(), np.uint8)
        script = (folder / "run.sh").read_text()
        (folder / "run.sh").write_text(script.replace("--use_native_output_files", "--output_data_type float_and_native"))
        self.run_script(folder)
        self.assertEqual(pathlib.Path(f"{name}_native.raw").read_bytes(), codes.tobytes())
        expected = ((codes.astype(np.float64) - tensor["zero_point"][0]) * tensor["scale"][0]).astype(np.float32)
        self.assertEqual(pathlib.Path(f"{name}.raw").read_bytes(), expected.tobytes())

    def test_strange_names_and_folders(self):
        """Spaces and letters beyond ASCII, in names of tensors, of probes and of the folder."""
        name = "st m/rél"
        data = (MODELS / "cnn.w8a8.onnx").read_bytes().replace(b"stem/relu", name.encode()) # as many bytes
        (self.folder / "möd el.onnx").write_bytes(data)
        np.save(self.folder / "in put é.npy", np.linspace(-1, 2, 2 * 64, dtype=np.float32).reshape(2, 1, 1, 8, 8))
        probe = f"-a.b_={self.folder / 'in put é.npy'}"
        folder = self.folder / "a b é"
        prepare(str(self.folder / "möd el.onnx"), "gen3", folder, probes=[probe])
        said = manifest(folder)
        self.assertIn((name, "st_m_r__l_QuantizeLinear_Output"),
                      [(t["name"], t["context_name"]) for t in said["outputs"]])
        self.assertEqual(said["probes"][0]["name"], "-a.b_")
        self.assertTrue(all(line.isascii() and line.count(" ") == 0
                            for line in (folder / "input_list.txt").read_text().splitlines()))
        self.run_script(folder)
        capture(str(self.folder / "möd el.onnx"), ["htp-sim:gen3"], [probe], self.folder / "local.h5")
        self.assert_as_captured(folder, self.folder / "local.h5")


class Folder(Prepared):
    def test_same_call_gives_the_same_bytes(self):
        for name in ("one", "two"):
            prepare("cnn.w8a8.onnx", "gen3", self.folder / name, "-q")
        one, two = ({str(p.relative_to(self.folder / n)): p.read_bytes() for p in (self.folder / n).rglob("*") if p.is_file()}
                    for n in ("one", "two"))
        self.assertEqual(one, two)
        self.assertEqual(len(one), 8 + 6)

    def test_what_the_manifest_says(self):
        folder = self.folder / "prepared"
        prepare("cnn.w8a8.onnx", "SM8850", folder, "-q", "--profiling-level", "basic")
        said = manifest(folder)
        self.assertEqual(said["chipset"], {"sm": "SM8850", "soc_model": 87, "arch": "v81"})
        self.assertRegex(said["runtime"]["sdk"], r"^\d+\.\d+\.\d+\.\d{12}$")
        self.assertNotIn("/", "".join(said["runtime"]["options"].values())) # no path of this machine
        inner = json.loads((folder / "htp.json").read_text())["devices"][0]
        self.assertEqual((inner["soc_model"], inner["dsp_arch"]), (87, "v81"))
        outer = json.loads((folder / "config.json").read_text())["backend_extensions"]
        self.assertEqual(outer["config_file_path"], "htp.json")
        self.assertEqual(len((folder / "input_list.txt").read_text().splitlines()), len(said["results"]))
        self.assertTrue(os.access(folder / "run.sh", os.X_OK))
        self.run_script(folder)
        self.assertTrue((folder / "output" / "qnn-profiling-data_0.log").exists())
        self.assertIn("inferences_completed: 6\n", (folder / "output" / "execution_metadata.yaml").read_text())
        self.assertTrue((folder / "stdout.txt").read_text().endswith("Finished Executing Graphs\n"))

    def test_prepared_onnx_runs_in_a_capture(self):
        """context.onnx is what it says: the same context, for ONNX Runtime."""
        folder = self.folder / "prepared"
        prepare("cnn.w8a8.onnx", "gen3", folder, "-q")
        shown = json.loads(npudiff("info", folder / "context.onnx", "--json", expect=None).stdout or "{}")
        self.assertIsInstance(shown, dict)
        npudiff("capture", folder / "context.onnx", "-d", "htp-sim:gen3", "-t", "none", "-p", "zeros", "-o",
                self.folder / "c.h5", "-q")


class Inputs(Prepared):
    """The codes of an input are those of ONNX Runtime's QuantizeLinear."""

    def check_codes(self, model):
        rng = np.random.default_rng(7)
        special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e38, -1e38, 1e-42, np.finfo(np.float32).max], np.float32)
        values = np.concatenate([np.tile(special, 15)[:128], rng.uniform(-0.5, 1.5, 64 * 200).astype(np.float32),
                                 (np.arange(64 * 8, dtype=np.float32) - 4 + 0.5) * np.float32(1 / 255)])
        np.save(self.folder / "in.npy", values.reshape(-1, 1, 1, 8, 8))
        probe = f"values={self.folder / 'in.npy'}"
        prepare(model, "gen3", self.folder / "prepared", "-q", "--tensors", "image,logits", "--allow-nonfinite", probes=[probe])
        said = manifest(self.folder / "prepared")
        capture(model, ["cpu"], [probe], self.folder / "cpu.h5", "--tensors", "image", "--allow-nonfinite")
        with Capture(self.folder / "cpu.h5") as captured:
            expected = captured.values("values", "image")
        codes = b"".join((self.folder / "prepared" / r["inputs"][0]["file"]).read_bytes() for r in said["results"])
        self.assert_bits_equal(np.frombuffer(codes, expected.dtype).reshape(expected.shape), expected, model)

    def test_u8(self):
        self.check_codes("cnn.w8a8.onnx")

    def test_u16(self):
        self.check_codes("cnn.w8a16.onnx")


class Refusals(Prepared):
    def refuse(self, text, *arguments, code=2, model="cnn.w8a8.onnx", chipset="gen3", folder=None):
        folder = folder or self.folder / "prepared"
        before = sorted(self.folder.iterdir())
        done = prepare(model, chipset, folder, *arguments, expect=None)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertIn(text, done.stderr)
        self.assertEqual(sorted(self.folder.iterdir()), before) # nothing half-made

    def test_chipset_that_is_unknown(self):
        self.refuse("unknown chipset 'gen77'", chipset="gen77")

    def test_folder_that_exists(self):
        (self.folder / "prepared").mkdir()
        self.refuse("exists already")
        self.refuse("exists already", folder=f"{self.folder}/prepared/")

    def test_folder_that_is_replaced(self):
        folder = self.folder / "prepared"
        folder.mkdir()
        prepare("mul.u8.onnx", "gen3", folder, "-q", "--force", probes=["ones"]) # an empty one
        (folder / "results").mkdir()
        prepare("mul.u8.onnx", "gen3", folder, "-q", "--force", probes=["zeros"])
        self.assertFalse((folder / "results").exists())
        self.assertEqual([p["name"] for p in manifest(folder)["probes"]], ["zeros"])
        self.assertEqual(sorted(self.folder.iterdir()), [folder])
        (folder / "npudiff.json").unlink()
        self.refuse("is not a prepared folder", "--force")

    def test_folder_that_cannot_be_written(self):
        self.refuse("cannot find folder", folder=self.folder / "none" / "prepared")
        self.refuse("cannot make folder '/proc/prepared'", folder="/proc/prepared")

    def test_edges_none(self):
        self.refuse("use 'outputs'", "--tensors", "none")

    def test_edges_that_are_not_there(self):
        self.refuse("'nowhere'", "--tensors", "nowhere")
        self.refuse("has to compute something", "--tensors", "image")

    def test_names_that_collide(self):
        data = (MODELS / "cnn.w8a8.onnx").read_bytes().replace(b"residual/relu", b"residual.conv")
        (self.folder / "model.onnx").write_bytes(data)
        self.refuse("tensors 'residual/conv_QuantizeLinear_Output' and 'residual.conv_QuantizeLinear_Output'",
                    model=str(self.folder / "model.onnx"))

    def test_nodes_that_fall_back(self):
        """This model's scores fall off the NPU when all edges are visible: the nodes are named."""
        self.refuse("MatMul 'scores'", code=5, model="random-attention.w8a8.onnx")
        prepare("random-attention.w8a8.onnx", "gen3", self.folder / "prepared", "-q", "--tensors", "outputs")

    def test_agent_that_is_not_there(self):
        self.refuse("cannot find the agent", "--agent", self.folder / "none")

    def test_time_limit(self):
        self.refuse("time limit", "--time-limit", "0.01", code=5)


class StandIn(Prepared):
    """The stand-in fails as the tool does, and the script says so."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        prepare("cnn.w8a8.onnx", "gen3", cls.shared / "prepared", "-q")

    def setUp(self):
        super().setUp()
        self.prepared = self.folder / "prepared"
        shutil.copytree(self.shared / "prepared", self.prepared)

    def test_context_of_a_newer_sdk(self):
        done = self.run_script(self.prepared, expect=1, QNN_STAND_IN_RUNTIME="qairt-2.50.40")
        self.assertIn("Using newer context binary on old SDK", done.stderr)
        self.assertIn("err 0x1388", done.stderr)
        self.assertFalse((self.prepared / "output").exists())

    def test_context_of_an_older_sdk(self):
        prepare("cnn.w8a8.onnx", "gen3", self.folder / "older", "-q", "--runtime", "qairt-2.50.40")
        self.run_script(self.folder / "older", QNN_STAND_IN_RUNTIME="qairt-2.51.0")

    def test_another_chipset(self):
        done = self.run_script(self.prepared, expect=1, QNN_STAND_IN_CHIPSET="gen4")
        self.assertIn("Could not create context from binary", done.stderr)

    def test_input_of_the_wrong_size(self):
        path = self.prepared / manifest(self.prepared)["results"][2]["inputs"][0]["file"]
        path.write_bytes(path.read_bytes() + b"\0")
        done = self.run_script(self.prepared, expect=1)
        self.assertIn("file size in bytes 65", done.stderr)
        self.assertTrue((self.prepared / "output" / "Result_1").exists())
        self.assertFalse((self.prepared / "output" / "Result_2").exists())
        self.assertIn("inferences_completed: 2\n", (self.prepared / "output" / "execution_metadata.yaml").read_text())

    def test_input_that_is_missing(self):
        (self.prepared / manifest(self.prepared)["results"][0]["inputs"][0]["file"]).unlink()
        self.assertIn("Failed to open input file", self.run_script(self.prepared, expect=1).stderr)

    def test_list_with_comments(self):
        path = self.prepared / "input_list.txt"
        path.write_text("#logits\n%logits\n\n" + path.read_text())
        self.run_script(self.prepared)
        self.assertTrue((self.prepared / "output" / "Result_5").exists())

    def test_configuration_that_is_broken(self):
        (self.prepared / "htp.json").write_text("{")
        self.assertIn("Failed to parse config file", self.run_script(self.prepared, expect=1).stderr)

    def test_options_that_contradict(self):
        self.assertIn("cannot be used with --retrieve_context",
                      self.run_script(self.prepared, "--debug", expect=1).stderr)

    def test_it_says_what_it_is(self):
        said = subprocess.run([sys.executable, STAND_IN, "--version"], capture_output=True, text=True).stdout
        self.assertIn("STAND-IN", said)

    def test_script_without_the_tool(self):
        done = subprocess.run(["sh", self.prepared / "run.sh"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("no qnn-net-run", done.stderr)


class Phones(Prepared):
    """adb:SERIAL/qnn-net-run: prepared here, run on a loopback phone that has the stand-in, brought back."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if phones.missing("adb", "adbd") is None:
            cls.shelf = phones.Shelf(cls.shared / "shelf")
            cls.addClassCleanup(cls.shelf.close)

    def setUp(self):
        super().setUp()
        reason = phones.missing("adb", "adbd")
        if reason is not None:
            self.skipTest(reason)

    def phone(self, chipset="gen3", tool='exec "{python}" "{tool}" "$@"\n', **environment):
        cache = os.environ.get("XDG_CACHE_HOME") or str(pathlib.Path.home() / ".cache")
        phone = self.shelf.phone(chipset, properties=[("ro.product.cpu.abi", "arm64-v8a")],
                                 environment={"NPUDIFF": NPUDIFF, "XDG_CACHE_HOME": cache,
                                              "QNN_STAND_IN_CHIPSET": chipset, **environment})
        if tool is not None:
            phone.script("qnn-net-run", "#!/bin/sh\n" + tool.format(python=sys.executable, tool=STAND_IN))
        return phone

    def capture(self, phone, *arguments, expect=0, model="cnn.w8a8.onnx", probes=PROBES, name="phone.h5"):
        flags = [f for p in probes for f in ("-p", p)]
        done = self.shelf.run("capture", MODELS / model, "-d", f"adb:{phone.serial}/qnn-net-run", *flags, "-o",
                              self.folder / name, "-q", "-f", *arguments)
        self.assertEqual(done.returncode, expect, done.stderr)
        return done.stderr

    def assert_same_as_local(self, chipset, model="cnn.w8a8.onnx", name="phone.h5"):
        capture(model, [f"htp-sim:{chipset}"], PROBES, self.folder / "local.h5")
        with Capture(self.folder / "local.h5") as local, Capture(self.folder / name) as there:
            self.assertEqual(there.status, "complete")
            self.assertEqual((there.edges, there.probes), (local.edges, local.probes))
            for probe in local.probes:
                for edge in local.edges:
                    self.assert_bits_equal(there.values(probe, edge), local.values(probe, edge), f"{probe} {edge}")
                    self.assertEqual(there.digests(probe, edge).tolist(), local.digests(probe, edge).tolist())
                self.assertTrue(np.isnan(there.file[f"probes/{probe}/latency_us"][()]).all()) # nobody measured it

    def test_as_captured_here(self):
        phone = self.phone("gen4")
        self.capture(phone)
        self.assert_same_as_local("gen4")
        sent = phone.link.total_bytes()
        self.capture(phone)
        self.assertLess(phone.link.total_bytes() - sent, sent / 2) # the folder is there
        self.assertEqual(phone.files("runs"), [])
        self.capture(phone, "--tensors", "logits,image")

    def test_link_that_is_cut(self):
        may_run = self.folder / "may-run"
        phone = self.phone(tool=f'while [ ! -e "{may_run}" ]; do sleep 0.05; done; ' + 'exec "{python}" "{tool}" "$@"\n')
        started = self.shelf.start("capture", MODELS / "cnn.w8a8.onnx", "-d", f"adb:{phone.serial}/qnn-net-run",
                                   *[f for p in PROBES for f in ("-p", p)], "-o", self.folder / "phone.h5", "-q")
        phones.wait_until(lambda: phone.processes("qnn-net-run"), 60, "qnn-net-run")
        phone.link.cut()
        may_run.touch()
        _, said = started.communicate(timeout=300)
        self.assertEqual(started.returncode, 0, said)
        self.assert_same_as_local("gen3")

    def test_phone_without_the_tool(self):
        self.assertIn("no qnn-net-run in", self.capture(self.phone(tool=None), expect=5))
        with Capture(self.folder / "phone.h5") as failed:
            self.assertEqual((failed.status, failed.failure()["stage"]), ("failed", "run"))

    def test_phone_with_an_older_sdk(self):
        phone = self.phone(QNN_STAND_IN_RUNTIME="qairt-2.50.40")
        self.assertIn("Could not create context from binary", self.capture(phone, expect=5))

    def test_tool_that_ends_in_the_middle(self):
        phone = self.phone(tool='"{python}" "{tool}" "$@"; rm -r "$QNN_OUTPUT/output/Result_4"; kill -9 $$\n')
        self.assertIn("exit code 137", self.capture(phone, expect=5))
        with Capture(self.folder / "phone.h5") as failed: # one of zeros, three of uniform are whole
            self.assertEqual(failed.values("uniform", "logits").shape[0], 3)

    def test_result_that_is_cut_short(self):
        phone = self.phone(tool='"{python}" "{tool}" "$@"; f=$QNN_OUTPUT/output/Result_5/logits_QuantizeLinear_Output_native.raw; '
                                'head -c 9 $f >$f.x; mv $f.x $f\n')
        self.assertIn("logits_QuantizeLinear_Output_native.raw of Result_5 has 9 bytes and should have 10 [ND", self.capture(phone, expect=5))

    def test_tool_that_hangs(self):
        phone = self.phone(tool="exec sleep 1000\n")
        self.assertIn("time limit", self.capture(phone, "--time-limit", "6", expect=5))
        phones.wait_until(lambda: not phone.processes("sleep"), 20, "the end of what hung")

    def test_what_it_cannot_do(self):
        self.assertIn("knows no 'repeats'", self.capture(self.phone(), "--repeats", "2", expect=2))

    def test_machine_without_npu(self):
        phone = self.shelf.phone("gen3")
        self.assertIn("has no Hexagon NPU", self.capture(phone, expect=5))


if __name__ == "__main__":
    main()
