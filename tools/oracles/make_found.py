#!/usr/bin/env python3
"""Makes golden/found: models of one operator for which Qualcomm's HTP simulator gives what nobody expects. docs/results/found.md
says of each what it shows.

Pinned: onnx 1.23.2, numpy 2.4.6 (Python 3.11). The committed files are the reference; the script writes the same bytes
again with those versions.

    python -m venv VENV && VENV/bin/pip install onnx==1.23.2 numpy==2.4.6
    VENV/bin/python tools/oracles/make_found.py
"""

import pathlib

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper

FOUND = pathlib.Path(__file__).resolve().parents[2] / "golden/found"
SEED = 20261123


class Graph:
    """A graph in QDQ form; `scale` is of uint8, that of uint16 is 1/256 of it."""

    def __init__(self, bits):
        self.code, self.finer = (np.uint8, 1) if bits == 8 else (np.uint16, 256)
        self.nodes, self.constants, self.inputs, self.outputs = [], [], [], []

    def constant(self, name, array):
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def quantised(self, name, scale, zero_point, made=None):
        """The name under which other nodes read the activation `name` after its quantisation."""
        pair = [self.constant(f"{name}_scale", np.float32(scale / self.finer)),
                self.constant(f"{name}_zero_point", self.code(zero_point * self.finer))]
        made = made or f"{name}_dequantised"
        self.nodes.append(h.make_node("QuantizeLinear", [name, *pair], [f"{name}_codes"], name=f"{name}_quantise"))
        self.nodes.append(h.make_node("DequantizeLinear", [f"{name}_codes", *pair], [made], name=f"{name}_dequantise"))
        return made

    def weight(self, name, values):
        """A constant as uint8 codes, one scale for the whole tensor."""
        low, high = min(values.min(), 0), max(values.max(), 0)
        scale = np.float32((high - low) / 255)
        zero_point = np.uint8(np.rint(-low / scale))
        codes = np.clip(np.rint(values / scale) + zero_point, 0, 255).astype(np.uint8)
        names = [self.constant(f"{name}_codes", codes), self.constant(f"{name}_scale", scale),
                 self.constant(f"{name}_zero_point", zero_point)]
        self.nodes.append(h.make_node("DequantizeLinear", names, [f"{name}_dequantised"], name=f"{name}_dequantise"))
        return f"{name}_dequantised"

    def input(self, name, shape, scale, zero_point):
        self.inputs.append(h.make_tensor_value_info(name, T.FLOAT, shape))
        return self.quantised(name, scale, zero_point)

    def output(self, name, shape, scale, zero_point):
        """Of the tensor `name_made`."""
        self.quantised(f"{name}_made", scale, zero_point, name)
        self.outputs.append(h.make_tensor_value_info(name, T.FLOAT, shape))

    def write(self, name, has_shapes=False):
        graph = h.make_graph(self.nodes, name, self.inputs, self.outputs, self.constants)
        model = h.make_model(graph, opset_imports=[h.make_opsetid("", 21)], ir_version=10, producer_name="npudiff")
        model = onnx.shape_inference.infer_shapes(model) if has_shapes else model
        onnx.checker.check_model(model, full_check=True)
        onnx.save(model, FOUND / f"{name}.onnx")


def batch_norm():
    """The bias of the last channel is the largest in magnitude, and positive."""
    g, rng = Graph(8), np.random.default_rng(SEED)
    bias = np.array([1, -1, 0.5, 3, -2, 0.25, -0.5, 8], np.float32)
    parts = [g.weight("factor", rng.uniform(0.5, 1.5, 8).astype(np.float32)), g.constant("bias", bias),
             g.constant("mean", np.zeros(8, np.float32)), g.constant("variance", rng.uniform(0.5, 2, 8).astype(np.float32))]
    g.nodes.append(h.make_node("BatchNormalization", [g.input("x", (1, 8, 4, 4), 1 / 32, 128), *parts], ["y_made"], name="norm"))
    g.output("y", (1, 8, 4, 4), 0.125, 128)
    g.write("batch-norm.u8")


