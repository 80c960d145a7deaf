"""A comparison that is cut into parts and merged is the comparison, byte for byte; other sets of parts are refused."""
import json
import os
import subprocess

import numpy as np

from support import NPUDIFF, Scratch, main, npudiff, without_stages
from test_engine import DEVICES, SEED, disturb, make_fleet, random_tensor
from write_capture import Chunked, Contiguous, Edge, write_capture

OPTIONS = {
    "plain": [],
    "gates": ["--lsb", "2", "--ulp", "100", "--atol", "floats:0.5,1e-3"],
    "everything": ["--all-pairs", "--ulp-in", "bfloat16", "--worst", "20", "--bitwise=codes", "--verify-digests"],
}


class Parts(Scratch):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        print(f"# ND_SEED={SEED}")
        rng = np.random.default_rng(SEED)
        edges, fleet = make_fleet(rng)
        turned = Edge("turned", "float32", [8, 9, 10])
        for name in fleet[0]:
            data = random_tensor(rng, turned, len(fleet[0][name]["flags"]))
            for probes, turn in zip(fleet, (False, True, True)):
                probes[name]["turned"] = cls.turned(data) if turn else data
        cls.edges, cls.fleet = [*edges, turned], fleet
        storages = Contiguous(), Chunked(1000, deflate=1), Chunked(333)
        cls.paths = [write_capture(cls.shared / f"{i}.h5", device, cls.edges, probes, storage)
                     for i, (device, probes, storage) in enumerate(zip(DEVICES, fleet, storages))]

    @staticmethod
    def turned(data):
        """Axes exchanged in the third sample, and something else after it: a pattern that only one part sees."""
        data = data.copy()
        data[2] = np.transpose(data[2], (2, 0, 1)).reshape(data[2].shape)
        data[3:] += 1
        return data

    def run_compare(self, *arguments):
        """(exit code, stdout, what it said)"""
        command = [NPUDIFF, "compare", *map(str, self.paths), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, timeout=300)
        return done.returncode, done.stdout, without_stages(done.stderr.decode())

    def part(self, path, cut, k, n, *options):
        code, out, err = self.run_compare("--json", "--cut", cut, "--part", f"{k}/{n}", *options)
        self.assertEqual((code, err), (0, ""))
        path.write_bytes(out)
        return path

    def merge(self, parts, *options):
        return self.run_compare("--json", *options, *(a for p in parts for a in ("--merge", p)))

    def test_the_merged_parts_are_the_whole(self):
        for name, options in OPTIONS.items():
            whole = self.run_compare("--json", *options)
            self.assertEqual((whole[0], whole[2]), (1, ""))
            for cut in ("samples", "tensors"):
                for n in range(1, 6) if name == "everything" else (1, 3):
                    with self.subTest(options=name, cut=cut, parts=n):
                        parts = [self.part(self.folder / f"{k}.json", cut, k, n, *options) for k in range(1, n + 1)]
                        self.assertEqual(self.merge(parts[::-1], *options), whole)

    def test_more_parts_than_there_is_work(self):
        whole = self.run_compare("--json")
        for cut in ("samples", "tensors"):
            parts = [self.part(self.folder / f"{k}.json", cut, k, 17) for k in range(1, 18)]
            self.assertEqual(self.merge(parts), whole)

    def test_parts_may_be_made_in_any_way(self):
        """Other threads, memory and instructions for every part; and captures that are stored differently."""
        whole = self.run_compare("--json")
        parts = []
        for k, cpu in ((1, "scalar"), (2, "avx2"), (3, "avx512")):
            environment = dict(os.environ, NPUDIFF_CPU=cpu)
            out = npudiff("compare", *self.paths, "--json", "--part", f"{k}/3", "--threads", k, "--memory", 16 * k,
                          env=environment, expect=0)
            parts.append(self.folder / f"{k}.json")
            parts[-1].write_text(out)
        self.assertEqual(self.merge(parts), whole)

    def test_the_text_is_the_same_too(self):
        parts = [self.part(self.folder / f"{k}.json", "samples", k, 2) for k in (1, 2)]
        whole = self.run_compare("-v", "--all")
        merged = self.run_compare("-v", "--all", *(a for p in parts for a in ("--merge", p)))
        self.assertEqual(merged, whole)

    def test_channels_are_added_when_parts_are_merged(self):
        parts = [self.part(self.folder / f"{k}.json", "tensors", k, 2) for k in (1, 2)]
        self.assertEqual(self.merge(parts, "--per-channel", 0), self.run_compare("--json", "--per-channel", 0))
        self.assert_refused(*self.run_compare("--json", "--per-channel", 0, "--part", "1/2"))

    def assert_refused(self, code, out, err):
        """With --json an error is one JSON document on stdout, nothing else; stderr says the same in words."""
        self.assertEqual(code, 2, err)
        document = json.loads(out)
        self.assertEqual(document["kind"], "error")
        self.assertRegex(document["error"]["id"], r"^ND-\d+$")
        self.assertIn(document["error"]["id"], err)

    def refused(self, parts, *options):
        code, out, err = self.merge(parts, *options)
        self.assert_refused(code, out, err)
        return err

    def test_wrong_sets_of_parts_are_refused(self):
        parts = [self.part(self.folder / f"{k}.json", "samples", k, 3) for k in (1, 2, 3)]
        others = [self.part(self.folder / f"t{k}.json", "tensors", k, 3) for k in (1, 2, 3)]
        self.assertRegex(self.refused(parts[:2]), "3")
        self.refused(parts[:1])
        self.refused([*parts, parts[0]])
        self.refused([parts[0], parts[1], parts[1]])
        self.refused([parts[0], others[1], parts[2]])
        self.refused([*parts[:2], self.part(self.folder / "4.json", "samples", 4, 4)])
        for options in (["--lsb", "1"], ["--all-pairs"], ["--worst", "4"], ["--ulp-in", "float16"]):
            with self.subTest(options=options):
                self.refused(parts, *options)
        self.assertEqual(self.merge(parts)[0], 1)

    def test_parts_of_other_captures_are_refused(self):
        parts = [self.part(self.folder / f"{k}.json", "samples", k, 2) for k in (1, 2)]
        rng = np.random.default_rng(SEED + 1)
        other = {p: {e.name: disturb(rng, e, t[e.name], 0.2) for e in self.edges} for p, t in self.fleet[0].items()}
        path = write_capture(self.folder / "other.h5", DEVICES[1], self.edges, other)
        merges = [a for p in parts for a in ("--merge", p)]
        for paths in ((self.paths[0], path, self.paths[2]), (self.paths[0], self.paths[2], self.paths[1]), self.paths[:2]):
            done = npudiff("compare", *paths, "--json", *merges, expect=None)
            self.assert_refused(done.returncode, done.stdout, done.stderr)

    def test_damaged_parts_are_refused(self):
        parts = [self.part(self.folder / f"{k}.json", "samples", k, 2) for k in (1, 2)]
        text = parts[1].read_text()
        for damage in ("", "{}", "[]", "null", text[: len(text) // 2], text[:-3], text + "{}", text.replace('"', "", 1)):
            parts[1].write_text(damage)
            with self.subTest(damage=damage[:20], size=len(damage)):
                self.refused(parts)
        self.refused([parts[0], self.folder / "missing.json"])


if __name__ == "__main__":
    main()
