#!/usr/bin/env python3
"""Files that others have made to cost much, or to look like what they are not: each is refused before it costs anything, with
a message that names the file and what was expected."""
import os
import pathlib
import subprocess
import sys
import time
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

import numpy as np
import onnx_write
from support import MODELS, NPUDIFF, Scratch, main, npudiff

MIB = 1 << 20


def measured(*arguments):
    """(exit code, what the command said, the largest memory of it and its children in MiB, seconds)"""
    begun = time.monotonic()
    process = subprocess.Popen([NPUDIFF, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.stdout.close()
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, said, usage.ru_maxrss >> 10, time.monotonic() - begun


class Yaml(Scratch):
    def test_deep_files_are_refused_at_once(self):
        path = self.folder / "c.yaml"
        for text, mark in (("[" * 200000, "1:65"), ("items: " + "[" * 20000, "1:71")):
            path.write_text(text)
            command = ["capture", MODELS / "mul.u8.onnx", "-d", f"emu:{path}", "-p", "uniform:2", "-q", "-o", self.folder / "a.h5"]
            code, said, _, seconds = measured(*(command if text[0] == "i" else ["qualify", path, "-o", self.folder / "q"]))
            self.assertEqual(code, 2)
            self.assertIn(f"{path}:{mark}: lists and mappings lie more than 64 deep in each other", said)
            self.assertLess(seconds, 10)


class Archives(Scratch):
    def bomb(self, **arrays):
        """A .npz with zeros: {name: (type, shape)}."""
        path = self.folder / "bomb.npz"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, (dtype, shape) in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array_header_1_0(member, {"descr": dtype, "fortran_order": False, "shape": shape})
                    left = int(np.prod(shape)) * int(np.dtype(dtype).itemsize)
                    while left > 0:
                        left -= member.write(bytes(min(left, MIB)))
        return path

    def test_labels_and_targets_are_counted_before_they_are_read(self):
        for name, dtype, part in (("labels", "|u1", "has 134217728 labels for 2 samples"),
                                  ("target:logits", "<f4", "has 33554432 targets of output 'logits' for 2 samples")):
            n = 128 * MIB // np.dtype(dtype).itemsize
            path = self.bomb(**{name: (dtype, (n,)), "image": ("<f4", (2, 1, 8, 8))})
            code, said, mib, _ = measured("capture", MODELS / "cnn.w8a8.onnx", "-d", "exact", "-p", f"x={path}", "-q", "-o", self.folder / "a.h5")
            self.assertEqual(code, 2, said)
            self.assertIn(part, said)
            self.assertLess(mib, 100)
            self.assertFalse((self.folder / "a.h5").exists())

    def test_an_array_is_in_memory_once(self):
        path = self.bomb(image=("<f4", (512 * 1024, 1, 8, 8)))
        code, said, mib, _ = measured("import", "numpy", path, "-o", self.folder / "a.h5")
        self.assertEqual(code, 0, said)
        self.assertLess(mib, 128 + 100)

    def test_arrays_in_fortran_order_are_turned(self):
        values = np.arange(5 * 3 * 40 * 70, dtype=">i4").reshape(5, 3, 40, 70)
        np.savez(self.folder / "f.npz", t=np.asfortranarray(values), u=np.asfortranarray(values.astype(np.float64)))
        npudiff("import", "numpy", self.folder / "f.npz", "-o", self.folder / "a.h5")
        made = self.open(self.folder / "a.h5")
        self.assertTrue((made.values("numpy", "t") == values).all())
        self.assertTrue((made.values("numpy", "u") == values).all())


if __name__ == "__main__":
    main()