def mul():
    """Every code of one factor times every code of the other."""
    g = Graph(8)
    factors = [g.input("a", (1, 1, 256, 1), 0.0437, 77), g.input("b", (1, 1, 1, 256), 0.0091, 121)]
    g.nodes.append(h.make_node("Mul", factors, ["y_made"], name="product"))
    g.output("y", (1, 1, 256, 256), 0.0731, 103)
    g.write("mul.u8")


def symmetric(g, name, values, scale):
    """A constant as uint16 codes around 32768."""
    codes = np.clip(np.rint(values / np.float32(scale)) + 32768, 0, 65535).astype(np.uint16)
    names = [g.constant(f"{name}_codes", codes), g.constant(f"{name}_scale", np.float32(scale)),
             g.constant(f"{name}_zero_point", np.uint16(32768))]
    g.nodes.append(h.make_node("DequantizeLinear", names, [f"{name}_dequantised"], name=f"{name}_dequantise"))
    return f"{name}_dequantised"


def lstm():
    """Weights of 16 bits, as ONNX Runtime's recipe gives them to an LSTM; all three outputs are read."""
    g, rng = Graph(16), np.random.default_rng(SEED)
    steps, n = 8, 16
    x = g.input("x", (steps, 1, n), 1 / 32, 128)
    weights = [symmetric(g, k, rng.normal(0, 0.4, (1, 4 * n, n)).astype(np.float32), 1.6 / 32768) for k in ("w", "r")]
    bias = symmetric(g, "b", rng.normal(0, 0.3, (1, 8 * n)).astype(np.float32), 2 / 32768)
    state = [g.quantised(g.constant(k, np.zeros((1, 1, n), np.float32)), 1 / 64, 128) for k in ("h0", "c0")]
    g.nodes.append(h.make_node("LSTM", [x, *weights, bias, "", *state], ["y_made", "hidden_made", "cell_made"], name="cell", hidden_size=n))
    g.output("y", (steps, 1, 1, n), 1 / 128, 128)
    g.output("hidden", (1, 1, n), 1 / 128, 128)
    g.output("cell", (1, 1, n), 1 / 64, 128)
    g.write("lstm.u16")


def unary(op_type, low, high):
    """Every second code of uint16. The encoding that the output states reaches beyond what the operator can give."""
    g = Graph(16)
    g.nodes.append(h.make_node(op_type, [g.input("x", (1, 1, 128, 256), 1 / 16, 128)], ["y_made"], name="function"))
    scale = (high - low) / 256
    g.output("y", (1, 1, 128, 256), scale, round(-low / scale))
    g.write(f"{op_type.lower()}.u16")


def reciprocal(scale=2.0**-12):
    """Every second code of uint16, with a step of 2^-20, 256 times less than the scale."""
    g = Graph(16)
    g.nodes.append(h.make_node("Reciprocal", [g.input("x", (1, 1, 128, 256), scale, 0)], ["y_made"], name="function"))
    g.output("y", (1, 1, 128, 256), 2, 0)
    g.write("reciprocal.u16")


def softmax():
    """Rows of 24, written with a zero point that is neither 0 nor 128."""
    g = Graph(8)
    g.nodes.append(h.make_node("Softmax", [g.input("x", (1, 32, 24), 1 / 32, 128)], ["y_made"], name="function", axis=-1))
    g.output("y", (1, 32, 24), 1 / 192, 64)
    g.write("softmax.u8")


def cast():
    """An image of bytes on its way into a network of floats."""
    g = Graph(8)
    g.inputs.append(h.make_tensor_value_info("x", T.UINT8, (1, 256)))
    g.nodes.append(h.make_node("Cast", ["x"], ["y"], name="cast", to=T.FLOAT))
    g.outputs.append(h.make_tensor_value_info("y", T.FLOAT, (1, 256)))
    g.write("cast.u8")


