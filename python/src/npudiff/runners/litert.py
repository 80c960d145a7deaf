"""exec:litert: Google's LiteRT (TensorFlow Lite), on the CPU of this machine.

Option: kernels=xnnpack (default: what apps get), optimised (LiteRT's own without XNNPACK) or reference.

The quantised ONNX model becomes a TFLite model, layer by layer, with its own scales, zero points and weights
(npudiff.runners._quantised). Weights of one zero point in the middle of their type are int8, as TFLite's quantiser makes them, and so
are then all activations (uint8 ones moved by 128); others need uint8 kernels. Where TFLite's operator can only keep its input's
scale (pools, Reshape, Concat) or has a fixed one (Softmax), a QUANTIZE follows, as TFLite's own converter does it."""
import numpy
import ai_edge_litert
from ai_edge_litert import schema_py_generated as tfl
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from npudiff.runner import RunnerError, main
from npudiff.runners._litert_layers import OtherLayers
from npudiff.runners._quantised import IntegerRunner, MIDDLE, TO_NCHW, TO_NHWC, Value, bias_codes
from npudiff.runners._tflite import Writer

KERNELS = {"xnnpack": OpResolverType.BUILTIN, "optimised": OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
           "reference": OpResolverType.BUILTIN_REF}
OP, ACTIVATION = tfl.BuiltinOperator, tfl.ActivationFunctionType
# Scale and zero point (of int8) that TFLite's kernels demand of their output.
FIXED = {"Sigmoid": (1 / 256, -128), "Softmax": (1 / 256, -128), "Tanh": (1 / 128, 0)}


