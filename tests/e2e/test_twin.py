#!/usr/bin/env python3
"""Twins end to end: the bits of Qualcomm's simulator without it, and what they say of what they do not know."""
import json
import os
import pathlib
import sys

import numpy as np

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import onnx_write as ow  # noqa: E402

from support import Capture, MODELS, Scratch, capture, capture_command, info, main, npudiff, text

PROBES = ["uniform:4", "zeros", "ones"]
CHIPS = ["gen1", "gen3", "gen5"]


def values(path):
    """{tensor: its values of all probes, one after the other}"""
    with Capture(path) as opened:
        probes = sorted(opened.file["probes"])
        return {name: np.concatenate([opened.values(probe, name).ravel() for probe in probes])
                for name in opened.column("edges", "name")}


def marks(path):
    """What the twin does not know, with reasons, and what follows from it."""
    with Capture(path) as opened:
        runtime = opened.file["runtime"].attrs
        unknown = dict(line.split("\t") for line in text(runtime["not_known"]).split("\n") if line)
        return unknown, [line for line in text(runtime["behind_not_known"]).split("\n") if line]


def softplus(path):
    """uint16: Relu, then Softplus, of which nobody knows the arithmetic, then Neg."""
    constants = {"s": np.float32(2 ** -12), "z": np.uint16(20000)}
    nodes, last = [], "x"
    for op_type in ("Relu", "Softplus", "Neg"):
        nodes += [ow.node("QuantizeLinear", [last, "s", "z"], [last + ".q"]),
                  ow.node("DequantizeLinear", [last + ".q", "s", "z"], [last + ".dq"]),
                  ow.node(op_type, [last + ".dq"], [op_type.lower()])]
        last = op_type.lower()
    nodes += [ow.node("QuantizeLinear", [last, "s", "z"], [last + ".q"]),
              ow.node("DequantizeLinear", [last + ".q", "s", "z"], ["y"])]
    shape = (1, 4, 8, 8)
    path.write_bytes(ow.model(nodes, [ow.value_info("x", ow.FLOAT, shape)], [ow.value_info("y", ow.FLOAT, shape)],
                              constants))
    return path


def joined_floats(path):
    """uint8: a Concat of one part of a Split, which has no quantiser, and of the other behind a Relu with its own."""
    constants = {"s": np.float32(2 ** -5), "r": np.float32(2 ** -6), "t": np.float32(3 * 2 ** -7), "z": np.uint8(128),
                 "n": np.array([2, 2], np.int64)}
    nodes = [ow.node("QuantizeLinear", ["x", "s", "z"], ["x.q"]), ow.node("DequantizeLinear", ["x.q", "s", "z"], ["x.dq"]),
             ow.node("Split", ["x.dq", "n"], ["a", "b"], axis=1), ow.node("Relu", ["b"], ["relu"]),
             ow.node("QuantizeLinear", ["relu", "r", "z"], ["r.q"]), ow.node("DequantizeLinear", ["r.q", "r", "z"], ["r.dq"]),
             ow.node("Concat", ["a", "r.dq"], ["c"], axis=1), ow.node("QuantizeLinear", ["c", "t", "z"], ["c.q"]),
             ow.node("DequantizeLinear", ["c.q", "t", "z"], ["y"])]
    shape = (1, 4, 8, 8)
    path.write_bytes(ow.model(nodes, [ow.value_info("x", ow.FLOAT, shape)], [ow.value_info("y", ow.FLOAT, shape)],
                              constants))
    return path