def four_bits(name, kind, zero_point):
    """Weights of 4 bits in blocks of 16, around a zero point."""
    g, rng = Graph(16), np.random.default_rng(SEED)
    shape, block = (32, 16), 16
    w = rng.normal(0, 0.3, shape)
    scale = (np.abs(w.reshape(-1, block, shape[1])).max(1) / 7).astype(np.float32)
    codes = np.rint(w / np.repeat(scale, block, 0)).astype(int) + zero_point
    g.constants.append(h.make_tensor("w_codes", kind, shape, codes.ravel().tolist()))
    g.constants.append(h.make_tensor("w_zero_point", kind, scale.shape, [zero_point] * scale.size))
    names = ["w_codes", g.constant("w_scale", scale), "w_zero_point"]
    x = g.input("x", (4, 32), 1 / 32, 128)
    g.nodes.append(h.make_node("DequantizeLinear", names, ["w_dequantised"], name="w_dequantise", axis=0, block_size=block))
    g.nodes.append(h.make_node("MatMul", [x, "w_dequantised"], ["y_made"], name="product"))
    g.output("y", (4, 16), 1 / 8, 128)
    g.write(name)


def concat(name="concat.u8", channels=4, pools="ab", scale=1 / 32, zero_point=50):
    """The model's input beside other tensors, in the encoding that fits all, and a convolution."""
    g, rng = Graph(8), np.random.default_rng(SEED)
    x = g.input("x", (1, channels, 8, 8), 1 / 64, 100)
    for pool in pools:
        g.nodes.append(h.make_node("MaxPool", [x], [pool], name=f"{pool}_pool", kernel_shape=[3, 3], pads=[1, 1, 1, 1]))
    g.nodes.append(h.make_node("Concat", [*(g.quantised(p, 1 / 64, 100) for p in pools), x], ["joined"], name="join", axis=1))
    w = g.weight("w", rng.uniform(-1, 1, (4, channels * (len(pools) + 1), 1, 1)).astype(np.float32))
    g.nodes.append(h.make_node("Conv", [g.quantised("joined", scale, zero_point), w], ["y_made"], name="conv"))
    g.output("y", (1, 4, 8, 8), 1 / 8, 128)
    g.write(name)


def number(g, name, value):
    """A constant as quantisers write it: the code 255 of its own scale."""
    names = [g.constant(f"{name}_codes", np.uint8(255)), g.constant(f"{name}_scale", np.float32(value / 255)), g.constant(f"{name}_zero_point", np.uint8(0))]
    g.nodes.append(h.make_node("DequantizeLinear", names, [f"{name}_dequantised"], name=f"{name}_dequantise"))
    return f"{name}_dequantised"


def hard_swish(name, last="Mul"):
    """x clip(x + 3, 0, 6) / 6 of what a MatMul makes, in single operators; behind a Div, the last of them, is an Add of constants."""
    g, rng = Graph(8), np.random.default_rng(SEED)
    w = g.weight("w", rng.normal(0, 0.4, (16, 16)).astype(np.float32))
    g.nodes.append(h.make_node("MatMul", [g.input("x", (1, 32, 16), 1 / 64, 128), w], ["made"], name="product"))
    made = g.quantised("made", 3 / 32, 108)
    g.nodes.append(h.make_node("Add", [made, number(g, "three", 3)], ["sum"], name="sum"))
    bounds = [g.constant("low", np.float32(0)), g.constant("high", np.float32(6))]
    g.nodes.append(h.make_node("Clip", [g.quantised("sum", 3 / 32, 76), *bounds], ["gate"], name="clip"))
    g.nodes.append(h.make_node("Mul", [made, g.quantised("gate", 6 / 255, 0)], ["gated"], name="gate"))
    if last == "Mul":
        g.nodes.append(h.make_node("Mul", [g.quantised("gated", 1 / 3, 7), number(g, "sixth", 1 / 6)], ["y_made"], name="sixth"))
    else:
        g.nodes.append(h.make_node("Div", [g.quantised("gated", 1 / 3, 7), number(g, "six", 6)], ["swish"], name="sixth"))
        place = g.weight("place", rng.uniform(-0.5, 0.5, (1, 32, 16)).astype(np.float32))
        g.nodes.append(h.make_node("Add", [g.quantised("swish", 1 / 18, 7), place], ["y_made"], name="place"))
    g.output("y", (1, 32, 16), 1 / 18, 7 if last == "Mul" else 20)
    g.write(name)


