#!/usr/bin/env python3
"""npudiff.Twin: the bits of `capture -d twin:` and of Qualcomm's simulator, as arrays; what cannot be had is an error."""
import gc
import importlib.util
import os
import pathlib
import subprocess
import sys
import threading

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCE = [] if os.environ.get("NPUDIFF_PACKAGE") == "installed" else [str(ROOT / "python" / "src")]
sys.path[:0] = [*SOURCE, str(ROOT / "tests" / "e2e"), str(ROOT / "tests" / "support")]
import npudiff # noqa: E402
import onnx_write as ow # noqa: E402
from support import MODELS, Scratch, main # noqa: E402

CNN = MODELS / "cnn.w8a8.onnx"
NETWORKS = ["cnn.w8a8.onnx", "cnn.w8a16.onnx", "vit.w8a8.onnx", "random-residual.u8.onnx", "random-attention.w8a8.onnx", "mul.u8.onnx"]


def digits(n=None):
    with np.load(MODELS / "digits-test.npz") as file:
        return file["image"][:n], file["labels"][:n]


def quantised(path, body, shapes, outputs=(("y", ow.FLOAT),)):
    """A uint8 model with an input and an output of each shape; body: its nodes between x0.dq, x1.dq, ... and sum."""
    constants = {"s": np.float32(2 ** -5), "z": np.uint8(128)}
    names = [f"x{i}" for i in range(len(shapes))]
    nodes = [n for name in names for n in (ow.node("QuantizeLinear", [name, "s", "z"], [name + ".q"]),
                                           ow.node("DequantizeLinear", [name + ".q", "s", "z"], [name + ".dq"]))]
    nodes += body + [ow.node("QuantizeLinear", ["sum", "s", "z"], ["y.q"]), ow.node("DequantizeLinear", ["y.q", "s", "z"], ["y"])]
    infos = [ow.value_info(name, ow.FLOAT, shape) for name, shape in zip(names, shapes)]
    path.write_bytes(ow.model(nodes, infos, [ow.value_info(name, kind, shapes[0]) for name, kind in outputs], constants))
    return path


