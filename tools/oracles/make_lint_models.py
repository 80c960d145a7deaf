#!/usr/bin/env python3
"""Makes golden/lint: models of one operator, each with a fault that `npudiff lint` finds, and some without. docs/reference/lint.md
says what each rule is about; faults that were found in real models are in golden/found.

Pinned: onnx 1.23.2, numpy 2.4.6 (Python 3.11). The committed files are the reference; the script writes the same bytes
again with those versions.

    python -m venv VENV && VENV/bin/pip install onnx==1.23.2 numpy==2.4.6
    VENV/bin/python tools/oracles/make_lint_models.py
"""

import pathlib

import make_found
import numpy as np
import onnx
from make_found import Graph
from onnx import helper as h

make_found.FOUND = pathlib.Path(__file__).resolve().parents[2] / "golden/lint"
SEED = 20261124
STEP = 1 / 64


def weights(g, values, axis):
    """int8 with one scale for each place along the axis. Returns the name behind the DequantizeLinear, and the scales."""
    scale = (np.abs(values).max(tuple(i for i in range(values.ndim) if i != axis)) / 127).astype(np.float32)
    shape = [1] * values.ndim
    shape[axis] = -1
    names = [g.constant("w_codes", np.rint(values / scale.reshape(shape)).astype(np.int8)), g.constant("w_scale", scale),
             g.constant("w_zero_point", np.zeros(scale.size, np.int8))]
    g.nodes.append(h.make_node("DequantizeLinear", names, ["w_dequantised"], name="w_dequantise", axis=axis))
    return "w_dequantised", scale


def bias(g, codes, scale):
    names = [g.constant("b_codes", np.asarray(codes, np.int32)), g.constant("b_scale", np.asarray(scale, np.float32))]
    axis = {"axis": 0} if np.ndim(scale) else {}
    g.nodes.append(h.make_node("DequantizeLinear", names, ["b_dequantised"], name="b_dequantise", **axis))
    return "b_dequantised"


def gemm(name, bits, factor, one_scale=False):
    """The scale of the bias is `factor` times that of input times weights, or one for all channels."""
    g, rng = Graph(bits), np.random.default_rng(SEED)
    x = g.input("x", (4, 16), STEP, 128)
    w, scale = weights(g, rng.normal(0, 0.2, (16, 8)).astype(np.float32), 1)
    steps = np.float32(STEP / g.finer) * scale * np.float32(factor)
    steps = np.float32(steps.mean()) if one_scale else steps
    b = bias(g, np.rint(rng.normal(0, 1, 8) / steps), steps)
    g.nodes.append(h.make_node("Gemm", [x, w, b], ["y_made"], name="product"))
    g.output("y", (4, 8), 1 / 16, 128)
    g.write(name)


def product(name, bits, axis):
    """The scales of the weights lie along this axis; the output channels are axis 1."""
    g, rng = Graph(bits), np.random.default_rng(SEED)
    x = g.input("x", (4, 16), STEP, 128)
    w, _ = weights(g, rng.normal(0, 0.2, (16, 16)).astype(np.float32), axis)
    g.nodes.append(h.make_node("MatMul", [x, w], ["y_made"], name="product"))
    g.output("y", (4, 16), 1 / 16, 128)
    g.write(name)


