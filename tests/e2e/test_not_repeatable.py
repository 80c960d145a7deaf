#!/usr/bin/env python3
"""A device that gives different values from run to run: by default a capture knows it, and nothing calls it a difference of the
device. An emulated device with a known noise, and a block that the simulator really computes so (cut from YOLOv8n, W8A16)."""
import json

import h5py

from support import GOLDEN, MODELS, Scratch, capture, compare, main, npudiff

MODEL = MODELS / "cnn.w8a8.onnx"
FOUND = GOLDEN / "found" / "silu-512.w8a16.onnx"
NOISY = "emu:htp-v73,flip@residual/conv=0.02,seed={}"
MOST_TRIES = 5


def reruns(path):
    with h5py.File(path) as file:
        return {name: probe["rerun_samples"][:].tolist() if "rerun_samples" in probe else [] for name, probe in file["probes"].items()}


class Emulated(Scratch):
    def on(self, device, name, *more):
        path = self.folder / f"{name}.h5"
        capture(MODEL, [device], ["zeros", "uniform:60"], path, *more)
        return path

    def test_a_few_samples_are_run_again(self):
        healthy, noisy = self.on("emu:htp-v73", "healthy"), self.on(NOISY.format(1), "noisy")
        # 61 samples: 3 of them, the last probe before the first; 4 runs where two differ.
        self.assertEqual(reruns(healthy), {"zeros": [[0, 1]], "uniform": [[0, 1], [1, 1]]})
        self.assertEqual(reruns(noisy), {"zeros": [[0, r] for r in (1, 2, 3)], "uniform": [[s, r] for s in (0, 1) for r in (1, 2, 3)]})
        for path in (healthy, noisy):
            npudiff("verify", path)
        # The first runs are those of a capture without reruns.
        for device, path in (("emu:htp-v73", healthy), (NOISY.format(1), noisy)):
            once = self.on(device, "once", "--repeats", 1, "--force")
            self.assertEqual(reruns(once), {"zeros": [], "uniform": []})
            self.assertEqual(compare(path, once, expect=None)["first_difference"], None)

    def test_noise_is_no_difference(self):
        healthy, old = self.on("emu:htp-v73", "healthy"), self.on("emu:htp-v69", "old")
        first, second = (self.on(NOISY.format(seed), f"noisy{seed}") for seed in (1, 2))
        for a, b in ((first, second), (healthy, first), (second, healthy)):
            done = npudiff("compare", a, b, expect=4)
            text = " ".join(done.split())
            self.assertIn("INCONCLUSIVE: values differ by no more than they do from run to run on one device", text)
            self.assertIn("is not repeatable: run to run it differs by up to", text)
            self.assertIn("tensors, first in 'residual/conv' (Conv)", text)
            report = compare(a, b, expect=4)
            self.assertEqual((report["verdict"], report["first_difference"]), ("inconclusive", None))
        # What differs by more, and before the noise, still differs.
        report = compare(old, first, expect=1)
        self.assertEqual((report["verdict"], report["devices"][1]["first_difference"]), ("differs", "stem/relu"))
        # Without reruns nobody knows it.
        blind = [self.on(NOISY.format(seed), f"blind{seed}", "--repeats", 1) for seed in (1, 2)]
        compare(*blind, expect=1)
        self.assertIn("not known: whether", npudiff("compare", "-v", *blind, expect=1))
        self.assertNotIn("not known: whether", npudiff("compare", *blind, expect=1))

    def test_a_gate_decides_nothing_on_noise(self):
        (self.folder / "campaign.yaml").write_text(f"""name: noise
models:
  - name: m
    quantised: {MODEL}
    probes: ['uniform:60']
devices:
  - {{device: 'emu:htp-v73'}}
  - {{device: '{NOISY.format(1)}'}}
  - {{device: 'emu:htp-v69'}}
reference: emu:htp-v73
policy:
  - gate: bit-equal-to
    to: emu:htp-v73
""")
        done = npudiff("qualify", self.folder / "campaign.yaml", "-o", self.folder / "out", "--json", expect=None)
        self.assertEqual(done.returncode, 1, done.stderr)
        cases = {c["device"]: c for c in json.loads(done.stdout)["cases"]}
        self.assertEqual({k: v["verdict"] for k, v in cases.items()}, {NOISY.format(1): "inconclusive", "emu:htp-v69": "failed"})
        self.assertIn("not repeatable", cases[NOISY.format(1)]["message"])


class Found(Scratch):
    def test_silu_of_yolov8n(self):
        """The simulator's threads race: a try that shows no noise shows nothing."""
        for _ in range(MOST_TRIES):
            capture(FOUND, ["htp-sim:gen3", "htp-sim:gen5"], ["uniform:20"], self.folder / "out", "--force")
            paths = sorted((self.folder / "out").glob("*.h5"))
            report = compare(*paths, expect=None)
            if all(device["unstable_tensors"] > 0 for device in report["devices"]):
                break
        else:
            self.skipTest(f"the simulator repeated itself {MOST_TRIES} times")
        self.assertEqual(report["verdict"], "inconclusive")
        self.assertEqual(report["first_difference"], None)
        done = npudiff("explain", "--quantised", FOUND, paths[0], "--samples", 4, "--effect-samples", 0, "--json", expect=1)
        layers = {u["op_type"]: u for u in json.loads(done)["devices"][0]["layers"]}
        self.assertEqual(layers["Conv"]["state"], "follows")
        accused = [u for u in layers.values() if u["state"] == "faulty"]
        self.assertTrue(accused)
        for layer in accused:
            self.assertIn("run to run it differs by up to", layer["evidence"])


if __name__ == "__main__":
    main()
