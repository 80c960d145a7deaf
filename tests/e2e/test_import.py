"""Captures made of what other tools wrote, and datasets made of captures: every bit, every defect."""
import io
import json
import os
import pathlib
import random
import struct
import tempfile
import unittest
import zipfile

import h5py
import numpy as np

import support
from support import GOLDEN, MODELS, npudiff

IMPORTS = GOLDEN / "imports"
CNN = MODELS / "cnn.w8a8.onnx"
TYPES = ["float32", "float64", "float16", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "bool"]
NAMES = ["logits", "a/b", "x%2Fy", "ünï code", "conv1:0", "a b", "Ω"]
SEED = int(os.environ.get("ND_SEED", "20261122"))  # others: tools/studies/seeds


def link(name):
    return name.replace("%", "%25").replace("/", "%2F")


def unsigned(array):
    array = np.ascontiguousarray(array)
    return array.view(f"u{array.dtype.itemsize}")


def random_bits(rng, dtype, shape):
    n = int(np.prod(shape))
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    return np.frombuffer(rng.bytes(n * np.dtype(dtype).itemsize), dtype).reshape(shape).copy()


def outputs_of(path, part="outputs"):
    """{name: (stored array, type)} of the only probe, in the order of the edges."""
    with h5py.File(path) as file:
        probe, = file["probes"].values()
        names = [name.decode() for name in file["edges/name"][:]] if part == "outputs" else list(probe[part])
        found = {}
        for name in names:
            data = probe[part][link(name)]
            found[name] = (data[()], data.attrs.get("dtype", b"").decode() or data.dtype.name)
        return found


def write_aihub(path, arrays):
    """As AI Hub's client writes datasets."""
    with h5py.File(path, "w") as file:
        for i, (name, samples) in enumerate(arrays.items()):
            for k, sample in enumerate(samples):
                file.create_dataset(name=f"data/{i}/batch_{k}", data=sample, compression="gzip")
            file[f"data/{i}"].attrs["order"] = i
            file[f"data/{i}"].attrs["name"] = name
            file[f"data/{i}"].attrs["batch_count"] = len(samples)


def read_aihub(path):
    with h5py.File(path) as file:
        groups = sorted(file["data"].values(), key=lambda group: group.attrs["order"])
        return {group.attrs["name"]: [group[f"batch_{k}"][()] for k in range(group.attrs["batch_count"])]
                for group in groups}


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)
        self.out = self.path / "out.h5"

    def make(self, form, *arguments):
        npudiff("import", form, *arguments, "-o", self.out, "-f", "-q")
        npudiff("verify", self.out)
        return outputs_of(self.out)

    def refuse(self, *arguments, says, code=2):
        """Fails with this exit code, says all that, and leaves nothing behind."""
        self.out.unlink(missing_ok=True)
        before = set(self.path.iterdir())
        done = npudiff("import", *arguments, "-o", self.out, expect=None)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        for part in says:
            self.assertIn(part, done.stderr)
        self.assertEqual(set(self.path.iterdir()), before)

    def expect(self, found, wanted):
        self.assertEqual(set(found), set(wanted))
        for name, array in wanted.items():
            stored, dtype = found[name]
            self.assertEqual(dtype, array.dtype.name)
            self.assertEqual(stored.shape, array.shape)
            self.assertEqual(unsigned(stored).tobytes(), unsigned(array).tobytes(), name)


class OwnLibraries(Case):
    """Files that the formats' own libraries wrote (golden/imports)."""

    def expect_bits(self, found, n):
        self.assertEqual(len(found), n)
        with np.load(IMPORTS / "bits.npz") as bits:
            for name, (stored, dtype) in found.items():
                self.assertEqual(dtype, name)
                self.assertEqual(unsigned(stored).tobytes(), bits[name].tobytes(), name)
                self.assertEqual(stored.shape, bits[name].shape)

    def test_tensors_that_onnx_wrote(self):
        self.expect_bits(self.make("onnx-pb", IMPORTS / "onnx"), 17)
        self.assertEqual(outputs_of(self.out, "inputs")["image"][0].tolist(), [[[s, s]] for s in range(3)])

    def test_results_that_polygraphy_wrote(self):
        self.expect_bits(self.make("polygraphy", IMPORTS / "polygraphy.json", "--runner", "trt"), 12)
        self.refuse("polygraphy", IMPORTS / "polygraphy.json", says=["2 runners", "'onnxrt', 'trt'", "--runner"])
        self.refuse("polygraphy", IMPORTS / "polygraphy.json", "--runner", "cpu", says=["0 runners 'cpu'", "'trt'"])

    def test_a_dataset_that_ai_hub_wrote(self):
        self.expect_bits(self.make("aihub", IMPORTS / "aihub.h5"), 12)


