#!/usr/bin/env python3
"""Makes golden/oracle/exact_graphs.bin.gz: random quantised graphs and the code that every element of every quantised edge
must have, by tools/oracles/exact_graphs_eval.py in exact rational arithmetic.

Graph k is made from seed SEED + k: N_LINEAR (or GRAPHS) of them, and N_CURVED more with units that are not linear (Softmax and
the like). A graph with a code that its value does not decide (Result.free) and that something reads is made again from
another seed.

Format, little endian: "NDGRAPH1", u32 graphs; per graph: u32 seed, u8 linear, u32 length and ModelProto; u8 inputs, each u32
count and float32 elements; u8 edges, each u8 length and name of the QuantizeLinear's output, u32 count and int32 codes, u32
count and u32 indices of codes that are free.

With --runtime the graphs are also run by ONNX Runtime's CPU provider, optimisations disabled, and it is said how many codes
differ, and whether rounding explains it: each unit is evaluated again on the codes that the runtime has read, and the exact
value must then lie next to the midpoint between the runtime's code and the exact one.

usage: make_exact_graphs.py OUTPUT_FILE [SEED [GRAPHS]] [--runtime]
needs onnx 1.23.2, mpmath and numpy, and onnxruntime for --runtime
"""

import collections
import gzip
import struct
import sys
from fractions import Fraction

import numpy as np

import exact_graphs_eval as exact
from exact_graphs_random import make_graph

N_LINEAR, N_CURVED = 200, 30


def read_by_something(model):
    outputs = {o.name for o in model.graph.output}
    made = {o: n for n in model.graph.node for o in n.output}
    read = {i for n in model.graph.node if n.output[0] not in outputs or n.op_type != "DequantizeLinear" for i in n.input}
    return read & set(made)


def make(seed, is_curved):
    """Of the first seed from this one on that serves: seed, graph, model and what it gives."""
    while True:
        graph, model = make_graph(seed, is_curved)
        result = exact.evaluate(model, graph.inputs)
        read = read_by_something(model)
        if not any(free for name, free in result.free.items() if name in read):
            return seed, graph, model, result
        seed += 1000


def packed(seed, is_linear, graph, model, result):
    data = model.SerializeToString(deterministic=True)
    parts = [struct.pack("<IBI", seed, is_linear, len(data)), data, struct.pack("<B", len(graph.inputs))]
    for values in graph.inputs.values():
        parts += [struct.pack("<I", values.size), values.astype("<f4").tobytes()]
    parts.append(struct.pack("<B", len(result.codes)))
    for name, codes in result.codes.items():
        parts += [struct.pack("<B", len(name)), name.encode(), struct.pack("<I", codes.size), codes.astype("<i4").tobytes()]
        free = result.free[name]
        parts.append(struct.pack(f"<{1 + len(free)}I", len(free), *free))
    return b"".join(parts)


def count_ties(model, result, found):
    """How many codes of units come from an exact tie."""
    for node in model.graph.node:
        if node.op_type == "QuantizeLinear" and result.values[node.input[0]].dtype == object:
            v = result.values[node.input[0]] / exact.as_reals(result.values[node.input[1]])
            found["codes of units"] += v.size
            found["exact ties"] += sum((2 * f).denominator == 1 and f.denominator == 2 for f in np.reshape(v, -1))


class Runtime:
    """ONNX Runtime on the same graphs."""
    def __init__(self):
        self.found = collections.Counter()
        self.farthest = Fraction(0)
        self.odd = []

    def run(self, seed, graph, model, result):
        import onnxruntime
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        names = list(result.codes)
        exposed = graph.model(names)
        session = onnxruntime.InferenceSession(exposed.SerializeToString(), options, providers=["CPUExecutionProvider"])
        codes = {n: v.astype(np.int64) for n, v in zip(names, session.run(names, graph.inputs))}
        local = exact.evaluate(model, graph.inputs, codes)
        for node in model.graph.node:
            if node.op_type == "QuantizeLinear":
                self.count(seed, node, codes[node.output[0]], result, local)

    def count(self, seed, node, codes, result, local):
        name = node.output[0]
        self.found["codes"] += codes.size
        self.found["codes that differ"] += int((codes != result.codes[name]).sum())
        differs = np.flatnonzero(codes != local.codes[name])
        self.found["codes that differ, made of the same codes"] += len(differs)
        if len(differs) == 0:
            return
        x = exact.as_reals(local.values[node.input[0]])
        v = np.reshape(x / exact.as_reals(local.values[node.input[1]]), -1)
        zero = int(local.values[node.input[2]])
        for i in differs:
            theirs, ours = int(codes.reshape(-1)[i]), int(local.codes[name].reshape(-1)[i])
            distance = abs(v[i] + zero - Fraction(theirs + ours, 2))
            self.farthest = max(self.farthest, distance)
            if abs(theirs - ours) > 1 or distance > Fraction(1, 100):
                self.odd.append((seed, name, int(i), theirs, ours, float(v[i] + zero)))


def main():
    arguments = [a for a in sys.argv[1:] if a != "--runtime"]
    runtime = Runtime() if "--runtime" in sys.argv else None
    first = int(arguments[1]) if len(arguments) > 1 else 20260101
    found, operators, parts = collections.Counter(), collections.Counter(), []
    n_linear = int(arguments[2]) if len(arguments) > 2 else N_LINEAR
    for k in range(n_linear + N_CURVED):
        seed, graph, model, result = make(first + k, k >= n_linear)
        parts.append(packed(seed, k < n_linear, graph, model, result))
        operators.update(n.op_type for n in model.graph.node)
        found["free codes"] += sum(map(len, result.free.values()))
        count_ties(model, result, found)
        if runtime is not None:
            runtime.run(seed, graph, model, result)
    content = b"NDGRAPH1" + struct.pack("<I", len(parts)) + b"".join(parts)
    with open(arguments[0], "wb") as out:
        out.write(gzip.compress(content, 9, mtime=0))
    for key, n in [*found.items(), *sorted(operators.items())]:
        print(f"{key}: {n}")
    if runtime is not None:
        for key, n in runtime.found.items():
            print(f"ONNX Runtime: {key}: {n}")
        print(f"farthest from a midpoint: {float(runtime.farthest):.3g} codes; not explained: {len(runtime.odd)}")
        for odd in runtime.odd:
            print("  seed %d edge %s element %d: %d, exactly %d, value %.9g" % odd)


if __name__ == "__main__":
    main()