def same_padding(size, stride, reach):
    """What TFLite's SAME puts before and after."""
    total = max((-(-size // stride) - 1) * stride + reach - size, 0)
    return total // 2, total - total // 2


class Converter(OtherLayers):
    """Makes a TFLite model of the graph. type: of all activations, "int8" or "uint8"."""

    def __init__(self, graph, outputs):
        self.graph, self.file, self.places, self.notes = graph, Writer(), {}, []
        weights = [layer.inputs[1] for layer in graph.layers if layer.op in ("Conv", "Gemm", "MatMul") and layer.inputs[1].array is not None]
        is_middle = [w.scale is not None and w.type in MIDDLE and (w.zero == MIDDLE[w.type]).all() for w in weights]
        self.type = "int8" if all(is_middle) else "uint8"
        for layer, w in ((layer, w) for layer in graph.layers for w in weights if w in layer.inputs):
            if self.type == "uint8" and (w.scale is None or w.scale.size != 1):
                layer.refuse("TFLite has no kernel for a scale for each channel with zero points out of the middle")
        for value in graph.inputs:
            self.places[value.name] = self.tensor(value.name, value)
            self.file.graph.inputs.append(self.places[value.name])
        for layer in graph.layers:
            self.layer(layer)
        self.file.graph.outputs = [self.places[value.name] for value in outputs]

    # Values.

    def move(self, value):
        """What is added to the model's quantised values to get TFLite's."""
        return MIDDLE[self.type] - MIDDLE[value.type]

    def shape(self, value):
        return [value.shape[i] for i in TO_NHWC] if len(value.shape) == 4 else value.shape

    def quant(self, value, axis=None):
        return value.scale, value.zero + self.move(value), axis

    def tensor(self, name, like, shape=None):
        """A tensor with the steps of a value, or one of floats."""
        shape = self.shape(like) if shape is None else shape
        if like.scale is None:
            return self.file.tensor(name, shape, like.type)
        return self.file.tensor(name, shape, self.type, self.quant(like))

    def constant(self, value, order=None, axis=None):
        """order: of the dimensions; axis: of the channels, after that."""
        array = value.array.astype(numpy.int64) + self.move(value)
        array = array if order is None else array.transpose(order)
        return self.file.tensor(value.name, array.shape, self.type, self.quant(value, axis), array)

    def read(self, value):
        if value.name in self.places:
            return self.places[value.name]
        if value.scale is None or value.type not in MIDDLE:
            raise RunnerError(f"the constant '{value.name}' is not quantised to 8 bits")
        return self.constant(value, TO_NHWC if value.array.ndim == 4 else None)

    def integers(self, numbers):
        return self.file.tensor("", [len(numbers)] if numpy.ndim(numbers) == 1 else numpy.shape(numbers), "int32",
                                data=numpy.asarray(numbers, numpy.int32))

    def new(self, layer, like, shape=None):
        """A tensor in the middle of a layer, with the steps of another value."""
        return self.tensor(layer.output.name + "/", like, shape or self.shape(layer.output))

    def finish(self, layer, middle=None):
        """The layer's output; where something is in the middle, quantised from it."""
        place = self.tensor(layer.output.name, layer.output)
        self.places[layer.output.name] = place
        if middle is not None:
            self.file.operator(OP.QUANTIZE, [middle], place, "QuantizeOptions")
        return place

    def kept(self, layer):
        """Where an operator that keeps its input's steps writes: the output, or a tensor that finish quantises."""
        value = layer.inputs[0]
        return None if value.scale is not None and value.same_steps(layer.output) else self.new(layer, layer.inputs[0])

    def emit_kept(self, layer, code, inputs, options=None, **fields):
        middle = self.kept(layer)
        place = self.finish(layer) if middle is None else middle
        self.file.operator(code, inputs, place, options, **fields)
        if middle is not None:
            self.finish(layer, middle)

    def activation(self, layer):
        if layer.clamp == (None, None):
            return ACTIVATION.NONE
        if layer.clamp == (0.0, None):
            return ACTIVATION.RELU
        if layer.clamp == (0.0, 6.0):
            return ACTIVATION.RELU6
        return layer.refuse(f"TFLite has no activation from {layer.clamp[0]} to {layer.clamp[1]}")

    # Layers.

    def layer(self, layer):
        emit = getattr(self, "emit_" + layer.op.lower(), None)
        if emit is None:
            layer.refuse(f"this runner has no {layer.op} for TFLite")
        emit(layer)

    def emit_quantize(self, layer):
        self.file.operator(OP.QUANTIZE, [self.read(layer.inputs[0])], self.finish(layer), "QuantizeOptions")

    emit_requantize = emit_quantize

    def padded(self, layer, kernel, lowest=False):
        """(the input, VALID or SAME) with the model's pads: TFLite's own where they agree, else a PAD before."""
        value, rank = layer.inputs[0], len(kernel)
        strides, dilations = layer.attributes.get("strides", [1] * rank), layer.attributes.get("dilations", [1] * rank)
        pads = layer.attributes.get("pads", [0] * 2 * rank)
        if layer.attributes.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID") or layer.attributes.get("ceil_mode", 0) or rank != 2:
            layer.refuse("auto_pad, ceil_mode and other than two dimensions are not converted")
        reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations)]
        same = [same_padding(size, s, r) for size, s, r in zip(value.shape[2:], strides, reach)]
        wanted = [(pads[i], pads[i + 2]) for i in range(2)]
        place = self.read(value)
        if not any(pads):
            return place, tfl.Padding.VALID, strides, dilations
        if same == wanted:
            return place, tfl.Padding.SAME, strides, dilations
        if layer.op == "AveragePool":
            layer.refuse("TFLite's average pool has no such padding")
        shape = self.shape(value)
        shape = [shape[0], shape[1] + sum(wanted[0]), shape[2] + sum(wanted[1]), shape[3]]
        around = self.new(layer, value, shape)
        paddings = self.integers(numpy.array([(0, 0), *wanted, (0, 0)]))
        if lowest:
            least = self.file.tensor("", [1], self.type, self.quant(value), numpy.array([numpy.iinfo(self.type).min]))
            self.file.operator(OP.PADV2, [place, paddings, least], around, "PadV2Options")
        else:
            self.file.operator(OP.PAD, [place, paddings], around, "PadOptions")
        return around, tfl.Padding.VALID, strides, dilations

    def bias(self, layer, weights):
        codes = bias_codes(layer, weights)
        codes = numpy.zeros(layer.output.shape[1], numpy.int32) if codes is None else codes
        scale = layer.inputs[0].scale.astype(numpy.float64) * weights.scale
        return self.file.tensor(layer.output.name + "/bias", codes.shape, "int32", (scale, numpy.zeros(scale.size), 0), codes)

    def emit_conv(self, layer):
        weights, groups = layer.inputs[1], layer.attributes.get("group", 1)
        place, padding, strides, dilations = self.padded(layer, weights.shape[2:])
        is_depthwise = groups > 1 and groups == layer.inputs[0].shape[1]
        order, axis = ((1, 2, 3, 0), 3) if is_depthwise else (TO_NHWC, 0)
        inputs = [place, self.constant(weights, order, axis), self.bias(layer, weights)]
        fields = {"padding": padding, "strideH": strides[0], "strideW": strides[1], "dilationHFactor": dilations[0],
                  "dilationWFactor": dilations[1], "fusedActivationFunction": self.activation(layer)}
        if is_depthwise:
            self.file.operator(OP.DEPTHWISE_CONV_2D, inputs, self.finish(layer), "DepthwiseConv2DOptions",
                               depthMultiplier=weights.shape[0] // groups, **fields)
        else:
            self.file.operator(OP.CONV_2D, inputs, self.finish(layer), "Conv2DOptions", **fields)

    def emit_gemm(self, layer):
        weights, attributes = layer.inputs[1], layer.attributes
        if attributes.get("transA", 0) or attributes.get("alpha", 1) != 1 or attributes.get("beta", 1) != 1 or weights.array is None:
            layer.refuse("only a Gemm of an activation with constant weights is converted")
        order = None if attributes.get("transB", 0) else (1, 0)
        inputs = [self.read(layer.inputs[0]), self.constant(weights, order, 0), self.bias(layer, weights)]
        self.file.operator(OP.FULLY_CONNECTED, inputs, self.finish(layer), "FullyConnectedOptions", keepNumDims=True,
                           fusedActivationFunction=self.activation(layer))

    def emit_matmul(self, layer):
        first, second = layer.inputs
        if first.array is None and second.array is not None and second.array.ndim == 2 and len(first.shape) < 4:
            inputs = [self.read(first), self.constant(second, (1, 0), 0)]
            self.file.operator(OP.FULLY_CONNECTED, [*inputs, -1], self.finish(layer), "FullyConnectedOptions", keepNumDims=True,
                               fusedActivationFunction=self.activation(layer))
        else:
            self.emit_product(layer)

    def emit_binary(self, layer):
        code = {"Add": OP.ADD, "Sub": OP.SUB, "Mul": OP.MUL}[layer.op]
        self.file.operator(code, [self.read(value) for value in layer.inputs], self.finish(layer), layer.op + "Options",
                           fusedActivationFunction=self.activation(layer))

    emit_add = emit_sub = emit_mul = emit_binary

    def emit_pool(self, layer):
        kernel = layer.attributes["kernel_shape"]
        is_max = layer.op == "MaxPool"
        place, padding, strides, dilations = self.padded(layer, kernel, lowest=is_max)
        if any(d != 1 for d in dilations) or (layer.attributes.get("count_include_pad", 0) and padding == tfl.Padding.SAME):
            layer.refuse("TFLite's pools have neither dilations nor padding that counts")
        self.emit_kept(layer, OP.MAX_POOL_2D if is_max else OP.AVERAGE_POOL_2D, [place], "Pool2DOptions", padding=padding,
                       strideH=strides[0], strideW=strides[1], filterHeight=kernel[0], filterWidth=kernel[1],
                       fusedActivationFunction=self.activation(layer))

    emit_maxpool = emit_averagepool = emit_pool

    def emit_globalaveragepool(self, layer):
        self.file.operator(OP.MEAN, [self.read(layer.inputs[0]), self.integers([1, 2])], self.finish(layer), "ReducerOptions",
                           keepDims=True)

    def in_model_layout(self, layer, value):
        place = self.read(value)
        if len(value.shape) != 4:
            return place
        turned = self.new(layer, value, value.shape)
        self.file.operator(OP.TRANSPOSE, [place, self.integers(TO_NCHW)], turned, "TransposeOptions")
        return turned

    def emit_reshape(self, layer):
        """Reshape, Flatten, Squeeze, Unsqueeze: in the model's layout."""
        value, shape = layer.inputs[0], layer.output.shape
        place = self.in_model_layout(layer, value)
        if len(shape) != 4:
            self.emit_kept(layer, OP.RESHAPE, [place, self.integers(shape)], "ReshapeOptions", newShape=list(shape))
            return
        flat = self.new(layer, value, shape)
        self.file.operator(OP.RESHAPE, [place, self.integers(shape)], flat, "ReshapeOptions", newShape=list(shape))
        self.emit_kept(layer, OP.TRANSPOSE, [flat, self.integers(TO_NHWC)], "TransposeOptions")

    emit_flatten = emit_squeeze = emit_unsqueeze = emit_reshape

    def emit_transpose(self, layer):
        rank = len(layer.output.shape)
        order = list(layer.attributes.get("perm", range(rank)[::-1]))
        if rank == 4: # both sides are NHWC
            order = [TO_NHWC.index(order[k]) for k in TO_NHWC]
        self.emit_kept(layer, OP.TRANSPOSE, [self.read(layer.inputs[0]), self.integers(order)], "TransposeOptions")

    def in_output_steps(self, layer):
        """All inputs, quantised to the output's steps where they have others."""
        places = []
        for value in layer.inputs:
            place = self.read(value)
            if not value.same_steps(layer.output):
                turned = self.new(layer, layer.output, self.shape(value))
                self.file.operator(OP.QUANTIZE, [place], turned, "QuantizeOptions")
                place = turned
            places.append(place)
        return places

    def emit_concat(self, layer):
        axis = layer.attributes["axis"] % len(layer.output.shape)
        axis = TO_NHWC.index(axis) if len(layer.output.shape) == 4 else axis
        self.file.operator(OP.CONCATENATION, self.in_output_steps(layer), self.finish(layer), "ConcatenationOptions", axis=axis)

    def emit_maximum(self, layer):
        """Max and Min: TFLite's want the same steps everywhere."""
        code = OP.MAXIMUM if layer.op == "Max" else OP.MINIMUM
        self.file.operator(code, self.in_output_steps(layer), self.finish(layer), "MaximumMinimumOptions")

    emit_max = emit_min = emit_maximum

    def is_alike(self, a, b):
        """Whether two values have the same steps in TFLite."""
        return a.scale[0] == b.scale[0] and (a.zero + self.move(a))[0] == (b.zero + self.move(b))[0]

    def emit_fixed(self, layer):
        """Functions whose output has steps that the kernel demands."""
        code, options = {"Sigmoid": (OP.LOGISTIC, None), "Tanh": (OP.TANH, None), "Softmax": (OP.SOFTMAX, "SoftmaxOptions")}[layer.op]
        if layer.op == "Softmax" and layer.attributes.get("axis", -1) % len(layer.output.shape) != len(layer.output.shape) - 1:
            layer.refuse("TFLite's Softmax is along the last axis")
        scale, zero = FIXED[layer.op]
        like = Value("", layer.output.shape, "int8", numpy.array([scale], numpy.float32), numpy.array([zero]))
        if layer.op == "Softmax" and len(layer.output.shape) == 4:
            self.emit_wide_softmax(layer, like)
            return
        fields = {"beta": 1.0} if options else {}
        middle = None if self.is_alike(like, layer.output) else self.new(layer, like)
        place = self.finish(layer) if middle is None else middle
        self.file.operator(code, [self.read(layer.inputs[0])], place, options, **fields)
        if middle is not None:
            self.finish(layer, middle)

    emit_sigmoid = emit_tanh = emit_softmax = emit_fixed

    def emit_leakyrelu(self, layer):
        self.file.operator(OP.LEAKY_RELU, [self.read(layer.inputs[0])], self.finish(layer), "LeakyReluOptions",
                           alpha=layer.attributes.get("alpha", 0.01))

    def emit_relu(self, layer):
        self.file.operator(OP.RELU, [self.read(layer.inputs[0])], self.finish(layer))

    def emit_hardswish(self, layer):
        self.file.operator(OP.HARD_SWISH, [self.read(layer.inputs[0])], self.finish(layer), "HardSwishOptions")


class LiteRt(IntegerRunner):
    name, version = "litert", "1"
    versions = {"ai-edge-litert": ai_edge_litert.__version__}
    options = ("kernels",)

    def build(self, graph, outputs):
        word = self.job.options.get("kernels", "xnnpack")
        if word not in KERNELS:
            raise RunnerError(f"option 'kernels' is {', '.join(KERNELS)}, not '{word}'")
        self.made = Converter(graph, outputs)
        # The interpreter takes outputs by number only: in the order in which they were asked for.
        self.asked = outputs
        self.interpreter = Interpreter(model_content=self.made.file.pack(), num_threads=self.job.threads,
                                       experimental_op_resolver_type=KERNELS[word])
        self.interpreter.allocate_tensors()
        self.log(f"activations are {self.made.type} in TFLite", 1)
        for note in self.made.notes:
            self.log(note)
        for layer in graph.layers:
            self.placement.append((layer.output.name, layer.op, f"cpu ({word})"))

    def infer(self, arrays):
        for value, detail in zip(self.graph.inputs, self.interpreter.get_input_details()):
            array = arrays[value.name]
            if value.scale is not None:
                array = (array.astype(numpy.int64) + self.made.move(value)).astype(self.made.type)
            self.interpreter.set_tensor(detail["index"], numpy.ascontiguousarray(array.transpose(TO_NHWC) if array.ndim == 4 else array))
        self.interpreter.invoke()
        codes = {}
        for value, place in zip(self.asked, self.made.file.graph.outputs):
            array = self.interpreter.get_tensor(place)
            array = array.transpose(TO_NCHW) if array.ndim == 4 else array
            codes[value.name] = (array.astype(numpy.int64) - self.made.move(value)).astype(value.type)
        return codes


if __name__ == "__main__":
    main(LiteRt)
