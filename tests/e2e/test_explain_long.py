#!/usr/bin/env python3
"""npudiff explain of a long chain: its steps grow as the number of layers does. Instructions are counted by valgrind, as time says little
on a machine that is busy."""
import os
import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))

import onnx_write as ow
from support import NPUDIFF, Scratch, capture, main

LAYERS = 160 # twice and four times as many, too


def write_chain(path, n):
    """Products with constants and Relu in turn, each quantised: rounding down changes values in every fourth layer."""
    constants = {"s": np.float32(0.02), "z": np.uint8(10), "less": np.float32(0.7), "more": np.float32(1.41)}
    nodes = [ow.node("QuantizeLinear", ["x", "s", "z"], ["q"])]
    for i in range(n):
        real, made, codes = f"d{i}", f"r{i}", f"q{i}"
        nodes.append(ow.node("DequantizeLinear", [f"q{i - 1}" if i else "q", "s", "z"], [real]))
        nodes.append(ow.node("Relu", [real], [made]) if i % 2 else ow.node("Mul", [real, "less" if i % 4 else "more"], [made]))
        nodes.append(ow.node("QuantizeLinear", [made, "s", "z"], [codes]))
    nodes.append(ow.node("DequantizeLinear", [codes, "s", "z"], ["y"]))
    path.write_bytes(ow.model(nodes, [ow.value_info("x", ow.FLOAT, [1, 8])], [ow.value_info("y", ow.FLOAT, [1, 8])], constants))


def counts(arguments):
    """Instructions of the command, without its children; None where valgrind cannot run it."""
    if shutil.which("valgrind") is None:
        return None
    # meson has freed memory overwritten, byte by byte under valgrind: then libhdf5 is stopped as too slow. callgrind takes three
    # times as long as cachegrind, and libhdf5 nearly its limit.
    own = {k: v for k, v in os.environ.items() if k != "MALLOC_PERTURB_"} | {"NPUDIFF_CONFINE": "off"} # valgrind shares memory
    tool = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    done = subprocess.run([*tool, *map(str, arguments)], capture_output=True, text=True, env=own)
    found = [int(n.replace(",", "")) for n in re.findall(r"I +refs: +([0-9,]+)", done.stderr)]
    return max(found) if found and done.returncode == 0 else None


class ExplainLong(Scratch):
    def instructions(self, n):
        model, captures = self.shared / f"{n}.onnx", [self.shared / f"{n}.{device}.h5" for device in ("exact", "floor")]
        write_chain(model, n)
        for path, device in zip(captures, ("exact", "emu:floor")):
            capture(model, [device], ["uniform:1"], path)
        counted = counts([NPUDIFF, "explain", "--quantised", model, *captures, "--threads", 1])
        self.assertIsNotNone(counted, f"explain of {n} layers under valgrind")
        return counted

    @unittest.skipIf(counts([NPUDIFF, "--version"]) is None, "valgrind cannot run npudiff")
    def test_steps_grow_as_layers_do(self):
        one, two, four = (self.instructions(n) for n in (LAYERS, 2 * LAYERS, 4 * LAYERS))
        beyond = (four - two) - 2 * (two - one) # 0 where each layer costs the same
        print(f"# {one}, {two}, {four} instructions: {100 * beyond / four:.2f} % beyond linear")
        # Before lists and maps took the place of looks at all other layers it was 5.5 %; 2.1 % is what hash maps, the allocator
        # and libhdf5 do at these very sizes.
        self.assertLess(beyond, 0.04 * four)


if __name__ == "__main__":
    main()
