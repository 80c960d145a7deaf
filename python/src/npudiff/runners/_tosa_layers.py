"""Layers of exec:tosa that attention and other networks than plain CNNs have (see tosa.py)."""
import math

import numpy
import tosa_serializer as tosa

from npudiff.runners._quantised import TO_NCHW, TO_NHWC, Value

OP = tosa.Op
NAN = tosa.NanPropagationMode.PROPAGATE


def gelu(x, attributes):
    if attributes.get("approximate", b"none") == b"tanh":
        return 0.5 * x * (1 + numpy.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))
    return 0.5 * x * (1 + numpy.vectorize(math.erf)(x / math.sqrt(2)))


class OtherLayers:
    """A part of tosa.Converter. notes: sentences on what is made in another way than TFLite's legalisation, for the log."""

    def plain(self, value):
        """The value in the model's layout."""
        place = self.read(value)
        return self.transposed(place, self.shape(value), TO_NCHW) if len(value.shape) == 4 else place

    def from_plain(self, layer, place):
        shape = [int(d) for d in layer.output.shape]
        return self.transposed(place, shape, TO_NHWC) if len(shape) == 4 else place

    # Products.

    def emit_product(self, layer):
        """A MatMul of two activations: MATMUL takes [batch, rows, columns]."""
        first, second = layer.inputs
        if first.shape[:-2] != second.shape[:-2]:
            layer.refuse("a MatMul of activations with different batches is not converted")
        n, out = int(numpy.prod(first.shape[:-2])), layer.output
        places = [self.reshape(self.plain(v), [n, *v.shape[-2:]]) for v in layer.inputs]
        shape = [n, *out.shape[-2:]]
        sums = self.make(OP.MATMUL, "MatMulAttribute", [*places, *[self.int8([self.zero(v)]) for v in layer.inputs]], shape, "int32")
        scale = numpy.prod([numpy.float64(v.scale[0]) for v in layer.inputs]) / numpy.float64(out.scale[0])
        codes = self.rescale(sums, shape, ("int32", "int8"), scale, (0, self.zero(out)))
        return self.from_plain(layer, self.reshape(codes, out.shape))

    def emit_div(self, layer):
        """By one constant: its input's steps are divided by it."""
        divisor, value = layer.divisor(), layer.inputs[0]
        if divisor is None or divisor <= 0:
            layer.refuse("TOSA has no division of quantised values; by one positive constant it is converted")
        scale = (value.scale.astype(numpy.float64) / divisor).astype(numpy.float64)
        return self.requantised(Value(value.name, value.shape, value.type, scale, value.zero), layer.output)

    def emit_batchnormalization(self, layer):
        self.notes.append(f"layer '{layer.output.name}': a BatchNormalization is a DEPTHWISE_CONV2D of 1 x 1")
        return self.emit_conv(layer.as_depthwise(*layer.batch_norm()))

    # Means and regions.

    def emit_reducemean(self, layer):
        axes, value, out = layer.axes(), layer.inputs[0], layer.output
        place, shape = self.plain(value), [int(d) for d in value.shape]
        place = self.rescale(place, shape, ("int8", "int32"), 1, (self.zero(value), 0))
        for axis in axes:
            shape[axis] = 1
            place = self.make(OP.REDUCE_SUM, "ReduceSumAttribute", [place], shape, "int32", axis)
        n = int(numpy.prod([value.shape[axis] for axis in axes]))
        scale = numpy.float64(value.scale[0]) / (numpy.float64(out.scale[0]) * n)
        place = self.rescale(place, shape, ("int32", "int8"), scale, (0, self.zero(out)))
        return self.from_plain(layer, self.reshape(place, out.shape))

    def emit_slice(self, layer):
        """A Slice, or one output of a Split."""
        begin, size = layer.region(), self.shape(layer.output)
        begin = [begin[i] for i in TO_NHWC] if len(begin) == 4 else begin
        return self.to_output(layer, self.region(self.read(layer.inputs[0]), begin, size))

    emit_split = emit_slice

    # In floats: TOSA's profile of them, since the integer one has no such operators.

    def real(self, numbers, rank):
        numbers = numpy.asarray(numbers, numpy.float32)
        return self.constant(numbers.reshape([1] * (rank - numbers.ndim) + list(numbers.shape)), tosa.DType.FP32)

    def float_step(self, op, inputs, shape, *fields):
        name = "".join(word.capitalize() for word in op.name.split("_")) + "Attribute"
        inputs = [*inputs, self.int8([0])] if op == OP.MUL else inputs
        return self.make(op, name, inputs, shape, "float32", *fields)

    def real_input(self, layer):
        """(its real numbers in the model's layout, their shape) of the last axis' operators."""
        value, rank = layer.inputs[0], len(layer.output.shape)
        if layer.attributes.get("axis", -1) % rank != rank - 1:
            layer.refuse("it is converted for the last axis only")
        self.notes.append(f"layer '{layer.output.name}': a {layer.op} is computed in floats")
        shape = [int(d) for d in value.shape]
        codes = self.float_step(OP.CAST, [self.plain(value)], shape)
        steps = self.float_step(OP.SUB, [codes, self.real(self.zero(value), rank)], shape)
        return self.float_step(OP.MUL, [steps, self.real(value.scale[0], rank)], shape), shape

    def emit_layernormalization(self, layer):
        if any(v is not None and v.array is None for v in layer.inputs[1:]):
            layer.refuse("its parameters are no constants")
        x, shape = self.real_input(layer)
        rank, one = len(shape), [*shape[:-1], 1]
        share = self.real(1 / shape[-1], rank)

        def mean(place):
            return self.float_step(OP.MUL, [self.float_step(OP.REDUCE_SUM, [place], one, rank - 1), share], one)

        apart = self.float_step(OP.SUB, [x, mean(x)], shape)
        variance = mean(self.float_step(OP.MUL, [apart, apart], shape))
        more = self.float_step(OP.ADD, [variance, self.real(layer.attributes.get("epsilon", 1e-5), rank)], one)
        y = self.float_step(OP.MUL, [apart, self.float_step(OP.RSQRT, [more], one)], shape)
        y = self.float_step(OP.MUL, [y, self.real(layer.inputs[1].reals(), rank)], shape)
        if len(layer.inputs) > 2 and layer.inputs[2] is not None:
            y = self.float_step(OP.ADD, [y, self.real(layer.inputs[2].reals(), rank)], shape)
        return self.from_plain(layer, self.quantised(layer.output, y, shape))

    def emit_softmax(self, layer):
        x, shape = self.real_input(layer)
        rank, one = len(shape), [*shape[:-1], 1]
        greatest = self.float_step(OP.REDUCE_MAX, [x], one, rank - 1, NAN)
        powers = self.float_step(OP.EXP, [self.float_step(OP.SUB, [x, greatest], shape)], shape)
        total = self.float_step(OP.REDUCE_SUM, [powers], one, rank - 1)
        y = self.float_step(OP.MUL, [powers, self.float_step(OP.RECIPROCAL, [total], one)], shape)
        return self.from_plain(layer, self.quantised(layer.output, y, shape))
