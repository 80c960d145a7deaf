"""Files of TFLite models, written tensor by tensor and operator by operator."""
import flatbuffers
import numpy
from ai_edge_litert import schema_py_generated as tfl

TYPES = {"float32": tfl.TensorType.FLOAT32, "int8": tfl.TensorType.INT8, "uint8": tfl.TensorType.UINT8, "int32": tfl.TensorType.INT32}


class Writer:
    """A TFLite model that grows: tensors by number, operators in the order in which they run."""

    def __init__(self):
        self.graph = tfl.SubGraphT()
        self.graph.tensors, self.graph.operators, self.graph.inputs, self.graph.outputs = [], [], [], []
        self.buffers, self.codes = [tfl.BufferT()], []

    def tensor(self, name, shape, kind, quant=None, data=None):
        """quant: (scales, zero points, axis)."""
        tensor = tfl.TensorT()
        tensor.name, tensor.shape, tensor.type = name, [int(d) for d in shape], TYPES[kind]
        if quant is not None:
            tensor.quantization = tfl.QuantizationParametersT()
            tensor.quantization.scale = [float(s) for s in quant[0]]
            tensor.quantization.zeroPoint = [int(z) for z in quant[1]]
            tensor.quantization.quantizedDimension = quant[2] or 0
        if data is not None:
            buffer = tfl.BufferT()
            buffer.data = numpy.frombuffer(numpy.ascontiguousarray(data, kind).tobytes(), numpy.uint8)
            tensor.buffer = len(self.buffers)
            self.buffers.append(buffer)
        self.graph.tensors.append(tensor)
        return len(self.graph.tensors) - 1

    def operator(self, code, inputs, output, options=None, **fields):
        operator = tfl.OperatorT()
        if code not in self.codes:
            self.codes.append(code)
        operator.opcodeIndex, operator.inputs, operator.outputs = self.codes.index(code), inputs, [output]
        if options is not None:
            operator.builtinOptions = getattr(tfl, options + "T")()
            operator.builtinOptionsType = getattr(tfl.BuiltinOptions, options)
            for field, value in fields.items():
                setattr(operator.builtinOptions, field, value)
        self.graph.operators.append(operator)

    def pack(self):
        model = tfl.ModelT()
        model.version, model.subgraphs, model.buffers, model.operatorCodes = 3, [self.graph], self.buffers, []
        for code in self.codes:
            item = tfl.OperatorCodeT()
            item.builtinCode, item.deprecatedBuiltinCode, item.version = code, min(code, 127), 1
            model.operatorCodes.append(item)
        builder = flatbuffers.Builder(1 << 20)
        builder.Finish(model.Pack(builder), b"TFL3")
        return bytes(builder.Output())
