"""A quantised ONNX model as layers on integers, for engines that know no QuantizeLinear.

`read` makes of QuantizeLinear and DequantizeLinear what they say of the operators between them: one Layer for each operator,
with the values that it reads and the one that it makes. A Relu or a Clip between an operator and its QuantizeLinear is a
member of the layer. An engine's runner (IntegerRunner) makes its own operators of the layers. It gets arrays and hands
them out in ONNX's layout; engines work on images as NHWC."""
import numpy
import onnx
from onnx import helper, numpy_helper, shape_inference

from npudiff.runner import Runner, RunnerError

FUSED = ("Relu", "Clip")
MIDDLE = {"uint8": 128, "int8": 0} # of the types that these engines take
FROM_FLOATS = ("Quantize", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose") # layers that may read a float
TO_NHWC, TO_NCHW = (0, 2, 3, 1), (0, 3, 1, 2)


class Value:
    """What a layer reads or makes.

    name: of the tensor with the quantised values. shape: ONNX's. type: "uint8", "int8", "int32", "float32", ...
    scale, zero: arrays of one element, or one for each channel of `axis`; None where it is not quantised. array: a constant's values."""

    def __init__(self, name, shape, kind, scale=None, zero=None, axis=None, array=None):
        self.name, self.shape, self.type = name, shape, kind
        self.scale, self.zero, self.axis, self.array = scale, zero, axis, array

    def reals(self):
        """The real numbers of a constant."""
        if self.scale is None:
            return self.array.astype(numpy.float64)
        shape = [1] * self.array.ndim
        if self.scale.size > 1:
            shape[self.axis] = -1
        return (self.array.astype(numpy.int64) - self.zero.reshape(shape)) * self.scale.astype(numpy.float64).reshape(shape)

    def same_steps(self, other):
        return self.scale.size == other.scale.size == 1 and self.scale[0] == other.scale[0] and self.zero[0] == other.zero[0]


class Layer:
    """One operator. clamp: the least and the greatest real value that it may make (None: none). place: which output of the operator
    it is."""

    def __init__(self, node, op, inputs, output, clamp=(None, None), place=0):
        self.node, self.op, self.inputs, self.output, self.clamp, self.place = node, op, inputs, output, clamp, place
        self.attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}

    def refuse(self, why):
        raise RunnerError(f"layer '{self.node.name or self.output.name}': {why}", operator=self.op)

    def whole(self, k, default):
        """The whole numbers of the constant input k, as a list; default: there is none."""
        if len(self.inputs) <= k or self.inputs[k] is None:
            return default
        if self.inputs[k].array is None:
            self.refuse("its parameters are no constants")
        return [int(x) for x in self.inputs[k].array.reshape(-1)]

    def axes(self):
        """Of a ReduceMean: the axes, none negative."""
        rank = len(self.inputs[0].shape)
        found = self.whole(1, list(self.attributes.get("axes", [])))
        if not found:
            found = [] if self.attributes.get("noop_with_empty_axes", 0) else range(rank)
        return sorted(axis % rank for axis in found)

    def region(self):
        """Of a Slice or a Split: where in its input its output begins."""
        shape, begin = self.inputs[0].shape, [0] * len(self.inputs[0].shape)
        if self.op == "Split":
            axis, n = self.attributes.get("axis", 0) % len(shape), len(self.node.output)
            sizes = self.whole(1, self.attributes.get("split", None)) or [-(-shape[axis] // n)] * n
            begin[axis] = sum(sizes[:self.place])
            return begin
        starts = self.whole(1, self.attributes.get("starts", []))
        axes = self.whole(3, self.attributes.get("axes", list(range(len(starts)))))
        if any(step != 1 for step in self.whole(4, [])):
            self.refuse("a Slice with steps is not converted")
        for start, axis in zip(starts, axes):
            size = shape[axis % len(shape)]
            begin[axis % len(shape)] = min(max(start + size if start < 0 else start, 0), size)
        return begin

    def divisor(self):
        """Of a Div: the number that it divides by; None: other than one."""
        value = self.inputs[1]
        return float(value.reals().reshape(-1)[0]) if value.array is not None and value.array.size == 1 else None

    def as_depthwise(self, factors, offsets):
        """factor * x + offset for each channel of an image, as a Conv of one weight for each channel. A weight is 127 steps, so that it
        is exact, and the offset is rounded to a 127th of the input's step times the factor."""
        channels = self.inputs[0].shape[1] if len(self.inputs[0].shape) == 4 else 0
        if channels == 0:
            self.refuse("it is converted for images only")
        factors, offsets = (numpy.broadcast_to(numpy.asarray(x, numpy.float64).reshape(-1), channels) for x in (factors, offsets))
        scale = numpy.where(factors == 0, 1, numpy.abs(factors) / 127).astype(numpy.float32)
        scale = scale[:1] if (scale == scale[0]).all() else scale
        codes = (127 * numpy.sign(factors)).astype(numpy.int8).reshape(channels, 1, 1, 1)
        name = self.output.name
        weights = Value(f"{name}/factors", codes.shape, "int8", scale, numpy.zeros(scale.size, numpy.int64), 0, codes)
        layer = Layer(self.node, "Conv", [self.inputs[0], weights, Value(f"{name}/offsets", offsets.shape, "float64", array=offsets)],
                      self.output, self.clamp)
        layer.attributes = {"group": channels}
        return layer

    def batch_norm(self):
        """(factors, offsets) of a BatchNormalization."""
        if any(value is None or value.array is None for value in self.inputs[1:5]):
            self.refuse("its parameters are no constants")
        scale, bias, mean, variance = (value.reals() for value in self.inputs[1:5])
        factors = scale / numpy.sqrt(variance + self.attributes.get("epsilon", 1e-5))
        return factors, bias - mean * factors


class Graph:
    """Of a model with its shapes. layers in an order in which they can run; inputs: values of the graph's inputs; values: {name: Value} of all that are made;
    reals: {name of a DequantizeLinear's output: Value}."""

    def __init__(self, model):
        self.nodes = model.graph.node
        self.constants = {c.name: numpy_helper.to_array(c) for c in model.graph.initializer}
        self.makers = {name: node for node in self.nodes for name in node.output}
        self.shapes = {}
        for item in [*model.graph.value_info, *model.graph.input, *model.graph.output]:
            self.shapes[item.name] = tuple(d.dim_value for d in item.type.tensor_type.shape.dim)
        self.types = {i.name: numpy.dtype(helper.tensor_dtype_to_np_dtype(i.type.tensor_type.elem_type)).name for i in model.graph.input}
        self.inputs = [Value(i.name, self.shapes[i.name], self.types[i.name]) for i in model.graph.input if i.name not in self.constants]
        self.values, self.reals = {value.name: value for value in self.inputs}, {}
        self.layers = [layer for node in self.nodes for layer in self.layers_of(node)]

    def parameters(self, node):
        """(scale, zero, axis) of a quantiser."""
        scale = self.constant(node, 1).astype(numpy.float32).reshape(-1)
        zero = self.constant(node, 2) if len(node.input) > 2 and node.input[2] else numpy.zeros(scale.size, numpy.uint8)
        axis = next((a.i for a in node.attribute if a.name == "axis"), 1)
        return scale, zero.reshape(-1), axis if scale.size > 1 else None

    def constant(self, node, k):
        if node.input[k] not in self.constants:
            raise RunnerError(f"'{node.input[k]}' of {node.op_type} is no constant", operator=node.op_type)
        return self.constants[node.input[k]]

    def value_of(self, name):
        """What a float tensor is as a value: quantised where a DequantizeLinear makes it."""
        if name in self.constants:
            array = self.constants[name]
            return Value(name, array.shape, array.dtype.name, array=array)
        maker = self.makers.get(name)
        if maker is None or maker.op_type != "DequantizeLinear":
            if name in self.values:
                return self.values[name]
            node = f" by the node '{maker.name}'" if maker is not None and maker.name else ""
            raise RunnerError(f"'{name}' is computed as a float{node}: this engine's runner takes quantised layers only",
                              operator=maker.op_type if maker else "")
        codes = maker.input[0]
        if codes in self.values:
            return self.values[codes]
        scale, zero, axis = self.parameters(maker)
        array = self.constant(maker, 0)
        axis = None if axis is None else axis % array.ndim
        return Value(codes, array.shape, array.dtype.name, scale, zero.astype(numpy.int64), axis, array)

    def clamp_of(self, node):
        if node.op_type == "Relu":
            return 0.0, None
        bounds = [self.constant(node, k).item() if len(node.input) > k and node.input[k] else None for k in (1, 2)]
        return tuple(bounds)

    def layers_of(self, node):
        """The layers whose last node is this QuantizeLinear; a DequantizeLinear is only noted."""
        if node.op_type == "DequantizeLinear" and node.input[0] in self.values:
            value = self.values[node.input[0]]
            if value.scale is None: # an input of the graph that is quantised values
                scale, zero, value.axis = self.parameters(node)
                value.scale, value.zero = scale, zero.astype(numpy.int64)
            self.reals[node.output[0]] = value
        if node.op_type != "QuantizeLinear":
            return []
        scale, zero, axis = self.parameters(node)
        shape = self.shapes.get(node.output[0]) or self.shapes.get(node.input[0])
        if shape is None or 0 in shape:
            raise RunnerError(f"the shape of '{node.output[0]}' is not known")
        if scale.size != 1:
            raise RunnerError(f"'{node.output[0]}' has a scale for each channel", operator=node.op_type)
        output = Value(node.output[0], shape, zero.dtype.name, scale, zero.astype(numpy.int64), axis)
        maker, clamp = self.makers.get(node.input[0]), (None, None)
        if maker is not None and maker.op_type in FUSED and self.makers.get(maker.input[0]) is not None and \
                self.makers[maker.input[0]].op_type != "DequantizeLinear":
            clamp, maker = self.clamp_of(maker), self.makers[maker.input[0]]
        if maker is None or maker.op_type == "DequantizeLinear":
            layer = Layer(node, "Requantize" if maker else "Quantize", [self.value_of(node.input[0])], output)
        else:
            made = node.input[0] if node.input[0] in maker.output else self.makers[node.input[0]].input[0]
            layer = Layer(maker, maker.op_type, [self.value_of(name) if name else None for name in maker.input], output, clamp,
                          list(maker.output).index(made))
        self.values[output.name] = output
        return [layer]


def bias_codes(layer, weights):
    """The bias of a Conv or Gemm as int32 in steps of the input's scale times the weights', or None."""
    bias = layer.inputs[2] if len(layer.inputs) > 2 else None
    if bias is None:
        return None
    steps = layer.inputs[0].scale.astype(numpy.float64) * weights.scale.astype(numpy.float64)
    if bias.scale is None:
        return numpy.rint(bias.array / steps).astype(numpy.int32)
    if not numpy.allclose(bias.scale, steps, rtol=1e-4, atol=0):
        layer.refuse("the scale of its bias is not the input's times the weights'")
    return bias.array.astype(numpy.int32).reshape(-1)


class IntegerRunner(Runner):
    """Base class of runners of such engines. They give `build(graph, outputs)` and `infer(arrays)`: arrays by name, codes in
    the types that the engine has, in ONNX's layout."""

    def load(self, job):
        model = shape_inference.infer_shapes(onnx.load(job.model)) # the checker wants shapes of all outputs
        onnx.checker.check_model(model)
        self.graph = Graph(model)
        if not self.graph.layers:
            raise RunnerError("the model has no QuantizeLinear: this runner takes quantised models only")
        wanted = {}
        for tensor in job.outputs:
            value = self.graph.values.get(tensor.name) or self.graph.reals.get(tensor.name)
            if value is None or value.scale is None:
                self.missing[tensor.name] = "it is a part of another layer here"
            else:
                wanted[tensor.name] = value
        for layer in self.graph.layers:
            if layer.op not in FROM_FLOATS and any(v is not None and v.array is None and v.scale is None for v in layer.inputs):
                layer.refuse("it reads floats: this engine's runner takes quantised layers only")
        for value in self.graph.values.values():
            if value.scale is not None and value.type not in MIDDLE:
                raise RunnerError(f"'{value.name}' is of {value.type}; this runner takes 8 bits only")
        self.wanted = wanted
        self.build(self.graph, list({value.name: value for value in wanted.values()}.values()))

    def run(self, inputs):
        codes = self.infer(inputs)
        outputs = {}
        for name, value in self.wanted.items():
            array = codes[value.name]
            if name != value.name: # a DequantizeLinear's output
                array = (array.astype(numpy.int64) - value.zero[0]).astype(numpy.float32) * value.scale[0]
            outputs[name] = array
        return outputs
