#!/usr/bin/env python3
"""Where units were computed: real runs of which a part is on the CPU, told by values alone, held against their placement;
a CPU run that calls itself an NPU's; and what contradicts itself. A small part of tools/studies/score_fallback."""
import json
import os
import random
import shutil

import h5py

from support import GOLDEN, MODELS, Scratch, capture, main, npudiff, some_digits
from write_capture import content_digest, fixed

FALLBACK = GOLDEN / "fallback"
TRUTH = {"CPUExecutionProvider": "not-npu", "QNNExecutionProvider": "npu"}


def explain(model, *paths, hide=True):
    flags = ["--hide-placement"] if hide else []
    kind = "--float" if model.name.endswith("float.onnx") else "--quantised"
    return json.loads(npudiff("explain", kind, model, *paths, "--json", "--effect-samples", 0, *flags, expect=None).stdout)


def verdicts(device):
    return {u["name"]: u["execution"]["verdict"] for u in device["layers"]}


def set_text(item, key, value):
    item.attrs.pop(key, None)
    item.attrs.create(key, fixed([value])[0], dtype=fixed([value]).dtype)


def dress(path, to, providers=False):
    """A CPU capture that calls itself one of a simulated chipset; with providers, its edges, too."""
    shutil.copy(path, to)
    with h5py.File(to, "r+", libver="earliest") as file:
        for key, value in (("kind", "htp-sim"), ("chipset", "SM8650"), ("label", "SM8650"), ("uri", "htp-sim:SM8650")):
            set_text(file["device"], key, value)
        if providers:
            names = [b"QNNExecutionProvider"] * len(file["edges/provider"])
            data = fixed([n.decode() for n in names])
            del file["edges/provider"]
            file["edges"].create_dataset("provider", data=data, track_times=False)
        set_text(file, "content_digest", content_digest(file))
    return to


class Execution(Scratch):
    def run_on(self, model, devices, n=16):
        paths = []
        for device in devices:
            paths.append(self.folder / f"{model.stem}-{device.split(':')[-1]}.h5")
            capture(model, [device], [some_digits(self.folder / "digits.npz", n)], paths[-1], "--allow-fallback")
        return paths

    def check(self, model, paths, least):
        """What is said of units with placement hidden is true, and something is said of enough of them; with
        placement, all of it is true."""
        for hide in (True, False):
            n_said = 0
            for path, device in zip(paths, explain(model, *paths, hide=hide)["devices"]):
                opened = self.open(path)
                providers = dict(zip(opened.edges, opened.column("edges", "provider")))
                for name, said in verdicts(device).items():
                    if providers.get(name, "") == "" or opened.column("edges", "op_types")[opened.edges.index(name)] == "input":
                        continue
                    true = TRUTH[providers[name]]
                    if hide and said == "unknown":
                        continue
                    self.assertEqual((name, said), (name, true), path)
                    n_said += 1
            self.assertGreaterEqual(n_said, least)

    def test_units_on_the_cpu_are_told_from_those_on_the_npu(self):
        """A model drawn by a seed, in one of its widths: dilated ConvTranspose, LayerNormalization over more than the
        last axis, and several at once are on the CPU."""
        seed = int(os.environ.get("ND_SEED", "20251122"))
        print(f"# ND_SEED={seed}")
        draw = random.Random(seed)
        model = FALLBACK / f"{draw.choice(['transposed', 'norm1', 'mixed'])}.{draw.choice(['u8', 'u16'])}.onnx"
        paths = self.run_on(model, ["cpu", "htp-sim:gen1", "htp-sim:gen3"])
        self.check(model, paths, least=12)
        device = explain(model, paths[2])["devices"][0]
        self.assertEqual(device["execution"]["verdict"], "partly")
        self.assertIn("not-npu", verdicts(device).values())

    def test_fallback_of_older_chipsets_only_is_seen_there_only(self):
        """MatMul with int16 weights in uint16: the CPU's before v73."""
        model = FALLBACK / "wide.u16.onnx"
        paths = self.run_on(model, ["htp-sim:gen1", "htp-sim:gen3"])
        old, new = (verdicts(d)["fc1"] for d in explain(model, *paths)["devices"])
        self.assertEqual((old, new), ("not-npu", "npu"))

    def test_floats_of_full_precision_are_not_the_npus(self):
        model = FALLBACK / "mixed.float.onnx"
        paths = self.run_on(model, ["cpu", "htp-sim:gen3"], n=4)
        self.check(model, paths, least=20)

    def test_cpu_run_that_calls_itself_an_npus_is_named(self):
        """What a runtime leaves that retried on the CPU by itself; where placement lies, too, both sides are shown."""
        model = MODELS / "cnn.w8a8.onnx"
        cpu = self.run_on(model, ["cpu"], n=32)[0]
        retried = dress(cpu, self.folder / "retried.h5")
        execution = explain(model, retried)["devices"][0]["execution"]
        self.assertEqual(execution["verdict"], "not-npu")
        self.assertIn("whole-run-cpu", [e["kind"] for e in execution["evidence"]])
        said = npudiff("explain", "--quantised", model, retried, expect=None).stdout
        self.assertIn("computed by the CPU, the whole run", said)
        lying = dress(cpu, self.folder / "lying.h5", providers=True)
        execution = explain(model, lying, hide=False)["devices"][0]["execution"]
        self.assertTrue(execution["contradictory"])
        self.assertEqual({e["for"] for e in execution["evidence"]}, {"npu", "not-npu"})
        self.assertEqual(execution["verdict"], "unknown")
        said = npudiff("explain", "--quantised", model, lying, "-v", expect=None).stdout
        self.assertIn("for the NPU, 20.0 bits (placement)", said)
        self.assertRegex(said, r"against the NPU, \d+\.\d bits \(whole-run-cpu\)")

    def test_npu_run_leaves_nothing_to_say(self):
        model = MODELS / "cnn.w8a8.onnx"
        path = self.run_on(model, ["htp-sim:gen3"], n=32)[0]
        device = explain(model, path)["devices"][0]
        self.assertEqual(device["execution"]["verdict"], "npu")
        self.assertNotIn("not-npu", verdicts(device).values())
        self.assertNotIn("computed", npudiff("explain", "--quantised", model, path, expect=None).stdout)


if __name__ == "__main__":
    main()
