"""Faults that are put into a quantised model. Each changes one layer and keeps names, shapes and encodings of all tensors. A mutation takes
(Model, node, random) and returns True, or False where it does not fit the node; then it has changed nothing.

Some change constants or attributes of the node itself. The others put an operator behind the quantiser of its output, which moves or clips
quantised values: a faulty copy, a buffer that is read in the wrong layout. What that operator gives then stands for the layer."""
import numpy as np
import onnx
from onnx import helper, numpy_helper

INSERTED = "fault_out"   # the tensor that stands for the layer where an operator was put behind it
LINEAR = ("Conv", "ConvTranspose", "Gemm", "MatMul")
BINARY = ("Add", "Sub", "Mul", "Div")


class Model:
    """A quantised model, with what the mutations look up."""

    def __init__(self, path):
        self.proto = onnx.load(path)
        graph = self.proto.graph
        self.tensors = {tensor.name: tensor for tensor in graph.initializer}
        self.made_by = {name: node for node in graph.node for name in node.output}
        self.readers = {}
        for node in graph.node:
            for name in node.input:
                self.readers.setdefault(name, []).append(node)
        shown = onnx.shape_inference.infer_shapes(self.proto)
        self.shapes = {info.name: tuple(size.dim_value for size in info.type.tensor_type.shape.dim)
                       for info in list(shown.graph.value_info) + list(shown.graph.output)}

    def layers(self):
        """Nodes that compute: those behind whose output there is one quantiser."""
        return [node for node in self.proto.graph.node if node.op_type not in ("QuantizeLinear", "DequantizeLinear") and
                len(node.output) == 1 and self.quantiser_of(node) is not None]

    def quantiser_of(self, node):
        readers = self.readers.get(node.output[0], [])
        return readers[0] if len(readers) == 1 and readers[0].op_type == "QuantizeLinear" else None

    def constant_name(self, name):
        """The initializer behind an input, through its quantisers; None: computed."""
        while name not in self.tensors:
            node = self.made_by.get(name)
            if node is None or node.op_type not in ("QuantizeLinear", "DequantizeLinear"):
                return None
            name = node.input[0]
        return name

    def value(self, name):
        return numpy_helper.to_array(self.tensors[name]).copy()

    def set(self, name, array):
        self.tensors[name].CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array), name))

    def constant(self, node, place):
        return self.constant_name(node.input[place]) if len(node.input) > place and node.input[place] else None

    def scale_name(self, node, place):
        """The scale of a constant input's DequantizeLinear, where that is the only quantiser."""
        dequantiser = self.made_by.get(node.input[place])
        return dequantiser.input[1] if dequantiser is not None and dequantiser.input[0] in self.tensors else None


def attribute(node, name, default=None):
    found = next((item for item in node.attribute if item.name == name), None)
    return default if found is None else helper.get_attribute_value(found)


def set_attribute(node, name, value):
    for item in [item for item in node.attribute if item.name == name]:
        node.attribute.remove(item)
    node.attribute.append(helper.make_attribute(name, value))


def clipped(array, like):
    if like.dtype.kind == "f":
        return array.astype(like.dtype)
    limits = np.iinfo(like.dtype)
    return np.clip(np.rint(array), limits.min, limits.max).astype(like.dtype)


# --- Constants of Conv, ConvTranspose, Gemm and MatMul.

def weight_of(model, node):
    """(name, array, axis of the output channels, value that stands for zero) of the weights of a node; None: it has none."""
    if node.op_type not in LINEAR:
        return None
    name = model.constant(node, 1)
    if name is None:
        return None
    axis = {"Conv": 0, "ConvTranspose": 1, "MatMul": -1}.get(node.op_type, 0 if attribute(node, "transB", 0) else 1)
    array = model.value(name)
    zero = 0
    dequantiser = model.made_by[node.input[1]]
    if array.dtype.kind != "f" and len(dequantiser.input) > 2:
        zero = int(model.value(dequantiser.input[2]).reshape(-1)[0])
    return name, array, axis, zero


def column(array, axis, index):
    return (slice(None),) * (axis % array.ndim) + (index,)


