"""Evaluates quantised ONNX graphs in exact rational arithmetic: node by node as the operators are defined, every number a
fractions.Fraction, and QuantizeLinear the only place where anything is rounded. It knows of no units and has nothing in
common with src/exact.

* QuantizeLinear is saturate(round_half_even(x / scale) + zero point): the rounding comes before the zero point is added.
* A graph input is float32, and its QuantizeLinear is ONNX's operator as it is for float32: the quotient is a float32.
* What is not rational (NOT_RATIONAL) is computed by mpmath to 50 digits. Where such a value is within 1e-9 of a tie, its
  code is reported as free.

evaluate(model, inputs) gives Result: codes by tensor name, the real value of every tensor, and the free codes."""

import itertools
from fractions import Fraction

import mpmath
import numpy as np
from onnx import helper, numpy_helper

mpmath.mp.dps = 50
NOT_RATIONAL = {"Softmax", "Sigmoid", "Tanh", "Gelu", "LayerNormalization"}
TIE = Fraction(1, 10**9)
HALF = Fraction(1, 2)


class Result:
    def __init__(self):
        self.values = {}    # tensor: array of Fraction (object), of int64 (codes and indices) or of float32 (inputs)
        self.codes = {}     # output of a QuantizeLinear: int64 array
        self.free = {}      # the same: flat indices of codes that the value does not decide
        self.inexact = set()


def fractions_of(array):
    flat = np.empty(array.size, object)
    flat[:] = [Fraction(v.item()) for v in array.reshape(-1)]
    return flat.reshape(array.shape)


def integers_of(array):
    return array.astype(np.int64)


def as_reals(array):
    return array if array.dtype == object else fractions_of(array)


def full_of_zeros(shape):
    return np.full(shape, Fraction(0), object)


def axis_wise(parameter, axis, rank):
    if parameter.ndim == 0 or parameter.size == 1:
        return parameter.reshape(())
    shape = [1] * rank
    shape[axis] = parameter.size
    return parameter.reshape(shape)


# ---- quantisation ----

def dequantise(inputs, attributes):
    codes, scale = inputs[0], as_reals(inputs[1])
    axis = attributes.get("axis", 1)
    zero = inputs[2] if len(inputs) > 2 else np.zeros((), np.int64)
    offset = codes - axis_wise(zero, axis, codes.ndim)
    return fractions_of(np.asarray(offset)) * axis_wise(scale, axis, codes.ndim)


def quantise(result, node, inputs, attributes, limits):
    x, scale, zero = inputs
    axis = attributes.get("axis", 1)
    zero = np.broadcast_to(axis_wise(zero, axis, x.ndim), x.shape)
    free = []
    if x.dtype == np.float32:
        quotient = x / axis_wise(scale, axis, x.ndim)
        assert quotient.dtype == np.float32
        rounded = np.rint(quotient).astype(np.int64)
    else:
        v = np.asarray(x / axis_wise(as_reals(scale), axis, x.ndim), object)
        rounded = np.array([round(f) for f in v.reshape(-1)], np.int64).reshape(x.shape)  # a Fraction rounds half to even
        if node.input[0] in result.inexact:
            free = [i for i, f in enumerate(v.reshape(-1)) if abs((f - HALF) - round(f - HALF)) < TIE]
    codes = np.clip(rounded + zero, *limits)
    result.codes[node.output[0]] = codes
    result.free[node.output[0]] = free
    return codes


# ---- windows ----

def same_or_given_pads(attributes, n_spatial):
    return attributes.get("pads", [0] * (2 * n_spatial))