class RandomArrays(Case):
    def setUp(self):
        super().setUp()
        print(f"# ND_SEED={SEED}")
        self.rng = np.random.default_rng(SEED)

    def arrays(self, n_samples):
        shapes = [tuple(self.rng.integers(1, 7, self.rng.integers(1, 5))) for _ in NAMES]
        types = self.rng.choice(TYPES, len(NAMES))
        return {name: random_bits(self.rng, str(t), (n_samples, *shape)) for name, t, shape in zip(NAMES, types, shapes)}

    def test_every_bit_of_npz_and_npy(self):
        for i in range(6):
            arrays = self.arrays(1 + i)
            as_saved = {}
            for k, (name, array) in enumerate(arrays.items()):
                array = np.asfortranarray(array) if (i + k) % 2 else array
                as_saved[name] = array.astype(array.dtype.newbyteorder(">")) if (i + k) % 3 == 0 else array
            (np.savez if i % 2 else np.savez_compressed)(self.path / "o.npz", **as_saved)
            self.expect(self.make("numpy", self.path / "o.npz"), arrays)
            folder = self.path / f"folder {i}"
            folder.mkdir()
            for name, array in as_saved.items():
                np.save(folder / f"{link(name)}.npy", array)
            self.expect(self.make("numpy", folder), arrays)

    def test_every_bit_of_raw_files(self):
        for i in range(3):
            arrays = self.arrays(2 + i)
            tensors = []
            for k, (name, array) in enumerate(arrays.items()):
                tensor = {"name": name, "dtype": array.dtype.name, "shape": list(map(int, array.shape[1:]))}
                if k % 2:
                    for s, sample in enumerate(array):
                        np.asarray(sample).tofile(self.path / f"{k} ü {s}.raw")
                    tensor.update(files=f"{k} ü {{}}.raw", samples=len(array))
                else:
                    array.tofile(self.path / f"{k}.raw")
                    tensor["file"] = f"{k}.raw"
                tensors.append(tensor)
            (self.path / "list.yaml").write_text(json.dumps({"tensors": tensors}, ensure_ascii=False))
            self.expect(self.make("raw", self.path / "list.yaml"), arrays)

    def test_datasets_of_ai_hub_both_ways(self):
        for i in range(3):
            arrays = {name: array for name, array in self.arrays(1 + i).items() if array.ndim > 1}
            arrays["large"] = random_bits(self.rng, "float16", (1 + i, 1, 37, 150, 70))  # h5py cuts it along all axes
            write_aihub(self.path / "in.h5", {name: list(array) for name, array in arrays.items()})
            self.expect(self.make("aihub", self.path / "in.h5"), arrays)
            npudiff("export", "aihub", self.out, "-o", self.path / "back.h5", "-f")
            back = read_aihub(self.path / "back.h5")
            self.assertEqual(list(back), list(arrays))
            for name, array in arrays.items():
                self.assertEqual(np.stack(back[name]).dtype, array.dtype)
                self.assertEqual(unsigned(np.stack(back[name])).tobytes(), unsigned(array).tobytes())

    def test_scalars_and_tensors_without_elements(self):
        arrays = {"scalar": random_bits(self.rng, "float32", (3,)), "empty": np.zeros((3, 0, 4), np.uint8)}
        np.savez(self.path / "o.npz", **arrays)
        self.expect(self.make("numpy", self.path / "o.npz"), arrays)
        np.savez(self.path / "one.npz", scalar=np.float32(3), matrix=np.eye(2))
        found = self.make("numpy", self.path / "one.npz", "--samples-axis", "none")
        self.expect(found, {"scalar": np.full((1,), 3, np.float32), "matrix": np.eye(2)[None]})
        self.refuse("numpy", self.path / "one.npz", says=["'scalar'", "scalar", "--samples-axis none"])
        np.savez(self.path / "none.npz", x=np.zeros((0, 3)))
        self.refuse("numpy", self.path / "none.npz", says=["array 'x'", "none.npz", "no samples"])


