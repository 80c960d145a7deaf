#!/usr/bin/env python3
"""Makes the two random networks of golden/models on which tools/studies/score measures explain, their probe, and a model of one unit.

random-residual has convolutions, two residual additions, pooling and a Gemm; random-attention a patch convolution, one head of
attention (two products of activations, Softmax), LayerNormalization and Gelu. Their weights are random numbers of one seed:
nothing is learnt, so that a fault shows wherever it is. Both take `image` float32 [1,4,8,8].

identity is one 1x1 Conv with exact parameters and generic scales: its inputs lie on the grid of its input codes, its weights
are int8 codes times a power of two, and its output clips nothing. So the value before rounding is that of the float model, and
its fractions are spread evenly: the laws of rounding can be read off it.

Activations are uint8 per tensor, from the smallest to the largest value of the probe and some more inputs; weights int8 per
channel; biases int32. Names are those that ONNX Runtime's quantiser gives.

    python -m venv VENV && VENV/bin/pip install onnx==1.23.2 numpy==2.4.6
    VENV/bin/python tools/oracles/make_score_models.py [--out DIR]
"""

import argparse
import hashlib
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

SEED = 20251121
OPSET, IR_VERSION = 21, 10
N_PROBE, N_CALIBRATION = 32, 96
IMAGE = [1, 4, 8, 8]
MOVES = ("MaxPool", "Flatten", "Reshape", "Transpose") # their output has the codes, so the scale, of their input


