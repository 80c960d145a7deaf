#!/usr/bin/env python3
"""The golden store on real runtimes: what an SDK changed is found and blamed on the SDK, what it did not change is the same;
bundles give the first answer and tell nothing. And tools/studies/score_golden, in small."""
import json
import pathlib
import subprocess

import h5py
import numpy as np

from support import MODELS, Scratch, capture, main, npudiff, some_digits, text

OLD, NEW = "qairt-2.50.40", "qairt-2.51.0"
CHIPSETS = ["gen1", "gen3"]
TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools/studies"
MUL = f"mul={MODELS / 'mul-probe.npz'}"


def golden(*arguments, expect=0):
    return json.loads(npudiff("golden", *arguments, "--json", expect=expect))


def triage(field, store, expect):
    return json.loads(npudiff("triage", field, "--against", store, "--json", expect=expect))


def chosen_names(path):
    """Every name, path and label in a capture that its user or model may have chosen, two characters or more."""
    found = set()
    with h5py.File(path) as file:
        found.update(text(v) for column in ("name", "onnx_name", "node", "op_types") for v in file["edges"][column][:])
        found.update(text(v) for v in file["nodes/name"][:])
        found.update(text(file["model"].attrs["file"]).rsplit(".", 2))
        for name, probe in file["probes"].items():
            found.update([name, text(probe.attrs["source"]), *probe["inputs"]])
            found.update(pathlib.Path(text(probe.attrs["source"])).parts)
        for key, value in file["runtime"].attrs.items():
            if isinstance(value, bytes | str) and "/" in text(value) and not key.startswith("ort_"):
                found.add(str(pathlib.Path(text(value)).parent))
    return {name for name in found if len(name) > 1}


