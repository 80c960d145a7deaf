#!/usr/bin/env python3
"""A small part of tools/studies/strangers (docs/results/strangers.md): a healthy network of three operators, and the same one with a fault in
the model that the simulator runs. Where no registry of packages can be reached, the case is skipped."""
import json
import os
import pathlib
import subprocess
import sys
import unittest

from support import NPUDIFF, Scratch, main

STUDY = pathlib.Path(__file__).resolve().parents[2] / "tools/studies/strangers/run"
SEED = 2


class Strangers(Scratch):
    def study(self, *arguments):
        done = subprocess.run([STUDY, "--seeds", f"{SEED}:{SEED}", "--rows", self.folder / "rows.jsonl", *arguments], capture_output=True,
                              text=True, timeout=600, env=dict(os.environ, NPUDIFF=NPUDIFF))
        if done.returncode == 77:
            raise unittest.SkipTest(f"the packages cannot be had: {done.stderr.strip().splitlines()[-1]}")
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def rows(self):
        return [json.loads(line) for line in (self.folder / "rows.jsonl").read_text().splitlines()]

    def test_a_healthy_network_and_one_with_a_fault(self):
        print(f"# seed {SEED}")
        self.study()
        (healthy,) = self.rows()
        self.assertEqual({name: told["verdict"] for name, told in healthy["devices"].items()}, {"cpu": "healthy", "gen1": "healthy", "gen3": "healthy"})
        for told in healthy["devices"].values():
            layers = [layer for layer in told["layers"] if layer["is_layer"]]
            self.assertEqual({(layer["state"], layer["unexplained"]) for layer in layers}, {("follows", 0)})
        text = self.study("--faults")
        _, faulty = self.rows()
        self.assertEqual((faulty["outcome"], faulty["known"], faulty["control"]["verdict"]), ("right", True, "healthy"), faulty)
        self.assertGreaterEqual(faulty["n_far"], 8)
        self.assertEqual(self.study("--table"), text)
        self.study("--faults")
        self.assertEqual(len(self.rows()), 2)  # what was done is not done again


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    main()
