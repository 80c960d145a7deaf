"""Small ONNX models without the onnx package: the protobuf fields that operators, constants and tensors need."""
import struct

import numpy as np

FLOAT, U8, I8, U16, I16, I32, I64, BOOL, F16, F64 = 1, 2, 3, 4, 5, 6, 7, 9, 10, 11
ONNX_TYPE = {"f4": FLOAT, "u1": U8, "i1": I8, "u2": U16, "i2": I16, "i4": I32, "i8": I64, "b1": BOOL, "f2": F16, "f8": F64}


def onnx_type(dtype):
    return ONNX_TYPE[np.dtype(dtype).str[1:]]


def varint(value):
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes([value])


def number(field, value):
    return varint(field << 3) + varint(value)


def piece(field, data):
    data = data.encode() if isinstance(data, str) else data
    return varint(field << 3 | 2) + varint(len(data)) + data


def attribute(name, value):
    if isinstance(value, float):
        return piece(1, name) + varint(2 << 3 | 5) + struct.pack("<f", value) + number(20, 1)
    if isinstance(value, int):
        return piece(1, name) + number(3, value) + number(20, 2)
    if isinstance(value, str):
        return piece(1, name) + piece(4, value) + number(20, 3)
    return piece(1, name) + b"".join(number(8, v) for v in value) + number(20, 7)


def node(op_type, inputs, outputs, name="", domain="", attributes=b"", **more):
    """attributes: whole fields of a NodeProto, as they are; more: attributes by name."""
    return (b"".join(piece(1, i) for i in inputs) + b"".join(piece(2, o) for o in outputs) +
            piece(3, name or (outputs[0] + ".node")) + piece(4, op_type) + attributes +
            b"".join(piece(5, attribute(k, v)) for k, v in more.items()) + (piece(7, domain) if domain else b""))


def tensor(name, array):
    array = np.asarray(array)
    return (b"".join(number(1, d) for d in array.shape) + number(2, onnx_type(array.dtype)) + piece(8, name) +
            piece(9, np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes()))


def external_tensor(name, array, path):
    """The same with its values at the end of the file `path`, beside the model."""
    array = np.asarray(array)
    with open(path, "ab") as data:
        place = {"location": path.name, "offset": data.tell(), "length": array.nbytes}
        data.write(np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes())
    return (b"".join(number(1, d) for d in array.shape) + number(2, onnx_type(array.dtype)) + piece(8, name) +
            b"".join(piece(13, piece(1, k) + piece(2, str(v))) for k, v in place.items()) + number(14, 1))


def value_info(name, kind, shape):
    """shape: None where the output's shape is left open; a text among the dimensions is a name."""
    dims = b"".join(piece(1, piece(2, d) if isinstance(d, str) else number(1, d) if d is not None else b"") for d in shape or ())
    return piece(1, name) + piece(2, piece(1, number(1, kind) + (piece(2, dims) if shape is not None else b"")))


def model(nodes, inputs, outputs, constants, opset=21):
    """nodes: of node(); inputs and outputs: of value_info(); constants: {name: array}."""
    """constants: arrays, or what tensor() and external_tensor() made."""
    graph = (b"".join(piece(1, n) for n in nodes) + piece(2, "graph") +
             b"".join(piece(5, v if isinstance(v, bytes) else tensor(k, v)) for k, v in constants.items()) +
             b"".join(piece(11, i) for i in inputs) + b"".join(piece(12, o) for o in outputs))
    return (number(1, 10) + piece(2, "npudiff-test") + piece(7, graph) + piece(8, number(2, opset)) +
            piece(8, piece(1, "com.microsoft") + number(2, 1)))
