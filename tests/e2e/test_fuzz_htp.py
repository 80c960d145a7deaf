#!/usr/bin/env python3
"""A small part of tools/studies/fuzz_htp (docs/results/fuzz-htp.md), on emulated devices: one that follows the programs, and one that repeats
an output of the sample before. Where no registry of packages can be reached, the case is skipped."""
import json
import os
import pathlib
import subprocess
import sys
import unittest

from support import NPUDIFF, Scratch, main, npudiff

STUDY = pathlib.Path(__file__).resolve().parents[2] / "tools/studies/fuzz_htp/run"
sys.path.append(str(STUDY.parent))
import sorting  # noqa: E402
SEED, HEALTHY, FAULTY = 2, "emu:htp-v73", "emu:htp-v73,stale@add_5"


def small(operators=("Add()",), largest=1, types="uint8", **changed):
    """A small model as the fuzzer describes it: one operator, off by 1 LSB."""
    mismatch = {"state": "unexplained", "kind": None, "defect": None, "covered": True, **changed.pop("mismatch", {})}
    return {"mismatch": mismatch, "is_small": True, "is_minimal": True, "confirmed": True, "alone": [{}], "operators": list(operators),
            "types": types, "values": {"largest": largest}, **changed}


class FuzzHtp(Scratch):
    def test_rules(self):
        two = ("Gemm()", "Relu()")
        for expected, finding in (
                ("our program", small()), ("our program", small(mismatch={"covered": False})), ("our program", small(largest=7)),
                ("SDK defect", small(largest=8)), ("our program", small(largest=8, types="uint16")), ("SDK defect", small(largest=2048, types="uint8 uint16")),
                ("SDK defect", small(mismatch={"defect": "batch-norm"})), ("SDK defect", small(mismatch={"state": "hung"})),
                ("refused", small(mismatch={"state": "failed", "kind": "session"})), ("record", small(mismatch={"kind": "wrong-record"})),
                ("fusion", small(two)), ("undecided", small(two, is_minimal=False)), ("undecided", small(alone=[])),
                ("undecided", small(alone=[], largest=100)), ("undecided", small(confirmed=False, largest=100)), ("undecided", small(is_small=False))):
            self.assertEqual(sorting.sort(finding)[0], expected, finding)
            self.assertIn(expected, sorting.CLASSES)

    def study(self, *arguments):
        done = subprocess.run([STUDY, "--out", self.folder / "fuzz", *arguments], capture_output=True, text=True, timeout=600,
                              env=dict(os.environ, NPUDIFF=NPUDIFF))
        if done.returncode == 77:
            raise unittest.SkipTest(f"the packages cannot be had: {done.stderr.strip().splitlines()[-1]}")
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def rows(self):
        return [json.loads(line) for line in (self.folder / "fuzz/rows.jsonl").read_text().splitlines()]

    def test_a_mismatch_becomes_one_operator_with_a_text(self):
        print(f"# seed {SEED}")
        arguments = ("--seeds", f"{SEED}:{SEED}", "-d", HEALTHY, "-d", FAULTY)
        text = self.study(*arguments)
        healthy, faulty = self.rows()
        self.assertEqual((healthy["verdict"], healthy["mismatches"], healthy["layers"], healthy["explained"]), ("healthy", [], 2, 2))
        (mismatch,) = faulty["mismatches"]
        (folder,) = (self.folder / "fuzz/findings").iterdir()
        self.assertEqual((mismatch["layer"], mismatch["finding"], mismatch["made"]), ("add_5", folder.name, True))
        record = json.loads((folder / "finding.json").read_text())
        self.assertEqual((record["operators"], record["types"], record["class"], record["seen"]), (["Add()"], "uint8", "SDK defect", [[SEED, FAULTY]]))
        self.assertGreaterEqual(record["values"]["largest"], 8)
        report = (folder / "REPORT.txt").read_text()
        self.assertIn(f"{record['values']['wrong']} of {record['values']['values']} values differ", report)
        self.assertIn("expected observed", report)
        self.assertIn(f"`{folder.name}` | Add | uint8 |", text)
        # The model of the folder shows it again.
        npudiff("capture", folder / "reproducer.onnx", "-d", FAULTY.replace("add_5", "add_5_QuantizeLinear_Output"), "-p",
                f"inputs={folder / 'inputs.npz'}", "--tensors", "outputs", "-o", self.folder / "again.h5", "-q")
        told = json.loads(npudiff("compare", folder / "reference.h5", self.folder / "again.h5", "--json", expect=1))
        self.assertEqual(sum(pair["differing"] for tensor in told["tensors"] for pair in tensor["pairs"]), record["values"]["wrong"])
        # What was done is not done again.
        self.assertEqual(self.study(*arguments), text)
        self.assertEqual(len(self.rows()), 2)


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    main()
