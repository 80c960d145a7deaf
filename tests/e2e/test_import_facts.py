"""What the user states of an imported run: every fact in every format, and every contradiction named with both sides. The files
are written by numpy, h5py, and, in golden/imports, by onnx and polygraphy."""
import json
import pathlib
import tempfile
import unittest

import h5py
import numpy as np

import support
from support import GOLDEN, MODELS, npudiff

IMPORTS = GOLDEN / "imports"
CNN = MODELS / "cnn.w8a8.onnx"
SEED = 20261122


def attributes(path):
    return support.info(path)["attributes"]


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)
        self.out = self.path / "out.h5"
        self.rng = np.random.default_rng(SEED)

    def make(self, *arguments, code=0):
        npudiff("import", *arguments, "-o", self.out, "-f", "-q", expect=code)
        npudiff("verify", self.out)
        return attributes(self.out)

    def refuse(self, *arguments, says, code=2):
        self.out.unlink(missing_ok=True)
        done = npudiff("import", *arguments, "-o", self.out, expect=None)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        for part in says:
            self.assertIn(part, done.stderr)
        self.assertFalse(self.out.exists())

    def yaml(self, name, content):
        (self.path / name).write_text(json.dumps(content) if isinstance(content, dict) else content)
        return self.path / name

    def npz(self, name, **arrays):
        np.savez(self.path / name, **arrays)
        return self.path / name

    def codes(self, n=4, size=6):
        return self.rng.integers(0, 256, (n, size), dtype=np.uint8)


