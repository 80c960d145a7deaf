"""Models changed in place, without onnx: the bytes of initializers are found by reading the protobuf."""


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


def outputs(data):
    """The names of the graph's outputs."""
    found = []
    for number, _, graph in _fields(data, 0, len(data)):
        for field, _, value in _fields(data, *graph) if number == 7 else ():
            if field == 12:
                found += [data[b:e].decode() for part, _, (b, e) in ((f, k, v) for f, k, v in _fields(data, *value) if f == 1)]
    return found
