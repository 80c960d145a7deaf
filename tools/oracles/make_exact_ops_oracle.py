#!/usr/bin/env python3
"""Makes golden/oracle/exact_ops.bin.gz and, of later operators, exact_ops_more.bin.gz: what the operators of src/exact must give, in double precision.

Every case is one node with its inputs and outputs. The outputs are those of onnx.reference with float64 inputs, or of
tools/oracles/exact_ops_formulas.py where tools/oracles/exact_ops_cases.py gives `want`. The latter is so where onnx.reference
* works in single precision: Erf, Gelu, HardSwish, DequantizeLinear, GroupNormalization, weights of a cubic Resize;
* is wrong: indices of MaxPool, LpPool with ceil_mode, GlobalMaxPool but for four dimensions, LpNormalization with p = 1, LRN,
  saturation of QuantizeLinear, Softmax and the like before opset 13, size of a Resize by a scale that is no binary fraction;
* takes another side: NaN in MaxPool, division of negative integers, Cast to narrow floats (kept here);
* or refuses: com.microsoft, dilated and padded pooling, three spatial axes.
Where it disagrees, a line "reference differs" says so.

Format, little endian: "NDOPS001", u32 cases; per case: u16 length and name, u16 opset, u8 exact (compare bits), u32 length
and NodeProto, inputs, outputs. A list of tensors: u8 count, each u8 present, and if so u8 type, u8 rank, u32 dimensions,
float64 elements.

usage: make_exact_ops_oracle.py OUTPUT_FOLDER [SEED]        needs onnx 1.23.2 and numpy
"""

import gzip
import pathlib
import struct
import sys

import numpy as np
from onnx import helper
from onnx.reference import ReferenceEvaluator

from exact_ops_cases import FAMILIES, MORE_FAMILIES, MS


class Cases:
    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.cases = []

    def x(self, *shape, low=-4, high=4):
        """Random multiples of 1/64."""
        return self.random.integers(low * 64, high * 64, shape) / 64.0

    def codes(self, dtype, *shape):
        info = np.iinfo(dtype)
        return self.random.integers(info.min, int(info.max) + 1, shape, dtype=dtype)

    def add(self, op, inputs, attributes=None, *, opset=21, domain="", outputs=1, exact=False, want=None, name=""):
        """outputs: how many, or a list of flags (False: omitted). want: an array, an array and its ONNX type as a tuple, a list of
        these for several outputs, or None."""
        flags = [True] * outputs if isinstance(outputs, int) else outputs
        inputs = [None if i is None else np.asarray(i) for i in inputs]
        node = helper.make_node(op, [f"i{k}" if i is not None else "" for k, i in enumerate(inputs)],
                                [f"o{k}" if flag else "" for k, flag in enumerate(flags)], domain=domain,
                                **(attributes or {}))
        if want is not None and not isinstance(want, list):
            want = [want]
        made = None
        try:
            made = self.evaluate(node, inputs, opset)
        except Exception as error:  # what it cannot do, it says in many ways
            if want is None:
                raise RuntimeError(f"{op} {attributes} opset {opset}: {error}") from error
        if want is None:
            want = made
        elif made is not None and any(g is not None and not same(w, g) for w, g in zip(want, made)):
            print(f"reference differs: {op} opset {opset} {attributes}")
        label = f"{len(self.cases)} {op} opset {opset} {name or attributes or ''}"
        self.cases.append((label, opset, exact, node, inputs, want))

    @staticmethod
    def evaluate(node, inputs, opset):
        values = {f"i{k}": i for k, i in enumerate(inputs) if i is not None}
        graph = helper.make_graph(
            [node], "case",
            [helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for k, v in values.items()],
            [helper.make_empty_tensor_value_info(o) for o in node.output if o])
        opsets = [helper.make_opsetid("", opset), helper.make_opsetid(MS, 1)]
        with np.errstate(all="ignore"):
            made = iter(ReferenceEvaluator(helper.make_model(graph, opset_imports=opsets)).run(None, values))
        return [np.asarray(next(made)) if o else None for o in node.output]


def same(a, b):
    a, b = np.asarray(a[0] if isinstance(a, tuple) else a, np.float64), np.asarray(b, np.float64)
    return a.shape == b.shape and np.allclose(a, b, rtol=1e-12, atol=1e-12, equal_nan=True)


# ---- the file ----

def pack_tensor(value):
    if value is None:
        return b"\0"
    array, kind = value if isinstance(value, tuple) else (np.asarray(value), None)
    kind = helper.np_dtype_to_tensor_dtype(array.dtype) if kind is None else kind
    head = struct.pack(f"<BBB{array.ndim}I", 1, kind, array.ndim, *array.shape)
    return head + array.astype("<f8").tobytes()


def pack_list(values):
    return struct.pack("<B", len(values)) + b"".join(map(pack_tensor, values))


def pack_case(case):
    name, opset, exact, node, inputs, outputs = case
    text, proto = name.encode()[:400], node.SerializeToString(deterministic=True)
    outputs = [outputs] if isinstance(outputs, tuple) else outputs
    return (struct.pack("<H", len(text)) + text + struct.pack("<HBI", opset, exact, len(proto)) + proto +
            pack_list(inputs) + pack_list(outputs))


def write(path, families, seed):
    cases = Cases(seed)
    for family in families:
        family(cases)
    data = b"NDOPS001" + struct.pack("<I", len(cases.cases)) + b"".join(map(pack_case, cases.cases))
    with open(path, "wb") as file, gzip.GzipFile(fileobj=file, mode="wb", mtime=0, compresslevel=9, filename="") as out:
        out.write(data)
    print(f"{path}: {len(cases.cases)} cases, {len(data)} bytes before compression")


def main():
    folder, seed = pathlib.Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    write(folder / "exact_ops.bin.gz", FAMILIES, seed)
    write(folder / "exact_ops_more.bin.gz", MORE_FAMILIES, seed)


if __name__ == "__main__":
    main()
