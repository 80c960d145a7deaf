"""exec:tosa: Arm's reference model of TOSA, which says bit for bit what a device of that specification gives.

Option: rounding=double (default: what TensorFlow Lite's converter asks for) or single, of every RESCALE.

The quantised ONNX model becomes a TOSA graph, layer by layer, in the way in which TensorFlow's legalisation makes it of TFLite
models: activations are int8 (uint8 ones moved by 128), products are summed in int32, and a RESCALE with a multiplier of 32 bits
goes to the output's scale. Curves (Sigmoid, Tanh, Gelu, HardSwish, HardSigmoid) are a TABLE, rounded half away from zero.
LayerNormalization and Softmax are computed in floats, which is said in the log."""
import importlib.metadata

import numpy
import tosa_reference_model
import tosa_serializer as tosa

from npudiff.runner import RunnerError, main
from npudiff.runners._quantised import IntegerRunner, MIDDLE, TO_NCHW, TO_NHWC, Value, bias_codes
from npudiff.runners._tosa_layers import OtherLayers, gelu

ROUNDINGS = {"double": tosa.RoundingMode.DOUBLE_ROUND, "single": tosa.RoundingMode.SINGLE_ROUND}
TYPES = {"int8": tosa.DType.INT8, "int32": tosa.DType.INT32, "float32": tosa.DType.FP32}
OP = tosa.Op
ADD_BITS = 20 # of an Add of 8 bits before its inputs are rescaled: TensorFlow's legalisation, as TFLite's kernel
CURVES = {"Gelu": gelu, "Sigmoid": lambda x, a: 1 / (1 + numpy.exp(-x)), "Tanh": lambda x, a: numpy.tanh(x),
          "HardSwish": lambda x, a: x * numpy.clip(x / 6 + 0.5, 0, 1),
          "HardSigmoid": lambda x, a: numpy.clip(a.get("alpha", 0.2) * x + a.get("beta", 0.5), 0, 1)}


def multiplier_of(scale):
    """(multiplier, shift) of a RESCALE: scale = multiplier / 2^shift."""
    mantissa, exponent = numpy.frexp(numpy.float64(scale))
    multiplier = int(numpy.floor(mantissa * (1 << 31) + 0.5))
    if multiplier == 1 << 31:
        multiplier, exponent = multiplier // 2, exponent + 1
    shift = 31 - int(exponent)
    if shift > 62:
        multiplier, shift = multiplier >> min(31, shift - 62), 62
    if shift < 2:
        raise RunnerError(f"a scale of {scale:.6g} is too large for a RESCALE of TOSA", operator="RESCALE")
    return multiplier, shift