class Golden(Scratch):
    def captures(self, model, probes, runtime):
        out = self.folder / f"{model}-{runtime}"
        capture(model, [f"htp-sim:{c}@{runtime}" for c in CHIPSETS], probes, out, "-j", "2")
        return [out / f"{c}@{runtime}.h5" for c in CHIPSETS]

    def test_mul_changed_with_the_sdk(self):
        """Adding QAIRT 2.50.40 and checking 2.51.0 names the SDK and the Mul's edge, on both chipsets."""
        store = self.folder / "store"
        old, new = (self.captures("mul.u8.onnx", ["zeros", MUL], runtime) for runtime in (OLD, NEW))
        golden("add", store, *old)
        checks = golden("check", store, *old)["checks"]
        self.assertEqual([(c["verdict"], c["what_changed"]) for c in checks], [("same", [])] * 2)
        checks = golden("check", store, *new, expect=1)["checks"]
        for check, path in zip(checks, old, strict=True):
            self.assertEqual((check["verdict"], check["blamed"]), ("differs", ["sdk"]))
            self.assertEqual(check["entry"]["label"], path.stem)
            self.assertEqual([(e["name"], e["op_types"], e["probes"]) for e in check["different"]],
                             [("product", "Mul", ["mul"])])
            ids = [c for c in check["changed"] if c["key"] == "id"]
            self.assertEqual(ids, [{"what": "sdk", "key": "id", "ref": OLD, "test": NEW, "follows_from": None}])
        said = npudiff("golden", "check", store, new[0], expect=1)
        self.assertIn("DIFFERS, because of the runtime (QAIRT or ONNX Runtime: both changed):", said)
        # gen1 and gen3 compute alike: a known class although nobody captured this one.
        self.assertEqual(golden("diff", store, *(path.stem for path in old))["verdict"], "same")
        report = triage(new[0], store, 1)
        self.assertEqual(report["nearest"]["first"]["name"], "product")
        self.assertAlmostEqual(report["nearest"]["share"], 52 / (33 * 256))
        self.assertEqual({e["chipset"] for e in triage(old[0], store, 0)["equal"]}, {"SM8450", "SM8650"})

    def test_a_new_runtime_is_captured_and_checked(self):
        """The CNN is the same with both SDKs, and the matrix says so, with the accuracy; a Mul is not."""
        store, some = self.folder / "store", some_digits(self.folder / "some.npz", 20)
        golden("add", store, *self.captures("cnn.w8a8.onnx", [some], OLD))
        rows = golden("check", store, "--runtime", NEW, "--model", MODELS / "cnn.w8a8.onnx", "-p", some, "-o",
                      self.folder / "cnn", "-j", "2")["matrix"]
        self.assertEqual([(r["chipset"], r["verdict"], r["changed"], r["group_changed"]) for r in rows],
                         [(c, "same", "0/10", False) for c in ("SM8450", "SM8650")])
        for row in rows:
            self.assertEqual((row["top1"]["samples"], row["top1"]["lost"], row["top1"]["p_value"]), (20, 0, 1.0))
            self.assertEqual(row["top1"]["right_before"], row["top1"]["right_after"])
            self.assertTrue(pathlib.Path(row["capture"]).exists())
        again = ["golden", "check", store, "--runtime", NEW, "--model", MODELS / "cnn.w8a8.onnx", "-p", some, "-o",
                 self.folder / "cnn"]
        self.assertEqual(npudiff(*again, expect=None).returncode, 2) # they are there
        times = {p: p.stat().st_mtime_ns for p in (self.folder / "cnn").glob("*.h5")}
        said = npudiff(*again, "--resume")
        self.assertEqual({p: p.stat().st_mtime_ns for p in times}, times)
        self.assertEqual(said.count(" SAME "), 2, said)
        self.assertEqual(npudiff(*again, "--force", "-j", "2").count(" SAME "), 2)
        self.assertNotEqual({p: p.stat().st_mtime_ns for p in times}, times)
        self.assertEqual(len(times), 2)
        store = self.folder / "mul"
        golden("add", store, *self.captures("mul.u8.onnx", [MUL], OLD), "--digest-only")
        rows = golden("check", store, "--runtime", NEW, "--model", MODELS / "mul.u8.onnx", "-p", MUL, "-o",
                      self.folder / "again", expect=1)["matrix"]
        self.assertEqual([(r["verdict"], r["changed"], r["first"], r["operators"]) for r in rows],
                         [("differs", "1/1", "product", "Mul")] * 2)
        done = npudiff("golden", "check", store, "--runtime", NEW, "--model", MODELS / "cnn.w8a8.onnx", "-o",
                       self.folder / "none", expect=None)
        self.assertEqual(done.returncode, 3)
        # Other inputs than the entry has: no entry of this probe.
        done = npudiff("golden", "check", store, "--runtime", NEW, "--model", MODELS / "mul.u8.onnx", "-p",
                       "mul=" + str(self.other_inputs()), "-o", self.folder / "other", expect=None)
        self.assertEqual(done.returncode, 3, done.stderr)

    def other_inputs(self):
        """The samples of the Mul's probe, the other way around."""
        inputs = np.load(MODELS / "mul-probe.npz")
        np.savez(self.folder / "other.npz", **{name: inputs[name][::-1] for name in inputs.files})
        return self.folder / "other.npz"

    def test_bundles_tell_nothing_and_suffice(self):
        """Equal by its bundle as by itself, and none of its names, paths or labels is in there."""
        store, some = self.folder / "store", some_digits(self.folder / "some.npz", 3)
        emulated = self.folder / "emu.h5"
        fields = [*self.captures("cnn.w8a8.onnx", [some, "ramp"], OLD), emulated]
        capture("cnn.w8a8.onnx", ["emu:flip@residual/conv=0.1"], [some, "ramp"], emulated)
        golden("add", store, *fields[:2])
        for field in fields:
            bundle = field.with_suffix(".json")
            npudiff("golden", "bundle", field, "-o", bundle)
            said = bundle.read_text()
            self.assertLess(len(said), 8192)
            # "QNN" and such are the runtime's words; names of the capture must not be there as words of any length.
            leaks = [name for name in chosen_names(field) if f'"{name}"' in said or (len(name) > 4 and name in said)]
            self.assertEqual(leaks, [])
            known = field != emulated
            reports = [triage(f, store, 0 if known else 1) for f in (field, bundle)]
            self.assertEqual(*([e["id"] for e in r["equal"]] for r in reports))
            if not known:
                self.assertEqual(*(r["nearest"]["first"]["name"] for r in reports))

    def test_damage_is_named_and_nothing_is_changed(self):
        store = self.folder / "store"
        fields = self.captures("mul.u8.onnx", [MUL], OLD)
        added = golden("add", store, *fields)["added"]
        entry = store / "entries" / f"{added[0]['entry']['id']}.json"
        entry.write_bytes(entry.read_bytes().replace(b"SM8450", b"SM8451"))
        before = {p: p.read_bytes() for p in store.rglob("*") if p.is_file()}
        for command in (["list", store], ["check", store, fields[1]]):
            done = npudiff("golden", *command, expect=2 if command[0] == "list" else None)
        self.assertEqual(done.returncode, 2)
        self.assertIn(f"entries/{entry.name}' is skipped: damaged", done.stderr)
        self.assertIn("SAME: ", done.stdout)
        self.assertEqual(before, {p: p.read_bytes() for p in store.rglob("*") if p.is_file()})


class Score(Scratch):
    def test_regressions_have_the_right_axis(self):
        """10 injected at random places of an emulated fleet, and 10 clean changes without an alarm."""
        done = subprocess.run([TOOLS / "score_golden", "--n", "10", "--clean", "10"], capture_output=True, text=True,
                              timeout=600)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        self.assertIn("10 of 10 injections found", done.stdout)


if __name__ == "__main__":
    main()
