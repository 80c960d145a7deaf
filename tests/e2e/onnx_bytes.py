"""Models changed without onnx: the bytes of initializers are found by reading the protobuf."""
import pathlib
import sys

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import onnx_write as ow  # noqa: E402


def _varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def _fields(data, begin, end):
    """(number, wire type, value or (begin, end)) of every field of a message."""
    at = begin
    while at < end:
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(data, at)
        else:
            length, at = _varint(data, at) if kind == 2 else ({1: 8, 5: 4}[kind], at)
            value, at = (at, at + length), at + length
        yield key >> 3, kind, value


def initializers(data):
    """{name: (dims, begin, end of the bytes of its data)} of the graph: raw_data, or packed float_data or int32_data."""
    found = {}
    for number, _, graph in _fields(data, 0, len(data)):
        if number != 7:
            continue
        for field, _, tensor in _fields(data, *graph):
            if field != 5:
                continue
            dims, name, raw = [], "", None
            for part, kind, value in _fields(data, *tensor):
                if part == 1 and kind == 0:
                    dims.append(value)
                elif part == 1:
                    at = value[0]
                    while at < value[1]:
                        dim, at = _varint(data, at)
                        dims.append(dim)
                elif part == 8:
                    name = data[value[0]:value[1]].decode()
                elif part in (4, 5, 9) and kind == 2:
                    raw = value
            if raw is not None:
                found[name] = (dims, *raw)
    return found


def _signed_tensor(tensor):
    """An initializer of uint8 as one of int8; others are None."""
    parts = list(_fields(tensor, 0, len(tensor)))
    if (2, 0, 2) not in parts: # data_type UINT8
        return None
    kept, values = b"", []
    for number, kind, value in parts:
        if number in (1, 8): # dims, name
            kept += ow.piece(number, tensor[value[0]:value[1]]) if kind == 2 else ow.varint(number << 3) + ow.varint(value)
        elif number == 5: # int32_data
            at, end = value if kind == 2 else (0, 0)
            values += [] if kind == 2 else [value]
            while at < end:
                one, at = _varint(tensor, at)
                values.append(one)
        elif number == 9: # raw_data
            values = list(tensor[value[0]:value[1]])
    return kept + ow.varint(2 << 3) + ow.varint(3) + ow.piece(9, bytes(value ^ 0x80 for value in values))


def signed(data):
    """The model with all initializers of uint8 as int8: every quantised value and every zero point is 128 less."""
    begin, end = next(value for number, _, value in _fields(data, 0, len(data)) if number == 7)
    graph = b""
    for number, _, value in _fields(data, begin, end):
        piece = data[value[0]:value[1]]
        graph += ow.piece(number, (_signed_tensor(piece) if number == 5 else None) or piece)
    head = begin - len(ow.varint(end - begin)) - 1
    return data[:head] + ow.piece(7, graph) + data[end:]


def outputs(data):
    """The names of the graph's outputs."""
    found = []
    for number, _, graph in _fields(data, 0, len(data)):
        for field, _, value in _fields(data, *graph) if number == 7 else ():
            if field == 12:
                found += [data[b:e].decode() for part, _, (b, e) in ((f, k, v) for f, k, v in _fields(data, *value) if f == 1)]
    return found
