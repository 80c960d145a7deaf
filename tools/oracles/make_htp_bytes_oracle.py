#!/usr/bin/env python3
"""Makes golden/programs/bytes-*: uint8 operators without matrix products, each on random encodings and random
codes (functions of one input: all 256), and the codes that the simulator of the HTP makes of those. What
src/arithmetic computes is held against these files by test_arithmetics_bytes; no arithmetic of ours is in them.

    tools/oracles/make_htp_bytes_oracle.py --npudiff build/src/cli/npudiff -o golden/programs

Needs what make_htp_oracle.py needs. A group has GROUP.onnx with many operators side by side, GROUP.in.bin with the
codes of its inputs behind each other, in their order, and GROUP.out.bin with those of its outputs, which must be the
same on gen1 (v69) and gen3 (v73)."""
import argparse
import os
import tempfile
import types

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import make_htp_oracle

SEED = 20261123
N_ENCODINGS = 2


class Group:
    """Operators that know nothing of each other, in one graph."""

    def __init__(self, name, rng):
        self.name, self.rng = name, rng
        self.nodes, self.init, self.inputs, self.outputs, self.codes = [], [], [], [], {}

    def encoding(self, low=0.004, high=0.3):
        scale = np.float32(np.exp(self.rng.uniform(np.log(low), np.log(high))))
        return scale, int(self.rng.integers(0, 256))

    def near(self, encoding, span=2.2):
        """Another one, finer or coarser by up to `span`."""
        return np.float32(encoding[0] * np.exp(self.rng.uniform(-np.log(span), np.log(span)))), int(
            self.rng.integers(0, 256))

    def constant(self, values):
        name = "c%d" % len(self.init)
        self.init.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def dequantise(self, name, encoding):
        scale, zero = self.constant(np.float32(encoding[0])), self.constant(np.uint8(encoding[1]))
        self.nodes.append(helper.make_node("DequantizeLinear", [name, scale, zero], [name + "_real"]))
        return name + "_real"

    def input(self, codes, encoding):
        name = "x%d" % len(self.inputs)
        self.codes[name] = np.asarray(codes).astype(np.uint8)
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.UINT8, self.codes[name].shape))
        return self.dequantise(name, encoding)

    def random(self, *shape):
        return self.rng.integers(0, 256, shape)

    def spread(self, *shape):
        """All codes in turn, by steps that are not one: compresses better."""
        step, first = 2 * self.rng.integers(1, 128) + 1, self.rng.integers(0, 256)
        return ((np.arange(np.prod(shape)) * step + first) % 256).reshape(shape)

    def add(self, op, operands, shape, encoding, **attributes):
        made = "y%d" % len(self.outputs)
        self.nodes.append(helper.make_node(op, operands, [made + "_made"], name=made + "_" + op, **attributes))
        scale, zero = self.constant(np.float32(encoding[0])), self.constant(np.uint8(encoding[1]))
        self.nodes.append(helper.make_node("QuantizeLinear", [made + "_made", scale, zero], [made]))
        self.outputs.append(helper.make_tensor_value_info(made, TensorProto.UINT8, shape))

    def model(self):
        graph = helper.make_graph(self.nodes, self.name, self.inputs, self.outputs, self.init)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
        model.ir_version = 10
        onnx.checker.check_model(model)
        return model


def tables(group):
    for op in ["Atan", "Ceil", "Clip", "Cos", "Elu", "Floor", "HardSigmoid", "LeakyRelu", "Log", "Relu", "Round", "Sign",
               "Softplus"]:
        for _ in range(N_ENCODINGS):
            encoding = group.encoding(0.01, 0.1)
            operands = [group.input(np.arange(256).reshape(1, 256), (encoding[0], 0) if op == "Log" else encoding)]
            more = {"LeakyRelu": {"alpha": group.rng.uniform(0.01, 0.4)},
                    "HardSigmoid": {"alpha": group.rng.uniform(0.1, 0.3), "beta": group.rng.uniform(0.3, 0.7)}}
            if op == "Clip":
                operands += [group.constant(np.float32(-group.rng.uniform(0.2, 2))),
                             group.constant(np.float32(group.rng.uniform(0.2, 2)))]
            bounded = op in ["Atan", "Cos", "HardSigmoid", "Sign"]
            out = (np.float32(group.rng.uniform(0.003, 0.02)), 110) if bounded else group.near(encoding)
            group.add(op, operands, [1, 256], out, **more.get(op, {}))


def ties(group):
    """Functions of which many values lie half between two codes: the zero point decides what is even."""
    for op, attributes in [("LeakyRelu", {"alpha": 0.125}), ("LeakyRelu", {"alpha": 0.1}), ("Relu", {}), ("Abs", {})]:
        for ratio in [0.5, 1.25, 2, 0.8, 0.4]:
            encoding = group.encoding(0.01, 0.1)
            group.add(op, [group.input(np.arange(256).reshape(1, 256), encoding)], [1, 256],
                      (np.float32(encoding[0] * ratio), int(group.rng.integers(0, 256))), **attributes)


def indices(*values):
    return np.array(values, np.int64)