def weight_zero_point(model, node, random):
    found = weight_of(model, node)
    if found is None or found[1].dtype.kind == "f":
        return False
    name, array, axis, _ = found
    where = column(array, axis, int(random.integers(array.shape[axis])))
    changed = array.astype(np.float64)
    changed[where] += int(random.choice([-48, -32, 32, 48]))
    model.set(name, clipped(changed, array))
    return True


def weight_scale(model, node, random):
    found = weight_of(model, node)
    if found is None:
        return False
    name, array, axis, zero = found
    where = column(array, axis, int(random.integers(array.shape[axis])))
    changed = array.astype(np.float64)
    changed[where] = (changed[where] - zero) * 0.5 + zero
    model.set(name, clipped(changed, array))
    return True


def all_scales(model, node, random):
    if weight_of(model, node) is None:
        return False
    name = model.scale_name(node, 1)
    if name is None:
        return False
    model.set(name, (model.value(name) * np.float32(random.choice([0.5, 0.75, 1.5]))).astype(np.float32))
    return True


def weight_sign(model, node, random):
    """The largest weights of one channel change their sign."""
    found = weight_of(model, node)
    if found is None:
        return False
    name, array, axis, zero = found
    where = column(array, axis, int(random.integers(array.shape[axis])))
    changed = array.astype(np.float64)
    part = changed[where] - zero
    changed[where] = np.where(np.abs(part) == np.abs(part).max(), -part, part) + zero
    model.set(name, clipped(changed, array))
    return True


def bias_of_channel(model, node, random):
    name = model.constant(node, 2) if node.op_type in LINEAR else None
    if name is None:
        return False
    array = model.value(name)
    array[int(np.argmax(np.abs(array)))] *= -1
    model.set(name, array)
    return True


def bias_lost(model, node, random):
    name = model.constant(node, 2) if node.op_type in LINEAR else None
    if name is None:
        return False
    model.set(name, np.zeros_like(model.value(name)))
    return True


def stale_weights(model, node, random):
    """The weights of an older model: the same values, in other places of each channel."""
    found = weight_of(model, node)
    if found is None:
        return False
    name, array, axis, _ = found
    rows = np.moveaxis(array, axis, 0).copy()
    rows = random.permuted(rows.reshape(rows.shape[0], -1), axis=1).reshape(rows.shape)
    model.set(name, np.moveaxis(rows, 0, axis))
    return True


def kernel_transposed(model, node, random):
    found = weight_of(model, node)
    if found is None or found[1].ndim != 4 or min(found[1].shape[2:]) < 2:
        return False
    model.set(found[0], found[1].swapaxes(2, 3) if random.random() < 0.5 else found[1][:, :, ::-1, ::-1])
    return True


def padding_at_one_side(model, node, random):
    """All of the padding before the image, or all of it behind."""
    if node.op_type not in ("Conv", "MaxPool", "AveragePool"):
        return False
    top, left, bottom, right = attribute(node, "pads", [0] * 4)
    kernel = attribute(node, "kernel_shape")
    if top + left == 0 or max(top + bottom, left + right) > (min(kernel) - 1) * attribute(node, "dilations", [1])[0]:
        return False
    set_attribute(node, "pads", [0, 0, top + bottom, left + right] if random.random() < 0.5 else [top + bottom, left + right, 0, 0])
    return True


def wrong_dilation(model, node, random):
    kernel, pads = attribute(node, "kernel_shape"), attribute(node, "pads", [0] * 4)
    if node.op_type != "Conv" or list(kernel) != [3, 3] or list(pads) != [1] * 4 or attribute(node, "dilations", [1, 1]) != [1, 1]:
        return False
    set_attribute(node, "dilations", [2, 2])
    set_attribute(node, "pads", [2] * 4)
    return True


# --- Constants and attributes of other operators.

def constant_scale(model, node, random):
    """A constant operand of Add, Sub, Mul or Div has a scale that is off."""
    if node.op_type not in BINARY:
        return False
    for place in (1, 0):
        if model.constant(node, place) is not None:
            name = model.scale_name(node, place)
            if name is None:
                return False
            model.set(name, (model.value(name) * np.float32(random.choice([0.5, 2]))).astype(np.float32))
            return True
    return False


