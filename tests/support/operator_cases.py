"""The operators that src/arithmetic/operators evaluates, each with the attributes of its cases in golden/oracle/exact_ops*.bin.gz, as
chains of a model: codes, DequantizeLinear, operator, QuantizeLinear; or floats and the operator alone. Encodings and codes are
random or chosen to be difficult; all follow from a random generator."""
import gzip
import pathlib
import re
import struct

import numpy as np

import onnx_write as ow

ROOT = pathlib.Path(__file__).resolve().parents[2]
MS = "com.microsoft"

# What the second, third... input of an operator is: a parameter that no quantiser touches.
PARAMETERS = {"Resize": {1, 2, 3}, "Upsample": {1}, "Pad": {2}, "Dropout": {1, 2}, "OneHot": {0, 1, 2}, "Clip": {1, 2},
              "TopK": {1}, "CumSum": {1}, "Range": {0, 1, 2}, "QuantizeLinear": {1, 2}, "DequantizeLinear": {1, 2},
              "CastLike": {1}, "GridSample": {1}}
# Element by element, so that one row can hold every code.
ELEMENTWISE = {"nd_op_unary", "nd_op_clip", "nd_op_gelu", "nd_op_binary", "nd_op_variadic", "nd_op_where"}
# Inputs whose float values must be positive for the operator to mean anything: a variance.
POSITIVE = {"BatchNormalization": {4}}
# ONNX Runtime adds and subtracts squares along the channels: what it rounds has the size of the largest of them.
NARROW = {"LRN"}
# A product of many: float32 overflows where a double does not, and infinity times 0 is NaN. No reference claims to know that.
# Recurrent weights of a million: what float32 rounds in such sums moves a gate from one end to the other.
SMALL = {"ReduceProd", "GRU", "LSTM", "RNN"}
# On x86 without VNNI ONNX Runtime adds two products of bytes in 16 bits, which saturate: -49455 in place of -53689. Of 7 bits they
# fit, 2 * 255 * 64.
OF_BYTES = {"MatMulInteger", "QLinearMatMul"}


class Operator:
    def __init__(self, domain, name, function):
        self.domain, self.name, self.function, self.cases = domain, name, function, []

    def __str__(self):
        return f"{self.domain}.{self.name}".lstrip(".")


class Case:
    def __init__(self, text, opset, proto, inputs, outputs):
        self.text, self.opset, self.inputs, self.outputs = text, opset, inputs, outputs
        fields = list(read_fields(proto))
        self.input_given = [bool(data) for number, data, _ in fields if number == 1]
        self.output_given = [bool(data) for number, data, _ in fields if number == 2]
        self.op_type = next(data for number, data, _ in fields if number == 4).decode()
        self.domain = next((data.decode() for number, data, _ in fields if number == 7), "")
        self.attributes = b"".join(whole for number, _, whole in fields if number == 5)


def read_varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return value, at


def read_fields(data):
    """(number, contents, the field's own bytes) of each field of a message that is of bytes."""
    at = 0
    while at < len(data):
        begin = at
        key, at = read_varint(data, at)
        n, at = read_varint(data, at)
        if key & 7 != 2:
            yield key >> 3, b"", data[begin:at]
            continue
        yield key >> 3, data[at:at + n], data[begin:at + n]
        at += n


def operators():
    """Every operator of the tables in src/arithmetic/operators/ops_*.c, by (domain, name)."""
    text = "".join(f.read_text() for f in sorted((ROOT / "src/arithmetic/operators").glob("ops_*.c")))
    rows = re.findall(r'\{(""|MS), "(\w+)", \d+, (\w+)\}', text)
    return {(MS if d == "MS" else "", name): Operator(MS if d == "MS" else "", name, function) for d, name, function in rows}


def read_list(data, at):
    made = []
    n = data[at]
    at += 1
    for _ in range(n):
        present = data[at]
        at += 1
        if not present:
            made.append(None)
            continue
        kind, rank = data[at], data[at + 1]
        at += 2
        shape = struct.unpack_from(f"<{rank}I", data, at)
        at += 4 * rank
        count = int(np.prod(shape, dtype=np.int64))
        made.append((kind, np.frombuffer(data, "<f8", count, at).reshape(shape)))
        at += 8 * count
    return made, at


def with_cases():
    """The operators, with their cases."""
    found = operators()
    for name in ("exact_ops", "exact_ops_more"):
        read_cases(gzip.decompress((ROOT / f"golden/oracle/{name}.bin.gz").read_bytes()), found)
    return found


