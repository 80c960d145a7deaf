"""The cases of tools/oracles/make_exact_ops_oracle.py, one function per family of operators. c.add() states a case, c.x() and c.codes()
make random inputs."""

import itertools

import numpy as np
import onnx
from onnx import helper, numpy_helper

import exact_ops_formulas as formulas

MS = "com.microsoft"
I64 = np.int64


# ---- element by element ----

def unary(c):
    specials = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -0.5, 30.0, -30.0])
    x = np.concatenate([c.x(13), specials])
    for op in ["Abs", "Ceil", "Floor", "Neg", "Relu", "Round", "Sign"]:
        c.add(op, [x], exact=True)
    for op in ["Atan", "Exp", "HardSigmoid", "HardSwish", "LeakyRelu", "Reciprocal", "Softsign", "Tanh", "Elu", "Celu",
               "Selu", "Shrink", "ThresholdedRelu", "Erf", "Cos", "Sin", "Tan", "Asinh", "Cosh", "Sinh"]:
        numbers = x[np.isfinite(x)]
        c.add(op, [numbers if op != "Tanh" else x], want=formulas.UNARY.get(op, lambda v: None)(numbers))
    for op in ["Sigmoid", "Softplus", "Mish", "Gelu"]:
        c.add(op, [x[np.isfinite(x)]], want=formulas.UNARY.get(op, lambda v: None)(x[np.isfinite(x)]))
    for op in ["Log", "Sqrt"]:
        c.add(op, [np.abs(x)])
    for op in ["Asin", "Acos", "Atanh"]:
        c.add(op, [c.x(12, low=-1, high=1)[:12] * 0.9])
    c.add("Acosh", [c.x(12, low=1, high=4)])
    c.add("Abs", [np.array([-3, 0, 5], np.int32)], exact=True)
    c.add("Neg", [np.array([-3, 0, 5], np.int8)], exact=True)
    c.add("Not", [np.array([True, False])], exact=True)
    c.add("IsNaN", [x], exact=True)
    c.add("IsInf", [x], exact=True)
    c.add("IsInf", [x], {"detect_negative": 0}, exact=True)
    y = c.x(17)
    c.add("Celu", [y], {"alpha": 2.0})
    c.add("Elu", [y], {"alpha": 0.3})
    c.add("HardSigmoid", [y], {"alpha": 0.3, "beta": 0.4})
    c.add("LeakyRelu", [y], {"alpha": 0.3})
    c.add("Selu", [y], {"alpha": 1.1, "gamma": 0.9})
    c.add("Shrink", [y], {"bias": 0.25, "lambd": 1.5})
    c.add("ThresholdedRelu", [y], {"alpha": 0.7})
    c.add("Gelu", [y], {"approximate": "tanh"}, want=formulas.gelu_tanh(y))
    c.add("Gelu", [y], {"approximate": "none"}, want=formulas.gelu(y))
    c.add("Gelu", [y], domain=MS, want=formulas.gelu(y))
    c.add("QuickGelu", [y], domain=MS, want=y / (1 + np.exp(-float(np.float32(1.702)) * y)))
    c.add("QuickGelu", [y], {"alpha": 2.0}, domain=MS, want=y / (1 + np.exp(-2 * y)))
    z, bias = c.x(3, 5), c.x(5)
    c.add("BiasGelu", [z, bias], domain=MS, want=formulas.gelu(z + bias))
    c.add("FastGelu", [z, bias], domain=MS, want=formulas.gelu_tanh(z + bias))
    c.add("FastGelu", [z], domain=MS, want=formulas.gelu_tanh(z))
    c.add("Clip", [y], {"min": -1.0, "max": 0.5}, opset=6, exact=True)
    for low, high in itertools.product([None, np.float64(-1)], [None, np.float64(2)]):
        c.add("Clip", [x, low, high], exact=True, want=formulas.clip(x, low, high))
    c.add("Clip", [np.arange(-9, 9, dtype=np.int32), np.int32(-3), np.int32(4)], exact=True)


