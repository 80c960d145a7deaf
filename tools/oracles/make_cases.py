#!/usr/bin/env python3
"""Makes golden/cases: small quantised models that the end-to-end tests run on real runtimes.

Pinned: onnx 1.23.2, onnxruntime 1.31.1, numpy 2.4.6 (Python 3.11). The committed files are the reference; the script
writes the same bytes again with those versions.

    python -m venv VENV && VENV/bin/pip install onnx==1.23.2 onnxruntime==1.31.1 numpy==2.4.6
    VENV/bin/python tools/oracles/make_cases.py
"""

import pathlib

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper

CASES = pathlib.Path(__file__).resolve().parents[2] / "golden/cases"


class Graph:
    """A float graph written in QDQ form: every tensor is quantised to uint8 and dequantised again. is_float: as it was
    before, with the same names."""

    def __init__(self, is_float=False):
        self.is_float = is_float
        self.nodes, self.constants = [], []
        self.inputs, self.outputs = [], []
        self.domains = [h.make_opsetid("", 21)]

    def constant(self, name, array):
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def quantised(self, name, scale, zero_point, codes=None, output=None):
        """The name under which other nodes read `name` after its quantisation (codes: it is a constant)."""
        if self.is_float:
            return name if codes is None else self.constant(name, np.float32(scale) * (np.float32(codes) - zero_point))
        pair = [self.constant(f"{name}_scale", np.float32(scale)), self.constant(f"{name}_zero_point", np.uint8(zero_point))]
        if codes is None:
            source = f"{name}_codes"
            self.nodes.append(h.make_node("QuantizeLinear", [name, *pair], [source], name=f"{name}_QuantizeLinear"))
        else:
            source = self.constant(f"{name}_codes", codes)
        made = output or f"{name}_dequantised"
        self.nodes.append(h.make_node("DequantizeLinear", [source, *pair], [made], name=f"{name}_DequantizeLinear"))
        return made

    def input(self, name, shape, scale, zero_point):
        self.inputs.append(h.make_tensor_value_info(name, T.FLOAT, shape))
        return self.quantised(name, scale, zero_point)

    def node(self, op, inputs, name, scale, zero_point, output=None, **attributes):
        """One operator and the quantisation of what it makes; node and tensor have one name."""
        made = name if output is None else output if self.is_float else f"{name}_float"
        self.nodes.append(h.make_node(op, inputs, [made], name=name, **attributes))
        return self.quantised(made, scale, zero_point, output=output)

    def convolution(self, inputs, name, scale, zero_point):
        return self.node("Conv", inputs, name, scale, zero_point, pads=[1, 1, 1, 1])

    def output(self, name, shape):
        self.outputs.append(h.make_tensor_value_info(name, T.FLOAT, shape))

    def save(self, path, external=None, runs=True):
        graph = h.make_graph(self.nodes, path.stem, self.inputs, self.outputs, self.constants)
        model = h.make_model(graph, opset_imports=self.domains, ir_version=10, producer_name="make_cases")
        onnx.checker.check_model(model, full_check=runs)
        path.parent.mkdir(parents=True, exist_ok=True)
        if external is not None:
            (path.parent / external).unlink(missing_ok=True)
            onnx.external_data_helper.convert_model_to_external_data(
                model, all_tensors_to_one_file=True, location=external, size_threshold=100)
        onnx.save(model, path)
        if not runs:
            return
        session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
        feeds = {i.name: np.zeros(i.shape, np.float32) for i in session.get_inputs()}
        session.run(None, feeds)


def weights(graph, random, name, rows, columns):
    return graph.quantised(name, 0.02, 128, random.integers(0, 256, (rows, columns), dtype=np.uint8))


def erf():
    """MatMul, Erf, MatMul: QNN has no Erf, so that the node in the middle stays on the CPU."""
    random, graph = np.random.default_rng(1), Graph()
    x = graph.input("x", [1, 16], 1 / 128, 128)
    x = graph.node("MatMul", [x, weights(graph, random, "front.weight", 16, 16)], "front", 0.05, 128)
    x = graph.node("Erf", [x], "erf", 2 / 255, 128)
    graph.node("MatMul", [x, weights(graph, random, "back.weight", 16, 8)], "back", 0.05, 128, output="y")
    graph.output("y", [1, 8])
    return graph


def dense():
    """Two MatMuls with 2.5 KB of weights, small enough to keep and large enough to keep elsewhere."""
    random, graph = np.random.default_rng(2), Graph()
    x = graph.input("x", [1, 32], 1 / 128, 128)
    x = graph.node("MatMul", [x, weights(graph, random, "front.weight", 32, 64)], "front", 0.1, 128)
    graph.node("MatMul", [x, weights(graph, random, "back.weight", 64, 8)], "back", 0.5, 128, output="y")
    graph.output("y", [1, 8])
    return graph