def pads():
    """Two Pads behind a BatchNormalization, and a Conv that reads the second one."""
    g, rng, channels = Graph(16), np.random.default_rng(SEED), 8
    parts = [g.weight("factor", rng.uniform(0.5, 1.5, channels).astype(np.float32)),
             g.constant("bias", rng.uniform(-0.5, 0.5, channels).astype(np.float32)),
             g.constant("mean", np.zeros(channels, np.float32)),
             g.constant("variance", rng.uniform(0.5, 2, channels).astype(np.float32))]
    g.nodes.append(h.make_node("BatchNormalization", [g.input("x", (1, channels, 16, 16), 1 / 64, 128), *parts], ["norm"], name="norm"))
    made = g.quantised("norm", 1 / 64, 128)
    for name, rows in (("wide", 0), ("padded", 1)):
        pair = [g.constant(f"{name}_zero_scale", np.float32(1 / 64 / 256)), g.constant(f"{name}_zero_zero_point", np.uint16(128 * 256))]
        zero = g.constant(f"{name}_zero_codes", np.uint16(128 * 256))
        g.nodes.append(h.make_node("DequantizeLinear", [zero, *pair], [f"{name}_zero"], name=f"{name}_zero_dequantise"))
        counts = g.constant(f"{name}_pads", np.array([0, 0, rows, 1] * 2, np.int64))
        g.nodes.append(h.make_node("Pad", [made, counts, f"{name}_zero"], [name], name=name))
        made = g.quantised(name, 1 / 64, 128)
    w = g.weight("w", rng.uniform(-0.2, 0.2, (channels, channels, 3, 3)).astype(np.float32))
    g.nodes.append(h.make_node("Conv", [made, w], ["y_made"], name="conv", pads=[1, 1, 1, 1]))
    g.output("y", (1, channels, 18, 20), 1 / 32, 128)
    g.write("pads.u16")


def slice_conv():
    """Rows cut off what an InstanceNormalization made, then a Conv."""
    g, rng = Graph(8), np.random.default_rng(SEED)
    parts = [g.weight("factor", np.linspace(0.5, 1.5, 4).astype(np.float32)), g.constant("bias", np.zeros(4, np.float32))]
    g.nodes.append(h.make_node("InstanceNormalization", [g.input("x", (1, 4, 8, 8), 1 / 32, 128), *parts], ["normal"], name="norm"))
    bounds = [g.constant(k, np.array([v], np.int64)) for k, v in (("first", 1), ("end", 7), ("axis", 2))]
    g.nodes.append(h.make_node("Slice", [g.quantised("normal", 1 / 32, 128), *bounds], ["rows"], name="slice"))
    w = g.weight("w", rng.normal(0, 0.3, (4, 4, 3, 3)).astype(np.float32))
    g.nodes.append(h.make_node("Conv", [g.quantised("rows", 1 / 32, 128), w], ["y_made"], name="conv"))
    g.output("y", (1, 4, 4, 6), 1 / 8, 128)
    g.write("slice-conv.u8")


def gather(bits, n):
    """Half of 64 rows of n numbers. The last row is one of them."""
    g, rng = Graph(bits), np.random.default_rng(SEED)
    rows = g.constant("rows", np.sort(rng.choice(64, 32, replace=False)))
    g.nodes.append(h.make_node("Gather", [g.input("x", (1, 64, n), 1 / 32, 128), rows], ["y_made"], name="gather", axis=1))
    g.output("y", (1, 32, n), 1 / 32, 128)
    g.write(f"gather.u{bits}")


