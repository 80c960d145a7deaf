"""Examples in the help can be pasted: their options exist, and they run in a folder with the files that they name."""
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

import numpy as np

import support
from support import GOLDEN, MODELS, NPUDIFF, npudiff

LAB = pathlib.Path(NPUDIFF).resolve().parents[2] / "lab/npudiff-lab"
TABLE = [command for program in (NPUDIFF, LAB)
         for command in json.loads(subprocess.run([program, "--option-table"], check=True, capture_output=True).stdout)["commands"]]
EXAMPLES = [example["command"] for command in TABLE for example in command["examples"]]
# A phone, an SDK's wheels and the results of a phone are not here; the whole fingerprint takes minutes.
NOT_HERE = ["'adb:*'", "runtimes add ", "import qnn-net-run", "gen3-all.json", "--campaign sheets"]
# Those that make files for others run first.
FIRST = ["capture", "init", "golden", "prepare"]


def words_of(example):
    """The words of each npudiff call in the example."""
    for call in re.split(r" && | \|\| ", example):
        words = shlex.split(call)
        if words[0] == "npudiff":
            yield words[1:]


class Examples(unittest.TestCase):
    def test_options_are_those_of_the_command(self):
        commands = {command["name"]: command for command in TABLE}
        for example in EXAMPLES:
            for name, *words in words_of(example):
                known = {f"--{o['name']}" for o in commands[name]["options"]} | {f"-{o['letter']}" for o in commands[name]["options"] if o["letter"]}
                used = {word.split("=")[0] for word in words if word.startswith("-")}
                self.assertLessEqual(used, known, example)

    def test_every_command_has_two_or_three_and_one_that_begins_with_its_name(self):
        for command in TABLE:
            with self.subTest(command["name"]):
                self.assertIn(len(command["examples"]), (2, 3))
                self.assertTrue(any(e["command"].startswith(f"npudiff {command['name']}") for e in command["examples"]))
                pasted = re.sub(r" \\\n +", " ", npudiff("help", command["name"])) # as a shell reads it
                for example in command["examples"]:
                    self.assertIn(f"\n  {example['command']}\n", pasted)

    def test_every_line_fits_80_columns(self):
        errors = re.findall(r"ND-\d+", npudiff("help", "errors"))
        self.assertGreater(len(errors), 100)
        for words in [[], ["errors"], *([c["name"]] for c in TABLE), *([e] for e in errors)]:
            with self.subTest(words):
                self.assertEqual([line for line in npudiff("help", *words).splitlines() if len(line) > 80], [])

    def test_commands_stand_under_their_roles(self):
        roles = {}
        for command in json.loads(npudiff("--option-table"))["commands"]:
            roles.setdefault(command["role"], []).append(command["name"])
        self.assertEqual(list(roles), ["find", "judge", "mend", "files", "here"])
        roles["of their own"] = ["fingerprint"] # a program that npudiff starts
        listed = [re.findall(r"^  ([a-z]+) ", part, re.M) for part in npudiff("help").split("\nhelp:")[0].split("\n\n")[2:]]
        self.assertEqual(listed, list(roles.values()))

    def make_folder(self, folder):
        shutil.copy(MODELS / "cnn.w8a8.onnx", folder / "model.onnx")
        shutil.copy(MODELS / "cnn.float.onnx", folder / "float.onnx")
        shutil.copy(GOLDEN / "encodings/cnn.per-tensor.1.0.0.encodings", folder / "model.encodings")
        support.some_digits(folder / "test.npz", 4)
        (folder / "qnn-net-run.log").write_text("0.0ms [ERROR] Failed to create graph\n")
        (folder / "latencies.csv").write_text("run,latency\n" + "".join(f"{i},{1 + i % 7 / 100}\n" for i in range(300)))
        np.savez(folder / "outputs.npz", logits=np.zeros((4, 1, 10), np.uint8))

    def make_for_others(self, folder):
        """What only an example that does not run here would make."""
        shutil.copy(folder / "captures/gen3.h5", folder / "field.h5")
        shutil.copy(folder / "gen3.json", folder / "gen1.json")

    def test_they_run_and_find_what_they_name(self):
        with tempfile.TemporaryDirectory() as path:
            folder = pathlib.Path(path)
            self.make_folder(folder)
            bin_folder = folder / "bin"
            bin_folder.mkdir()
            (bin_folder / "npudiff").symlink_to(NPUDIFF)
            standin = pathlib.Path(__file__).with_name("runner_standin.py").read_text()  # ONNX Runtime's is not on every machine
            (bin_folder / "npudiff-runner-ort").write_text(f"#!{sys.executable}\n" + standin.split("\n", 1)[1])
            (bin_folder / "npudiff-runner-ort").chmod(0o755)
            examples = [e for e in EXAMPLES if not any(word in e for word in NOT_HERE)]
            self.assertGreater(len(examples), len(EXAMPLES) - 6)

            def rank(example):
                name = example.split()[1]
                is_late = "--diff" in example or name in ("triage", "report")
                return (FIRST.index(name) if name in FIRST else len(FIRST) + is_late, EXAMPLES.index(example))
            done = set()
            for example in sorted(examples, key=rank):
                if example in done: # two commands show it
                    continue
                done.add(example)
                if rank(example)[0] > len(FIRST) and not (folder / "field.h5").exists():
                    self.make_for_others(folder)
                with self.subTest(example):
                    result = subprocess.run(["bash", "-c", f'PATH="{bin_folder}:$PATH"; {example}'], cwd=folder, capture_output=True,
                                            text=True, timeout=300)
                    # 1, 3 and 4 are answers; 2 and 5 are not.
                    self.assertIn(result.returncode, (0, 1, 3, 4), result.stderr)


if __name__ == "__main__":
    support.main()
