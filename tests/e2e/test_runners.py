#!/usr/bin/env python3
"""Any program is a device: exec:RUNNER. A healthy runner gives what npudiff's own reference gives; every defect of one is named by
its message, and what was acknowledged before survives."""
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import unittest.mock

import h5py
import numpy as np

from support import (MODELS, NPUDIFF, Capture, Running, Scratch, acknowledged, capture, capture_command, compare, info, is_alive, main,
                     npudiff, wait_until, with_own_mounts)

ROOT = pathlib.Path(__file__).resolve().parents[2]
STANDIN = pathlib.Path(__file__).with_name("runner_standin.py")
MODEL = "mul.u8.onnx"
# What a runner does wrong: words of the message that names it, and its ND number.
DEFECTS = {
    "version": ("speaks version 7 of the protocol, and this npudiff speaks version 2", 586),
    "old": ("speaks version 1 of the protocol, and this npudiff speaks version 2, in which a result names its sample", 586),
    "wordy": (r"says hello with a version and versions of 70\d\d\d bytes, and 16384 are the most", 586),
    "wordy-nodes": ("says in 'placement' a 'where' of 70000 bytes, and 16384 are the most", 586),
    "nameless": ("sent a result without the whole number 'sample'", 586),
    "real": ("sent a result without the whole number 'sample'", 586),
    "unasked": ("sent a (message 'result' that nobody asked for, before it was to run a sample|result of repeat 0 where that of repeat 1 was to come)", 586),
    "unasked-slow": ("sent a result of sample 3 where that of sample 4 was to come", 586),
    "rubbish": ("does not speak the protocol: where a frame should begin it wrote 'Load'", 586),
    "endless-json": ("sends more than was asked for while it was to say hello", 586),
    "gone": ("ended with exit code 7 while it was to say hello", 531),
    "more": ("sends more than was asked for while it was to run a sample", 586),
    "shape": ("sent 'product' of shape 256; the model says 1x256", 586),
    "type": ("sent 'product' as int16; it was asked for uint8", 586),
    "name": ("sent a tensor 'Product', which nobody asked for", 586),
    "twice": ("sent the tensor 'product' twice", 586),
    "fewer": ("did not send the tensor 'product'", 586),
    "dies": ("ended with exit code 9 while it was to run a sample", 531),
    "error": ("could not load the model (stage 'compile', operator Mul): there is no such operator", 588),
    "between": ("sent 'product' as floats, of which 256 of 256 are no quantised values: they are up to 0.375 steps away", 593),
    "nan": ("sent 'product' as floats, of which 256 of 256 are no quantised values: they are up to inf steps away", 593),
}


# A runner of the models of --check, by the Python module.
MODULE_RUNNER = """
import numpy
from runner import Runner, RunnerError, main

class Module(Runner):
    name, version = "module", "1"

    def load(self, job):
        if open(job.model, "rb").read().startswith(b"this"):
            raise RunnerError("no model")
        self.missing = {t.name: "no such tensor" for t in job.outputs if not t.name.startswith("q")}
        print("printed by a library")

    def run(self, inputs):
        outputs = {}
        for t in self.job.outputs:
            with numpy.errstate(invalid="ignore"):
                codes = numpy.nan_to_num(numpy.rint(inputs["x" + t.name[1:]] / numpy.float32(t.scale[0]))) + t.zero_point[0]
            outputs[t.name] = codes.astype(t.type)
        return outputs

main(Module)
"""


# An engine with names and layouts of its own: it has the values of the file ENGINE, and finds the sample by its input.
ENGINE_RUNNER = """
import numpy
from runner import Matching, Runner, main

def change(arrays):
CHANGE

class Engine(Runner):
    name, version = "engine", "1"

    def compute(self, i):
        labels = {t.label: t for t in self.job.outputs}
        arrays = {name: (self.values[name][i:i + 1].reshape(t.shape).astype("int64") - t.zero_point[0]).astype("float32") * numpy.float32(t.scale[0])
                  for name, t in labels.items()}
        named = change(arrays)
        return {labels[key].name if key in labels else key: a for key, a in named.items()}

    def load(self, job):
        self.values = dict(numpy.load(ENGINE))
        self.matching = Matching(job.outputs, self.compute(2))
        self.missing = self.matching.missing
        for doubt in self.matching.doubts:
            self.log(doubt)

    def run(self, inputs):
        image = inputs["image"].reshape(-1)
        i = next(i for i, known in enumerate(self.values["input"]) if (known.reshape(-1) == image).all())
        return self.matching.apply(self.compute(i))

main(Engine)
"""