class Converter(OtherLayers):
    """Makes a TOSA graph of the layers. Every value is a tensor of int8 there, of images NHWC."""

    def __init__(self, graph, outputs, rounding):
        self.file, self.rounding, self.places, self.n, self.notes = tosa.TosaSerializer("."), rounding, {}, 0, []
        for value in graph.inputs:
            kind = "int8" if value.scale is not None else value.type
            if kind not in TYPES:
                raise RunnerError(f"the input '{value.name}' is of {value.type}")
            self.file.addInputTensor(tosa.TosaSerializerTensor(f"in-{len(self.places)}", self.shape(value), TYPES[kind]))
            self.places[value.name] = f"in-{len(self.places)}"
        for layer in graph.layers:
            emit = getattr(self, "emit_" + layer.op.lower(), None)
            if emit is None:
                layer.refuse(f"this runner has no {layer.op} for TOSA")
            self.places[layer.output.name] = self.clamped(layer, emit(layer))
        for value in outputs:
            result = self.file.addOutput(self.shape(value), TYPES["int8"])
            self.operator(OP.IDENTITY, "IdentityAttribute", [self.places[value.name]], result)

    # The file.

    def shape(self, value):
        return [int(value.shape[i]) for i in TO_NHWC] if len(value.shape) == 4 else [int(d) for d in value.shape]

    def zero(self, value):
        return int(value.zero[0]) - MIDDLE[value.type]

    def constant(self, array, kind):
        array = numpy.asarray(array)
        self.n += 1
        return self.file.addConst(list(array.shape), kind, array.reshape(-1).tolist(), f"const-{self.n}").name

    def int8(self, values):
        return self.constant(values, tosa.DType.INT8)

    def operator(self, op, attribute, inputs, output, *fields):
        attributes = tosa.TosaSerializerAttribute()
        getattr(attributes, attribute)(*fields)
        self.file.addOperator(op, inputs, [output.name], attributes)
        return output.name

    def make(self, op, attribute, inputs, shape, kind, *fields):
        return self.operator(op, attribute, inputs, self.file.addIntermediate([int(d) for d in shape], TYPES[kind]), *fields)

    def rescale(self, place, shape, kinds, scale, zeros=(0, 0)):
        """kinds, zeros: of the input and of the output. scale: a number, or one for each channel (the last axis)."""
        pairs = [multiplier_of(s) for s in numpy.atleast_1d(scale)]
        inputs = [place, self.constant([m for m, _ in pairs], tosa.DType.INT32), self.int8([s for _, s in pairs]),
                  self.constant([zeros[0]], TYPES[kinds[0]]), self.constant([zeros[1]], TYPES[kinds[1]])]
        return self.make(OP.RESCALE, "RescaleAttribute", inputs, shape, kinds[1], True, self.rounding, len(pairs) > 1, False, False)

    def clamped(self, layer, place):
        """A Relu or Clip after the operator."""
        if layer.clamp == (None, None):
            return place
        value, bounds = layer.output, []
        for bound, end in zip(layer.clamp, (-128, 127)):
            code = end if bound is None else int(numpy.rint(bound / value.scale[0])) + self.zero(value)
            bounds.append(min(max(code, -128), 127))
        return self.make(OP.CLAMP, "ClampAttribute", [place], self.shape(value), "int8", *[list(numpy.int8([b]).tobytes()) for b in bounds],
                         tosa.NanPropagationMode.PROPAGATE)

    def read(self, value):
        if value.name in self.places:
            return self.places[value.name]
        if value.scale is None or value.type not in MIDDLE or value.scale.size != 1:
            raise RunnerError(f"the constant '{value.name}' is not quantised to 8 bits with one scale")
        array = value.array.astype(numpy.int64) - MIDDLE[value.type]
        return self.int8(array.transpose(TO_NHWC) if array.ndim == 4 else array)

    def requantised(self, value, like, place=None):
        """The value in the steps of another one."""
        place = self.read(value) if place is None else place
        if value.same_steps(like) and self.zero(value) == self.zero(like):
            return place
        scale = numpy.float64(value.scale[0]) / numpy.float64(like.scale[0])
        return self.rescale(place, self.shape(value), ("int8", "int8"), scale, (self.zero(value), self.zero(like)))

    def ranked(self, place, value, rank):
        """Operands of one rank, as TOSA's operators for two want them."""
        if len(value.shape) == rank:
            return place
        shape = [1] * (rank - len(value.shape)) + list(value.shape)
        if rank == 4:
            shape = [shape[i] for i in TO_NHWC]
        return self.reshape(place, shape)

    def reshape(self, place, shape, kind="int8"):
        name = self.constant([int(d) for d in shape], tosa.DType.SHAPE)
        return self.make(OP.RESHAPE, "ReshapeAttribute", [place, name], shape, kind)

    # Layers: each gives the place of its output.

    def quantised(self, value, place, shape):
        """Real numbers in the steps of a value."""
        ones = [1] * len(shape)
        factor = self.constant(numpy.full(ones, numpy.float32(1) / value.scale[0]), tosa.DType.FP32)
        zero = self.constant(numpy.full(ones, numpy.float32(self.zero(value))), tosa.DType.FP32)
        steps = self.make(OP.MUL, "MulAttribute", [place, factor, self.int8([0])], shape, "float32")
        codes = self.make(OP.ADD, "AddAttribute", [steps, zero], shape, "float32")
        return self.make(OP.CAST, "CastAttribute", [codes], shape, "int8")

    def emit_quantize(self, layer):
        return self.quantised(layer.output, self.read(layer.inputs[0]), self.shape(layer.output))

    def emit_requantize(self, layer):
        return self.requantised(layer.inputs[0], layer.output)

    def window(self, layer, kernel):
        """(the input, its pads, strides, dilations); TOSA wants windows that end where the input does, so that a rest is cut off."""
        attributes, rank = layer.attributes, len(kernel)
        if rank != 2 or attributes.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID") or attributes.get("ceil_mode", 0):
            layer.refuse("auto_pad, ceil_mode and other than two dimensions are not converted")
        strides, dilations = attributes.get("strides", [1, 1]), attributes.get("dilations", [1, 1])
        before, after = list(attributes.get("pads", [0] * 4)[:2]), list(attributes.get("pads", [0] * 4)[2:])
        for k, size in enumerate(layer.inputs[0].shape[2:]):
            rest = (size - 1 + before[k] + after[k] - (kernel[k] - 1) * dilations[k]) % strides[k]
            after[k] -= rest
        place, shape = self.read(layer.inputs[0]), self.shape(layer.inputs[0])
        if min(after) < 0:
            size = [shape[0], shape[1] + min(after[0], 0), shape[2] + min(after[1], 0), shape[3]]
            place = self.region(place, [0] * 4, size)
            after = [max(n, 0) for n in after]
        return place, [before[0], after[0], before[1], after[1]], list(strides), list(dilations)

    def region(self, place, begin, size):
        parts = [self.constant(numbers, tosa.DType.SHAPE) for numbers in (begin, size)]
        return self.make(OP.SLICE, "SliceAttribute", [place, *parts], size, "int8")

    def product(self, layer, place, weights, order, window):
        """A CONV2D or DEPTHWISE_CONV2D with its RESCALE. weights: a Value, ONNX's; order: of its dimensions for TOSA."""
        zeros = numpy.unique(weights.zero)
        if zeros.size != 1 or weights.type not in MIDDLE:
            layer.refuse("weights of 8 bits with one zero point are converted")
        codes = (weights.array.astype(numpy.int64) - MIDDLE[weights.type]).transpose(order)
        bias = bias_codes(layer, weights)
        bias = numpy.zeros(1, numpy.int32) if bias is None else bias
        source, shape = layer.inputs[0], [1, 1, 1, 1] if window is None else self.shape(layer.output)
        pads, strides, dilations = window or ([0] * 4, [1, 1], [1, 1])
        is_depthwise = order == (2, 3, 0, 1)
        if window is None:
            shape = [int(numpy.prod(layer.output.shape[:-1])), 1, 1, int(layer.output.shape[-1])]
        if is_depthwise: # [H, W, channels, multiplier]
            groups = layer.attributes["group"]
            codes = codes.reshape(*codes.shape[:2], groups, -1)
        inputs = [place, self.int8(codes), self.constant(bias, tosa.DType.INT32), self.int8([self.zero(source)]),
                  self.int8([int(zeros[0]) - MIDDLE[weights.type]])]
        op, attribute = (OP.DEPTHWISE_CONV2D, "DepthwiseConv2dAttribute") if is_depthwise else (OP.CONV2D, "Conv2dAttribute")
        sums = self.make(op, attribute, inputs, shape, "int32", pads, strides, dilations, False, tosa.DType.INT32)
        scale = source.scale.astype(numpy.float64) * weights.scale.astype(numpy.float64) / numpy.float64(layer.output.scale[0])
        return self.rescale(sums, shape, ("int32", "int8"), scale, (0, self.zero(layer.output)))

    def emit_conv(self, layer):
        weights, groups = layer.inputs[1], layer.attributes.get("group", 1)
        if groups not in (1, layer.inputs[0].shape[1]):
            layer.refuse("TOSA has no CONV2D in groups")
        is_depthwise = groups > 1
        place, *window = self.window(layer, weights.shape[2:])
        return self.product(layer, place, weights, (2, 3, 0, 1) if is_depthwise else TO_NHWC, window)

    def dense(self, layer, weights):
        """Constant weights [outputs, inputs]: a CONV2D of 1 x 1, as the legalisation has it."""
        source = layer.inputs[0]
        rows = [int(numpy.prod(source.shape[:-1])), 1, 1, int(source.shape[-1])]
        array = weights.array.reshape(*weights.array.shape, 1, 1)
        wide = Value(weights.name, array.shape, weights.type, weights.scale, weights.zero, weights.axis, array)
        place = self.product(layer, self.reshape(self.plain(source), rows), wide, TO_NHWC, None)
        return self.from_plain(layer, self.reshape(place, layer.output.shape))

    def emit_gemm(self, layer):
        attributes, weights = layer.attributes, layer.inputs[1]
        if weights.array is None or attributes.get("transA", 0) or attributes.get("alpha", 1) != 1 or attributes.get("beta", 1) != 1:
            layer.refuse("only a Gemm of an activation with constant weights is converted")
        return self.dense(layer, weights if attributes.get("transB", 0) else self.turned(weights))

    def emit_matmul(self, layer):
        first, second = layer.inputs
        if first.array is None and second.array is None:
            return self.emit_product(layer)
        if second.array is None or second.array.ndim != 2:
            layer.refuse("a MatMul of a constant of other than two dimensions is not converted")
        return self.dense(layer, self.turned(layer.inputs[1]))

    def turned(self, weights):
        return Value(weights.name, weights.shape[::-1], weights.type, weights.scale, weights.zero, 0, weights.array.transpose())

    def pair(self, layer, scales):
        """The operands as int32, less their zero points and times a scale."""
        places, rank = [], len(layer.output.shape)
        for value, scale in zip(layer.inputs, scales):
            shape = self.shape(Value("", (1,) * (rank - len(value.shape)) + tuple(value.shape), value.type))
            place = self.ranked(self.read(value), value, rank)
            places.append(self.rescale(place, shape, ("int8", "int32"), scale, (self.zero(value), 0)))
        return places

    def emit_add(self, layer):
        scales, out, shape = [numpy.float64(v.scale[0]) for v in layer.inputs], layer.output, self.shape(layer.output)
        twice = 2 * max(scales)
        op, attribute = (OP.ADD, "AddAttribute") if layer.op == "Add" else (OP.SUB, "SubAttribute")
        sums = self.make(op, attribute, self.pair(layer, [s / twice * (1 << ADD_BITS) for s in scales]), shape, "int32")
        return self.rescale(sums, shape, ("int32", "int8"), twice / (numpy.float64(out.scale[0]) * (1 << ADD_BITS)), (0, self.zero(out)))

    emit_sub = emit_add

    def emit_mul(self, layer):
        out, shape = layer.output, self.shape(layer.output)
        products = self.make(OP.MUL, "MulAttribute", [*self.pair(layer, (1, 1)), self.int8([0])], shape, "int32")
        scale = numpy.prod([numpy.float64(v.scale[0]) for v in layer.inputs]) / numpy.float64(out.scale[0])
        return self.rescale(products, shape, ("int32", "int8"), scale, (0, self.zero(out)))

    def emit_maxpool(self, layer):
        kernel = layer.attributes["kernel_shape"]
        place, pads, strides, dilations = self.window(layer, kernel)
        if dilations != [1, 1]:
            layer.refuse("TOSA's pools have no dilations")
        place = self.make(OP.MAX_POOL2D, "MaxPool2dAttribute", [place], self.shape(layer.output), "int8", list(kernel),
                          strides, pads, tosa.NanPropagationMode.PROPAGATE)
        return self.to_output(layer, place)

    def emit_averagepool(self, layer):
        kernel = layer.attributes["kernel_shape"]
        place, pads, strides, dilations = self.window(layer, kernel)
        if dilations != [1, 1] or (any(pads) and layer.attributes.get("count_include_pad", 0)):
            layer.refuse("TOSA's pools have neither dilations nor padding that counts")
        zero = self.int8([self.zero(layer.inputs[0])])
        place = self.make(OP.AVG_POOL2D, "AvgPool2dAttribute", [place, zero, zero], self.shape(layer.output), "int8",
                          list(kernel), strides, pads, tosa.DType.INT32)
        return self.to_output(layer, place)

    def to_output(self, layer, place):
        """What has the input's steps, in the output's; real numbers become its values."""
        source, out = layer.inputs[0], layer.output
        if source.scale is None:
            return self.quantised(out, place, self.shape(out))
        return self.requantised(Value("", out.shape, source.type, source.scale, source.zero), out, place)

    def emit_globalaveragepool(self, layer):
        source, out = layer.inputs[0], layer.output
        shape = self.shape(source)
        place = self.rescale(self.read(source), shape, ("int8", "int32"), 1, (self.zero(source), 0))
        for axis in (1, 2):
            shape[axis] = 1
            place = self.make(OP.REDUCE_SUM, "ReduceSumAttribute", [place], shape, "int32", axis)
        n = source.shape[2] * source.shape[3]
        scale = numpy.float64(source.scale[0]) / (numpy.float64(out.scale[0]) * n)
        return self.rescale(place, shape, ("int32", "int8"), scale, (0, self.zero(out)))

    def transposed(self, place, shape, order, kind="int8"):
        return self.make(OP.TRANSPOSE, "TransposeAttribute", [place], [shape[i] for i in order], kind, list(order))

    def emit_reshape(self, layer):
        """Reshape, Flatten, Squeeze, Unsqueeze: in ONNX's layout."""
        value, shape = layer.inputs[0], [int(d) for d in layer.output.shape]
        kind = "int8" if value.scale is not None else value.type
        place = self.read(value)
        if len(value.shape) == 4:
            place = self.transposed(place, self.shape(value), TO_NCHW, kind)
        place = self.reshape(place, shape, kind)
        if len(shape) == 4:
            place = self.transposed(place, shape, TO_NHWC, kind)
        return self.to_output(layer, place)

    emit_flatten = emit_squeeze = emit_unsqueeze = emit_reshape

    def emit_transpose(self, layer):
        order = list(layer.attributes.get("perm", range(len(layer.output.shape))[::-1]))
        if len(order) == 4: # both sides are NHWC
            order = [TO_NHWC.index(order[k]) for k in TO_NHWC]
        value = layer.inputs[0]
        kind = "int8" if value.scale is not None else value.type
        return self.to_output(layer, self.transposed(self.read(value), self.shape(value), order, kind))

    def emit_concat(self, layer):
        axis, rank = layer.attributes["axis"], len(layer.output.shape)
        axis = TO_NHWC.index(axis % rank) if rank == 4 else axis % rank
        return self.make(OP.CONCAT, "ConcatAttribute", [self.requantised(v, layer.output) for v in layer.inputs], self.shape(layer.output),
                         "int8", axis)

    def emit_max(self, layer):
        op, attribute = (OP.MAXIMUM, "MaximumAttribute") if layer.op == "Max" else (OP.MINIMUM, "MinimumAttribute")
        out, shape = layer.output, self.shape(layer.output)
        places = self.pair(layer, [numpy.float64(v.scale[0]) / numpy.float64(out.scale[0]) for v in layer.inputs])
        for place in places[1:]: # TOSA's are of int32
            places[0] = self.make(op, attribute, [places[0], place], shape, "int32", tosa.NanPropagationMode.PROPAGATE)
        return self.rescale(places[0], shape, ("int32", "int8"), 1, (0, self.zero(out)))

    emit_min = emit_max

    def emit_relu(self, layer):
        layer.clamp = (0.0, None)
        return self.emit_requantize(layer)

    def emit_leakyrelu(self, layer):
        """The greater one of x and alpha x, both in steps of the output."""
        source, out, alpha = layer.inputs[0], layer.output, layer.attributes.get("alpha", 0.01)
        if not 0 < alpha <= 1:
            layer.refuse("an alpha between 0 and 1 is converted")
        shape, scale = self.shape(out), numpy.float64(source.scale[0]) / numpy.float64(out.scale[0])
        both = [self.rescale(self.read(source), shape, ("int8", "int32"), scale * factor, (self.zero(source), 0)) for factor in (1, alpha)]
        place = self.make(OP.MAXIMUM, "MaximumAttribute", both, shape, "int32", tosa.NanPropagationMode.PROPAGATE)
        return self.rescale(place, shape, ("int32", "int8"), 1, (0, self.zero(out)))

    def emit_curve(self, layer):
        source, out = layer.inputs[0], layer.output
        x = (numpy.arange(-128, 128) - self.zero(source)) * numpy.float64(source.scale[0])
        y = CURVES[layer.op](x, layer.attributes) / numpy.float64(out.scale[0])
        codes = numpy.clip(numpy.sign(y) * numpy.floor(numpy.abs(y) + 0.5) + self.zero(out), -128, 127).astype(numpy.int64)
        return self.make(OP.TABLE, "TableAttribute", [self.read(source), self.int8(codes)], self.shape(out), "int8")

    emit_sigmoid = emit_tanh = emit_hardswish = emit_hardsigmoid = emit_gelu = emit_curve


