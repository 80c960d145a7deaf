#!/usr/bin/env python3
"""Makes golden/cases: small quantised models that the end-to-end tests run on real runtimes.

Pinned: onnx 1.23.2, onnxruntime 1.31.1, numpy 2.4.6 (Python 3.11). The committed files are the reference; the script
writes the same bytes again with those versions.

    python -m venv VENV && VENV/bin/pip install onnx==1.23.2 onnxruntime==1.31.1 numpy==2.4.6
    VENV/bin/python tools/make_cases.py
"""

import pathlib

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper

CASES = pathlib.Path(__file__).resolve().parent.parent / "golden/cases"


class Graph:
    """A float graph written in QDQ form: every tensor is quantised to uint8 and dequantised again."""

    def __init__(self):
        self.nodes, self.constants = [], []
        self.inputs, self.outputs = [], []

    def constant(self, name, array):
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def quantised(self, name, scale, zero_point, codes=None, output=None):
        """The name under which other nodes read `name` after its quantisation (codes: it is a constant)."""
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

    def node(self, op, inputs, name, scale, zero_point, output=None):
        """One operator and the quantisation of what it makes; node and tensor have one name."""
        made = name if output is None else f"{name}_float"
        self.nodes.append(h.make_node(op, inputs, [made], name=name))
        return self.quantised(made, scale, zero_point, output=output)

    def output(self, name, shape):
        self.outputs.append(h.make_tensor_value_info(name, T.FLOAT, shape))

    def save(self, path, external=None):
        graph = h.make_graph(self.nodes, path.stem, self.inputs, self.outputs, self.constants)
        model = h.make_model(graph, opset_imports=[h.make_opsetid("", 21)], ir_version=10, producer_name="make_cases")
        onnx.checker.check_model(model, full_check=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        if external is not None:
            (path.parent / external).unlink(missing_ok=True)
            onnx.external_data_helper.convert_model_to_external_data(
                model, all_tensors_to_one_file=True, location=external, size_threshold=100)
        onnx.save(model, path)
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


def main():
    erf().save(CASES / "erf.u8.onnx")
    names().save(CASES / "names.u8.onnx")
    dense().save(CASES / "dense.u8.onnx")
    dense().save(CASES / "external/dense.u8.onnx", external="dense.bin")


if __name__ == "__main__":
    main()
