"""Two quantisers: ONNX Runtime's with Qualcomm's configuration, and one that places quantisers as AIMET does, written here. Which of them
a network gets, its types and its habits are drawn from its seed."""
import dataclasses
import pathlib

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize
from onnxruntime.quantization.execution_providers.qnn import get_qnn_qdq_config, qnn_preprocess_model

from graph import INPUT


@dataclasses.dataclass
class Habits:
    maker: str               # "ort" or "aimet"
    bits: int                # of activations
    per_channel: bool
    weights: str             # "uint8" or "int8"
    folds_norms: bool        # BatchNormalization goes into the Conv before it
    keeps_weights_float: bool   # QuantizeLinear stands on the float weight, as AIMET's default writes it
    moves_requantise: bool   # operators that only move values have an encoding of their own

    def text(self):
        words = [self.maker, f"uint{self.bits}", f"{self.weights} weights " + ("per channel" if self.per_channel else "per tensor")]
        return ", ".join(words)


def habits_of(seed, operators):
    """What the provider refuses is not drawn: Gelu in parts, which only ONNX Runtime's preparation puts together, and LayerNormalization with
    an int8 gamma or one with a scale for each channel, which its quantiser writes."""
    random = np.random.default_rng([20261125, seed])
    maker = "ort" if random.random() < 0.5 or "Erf" in operators else "aimet"
    bits = 8 if random.random() < 0.6 else 16
    per_channel = bool(random.random() < 0.45)
    weights = "int8" if per_channel or random.random() < 0.5 else "uint8"
    if maker == "ort" and "LayerNormalization" in operators:
        per_channel, weights = False, "uint8"
    return Habits(maker, bits, per_channel, weights, bool(random.random() < 0.6), bool(random.random() < 0.3), bool(random.random() < 0.15))


def session(model, **options):
    settings = ort.SessionOptions()
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    settings.log_severity_level = 3
    return ort.InferenceSession(model.SerializeToString() if isinstance(model, onnx.ModelProto) else str(model), settings,
                                providers=["CPUExecutionProvider"], **options)


# --- ONNX Runtime's quantiser.

class Reader(CalibrationDataReader):
    def __init__(self, samples):
        self.rest = iter([{INPUT: sample} for sample in samples])

    def get_next(self):
        return next(self.rest, None)


def by_onnx_runtime(network, habits, folder):
    plain, prepared, quantised = (pathlib.Path(folder) / name for name in ("float.onnx", "prepared.onnx", "quantised.onnx"))
    onnx.save(network.model, plain)
    source = prepared if qnn_preprocess_model(plain, prepared) else plain
    config = get_qnn_qdq_config(
        source, Reader(network.calibration), activation_type=QuantType.QUInt8 if habits.bits == 8 else QuantType.QUInt16,
        weight_type=QuantType.QInt8 if habits.weights == "int8" else QuantType.QUInt8, per_channel=habits.per_channel)
    quantize(source, quantised, config)
    return onnx.load(quantised)


# --- Placement as AIMET's: a quantiser behind every operator, and one on every constant.

# Their output has the encoding of their input: they move values, or pick some.
MOVES = {"Reshape", "Transpose", "Flatten", "Slice", "Split", "Gather", "DepthToSpace", "SpaceToDepth", "Pad"}
# Whether these have one of their own differs from version to version.
PICKS = {"MaxPool", "ReduceMax", "Resize"}
# Inputs that are no tensors of values: shapes, axes, indices, limits.
NO_VALUES = {"Reshape": {1}, "Slice": {1, 2, 3, 4}, "Split": {1}, "Gather": {1}, "Pad": {1, 2}, "Resize": {1, 2, 3}, "Clip": {1, 2},
             "ReduceMean": {1}, "ReduceSum": {1}, "ReduceMax": {1}}
# Operators with weights, and the axis of their output channels.
WEIGHT_AXIS = {"Conv": 0, "ConvTranspose": 1, "Gemm": 0, "MatMul": 1}


