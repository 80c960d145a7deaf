"""What comparing must not miss, files that go bad while they are read, and how much memory it takes."""
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
import zlib

import numpy as np

from support import NPUDIFF, Scratch, main, npudiff, without_stages
from write_capture import Chunked, Contiguous, Edge, write_capture

MIB = 1 << 20


class BlindSpots(Scratch):
    """Differences that other tools pass over, beside what they say."""

    def write(self, name, edges, samples=2, **tensors):
        """With an edge on which all agree."""
        samples = max([len(t) for t in tensors.values()], default=samples)
        edges = [*edges, Edge("common", "uint8", [2])]
        data = {e.name: tensors.get(e.name, np.zeros((samples, *e.shape), e.stored)) for e in edges}
        return write_capture(self.folder / f"{name}.h5", name, edges, {"p": data})

    def compare(self, *arguments):
        """(exit code, JSON)"""
        done = npudiff("compare", *arguments, "--json", expect=None)
        self.assertEqual(without_stages(done.stderr), "")
        return done.returncode, json.loads(done.stdout)

    def h5diff(self, *arguments, at="/probes/p/outputs"):
        return subprocess.run(["h5diff", *map(str, arguments), at, at], capture_output=True, text=True).returncode

    def reason(self, report, edge):
        return next(e["reason"] for e in report["tensors"] if e["name"] == edge)

    def test_a_shape_mismatch(self):
        a = self.write("a", [Edge("x", "float32", [4])])
        b = self.write("b", [Edge("x", "float32", [5])])
        c = self.write("c", [Edge("x", "float32", [2, 2])])
        for other, text in ((b, "shape 4 against 5"), (c, "shape 4 against 2x2: the values are the reference's, in the same order")):
            code, report = self.compare(a, other)
            self.assertEqual((code, self.reason(report, "x")), (3, text))
            self.assertIsNone(report["tensors"][0]["pairs"][0]["differing"])
            self.assertEqual(self.h5diff(a, other), 0, "h5diff: not comparable, and exit code 0")

    def test_nothing_in_common(self):
        paths = [write_capture(self.folder / f"{i}.h5", f"d{i}", [Edge("x", "float32", [i])],
                               {"p": {"x": np.zeros((1, i), np.float32)}}) for i in (4, 5)]
        done = npudiff("compare", *paths, "--json", expect=3)
        self.assertEqual(json.loads(done)["kind"], "error")

    def test_a_tensor_that_one_side_lacks(self):
        a = self.write("a", [Edge("x", "float32", [4]), Edge("y", "float32", [4])])
        b = self.write("b", [Edge("x", "float32", [4])])
        for paths, text in (((a, b), "missing in the test"), ((b, a), "missing in the reference")):
            code, report = self.compare(*paths)
            self.assertEqual(code, 3)
            self.assertRegex(self.reason(report, "y"), text)
        code, _ = self.compare(a, b, "--atol", 1e30)
        self.assertEqual(code, 3, "no gate makes up for it")

    def test_another_type(self):
        a = self.write("a", [Edge("x", "float32", [4])])
        for dtype, expected in (("int32", 3), ("uint8", 3), ("float64", 0), ("float16", 0), ("bfloat16", 0)):
            code, report = self.compare(a, self.write("b", [Edge("x", dtype, [4])]))
            self.assertEqual(code, expected, dtype)
            self.assertEqual(report["verdict"], "within" if expected == 0 else "not comparable", "never the same")

    def test_another_scale(self):
        a = self.write("a", [Edge("x", "uint8", [4], [0.5], [3])])
        b = self.write("b", [Edge("x", "uint8", [4], [0.25], [3])])
        self.assertEqual(self.compare(a, b)[0], 3)

    def test_nan_on_one_side(self):
        edge = Edge("x", "float32", [1000])
        data = np.ones((2, 1000), np.float32)
        other = data.copy()
        other[1, 500] = np.nan
        a, b = self.write("a", [edge], x=data), self.write("b", [edge], x=other)
        for gate in (["--atol", 1e30], ["--rtol", 1e30], ["--ulp", 2**62], []):
            for paths in ((a, b), (b, a)):
                code, report = self.compare(*paths, *gate)
                pair = report["tensors"][0]["pairs"][0]
                self.assertEqual((code, pair["failing"], pair["nan"], pair["differing"]), (1, 1, 1, 1))
                self.assertEqual(pair["abs"]["max"], 0, "it is counted apart")
                self.assertIsNone(pair["tolerance"]["atol"])
        self.assertFalse(np.nanmax(abs(other - data)) > 0, "numpy's nanmax sees nothing")

    def test_nan_on_both_sides(self):
        edge = Edge("x", "float32", [3])
        one, other = (np.array([[b, 0, 0]], np.uint32).view(np.float32) for b in (0x7FC00000, 0x7FC00001))
        a, b = self.write("a", [edge], x=one), self.write("b", [edge], x=other)
        self.assertEqual(self.compare(a, a)[0], 0)
        self.assertEqual(self.compare(a, b)[0], 1, "another payload is another bit")
        self.assertEqual(self.compare(a, b, "--atol", 0)[0], 0)

    def test_infinities(self):
        edge = Edge("x", "float32", [2])
        a = self.write("a", [edge], x=np.full((1, 2), np.inf, np.float32))
        for value in (-np.inf, 3.4e38):
            b = self.write("b", [edge], x=np.array([[np.inf, value]], np.float32))
            self.assertEqual(self.compare(a, b, "--rtol", 1e30, "--atol", 1e300)[0], 1)

    def test_the_sign_of_zero(self):
        edge = Edge("x", "float32", [2])
        a = self.write("a", [edge], x=np.zeros((1, 2), np.float32))
        b = self.write("b", [edge], x=np.array([[0.0, -0.0]], np.float32))
        code, report = self.compare(a, b)
        self.assertEqual((code, report["tensors"][0]["pairs"][0]["zero_sign"]), (1, 1))
        self.assertEqual(self.compare(a, b, "--ulp", 0)[0], 0)

    def test_empty_tensors_are_equal(self):
        edge = Edge("x", "float32", [3, 0])
        a, b = self.write("a", [edge]), self.write("b", [edge])
        code, report = self.compare(a, b)
        pair = report["tensors"][0]["pairs"][0]
        self.assertEqual((code, report["verdict"], pair["elements"], pair["share"]), (0, "same", 0, 0))
        code, _ = self.compare(a, self.write("c", [Edge("x", "float32", [3, 1])]))
        self.assertEqual(code, 3)

    def test_small_numbers_under_a_relative_tolerance(self):
        edge = Edge("x", "float64", [2])
        a = self.write("a", [edge], x=np.array([[1e-20, 1]]))
        b = self.write("b", [edge], x=np.array([[9e-20, 1]]))
        self.assertEqual(self.compare(a, b, "--rtol", 0.1)[0], 1)
        self.assertEqual(self.compare(a, b, "--rtol", 7.9)[0], 1)
        self.assertEqual(self.compare(a, b, "--rtol", 8.1)[0], 0)
        self.assertTrue(np.allclose([1e-20], [9e-20], rtol=0.1), "numpy's hidden atol is 1e-8")
        pair = self.compare(a, b)[1]["tensors"][0]["pairs"][0]
        self.assertAlmostEqual(pair["tolerance"]["rtol"], 8.0)
        self.assertAlmostEqual(pair["rel"]["max"], 8.0)

    def test_fewer_samples(self):
        edge = Edge("x", "float32", [4])
        a, b = self.write("a", [edge]), self.write("b", [edge], samples=1)
        code, report = self.compare(a, b)
        self.assertEqual((code, report["tensors"][0]["pairs"][0]["coverage"]), (3, "part"))

    def test_integers_beyond_2_to_the_53(self):
        edge = Edge("x", "int64", [3])
        a = self.write("a", [edge], x=np.array([[2**53, 2**63 - 1, -(2**63)]]))
        b = self.write("b", [edge], x=np.array([[2**53 + 1, 2**63 - 2, 2**63 - 1]]))
        pair = self.compare(a, b)[1]["tensors"][0]["pairs"][0]
        self.assertEqual((pair["differing"], pair["histogram"]["1"], pair["histogram"]["-1"]), (3, 1, 1))
        self.assertEqual(float(pair["max_lsb"]), 2.0**64, "all 64 bits")


