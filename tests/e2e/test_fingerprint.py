#!/usr/bin/env python3
"""The datasheet of the real simulator, two short sections of it; two datasheets against each other; bad ones."""
import json
import unittest

from support import Scratch, main, npudiff

SECTIONS = ("--section", "quantise", "--section", "normalise")


class Fingerprint(Scratch):
    def take(self, device, *arguments):
        path = self.folder / (device.replace(":", "-") + ".json")
        npudiff("fingerprint", "-d", device, "-o", path, "-q", *arguments)
        return path, json.loads(path.read_text())

    def test_sections_of_the_simulator(self):
        kept = self.folder / "kept"
        path, sheet = self.take("htp-sim:gen3", "--answers", kept, *SECTIONS)
        self.assertEqual(sheet["npudiff_datasheet"], 2)
        self.assertEqual(list(sheet["sections"]), ["quantise", "normalise"])
        first = sheet["sections"]["quantise"][0]
        self.assertEqual((first["operator"], first["types"], first["verdict"]),
                         ("QuantizeLinear", "f32 -> u8", "identified"))
        self.assertEqual(first["possible_arithmetic"], ["value:half-reciprocal+rounding:half-away"])
        self.assertGreaterEqual(first["evidence"]["fresh"], 100000)
        self.assertEqual(first["evidence"]["right"], first["evidence"]["fresh"])
        for entry in sheet["sections"]["normalise"]:
            self.assertEqual(entry["verdict"], "not identified")  # no program of theirs is known
            self.assertGreater(entry["evidence"]["off"], 0)
            self.assertEqual(entry["provider"], "QNNExecutionProvider")
            self.assertEqual(len(entry["answers"]), 64)
        # Kept answers give the same bytes, and no model is run again.
        again, _ = self.take("htp-sim:gen3", "--answers", kept, "--force", *SECTIONS)
        self.assertEqual(again.read_bytes(), path.read_bytes())
        self.compare_with_reference(path)

    def compare_with_reference(self, path):
        other, sheet = self.take("exact", "--section", "normalise")
        for entry in sheet["sections"]["normalise"]:
            self.assertEqual((entry["verdict"], entry["evidence"]["off"]), ("identified", 0))
        self.assertEqual(json.loads(npudiff("fingerprint", "--diff", path, path, "--json"))["verdict"], "same")
        diff = json.loads(npudiff("fingerprint", "--diff", path, other, "--json", expect=1))
        self.assertEqual(diff["verdict"], "differs")
        self.assertEqual({row["operator"] for row in diff["differences"]},
                         {"Softmax", "LayerNormalization", "InstanceNormalization"})
        self.assertIn("Softmax u8 -> u8 (normalise)", npudiff("fingerprint", "--diff", path, other, "-v", expect=1))

    def test_bad_inputs(self):
        good = self.folder / "good.json"
        good.write_text(json.dumps({"npudiff_datasheet": 1, "device": {}, "sections": {}}))
        bad = {"text.json": ("not JSON at all", "is no JSON"), "array.json": ("[]", "not a datasheet"),
               "version.json": (json.dumps({"npudiff_datasheet": 3, "device": {}, "sections": {}}), "of version 1 or 2"),
               "empty.json": ("", "is no JSON")}
        for name, (text, message) in bad.items():
            path = self.folder / name
            path.write_text(text)
            for pair in ((path, good), (good, path)):
                done = npudiff("fingerprint", "--diff", *pair, expect=None)
                self.assertEqual(done.returncode, 2, name)
                self.assertIn(message, done.stderr)
                self.assertIn(name, done.stderr)
        done = npudiff("fingerprint", "--diff", good, self.folder / "none.json", expect=None)
        self.assertEqual(done.returncode, 2)
        self.assertIn("none.json", done.stderr)
        npudiff("fingerprint", "--diff", good, good)
        done = npudiff("fingerprint", "-d", "exact", "--section", "nonsense", expect=None)
        self.assertEqual(done.returncode, 2)
        self.assertIn("a datasheet has no section 'nonsense'", done.stderr)
        self.assertEqual(npudiff("fingerprint", "--diff", good, expect=None).returncode, 2)


if __name__ == "__main__":
    main()
