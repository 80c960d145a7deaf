#!/usr/bin/env python3
"""Makes golden/failing: small quantised models that the HTP simulator refuses, each in its own way.

Pinned: onnx 1.23.2, numpy 2.4.6 (Python 3.11). The committed files are the reference; the script writes the same bytes
again with those versions.

    python -m venv VENV && VENV/bin/pip install onnx==1.23.2 numpy==2.4.6
    VENV/bin/python tools/oracles/make_failing_models.py

Each graph is `front` (an Add that every chipset runs), the operator that fails, `broken`, and `back` (another Add);
depthwise63 is `broken` alone.
"""

import pathlib

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper

FAILING = pathlib.Path(__file__).resolve().parents[2] / "golden/failing"


class Graph:
    """A graph in QDQ form whose activations are uint8 or uint16."""

    def __init__(self, bits=8):
        self.code = np.uint8 if bits == 8 else np.uint16
        self.scale, self.zero_point = (1 / 32, 128) if bits == 8 else (1 / 8192, 32768)
        self.nodes, self.constants = [], []
        self.inputs, self.outputs = [], []

    def constant(self, name, array):
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def quantised(self, name, scale=None, output=None):
        """The name under which other nodes read the activation `name` after its quantisation."""
        pair = [self.constant(f"{name}_scale", np.float32(self.scale if scale is None else scale)),
                self.constant(f"{name}_zero_point", self.code(self.zero_point))]
        made = output or f"{name}_dequantised"
        self.nodes.append(h.make_node("QuantizeLinear", [name, *pair], [f"{name}_codes"], name=f"{name}_QuantizeLinear"))
        self.nodes.append(h.make_node("DequantizeLinear", [f"{name}_codes", *pair], [made],
                                      name=f"{name}_DequantizeLinear"))
        return made

    def weight(self, name, codes, scale=0.02, zero_point=128):
        """A constant that is kept as codes of its own type."""
        codes = np.asarray(codes)
        pair = [self.constant(f"{name}_scale", np.float32(scale)),
                self.constant(f"{name}_zero_point", codes.dtype.type(zero_point))]
        self.constant(f"{name}_codes", codes)
        self.nodes.append(h.make_node("DequantizeLinear", [f"{name}_codes", *pair], [f"{name}_dequantised"],
                                      name=f"{name}_DequantizeLinear"))
        return f"{name}_dequantised"

    def input(self, shape):
        self.inputs.append(h.make_tensor_value_info("x", T.FLOAT, shape))
        return self.quantised("x")

    def bias(self, name):
        return self.weight(name, np.array([192], self.code), self.scale, self.zero_point)

    def node(self, op, inputs, name, scale=None, output=None, **attributes):
        """One operator and the quantisation of what it makes; node and tensor have one name."""
        made = name if output is None else f"{output}_float"
        self.nodes.append(h.make_node(op, inputs, [made], name=name, **attributes))
        return self.quantised(made, scale, output)

    def front(self, shape):
        return self.node("Add", [self.input(shape), self.bias("front.bias")], "front")

    def back(self, x, shape):
        self.node("Add", [x, self.bias("back.bias")], "back", output="y")
        self.outputs.append(h.make_tensor_value_info("y", T.FLOAT, shape))
        return self

    def save(self, name):
        graph = h.make_graph(self.nodes, name, self.inputs, self.outputs, self.constants)
        model = h.make_model(graph, opset_imports=[h.make_opsetid("", 21)], ir_version=10,
                             producer_name="make_failing_models")
        onnx.checker.check_model(model)
        onnx.save(model, FAILING / f"{name}.onnx")


def codes(seed, shape, dtype=np.uint8):
    limit = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(limit.min, int(limit.max) + 1, shape, dtype=dtype)


def instance_norm():
    g, shape = Graph(), [1, 4, 6, 6]
    x = g.front(shape)
    x = g.node("InstanceNormalization", [x, g.weight("gain", codes(1, [4])), g.weight("shift", codes(2, [4]))], "broken")
    return g.back(x, shape)


def lstm():
    """A sequence of 3 with 8 inputs and 8 hidden units: Y is [3,1,1,8]."""
    g = Graph()
    x = g.front([3, 1, 8])
    x = g.node("LSTM", [x, g.weight("w", codes(3, [1, 32, 8])), g.weight("r", codes(4, [1, 32, 8]))], "broken",
               hidden_size=8)
    return g.back(x, [3, 1, 1, 8])


def selu():
    g, shape = Graph(), [1, 16, 8]
    return g.back(g.node("Selu", [g.front(shape)], "broken"), shape)


def scatter_nd():
    g, shape = Graph(), [1, 8, 16]
    x = g.front(shape)
    indices = g.constant("indices", np.array([[0, 1], [0, 5]], np.int64))
    updates = g.weight("updates", codes(5, [2, 16]), g.scale)
    return g.back(g.node("ScatterND", [x, indices, updates], "broken"), shape)


def where():
    g, shape = Graph(16), [1, 8, 16]
    x = g.front(shape)
    mask = g.constant("mask", codes(6, shape) % 2 == 1)
    return g.back(g.node("Where", [mask, x, g.bias("other")], "broken"), shape)


def depthwise63():
    """A 63x63 kernel on five channels (four are not refused), between the model's own input and output: it is refused
    only where what it makes is an output, as every edge is while all are recorded."""
    g, shape = Graph(16), [1, 5, 8, 8]
    kernel = g.weight("kernel", codes(7, [5, 1, 63, 63]), 1e-3)
    g.node("Conv", [g.input(shape), kernel], "broken", output="y", group=5, pads=[31] * 4)
    g.outputs.append(h.make_tensor_value_info("y", T.FLOAT, shape))
    return g


def nan_scale():
    g, shape = Graph(), [1, 4, 6, 6]
    x = g.front(shape)
    return g.back(g.node("Conv", [x, g.weight("kernel", codes(8, [4, 4, 1, 1]))], "broken", scale=np.nan), shape)


def lrn():
    g, shape = Graph(16), [1, 4, 6, 6]
    return g.back(g.node("LRN", [g.front(shape)], "broken", size=3), shape)


def zero_dim():
    """A weight of no columns."""
    g = Graph()
    x = g.front([1, 8, 8])
    return g.back(g.node("MatMul", [x, g.weight("empty", np.zeros([8, 0], np.uint8))], "broken"), [1, 8, 0])


def conv_int16():
    g, shape = Graph(), [1, 4, 6, 6]
    x = g.front(shape)
    return g.back(g.node("Conv", [x, g.weight("kernel", codes(9, [4, 4, 3, 3], np.int16), 1e-5, 0)], "broken",
                         pads=[1, 1, 1, 1]), shape)


def conv3d_dilated():
    g, shape = Graph(), [1, 4, 6, 6, 6]
    x = g.front(shape)
    return g.back(g.node("Conv", [x, g.weight("kernel", codes(10, [4, 4, 3, 3, 3]))], "broken", dilations=[2, 2, 2],
                         pads=[2] * 6), shape)


MODELS = {"instance-norm.u8": instance_norm, "lstm.u8": lstm, "selu.u8": selu, "scatter-nd.u8": scatter_nd,
          "where.u16": where, "depthwise63.u16": depthwise63, "nan-scale.u8": nan_scale, "lrn.u16": lrn,
          "zero-dim.u8": zero_dim, "conv-int16.u8": conv_int16, "conv3d-dilated.u8": conv3d_dilated}


def main():
    FAILING.mkdir(parents=True, exist_ok=True)
    for name, make in MODELS.items():
        make().save(name)


if __name__ == "__main__":
    main()