class Network:
    """A float graph: nodes in order, constants, and the shape of each output. A node and its output share a name."""

    def __init__(self, name, inputs, seed):
        self.name, self.inputs = name, inputs
        self.rng = np.random.default_rng([SEED, seed])
        self.nodes, self.constants = [], {}

    def normal(self, *shape, gain=1.0):
        """Weights whose sums over all but the first dimension have the variance gain^2, channels of unequal size."""
        n = max(1, int(np.prod(shape[1:])))
        size = self.rng.uniform(0.5, 1.5, (shape[0],) + (1,) * (len(shape) - 1))
        return (self.rng.normal(size=shape) * size * gain / np.sqrt(n)).astype(np.float32)

    def op(self, op_type, name, inputs, constants=(), output=None, **attributes):
        names = list(inputs)
        for suffix, array in constants:
            self.constants[f"{name}.{suffix}"] = array
            names.append(f"{name}.{suffix}")
        self.nodes.append(helper.make_node(op_type, names, [output or name], name=name, **attributes))
        return output or name

    def conv(self, name, x, c_in, c_out, kernel, group=1, is_relu=False, **attributes):
        weight = self.normal(c_out, c_in // group, kernel, kernel, gain=1.4 if is_relu else 1.0)
        bias = self.normal(c_out, gain=0.2)
        y = self.op("Conv", name, [x], [("weight", weight), ("bias", bias)], kernel_shape=[kernel] * 2, group=group,
                    **attributes)
        return self.op("Relu", f"{name}/relu", [y]) if is_relu else y

    def linear(self, name, x, n_in, n_out):
        return self.op("MatMul", name, [x], [("weight", self.normal(n_out, n_in).T.copy())])


def residual_network():
    net = Network("random-residual", [("image", IMAGE)], 1)
    same = {"pads": [1, 1, 1, 1]}
    stem = net.conv("stem", "image", 4, 16, 3, is_relu=True, **same)
    x = net.conv("first/a", stem, 16, 16, 3, is_relu=True, **same)
    x = net.conv("first/b", x, 16, 16, 3, **same)
    x = net.op("Relu", "first/relu", [net.op("Add", "first/add", [stem, x])])
    halves = {"kernel_shape": [2, 2], "strides": [2, 2]}
    large = net.conv("large", net.op("MaxPool", "large/pool", [x], **halves), 16, 24, 1)
    mean = net.conv("mean", net.op("AveragePool", "mean/pool", [x], **halves), 16, 24, 1)
    joined = net.op("Add", "second/add", [large, mean])
    x = net.conv("depthwise", joined, 24, 24, 3, group=24, **same)
    x = net.op("Add", "third/add", [joined, x])
    x = net.op("Flatten", "features", [net.op("GlobalAveragePool", "average", [x])])
    net.op("Gemm", "head", [x], [("weight", net.normal(10, 24)), ("bias", net.normal(10))], output="logits", transB=1)
    return net, ("logits", [1, 10])


def attention_network(tokens=16, width=24):
    net = Network("random-attention", [("image", IMAGE)], 2)
    x = net.conv("patch", "image", 4, width, 2, strides=[2, 2])
    x = net.op("Reshape", "flat", [x], [("shape", np.array([1, width, tokens], np.int64))])
    x = net.op("Transpose", "tokens", [x], perm=[0, 2, 1])
    norm = net.op("LayerNormalization", "norm", [x], [("weight", 1 + net.normal(width, gain=0.3)),
                                                      ("bias", net.normal(width, gain=0.3))], axis=-1, epsilon=1e-5)
    q, v = net.linear("q", norm, width, width), net.linear("v", norm, width, width)
    k = net.op("Transpose", "k/transpose", [net.linear("k", norm, width, width)], perm=[0, 2, 1])
    # Not divided by sqrt(width): some attention is then near 1, and its codes use their range.
    weights = net.op("Softmax", "softmax", [net.op("MatMul", "scores", [q, k])], axis=-1)
    context = net.op("MatMul", "context", [weights, v])
    x = net.op("Add", "attention/add", [x, net.linear("proj", context, width, width)])
    y = net.op("Gelu", "gelu", [net.linear("fc", x, width, 2 * width)])
    net.op("Add", "out/add", [x, net.linear("out", y, 2 * width, width)], output="out_tokens")
    return net, ("out_tokens", [1, tokens, width])


def finished(nodes, name, inputs, outputs, constants):
    """The model, checked; constants may be arrays or tensors."""
    tensors = [numpy_helper.from_array(c, n) for n, c in constants.items()]
    graph = helper.make_graph(nodes, name, [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs],
                              [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in outputs], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION,
                              producer_name="npudiff-make-score-models")
    model = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    onnx.checker.check_model(model, full_check=True)
    return model


# --- quantisation ---


def ranges_of(model, images):
    """Smallest and largest value of every tensor, over images, by ONNX's own evaluator."""
    watched = onnx.ModelProto.FromString(model.SerializeToString())
    names = [n.output[0] for n in model.graph.node]
    del watched.graph.output[:]
    watched.graph.output.extend(onnx.ValueInfoProto(name=n) for n in names)
    evaluator, ranges = ReferenceEvaluator(watched), {"image": [images.min(), images.max()]}
    for image in images:
        for name, value in zip(names, evaluator.run(None, {"image": image.reshape(IMAGE)})):
            low, high = ranges.get(name, [0.0, 0.0])
            ranges[name] = [min(low, float(value.min())), max(high, float(value.max()))]
    return ranges


def uint8_of(low, high):
    low, high = min(float(low), 0.0), max(float(high), 0.0)
    scale = np.float32((high - low) / 255.0)
    return scale, np.uint8(round(-low / float(scale)))


class Quantiser:
    """Writes the QDQ form of a float network."""

    def __init__(self, net, output, encodings):
        self.net, self.output, self.encodings = net, output, encodings
        self.nodes, self.constants, self.ready = [], {}, {}

    def qdq(self, tensor, made_as):
        """Quantises and dequantises one activation; what its readers read."""
        scale, zero = self.encodings[tensor]
        self.constants[f"{tensor}_scale"], self.constants[f"{tensor}_zero_point"] = np.array(scale), np.array(zero)
        parameters = [f"{tensor}_scale", f"{tensor}_zero_point"]
        codes = f"{tensor}_QuantizeLinear_Output"
        real = tensor if tensor == self.output[0] else f"{tensor}_DequantizeLinear_Output"
        self.nodes.append(helper.make_node("QuantizeLinear", [made_as, *parameters], [codes], f"{tensor}_QuantizeLinear"))
        self.nodes.append(helper.make_node("DequantizeLinear", [codes, *parameters], [real], f"{tensor}_DequantizeLinear"))
        self.ready[tensor] = real

    def constant(self, name, codes, scale, axis):
        """int8 or int32 codes with a scale per channel."""
        self.constants[f"{name}_quantized"], self.constants[f"{name}_scale"] = codes, scale
        self.constants[f"{name}_zero_point"] = np.zeros(scale.shape, codes.dtype)
        inputs = [f"{name}_quantized", f"{name}_scale", f"{name}_zero_point"]
        self.nodes.append(helper.make_node("DequantizeLinear", inputs, [f"{name}_DequantizeLinear_Output"],
                                           f"{name}_DequantizeLinear", axis=axis))
        return f"{name}_DequantizeLinear_Output"

    def weights(self, node):
        """The inputs of a node that are constants, quantised where an integer accumulator reads them."""
        if node.op_type not in ("Conv", "Gemm", "MatMul"):
            for name in node.input:
                if name in self.net.constants:
                    self.constants[name] = self.net.constants[name]
                    yield name
            return
        name = node.input[1]
        if name not in self.net.constants:
            return
        weight = self.net.constants[name]
        axis = 1 if node.op_type == "MatMul" else 0
        others = tuple(i for i in range(weight.ndim) if i != axis)
        scale = (np.abs(weight).max(others) / 127).astype(np.float32)
        shape = [-1 if i == axis else 1 for i in range(weight.ndim)]
        yield self.constant(name, np.rint(weight / scale.reshape(shape)).astype(np.int8), scale, axis)
        if len(node.input) > 2:
            step = scale * self.encodings[node.input[0]][0]
            bias = np.rint(self.net.constants[node.input[2]].astype(float) / step).astype(np.int32)
            yield self.constant(node.input[2], bias, step, 0)

    def run(self):
        self.qdq("image", "image")
        relus = {n.input[0]: n.output[0] for n in self.net.nodes if n.op_type == "Relu"}
        for node in self.net.nodes:
            if node.op_type == "Relu": # its zero point is 0, so clipping does what it did
                continue
            tensor = relus.get(node.output[0], node.output[0])
            if node.op_type in MOVES:
                self.encodings[tensor] = self.encodings[node.input[0]]
            inputs = [self.ready[i] for i in node.input if i in self.ready] + list(self.weights(node))
            made_as = f"{tensor}_QuantizeLinear_Input" if tensor == self.output[0] else tensor
            copy = onnx.NodeProto.FromString(node.SerializeToString())
            del copy.input[:], copy.output[:]
            copy.input.extend(inputs)
            copy.output.append(made_as)
            self.nodes.append(copy)
            self.qdq(tensor, made_as)
        return finished(self.nodes, f"{self.net.name}-u8", self.net.inputs, [self.output], self.constants)


def use_of_codes(model, images):
    """Of every quantised edge the smallest and the largest code over the images."""
    watched = onnx.ModelProto.FromString(model.SerializeToString())
    names = [n.output[0] for n in model.graph.node if n.op_type == "QuantizeLinear"]
    del watched.graph.output[:]
    watched.graph.output.extend(onnx.ValueInfoProto(name=n) for n in names)
    evaluator = ReferenceEvaluator(watched)
    runs = [evaluator.run(None, {"image": image.reshape(IMAGE)}) for image in images]
    return {n: (min(int(r[i].min()) for r in runs), max(int(r[i].max()) for r in runs)) for i, n in enumerate(names)}


# --- the unit of the identities ---


def identity_models(channels=16, side=64):
    """(float, quantised). An accumulator is a sum of 16 products of a code and a weight: below 16 * 128 * 127 = 2^18 in size,
    and with random codes beyond 6 sigma of what the output can hold only once in 10^9."""
    rng = np.random.default_rng([SEED, 3])
    shape, step = [1, channels, side, side], np.float32(2.0 ** -10)
    codes = rng.integers(-127, 128, (channels, channels, 1, 1), dtype=np.int8)
    in_scale = np.float32(2.0 ** -4)
    deviation = np.sqrt((codes.astype(float) ** 2).sum((1, 2, 3)).max() * (256 ** 2 - 1) / 12) * float(step) * float(in_scale)
    out_scale = np.float32(deviation * 6 / 127 * 1.01234567)
    weight = codes.astype(np.float32) * step
    real = finished([helper.make_node("Conv", ["x", "unit.weight"], ["y"], "unit", kernel_shape=[1, 1])], "identity",
                    [("x", shape)], [("y", shape)], {"unit.weight": weight})
    net = Network("identity", [("x", shape)], 3)
    net.constants["unit.weight"] = weight
    quantiser = Quantiser(net, ("y", shape), {"x": (in_scale, np.uint8(128)), "y": (out_scale, np.uint8(128))})
    quantiser.qdq("x", "x")
    weight_name = quantiser.constant("unit.weight", codes, np.full(channels, step), 0)
    made = "y_QuantizeLinear_Input"
    quantiser.nodes.append(helper.make_node("Conv", [quantiser.ready["x"], weight_name], [made], "unit", kernel_shape=[1, 1]))
    quantiser.qdq("y", made)
    return real, finished(quantiser.nodes, "identity-u8", net.inputs, [("y", shape)], quantiser.constants)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("golden/models"), help="folder to write (%(default)s)")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    images = np.random.default_rng([SEED, 0]).normal(size=(N_PROBE + N_CALIBRATION, *IMAGE[1:])).astype(np.float32)
    np.savez_compressed(out / "random-probe.npz", image=images[:N_PROBE])
    written = ["random-probe.npz"]
    for (net, output), suffix in ((residual_network(), "u8"), (attention_network(), "w8a8")):
        real = finished(net.nodes, net.name, net.inputs, [output], net.constants)
        encodings = {n: uint8_of(*r) for n, r in ranges_of(real, images).items()}
        model = Quantiser(net, output, encodings).run()
        for name, (low, high) in use_of_codes(model, images[:N_PROBE]).items():
            print(f"{net.name:18} {name.removesuffix('_QuantizeLinear_Output'):16} codes {low:3} to {high:3}")
        onnx.save(real, out / f"{net.name}.float.onnx")
        onnx.save(model, out / f"{net.name}.{suffix}.onnx")
        written += [f"{net.name}.float.onnx", f"{net.name}.{suffix}.onnx"]
    for model, suffix in zip(identity_models(), ("float", "u8")):
        onnx.save(model, out / f"identity.{suffix}.onnx")
        written.append(f"identity.{suffix}.onnx")
    for name in sorted(written):
        data = (out / name).read_bytes()
        print(f"{hashlib.sha256(data).hexdigest()}  {len(data):7}  {name}")


if __name__ == "__main__":
    main()
