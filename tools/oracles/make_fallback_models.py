#!/usr/bin/env python3
"""Makes golden/fallback: small models of which an NPU runs a part, for tools/studies/score_fallback.

Each has one or more operators that Qualcomm's provider leaves to the CPU, on every chipset or on the older ones, between units
that it takes; and some have none, as a counterpart. Weights are random (fixed seeds); scales come from the digits that the other
golden models are calibrated with. In QDQ form every tensor is codes, uint8 or uint16; weights are symmetric int8 (int16 where the
name says so), per output channel in convolutions. *.float.onnx are as they were before.

Pinned: onnx 1.23.2, onnxruntime 1.31.1, numpy 2.4.6 (Python 3.11). The committed files are the reference; the script
writes the same bytes again with those versions.

    python -m venv VENV && VENV/bin/pip install onnx==1.23.2 onnxruntime==1.31.1 numpy==2.4.6
    VENV/bin/python tools/oracles/make_fallback_models.py
"""

import pathlib

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "golden"
FOLDER = GOLDEN / "fallback"
N_CALIBRATION = 64
U8, U16 = np.uint8, np.uint16


class Graph:
    """Operators on float tensors, each with one output of its own name; `kinds` says what becomes of constants:
    "weight", "weight16", "bias", "gain" (uint8), "activation" (codes of the graph's type), or "plain" (shapes, axes)."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.nodes, self.constants, self.kinds = [], {}, {}

    def constant(self, name, array, kind):
        self.constants[name], self.kinds[name] = np.asarray(array), kind
        return name

    def op(self, op, name, *inputs, **attributes):
        self.nodes.append((op, name, list(inputs), attributes))
        return name

    def normal(self, *shape, spread=1.0):
        return (self.random.standard_normal(shape) * spread).astype(np.float32)

    # ---- the units that every NPU takes ----

    def conv(self, name, x, c_in, c_out, kernel=3, group=1, relu=True):
        spread = (2.0 / (c_in // group * kernel * kernel)) ** 0.5
        weight = self.constant(f"{name}.weight", self.normal(c_out, c_in // group, kernel, kernel, spread=spread), "weight")
        bias = self.constant(f"{name}.bias", self.normal(c_out, spread=0.1), "bias")
        y = self.op("Conv", f"{name}/conv" if relu else name, x, weight, bias, pads=[kernel // 2] * 4,
                    kernel_shape=[kernel] * 2, group=group)
        return self.op("Relu", name, y) if relu else y

    def gemm(self, name, x, n_in, n_out):
        weight = self.constant(f"{name}.weight", self.normal(n_out, n_in, spread=n_in**-0.5), "weight")
        return self.op("Gemm", name, x, weight, self.constant(f"{name}.bias", self.normal(n_out, spread=0.1), "bias"), transB=1)

    def linear(self, name, x, n_in, n_out, kind="weight"):
        weight = self.constant(f"{name}.weight", self.normal(n_in, n_out, spread=n_in**-0.5), kind)
        return self.op("MatMul", name, x, weight)

    def add_constant(self, name, x, *shape):
        return self.op("Add", name, x, self.constant(f"{name}.term", self.normal(*shape, spread=0.5), "activation"))

    def norm(self, name, x, n, axis=-1, shape=None):
        scale = self.constant(f"{name}.weight", 1 + self.normal(*(shape or [n]), spread=0.2), "gain")
        bias = self.constant(f"{name}.bias", self.normal(*(shape or [n]), spread=0.2), "bias")
        return self.op("LayerNormalization", name, x, scale, bias, axis=axis, epsilon=1e-5)

    def reshape(self, name, x, *shape):
        return self.op("Reshape", name, x, self.constant(f"{name}.shape", np.array(shape, np.int64), "plain"))


# ---- writing ----


class Writer:
    def __init__(self, graph, code=None):
        self.graph, self.code = graph, code # code: np.uint8, np.uint16 or None for floats
        self.nodes, self.constants, self.read = [], [], {}

    def put(self, name, array):
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def dequantise(self, name, codes, scale, zero, **attributes):
        made = f"{name}_dequantised"
        self.nodes.append(h.make_node("DequantizeLinear", [codes, self.put(f"{name}_scale", scale),
                                                           self.put(f"{name}_zero_point", zero)],
                                      [made], name=f"{name}_DequantizeLinear", **attributes))  # fmt: skip
        return made

    def activation(self, name, low, high, code, codes_of=None, is_output=False):
        """What others read in place of the tensor; codes_of: it is that constant."""
        top = np.iinfo(code).max
        low, high = min(low, 0.0), max(high, 1e-3)
        scale = np.float32((high - low) / top)
        zero = code(round(-low / scale))
        if codes_of is not None:
            codes = np.clip(np.rint(codes_of / scale) + zero, 0, top).astype(code)
            self.read[name] = self.dequantise(name, self.put(f"{name}_codes", codes), scale, zero)
            return
        pair = [f"{name}_scale", f"{name}_zero_point"]
        made = f"{name}_float" if is_output else name # the model's output has the name of the tensor
        self.nodes.append(h.make_node("QuantizeLinear", [made, *pair], [f"{name}_codes"], name=f"{name}_QuantizeLinear"))
        self.read[name] = self.dequantise(name, f"{name}_codes", scale, zero)
        if is_output:
            self.nodes[-1].output[0] = name

    def weight(self, name, array, bits, per_channel):
        top = 2 ** (bits - 1) - 1
        axes = tuple(range(1, array.ndim)) if per_channel else None
        scale = (np.abs(array).max(axis=axes) / top).astype(np.float32)
        shape = [-1] + [1] * (array.ndim - 1) if per_channel else []
        codes = np.clip(np.rint(array / scale.reshape(shape)), -top, top).astype(np.int8 if bits == 8 else np.int16)
        axis = {"axis": 0} if per_channel else {}
        self.read[name] = self.dequantise(name, self.put(f"{name}_codes", codes), scale, np.zeros(scale.shape, codes.dtype), **axis)
        return scale

    def bias(self, name, array, scale):
        codes = np.rint(array / scale).astype(np.int32)
        axis = {"axis": 0} if np.ndim(scale) else {}
        scale = np.asarray(scale, np.float32)
        self.read[name] = self.dequantise(name, self.put(f"{name}_codes", codes), scale, np.zeros(scale.shape, np.int32), **axis)

    def constant(self, op, name, scales):
        array, kind = self.graph.constants[name], self.graph.kinds[name]
        if name in self.read:
            return
        if self.code is None or kind == "plain":
            self.read[name] = self.put(name, array)
        elif kind.startswith("weight"):
            scales.append(self.weight(name, array, 16 if kind.endswith("16") else 8, op in ("Conv",)))
        elif kind == "bias":
            self.bias(name, array, np.float32(scales[0] * scales[1]))
        else:
            self.activation(name, float(array.min()), float(array.max()), U8 if kind == "gain" else self.code, codes_of=array)
            scales.append(self.scale_of(name))

    def scale_of(self, name):
        return next((numpy_helper.to_array(c) for c in self.constants if c.name == f"{name}_scale"), np.float32(1))

    def write(self, path, spans):
        """spans: {tensor: (low, high)}. Relu behind a convolution has the convolution's tensor to itself, unquantised."""
        graph = self.graph
        last = graph.nodes[-1][1]
        fused = {inputs[0] for op, _, inputs, _ in graph.nodes if op == "Relu"}
        if self.code is None:
            self.read["image"] = "image"
        else:
            self.activation("image", *spans["image"][:2], self.code)
        for op, name, inputs, attributes in graph.nodes:
            scales = []
            for i in inputs:
                if i in graph.constants:
                    self.constant(op, i, scales)
                else:
                    scales.append(self.scale_of(i))
            is_plain = self.code is None or name in fused
            made = f"{name}_float" if name == last and not is_plain else name
            self.nodes.append(h.make_node(op, [self.read[i] for i in inputs], [made], name=name, **attributes))
            if is_plain:
                self.read[name] = name
            else:
                self.activation(name, *spans[name][:2], self.code, is_output=name == last)
        self.save(path, spans, last)

    def save(self, path, spans, last):
        proto = h.make_graph(self.nodes, path.name.split(".")[0], [h.make_tensor_value_info("image", T.FLOAT, [1, 1, 8, 8])],
                             [h.make_tensor_value_info(last, T.FLOAT, spans[last][2])], self.constants)
        model = h.make_model(proto, opset_imports=[h.make_opsetid("", 21)], ir_version=10, producer_name="make_fallback_models")
        onnx.checker.check_model(model, full_check=True)
        onnx.save(model, path)


