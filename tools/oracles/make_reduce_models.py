#!/usr/bin/env python3
"""Puts what fails in golden/failing into the middle of a golden ViT: what `npudiff reduce` has to find there.

    python -m venv VENV && VENV/bin/pip install onnx==1.23.2 numpy==2.4.6
    VENV/bin/python tools/oracles/make_reduce_models.py OUT_DIR [--case CASE ...]

The operator `broken` of each small model goes, with its constants and its quantisation, between two nodes of the ViT.
There the activation is requantised to what the small model gives its operator, brought to its shape (Slice and Pad are
avoided: a MatMul with constant weights before and after brings any number of elements to any other), and back. One that
is refused only as an output of the model (depthwise63) becomes a second head instead. Nothing else is taken from the
small model, so that its failure has to be found among some 70 operators of the ViT.
"""

import argparse
import pathlib

import numpy as np
import onnx
from onnx import helper as h
from onnx import numpy_helper

ROOT = pathlib.Path(__file__).resolve().parents[2]
BEHIND = "block0/mlp/add"  # the residual stream of the ViT, which all that follows depends on


class Embedding:
    """Nodes and constants that are put into the ViT."""

    def __init__(self):
        self.nodes, self.constants = [], []

    def constant(self, name, array):
        self.constants.append(numpy_helper.from_array(np.asarray(array), f"case/{name}"))
        return f"case/{name}"

    def quantised(self, name, pair):
        self.nodes.append(h.make_node("QuantizeLinear", [name, *pair], [f"{name}_codes"], name=f"{name}_QuantizeLinear"))
        self.nodes.append(h.make_node("DequantizeLinear", [f"{name}_codes", *pair], [f"{name}_dequantised"],
                                      name=f"{name}_DequantizeLinear"))
        return f"{name}_dequantised"

    def node(self, op, inputs, name, pair, **attr):
        self.nodes.append(h.make_node(op, inputs, [f"case/{name}"], name=f"case/{name}", **attr))
        return self.quantised(f"case/{name}", pair)

    def linear(self, x, name, n_in, n_out, pair):
        """A MatMul with constant weights that are kept as codes of one step of 0.02 around the middle."""
        middle = 128
        codes = np.random.default_rng(n_in * 1000 + n_out).integers(0, 256, [n_in, n_out], dtype=np.uint8)
        weight = [self.constant(f"{name}.codes", codes), self.constant(f"{name}.scale", np.float32(0.02)),
                  self.constant(f"{name}.zero", np.uint8(middle))]
        self.nodes.append(h.make_node("DequantizeLinear", weight, [f"case/{name}.weight"], name=f"case/{name}.weight"))
        return self.node("MatMul", [x, f"case/{name}.weight"], name, pair)


def shapes_of(small):
    inferred = onnx.shape_inference.infer_shapes(small)
    values = [*inferred.graph.value_info, *inferred.graph.input, *inferred.graph.output]
    return {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in values}


def renamed(name):
    return f"case/{name}" if name else ""


class Case:
    """What is taken from a small model: all that makes `leaving` of `entry`, and the constants of that."""

    def __init__(self, small):
        graph = small.graph
        names = {n.name: n for n in graph.node}
        self.shapes = shapes_of(small)
        # Everything between `front` and `back`; the whole where there are none.
        self.is_between = "front" in names
        self.entry = "front" if self.is_between else "x"
        self.leaving = names["back"].input[0] if self.is_between else graph.output[0].name
        skipped = ("x_", "front.bias") if self.is_between else ()
        self.chain, wanted = [], {self.leaving}
        for n in reversed(graph.node):
            if set(n.output) & wanted and n.name != "front":
                wanted |= set(n.input)
                if not n.name.startswith(skipped):
                    self.chain.insert(0, n)
        first = names[f"{self.entry}_QuantizeLinear"]
        self.pair = [first.input[1], first.input[2]]
        used = {name for n in self.chain for name in n.input} | set(self.pair)
        self.constants = sorted((i for i in graph.initializer if i.name in used), key=lambda i: i.name)