class Bits(Scratch):
    def test_arrays_are_those_of_a_capture(self):
        """All tensors, and outputs alone, of every kind of model and of three generations."""
        for model in NETWORKS:
            for chip in ("gen1", "gen3@qairt-2.48", "gen5"):
                with self.subTest(model=model, chip=chip):
                    twin = npudiff.Twin(MODELS / model, chip)
                    folder = self.folder / f"{model}-{chip}"
                    all_of, alone = (npudiff.capture(MODELS / model, [f"twin:{chip}"], ["uniform:3"], f"{folder}-{which}.h5", tensors=which)[0]
                                     for which in ("all", "outputs"))
                    with npudiff.load(all_of) as capture:
                        made = twin.run(capture.inputs("uniform"), tensors="all")
                        for name in capture.edges:
                            np.testing.assert_array_equal(made[name], capture.outputs(name, "uniform"))
                        self.assertEqual({name: array.dtype.name for name, array in made.items() if name in capture.edges},
                                         {name: edge.dtype for name, edge in capture.edges.items()})
                        runtime = capture.attributes("runtime")
                        self.assertEqual(twin.marks, dict(line.split("\t") for line in runtime["not_known"].split("\n") if line))
                        self.assertEqual(twin.behind, [line for line in runtime["behind_not_known"].split("\n") if line])
                    with npudiff.load(alone) as capture:
                        made = twin.run(capture.inputs("uniform"))
                        for name in capture.edges:
                            is_float = twin.outputs[name].dtype == np.float32
                            read = capture.values(name, "uniform").astype(np.float32) if is_float else capture.outputs(name, "uniform")
                            np.testing.assert_array_equal(made[name], read)

    def test_what_nobody_looks_at_is_one_operation(self):
        """A Relu with a quantiser of its own behind a Conv: other values where the Conv is looked at, as of a capture."""
        rng = np.random.default_rng(3)
        constants = {"w": rng.integers(-127, 128, (8, 4, 1, 1)).astype(np.int8), "ws": np.float32(0.01), "wz": np.int8(0),
                     "t": np.float32(0.05), "r": np.float32(0.011), "q": np.uint8(0), "s": np.float32(2 ** -5), "z": np.uint8(128)}
        def requantised(name, scale, zero):
            return [ow.node("QuantizeLinear", [name, scale, zero], [name + ".q"]),
                    ow.node("DequantizeLinear", [name + ".q", scale, zero], ["y" if name == "relu" else name + ".dq"])]
        nodes = [*requantised("x", "s", "z"), ow.node("DequantizeLinear", ["w", "ws", "wz"], ["w.dq"]),
                 ow.node("Conv", ["x.dq", "w.dq"], ["conv"], kernel_shape=[1, 1]), *requantised("conv", "t", "z"),
                 ow.node("Relu", ["conv.dq"], ["relu"]), *requantised("relu", "r", "q")]
        model = self.folder / "relu.onnx"
        model.write_bytes(ow.model(nodes, [ow.value_info("x", ow.FLOAT, (1, 4, 8, 8))], [ow.value_info("y", ow.FLOAT, (1, 8, 8, 8))],
                                   constants))
        twin, made = npudiff.Twin(model, "gen3"), {}
        for which, tensors in (("outputs", ["y"]), ("all", "all")):
            captured = npudiff.capture(model, ["twin:gen3"], ["uniform:2"], self.folder / f"{which}.h5", tensors=which)[0]
            with npudiff.load(captured) as capture:
                made[which] = twin.run(capture.inputs("uniform"), tensors=tensors)["y"]
                np.testing.assert_array_equal(made[which], capture.outputs("y", "uniform"))
        self.assertGreater((made["outputs"] != made["all"]).mean(), 0.1)

    def test_bits_are_those_of_the_simulator(self):
        """Qualcomm's own, with all tensors and with outputs alone."""
        images, _ = digits(40)
        probe = self.folder / "digits.npz"
        np.savez(probe, image=images)
        for which in ("all", "outputs"):
            made = npudiff.capture(CNN, ["htp-sim:gen3"], [f"digits={probe}"], self.folder / f"{which}.h5", tensors=which)[0]
            twin = npudiff.Twin(CNN, "gen3", strict=True).run(images[:, None], tensors="all" if which == "all" else ["logits"])
            with npudiff.load(made) as capture:
                self.assertTrue(set(capture.edges) <= set(twin))
                for name in capture.edges:
                    np.testing.assert_array_equal(twin[name], capture.outputs(name))

    def test_threads_and_calls_change_nothing(self):
        images, _ = digits(300) # more than one call takes
        one, four = (npudiff.Twin(CNN, "gen3", threads=n) for n in (1, 4))
        expected = one.run(images, tensors="all")
        for name, array in four.run(images, tensors="all").items():
            np.testing.assert_array_equal(array, expected[name])
        single = np.concatenate([one.run(images[i:i + 1])["logits"] for i in range(0, 300, 37)])
        np.testing.assert_array_equal(single, four.run(images)["logits"][::37])
        found = {}
        tasks = [threading.Thread(target=lambda i=i: found.update({i: four.run(images[i:i + 50])["logits"]})) for i in (0, 50, 100)]
        for task in tasks:
            task.start()
        for task in tasks:
            task.join()
        np.testing.assert_array_equal(np.concatenate([found[i] for i in (0, 50, 100)]), four.run(images[:150])["logits"])


