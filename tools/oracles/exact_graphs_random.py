"""Random quantised graphs: DequantizeLinear* -> operator -> [Relu | Clip] -> QuantizeLinear, again and again.

Scales are powers of two more often than not and weights often small, so that values halfway between two codes abound; zero
points lie at the ends of the type as well as in it."""

import math
from fractions import Fraction

import numpy as np
import onnx
from onnx import TensorProto as T, helper, numpy_helper

import exact_graphs_eval as exact

LARGEST_EDGE = 300  # elements
ACTIVATIONS = {"u8": (T.UINT8, np.uint8), "i8": (T.INT8, np.int8), "u16": (T.UINT16, np.uint16), "i16": (T.INT16, np.int16)}
WEIGHTS = {"i8": (T.INT8, -127, 127), "u8": (T.UINT8, 0, 255), "i4": (T.INT4, -8, 7), "u4": (T.UINT4, 0, 15)}


class Refused(Exception):
    """This operator does not suit these edges: another is tried."""


def halving_scale(values, otherwise):
    """2^k of the largest step that all values are multiples of: an odd multiple of it may lie halfway between two codes. As
    small as fits the values; otherwise, where there is no such step."""
    step = Fraction(math.gcd(*[v.numerator for v in values]), math.lcm(*[v.denominator for v in values]))
    if step == 0 or Fraction(float(np.float32(float(step)))) != step:
        return otherwise
    k = max(1, math.ceil(math.log2(float(otherwise)) - math.log2(float(step)) - 1))
    return np.float32(float(step) * 2.0 ** k)