def tanh_rows():
    """A Tanh of 16 rows that a MatMul made. The output has the encoding that QNN requires."""
    g, rng = Graph(16), np.random.default_rng(SEED)
    w = g.weight("w", rng.normal(0, 0.3, (8, 24)).astype(np.float32))
    g.nodes.append(h.make_node("MatMul", [g.input("x", (1, 16, 8), 1 / 32, 128), w], ["made"], name="product"))
    g.nodes.append(h.make_node("Tanh", [g.quantised("made", 1 / 32, 128)], ["y_made"], name="tanh"))
    g.output("y", (1, 16, 24), 1 / 128, 128)
    g.write("tanh-rows.u16")


def softplus():
    """Softplus and Tanh with no quantiser between, of 12 rows that a Conv made."""
    g, rng = Graph(8), np.random.default_rng(SEED)
    w = g.weight("w", rng.normal(0, 0.3, (8, 8, 1, 1)).astype(np.float32))
    g.nodes.append(h.make_node("Conv", [g.input("x", (1, 8, 12, 8), 1 / 32, 128), w], ["made"], name="conv"))
    g.nodes.append(h.make_node("Softplus", [g.quantised("made", 1 / 32, 128)], ["positive"], name="softplus"))
    g.nodes.append(h.make_node("Tanh", ["positive"], ["y_made"], name="tanh"))
    g.output("y", (1, 8, 12, 8), 1 / 255, 0)
    g.write("softplus.u8", has_shapes=True)


def transposed_sum():
    """A constant for each channel, added to what a ConvTranspose made. Some are below 0.5."""
    g, rng = Graph(8), np.random.default_rng(SEED)
    w = g.weight("w", rng.normal(0, 0.3, (4, 8, 2, 2)).astype(np.float32))
    g.nodes.append(h.make_node("ConvTranspose", [g.input("x", (1, 4, 6, 6), 1 / 32, 128), w], ["made"], name="conv", strides=[2, 2]))
    constants = np.array([0.2, 0.4, 0.45, 0.6, 1.3, 1.4, 1.7, 2.2], np.float32).reshape(1, 8, 1, 1)
    g.nodes.append(h.make_node("Add", [g.quantised("made", 1 / 16, 128), g.weight("constant", constants)], ["y_made"], name="sum"))
    g.output("y", (1, 8, 12, 12), 1 / 16, 112)
    g.write("transposed-sum.u8")


def cut_columns(g, first, end):
    """Of the tensor `made`, as `cut_off`."""
    cut = [g.constant(name, np.array([value], np.int64)) for name, value in (("starts", first), ("ends", end), ("axes", 3))]
    g.nodes.append(h.make_node("Slice", [g.quantised("made", 1 / 16, 128), *cut], ["cut_off"], name="slice"))


def slice_norm():
    """Columns that are cut off on the left, between a Conv and a BatchNormalization."""
    g, rng = Graph(8), np.random.default_rng(SEED)
    w = g.weight("w", rng.normal(0, 0.3, (8, 4, 3, 3)).astype(np.float32))
    g.nodes.append(h.make_node("Conv", [g.input("x", (1, 4, 8, 8), 1 / 32, 128), w], ["made"], name="conv", pads=[1, 1, 1, 1]))
    cut_columns(g, 1, 7)
    parts = [g.weight(name, rng.uniform(low, high, 8).astype(np.float32))
             for name, low, high in (("factor", 0.5, 1.5), ("bias", -0.4, 0.4), ("mean", -0.3, 0.3), ("variance", 0.5, 2))]
    g.nodes.append(h.make_node("BatchNormalization", [g.quantised("cut_off", 1 / 16, 128), *parts], ["y_made"], name="norm"))
    g.output("y", (1, 8, 8, 6), 1 / 16, 128)
    g.write("slice-norm.u8")