def binary(c):
    shapes = [((3, 4), (3, 4)), ((3, 4), (4,)), ((3, 1), (4,)), ((2, 1, 3), (5, 1)), ((), (3,)), ((0, 3), (1, 3))]
    for op in ["Add", "Sub", "Mul", "Div", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"]:
        for a, b in shapes:
            u, v = np.asarray(c.x(*a)), np.asarray(c.x(*b))
            c.add(op, [u, np.where(v == 0, 1, v)], exact=True)
    for a, b in shapes[:4]:
        c.add("Pow", [np.abs(c.x(*a)) + 0.1, c.x(*b)])
        c.add("PRelu", [c.x(*a), c.x(*b)], exact=True) if len(a) >= len(b) else None
        for op in ["Min", "Max"]:
            c.add(op, [c.x(*a), c.x(*b)], exact=True)
        for op in ["And", "Or", "Xor"]:
            c.add(op, [c.x(*a) > 0, c.x(*b) > 0], exact=True)
        c.add("Mod", [c.x(*a), c.x(*b) + 0.0078125], {"fmod": 1}, exact=True)
        c.add("Where", [c.x(*a) > 0, c.x(*b), c.x(*a)], exact=True)
    ints = np.array([-7, -4, 7, 9, 5], np.int64), np.array([2, -3, -2, 4, -5], np.int64)
    c.add("Mod", ints, exact=True)
    c.add("Mod", ints, {"fmod": 1}, exact=True)
    c.add("Div", ints, exact=True, want=np.trunc(ints[0] / ints[1]).astype(I64))  # numpy would floor
    c.add("Pow", [np.array([2, -3, 5], np.int64), np.array([3, 3, 2], np.int64)], exact=True)
    small = c.codes(np.uint8, 12), c.codes(np.uint8, 12)
    for op in ["Add", "Sub", "Mul"]:
        c.add(op, small, exact=True)
    signed = c.codes(np.int8, 12), c.codes(np.int8, 12)
    for op in ["Add", "Sub", "Mul"]:
        c.add(op, signed, exact=True)
    three = [c.x(2, 1, 3), c.x(4, 1), c.x(3)]
    for op in ["Min", "Max", "Sum", "Mean"]:
        c.add(op, three, want=three[0] / 3 + three[1] / 3 + three[2] / 3 if op == "Mean" else None)
        c.add(op, three[:1], exact=True, want=three[0])
    nan = np.array([np.nan, 1.0, -1.0]), np.array([1.0, np.nan, 2.0])
    c.add("Min", nan, exact=True)
    c.add("Max", nan, exact=True)
    c.add("Where", [np.array([[True], [False]]), np.arange(3), np.int64(7)], exact=True)


def quantization(c):
    for dtype in [np.uint8, np.int8, np.uint16, np.int16]:
        x = np.concatenate([c.x(10, low=-90, high=90), [0.125, -0.125, 0.375, 0.625, 1e9, -1e9]])
        zero = c.codes(dtype, 1)[0]
        c.add("QuantizeLinear", [x, np.float64(0.25), zero], exact=True, want=formulas.quantize(x, 0.25, zero, dtype))
        codes = c.codes(dtype, 9)
        for domain in ["", MS]:
            c.add("DequantizeLinear", [codes, np.float64(0.1), zero], domain=domain, exact=True,
                  want=0.1 * (codes.astype(float) - float(zero)))
    x = c.x(2, 3, 2, 2, low=-40, high=40)
    scale, zero = np.array([0.1, 0.25, 1.5]), np.array([3, -7, 0], np.int8)
    shape = (1, 3, 1, 1)
    c.add("QuantizeLinear", [x, scale, zero], exact=True,
          want=formulas.quantize(x, scale.reshape(shape), zero.reshape(shape), np.int8))
    c.add("QuantizeLinear", [x, scale, zero], {"axis": -3}, exact=True, domain=MS,
          want=formulas.quantize(x, scale.reshape(shape), zero.reshape(shape), np.int8))
    c.add("QuantizeLinear", [x, np.float64(0.5)], exact=True, want=formulas.quantize(x, 0.5, 0, np.uint8))
    c.add("QuantizeLinear", [x, np.float64(0.5)], {"output_dtype": onnx.TensorProto.INT16}, exact=True,
          want=formulas.quantize(x, 0.5, 0, np.int16))
    codes = c.codes(np.int8, 2, 3, 4)
    c.add("DequantizeLinear", [codes, scale, zero], exact=True,
          want=scale.reshape(3, 1) * (codes - zero.astype(float).reshape(3, 1)))
    scale4 = np.array([0.1, 0.2, 0.3, 0.4])
    c.add("DequantizeLinear", [codes, scale4], {"axis": 2}, exact=True, want=scale4 * codes)
    bias = c.random.integers(-2**31, 2**31, 4, dtype=np.int32)
    c.add("DequantizeLinear", [bias, scale4], {"axis": 0}, exact=True, want=scale4 * bias)
    blocks, block_zero = np.abs(c.x(2, 2, 4)) + 0.5, c.codes(np.int8, 2, 2, 4)
    spread = np.repeat(blocks, 2, 1)[:, :3], np.repeat(block_zero, 2, 1)[:, :3]
    c.add("DequantizeLinear", [codes, blocks, block_zero], {"axis": 1, "block_size": 2}, exact=True,
          want=spread[0] * (codes - spread[1].astype(float)))
    y = c.x(2, 3, 4, low=-50, high=50)
    c.add("QuantizeLinear", [y, blocks, block_zero], {"axis": 1, "block_size": 2}, exact=True,
          want=formulas.quantize(y, spread[0], spread[1], np.int8))


# ---- sums of products ----

def products(c):
    for a, b in [((3, 4), (4, 5)), ((4,), (4, 5)), ((3, 4), (4,)), ((4,), (4,)), ((2, 3, 4), (4, 2)),
                 ((2, 1, 3, 4), (5, 4, 2)), ((3, 4), (2, 4, 5)), ((4,), (2, 4, 3)), ((2, 3, 4), (4,)), ((2, 0), (0, 3))]:
        c.add("MatMul", [c.x(*a), c.x(*b)])
    for trans_a, trans_b in itertools.product([0, 1], [0, 1]):
        a, b = c.x(*((4, 3) if trans_a else (3, 4))), c.x(*((5, 4) if trans_b else (4, 5)))
        c.add("Gemm", [a, b, c.x(5)], {"transA": trans_a, "transB": trans_b})
        c.add("Gemm", [a, b], {"transA": trans_a, "transB": trans_b, "alpha": 0.5})
    for shape in [(), (1,), (3, 1), (3, 5), (1, 5)]:
        c.add("Gemm", [c.x(3, 4), c.x(4, 5), np.asarray(c.x(*shape))], {"alpha": 1.5, "beta": 0.25})
    for equation, shapes in [
            ("ij,jk->ik", [(3, 4), (4, 2)]), ("bij,bjk->bik", [(2, 3, 4), (2, 4, 2)]), ("ij->ji", [(3, 4)]),
            ("ij->", [(3, 4)]), ("ii->i", [(3, 3)]), ("ii", [(3, 3)]), ("ij,jk", [(2, 3), (3, 4)]), ("ba", [(2, 3)]),
            ("...ij,...jk->...ik", [(2, 2, 3), (2, 3, 4)]), ("...ij,jk->...ik", [(5, 2, 3), (3, 2)]),
            ("bhwc,hkc -> bhwk", [(2, 3, 2, 4), (3, 5, 4)]), ("i,j->ij", [(3,), (4,)]), ("b...,b...->...", [(2, 3), (2, 3)]),
            ("nchw,nkhw->nck", [(1, 2, 3, 2), (1, 4, 3, 2)])]:
        arrays = [c.x(*s) for s in shapes]
        c.add("Einsum", arrays, {"equation": equation}, want=np.einsum(equation.replace(" ", ""), *arrays))


def convolutions(c):
    def conv(x, w, bias=None, **attributes):
        arrays = [c.x(*x), c.x(*w)] + ([c.x(bias)] if bias else [])
        c.add("Conv", arrays, attributes, want=formulas.conv(*arrays, **attributes))

    conv((2, 3, 7), (4, 3, 3))
    conv((1, 2, 9), (2, 2, 3), 2, strides=[2], dilations=[2], pads=[1, 3])
    conv((1, 3, 5, 6), (4, 3, 3, 3), 4, pads=[1, 1, 1, 1])
    conv((1, 3, 5, 6), (4, 3, 3, 3), 4, pads=[1, 1, 1, 1], kernel_shape=[3, 3])
    conv((2, 3, 5, 4), (2, 3, 1, 1), 2)
    conv((1, 4, 6, 5), (4, 1, 3, 3), 4, group=4, pads=[1, 0, 2, 1])
    conv((1, 4, 6, 5), (8, 1, 3, 3), group=4, strides=[2, 1])
    conv((1, 4, 6, 7), (6, 2, 3, 2), 6, group=2, strides=[2, 3], pads=[0, 1, 1, 0])
    conv((1, 2, 9, 9), (3, 2, 3, 3), dilations=[2, 3], pads=[2, 2, 2, 2])
    conv((1, 2, 4, 4), (3, 2, 1, 1), strides=[2, 2], pads=[1, 1, 0, 0])
    conv((1, 2, 3, 4, 5), (3, 2, 2, 3, 2), 3, pads=[1, 0, 1, 0, 1, 1], strides=[1, 2, 2])
    conv((1, 2, 3, 3, 3), (2, 2, 1, 1, 1), 2)
    conv((1, 2, 5, 5), (3, 2, 3, 3), pads=[-1, 0, 0, -1])
    for mode in ["SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"]:
        conv((1, 2, 6, 5), (2, 2, 3, 2), auto_pad=mode, strides=[2, 2])
        conv((1, 2, 6, 5), (2, 2, 4, 3), auto_pad=mode)
    conv((1, 2, 7), (2, 2, 3), auto_pad="SAME_UPPER", dilations=[2])

    def transposed(x, w, bias=None, **attributes):
        arrays = [c.x(*x), c.x(*w)] + ([c.x(bias)] if bias else [])
        c.add("ConvTranspose", arrays, attributes, want=formulas.conv_transpose(*arrays, **attributes))

    transposed((1, 2, 4), (2, 3, 3))
    transposed((2, 3, 3, 4), (3, 2, 3, 3), 2)
    transposed((1, 2, 3, 3), (2, 2, 3, 3), 2, strides=[2, 2], pads=[1, 1, 1, 1])
    transposed((1, 2, 3, 3), (2, 2, 3, 3), strides=[3, 2], output_padding=[1, 1])
    transposed((1, 2, 3, 3), (2, 2, 3, 3), strides=[3, 2], output_shape=[10, 8])
    transposed((1, 2, 3, 3), (2, 2, 3, 3), strides=[3, 2], output_shape=[8, 6], auto_pad="SAME_UPPER")
    transposed((1, 2, 3, 3), (2, 2, 3, 3), strides=[2, 2], auto_pad="SAME_UPPER")
    transposed((1, 2, 3, 3), (2, 2, 4, 4), strides=[2, 3], auto_pad="SAME_LOWER")
    transposed((1, 4, 3, 3), (4, 3, 2, 2), 6, group=2, strides=[2, 2])
    transposed((1, 2, 3, 3), (2, 1, 2, 2), dilations=[2, 3])
    transposed((1, 2, 2, 3, 2), (2, 3, 2, 2, 3), 3, strides=[2, 1, 2], pads=[0, 1, 1, 1, 0, 1])


# ---- pooling, reducing, normalising ----

def pooling(c):
    kinds = [((1, 2, 7), dict(kernel_shape=[3])), ((2, 2, 6, 5), dict(kernel_shape=[2, 3])),
             ((1, 1, 7, 6), dict(kernel_shape=[3, 2], strides=[2, 2])),
             ((1, 2, 5, 5), dict(kernel_shape=[3, 3], pads=[1, 1, 1, 1])),
             ((1, 2, 5, 6), dict(kernel_shape=[3, 2], pads=[0, 1, 1, 0], strides=[2, 1])),
             ((1, 1, 6, 6), dict(kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)),
             ((1, 1, 6, 7), dict(kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1)),
             ((1, 1, 4, 4), dict(kernel_shape=[1, 1], strides=[3, 3], pads=[0, 0, 0, 0], ceil_mode=1)),
             ((1, 1, 8, 7), dict(kernel_shape=[2, 3], dilations=[2, 2])),
             ((1, 1, 8, 7), dict(kernel_shape=[2, 3], dilations=[3, 2], pads=[1, 2, 1, 2], strides=[2, 1], ceil_mode=1)),
             ((1, 2, 4, 5, 3), dict(kernel_shape=[2, 2, 2], strides=[2, 1, 1], pads=[1, 0, 0, 0, 1, 1])),
             ((1, 1, 5, 7), dict(kernel_shape=[2, 3], auto_pad="SAME_UPPER", strides=[2, 2])),
             ((1, 1, 5, 7), dict(kernel_shape=[4, 2], auto_pad="SAME_LOWER")),
             ((1, 1, 5, 7), dict(kernel_shape=[2, 3], auto_pad="VALID", strides=[2, 2]))]
    for shape, attributes in kinds:
        x = c.x(*shape)
        c.add("MaxPool", [x], attributes, exact=True, want=formulas.pool("max", x, **attributes)[0])
        c.add("MaxPool", [x], attributes, exact=True, outputs=2, want=formulas.pool("max", x, **attributes))
        for include in [0, 1]:
            both = {**attributes, "count_include_pad": include}
            c.add("AveragePool", [x], both, want=formulas.pool("average", x, **both)[0])
        c.add("LpPool", [x], {**attributes, "p": 3}, want=formulas.pool("lp", x, p=3, **attributes)[0])
    c.add("MaxPool", [c.codes(np.uint8, 1, 1, 5, 5)], {"kernel_shape": [2, 2]}, exact=True)
    x = c.x(1, 1, 4, 4)
    x[0, 0, 1, 1] = np.nan
    c.add("MaxPool", [x], {"kernel_shape": [2, 2]}, exact=True, want=formulas.pool("max", x, kernel_shape=[2, 2])[0])
    for shape in [(2, 3, 4), (2, 3, 4, 5), (1, 2, 3, 2, 2)]:
        x, axes = c.x(*shape), tuple(range(2, len(shape)))
        c.add("GlobalAveragePool", [x])
        c.add("GlobalMaxPool", [x], exact=True, want=x.max(axes, keepdims=True))
        c.add("GlobalLpPool", [x], {"p": 1}, want=np.abs(x).sum(axes, keepdims=True))
        c.add("GlobalLpPool", [x], want=np.sqrt((x * x).sum(axes, keepdims=True)))


def reductions(c):
    for op in ["L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare"]:
        old = 11 if op == "Sum" else 17
        low = 1 if op == "LogSum" else -4
        exact = op in ("Max", "Min")
        for axes, keep in [([1], 1), ([0, 2], 0), ([-1], 0), ([0, 1, 2], 1)]:
            c.add("Reduce" + op, [c.x(3, 4, 2, low=low)], {"axes": axes, "keepdims": keep}, opset=old, exact=exact)
            c.add("Reduce" + op, [c.x(3, 4, 2, low=low), np.array(axes)], {"keepdims": keep}, exact=exact)
        c.add("Reduce" + op, [c.x(3, 4, 2, low=low)], exact=exact)
        c.add("Reduce" + op, [c.x(3, 4, low=low)], {"keepdims": 0}, opset=11, exact=exact)
        c.add("Reduce" + op, [c.x(3, 4, low=low), np.array([], I64)], {"noop_with_empty_axes": 1}, exact=exact)
    c.add("ReduceSum", [np.array([[100, 100], [100, 27]], np.int32)], exact=True)
    c.add("ReduceSum", [np.zeros((2, 0, 3)), np.array([1])], exact=True)
    c.add("ReduceLogSumExp", [c.x(3, 4) + 5000], want=None)
    for op in ["ArgMax", "ArgMin"]:
        x = c.x(3, 4, 2)
        x[0], x[1, 2] = x[1], x[1, 3]
        for axis, keep, last in itertools.product([0, 1, -1], [0, 1], [0, 1]):
            c.add(op, [x], {"axis": axis, "keepdims": keep, "select_last_index": last}, opset=13, exact=True)
        c.add(op, [x], exact=True)
    for op in ["Softmax", "LogSoftmax", "Hardmax"]:
        for axis in [0, 1, -1]:
            c.add(op, [c.x(3, 4, 2)], {"axis": axis}, opset=13)
            x = c.x(3, 4, 2)
            c.add(op, [x], {"axis": axis}, opset=11, want=formulas.coerced(op, x, axis))
        x = c.x(3, 4, 2)
        c.add(op, [x], opset=9, want=formulas.coerced(op, x, 1))
        c.add(op, [x])
        c.add(op, [x + 900])
    for exclusive, reverse, axis in itertools.product([0, 1], [0, 1], [0, -1]):
        x = c.x(3, 4)
        c.add("CumSum", [x, np.int64(axis)], {"exclusive": exclusive, "reverse": reverse},
              want=formulas.cumsum(x, axis, exclusive, reverse))
    x = c.x(3, 6, low=-1, high=1)
    x[1, 2:5] = x[1, 0]
    for axis, largest in itertools.product([0, 1, -1], [0, 1]):
        c.add("TopK", [x, np.array([2])], {"axis": axis, "largest": largest}, outputs=2, exact=True,
              want=formulas.topk(x, 2, axis, largest))
    c.add("TopK", [x, np.array([6])], outputs=2, exact=True, opset=10, want=formulas.topk(x, 6, -1, 1))
    c.add("TopK", [x, np.array([3])], exact=True, want=formulas.topk(x, 3, -1, 1)[0])


def normalizations(c):
    x = c.x(2, 3, 4)
    for axis in [-1, 1, 0]:
        shape = x.shape[axis:]
        c.add("LayerNormalization", [x, c.x(*shape), c.x(*shape)], {"axis": axis}, opset=17, outputs=3)
        c.add("LayerNormalization", [x, c.x(*shape)], {"axis": axis, "epsilon": 0.5})
        scale = c.x(*shape)
        for op in ["RMSNormalization", "SimplifiedLayerNormalization"]:
            c.add(op, [x, scale], {"axis": axis}, opset=23, want=formulas.rms(x, scale, axis))
    scale, bias = c.x(3), c.x(3)
    for shape in [(2, 3, 4), (2, 3, 2, 3), (2, 3, 2, 2, 2)]:
        y = c.x(*shape)
        c.add("InstanceNormalization", [y, scale, bias], {"epsilon": 0.01}, want=formulas.group(y, scale, bias, 3, 0.01))
        c.add("BatchNormalization", [y, scale, bias, c.x(3), np.abs(c.x(3)) + 0.5])
    y, mean, variance = c.x(4, 3), c.x(3), np.abs(c.x(3)) + 0.5
    c.add("BatchNormalization", [y, scale, bias, mean, variance], {"epsilon": 0.1}, opset=9,
          want=(y - mean) / np.sqrt(variance + float(np.float32(0.1))) * scale + bias)
    y = c.x(2, 6, 2, 3)
    for groups in [1, 2, 3, 6]:
        scale, bias = c.x(6), c.x(6)
        c.add("GroupNormalization", [y, scale, bias], {"num_groups": groups}, want=formulas.group(y, scale, bias, groups))
        few, less = c.x(groups), c.x(groups)
        c.add("GroupNormalization", [y, few, less], {"num_groups": groups}, opset=18,
              want=formulas.group(y, np.repeat(few, 6 // groups), np.repeat(less, 6 // groups), groups))
    for p, axis in itertools.product([1, 2], [-1, 0, 1]):
        norm = np.abs(x).sum(axis, keepdims=True) if p == 1 else np.sqrt((x * x).sum(axis, keepdims=True))
        c.add("LpNormalization", [x], {"p": p, "axis": axis}, want=x / norm)
    for size in [1, 2, 3, 5]:
        y = c.x(2, 5, 2, 2)
        c.add("LRN", [y], {"size": size, "alpha": 0.3, "beta": 0.6, "bias": 1.5}, want=formulas.lrn(y, size, 0.3, 0.6, 1.5))
    y = c.x(1, 4, 3, 2)
    c.add("LRN", [y], {"size": 3}, want=formulas.lrn(y, 3))
    gamma, beta, skip, add = c.x(4), c.x(4), c.x(2, 3, 4), c.x(4)
    total = x + skip + add
    want, mean, inverse = formulas.layer(total, gamma, beta, 1e-12)
    c.add("SkipLayerNormalization", [x, skip, gamma, beta, add], outputs=4, domain=MS, want=[want, mean, inverse, total])
    c.add("SkipLayerNormalization", [x, skip, gamma], domain=MS, want=formulas.layer(x + skip, gamma, 0, 1e-12)[0])
    c.add("SkipSimplifiedLayerNormalization", [x, skip, gamma], {"epsilon": 1e-3}, domain=MS,
          outputs=[True, False, False, True], want=[formulas.rms(x + skip, gamma, -1, 1e-3), None, None, x + skip])


# ---- moving ----

def shapes(c):
    x = c.x(2, 3, 4)
    for shape in [[4, 6], [-1], [0, -1], [2, 0, 2, 2], [1, 24, 1], [-1, 2, 3]]:
        c.add("Reshape", [x, np.array(shape)], exact=True)
    c.add("Reshape", [np.zeros((0, 3)), np.array([3, 0])], {"allowzero": 1}, exact=True)
    c.add("Reshape", [np.float64(3), np.array([1, 1])], exact=True)
    c.add("Reshape", [c.x(1), np.array([], I64)], exact=True)
    for axis in [0, 1, 2, 3, -1]:
        c.add("Flatten", [x], {"axis": axis}, exact=True)
    y = c.x(1, 3, 1, 2)
    c.add("Squeeze", [y], exact=True)
    c.add("Squeeze", [y, np.array([0])], exact=True)
    c.add("Squeeze", [y, np.array([-2, 0])], exact=True)
    c.add("Squeeze", [y], {"axes": [2]}, opset=11, exact=True)
    c.add("Unsqueeze", [x, np.array([0, -1])], exact=True)
    c.add("Unsqueeze", [x, np.array([4, 1])], exact=True)
    c.add("Unsqueeze", [x], {"axes": [1, 2]}, opset=11, exact=True)
    c.add("Identity", [x], exact=True)
    c.add("Dropout", [x], exact=True)
    c.add("Dropout", [x, np.float32(0.3)], outputs=2, exact=True, want=[x, np.ones(x.shape, bool)])
    for start, end in [(0, None), (1, None), (-2, None), (0, -1), (1, 2), (-9, 9), (2, 1)]:
        c.add("Shape", [x], {"start": start, **({"end": end} if end is not None else {})}, exact=True,
              want=np.array(x.shape[max(start, -3):end], I64))
    c.add("Size", [x], exact=True)
    for perm in itertools.permutations(range(3)):
        c.add("Transpose", [x], {"perm": list(perm)}, exact=True)
    c.add("Transpose", [x], exact=True)
    c.add("Transpose", [c.x(2, 1, 3, 2, 2)], {"perm": [3, 0, 4, 1, 2]}, exact=True)
    for shape in [[2, 3, 4], [5, 2, 3, 4], [1], [2, 1, 4]]:
        c.add("Expand", [x, np.array(shape)], exact=True)
    c.add("Expand", [c.x(3, 1), np.array([2, 1, 4])], exact=True)
    for repeats in [[1, 2, 1], [2, 1, 3], [2, 2, 2], [0, 1, 1]]:
        c.add("Tile", [x, np.array(repeats)], exact=True)
    for axis in [0, 1, -1]:
        parts = [c.x(*[n if a == axis % 3 else d for a, d in enumerate((2, 3, 2))]) for n in (1, 3, 2)]
        c.add("Concat", parts, {"axis": axis}, exact=True)
    c.add("Concat", [x], {"axis": 0}, exact=True)
    c.add("Concat", [c.x(0, 2), c.x(3, 2)], {"axis": 0}, exact=True)
    y = c.x(6, 4)
    c.add("Split", [y], {"num_outputs": 3}, outputs=3, opset=18, exact=True)
    c.add("Split", [y], {"num_outputs": 4}, outputs=4, opset=18, exact=True)
    c.add("Split", [y, np.array([1, 5])], outputs=2, exact=True)
    c.add("Split", [y, np.array([3, 0, 1])], {"axis": 1}, outputs=3, exact=True)
    c.add("Split", [y], {"split": [2, 4]}, outputs=2, opset=11, exact=True)
    c.add("Split", [y], {"axis": -1}, outputs=2, opset=13, exact=True)
    for k, upper in itertools.product([None, -1, 0, 2, 9], [0, 1]):
        c.add("Trilu", [c.x(2, 3, 4)] + ([np.int64(k)] if k is not None else []), {"upper": upper}, exact=True)
    for mode in ["DCR", "CRD"]:
        c.add("DepthToSpace", [c.x(2, 8, 2, 3)], {"blocksize": 2, "mode": mode}, exact=True)
    c.add("SpaceToDepth", [c.x(2, 2, 4, 6)], {"blocksize": 2}, exact=True)


def slices(c):
    x = c.x(5, 6, 3)
    largest, least = np.iinfo(I64).max, np.iinfo(I64).min
    for starts, ends, axes, steps in [
            ([1], [4], [0], None), ([0, 1], [3, -1], None, None), ([1, 0], [largest, 3], [1, 0], [2, 1]),
            ([-1], [least], [1], [-1]), ([4, 5], [0, -5], [0, 1], [-2, -3]), ([2], [2], [0], [1]), ([-100], [100], [2], [2]),
            ([4], [-100], [-3], [-1]), ([100], [0], [1], [-4]), ([1, 2, 0], [5, 5, 2], None, None), ([3], [1], [0], [1])]:
        inputs = [x, np.array(starts), np.array(ends), None if axes is None else np.array(axes)]
        c.add("Slice", inputs + ([np.array(steps)] if steps else []), exact=True)
    c.add("Slice", [x], {"starts": [1, -2], "ends": [3, 1000], "axes": [0, 1]}, opset=9, exact=True)
    y = c.x(3, 4)
    for mode, opset in [("constant", 21), ("reflect", 21), ("edge", 21), ("wrap", 21), ("constant", 11), ("edge", 13)]:
        for pads in [[1, 0, 0, 2], [2, 2, 1, 1], [0, 0, 0, 0]]:
            want = formulas.pad(y, pads, mode)
            c.add("Pad", [y, np.array(pads)], {"mode": mode}, opset=opset, exact=True, want=want)
    c.add("Pad", [y, np.array([1, 2, 0, 1]), np.float64(7.5)], exact=True)
    c.add("Pad", [y, np.array([1, 2]), np.float64(-1), np.array([-1])], exact=True)
    c.add("Pad", [y, np.array([-1, 1, 0, -2])], exact=True, want=np.pad(y[1:, :2], ((0, 0), (1, 0))))
    c.add("Pad", [y], {"pads": [1, 0, 1, 2], "value": 2.0}, opset=10, exact=True,
          want=np.pad(y, ((1, 1), (0, 2)), constant_values=2))
    c.add("Pad", [y, np.array([5, 7, 5, 7])], {"mode": "reflect"}, exact=True, want=np.pad(y, ((5, 5), (7, 7)), "reflect"))


def gathers(c):
    x = c.x(4, 3, 2)
    for axis in [0, 1, -1]:
        dim = x.shape[axis]
        for shape in [(), (3,), (2, 2)]:
            c.add("Gather", [x, np.asarray(c.random.integers(-dim, dim, shape))], {"axis": axis}, exact=True)
        indices = c.random.integers(-dim, dim, [2 if a == axis % 3 else d for a, d in enumerate(x.shape)])
        c.add("GatherElements", [x, indices], {"axis": axis}, exact=True, want=np.take_along_axis(x, indices, axis))
    for shape, batch in [((3, 1), 0), ((3, 2), 0), ((2, 2, 3), 0), ((4, 1), 1), ((4, 2, 2), 1), ((4, 3, 1), 2)]:
        depth = [x.shape[batch + i] for i in range(shape[-1])]
        indices = np.stack([c.random.integers(-d, d, shape[:-1]) for d in depth], -1)
        c.add("GatherND", [x, indices], {"batch_dims": batch}, exact=True, want=formulas.gather_nd(x, indices, batch))
    for axis in [-1, 0, 1]:
        c.add("OneHot", [np.array([[0, 2], [-1, 3]]), np.int64(4), np.array([-1.0, 5.0])], {"axis": axis}, exact=True)
    outside = np.array([5, -5, 1])
    c.add("OneHot", [outside, np.int64(4), np.array([0.0, 1.0])], exact=True,
          want=np.array([[0.0] * 4, [0.0] * 4, [0, 1.0, 0, 0]]))


def makers(c):
    for value in [c.x(2, 3), c.x(3).astype(np.float32), np.arange(4), np.array([True, False]), c.codes(np.uint8, 3),
                  c.x(3).astype(np.float16), np.arange(3, dtype=np.uint32), np.zeros((0, 2), np.float32), np.float64(2.5)]:
        c.add("Constant", [], {"value": numpy_helper.from_array(np.asarray(value))}, exact=True)
        tensor = helper.make_tensor("t", helper.np_dtype_to_tensor_dtype(np.asarray(value).dtype), np.shape(value),
                                    np.asarray(value).flatten().tolist())
        c.add("Constant", [], {"value": tensor}, exact=True)
    nibbles = [-8, 7, 0, 3, -1]
    for kind, values in [(onnx.TensorProto.INT4, nibbles), (onnx.TensorProto.UINT4, [v + 8 for v in nibbles])]:
        c.add("Constant", [], {"value": helper.make_tensor("t", kind, [5], values)}, exact=True,
              want=(np.array(values), kind))
    bfloat = helper.make_tensor("t", onnx.TensorProto.BFLOAT16, [3], [1.5, -2.0, 3.0])
    c.add("Constant", [], {"value": bfloat}, exact=True, want=(np.array([1.5, -2.0, 3.0]), onnx.TensorProto.BFLOAT16))
    c.add("Constant", [], {"value_float": 0.1}, exact=True, want=np.float32(0.1))
    c.add("Constant", [], {"value_floats": [0.1, 2.0]}, exact=True, want=np.array([0.1, 2.0], np.float32))
    c.add("Constant", [], {"value_int": 7}, exact=True, want=np.int64(7))
    c.add("Constant", [], {"value_ints": [7, -8]}, exact=True, want=np.array([7, -8]))
    c.add("ConstantOfShape", [np.array([2, 3])], exact=True, want=np.zeros((2, 3), np.float32))
    c.add("ConstantOfShape", [np.array([3])], {"value": numpy_helper.from_array(np.array([5]))}, exact=True)
    c.add("ConstantOfShape", [np.array([], I64)], {"value": numpy_helper.from_array(np.array([True]))}, exact=True)
    for start, limit, delta in [(0, 5, 1), (3, -4, -2), (2, 2, 1), (5, 2, 1)]:
        c.add("Range", [np.int64(start), np.int64(limit), np.int64(delta)], exact=True)
    c.add("Range", [np.float64(0.5), np.float64(3), np.float64(0.75)], exact=True)
    x = np.array([-2.75, -0.5, 0.0, 0.5, 1.5, 100.25])
    for to, dtype in [(1, None), (10, None), (16, None), (6, np.int32), (7, np.int64), (3, np.int8), (9, bool)]:
        # The reference in double precision keeps the double where the model rounds to a narrower float type.
        c.add("Cast", [x], {"to": to}, exact=True, want=(x, to) if dtype is None else x.astype(dtype))
    c.add("Cast", [np.array([300, -1, 128], np.int32)], {"to": 2}, exact=True, want=np.array([44, 255, 128], np.uint8))
    c.add("Cast", [np.array([300, -1, 128], np.int32)], {"to": 3}, exact=True, want=np.array([44, -1, -128], np.int8))
    c.add("Cast", [np.array([True, False])], {"to": 11}, exact=True)
    c.add("CastLike", [x, np.array([1], np.int32)], exact=True)


def resizes(c):
    modes = ["half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"]
    x = c.x(1, 1, 4, 5)
    targets = [dict(scales=[1, 1, 2, 2]), dict(scales=[1, 1, 0.5, 0.625]), dict(sizes=[1, 1, 7, 3]), dict(sizes=[1, 1, 3, 8])]

    def resize(array, target, opset=21, want=None, roi=None, **attributes):
        inputs = [array, roi, None, None]
        inputs[3 if "sizes" in target else 2] = (np.array(target["sizes"]) if "sizes" in target else
                                                 np.array(target["scales"], np.float32))
        c.add("Resize", inputs, attributes, opset=opset, want=want)

    def cubic(array, target, opset=21, roi=None, **attributes):
        """onnx.reference has the weights in single precision."""
        if "sizes" in target:
            plan = [(out, out / n) for out, n in zip(target["sizes"], array.shape)]
        else:
            plan = [(int(np.float32(n) * np.float32(f)), float(np.float32(f))) for f, n in zip(target["scales"], array.shape)]
        want = formulas.resize_cubic(array, plan, attributes.get("coordinate_transformation_mode", "half_pixel"),
                                     attributes.get("cubic_coeff_a", -0.75), attributes.get("exclude_outside", 0), roi,
                                     attributes.get("extrapolation_value", 0.0))
        resize(array, target, opset, want, roi, mode="cubic", **attributes)

    for target, where in itertools.product(targets, modes):
        for rule in ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]:
            if (where, target.get("scales", [1])[-1]) != ("align_corners", 0.625):  # 3.125 elements there, 3 here
                want = formulas.resize_nearest_symmetric(x, target, rule) if where == "half_pixel_symmetric" else None
                resize(x, target, want=want, mode="nearest", nearest_mode=rule, coordinate_transformation_mode=where)
        if (where, target.get("scales", [1])[-1]) != ("align_corners", 0.625):
            resize(x, target, mode="linear", coordinate_transformation_mode=where)
        cubic(x, target, coordinate_transformation_mode=where)
        cubic(x, target, coordinate_transformation_mode=where, exclude_outside=1, cubic_coeff_a=-0.5)
    roi = np.array([0, 0, 0.25, 0.1, 1, 1, 0.75, 1.3], np.float64)
    crop = dict(roi=roi, coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=10.0)
    for mode in ["nearest", "linear"]:
        resize(x, dict(sizes=[1, 1, 3, 4]), mode=mode, **crop)
        resize(c.x(2, 3, 2), dict(scales=[1, 1.5, 2]), mode=mode)
        resize(c.x(3, 4), dict(sizes=[6, 7]), mode=mode, opset=13)
    cubic(x, dict(sizes=[1, 1, 3, 4]), **crop)
    cubic(c.x(2, 3, 2), dict(scales=[1, 1.5, 2]))
    cubic(c.x(3, 4), dict(sizes=[6, 7]), opset=13)
    for policy in ["not_larger", "not_smaller"]:
        resize(c.x(1, 1, 4, 6), dict(sizes=[7, 8]), mode="linear", axes=[2, 3], keep_aspect_ratio_policy=policy)
    resize(c.x(1, 1, 4, 6), dict(sizes=[9, 8]), mode="linear", axes=[3, 2])
    # 5 * 1.4 is 7 in single precision, as in shape inference; the reference multiplies in double.
    y = c.x(5)
    at = np.clip((np.arange(7) + 0.5) / float(np.float32(1.4)) - 0.5, 0, 4)
    resize(y, dict(scales=[1.4]), mode="linear", want=np.interp(at, np.arange(5), y))
    at = np.clip(np.floor((np.arange(6) + 0.5) / 2), 0, 2).astype(int)
    resize(y[:3], dict(scales=[2.0]), opset=11, mode="nearest", nearest_mode="floor",
           coordinate_transformation_mode="tf_half_pixel_for_nn", want=y[at])
    scales = np.array([1, 1, 2, 3], np.float32)
    rows, columns = np.arange(8) // 2, np.arange(15) // 3
    c.add("Resize", [x, scales], {"mode": "nearest"}, opset=10, exact=True, want=x[:, :, rows][..., columns])
    c.add("Upsample", [x, scales], {"mode": "nearest"}, opset=9, exact=True)
    c.add("Upsample", [x], {"mode": "nearest", "scales": [1.0, 1.0, 2.0, 3.0]}, opset=7, exact=True,
          want=x[:, :, rows][..., columns])
    line = c.x(1, 1, 1, 4)
    at = np.clip(np.arange(8) / 2, 0, 3)
    c.add("Upsample", [line, np.array([1, 1, 1, 2], np.float32)], {"mode": "linear"}, opset=9,
          want=np.interp(at, np.arange(4), line[0, 0, 0]).reshape(1, 1, 1, 8))


# ---- recurrent ----

def recurrent(c):
    """The specification's equations: onnx.reference has one direction only."""
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}

    def add(op, *, batch=2, states=False, bias=True, lengths=None, peepholes=False, outputs=None, **attributes):
        n_steps, n_in, n, layout = 4, 3, 2, attributes.get("layout", 0)
        d = 2 if attributes.get("direction") == "bidirectional" else 1
        first = (batch, d, n) if layout else (d, batch, n)
        inputs = [c.x(*((batch, n_steps, n_in) if layout else (n_steps, batch, n_in)), low=-2, high=2),
                  c.x(d, gates[op] * n, n_in, low=-1, high=1), c.x(d, gates[op] * n, n, low=-1, high=1),
                  c.x(d, 2 * gates[op] * n, low=-1, high=1) if bias else None,
                  np.asarray(lengths, np.int32) if lengths else None, c.x(*first, low=-1, high=1) if states else None]
        if op == "LSTM":
            inputs += [c.x(*first, low=-1, high=1) if states else None, c.x(d, 3 * n, low=-1, high=1) if peepholes else None]
        outputs = outputs or [True] * (3 if op == "LSTM" else 2)
        settings = {k: v for k, v in attributes.items() if k not in ("activations", "hidden_size")}
        made = formulas.recurrent(op, *inputs[:6], *inputs[6:], functions=attributes.get("activations"), **settings)
        c.add(op, inputs, {"hidden_size": n, **attributes}, outputs=outputs,
              want=[m if flag else None for m, flag in zip(made, outputs)])

    for op in gates:
        add(op)
        add(op, bias=False, direction="reverse")
        add(op, direction="bidirectional", states=True)
        add(op, states=True, lengths=[4, 2])
        add(op, batch=1, outputs=[False, True])
        add(op, layout=1, states=True)
    add("RNN", activations=["Relu"])
    add("GRU", linear_before_reset=1, states=True)
    add("GRU", activations=["Softsign", "Softplus"], clip=0.5)
    add("LSTM", peepholes=True, states=True, clip=0.75)
    add("LSTM", input_forget=1, outputs=[True, False, True])


# ---- scattered and sampled ----

def scatters(c):
    x, nd = c.x(3, 4), np.array([[0, 1], [2, -1], [1, 0]], np.int64)
    for reduction in ["none", "add", "mul", "max", "min"]:
        c.add("ScatterElements", [x, np.array([[0, 1], [2, -1]], np.int64), c.x(2, 2)], {"axis": 1, "reduction": reduction}, opset=18)
        c.add("ScatterND", [x, nd, c.x(3)], {"reduction": reduction}, opset=18)
    c.add("ScatterElements", [x, np.array([[0, 1, 2, 0]], np.int64), c.x(1, 4)], opset=18)
    c.add("ScatterND", [c.x(3, 2, 2), np.array([[2], [0]], np.int64), c.x(2, 2, 2)], opset=18)
    updates, moved = c.x(1, 4), x.copy()
    moved[[1, 0, 2, 1], range(4)] = updates[0]
    c.add("Scatter", [x, np.array([[1, 0, 2, 1]], np.int64), updates], {"axis": 0}, opset=9, exact=True, want=moved)


def grids(c):
    x, grid = c.x(2, 2, 3, 4), c.random.integers(-96, 97, (2, 3, 2, 2)) / 64.0
    for mode, padding, aligned in itertools.product(["linear", "nearest", "cubic"], ["zeros", "border", "reflection"], [0, 1]):
        c.add("GridSample", [x, grid], {"mode": mode, "padding_mode": padding, "align_corners": aligned}, opset=20,
              want=formulas.cubic_grid_sample(x, grid, padding, aligned) if mode == "cubic" else None)


def integers(c):
    x, w = c.codes(np.uint8, 1, 2, 5, 5), c.codes(np.int8, 3, 2, 3, 3)
    scale = lambda *v: np.array(v if len(v) > 1 else v[0], np.float32)
    c.add("ConvInteger", [x, w, np.uint8(7)], {"pads": [1, 1, 1, 1]}, opset=10, exact=True,
          want=(formulas.conv(x - 7.0, w.astype(float), pads=[1, 1, 1, 1]), 6))
    acc = formulas.conv(x - 131.0, w.astype(float), np.array([100.0, -50, 7]), strides=[2, 2])
    codes = np.clip(np.rint(acc * 0.5 * np.array([0.25, 0.5, 1])[:, None, None] / 64.0) + 3, 0, 255)
    c.add("QLinearConv", [x, scale(0.5), np.uint8(131), w, scale(0.25, 0.5, 1), np.zeros(3, np.int8), scale(64.0), np.uint8(3),
                          np.array([100, -50, 7], np.int32)], {"strides": [2, 2]}, opset=10, exact=True, want=(codes, 2))
    a, b = c.codes(np.uint8, 3, 4), c.codes(np.int8, 4, 5)
    c.add("MatMulInteger", [a, b, np.uint8(12), np.int8(-3)], opset=10, exact=True, want=((a - 12.0) @ (b + 3.0), 6))
    codes = np.clip(np.rint((a - 12.0) @ (b + 3.0) * 0.125 / 32.0) + 128, 0, 255)
    c.add("QLinearMatMul", [a, scale(0.5), np.uint8(12), b, scale(0.25), np.int8(-3), scale(32.0), np.uint8(128)], opset=10,
          exact=True, want=(codes, 2))


FAMILIES = [unary, binary, quantization, products, convolutions, pooling, reductions,
            normalizations, shapes, slices, gathers, makers, resizes]
# Those of the second file.
MORE_FAMILIES = [recurrent, scatters, grids, integers]