class Tosa(IntegerRunner):
    name, version = "tosa", "1"
    versions = {"tosa-tools": importlib.metadata.version("tosa-tools")}
    options = ("rounding",)

    def build(self, graph, outputs):
        word = self.job.options.get("rounding", "double")
        if word not in ROUNDINGS:
            raise RunnerError(f"option 'rounding' is {', '.join(ROUNDINGS)}, not '{word}'")
        self.asked = outputs
        made = Converter(graph, outputs, ROUNDINGS[word])
        self.made = made.file.serialize()
        for note in made.notes:
            self.log(note)

    def infer(self, arrays):
        inputs = []
        for value in self.graph.inputs:
            array = arrays[value.name]
            if value.scale is not None:
                array = (array.astype(numpy.int64) - MIDDLE[value.type]).astype(numpy.int8)
            inputs.append(numpy.ascontiguousarray(array.transpose(TO_NHWC) if array.ndim == 4 else array))
        results, status = tosa_reference_model.run(self.made, inputs)
        if status != tosa_reference_model.GraphStatus.TOSA_VALID:
            raise RunnerError(f"the reference model says {status.name}")
        codes = {}
        for value, array in zip(self.asked, results):
            array = array.transpose(TO_NCHW) if array.ndim == 4 else array
            codes[value.name] = (array.astype(numpy.int64) + MIDDLE[value.type]).astype(value.type)
        return codes


if __name__ == "__main__":
    main(Tosa)