def calibrate(graph):
    """{tensor: (low, high, shape)} over the calibration digits."""
    writer = Writer(graph)
    writer.read["image"] = "image"
    for op, name, inputs, attributes in graph.nodes:
        for i in inputs:
            if i in graph.constants and i not in writer.read:
                writer.read[i] = writer.put(i, graph.constants[i])
        writer.nodes.append(h.make_node(op, [writer.read.get(i, i) for i in inputs], [name], name=name, **attributes))
    names = [name for _, name, _, _ in graph.nodes]
    proto = h.make_graph(writer.nodes, "calibration", [h.make_tensor_value_info("image", T.FLOAT, [1, 1, 8, 8])],
                         [h.make_empty_tensor_value_info(n) for n in names], writer.constants)
    model = h.make_model(proto, opset_imports=[h.make_opsetid("", 21)], ir_version=10)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    images = np.load(GOLDEN / "models/digits-calibration.npz")["image"][:N_CALIBRATION]
    spans = {"image": (0.0, 1.0, [1, 1, 8, 8])}
    for image in images:
        for name, value in zip(names, session.run(names, {"image": image.reshape(1, 1, 8, 8)})):
            low, high, _ = spans.get(name, (np.inf, -np.inf, None))
            spans[name] = (min(low, float(value.min())), max(high, float(value.max())), list(value.shape))
    return spans


