#!/usr/bin/env python3
"""Makes the cases of golden/programs for uint16 operators without matrix products, and of Div, as make_htp_oracle.py makes the
others: models of one operator, random codes, and the codes that the simulator of the HTP makes of those.

    tools/oracles/make_htp16_oracle.py --npudiff build/src/cli/npudiff -o golden/programs

Needs what make_htp_oracle.py needs."""
import argparse
import fnmatch
import os
import tempfile

import numpy as np
import onnx
from onnx import helper

import make_htp_oracle
from make_htp_oracle import Case, capture

N_CODES = 600
T = "uint16"


def unary(name, op, scale, zero, out, out_zero, constants=(), **attributes):
    case = Case(name, op, n_samples=1, **attributes).input("x", T, [1, N_CODES], scale, zero)
    for i, value in enumerate(constants):
        case.constant("c%d" % i, value)
    return case.output(T, [1, N_CODES], out, out_zero)


def pair(name, op, a, b, y):
    return (Case(name, op, n_samples=1).input("a", T, [1, N_CODES], *a).input("b", T, [1, N_CODES], *b)
            .output(T, [1, N_CODES], *y))


def strided(name, scale, zero, out, out_zero, has_channels):
    """A Conv of one channel each by steps of two, with a bias; weights of 9 bits, or a scale for each channel."""
    rng, sw = make_htp_oracle.rng, np.float32(0.0131)
    case = Case(name, "Conv", n_samples=1, group=6, strides=[2, 2], pads=[1, 1, 1, 1]).input("x", T, [1, 6, 16, 16], scale, zero)
    if has_channels:
        scales = np.float32(sw * rng.uniform(0.3, 1, 6))
        case.constant("w", make_htp_oracle.weights([6, 1, 3, 3], "int8", -127), scales, 0, 0)
        case.constant("b", make_htp_oracle.biases(6, 2000000), np.float32(scale) * scales, 0, 0)
    else:
        case.constant("w", make_htp_oracle.weights([6, 1, 3, 3]), sw, 117)
        case.constant("b", make_htp_oracle.biases(6, 2000000), [np.float32(scale) * sw], [0])
    return case.output(T, [1, 6, 8, 8], out, out_zero)


def gated(name, op, x, y, **attributes):
    """x times Sigmoid(x) or HardSigmoid(x)."""
    case = Case(name, "Mul", n_samples=1).input("x", T, [1, N_CODES], *x)
    case.nodes.append(helper.make_node(op, ["x_real"], ["gate_made"], name="gate", **attributes))
    case.nodes.append(helper.make_node("QuantizeLinear", ["gate_made", "gate_scale", "gate_zero"], ["gate"], name="gate_q"))
    case.dequantise("gate", np.uint16, 2.0 ** -16, 0)
    return case.output(T, [1, N_CODES], *y)


def reduced(name, op, shape, axis, scale, zero, out, out_zero):
    case = Case(name, op, n_samples=2).input("x", T, shape, scale, zero).constant("axes", np.array([axis], np.int64))
    left = list(shape)
    left[axis] = 1
    return case.output(T, left, out, out_zero)


def reduced_next_to_thresholds(name, op, n, scale, zero, out, out_zero):
    """Rows of n codes whose sum or mean is next to a whole number of steps of the output."""
    rng, rows = np.random.default_rng(n), 60
    step = float(np.float32(out)) / float(np.float32(scale)) * (n if op == "ReduceMean" else 1)
    sums = rng.integers(-int(15000 * step), int(15000 * step), 100000)
    sums = sums[np.argsort(np.abs(sums / step - np.rint(sums / step)), kind="stable")[:rows]]
    codes = zero + sums[:, None] // n + (np.arange(n) < sums[:, None] % n)
    half = n // 2
    apart = rng.integers(-3000, 3001, [rows, half])   # what one has more another has less
    codes[:, :half] += apart
    codes[:, half:2 * half] -= apart
    return (Case(name, op, n_samples=1).input("x", T, [rows, n], scale, zero, codes.astype(np.uint16))
            .constant("axes", np.array([1], np.int64)).output(T, [rows, 1], out, out_zero))