class EveryFormat(Case):
    FACTS = {"kind": "cpu", "chipset": "gen3", "sdk": "2.31.0", "label": "desk", "phone": "Maker One", "runtime": "tflite",
             "runtime_version": "2.17", "simulator": False, "threads": 4, "serial": "0042"}

    def sources(self):
        x = self.npz("x.npz", x=self.codes())
        (self.path / "x.raw").write_bytes(bytes(24))
        raw = self.yaml("list.yaml", {"tensors": [{"name": "x", "dtype": "uint8", "shape": [6], "file": "x.raw"}]})
        folder = self.path / "qnn"
        (folder / "Result_0").mkdir(parents=True, exist_ok=True)
        np.ones(3, np.float32).tofile(folder / "Result_0/x.raw")
        return {"numpy": [x], "raw": [raw], "onnx-pb": [IMPORTS / "onnx"], "aihub": [IMPORTS / "aihub.h5"],
                "polygraphy": [IMPORTS / "polygraphy.json", "--runner", "trt"],
                "qnn-net-run": [folder, "--assume", "float32"]}

    def check(self, found):
        self.assertEqual({k: found["device"][k] for k in ("kind", "chipset", "soc_model", "arch", "label", "phone", "serial")},
                         {"kind": "cpu", "chipset": "SM8650", "soc_model": 57, "arch": "v75", "label": "desk",
                          "phone": "Maker One", "serial": "0042"})
        self.assertEqual(found["device"]["is_simulator"], 0)
        self.assertEqual(found["runtime"], {"id": "tflite", "version": "2.17", "sdk_version": "2.31.0", "threads": 4})

    def test_a_file_of_facts(self):
        facts = self.yaml("facts.yaml", self.FACTS)
        for form, source in self.sources().items():
            found = self.make(form, *source, "--facts", facts)
            self.check(found)
            self.assertIn("facts.yaml:1:", found["import"]["device"])

    def test_options_and_maps(self):
        source = self.sources()["numpy"]
        flags = [f for k, v in self.FACTS.items() for f in ("--fact", f"{k}={str(v).lower() if v is False else v}")]
        found = self.make("numpy", *source, *flags)
        self.check(found)
        self.assertEqual(found["import"]["device"], "--fact")
        tensors = [{"name": "x", "scale": 0.5, "zero_point": 3}]
        found = self.make("numpy", *source, "--map", self.yaml("map.yaml", self.FACTS | {"tensors": tensors}))
        self.check(found)
        found = self.make("numpy", *source, "--facts", self.yaml("both.yaml", self.FACTS | {"tensors": tensors}))
        self.check(found)
        with h5py.File(self.out) as file:
            self.assertEqual(file["edges/scale"][:].tolist(), [0.5])

    def test_nothing_stated_is_nothing_known(self):
        found = self.make("numpy", *self.sources()["numpy"])
        self.assertEqual(found["device"]["kind"], "import")
        self.assertEqual(found["import"]["device"], "not stated")
        self.assertNotIn("runtime", found)

    def test_contradictions_name_both_sides(self):
        source = self.sources()["numpy"]
        facts = self.yaml("facts.yaml", {"kind": "cpu", "chipset": "gen3"})
        self.refuse("numpy", *source, "--facts", facts, "--kind", "npu", says=["'kind'", "--kind says 'npu'", "facts.yaml:1:", "'cpu'"])
        self.refuse("numpy", *source, "--facts", facts, "--chipset", "gen4", says=["--chipset says 'gen4'", "'gen3'"])
        other = self.yaml("map.yaml", {"kind": "gpu"})
        self.refuse("numpy", *source, "--facts", facts, "--map", other, says=["facts.yaml", "'cpu'", "map.yaml", "'gpu'"])
        self.make("numpy", *source, "--facts", facts, "--kind", "cpu")
        sha = "0" * 64
        self.refuse("numpy", *source, "--fact", f"model_sha256={sha}", "--model", CNN, "--map", "x=logits",
                    says=["model_sha256", sha, "cnn.w8a8.onnx"])
        self.refuse("numpy", *source, "--fact", "opset=9", "--model", CNN, "--map", "x=logits", says=["'opset' is '9'", "cnn.w8a8"])
        self.refuse("numpy", *source, "--fact", "latency_us=1", "--fact", "latency_ms=1", says=["latency_us", "latency_ms"])

    def test_mistakes(self):
        source = self.sources()["numpy"]
        defects = [({"knid": "cpu"}, ["'knid'", "nearest: 'kind'"]), ({"kind": "tpu"}, ["npu cpu gpu reference", "'tpu'"]),
                   ({"kind": ["cpu", "gpu"]}, ["one value"]), ({"kind": ""}, ["not empty"]),
                   ({"threads": 0}, ["'threads'", "whole number"]), ({"simulator": "maybe"}, ["yes or no"]),
                   ({"model_sha256": "abc"}, ["no SHA-256"]), ({"failed_stage": "run"}, ["needs 'failed'"]),
                   ({"failed": "x", "failed_stage": "boot"}, ["load session placement run"]),
                   ({"outputs": ["y"]}, ["'y'", "nearest is 'x'"]), ({"labels": [0, 1]}, ["2 labels for 4 samples"]),
                   ({"labels": [0, 1, 2, -1]}, ["no class"]), ({"labels": [0, 1, 2, 1.5]}, ["no class"]),
                   ({"labels": "none.npy"}, ["none.npy"]), ({"labels": ["a", "b"]}, ["'a'", "no number"]),
                   ({"latency_us": [1, 2]}, ["2 latencies for 4 samples"]), ({"latency_us": [1, 2, 3, 0]}, ["no time"]),
                   ({"latency_us": [1, 2, 3, "inf"]}, ["no "]), ({"repeats": 3}, ["3 repeats", "4 samples"]),
                   ({"repeats": 2}, ["repeat_order"]), ({"repeat_order": "run-by-run"}, ["needs 'repeats'"]),
                   ({"repeats": 2, "repeat_files": ["x.npz"]}, ["both stated"]), ({"samples_expected": 3}, ["'3'", "'4'"]),
                   ({"repeat_files": ["none.npz"]}, ["none.npz", "repeat 1"]), ({"logs": ["none.log"]}, ["none.log"]),
                   ({"floats": "round"}, ["codes keep"])]
        for content, says in defects:
            self.refuse("numpy", *source, "--facts", self.yaml("facts.yaml", content), says=says)
        self.refuse("numpy", *source, "--facts", self.yaml("facts.yaml", "kind: [}"), says=["facts.yaml:1:"])
        self.refuse("numpy", *source, "--facts", self.yaml("facts.yaml", "- kind"), says=["mapping of keys"])
        self.refuse("numpy", *source, "--facts", self.path / "none.yaml", says=["none.yaml"])
        self.refuse("numpy", *source, "--fact", "kind", says=["KEY=VALUE"])
        self.refuse("numpy", *source, "--fact", "knid=cpu", says=["'knid'", "nearest is 'kind'"])
        (self.path / "n.txt").write_bytes(b"1 2 \0 3")
        self.refuse("numpy", *source, "--labels", self.path / "n.txt", says=["n.txt", "zero byte"])
        (self.path / "n.txt").write_text("1 2 x 3")
        self.refuse("numpy", *source, "--labels", self.path / "n.txt", says=["n.txt", "'x'"])

    def test_garbage_in_place_of_facts(self):
        source = self.sources()["numpy"]
        good = json.dumps(self.FACTS).encode()
        for _ in range(30):
            broken = bytearray(good)
            for _ in range(self.rng.integers(1, 6)):
                broken[self.rng.integers(len(broken))] = self.rng.integers(256)
            (self.path / "facts.yaml").write_bytes(bytes(broken))
            done = npudiff("import", "numpy", *source, "--facts", self.path / "facts.yaml", "-o", self.out, "-f", "-q", expect=None)
            self.assertIn(done.returncode, (0, 2), done.stderr)


