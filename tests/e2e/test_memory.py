#!/usr/bin/env python3
"""Commands in which one allocation fails: each says so and ends with exit code 2, or does without that allocation and then
gives the very result it gives with enough memory. Never a crash, never exit code 0 (or a verdict) over a result that
lacks something, never "the device failed". Which allocations fail is drawn from a fixed seed."""
import json
import os
import pathlib
import random
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor

from support import MODELS, NPUDIFF, Scratch, capture, main

SEED = 20260
N_DRAWN = 16  # allocations of each command; ND_MEMORY_ALL=1: all of them
ALLOCATOR = os.environ["FAILING_ALLOCATOR"]


class Memory(Scratch):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        capture("cnn.w8a8.onnx", ["cpu", "emu:floor"], ["uniform:2"], cls.shared)
        cls.cpu, cls.floor = cls.shared / "cpu.h5", cls.shared / "emu-floor.h5"

    def run_once(self, command, fails_at):
        """Exit code, stdout, stderr, number of allocations, and what is left in the folder of temporary files."""
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            temporary = pathlib.Path(folder, "tmp")
            temporary.mkdir()
            count = pathlib.Path(folder, "count")
            environment = dict(os.environ, LD_PRELOAD=ALLOCATOR, NPUDIFF_FAIL_AT=str(fails_at),
                               NPUDIFF_FAIL_COUNT=str(count), TMPDIR=str(temporary),
                               SOURCE_DATE_EPOCH="1")  # an entry of a store is named after when it was added, too
            arguments = [str(a).replace("OUT", folder) for a in command]
            done = subprocess.run([NPUDIFF, *arguments], env=environment, capture_output=True, text=True, timeout=120)
            out = done.stdout.replace(folder, "OUT")
            n = int(count.read_text().split()[0]) if count.exists() else None
            return done.returncode, out, done.stderr, n, sorted(p.name for p in temporary.iterdir())

    def check(self, *command):
        code, out, _, n, _ = whole = self.run_once(command, 0)
        self.assertIn(code, (0, 1), whole)
        self.assertEqual(self.run_once(command, 0)[1], out)  # else nothing could be concluded below
        drawn = range(1, n + 1)
        if "ND_MEMORY_ALL" not in os.environ:
            drawn = sorted(random.Random(SEED).sample(drawn, min(n, N_DRAWN)))
        n_failed = 0
        with ThreadPoolExecutor(2) as pool:
            for at, found in zip(drawn, pool.map(lambda at: self.run_once(command, at), drawn)):
                where = f"npudiff {' '.join(map(str, command))}\nseed {SEED}, allocation {at} of {n}: {found}"
                # Acknowledged samples whose capture cannot be written stay in the run's folder, which the message says.
                self.assertEqual(len(found[4]), "is kept for a day" in found[2], where)
                if found[:2] == (code, out):
                    continue
                n_failed += 1
                self.assertEqual(found[0], 2, where)
                self.assertRegex(found[2], r"\[ND-\d+\]", where)
                if "--json" in command:
                    self.assertRegex(json.loads(found[1])["error"]["id"], r"^ND-\d+$", where)
        self.assertGreater(n_failed, 0)

    def test_compare(self):
        self.check("compare", self.cpu, self.floor)
        self.check("compare", self.cpu, self.floor, "--json")
        self.check("compare", self.cpu, self.cpu, "-v")

    def test_looking(self):
        self.check("info", self.cpu)
        self.check("info", "--list", self.cpu, "--json")
        self.check("verify", self.cpu)
        self.check("logs", self.cpu, "--json")
        self.check("probes", "--json")

    def test_explain_and_placement(self):
        self.check("explain", "--quantised", MODELS / "cnn.w8a8.onnx", self.cpu, self.floor, "--json")
        self.check("placement", MODELS / "cnn.w8a8.onnx", self.cpu, "--json")

    def test_capture(self):
        self.check("capture", MODELS / "mul.u8.onnx", "-d", "cpu", "-p", "zeros", "-o", "OUT/a.h5", "-q")

    def test_files(self):
        self.check("golden", "bundle", self.cpu, "-o", "OUT/bundle.json")
        self.check("export", "aihub", self.cpu, "-o", "OUT/dataset.h5")
        self.check("golden", "add", "OUT/store", self.cpu)
        self.check("encodings", "list", self.cpu, "--json")


if __name__ == "__main__":
    main()
