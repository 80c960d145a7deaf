#!/usr/bin/env python3
"""Makes the files of golden/programs that concern products, their biases and norms: models of one operator each, random
codes, and the codes that the simulator makes of those (see make_htp_oracle.py, whose files these go beside).

    tools/oracles/make_htp_product_oracle.py --npudiff build/src/cli/npudiff -o golden/programs"""
import numpy as np
from onnx import helper, numpy_helper

import make_htp_oracle as oracle
from make_htp_oracle import Case

rng = np.random.default_rng(20261123)


def scales_of_channels(n, greatest, ratio):
    return np.float32(greatest * np.exp(-rng.uniform(0, 1, n) * np.log(ratio)))


def steps_above(scales, n):
    for _ in range(n):
        scales = np.nextafter(scales, np.float32(1))
    return scales


def biased(wide, operator="Conv", ratio=1, per_channel=True, bias_factor=1.0, bias_steps=0):
    """A product of 16 channels with biases of all sizes."""
    t, zx, zy = ("uint16", 32768, 30011) if wide else ("uint8", 128, 117)
    n, inner = 16, 12
    sx, sw = np.float32(0.0213), scales_of_channels(n, 0.0117, ratio) if per_channel else np.float32([0.0117])
    sy = np.float32(sx * sw.max() * rng.uniform(150, 300))
    w = rng.integers(-127, 128, [n, inner]).astype(np.int8)
    reach = 60000 * (200 if wide else 1)
    b = np.rint(rng.integers(-reach, reach, n) * np.exp(-rng.uniform(0, 8, n))).astype(np.int32)
    sb = steps_above(np.float32(bias_factor) * (sx * sw), bias_steps)
    sb = sb if per_channel else sb[:1]
    axis = 0 if per_channel else None
    name = "bias%s-%s" % (16 if wide else 8, operator.lower())
    is_conv = operator == "Conv"
    case = Case(name, operator, n_samples=1, **({} if is_conv else {"transB": 1}))
    case.input("x", t, [1, inner, 5, 5] if is_conv else [25, inner], sx, zx)
    case.constant("w", w.reshape([n, inner, 1, 1]) if is_conv else w, sw if per_channel else sw[0], 0, axis)
    case.constant("b", b, sb if per_channel else sb[0], 0, axis)
    return case, t, ([1, n, 5, 5] if is_conv else [25, n]), sy, zy


KINDS = {
    "channels": dict(ratio=30),
    "far": dict(ratio=1000, bias_steps=1),
    "off": dict(ratio=3, bias_steps=300),
    "rescaled": dict(ratio=10, bias_factor=1.3),
    "one": dict(per_channel=False),
    "one-rescaled": dict(per_channel=False, bias_factor=0.37),
}


def transposed(wide, stride, has_channels):
    """Weights that do not fit 8 bits in some phases only, or that have scales per channel."""
    t, zx, zy = ("uint16", 31337, 30011) if wide else ("uint8", 121, 117)
    n, inner, side, size = 4, 3, 5, 3 + stride % 2
    sx = np.float32(0.0213)
    sw = scales_of_channels(n, 0.0117, 10) if has_channels else np.float32([0.0117])
    if has_channels:
        w, zw = rng.integers(-127, 128, [inner, n, size, size]).astype(np.int8), 0
    else:
        w, zw = rng.integers(0, 256, [inner, n, size, size]).astype(np.uint8), 90
        w[:, :, ::stride, ::stride] = rng.integers(60, 140, w[:, :, ::stride, ::stride].shape)
    b = rng.integers(-9000, 9000, n).astype(np.int32) * (200 if wide else 1)
    sy = np.float32(sx * sw.max() * 120)
    case = Case("transposed%d-%d%s" % (16 if wide else 8, stride, "-channels" if has_channels else ""), "ConvTranspose",
                n_samples=1, strides=[stride, stride], pads=[1, 1, 0, 1])
    case.input("x", t, [1, inner, side, side], sx, zx)
    case.constant("w", w, sw if has_channels else sw[0], zw, 1 if has_channels else None)
    case.constant("b", b, sx * sw if has_channels else np.float32(sx * sw[0]), 0, 0 if has_channels else None)
    rows, columns = ((side - 1) * stride + size - p for p in (1, 2))
    return case.output(t, [1, n, rows, columns], sy, zy)


