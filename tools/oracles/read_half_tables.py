#!/usr/bin/env python3
"""Reads functions of float16 out of the HTP's simulator, every number, for src/arithmetic/htp/tables.

usage: read_half_tables.py [--chip gen3] [FUNCTION...]

For each function (Tanh, Sigmoid, ..., and Pow by 2) a float model of that operator alone is captured on all 63 488 finite float16 numbers. A
table has, for each of the 65 536 patterns of 16 bits, the float16 that the device makes of it (0 where that is not known), as
differences from the entry before it, 16 bits each, little-endian, deflated by zlib. $NPUDIFF names the program."""
import argparse
import os
import pathlib
import subprocess
import tempfile
import zlib

import h5py
import numpy as np
import onnx
from onnx import TensorProto, helper

ROOT = pathlib.Path(__file__).resolve().parents[2]
NPUDIFF = os.environ.get("NPUDIFF", ROOT / "build/src/cli/npudiff")
FUNCTIONS = ["Cos", "Exp", "Log", "Pow", "Reciprocal", "Sigmoid", "Sin", "Softplus", "Sqrt", "Tanh"]
EXPONENT = 2  # of Pow
PATTERNS = 1 << 16
SHAPE = (1, 64, PATTERNS // 64)


def read_out(function, chip, folder):
    """uint16[65536]: what the device makes of each float16, as patterns of bits."""
    numbers = np.arange(PATTERNS, dtype=np.uint32).astype(np.uint16).view(np.float16)
    is_number = np.isfinite(numbers)
    constants = [helper.make_tensor("exponent", TensorProto.FLOAT, [], [EXPONENT])] if function == "Pow" else []
    graph = helper.make_graph([helper.make_node(function, ["x", *(c.name for c in constants)], ["y"])], function,
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, SHAPE)], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), folder / "m.onnx")
    np.savez(folder / "x.npz", x=np.where(is_number, numbers, 0).astype(np.float32).reshape(SHAPE))
    subprocess.run([NPUDIFF, "capture", folder / "m.onnx", "-d", f"htp-sim:{chip}", "-p", f"x={folder / 'x.npz'}", "-o",
                    folder / "c.h5", "-f", "-q"], check=True)
    with h5py.File(folder / "c.h5") as capture:
        made = capture["probes/x/outputs/y"][()].reshape(PATTERNS)
    bits = made.view(np.uint32)
    with np.errstate(over="ignore"):
        patterns = made.astype(np.float16).view(np.uint16)
    # The device has no infinity: the greatest exponent is one like the others.
    is_great = (np.abs(made) >= 65536) & np.isfinite(made)
    patterns = np.where(is_great, (bits >> 16 & 0x8000) | 0x7c00 | (bits >> 13 & 0x3ff), patterns)
    return np.where(is_number, patterns, 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chip", default="gen3")
    parser.add_argument("functions", nargs="*", metavar="FUNCTION", default=FUNCTIONS)
    options = parser.parse_args()
    for function in options.functions:
        with tempfile.TemporaryDirectory() as folder:
            made = read_out(function, options.chip, pathlib.Path(folder)).astype(np.int32)
        steps = np.diff(made, prepend=0).astype("<i2")
        path = ROOT / f"src/arithmetic/htp/tables/{function}.z"
        path.write_bytes(zlib.compress(steps.tobytes(), 9))
        print(path.relative_to(ROOT), path.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