class RealOutputs(Case):
    """What a real device gave, taken out of its capture by h5py, against the capture itself."""

    @classmethod
    def setUpClass(cls):
        cls.shared = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.shared.cleanup)
        cls.real = pathlib.Path(cls.shared.name) / "real.h5"
        support.capture("cnn.w8a8.onnx", ["cpu"], ["uniform:5"], cls.real)
        cls.codes = {name: array for name, (array, _) in outputs_of(cls.real).items()}
        cls.inputs = {name: array for name, (array, _) in outputs_of(cls.real, "inputs").items()}
        with h5py.File(cls.real) as file:
            scales = zip(file["edges/scale"][:], file["edges/zero_point"][:])
            cls.quant = {n.decode(): (float(s), int(z)) for n, (s, z) in zip(file["edges/name"][:], scales)}
            assert all(n == 1 for n in file["edges/quant_n"][:])

    def save(self, arrays, name="o.npz"):
        np.savez(self.path / name, **arrays)
        return self.path / name

    def judge(self, *arguments, code, **arrays):
        self.make("numpy", self.save(arrays or self.codes), "--probe", "uniform", *arguments)
        return support.compare(self.real, self.out, expect=code)

    def map(self, tensors, **more):
        (self.path / "map.yaml").write_text(json.dumps({"tensors": tensors, **more}))
        return "--map", self.path / "map.yaml"

    def test_with_the_model_they_are_the_same(self):
        inputs = self.save(self.inputs, "inputs.npz")
        report = self.judge("--model", CNN, "--inputs", inputs, code=0)
        self.assertEqual(report["verdict"], "same")
        self.assertFalse(report["unknown_models"] or report["unknown_inputs"])
        facts = support.info(self.out)["attributes"]
        self.assertEqual(facts["import"]["quantisation"], "the model")
        self.assertEqual(facts["import"]["inputs"], "--inputs")
        self.assertEqual(facts["device"]["chipset_source"], "not stated")
        self.assertNotIn("chipset", facts["device"])

    def test_one_flipped_code_is_found(self):
        for name in ("stem/relu", "logits"):
            codes = {n: array.copy() for n, array in self.codes.items()}
            codes[name].reshape(5, -1)[3, -1] ^= 1
            report = self.judge("--model", CNN, code=1, **codes)
            differing = [e["name"] for e in report["tensors"] if e["verdict"] != "same"]
            self.assertEqual(differing, [name])
            pair, = [p for e in report["tensors"] if e["name"] == name for p in e["pairs"]]
            self.assertIn('"sample": 3', json.dumps(pair))

    def test_without_a_model_it_takes_a_map_and_says_so(self):
        onnx = [{"name": n, "scale": s, "zero_point": z} for n, (s, z) in self.quant.items()]
        qnn = [{"name": n, "scale": s, "offset": -z, "convention": "qnn"} for n, (s, z) in self.quant.items()]
        for tensors in (onnx, qnn):
            report = self.judge(*self.map(tensors), code=0)
            self.assertEqual(report["verdict"], "same")
            self.assertTrue(report["unknown_models"] and report["unknown_inputs"])
        text = " ".join(npudiff("compare", self.real, self.out).split())
        self.assertIn("not every capture says of which model it is", text)
        self.assertIn("not every capture says what it was fed", text)
        onnx[2]["zero_point"] += 1
        report = self.judge(*self.map(onnx), code=1)
        said, = [e["pairs"][0]["label"] for e in report["tensors"] if e["verdict"] != "same"]
        self.assertIn("the same bytes", said)
        self.assertIn("one label is wrong; real values are 1 steps apart", said)

    def test_maps_are_held_against_the_model(self):
        name, (scale, zero) = next(iter(self.quant.items()))
        outputs = self.save(self.codes)
        wrong = self.map([{"name": name, "scale": scale * 2, "zero_point": zero}])
        self.refuse("numpy", outputs, "--model", CNN, *wrong, says=[name, "map.yaml:1:", "the model scale"])
        same = self.map([{"name": name, "scale": scale, "zero_point": zero}])
        self.make("numpy", outputs, "--model", CNN, *same)

    def test_channels_last_are_moved(self):
        images = [n for n, array in self.codes.items() if array.ndim == 5 and array[0].size > 100]
        self.assertGreaterEqual(len(images), 3)
        moved = {n: np.moveaxis(a, 2, -1) if n in images else a for n, a in self.codes.items()}
        tensors = [{"name": n, "layout": "NHWC"} for n in images]
        self.assertEqual(self.judge(*self.map(tensors), "--model", CNN, code=0, **moved)["verdict"], "same")
        squeezed = {n: a[:, 0] for n, a in moved.items()}  # [S, H, W, C]: the batch is gone
        self.assertEqual(self.judge(*self.map(tensors), "--model", CNN, code=0, **squeezed)["verdict"], "same")
        self.refuse("numpy", self.save(moved), "--model", CNN, says=["has shape", images[0], "the model has",
                                                                              "channels last it would fit", "NHWC"])

    def test_names_that_converters_sanitised(self):
        written = {"".join(c if c.isalnum() else "_" for c in n): a for n, a in self.codes.items()}
        self.assertEqual(self.judge("--model", CNN, code=0, **written)["verdict"], "same")
        self.assertIn("sanitised name", support.info(self.out)["attributes"]["import"]["names"])
        some = {"out": self.codes["logits"]}
        self.judge("--map", "out=logits", "--model", CNN, code=3, **some)
        self.assertEqual(list(outputs_of(self.out)), ["logits"])
        self.refuse("numpy", self.save(some), "--model", CNN, says=["no tensor 'out'", "o.npz"])
        self.refuse("numpy", self.save(some), "--map", "in=logits", says=["--map in=logits", "no tensor 'in'", "'out'"])

    def test_sanitised_names_of_several_edges_are_never_guessed(self):
        model = self.path / "twins.onnx"  # pointwise/relu and, of the same length, pointwise.relu
        model.write_bytes(CNN.read_bytes().replace(b"depthwise/relu", b"pointwise.relu"))
        some = {"pointwise_relu": self.codes["pointwise/relu"]}
        self.refuse("numpy", self.save(some), "--model", model, says=["'pointwise_relu'", "'pointwise.relu'",
                                                                      "'pointwise/relu'", "--map"])
        self.make("numpy", self.save(some), "--model", model, "--map", "pointwise_relu=pointwise/relu")
        self.make("numpy", self.save({"pointwise/relu": some["pointwise_relu"]}), "--model", model)

    def test_real_values_of_codes_become_those_codes(self):
        scale, zero = self.quant["logits"]
        real = {"logits": ((self.codes["logits"].astype(np.int64) - zero) * np.float32(scale)).astype(np.float32)}
        report = self.judge("--model", CNN, code=3, **real)
        logits, = [e for e in report["tensors"] if e["name"] == "logits"]
        self.assertEqual(logits["verdict"], "same")
        self.assertEqual(outputs_of(self.out)["logits"][1], "uint8")
        real["logits"].flat[7] += np.float32(scale / 3)
        self.judge("--model", CNN, code=3, **real)
        self.assertEqual(outputs_of(self.out)["logits"][1], "float32")
        self.refuse("numpy", self.save({"logits": self.codes["logits"].astype(np.int32)}), "--model", CNN,
                    says=["'logits'", "found int32", "is uint8"])

    def real_values(self, name):
        scale, zero = self.quant[name]
        return ((self.codes[name].astype(np.int64) - zero) * np.float32(scale)).astype(np.float32)

    def test_values_of_the_graph_that_onnx_runtime_saves(self):
        """As qdq_loss_debug.collect_activations names and saves them: flat, floats before quantisers, constants."""
        values = {f"{n}_DequantizeLinear_Output" if n != "logits" else n: self.real_values(n).reshape(5, -1) for n in self.codes}
        beside = {"stem/relu": values["stem/relu_DequantizeLinear_Output"] + np.float32(1e-4),
                  "logits_QuantizeLinear_Input": values["logits"] + np.float32(1e-4),
                  "head.weight_DequantizeLinear_Output": np.zeros((5, 7), np.float32)}
        inputs = self.save(self.inputs, "inputs.npz")
        self.assertEqual(self.judge("--model", CNN, "--inputs", inputs, code=0, **values, **beside)["verdict"], "same")
        facts = support.info(self.out)["attributes"]["import"]
        self.assertIn("flat in a row", facts["samples"])
        for name in beside:
            self.assertIn(f"{name}: ", facts["left out"])
        # Floats before a quantiser, and nothing else of the tensor: as if they had the tensor's name.
        self.make("numpy", self.save({"logits_QuantizeLinear_Input": beside["logits_QuantizeLinear_Input"]}), "--model", CNN)
        self.assertEqual({n: t for n, (_, t) in outputs_of(self.out).items()}, {"logits": "float32"})
        # Near misses: a name of nothing, two arrays that contradict each other, a flat sample of another length.
        self.refuse("numpy", self.save({"stem/relu_Dequantised": values["logits"]}), "--model", CNN, says=["no tensor"])
        other = {"stem/relu_QuantizeLinear_Output": self.codes["stem/relu"] ^ 1}
        self.refuse("numpy", self.save({**values, **other}), "--model", CNN, says=["two tensors are 'stem/relu'"])
        self.refuse("numpy", self.save({"stem/relu": beside["stem/relu"][:, 1:]}), "--model", CNN, says=["has shape"])

    def test_outputs_alone_are_compared_on_request(self):
        report = self.judge("--model", CNN, code=3, logits=self.codes["logits"])
        self.assertEqual((report["verdict"], report["tensors_left_out"]), ("not comparable", 0))
        self.assertIn("--tensors outputs", npudiff("compare", self.real, self.out, expect=3))
        for which in ("outputs", "logits", "log*"):
            report = support.compare(self.real, self.out, "--tensors", which, expect=0)
            self.assertEqual(([e["name"] for e in report["tensors"]], report["verdict"]), (["logits"], "same"))
            self.assertEqual(report["tensors_left_out"], len(self.codes) - 1)
        self.assertIn("left out", npudiff("compare", self.real, self.out, "--tensors", "outputs"))
        support.compare(self.real, self.out, "--tensors", "logits,pool", expect=3)
        done = npudiff("compare", self.real, self.out, "--tensors", "logits,lgoits", expect=None)
        self.assertEqual(done.returncode, 2)
        self.assertIn("matches 'lgoits'", done.stderr)
        flipped = self.codes["logits"].copy()
        flipped.flat[3] ^= 1
        self.judge("--model", CNN, code=3, logits=flipped)
        self.assertEqual(support.compare(self.real, self.out, "--tensors", "outputs", expect=1)["verdict"], "differs")

    def test_other_inputs_are_noticed(self):
        inputs = {n: a.copy() for n, a in self.inputs.items()}
        inputs["image"].reshape(5, -1)[2, 0] += 1
        self.make("numpy", self.save(self.codes), "--probe", "uniform", "--model", CNN, "--inputs",
                  self.save(inputs, "inputs.npz"))
        done = npudiff("compare", self.real, self.out, expect=None)
        self.assertEqual(done.returncode, 3)
        self.assertIn("probe 'uniform' has other inputs in the test", done.stderr)
        short = {n: a[:4] for n, a in self.inputs.items()}
        self.refuse("numpy", self.save(self.codes), "--model", CNN, "--inputs", self.save(short, "inputs.npz"),
                    says=["4 samples", "5"])