def with_other_operands(wide, is_bias):
    """A bias of floats, or int8 weights with a zero point."""
    t, zx, zy = ("uint16", 31337, 30011) if wide else ("uint8", 121, 117)
    n, inner, sx, sw = 8, 12, np.float32(0.0213), np.float32(0.0117)
    case = Case("%s%d" % ("float-bias" if is_bias else "int8-zero", 16 if wide else 8), "Conv", n_samples=1)
    case.input("x", t, [1, inner, 5, 5], sx, zx)
    case.constant("w", rng.integers(-128, 128, [n, inner, 1, 1]).astype(np.int8), sw, 0 if is_bias else 23)
    b = rng.integers(-9000, 9000, n).astype(np.int32) * (200 if wide else 1)
    if is_bias:
        case.constant("b", np.float32(b * sx * sw * 1.0003))
    else:
        case.constant("b", b, np.float32(sx * sw), 0)
    return case.output(t, [1, n, 5, 5], np.float32(sx * sw * 220), zy)


def calculated(maker, scale, zero):
    """A MatMul whose second operand another operator makes; its codes less zero point do not fit 8 signed bits."""
    case = Case("%s-matmul8" % maker.lower(), maker).input("a", "uint8", [16, 12], 0.031, 126)
    if maker == "MatMul":
        case.constant("w", rng.integers(-127, 128, [12, 10]).astype(np.int8), np.float32(0.0117), 0)
    if maker == "Mul":
        case.input("b", "uint8", [16, 12], 0.027, 119)
    last = 10 if maker == "MatMul" else 12
    case.nodes.append(helper.make_node(maker, case.arguments, ["made_real"], name="maker"))
    case.init += [numpy_helper.from_array(np.float32(scale), "made_scale"),
                  numpy_helper.from_array(np.uint8(zero), "made_zero")]
    encoding = ["made_scale", "made_zero"]
    case.nodes.append(helper.make_node("QuantizeLinear", ["made_real"] + encoding, ["made"], name="made_q"))
    case.nodes.append(helper.make_node("DequantizeLinear", ["made"] + encoding, ["made_back"], name="made_dq"))
    case.arguments = []
    case.input("x", "uint8", [8, 16], 0.021, 121)
    case.op = "MatMul"
    case.arguments.append("made_back")
    return case.output("uint8", [8, last], 0.021 * scale * 190, 131)


def norm(n, rows):
    """uint8 rows of different means and spreads."""
    means, spreads = rng.uniform(60, 190, [rows, 1]), rng.uniform(3, 60, [rows, 1])
    codes = np.clip(rng.normal(means, spreads, [rows, n]), 0, 255)
    return (Case("norm8-%d" % n, "LayerNormalization", n_samples=1, axis=-1, epsilon=1e-5)
            .input("x", "uint8", [rows, n], 0.023, 119, codes)
            .constant("w", rng.integers(0, 256, n).astype(np.uint8), 0.0087, 70)
            .constant("b", rng.integers(-3000, 3000, n).astype(np.int32), 0.0003, 0)
            .output("uint8", [rows, n], 0.024, 121))


def silu():
    """x Sigmoid(x), which is one operation; many values lie half between two codes, and the zero point is odd."""
    case = Case("silu8-ties", "Sigmoid", n_samples=1).input("x", "uint8", [1, 256], 0.5, 128, np.arange(256))
    case.nodes.append(helper.make_node("Sigmoid", case.arguments, ["gate_real"], name="gate"))
    case.init += [numpy_helper.from_array(np.float32(1 / 255), "gate_scale"),
                  numpy_helper.from_array(np.uint8(0), "gate_zero")]
    encoding = ["gate_scale", "gate_zero"]
    case.nodes.append(helper.make_node("QuantizeLinear", ["gate_real"] + encoding, ["gate"], name="gate_q"))
    case.nodes.append(helper.make_node("DequantizeLinear", ["gate"] + encoding, ["gate_back"], name="gate_dq"))
    case.op = "Mul"
    case.arguments.append("gate_back")
    case.output("uint8", [1, 256], 1.0, 127)
    case.op = "Sigmoid"  # unlike that of a Mul, its arithmetic is the same with all runtimes
    return case


def cases():
    for wide in (False, True):
        for operator in ("Conv", "Gemm"):
            for kind, options in KINDS.items():
                if operator == "Gemm" and kind not in ("off", "rescaled"):
                    continue
                case, t, shape, sy, zy = biased(wide, operator, **options)
                case.name += "-" + kind
                yield case.output(t, shape, sy, zy)
    for wide in (False, True):
        for stride, has_channels in ((1, False), (2, False), (2, True), (3, False)):
            yield transposed(wide, stride, has_channels)
        yield with_other_operands(wide, True)
        yield with_other_operands(wide, False)
    yield calculated("MatMul", 0.021, 77)
    yield calculated("Mul", 0.05, 180)
    yield calculated("Gelu", 0.0157, 10)
    yield norm(48, 30)
    yield norm(100, 20)
    yield norm(256, 10)
    yield silu()


if __name__ == "__main__":
    oracle.main(cases)