def slice_pool():
    """Columns that are cut off on the left, between a Conv and an AveragePool."""
    g, rng = Graph(8), np.random.default_rng(SEED)
    w = g.weight("w", rng.normal(0, 0.3, (8, 4, 3, 3)).astype(np.float32))
    g.nodes.append(h.make_node("Conv", [g.input("x", (1, 4, 8, 16), 1 / 32, 128), w], ["made"], name="conv", pads=[1, 1, 1, 1]))
    cut_columns(g, 11, 15)
    g.nodes.append(h.make_node("AveragePool", [g.quantised("cut_off", 1 / 16, 128)], ["y_made"], name="pool", kernel_shape=[2, 2],
                               strides=[2, 2]))
    g.output("y", (1, 8, 4, 2), 1 / 16, 128)
    g.write("slice-pool.u8")


def pad_pool(name, counts):
    """A Pad of what a Conv made, and an AveragePool whose windows do not overlap; counts: count_include_pad."""
    g, rng = Graph(8), np.random.default_rng(SEED)
    w = g.weight("w", rng.normal(0, 0.4, (8, 8, 1, 1)).astype(np.float32))
    g.nodes.append(h.make_node("Conv", [g.input("x", (1, 8, 16, 16), 1 / 64, 128), w], ["made"], name="conv"))
    pads = g.constant("pads", np.array([0, 0, 1, 1] * 2, np.int64))
    g.nodes.append(h.make_node("Pad", [g.quantised("made", 1 / 64, 100), pads], ["padded"], name="pad"))
    g.nodes.append(h.make_node("AveragePool", [g.quantised("padded", 1 / 64, 100)], ["y_made"], name="pool", kernel_shape=[2, 2],
                               strides=[2, 2], count_include_pad=counts))
    g.output("y", (1, 8, 9, 9), 1 / 64, 100)
    g.write(name)


def depth(name, op):
    """An input of the model, moved to another encoding."""
    g = Graph(8)
    shape = (1, 2, 8, 8) if op == "DepthToSpace" else (1, 8, 4, 4)
    g.nodes.append(h.make_node(op, [g.input("x", (1, 8, 4, 4) if op == "DepthToSpace" else (1, 2, 8, 8), 1 / 32, 128)], ["y_made"], name="moved",
                               blocksize=2))
    g.output("y", shape, 1 / 48, 100)
    g.write(name)


def average_pool():
    """A mean of floats whose padding is not counted."""
    g = Graph(8)
    g.inputs.append(h.make_tensor_value_info("x", T.FLOAT, (1, 8, 32, 32)))
    g.nodes.append(h.make_node("AveragePool", ["x"], ["y_made"], name="pool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1],
                               count_include_pad=0))
    g.output("y", (1, 8, 16, 16), 1 / 128, 128)
    g.write("average-pool.float.u8")


def clip(bits):
    """A Clip of what a Conv made, between quantisers; it cuts at one end."""
    g, rng = Graph(bits), np.random.default_rng(SEED)
    scale, zero = 1 / 32, 128
    w = g.weight("w", rng.normal(0, 0.3, (4, 4, 1, 1)).astype(np.float32))
    g.nodes.append(h.make_node("Conv", [g.input("x", (1, 4, 6, 6), scale, zero), w], ["made"], name="conv"))
    bounds = [g.constant(name, np.float32(value)) for name, value in (("least", -8), ("greatest", 1))]
    g.nodes.append(h.make_node("Clip", [g.quantised("made", scale, zero), *bounds], ["y_made"], name="clip"))
    g.output("y", (1, 4, 6, 6), scale, zero)
    g.write("clip.u%d" % bits)