def fold_norms(model):
    """BatchNormalization whose input is a Conv that nothing else reads becomes part of the Conv."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    graph = model.graph
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    made_by = {node.output[0]: node for node in graph.node}
    n_readers = {}
    for node in graph.node:
        for name in node.input:
            n_readers[name] = n_readers.get(name, 0) + 1
    for norm in [node for node in graph.node if node.op_type == "BatchNormalization"]:
        conv = made_by.get(norm.input[0])
        if conv is None or conv.op_type != "Conv" or n_readers[norm.input[0]] != 1:
            continue
        gamma, beta, mean, variance = (values[name] for name in norm.input[1:5])
        factor = gamma / np.sqrt(variance + 1e-5)
        bias = values[conv.input[2]] if len(conv.input) > 2 else np.zeros_like(mean)
        changed = {conv.output[0] + "_weight": values[conv.input[1]] * factor.reshape(-1, 1, 1, 1),
                   conv.output[0] + "_bias": (bias - mean) * factor + beta}
        graph.initializer.extend(numpy_helper.from_array(array.astype(np.float32), name) for name, array in changed.items())
        del conv.input[1:]
        conv.input.extend(changed)
        conv.output[0] = norm.output[0]
        graph.node.remove(norm)
    return model


def ranges_of(model, samples):
    """{tensor: (least, greatest)} of every float tensor of the float model."""
    shown = onnx.ModelProto.FromString(model.SerializeToString())
    del shown.graph.output[:]
    names = [INPUT] + [name for node in model.graph.node for name in node.output if name]
    shown.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names[1:])
    runner = session(shown)
    ranges = {}
    for sample in samples:
        for name, array in zip(names, [sample] + runner.run(names[1:], {INPUT: sample})):
            low, high = ranges.get(name, (0.0, 0.0))
            ranges[name] = (min(low, float(array.min())), max(high, float(array.max())))
    return ranges


def asymmetric(low, high, bits):
    """(scale, zero point) of unsigned codes."""
    low, high = min(low, 0.0), max(high, 0.0)
    scale = np.float32(max((high - low) / (2**bits - 1), 1e-8))
    return scale, int(np.clip(np.round(-low / scale), 0, 2**bits - 1))


class Aimet:
    """The quantised graph, as it is written."""

    def __init__(self, model, habits, ranges):
        self.habits, self.source = habits, model
        self.values = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
        self.opset = model.opset_import[0].version
        self.domain = "com.microsoft" if habits.bits == 16 and self.opset < 21 else ""
        self.ranges = ranges
        self.nodes, self.initializers, self.encodings = [], {}, {}

    def initializer(self, name, array):
        self.initializers[name] = numpy_helper.from_array(array, name)
        return name

    def quantiser(self, name, scale, zero, axis=None, stem=None):
        stem = stem or name
        scale, zero = self.initializer(stem + "_scale", scale), self.initializer(stem + "_zero_point", zero)
        extra = {} if axis is None else {"axis": axis}
        self.nodes.append(helper.make_node("QuantizeLinear", [name, scale, zero], [stem + "_q"], name=stem + "_q", domain=self.domain, **extra))
        self.nodes.append(helper.make_node("DequantizeLinear", [stem + "_q", scale, zero], [stem + "_dq"], name=stem + "_dq",
                                           domain=self.domain, **extra))
        return stem + "_dq"

    def activation(self, name, encoding=None):
        """Quantises a tensor; the encoding is that of its range, or the one that it takes over."""
        scale, zero = self.encodings[name] = encoding or asymmetric(*self.ranges[name], self.habits.bits)
        self.quantiser(name, np.float32(scale), np.array(zero, np.uint8 if self.habits.bits == 8 else np.uint16))

    def constant(self, name, array, scale, zero, axis, dtype):
        """A constant that is quantised: integers, or floats with a quantiser on them."""
        extra = {} if axis is None else {"axis": axis}
        if self.habits.keeps_weights_float and dtype != np.int32:
            self.initializer(name, array.astype(np.float32))
            return self.quantiser(name, scale, zero, axis)
        shape = [1] * array.ndim
        if axis is not None:
            shape[axis] = -1
        least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
        codes = np.clip(np.rint(array / np.reshape(scale, shape) + np.reshape(zero, shape).astype(np.float64)), least, most).astype(dtype)
        inputs = [self.initializer(name + "_q", codes), self.initializer(name + "_scale", scale), self.initializer(name + "_zero_point", zero)]
        domain = "com.microsoft" if self.domain and dtype == np.uint16 else ""
        self.nodes.append(helper.make_node("DequantizeLinear", inputs, [name + "_dq"], name=name + "_dq", domain=domain, **extra))
        return name + "_dq"

    def weight(self, name, axis):
        array = self.values[name]
        per_channel = self.habits.per_channel and axis is not None and array.ndim > 1
        if self.habits.weights == "uint8" and not per_channel:
            scale, zero = asymmetric(float(array.min()), float(array.max()), 8)
            return self.constant(name, array, np.float32(scale), np.array(zero, np.uint8), None, np.uint8), np.float32(scale)
        others = tuple(i for i in range(array.ndim) if i != axis) if per_channel else None
        scale = np.maximum(np.abs(array).max(axis=others) / 127, 1e-8).astype(np.float32)
        zero = np.zeros(np.shape(scale), np.int8)
        return self.constant(name, array, scale, zero, axis if per_channel else None, np.int8), scale

    def bias(self, name, scale):
        scale = np.asarray(scale, np.float32)
        zero = np.zeros(scale.shape, np.int32)
        return self.constant(name, self.values[name], scale, zero, 0 if scale.ndim else None, np.int32)

    def parameter(self, name, dtype=None):
        """A constant operand, quantised like an activation."""
        if name + "_dq" in {output for node in self.nodes for output in node.output}:
            return name + "_dq"
        array = self.values[name]
        bits = self.habits.bits if dtype is None else 8
        scale, zero = asymmetric(float(array.min()), float(array.max()), bits)
        dtype = np.uint8 if bits == 8 else np.uint16
        return self.constant(name, array, np.float32(scale), np.array(zero, dtype), None, dtype)

    def inputs_of(self, node):
        inputs, op_type = [], node.op_type
        scale_x = self.encodings.get(node.input[0], (None,))[0]
        weight_scale = None
        for place, name in enumerate(node.input):
            if not name or (place in NO_VALUES.get(op_type, ()) and name in self.values):
                if name:
                    self.initializer(name, self.values[name])
                inputs.append(name)
            elif name not in self.values:
                inputs.append(name + "_dq")
            elif place == 1 and op_type in WEIGHT_AXIS:
                axis = None if op_type == "MatMul" else WEIGHT_AXIS[op_type]
                if op_type == "Gemm" and not next((a.i for a in node.attribute if a.name == "transB"), 0):
                    axis = 1
                text, weight_scale = self.weight(name, axis)
                inputs.append(text)
            elif place == 2 and op_type in WEIGHT_AXIS:
                inputs.append(self.bias(name, scale_x * weight_scale))
            elif op_type in ("LayerNormalization", "InstanceNormalization") and place == 1:
                text = self.parameter(name, np.uint8)
                weight_scale = numpy_helper.to_array(self.initializers[name + "_scale"])
                inputs.append(text)
            elif op_type in ("LayerNormalization", "InstanceNormalization") and place == 2:
                inputs.append(self.bias(name, scale_x * weight_scale))
            elif op_type == "BatchNormalization":
                inputs.append(self.parameter(name))
            else:
                inputs.append(self.parameter(name))
        return inputs

    def write(self):
        self.activation(INPUT)
        for node in self.source.graph.node:
            inputs = self.inputs_of(node)
            written = onnx.NodeProto.FromString(node.SerializeToString())
            del written.input[:]
            written.input.extend(inputs)
            self.nodes.append(written)
            keeps = node.op_type in MOVES and not self.habits.moves_requantise or \
                node.op_type in PICKS and not (self.habits.moves_requantise or hash_bit(node.name))
            for name in node.output:
                self.activation(name, self.encodings[node.input[0]] if keeps else None)
        shapes = {info.name: [size.dim_value for size in info.type.tensor_type.shape.dim] for info in self.source.graph.output}
        outputs = [helper.make_tensor_value_info(name + "_dq", TensorProto.FLOAT, shape) for name, shape in shapes.items()]
        graph = helper.make_graph(self.nodes, "strangers", list(self.source.graph.input), outputs, list(self.initializers.values()))
        opsets = [helper.make_opsetid("", self.opset)] + ([helper.make_opsetid("com.microsoft", 1)] if self.domain else [])
        return helper.make_model(graph, opset_imports=opsets, ir_version=self.source.ir_version)


def hash_bit(name):
    return sum(name.encode()) % 2


def by_aimet(network, habits):
    model = fold_norms(network.model) if habits.folds_norms else network.model
    return Aimet(model, habits, ranges_of(model, network.calibration)).write()


def quantised(network, habits, folder):
    model = by_onnx_runtime(network, habits, folder) if habits.maker == "ort" else by_aimet(network, habits)
    onnx.checker.check_model(model)
    return model
