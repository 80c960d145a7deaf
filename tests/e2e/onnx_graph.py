"""Models whose graph is made anew, without onnx: in another order, or int8 in the place of uint8."""
import pathlib
import sys

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import onnx_bytes  # noqa: E402
import onnx_write as ow  # noqa: E402


def _signed_tensor(tensor):
    """An initializer of uint8 as one of int8; others are None."""
    parts = list(onnx_bytes._fields(tensor, 0, len(tensor)))
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
                one, at = onnx_bytes._varint(tensor, at)
                values.append(one)
        elif number == 9: # raw_data
            values = list(tensor[value[0]:value[1]])
    return kept + ow.varint(2 << 3) + ow.varint(3) + ow.piece(9, bytes(value ^ 0x80 for value in values))


def fields_of_graph(data):
    """[(number, bytes)] of the graph of a model."""
    begin, end = next(value for number, _, value in onnx_bytes._fields(data, 0, len(data)) if number == 7)
    return [(number, data[value[0]:value[1]]) for number, _, value in onnx_bytes._fields(data, begin, end)]


def with_graph(data, fields):
    """The model with a graph of these fields."""
    begin, end = next(value for number, _, value in onnx_bytes._fields(data, 0, len(data)) if number == 7)
    head = begin - len(ow.varint(end - begin)) - 1
    return data[:head] + ow.piece(7, b"".join(ow.piece(number, piece) for number, piece in fields)) + data[end:]


def signed(data):
    """The model with all initializers of uint8 as int8: every quantised value and every zero point is 128 less."""
    return with_graph(data, [(number, (_signed_tensor(piece) if number == 5 else None) or piece)
                             for number, piece in fields_of_graph(data)])