class Runs(Case):
    """Repeats, latencies, labels, failures."""

    def runs(self, n_runs=3, n=4):
        first = self.codes(n)
        runs = [first.copy() for _ in range(n_runs)]
        runs[2][1, 5] ^= 3
        return runs

    def check_repeats(self, runs, latencies=None):
        with h5py.File(self.out) as file:
            probe, = file["probes"].values()
            self.assertEqual((probe.attrs["n_samples"], probe.attrs["n_repeats"]), (4, 3))
            self.assertEqual(probe["outputs/x"][:].tolist(), runs[0].tolist())
            self.assertEqual(probe["repeat_index/x"][:].tolist(), [[1, 2]])
            self.assertEqual(probe["repeats/x"][:].tolist(), [runs[2][1].tolist()])
            if latencies is not None:
                np.testing.assert_array_equal(probe["latency_us"][:], latencies)

    def test_repeats_from_files_of_their_own_and_from_one(self):
        runs = self.runs()
        paths = [self.npz(f"r{r}.npz", x=run) for r, run in enumerate(runs)]
        times = np.arange(1.0, 13).reshape(4, 3)
        np.save(self.path / "t.npy", times)
        self.make("numpy", paths[0], "--repeat", paths[1], "--repeat", paths[2], "--latencies", self.path / "t.npy")
        self.check_repeats(runs, times)
        self.make("numpy", paths[0], "--facts", self.yaml("f.yaml", {"repeat_files": ["r1.npz", "r2.npz"],
                                                                      "latency_ms": (times / 1000).ravel().tolist()}))
        self.check_repeats(runs)
        stacked = self.npz("s.npz", x=np.concatenate(runs))
        self.make("numpy", stacked, "--fact", "repeats=3", "--fact", "repeat_order=run-by-run")
        self.check_repeats(runs)
        beside = self.npz("b.npz", x=np.stack(runs, 1).reshape(12, 6))
        fed = self.npz("in.npz", image=np.repeat(np.arange(8, dtype=np.float32).reshape(4, 2), 3, 0))
        self.make("numpy", beside, "--fact", "repeats=3", "--fact", "repeat_order=sample-by-sample", "--inputs", fed)
        self.check_repeats(runs)
        with h5py.File(self.out) as file:
            self.assertEqual(file["probes/numpy/inputs/image"][:].tolist(), np.arange(8.0).reshape(4, 2).tolist())
        other = self.npz("in.npz", image=np.arange(24, dtype=np.float32).reshape(12, 2))
        self.refuse("numpy", beside, "--fact", "repeats=3", "--fact", "repeat_order=sample-by-sample", "--inputs", other,
                    says=["image", "fed otherwise"])

    def test_repeats_that_are_none(self):
        first = self.npz("r0.npz", x=self.codes())
        for name, arrays, says in [("a", {"x": self.codes(3)}, ["3 of uint8"]), ("b", {"x": self.codes(4, 7)}, ["7"]),
                                   ("c", {"x": self.codes().astype(np.int8)}, ["int8"]), ("d", {"y": self.codes()}, ["no tensor 'x'"]),
                                   ("e", {"x": self.codes(), "y": self.codes()}, ["2 tensors"])]:
            self.refuse("numpy", first, "--repeat", self.npz(f"{name}.npz", **arrays), says=["repeat 1", *says])

    def test_latencies_of_polygraphy_are_its_own(self):
        run = json.loads((IMPORTS / "polygraphy.json").read_text())
        run["lst"] = run["lst"][:1]
        for i, iteration in enumerate(run["lst"][0][1]):
            iteration["runtime"] = 0.001 * (i + 1)
        path = self.yaml("p.json", run)
        self.make("polygraphy", path)
        with h5py.File(self.out) as file:
            probe, = file["probes"].values()
            np.testing.assert_allclose(probe["latency_us"][:, 0], [1000, 2000, 3000][:probe.attrs["n_samples"]])
        self.refuse("polygraphy", path, "--fact", "latency_us=3", says=["--fact", "the files state them"])

    def test_labels(self):
        x = self.npz("x.npz", x=self.codes())
        np.save(self.path / "l.npy", np.array([3, 0, 2, 2]))
        (self.path / "l.txt").write_text("3\n0\n2\n2\n")
        for labels in ("l.npy", "l.txt"):
            self.make("numpy", x, "--labels", self.path / labels)
            with h5py.File(self.out) as file:
                self.assertEqual(file["probes/numpy/labels"][:].tolist(), [3, 0, 2, 2])
        np.savez(self.path / "d.npz", image=np.zeros((4, 1, 1, 8, 8), np.float32), labels=np.array([1, 0, 2, 2]))
        logits = self.npz("o.npz", logits=self.rng.integers(0, 256, (4, 1, 10), dtype=np.uint8))
        self.make("numpy", logits, "--model", CNN, "--inputs", self.path / "d.npz")
        self.refuse("numpy", logits, "--model", CNN, "--inputs", self.path / "d.npz", "--labels", self.path / "l.npy",
                    says=["label 0 is 3", "1 by what was fed"])

    def test_a_failed_run_without_results(self):
        found = self.make("numpy", "--failed", "graph prepare failed", "--fact", "failed_stage=session", "--fact", "failed_code=1002",
                          "--fact", "failed_operator=Conv", "--kind", "npu", "--model", CNN, code=5)
        self.assertEqual({k: found["failure"][k] for k in ("message", "stage", "raw_code", "operator")},
                         {"message": "graph prepare failed", "stage": "session", "raw_code": 1002, "operator": "Conv"})
        good = self.path / "good.h5"
        support.capture("cnn.w8a8.onnx", ["cpu"], ["ramp"], good)
        report = support.compare(good, self.out, expect=5)
        self.assertEqual(report["verdict"], "failed")
        text = " ".join(npudiff("compare", good, self.out, expect=5).split())
        self.assertIn("graph prepare failed", text)
        self.assertIn("session", text)
        self.refuse("numpy", says=["PATH"])

    def test_a_run_that_failed_after_some_samples(self):
        x = self.npz("x.npz", x=self.codes())
        (self.path / "a.log").write_text("hello\n")
        found = self.make("numpy", x, "--failed", "killed", "--fact", "samples_expected=9", "--log", self.path / "a.log", code=5)
        self.assertEqual(found["failure"]["message"], "killed")
        info = support.info(self.out)
        self.assertEqual((info["status"], info["probes"][0]["samples"], info["probes"][0]["expected"]), ("failed", 4, 9))
        self.assertEqual(npudiff("info", self.out, "--log", "a.log"), "hello\n")
        self.make("numpy", x, "--fact", "samples_expected=9", code=5)
        self.assertEqual(support.info(self.out)["status"], "partial")