def names():
    """Edges whose names file formats like to trip over; two of them differ only once '/' is written as %2F."""
    graph = Graph()
    x = graph.input("a/b", [1, 8], 1 / 128, 128)
    for number, name in enumerate(("a%2Fb", "100%", "größe [0]", "../c", ".", 'say "x"')):
        half = graph.quantised(f"half{number}", 0.01, 100, np.arange(100, 180, 10, dtype=np.uint8).reshape(1, 8))
        x = graph.node("Add", [x, half], name, 1 / 64, 120)
    graph.node("Relu", [x], "last", 1 / 64, 0, output="y")
    graph.output("y", [1, 8])
    return graph


def sample(is_float=False):
    """Conv, RoiAlign, Conv and Add: the one in the middle is not evaluated in double precision."""
    random, graph = np.random.default_rng(3), Graph(is_float)
    kernel = lambda name: graph.quantised(name, 0.01, 128, random.integers(0, 256, (4, 4, 3, 3), dtype=np.uint8))
    x = graph.input("x", [1, 4, 6, 6], 1 / 128, 128)
    x = graph.convolution([x, kernel("front.weight")], "front", 0.03, 128)
    regions = [graph.constant("region", np.float32([[0.5, 1, 4.5, 5]])), graph.constant("region_of", np.int64([0]))]
    x = graph.node("RoiAlign", [x, *regions], "sample", 0.03, 128, output_height=6, output_width=6, sampling_ratio=2)
    side = graph.convolution([x, kernel("back.weight")], "back", 0.05, 128)
    graph.node("Add", [x, side], "sum", 0.06, 128, output="y")
    graph.output("y", [1, 4, 6, 6])
    return graph


def strange():
    """Adds, with an operator of nobody's domain between them, one that computes from constants, and an If: no runtime
    runs it."""
    graph = Graph()
    branch = lambda op: h.make_graph([h.make_node(op, ["odd_dequantised"], [op.lower()], name=op)], op, [],
                                     [h.make_tensor_value_info(op.lower(), T.FLOAT, [1, 8])])
    half = graph.quantised("half", 0.01, 100, np.arange(100, 180, 10, dtype=np.uint8).reshape(1, 8))
    x = graph.input("x", [1, 8], 1 / 128, 128)
    x = graph.node("Add", [x, half], "first", 1 / 64, 120)
    odd_half = graph.node("Odd", [half], "odd_half", 1 / 64, 120, domain="com.example")
    third = graph.node("Add", [x, odd_half], "third", 1 / 64, 120)
    x = graph.node("Odd", [x], "odd", 1 / 64, 120, domain="com.example")
    second = graph.node("Add", [x, half], "second", 1 / 64, 120)
    always = graph.constant("always", np.array(True))
    x = graph.node("If", [always], "branch", 1 / 64, 120, then_branch=branch("Relu"), else_branch=branch("Neg"))
    x = graph.node("Add", [x, second], "last", 1 / 32, 120)
    graph.node("Add", [x, third], "end", 1 / 32, 120, output="y")
    graph.output("y", [1, 8])
    graph.domains.append(h.make_opsetid("com.example", 1))
    return graph


def large():
    """Adds, and between them integers so large that a double does not hold them, unless the input is zero."""
    graph = Graph()
    half = graph.quantised("half", 0.01, 100, np.arange(100, 180, 10, dtype=np.uint8).reshape(1, 8))
    x = graph.input("x", [1, 8], 1 / 128, 128)
    x = graph.node("Add", [x, x], "first", 1 / 64, 128)
    graph.nodes += [h.make_node("Mul", [x, graph.constant("up", np.float32(2.0 ** 60))], ["wide"], name="wide"),
                    h.make_node("Cast", ["wide"], ["integer"], name="integer", to=T.INT64),
                    h.make_node("Cast", ["integer"], ["float"], name="float", to=T.FLOAT)]
    x = graph.node("Mul", ["float", graph.constant("down", np.float32(2.0 ** -60))], "large", 1 / 64, 128)
    graph.node("Add", [x, half], "sum", 1 / 32, 120, output="y")
    graph.output("y", [1, 8])
    return graph


def main():
    large().save(CASES / "large.u8.onnx")
    sample().save(CASES / "sample.u8.onnx")
    sample(is_float=True).save(CASES / "sample.float.onnx")
    strange().save(CASES / "strange.u8.onnx", runs=False)
    erf().save(CASES / "erf.u8.onnx")
    names().save(CASES / "names.u8.onnx")
    dense().save(CASES / "dense.u8.onnx")
    dense().save(CASES / "external/dense.u8.onnx", external="dense.bin")


if __name__ == "__main__":
    main()