class Arrays(Scratch):
    def test_what_the_twin_has(self):
        twin = npudiff.Twin(CNN, "twin:SM8650")
        image, logits, codes = twin.inputs["image"], twin.outputs["logits"], twin.tensors["logits"]
        self.assertEqual((image.dtype, image.shape, image.quantised), (np.float32, (1, 1, 8, 8), "uint8"))
        self.assertEqual((logits.dtype, codes.dtype, codes.shape), (np.float32, np.uint8, (1, 10)))
        self.assertEqual(twin.tensors["stem/relu"].op_types, "Conv")
        self.assertEqual(list(twin.tensors)[0], "image")
        made = twin.run(digits(5)[0], tensors="logits")
        self.assertEqual(list(made), ["logits"])
        np.testing.assert_array_equal(codes.real(made["logits"]).astype(np.float32), twin.run(digits(5)[0])["logits"])
        self.assertIn("SM8650", repr(twin))

    def test_samples_come_in_many_ways(self):
        """With an axis of samples or as a batch, as dict, array, list; of other strides, and float64."""
        images, _ = digits(6)
        twin = npudiff.Twin(CNN, "gen3")
        expected = twin.run(images)["logits"]
        self.assertEqual(expected.shape, (6, 10))
        self.assertEqual(twin.run(images[:, None])["logits"].shape, (6, 1, 10))
        for given in ({"image": images}, images[:, None], list(images), [{"image": one} for one in images], images.astype(np.float64),
                      np.asfortranarray(images), np.repeat(images, 2, axis=0)[::2], {"image": images.tolist()}):
            np.testing.assert_array_equal(twin.run(given)["logits"].reshape(6, 10), expected)
        self.assertEqual(twin.run(images[:0])["logits"].shape, (0, 10))
        made = twin.run(images)["logits"]
        self.assertTrue(made.flags.writeable and made.flags.c_contiguous)
        del twin
        gc.collect()
        np.testing.assert_array_equal(made, expected)

    def test_arrays_that_do_not_fit_are_errors(self):
        images, labels = digits(6)
        twin = npudiff.Twin(CNN, "gen3")
        for given, error, words in [(images[:, :, :7], ValueError, r"\(n, 1, 1, 8, 8\), or \(n, 1, 8, 8\), not \(6, 1, 7, 8\)"),
                                    (images[0], ValueError, "not"), ({"x": images}, ValueError, r"inputs \['image'\]"), ({}, ValueError, "inputs"),
                                    (images.astype(np.uint8), TypeError, "'image' is float32, not uint8"), ([], ValueError, "image")]:
            with self.assertRaisesRegex(error, words):
                twin.run(given)
        with self.assertRaisesRegex(KeyError, "no tensor 'relu'.*stem/relu"):
            twin.run(images, tensors=["logits", "relu"])
        with self.assertRaisesRegex(ValueError, "6 samples and 5 labels"):
            twin.accuracy(images, labels[:5])

    def test_several_inputs(self):
        model = quantised(self.folder / "sum.onnx", [ow.node("Add", ["x0.dq", "x1.dq"], ["sum"])], [(1, 4, 8, 8)] * 2)
        twin, rng = npudiff.Twin(model, "gen3"), np.random.default_rng(5)
        a, b = (rng.uniform(-2, 2, (3, 4, 8, 8)).astype(np.float32) for _ in range(2))
        made = twin.run({"x1": b, "x0": a})["y"]
        np.testing.assert_allclose(made, a + b, atol=2 ** -5 * 1.5)
        np.testing.assert_array_equal(twin.run([{"x0": a[i], "x1": b[i]} for i in range(3)])["y"].reshape(made.shape), made)
        with self.assertRaisesRegex(ValueError, "different numbers of samples"):
            twin.run({"x0": a, "x1": b[:2]})
        with self.assertRaisesRegex(ValueError, "give a dict"):
            twin.run(a)

    def test_several_outputs_of_one_tensor(self):
        """As floats, and as quantised values: both are given, and say the same."""
        model = quantised(self.folder / "two.onnx", [ow.node("Relu", ["x0.dq"], ["sum"])], [(1, 6)],
                          [("y", ow.FLOAT), ("y.q", ow.U8)])
        twin = npudiff.Twin(model, "gen3")
        self.assertEqual({name: value.dtype.name for name, value in twin.outputs.items()}, {"y": "float32", "y.q": "uint8"})
        made = twin.run(np.float32([[-1, 0, 0.5, 1, 2, 3]]))
        self.assertEqual(made["y.q"].ravel().tolist(), [128, 128, 144, 160, 192, 224])
        np.testing.assert_array_equal(made["y"], (made["y.q"].astype(np.float32) - 128) / 32)
        with self.assertRaisesRegex(ValueError, "which output"):
            twin.accuracy(np.zeros((2, 6), np.float32), [0, 0])
        self.assertEqual(twin.accuracy(np.eye(6, dtype=np.float32), range(6), output="y.q").right, 6)

    def test_accuracy_has_an_interval(self):
        images, labels = digits()
        result = npudiff.Twin(CNN, "gen3").accuracy(images, labels)
        self.assertEqual((result.right, result.n), (696, 700)) # as `compare` says of the simulator
        self.assertEqual(str(result), "99.43 % (696 of 700; 98.54 to 99.78 %)")
        from npudiff._twin import wilson
        # Of Newcombe, "Two-sided confidence intervals for the single proportion", Statistics in Medicine 17 (1998) 857, table I.
        for k, n, low, high in [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)]:
            np.testing.assert_allclose(wilson(k, n), (low, high), atol=5e-5)
        self.assertEqual(wilson(20, 20)[1], 1.0)
        self.assertEqual(wilson(0, 0), (0.0, 1.0))