class Tensors(Case):
    """Floats that are codes, batch axes, outputs without a model."""

    def quant(self, real):
        with h5py.File(real) as file:
            return {n.decode(): (s, int(z)) for n, s, z in zip(file["edges/name"][:], file["edges/scale"][:], file["edges/zero_point"][:])}

    def test_floats_on_the_grid_of_the_model_become_its_codes(self):
        real = self.path / "real.h5"
        support.capture("cnn.w8a8.onnx", ["cpu"], ["uniform:4"], real)
        with support.Capture(real) as capture:
            codes = {name: capture.values("uniform", name) for name in capture.edges}
        floats = {n: ((c.astype(np.int64) - self.quant(real)[n][1]) * self.quant(real)[n][0]).astype(np.float32) for n, c in codes.items()}
        for dtype in (np.float32, np.float64):
            path = self.npz("o.npz", **{n: f.astype(dtype) for n, f in floats.items()})
            found = self.make("numpy", path, "--model", CNN, "--probe", "uniform")
            self.assertIn("every float is exactly the real of one", found["import"]["types"])
            report = support.compare(real, self.out, expect=0)
            self.assertEqual(report["verdict"], "same")
        path = self.npz("o.npz", **floats)
        self.make("numpy", path, "--model", CNN, "--fact", "floats=keep")
        with h5py.File(self.out) as file:
            self.assertEqual(file["probes/numpy/outputs/logits"].dtype, np.float32)
        floats["logits"] = floats["logits"] + np.float32(self.quant(real)["logits"][0] / 3)
        self.make("numpy", self.npz("o.npz", **floats), "--model", CNN)
        with h5py.File(self.out) as file:
            self.assertEqual(file["probes/numpy/outputs/logits"].dtype, np.float32)
            self.assertEqual(file["probes/numpy/outputs/pool"].dtype, np.uint8)

    def test_floats_with_a_stated_scale(self):
        codes = self.codes(5, 40)
        scale, zero = np.float32(0.0173), 117
        real = ((codes.astype(np.int64) - zero) * scale).astype(np.float32)
        item = {"name": "x", "scale": float(scale), "zero_point": zero, "codes": "uint8"}
        for array, change in ((real, {}), (real.astype(np.float16), {}), (codes.astype(np.float32), {"holds": "codes"}),
                              (codes.astype(np.int32), {"holds": "codes"})):
            x = self.npz("x.npz", x=array)
            self.make("numpy", x, "--map", self.yaml("map.yaml", {"tensors": [item | change]}))
            with h5py.File(self.out) as file:
                self.assertEqual(file["probes/numpy/outputs/x"][:].tolist(), codes.tolist())
                self.assertEqual((file["edges/scale"][0], file["edges/zero_point"][0]), (scale, zero))
        off = real.copy()
        off[2, 3] += scale / 2
        x = self.npz("x.npz", x=off)
        self.refuse("numpy", x, "--map", self.yaml("map.yaml", {"tensors": [item]}),
                    says=["1 of 200", "element 83", "map.yaml:1:", "scale 0.0173"])
        self.refuse("numpy", x, "--map", self.yaml("map.yaml", {"tensors": [item | {"holds": "codes"}]}), says=["holds uint8 quantised values", "element"])
        bare = {k: v for k, v in item.items() if k != "codes"}
        self.refuse("numpy", x, "--map", self.yaml("map.yaml", {"tensors": [bare]}), says=["'codes'"])
        self.refuse("numpy", x, "--map", self.yaml("map.yaml", {"tensors": [{"name": "x", "codes": "uint8"}]}), says=["nothing states their scale"])
        nan = real.copy()
        nan[0, 0] = np.nan
        self.refuse("numpy", self.npz("x.npz", x=nan), "--map", self.yaml("map.yaml", {"tensors": [item]}), says=["element 0 is nan"])

    def test_few_half_precision_floats_prove_no_grid(self):
        scale = np.float32(0.02)
        x = self.npz("x.npz", logits=((np.array([[[250.0, 251, 249]]])) * scale).astype(np.float16))
        item = {"name": "logits", "scale": float(scale), "zero_point": 0, "codes": "uint8"}
        self.refuse("numpy", x, "--map", self.yaml("map.yaml", {"tensors": [item]}), says=["too few or too coarse"])

    def test_batch_axes(self):
        samples = self.codes(4, 30).reshape(4, 1, 5, 6)  # S samples [1, 5, 6]
        arrays = {"first": samples, "second": np.moveaxis(samples[:, 0], 0, 1), "shared": samples[:, 0].reshape(20, 6),
                  "plain": samples[:, 0]}
        tensors = [{"name": "second", "batch_axis": 1}, {"name": "shared", "samples": 4}, {"name": "plain", "batch_axis": 0}]
        self.make("numpy", self.npz("o.npz", **arrays), "--map", self.yaml("map.yaml", {"tensors": tensors}))
        with h5py.File(self.out) as file:
            stored = {n: file[f"probes/numpy/outputs/{n}"][:] for n in arrays}
        self.assertEqual({n: a.shape for n, a in stored.items()},
                         {"first": (4, 1, 5, 6), "second": (4, 5, 1, 6), "shared": (4, 5, 6), "plain": (4, 1, 5, 6)})
        for name, array in stored.items():
            self.assertEqual(array.reshape(4, 30).tolist(), samples.reshape(4, 30).tolist(), name)
        for item, says in (({"batch_axis": 7}, ["axis 7"]), ({"samples": 3}, ["3 samples", "20x6"]), ({"batch_axis": 0.5}, ["whole"]),
                           ({"batch_axis": 0, "samples": 4}, ["give one"])):
            self.refuse("numpy", self.npz("o.npz", shared=arrays["shared"]), "--map",
                        self.yaml("map.yaml", {"tensors": [{"name": "shared"} | item]}), says=says)

    def test_one_file_a_sample(self):
        samples = self.codes(3, 30).reshape(3, 1, 5, 6)
        paths = [self.npz(f"s{i}.npz", x=samples[i]) for i in range(3)]
        self.make("numpy", *paths, "--samples-axis", "file")
        with h5py.File(self.out) as file:
            self.assertEqual(file["probes/numpy/outputs/x"][:].tolist(), samples.tolist())
        self.refuse("numpy", *paths, self.npz("s3.npz", y=samples[0]), "--samples-axis", "file", says=["sample 3"])
        self.refuse("raw", paths[0], "--samples-axis", "file", says=["numpy"])

    def test_outputs_and_nodes_without_a_model(self):
        x = self.npz("x.npz", x=self.codes(), y=self.codes())
        tensors = [{"name": "x", "op_types": "Conv+Relu", "node": "n1", "provider": "CPUExecutionProvider"}]
        self.make("numpy", x, "--map", self.yaml("map.yaml", {"tensors": tensors, "outputs": "y", "kind": "npu"}))
        with h5py.File(self.out) as file:
            self.assertEqual(file["edges/is_model_output"][:].tolist(), [0, 1])
            self.assertEqual([file[f"edges/{c}"][0] for c in ("op_types", "node", "provider")], [b"Conv+Relu", b"n1", b"CPUExecutionProvider"])
        report = support.compare(self.out, self.out, expect=0)
        self.assertTrue(report["tensors"][0]["devices"][0]["cpu_fallback"])
        self.make("numpy", x, "--map", self.yaml("map.yaml", {"tensors": tensors, "kind": "cpu"}))
        self.assertFalse(support.compare(self.out, self.out, expect=0)["tensors"][0]["devices"][0]["cpu_fallback"])
        self.refuse("numpy", self.npz("l.npz", logits=self.rng.integers(0, 9, (2, 1, 10), dtype=np.uint8)), "--model", CNN, "--map",
                    self.yaml("map.yaml", {"tensors": [{"name": "logits", "op_types": "Conv"}]}), says=["'Conv'", "'Gemm'"])
        self.refuse("numpy", self.npz("l.npz", pool=self.rng.integers(0, 9, (2, 1, 8, 2, 2), dtype=np.uint8)), "--model", CNN,
                    "--fact", "outputs=pool", says=["pool"])