def stale_constants(model, node, random):
    """A constant operand, or gamma or the slopes, in a wrong order."""
    if node.op_type not in BINARY + ("PRelu", "LayerNormalization", "InstanceNormalization", "BatchNormalization"):
        return False
    name = model.constant(node, 1)
    if name is None or model.value(name).size < 4:
        return False
    array = model.value(name)
    model.set(name, np.roll(array.reshape(-1), 1 + int(random.integers(array.size - 1))).reshape(array.shape))
    return True


def operands_swapped(model, node, random):
    if node.op_type not in ("Sub", "Div", "Concat") or len(node.input) < 2:
        return False
    first, second = node.input[0], node.input[1]
    if model.shapes.get(first) != model.shapes.get(second):
        return False
    node.input[0], node.input[1] = second, first
    return True


ANOTHER = {"MaxPool": "AveragePool", "AveragePool": "MaxPool", "ReduceMean": "ReduceMax", "ReduceMax": "ReduceMean", "ReduceSum": "ReduceMean",
           "Sigmoid": "HardSigmoid", "HardSigmoid": "Sigmoid", "HardSwish": "Relu", "Tanh": "Sigmoid", "Add": "Sub", "Mul": "Add", "Sub": "Add",
           "Exp": "Relu", "Elu": "Relu"}


def wrong_operator(model, node, random):
    if node.op_type not in ANOTHER or model.constant(node, 1) is not None:
        return False
    node.op_type = ANOTHER[node.op_type]
    dropped = {"count_include_pad", "alpha", "beta", "storage_order"}
    for item in [item for item in node.attribute if item.name in dropped]:
        node.attribute.remove(item)
    return True


def wrong_attribute(model, node, random):
    if node.op_type == "LeakyRelu":
        set_attribute(node, "alpha", attribute(node, "alpha", 0.01) + 0.4)
    elif node.op_type == "Softmax":
        set_attribute(node, "axis", -2 if len(model.shapes[node.output[0]]) > 2 else -1)
    elif node.op_type == "DepthToSpace":
        set_attribute(node, "mode", "DCR" if attribute(node, "mode", b"DCR") == b"CRD" else "CRD")
    elif node.op_type == "Resize":
        nearest = attribute(node, "mode") == b"nearest"
        set_attribute(node, "mode", "linear" if nearest else "nearest")
        set_attribute(node, "coordinate_transformation_mode", "asymmetric")
        set_attribute(node, "nearest_mode", "floor")
    elif node.op_type in ("LayerNormalization", "InstanceNormalization"):
        set_attribute(node, "epsilon", 1.0)
    else:
        return False
    return True


# --- An operator behind the quantiser of the output.

def insert(model, node, op_type, more_inputs, before=(), behind=(), **attributes):
    """output -> QuantizeLinear -> DequantizeLinear -> nodes -> QuantizeLinear with the same encoding -> what read it before."""
    quantiser = model.quantiser_of(node)
    scale_and_zero = list(quantiser.input[1:])
    domain = quantiser.domain
    new = [helper.make_node("DequantizeLinear", [quantiser.output[0], *scale_and_zero], ["fault_in"], name="fault_in", domain=domain)]
    steps = [*before, (op_type, more_inputs, attributes), *behind]
    name = "fault_in"
    for number, (step, others, extra) in enumerate(steps):
        out = INSERTED if number == len(steps) - 1 else f"fault_step_{number}"
        new.append(helper.make_node(step, [name, *others], [out], name=out, **extra))
        name = out
        if out != INSERTED:
            name = out + "_dq"
            new.append(helper.make_node("QuantizeLinear", [out, *scale_and_zero], [out + "_q"], name=out + "_q", domain=domain))
            new.append(helper.make_node("DequantizeLinear", [out + "_q", *scale_and_zero], [name], name=name, domain=domain))
    new.append(helper.make_node("QuantizeLinear", [INSERTED, *scale_and_zero], ["fault_q"], name="fault_q", domain=domain))
    for reader in model.readers[quantiser.output[0]]:
        reader.input[0] = "fault_q"
    nodes = list(model.proto.graph.node)
    at = next(place for place, other in enumerate(nodes) if other.name == quantiser.name and other.output[0] == quantiser.output[0]) + 1
    del model.proto.graph.node[:]
    model.proto.graph.node.extend(nodes[:at] + new + nodes[at:])
    return True


