#!/usr/bin/env python3
"""What others may have put into names, folders and files reaches nothing outside, and breaks no output: links in the place of
folders and locks, pipes in the place of files, characters that a terminal obeys."""
import csv
import json
import os
import pathlib
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

import numpy as np
import onnx_write
from support import MODELS, NPUDIFF, Scratch, capture, main, npudiff

PYTHON = pathlib.Path(__file__).resolve().parents[2] / "python/src/npudiff"
NAME = "a\u202eb\u009bc\x7fd\u2066e\x1b[2J"
# A runner that puts a pipe where the host looks for what the agent writes, and ends.
PIPE_RUNNER = f"""#!{sys.executable}
import os
import sys
sys.path.insert(0, {str(PYTHON)!r})
from runner import Runner, main

class Pipes(Runner):
    name, version = "pipes", "1"

    def load(self, job):
        pass

    def run(self, inputs):
        os.rename("FILE", "old")
        os.mkfifo("FILE")
        os._exit(9)

main(Pipes)
"""

# Healthy with FILE "0", else it hangs in its second sample. What it has started goes on in a session of its own.
ORPHAN_RUNNER = f"""#!{sys.executable}
import os
import sys
import time
sys.path.insert(0, {str(PYTHON)!r})
from runner import Runner, main

if os.fork() == 0:
    os.setsid()
    if os.fork() != 0:
        os._exit(0)
    os.closerange(0, 3)
    time.sleep(600)
    os._exit(0)

import numpy

class Orphans(Runner):
    name, version = "orphans", "1"

    def load(self, job):
        self.n = 0

    def run(self, inputs):
        self.n += 1
        if HANGS and self.n > 1:
            time.sleep(600)
        return {{t.name: numpy.zeros(t.shape, t.type) for t in self.job.outputs}}

main(Orphans)
"""


