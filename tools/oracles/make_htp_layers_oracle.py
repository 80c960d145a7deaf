#!/usr/bin/env python3
"""Makes more files golden/programs/bytes-*, and layers-*: uint8 layers on random encodings and random codes of which chipsets make
different codes, or that stand behind one another, and the codes that the simulator of the HTP makes of them. What
src/arithmetic computes is held against these files by test_arithmetics_bytes and, layers-* of both types, test_arithmetics_joined; no arithmetic of ours is in them.

    tools/oracles/make_htp_layers_oracle.py --npudiff build/src/cli/npudiff -o golden/programs [--only strided]

Needs what make_htp_oracle.py needs. The files are those of make_htp_concat_oracle.py, which writes them."""
import argparse
import os

import numpy as np
from onnx import TensorProto, helper

import make_htp_concat_oracle as concat

SEED = 20261124


class Group(concat.Group):
    """Layers side by side; those of one line stand behind one another."""

    def scaled(self, codes, scale, zero=0, axis=None):
        """Constant codes with an encoding of their own."""
        codes, scale = np.asarray(codes), np.asarray(scale, np.float32)
        zero = np.broadcast_to(np.asarray(zero, codes.dtype), scale.shape).copy()
        self.n += 1
        names = [self.constant(codes), self.constant(scale), self.constant(zero)]
        self.nodes.append(helper.make_node("DequantizeLinear", names, ["r%d" % self.n],
                                           **({} if axis is None else {"axis": axis})))
        return "r%d" % self.n

    def bare(self, op, operands, **attributes):
        """An operator whose output is not quantised."""
        self.n += 1
        self.nodes.append(helper.make_node(op, operands, ["f%d" % self.n], **attributes))
        return "f%d" % self.n