def add_constant(model, array):
    name = f"fault_constant_{len(model.tensors)}"
    model.proto.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    model.tensors[name] = model.proto.graph.initializer[-1]
    return name


def real_range(model, node):
    """What the first and the last code of the output stand for."""
    quantiser = model.quantiser_of(node)
    scale = float(model.value(quantiser.input[1]).reshape(-1)[0])
    zero = model.value(quantiser.input[2])
    limits = np.iinfo(zero.dtype)
    zero = int(zero.reshape(-1)[0])
    return scale * (limits.min - zero), scale * (limits.max - zero)


def clamp(model, node, random):
    """The largest quarter or half of the range is cut off, perhaps the smallest, too."""
    low, high = real_range(model, node)
    keep = float(random.choice([0.5, 0.65]))
    top = low + (high - low) * keep
    bottom = low if random.random() < 0.6 else low + (high - low) * (1 - keep) * 0.7
    names = [add_constant(model, np.array(value, np.float32)) for value in (bottom, top)]
    return insert(model, node, "Clip", names)


def moved(model, node, random, order_of):
    """A Gather along one axis that has 4 places or more."""
    shape = model.shapes.get(node.output[0], ())
    axes = [axis for axis in range(1, len(shape)) if shape[axis] >= 4]
    if not axes:
        return False
    axis = int(random.choice(axes))
    indices = add_constant(model, np.asarray(order_of(shape[axis]), np.int64))
    return insert(model, node, "Gather", [indices], axis=axis)


def shifted_by_rows(model, node, random):
    """Every row (column, channel) is the one behind it; the last one is the first."""
    return moved(model, node, random, lambda n: np.roll(np.arange(n), -1))


def permuted(model, node, random):
    return moved(model, node, random, random.permutation)


def reversed_order(model, node, random):
    return moved(model, node, random, lambda n: np.arange(n)[::-1])


def repeated_line(model, node, random):
    """From the middle on, one row (column, channel) is repeated: the rest was not written."""
    return moved(model, node, random, lambda n: np.minimum(np.arange(n), n // 2))


def wrong_layout(model, node, random):
    """The values in the order of channels last, as if they stood with channels first."""
    shape = model.shapes.get(node.output[0], ())
    sizes = [size for size in shape if size > 1]
    if len(shape) not in (3, 4) or len(sizes) < 2 or len(shape) != len(sizes) + 1:
        return False
    perm = [0, 2, 3, 1] if len(shape) == 4 else [0, 2, 1]
    name = add_constant(model, np.array(shape, np.int64))
    return insert(model, node, "Reshape", [name], before=[("Transpose", [], {"perm": perm})])


# {kind: (mutation, kinds of `explain` that say the same; empty: it has no name for it, and the kind is not judged)}
PLACES = {"other-places", "shifted", "axis-permutation", "channel-permutation"}
SCALES = {"scale", "channel-scale", "scale-and-zero-point", "weights-scale"}
OFFSETS = {"zero-point", "channel-zero-point", "scale-and-zero-point", "bias"}
MUTATIONS = {
    "weights: zero point of a channel": (weight_zero_point, {"weights-zero-point"}),
    "weights: scale of a channel": (weight_scale, SCALES),
    "weights: all scales": (all_scales, SCALES),
    "weights: sign of one": (weight_sign, set()),
    "weights: stale": (stale_weights, set()),
    "weights: kernel transposed or flipped": (kernel_transposed, {"transposed-weights"}),
    "bias of one channel": (bias_of_channel, OFFSETS),
    "bias lost": (bias_lost, OFFSETS),
    "padding at one side": (padding_at_one_side, set()),
    "dilation": (wrong_dilation, set()),
    "constant operand: scale": (constant_scale, SCALES | OFFSETS),
    "constant operand: order": (stale_constants, set()),
    "operands swapped": (operands_swapped, set()),
    "a different operator": (wrong_operator, set()),
    "a different attribute": (wrong_attribute, set()),
    "clamp": (clamp, {"saturation"}),
    "shifted": (shifted_by_rows, PLACES),
    "permuted": (permuted, PLACES),
    "reversed": (reversed_order, PLACES),
    "not written": (repeated_line, {"constant-lines", "unwritten-window", "periodic"} | PLACES),
    "wrong layout": (wrong_layout, PLACES),
}