def bias():
    """The input has nearly no range, so that a bias is up to 2^31 steps of the sum; the output's zero point is 2^31
    such steps."""
    g, scale = Graph(8), 2.0**-26
    names = [g.constant("w_codes", np.full((6, 1, 1, 1), 100, np.int8)), g.constant("w_scale", np.float32(1)),
             g.constant("w_zero_point", np.int8(0))]
    g.nodes.append(h.make_node("DequantizeLinear", names, ["w"], name="w_dequantise"))
    codes = np.array([2**31 - 1, 2**31 - 2**20, 2**30, 2**20, -2**20, -2**30], np.int32)
    names = [g.constant("b_codes", codes), g.constant("b_scale", np.float32(scale)), g.constant("b_zero_point", np.int32(0))]
    g.nodes.append(h.make_node("DequantizeLinear", names, ["b"], name="b_dequantise"))
    g.nodes.append(h.make_node("Conv", [g.input("x", (1, 1, 4, 4), scale, 0), "w", "b"], ["y_made"], name="conv"))
    g.output("y", (1, 6, 4, 4), 0.25, 128)
    g.write("bias.u8")


def pad(bits):
    """A border of copies around an input, in another encoding."""
    g = Graph(bits)
    counts = g.constant("pads", np.array([0, 0, 1, 1] * 2, np.int64))
    g.nodes.append(h.make_node("Pad", [g.input("x", (1, 4, 8, 8), 1 / 32, 128), counts], ["y_made"], name="pad", mode="reflect"))
    g.output("y", (1, 4, 10, 10), 1 / 16, 96)
    g.write("pad.u%d" % bits)


def concat_moved():
    """An input that is transposed, and what a Conv made in blocks of space, in the encoding of a third tensor."""
    g, rng = Graph(8), np.random.default_rng(SEED)
    x = g.input("x", (1, 4, 8, 8), 1 / 64, 100)
    g.nodes.append(h.make_node("Transpose", [x], ["turned"], name="turn", perm=[0, 1, 3, 2]))
    w = g.weight("w", rng.normal(0, 0.4, (1, 4, 1, 1)).astype(np.float32))
    second = g.input("x2", (1, 4, 16, 16), 1 / 64, 100)
    g.nodes.append(h.make_node("Conv", [second, w], ["made"], name="conv"))
    g.nodes.append(h.make_node("SpaceToDepth", [g.quantised("made", 1 / 64, 100)], ["deep"], name="deepen", blocksize=2))
    third = g.input("x3", (1, 4, 8, 8), 1 / 32, 50)
    g.nodes.append(h.make_node("MaxPool", [third], ["pooled"], name="pool", kernel_shape=[3, 3], pads=[1, 1, 1, 1]))
    parts = [g.quantised("turned", 1 / 64, 100), g.quantised("deep", 1 / 64, 100), g.quantised("pooled", 1 / 32, 50)]
    g.nodes.append(h.make_node("Concat", parts, ["y_made"], name="join", axis=1))
    g.output("y", (1, 12, 8, 8), 1 / 32, 50)
    g.write("concat-moved.u8")


def concat_split():
    """The head of a detector, five axes: a Sigmoid, of which one part is multiplied with a number, and the other is joined to that."""
    g = Graph(8)
    x = g.input("x", (1, 3, 4, 4, 10), 1 / 16, 128)
    g.nodes.append(h.make_node("Sigmoid", [x], ["share"], name="squash"))
    g.nodes.append(h.make_node("Split", [g.quantised("share", 1 / 255, 0), g.constant("sizes", np.array([4, 6], np.int64))], ["box", "score"],
                               name="part", axis=4))
    times = g.weight("four", np.array([4.0], np.float32))
    g.nodes.append(h.make_node("Mul", [g.quantised("box", 1 / 255, 0), times], ["placed"], name="place"))
    parts = [g.quantised("placed", 4 / 255, 0), g.quantised("score", 1 / 255, 0)]
    g.nodes.append(h.make_node("Concat", parts, ["y_made"], name="join", axis=4))
    g.output("y", (1, 3, 4, 4, 10), 4 / 255, 0)
    g.write("concat-split.u8")