def strided_conv(g, kind, kernel=3, side=13, n=6):
    """A depthwise Conv with strides 2 x 2. Kinds: without a bias, with one, rectified; "far": weights beyond 8 signed
    bits; "small": scales so small that the provider leaves a bias in another scale as it is."""
    x = g.encoding(0.04 if kind == "small" else 4)
    w = g.rng.integers(-127, 128, [n, 1, kernel, kernel]).astype(np.int8)
    scale = np.float32((1e-4 if kind == "small" else 0.01) * g.rng.uniform(0.5, 2))
    zero_w, axis, zero_y = 0, None, int(g.rng.integers(60, 190))
    if kind == "far":
        w, zero_w = (w.astype(int) + 128).astype(np.uint8), 40
    if kind in ("channels", "rectified"):
        scale, axis = np.float32(scale * np.exp(g.rng.uniform(-1.5, 0, n))), 0
    largest = float(np.max(scale))
    operands = [g.input([2, n, side, side], x), g.scaled(w, scale, zero_w, axis)]
    if kind != "plain":
        bias = g.rng.integers(-40000, 40001, n).astype(np.int32)
        operands.append(g.scaled(bias, np.float32(x[0]) * scale * np.float32(2.7 if kind == "small" else 1), 0, axis))
    out = (side + 2 * (kernel // 2) - kernel) // 2 + 1
    y = (np.float32(float(x[0]) * largest * 130 * kernel * g.rng.uniform(0.7, 1.5)), 0 if kind == "rectified" else zero_y)
    g.add("Conv", operands, [2, n, out, out], y, group=n, strides=[2, 2], pads=[kernel // 2] * 4)


def strided(g):
    for kind in ("plain", "bias", "channels", "rectified", "far", "small", "small"):
        strided_conv(g, kind)
    strided_conv(g, "bias", 5)


def batch_norm(g, x, kind, n=8, side=9, is_rectified=False):
    reach = 4
    operands = [x]
    if kind == "bytes":
        operands += [g.scaled(g.rng.integers(0, 256, n).astype(np.uint8), scale, zero)
                     for scale, zero in ((0.01, 30), (0.01, 128), (0.01, 120))]
        operands.append(g.scaled(g.rng.integers(40, 256, n).astype(np.uint8), 0.008))
    else:
        bias = g.rng.uniform(-reach / 4, reach / 4, n).astype(np.float32)
        bias[0] = -reach  # the greatest is negative: a positive one may get the wrong sign (docs/results/found.md)
        operands.append(g.scaled(g.rng.integers(30, 128, n).astype(np.int8), g.rng.uniform(0.005, 0.015)))
        operands += [g.constant(bias), g.constant(g.rng.normal(0, 0.5, n).astype(np.float32)),
                     g.constant(g.rng.uniform(0.4, 2, n).astype(np.float32))]
    if not is_rectified:
        return g.add("BatchNormalization", operands, [1, n, side, side], g.encoding(reach))
    made = "y%d_norm" % len(g.outputs)
    g.nodes.append(helper.make_node("BatchNormalization", operands, [made], name=made))
    return g.add("Relu", [made], [1, n, side, side], (g.encoding(reach)[0], 0))


def norms(g):
    shape = [1, 8, 9, 9]
    for kind in ("bytes", "floats"):
        conv = [g.input(shape, g.encoding(4)), g.weights([8, 8, 1, 1], 0.006)]
        batch_norm(g, g.add("Conv", conv, shape, g.encoding(4)), kind)
        add = [g.input(shape, g.encoding(3)), g.input(shape, g.encoding(3))]
        batch_norm(g, g.add("Add", add, shape, g.encoding(4)), kind)


def normed(g):
    """BatchNormalization with a Relu, of a graph input and of a Conv."""
    for i in range(12):
        n, side = int(g.rng.integers(2, 20)), (1, 5, 9)[i % 3]
        shape = [1, n, side, side]
        real = g.input(shape, g.encoding(4))
        if i % 4 > 1:
            real = g.add("Conv", [real, g.weights([n, n, 1, 1], 0.006)], shape, g.encoding(4))
        batch_norm(g, real, "bytes" if i % 2 else "floats", n, side, True)


def prelu(g, low, high):
    """Slopes up to between low and high; each channel has all 256 codes."""
    n, x = 3, g.encoding(4)
    every = np.stack([g.rng.permutation(256) for _ in range(n)]).reshape(1, n, 16, 16)
    codes = g.rng.integers(1, 256, [n, 1, 1]).astype(np.uint8)
    y = (np.float32(x[0] * np.exp(g.rng.uniform(np.log(0.3), np.log(3.5)))), int(g.rng.integers(10, 160)))
    real = g.input([1, n, 16, 16], x)
    g.codes["x%d" % (len(g.inputs) - 1)] = every.astype(g.type)
    g.add("PRelu", [real, g.scaled(codes, g.rng.uniform(low, high) / 255)], [1, n, 16, 16], y)


def slopes(g):
    for low, high in ((0.02, 0.12), (0.12, 0.5), (0.5, 1), (0.2, 0.3)):
        prelu(g, low, high)
    conv = [g.input([1, 4, 8, 8], g.encoding(4)), g.weights([4, 4, 3, 3], 0.006)]
    x = g.add("Conv", conv, [1, 4, 8, 8], g.encoding(4), pads=[1, 1, 1, 1])
    g.add("PRelu", [x, g.scaled(g.rng.integers(1, 256, [4, 1, 1]).astype(np.uint8), 0.001)], [1, 4, 8, 8], g.encoding(4))


def fused(g):
    """A LeakyRelu behind a MatMul, which v73 makes in one operation."""
    x = g.add("MatMul", [g.input([8, 12], g.encoding(4)), g.weights([12, 8], 0.01)], [8, 8], g.encoding(4))
    g.add("LeakyRelu", [x], [8, 8], g.encoding(3), alpha=0.1)


WINDOWS = [  # size, stride, padding, whether that counts
    (3, 1, 0, 0), (3, 1, 1, 1), (5, 1, 2, 1), (5, 1, 0, 0), (3, 2, 0, 0), (3, 2, 1, 1), (5, 2, 0, 0), (3, 1, 1, 0), (3, 2, 1, 0)]


def averages(g):
    """Windows that overlap, or reach beyond the plane."""
    for size, stride, pad, counts in WINDOWS:
        for ratio in (1, g.rng.uniform(1, 3.5), g.rng.uniform(0.25, 1)):
            x = g.encoding(4)
            y = x if ratio == 1 else (np.float32(x[0] / ratio), int(g.rng.integers(0, 256)))
            n, rows, columns = int(g.rng.integers(2, 9)), int(g.rng.integers(7, 13)), int(g.rng.integers(7, 13))
            real = g.input([1, n, rows, columns], x)
            near = g.rng.integers(0, 256, [1, n, 1, 1]) + g.rng.integers(-60, 61, [1, n, rows, columns])
            g.codes["x%d" % (len(g.inputs) - 1)] = np.clip(near, 0, 255).astype(g.type)
            out = [(side + 2 * pad - size) // stride + 1 for side in (rows, columns)]
            g.add("AveragePool", [real], [1, n, *out], y, kernel_shape=[size] * 2, strides=[stride] * 2, pads=[pad] * 4,
                  count_include_pad=counts)


def instances(g):
    for n, rows, columns, kind in ((6, 9, 7, np.uint8), (8, 5, 5, np.uint8), (5, 12, 12, np.uint8), (12, 4, 6, np.uint8),
                                   (6, 8, 8, np.int8), (4, 9, 11, np.int8)):
        x = g.encoding(4)
        real = g.input([1, n, rows, columns], x)
        deviations = np.exp(g.rng.uniform(np.log(12), np.log(70), [1, n, 1, 1]))
        near = g.rng.integers(60, 200, [1, n, 1, 1]) + g.rng.normal(0, 1, [1, n, rows, columns]) * deviations
        g.codes["x%d" % (len(g.inputs) - 1)] = np.clip(near, 0, 255).astype(g.type)
        scale = np.float32(g.rng.uniform(0.004, 0.012))
        bias = np.rint(g.rng.normal(0, 0.5, n) / float(x[0] * scale)).astype(np.int32)
        low, zero = (0, int(g.rng.integers(0, 60))) if kind == np.uint8 else (-128, 0)
        weights = g.scaled(g.rng.integers(low, low + 256, n).astype(kind), scale, zero)
        g.add("InstanceNormalization", [real, weights, g.scaled(bias, np.float32(x[0]) * scale)], [1, n, rows, columns],
              g.encoding(3), epsilon=float(g.rng.choice([1e-5, 1e-3])))


def deviations(g):
    """InstanceNormalization of uint16, and LayerNormalization of rows whose multiplier of 15 bits lies next to a half."""
    for n, rows, columns, kind in ((5, 9, 7, np.uint8), (4, 16, 16, np.uint8), (6, 5, 8, np.int8)):
        x = (np.float32(np.exp(g.rng.uniform(np.log(5e-6), np.log(5e-4)))), int(g.rng.integers(0, 65536)))
        real = g.input([1, n, rows, columns], x)
        reach = np.exp(g.rng.uniform(np.log(5000), np.log(18000), [1, n, 1, 1]))
        near = g.rng.uniform(12000, 52000, [1, n, 1, 1]) + g.rng.normal(0, 1, [1, n, rows, columns]) * reach
        g.codes["x%d" % (len(g.inputs) - 1)] = np.clip(near, 0, 65535).astype(g.type)
        scale = np.float32(g.rng.uniform(0.004, 0.01))
        bias = np.rint(g.rng.normal(0, 0.5, n) / float(x[0] * scale)).astype(np.int32)
        low, zero = (0, int(g.rng.integers(0, 60))) if kind == np.uint8 else (-128, 0)
        weights = g.scaled(g.rng.integers(low, low + 256, n).astype(kind), scale, zero)
        y = (np.float32(g.rng.uniform(3, 9) / 65536), int(g.rng.integers(10000, 56000)))
        g.add("InstanceNormalization", [real, weights, g.scaled(bias, np.float32(x[0]) * scale)], [1, n, rows, columns], y,
              epsilon=float(g.rng.choice([1e-6, 1e-5, 1e-3])))
    for n in (24, 64):
        x, scale, y = np.float32(g.rng.uniform(2e-5, 4e-4)), np.float32(g.rng.uniform(0.003, 0.008)), np.float32(g.rng.uniform(6, 9) / 65536)
        drawn = g.rng.normal(g.rng.integers(24000, 42000, [4000, 1]), g.rng.uniform(1500, 11000, [4000, 1]), [4000, n])
        drawn = np.clip(drawn, 0, 65535).astype(g.type)
        factors = float(x) * float(scale) / float(y) / np.sqrt(drawn.astype(float).var(1) * float(x) ** 2 + float(np.float32(1e-5)))
        chosen = drawn[np.argsort(np.abs(np.frexp(factors)[0] * 2 ** 16 % 1 - 0.5))[:16]]
        real = g.input([16, n], (x, 30000))
        g.codes["x%d" % (len(g.inputs) - 1)] = chosen
        weights = g.scaled(g.rng.integers(40, 256, n).astype(np.uint8), scale)
        bias = g.scaled(np.rint(g.rng.normal(0, 0.3, n) / float(x * scale)).astype(np.int32), x * scale)
        g.add("LayerNormalization", [real, weights, bias], [16, n], (y, int(g.rng.integers(28000, 36000))), axis=-1, epsilon=1e-5)


def cuts(g):
    """LayerNormalization of uint8, of rows whose multiplier lies next to a multiple of 2^-16."""
    for n in (24, 64):
        x, scale, y = (np.float32(g.rng.uniform(*ends)) for ends in ((0.005, 0.05), (0.008, 0.02), (0.02, 0.03)))
        drawn = g.rng.normal(g.rng.uniform(60, 190, [8000, 1]), g.rng.uniform(3, 50, [8000, 1]), [8000, n])
        drawn = np.rint(np.clip(drawn, 0, 255)).astype(g.type)
        factors = 2 ** 16 * float(x) * float(scale) / float(y) / np.sqrt(drawn.astype(float).var(1) * float(x) ** 2 + float(np.float32(1e-5)))
        chosen = drawn[np.argsort(np.abs(factors - np.rint(factors)) / factors)[:32]]
        real = g.input([32, n], (x, 119))
        g.codes["x%d" % (len(g.inputs) - 1)] = chosen
        weights = g.scaled(g.rng.integers(0, 256, n).astype(np.uint8), scale, int(g.rng.integers(0, 128)))
        g.add("LayerNormalization", [real, weights], [32, n], (y, 128), axis=-1, epsilon=1e-5)


def short_softmax(g):
    for n in range(3, 17):
        shape = [40, n]
        x = (np.float32(np.exp(g.rng.uniform(np.log(0.01), np.log(0.2)))), int(g.rng.integers(0, 256)))
        real = g.input(shape, x)
        below = np.abs(g.rng.normal(0, g.rng.uniform(0.3, 2) / x[0], shape)) + g.rng.integers(0, 20, [40, 1])
        g.codes["x%d" % (len(g.inputs) - 1)] = np.clip(255 - below, 0, 255).astype(g.type)
        y = 1 / 256 if g.rng.integers(0, 2) else np.exp(g.rng.uniform(np.log(0.002), np.log(0.007)))
        g.add("Softmax", [real], shape, (np.float32(y), 0), axis=-1)


def rows(g):
    """Softmax of 2 to 20 elements along any axis, with fine and coarse codes, and with the zero points that count: all in rows of
    2, else 128."""
    for i in range(30):
        n = (2, 2, 3, 4, 6, 9, 13, 16, 17, 20)[i % 10]
        shape, axis = [((30, n), 1), ((1, n, 5, 6), 1), ((1, 5, 6, n), 3), ((5, n, 6), 1), ((5, 6, n), 2)][i // 2 % 5]
        x = (np.float32(np.exp(g.rng.uniform(np.log(5e-4), np.log(1.5)))), int(g.rng.integers(0, 256)))
        real = g.input(shape, x)
        below = np.abs(g.rng.normal(0, g.rng.uniform(0.3, 2) / max(x[0], 0.004), shape)) + g.rng.integers(0, 20)
        g.codes["x%d" % (len(g.inputs) - 1)] = np.clip(255 - below, 0, 255).astype(g.type)
        zero = int(g.rng.integers(0, 256)) if n == 2 else 128 * int(g.rng.integers(0, 2))
        finest = 1.4e-4 if zero == 0 and n > 2 else 2.6e-4
        g.add("Softmax", [real], shape, (np.float32(np.exp(g.rng.uniform(np.log(finest), np.log(0.07)))), zero), axis=axis)


def shares(g):
    """uint16 Softmax along any axis; two of three have a zero point of the output, and are rescaled."""
    for i in range(18):
        n = (3, 4, 7, 12, 16, 21)[i % 6]
        shape, axis = [((8, n), 1), ((1, n, 3, 4), 1), ((3, n, 4), 1)][i // 2 % 3]
        x = (np.float32(np.exp(g.rng.uniform(np.log(6e-5), np.log(0.1)))), int(g.rng.integers(0, 65536)))
        real = g.input(shape, x)
        below = np.abs(g.rng.normal(0, g.rng.uniform(0.3, 2) / x[0], shape)) + g.rng.integers(0, 2000)
        g.codes["x%d" % (len(g.inputs) - 1)] = np.clip(65535 - below, 0, 65535).astype(g.type)
        zero = 0 if i % 3 == 0 else int(g.rng.integers(1, 65536))
        g.add("Softmax", [real], shape, (np.float32(np.exp(g.rng.uniform(np.log(1e-6), np.log(2e-4)))), zero), axis=axis)


SOFTMAX = [[1, 12, 20], [1, 2, 17, 17], [1, 6, 33], [1, 4, 64], [2, 3, 4, 24], [1, 5, 128]]


def softmax(g):
    for shape in SOFTMAX:
        x = (np.float32(np.exp(g.rng.uniform(np.log(0.01), np.log(0.2)))), int(g.rng.integers(0, 256)))
        real = g.input(shape, x)
        below = np.abs(g.rng.normal(0, g.rng.uniform(0.3, 2) / x[0], shape)) + g.rng.integers(0, 20, shape[:-1] + [1])
        g.codes["x%d" % (len(g.inputs) - 1)] = np.clip(255 - below, 0, 255).astype(g.type)
        y = 1 / 256 if g.rng.integers(0, 2) else np.exp(g.rng.uniform(np.log(0.0015), np.log(0.007)))
        g.add("Softmax", [real], shape, (np.float32(y), 0), axis=-1)


def transposed(g):
    """A ConvTranspose by two places whose output has a row and a column more than its windows reach."""
    for kind in ("plain", "bias", "channels", "rectified", "wide"):
        n_in, n_out, rows, columns = (int(g.rng.integers(a, b)) for a, b in ((2, 7), (3, 9), (4, 8), (4, 8)))
        x, size = g.encoding(4), 5 if kind == "wide" else 3
        w = g.rng.integers(-127, 128, [n_in, n_out, size, size]).astype(np.int8)
        scale, axis = np.float32(0.01 * g.rng.uniform(0.5, 2)), None
        if kind in ("channels", "rectified"):
            scale, axis = np.float32(scale * np.exp(g.rng.uniform(-1.5, 0, n_out))), 1
        operands = [g.input([2, n_in, rows, columns], x), g.scaled(w, scale, 0, axis)]
        if kind != "plain":
            bias = g.rng.integers(-20000, 20001, n_out).astype(np.int32)
            operands.append(g.scaled(bias, np.float32(x[0]) * scale, 0, None if axis is None else 0))
        y = (np.float32(float(x[0]) * float(np.max(scale)) * 100 * size * g.rng.uniform(0.7, 1.5)),
             0 if kind == "rectified" else int(g.rng.integers(60, 190)))
        more = {} if kind == "wide" else {"auto_pad": "NOTSET"}  # which ONNX Runtime's preprocessing writes
        g.add("ConvTranspose", operands, [2, n_out, 2 * rows, 2 * columns], y, strides=[2, 2], pads=[size // 2] * 4,
              output_padding=[1, 1], **more)


def means(g, op="ReduceMean"):
    """Multipliers below 1/2 and above, of few elements and of more, along all kinds of axes."""
    for ratio in (1.3, 5.9):
        x = (np.float32(0.05), 230)
        real = g.input([1, 40, 5], x)
        y = (np.float32((0.05 if op == "ReduceMean" else 0.25) / ratio), 132)
        g.add(op, [real, g.constant(np.array([2]))], [1, 40, 1], y, keepdims=1)
    for i in range(24):
        n, rows, columns = (int(v) for v in g.rng.integers(2, 12, 3))
        shape, axes = [([1, 30, n * rows], [2]), ([1, n * rows, 20], [1]), ([40, n], [1]), ([1, n, rows, columns], [2, 3]),
                       ([1, rows, columns, n], [1, 2]), ([1, rows, 20, n], [1])][i % 6]
        count = int(np.prod([shape[axis] for axis in axes]))
        multiplier = np.exp(g.rng.uniform(np.log(0.05), np.log(1.5)))
        x, center = g.encoding(4), g.rng.integers(60, 200)
        if i % 12 == 3:  # in the layout of a Conv
            real = g.add("Conv", [g.input(shape, g.encoding(4)), g.weights([n, n, 1, 1], 0.006)], shape, x)
        else:
            real = g.input(shape, x)
            reach = min(60, 100 / multiplier / count)
            near = x[1] + (center - 128) / 128 * reach + g.rng.uniform(-reach, reach, shape)
            g.codes["x%d" % (len(g.inputs) - 1)] = np.clip(np.rint(near), 0, 255).astype(g.type)
        out = [1 if axis in axes else size for axis, size in enumerate(shape)]
        y = (np.float32(float(x[0]) / (count if op == "ReduceMean" else 1) / multiplier), int(g.rng.integers(60, 200)))
        g.add(op, [real, g.constant(np.array(axes))], out, y, keepdims=1)


def totals(g):
    means(g, "ReduceSum")


def reciprocals(g):
    """Of all codes; one has a code."""
    for i in range(12):
        scale = np.float32(np.exp(g.rng.uniform(np.log(0.004), np.log(0.2))))
        x = (scale, int(g.rng.integers(0, max(1, 256 - round(1 / scale)))) if i % 3 else 0)
        real = g.input([1, 256], x)
        g.codes["x%d" % i] = np.arange(256).reshape(1, 256).astype(g.type)
        y = (np.float32(1 / scale / g.rng.uniform(3, 60) / 255), int(g.rng.integers(0, 200)) if i % 2 else 0)
        g.add("Reciprocal", [real], [1, 256], y)


def is_tied(a, b, y):
    """Whether a multiplier of b lies so near to a half that it depends on how the quotient of scales is rounded."""
    a, b, y = (np.float32(v) for v in (a, b, y))
    bits = 15 - max(0, int(np.floor(np.log2(float(a) / float(y) + float(b) / float(y)))) + 2)
    return len({float(np.rint(float(q) * 2.0 ** bits)) for q in (float(b) / float(y), b / y, b * (np.float32(1) / y))}) > 1


def sums(g):
    """Add with multipliers that are nearly half between two numbers."""
    found = [(0.0216222, 0.09735239, 0.10483218)]
    while len(found) < 8:
        scales = np.exp(g.rng.uniform(np.log(0.01), np.log(0.2), 3)).astype(np.float32)
        if is_tied(*scales):
            found.append(tuple(scales))
    for a, b, y in found:
        zeros = [int(v) for v in g.rng.integers(60, 190, 3)]
        operands = [g.input([40, 40], (np.float32(s), z)) for s, z in zip((a, b), zeros)]
        g.add("Add", operands, [40, 40], (np.float32(y), zeros[2]))


def differences(g):
    """Sub whose operands have smaller scales than the output."""
    for _ in range(8):
        y = np.float32(np.exp(g.rng.uniform(np.log(0.05), np.log(0.5))))
        zeros = [int(v) for v in g.rng.integers(60, 190, 3)]
        operands = [g.input([40, 40], (np.float32(y * np.exp(g.rng.uniform(-3.5, -1.4))), z)) for z in zeros[:2]]
        g.add("Sub", operands, [40, 40], (y, zeros[2]))


def quotients(g):
    """Div of powers of two, which are as near to the end of their range as negative numbers get."""
    for _ in range(8):
        shape, a, b = [16, 40], g.encoding(4), g.encoding(4)
        reals = [g.input(shape, a), g.input(shape, (b[0], int(g.rng.choice([0, 128]))))]
        powers = a[1] + g.rng.choice([-1, 1], shape) * 2 ** g.rng.integers(0, 8, shape)
        g.codes["x%d" % (len(g.inputs) - 2)] = np.clip(powers, 0, 255).astype(g.type)
        scale = np.float32(a[0] / b[0] * np.exp(g.rng.uniform(-5, -2)))
        g.add("Div", reals, shape, (scale, int(g.rng.integers(60, 200))))


SHAPE = [1, 8, 9, 9]


def made_by(g, kind, x):
    """A tensor in the encoding x, in the layout of a Conv or not."""
    made = {"Conv": ["Conv"], "Conv, Add": ["Conv", "Add"], "Batch, Add": ["Batch", "Add"]}.get(kind, [kind])
    real = None
    for op in made:
        y = x if op == made[-1] else g.encoding(4)
        if op == "Conv":
            real = g.add("Conv", [g.input(SHAPE, g.encoding(4)), g.weights([8, 8, 1, 1], 0.006)], SHAPE, y)
        elif op == "Batch":
            real = batch_norm(g, g.input(SHAPE, g.encoding(4)), "bytes")
        elif op == "Add":
            real = g.add("Add", [real or g.input(SHAPE, g.encoding(3)), g.input(SHAPE, g.encoding(3))], SHAPE, y)
        elif op == "MaxPool":
            real = g.add("MaxPool", [g.input([1, 8, 18, 18], y)], SHAPE, y, kernel_shape=[2, 2], strides=[2, 2])
        elif op == "MatMul":
            real = g.add("MatMul", [g.input(SHAPE, g.encoding(4)), g.weights([9, 9], 0.006)], SHAPE, y)
        else:
            real = g.input(SHAPE, y)
    return real


def by_numbers(g):
    """Mul and Div by one number: quotients of scales with which many codes lie next to a half."""
    for kind in ("Conv", "Conv, Add", "Batch, Add", "MaxPool", "MatMul", "Add", "input"):
        for op in ("Mul", "Div"):
            x, number = g.encoding(4), np.float32(0.01) * 200
            near = np.abs((np.arange(-99, 99) * (ratios := g.rng.uniform(0.55, 1.9, [400, 1]))) % 1 - 0.496) < 0.0038
            ratio = float(ratios[np.argmax(near.sum(1)), 0])
            y = float(x[0]) / ratio * (number if op == "Mul" else 1 / number)
            constant = g.real(g.constant(np.uint8(200)), (0.01, 0), np.uint8)
            g.add(op, [made_by(g, kind, x), constant], SHAPE, (np.float32(y), int(g.rng.integers(90, 160))))


def operand(g, kind, zero, n=10):
    """What a MatMul reads second, of that zero point; its codes reach beyond 8 signed bits on either side."""
    x, y = g.encoding(3), g.encoding(3)
    scale, shape = np.float32(x[0] * g.rng.uniform(0.45, 0.6)), [n, n]
    if kind in ("Add", "Sub"):
        operands = [g.input(shape, x), g.input(shape, (x[0], y[1]))]
        scale = np.float32(2.2 * scale)
    elif kind == "Mul":
        operands, scale = [g.input(shape, x), g.input(shape, y)], np.float32(scale * y[0] * 50)
    elif kind in ("Clip", "Div"):
        more = [g.constant(np.float32(v)) for v in (-9, 9)] if kind == "Clip" else [g.real(g.constant(np.uint8(200)), (0.005, 0), np.uint8)]
        operands = [g.input(shape, x), *more]
    else:
        scales, axis = (0.01, None) if kind != "channels" else (g.rng.uniform(0.004, 0.01, n), 1)
        w = g.rng.integers(-127, 128, shape).astype(np.int8)
        w = g.input(shape, (0.01, 128)) if kind == "both" else g.scaled(w, scales, 0, axis)
        operands, scale = [g.input(shape, x), w], np.float32(scale * (2.6 if kind == "channels" else 3.8))
        if kind == "Gemm":
            operands.append(g.scaled(g.rng.integers(-6000, 6000, n).astype(np.int32), x[0] * np.float32(0.01)))
    return g.add({"both": "MatMul", "channels": "Gemm"}.get(kind, kind), operands, shape, (scale, zero)), scale


def moved(g, real, encoding, kind, n=10):
    if kind == "turned":
        return g.add("Transpose", [real], [n, n], encoding, perm=[1, 0]), [n, n]
    if kind == "heads":
        real = g.add("Reshape", [real, g.constant(np.array([n, 2, n // 2]))], [n, 2, n // 2], encoding)
        return g.add("Transpose", [real], [2, n, n // 2], encoding, perm=[1, 0, 2]), [2, n, n // 2]
    if kind == "cut":
        ends = [g.constant(np.array([v])) for v in (1, n - 1, 0)]
        return g.add("Slice", [real, *ends], [n - 2, n], encoding), [n - 2, n]
    return real, [n, n]


OPERANDS = [("MatMul", ""), ("MatMul", "heads"), ("Add", "turned"), ("Sub", ""), ("Gemm", ""), ("both", ""), ("Mul", ""),
            ("Clip", ""), ("Div", ""), ("channels", ""), ("MatMul", "cut"), ("Add", "cut")]


def operands(g):
    """Second operands of a MatMul, with zero points near to 128 and farther."""
    for kind, move in OPERANDS:
        for zero in (int(g.rng.integers(112, 128)), int(g.rng.integers(129, 145)), int(g.rng.choice([111, 145])), 80):
            real, scale = operand(g, kind, zero)
            real, shape = moved(g, real, (scale, zero), move)
            first, x = shape[:-2] + [6, shape[-2]], g.encoding(3)
            out = shape[:-2] + [6, shape[-1]]
            y = np.float32(x[0] * scale * 130 * np.sqrt(shape[-2]))
            g.add("MatMul", [g.input(first, x), real], out, (y, int(g.rng.integers(90, 160))))


def brought(g):
    """Second operands of a MatMul that are brought from 16 bits, or from 8, by no operator, with zero points near to 128 and farther."""
    shape = [2, 24, 10]
    for i, zero in enumerate((60, 113, 128, 141, 170, 120)):
        g.bits, (g.type, g.onnx_type) = (16, concat.TYPES[16]) if i < 5 else (8, concat.TYPES[8])
        x = g.encoding(4)
        real = g.input(shape, x)
        if i % 2:
            real = g.add("Add", [real, g.input(shape, x)], shape, x)
        x = (np.float32(x[0] * 2 ** (g.bits - 8) * g.rng.uniform(0.5, 0.8)), zero)
        g.bits, (g.type, g.onnx_type) = 8, concat.TYPES[8]
        real = g.quantise(real, shape, x)
        g.add("MatMul", [g.input([2, 12, 24], (np.float32(0.02), 128)), real], [2, 12, 10], (np.float32(x[0] * 8), 120))


def sloped(g):
    """A LeakyRelu behind a MatMul or Gemm, which v73 makes in one operation."""
    for kind in ("plain", "bias", "channels"):
        n_in, n = int(g.rng.integers(3, 21)), int(g.rng.integers(2, 9))
        x, w, scale, axis = g.encoding(4), g.rng.integers(-127, 128, [n_in, n]).astype(np.int8), np.float32(0.01), None
        if kind == "channels":
            scale, axis = np.float32(scale * np.exp(g.rng.uniform(-1.5, 0, n))), 1
        operands = [g.input([40, n_in], x), g.scaled(w, scale, 0, axis)]
        if kind != "plain":
            bias = g.rng.integers(-2 ** g.bits * 20, 2 ** g.bits * 20, n).astype(np.int32)
            operands.append(g.scaled(bias, np.float32(x[0]) * scale, 0, None if axis is None else 0))
        reach = float(x[0]) * 0.01 * 70 * 2 ** (g.bits - 2) * np.sqrt(n_in)
        made = g.add("Gemm" if kind != "plain" else "MatMul", operands, [40, n], g.encoding(reach))
        y = (np.float32(reach / 2 ** (g.bits - 1) * g.rng.uniform(0.3, 1.2)), int(g.rng.integers(1, 2 ** g.bits // 4)))
        g.add("LeakyRelu", [made], [40, n], y, alpha=float(g.rng.choice([0.01, 0.05, 0.1, 0.2, 0.3])))


def enlarged(g):
    """A Resize between the elements, by 2 x 2, that reads an input of the graph in floats."""
    for kind in ("wide", "positive", "flat", "line", "plain"):
        shape = [1, int(g.rng.integers(2, 6)), 1 if kind == "line" else int(g.rng.integers(2, 9)), int(g.rng.integers(2, 9))]
        name, reach = "x%d" % len(g.inputs), np.exp(g.rng.uniform(-2, 2))
        values = g.rng.uniform(0 if kind == "positive" else -reach, reach, shape).astype(np.float32)
        if kind == "flat":
            values = np.round(values / reach * 2).astype(np.float32) * np.float32(reach)
        g.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        g.codes[name] = values
        low, high = float(values.min()), float(values.max())
        y = np.float32((max(high, 0) - min(low, 0)) / (2 ** g.bits - 1))
        attributes = {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel" if kind == "plain" else "half_pixel"}
        g.add("Resize", [name, "", g.constant(np.array([1, 1, 2, 2], np.float32))], shape[:2] + [2 * n for n in shape[2:]],
              (y, int(round(-min(low, 0) / float(y)))), **attributes)
    for side in (3, 8):   # of codes, to another encoding
        x, y = g.encoding(2), g.encoding(2)
        g.add("Resize", [g.input([1, 3, side, 7], x), "", g.constant(np.array([1, 1, 2, 2], np.float32))], [1, 3, 2 * side, 14], y,
              mode="linear", coordinate_transformation_mode="half_pixel")


def swished(g):
    """A HardSwish behind a MatMul or Gemm, which v73 makes in one operation; "steep": of great numbers, "small": of sums beyond its
    range."""
    for kind in ("plain", "bias", "channels", "steep", "small"):
        n_in, n = int(g.rng.integers(3, 21)), int(g.rng.integers(2, 9))
        reach = 60 if kind == "steep" else np.exp(g.rng.uniform(0, 2.5))
        x, w, axis = g.encoding(4), g.rng.integers(-127, 128, [n_in, n]).astype(np.int8), None
        scale = np.float32(reach / (float(x[0]) * 70 * 2 ** (g.bits - 2) * np.sqrt(n_in)))
        if kind == "channels":
            scale, axis = np.float32(scale * np.exp(g.rng.uniform(-1.5, 0, n))), 1
        operands = [g.input([40, n_in], x), g.scaled(w, scale, 0, axis)]
        if kind in ("bias", "channels"):
            bias = g.rng.integers(-2 ** g.bits * 20, 2 ** g.bits * 20, n).astype(np.int32)
            operands.append(g.scaled(bias, np.float32(x[0]) * scale, 0, None if axis is None else 0))
        made = g.add("Gemm" if kind in ("bias", "channels") else "MatMul", operands, [40, n], g.encoding(reach))
        top = reach * (0.1 if kind == "small" else g.rng.uniform(0.7, 1.2))
        y = np.float32((top + 0.375) / (2 ** g.bits - 1))
        g.add("HardSwish", [made], [40, n], (y, int(0.375 / float(y))))


def floats(g):
    """Layers that read an input of the graph in floats."""
    shape = [1, 4, 9, 12]
    resize = ["", g.constant(np.array([1, 1, 2, 2], np.float32))]
    cases = [("Relu", [], shape, {}), ("Clip", [g.constant(np.float32(0)), g.constant(np.float32(1.3))], shape, {}),
             ("Gather", [g.constant(np.array([0, 2, 3]))], [1, 3, 9, 12], {"axis": 1}), ("Flatten", [], [1, 432], {"axis": 1}),
             ("AveragePool", [], [1, 4, 3, 4], {"kernel_shape": [3, 3], "strides": [3, 3]}),
             ("Pad", [g.constant(np.array([0, 0, 1, 1, 0, 0, 1, 1]))], [1, 4, 11, 14], {"mode": "constant"}),
             ("Resize", resize, [1, 4, 18, 24],
              {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}),
             ("AveragePool", [], [1, 4, 4, 6], {"kernel_shape": [2, 2], "strides": [2, 2]}),
             ("AveragePool", [], shape, {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1}),
             ("AveragePool", [], [1, 4, 7, 10], {"kernel_shape": [3, 3]})]
    if g.bits == 16:
        cases.append(("Slice", [g.constant(np.array([n])) for n in (1, 7, 2, 1)], [1, 4, 6, 12], {}))
    for op, more, out, attributes in cases:
        name, reach = "x%d" % len(g.inputs), np.exp(g.rng.uniform(-2, 2))
        g.codes[name] = (g.rng.normal(0, 1, shape) * reach / 3).astype(np.float32)
        g.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        is_positive = op in ("Relu", "Clip")
        scale = np.float32(reach * g.rng.uniform(0.6, 1.2) / 2 ** (g.bits - (0 if is_positive else 1)))
        g.add(op, [name, *more], out, (scale, 0 if is_positive else int(g.rng.integers(2 ** g.bits // 4, 2 ** g.bits // 4 * 3))),
              **attributes)
    for op, bounds in (("Relu", []), ("Clip", [0, 0.77])):   # behind a Slice, all in floats
        name, reach = "x%d" % len(g.inputs), np.exp(g.rng.uniform(-2, 2))
        g.codes[name] = (g.rng.normal(0, 1, shape) * reach / 2).astype(np.float32)
        g.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        cut = [g.constant(np.array([n])) for n in (1, 7, 2)]
        g.nodes.append(helper.make_node("Slice", [name, *cut], [name + "_cut"], name=name + "_cut"))
        g.add(op, [name + "_cut", *(g.constant(np.float32(b * reach)) for b in bounds)], [1, 4, 6, 12],
              (np.float32(reach * g.rng.uniform(0.8, 1.2) / 2 ** g.bits), 0))


def near_halves(g):
    """An AveragePool of 3 x 3 by steps of one, of windows chosen so that it shows how their sum is rounded: as float32 place by place, once,
    or not at all."""
    windows = g.rng.normal(0, 1, [2000000, 9]).astype(np.float16)
    products = windows.astype(np.float64) * np.float64(np.float16(1 / 9))
    exact, by_place = products.sum(1), np.zeros(len(windows), np.float32)
    for i in range(9):
        by_place = (by_place + products[:, i]).astype(np.float32)
    shown = (exact.astype(np.float32).astype(np.float16) != by_place.astype(np.float16)) | (exact.astype(np.float32).astype(np.float16) != exact.astype(np.float16))
    chosen, shape = windows[shown][:40], [1, 2, 12, 15]
    g.codes["x0"] = chosen.reshape(2, 4, 5, 3, 3).transpose(0, 1, 3, 2, 4).reshape(shape).astype(np.float32)
    g.inputs.append(helper.make_tensor_value_info("x0", TensorProto.FLOAT, shape))
    g.add("AveragePool", ["x0"], [1, 2, 10, 13], (np.float32(2 ** -14), 32768), kernel_shape=[3, 3])


def chained(g):
    """A MaxPool or a Resize to the nearest that reads what other float operators made of a graph input."""
    for i in range(12):
        shape, name, reach = [1, int(g.rng.integers(1, 7)), 8, int(g.rng.integers(4, 12))], "x%d" % len(g.inputs), np.exp(g.rng.uniform(-2, 2))
        g.codes[name] = (g.rng.normal(0, 1, shape) * reach / 3).astype(np.float32)
        g.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        made = name + "_made"
        bounds = [g.constant(np.float32(b * reach)) for b in (-0.4, 0.5)] if i % 3 == 1 else []
        pool = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
        op = ("MaxPool", "Clip", "Relu")[i % 3]
        g.nodes.append(helper.make_node(op, [name, *bounds], [made], name=made, **(pool if op == "MaxPool" else {})))
        if i % 4 == 3:   # brought to other axes and back
            ways = [g.constant(np.array(v)) for v in ([*shape[:2], 2, 4, shape[3]], [shape[0], shape[1], 8, shape[3]])]
            g.nodes += [helper.make_node("Reshape", [made, ways[0]], [made + "_parts"], name=made + "_parts"),
                        helper.make_node("Transpose", [made + "_parts"], [made + "_turned"], name=made + "_turned", perm=[0, 1, 3, 2, 4]),
                        helper.make_node("Reshape", [made + "_turned", ways[1]], [made + "_back"], name=made + "_back")]
            made += "_back"
        y = (np.float32(reach * g.rng.uniform(0.6, 1.2) / 2 ** (g.bits - 1)), int(g.rng.integers(2 ** g.bits // 4, 2 ** g.bits // 4 * 3)))
        if i % 2:
            g.add("MaxPool", [made], shape, y, **pool)
        else:
            g.add("Resize", [made, "", g.constant(np.array([1, 1, 2, 2], np.float32))], [*shape[:2], 16, 2 * shape[3]], y,
                  mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")


def carried(g):
    """What a Gather of a graph input in floats made, on other axes; of words turned, too."""
    for op, out, more, attributes in (("Reshape", [1, 5, 60], [np.array([1, 5, 60])], {}), ("Flatten", [1, 300], [], {"axis": 1}),
                                      ("Unsqueeze", [1, 1, 12, 25], [np.array([1])], {}), ("Transpose", [1, 25, 12], [], {"perm": [0, 2, 1]})):
        if op == "Transpose" and g.bits == 8:
            continue
        name = "x%d" % len(g.inputs)
        g.codes[name] = g.rng.normal(0, 1, [1, 2, 12, 25]).astype(np.float32)
        g.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 2, 12, 25]))
        g.nodes.append(helper.make_node("Gather", [name, g.constant(np.array(1))], [name + "_row"], name=name + "_row", axis=1))
        g.add(op, [name + "_row", *map(g.constant, more)], out, (np.float32(6.1 / 2 ** g.bits), 2 ** g.bits // 2), **attributes)


def rows_transposed(g):
    """ConvTranspose of rows."""
    for kernel, stride, padding, n, has_bias in ((8, 4, 2, 1, True), (3, 2, 1, 5, False), (4, 1, 1, 3, True), (8, 2, 3, 2, True)):
        x, scale, length = (np.float32(4 / 2 ** g.bits), 2 ** (g.bits - 1) - 77), np.float32(0.008), 19
        operands = [g.input([1, 7, length], x), g.scaled(g.rng.integers(-127, 128, [7, n, kernel]).astype(np.int8), scale)]
        if has_bias:
            operands.append(g.scaled(np.rint(g.rng.uniform(-1, 1, n) / (x[0] * scale)).astype(np.int32), x[0] * scale))
        out = (length - 1) * stride + kernel - 2 * padding
        y = (np.float32(5 * (7 * kernel / stride) ** 0.5 / 2 ** g.bits), 2 ** (g.bits - 1))
        g.add("ConvTranspose", operands, [1, n, out], y, kernel_shape=[kernel], strides=[stride], pads=[padding] * 2)


def given(g):
    """Floats of the graph that are moved before they are quantised, and read."""
    def ints(*values):
        return g.constant(np.array(values))

    for op, before, out, more, attributes in (
            ("Transpose", [1, 8, 9, 6], [1, 6, 8, 9], lambda: [], {"perm": [0, 3, 1, 2]}),
            ("Transpose", [1, 12, 20], [1, 20, 12], lambda: [], {"perm": [0, 2, 1]}),
            ("Reshape", [1, 6, 8, 9], [1, 6, 72], lambda: [ints(1, 6, 72)], {}),
            ("Unsqueeze", [12, 20], [12, 1, 20], lambda: [ints(1)], {}), ("Squeeze", [1, 12, 20], [12, 20], lambda: [ints(0)], {}),
            ("Slice", [1, 6, 8, 9], [1, 4, 8, 9], lambda: [ints(1), ints(5), ints(1)], {}),
            ("MaxPool", [1, 6, 8, 8], [1, 6, 4, 4], lambda: [], {"kernel_shape": [2, 2], "strides": [2, 2]})):
        name, reach = "x%d" % len(g.inputs), np.exp(g.rng.uniform(-2, 2))
        g.codes[name] = (g.rng.normal(0, 1, before) * reach / 2.5).astype(np.float32)
        g.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, before))
        y = (np.float32(reach * g.rng.uniform(0.6, 1.2) / 2 ** (g.bits - 1)), int(g.rng.integers(2 ** g.bits // 4, 2 ** g.bits // 4 * 3)))
        g.add("Add", [g.add(op, [name, *more()], out, y, **attributes), g.input(out, g.encoding(3))], out, g.encoding(4))


def pads(g):
    """Pad with another encoding, of what a Conv or an Add made; of uint8 of a graph input, too."""
    for kind in ("Conv", "Add", "Conv", "Add") + (("input", "input") if g.bits == 8 else ()):
        shape, x = [1, 4, 9, 9], g.encoding(4)
        if kind == "Conv":
            real = g.add("Conv", [g.input(shape, g.encoding(4)), g.weights([4, 4, 1, 1], 0.006)], shape, x)
        elif kind == "Add":
            real = g.add("Add", [g.input(shape, g.encoding(3)), g.input(shape, g.encoding(3))], shape, x)
        else:
            real = g.input(shape, x)
        y = (np.float32(x[0] * np.exp(g.rng.uniform(-0.8, 0.8))), int(g.rng.choice([0, 2 ** g.bits // 3])))
        g.add("Pad", [real, g.constant(np.array([0, 0, 1, 2, 0, 0, 1, 0]))], [1, 4, 11, 11], y, mode="constant")


def bent(g):
    """uint16 PRelu between two Conv: the provider cannot make it elsewhere."""
    for n in (3, 8, 16):
        shape, x = [1, n, 8, 8], g.encoding(4)
        conv = [g.input([1, 4, 8, 8], g.encoding(4)), g.weights([n, 4, 3, 3], 0.006)]
        slopes = g.scaled(g.rng.integers(1, 65536, [n, 1, 1]).astype(np.uint16), g.rng.uniform(0.05, 0.9) / 65535)
        y = (np.float32(x[0] * np.exp(g.rng.uniform(-1.5, 0.5))), int(g.rng.integers(2000, 40000)))
        made = g.add("PRelu", [g.add("Conv", conv, shape, x, pads=[1, 1, 1, 1]), slopes], shape, y)
        g.add("Conv", [made, g.weights([4, n, 3, 3], 0.006)], [1, 4, 8, 8], g.encoding(4), pads=[1, 1, 1, 1])


def planes(g):
    """uint16 means, sums and maxima of the planes of what lies in the layout of a Conv, and of what does not."""
    for i in range(15):
        rows, columns = (int(n) for n in g.rng.integers(3, 23, 2))
        shape = [1, 6, rows, columns]
        real = x = None
        if i % 5 == 0:
            x = g.encoding(4)
            real = g.input(shape, x)
        elif i % 5 == 1:
            x = g.encoding(4)
            real = g.add("Add", [g.input(shape, g.encoding(3)), g.input(shape, g.encoding(3))], shape, x)
        else:
            x = g.encoding(4)
            real = g.add("Conv", [g.input(shape, g.encoding(4)), g.weights([6, 6, 1, 1], 0.006)], shape, x)
        if i % 5 == 3:
            x = g.encoding(4)
            real = g.add("Add", [real, g.input(shape, g.encoding(3))], shape, x)
        if i % 5 == 4:
            x = (np.float32(2.0 ** -16), 0)
            real = g.add("Sigmoid", [real], shape, x)
        op = "ReduceMean" if i < 7 else "ReduceSum" if i < 10 else "ReduceMax"
        reach = x[0] * np.exp(g.rng.uniform(-3, -0.1))
        if op == "ReduceSum":
            reach *= rows * columns
        if op == "ReduceMax":
            reach = x[0] * np.exp(g.rng.uniform(-1.2, 1.2))
        g.add(op, [real, g.constant(np.array([2, 3]))], [1, 6, 1, 1], (np.float32(reach), int(g.rng.integers(10000, 40000))), keepdims=1)


def narrow(g):
    """uint16 Relu and Clip with another scale, as operations of their own: of what lies in blocks, as a Conv writes it, and of what is
    flat."""
    gate = (np.float32(2.0 ** -16), 0)

    def start(shape):
        x = g.encoding(4)
        return g.input(shape, x), shape, x

    def then(op, made, shape=None, x=None, more=(), **attributes):
        real, before, same = made
        shape, x = shape or before, x or same
        return g.add(op, [real, *more], shape, x, **attributes), shape, x

    def ints(*values):
        return g.constant(np.array(values))

    def conv(made):
        return then("Conv", made, None, g.encoding(4), [g.weights([6, 6, 1, 1], 0.006)])

    def pool(op="MaxPool", channels=6):
        return then(op, start([1, channels, 16, 16]), [1, channels, 8, 8], kernel_shape=[2, 2], strides=[2, 2])

    def shuffle(mode):
        return then("DepthToSpace", start([1, 24, 4, 4]), [1, 6, 8, 8], blocksize=2, mode=mode)

    def resized(made):
        nearest = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        return then("Resize", made, [1, 6, 16, 16], None, ["", g.constant(np.array([1, 1, 2, 2], np.float32))], **nearest)

    def product(op):
        shape = [20, 64] if op == "Gemm" else [1, 20, 64]
        return then(op, start(shape), [*shape[:-1], 48], (np.float32(5e-4), 30000), [g.weights([64, 48], 0.004)])

    def normalised(made):
        return then("LayerNormalization", made, None, g.encoding(4), [g.weights([made[1][-1]], 0.006)], axis=-1)

    makers = [
        lambda: pool(), lambda: pool("AveragePool"), lambda: then("Sigmoid", conv(start([1, 6, 8, 8])), None, gate),
        lambda: then("LeakyRelu", conv(start([1, 6, 8, 8])), None, g.encoding(4), alpha=0.1),
        lambda: then("Slice", pool(), [1, 5, 8, 8], None, [ints(0), ints(5), ints(1)]),
        lambda: then("Slice", start([1, 6, 8, 8]), [1, 5, 8, 8], None, [ints(0), ints(5), ints(1)]),
        lambda: start([1, 6, 8, 8]), lambda: resized(start([1, 6, 8, 8])), lambda: shuffle("CRD"), lambda: shuffle("DCR"),
        lambda: then("Sigmoid", shuffle("CRD"), None, gate), lambda: then("SpaceToDepth", pool(), [1, 24, 4, 4], blocksize=2),
        lambda: then("Gather", pool(), [1, 4, 8, 8], None, [ints(0, 2, 1, 5)], axis=1),
        lambda: then("Transpose", pool(), [1, 8, 6, 8], perm=[0, 2, 1, 3]),
        lambda: then("Reshape", start([1, 6, 8, 8]), [1, 6, 64], None, [ints(1, 6, 64)]),
        lambda: then("Transpose", start([1, 6, 8, 8]), [1, 8, 6, 8], perm=[0, 2, 1, 3]),
        lambda: then("Sigmoid", product("MatMul"), None, gate), lambda: then("Tanh", product("Gemm"), None, (np.float32(2.0 ** -15), 32768)),
        lambda: normalised(start([1, 20, 64])), lambda: then("Softmax", start([1, 6, 8, 8]), None, (np.float32(2e-5), 0), axis=-1),
        lambda: then("Gelu", product("MatMul"), None, g.encoding(4)),
        lambda: then("Sigmoid", then("Mul", pool(), None, g.encoding(8), [start([1, 6, 8, 8])[0]]), None, gate),
    ]
    for i, make in enumerate(makers):
        real, shape, x = make()
        scale = np.float32(x[0] * np.exp(g.rng.uniform(-1.5, 2)))
        if i % 4 < 2:   # cuts nothing off: the provider leaves it out
            g.add("Relu", [real], shape, (scale, 0))
        elif i % 4 == 2:
            top = np.float32(65535 * scale)
            g.add("Clip", [real, g.constant(np.float32(0)), g.constant(top)], shape, (scale, 0))
        else:           # cuts something off
            g.add("Relu", [real], shape, (scale, int(g.rng.integers(2000, 20000))))


def narrowed(g):
    """A Relu of what a Conv or an Add made, moved about before: the device makes all of it in the encoding of the Relu."""
    for kind in ("Conv", "Add"):
        for move, out in (("Slice", [1, 8, 6, 9]), ("Reshape", [1, 8, 3, 27])):
            x = g.encoding(4)
            more = [np.array([1]), np.array([7]), np.array([2])] if move == "Slice" else [np.array(out)]
            real = g.add(move, [made_by(g, kind, x), *(g.constant(v) for v in more)], out, x)
            g.add("Relu", [real], out, (np.float32(x[0] * g.rng.uniform(0.4, 0.9)), 0))


def product_of(g, op, kind, n=6):
    """A Conv, Gemm or MatMul: its real values, shape and encoding."""
    shape, x, top = [40, 12] if op == "Gemm" else [1, n, 9, 9], g.encoding(4), 2 ** g.bits
    attributes = {"pads": [1, 1, 1, 1]} if op == "Conv" else {}
    weights = {"Conv": [n, n, 3, 3], "Gemm": [12, 16], "MatMul": [9, 9]}[op]
    if kind in ("groups", "depthwise"):
        attributes["group"] = n // 2 if kind == "groups" else n
        weights[1] //= attributes["group"]
    axis, n_inner = (0, np.prod(weights[1:])) if op == "Conv" else (1, weights[0])
    scale, per = np.float32(0.006 * g.rng.uniform(0.5, 2)), None
    if kind == "channels":
        scale, per = np.float32(scale * np.exp(g.rng.uniform(-1.5, 0, weights[axis]))), axis
    operands = [g.input(shape, x), g.scaled(g.rng.integers(-127, 128, weights).astype(np.int8), scale, 0, per)]
    if kind in ("bias", "channels") and op != "MatMul":
        bias = g.rng.integers(-20 * top, 20 * top, weights[axis]).astype(np.int32)
        operands.append(g.scaled(bias, np.float32(x[0]) * scale, 0, None if per is None else 0))
    y = (np.float32(float(x[0]) * float(np.max(scale)) * 60 * np.sqrt(n_inner) * g.rng.uniform(0.7, 1.5)), int(g.rng.integers(top // 4, top * 3 // 4)))
    out = shape if op == "Conv" else [*shape[:-1], weights[1]]
    return g.add(op, operands, out, y, **attributes), out, y


RAISED = [("Conv", "plain", "turned"), ("Conv", "bias", ""), ("Conv", "channels", "cut"), ("Conv", "groups", ""), ("Conv", "depthwise", ""),
          ("MatMul", "plain", ""), ("MatMul", "plain", "cut"), ("MatMul", "channels", "turned"), ("Gemm", "bias", ""), ("Gemm", "channels", "")]


def raised(g):
    """A Relu whose zero point is not 0, of what a product made, moved about before or not."""
    for op, kind, move in RAISED:
        real, shape, x = product_of(g, op, kind)
        if move == "turned":
            shape = [shape[i] for i in (0, 2, 1, 3)]
            real = g.add("Transpose", [real], shape, x, perm=[0, 2, 1, 3])
        elif move == "cut":
            real = g.add("Slice", [real, *(g.constant(np.array([v])) for v in (1, 7, 3))], shape := [*shape[:3], 6], x)
        y = (np.float32(x[0] * g.rng.uniform(0.4, 1.2)), int(g.rng.integers(1, 2 ** g.bits * 3 // 4)))
        g.add("Relu", [real], shape, y)


def steep(g):
    """A Relu whose zero point is not 0, of a Conv that has few values in each step of the output."""
    for move in (False, True):
        shape, x, scale = [1, 2, 9, 9], g.encoding(4), np.float32(0.006 * g.rng.uniform(0.5, 2))
        weights = g.scaled(g.rng.integers(-12, 13, [5, 2, 1, 1]).astype(np.int8), scale, 0)
        y = (np.float32(x[0] * scale * g.rng.uniform(4, 9)), int(g.rng.integers(64, 192)))
        real = g.add("Conv", [g.input(shape, x), weights], shape := [1, 5, 9, 9], y)
        if move:
            real = g.add("Slice", [real, *(g.constant(np.array([v])) for v in (1, 7, 3))], shape := [1, 5, 9, 6], y)
        g.add("Relu", [real], shape, (np.float32(y[0] * g.rng.uniform(0.5, 1.1)), int(g.rng.integers(20, 160))))


def interpolated(g):
    """Resize between the elements, in the encoding of its input: of a graph input, of a Conv, and before a Concat."""
    quotients = [0.5, 1, 2, 4] + ([8] if g.bits == 16 else [])
    for i in range(12):
        rows, columns = (4 * int(n) for n in g.rng.integers(1, 3, 2))
        shape, x = [1, int(g.rng.integers(1, 8)), rows, columns], g.encoding(4)
        mode = ("half_pixel", "pytorch_half_pixel", "asymmetric")[i % 3]
        by = [float(q) for q in g.rng.choice(quotients, 2)] if i % 2 else [2, 4]
        if g.bits == 16 and mode == "asymmetric" and by == [2, 2]:
            by = [2, 4]
        real = g.input(shape, x)
        if i % 4 == 3:
            real = g.add("Conv", [g.input(shape, g.encoding(4)), g.weights([shape[1], shape[1], 1, 1], 0.008)], shape, x)
        out = [*shape[:2], int(rows * by[0]), int(columns * by[1])]
        how = ["", g.constant(np.array([1, 1, *by], np.float32))] if i % 2 else ["", "", g.constant(np.array(out))]
        made = g.add("Resize", [real, *how], out, x, mode="linear", coordinate_transformation_mode=mode)
        if i % 4 == 3:
            g.add("Concat", [made, g.input(out, g.encoding(4))], [1, 2 * out[1], *out[2:]], g.encoding(4), axis=1)


def doubled(g):
    """uint16 Resize between the elements, asymmetric by 2 x 2: of a graph input, of a Conv, and before a Concat."""
    for i in range(6):
        shape, x = [1, int(g.rng.integers(1, 8)), int(g.rng.integers(2, 12)), int(g.rng.integers(2, 12))], g.encoding(4)
        real = g.input(shape, x)
        if i % 2:
            real = g.add("Conv", [g.input(shape, g.encoding(4)), g.weights([shape[1], shape[1], 1, 1], 0.008)], shape, x)
        out = [*shape[:2], 2 * shape[2], 2 * shape[3]]
        made = g.add("Resize", [real, "", g.constant(np.array([1, 1, 2, 2], np.float32))], out, x, mode="linear", coordinate_transformation_mode="asymmetric")
        if i > 3:
            g.add("Concat", [made, g.input(out, g.encoding(4))], [1, 2 * out[1], *out[2:]], g.encoding(4), axis=1)


def aligned(g):
    """uint16 Resize between the elements by any factor, also with its corners aligned; the last two by steps of a half."""
    for i, mode in enumerate(2 * ["align_corners", "half_pixel", "asymmetric"] + 2 * ["align_corners"]):
        rows, columns = (int(n) for n in g.rng.integers(2, 12, 2))
        by = g.rng.uniform(0.6, 3.5, 2)
        out = [2 * rows - 1, 2 * columns - 1] if i > 5 else [max(int(rows * by[0]), 2), max(int(columns * by[1]), 3)]
        shape, x = [1, 12, rows, columns], g.encoding(4)
        how = ["", "", g.constant(np.array([*shape[:2], *out]))]
        g.add("Resize", [g.input(shape, x), *how], [*shape[:2], *out], x, mode="linear", coordinate_transformation_mode=mode)


def whole(g):
    """AveragePool whose one window is the plane: of a graph input, and of a Conv."""
    for i, (rows, columns, stride) in enumerate(((2, 2, 1), (2, 2, 2), (3, 3, 1), (3, 3, 3), (5, 5, 1), (4, 4, 1), (7, 3, 1), (8, 8, 8))):
        x, shape = g.encoding(4), [1, 200, rows, columns]
        real = g.input(shape, x)
        if i % 2:
            real = g.add("Conv", [real, g.weights([200, 200, 1, 1], 0.002)], shape, x)
        y = (np.float32(x[0] * np.exp(g.rng.uniform(-1, 0.5))), 2 ** (g.bits - 1) + 5)
        g.add("AveragePool", [real], [1, 200, 1, 1], y, kernel_shape=[rows, columns], strides=[stride] * 2)


def renamed(g):
    """One operator and, with no quantiser between, what names other axes of what it makes."""
    op = g.bare

    def ints(*values):
        return g.constant(np.array(values, np.int64))

    n, rows, columns = 160, 6, 5
    shape, x, y = [1, n, rows, columns], g.encoding(4), g.encoding(3)
    for kind in ("input", "Conv"):
        real = g.input(shape, x)
        if kind == "Conv":
            real = g.add("Conv", [real, g.weights([n, n, 1, 1], 0.002)], shape, y)
        mean = op("ReduceMean", [real, ints(-1, -2)], keepdims=1)
        g.add("Reshape", [mean, ints(1, n)], [1, n], g.encoding(1))
        mean = op("ReduceMean", [real, ints(2)], keepdims=1)
        g.add("Squeeze", [mean, ints(2)], [1, n, columns], g.encoding(1))
        made = op("Squeeze", [op("Conv", [real, g.weights([3, n, 1, 1], 0.002)]), ints(0)])
        g.add("Unsqueeze", [made, ints(0, 1)], [1, 1, 3, rows, columns], g.encoding(3))
        pooled = op("AveragePool", [real], kernel_shape=[3, 3], strides=[3, 3])
        g.add("Reshape", [pooled, ints(1, n, -1)], [1, n, 2], g.encoding(3))


def pooled(g):
    """uint16 means of places that overlap: products, and means of float32."""
    for i in range(24):
        size, stride, pad, counts = ((3, 1, 0, 0), (3, 2, 0, 0), (3, 1, 1, 1), (3, 2, 1, 1), (3, 2, 1, 0), (2, 1, 0, 0))[i % 6]
        x, n, rows, columns = g.encoding(4), int(g.rng.integers(2, 7)), int(g.rng.integers(7, 14)), int(g.rng.integers(7, 14))
        shape, y = [1, n, rows, columns], (np.float32(x[0] * np.exp(g.rng.uniform(-1, 1.2))), int(g.rng.integers(16000, 50000)))
        real = g.input(shape, x)
        near = x[1] + g.rng.integers(-3500, 3500, [1, n, 1, 1]) + g.rng.integers(-5000, 5000, shape)
        g.codes["x%d" % (len(g.inputs) - 1)] = np.clip(near, 0, 65535).astype(g.type)
        out = [(side + 2 * pad - size) // stride + 1 for side in (rows, columns)]
        g.add("AveragePool", [real], [1, n, *out], y, kernel_shape=[size] * 2, strides=[stride] * 2, pads=[pad] * 4, count_include_pad=counts)


def turned(g):
    """Transposes to another encoding: of what lies flat, and of what a pool lays out as a Conv does."""
    shape = [1, 6, 8, 10]   # 480 codes: what does not fill a vector of 128 at the end is rounded down
    for is_pooled in (False, True):
        for perm in ([0, 1, 3, 2], [0, 2, 1, 3], [0, 2, 3, 1] if is_pooled else [0, 3, 2, 1]):
            x = g.encoding(4)
            real = g.input(shape, x)
            if is_pooled:
                real = g.add("MaxPool", [real], shape, x, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
            elif perm == [0, 2, 1, 3]:
                x = (np.float32(1 / 256), 0)
                real = g.add("Sigmoid", [real], shape, x)
            y = (np.float32(x[0] * g.rng.uniform(0.5, 2.2)), int(g.rng.integers(40, 200)))
            g.add("Transpose", [real], [shape[i] for i in perm], y, perm=perm)


def is_half(a, y, bits):
    """Whether the multiplier that brings a to y lies so near to a half that it depends on how the quotient is rounded."""
    exact, ways = float(a) / float(y), (float(a / y), float(a * (np.float32(1) / y)))
    return len({int(np.rint(way * 2 ** bits)) for way in (exact, *ways)}) > 1


def halved(g):
    """uint16 Add and Sub, broadcast or not, whose multipliers lie half between two numbers, or next to 2^15."""
    shape = [1, 2, 3, 16]
    for k, spread in enumerate([shape, [16], [], [3, 1], [1, 2, 1, 1], [1, 1, 1, 16], shape, [2, 1, 16]] * 2):
        while True:
            y = np.float32(np.exp(g.rng.uniform(np.log(1e-5), np.log(1e-3))))
            bits = int(g.rng.integers(12, 17))
            middle = 2 ** 15 - g.rng.uniform(0, 0.5) if k % 8 in (0, 2) else int(g.rng.integers(2 ** 14, 2 ** 15 - 1)) + 0.5
            a = np.float32(middle / 2 ** bits * float(y))
            if k % 8 in (0, 2) or is_half(a, y, bits):
                break
        whole = g.input(shape, (a, int(g.rng.integers(0, 2 ** 16))))
        b = (np.float32(a * g.rng.uniform(0.01, 0.9)), int(g.rng.integers(0, 2 ** 16)))
        other = g.input(shape, b) if spread == shape else g.scaled(g.rng.integers(0, 2 ** 16, spread).astype(np.uint16), *b)
        is_sum = k < 8
        operands = [other, whole] if is_sum and k % 2 else [whole, other]
        g.add("Add" if is_sum else "Sub", operands, shape, (y, int(g.rng.integers(0, 2 ** 16))))


def numbered(g):
    """uint16 Mul, Div and Sub by one number: before a MatMul, which wants its input in blocks, and before none."""
    shape, n = [1, 6, 16], 16
    for k, op in enumerate(("Mul", "Div", "Sub", "Mul", "Sub", "Mul")):
        x = (np.float32(np.exp(g.rng.uniform(np.log(1e-5), np.log(1e-3)))), int(g.rng.integers(0, 2 ** 16)))
        code, zero = (0, 2 ** 16 - 1) if op == "Sub" and k == 2 else (int(g.rng.integers(20000, 2 ** 16)), 0)
        scale = np.float32(np.exp(g.rng.uniform(np.log(1e-5), np.log(1e-4))))
        number, ratio = (code - zero) * float(scale), np.exp(g.rng.uniform(np.log(0.1), np.log(4)))
        if op == "Sub":
            y = (np.float32(x[0] / ratio), 30000)
            scale = np.float32(y[0] * 0.3)
        else:
            y = (np.float32(x[0] * (number if op == "Mul" else 1 / number) / ratio), int(g.rng.integers(0, 2 ** 16)))
        made = g.add(op, [g.input(shape, x), g.scaled(np.uint16(code), scale, zero)], shape, y)
        if k < 5:
            g.add("MatMul", [made, g.weights([n, 2], 0.01)], shape[:2] + [2], (np.float32(y[0] * 4), 30000))


def left_out(g):
    """A Clip with its own encoding behind a Conv, an Add and a Mul: which cuts at one end, at both or at none."""
    unit, middle, shape = (1, 128, [1, 4, 5, 5]) if g.bits == 8 else (1 / 257, 32768, [1, 4, 5, 5])
    for op in ("Conv", "Add", "Mul"):
        for low, high in ((-1e30, 1.0), (-1.0, 1e30), (-1.0, 1.0), (-1e30, 1e30)):
            x, y = (np.float32(0.05 * unit), middle), (np.float32(g.rng.uniform(0.04, 0.08) * unit), int(middle * g.rng.uniform(0.7, 1.2)))
            other = g.weights([4, 4, 1, 1], 0.006) if op == "Conv" else g.input(shape, (np.float32(0.03 * unit), middle))
            made = g.add(op, [g.input(shape, x), other], shape, y)
            z = (np.float32(g.rng.uniform(0.03, 0.06) * unit), int(middle * g.rng.uniform(0.6, 1.3)))
            g.add("Clip", [made, g.constant(np.float32(low)), g.constant(np.float32(high))], shape, z)


def attended(g):
    """uint16 Mul by one number before a MatMul of two tensors: of one matrix and of two, of several numbers of rows."""
    for heads, rows in ((1, 8), (1, 9), (1, 12), (1, 16), (1, 20), (1, 36), (2, 8), (2, 10), (2, 16), (2, 20), (2, 36), (2, 40)):
        shape, x = [1, heads, rows, 8], (np.float32(g.rng.uniform(1e-4, 2e-4)), int(g.rng.integers(20000, 40000)))
        y = (np.float32(x[0] * 0.595 / g.rng.uniform(0.6, 1.8)), int(g.rng.integers(20000, 40000)))
        made = g.add("Mul", [g.input(shape, x), g.scaled(np.uint16(65535), np.float32(0.595 / 32767), 32768)], shape, y)
        g.add("MatMul", [made, g.input([1, heads, 8, 4], (np.float32(1e-4), 32768))], [1, heads, rows, 4], (np.float32(2e-3), 32768))


def biased(g):
    """uint16 Conv with scales per channel and biases that are longer than a float32."""
    n, x, y = 48, (np.float32(2e-6), 0), (np.float32(1e-5), 50000)
    for _ in range(2):
        scales = (np.float32(y[0] / x[0] * 2e-3 * g.rng.uniform(0.5, 1.5)) * np.exp(g.rng.uniform(-1.2, 0, n))).astype(np.float32)
        codes = np.round((g.rng.uniform(0.1, 0.9, n) * 2 ** 16 - y[1]) * float(y[0]) / float(x[0]) / scales).astype(np.int32)
        weights = g.rng.integers(-127, 128, [n, 2, 1, 1]).astype(np.int8)
        operands = [g.input([1, 2, 3, 3], x), g.scaled(weights, scales, 0, 0), g.scaled(codes, x[0] * scales, 0, 0)]
        g.add("Conv", operands, [1, n, 3, 3], y)


def numbers(g, *values):
    return g.constant(np.array(values, np.int64))


RECODED = [  # operator, shapes before and after, constants behind the input, attributes
    ("MaxPool", [1, 4, 7, 9], [1, 4, 6, 8], lambda g: [], {"kernel_shape": [2, 2]}),
    ("Reshape", [1, 4, 7, 9], [1, 4, 63], lambda g: [numbers(g, 1, 4, 63)], {}),
    ("Flatten", [1, 4, 7, 9], [1, 252], lambda g: [], {}),
    ("Flatten", [1, 252, 1, 1], [1, 252], lambda g: [], {}),
    ("Transpose", [1, 4, 7, 9], [1, 4, 9, 7], lambda g: [], {"perm": [0, 1, 3, 2]}),
    ("Transpose", [1, 4, 7, 9], [1, 7, 4, 9], lambda g: [], {"perm": [0, 2, 1, 3]}),
    ("Gather", [1, 4, 7, 9], [1, 4, 7, 5], lambda g: [numbers(g, 8, 0, 3, 3, 1)], {"axis": 3}),
    ("Gather", [1, 9, 7, 4], [1, 5, 7, 4], lambda g: [numbers(g, 8, 0, 3, 3, 1)], {"axis": 1}),
    ("Split", [1, 9, 7, 4], [1, 5, 7, 4], lambda g: [numbers(g, 5, 4)], {"axis": 1}),
    ("Slice", [1, 4, 7, 9], [1, 4, 7, 6], lambda g: [numbers(g, 2), numbers(g, 8), numbers(g, 3)], {}),
    ("SpaceToDepth", [1, 3, 8, 6], [1, 12, 4, 3], lambda g: [], {"blocksize": 2}),
    ("Resize", [1, 4, 4, 5], [1, 4, 8, 10], lambda g: ["", g.constant(np.array([1, 1, 2, 2], np.float32))],
     {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}),
    ("Pad", [1, 4, 4, 5], [1, 4, 6, 7], lambda g: [numbers(g, 0, 0, 1, 1, 0, 0, 1, 1)], {"mode": "constant"}),
    ("ReduceMax", [1, 4, 30, 4], [1, 4, 30, 1], lambda g: [numbers(g, 3)], {}),
    ("ReduceMin", [1, 3, 40, 3], [1, 1, 40, 3], lambda g: [numbers(g, 1)], {}),
    ("Tile", [1, 4, 7, 5], [1, 8, 7, 5], lambda g: [numbers(g, 1, 2, 1, 1)], {}),
    ("Reshape", [1, 20, 12], [20, 12], lambda g: [numbers(g, 20, 12)], {}),  # moves nothing
    ("Unsqueeze", [20, 12], [1, 20, 12], lambda g: [numbers(g, 0)], {})]


def recoded(g):
    """What moves codes, to another encoding: of a graph input, of a pool, and of a sum of two. Every second scale is a power of two, so
    that real values lie half between two float16 numbers."""
    for i, (op, shape, out, more, attributes) in enumerate(RECODED):
        for kind in ("given", "pooled", "summed"):
            if kind != "given" and (len(shape) < 4 or shape[-1] == 1):
                continue
            x = (np.float32(2.0 ** -int(g.rng.integers(11, 17))), int(g.rng.integers(0, 2 ** g.bits))) if (i + len(kind)) % 2 else g.encoding()
            y = (np.float32(x[0] * np.exp(g.rng.uniform(-1, 1))), int(g.rng.integers(2 ** g.bits // 4, 2 ** g.bits * 3 // 4)))
            if kind == "given":
                real = g.input(shape, x)
            elif kind == "pooled":
                real = g.add("MaxPool", [g.input(shape, x)], shape, x, kernel_shape=[1, 2], pads=[0, 1, 0, 0])
            else:
                near = [(np.float32(x[0] * g.rng.uniform(0.3, 1)), int(g.rng.integers(0, 2 ** g.bits))) for _ in range(2)]
                real = g.add("Add", [g.input(shape, a) for a in near], shape, x)
            g.add(op, [real, *more(g)], out, y, **attributes)
            if op == "Split":
                split = next(node for node in reversed(g.nodes) if node.op_type == op)
                split.output.append(split.output[0] + "_rest")
                g.quantise(split.output[1], [1, 4, *shape[2:]], y)


def scaled(g):
    """uint16 Gelu and Sqrt with scales of x, and quotients of scales, far from the usual ones."""
    shape = [1, 4, 24]
    for scale, ratio in ((1e-7, 1 / 100), (6e-6, 2), (0.02, 1), (0.5, 50)):
        scale = np.float32(scale * g.rng.uniform(0.8, 1.2))
        for op, y in (("Gelu", scale / ratio), ("Sqrt", np.sqrt(scale) / 256 / ratio)):
            zeros = [int(zero) for zero in g.rng.integers(5000, 60000, 2)] if op == "Gelu" else [0, 0]
            g.add(op, [g.input(shape, (scale, zeros[0]))], shape, (np.float32(y), zeros[1]))


def unquantised(g):
    """Several operators with no quantiser between: float16."""
    op = g.bare

    def number(low, high, shape=()):
        return g.constant(np.float32(g.rng.uniform(low, high, shape)))

    def positive(x):
        return op("Add", [op("Abs", [x]), number(0.2, 0.6)])

    def mean(x):
        return op("ReduceMean", [x, g.constant(np.int64([-1]))], keepdims=1)

    def deviation(x):
        return op("Sqrt", [op("Add", [mean(op("Mul", [x, x])), g.constant(np.float32(1e-3))])])

    makers = {"sum": (lambda x: op("Sub", [op("Add", [op("Neg", [x]), number(-1, 1)]), x]), 9),
              "product": (lambda x: op("Add", [op("Mul", [x, number(0.3, 1)]), number(-1, 1)]), 5),
              "square": (lambda x: op("Sub", [number(-1, 1), op("Mul", [x, x])]), 20),
              "columns": (lambda x: op("Mul", [op("Sub", [x, number(-1, 1, 64)]), number(0.3, 1, 64)]), 6),
              "root": (lambda x: op("Sqrt", [positive(x)]), 3), "reciprocal": (lambda x: op("Reciprocal", [positive(x)]), 6),
              "quotient": (lambda x: op("Div", [x, positive(x)]), 2), "divided": (lambda x: op("Div", [op("Abs", [x]), number(1.5, 4)]), 3),
              "norm": (lambda x: op("Div", [x, deviation(x)]), 4),
              "cast": (lambda x: op("Cast", [op("Div", [op("Neg", [x]), deviation(x)])], to=TensorProto.FLOAT), 4)}
    for make, reach in makers.values():
        x, y = g.encoding(4), (np.float32(2 * reach / 2 ** g.bits), 2 ** (g.bits - 1))
        g.quantise(make(g.input([1, 4, 64], x)), [1, 4, 64], y)


def requantised(g):
    """Another encoding without an operator, of the same type and of the other, of a graph input and of a Conv; and what moves that to a
    third encoding, which is one operation with it."""
    shape = [1, 4, 12, 12]

    def of_type(bits):
        g.bits, (g.type, g.onnx_type) = bits, concat.TYPES[bits]

    for before, after in ((8, 8), (8, 16), (16, 8), (16, 16)):
        for kind in ("given", "made", *(["moved"] if before > after else [])):
            of_type(before)
            x = g.encoding()
            if kind == "given":
                real = g.input(shape, x)
            else:
                near = (np.float32(x[0] * g.rng.uniform(0.5, 1)), int(g.rng.integers(0, 2 ** g.bits)))
                real = g.add("Conv", [g.input(shape, near), g.weights([4, 4, 1, 1], 1 / 150)], shape, x)
            of_type(after)
            ratio = 2.0 ** (before - after) * np.exp(g.rng.uniform(-0.6, 0.6))
            y = (np.float32(x[0] * ratio), int(g.rng.integers(2 ** g.bits // 4, 2 ** g.bits * 3 // 4)))
            if kind == "moved":
                real = g.quantise(real, shape, y)
                y = (np.float32(y[0] / 3), y[1])
                g.add("DepthToSpace", [real], [1, 1, 24, 24], y, blocksize=2, mode="CRD")
            elif kind == "given":
                g.quantise(real, shape, y)
            else:  # a function behind it: as the last of a graph it is not recorded
                g.add("Sigmoid", [g.quantise(real, shape, y)], shape, (2.0 ** -g.bits, 0))


def still(g):
    """A Reshape and the like that moves nothing, to another encoding: of what lies flat and in blocks, and of what is made with
    that encoding (rows 4, 5 and 8)."""
    moves = {2: [("Reshape", [1, 8, 16]), ("Unsqueeze", [1, 8, 16])], 3: [("Reshape", [8, 16]), ("Squeeze", [8, 16]), ("Reshape", [1, 1, 8, 16])],
             4: [("Reshape", [4, 4, 8]), ("Squeeze", [4, 4, 8])]}
    for i in range(14):
        rank = [2, 3, 4, 4, 4, 2, 3, 2, 3, 3, 4, 2, 2, 3][i]
        shape, x, a = [[8, 16], [1, 8, 16], [1, 4, 4, 8]][rank - 2], g.encoding(4), g.encoding(4)
        if i in (0, 1):     # of two axes with a bias, of three without
            bias = [g.scaled(np.zeros(16, np.int32), x[0] * np.float32(0.004))] if i == 0 else []
            real = g.add("MatMul" if i else "Gemm", [g.input(shape, x), g.weights([16, 16], 0.004), *bias], shape, a)
        elif i in (2, 3, 4):
            real = g.add("Conv", [g.input(shape, x), g.weights([4, 4, 1, 1], 0.008)], shape, a)
            if i == 3:
                real = g.add("MaxPool", [real], shape, a, kernel_shape=[1, 1])
        elif i == 5:
            real = g.add("Gemm", [g.input([16, 8], x), g.weights([8, 8], 0.008)], [16, 8], a)
            real = g.add("Transpose", [real], shape, a, perm=[1, 0])
        elif i in (6, 7):
            real = g.add("Add", [g.input(shape, x), g.input(shape, x)], shape, a)
        elif i == 8:
            real = g.add("MatMul", [g.input([1, 8, 4], x), g.input([1, 4, 16], (np.float32(0.02), 128))], shape, a)
        elif i == 9:
            a = (np.float32(2 ** -8), 0)
            real = g.add("Softmax", [g.input(shape, x)], shape, a, axis=-1)
        elif i == 10:
            a = x
            real = g.add("Resize", [g.input([1, 4, 2, 4], a), "", g.constant(np.array([1, 1, 2, 2], np.float32))], shape, a, mode="nearest",
                         coordinate_transformation_mode="asymmetric", nearest_mode="floor")
        else:
            real = g.add("Sigmoid", [g.add("MatMul", [g.input(shape, x), g.weights([16, 16], 0.004)], shape, a)], shape, a := (np.float32(2 ** -8), 0))
        op, out = moves[rank][(1 if rank == 4 and i != 4 else i) % len(moves[rank])]
        axes = {"Reshape": out, "Squeeze": [0], "Unsqueeze": [0]}[op]
        y = (np.float32(a[0] * np.exp(g.rng.uniform(-1, 1.5))), int(g.rng.integers(40, 200)))
        g.add(op, [real, g.constant(np.array(axes, np.int64))], out, y)


def tiny(g):
    """uint16 products some channels of which have multipliers from 2^-24 to 2^-80: pruned ones."""
    for i in range(8):
        n, shape, x, y = 6, [1, 4, 5, 6], (np.float32(2e-4), int(g.rng.integers(0, 65536))), (np.float32(3e-4), int(g.rng.integers(1, 65535)))
        scale = np.float32(2.0 ** -np.concatenate([g.rng.uniform(7, 12, 2), g.rng.uniform(23, 80, n - 2)]))
        codes = g.rng.integers(-128, 128, [n, 4, 1, 1] if i % 2 else [4, n]).astype(np.int8)
        bias = [g.scaled(g.rng.integers(-3000, 3000, n).astype(np.int32), x[0] * scale, 0, 0)] if i % 4 > 1 else []
        if i % 2:
            g.add("Conv", [g.input(shape, x), g.scaled(codes, scale, 0, 0), *bias], [1, n, 5, 6], y)
        else:
            g.add("Gemm" if bias else "MatMul", [g.input([7, 4], x), g.scaled(codes, scale, 0, 1), *bias], [7, n], y)


def long_strided(g):
    """uint16 depthwise Conv by two with windows of 5 x 5 and 7 x 7 and all kinds of padding."""
    for i, pads in enumerate(([2, 2, 2, 2], [1, 1, 2, 2], [2, 1, 2, 2], [1, 1, 0, 1], [0, 0, 2, 0], [3, 3, 3, 3], [0, 2, 1, 2], [2, 2, 0, 1])):
        n, kernel, rows, columns = int(g.rng.integers(2, 9)), 7 if i == 5 else 5, int(g.rng.integers(8, 16)), int(g.rng.integers(8, 16))
        x = (np.float32(g.rng.uniform(1e-4, 4e-4)), int(g.rng.integers(0, 65536)))
        kind, scale, axis = [(np.int8, 0), (np.uint8, 194)][i % 2], np.float32(g.rng.uniform(0.005, 0.02)), None
        if i in (2, 3):
            kind, axis, scale = (np.int8, 0), 0, (scale * np.exp(g.rng.uniform(-1.5, 0, n))).astype(np.float32)
        codes = g.rng.integers(-128, 128, [n, 1, kernel, kernel]) + (0 if kind[0] is np.int8 else 128)
        operands = [g.input([1, n, rows, columns], x), g.scaled(codes.astype(kind[0]), scale, kind[1], axis)]
        if i % 3:
            operands.append(g.scaled(g.rng.integers(-10 ** 6, 10 ** 6, n).astype(np.int32), x[0] * scale, 0, axis))
        out = [(side + pads[k] + pads[k + 2] - kernel) // 2 + 1 for k, side in enumerate((rows, columns))]
        y = (np.float32(x[0] * np.max(scale) * 80 * kernel * g.rng.uniform(0.7, 1.5)), int(g.rng.integers(20000, 45000)))
        g.add("Conv", operands, [1, n, *out], y, group=n, strides=[2, 2], pads=pads)


def cut_strided(g):
    """Depthwise Conv by two whose multiplier is above and below 1/2: fine outputs of small sums."""
    for factor in (0.3, 0.499, 0.501, 0.8, 1.3, 2.6):
        x, n = (np.float32(0.04 / 2 ** (g.bits - 8)), 2 ** (g.bits - 1)), 4
        scale = np.float32(0.02 * g.rng.uniform(0.8, 1.2))
        operands = [g.input([1, n, 12, 12], x), g.scaled(g.rng.integers(-2, 3, [n, 1, 3, 3]).astype(np.int8), scale, 0, None)]
        if g.rng.random() < 0.5:
            operands.append(g.scaled(g.rng.integers(-30, 31, n).astype(np.int32), x[0] * scale, 0, None))
        y = (np.float32(x[0] * scale / np.float32(factor)), int(g.rng.integers(3, 6)) * 2 ** (g.bits - 3))
        g.add("Conv", operands, [1, n, 6, 6], y, group=n, strides=[2, 2], pads=[1] * 4)


def signed_slopes(g):
    """uint8 PRelu with slopes of int8, and of uint8 with a zero point, of a graph input and of a Conv."""
    for i in range(8):
        n, x = int(g.rng.integers(1, 6)), g.encoding(4)
        shape = [1, n, 16, 16]
        y = (np.float32(x[0] * np.exp(g.rng.uniform(np.log(0.3), np.log(3.5)))), int(g.rng.integers(10, 200)))
        real = g.input(shape, x)
        if i % 4 == 3:
            real = g.add("Conv", [real, g.weights([n, n, 1, 1], 0.006)], shape, x)
        else:
            g.codes["x%d" % (len(g.inputs) - 1)] = np.stack([g.rng.permutation(256) for _ in range(n)]).reshape(shape).astype(g.type)
        codes = g.rng.integers(-128, 128, [n, 1, 1])
        scale = np.exp(g.rng.uniform(np.log(0.05), np.log(10))) / 255
        if i % 2:
            g.add("PRelu", [real, g.scaled(codes.astype(np.int8), scale)], shape, y)
        else:
            g.add("PRelu", [real, g.scaled((codes + 128).astype(np.uint8), scale, (3, 128, 200, 255)[i // 2])], shape, y)


def float_slopes(g):
    """PRelu with slopes in floats, half of them halves between two float16 numbers, and uint16 with one quantised slope."""
    for i in range(8 if g.bits == 8 else 12):
        n, x = int(g.rng.integers(2, 6)), g.encoding(4)
        shape = [1, n, 16, 16]
        y = (np.float32(x[0] * np.exp(g.rng.uniform(np.log(0.3), np.log(3.5)))), int(2 ** g.bits * g.rng.uniform(0.05, 0.8)))
        real = g.input(shape, x)
        if i % 4 == 3:
            real = g.add("Conv", [real, g.weights([n, n, 1, 1], 0.006)], shape, x)
        slopes = g.rng.uniform(0.5, 1, [1 if i % 4 == 2 else n, 1, 1])
        if i % 2:
            slopes = np.float16(slopes) + 2.0 ** -12
        if i < 8:
            g.add("PRelu", [real, g.constant(slopes.astype(np.float32))], shape, y)
        else:
            g.add("PRelu", [real, g.scaled(np.full([1, 1, 1], g.rng.integers(1, 65536), np.uint16), 0.9 / 65535)], shape, y)


def single(g):
    """GlobalAveragePool of planes of one place, of a graph input and of a Conv, and of larger ones."""
    for i in range(8):
        n, side, x = int(g.rng.integers(8, 60)), (1, 1, 1, 7)[i % 4], g.encoding(4)
        real = g.input([1, n, side, side], x)
        if i % 2:
            real = g.add("Conv", [real, g.weights([n, n, 1, 1], 0.006)], [1, n, side, side], x)
        y = (np.float32(x[0] * np.exp(g.rng.uniform(-1.2, 1.2))), int(g.rng.integers(2 ** g.bits // 4, 2 ** g.bits // 4 * 3)))
        g.add("GlobalAveragePool", [real], [1, n, 1, 1], y)


def widened(g):
    """uint8 that becomes uint16 by no operator."""
    for i in range(6):
        name, shape, x = "x%d" % len(g.inputs), [1, 4, 8, 8], (np.float32(g.rng.uniform(0.005, 0.05)), int(g.rng.integers(0, 256)))
        g.codes[name] = g.rng.permutation(256).reshape(shape).astype(np.uint8)
        g.inputs.append(helper.make_tensor_value_info(name, TensorProto.UINT8, shape))
        y = (np.float32(x[0] / (257 if i == 0 else np.exp(g.rng.uniform(0.1, 7)))), int(g.rng.integers(0, 65536)))
        real = g.quantise(g.real(name, x, np.uint8), shape, y)
        if i % 2:
            g.add("Conv", [real, g.weights([3, 4, 1, 1], 0.006)], [1, 3, 8, 8], y)


def centred(g):
    """uint16 MatMul of two inputs; the zero point of the second is a multiple of 32768, or another."""
    for i in range(6):
        n, x = int(g.rng.integers(4, 24)), (np.float32(g.rng.uniform(2e-5, 3e-4)), int(g.rng.integers(0, 65536)))
        w = (np.float32(g.rng.uniform(2e-5, 3e-4)), (0, 32768, int(g.rng.integers(0, 65536)))[i % 3])
        shapes = [[8, n], [n, 12]] if i < 3 else [[2, 8, n], [2, n, 12]]
        y = (np.float32(x[0] * w[0] * 2 ** 20 * np.sqrt(n)), int(g.rng.integers(20000, 45000)))
        g.add("MatMul", [g.input(shapes[0], x), g.input(shapes[1], w)], [*shapes[0][:-1], 12], y)


def cumulated(g):
    """uint8 CumSum along all axes."""
    for i in range(8):
        shape = [int(n) for n in g.rng.integers(1, 20 if i < 4 else 9, i % 4 + 1)]
        axis, x = int(g.rng.integers(0, len(shape))), g.encoding(4)
        y = (np.float32(x[0] * np.exp(g.rng.uniform(-1, 3))), int(g.rng.integers(0, 256)))
        g.add("CumSum", [g.input(shape, x), g.constant(np.array(axis, np.int64))], shape, y)


def byte_input(g, shape, encoding):
    """An input of uint8 in a group of uint16."""
    name = "x%d" % len(g.inputs)
    g.codes[name] = g.rng.integers(0, 256, shape).astype(np.uint8)
    g.inputs.append(helper.make_tensor_value_info(name, TensorProto.UINT8, shape))
    return g.real(name, encoding, np.uint8)


def mixed(g):
    """Operators of two operands, one of uint8: a constant, or as large as the other, with last axes below and from 16 on."""
    for i, op in enumerate(("Add", "Mul", "Sub", "Div") * 4):
        depth = (12, 16, 24, 31)[i // 4]
        shape = ([9, depth], [1, 4, 3, depth], [1, 9, depth])[i % 3]
        y, small = (np.float32(g.rng.uniform(1e-4, 3e-4)), int(g.rng.integers(20000, 45000))), (np.float32(0.0104), 107)
        real = g.input(shape, (np.float32(8e-5), 41000))
        if i % 8 > 3 and op != "Div":
            other = byte_input(g, shape, small)
        else:
            other = g.scaled(g.rng.integers(130, 256, [[], [depth], shape][i % 3]).astype(np.uint8), *small)
        g.add(op, [real, other], shape, y)


def columns(g):
    """BatchNormalization of two and of three axes, with biases of 32 bits in any scale, and what v73 makes with one of uint8."""
    for i in range(10):
        n = int(g.rng.integers(5, 30))
        shape, x = ([int(g.rng.integers(1, 9)), n] if i % 2 else [1, n, 13]), g.encoding(4)
        bias = g.rng.uniform(-1, 1, n)
        bias[0] = -1.2
        scale = np.float32((6e-10, 1e-8, 1e-5)[i % 3])
        operands = [g.input(shape, x), g.scaled(g.rng.integers(30, 128, n).astype(np.int8), g.rng.uniform(0.005, 0.015)),
                    g.scaled(np.rint(bias / scale).astype(np.int32), scale), g.constant(g.rng.normal(0, 0.1, n).astype(np.float32)),
                    g.constant(g.rng.uniform(0.6, 1.5, n).astype(np.float32))]
        y = g.encoding(5)
        real = g.add("BatchNormalization", operands, shape, y)
        after = (np.float32(y[0] * g.rng.uniform(0.5, 0.9)), int(g.rng.integers(2 ** g.bits // 6, 2 ** g.bits // 3)))
        if i % 4 == 1:
            g.add("PRelu", [real, slopes_of(g, [n])], shape, after)
        elif i == 3:
            g.add("LeakyRelu", [real], shape, after, alpha=0.1)
        elif i == 7:
            g.add("HardSwish", [real], shape, after)


def slopes_of(g, shape, bits=None):
    bits = bits or g.bits
    kind = np.uint8 if bits == 8 else np.uint16
    return g.scaled(g.rng.integers(2 ** bits // 8, 2 ** bits, shape).astype(kind), g.rng.uniform(0.1, 0.9) / 2 ** bits)


def leaning(g):
    """PRelu of two and of three axes, of a Gemm and of an input, with slopes of its own type and of uint8."""
    for i in range(8):
        n, x = int(g.rng.integers(5, 20)), (np.float32(0.02 if g.bits == 8 else 8e-5), 2 ** g.bits // 2 + 3)
        shape = [7, n] if i % 2 else [1, n, 24]
        if i % 2:
            columns_of = g.scaled(g.rng.integers(-127, 128, [20, n]).astype(np.int8), np.float32(0.01))
            real = g.add("MatMul", [g.input([7, 20], x), columns_of], shape, g.encoding(3))
        else:
            weights = g.scaled(g.rng.integers(-127, 128, [n, 6, 1]).astype(np.int8), np.float32(0.01))
            real = g.add("Conv", [g.input([1, 6, 24], x), weights], shape, g.encoding(3))
        y = (np.float32(3 / 2 ** g.bits * g.rng.uniform(0.7, 1.3)), int(2 ** g.bits * g.rng.uniform(0.2, 0.5)))
        g.add("PRelu", [real, slopes_of(g, [n] if i % 2 else [n, 1], 8 if i > 3 else None)], shape, y)


def sum_ratios(g):
    """Sums and differences whose scales, divided by that of the output, are next to a power of two."""
    for i in range(20):
        a, b = (np.float32(g.rng.uniform(0.003, 0.2)) for _ in range(2))
        op, zeros = ("Add", "Sub")[i % 2], g.rng.integers(60, 190, 3)
        less = (0, 2 ** -23, 2 ** -14, 2 ** -12.1, 2 ** -11.9)[i // 2 % 5]
        y = np.float32(float(a + b if op == "Add" else max(a, b)) * (1 + less) * g.rng.choice([0.5, 1, 2]))
        g.add(op, [g.input([1, 32, 32], (a, int(zeros[0]))), g.input([1, 32, 32], (b, int(zeros[1])))], [1, 32, 32], (y, int(zeros[2])))


def steep_sums(g):
    """Sums and differences of which one operand, or both, have steps of 16 to 2000 of those of the output."""
    for i in range(16):
        y = np.float32(np.exp(g.rng.uniform(np.log(0.001), np.log(0.1))))
        ratios = [2 ** g.rng.uniform(4, 10.9), (1, 2 ** g.rng.uniform(-2, 4), 2 ** g.rng.uniform(4, 9))[i % 3]]
        zeros = [int(zero) for zero in g.rng.integers(0, 256, 3)]
        operands = [g.input([1, 32, 32], (np.float32(y * ratio), zero)) for ratio, zero in zip(g.rng.permutation(ratios), zeros)]
        for k, zero in enumerate(zeros[:2]):  # most sums would be clipped
            g.codes["x%d" % (2 * i + k)] = np.clip(zero + g.rng.integers(-8, 9, [1, 32, 32]), 0, 255).astype(g.type)
        g.add(("Add", "Sub")[i // 2 % 2], operands, [1, 32, 32], (y, zeros[2] if i % 4 else 0))


def zeroed_softmax(g):
    """Softmax whose zero point does not count, and some whose zero point does."""
    for i in range(10):
        n, zero = (3, 9, 16, 30, 2)[i % 5], (20, 200)[i // 5]
        x = (np.float32(np.exp(g.rng.uniform(-5, -1))), 130)
        g.add("Softmax", [g.input([1, 12, n], x)], [1, 12, n], (np.float32(g.rng.uniform(0.002, 0.01)), zero), axis=-1)


def log_softmax(g):
    """Rows of all lengths, the greatest of which is far above the others, or not."""
    for i, n in enumerate((2, 5, 16, 17, 30, 64, 100, 40)):
        x = (np.float32(np.exp(g.rng.uniform(np.log(0.007), np.log(0.6)))), int(g.rng.integers(0, 256)))
        y = (max(np.float32(x[0] * 2 ** g.rng.uniform(-2.5, 1)), np.float32(0.014)), 255 if i % 2 else int(g.rng.integers(150, 256)))
        real = g.input([24, n], x)
        lower = np.abs(g.rng.normal(0, (10, 80)[i // 4], [24, n])).astype(int)
        g.codes["x%d" % (len(g.inputs) - 1)] = np.clip(g.rng.integers(100, 256, [24, 1]) - lower, 0, 255).astype(g.type)
        g.add("LogSoftmax", [real], [24, n], y, axis=-1)


def powers(g):
    """Pow by a number: uint8 by any, also next to 2, uint16 by 2."""
    most = 2 ** g.bits - 1
    for i, exponent in enumerate((2, 2, 1.9999979, 3, 0.5, 1.5) if g.bits == 8 else (2, 2, 2)):
        x = (np.float32(g.rng.uniform(1, 5) / 2 ** (g.bits - 1)), 20 if exponent == 0.5 else int(g.rng.integers(most // 4, most * 3 // 4)))
        reach = float(x[0]) * max(most - x[1], x[1])
        y = (np.float32(reach ** exponent / most * g.rng.uniform(0.7, 1.1)), most // 3 * (i % 2))
        g.add("Pow", [g.input([1, 4, 8, 8], x), g.scaled(g.type(most), np.float32(exponent / most))], [1, 4, 8, 8], y)


def rows_of_conv(g):
    """A Conv of rows whose biases have another scale, and means along its rows and its channels."""
    for i in range(6):
        n, length = int(g.rng.integers(5, 20)), int(g.rng.integers(20, 50))
        x, axis = (np.float32(0.02 if g.bits == 8 else 8e-5), 2 ** g.bits // 2 + 3), 0 if i % 2 else None
        scale = np.float32(0.01) * np.exp(g.rng.uniform(-1, 0, n) if i % 2 else 0).astype(np.float32)
        bias_scale = (x[0] * scale * np.float32((1, 20, 256)[i // 2])).astype(np.float32)
        bias = g.scaled(np.rint(g.rng.uniform(-2, 2, n) / bias_scale).astype(np.int32), bias_scale, 0, axis)
        weights = g.scaled(g.rng.integers(-127, 128, [n, 6, 3]).astype(np.int8), scale, 0, axis)
        y = g.encoding(4)
        real = g.add("Conv", [g.input([1, 6, length], x), weights, bias], [1, n, length], y, pads=[1, 1])
        kept, made = (2, [1, n, 1]) if i % 3 else (1, [1, 1, length])
        g.add("ReduceMean", [real, g.constant(np.array([kept], np.int64))], made, (np.float32(y[0] / g.rng.choice([1, 2, 5])), y[1]))


def number(g, value):
    """A constant whose greatest code is that number."""
    most = 2 ** g.bits - 1
    return g.scaled(g.type(most), np.float32(value / most))


def gelu_of_tanh(g):
    """0.5 x (1 + tanh(...)) in single operators; of uint16 half of x has an encoding of its own, too."""
    most, middle = 2 ** g.bits - 1, 2 ** (g.bits - 1)
    for i in range(3):
        shape, x = [1, 12, 24], (np.float32(g.rng.uniform(0.02, 0.06) * 255 / most), int(g.rng.integers(110, 150)) * (most // 255))
        real = g.add("MatMul", [g.input([1, 12, 20], (np.float32(0.02 * 255 / most), middle)), g.weights([20, 24], 0.01)], shape, x)
        reach = float(x[0]) * max(most - x[1], x[1])
        cube = g.add("Pow", [real, number(g, 3)], shape, (np.float32(reach ** 3 / (middle - 1)), middle))
        bent = g.add("Mul", [cube, number(g, 0.044715)], shape, (np.float32(reach ** 3 * 0.044715 / (middle - 1)), middle))
        total = g.add("Add", [real, bent], shape, (np.float32((reach + reach ** 3 * 0.044715) / (middle - 1)), middle))
        inner = g.add("Mul", [total, number(g, 0.7978845608)], shape, (np.float32((reach + reach ** 3 * 0.044715) * 0.798 / (middle - 1)), middle))
        tanh = g.add("Tanh", [inner], shape, (np.float32(2 / (most + (g.bits == 16))), middle))
        one = number(g, 1) if g.bits == 8 else g.scaled(np.uint16(middle), np.float32(1 / middle))
        gate = g.add("Add", [tanh, one], shape, (np.float32(2.1 / most), 0))
        half = g.add("Mul", [real, number(g, 0.5)], shape, (np.float32(x[0] / 2 * (1 if i < 2 or g.bits == 8 else 1.2)), x[1]))
        g.add("Mul", [half, gate], shape, (np.float32(reach / most * 1.05), 8 * (most // 255)))


def encoded(g, low, high):
    scale = np.float32((max(high, 0) - min(low, 0)) / (2 ** g.bits - 1))
    return scale, int(np.rint(-min(low, 0) / scale))


def norm_in_parts(g):
    """LayerNormalization as ReduceMean, Sub, Pow, ReduceMean, Add, Sqrt and Div; the last by a Mul, which is none."""
    for i, shape in enumerate(([1, 7, 48], [1, 3, 5, 32], [20, 33], [1, 9, 24])):
        x, kept, last = (np.float32(g.rng.uniform(2, 20) / 2 ** g.bits), int(2 ** g.bits * g.rng.uniform(0.35, 0.65))), shape[:-1] + [1], g.constant(np.array([-1], np.int64))
        reach, epsilon = float(x[0]) * 2 ** g.bits * 0.65, (1e-5, 1e-3, 1e-5, 1e-5)[i]
        real = g.input(shape, x)
        mean = g.add("ReduceMean", [real, last], kept, encoded(g, -reach / 4, reach / 4), keepdims=1)
        less = g.add("Sub", [real, mean], shape, encoded(g, -reach * 0.9, reach * 0.9))
        square = g.add("Mul", [less, less], shape, encoded(g, 0, reach ** 2)) if i == 3 else \
            g.add("Pow", [less, number(g, 2)], shape, encoded(g, 0, reach ** 2))
        variance = g.add("ReduceMean", [square, last], kept, encoded(g, 0, reach ** 2 * 0.3), keepdims=1)
        more = g.add("Add", [variance, number(g, epsilon)], kept, encoded(g, 0, reach ** 2 * 0.3))
        root = g.add("Sqrt", [more], kept, encoded(g, 0, reach * 0.55))
        g.add("Div", [less, root], shape, encoded(g, -g.rng.uniform(1.6, 2.4), g.rng.uniform(1.6, 2.4)))


def turned_norms(g):
    """The same of the channels that a Conv made, where a Transpose stands behind the Sub, and with none; of rows that are next to a
    half after a multiplier above 1; and of channels of an input, which is none."""
    for i, (shape, order) in enumerate((([1, 24, 15], (0, 2, 1)), ([1, 16, 3, 5], (0, 2, 3, 1)), ([1, 24, 4, 4], None), ([64, 32], None), ([1, 16, 4, 4], None))):
        axis = 1
        x, is_fine = (np.float32(g.rng.uniform(2, 20) / 2 ** g.bits), int(2 ** g.bits * g.rng.uniform(0.35, 0.65))), len(shape) == 2
        reach, step, middle = float(x[0]) * 2 ** g.bits * 0.65, g.rng.uniform(1.6, 2.4) / 2 ** (g.bits - 1), 2 ** (g.bits - 1)
        real = g.input(shape, x)
        if is_fine:
            step = g.rng.uniform(3, 4) / 2 ** (g.bits - 1)
            drawn = np.rint(g.rng.normal(x[1], 2 ** g.bits * g.rng.uniform(0.01, 0.1, [40000, 1]), [40000, shape[1]]))
            normal = (drawn - drawn.mean(1, keepdims=True)) / drawn.std(1, keepdims=True) / step
            chosen = np.argsort(np.abs(normal - np.floor(normal) - 0.5).min(1))[:shape[0]]
            g.codes["x%d" % (len(g.inputs) - 1)] = np.clip(drawn[chosen], 0, 2 ** g.bits - 1).astype(g.type)
        elif i < 3:
            real = g.add("Conv", [real, g.weights([shape[1], shape[1]] + [1] * (len(shape) - 2), 0.006)], shape, x)
        kept = [1 if i == axis else n for i, n in enumerate(shape)]
        mean = g.add("ReduceMean", [real, numbers(g, axis)], kept, encoded(g, -reach / 4, reach / 4), keepdims=1)
        less = g.add("Sub", [real, mean], shape, encoded(g, -reach * 0.9, reach * 0.9))
        if order is not None:
            shape, kept, axis = [shape[i] for i in order], [kept[i] for i in order], len(shape) - 1
            less = g.add("Transpose", [less], shape, encoded(g, -reach * 0.9, reach * 0.9), perm=order)
        square = g.add("Pow", [less, number(g, 2)], shape, encoded(g, 0, reach ** 2))
        variance = g.add("ReduceMean", [square, numbers(g, axis)], kept, encoded(g, 0, reach ** 2 * 0.3), keepdims=1)
        root = g.add("Sqrt", [g.add("Add", [variance, number(g, 1e-5)], kept, encoded(g, 0, reach ** 2 * 0.3))], kept, encoded(g, 0, reach * 0.55))
        g.add("Div", [less, root], shape, (np.float32(step), middle))


def swish_in_parts(g):
    """x Clip(x + 3, 0, 6) / 6 of an input, a Conv and a MatMul in single operators; by a Div at the last, which is none."""
    top, shapes = 2 ** g.bits - 1, {"Conv": [1, 8, 9, 9], "MatMul": [1, 12, 24], "input": [1, 8, 16, 16], "Div": [1, 9, 24]}
    for kind, shape in shapes.items():
        x, y = encoded(g, -g.rng.uniform(3.5, 6), g.rng.uniform(3.5, 8)), encoded(g, -0.4, g.rng.uniform(3.5, 6))
        real = g.input(shape, x)
        if kind == "input":
            g.codes["x%d" % (len(g.inputs) - 1)] = np.linspace(0, top, 2048).astype(g.type).reshape(shape)
        elif kind == "Conv":
            real = g.add("Conv", [real, g.weights([8, 8, 1, 1], 0.006)], shape, x)
        elif kind == "MatMul":
            real = g.add("MatMul", [real, g.weights([24, 24], 0.004)], shape, x)
        more = g.add("Add", [real, number(g, 3)], shape, encoded(g, -2, 9))
        cut = g.add("Clip", [more, g.scaled(g.type(0), np.float32(1e-7)), number(g, 6)], shape, encoded(g, 0, 6))
        gate = g.add("Div" if kind == "Div" else "Mul", [cut, number(g, 6 if kind == "Div" else 1 / 6)], shape, encoded(g, 0, 1))
        g.add("Mul", [real, gate], shape, y)


def inverse_roots(g):
    """Sqrt, then Reciprocal: one operation where a code of the root is one, nearly."""
    most = 2 ** g.bits - 1
    for i in range(8):
        one = int(g.rng.integers(most // 8, most * 3 // 4 if i % 4 < 3 else most // 3))
        root = np.float32((1 + (0, 5e-6, -8e-6, 2e-5)[i % 4]) / one)
        x = np.float32((float(root) * most) ** 2 / most * g.rng.uniform(0.8, 1.2))
        shape, y = [1, 8, 32], np.float32(1 / np.sqrt(most // 8 * float(x)) / most)
        real = g.input(shape, (x, 0))
        g.codes["x%d" % (len(g.inputs) - 1)] = g.rng.integers(most // 10, most + 1, shape).astype(g.type)
        g.add("Reciprocal", [g.add("Sqrt", [real], shape, (root, 0))], shape, (y, most // 9 * (i // 4)))


def exponents(g):
    """uint16 Pow by other numbers than 2, Log and Reciprocal."""
    shape, most = [1, 4, 8, 16], 65535
    for i, exponent in enumerate((3, 3, 4, 0.5, 1.5, 2.7, 0.9)):
        x = (np.float32(np.exp(g.rng.uniform(np.log(1e-5), np.log(1e-3)))), int(g.rng.integers(10000, 50000)) if i % 2 == 0 else 0)
        reach = (most - x[1]) * float(x[0])
        y = encoded(g, -reach ** exponent if exponent == 3 and x[1] else 0, reach ** exponent)
        g.add("Pow", [g.input(shape, x), number(g, exponent)], shape, y)
    for i in range(4):
        x = (np.float32(np.exp(g.rng.uniform(np.log(1e-5), np.log(1e-3)))), 20000 * (i % 2))
        real = g.input(shape, x)
        g.codes["x%d" % (len(g.inputs) - 1)] = g.rng.integers(x[1] + 1, most + 1, shape).astype(g.type)
        g.add("Log", [real], shape, encoded(g, np.log(float(x[0])) * 0.9, max(np.log((most - x[1]) * float(x[0])), 1)))
    for i in range(4):
        x = (np.float32(1 / g.rng.integers(3000, 40000)), (0, 0, 12000, 30000)[i])
        reach = 1 / (float(x[0]) * 3000)
        g.add("Reciprocal", [g.input(shape, x)], shape, encoded(g, -reach if x[1] else 0, reach))


def merged(g):
    """Means of planes whose rows a Reshape put behind one another: of a Conv, of what an Add made of one, and of an input, which is none."""
    most = 2 ** g.bits - 1
    for i in range(6):
        n, rows, columns = int(g.rng.integers(5, 20)), int(g.rng.integers(3, 9)), int(g.rng.integers(3, 9))
        shape, x, y = [1, n, rows, columns], (np.float32(5 / most), most // 2 + 3), g.encoding(3)
        real = g.input(shape, x)
        if i % 3 < 2:
            real = g.add("Conv", [real, g.weights([n, n, 1, 1], 0.006)], shape, y)
        if i % 3 == 1:
            real = g.add("Add", [real, g.input(shape, x)], shape, y)
        flat = g.add("Reshape", [real, g.constant(np.array([1, n, rows * columns], np.int64))], [1, n, rows * columns], y if i % 3 < 2 else x)
        mean = (np.float32((y if i % 3 < 2 else x)[0] * g.rng.uniform(0.15, 0.6)), most // 3)
        g.add("ReduceMean", [flat, g.constant(np.array([-1], np.int64))], [1, n], mean, keepdims=0)


def tanh_gate(g, real, x, shape, y, squares=False):
    """1 + tanh of the polynomial of a Gelu, in single operators of uint8; squares: as transformers of PyTorch write it."""
    def by(value, other):
        return [number(g, value), other] if squares else [other, number(g, value)]
    reach = float(x[0]) * max(255 - x[1], x[1])
    cube = (np.float32(reach ** 3 / 127), 128)
    if squares:
        cube = g.add("Mul", [real, g.add("Mul", [real, real], shape, (np.float32(reach ** 2 / 255), 0))], shape, cube)
    else:
        cube = g.add("Pow", [real, number(g, 3)], shape, cube)
    bent = g.add("Mul", by(0.044715, cube), shape, (np.float32(reach ** 3 * 0.044715 / 127), 128))
    total = g.add("Add", [real, bent], shape, (np.float32((reach + reach ** 3 * 0.044715) / 127), 128))
    inner = g.add("Mul", by(0.7978845608, total), shape, (np.float32((reach + reach ** 3 * 0.044715) * 0.798 / 127), 128))
    return g.add("Add", by(1, g.add("Tanh", [inner], shape, (np.float32(2 / 255), 128))), shape, (np.float32(y), 0))


def grouped(g):
    """GroupNormalization in parts, of a Conv and of an input; InstanceNormalization of rows that vary little. One is not quite
    one in the encodings of AIMET, which are of 16 bits and end in a Reshape to the shape of what there was before, too."""
    top, of_one = 2 ** g.bits - 1, (np.full(4, 127, np.int8), np.float32(1 / 127))
    of_aimet = (np.full(4, 255, np.uint8), np.float32(0.0039215647))
    of_words = (np.full(4, 65535, np.uint16), np.float32(1.5259022e-05))
    for kind, one in (("Conv", of_one), ("Conv", of_aimet), ("input", of_one), ("Conv", of_words))[:3 + (g.bits == 16)]:
        shape, x = [1, 8, 6, 7], g.encoding(4)
        real = made_by(g, "Conv", x) if kind == "Conv" else g.input(shape, x)
        shape = [1, 8, 9, 9] if kind == "Conv" else shape
        y, n = g.encoding(2.5), shape[2] * shape[3]
        flat = g.add("Reshape", [real, g.constant(np.array([1, 4, 2 * n]))], [1, 4, 2 * n], x)
        parts = [flat, g.scaled(*one), g.scaled(np.zeros(4, np.int32), np.float32(x[0] / 127))]
        norm = g.add("InstanceNormalization", parts, [1, 4, 2 * n], y, epsilon=1e-5)
        if one is of_words:
            g.nodes.append(helper.make_node("Shape", [real], ["shape"]))
        back = g.add("Reshape", [norm, "shape" if one is of_words else g.constant(np.array(shape))], shape, y)
        factors = g.scaled(g.rng.integers(top // 5, top + 1, [8, 1, 1]).astype(g.type), np.float32(2 / top))
        product = g.add("Mul", [back, factors], shape, g.encoding(3))
        more = g.scaled(g.rng.integers(0, top + 1, [8, 1, 1]).astype(g.type), np.float32(2 / top), top // 2)
        g.add("Add", [product, more], shape, g.encoding(4))
    for n in (48, 44) if g.bits == 8 else ():
        x = (np.float32(g.rng.uniform(0.02, 0.1)), int(g.rng.integers(0, 256)))
        real = g.input([1, 12, n], x)
        near = g.rng.integers(120, 245, [1, 12, 1]) + g.rng.normal(0, 1, [1, 12, n]) * g.rng.uniform(0.7, 3, [1, 12, 1])
        g.codes["x%d" % (len(g.inputs) - 1)] = np.clip(np.rint(near), 0, 255).astype(g.type)
        bias = g.scaled(g.rng.integers(-9999, 9999, 12).astype(np.int32), np.float32(x[0] / 12700))
        parts = [real, g.scaled(g.rng.integers(-127, 128, 12).astype(np.int8), np.float32(0.008)), bias]
        g.add("InstanceNormalization", parts, [1, 12, n], g.encoding(3), epsilon=1e-5)


def pairs(g):
    """Two operators that are one: a Gelu of Tanh that is halved later, Mul and Add for each channel, a PRelu of one slope; steep
    BatchNormalizations."""
    for kind in ("factor", "product"):
        shape, x = [1, 12, 24], (np.float32(g.rng.uniform(0.02, 0.06)), int(g.rng.integers(110, 150)))
        real = g.add("MatMul", [g.input([1, 12, 20], (np.float32(0.02), 128)), g.weights([20, 24], 0.01)], shape, x)
        y, gate = (np.float32(float(x[0]) * max(255 - x[1], x[1]) / 255 * 1.05), 8), tanh_gate(g, real, x, shape, 2 / 255, kind == "product")
        if kind == "factor":
            half = g.add("Mul", [gate, number(g, 0.5)], shape, (np.float32(1 / 255), 0))
            g.add("Mul", [real, half], shape, y)
        else:
            g.add("Mul", [number(g, 0.5), g.add("Mul", [real, gate], shape, (np.float32(y[0] * 2), 8))], shape, y)
    for kind in ("last", "Conv", "first"):
        x, shape, n = g.encoding(4), [1, 9, 40] if kind == "last" else [1, 8, 9, 9], 40 if kind == "last" else 8
        real = made_by(g, "Conv", x) if kind == "Conv" else g.input(shape, x)
        own = [n] if kind == "last" else [n, 1, 1]
        factors = g.scaled(g.rng.integers(0, 256, own).astype(np.uint8), np.float32(0.009), int(g.rng.integers(0, 140)))
        product = g.add("Mul", [real, factors], shape, g.encoding(4))
        more = g.scaled(g.rng.integers(0, 256, own).astype(np.uint8), np.float32(0.011), int(g.rng.integers(0, 140)))
        g.add("Add", [product, more], shape, g.encoding(5))
    weights = g.scaled(g.rng.integers(-127, 128, [20, 16]).astype(np.int8), np.float32(0.01))
    real = g.add("MatMul", [g.input([7, 20], (np.float32(0.02), 131)), weights], [7, 16], g.encoding(3))
    g.add("PRelu", [real, slopes_of(g, [1, 1])], [7, 16], (np.float32(0.012), 60))
    for multiplier in (0.08, 0.2):  # of a BatchNormalization: steep
        factors = g.scaled(np.append(g.rng.integers(0, 256, 7), 255).astype(np.uint8), np.float32(0.02))
        bias = g.scaled(-g.rng.integers(0, 2 ** 20, 8).astype(np.int32), np.float32(1e-6))
        parts = [g.constant(np.zeros(8, np.float32)), g.constant(np.ones(8, np.float32))]
        g.add("BatchNormalization", [g.input([1, 8, 6, 7], (np.float32(0.05), 95)), factors, bias, *parts], [1, 8, 6, 7],
              (np.float32(0.001 / multiplier), 0), epsilon=0.0)


def dots(g):
    """The sum of a Mul by a vector along the last axis, which is a MatMul; the last two, which keep the axis or multiply by a
    matrix, are none."""
    most = 2 ** g.bits - 1
    for i, shape in enumerate(([1, 60, 33], [60, 16], [1, 3, 20, 100], [2, 30, 5], [1, 40, 24], [1, 8, 24])):
        n, x = shape[-1], (np.float32(g.rng.uniform(2, 5) / most), int(g.rng.integers(0, most)))
        w, own = int(g.rng.choice([0, most // 2 + 1, most // 3])), shape if i == 5 else [n] if i % 2 else [1] * (len(shape) - 1) + [n]
        vector = g.scaled(g.rng.integers(0, most + 1, own).astype(g.type), np.float32(2 / most), w)
        reach = float(x[0]) * most * 2
        product = g.add("Mul", [g.input(shape, x), vector], shape, (np.float32(reach / most), most // 2))
        g.add("ReduceSum", [product, g.constant(np.array([-1 if i % 2 else len(shape) - 1]))], shape[:-1] + [1] * (i == 4),
              (np.float32(reach * n ** 0.5 / most * g.rng.uniform(0.3, 0.6)), int(g.rng.integers(most // 3, most // 2))), keepdims=int(i == 4))


def wide(g):
    """Products of uint16 with weights of 16 bits, constant or calculated, with biases, in one scale and by channel."""
    for i, op in enumerate(("MatMul", "Gemm", "Conv", "Gemm", "Conv", "MatMul")):
        n, k, is_calculated, x = int(g.rng.integers(5, 60)), 6, i == 5, (np.float32(1e-4), int(g.rng.choice([0, 32768, 30011])))
        shape = [1, n, 5, 8] if op == "Conv" else [40, n]
        own = np.clip(g.rng.normal(0, 12000, [k, n, 1, 1] if op == "Conv" else [n, k]), -32768, 32767).astype(np.int16)
        own.flat[0] = 32767
        axis = None if i < 3 or is_calculated else 0 if op == "Conv" else 1
        scale = (np.float32(3e-5) * np.exp(g.rng.uniform(-1, 0, k) if axis is not None else 0)).astype(np.float32)
        real = g.input(shape, x)
        if is_calculated:
            g.codes["w"] = own
            g.inputs.append(helper.make_tensor_value_info("w", TensorProto.INT16, own.shape))
            g.nodes.append(helper.make_node("DequantizeLinear", ["w", g.constant(scale), g.constant(np.int16(0))], ["w_real"]))
        operands = [real, "w_real" if is_calculated else g.scaled(own, scale, 0, axis)]
        if op != "MatMul":
            unit = np.float32(1e-4) * scale
            bias = np.rint(g.rng.uniform(-1, 1, k) * n ** 0.5 / 5 / unit).astype(np.int32)
            operands.append(g.scaled(bias, unit, 0, None if axis is None else 0))
        g.add(op, operands, [1, k, 5, 8] if op == "Conv" else [40, k], (np.float32(n ** 0.5 * 4 / 65535), 32011))


def lengths(g):
    """ReduceL2 of rows, columns and channels; chains with a sum."""
    most = 2 ** g.bits - 1
    for i, (shape, axis) in enumerate((([40, 33], -1), ([1, 20, 48], 2), ([1, 8, 6, 7], 1), ([1, 3, 5, 64], -1), ([1, 20, 9], 1))):
        x = (np.float32(np.exp(g.rng.uniform(-6, 0)) / most), int(g.rng.integers(0, most)))
        out = [size for k, size in enumerate(shape) if k != axis % len(shape)]
        y = (np.float32(float(x[0]) * most * shape[axis] ** 0.5 / most * g.rng.uniform(0.4, 0.6)), most // 10 * (i % 2))
        g.add("ReduceL2", [g.input(shape, x), g.constant(np.array([axis]))], out, y, keepdims=0)
    for i in range(2):  # no quantiser between
        x = (np.float32(2.5 / most), most // 2)
        real, is_power = g.input([1, 12, 24], x), i == 1 and g.bits == 8
        other = g.constant(np.float32(2)) if is_power else g.input([1, 12, 24], x)
        g.nodes.append(helper.make_node("Pow" if is_power else "Mul", [real, other], ["square%d" % i]))
        g.add("ReduceSum", ["square%d" % i, g.constant(np.array([-1]))], [1, 12, 1], (np.float32(20 / most), most // 2), keepdims=1)


def curved(g):
    """Softplus, Tanh and (8 bits) Exp with no quantiser behind them, Mish among them: float16."""
    most, op = 2 ** g.bits - 1, g.bare
    for operators, y in ((("Softplus", "Tanh"), 1), (("Tanh", "Softplus"), 1.4), (("Exp" if g.bits == 8 else "Softplus", "Neg"), -40), (("Neg", "Softplus"), 6), (("Tanh", "Neg"), -2)):
        real = g.input([1, 4, 128], (np.float32(6 / most * g.rng.uniform(0.8, 1.2)), int(most * g.rng.uniform(0.4, 0.6))))
        for operator in operators:
            real = op(operator, [real])
        g.quantise(real, [1, 4, 128], (np.float32(abs(y) / most), 0 if y > 0 else most // 2))


def ties(g):
    """Float16 next to a half of uint8 quantised values whose scales are one over a whole number: of floats, and of quantised values that
    move to another encoding."""
    for whole in (30, 63, 255, 1000):
        y, middles = np.float32(1 / whole), np.float16((np.arange(4, 196) + 0.5) / whole)
        name, shape = "x%d" % len(g.inputs), [1, 4, 12, 12]
        g.codes[name] = np.concatenate([np.nextafter(middles, np.float16(0)), middles, np.nextafter(middles, np.float16(99))]).astype(np.float32).reshape(shape)
        g.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        g.add("Relu", [name], shape, (y, 0))
        for fraction in (1, 3):
            x = (np.float32(fraction * 2.0 ** -int(np.log2(whole) + 1)), int(g.rng.integers(60, 200)))
            g.add("Gather", [g.input([1, 5, 60], x), g.constant(np.arange(60)[::-1].copy())], [1, 5, 60], (y, x[1]), axis=2)


def extremes(g):
    """ReduceMax and ReduceMin to another encoding along each axis, of a graph input, a Sigmoid, a MatMul and a Conv."""
    one = np.float32(2 ** -16)
    for shape in ([1, 8, 10, 12], [1, 14, 18], [24, 16]):
        for axis in [axis for axis, size in enumerate(shape) if size > 1]:
            for maker in ("", "Sigmoid", "MatMul", "Conv")[:4 if len(shape) == 4 else 3]:
                x = g.input(shape, (np.float32(1.5e-4), 32768) if maker == "Sigmoid" else (one, int(g.rng.integers(0, 3000))))
                n = shape[1] if maker == "Conv" else shape[-1]
                weights = np.eye(n, dtype=np.uint8) * np.uint8(100) + np.uint8(128)
                if maker == "Sigmoid":
                    x = g.add("Sigmoid", [x], shape, (one, 0))
                elif maker:
                    x = g.add(maker, [x, g.scaled(weights.reshape([n, n, 1, 1]) if maker == "Conv" else weights, 0.01, 128)], shape, (one, 500))
                out = [1 if i == axis else size for i, size in enumerate(shape)]
                g.add("ReduceMax" if axis % 2 else "ReduceMin", [x, g.constant(np.int64([axis]))], out, (np.float32(one / g.rng.uniform(0.8, 1.1)), int(g.rng.integers(0, 2000))), keepdims=1)


def fine(g):
    """Reciprocal of numbers in such fine steps that 1 lies beyond the quantised values: a defect."""
    most, shape = 2 ** g.bits - 1, [1, 4, 8, 16]
    for reach, zero in ((0.98, 0), (0.76, 0), (0.97, 0.04), (0.25, 0), (1.01, 0.4)):
        scale = np.float32(reach * g.rng.uniform(0.95, 1) / most)
        g.add("Reciprocal", [g.input(shape, (scale, int(zero * most)))], shape, (np.float32(4 / reach / most), int(g.rng.integers(0, most // 4))))


GROUPS = [strided, norms, slopes, fused, averages, instances, softmax, transposed, means, operands, sums, short_softmax, quotients, by_numbers, turned, differences, totals, reciprocals, rows]


BOTH = [("8", sloped), ("16", sloped), ("16", transposed), ("8", floats), ("16", floats), ("8", pads), ("16", pads), ("16", bent), ("16", planes), ("16", narrow), ("8", narrowed), ("8", raised), ("16", raised), ("8", interpolated), ("16", interpolated), ("16", pooled), ("8", normed), ("16", normed), ("8", given), ("16", given), ("8", steep), ("16", halved), ("16", numbered), ("16", biased), ("16", recoded), ("16", shares), ("16", deviations), ("16", doubled), ("8", chained), ("16", chained), ("16", near_halves), ("16", scaled), ("8", cuts), ("8", swished), ("16", swished), ("8", enlarged), ("16", enlarged), ("8", still), ("16", tiny), ("16", long_strided), ("8", signed_slopes), ("8", single), ("16", single), ("16", widened), ("16", centred), ("8", cumulated), ("16", requantised), ("8", unquantised), ("16", unquantised), ("16", mixed), ("8", columns), ("16", columns), ("8", leaning), ("16", leaning), ("8", sum_ratios), ("8", zeroed_softmax), ("8", powers), ("16", powers), ("8", rows_of_conv), ("16", rows_of_conv), ("8", gelu_of_tanh), ("16", gelu_of_tanh), ("8", norm_in_parts), ("16", norm_in_parts), ("8", inverse_roots), ("16", inverse_roots), ("16", exponents), ("8", merged), ("16", merged), ("8", grouped), ("16", grouped), ("8", pairs), ("8", turned_norms), ("16", turned_norms), ("8", swish_in_parts), ("16", swish_in_parts), ("8", float_slopes), ("16", float_slopes), ("8", steep_sums), ("16", brought), ("8", log_softmax), ("8", dots), ("16", dots), ("16", wide), ("8", lengths), ("16", lengths), ("8", carried), ("16", carried), ("8", rows_transposed), ("16", rows_transposed), ("16", aligned), ("8", renamed), ("16", renamed), ("8", whole), ("16", whole), ("8", curved), ("16", curved), ("8", ties), ("16", attended), ("16", extremes), ("8", fine), ("8", left_out), ("16", left_out), ("8", cut_strided), ("16", cut_strided)]  # layers-*, of which chipsets differ


ON_V81 = [recoded]  # v81 makes other codes than v73
ON_V73 = ["layers-16-dots", "layers-16-wide"]  # on v69 a defect, and refused


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--npudiff", required=True)
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--only", help="the name of one group")
    options = parser.parse_args()
    os.makedirs(options.output, exist_ok=True)
    for i, make in enumerate(GROUPS):
        if options.only not in (None, make.__name__):
            continue
        group = Group("bytes-" + make.__name__, 8, np.random.default_rng([options.seed, i]))
        make(group)
        concat.write(options.npudiff, group, options.output)
    for i, (bits, make) in enumerate(BOTH):
        if options.only not in (None, "layers-%s-%s" % (bits, make.__name__)):
            continue
        group = Group("layers-%s-%s" % (bits, make.__name__), int(bits), np.random.default_rng([options.seed, 100 + i]))
        make(group)
        concat.write(options.npudiff, group, options.output, ("v69", "v73", "v81") if make in ON_V81 else ("v69", "v73")[group.name in ON_V73:])


if __name__ == "__main__":
    main()