class Names(Scratch):
    def model(self, out="out", name=NAME):
        path = self.folder / "m.onnx"
        nodes = [onnx_write.node("QuantizeLinear", [name, "s", "z"], ["q"]), onnx_write.node("DequantizeLinear", ["q", "s", "z"], ["d"]),
                 onnx_write.node("Relu", ["d"], ["r"]), onnx_write.node("QuantizeLinear", ["r", "s", "z"], ["y" + name]),
                 onnx_write.node("DequantizeLinear", ["y" + name, "s", "z"], [out])]
        path.write_bytes(onnx_write.model(nodes, [onnx_write.value_info(name, onnx_write.FLOAT, [1, 4])],
                                          [onnx_write.value_info(out, onnx_write.FLOAT, [1, 4])],
                                          {"s": np.float32(0.02), "z": np.uint8(3)}))
        return path

    def test_json_is_json(self):
        """Every name comes back as it was, and what is printed has no character that a terminal obeys."""
        said = npudiff("info", "--list", self.model(), "--json")
        self.assertIn(NAME, json.dumps(json.loads(said), ensure_ascii=False).replace("\\u001b", "\x1b"))
        self.assertFalse([c for c in said if c in "\x1b\x7f\u009b\u202e\u2066"])
        paths = [self.folder / f"{d}.h5" for d in ("exact", "floor")]
        for path, device in zip(paths, ("exact", "emu:floor"), strict=True):
            npudiff("capture", self.model(), "-d", device, "-p", "uniform:2", "-q", "-o", path)
        said = npudiff("compare", *paths, "--json", expect=None).stdout
        self.assertIsInstance(json.loads(said), dict)
        self.assertIn("\\u202e", said)

    def test_nothing_that_a_log_of_ci_obeys(self):
        """No name begins a line as a command of GitHub, or has one of Azure or TeamCity anywhere; neighbours stay as they are."""
        commands = ["::error file=a.c,line=1::x", " ::warning::x", "\u00a0::error::x", "::set-output name=a::b", ":::x", "##vso[task.x]y", "##[error]x",
                    "a##[group]b", "###[x]", "##teamcity[message]", "##VSO[x]", "\u200f::debug::\u061c\u200e"]
        plain = ["aten::conv", "a ::b", "# [x", "#[x]", "##x y[", "a:b", "[##]", "##"]
        for name in commands + plain:
            with self.subTest(name=name):
                model, paths = self.model(name, "x"), [self.folder / f"{d}.h5" for d in ("exact", "floor")]
                for path, device in zip(paths, ("exact", "emu:floor"), strict=True):
                    npudiff("capture", model, "-d", device, "-p", "uniform:2", "-q", "-f", "-o", path)
                said = (npudiff("info", model, errors="replace") + npudiff("compare", "-v", *paths, expect=None, errors="replace").stdout
                        + npudiff("verify", self.folder / name, expect=None, errors="replace").stderr)
                documents = [npudiff("info", "--list", model, "--json"), npudiff("compare", *paths, "--json", expect=None).stdout]
                for line in "\n".join([said, *documents]).splitlines():
                    self.assertFalse(line.strip().startswith("::"), line)
                    self.assertNotRegex(line, r"##[a-zA-Z]*\[")
                    self.assertFalse([c for c in line if c in "\u200e\u200f\u061c"], line)
                self.assertIn(name, json.dumps(json.loads(documents[0]), ensure_ascii=False))
                self.assertEqual(name in said, name in plain or "##" not in name and "\u200f" not in name) # "::" in the midst of a line
        self.assertIn("\n  :\\x3aerror file=a.c,line=1::x ", npudiff("info", self.model(commands[0], "x")))

    def test_pages_turn_no_text(self):
        """What a page shows of a name, and what its script is given, has no character that turns the direction of text."""
        model, paths = self.model(), [self.folder / f"{d}.h5" for d in ("exact", "floor")]
        for path, device in zip(paths, ("exact", "emu:zero@out"), strict=True):
            npudiff("capture", model, "-d", device, "-p", "uniform:2", "-q", "-o", path)
        npudiff("report", *paths, "-o", self.folder / "r.html", expect=None)
        page = (self.folder / "r.html").read_text()
        self.assertFalse([c for c in page if c in "\x1b\x7f\u009b\u202e\u2066"])
        self.assertIn("<bdi class=\"name\">a\\u202eb??c?d\\u2066e?[2J</bdi>", page)
        self.assertIn("(key, value) => typeof value === \"string\" ? show(value) : value", page)

    def test_tables_have_no_controls(self):
        (self.folder / "c.yaml").write_text(f"models:\n  - {{quantised: '{self.model()}', probes: ['uniform:2']}}\ndevices: [exact, 'emu:floor']\n"
                                            "reference: quantised\npolicy:\n  - {gate: lsb, max: 5}\n")
        npudiff("qualify", self.folder / "c.yaml", "-o", self.folder / "result", expect=None)
        table = (self.folder / "result/result.csv").read_bytes().decode()
        self.assertFalse([c for c in table.replace("\r\n", "\n") if c in "\x1b\x7f\r\u009b"])
        self.assertGreater(len(list(csv.reader(table.splitlines()))), 1)


class Codes(Scratch):
    def test_whole_numbers_of_64_bits_are_no_codes(self):
        path = self.folder / "m.onnx"
        nodes = [onnx_write.node("QuantizeLinear", ["x", "s", "z"], ["q"]), onnx_write.node("DequantizeLinear", ["q", "s", "z"], ["d"]),
                 onnx_write.node("Relu", ["d"], ["r"]), onnx_write.node("QuantizeLinear", ["r", "s", "z"], ["q2"]),
                 onnx_write.node("DequantizeLinear", ["q2", "s", "z"], ["d2"]), onnx_write.node("ArgMax", ["d2"], ["y"], axis=1)]
        path.write_bytes(onnx_write.model(nodes, [onnx_write.value_info("x", onnx_write.FLOAT, [1, 4])],
                                          [onnx_write.value_info("y", onnx_write.I64, [1, 1])], {"s": np.float32(0.02), "z": np.uint8(3)}))
        npudiff("capture", path, "-d", "exact", "-p", "uniform:2", "-q", "-o", self.folder / "a.h5")
        npudiff("verify", "--paranoid", "--model", path, self.folder / "a.h5")