def read_cases(data, found):
    at = 12
    for _ in range(struct.unpack_from("<I", data, 8)[0]):
        n, = struct.unpack_from("<H", data, at)
        text = data[at + 2:at + 2 + n].decode(errors="replace")
        opset, _, length = struct.unpack_from("<HBI", data, at + 2 + n)
        at += 9 + n
        proto = data[at:at + length]
        inputs, at = read_list(data, at + length)
        outputs, at = read_list(data, at)
        case = Case(text, opset, proto, inputs, outputs)
        found[case.domain, case.op_type].cases.append(case)


# ---- encodings and codes ----

NUMPY = {ow.FLOAT: np.float32, ow.U8: np.uint8, ow.I8: np.int8, ow.U16: np.uint16, ow.I16: np.int16, ow.I32: np.int32,
         ow.I64: np.int64, ow.BOOL: np.bool_, ow.F16: np.float16, ow.F64: np.float64}


def encoding(rng, dtype, is_positive=False):
    """(scale, zero point): of a range such as calibrations give it, whose numbers meet whole ones; a power of two, whose
    quotients are ties; tiny, huge; the zero point in the middle, at an end, anywhere."""
    info = np.iinfo(dtype)
    steps = int(info.max) - int(info.min)
    kind = rng.integers(8)
    if kind < 3:
        scale = float(rng.choice([1, 2, 3, 4, 6, 8, 10, 20])) / steps
    elif kind == 3:
        scale = 2.0 ** -int(rng.integers(0, 8)) * 255 / steps
    elif kind == 4:
        scale = 10.0 ** rng.uniform(-9, -5)
    elif kind == 5:
        scale = 10.0 ** rng.uniform(0, 5)
    else:
        scale = 10.0 ** rng.uniform(-3, 0) * 255 / steps
    where = rng.integers(5)
    zero = [int(info.min), int(info.max), (steps + 1) // 2 + int(info.min), int(rng.integers(info.min, info.max + 1)),
            int(info.min) + steps // 4][where]
    return np.float32(scale), dtype(int(info.min) if is_positive else zero)


def codes(rng, dtype, shape, scale, zero):
    """All codes where there is room, else random ones; with both ends, those about the zero point, and, a quarter, those whose
    value is all but a multiple of a half: there functions jump, and ties are."""
    info = np.iinfo(dtype)
    n = int(np.prod(shape, dtype=np.int64))
    made = rng.integers(info.min, int(info.max) + 1, n).astype(dtype)
    if n >= 256 and info.max - info.min == 255:
        made[:256] = np.arange(info.min, int(info.max) + 1)
    near = [c for c in range(int(zero) - 2, int(zero) + 3) if info.min <= c <= info.max]
    special = np.array([info.min, info.max, *near], dtype)
    values = (np.arange(info.min, int(info.max) + 1) - float(zero)) * float(scale)
    whole = np.flatnonzero((np.abs(values * 2 - np.rint(values * 2)) < 1e-4) & (values != 0) & (np.abs(values) < 1e4)) + info.min
    if n > 2 * len(special):
        made[-len(special):] = special
        n_whole = n // 4 if whole.size else 0
        made[-len(special) - n_whole:-len(special)] = rng.choice(whole, n_whole) if n_whole else []
    rng.shuffle(made)
    return made.reshape(shape)


SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, 2, 3, 30, -30, 100, -100, 1e-40, -1e-40,
                    1e-8, 1e8, -1e8, 3e38, -3e38, 1 / 3, np.pi])


def floats(rng, dtype, shape, is_positive=False, is_wide=True):
    n = int(np.prod(shape, dtype=np.int64))
    share = 0.5 if is_wide else 0
    made = np.where(rng.random(n) >= share, rng.normal(0, 2, n), np.exp(rng.uniform(-6, 6, n)) * rng.choice([-1, 1], n))
    if n >= 256: # else the one value would decide all that is summed with it
        at = rng.permutation(n)[:len(SPECIAL)]
        made[at] = SPECIAL[:len(at)]
    with np.errstate(over="ignore"):
        return (np.abs(made) if is_positive else made).reshape(shape).astype(dtype)


# ---- chains ----