class NotAnNpu(Case):
    """An imported CPU or reference is not accused of a fallback, nor taken for an NPU."""

    def test_a_cpu_is_a_cpu(self):
        real = self.path / "real.h5"
        support.capture("cnn.w8a8.onnx", ["cpu"], ["uniform:12"], real)
        with support.Capture(real) as capture:
            codes = {name: capture.values("uniform", name) for name in capture.edges}
            fed = {"image": capture.file["probes/uniform/inputs/image"][:]}
        o, i = self.npz("o.npz", **codes), self.npz("i.npz", **fed)
        for kind, flags in {"cpu": ["--kind", "cpu"], "reference": ["--kind", "reference"], None: [], "npu": ["--kind", "npu"]}.items():
            self.make("numpy", o, "--model", CNN, "--inputs", i, "--probe", "uniform", *flags)
            report = json.loads(npudiff("explain", "--quantised", CNN, self.out, "--json", expect=None).stdout)
            run = report["devices"][0]["execution"]
            self.assertEqual(run["called_npu"], kind == "npu")
            self.assertNotIn("whole-run-cpu", [e["kind"] for e in run["evidence"]]) # other NPUs are exact, too
            if kind in ("cpu", "reference"):
                self.assertEqual(run["verdict"], "not-npu")
                self.assertIn("stated", [e["kind"] for e in run["evidence"]])
            self.assertEqual(report["devices"][0]["expected_arithmetic"], None)
            self.make("numpy", o, "--model", CNN, "--inputs", i, "--probe", "uniform", "--chipset", "gen3", *flags)
            done = npudiff("explain", "--quantised", CNN, self.out, "--json", expect=None)
            on_chip = json.loads(done.stdout)["devices"][0]
            self.assertEqual(on_chip["expected_arithmetic"], None if kind in ("cpu", "reference") else "v73")
            self.assertEqual("whole-run-cpu" in [e["kind"] for e in on_chip["execution"]["evidence"]], kind == "npu")
            if kind in ("cpu", "reference"):  # the CPU of a phone is no NPU
                self.assertEqual((done.returncode, on_chip["verdict"]), (0, "healthy"))
            placed = json.loads(npudiff("placement", CNN, "-d", self.out, "--json", expect=None).stdout or "{}")
            if placed.get("devices"):
                self.assertEqual(placed["devices"][0]["is_npu"], {"npu": True, None: None}.get(kind, False))


if __name__ == "__main__":
    support.main()