def bent(path, kind=np.uint8):
    """A LeakyRelu of what a Conv made, each with its encoding."""
    rng = np.random.default_rng(1)
    steps = np.iinfo(kind).max
    constants = {"s": np.float32(4 / steps), "t": np.float32(2.3 / steps), "z": kind(steps // 2), "low": kind(steps // 8),
                 "w.s": np.float32(0.01), "w.z": np.int8(0), "w": rng.integers(-127, 128, (4, 4, 1, 1)).astype(np.int8)}
    nodes = [ow.node("DequantizeLinear", ["w", "w.s", "w.z"], ["w.dq"])]
    for inputs, name, scale, zero in ((None, "x", "s", "z"), (["x.dq", "w.dq"], "conv", "s", "z"), (["conv.dq"], "leaky", "t", "low")):
        nodes += [ow.node("Conv" if name == "conv" else "LeakyRelu", inputs, [name])] if inputs else []
        nodes += [ow.node("QuantizeLinear", [name, scale, zero], [name + ".q"]),
                  ow.node("DequantizeLinear", [name + ".q", scale, zero], [name + ".dq"])]
    shape = (1, 4, 8, 8)
    path.write_bytes(ow.model(nodes, [ow.value_info("x", ow.FLOAT, shape)], [ow.value_info("leaky.dq", ow.FLOAT, shape)],
                              constants))
    return path


def pairs(path, steps):
    """uint8 Softmax of rows of two, whose output has that many steps from 0 to 1."""
    constants = {"s": np.float32(0.05), "z": np.uint8(128), "t": np.float32(1 / steps), "zero": np.uint8(0)}
    nodes = [ow.node("QuantizeLinear", ["x", "s", "z"], ["x.q"]), ow.node("DequantizeLinear", ["x.q", "s", "z"], ["x.dq"]),
             ow.node("Softmax", ["x.dq"], ["softmax"]), ow.node("QuantizeLinear", ["softmax", "t", "zero"], ["y.q"]),
             ow.node("DequantizeLinear", ["y.q", "t", "zero"], ["y"])]
    shape = (1, 64, 2)
    path.write_bytes(ow.model(nodes, [ow.value_info("x", ow.FLOAT, shape)], [ow.value_info("y", ow.FLOAT, shape)], constants))
    return path


def gelu_in_parts(path, is_moved):
    """uint8: half of x (1 + tanh x), each in a layer of its own, of what a Gemm made and a Reshape moved, or not."""
    rng = np.random.default_rng(2)
    ranges = {"x": (-1, 1), "gemm": (-3, 3), "moved": (-3, 3), "tanh": (-1, 1), "raised": (0, 2), "gated": (-0.6, 6), "gelu": (-0.3, 3)}
    constants = {"w": rng.integers(-127, 128, (16, 32)).astype(np.int8), "w.s": np.float32(0.008), "w.z": np.int8(0),
                 "shape": np.array([1, 8, 32], np.int64)}
    for name, value in (("one", 1), ("half", 0.5)):
        constants |= {name: np.array([255], np.uint8), f"{name}.s": np.float32(value / 255), f"{name}.z": np.uint8(0)}
    for name, (low, high) in ranges.items():
        scale = np.float32((high - low) / 255)
        constants |= {f"{name}.s": scale, f"{name}.z": np.uint8(round(-low / scale))}
    nodes = [ow.node("DequantizeLinear", [name, f"{name}.s", f"{name}.z"], [f"{name}.dq"]) for name in ("w", "one", "half")]
    x = "moved" if is_moved else "gemm"
    layers = [("x", None, []), ("gemm", "Gemm", ["x.dq", "w.dq"])] + [("moved", "Reshape", ["gemm.dq", "shape"])] * is_moved
    layers += [("tanh", "Tanh", [f"{x}.dq"]), ("raised", "Add", ["tanh.dq", "one.dq"]), ("gated", "Mul", [f"{x}.dq", "raised.dq"]),
               ("gelu", "Mul", ["gated.dq", "half.dq"])]
    for name, op_type, inputs in layers:
        nodes += [ow.node(op_type, inputs, [name])] if op_type else []
        nodes += [ow.node("QuantizeLinear", [name, f"{name}.s", f"{name}.z"], [f"{name}.q"]),
                  ow.node("DequantizeLinear", [f"{name}.q", f"{name}.s", f"{name}.z"], [f"{name}.dq"])]
    path.write_bytes(ow.model(nodes, [ow.value_info("x", ow.FLOAT, (8, 16))], [ow.value_info("gelu.dq", ow.FLOAT, None)], constants))
    return path


def by_numbers(path, shape):
    """uint8: products with one number behind functions, sums, products and a Conv, and functions, sums, products, Softmax of such."""
    rng = np.random.default_rng(11)
    constants, nodes = {}, []

    def layer(name, op_type, inputs, low, high, **attributes):
        scale = np.float32((high - low) / 255)
        constants.update({f"{name}.s": scale, f"{name}.z": np.uint8(round(-low / float(scale)))})
        nodes.extend([ow.node(op_type, inputs, [name], **attributes)] if op_type else [])
        nodes.extend([ow.node("QuantizeLinear", [name, f"{name}.s", f"{name}.z"], [f"{name}.q"]),
                      ow.node("DequantizeLinear", [f"{name}.q", f"{name}.s", f"{name}.z"], [f"{name}.dq"])])
        return f"{name}.dq"

    def number(name, value, qvalues=(), kind=np.uint8):
        codes = np.array(qvalues if len(qvalues) else [255], kind)
        constants.update({name: codes, f"{name}.s": np.float32(value / 255), f"{name}.z": kind(0)})
        nodes.append(ow.node("DequantizeLinear", [name, f"{name}.s", f"{name}.z"], [f"{name}.dq"]))
        return f"{name}.dq"

    x, other = layer("x", None, [], -2.1, 1.9), layer("other", None, [], -2, 2)
    made = {"tanh": layer("tanh", "Tanh", [x], -1, 1), "exp": layer("exp", "Exp", [x], 0, 6.9), "relu": layer("relu", "Relu", [x], 0, 1.9),
            "raised": layer("raised", "Add", [number("one", 1), x], -1.1, 2.9), "both": layer("both", "Add", [x, other], -3.5, 3.4),
            "scores": layer("scores", "MatMul", [x, layer("turned", None, [], -2, 2)], -9, 9), "x": x}
    if len(shape) == 4:
        made["conv"] = layer("conv", "Conv", [x, number("w", 2.5, rng.integers(-127, 128, (4, shape[1], 1, 1)), np.int8)], -3, 3.1)
        made["mean"] = layer("mean", "GlobalAveragePool", [x], -0.3, 0.3)
    high, outputs = {"tanh": 1, "exp": 6.9, "relu": 1.9, "raised": 2.9, "both": 3.4, "scores": 9, "x": 1.9, "conv": 3, "mean": 0.3}, []
    for name, read in made.items():
        for op_type, factor in (("Mul", 0.37), ("Div", 1 / 0.37)):
            product = layer(f"{name}.{op_type}", op_type, [read, number(f"{name}.{op_type}.n", factor if op_type == "Mul" else 1 / 0.37)],
                            -0.31 * high[name], 0.33 * high[name])
            outputs.append(layer(f"{name}.{op_type}.relu", "Relu", [product], -0.04 * high[name], 0.3 * high[name]))
            outputs.append(layer(f"{name}.{op_type}.sigmoid", "Sigmoid", [product], 0, 1))
            outputs.append(layer(f"{name}.{op_type}.more", "Mul", [product, number(f"{name}.{op_type}.m", 1.3)], -0.4 * high[name], 0.4 * high[name]))
            outputs.append(layer(f"{name}.{op_type}.softmax", "Softmax", [product], 0, 0.25, axis=-1))
            if name in ("x", "both"):
                outputs.append(layer(f"{name}.{op_type}.sum", "Add", [product, number(f"{name}.{op_type}.a", 0.4)], -0.4, 1.2))
    outputs.append(layer("raised.sum", "Add", [made["raised"], other], -2.5, 4.1))
    turned = [*shape[:-2], shape[-1], shape[-2]]
    inputs = [ow.value_info("x", ow.FLOAT, shape), ow.value_info("other", ow.FLOAT, shape), ow.value_info("turned", ow.FLOAT, turned)]
    path.write_bytes(ow.model(nodes, inputs, [ow.value_info(name, ow.FLOAT, None) for name in outputs], constants))
    return path


def masked(path):
    """uint8: a Softmax behind a mask of the least float, the greatest of two planes in another encoding, and floats of an input that get an axis."""
    constants = {"x.s": np.float32(0.1), "x.z": np.uint8(130), "m.s": np.float32(3.4e38 / 255), "m.z": np.uint8(255), "p.s": np.float32(1 / 255),
                 "p.z": np.uint8(0), "g.s": np.float32(0.14), "g.z": np.uint8(90), "ones": np.array([0], np.int64)}
    nodes = []
    for name, op_type, inputs, encoding in (("x", None, [], "x"), ("mask", None, [], "m"), ("masked", "Add", ["x.dq", "mask.dq"], "m"),
                                            ("share", "Softmax", ["masked.dq"], "p"), ("greatest", "GlobalMaxPool", ["x.dq"], "g")):
        nodes += [ow.node(op_type, inputs, [name])] if op_type else []
        nodes += [ow.node("QuantizeLinear", [name, f"{encoding}.s", f"{encoding}.z"], [name + ".q"]),
                  ow.node("DequantizeLinear", [name + ".q", f"{encoding}.s", f"{encoding}.z"], [name + ".dq"])]
    nodes += [ow.node("Unsqueeze", ["floats", "ones"], ["named"]), ow.node("Unsqueeze", ["named", "ones"], ["more"]),
              ow.node("QuantizeLinear", ["more", "x.s", "x.z"], ["more.q"]), ow.node("DequantizeLinear", ["more.q", "x.s", "x.z"], ["more.dq"])]
    inputs = [ow.value_info(name, ow.FLOAT, shape) for name, shape in (("x", (1, 64, 6, 7)), ("mask", (1, 1, 1, 7)), ("floats", (1, 9)))]
    path.write_bytes(ow.model(nodes, inputs, [ow.value_info(name, ow.FLOAT, None) for name in ("share.dq", "greatest.dq", "more.dq")], constants))
    return path


def clipped(path):
    """uint8: Clips with encodings of their own of a Conv, of a Slice and a Transpose of it, and of a Softplus."""
    rng = np.random.default_rng(1)
    constants = {"x.s": np.float32(4 / 255), "x.z": np.uint8(100), "plus.s": np.float32(0.0261), "plus.z": np.uint8(0),
                 "least": np.float32(-1), "greatest": np.float32(1.6), "clip.s": np.float32(2.6 / 255), "clip.z": np.uint8(98),
                 "w.s": np.float32(0.01), "w.z": np.int8(0), "w": rng.integers(-127, 128, (8, 8, 1, 1)).astype(np.int8),
                 "one": np.array([1], np.int64), "five": np.array([5], np.int64)}
    nodes = [ow.node("DequantizeLinear", ["w", "w.s", "w.z"], ["w.dq"])]

    def quantised(name, encoding):
        nodes.extend([ow.node("QuantizeLinear", [name, encoding + ".s", encoding + ".z"], [name + ".q"]),
                      ow.node("DequantizeLinear", [name + ".q", encoding + ".s", encoding + ".z"], [name + ".dq"])])
    quantised("x", "x")
    for op_type, inputs, name, more in (("Conv", ["x.dq", "w.dq"], "conv", {}), ("Slice", ["conv.dq", "one", "five", "one"], "sliced", {}),
                                        ("Transpose", ["conv.dq"], "turned", {"perm": [0, 2, 3, 1]}), ("Softplus", ["x.dq"], "plus", {})):
        nodes.append(ow.node(op_type, inputs, [name], **more))
        quantised(name, "plus" if name == "plus" else "x")
    outputs = {"conv": (1, 8, 4, 6), "sliced": (1, 4, 4, 6), "turned": (1, 4, 6, 8), "plus": (1, 8, 4, 6)}
    for name in outputs:
        nodes.append(ow.node("Clip", [name + ".dq", "least", "greatest"], ["clip-" + name]))
        quantised("clip-" + name, "clip")
    path.write_bytes(ow.model(nodes, [ow.value_info("x", ow.FLOAT, (1, 8, 4, 6))],
                              [ow.value_info(f"clip-{name}.dq", ow.FLOAT, shape) for name, shape in outputs.items()], constants))
    return path


def gated(path):
    """uint8: x Sigmoid(x) of what a Conv made, in two layers, which the chip makes as one."""
    rng = np.random.default_rng(1)
    constants = {"s": np.float32(4 / 255), "g": np.float32(1 / 256), "t": np.float32(3 / 255), "z": np.uint8(128),
                 "zero": np.uint8(0), "low": np.uint8(40), "w.s": np.float32(0.01), "w.z": np.int8(0),
                 "w": rng.integers(-127, 128, (4, 4, 1, 1)).astype(np.int8)}
    nodes = [ow.node("DequantizeLinear", ["w", "w.s", "w.z"], ["w.dq"])]
    for op_type, inputs, name, scale, zero in (
            (None, ["x"], "x", "s", "z"), ("Conv", ["x.dq", "w.dq"], "conv", "s", "z"), ("Sigmoid", ["conv.dq"], "gate", "g", "zero"),
            ("Mul", ["conv.dq", "gate.dq"], "silu", "t", "low")):
        nodes += [ow.node(op_type, inputs, [name])] if op_type else []
        nodes += [ow.node("QuantizeLinear", [name, scale, zero], [name + ".q"]),
                  ow.node("DequantizeLinear", [name + ".q", scale, zero], [name + ".dq"])]
    shape = (1, 4, 8, 8)
    path.write_bytes(ow.model(nodes, [ow.value_info("x", ow.FLOAT, shape)], [ow.value_info("silu.dq", ow.FLOAT, shape)],
                              constants))
    return path


def in_floats(path, least_variance=1e-12):
    """uint8: a LayerNormalization in parts and functions without quantisers, all of them outputs; of the variance, which has
    quantisers, an Add of `least_variance` and the root. "turned" is a Transpose, "columns" a mean over another axis."""
    scales = {"x": 2 / 255, "variance": 0.25 / 255, "least": least_variance / 255, "raised": 0.25 / 255, "n": 6 / 255}
    constants = {f"{name}.s": np.float32(scale) for name, scale in scales.items()}
    constants |= {f"{name}.z": np.uint8(128 if name in "xn" else 0) for name in scales}
    constants |= {"axes": np.array([-1], np.int64), "others": np.array([1], np.int64), "two": np.float32(2), "least.q": np.uint8(255)}
    nodes = [ow.node("DequantizeLinear", ["least.q", "least.s", "least.z"], ["least.dq"])]

    def quantised(name):
        nodes.append(ow.node("QuantizeLinear", [name, f"{name}.s", f"{name}.z"], [f"{name}.q"]))
        nodes.append(ow.node("DequantizeLinear", [f"{name}.q", f"{name}.s", f"{name}.z"], [f"{name}.dq"]))
        return f"{name}.dq"

    def add(op_type, inputs, name, **attributes):
        nodes.append(ow.node(op_type, inputs, [name], **attributes))
        return name

    x = quantised("x")
    mean = add("ReduceMean", [x, "axes"], "mean", keepdims=1)
    less = add("Sub", [x, mean], "less")
    add("ReduceMean", [add("Pow", [less, "two"], "square"), "axes"], "variance", keepdims=1)
    add("Add", [quantised("variance"), "least.dq"], "raised")
    add("Div", [less, add("Sqrt", [quantised("raised")], "root")], "n")
    outputs = [mean, less, quantised("n")]
    outputs += [add(op_type, [less], op_type.lower()) for op_type in ("Tanh", "Sigmoid", "Exp", "Abs", "Reciprocal")]
    outputs += [add("ReduceSum", [less, "axes"], "sum", keepdims=1), add("Transpose", [x], "turned", perm=[0, 2, 1]),
                add("ReduceMean", [less, "others"], "columns", keepdims=1)]
    shape = (1, 16, 40)
    path.write_bytes(ow.model(nodes, [ow.value_info("x", ow.FLOAT, shape)],
                              [ow.value_info(name, ow.FLOAT, None) for name in outputs], constants))
    return path


class Twin(Scratch):
    def test_every_bit_of_the_simulator(self):
        """Convolutions, attention, 8 and 16 bits: no tensor differs on any generation; no layer is unknown."""
        for model in ("cnn.w8a8.onnx", "cnn.w8a16.onnx", "vit.w8a8.onnx", "random-residual.u8.onnx"):
            devices = [f"{kind}:{chip}" for chip in CHIPS for kind in ("htp-sim", "twin")]
            capture(model, devices, PROBES, self.folder / model)
            for chip in CHIPS:
                with self.subTest(model=model, chip=chip):
                    real = values(self.folder / model / f"{chip}.h5")
                    twin = values(self.folder / model / f"twin-{chip}.h5")
                    self.assertEqual(set(real), set(twin))
                    self.assertEqual([name for name in real if not np.array_equal(real[name], twin[name])], [])
                    reasons = marks(self.folder / model / f"twin-{chip}.h5")[0].values()
                    self.assertEqual([why for why in reasons if "not complete" not in why], [])

    def test_processors_change_nothing(self):
        """On one processor and on all: values, what is not known, repeats; and which sample fails."""
        model, all_of_them = softplus(self.folder / "s.onnx"), os.sched_getaffinity(0)
        strict = capture_command(model, ["twin:gen3?strict=1"], PROBES, self.folder / "strict.h5")
        said = {}
        for name, processors in (("one", {min(all_of_them)}), ("all", all_of_them)):
            os.sched_setaffinity(0, processors)
            try:
                for device in ("twin:gen3", "exact"):
                    capture(model, [device], ["uniform:7", "ones"], self.folder / f"{device[:5]}-{name}.h5", "--repeats", "2")
                said[name] = npudiff(*strict, "-f", expect=5).replace("-one", "").replace("-all", "")
            finally:
                os.sched_setaffinity(0, all_of_them)
        for device in ("twin:", "exact"):
            one, every = (self.folder / f"{device}-{name}.h5" for name in ("one", "all"))
            npudiff("compare", one, every)
            with Capture(one) as a, Capture(every) as b:
                for probe in ("uniform", "ones"):
                    np.testing.assert_array_equal(a.values(probe, "y"), b.values(probe, "y"))
                    self.assertTrue((b.file[f"probes/{probe}/latency_us"][:] > 0).all())
        self.assertEqual(marks(self.folder / "twin:-one.h5"), marks(self.folder / "twin:-all.h5"))
        self.assertEqual(said["one"], said["all"])

    def test_outputs_alone(self):
        """What is not recorded may be made in one operation with what reads it: the simulator's outputs all the same,
        and those that the twin has where it records all."""
        devices = ["htp-sim:gen3", "twin:gen3"]
        capture("cnn.w8a8.onnx", devices, PROBES, self.folder / "outputs", "--tensors", "outputs")
        capture("cnn.w8a8.onnx", devices[1:], PROBES, self.folder / "all")
        real, twin = (values(self.folder / "outputs" / name) for name in ("gen3.h5", "twin-gen3.h5"))
        self.assertEqual(list(twin), ["logits"])
        np.testing.assert_array_equal(real["logits"], twin["logits"])
        np.testing.assert_array_equal(twin["logits"], values(self.folder / "all/twin-gen3.h5")["logits"])

    def test_an_older_sdk_is_another_device(self):
        """A uint8 Mul of QAIRT 2.48 rounds in another way; a chipset by its number is the same device."""
        model, probes = "mul.u8.onnx", [f"mul={MODELS / 'mul-probe.npz'}"]
        capture(model, ["twin:gen3", "twin:gen3@qairt-2.48"], probes, self.folder)
        capture(model, ["twin:SM8650@qairt-2.51"], probes, self.folder / "same.h5")
        gen3, same, older = (values(self.folder / name) for name in
                             ("twin-gen3.h5", "same.h5", "twin-gen3@qairt-2.48.h5"))
        self.assertTrue(any(not np.array_equal(older[name], gen3[name]) for name in gen3))
        for name in gen3:
            np.testing.assert_array_equal(gen3[name], same[name])
        with Capture(self.folder / "twin-gen3@qairt-2.48.h5") as opened:
            self.assertEqual(text(opened.file["device"].attrs["kind"]), "twin")
            self.assertEqual(text(opened.file["device"].attrs["uri"]), "twin:SM8650@qairt-2.48")
            self.assertEqual(set(opened.column("nodes", "provider")), {"twin"})

    def test_what_is_not_known_is_said(self):
        """In the capture, by capture, by info; what comes before is known, what comes behind is listed."""
        model = softplus(self.folder / "softplus.onnx")
        done = npudiff(*capture_command(model, ["twin:gen3"], PROBES, self.folder / "t.h5")[:-1], expect=None)
        self.assertEqual(done.returncode, 0, done.stderr)
        unknown, behind = marks(self.folder / "t.h5")
        self.assertEqual(list(unknown), ["softplus"])
        self.assertIn("not known", unknown["softplus"])
        self.assertEqual(behind, ["y"])
        self.assertEqual(info(self.folder / "t.h5")["not_known"], [{"tensor": "softplus", "reason": unknown["softplus"]}])
        self.assertIn("not known: 'softplus'", npudiff("info", self.folder / "t.h5"))
        self.assertIn("SOFTPLUS", npudiff("info", self.folder / "t.h5", "-v").upper())
        npudiff("verify", self.folder / "t.h5")
        twin, real = values(self.folder / "t.h5"), self.folder / "exact.h5"
        capture(model, ["exact"], PROBES, real)
        np.testing.assert_array_equal(twin["softplus"], values(real)["softplus"]) # rounded exactly

    def test_operands_without_quantisers(self):
        """A Concat of what has an encoding and of what has none ends in a capture, with all tensors and without."""
        model = joined_floats(self.folder / "joined.onnx")
        for tensors in ("all", "outputs", "none"):
            capture(model, ["twin:gen3"], PROBES, self.folder / f"{tensors}.h5", "--tensors", tensors)
        self.assertIn("y", values(self.folder / "all.h5"))
        with Capture(self.folder / "none.h5") as opened:
            self.assertEqual(opened.values("uniform", "y").dtype, np.float32)

    def test_floats_between_quantisers(self):
        """The chip's float16, bit for bit: sums of rows, functions, and no quantiser between two chains where next to nothing
        is added. What is not known of floats is marked, and what is behind it."""
        for name, least in (("left-out", 1e-12), ("added", 1e-6)):
            model = in_floats(self.folder / f"{name}.onnx", least)
            devices = [f"{kind}:{chip}" for chip in ("gen1", "gen3") for kind in ("htp-sim", "twin")]
            capture(model, devices, ["uniform:8", "ones"], self.folder / name)
            for chip in ("gen1", "gen3"):
                real, twin = (values(self.folder / name / f"{device}.h5") for device in (chip, f"twin-{chip}"))
                unknown, behind = marks(self.folder / name / f"twin-{chip}.h5")
                claimed = [tensor for tensor in real if tensor not in unknown and tensor not in behind]
                with self.subTest(model=name, chip=chip):
                    self.assertTrue({"mean", "less", "tanh", "sigmoid", "exp", "abs", "reciprocal", "sum"} <= set(claimed))
                    self.assertTrue({"turned", "columns"} <= set(unknown))
                    differ = [tensor for tensor in real if real[tensor].tobytes() != twin[tensor].tobytes()]
                    self.assertEqual([tensor for tensor in differ if tensor not in ("turned", "columns")], [])

    def test_a_leaky_relu_of_bytes_is_in_no_doubt(self):
        """Two ways differ, and the chip's is known. Of words it is marked where they differ."""
        for kind in (np.uint8, np.uint16):
            model, folder = bent(self.folder / f"{kind.__name__}.onnx", kind), self.folder / kind.__name__
            capture(model, ["htp-sim:gen3", "twin:gen3"], PROBES, folder)
            real, twin = values(folder / "gen3.h5"), values(folder / "twin-gen3.h5")
            unknown, _ = marks(folder / "twin-gen3.h5")
            differ = [tensor for tensor in real if not np.array_equal(real[tensor], twin[tensor])]
            self.assertLessEqual(set(differ), set(unknown))
            self.assertTrue(kind == np.uint16 or not unknown and not differ, (unknown, differ))

    def test_a_softmax_of_pairs(self):
        """Not rescaled from 1/256 where the scale is near it, as ONNX Runtime's own, 1/255, is; 1/254 is not."""
        for steps in (256, 255, 254):
            model, folder = pairs(self.folder / f"{steps}.onnx", steps), self.folder / str(steps)
            capture(model, ["htp-sim:gen3", "twin:gen3", "htp-sim:gen1", "twin:gen1"], PROBES, folder)
            for chip in ("gen1", "gen3"):
                real, twin = values(folder / f"{chip}.h5"), values(folder / f"twin-{chip}.h5")
                self.assertEqual([tensor for tensor in real if not np.array_equal(real[tensor], twin[tensor])], [], (steps, chip))

    def test_a_clip_of_bytes(self):
        """With a Conv before it, also behind a Transpose; by itself behind what else moves or makes values."""
        model = clipped(self.folder / "clips.onnx")
        capture(model, ["htp-sim:gen3", "twin:gen3", "htp-sim:gen1", "twin:gen1"], PROBES, self.folder / "clips")
        for chip in ("gen1", "gen3"):
            real, twin = values(self.folder / f"clips/{chip}.h5"), values(self.folder / f"clips/twin-{chip}.h5")
            self.assertEqual([tensor for tensor in real if not np.array_equal(real[tensor], twin[tensor])], [], chip)

    def test_products_with_numbers(self):
        """What is one table with what is before it, and what is not; rows that are made in parts (16), and others (6, 9)."""
        for shape in ([1, 16, 24], [1, 6, 24], [1, 3, 9, 10]):
            model, folder = by_numbers(self.folder / "numbers.onnx", shape), self.folder / f"{len(shape)}.{shape[1]}"
            capture(model, ["htp-sim:gen1", "htp-sim:gen3", "twin:gen1", "twin:gen3"], PROBES, folder)
            for chip in ("gen1", "gen3"):
                real, twin = values(folder / f"{chip}.h5"), values(folder / f"twin-{chip}.h5")
                open_still = ["scores.Div.relu.dq"] if shape[1] == 16 else []  # a Relu of a quotient of a MatMul, in parts
                self.assertEqual([tensor for tensor in real if not np.array_equal(real[tensor], twin[tensor])], open_still, (shape, chip))

    def test_masks_of_the_least_float(self):
        """A Softmax behind one gives shares to the greatest alone; a small GlobalMaxPool; floats that only get an axis keep their bits."""
        model, rng = masked(self.folder / "masked.onnx"), np.random.default_rng(3)
        mask = np.where(rng.random((6, 1, 1, 7)) < 0.4, np.float32(-3.4e38), np.float32(0))
        mask[:, ..., 0] = 0
        np.savez(self.folder / "p.npz", x=rng.uniform(-12, 12, (6, 64, 6, 7)).astype(np.float32), mask=mask,
                 floats=rng.integers(-3, 4, (6, 9)).astype(np.float32))
        capture(model, ["htp-sim:gen1", "htp-sim:gen3", "twin:gen1", "twin:gen3"], [f"p={self.folder / 'p.npz'}"], self.folder / "masked")
        for chip in ("gen1", "gen3"):
            real, twin = values(self.folder / f"masked/{chip}.h5"), values(self.folder / f"masked/twin-{chip}.h5")
            self.assertIn("named", real)
            self.assertEqual([tensor for tensor in real if not np.array_equal(real[tensor], twin[tensor])], [], chip)
            self.assertFalse({"share.dq", "greatest.dq"} & marks(self.folder / f"masked/twin-{chip}.h5")[0].keys(), chip)

    def test_half_of_a_gelu_in_parts(self):
        """With what is before it, or by itself where that was moved."""
        for is_moved in (False, True):
            model, folder = gelu_in_parts(self.folder / f"{is_moved}.onnx", is_moved), self.folder / str(is_moved)
            capture(model, ["htp-sim:gen3", "twin:gen3"], PROBES, folder)
            real, twin = values(folder / "gen3.h5"), values(folder / "twin-gen3.h5")
            self.assertEqual([tensor for tensor in real if not np.array_equal(real[tensor], twin[tensor])], [])

    def test_an_emulated_device_is_its_twin_with_faults(self):
        """emu:htp-v73 makes layers as the twin does, also two as one; behind a fault it reads the faulty values."""
        model = gated(self.folder / "gated.onnx")
        for device, name in (("twin:gen3", "twin"), ("emu:htp-v73", "emu"), ("emu:htp-v73,clamp@conv=90:150", "clamped")):
            capture(model, [device], PROBES, self.folder / f"{name}.h5")
        twin, emulated, clamped = (values(self.folder / f"{name}.h5") for name in ("twin", "emu", "clamped"))
        self.assertEqual([tensor for tensor in twin if not np.array_equal(twin[tensor], emulated[tensor])], [])
        np.testing.assert_array_equal(clamped["conv"], np.clip(twin["conv"], 90, 150))
        by_values = {conv: {silu for c, silu in zip(twin["conv"], twin["silu.dq"]) if c == conv} for conv in range(90, 151)}
        for conv, silu in zip(clamped["conv"], clamped["silu.dq"]):  # what the same value gives elsewhere
            self.assertTrue(not by_values[conv] or silu in by_values[conv], (conv, silu, by_values[conv]))

    def test_strict_refuses_it(self):
        """With the tensor's name and the reason; a model that is known whole passes."""
        model = softplus(self.folder / "softplus.onnx")
        npudiff(*capture_command(model, ["twin:gen3?strict=1"], PROBES, self.folder / "t.h5"), expect=5)
        with Capture(self.folder / "t.h5") as opened:
            message = text(opened.file["failure"].attrs["message"])
        self.assertIn("'softplus' (Softplus)", message)
        self.assertIn("not known", message)
        capture("cnn.w8a8.onnx", ["twin:gen3?strict=1"], PROBES, self.folder / "cnn.h5")
        self.assertEqual(marks(self.folder / "cnn.h5"), ({}, []))

    def test_it_is_explained_as_its_chip(self):
        """A twin follows the arithmetic of the chip that it names, and is never said to have fallen back."""
        model = softplus(self.folder / "softplus.onnx")
        capture(model, ["twin:gen3"], PROBES, self.folder / "t.h5")
        layers = json.loads(npudiff("explain", self.folder / "t.h5", "--json"))["devices"][0]
        self.assertEqual((layers["verdict"], layers["findings"]), ("healthy", []))
        capture("cnn.w8a8.onnx", ["twin:gen1"], PROBES, self.folder / "cnn.h5")
        said = npudiff("explain", self.folder / "cnn.h5")
        self.assertIn("follow v69 arithmetic", " ".join(said.split()))

    def test_commands_take_a_twin(self):
        """A model is aligned for two generations, and qualified on them, without a runtime or an SDK."""
        model, none = MODELS / "cnn.w8a8.onnx", dict(os.environ, NPUDIFF_RUNTIMES=str(self.folder))
        devices = [word for chip in ("gen1", "gen3") for word in ("--verify", f"twin:{chip}")]
        said = npudiff("align", model, "-o", self.folder / "a.onnx", *devices, "-p", "uniform:4", env=none)
        self.assertIn("twin:gen1 = twin:gen3; 10 of 10 tensors are equal", " ".join(said.split()))
        npudiff("init", model, "-d", "twin:gen1", "-d", "twin:gen3", "-o", self.folder / "c.yaml", env=none)
        self.assertIn("READY", npudiff("qualify", self.folder / "c.yaml", "-o", self.folder / "out", env=none))

    def check(self, *words, expect=0):
        return json.loads(npudiff("twin", "check", *words, "--json", expect=expect))

    def test_a_twin_is_held_against_the_chip(self):
        """`twin check` of the simulator: all equal, and in one value of one sample that is changed."""
        model, certificate = MODELS / "cnn.w8a8.onnx", self.folder / "cert.json"
        said = npudiff("twin", "check", model, "-d", "htp-sim:gen1", "-d", "htp-sim:gen3", "-p", "uniform:4", "-p", "ones",
                       "-o", self.folder / "chips", "--certificate", certificate)
        self.assertIn("EQUAL", said)
        found = json.loads(certificate.read_text())
        self.assertEqual([d["twin"] for d in found["devices"]], ["SM8450@qairt-2.51.0", "SM8650@qairt-2.51.0"])
        for device in found["devices"]:
            counts = device["counts"]
            self.assertEqual((counts["equal"], counts["claimed"], counts["samples_equal"], counts["left_out"]),
                             (counts["tensors"], counts["tensors"], 5, 0))
            with Capture(device["capture"]) as opened:
                self.assertEqual(counts["tensors"], len(opened.column("edges", "name")))
        # Another chip's twin differs, in a tensor that it claims; as NumPy counts it.
        other = self.check(self.folder / "chips/gen3.h5", "--as", "gen1", expect=1)["devices"][0]
        capture(model, ["twin:gen1"], ["uniform:4", "ones"], self.folder / "gen1.h5")
        gen3, gen1 = values(self.folder / "chips/gen3.h5"), values(self.folder / "gen1.h5")
        self.assertEqual({t["tensor"]: t["values_differing"] for t in other["tensors"]},
                         {name: int((gen3[name] != gen1[name]).sum()) for name in gen3})
        self.assertEqual(other["counts"]["values"], sum(array.size for array in gen3.values()))
        first = next(t for t in other["tensors"] if t["values_differing"])
        self.assertEqual((first["claim"], first["largest"]), ("claimed", 1))

    def test_a_certificate_is_checked_again(self):
        """`verify` of what `twin check` wrote: it holds where its captures lay and elsewhere; a changed certificate, capture or model is
        refused with what is wrong, a missing capture is not read, and a twin that is not known stays so."""
        model, certificate = MODELS / "cnn.w8a8.onnx", self.folder / "cert.json"
        npudiff("twin", "check", model, "-d", "htp-sim:gen1", "-d", "htp-sim:gen3", "-p", "uniform:2", "-o", self.folder / "chips",
                "--certificate", certificate)

        def verify(*words, expect):
            rows = json.loads(npudiff("verify", certificate, *words, "--json", expect=expect))["captures"]
            return [(row["verdict"], row.get("result"), row["problem"]) for row in rows]

        good = ("holds", "equal", "")
        self.assertEqual(verify(model, expect=0), [good, good])
        paths = [self.folder / "chips/gen1.h5", self.folder / "moved.h5"]
        (self.folder / "chips/gen3.h5").rename(paths[1])
        self.assertEqual(verify(model, *paths, expect=0), [good, good])
        missing = verify(model, expect=2)
        self.assertEqual((missing[0], missing[1][0]), (good, "not read"))
        self.assertEqual([row[2] for row in verify(model, *reversed(paths), expect=1)],
                         ["the capture is not the one that the certificate is about"] * 2)
        self.assertEqual([row[0] for row in verify(MODELS / "vit.w8a8.onnx", *paths, expect=1)], ["refused"] * 2)
        said = json.loads(certificate.read_text())
        for change, row in ((lambda s: s.update(result="not-known"), 2),
                            (lambda s: s["devices"][1]["tensors"][3].update(claim="behind"), 1),
                            (lambda s: s["devices"][1]["counts"].update(values=1), 1),
                            (lambda s: s.update(sha256="0" * 64), 0)):
            changed = json.loads(json.dumps(said))
            change(changed)
            certificate.write_text(json.dumps(changed))
            rows = verify(model, *paths, expect=1)
            self.assertEqual((rows[row][0], len(rows)), ("refused", 3 if row == 2 else 2))
            if row == 1:
                self.assertEqual(rows[0], good)
        certificate.write_text(json.dumps(said))
        for words, text_of in (([model, paths[0]], "2 captures"), ([model, "-p", "ones"], "'align'"), ([model, "--paranoid"], "captures")):
            self.assertIn(text_of, npudiff("verify", certificate, *words, expect=None).stderr)
        npudiff("twin", "check", softplus(self.folder / "s.onnx"), "-d", "htp-sim:gen3", "-p", "uniform:2", "-o", self.folder / "s",
                "--certificate", certificate, "-f", expect=4)
        self.assertEqual(verify(self.folder / "s.onnx", expect=4), [("holds", "not-known", "")])

    def test_a_twin_is_held_against_digests(self):
        """A capture without values: the same samples differ."""
        capture("cnn.w8a8.onnx", ["htp-sim:gen3"], ["uniform:3"], self.folder / "d.h5", "--store", "digest")
        found = self.check(self.folder / "d.h5", "--quantised", MODELS / "cnn.w8a8.onnx")
        self.assertEqual(found["result"], "equal")
        found = self.check(self.folder / "d.h5", "--quantised", MODELS / "cnn.w8a8.onnx", "--as", "gen1", expect=1)
        self.assertTrue(any(t["samples_differing"] and t["values_differing"] is None for t in found["devices"][0]["tensors"]))

    def test_a_difference_that_the_twin_announces(self):
        """The Softplus is marked, and what follows from it."""
        model = softplus(self.folder / "s.onnx")
        found = json.loads(npudiff("twin", "check", model, "-d", "htp-sim:gen3", "-p", "uniform:2", "-o", self.folder / "s", "--json", expect=4))
        claims = {t["tensor"]: (t["claim"], t["values_differing"] > 0) for t in found["devices"][0]["tensors"]}
        self.assertEqual(claims, {"x": ("claimed", False), "relu": ("claimed", False), "softplus": ("not-known", True), "y": ("behind", True)})
        self.assertEqual(found["result"], "not-known")

    def test_what_has_no_twin(self):
        """Captures of no chip, of another model, without inputs; wrong words: each says why, and nothing is written."""
        cnn, certificate = MODELS / "cnn.w8a8.onnx", self.folder / "none.json"
        capture(cnn, ["exact"], ["ones"], self.folder / "e.h5")
        cases = [(["check", self.folder / "e.h5"], 3, "does not say which Snapdragon"),
                 (["check", self.folder / "e.h5", "--quantised", MODELS / "cnn.w8a16.onnx", "--as", "gen3"], 3, "another model"),
                 (["check", self.folder / "e.h5", "--as", "gen9"], 2, "gen9"),
                 (["check", self.folder / "e.h5", "-o", "x"], 2, "need -d"),
                 (["check", self.folder / "nothing.h5"], 2, "nothing.h5"),
                 (["check", cnn, cnn, "-d", "htp-sim:gen3"], 2, "one model"),
                 (["prove", self.folder / "e.h5"], 2, "check")]
        for words, code, said in cases:
            with self.subTest(words=words):
                done = npudiff("twin", *words, "--certificate", certificate, expect=None)
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertIn(said, " ".join(done.stderr.split()))
                self.assertFalse(certificate.exists())
        self.assertEqual(self.check(self.folder / "e.h5", "--as", "gen3", expect=1)["devices"][0]["device"], "exact")

    def test_bad_devices(self):
        """An unknown chipset, SDK or option is named with what is known; float models are refused."""
        cases = {"twin:gen9": "gen9", "twin:gen3@qairt-2.52": "qairt-2.47 to qairt-2.51", "twin:gen3@qairt-2.480": "2.480",
                 "twin:gen3@ort-1.31.1": "ort-1.31.1", "twin:gen3?rounding=floor": "strict=1", "twin:gen3?strict=yes": "strict",
                 "twin": "twin:CHIPSET", "adb:X/twin:gen3": "twin"}
        for device, said in cases.items():
            with self.subTest(device=device):
                done = npudiff(*capture_command("cnn.w8a8.onnx", [device], PROBES, self.folder / "x.h5"), expect=None)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(said, done.stderr)
                self.assertFalse((self.folder / "x.h5").exists())
        done = npudiff(*capture_command("cnn.float.onnx", ["twin:gen3"], PROBES, self.folder / "x.h5"), expect=None)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("quantised", done.stderr)


if __name__ == "__main__":
    main()
