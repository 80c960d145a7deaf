"""What the scripts that make golden/field share: models of a few operators in QDQ form, and dumps beside them.

A model has one float32 input 'x'; every tensor is quantised and dequantised again. The names of tensors are those of the
float model, so that a dump of codes has an array for each of them: 'x' and what the operators make."""
import dataclasses
import pathlib

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper

FIELD = pathlib.Path(__file__).resolve().parents[2] / "golden" / "field"


@dataclasses.dataclass(frozen=True)
class Quant:
    """How real values become codes: code = value / scale + zero_point, rounded and clipped to dtype."""
    scale: float
    zero_point: int = 0
    dtype: str = "uint8"

    @property
    def limits(self):
        return np.iinfo(self.dtype).min, np.iinfo(self.dtype).max

    def clip(self, codes):
        """Whole numbers as codes of the type, clipped to what it holds."""
        return np.clip(codes, *self.limits).astype(self.dtype)

    def encode(self, values):
        """Codes of real values, rounded once, half to even: what ONNX asks for."""
        return self.clip(np.rint(np.float64(values) / np.float64(np.float32(self.scale))) + self.zero_point)

    def decode(self, codes):
        return np.float64(np.float32(self.scale)) * (np.float64(codes) - self.zero_point)


class Graph:
    """An ONNX graph that is written node by node. Without quantised tensors it is a float model."""

    def __init__(self):
        self.nodes, self.constants, self.inputs, self.outputs = [], [], [], []

    def constant(self, name, array):
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def quantised(self, name, quant, codes=None, axis=None, output=None):
        """The name under which other nodes read `name` after its quantisation (codes: it is a constant)."""
        array = np.asarray(quant.scale, np.float32)
        pair = [self.constant(f"{name}_scale", array),
                self.constant(f"{name}_zero_point", np.full(array.shape, quant.zero_point, quant.dtype))]
        flags = {} if axis is None else {"axis": axis}
        source = f"{name}_codes"
        if codes is None:
            self.nodes.append(h.make_node("QuantizeLinear", [name, *pair], [source], name=f"{name}_QuantizeLinear", **flags))
        else:
            self.constant(source, np.asarray(codes, quant.dtype))
        made = output or f"{name}_dequantised"
        self.nodes.append(h.make_node("DequantizeLinear", [source, *pair], [made], name=f"{name}_DequantizeLinear", **flags))
        return made

    def input(self, name, shape, quant=None, dtype=T.FLOAT, output=None):
        self.inputs.append(h.make_tensor_value_info(name, dtype, shape))
        return name if quant is None else self.quantised(name, quant, output=output)

    def node(self, op, inputs, name, quant=None, output=None, **attributes):
        """One operator and the quantisation of what it makes; node and tensor have one name."""
        made = name if output is None or quant is None else f"{name}_float"
        if quant is None and output is not None:
            made = output
        self.nodes.append(h.make_node(op, inputs, [made], name=name, **attributes))
        return made if quant is None else self.quantised(made, quant, output=output)

    def output(self, name, shape, dtype=T.FLOAT):
        self.outputs.append(h.make_tensor_value_info(name, dtype, shape))

    def save(self, path, opset=19):
        graph = h.make_graph(self.nodes, path.stem, self.inputs, self.outputs, self.constants)
        model = h.make_model(graph, opset_imports=[h.make_opsetid("", opset)], ir_version=9, producer_name="make_field")
        onnx.checker.check_model(model, full_check=True)
        onnx.save(model, path)


class Case:
    """The folder of one case, and what is written into it."""

    def __init__(self, slug):
        self.path = FIELD / slug
        self.path.mkdir(parents=True, exist_ok=True)

    def model(self, graph, name="model.onnx", **options):
        graph.save(self.path / name, **options)

    def dump(self, name, **arrays):
        """A file of arrays whose first dimension counts samples."""
        np.savez_compressed(self.path / f"{name}.npz", **arrays)

    def text(self, name, lines):
        (self.path / name).write_text("".join(f"{line}\n" for line in lines))


def dense(x, weights, y, bias=None):
    """A model of one MatMul, or Gemm with a float bias: x [1, K] of Quant x, weights (codes, Quant[, axis]), y [1, N]."""
    codes, quant, *axis = weights
    graph = Graph()
    inputs = [graph.input("x", [1, codes.shape[0]], x), graph.quantised("w", quant, codes, *axis)]
    if bias is not None:
        inputs.append(graph.constant("bias", np.float32(bias)))
    graph.node("MatMul" if bias is None else "Gemm", inputs, "y", y, output="y")
    graph.output("y", [1, codes.shape[1]])
    return graph


def one_operator(op, shape, x, y, out_shape=None, constants=(), **attributes):
    """A model of one operator of 'x' (and of constants): x and y are Quants, or None for floats."""
    graph = Graph()
    names = [graph.input("x", shape, x)] + [graph.constant(f"c{i}", c) for i, c in enumerate(constants)]
    graph.node(op, names, "y", y, output="y", **attributes)
    graph.output("y", out_shape or shape)
    return graph