MOVES = [  # operator, shape before and after, constants behind the input, attributes
    ("Expand", [1, 1, 256], [1, 2, 256], [indices(1, 2, 256)], {}),
    ("Flatten", [1, 4, 8, 8], [1, 256], [], {"axis": 1}),
    ("Gather", [1, 32, 8], [1, 24, 8], [indices(*range(24))], {"axis": 1}),
    ("GlobalMaxPool", [1, 256, 3, 3], [1, 256, 1, 1], [], {}),
    ("Identity", [1, 4, 8, 8], [1, 4, 8, 8], [], {}),
    ("MaxPool", [1, 4, 16, 16], [1, 4, 8, 8], [], {"kernel_shape": [2, 2], "strides": [2, 2]}),
    ("ReduceMax", [1, 256, 2], [1, 256], [indices(2)], {"keepdims": 0}),
    ("ReduceMin", [1, 256, 2], [1, 256, 1], [indices(2)], {"keepdims": 1}),
    ("Reshape", [1, 4, 8, 8], [1, 4, 64], [indices(1, 4, 64)], {}),
    ("Reshape", [1, 16, 16], [16, 16], [indices(16, 16)], {}),
    ("Resize", [1, 4, 8, 8], [1, 4, 16, 16], ["", np.array([1, 1, 2, 2], np.float32)],
     {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}),
    ("Slice", [1, 8, 48], [1, 8, 32], [indices(8), indices(40), indices(2)], {}),
    ("Squeeze", [1, 1, 8, 32], [1, 8, 32], [indices(1)], {}),
    ("Tile", [1, 2, 128], [1, 4, 128], [indices(1, 2, 1)], {}),
    ("Unsqueeze", [1, 8, 32], [1, 8, 32, 1], [indices(3)], {}),
    ("Flatten", [1, 5, 3, 11], [1, 165], [], {"axis": 1}),  # the last 37 codes fill no vector
    ("Gather", [1, 8, 67], [1, 67], [np.array(3, np.int64)], {"axis": 1}),
    ("MaxPool", [1, 3, 14, 14], [1, 3, 7, 7], [], {"kernel_shape": [2, 2], "strides": [2, 2]}),
    ("Reshape", [1, 3, 7, 7], [1, 147], [indices(1, 147)], {}),
    ("Resize", [1, 3, 5, 7], [1, 3, 10, 14], ["", np.array([1, 1, 2, 2], np.float32)],
     {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}),
    ("Slice", [1, 40, 9], [1, 33, 9], [indices(3), indices(36), indices(1)], {}),
    ("Squeeze", [1, 1, 7, 11], [1, 7, 11], [indices(1)], {}),
    ("Tile", [1, 3, 33], [1, 9, 33], [indices(1, 3, 1)], {}),
]


def moves(group):
    for op, before, after, constants, attributes in MOVES:
        for is_same in [False] * N_ENCODINGS + [True]:
            encoding = group.encoding()
            operands = [group.input(group.spread(*before), encoding)]
            operands += ["" if isinstance(c, str) else group.constant(c) for c in constants]
            group.add(op, operands, after, encoding if is_same else group.near(encoding, 4), **attributes)


def elements(group):
    for _ in range(N_ENCODINGS):
        for op in ["Sub", "Min", "Max"]:
            for other in [[1, 4, 4, 16], [1, 4, 1, 1]]:
                a = group.encoding()
                group.add(op, [group.input(group.random(1, 4, 4, 16), a),
                               group.input(group.random(*other), group.near(a))],
                          [1, 4, 4, 16], group.near(a))
        a = group.encoding()
        group.add("Neg", [group.input(np.arange(256).reshape(1, 256), a)], [1, 256], group.near(a, 4))
        for op in ["Add", "Sub", "Min", "Max", "Mul", "Div"]:
            a, b = group.encoding(), (group.encoding()[0], 17)
            code = int(group.rng.integers(60, 256))
            factor = {"Mul": (code - b[1]) * b[0], "Div": 1 / ((code - b[1]) * b[0])}.get(op, 1)
            group.add(op, [group.input(np.arange(256).reshape(1, 256), a),
                           group.dequantise(group.constant(np.uint8(code)), b)], [1, 256],
                      group.near((a[0] * factor, 0), 3))


def pools(group):
    for size in [2, 3]:
        for _ in range(2 * N_ENCODINGS):
            encoding = group.encoding()
            group.add("AveragePool", [group.input(group.random(1, 4, 6 * size, 6 * size), encoding)], [1, 4, 6, 6],
                      group.near(encoding, 4), kernel_shape=[size, size], strides=[size, size])


def capture(npudiff, group, device, folder):
    outputs = make_htp_oracle.capture_all(
        npudiff, types.SimpleNamespace(name=group.name, model=group.model(),
                                       codes={k: v[None] for k, v in group.codes.items()}), device, folder)
    return b"".join(outputs[y.name].astype(np.uint8).tobytes() for y in group.outputs)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--npudiff", required=True)
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--seed", type=int, default=SEED)
    options = parser.parse_args()
    os.makedirs(options.output, exist_ok=True)
    for i, make in enumerate([tables, ties, moves, elements, pools]):
        group = Group("bytes-" + make.__name__, np.random.default_rng([options.seed, i]))
        make(group)
        stem = os.path.join(options.output, group.name)
        with tempfile.TemporaryDirectory() as folder:
            made = {capture(options.npudiff, group, device, folder) for device in ["htp-sim:gen1", "htp-sim:gen3"]}
        if len(made) != 1:
            raise SystemExit(group.name + ": the chipsets differ")
        with open(stem + ".out.bin", "wb") as file:
            file.write(made.pop())
        onnx.save(group.model(), stem + ".onnx")
        with open(stem + ".in.bin", "wb") as file:
            file.write(b"".join(codes.tobytes() for codes in group.codes.values()))


if __name__ == "__main__":
    main()