def max_pool(bits):
    """A Pad of what a Conv made, and a MaxPool that pads once more."""
    g, rng = Graph(bits), np.random.default_rng(SEED)
    w = g.weight("w", rng.normal(0, 0.4, (8, 8, 1, 1)).astype(np.float32))
    g.nodes.append(h.make_node("Conv", [g.input("x", (1, 8, 16, 16), 1 / 64, 128), w], ["made"], name="conv"))
    pair = [g.constant("zero_scale", np.float32(1 / 64 / g.finer)), g.constant("zero_zero_point", g.code(100 * g.finer))]
    g.nodes.append(h.make_node("DequantizeLinear", [g.constant("zero_codes", g.code(100 * g.finer)), *pair], ["zero"], name="zero_dequantise"))
    counts = g.constant("pads", np.array([0, 0, 1, 1] * 2, np.int64))
    g.nodes.append(h.make_node("Pad", [g.quantised("made", 1 / 64, 100), counts, "zero"], ["padded"], name="pad"))
    g.nodes.append(h.make_node("MaxPool", [g.quantised("padded", 1 / 64, 100)], ["y_made"], name="pool", kernel_shape=[2, 2],
                               strides=[2, 2], pads=[1, 1, 1, 1]))
    g.output("y", (1, 8, 10, 10), 1 / 64, 100)
    g.write("max-pool.u%d" % bits)


def swish_wraps():
    """A HardSwish of what a MatMul made. Its range ends at 0.98; of sums beyond 2 more bits are needed than are kept."""
    g, rng = Graph(8), np.random.default_rng(SEED)
    codes = rng.integers(-128, 128, (64, 8))
    codes[0, :2] = -128, 127  # so that the scale is 1/128
    w = g.weight("w", (codes / 128).astype(np.float32))
    g.nodes.append(h.make_node("MatMul", [g.input("x", (1, 64, 64), 1 / 256, 128), w], ["made"], name="product"))
    g.nodes.append(h.make_node("HardSwish", [g.quantised("made", 1 / 16, 128)], ["y_made"], name="swish"))
    g.output("y", (1, 64, 8), 0.98 / 191, 64)
    g.write("swish-wraps.u8")


def shares():
    """A Softmax in parts; the range of the sum is a third of what it needs."""
    g = Graph(8)
    x = g.input("x", (1, 64), 1 / 32, 255)
    g.nodes.append(h.make_node("Exp", [x], ["e"], name="exp"))
    e = g.quantised("e", 1 / 255, 0)
    axes = g.constant("axes", np.array([1], np.int64))
    g.nodes.append(h.make_node("ReduceSum", [e, axes], ["s"], name="sum", keepdims=1))
    g.nodes.append(h.make_node("Div", [e, g.quantised("s", 6 / 255, 0)], ["y_made"], name="shares"))
    g.output("y", (1, 64), 1 / 255, 0)
    g.write("shares.u8")


if __name__ == "__main__":
    FOUND.mkdir(exist_ok=True)
    batch_norm()
    mul()
    lstm()
    unary("Tanh", -1.25, 1.25)
    unary("Sigmoid", -0.25, 1.25)
    reciprocal()
    softmax()
    cast()
    concat()
    hard_swish("hard-swish.u8")
    hard_swish("hard-swish-div.u8", last="Div")
    pads()
    four_bits("matmul.int4-blocks.u16", T.INT4, 0)
    four_bits("matmul.uint4-blocks.u16", T.UINT4, 8)
    slice_conv()
    gather(16, 4)
    gather(8, 8)
    tanh_rows()
    softplus()
    swish_wraps()
    transposed_sum()
    shares()
    slice_norm()
    slice_pool()
    pad_pool("pad-pool.u8", 1)
    depth("depth-to-space.u8", "DepthToSpace")
    depth("space-to-depth.u8", "SpaceToDepth")
    pad_pool("pad-mean.u8", 0)
    average_pool()
    clip(8)
    clip(16)
    bias()
    pad(8)
    pad(16)
    concat_moved()
    concat_split()
    max_pool(8)
    max_pool(16)