class Graph:
    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.nodes, self.constants, self.inputs = [], [], {}
        self.edges, self.used, self.dequantised, self.outputs = [], set(), {}, []
        self.result, self.types, self.n_names = exact.Result(), {}, 0

    # ---- chance ----
    def chance(self, share):
        return self.random.random() < share

    def one_of(self, *choices):
        return choices[self.random.integers(len(choices))]

    def number(self, low, high):
        return int(self.random.integers(low, high + 1))

    def scale(self, about):
        """A float32 near `about`: a power of two, a few bits more, or any."""
        power = 2.0 ** round(np.log2(about))
        return np.float32(self.one_of(power, power, power, power * self.one_of(1.5, 1.25, 0.75), about))

    # ---- parts of the graph ----
    def name(self, prefix):
        self.n_names += 1
        return f"{prefix}{self.n_names}"

    def constant(self, array, onnx_type=None):
        name = self.name("c")
        if onnx_type is None:
            tensor = numpy_helper.from_array(np.asarray(array), name)
        else:
            tensor = helper.make_tensor(name, onnx_type, np.shape(array), [int(v) for v in np.reshape(array, -1)])
        self.constants.append(tensor)
        exact.load_constants(self.result, [tensor], self.types)
        return name

    def node(self, op_type, inputs, **attributes):
        name = self.name(op_type[0].lower() + op_type[1:])
        node = helper.make_node(op_type, inputs, [name], name=name, **attributes)
        exact.run_node(self.result, node, self.types)
        self.nodes.append(node)
        return name

    def shape(self, tensor):
        return self.result.values[tensor].shape

    def pick(self, *ranks):
        """An edge of one of these ranks, the newest ones rather than the old."""
        fits = [e for e in self.edges if len(self.shape(e[0])) in ranks]
        if not fits:
            raise Refused
        return fits[-1] if self.chance(0.6) else self.one_of(*fits)

    def real(self, edge):
        """What a DequantizeLinear of the edge makes: one of its own, or one that is shared."""
        codes, scale, zero = edge
        self.used.add(codes)
        if codes not in self.dequantised or self.chance(0.5):
            self.dequantised[codes] = self.node("DequantizeLinear", [codes, scale, zero])
        return self.dequantised[codes]

    def weights(self, shape, axis, largest=1.0):
        """Constant codes behind a DequantizeLinear with one scale, or one for each place along the axis."""
        kind, low, high = WEIGHTS[self.one_of("i8", "i8", "u8", "i4", "u4")]
        n = shape[axis] if axis is not None and self.chance(0.6) else 1
        about = largest / max(high - low, 1) * 2
        scales = np.array([self.scale(about * 2.0 ** self.random.uniform(-1, 1)) for _ in range(n)], np.float32)
        ends = [low, high, (low + high + 1) // 2]
        zeros = [self.one_of(*ends, self.number(low, high)) if self.chance(0.4) else (low + high + 1) // 2 for _ in range(n)]
        if self.chance(0.3):  # small codes: ties
            low, high = max(low, zeros[0] - 2), min(high, zeros[0] + 2)
        codes = self.random.integers(low, high + 1, shape)
        parameters = (scales, zeros) if n > 1 else (scales[0], zeros[0])
        inputs = [self.constant(codes, kind), self.constant(parameters[0]), self.constant(parameters[1], kind)]
        return self.node("DequantizeLinear", inputs, **({"axis": axis} if n > 1 else {}))

    def bias(self, n, size):
        """int32 with a scale, or one for each element; sometimes floats."""
        if self.chance(0.2):
            return self.constant((self.random.uniform(-1, 1, n) * size).astype(np.float32))
        per_element = n > 1 and self.chance(0.5)
        scales = np.array([self.scale(size / 2.0 ** self.number(6, 30)) for _ in range(n if per_element else 1)], np.float32)
        codes = np.rint(self.random.uniform(-1, 1, n) * size / scales.astype(np.float64)).astype(np.int32)
        inputs = [self.constant(codes), self.constant(scales if per_element else scales[0])]
        return self.node("DequantizeLinear", inputs, **({"axis": 0} if per_element else {}))

    def parameters(self, values, kind):
        """Scale and zero point for an edge of these real values."""
        low, high = exact.LIMITS[{"u8": "UINT8", "i8": "INT8", "u16": "UINT16", "i16": "INT16"}[kind]]
        least, greatest = float(min(values)), float(max(values))
        span = max(greatest - least, abs(greatest), 2.0 ** -20)
        coarse = self.one_of(1, 1, 1, 4, 0.6) if kind in ("u8", "i8") else self.one_of(1, 2**6, 2**8)
        scale = self.scale(span / (high - low) * coarse)
        if self.chance(0.4):
            scale = halving_scale(values, scale)
        fitted = int(min(max(round(low - least / float(scale)), low), high))
        zero = self.one_of(fitted, fitted, fitted, low, high, self.number(low, high), 0)
        onnx_type, _ = ACTIVATIONS[kind]
        return self.constant(scale), self.constant(np.int64(zero), onnx_type)

    def quantise(self, tensor):
        values = exact.as_reals(self.result.values[tensor])
        if not 1 <= values.size <= LARGEST_EDGE:
            raise Refused
        scale, zero = self.parameters(list(values.reshape(-1)), self.one_of("u8", "u8", "i8", "i8", "u16", "i16"))
        self.edges.append((self.node("QuantizeLinear", [tensor, scale, zero]), scale, zero))

    def add_input(self, shape):
        name = self.name("input")
        step = 2.0 ** -self.number(2, 9)
        values = self.random.integers(-300, 301, shape) * step if self.chance(0.6) else self.random.normal(0, 2, shape)
        self.inputs[name] = self.result.values[name] = values.astype(np.float32)
        self.quantise(name)

    def fold(self, tensor):
        """Relu and Clip, as quantisers leave them behind an operator."""
        values = [float(v) for v in self.result.values[tensor].reshape(-1)]
        if self.chance(0.2):
            return self.node("Relu", [tensor])
        if self.chance(0.15):
            low, high = sorted(np.float32(self.random.uniform(min(values), max(values), 2)))
            if self.chance(0.5):
                low, high = np.float32(np.floor(low)), np.float32(np.ceil(high))
            bounds = self.one_of([low, high], [low], [None, high])
            tensor = self.node("Clip", [tensor] + ["" if b is None else self.constant(b) for b in bounds])
            return self.node("Relu", [tensor]) if self.chance(0.2) else tensor
        return tensor

    def add_unit(self, operators):
        """One unit, by the first operator that suits. What a refused one has added is taken back."""
        while True:
            kept = len(self.nodes), len(self.constants), dict(self.dequantised), set(self.used), len(self.edges)
            try:
                tensor = self.one_of(*operators)(self)
                if self.result.values[tensor].size > LARGEST_EDGE:
                    raise Refused
                folded = self.fold(tensor)
                self.quantise(folded)
                if folded == tensor and self.chance(0.06):
                    self.quantise(tensor)  # the same values in another quantisation
                return
            except Refused:
                del self.nodes[kept[0]:], self.constants[kept[1]:], self.edges[kept[4]:]
                self.dequantised, self.used = kept[2], kept[3]

    # ---- the whole ----
    def finish(self):
        """Every edge that nothing reads is an output, as floats or as codes; sometimes one that is read, too."""
        outputs = []
        for edge in self.edges:
            if edge[0] not in self.used or self.chance(0.05):
                as_codes = self.chance(0.5)
                outputs.append(edge[0] if as_codes else self.node("DequantizeLinear", list(edge)))
        return self.model(outputs)

    def model(self, outputs):
        def info(name):
            kind = T.FLOAT
            for node in self.nodes:
                if name in node.output and node.op_type == "QuantizeLinear":
                    kind = next(c.data_type for c in self.constants if c.name == node.input[2])
            return helper.make_tensor_value_info(name, kind, self.shape(name))
        inputs = [helper.make_tensor_value_info(n, T.FLOAT, v.shape) for n, v in self.inputs.items()]
        graph = helper.make_graph(self.nodes, "graph", inputs, [info(name) for name in outputs], self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        onnx.checker.check_model(model, full_check=True)
        return model


# ---- operators: each returns the tensor that it makes ----

def spatial(g, n, largest_kernel=3):
    """Kernel, strides, dilations and pads for n axes."""
    kernel = [g.number(1, largest_kernel) for _ in range(n)]
    pads = [g.number(0, k - 1) if g.chance(0.5) else 0 for k in kernel * 2]
    return {"kernel_shape": kernel, "strides": [g.one_of(1, 1, 2) for _ in range(n)],
            "dilations": [g.one_of(1, 1, 1, 2) for _ in range(n)], "pads": pads}


def conv(g):
    edge = g.pick(3, 4)
    shape = g.shape(edge[0])
    c, n = shape[1], len(shape) - 2
    group = g.one_of(1, 1, c, *[k for k in (2, 3) if c % k == 0])
    made = group * g.number(1, max(1, 6 // group))
    attributes = spatial(g, n)
    room = [shape[2 + d] + attributes["pads"][d] + attributes["pads"][n + d] for d in range(n)]
    if any(attributes["dilations"][d] * (attributes["kernel_shape"][d] - 1) >= room[d] for d in range(n)):
        raise Refused
    inputs = [g.real(edge), g.weights([made, c // group] + attributes["kernel_shape"], 0)]
    return g.node("Conv", inputs + ([g.bias(made, 2.0)] if g.chance(0.6) else []), group=group, **attributes)


def conv_transpose(g):
    edge = g.pick(3, 4)
    shape = g.shape(edge[0])
    c, n = shape[1], len(shape) - 2
    group = g.one_of(1, 1, 1, c, *[k for k in (2, 3) if c % k == 0])
    each = g.number(1, max(1, 4 // group))
    attributes = spatial(g, n)
    attributes["pads"] = [g.number(0, 1) if k > 1 else 0 for k in attributes["kernel_shape"] * 2]
    if g.chance(0.3):
        attributes["output_padding"] = [g.number(0, s - 1) for s in attributes["strides"]]
    sizes = [attributes["strides"][d] * (shape[2 + d] - 1) + attributes["dilations"][d] * (attributes["kernel_shape"][d] - 1)
             + 1 - attributes["pads"][d] - attributes["pads"][n + d] for d in range(n)]
    if min(sizes) < 1 or np.prod(sizes) * each * group > LARGEST_EDGE:
        raise Refused
    inputs = [g.real(edge), g.weights([c, each] + attributes["kernel_shape"], 1 if group == 1 or g.chance(0.2) else None)]
    return g.node("ConvTranspose", inputs + ([g.bias(each * group, 2.0)] if g.chance(0.6) else []), group=group, **attributes)


def gemm(g):
    edge = g.pick(2)
    attributes = {"transA": g.number(0, 1), "transB": g.number(0, 1)}
    if g.chance(0.2):
        attributes.update(alpha=g.one_of(0.5, 2.0, 0.3), beta=g.one_of(1.0, 0.25, 0.7))
    depth, made = g.shape(edge[0])[1 - attributes["transA"]], g.number(1, 8)
    shape = [made, depth] if attributes["transB"] else [depth, made]
    inputs = [g.real(edge), g.weights(shape, 1 - attributes["transB"])]
    return g.node("Gemm", inputs + ([g.bias(made, 2.0)] if g.chance(0.7) else []), **attributes)


def matmul(g):
    edge = g.pick(2, 3, 4)
    depth = g.shape(edge[0])[-1]
    return g.node("MatMul", [g.real(edge), g.weights([depth, g.number(1, 6)], 1)])


def matmul_dynamic(g):
    a = g.pick(2, 3, 4)
    shape = g.shape(a[0])
    fits = [e for e in g.edges if g.shape(e[0])[-2:-1] == shape[-1:] and len(g.shape(e[0])) in (2, len(shape))
            and (len(g.shape(e[0])) == 2 or g.shape(e[0])[:-2] == shape[:-2])]
    if fits and g.chance(0.5):
        return g.node("MatMul", [g.real(a), g.real(g.one_of(*fits))])
    order = list(range(len(shape)))  # a times itself, turned: the Transpose is a unit of its own
    order[-2:] = order[-1], order[-2]
    g.quantise(g.node("Transpose", [g.real(a)], perm=order))
    return g.node("MatMul", [g.real(a), g.real(g.edges[-1])])


def pairwise(g, op_type):
    a = g.pick(1, 2, 3, 4)
    shape = g.shape(a[0])
    fits = [e for e in g.edges if g.shape(e[0]) == shape or np.prod(g.shape(e[0])) == 1 and len(g.shape(e[0])) <= len(shape)]
    if g.chance(0.35):
        other = [n if g.chance(0.6) else 1 for n in shape[g.number(0, len(shape) - 1):]]
        is_float = g.chance(0.2)
        b = g.constant(g.random.normal(0, 1, other).astype(np.float32)) if is_float else g.weights(other, None, 2.0)
    else:
        b = g.real(g.one_of(*fits))
    inputs = [g.real(a), b]
    if g.chance(0.2):
        inputs.reverse()
    if op_type == "Div" and not all(v != 0 for v in g.result.values[inputs[1]].reshape(-1)):
        raise Refused
    return g.node(op_type, inputs)


def max_pool(g):
    return pooling(g, "MaxPool", {})


def average_pool(g):
    return pooling(g, "AveragePool", {"count_include_pad": g.number(0, 1)})


def pooling(g, op_type, more):
    edge = g.pick(3, 4)
    shape = g.shape(edge[0])
    attributes = spatial(g, len(shape) - 2)
    attributes["ceil_mode"] = g.one_of(0, 0, 1)
    n = len(shape) - 2
    if any(attributes["dilations"][d] * (attributes["kernel_shape"][d] - 1) + 1 > shape[2 + d] for d in range(n)):
        raise Refused
    if max(attributes["dilations"]) > 1:
        attributes["pads"] = [0] * (2 * n)
    pads, strides = attributes["pads"], attributes["strides"]
    for d in range(n):  # a last window that starts in the padding: left out, but not by the shape inference of onnx 1.23
        room = shape[2 + d] + pads[d] + pads[n + d] - attributes["dilations"][d] * (attributes["kernel_shape"][d] - 1) - 1
        if attributes["ceil_mode"] and -(-room // strides[d]) * strides[d] >= shape[2 + d] + pads[d]:
            raise Refused
    return g.node(op_type, [g.real(edge)], **attributes, **more)


def global_average_pool(g):
    return g.node("GlobalAveragePool", [g.real(g.pick(3, 4))])


def reduce(g):
    edge = g.pick(2, 3, 4)
    rank = len(g.shape(edge[0]))
    axes = sorted(g.random.choice(rank, g.number(1, rank), replace=False))
    axes = np.array([a - rank if g.chance(0.3) else a for a in axes], np.int64)
    keepdims = 1 if len(axes) == rank or g.chance(0.6) else 0
    return g.node(g.one_of("ReduceMean", "ReduceMean", "ReduceSum"), [g.real(edge), g.constant(axes)], keepdims=keepdims)


def relu(g):
    return g.node("Relu", [g.real(g.pick(1, 2, 3, 4))])


def clip(g):
    edge = g.real(g.pick(1, 2, 3, 4))
    ends = [float(v) for v in g.result.values[edge].reshape(-1)]
    low, high = sorted(np.float32(g.random.uniform(min(ends), max(ends), 2)))
    return g.node("Clip", [edge, g.constant(low), g.constant(high)])


def concat(g):
    a = g.pick(2, 3, 4)
    shape = g.shape(a[0])
    axis = g.number(0, len(shape) - 1)
    fits = [e for e in g.edges if len(g.shape(e[0])) == len(shape)
            and all(n == m for d, (n, m) in enumerate(zip(g.shape(e[0]), shape)) if d != axis)]
    parts = [a] + [g.one_of(*fits) for _ in range(g.number(1, 2))]
    return g.node("Concat", [g.real(e) for e in parts], axis=axis - (len(shape) if g.chance(0.3) else 0))


def slice_part(g):
    edge = g.pick(2, 3, 4)
    shape = g.shape(edge[0])
    axis = max(range(len(shape)), key=lambda d: shape[d])
    n, step = shape[axis], g.one_of(1, 1, 2, -1, -2)
    if n < 3:
        raise Refused
    upwards, downwards = (g.one_of(0, 1, -n), g.one_of(n, n - 1, -1, 2**40)), (g.one_of(-1, n - 1, n + 5), g.one_of(-n - 1, 0))
    ends = upwards if step > 0 else downwards
    lists = [np.array([v], np.int64) for v in (*ends, axis, step)]
    return g.node("Slice", [g.real(edge)] + [g.constant(v) for v in lists])


def transpose(g):
    edge = g.pick(2, 3, 4)
    return g.node("Transpose", [g.real(edge)], perm=[int(v) for v in g.random.permutation(len(g.shape(edge[0])))])


def reshape(g):
    edge = g.pick(2, 3, 4)
    shape = g.shape(edge[0])
    first = shape[0] * (shape[1] if g.chance(0.5) else 1)
    target = g.one_of([first, -1], [shape[0], shape[1], -1], [0, -1])
    target = [int(np.prod(shape)) // int(np.prod([shape[i] if n == 0 else n for i, n in enumerate(target) if n != -1]))
              if n == -1 and g.chance(0.5) else n for n in target]
    return g.node("Reshape", [g.real(edge), g.constant(np.array(target, np.int64))])


def pad(g):
    edge = g.pick(2, 3, 4)
    shape = g.shape(edge[0])
    mode = g.one_of("constant", "constant", "reflect", "edge")
    widths = [g.number(0, min(2, n - 1)) if d >= len(shape) - 2 else 0 for d, n in enumerate(shape)] * 2
    inputs = [g.real(edge), g.constant(np.array(widths, np.int64))]
    if mode == "constant" and g.chance(0.5):
        inputs.append(g.constant(np.float32(g.one_of(0.5, -1.25, 0.1))))
    return g.node("Pad", inputs, mode=mode)


def gather(g):
    edge = g.pick(2, 3, 4)
    shape = g.shape(edge[0])
    axis = g.number(0, len(shape) - 1)
    indices = g.random.integers(-shape[axis], shape[axis], g.one_of(1, 2, 4, [2, 2]))
    return g.node("Gather", [g.real(edge), g.constant(indices.astype(np.int64))], axis=axis)


def requantise(g):
    return g.real(g.pick(1, 2, 3, 4))


def curved(g):
    edge = g.pick(2, 3, 4)
    op_type = g.one_of("Softmax", "Sigmoid", "Tanh", "Gelu", "LayerNormalization")
    if op_type == "LayerNormalization":
        n = g.shape(edge[0])[-1]
        return g.node(op_type, [g.real(edge), g.weights([n], None, 2.0)] + ([g.bias(n, 1.0)] if g.chance(0.6) else []))
    more = {"axis": g.one_of(-1, 1)} if op_type == "Softmax" else {}
    if op_type == "Gelu":
        more = {"approximate": g.one_of("none", "tanh")}
    return g.node(op_type, [g.real(edge)], **more)


LINEAR = [conv] * 5 + [conv_transpose] * 2 + [gemm] * 3 + [matmul, matmul_dynamic] * 2 + [
    lambda g: pairwise(g, "Add"), lambda g: pairwise(g, "Add"), lambda g: pairwise(g, "Sub"), lambda g: pairwise(g, "Mul"),
    lambda g: pairwise(g, "Div"), max_pool, average_pool, global_average_pool, reduce, relu, clip, concat, slice_part,
    transpose, reshape, pad, gather, requantise]


def make_graph(seed, is_curved):
    """Graph and model. is_curved: with units that are not linear, too."""
    g = Graph(seed)
    for _ in range(g.one_of(1, 1, 2)):
        g.add_input(g.one_of([1, g.number(1, 6), g.number(3, 7), g.number(3, 7)], [1, g.number(1, 6), g.number(5, 12)],
                             [g.number(1, 4), g.number(3, 12)], [2, g.number(2, 5), g.number(2, 6)]))
    n_units = g.number(2, 8)
    for k in range(n_units):
        g.add_unit([curved] if is_curved and (k == n_units // 2 or g.chance(0.3)) else LINEAR)
    return g, g.finish()