class Links(Scratch):
    def setUp(self):
        super().setUp()
        self.victim = self.folder / "victim"
        self.victim.mkdir()
        for name in ("thesis.txt", "draft.tmp-notes", "x.json.tmp-0123456789abcdef", "a" * 64 + ".h5"):
            (self.victim / name).write_text("mine")
        self.kept = sorted(self.victim.iterdir())

    def test_a_store_is_changed_within_itself(self):
        capture("mul.u8.onnx", ["exact"], ["uniform:2"], self.folder / "a")
        made = next((self.folder / "a").glob("*.h5")) if (self.folder / "a").is_dir() else self.folder / "a"
        for name in ("objects", "entries"):
            store = self.folder / f"store-{name}"
            npudiff("golden", "add", store, made, "-q")
            shutil.rmtree(store / name)
            (store / name).symlink_to(self.victim)
            for command in (["prune", store], ["add", store, made]):
                done = npudiff("golden", *command, expect=None)
                self.assertEqual(done.returncode, 2)
                self.assertIn(f"'{store / name}' is a symbolic link", done.stderr)
            self.assertEqual(sorted(self.victim.iterdir()), self.kept)

    def test_only_leftovers_are_pruned(self):
        capture("mul.u8.onnx", ["exact"], ["uniform:2"], self.folder / "a")
        made = next((self.folder / "a").glob("*.h5")) if (self.folder / "a").is_dir() else self.folder / "a"
        store = self.folder / "store"
        npudiff("golden", "add", store, made, "-q")
        (store / "draft.tmp-notes").write_text("mine")
        (store / "entries/x.json.tmp-0123456789abcdef").write_text("a leftover")
        npudiff("golden", "prune", store)
        self.assertTrue((store / "draft.tmp-notes").exists())
        self.assertFalse((store / "entries/x.json.tmp-0123456789abcdef").exists())

    def test_locks_are_no_links(self):
        (self.folder / "c.yaml").write_text(f"models:\n  - {{quantised: '{MODELS / 'mul.u8.onnx'}', probes: ['uniform:2']}}\ndevices: [exact]\n"
                                            "reference: quantised\npolicy:\n  - {gate: lsb, max: 5}\n")
        for lock, command in (("store/lock", ["golden", "prune", self.folder / "store"]),
                              ("q/.lock", ["qualify", self.folder / "c.yaml", "-o", self.folder / "q"])):
            (self.folder / lock).parent.mkdir()
            (self.folder / lock).symlink_to(self.victim / "created")
            npudiff(*command, expect=2)
            self.assertEqual(sorted(self.victim.iterdir()), self.kept)

    def test_prepare_replaces_prepared_folders_alone(self):
        (self.victim / "npudiff.json").write_text("{}")
        done = npudiff("prepare", MODELS / "mul.u8.onnx", "--chipset", "gen3", "-p", "uniform:2", "-o", self.victim, "-f", expect=None)
        self.assertEqual(done.returncode, 2)
        self.assertIn("is not a prepared folder", done.stderr)
        self.assertEqual((self.victim / "thesis.txt").read_text(), "mine")