def add_constants(embedding, case):
    for constant in case.constants:
        copy = onnx.TensorProto()
        copy.CopyFrom(constant)
        copy.name = renamed(constant.name)
        embedding.constants.append(copy)


def add_nodes(embedding, case):
    for n in case.chain:
        copy = onnx.NodeProto()
        copy.CopyFrom(n)
        copy.name = renamed(n.name)
        for field in (copy.input, copy.output):
            names = [renamed(v) for v in field]
            del field[:]
            field.extend(names)
        embedding.nodes.append(copy)


def enter(embedding, case, tail, stream):
    """Brings the ViT's activation to the shape of what the operator reads."""
    own, inside = [renamed(p) for p in case.pair], case.shapes[case.entry]
    width = int(np.prod(stream))
    x = embedding.node("Reshape", [tail, embedding.constant("flat.shape", np.array([1, width], np.int64))], "flat", own)
    x = embedding.linear(x, "enter", width, int(np.prod(inside)), own)
    embedding.nodes.append(h.make_node("Reshape", [x, embedding.constant("enter.shape", np.array(inside, np.int64))],
                                       [renamed(case.entry)], name="case/shaped"))


def leave(embedding, case, stream):
    """And what it makes back to the shape of the ViT's activation."""
    own, outside = [renamed(p) for p in case.pair], case.shapes[case.leaving]
    y, n_out = renamed(case.leaving), int(np.prod(outside))
    if n_out == 0:
        pads = embedding.constant("grow.pads", np.array([0] * len(outside) + [8 * (d == 0) for d in outside], np.int64))
        y = embedding.node("Pad", [y, pads], "grow", own)
        n_out = int(np.prod([d or 8 for d in outside]))
    shape = embedding.constant("leave.flat.shape", np.array([1, n_out], np.int64))
    y = embedding.node("Reshape", [y, shape], "leave.flat", own)
    y = embedding.linear(y, "leave", n_out, int(np.prod(stream)), own)
    return embedding.node("Reshape", [y, embedding.constant("leave.shape", np.array(stream, np.int64))], "shaped.back", own)


def embed(whole_path, small_path):
    whole, case, embedding = onnx.load(whole_path), Case(onnx.load(small_path)), Embedding()
    stream = shapes_of(whole)[BEHIND]
    tail = f"{BEHIND}_DequantizeLinear_Output"
    add_constants(embedding, case)
    enter(embedding, case, tail, stream)
    add_nodes(embedding, case)
    y = tail
    if case.is_between:
        y = leave(embedding, case, stream)
    else:  # refused only where an output of the model is made, so it becomes a second head of the ViT
        whole.graph.output.append(h.make_tensor_value_info(renamed(case.leaving), onnx.TensorProto.FLOAT,
                                                           case.shapes[case.leaving]))

    # Whoever read the residual stream now reads what came of it.
    at = next(i for i, n in enumerate(whole.graph.node) if tail in n.output)
    for n in whole.graph.node[at + 1:]:
        for i, name in enumerate(n.input):
            if name == tail:
                n.input[i] = y
    nodes = [*whole.graph.node[:at + 1], *embedding.nodes, *whole.graph.node[at + 1:]]
    del whole.graph.node[:]
    whole.graph.node.extend(nodes)
    whole.graph.initializer.extend(embedding.constants)
    onnx.checker.check_model(whole)
    return whole


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--case", dest="cases", action="append", help="only that one; may be repeated")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for path in sorted((ROOT / "golden/failing").glob("*.onnx")):
        if path.name.startswith("vit-") or (arguments.cases and path.stem not in arguments.cases):
            continue
        model = embed(ROOT / f"golden/models/vit.w8a{'16' if 'u16' in path.name else '8'}.onnx", path)
        onnx.save(model, arguments.out / f"vit-{path.name}")
        print(f"vit-{path.name}: {model.ByteSize()} bytes")


if __name__ == "__main__":
    main()
