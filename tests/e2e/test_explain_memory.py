#!/usr/bin/env python3
"""What npudiff explain holds at a time: not more with more samples, and less where --memory says so."""
import subprocess
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))

import onnx_write as ow
from support import NPUDIFF, Scratch, capture, main, npudiff

MIB = 1 << 20
SIDE, CHANNELS = 96, 16


def write_model(path):
    """Three convolutions, the second depthwise: 147456 values each."""
    rng = np.random.default_rng(19)
    constants, nodes = {"zero": np.uint8(128), "weight zero": np.int8(0)}, []

    def quantise(x, scale):
        constants[f"{x}.scale"] = np.float32(scale)
        nodes.append(ow.node("QuantizeLinear", [x, f"{x}.scale", "zero"], [f"{x}.codes"]))
        nodes.append(ow.node("DequantizeLinear", [f"{x}.codes", f"{x}.scale", "zero"], [f"{x}.real"]))
        return f"{x}.real"

    def convolve(x, name, shape, group):
        constants[f"{name}.w"] = rng.integers(-127, 128, shape, np.int8)
        constants[f"{name}.w.scale"] = np.float32(0.01)
        nodes.append(ow.node("DequantizeLinear", [f"{name}.w", f"{name}.w.scale", "weight zero"], [f"{name}.w.real"]))
        nodes.append(ow.node("Conv", [x, f"{name}.w.real"], [name], pads=[shape[2] // 2] * 4, group=group))
        return quantise(name, 0.02)

    x = quantise("x", 0.01)
    x = convolve(x, "a", (CHANNELS, 3, 3, 3), 1)
    x = convolve(x, "b", (CHANNELS, 1, 3, 3), CHANNELS)
    x = convolve(x, "c", (CHANNELS, CHANNELS, 1, 1), 1)
    path.write_bytes(ow.model(nodes, [ow.value_info("x", ow.FLOAT, [1, 3, SIDE, SIDE])],
                              [ow.value_info(x, ow.FLOAT, [1, CHANNELS, SIDE, SIDE])], constants))


class ExplainMemory(Scratch):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = cls.shared / "model.onnx"
        write_model(cls.model)
        for n in (4, 16, 256):
            capture(cls.model, ["emu:htp-v73"], [f"uniform:{n}"], cls.shared / f"{n}.h5")

    def peak(self, n, *arguments):
        """Bytes of the largest resident set, seen from a small process: a child's begins as its parent's."""
        command = [NPUDIFF, "explain", "--quantised", self.model, self.shared / f"{n}.h5", "-q", "--effect-samples", 0,
                   *arguments]
        watch = ("import resource, subprocess, sys\n"
                 "code = subprocess.run(sys.argv[1:]).returncode\n"
                 "print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
        done = subprocess.run([sys.executable, "-c", watch, *map(str, command)], capture_output=True, text=True, check=True)
        code, kib = done.stdout.split()
        self.assertEqual(code, "0", done.stderr)
        return int(kib) * 1024

    def test_more_samples_need_no_more(self):
        few, many = self.peak(4, "--threads", 1), self.peak(256, "--threads", 1)
        print(f"# {few / MIB:.1f} MiB for 4 samples, {many / MIB:.1f} for 256")
        # The values of 252 samples are 116 MiB as they are stored. A block of 8 samples is read at once, of 4 here.
        self.assertLess(many, few + 8 * MIB)

    def test_memory_bounds_threads(self):
        bounded, free = self.peak(16, "--threads", 4, "--memory", 32), self.peak(16, "--threads", 4)
        one = self.peak(16, "--threads", 1)
        print(f"# {one / MIB:.1f} MiB for one thread, {free / MIB:.1f} for four, {bounded / MIB:.1f} for four in 32 MiB")
        self.assertGreater(free, one * 1.3, "four threads need more")
        self.assertLess(bounded, one * 1.1)

    def test_memory_changes_no_result(self):
        arguments = ["explain", "--quantised", self.model, self.shared / "16.h5", "--layers", "--effect-samples", 2]
        self.assertEqual(npudiff(*arguments), npudiff(*arguments, "--memory", 16, "--threads", 1))


if __name__ == "__main__":
    main()
