#!/usr/bin/env python3
"""Emulated devices end to end: captures with faults, and the truth about them."""
import hashlib
import os

import h5py
import numpy as np

from support import Capture, MODELS, Scratch, capture, capture_command, compare, info, main, npudiff, text

CNN = "cnn.w8a8.onnx"
PROBES = ["uniform:6"]


def truth(path):
    """/truth as h5py reads it: the profile, and (edge, kind, n_changed) for every fault."""
    with Capture(path) as opened:
        attributes = {k: text(v) for k, v in opened.file["truth"].attrs.items()}
    lines = [attributes[key].split("\n") if attributes[key] else [] for key in ("faulty", "kinds", "n_changed")]
    assert len(lines[0]) == len(lines[1]) == len(lines[2]), attributes
    return attributes["profile"], [(edge, kind, int(n)) for edge, kind, n in zip(*lines)]


class Emulated(Scratch):
    def codes(self, name, edge, probe="uniform"):
        with Capture(self.folder / name) as opened:
            return opened.values(probe, edge).astype(int)

    def test_a_healthy_one_is_the_reference(self):
        """Not one bit differs from `exact`; there is a truth, and it is empty."""
        capture(CNN, ["exact", "emu:half-even"], PROBES, self.folder)
        compare(self.folder / "exact.h5", self.folder / "emu-half-even.h5", expect=0)
        self.assertEqual(truth(self.folder / "emu-half-even.h5"), ("round=half-even", []))
        with Capture(self.folder / "emu-half-even.h5") as opened:
            self.assertEqual(set(opened.column("nodes", "provider")), {"emu"})
            self.assertEqual(text(opened.file["device"].attrs["kind"]), "emu")
            self.assertEqual(text(opened.file["device"].attrs["uri"]), "emu:round=half-even")
        with Capture(self.folder / "exact.h5") as opened:
            self.assertNotIn("truth", opened.file)

    def test_faults_are_seen_and_told(self):
        """Edges before the fault are the reference's; what changed is what the truth counts."""
        device = "emu:window@residual/conv=10:50,stale@logits"
        capture(CNN, ["exact", device], PROBES, self.folder, "--repeats", 1)
        name = "emu-window-residual-conv-10-50-stale-logits.h5"
        profile, faults = truth(self.folder / name)
        self.assertEqual(profile, "window@residual/conv=10:50,stale@logits")
        self.assertEqual([fault[:2] for fault in faults], [("residual/conv", "window"), ("logits", "stale")])
        for edge in ("image", "stem/relu", "pool"):
            np.testing.assert_array_equal(self.codes("exact.h5", edge), self.codes(name, edge))
        plain, seen = self.codes("exact.h5", "residual/conv"), self.codes(name, "residual/conv")
        self.assertEqual(int((plain != seen).sum()), faults[0][2])
        expected = plain.reshape(6, -1).copy()
        expected[:, 10:60] = 0
        np.testing.assert_array_equal(expected, seen.reshape(6, -1))
        self.assertIn("faults", npudiff("info", self.folder / name))
        self.assertEqual(info(self.folder / name)["attributes"]["truth"]["kinds"], "window\nstale")
        npudiff("verify", self.folder / name)

    def test_the_faulty_edge_need_not_be_recorded(self):
        """The session then has another graph, where edges go by other names: faults work all the same, and what no
        recorded edge depends on is not listed."""
        device = "emu:zero@residual/conv,fuse@stem/relu"
        for folder, edges in (("all", "all"), ("outputs", "outputs"), ("early", "pointwise/relu")):
            capture(CNN, [device], PROBES, self.folder / folder, "--tensors", edges)
        name = "emu-zero-residual-conv-fuse-stem-relu.h5"
        np.testing.assert_array_equal(self.codes(f"all/{name}", "logits"), self.codes(f"outputs/{name}", "logits"))
        self.assertEqual(truth(self.folder / "all" / name), truth(self.folder / "outputs" / name))
        self.assertEqual([f[0] for f in truth(self.folder / "all" / name)[1]], ["depthwise/relu", "residual/conv"])
        self.assertEqual([f[0] for f in truth(self.folder / "early" / name)[1]], ["depthwise/relu"])
        np.testing.assert_array_equal(self.codes(f"all/{name}", "pointwise/relu"),
                                      self.codes(f"early/{name}", "pointwise/relu"))

    def test_profiles_are_kept(self):
        """The same device from a file; its text and digest are in the capture."""
        profile = self.folder / "odd device.yaml"
        profile.write_text("# two faults\nitems: [ \"round=double:8\",\n  \"flip@residual/conv=0.02\" ]\nseed: 7\n")
        for device in (f"emu:{profile}", "emu:round=double:8,flip@residual/conv=0.02,seed=7"):
            capture(CNN, [device], PROBES, self.folder)  # in one run they are one and the same
        from_file = self.folder / "emu-odd-device.yaml.h5"
        (from_uri,) = [p for p in self.folder.glob("*.h5") if p != from_file]
        self.assertEqual(truth(from_file), truth(from_uri))
        compare(from_file, from_uri, expect=0)
        runtime = info(from_file)["attributes"]["runtime"]
        self.assertEqual(runtime["option_profile_text"], profile.read_text())
        self.assertEqual(runtime["option_profile_sha256"], hashlib.sha256(profile.read_bytes()).hexdigest())
        self.assertEqual(runtime["option_profile_file"], "odd device.yaml")
        self.assertEqual(runtime["option_profile"], "round=double:8,flip@residual/conv=0.02,seed=7")

    def test_errors_have_line_and_column(self):
        profile = self.folder / "p.yaml"
        for yaml, where, message in (("items:\n  - zero@pool\n  - blur@pool\n", "3:5", "no word 'blur'"),
                                     ("items: [zero@pool]\nsed: 3\n", "2:1", "keys are 'items' and 'seed', not 'sed'"),
                                     ("items: [zero@pool\n", "2:1", "did not find expected"),
                                     ("- zero@pool\n", "1:1", "a mapping")):
            profile.write_text(yaml)
            result = npudiff(*capture_command(CNN, [f"emu:{profile}"], PROBES, self.folder), expect=None)
            self.assertEqual(result.returncode, 2)
            self.assertIn(f"{profile}:{where}: ", result.stderr)
            self.assertIn(message, result.stderr)
            self.assertIn("[ND-549]", result.stderr)

    def test_repeats_of_flips_differ(self):
        """From run to run; of anything else they are equal."""
        capture(CNN, ["emu:flip@logits=0.5"], PROBES, self.folder / "a.h5", "--repeats", "4")
        capture(CNN, ["emu:stochastic:3,stale@logits"], PROBES, self.folder / "b.h5", "--repeats", "4")
        with Capture(self.folder / "a.h5") as opened:
            digests = opened.digests("uniform", "logits")
            self.assertTrue(all(len({tuple(d) for d in sample}) > 1 for sample in digests))
            digests = opened.digests("uniform", "features")
            self.assertTrue(all(len({tuple(d) for d in sample}) == 1 for sample in digests))
        with Capture(self.folder / "b.h5") as opened:
            for edge in opened.edges:
                self.assertTrue(all(len({tuple(d) for d in s}) == 1 for s in opened.digests("uniform", edge)), edge)

    def test_the_same_device_twice_is_the_same_file(self):
        """Flips too: runs are counted, and seeds are fixed."""
        environment = {**os.environ, "SOURCE_DATE_EPOCH": "1"}
        device = "emu:stochastic:2,flip@pool=0.1,stale@features,fuse@residual/conv"
        for name in ("a.h5", "b.h5"):
            capture(CNN, [device], PROBES, self.folder / name, "--repeats", "2", env=environment)
        self.assertEqual((self.folder / "a.h5").read_bytes(), (self.folder / "b.h5").read_bytes())

    def test_stale_goes_over_probes(self):
        capture(CNN, ["exact", "emu:stale@logits"], ["uniform:3", "zeros"], self.folder)
        plain, stale = (self.codes(name, "logits") for name in ("exact.h5", "emu-stale-logits.h5"))
        np.testing.assert_array_equal(stale[0], plain[0])
        np.testing.assert_array_equal(stale[1:], plain[:-1])
        np.testing.assert_array_equal(self.codes("emu-stale-logits.h5", "logits", "zeros")[0], plain[-1])

    def test_every_device_has_a_file_of_its_own(self):
        """Short names that tell them apart, and digits where characters do not."""
        devices = ["emu:flip@pool=0.1,zero@pool", "emu:flip@pool=0.1,zero@pool,seed=2",
                   "emu:" + ",".join(f"scale@residual/conv={c}:1.0{c}" for c in range(8))]
        for name, word in (("a b.yaml", "floor"), ("a-b.yaml", "ceil")):
            (self.folder / name).write_text(f"items: [round={word}]\n")
            devices.append(f"emu:{self.folder / name}")
        capture(CNN, devices, ["zeros"], self.folder)
        names = sorted(p.name for p in self.folder.glob("*.h5"))
        self.assertEqual(len(names), 5, names)
        self.assertTrue(all(len(n) <= 115 for n in names), names)
        self.assertRegex([n for n in names if "1.00" in n][0], r"^emu-scale-residual-conv-0-1\.00-.*-[0-9a-f]{8}\.h5$")

    def test_damage_to_the_truth_is_found(self):
        path = self.folder / "x.h5"
        capture(CNN, ["emu:zero@pool"], ["zeros"], path)
        npudiff("verify", path)
        with h5py.File(path, "r+") as file:
            file["truth"].attrs.modify("kinds", np.bytes_("flip"))
        npudiff("verify", path, expect=1)

    def test_float_models_are_refused(self):
        result = npudiff(*capture_command("cnn.float.onnx", ["emu:floor"], ["zeros"], self.folder), expect=None)
        self.assertEqual(result.returncode, 2)
        self.assertIn("is for quantised models", result.stderr)

    def test_transformers_too(self):
        """16-bit codes, and units that are not linear."""
        capture("vit.w8a16.onnx", ["exact", "emu:fallback=LayerNormalization,round=stochastic:1"], ["uniform:1"],
                self.folder)
        (emulated,) = self.folder.glob("emu*.h5")
        self.assertEqual({kind for _, kind, _ in truth(emulated)[1]}, {"fallback"})
        self.assertTrue((MODELS / "vit.w8a16.onnx").exists())


if __name__ == "__main__":
    main()