def overflow(name, divisor):
    """Weights next to 0: the largest bias is 2^31 - 1 over `divisor` steps of input times weights."""
    g, tiny = Graph(8), np.float32(1e-7)
    x = g.input("x", (1, 4, 8, 8), STEP, 0)
    names = [g.constant("w_codes", np.full((4, 4, 1, 1), 100, np.int8)), g.constant("w_scale", tiny),
             g.constant("w_zero_point", np.int8(0))]
    g.nodes.append(h.make_node("DequantizeLinear", names, ["w_dequantised"], name="w_dequantise"))
    step = np.float32(STEP) * tiny
    b = bias(g, np.array([2**31 - 1, -(2**30), 2**20, 0]) // divisor, step)
    g.nodes.append(h.make_node("Conv", [x, "w_dequantised", b], ["y_made"], name="product"))
    g.output("y", (1, 4, 8, 8), float(step) * 2**31 / 100 / divisor, 0)
    g.write(name)


def moved(name, op_type, scale, zero_point, **attributes):
    g = Graph(8)
    x = g.input("x", (1, 4, 8, 8), STEP, 128)
    g.nodes.append(h.make_node(op_type, [x], ["y_made"], name="move", **attributes))
    g.output("y", (1, 1, 16, 16), scale, zero_point)
    g.write(name)


def joined(name):
    """A transposed input of the model beside another one, in a wider encoding."""
    g = Graph(8)
    a, b = (g.input(k, s, STEP, 128) for k, s in (("a", (1, 4, 8, 8)), ("b", (1, 8, 8, 4))))
    g.nodes.append(h.make_node("Transpose", [a], ["t"], name="move", perm=[0, 2, 3, 1]))
    g.nodes.append(h.make_node("Concat", [g.quantised("t", STEP, 128), b], ["y_made"], name="join", axis=1))
    g.output("y", (1, 16, 8, 4), 1 / 50, 100)
    g.write(name)


def missing(name, bits, has_quantiser):
    """Mul and Add, with or without a quantiser between."""
    g = Graph(bits)
    a, b = (g.input(k, (1, 8, 8, 8), STEP, 128) for k in "ab")
    g.nodes.append(h.make_node("Mul", [a, b], ["m"], name="product"))
    m = g.quantised("m", 1 / 32, 128) if has_quantiser else "m"
    g.nodes.append(h.make_node("Add", [m, b], ["y_made"], name="sum"))
    g.output("y", (1, 8, 8, 8), 1 / 16, 128)
    g.write(name)


def ranges(name, scale):
    """Scores from 0 to 1 and boxes in one encoding; a step of uint16 is 1/256 of it, that of the scores too."""
    g = Graph(16 if name.endswith("u16") else 8)
    a = g.input("scores", (1, 4, 8), 1 / 256, 0)
    b = g.input("boxes", (1, 4, 8), scale, 0)
    g.nodes.append(h.make_node("Concat", [a, b], ["y_made"], name="join", axis=1))
    g.output("y", (1, 8, 8), scale, 0)
    g.write(name)


def qoperator():
    """ONNX Runtime's QOperator format: no quantiser stands between the operators."""
    g, rng = Graph(8), np.random.default_rng(SEED)
    g.input("x", (1, 2, 4, 4), STEP, 128)
    one = [g.constant("w_codes", rng.integers(-127, 128, (2, 2, 1, 1)).astype(np.int8)), g.constant("w_scale", np.float32(0.01)),
           g.constant("w_zero_point", np.int8(0))]
    pair = [g.constant("c_scale", np.float32(STEP)), g.constant("c_zero_point", np.uint8(128))]
    g.nodes = g.nodes[:1]
    g.nodes.append(h.make_node("QLinearConv", ["x_codes", "x_scale", "x_zero_point", *one, *pair], ["c_codes"], name="first"))
    g.nodes.append(h.make_node("QLinearConv", ["c_codes", *pair, *one, *pair], ["d_codes"], name="second"))
    g.nodes.append(h.make_node("DequantizeLinear", ["d_codes", *pair], ["y"], name="y_dequantise"))
    g.outputs.append(h.make_tensor_value_info("y", make_found.T.FLOAT, (1, 2, 4, 4)))
    g.write("qoperator.u8")


def matmul_add():
    """No quantiser between MatMul and the Add of a constant: the provider makes a quantised Gemm of them."""
    g, rng = Graph(16), np.random.default_rng(SEED)
    x = g.input("x", (4, 16), STEP, 128)
    w, scale = weights(g, rng.normal(0, 0.2, (16, 8)).astype(np.float32), 1)
    steps = np.float32(STEP / g.finer) * scale
    g.nodes.append(h.make_node("MatMul", [x, w], ["m"], name="product"))
    g.nodes.append(h.make_node("Add", ["m", bias(g, np.rint(rng.normal(0, 1, 8) / steps), steps)], ["y_made"], name="sum"))
    g.output("y", (4, 8), 1 / 16, 128)
    g.write("matmul-add.u16")


def unary(name, op_type, bits, x, y, **attributes):
    """x and y: scale and zero point."""
    g = Graph(bits)
    g.nodes.append(h.make_node(op_type, [g.input("x", (1, 1, 64, 64), *x)], ["y_made"], name="function", **attributes))
    g.output("y", (1, 1, 64, 64), *y)
    g.write(name)


def gate():
    """A Sigmoid with a range of its own, then a Reshape with the same encoding, then a Mul."""
    g = Graph(16)
    x = g.input("x", (1, 8, 16), 1 / 16, 128)
    g.nodes.append(h.make_node("Sigmoid", [x], ["s"], name="function"))
    s = g.quantised("s", 1 / 320, 0)
    g.nodes.append(h.make_node("Reshape", [s, g.constant("shape", np.array([1, 16, 8]))], ["r"], name="move"))
    r = g.quantised("r", 1 / 320, 0)
    g.nodes.append(h.make_node("Mul", [r, r], ["y_made"], name="product"))
    g.output("y", (1, 16, 8), 1 / 256, 0)
    g.write("sigmoid-moved.u16")


def channels():
    """A calculated tensor with one scale for each channel."""
    g = Graph(8)
    x = g.input("x", (1, 4, 8, 8), STEP, 128)
    g.nodes.append(h.make_node("Relu", [x], ["r"], name="relu"))
    pair = [g.constant("r_scale", np.array([0.01, 0.02, 0.03, 0.04], np.float32)), g.constant("r_zero_point", np.zeros(4, np.uint8))]
    g.nodes.append(h.make_node("QuantizeLinear", ["r", *pair], ["r_codes"], name="r_quantise", axis=1))
    g.nodes.append(h.make_node("DequantizeLinear", ["r_codes", *pair], ["r_dequantised"], name="r_dequantise", axis=1))
    g.nodes.append(h.make_node("Mul", ["r_dequantised", "r_dequantised"], ["y_made"], name="product"))
    g.output("y", (1, 4, 8, 8), 1 / 32, 0)
    g.write("channels.u8")


def apart(name, smallest):
    """A MatMul with one scale for its weights; half of the channels are that much smaller than the others."""
    g, rng = Graph(8), np.random.default_rng(SEED)
    x = g.input("x", (4, 16), STEP, 128)
    values = rng.normal(0, 0.2, (16, 8)) * np.where(np.arange(8) % 2, smallest, 1)
    names = [g.constant("w_codes", np.rint(values / np.abs(values).max() * 127).astype(np.int8)),
             g.constant("w_scale", np.float32(np.abs(values).max() / 127)), g.constant("w_zero_point", np.int8(0))]
    g.nodes.append(h.make_node("DequantizeLinear", names, ["w_dequantised"], name="w_dequantise"))
    g.nodes.append(h.make_node("MatMul", [x, "w_dequantised"], ["y_made"], name="product"))
    g.output("y", (4, 8), 1 / 16, 128)
    g.write(name)


def double():
    g = Graph(8)
    x = g.input("x", (1, 4, 8, 8), STEP, 128)
    g.nodes.append(h.make_node("Mul", [x, x], ["m"], name="first"))
    again = g.quantised(g.quantised("m", 1 / 37, 3), 1 / 29, 1, "again")
    g.nodes.append(h.make_node("Mul", [again, again], ["y_made"], name="second"))
    g.output("y", (1, 4, 8, 8), 1 / 8, 0)
    g.write("double.u8")


def mask():
    """Scores and a mask of -3.4e38."""
    g = Graph(8)
    x = g.input("x", (1, 4, 8, 8), STEP, 128)
    lowest, scale = np.float32(-3.4e38), np.float32(3.4e38 / 255)
    names = [g.constant("mask_codes", np.array([0, 255], np.uint8).repeat(4)), g.constant("mask_scale", scale),
             g.constant("mask_zero_point", np.uint8(255))]
    g.nodes.append(h.make_node("DequantizeLinear", names, ["mask_dequantised"], name="mask_dequantise"))
    g.nodes.append(h.make_node("Add", [x, "mask_dequantised"], ["y_made"], name="sum"))
    g.output("y", (1, 4, 8, 8), -float(lowest) / 255, 255)
    g.write("mask.u8")


def infinite():
    g = Graph(8)
    x = g.input("x", (1, 4, 8, 8), STEP, 128)
    names = [g.constant("c_codes", np.zeros(8, np.uint8)), g.constant("c_scale", np.float32(np.inf)), g.constant("c_zero_point", np.uint8(255))]
    g.nodes.append(h.make_node("DequantizeLinear", names, ["c_dequantised"], name="c_dequantise"))
    g.nodes.append(h.make_node("Add", [x, "c_dequantised"], ["y_made"], name="sum"))
    g.output("y", (1, 4, 8, 8), 1 / 32, 128)
    g.write("infinite.u8")


def open_constants(name, ir_version):
    """A BatchNormalization whose initializers are inputs of the graph, as exporters wrote them up to IR version 3."""
    g, rng = Graph(8), np.random.default_rng(SEED)
    x = g.input("x", (1, 4, 6, 6), STEP, 128)
    read = [x]
    for what, low, high in (("gamma", 0.5, 1.5), ("beta", -1, 1), ("mean", -1, 1), ("var", 0.5, 1.5)):
        names = [g.constant(f"{what}_codes", rng.integers(64, 192, 4).astype(np.uint8)), g.constant(f"{what}_scale", np.float32(high / 192)),
                 g.constant(f"{what}_zero_point", np.uint8(0 if low > 0 else 128))]
        g.nodes.append(h.make_node("DequantizeLinear", names, [what], name=f"{what}_dequantise"))
        read.append(what)
    g.nodes.append(h.make_node("BatchNormalization", read, ["y_made"], name="norm"))
    g.output("y", (1, 4, 6, 6), 1 / 16, 128)
    g.write(name)
    path = make_found.FOUND / f"{name}.onnx"
    model = onnx.load(path)
    model.ir_version = ir_version
    for constant in model.graph.initializer:
        model.graph.input.append(h.make_tensor_value_info(constant.name, constant.data_type, list(constant.dims)))
    onnx.save(model, path)


if __name__ == "__main__":
    make_found.FOUND.mkdir(exist_ok=True)
    for kind in (8, 16):
        gemm(f"bias-twice.u{kind}", kind, 2)
        product(f"axis-0.u{kind}", kind, 0)
        missing(f"missing.u{kind}", kind, False)
    gemm("bias-right.u8", 8, 1)
    gemm("bias-one.u8", 8, 1, one_scale=True)
    product("axis-1.u8", 8, 1)
    missing("quantised.u8", 8, True)
    overflow("overflow.u8", 1)
    overflow("no-overflow.u8", 4)
    moved("moved.u8", "DepthToSpace", 1 / 50, 110, blocksize=2)
    moved("moved-clipped.u8", "DepthToSpace", 1 / 100, 110, blocksize=2)
    moved("moved-same.u8", "DepthToSpace", STEP, 128, blocksize=2)
    joined("joined.u8")
    make_found.concat("concat-two.u8", pools="a")
    make_found.concat("concat-wide.u8", channels=9)
    make_found.concat("concat-same.u8", scale=1 / 64, zero_point=100)
    ranges("concat-ranges.u8", 2.647)
    ranges("concat-ranges-few.u16", 40.0)
    ranges("concat-ranges-4.u8", 4 / 256)
    qoperator()
    make_found.reciprocal(2.0**-8)
    unary("leaky-wraps.u16", "LeakyRelu", 16, (1 / 64, 20), (1 / 60, 60), alpha=0.1)
    unary("leaky.u16", "LeakyRelu", 16, (1 / 64, 20), (1 / 40, 20), alpha=0.1)
    unary("abs.u16", "Abs", 16, (1 / 64, 128), (1 / 100, 0))
    unary("abs-same.u16", "Abs", 16, (1 / 64, 128), (1 / 64, 0))
    unary("sigmoid-required.u16", "Sigmoid", 16, (1 / 16, 128), (1 / 256, 0))
    matmul_add()
    gate()
    channels()
    apart("apart.u8", 1 / 20)
    apart("together.u8", 1 / 4)
    double()
    mask()
    infinite()
    open_constants("open.u8", 4)
    open_constants("open-ir3.u8", 3)