class Outputs(Scratch):
    def setUp(self):
        super().setUp()
        self.capture = self.folder / "a.h5"
        npudiff("capture", MODELS / "mul.u8.onnx", "-d", "exact", "-p", "uniform:2", "-q", "-o", self.capture)

    def run_with(self, mode, *arguments, fd=1):
        """The file `log` after the command had it as that descriptor."""
        log = self.folder / "log"
        log.write_text("what was there before\n")
        with open(log, mode) as file:
            extra = {"stdout": file} if fd == 1 else {"pass_fds": [file.fileno()], "stdout": subprocess.DEVNULL}
            done = subprocess.run([NPUDIFF, *(str(a).replace("FD", str(file.fileno())) for a in arguments)], stderr=subprocess.PIPE, **extra)
        return done.returncode, log.read_text()

    def test_a_descriptor_is_written_where_it_stands(self):
        code, text = self.run_with("a", "golden", "bundle", self.capture, "-q", "-o", "/dev/stdout")
        self.assertEqual((code, text.splitlines()[0]), (0, "what was there before"))
        self.assertIsInstance(json.loads(text.split("\n", 1)[1]), dict)
        code, text = self.run_with("w", "golden", "bundle", self.capture, "-o", "/dev/stdout")
        self.assertEqual((code, text[0]), (0, "{"))
        self.assertIsInstance(json.JSONDecoder().raw_decode(text)[0], dict)
        self.assertEqual(self.run_with("r", "golden", "bundle", self.capture, "-q", "-o", "/dev/fd/FD", fd=9), (2, "what was there before\n"))

    def test_one_file_is_not_written_twice_nor_over_what_is_read(self):
        model = self.folder / "m.onnx"
        shutil.copy(MODELS / "mul.u8.onnx", model)
        (self.folder / "other.onnx").hardlink_to(model)
        before = model.read_bytes()
        for command in (["align", model, "-o", self.folder / "a.onnx", "--certificate", f"{self.folder}/./a.onnx"],
                        ["lint", model, "-f", "--sarif", model], ["lint", model, "-f", "--sarif", self.folder / "other.onnx"],
                        ["golden", "bundle", self.capture, "-f", "-o", self.capture], ["align", model, "-f", "-o", model]):
            done = npudiff(*command, expect=None)
            self.assertEqual(done.returncode, 2, command)
            self.assertIn("which this command reads or writes, too", done.stderr)
        self.assertEqual(model.read_bytes(), before)
        self.assertFalse((self.folder / "a.onnx").exists())


class Pipes(Scratch):
    def test_a_pipe_in_the_place_of_a_file_stops_nobody(self):
        """A runner may write in the folder of its agent. The host does not wait for what it puts there."""
        for file, code, said in (("spool.nds", 2, "it is not a regular file"), ("stdout.txt", 5, "exit code 9")):
            runner = self.folder / "npudiff-runner-pipes"
            runner.write_text(PIPE_RUNNER.replace("FILE", file))
            runner.chmod(0o755)
            done = subprocess.run([NPUDIFF, "capture", MODELS / "mul.u8.onnx", "-d", "exec:pipes", "-p", "uniform:8", "-q", "-o",
                                   self.folder / f"{file}.h5"], env={**os.environ, "NPUDIFF_RUNNERS": str(self.folder)},
                                  capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(said, done.stderr)


class Orphans(Scratch):
    def living(self, marker):
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                found += [path.parent.name] if str(marker).encode() in path.read_bytes() else []
            except OSError:
                pass
        return found

    def test_what_a_runner_started_ends_with_it(self):
        for hangs, arguments, code in ((False, [], 0), (True, ["--time-limit", "2"], 5)):
            runner = self.folder / "npudiff-runner-orphans"
            runner.write_text(ORPHAN_RUNNER.replace("HANGS", str(hangs)))
            runner.chmod(0o755)
            done = subprocess.run([NPUDIFF, "capture", MODELS / "mul.u8.onnx", "-d", "exec:orphans", "-p", "uniform:3", "-q", *arguments, "-o",
                                   self.folder / f"{hangs}.h5"], env={**os.environ, "NPUDIFF_RUNNERS": str(self.folder)},
                                  capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertEqual(self.living(runner), [])


if __name__ == "__main__":
    main()