class Unknown(Scratch):
    def test_what_is_not_known_is_marked_or_refused(self):
        model, images = MODELS / "cnn.w8a16.onnx", digits(4)[0]
        twin = npudiff.Twin(model, "gen3")
        self.assertEqual((twin.marks, twin.behind), ({}, []))
        twin.run(images)
        self.assertEqual(list(twin.marks), ["average"])
        self.assertEqual(twin.behind, ["features", "logits"])
        with self.assertRaisesRegex(npudiff.TroubleError, "does not know 'average'") as raised:
            npudiff.Twin(model, "gen3", strict=True).run(images)
        self.assertEqual((raised.exception.id, raised.exception.object), ("ND-907", "average"))

    def test_what_cannot_be_had_is_named(self):
        broken = quantised(self.folder / "b.onnx", [ow.node("Bernoulli", ["x0.dq"], ["sum"])], [(1, 4)])
        damaged = self.folder / "damaged.onnx"
        damaged.write_bytes(CNN.read_bytes()[:5000])
        for model, chip, words in [(CNN, "gen9", "gen9"), (CNN, "gen3@qairt-2.52", "qairt-2.47 to"), (CNN, "gen3?x=1", "strict=1"),
                                   (MODELS / "cnn.float.onnx", "gen3", "for quantised models"), ("missing.onnx", "gen3", "missing.onnx"),
                                   (damaged, "gen3", "damaged.onnx"), (broken, "gen3", "Bernoulli")]:
            with self.subTest(chip=chip, model=model), self.assertRaisesRegex(npudiff.TroubleError, words):
                npudiff.Twin(model, chip)

    def test_open_dimensions_are_given(self):
        open_model = quantised(self.folder / "open.onnx", [ow.node("Relu", ["x0.dq"], ["sum"])], [("N", 4)])
        with self.assertRaisesRegex(npudiff.TroubleError, "N"):
            npudiff.Twin(open_model, "gen3")
        x = np.linspace(-3, 3, 20, dtype=np.float32).reshape(5, 4)
        made = npudiff.Twin(open_model, "gen3", dims={"N": 1}).run(x)["y"]
        np.testing.assert_allclose(made, np.maximum(x, 0), atol=2 ** -5)

    def test_ends_of_the_range(self):
        """NaN is the least quantised value, infinities are the ends."""
        model = quantised(self.folder / "r.onnx", [ow.node("Relu", ["x0.dq"], ["sum"])], [(1, 4)])
        made = npudiff.Twin(model, "gen3").run(np.float32([[np.nan, np.inf, -np.inf, 1]]), tensors="all")
        self.assertEqual(made["x0"].ravel().tolist(), [0, 255, 0, 160])

    def test_numpy_is_all_it_needs(self):
        code = ("import sys; sys.modules['h5py'] = None; import npudiff, numpy\n"
                f"print(npudiff.Twin({str(CNN)!r}, 'gen3').run(numpy.zeros((2, 1, 8, 8), 'f4'))['logits'].shape)")
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": os.pathsep.join([*SOURCE, os.environ.get("PYTHONPATH", "")])})
        self.assertEqual(done.stdout, "(2, 10)\n", done.stderr)

    def test_a_library_of_another_version_is_refused(self):
        spec = importlib.util.find_spec("npudiff._library")
        other = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(other)
        before, npudiff.__version__ = npudiff.__version__, "9.9.9"
        try:
            with self.assertRaisesRegex(OSError, f"is npudiff {before}, and this package is 9.9.9"):
                other.library()
        finally:
            npudiff.__version__ = before


if __name__ == "__main__":
    main()
