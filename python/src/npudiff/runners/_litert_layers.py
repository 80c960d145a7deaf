"""Layers of exec:litert that work on other than images, or for which TFLite has no operator of its own (see litert.py)."""
import numpy
from ai_edge_litert import schema_py_generated as tfl

from npudiff.runners._quantised import MIDDLE, TO_NHWC

OP = tfl.BuiltinOperator


class OtherLayers:
    """A part of litert.Converter. notes: sentences on what is made in another way than by one operator, for the log."""

    def plain(self, layer, value):
        """The value in the model's layout; a constant as it is."""
        return self.in_model_layout(layer, value) if value.array is None else self.constant(value)

    def finish_plain(self, layer, code, inputs, options=None, **fields):
        """An operator in the model's layout that makes the output."""
        if len(layer.output.shape) != 4:
            self.file.operator(code, inputs, self.finish(layer), options, **fields)
            return
        middle = self.new(layer, layer.output, layer.output.shape)
        self.file.operator(code, inputs, middle, options, **fields)
        self.file.operator(OP.TRANSPOSE, [middle, self.integers(TO_NHWC)], self.finish(layer), "TransposeOptions")

    def reals(self, numbers):
        numbers = numpy.asarray(numbers, numpy.float32)
        return self.file.tensor("", numbers.shape, "float32", data=numbers)

    # Products.

    def emit_product(self, layer):
        """A MatMul of two activations. BATCH_MATMUL has no uint8: then all three are moved to int8 and back, which loses nothing."""
        first, second = layer.inputs
        if len(first.shape) != len(second.shape):
            layer.refuse("a MatMul of activations with different ranks is not converted")
        places = [self.plain(layer, first), self.plain(layer, second)]
        if self.type == "int8":
            self.finish_plain(layer, OP.BATCH_MATMUL, places, "BatchMatMulOptions")
            return
        for k, value in enumerate(layer.inputs):
            moved = self.as_int8(value)
            self.file.operator(OP.QUANTIZE, [places[k]], moved, "QuantizeOptions")
            places[k] = moved
        product = self.as_int8(layer.output)
        self.file.operator(OP.BATCH_MATMUL, places, product, "BatchMatMulOptions")
        self.finish_plain(layer, OP.QUANTIZE, [product], "QuantizeOptions")

    def as_int8(self, value):
        zero = value.zero - MIDDLE[value.type]
        return self.file.tensor("", value.shape, "int8", (value.scale, zero, None))

    def emit_div(self, layer):
        """By one constant: a MUL by one over it, which TFLite keeps as a scale. By an activation: DIV, which TFLite has for uint8."""
        divisor = layer.divisor()
        if divisor is not None and divisor > 0:
            self.notes.append(f"layer '{layer.output.name}': a Div by {divisor:g} is a MUL by 1/{divisor:g}")
            middle = numpy.array([MIDDLE[self.type]])
            place = self.file.tensor("", [1], self.type, (numpy.array([1 / divisor], numpy.float32), middle, None), middle + 1)
            self.file.operator(OP.MUL, [self.read(layer.inputs[0]), place], self.finish(layer), "MulOptions",
                               fusedActivationFunction=self.activation(layer))
        elif self.type == "uint8":
            self.file.operator(OP.DIV, [self.read(value) for value in layer.inputs], self.finish(layer), "DivOptions",
                               fusedActivationFunction=self.activation(layer))
        else:
            layer.refuse("TFLite has no DIV of int8")

    # One number for each channel.

    def emit_batchnormalization(self, layer):
        self.notes.append(f"layer '{layer.output.name}': a BatchNormalization is a DEPTHWISE_CONV_2D of 1 x 1")
        self.emit_conv(layer.as_depthwise(*layer.batch_norm()))

    def emit_hardsigmoid(self, layer):
        """alpha x + beta, clipped by what the output can hold."""
        out = layer.output
        if numpy.rint(1 / out.scale[0]) + out.zero[0] < numpy.iinfo(out.type).max:
            layer.refuse("its output holds numbers above 1, and TFLite has no such activation")
        self.notes.append(f"layer '{out.name}': a HardSigmoid is a DEPTHWISE_CONV_2D of 1 x 1 with RELU")
        affine = layer.as_depthwise(layer.attributes.get("alpha", 0.2), layer.attributes.get("beta", 0.5))
        affine.clamp = (0.0, None)
        self.emit_conv(affine)

    # Means and regions.

    def emit_reducemean(self, layer):
        axes, value, out = layer.axes(), layer.inputs[0], layer.output
        if len(value.shape) == len(out.shape) == 4:
            axes = [TO_NHWC.index(axis) for axis in axes]
            self.file.operator(OP.MEAN, [self.read(value), self.integers(axes)], self.finish(layer), "ReducerOptions", keepDims=True)
        else:
            self.finish_plain(layer, OP.MEAN, [self.in_model_layout(layer, value), self.integers(axes)], "ReducerOptions",
                              keepDims=len(value.shape) == len(out.shape))

    def emit_slice(self, layer):
        """A Slice, or one output of a Split."""
        begin, size = layer.region(), list(layer.output.shape)
        if len(size) == 4:
            begin, size = [begin[i] for i in TO_NHWC], [size[i] for i in TO_NHWC]
        self.emit_kept(layer, OP.SLICE, [self.read(layer.inputs[0]), self.integers(begin), self.integers(size)], "SliceOptions")

    emit_split = emit_slice

    # Curves and norms.

    def emit_gelu(self, layer):
        self.file.operator(OP.GELU, [self.read(layer.inputs[0])], self.finish(layer), "GeluOptions",
                           approximate=layer.attributes.get("approximate", b"none") == b"tanh")

    def float_step(self, code, inputs, shape, options=None, **fields):
        place = self.file.tensor("", shape, "float32")
        self.file.operator(code, inputs, place, options, **fields)
        return place

    def emit_layernormalization(self, layer):
        """TFLite has none: in floats, as its converter writes it."""
        value, rank = layer.inputs[0], len(layer.output.shape)
        if layer.attributes.get("axis", -1) % rank != rank - 1:
            layer.refuse("a LayerNormalization over more than the last axis is not converted")
        if any(v is not None and v.array is None for v in layer.inputs[1:]):
            layer.refuse("its parameters are no constants")
        self.notes.append(f"layer '{layer.output.name}': a LayerNormalization is computed in floats: TFLite has none of 8 bits")
        shape, one = list(value.shape), [*value.shape[:-1], 1]
        last = self.integers([rank - 1])
        x = self.float_step(OP.DEQUANTIZE, [self.in_model_layout(layer, value)], shape, "DequantizeOptions")
        mean = self.float_step(OP.MEAN, [x, last], one, "ReducerOptions", keepDims=True)
        squares = self.float_step(OP.SQUARED_DIFFERENCE, [x, mean], shape, "SquaredDifferenceOptions")
        variance = self.float_step(OP.MEAN, [squares, last], one, "ReducerOptions", keepDims=True)
        more = self.float_step(OP.ADD, [variance, self.reals(layer.attributes.get("epsilon", 1e-5))], one, "AddOptions")
        factor = self.float_step(OP.RSQRT, [more], one)
        y = self.float_step(OP.SUB, [x, mean], shape, "SubOptions")
        y = self.float_step(OP.MUL, [y, factor], shape, "MulOptions")
        y = self.float_step(OP.MUL, [y, self.reals(layer.inputs[1].reals())], shape, "MulOptions")
        if len(layer.inputs) > 2 and layer.inputs[2] is not None:
            y = self.float_step(OP.ADD, [y, self.reals(layer.inputs[2].reals())], shape, "AddOptions")
        self.finish_plain(layer, OP.QUANTIZE, [y], "QuantizeOptions")

    def emit_wide_softmax(self, layer, like):
        """Of four dimensions, along the model's last one. like: the steps that TFLite's kernel demands."""
        shape, out = layer.output.shape, layer.output
        middle = self.new(layer, like, shape)
        self.file.operator(OP.SOFTMAX, [self.in_model_layout(layer, layer.inputs[0])], middle, "SoftmaxOptions", beta=1.0)
        if self.is_alike(like, out):
            self.file.operator(OP.TRANSPOSE, [middle, self.integers(TO_NHWC)], self.finish(layer), "TransposeOptions")
        else:
            self.finish_plain(layer, OP.QUANTIZE, [middle], "QuantizeOptions")