class WhatIsSaid(Case):
    """Of arrays alone, what was said wrongly once."""

    def imported(self, name, values, *arguments):
        np.savez(self.path / f"{name}.npz", **values)
        path = self.path / f"{name}.h5"
        npudiff("import", "numpy", self.path / f"{name}.npz", *arguments, "-o", path, "-f", "-q")
        return path

    def largest(self, reference, other):
        """The table's row of the other capture, and the whole text."""
        text = npudiff("compare", self.imported("ref", reference), self.imported("other", other), expect=1)
        return next(line for line in text.splitlines() if line.startswith("  other")).split()[5:], text

    def test_an_infinity_is_the_largest_difference(self):
        most = np.finfo(np.float32).max
        y = np.array([[1, 2, 3, most, 5, 6]], np.float32)
        other = y.copy()
        other[0, 3] = np.inf
        self.assertEqual(self.largest({"y": y}, {"y": other})[0], ["Inf"])
        self.assertIn("infinite on one side alone in 1 of 6 values", self.largest({"y": y}, {"y": other})[1])
        other[0, 0] = np.nan
        self.assertEqual(self.largest({"y": y}, {"y": other})[0], ["Inf,", "NaN"])
        other[0, 3] = most
        self.assertEqual(self.largest({"y": y}, {"y": other})[0], ["NaN"])
        other[0, 0] = 1.5
        self.assertEqual(self.largest({"y": y}, {"y": other})[0], ["0.5"])

    def test_the_worst_tensor_has_the_largest_error_for_its_signal(self):
        rng = np.random.default_rng(SEED)
        a, b = rng.normal(size=(1, 400)).astype(np.float32), rng.normal(size=(1, 400)).astype(np.float32)
        half_wrong = np.where(np.arange(400) % 2 == 0, -b, b)
        row, _ = self.largest({"a": a, "b": b}, {"a": a + np.float32(1e-3), "b": half_wrong}) # a differs everywhere, b in half
        self.assertGreater(float(row[0]), 1)

    def test_inputs_that_explain_will_need_are_asked_for_at_once(self):
        np.savez(self.path / "y.npz", y=np.zeros((2, 1, 10), np.float32))
        np.savez(self.path / "logits.npz", logits=np.zeros((2, 1, 10), np.uint8))
        said = npudiff("import", "numpy", self.path / "logits.npz", "--model", CNN, "-o", self.out, "-f")
        self.assertRegex(said, r"inputs +not stated: 'explain' needs them \(--inputs\)\n")
        said = npudiff("import", "numpy", self.path / "y.npz", "-o", self.out, "-f") # no model: nothing to explain
        self.assertRegex(said, r"inputs +not stated\n")

    def test_the_sdk_that_an_import_states_is_an_axis(self):
        rng = np.random.default_rng(SEED)
        first, second = ({"y": rng.normal(size=(2, 16)).astype(np.float32)} for _ in range(2))
        store = self.path / "store"
        for sdk, values in (("2.28.0", first), ("2.29.0", second), ("2.30.0", first)):
            path = self.imported(sdk, values, "--kind", "npu", "--sdk", sdk, "--chipset", "SM8650")
            npudiff("golden", "add", store, path, "--note", "x")
        self.assertEqual([entry["sdk"] for entry in json.loads(npudiff("golden", "list", store, "--json"))["entries"]],
                         ["2.28.0", "2.29.0", "2.30.0"])
        self.assertRegex(npudiff("golden", "history", store), r"SM8650 \(npu\) +a +b +a")