class Chain:
    """One operator with its inputs. feeds: {graph input: array}; quantise(y) adds what comes after the operator."""

    def __init__(self, number, case, dtype, rng):
        self.case, self.dtype, self.name = case, np.dtype(dtype).type, f"c{number}"
        self.nodes, self.constants, self.feeds, self.outputs, self.encodings = [], {}, {}, [], {}
        self.is_quantised = np.dtype(dtype).kind in "ui"
        self.magnitude = 0.0
        names = [self.add_input(rng, k) if given else "" for k, given in enumerate(case.input_given)]
        made = [f"{self.name}.y{k}" if given else "" for k, given in enumerate(case.output_given)]
        attributes = case.attributes
        self.nodes.append(ow.node(case.op_type, names, made, f"{self.name}.{case.op_type}", case.domain, attributes))
        own = ow.FLOAT if self.is_quantised else ow.onnx_type(dtype)
        kinds = [own if o is None or o[0] == ow.F64 else o[0] for o in case.outputs]
        self.outputs = [self.as_float(m) if kinds[k] not in NUMPY else (m, kinds[k]) for k, m in enumerate(made) if m]
        if not self.feeds: # or the result would be a constant
            self.outputs = [self.add_operand(*o) for o in self.outputs]

    def reals(self):
        """The numbers that the inputs of the model stand for."""
        for name, x in self.feeds.items():
            scale, zero = self.encodings.get(name.removesuffix(".q"), (1, 0))
            yield (x.astype(np.float64) - zero) * scale

    def as_float(self, output):
        """Of a type that numpy does not have."""
        self.nodes.append(ow.node("Cast", [output], [output + ".f"], to=ow.FLOAT))
        return output + ".f", ow.FLOAT

    def add_operand(self, output, kind):
        """The output plus 0.0 that is an input of the model."""
        self.feeds[output + ".zero"] = np.zeros(1, np.float32)
        self.nodes += [ow.node("Cast", [output], [output + ".c"], to=ow.FLOAT),
                       ow.node("Add", [output + ".c", output + ".zero"], [output + ".sum"])]
        return output + ".sum", ow.FLOAT

    def q_domain(self):
        return "" if self.case.opset >= 21 else MS

    def shape_of(self, k, stored):
        if self.wide and stored.ndim > 0:
            return (512,) if k == 0 or stored.ndim == self.case.inputs[0][1].ndim else (1,) * stored.ndim
        return stored.shape

    @property
    def wide(self):
        first = next((i for i in self.case.inputs if i is not None), None)
        function = OPERATORS[self.case.domain, self.case.op_type].function
        shapes = {i[1].shape for i in self.case.inputs if i is not None and i[1].ndim > 0}
        return function in ELEMENTWISE and first is not None and len(shapes) == 1

    def add_input(self, rng, k):
        kind, stored = self.case.inputs[k]
        name, shape = f"{self.name}.x{k}", self.shape_of(k, stored)
        is_parameter = k in PARAMETERS.get(self.case.op_type, ())
        if kind != ow.F64 or is_parameter:
            if self.case.op_type in OF_BYTES and kind == ow.I8:
                stored = np.floor(stored / 2)
            if shape != stored.shape: # a condition of Where
                stored = rng.choice(stored.reshape(-1), shape)
            has_floats = any(i is not None and i[0] == ow.F64 for i in self.case.inputs)
            to = self.feeds if not has_floats and not is_parameter and kind in NUMPY else self.constants
            to[name] = stored.astype(np.float32 if kind == ow.F64 and self.is_quantised else
                                                 self.dtype if kind == ow.F64 and self.case.op_type not in ("Resize", "Upsample")
                                                 else np.float32 if kind == ow.F64 else NUMPY[kind])
            return name
        is_positive = k in POSITIVE.get(self.case.op_type, ())
        if not self.is_quantised:
            self.feeds[name] = floats(rng, self.dtype, shape, is_positive, self.case.op_type not in NARROW)
            return name
        scale, zero = encoding(rng, self.dtype, is_positive)
        if self.case.op_type in SMALL:
            scale = np.minimum(scale, np.float32(1 / 256))
        if self.encodings and rng.integers(3) == 0: # values of two operands that meet
            scale = np.float32(list(self.encodings.values())[0][0] * float(rng.choice([1, 2, 0.5])))
        self.feeds[name + ".q"] = codes(rng, self.dtype, shape, scale, zero)
        self.constants.update({name + ".s": scale, name + ".z": zero})
        self.encodings[name] = (float(scale), int(zero))
        self.magnitude = max(self.magnitude, float(scale) * float(np.iinfo(self.dtype).max) * 2)
        self.nodes.append(ow.node("DequantizeLinear", [name + ".q", name + ".s", name + ".z"], [name], domain=self.q_domain()))
        return name

    def quantised(self, output, kind, number, scale, zero):
        """Nodes and constants of the QuantizeLinear number `number` behind an output, and its name."""
        name = f"{output}.q{number}"
        source, nodes = output, []
        if kind != ow.FLOAT and kind != ow.F64:
            source = f"{name}.f"
            nodes.append(ow.node("Cast", [output], [source], to=ow.FLOAT))
        nodes.append(ow.node("QuantizeLinear", [source, name + ".s", name + ".z"], [name], domain=self.q_domain()))
        return nodes, {name + ".s": np.float32(scale), name + ".z": self.dtype(zero)}, name


OPERATORS = operators()
