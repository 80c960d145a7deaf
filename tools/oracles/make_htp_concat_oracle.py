#!/usr/bin/env python3
"""Makes golden/programs/joined-*: networks of a Concat whose inputs have other encodings than it has, and the codes that
the simulator of the HTP makes of random ones. What src/explain makes of such a Concat is held against these files by
test_arithmetics_joined; no arithmetic of ours is in them.

    tools/oracles/make_htp_concat_oracle.py --npudiff build/src/cli/npudiff -o golden/programs

Needs what make_htp_oracle.py needs. A group has GROUP.onnx with several such networks side by side, GROUP.in.bin with
the codes of its inputs behind each other, in their order, and GROUP.v69.bin (gen1) and GROUP.v73.bin (gen3) with those of
its outputs: what makes the inputs of each Concat, and the Concat."""
import argparse
import fnmatch
import os
import tempfile
import types

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import make_htp_oracle

SEED = 20261123
SIGNED = (np.int8, TensorProto.INT8)
TYPES = {8: (np.uint8, TensorProto.UINT8), 16: (np.uint16, TensorProto.UINT16)}


class Group:
    """Networks that know nothing of each other, in one graph."""

    def __init__(self, name, bits, rng, is_signed=False):
        self.name, self.bits, self.rng = name, bits, rng
        self.type, self.onnx_type = SIGNED if is_signed else TYPES[bits]
        self.least = int(np.iinfo(self.type).min)
        self.nodes, self.init, self.inputs, self.outputs, self.codes, self.n = [], [], [], [], {}, 0

    def encoding(self, reach=None):
        """A scale and a zero point for values up to about `reach`."""
        reach = reach or np.exp(self.rng.uniform(np.log(1), np.log(20)))
        scale = np.float32(reach * self.rng.uniform(0.5, 1.2) / 2 ** (self.bits - 1))
        return scale, int(self.rng.integers(2 ** self.bits // 4, 2 ** self.bits * 3 // 4))

    def constant(self, values):
        self.init.append(numpy_helper.from_array(np.asarray(values), "c%d" % len(self.init)))
        return self.init[-1].name

    def real(self, name, encoding, kind=None):
        zero = self.type(encoding[1] + self.least) if kind is None else kind(encoding[1])
        self.n += 1
        self.nodes.append(helper.make_node(
            "DequantizeLinear",
            [name, self.constant(np.float32(encoding[0])), self.constant(zero)], ["r%d" % self.n]))
        return "r%d" % self.n

    def input(self, shape, encoding):
        name = "x%d" % len(self.inputs)
        self.codes[name] = self.rng.integers(0, 2 ** self.bits, shape).astype(self.type)
        self.inputs.append(helper.make_tensor_value_info(name, self.onnx_type, shape))
        return self.real(name, encoding)

    def weights(self, shape, scale):
        codes = self.rng.integers(40, 216, shape).astype(np.uint8)
        if self.least < 0:
            return self.real(self.constant((codes.astype(int) - 128).astype(np.int8)), (np.float32(scale), 0), np.int8)
        return self.real(self.constant(codes), (np.float32(scale), 128), np.uint8)

    def add(self, op, operands, shape, encoding, **attributes):
        made = "y%d" % len(self.outputs)
        self.nodes.append(helper.make_node(op, operands, [made + "_made"], name=made + "_" + op, **attributes))
        return self.quantise(made + "_made", shape, encoding)

    def quantise(self, name, shape, encoding):
        made = "y%d" % len(self.outputs)
        self.nodes.append(helper.make_node(
            "QuantizeLinear",
            [name, self.constant(np.float32(encoding[0])), self.constant(self.type(encoding[1] + self.least))], [made]))
        self.outputs.append(helper.make_tensor_value_info(made, self.onnx_type, shape))
        return self.real(made, encoding)

    def model(self):
        graph = helper.make_graph(self.nodes, self.name, self.inputs, self.outputs, self.init)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
        model.ir_version = 10
        onnx.checker.check_model(model)
        return model


SHAPE = [1, 4, 6, 6]


def pair(op):
    def make(g, reach):
        a, b = g.encoding(reach), g.encoding(reach)
        out = g.encoding(reach * (reach if op == "Mul" else 1) * 0.7)
        return g.add(op, [g.input(SHAPE, a), g.input(SHAPE, b)], SHAPE, out)
    return make


def function(op, **attributes):
    def make(g, reach):
        return g.add(op, [g.input(SHAPE, g.encoding(reach))], SHAPE, g.encoding(reach * 0.8), **attributes)
    return make


def conv(g, reach):
    operands = [g.input(SHAPE, g.encoding(reach)), g.weights([4, 4, 3, 3], reach / 600)]
    return g.add("Conv", operands, SHAPE, g.encoding(reach), pads=[1, 1, 1, 1])


def rectified(g, reach):
    """A Conv with zero point 0: quantisers remove a Relu that this does by itself."""
    operands = [g.input(SHAPE, g.encoding(reach)), g.weights([4, 4, 3, 3], reach / 600)]
    return g.add("Conv", operands, SHAPE, (g.encoding(reach)[0], 0), pads=[1, 1, 1, 1])


def relu_of_conv(g, reach):
    return g.add("Relu", [conv(g, reach)], SHAPE, (g.encoding(reach)[0], 0))


def relu_in_place(g, reach):
    """A Relu that cuts nothing off: the Conv has its encoding, as AIMET places quantisers."""
    operands = [g.input(SHAPE, g.encoding(reach)), g.weights([4, 4, 3, 3], reach / 600)]
    y = (g.encoding(reach)[0] / 2, 0)
    return g.add("Relu", [g.add("Conv", operands, SHAPE, y, pads=[1, 1, 1, 1])], SHAPE, y)


def average(g, reach):
    x = g.input([1, 4, 12, 12], g.encoding(reach))
    return g.add("AveragePool", [x], SHAPE, g.encoding(reach * 0.6), kernel_shape=[2, 2], strides=[2, 2])


def greatest(g, reach):
    x = g.encoding(reach)
    return g.add("MaxPool", [g.input([1, 4, 12, 12], x)], SHAPE, x, kernel_shape=[2, 2], strides=[2, 2])


def part(g, reach):
    x = g.encoding(reach)
    ends = [g.constant(np.array([v], np.int64)) for v in (1, 5, 1)]
    return g.add("Slice", [g.input([1, 8, 6, 6], x), *ends], SHAPE, x)


def given(g, reach):
    return g.input(SHAPE, g.encoding(reach))


def zeroed(op, n_inputs, **attributes):
    """An operator whose zero point is 0, as that of a Relu is."""
    def make(g, reach):
        operands = [g.input(SHAPE, g.encoding(reach)) for _ in range(n_inputs)]
        return g.add(op, operands, SHAPE, (g.encoding(reach * (reach if op == "Mul" else 1))[0] / 2, 0), **attributes)
    return make


def relu_of_sum(g, reach):
    return g.add("Relu", [pair("Add")(g, reach)], SHAPE, (g.encoding(reach)[0] / 2, 0))


def gated(g, reach):
    """x Sigmoid(x) of what a Conv made."""
    x = conv(g, reach)
    gate = g.add("Sigmoid", [x], SHAPE, (2.0 ** -g.bits, 0))
    return g.add("Mul", [x, gate], SHAPE, g.encoding(reach * 0.8))


def gate(g, reach):
    return g.add("Sigmoid", [conv(g, reach)], SHAPE, (2.0 ** -g.bits, 0))


def curve(g, reach):
    return g.add("Tanh", [g.input(SHAPE, g.encoding(reach))], SHAPE, (2.0 ** (1 - g.bits), 2 ** (g.bits - 1)))


def numbers(g, *values):
    return g.constant(np.array(values, np.int64))


MOVES = {  # the shape before, constants behind the input, attributes
    "Transpose": ([1, 4, 6, 6], lambda g: [], {"perm": [0, 1, 3, 2]}),
    "Reshape": ([1, 4, 4, 9], lambda g: [numbers(g, *SHAPE)], {}),
    "DepthToSpace": ([1, 16, 3, 3], lambda g: [], {"blocksize": 2, "mode": "CRD"}),
    "Resize": ([1, 4, 3, 3], lambda g: ["", g.constant(np.array([1, 1, 2, 2], np.float32))],
               {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}),
    "Slice": ([1, 8, 6, 6], lambda g: [numbers(g, v) for v in (1, 5, 1)], {}),
    "Pad": ([1, 4, 4, 4], lambda g: [numbers(g, 0, 0, 1, 1, 0, 0, 1, 1)], {"mode": "constant"}),
    "Gather": ([1, 8, 6, 6], lambda g: [numbers(g, *range(0, 8, 2))], {"axis": 1}),
    "MaxPool": ([1, 4, 12, 12], lambda g: [], {"kernel_shape": [2, 2], "strides": [2, 2]}),
}


def moved(op, kind, zero=None):
    """What a Conv, an Add, a Relu of an Add or nothing made, moved with its encoding; a zero point of its own if given."""
    def make(g, reach):
        shape, more, attributes = MOVES[op]
        x = g.encoding(reach)
        x = x if zero is None else (x[0] / 2, zero)
        if kind == "Conv":
            real = g.add("Conv", [g.input(shape, g.encoding(reach)), g.weights([shape[1], shape[1], 1, 1], reach / 400)], shape, x)
        elif kind == "Add":
            real = g.add("Add", [g.input(shape, g.encoding(reach)), g.input(shape, g.encoding(reach))], shape, x)
        else:
            real = g.input(shape, x)
        return g.add(op, [real, *more(g)], SHAPE, x, **attributes)
    return make


def divided(kind):
    """The first half of what a Conv, an Add, a MaxPool or nothing made, in an encoding of its own, as AIMET places quantisers."""
    def make(g, reach):
        shape, x = [1, 8, 6, 6], g.encoding(reach)
        if kind == "Conv":
            real = g.add("Conv", [g.input(shape, g.encoding(reach)), g.weights([8, 8, 1, 1], reach / 400)], shape, x)
        elif kind == "Add":
            real = g.add("Add", [g.input(shape, g.encoding(reach)), g.input(shape, g.encoding(reach))], shape, x)
        elif kind == "MaxPool":
            real = g.add("MaxPool", [g.input([1, 8, 12, 12], x)], shape, x, kernel_shape=[2, 2], strides=[2, 2])
        else:
            real = g.input(shape, x)
        first = g.add("Split", [real, numbers(g, 4, 4)], SHAPE, g.encoding(reach), axis=1)
        g.nodes[-3].output.append(g.nodes[-3].output[0] + "_rest")
        g.quantise(g.nodes[-3].output[1], SHAPE, g.encoding(reach))
        return first
    return make


def hard_gated(g, reach):
    """x HardSigmoid(x) of what a Conv made."""
    x = conv(g, reach)
    made = g.add("HardSigmoid", [x], SHAPE, (2.0 ** -g.bits, 0), alpha=1 / 6, beta=0.5)
    return g.add("Mul", [x, made], SHAPE, g.encoding(reach * 0.8))


def channels(g, parts):
    names = [node.input[0] for node in g.nodes if node.output[0] in parts]
    return sum(info.type.tensor_type.shape.dim[1].dim_value for info in g.inputs + g.outputs if info.name in names)


def joined(first, second, own=False):
    """A Concat in an encoding of its own, or in that of its second part."""
    def make(g, reach):
        parts = [first(g, reach), second(g, reach)]
        y = g.encoding(reach)
        if own:  # that of the QuantizeLinear that made the second part
            last = [node for node in g.nodes if node.op_type == "DequantizeLinear" and node.output[0] == parts[1]][0]
            scale, zero = (numpy_helper.to_array(next(t for t in g.init if t.name == name)) for name in last.input[1:])
            y = (np.float32(scale), int(zero))
        return g.add("Concat", parts, [1, channels(g, parts), *SHAPE[2:]], y, axis=1)
    return make


NESTED = {"hard": hard_gated, "two": joined(pair("Add"), function("LeakyRelu", alpha=0.1)),
          "same": joined(function("LeakyRelu", alpha=0.1), pair("Add"), own=True), "hard inside": joined(pair("Mul"), hard_gated),
          "three": joined(conv, joined(pair("Add"), pair("Mul")))}
RESCALED = {"Add": zeroed("Add", 2), "Sub": zeroed("Sub", 2), "Mul": zeroed("Mul", 2), "Relu": zeroed("Relu", 1),
            "Sqrt": zeroed("Sqrt", 1), "Relu of Add": relu_of_sum, "gated": gated, "gate": gate, "curve": curve}
HANDED_ON = {"%s of %s%s" % (op, kind, "" if zero is None else " at 0"): moved(op, kind, zero)
             for op in MOVES for kind, zero in (("Conv", None), ("Add", None), ("Conv", 0), ("Add", 0), ("input", 0))}

# With the zero point 0, as the Concat has it.
ZEROS = {"rectified": rectified, "Add": zeroed("Add", 2), "Mul": zeroed("Mul", 2)}
RELUS = {"Relu of Conv": relu_of_conv, "Relu in place": relu_in_place, "Relu of Add": relu_of_sum}
DIVIDED = {kind: divided(kind) for kind in ("Conv", "Add", "MaxPool", "input")}

MAKERS = {
    8: {"Add": pair("Add"), "Sub": pair("Sub"), "Mul": pair("Mul"), "LeakyRelu": function("LeakyRelu", alpha=0.1),
        "Relu": function("Relu"), "Sigmoid": function("Sigmoid"), "Conv": conv, "rectified": rectified,
        "Relu of Conv": relu_of_conv, "AveragePool": average, "MaxPool": greatest, "Slice": part, "given": given},
    16: {"Add": pair("Add"), "Sub": pair("Sub"), "Mul": pair("Mul"), "Relu": function("Relu"), "Conv": conv,
         "Slice": part, "given": given},
}
OF_BYTES = ("Conv", "rectified", "Add", "AveragePool", "MaxPool", "given")  # what the HTP makes of int8
# What keeps its encoding and is rescaled in the layout of a Conv.
IN_LAYOUT = {"rectified": rectified, "Relu of Conv": relu_of_conv, "Conv": conv, "given": given}
LAYOUT_PAIRS = [("rectified", "given"), ("rectified", "rectified"), ("Conv", "rectified"), ("Relu of Conv", "given"),
                ("Relu of Conv", "rectified"), ("given", "Relu of Conv")]


def group_of(name, bits, seed, makers, pairs, zero=None, is_signed=False):
    """Each maker beside another one; a zero point of the Concat, if given."""
    makers = {**makers, "given": given}
    group = Group(name, bits, np.random.default_rng([seed, bits]), is_signed)
    for first, second in pairs:
        reach = float(np.exp(group.rng.uniform(np.log(1), np.log(8))))
        parts = [makers[first](group, reach), makers[second](group, reach)]
        y = group.encoding(reach)
        group.add("Concat", parts, [1, channels(group, parts), *SHAPE[2:]], y if zero is None else (y[0] / 2, zero), axis=1)
    return group


def divided_functions(seed):
    """Functions of what a Split brings to another encoding."""
    group = Group("layers-8-divided", 8, np.random.default_rng([seed, 8]))
    for kind, make in DIVIDED.items():
        for op, encoding in (("Sigmoid", (2.0 ** -8, 0)), ("Tanh", (2.0 ** -7, 128)), ("HardSwish", None)):
            reach = float(np.exp(group.rng.uniform(np.log(1), np.log(8))))
            group.add(op, [make(group, reach)], SHAPE, encoding or group.encoding(reach))
    return group


def capture(npudiff, group, device, folder):
    codes = {k: v[None] for k, v in group.codes.items()}
    case = types.SimpleNamespace(name=group.name, model=group.model(), codes=codes)
    outputs = make_htp_oracle.capture_all(npudiff, case, device, folder)
    numpy_types = {onnx_type: numpy_type for numpy_type, onnx_type in [SIGNED, *TYPES.values()]}
    return b"".join(outputs[y.name].astype(numpy_types[y.type.tensor_type.elem_type]).tobytes() for y in group.outputs)


DEVICES = {"v69": "htp-sim:gen1", "v73": "htp-sim:gen3", "v81": "htp-sim:gen5"}


def write(npudiff, group, output, archs=("v69", "v73")):
    """The files of a group in the folder `output`."""
    stem = os.path.join(output, group.name)
    for arch, device in [(arch, DEVICES[arch]) for arch in archs]:
        with tempfile.TemporaryDirectory() as folder, open("%s.%s.bin" % (stem, arch), "wb") as file:
            file.write(capture(npudiff, group, device, folder))
    onnx.save(group.model(), stem + ".onnx")
    with open(stem + ".in.bin", "wb") as file:
        file.write(b"".join(codes.tobytes() for codes in group.codes.values()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--npudiff", required=True)
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--only", default="*", help="glob of the groups to make")
    options = parser.parse_args()
    os.makedirs(options.output, exist_ok=True)
    groups = []
    for bits, makers in MAKERS.items():
        names = list(makers)
        pairs = [(name, names[(i + 1) % len(names)]) for i, name in enumerate(names)]
        groups.append(group_of("joined-%d" % bits, bits, options.seed, makers, pairs))
    groups.append(group_of("joined-16-layout", 16, options.seed, IN_LAYOUT, LAYOUT_PAIRS))
    for bits in TYPES:
        for kind, makers in (("rescaled", RESCALED), ("handed-on", HANDED_ON)):
            groups.append(group_of("joined-%d-%s" % (bits, kind), bits, options.seed, makers, [(name, "given") for name in makers]))
        groups.append(group_of("joined-%d-divided" % bits, bits, options.seed, DIVIDED, [(name, "given") for name in DIVIDED]))
        groups.append(group_of("joined-%d-zeros" % bits, bits, options.seed, ZEROS, [(name, "given") for name in ZEROS], zero=0))
        groups.append(group_of("joined-%d-narrowed" % bits, bits, options.seed, RELUS, [(name, "given") for name in RELUS], zero=0))
    groups.append(group_of("joined-8-signed", 8, options.seed, MAKERS[8], [(name, "given") for name in OF_BYTES], is_signed=True))
    groups.append(divided_functions(options.seed))
    groups.append(group_of("joined-8-nested", 8, options.seed, NESTED, [(name, "given") for name in NESTED]))
    for group in groups:
        if fnmatch.fnmatch(group.name, options.only):
            write(options.npudiff, group, options.output)


if __name__ == "__main__":
    main()