class Whole(Contiguous):
    """A tensor of one sample as chunks that are written as they are, some of them again and again."""

    def __init__(self, shuffle=False):
        self.shuffle = shuffle

    def create(self, group, name, data):
        elements = MIB // data.itemsize
        item = group.create_dataset(name, data.shape, data.dtype, chunks=(1, elements), compression="gzip",
                                    compression_opts=1, shuffle=self.shuffle, track_times=False)
        made = {}
        for start in range(0, data.shape[1], elements):
            raw = data[0, start : start + elements].tobytes()
            if raw not in made:
                made[raw] = zlib.compress(raw, 1)
            item.id.write_direct_chunk((0, start), made[raw])
        return item


def big_pair(folder, n_bytes, storage):
    """Two captures of one byte tensor; a byte of every piece of 1 MiB differs."""
    rng = np.random.default_rng(1)
    pieces = [rng.integers(0, 4, MIB, np.uint8) for _ in range(3)]
    data = np.concatenate([pieces[i % 3] for i in range(n_bytes // MIB)])[None]
    other = data.copy()
    other[0, :: MIB] ^= 1
    edge = Edge("x", "uint8", [n_bytes])
    return [write_capture(folder / f"{i}.h5", f"d{i}", [edge], {"p": {"x": d}}, storage) for i, d in enumerate((data, other))]


class Memory(Scratch):
    SIZE = 256 * MIB
    SLACK = 48 * MIB # the program, its libraries, stacks, results

    def peak(self, *arguments):
        """(exit code, largest resident set in bytes), seen from a small process: a child's begins as its parent's."""
        command = [NPUDIFF, "compare", *map(str, arguments)]
        watch = ("import resource, subprocess, sys\n"
                 "code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode\n"
                 "print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
        done = subprocess.run([sys.executable, "-c", watch, *command], capture_output=True, text=True, check=True)
        code, kib = done.stdout.split()
        return int(code), int(kib) * 1024

    def test_deflated_tensors_need_what_was_allowed(self):
        paths = big_pair(self.folder, self.SIZE, Whole())
        for memory in (64, 512):
            code, peak = self.peak(*paths, "--memory", memory, "--threads", 2)
            self.assertEqual(code, 1)
            # Of the files themselves (a few MiB) pages are resident, too.
            stored = sum(p.stat().st_size for p in paths)
            print(f"# --memory {memory}: {peak / MIB:.0f} MiB, files {stored / MIB:.0f} MiB")
            self.assertLess(peak, memory * MIB + stored + self.SLACK, f"--memory {memory}")

    def test_stored_tensors_are_not_copied(self):
        """Mapped pages are no memory of the program: it works where it may have little of its own."""
        paths = big_pair(self.folder, self.SIZE // 2, Contiguous())

        def little():
            resource.setrlimit(resource.RLIMIT_DATA, (64 * MIB, 64 * MIB))

        npudiff("compare", *paths, "-q", "--memory", 16, "--threads", 2, preexec_fn=little, expect=1)
        self.assertEqual(npudiff("compare", *paths, "--json", "--memory", 16, expect=1),
                         npudiff("compare", *paths, "--json", expect=1))

    def test_too_little_memory_is_said(self):
        """A chunk must fit; and a limit of the system is an error, not a crash."""
        edge = Edge("x", "uint8", [64 * MIB])
        data = np.zeros((1, 64 * MIB), np.uint8)
        other = data + np.uint8(1)
        paths = [write_capture(self.folder / f"{i}.h5", f"d{i}", [edge], {"p": {"x": d}}, Chunked(64 * MIB, deflate=1))
                 for i, d in enumerate((data, other))]
        done = npudiff("compare", *paths, "--memory", 16, expect=None)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertRegex(done.stderr, "MiB for the chunks .* 16 MiB were granted")
        npudiff("compare", *paths, "-q", "--memory", 1024, expect=1)


class Changing(Scratch):
    """Captures that change while they are compared."""

    SIZE = 160 * MIB

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.paths = big_pair(cls.shared, cls.SIZE, Contiguous())

    def has_begun(self, child):
        """It has looked at a quarter of the tensors: through a map, or by reading."""
        process = pathlib.Path(f"/proc/{child.pid}")
        try:
            resident = re.search(r"RssFile:\s*(\d+) kB", (process / "status").read_text())
            read = re.search(r"rchar: (\d+)", (process / "io").read_text())
        except ProcessLookupError:  # it is over
            return True
        return resident is not None and int(resident[1]) * 1024 + int(read[1]) > self.SIZE // 2

    def interrupted(self, change):
        """Stops the comparison once it reads tensors, changes the test's file, and lets it go on: (exit code, stdout,
        stderr)."""
        path = self.folder / "1.h5"
        environment = dict(os.environ, NPUDIFF_CPU="scalar")
        for _ in range(20):
            shutil.copy(self.paths[1], path)
            child = subprocess.Popen([NPUDIFF, "compare", "--json", "--threads", "1", str(self.paths[0]), str(path)],
                                     env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            while child.poll() is None and not self.has_begun(child):
                time.sleep(0.0002)
            if child.poll() is None:
                child.send_signal(signal.SIGSTOP)
                change(path)
                child.send_signal(signal.SIGCONT)
            out, err = child.communicate(timeout=60)
            if child.returncode != 1:
                return child.returncode, out, err
        raise AssertionError("it was never caught in time")

    def check(self, change, text):
        code, out, err = self.interrupted(change)
        self.assertEqual(code, 2, err)
        self.assertEqual(json.loads(out)["kind"], "error")
        self.assertRegex(err, text)

    def test_truncated(self):
        self.check(lambda path: os.truncate(path, 1000), "(truncated|changed) while it was being read")

    def test_cut_by_a_little(self):
        self.check(lambda path: os.truncate(path, path.stat().st_size - 5 * 4096),
                   "1.h5.* changed")

    def test_written_to(self):
        def write(path):
            with open(path, "r+b") as file:
                file.seek(self.SIZE - MIB)
                file.write(b"\x07" * 100)

        self.check(write, "1.h5.* changed")


if __name__ == "__main__":
    main()