def divided(name, kind, a, b, y, seed, divisors=None):
    """Div by as many numbers, or by one for each row; some of them are zero."""
    rng, top = np.random.default_rng(seed), np.iinfo(kind).max + 1
    near = np.clip(np.rint(rng.normal(b[1], top / 16, divisors or [20, 60])), 0, top - 1).astype(kind)
    return (Case(name, "Div", n_samples=1).input("a", kind, [20, 60], *a, rng.integers(0, top, [20, 60]))
            .input("b", kind, divisors or [20, 60], *b, near).output(kind, [20, 60], *y))


def softmax(name, rows, n, scale, out, kind=T):
    """Rows whose codes lie around a middle of their own."""
    rng, top = np.random.default_rng([n, rows]), np.iinfo(kind).max
    middle = rng.integers(20000 * top // 65535, 45000 * top // 65535, [rows, 1])
    codes = np.clip(rng.normal(middle, rng.uniform(0.2, 3) / scale, [rows, n]), 0, top)
    case = Case(name, "Softmax", n_samples=1, axis=-1).input("x", kind, [1, rows, n], scale, 31007 * top // 65535,
                                                                  codes.astype(kind))
    return case.output(kind, [1, rows, n], out, 0)


def normalised(name, rows, n, scale, out, seed):
    """Rows around a middle of their own, with a bias."""
    rng = np.random.default_rng(seed)
    codes = np.clip(rng.normal(rng.integers(24000, 42000, [rows, 1]), rng.uniform(1500, 11000, [rows, 1]), [rows, n]), 0, 65535)
    weight = np.float32(0.0061)
    bias = np.rint(rng.normal(0, 0.3, n) / float(np.float32(scale) * weight)).astype(np.int32)
    return (Case(name, "LayerNormalization", n_samples=1, axis=-1, epsilon=1e-5)
            .input("x", T, [1, rows, n], scale, 31007, codes.astype(np.uint16))
            .constant("w", rng.integers(1, 256, n).astype(np.uint8), weight, 17)
            .constant("b", bias, [np.float32(scale) * weight], [0]).output(T, [1, rows, n], out, 30011))


def cases():
    yield unary("relu16", "Relu", 0.00021, 30011, 0.00013, 0)
    yield unary("relu16-zero", "Relu", 0.0000131, 41233, 0.000037, 9731)
    yield unary("clip16", "Clip", 0.00021, 30011, 0.000087, 11503, (np.float32(-1), np.float32(4.5)))
    yield unary("neg16", "Neg", 0.00017, 20011, 0.00023, 40009)
    yield unary("abs16", "Abs", 0.00017, 20011, 0.00015, 77)
    yield unary("leakyrelu16", "LeakyRelu", 0.00017, 9013, 0.000093, 3307, alpha=0.17)
    # The sum wraps: 65536 and more become 0.
    yield unary("leakyrelu16-wraps", "LeakyRelu", 0.00017, 9013, 0.00021, 31007, alpha=0.17)
    yield unary("hardsigmoid16", "HardSigmoid", 0.000121, 30011, 2.0 ** -16, 0, alpha=0.21, beta=0.43)
    yield unary("sigmoid16", "Sigmoid", 0.000237, 30011, 2.0 ** -16, 0)
    yield unary("sigmoid16-narrow", "Sigmoid", 0.0000437, 5003, 2.0 ** -16, 0)
    yield unary("tanh16", "Tanh", 0.0000717, 31019, 2.0 ** -15, 32768)
    yield unary("tanh16-wide", "Tanh", 0.000391, 37019, 2.0 ** -15, 32768)
    yield (Case("concat16", "Concat", n_samples=1, axis=1).input("x", T, [1, 300], 0.00021, 30011)
           .input("b", T, [1, 300], 0.00031, 12007).output(T, [1, 600], 0.00027, 21001))
    case = Case("slice16", "Slice", n_samples=1).input("x", T, [1, N_CODES], 0.00021, 30011)
    for i, value in enumerate([100, 500, 1]):
        case.constant("c%d" % i, np.array([value], np.int64))
    yield case.output(T, [1, 400], 0.00014, 21001)
    yield pair("sub16-0", "Sub", (0.000083, 33001), (0.000041, 30400), (0.0001, 32110))
    yield pair("sub16-1", "Sub", (0.000131, 1009), (0.00009, 60013), (0.0001, 9001))
    yield pair("mul16-0", "Mul", (0.00011, 31013), (0.00021, 36011), (0.00071, 30011))
    yield pair("mul16-1", "Mul", (0.000017, 5), (0.00031, 61001), (0.00013, 64007))
    yield pair("mul16-2", "Mul", (0.00047, 21001), (0.000091, 11), (0.0021, 13007))
    # Almost every sum is one below a threshold: shows how the constant of the sum is rounded.
    yield (Case("sub16-scalar", "Sub", n_samples=1).input("a", T, [1, N_CODES], 2.0 ** -14, 30001)
           .constant("b", np.uint16(45171), 5203 * 2.0 ** -28, 41112).output(T, [1, N_CODES], 2.0 ** -13, 29003))
    yield (Case("mul16-scalar", "Mul", n_samples=1).input("a", T, [1, N_CODES], 0.00011, 31013)
           .constant("b", np.uint16(60013), 0.00021, 36011).output(T, [1, N_CODES], 0.00053, 30011))
    # Rows with an odd index are not rounded as the others are.
    yield (Case("abs16-rows", "Abs", n_samples=1).input("x", T, [40, 15], 0.00017, 20011)
           .output(T, [40, 15], 0.00015, 77))
    yield gated("silu16-0", "Sigmoid", (0.000151, 30011), (0.000093, 3019))
    yield gated("silu16-1", "Sigmoid", (0.0000431, 11), (0.000119, 17))
    yield gated("silu16-2", "Sigmoid", (0.000371, 39019), (0.000091, 41011))
    # This is no operation of its own.
    yield gated("hardgate16", "HardSigmoid", (0.000137, 30011), (0.000087, 4507), alpha=1 / 6, beta=0.5)
    yield unary("gelu16", "Gelu", 0.000151, 30011, 0.000093, 3019)
    yield unary("gelu16-wide", "Gelu", 0.000071, 41003, 0.000391, 17011)
    yield unary("gelu16-narrow", "Gelu", 0.000023, 20011, 0.0000037, 7019)
    yield strided("strided16", 0.00013, 30011, 0.00071, 33001, False)
    yield strided("strided16-channels", 0.000091, 27011, 0.00041, 30011, True)
    yield pair("max16", "Max", (0.000083, 33001), (0.000141, 30400), (0.0001, 32110))
    # A zero point whose multiple lies half between two offsets.
    yield pair("min16", "Min", (0.00011, 16384), (0.00031, 61001), (4289.0 * 2.0 ** -25, 34007))
    yield (Case("max16-scalar", "Max", n_samples=1).input("a", T, [1, N_CODES], 0.00011, 31013)
           .constant("b", np.uint16(7), 0.00021, 1911).output(T, [1, N_CODES], 0.000053, 9011))
    for window, zero, out in ((2, 0, 0.000153), (3, 31011, 0.000041)):
        yield (Case("pool16-%d" % window, "AveragePool", n_samples=2, kernel_shape=[window] * 2, strides=[window] * 2)
               .input("x", T, [1, 5, 18, 12], 0.0000937, zero).output(T, [1, 5, 18 // window, 12 // window], out, zero))
    yield reduced("reducesum16", "ReduceSum", [1, 9, 60], 1, 0.0000437, 0, 0.00051, 0)
    yield reduced("reducesum16-more", "ReduceSum", [60, 5], 1, 0.0000937, 20011, 0.000051, 31007)
    yield reduced("reducemean16", "ReduceMean", [60, 48], 1, 0.0000937, 31011, 0.0000177, 33007)
    yield reduced("reducemean16-four", "ReduceMean", [1, 8, 15, 4], -1, 0.0000737, 0, 0.000093, 0)
    yield reduced("reducemean16-plane", "ReduceMean", [1, 40, 60], 1, 0.0000937, 31011, 0.0000177, 33007)
    yield reduced_next_to_thresholds("reducesum16-many", "ReduceSum", 500, 0.0000937, 31011, 0.000231, 33007)
    yield reduced_next_to_thresholds("reducemean16-many", "ReduceMean", 1100, 0.0000937, 31011, 0.00000231, 33007)
    yield reduced_next_to_thresholds("reducesum16-few", "ReduceSum", 33, 0.0000937, 23011, 0.00371, 33007)
    yield unary("exp16", "Exp", 0.0000437, 20011, 0.000113, 0)
    # Whole powers of two below zero are made from the place before them; the multiplier lies half between two numbers.
    yield unary("exp16-below", "Exp", 0.0000846126931719482, 65535, 16387 * 2.0 ** -30, 17)
    yield unary("elu16", "Elu", 0.000151, 37011, 0.0000771, 13007)
    yield unary("elu16-alpha", "Elu", 0.000071, 51003, 0.000391, 17011, alpha=0.7)
    yield unary("sqrt16", "Sqrt", 0.000121, 0, 0.0000431, 0)
    yield unary("sqrt16-wraps", "Sqrt", 0.0000171, 12007, 0.0000213, 1009)
    yield unary("hardswish16", "HardSwish", 0.000151, 30011, 0.000093, 4019)
    yield unary("hardswish16-wide", "HardSwish", 0.000371, 21003, 0.00171, 17011)
    yield unary("hardswish16-narrow", "HardSwish", 0.000023, 20011, 0.0000037, 57019)
    yield divided("div16-0", T, (0.000083, 33001), (0.000041, 30400), (0.00021, 32110), 1)
    yield divided("div16-1", T, (0.000131, 1009), (0.00009, 65535), (0.0005, 59001), 2)
    yield divided("div16-rows", T, (0.000031, 29009), (0.0000271, 0), (0.00027, 31001), 3, [20, 1])
    yield divided("div8-0", "uint8", (0.021, 129), (0.0081, 117), (0.061, 131), 4)
    yield divided("div8-1", "uint8", (0.0131, 41), (0.031, 255), (0.13, 209), 5)
    yield divided("div8-rows", "uint8", (0.0231, 121), (0.00731, 0), (0.079, 129), 6, [20, 1])
    yield softmax("softmax16-8", 75, 8, 0.000217, 0.0000131)
    yield softmax("softmax16-32", 40, 32, 0.0000931, 2.0 ** -16)
    yield softmax("softmax16-64", 20, 64, 0.000171, 1 / 65535)
    yield softmax("softmax16-100", 12, 100, 0.0000371, 0.00000171)
    yield softmax("softmax16-3", 150, 3, 0.0123, 0.000031)
    yield softmax("softmax16-700", 2, 700, 0.00000611, 0.000000271)
    yield softmax("softmax8-17", 60, 17, 0.0931, 1 / 256, "uint8")
    yield softmax("softmax8-31", 40, 31, 0.0213, 1 / 255, "uint8")
    yield softmax("softmax8-100", 12, 100, 0.00271, 0.00117, "uint8")
    yield softmax("softmax8-1000", 2, 1000, 0.0131, 0.000171, "uint8")
    yield normalised("norm16-64", 40, 64, 0.000117, 0.00019, 7)
    yield normalised("norm16-300", 20, 300, 0.0000431, 0.00017, 8)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--npudiff", required=True)
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--only", default="*", help="glob of the cases to make; their codes are the same then")
    options = parser.parse_args()
    make_htp_oracle.rng = np.random.default_rng(20261123)
    for case in cases():
        if not fnmatch.fnmatch(case.name, options.only):
            continue
        stem = os.path.join(options.output, case.name)
        with tempfile.TemporaryDirectory() as folder:
            for name, device in [("v69", "htp-sim:gen1"), ("v73", "htp-sim:gen3")]:
                capture(options.npudiff, case, device, folder).tofile("%s.%s.bin" % (stem, name))
        onnx.save(case.model, stem + ".onnx")
        for name, codes in case.codes.items():
            codes.tofile("%s.%s.bin" % (stem, name))


if __name__ == "__main__":
    main()