def processes_of(words):
    """Of those that run now and have the words in their command line."""
    found = []
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            line = pathlib.Path(f"/proc/{pid}/cmdline").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if words in line and "capture" not in line:
            found.append(int(pid))
    return found


class Runners(Scratch):
    def setUp(self):
        super().setUp()
        self.runners = self.folder / "runners"
        self.runners.mkdir()
        self.environment = dict(os.environ, NPUDIFF_RUNNERS=str(self.runners))

    def make(self, name, text=None, mode=0o755):
        path = self.runners / f"npudiff-runner-{name}"
        text = text if text is not None else f"#!{sys.executable}\n" + STANDIN.read_text().split("\n", 1)[1]
        path.write_text(text)
        path.chmod(mode)
        return path

    def run_it(self, device, *arguments, probes=("ramp", "uniform:6"), name=None, expect=None):
        path = self.folder / f"{name or device.replace(':', '-').replace('?', '-')}.h5"
        return path, capture(MODEL, [device], probes, path, *arguments, expect=expect, env=self.environment)

    def test_a_healthy_runner_equals_the_reference(self):
        self.make("standin")
        self.make("reals")
        path, _ = self.run_it("exec:standin?log=1", expect=0)
        floats, _ = self.run_it("exec:reals", expect=0)
        exact = self.folder / "exact.h5"
        capture(MODEL, ["exact"], ["ramp", "uniform:6"], exact)
        self.assertEqual(compare(exact, path, floats, expect=0)["verdict"], "same")
        attributes = info(path)["attributes"]
        self.assertEqual(attributes["device"]["uri"], "exec:standin?log=1")
        self.assertEqual(attributes["device"]["kind"], "exec")
        self.assertRegex(attributes["runtime"]["runner"], r"^standin 1 \(numpy [0-9.]+\)$")
        self.assertIn("sample 6", npudiff("info", path, "--log", "runner"))
        with Capture(path) as made:
            self.assertEqual(made.column("nodes", "provider"), ["numpy"])

    def test_lines_of_a_log_may_come_at_any_time(self):
        self.make("late-log")
        path, _ = self.run_it("exec:late-log", expect=0)
        said = npudiff("info", path, "--log", "runner")
        self.assertIn("after sample 4", said)

    def test_each_defect_is_named(self):
        for defect, (words, number) in DEFECTS.items():
            with self.subTest(defect=defect):
                self.make(defect)
                path, done = self.run_it(f"exec:{defect}")
                self.assertEqual(done.returncode, 5, done.stderr)
                self.assertTrue(words in done.stderr or re.search(words, done.stderr), done.stderr)
                self.assertIn(f"[ND-{number}]", done.stderr)
                self.assertIn(f"runner '{defect}'", info(path)["attributes"]["failure"]["message"])
                npudiff("verify", path)

    def test_what_cannot_be_started_is_named(self):
        self.make("plain", mode=0o644)
        self.make("interpreter", "#!/nowhere/python\n")
        for name, words, number, code in (
                ("missing", "there is no runner 'missing': no npudiff-runner-missing in the folder of runners or in PATH", 581, 2),
                ("plain", "may not be executed: 'chmod +x' allows it", 583, 5),
                ("interpreter", "the file or the interpreter that its first line names is missing", 583, 5)):
            with self.subTest(name=name):
                _, done = self.run_it(f"exec:{name}")
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertIn(words, done.stderr)
                self.assertIn(f"[ND-{number}]", done.stderr)

    def test_one_that_never_ends_is_stopped(self):
        for name in ("endless", "mute"): # in a sample; before it says hello
            with self.subTest(name=name):
                self.make(name)
                _, done = self.run_it(f"exec:{name}", "--stall-limit", "2")
                self.assertEqual(done.returncode, 5)
                self.assertIn(f"device 'exec:{name}' was stopped: no progress for 2 s", done.stderr)
                wait_until(lambda: not processes_of(f"{self.runners}/npudiff-runner-{name}"), 30, "end of the runner")

    def test_what_was_acknowledged_survives_the_runner(self):
        self.make("dies")
        path, _ = self.run_it("exec:dies", probes=("uniform:8",))
        with Capture(path) as made:
            self.assertEqual((made.status, made.n_samples("uniform")), ("failed", 3))

    def test_another_program_begins_anew(self):
        """A runner that was replaced between a kill and --resume, by itself or behind a wrapper: nothing of the old one is
        in the capture, and that is told. The same one goes on."""
        lines = STANDIN.read_text().split("\n", 1)
        behind = self.folder / "program.py"
        behind.write_text(lines[1])
        for name, text in (("script", f"#!{sys.executable}\n{lines[1]}"), ("wrapper", f'#!/bin/sh\nexec {sys.executable} {behind} "$@"\n')):
            for changes in (False, True):
                with self.subTest(name=name, changes=changes):
                    runner, temporary = self.make(name, text), self.folder / f"{name}{changes}"
                    temporary.mkdir()
                    path = self.folder / f"{name}{changes}.h5"
                    command = ["capture", MODELS / MODEL, "-d", f"exec:{name}", "-p", "uniform:12", "-o", path]
                    with unittest.mock.patch.dict(os.environ, self.environment):
                        running = Running(command, temporary, "acknowledged 5")
                    agent = running.stopped_agent()
                    running.process.kill()
                    running.finish()
                    wait_until(lambda: not is_alive(agent), 60, "end of the agent")
                    program = behind if name == "wrapper" else runner
                    if changes:
                        program.write_text(program.read_text().replace("np.clip(np.rint(product / scale) +", "np.clip(1 + np.rint(product / scale) +"))
                    done = npudiff(*command, "--resume", expect=None, env=dict(self.environment, TMPDIR=str(temporary)))
                    self.assertEqual(done.returncode, 0, done.stderr)
                    said = f"device 'exec:{name}' began anew, since the interrupted run cannot be continued: runner '{runner}' is not the program"
                    self.assertEqual(said in done.stderr, changes, done.stderr)
                    with Capture(path) as made:
                        self.assertEqual("resumed" in made.file["runtime"].attrs, not changes)

    def test_one_that_fails_without_a_word(self):
        """The message does not end in nothing, also where all of a fingerprint fails."""
        self.make("silent")
        _, done = self.run_it("exec:silent")
        self.assertEqual(done.returncode, 5)
        self.assertIn("runner 'silent' could not load the model (stage ''): it says nothing [ND-588]", done.stderr)
        done = npudiff("fingerprint", "-d", "exec:silent", "--section", "linear-u8", "-o", self.folder / "f.json", expect=None, env=self.environment)
        self.assertEqual(done.returncode, 5)
        self.assertIn("operators that were tried: runner 'silent' could not load the model (stage ''): it says nothing [ND-511]", done.stderr)

    def test_one_that_prints_without_end_does_not_fill_the_disk(self):
        """Where files have no holes (ramfs) it is stopped at the limit of 64 MiB; its last 8 MiB are in the capture."""
        self.make("chatty")
        disk, path = self.folder / "disk", self.folder / "x.h5"
        disk.mkdir()
        command = shlex.join(map(str, [NPUDIFF, *capture_command(MODEL, ["exec:chatty"], ["uniform:6"], path)]))
        script = f"mount -t ramfs none {disk} || exit 77; TMPDIR={disk} {command}"
        done = with_own_mounts(self, script, "ramfs", env=self.environment)
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertIn("device 'exec:chatty' was stopped: what it prints is over the limit of 64 MiB [ND-541]", done.stderr)
        self.assertEqual(info(path)["attributes"]["failure"]["stage"], "run")

    def test_tensors_that_it_cannot_give_are_left_out_with_the_reason(self):
        self.make("merged")
        path = self.folder / "merged.h5"
        done = npudiff("capture", MODELS / "cnn.w8a8.onnx", "-d", "exec:merged", "-p", "ramp", "-o", path, "--json",
                       env=self.environment)
        self.assertEqual([(o["tensor"], o["reason"]) for o in json.loads(done)["captures"][0]["left_out"]],
                         [("pool", "it was merged")])
        with Capture(path) as made:
            self.assertEqual(made.status, "complete")
            self.assertEqual(len(made.edges), 9)
            self.assertNotIn("pool", made.edges)
        self.assertEqual(info(path)["left_out"], [{"tensor": "pool", "reason": "it was merged"}])
        self.assertIn("9 tensors recorded, 1 left out\n  left out: 'pool': it was merged\n", npudiff("info", path))
        self.assertRegex(npudiff("info", path, "-v"), r"\nLEFT_OUT +REASON *\npool +it was merged *\n")

    def test_outputs_of_the_model_are_never_left_out(self):
        self.make("withheld")
        _, done = self.run_it("exec:withheld")
        self.assertEqual(done.returncode, 5)
        self.assertIn("the runner cannot give 1 of the tensors: 'product' (it was merged) [ND-591]", done.stderr)

    def test_floats_between_the_steps_are_rounded_when_that_is_asked_for_and_counted(self):
        self.make("between")
        self.make("standin")
        path, _ = self.run_it("exec:between?off-grid=round", name="between", expect=0)
        self.assertIn("tensor 'product': 2048 of 2048 values are no quantised values; they are up to 0.375 steps away",
                      npudiff("info", path, "--log", "runner"))
        healthy, _ = self.run_it("exec:standin", expect=0)
        with Capture(path) as rounded, Capture(healthy) as made:
            self.assertTrue(np.array_equal(rounded.values("uniform", "product"), made.values("uniform", "product")))

    def test_a_stranger_can_name_no_file(self):
        path = self.make("standin")
        campaign = self.folder / "campaign.yaml"
        for device in (f"exec:{path}", "exec:./npudiff-runner-standin", "exec:standin?log=/etc/passwd"):
            with self.subTest(device=device):
                _, done = self.run_it(device, name="refused")
                self.assertEqual(done.returncode, 2)
                self.assertIn("[ND-525]", done.stderr)
                campaign.write_text(f"models: [{{name: m, quantised: {MODELS / MODEL}, probes: [ramp]}}]\n"
                                    f"devices: [cpu, \"{device}\"]\npolicy:\n- {{gate: finalize}}\n")
                done = npudiff("qualify", campaign, "-o", self.folder / "q", expect=None, env=self.environment)
                self.assertEqual(done.returncode, 2, done.stdout)
                self.assertIn("[ND-525]", done.stderr)
        _, done = self.run_it(f"exec:{path}", "--trust-options", name="trusted")
        self.assertEqual(done.returncode, 0, done.stderr)
        _, done = self.run_it("exec:Standin", name="refused")
        self.assertIn("'Standin' is no name of a runner", done.stderr)

    def test_check_names_the_trial_that_a_runner_fails(self):
        for name, failed in (("standin", []), ("reals", []), ("order", ["order of tensors and samples", "values of 16 bits", "a second job"]),
                             ("stays", ["its end"]), ("credulous", ["a tensor that the model lacks", "a damaged model"])):
            with self.subTest(name=name):
                self.make(name)
                done = npudiff("devices", "--check", f"exec:{name}", "--json", expect=5 if failed else 0, env=self.environment)
                trials = {t["trial"]: t["state"] for t in json.loads(done)["trials"]}
                self.assertEqual(len(trials), 10)
                self.assertEqual([t for t, state in trials.items() if state != "passed"], failed)
        self.assertIn("is no runner", npudiff("devices", "--check", "cpu", expect=None).stderr)

    def test_check_leaves_no_files_where_it_is_called(self):
        self.make("litters")
        here = self.folder / "here"
        here.mkdir()
        npudiff("devices", "--check", "exec:litters", env=self.environment, cwd=here)
        self.assertEqual(list(here.iterdir()), [])

    def test_devices_lists_runners_and_what_is_missing(self):
        self.make("standin")
        self.make("plain", mode=0o644)
        rows = json.loads(npudiff("devices", "--no-phones", "--json", env=self.environment))["runners"]
        rows = {r["device"]: (r["available"], r["reason"]) for r in rows}
        self.assertEqual(rows["exec:standin"], (True, ""))
        self.assertEqual(rows["exec:plain"], (False, "it may not be executed: 'chmod +x' allows it"))

    def test_the_module_and_the_header_make_runners(self):
        module = ROOT / "python/src/npudiff/runner.py"
        (self.runners / "runner.py").write_text(module.read_text())
        self.make("module", f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(self.runners)!r})\n" + MODULE_RUNNER)
        done = npudiff("devices", "--check", "exec:module", "--json", expect=0, env=self.environment)
        self.assertEqual({t["state"] for t in json.loads(done)["trials"]}, {"passed"})
        self.make("header").write_bytes(pathlib.Path(os.environ["NPUDIFF"]).parents[2].joinpath("tests/c_runner").read_bytes())
        _, done = self.run_it("exec:header")
        self.assertIn("runner 'header' could not load the model (stage 'load'): this runner only refuses", done.stderr)

    def engine(self, change, n=6):
        """A runner of the golden CNN whose engine gives what `exact` gives, changed; (its capture, what was said, that of exact)."""
        exact = self.folder / "exact.h5"
        capture("cnn.w8a8.onnx", ["exact"], [f"uniform:{n}"], exact, "--force")
        with h5py.File(exact) as file:
            probe = file["probes/uniform"]
            values = {"input": probe["inputs/image"][()]}
            values |= {name.replace("%2F", "/"): data[()] for name, data in probe["outputs"].items()}
        np.savez(self.folder / "engine.npz", **values)
        (self.runners / "runner.py").write_text((ROOT / "python/src/npudiff/runner.py").read_text())
        self.make("engine", f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(self.runners)!r})\n"
                  + ENGINE_RUNNER.replace("ENGINE", repr(str(self.folder / "engine.npz"))).replace("CHANGE", change))
        path = self.folder / "engine.h5"
        done = capture("cnn.w8a8.onnx", ["exec:engine"], [f"uniform:{n}"], path, "--force", expect=None, env=self.environment)
        return path, done, exact

    def test_names_order_and_layout_of_an_engine_are_matched_and_doubts_are_told(self):
        # Real numbers, images as NHWC, in another order, all names but two changed.
        path, done, exact = self.engine("""
    arrays = dict(reversed(arrays.items()))
    return {(name if name in ("logits", "image") else f"layer{i}"): a.transpose(0, 2, 3, 1) if a.ndim == 4 else a
            for i, (name, a) in enumerate(arrays.items())}""")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(compare(exact, path, expect=0)["verdict"], "same")
        said = npudiff("info", path, "--log", "runner")
        self.assertEqual(said.count("the names differ"), 8)
        self.assertIn("'stem/relu_QuantizeLinear_Output' is taken from the engine's 'layer", said)

    def test_tensors_that_an_engine_merged_or_requantised_are_left_out(self):
        path, done, exact = self.engine("""
    arrays.pop("pool", None)                               # merged into the layer before
    if "average" in arrays:
        arrays["average"] = arrays["average"] * 1.37       # another scale under its name
    if "depthwise/relu" in arrays:
        arrays["x"] = arrays["y"] = arrays.pop("depthwise/relu") # two that could be it
    return arrays""")
        self.assertEqual(done.returncode, 0, done.stderr)
        with h5py.File(path) as file:
            self.assertEqual(len(file["probes/uniform/outputs"]), 7)
        said = json.dumps(info(path))
        for words in ("it was merged, or requantised", "values between its steps: it was requantised", "2 of the engine's tensors could be it: x, y"):
            self.assertIn(words, said)
        report = compare(path, exact, expect=None)
        self.assertEqual([t["groups"] for t in report["tensors"] if t["verdict"] == "same"], [[0, 0]] * 7)

    def test_shipped_runners_are_pinned_by_digest(self):
        pins = sorted((ROOT / "tools/runners").glob("*.txt"))
        self.assertEqual([p.stem.replace("-", "_") for p in pins],
                         sorted(p.stem for p in (ROOT / "python/src/npudiff/runners").glob("[!_]*.py")))
        for path in pins:
            text = path.read_text()
            self.assertRegex(text, rf"^# runner {path.stem}: .*\.\n# python: 3\.\d+( 3\.\d+)*\n")
            for package, version in re.findall(r"^([\w.-]+)==(\S+)", text, re.M):
                with self.subTest(runner=path.stem, package=package):
                    pinned = rf"^# licence of {re.escape(package)}: .+\n{re.escape(package)}=={re.escape(version)}( \\\n    --hash=sha256:[0-9a-f]{{64}})+$"
                    self.assertRegex(text, re.compile(pinned, re.M))

    def test_it_is_confined(self):
        self.make("program")
        path, _ = self.run_it("exec:program", probes=("ramp",), expect=0)
        if "programs" not in info(path)["attributes"]["runtime"]["confined"]:
            self.skipTest("this kernel does not hold programs back")
        # 127: the program could not be started. It is what the runner printed.
        self.assertIn("127", npudiff("info", path, "--log", "stdout"))

    def test_a_killed_runner_loses_nothing_that_was_acknowledged(self):
        self.make("standin")
        temporary = self.folder / "tmp"
        temporary.mkdir()
        path = self.folder / "killed.h5"
        os.environ["NPUDIFF_RUNNERS"] = str(self.runners)
        self.addCleanup(os.environ.pop, "NPUDIFF_RUNNERS")
        command = ["capture", MODELS / MODEL, "-d", "exec:standin", "-p", "uniform:200000", "-o", path, "-q"]
        running = Running(command, temporary)
        n = wait_until(lambda: acknowledged(temporary), 60, "acknowledged sample")
        for pid in processes_of(str(self.runners / "npudiff-runner-standin")):
            os.kill(pid, signal.SIGKILL)
        _, errors = running.process.communicate(timeout=120)
        self.assertEqual(running.process.returncode, 5, errors)
        self.assertIn("runner 'standin' was killed by signal 9 (Killed) while it was to run a sample", errors)
        with Capture(path) as made:
            self.assertGreaterEqual(made.n_samples("uniform"), n)
        npudiff("verify", path)


if __name__ == "__main__":
    main()