# ---- the graphs ----


def trunk(g):
    return g.conv("first", "image", 1, 8)


def tail(g, x, channels=8):
    """Convolution, addition, mean and classifier behind the operator in the middle."""
    y = g.conv("second", x, channels, channels)
    y = g.op("Add", "residual", x, y)
    return g.gemm("logits", g.op("Flatten", "flat", g.conv("third", y, channels, 4), axis=1), 256, 10)


def healthy(g):
    """Nothing that an NPU lacks."""
    x = g.conv("depthwise", g.conv("pointwise", trunk(g), 8, 16, kernel=1), 16, 16, group=16, relu=False)
    x = g.op("Mul", "gate", x, g.op("Sigmoid", "sigmoid", x))
    x = g.op("MaxPool", "pool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = g.op("Concat", "concat", x, g.conv("side", x, 16, 16), axis=1)
    x = g.op("AveragePool", "average", x, kernel_shape=[2, 2], strides=[2, 2])
    g.gemm("logits", g.op("Flatten", "flat", x, axis=1), 128, 10)


def operators(g):
    """Of many kinds one: what an NPU makes of operators that the other graphs have on the CPU, or not at all."""
    x = trunk(g)
    weight = g.constant("norm.weight", 1 + g.normal(8, spread=0.2), "gain")
    x = g.op("InstanceNormalization", "norm", x, weight, g.constant("norm.bias", g.normal(8, spread=0.2), "bias"), epsilon=1e-5)
    weight = g.constant("up.weight", g.normal(8, 8, 2, 2, spread=0.2), "weight")
    x = g.op("ConvTranspose", "up", x, weight, g.constant("up.bias", g.normal(8, spread=0.1), "bias"), strides=[2, 2])
    x = g.op("AveragePool", "down", x, kernel_shape=[2, 2], strides=[2, 2])
    for op in ("Tanh", "HardSwish", "Elu", "Sin"):
        x = g.conv(f"before-{op}", x, 8, 8, relu=False)
        x = g.op(op, op.lower(), x)
    x = g.op("CumSum", "cumsum", x, g.constant("cumsum.axis", np.array(3, np.int64), "plain"))
    x = g.op("Sub", "difference", x, g.conv("beside", x, 8, 8))
    x = g.op("Div", "quotient", x, g.op("Exp", "exp", g.op("Sigmoid", "sigmoid", x)))
    x = g.op("Sqrt", "sqrt", g.op("Abs", "abs", x))
    x = g.op("ReduceSum", "sum", x, g.constant("sum.axes", np.array([3], np.int64), "plain"), keepdims=0)
    x = g.op("ReduceMax", "max", x, g.constant("max.axes", np.array([2], np.int64), "plain"), keepdims=0)
    g.gemm("logits", x, 8, 10)


def erf(g):
    tail(g, g.op("Erf", "erf", g.conv("middle", trunk(g), 8, 8, relu=False)))


def norm1(g):
    """LayerNormalization over everything but the batch."""
    x = g.norm("norm", g.conv("middle", trunk(g), 8, 8, relu=False), 8, axis=1, shape=[8, 8, 8])
    tail(g, x)


def instance5(g):
    """InstanceNormalization of 5-D."""
    x = g.reshape("fold", g.conv("middle", trunk(g), 8, 8, relu=False), 1, 8, 4, 4, 4)
    weight = g.constant("norm.weight", 1 + g.normal(8, spread=0.2), "gain")
    x = g.op("InstanceNormalization", "norm", x, weight, g.constant("norm.bias", g.normal(8, spread=0.2), "bias"), epsilon=1e-5)
    tail(g, g.reshape("unfold", x, 1, 8, 8, 8))


def product(g):
    x = g.reshape("fold", g.conv("middle", trunk(g), 8, 16, relu=False), 1, 8, 2, 8, 8)
    axes = g.constant("product.axes", np.array([2], np.int64), "plain")
    tail(g, g.op("ReduceProd", "product", x, axes, keepdims=0))


def cumsum(g):
    x = g.conv("middle", trunk(g), 8, 8, relu=False)
    tail(g, g.op("CumSum", "cumsum", x, g.constant("cumsum.axis", np.array(3, np.int64), "plain"), exclusive=1))


def transposed(g):
    """Dilated ConvTranspose."""
    weight = g.constant("up.weight", g.normal(8, 8, 3, 3, spread=0.12), "weight")
    x = g.op("ConvTranspose", "up", trunk(g), weight, g.constant("up.bias", g.normal(8, spread=0.1), "bias"),
             dilations=[2, 2], pads=[2, 2, 2, 2])  # fmt: skip
    tail(g, x)


def turned(g):
    """Einsum that only transposes: its codes cannot tell where it ran."""
    x = g.reshape("fold", g.conv("middle", trunk(g), 8, 8, relu=False), 8, 8, 8)
    tail(g, g.reshape("unfold", g.op("Einsum", "turn", x, equation="bij->bji"), 1, 8, 8, 8))


def tokens(g, dim=24):
    x = g.reshape("rows", g.conv("middle", trunk(g), 8, 24), 1, dim, 64)
    x = g.op("Transpose", "tokens", x, perm=[0, 2, 1])
    return g.add_constant("position", x, 1, 64, dim)


def head(g, x, dim=24):
    axes = g.constant("features.axes", np.array([1], np.int64), "plain")
    g.gemm("logits", g.op("ReduceMean", "features", g.norm("last", x, dim), axes, keepdims=0), dim, 10)


def attention(g, x, dim=24, n_heads=3, einsum=False, kind="weight"):
    def heads(part, perm):
        y = g.reshape(f"{part}/heads", g.linear(part, x, dim, dim, kind=kind if part == "v" else "weight"), 1, 64, n_heads, dim // n_heads)
        return g.op("Transpose", f"{part}/transpose", y, perm=perm)

    q, k, v = heads("q", [0, 2, 1, 3]), heads("k", [0, 2, 1, 3] if einsum else [0, 2, 3, 1]), heads("v", [0, 2, 1, 3])
    scores = g.op("Einsum", "scores", q, k, equation="bhqd,bhkd->bhqk") if einsum else g.op("MatMul", "scores", q, k)
    y = g.op("MatMul", "context", g.op("Softmax", "softmax", scores, axis=-1), v)
    y = g.reshape("merge", g.op("Transpose", "context/transpose", y, perm=[0, 2, 1, 3]), 1, 64, dim)
    return g.op("Add", "attention", x, g.linear("proj", y, dim, dim))


def einsum(g):
    """The scores of attention as Einsum: in uint16 on the CPU up to v69."""
    head(g, attention(g, tokens(g), einsum=True))


def wide(g):
    """MatMul with int16 weights: in uint16 on the CPU up to v69."""
    x = attention(g, tokens(g), kind="weight16")
    head(g, g.op("Add", "mlp", x, g.linear("fc2", g.op("Gelu", "gelu", g.linear("fc1", x, 24, 48, kind="weight16")), 48, 24)))


def mixed(g):
    """Several at once, next to one another and apart."""
    x = g.op("Erf", "erf", g.conv("middle", trunk(g), 8, 24, relu=False))
    x = g.conv("between", x, 24, 24, relu=False)
    x = g.op("CumSum", "cumsum", x, g.constant("cumsum.axis", np.array(2, np.int64), "plain"), exclusive=1)
    x = g.norm("norm", x, 24, axis=1, shape=[24, 8, 8])
    x = g.op("Transpose", "tokens", g.reshape("rows", x, 1, 24, 64), perm=[0, 2, 1])
    head(g, attention(g, g.add_constant("position", x, 1, 64, 24), einsum=True))


MODELS = [(healthy, [U8, U16, None]), (operators, [U8, U16]), (erf, [U8, U16, None]), (norm1, [U8, U16]), (instance5, [U8, U16]), (product, [U8, U16]),
          (cumsum, [U8, U16]), (transposed, [U8, U16]), (turned, [U8, U16]), (einsum, [U8, U16]), (wide, [U16]),
          (mixed, [U8, U16, None])]  # fmt: skip


def main():
    FOLDER.mkdir(exist_ok=True)
    for build, codes in MODELS:
        for code in codes:
            graph = Graph(sum(build.__name__.encode()))
            build(graph)
            name = {U8: "u8", U16: "u16", None: "float"}[code]
            Writer(graph, code).write(FOLDER / f"{build.__name__}.{name}.onnx", calibrate(graph))


if __name__ == "__main__":
    main()