def convolve(inputs, attributes):
    x, w = inputs[:2]
    n_spatial = x.ndim - 2
    strides = attributes.get("strides", [1] * n_spatial)
    dilations = attributes.get("dilations", [1] * n_spatial)
    pads = same_or_given_pads(attributes, n_spatial)
    group = attributes.get("group", 1)
    padded = np.pad(x, [(0, 0), (0, 0)] + list(zip(pads[:n_spatial], pads[n_spatial:])), constant_values=Fraction(0))
    kernel = w.shape[2:]
    size = [(padded.shape[2 + d] - dilations[d] * (kernel[d] - 1) - 1) // strides[d] + 1 for d in range(n_spatial)]
    y = full_of_zeros([x.shape[0], w.shape[0]] + size)
    per_group = w.shape[0] // group
    for where in itertools.product(*map(range, size)):
        window = padded[(slice(None), slice(None)) + tuple(
            slice(o * s, o * s + d * (k - 1) + 1, d) for o, s, d, k in zip(where, strides, dilations, kernel))]
        for m in range(w.shape[0]):
            first = m // per_group * w.shape[1]
            for n in range(x.shape[0]):
                y[(n, m) + where] = (window[n, first:first + w.shape[1]] * w[m]).sum()
    return add_bias(y, inputs)


def add_bias(y, inputs):
    if len(inputs) > 2:
        y = y + axis_wise(inputs[2], 1, y.ndim)
    return y


def convolve_transposed(inputs, attributes):
    x, w = inputs[:2]
    n_spatial = x.ndim - 2
    strides = attributes.get("strides", [1] * n_spatial)
    dilations = attributes.get("dilations", [1] * n_spatial)
    pads = same_or_given_pads(attributes, n_spatial)
    more = attributes.get("output_padding", [0] * n_spatial)
    group = attributes.get("group", 1)
    kernel = w.shape[2:]
    size = [strides[d] * (x.shape[2 + d] - 1) + more[d] + (kernel[d] - 1) * dilations[d] + 1 for d in range(n_spatial)]
    y = full_of_zeros([x.shape[0], w.shape[1] * group] + size)
    for n, c in itertools.product(range(x.shape[0]), range(x.shape[1])):
        first = c // (x.shape[1] // group) * w.shape[1]
        for where in itertools.product(*map(range, x.shape[2:])):
            place = tuple(slice(i * s, i * s + d * (k - 1) + 1, d) for i, s, d, k in zip(where, strides, dilations, kernel))
            y[(n, slice(first, first + w.shape[1])) + place] += x[(n, c) + where] * w[c]
    keep = tuple(slice(pads[d], size[d] - pads[n_spatial + d]) for d in range(n_spatial))
    return add_bias(y[(slice(None), slice(None)) + keep], inputs)


def pool(x, attributes, is_mean):
    n_spatial = x.ndim - 2
    kernel = attributes["kernel_shape"]
    strides = attributes.get("strides", [1] * n_spatial)
    dilations = attributes.get("dilations", [1] * n_spatial)
    pads = same_or_given_pads(attributes, n_spatial)
    size = []
    for d in range(n_spatial):
        n_in = x.shape[2 + d]
        room = n_in + pads[d] + pads[n_spatial + d] - dilations[d] * (kernel[d] - 1) - 1
        n_out = (-(-room // strides[d]) if attributes.get("ceil_mode", 0) else room // strides[d]) + 1
        if attributes.get("ceil_mode", 0) and (n_out - 1) * strides[d] >= n_in + pads[d]:
            n_out -= 1  # windows that start in the padding on the right are left out
        size.append(n_out)
    y = full_of_zeros(list(x.shape[:2]) + size)
    for where in itertools.product(*map(range, size)):
        places, counted = [], []
        for d in range(n_spatial):
            at = [where[d] * strides[d] - pads[d] + k * dilations[d] for k in range(kernel[d])]
            places.append([i for i in at if 0 <= i < x.shape[2 + d]])
            counted.append(sum(-pads[d] <= i < x.shape[2 + d] + pads[n_spatial + d] for i in at))
        n_counted = np.prod(counted) if attributes.get("count_include_pad", 0) else np.prod([len(p) for p in places])
        for n, c in itertools.product(range(x.shape[0]), range(x.shape[1])):
            taken = x[n, c][np.ix_(*places)].reshape(-1)
            y[(n, c) + where] = taken.sum() / int(n_counted) if is_mean else max(taken)
    return y


# ---- the rest ----

def gemm(inputs, attributes):
    a = inputs[0].T if attributes.get("transA", 0) else inputs[0]
    b = inputs[1].T if attributes.get("transB", 0) else inputs[1]
    y = np.dot(a, b) * Fraction(attributes.get("alpha", 1.0))
    return y + inputs[2] * Fraction(attributes.get("beta", 1.0)) if len(inputs) > 2 else y


def reduce(inputs, attributes, is_mean):
    x = inputs[0]
    axes = tuple(int(a) % x.ndim for a in inputs[1]) if len(inputs) > 1 else tuple(range(x.ndim))
    total = np.asarray(x.sum(axis=axes, keepdims=bool(attributes.get("keepdims", 1))), object)
    return total / int(np.prod([x.shape[a] for a in axes])) if is_mean else total


def slice_of(inputs):
    x, starts, ends = inputs[:3]
    axes = inputs[3] if len(inputs) > 3 else range(x.ndim)
    steps = inputs[4] if len(inputs) > 4 else [1] * len(starts)
    places = [list(range(n)) for n in x.shape]
    for start, end, axis, step in zip(starts, ends, axes, steps):
        n = x.shape[axis]
        start, end = (int(v) + n if v < 0 else int(v) for v in (start, end))
        if step > 0:
            places[axis] = list(range(min(max(start, 0), n), min(max(end, 0), n), int(step)))
        else:
            places[axis] = list(range(min(max(start, 0), n - 1), min(max(end, -1), n - 1), int(step)))
    return x[np.ix_(*places)]


def pad(inputs, attributes):
    x, pads = inputs[:2]
    widths = [(int(pads[d]), int(pads[x.ndim + d])) for d in range(x.ndim)]
    mode = attributes.get("mode", b"constant").decode()
    if mode != "constant":
        return np.pad(x, widths, mode=mode)
    value = as_reals(inputs[2]).reshape(-1)[0] if len(inputs) > 2 else Fraction(0)
    return np.pad(x, widths, constant_values=value)


def reshape(inputs):
    shape = [inputs[0].shape[i] if n == 0 else int(n) for i, n in enumerate(inputs[1])]
    return inputs[0].reshape(shape)


def clip(inputs):
    x = inputs[0]
    if len(inputs) > 1 and inputs[1] is not None:
        x = np.maximum(x, inputs[1])
    if len(inputs) > 2 and inputs[2] is not None:
        x = np.minimum(x, inputs[2])
    return np.asarray(x, object)


def precise(fraction):
    return mpmath.mpf(fraction.numerator) / fraction.denominator


def rational(number):
    sign, mantissa, exponent, _ = number._mpf_
    return Fraction((-1) ** sign * int(mantissa)) * Fraction(2) ** int(exponent)


def element_wise(x, function):
    flat = np.empty(x.size, object)
    flat[:] = [rational(function(precise(v))) for v in x.reshape(-1)]
    return flat.reshape(x.shape)


def gelu(x, attributes):
    if attributes.get("approximate", b"none") == b"tanh":
        root = mpmath.sqrt(2 / mpmath.pi)
        return element_wise(x, lambda v: v / 2 * (1 + mpmath.tanh(root * (v + mpmath.mpf("0.044715") * v**3))))
    return element_wise(x, lambda v: v / 2 * (1 + mpmath.erf(v / mpmath.sqrt(2))))


def softmax(x, attributes):
    x = np.moveaxis(x, attributes.get("axis", -1), -1)
    y = element_wise(x - x.max(axis=-1, keepdims=True), mpmath.exp)
    return np.moveaxis(y / y.sum(axis=-1, keepdims=True), -1, attributes.get("axis", -1))


def layer_normalise(inputs, attributes):
    x = inputs[0]
    axes = tuple(range(attributes.get("axis", -1) % x.ndim, x.ndim))
    n = int(np.prod([x.shape[a] for a in axes]))
    deviation = x - x.sum(axis=axes, keepdims=True) / n
    variance = (deviation * deviation).sum(axis=axes, keepdims=True) / n
    epsilon = Fraction(attributes.get("epsilon", float(np.float32(1e-5))))
    y = deviation * element_wise(variance + epsilon, lambda v: 1 / mpmath.sqrt(v)) * inputs[1]
    return y + inputs[2] if len(inputs) > 2 else y


OPERATORS = {
    "Conv": convolve,
    "ConvTranspose": convolve_transposed,
    "Gemm": gemm,
    "MatMul": lambda i, a: np.matmul(i[0], i[1]),
    "Add": lambda i, a: i[0] + i[1],
    "Sub": lambda i, a: i[0] - i[1],
    "Mul": lambda i, a: i[0] * i[1],
    "Div": lambda i, a: i[0] / i[1],
    "MaxPool": lambda i, a: pool(i[0], a, False),
    "AveragePool": lambda i, a: pool(i[0], a, True),
    "GlobalAveragePool": lambda i, a: reduce([i[0], range(2, i[0].ndim)], {}, True),
    "ReduceMean": lambda i, a: reduce(i, a, True),
    "ReduceSum": lambda i, a: reduce(i, a, False),
    "Relu": lambda i, a: np.maximum(i[0], Fraction(0)),
    "Clip": lambda i, a: clip(i),
    "Concat": lambda i, a: np.concatenate(i, axis=a["axis"]),
    "Slice": lambda i, a: slice_of(i),
    "Transpose": lambda i, a: np.transpose(i[0], a["perm"]),
    "Reshape": lambda i, a: reshape(i),
    "Pad": pad,
    "Gather": lambda i, a: np.take(i[0], i[1], axis=a.get("axis", 0)),
    "Softmax": lambda i, a: softmax(i[0], a),
    "Sigmoid": lambda i, a: element_wise(i[0], lambda v: 1 / (1 + mpmath.exp(-v))),
    "Tanh": lambda i, a: element_wise(i[0], mpmath.tanh),
    "Gelu": lambda i, a: gelu(i[0], a),
    "LayerNormalization": layer_normalise,
}

LIMITS = {"UINT8": (0, 255), "INT8": (-128, 127), "UINT16": (0, 65535), "INT16": (-32768, 32767)}


def load_constants(result, tensors, types):
    for tensor in tensors:
        array = numpy_helper.to_array(tensor)
        types[tensor.name] = helper.tensor_dtype_to_string(tensor.data_type).split(".")[-1]
        is_real = array.dtype == np.float32
        result.values[tensor.name] = array if is_real else integers_of(array)


def run_node(result, node, types):
    """Adds what one node makes to the result."""
    inputs = [result.values[name] if name else None for name in node.input]
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    if node.op_type == "QuantizeLinear":
        made = quantise(result, node, inputs, attributes, LIMITS[types[node.input[2]]])
    elif node.op_type == "DequantizeLinear":
        made = dequantise(inputs, attributes)
    else:
        inputs = [as_reals(i) if i is not None and i.dtype == np.float32 else i for i in inputs]
        made = np.asarray(OPERATORS[node.op_type](inputs, attributes), object)
        if node.op_type in NOT_RATIONAL or any(name in result.inexact for name in node.input):
            result.inexact.add(node.output[0])
    result.values[node.output[0]] = made


def evaluate(model, inputs, given=None):
    """given: codes by tensor name that are read in the place of those just computed; result.codes keeps what was computed."""
    result, types = Result(), {}
    load_constants(result, model.graph.initializer, types)
    result.values.update(inputs)
    for node in model.graph.node:
        run_node(result, node, types)
        if given is not None and node.output[0] in given:
            result.values[node.output[0]] = given[node.output[0]]
    return result
