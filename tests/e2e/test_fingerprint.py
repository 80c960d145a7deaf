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
        self.assertEqual(sheet["npudiff_datasheet"], 3)
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

    def campaign(self, *arguments, expect):
        return json.loads(npudiff("fingerprint", "--campaign", self.folder / "sheets", "--json", *arguments, expect=expect))

    def test_campaign_of_the_simulator(self):
        """Two architectures with one runtime. The campaign goes on where it was: what is there is not taken again."""
        section = ("--section", "quantise")
        npudiff("fingerprint", "--campaign", self.folder / "sheets", "-d", "htp-sim:gen1", "-q", *section)
        first = self.folder / "sheets" / "gen1.json"
        taken = first.stat()
        table = self.campaign("-d", "htp-sim:gen3", "-d", "htp-sim:gen1", *section, expect=0)
        self.assertEqual((first.stat().st_mtime_ns, first.stat().st_ino), (taken.st_mtime_ns, taken.st_ino))
        self.assertEqual((table["verdict"], table["devices"], len(table["runtimes"])), ("same", ["v69", "v75"], 1))
        self.assertEqual([(s["from"], s["to"], s["n_same"], s["changed"]) for s in table["steps"]], [("v69", "v75", 4, [])])
        other = self.folder / "sheets" / first.name.replace("gen1", "gen3")
        for path, chipset in ((first, "SM8450"), (other, "SM8650")):
            self.assertEqual(json.loads(path.read_text())["device"]["chipset"], chipset)
        # One program changed on one device: the table names operator and step.
        sheet = json.loads(other.read_text())
        sheet["sections"]["quantise"][0]["possible_arithmetic"] = ["value:other+rounding:half-up"]
        other.write_text(json.dumps(sheet))
        self.assertIn("is damaged: the digest of its content is", npudiff("fingerprint", "--diff", other, first, expect=None).stderr)
        del sheet["digest"]
        other.write_text(json.dumps({**sheet, "npudiff_datasheet": 2})) # which has no digest
        table = self.campaign(expect=1)
        self.assertEqual([(c["operator"], c["types"]) for c in table["steps"][0]["changed"]], [("QuantizeLinear", "f32 -> u8")])
        self.assertEqual(table["operators"][0]["letters"], {"v69": "A", "v75": "B"})

    def test_bad_inputs(self):
        good = self.folder / "good.json"
        good.write_text(json.dumps({"npudiff_datasheet": 1, "device": {}, "sections": {}}))
        bad = {"text.json": ("not JSON at all", "is no JSON"), "array.json": ("[]", "not a datasheet"),
               "version.json": (json.dumps({"npudiff_datasheet": 4, "device": {}, "sections": {}}), "of version 1 to 3"),
               "digest.json": (json.dumps({"npudiff_datasheet": 3, "device": {}, "sections": {}}), "it states ''"),
               "nul.json": (good.read_text() + "\0more", "it has a NUL byte"),
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