class Damage(Case):
    """Every defect is named, with file and object, and nothing is left behind."""

    def test_npy_headers(self):
        def npy(header, data=b"", version=b"\1\0"):
            return b"\x93NUMPY" + version + struct.pack("<H", len(header)) + header.encode() + data
        defects = {
            "magic": (b"NUMPY" + bytes(200), "starts otherwise"),
            "empty": (b"", "only 0 bytes"),
            "version": (npy("{}", version=b"\7\0"), "version 7.0"),
            "negative": (npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 4), }"), "cannot be understood"),
            "huge": (npy(f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({1 << 40}, {1 << 40}), }}"), "no memory"),
            "short": (npy("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }", bytes(47)), "cut off"),
            "long": (npy("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }", bytes(49)), "longer"),
            "object": (npy("{'descr': '|O', 'fortran_order': False, 'shape': (3,), }", bytes(24)), "pickle"),
            "void": (npy("{'descr': '<V2', 'fortran_order': False, 'shape': (3,), }", bytes(6)), "'<V2'"),
            "rank": (npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1), }", bytes(4)), "9 dim"),
            "bool": (npy("{'descr': '|b1', 'fortran_order': False, 'shape': (2,), }", b"\1\2"), "bool 2"),
        }
        for name, (content, reason) in defects.items():
            (self.path / f"{name}.npy").write_bytes(content)
            self.refuse("numpy", self.path / f"{name}.npy", says=[f"{name}.npy", reason])

    def test_archives(self):
        good = io.BytesIO()
        np.savez_compressed(good, conv=np.zeros((4, 5), np.float32))
        for cut in range(0, len(good.getvalue()), 37):
            (self.path / "cut.npz").write_bytes(good.getvalue()[:cut])
            self.refuse("numpy", self.path / "cut.npz", says=["cut.npz"])
        with zipfile.ZipFile(self.path / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as bomb:
            header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (99999999999999,), }"
            bomb.writestr("x.npy", b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + bytes(1 << 20))
        self.refuse("numpy", self.path / "bomb.npz", says=["array 'x'", "bomb.npz"])
        with zipfile.ZipFile(self.path / "text.npz", "w") as other:
            other.writestr("readme.txt", "no array")
        self.refuse("numpy", self.path / "text.npz", says=["text.npz", "readme.txt"])

    def test_raw_lists(self):
        (self.path / "x.raw").write_bytes(bytes(40))
        base = {"name": "x", "dtype": "float32", "shape": [1, 5], "file": "x.raw"}
        defects = [({"shape": [1, 3]}, ["x.raw", "40 bytes", "12"]), ({"samples": 3}, ["x.raw", "40 bytes"]),
                   ({"shape": [1, -5]}, ["list.yaml:1:", "-5"]), ({"dtype": "float31"}, ["list.yaml:1:", "float31"]),
                   ({"file": "y.raw"}, ["y.raw"]), ({"colour": "red"}, ["list.yaml:1:", "'colour'"]),
                   ({"files": ["x.raw"]}, ["either 'file'"]), ({"shape": [1] * 8}, ["8 dimensions"]),
                   ({"samples": 0}, ["'samples'"]), ({"shape": [1 << 40, 1 << 40]}, ["shape", "does not fit"]),
                   ({"file": "."}, ["regular file"])]
        for change, says in defects:
            (self.path / "list.yaml").write_text(json.dumps({"tensors": [base | change]}))
            self.refuse("raw", self.path / "list.yaml", says=says)
        (self.path / "list.yaml").write_text(json.dumps({"tensors": [base, base]}))
        self.refuse("raw", self.path / "list.yaml", says=["'x'"])
        (self.path / "list.yaml").write_text("tensors: [}")
        self.refuse("raw", self.path / "list.yaml", says=["list.yaml:1:"])

    def test_protobufs(self):
        good = (IMPORTS / "onnx/test_data_set_0/output_0.pb").read_bytes()
        for cut in range(1, len(good), 5):
            (self.path / "x.pb").write_bytes(good[:cut])
            self.refuse("onnx-pb", self.path / "x.pb", says=["x.pb"])
        folder = self.path / "test_data_set_0"
        folder.mkdir()
        self.refuse("onnx-pb", self.path, says=["test_data_set_0", "neither output_0.pb"])
        (folder / "output_1.pb").write_bytes(good)
        self.refuse("onnx-pb", self.path, says=["test_data_set_0", "highest number is 1"])
        # field 1: dims, 2: data_type, 9: raw_data, 14: data_location
        defects = {"count": (b"\x08\x03\x10\x01\x4a\x04abcd", "bytes in raw_data"), "type": (b"\x08\x01\x10\x08", "type 8"),
                   "negative": (b"\x08" + b"\xff" * 9 + b"\x01\x10\x01", "dimension of -1"),
                   "huge": (b"\x08" + b"\xff" * 7 + b"\x7f\x10\x01\x4a\x04abcd", "holds fewer"),
                   "elsewhere": (b"\x08\x01\x10\x01\x70\x01", "external data"), "none": (b"", "empty"),
                   "rank": (b"\x08\x01" * 8 + b"\x10\x01\x4a\x04abcd", "8 dimensions"),
                   "range": (b"\x08\x01\x10\x02\x2a\x02\x80\x02", "no uint8"),
                   "both": (b"\x08\x01\x10\x06\x2a\x01\x05\x4a\x04abcd", "several fields")}
        for name, (content, reason) in defects.items():
            (self.path / f"{name}.pb").write_bytes(content)
            self.refuse("onnx-pb", self.path / f"{name}.pb", says=[f"{name}.pb", reason])

    def test_datasets(self):
        sample = np.arange(6, dtype=np.float32).reshape(2, 3)

        def change(action, *says):
            path = self.path / "d.h5"
            write_aihub(path, {"x": [sample, sample], "y": [sample, sample]})
            with h5py.File(path, "r+") as file:
                action(file)
            self.refuse("aihub", path, says=["d.h5", *says])

        def replace(file, name, data, **options):
            del file[name]
            file.create_dataset(name, data=data, **options)
        change(lambda f: f.__delitem__("data"), "'/data'")
        change(lambda f: f["data/0"].attrs.__delitem__("name"), "/data/0", "'name'")
        change(lambda f: f["data/1"].attrs.__setitem__("name", "x"), "x")
        change(lambda f: f["data/0"].attrs.__setitem__("batch_count", 3), "batch_2", "batch_count is 3")
        change(lambda f: f["data/0"].attrs.__setitem__("batch_count", -1), "batch_count of -1")
        change(lambda f: f["data/1"].attrs.__setitem__("batch_count", 1), "1 samples", "2")
        change(lambda f: f["data/1"].attrs.__setitem__("order", 7), "'order'")
        change(lambda f: f["data/1"].attrs.__delitem__("order"), "'order'")
        change(lambda f: replace(f, "data/0/batch_1", sample[:1]), "batch_1", "sample 0")
        change(lambda f: replace(f, "data/0/batch_0", ["text"]), "batch_0", "numbers")
        change(lambda f: replace(f, "data/0/batch_0", sample, compression="lzf"), "batch_0", "filter")
        change(lambda f: replace(f, "data/0/batch_0", None, shape=(1 << 35,), chunks=(64,), dtype="u1"), "batch_0",
               "too small to hold the 34359738368 bytes")
        change(lambda f: f["data"].__setitem__("2", h5py.SoftLink("/data/0")), "soft or external")
        change(lambda f: f["data"].__setitem__("2", h5py.ExternalLink("/etc/passwd", "/")), "soft or external")
        (self.path / "not.h5").write_bytes(b"text")
        self.refuse("aihub", self.path / "not.h5", says=["not.h5", "not an HDF5 file"])

    def test_a_dataset_that_keeps_libhdf5_busy_for_ever(self):
        """One wrong byte in the heap of its texts (golden/bad/imports): it is given up at the limit for files of its size."""
        path = GOLDEN / "bad" / "imports" / "endless.h5"
        self.refuse("aihub", path, says=["endless.h5", "damaged, or too slow to read", "was stopped at the limit of",
                                         f"a file of {path.stat().st_size} bytes", "[ND-221]"])

    def test_datasets_with_broken_bytes(self):
        print(f"# ND_SEED={SEED}")
        rng = random.Random(SEED)
        good = (IMPORTS / "aihub.h5").read_bytes()
        path = self.path / "d.h5"
        for _ in range(60):
            broken = bytearray(good)
            for _ in range(rng.randrange(1, 9)):
                broken[rng.randrange(len(broken))] = rng.randrange(256)
            path.write_bytes(bytes(broken[:rng.randrange(len(broken))] if rng.random() < 0.3 else broken))
            done = npudiff("import", "aihub", path, "-o", self.out, "-f", "-q", expect=None)
            self.assertIn(done.returncode, (0, 2), done.stderr)
            if done.returncode == 0:
                npudiff("verify", self.out)

    def test_saved_runs(self):
        text = (IMPORTS / "polygraphy.json").read_text()
        path = self.path / "p.json"

        def change(action, *says):
            run = json.loads(text)
            run["lst"] = run["lst"][:1]
            action(run["lst"][0][1], run)
            path.write_text(json.dumps(run))
            self.refuse("polygraphy", path, says=["p.json", *says])
        change(lambda its, run: run.__delitem__("lst"), "'lst'")
        change(lambda its, run: its.clear(), "no iterations")
        change(lambda its, run: its[1].__delitem__("outputs"), "iteration 1", "'outputs'")
        change(lambda its, run: its[1]["outputs"].__delitem__("int8"), "'int8'", "sample 1")
        change(lambda its, run: its[2]["outputs"].__delitem__("int8"), "'int8'", "2 samples")
        change(lambda its, run: its[0]["outputs"]["int8"]["values"].__setitem__("array", "%%"), "'int8'", "base64")
        change(lambda its, run: its[0]["outputs"]["int8"]["values"].__setitem__("array", "AAAA"), "'int8'", ".npy")
        change(lambda its, run: its[0]["outputs"]["int8"].__setitem__("values", {"tensor": "AAAA"}), "PyTorch")
        for cut in range(0, len(text), 4001):
            path.write_text(text[:cut])
            self.refuse("polygraphy", path, "--runner", "trt", says=["p.json"])

    def test_options(self):
        np.save(self.path / "x.npy", np.zeros((2, 3), np.float32))
        for word, stored in (("gen4", "SM8750"), ("sm8750", "SM8750"), ("Kirin 9000", "Kirin 9000")):
            self.make("numpy", self.path / "x.npy", "--chipset", word)
            self.assertEqual(support.info(self.out)["attributes"]["device"]["chipset"], stored)
        self.out.unlink()
        self.refuse("tar", self.path / "x.npy", says=["no format 'tar'"])
        self.refuse("numpy", self.path / "y.npy", says=["y.npy"])
        self.refuse("numpy", self.path / "x.npy", "--runner", "a", says=["--runner"])
        self.refuse("numpy", self.path / "x.npy", "--dim", "N=1", says=["--model"])
        self.refuse("numpy", self.path / "x.npy", self.path / "x.npy", says=["two tensors 'x'"])
        self.out.write_text("mine")
        npudiff("import", "numpy", self.path / "x.npy", "-o", self.out, expect=2)
        self.assertEqual(self.out.read_text(), "mine")

    def test_maps(self):
        np.save(self.path / "x.npy", np.zeros((2, 3), np.uint8))
        one = {"name": "x", "scale": 1, "zero_point": 0}
        defects = [({"tensors": [one | {"colour": 1}]}, ["'colour'"]), ({"tensors": [one, one]}, ["mapped already"]),
                   ({"tensors": [one | {"scale": 0}]}, ["no scale"]),
                   ({"tensors": [one | {"scale": "nan"}]}, ["no scale"]),
                   ({"tensors": [one | {"offset": 1}]}, ["convention: qnn"]),
                   ({"tensors": [{"name": "y"}]}, ["no tensor 'y'"]),
                   ({"tensors": [one | {"convention": "qnn"}]}, ["contradicts 'convention: qnn'"]),
                   ({"tensors": [one | {"convention": "tf"}]}, ["not 'tf'"]),
                   ({"tensors": [{"name": "x", "layout": "HWCN"}]}, ["'HWCN'"]),
                   ({"tensors": [one | {"scale": [1, 2]}]}, ["axis"]), ({"tensors": [one | {"axis": 0}]}, ["axis"]),
                   ({"tensors": [one | {"scale": [1, 2], "axis": 0}]}, ["2 scales along dimension 0"]),
                   ({"tensors": [{"name": "x", "dtype": "int16"}]}, ["is uint8", "int16"]),
                   ({"tensors": [one | {"zero_point": -114}]}, ["zero point -114", "no uint8", "convention: qnn"]),
                   ({"tensors": [one | {"zero_point": 256}]}, ["zero point 256", "no uint8"]),
                   ({"tensors": [{"name": "x", "scale": 1, "offset": 1, "convention": "qnn"}]}, ["zero point -1", "uint8"]),
                   ({"tenors": []}, ["'tenors'"]),
                   ({"tensors": [{"name": "x", "layout": "NHWC"}]}, ["4 dimensions", "1 dimensions"]),
                   ({"tensors": [{"name": "x", "skip": True}]}, ["no tensor to import"])]
        for text, says in defects:
            (self.path / "map.yaml").write_text(json.dumps(text))
            self.refuse("numpy", self.path / "x.npy", "--map", self.path / "map.yaml", says=says)
        np.save(self.path / "in.npy", np.zeros((2, 3), np.uint8))
        (self.path / "map.yaml").write_text(json.dumps({"inputs": [one | {"name": "in"}]}))
        self.refuse("numpy", self.path / "x.npy", "--inputs", self.path / "in.npy", "--map", self.path / "map.yaml",
                    says=["map.yaml", "scale of input 'in'"])
        np.save(self.path / "x.npy", np.full((2, 3), 16, np.uint8))
        (self.path / "map.yaml").write_text(json.dumps({"tensors": [{"name": "x", "dtype": "uint4"}]}))
        self.refuse("numpy", self.path / "x.npy", "--map", self.path / "map.yaml", says=["element 0 is 16", "uint4"])


if __name__ == "__main__":
    support.main()
