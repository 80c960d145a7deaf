#!/usr/bin/env python3
"""A small part of tools/studies/faults and kills: calls to the system that fail, some of each kind, and captures that are killed. The
seed is taken from ND_SEED."""
import os
import pathlib
import subprocess
import sys

from support import Scratch, main

STUDY = pathlib.Path(__file__).resolve().parents[2] / "tools/studies/faults"
KILLS = STUDY.with_name("kills")
N_DISKS = 8 # of one command: four sizes, for the output and for TMPDIR; they need privileges


class Faults(Scratch):
    def check(self, commands, most, kinds, *more, at_least=20):
        seed = os.environ.get("ND_SEED", "20261123")
        print(f"# ND_SEED={seed}", flush=True)
        done = subprocess.run([sys.executable, STUDY, "--seed", seed, "--most", str(most), "--commands", commands, "--kinds", kinds, *more],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, f"{done.stdout}{done.stderr}")
        runs = int(done.stdout.strip().splitlines()[-1].split("|")[2])
        self.assertGreaterEqual(runs, at_least - (N_DISKS if "no small disk here" in done.stdout else 0), done.stdout)

    def test_commands_that_write_files(self):
        self.check("bundle,init,lint,encodings apply,import numpy,golden", 2, "open,write,write+,fsync,close,rename,mmap,malloc,fork,kill")

    def test_answers_that_lose_a_part_for_want_of_memory(self):
        self.check("align,lint --fix", 100, "malloc", "--last", "100")

    def test_lists_that_lose_a_part_for_want_of_memory(self):
        self.check("fingerprint,runtimes,encodings list", 15, "malloc", "--last", "150")

    def test_no_call_that_fails_changes_an_answer(self):
        self.check("runtimes check,text logs", 600, "open,malloc")
        self.check("text devices", 10, "open,malloc", at_least=10)
        self.check("report campaign", 20, "open,mmap", at_least=10)

    def test_fleets_and_servers(self):
        self.check("fleet tasks,server info,server compare", 3, "open,write,fsync,close,rename,mmap,malloc,fork")

    def test_a_capture_elsewhere_says_what_it_could_not_ask(self):
        """The digests of the libraries are asked for at the end of the run."""
        self.check("fleet capture", 4, "open", at_least=2)

    def test_killed_captures(self):
        done = subprocess.run([sys.executable, KILLS, "--seed", os.environ.get("ND_SEED", "20261124"), "-n", "4"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, f"{done.stdout}{done.stderr}")

    def test_captures(self):
        self.check("capture exact", 2, "open,write,fsync,rename,malloc,kill,disk")


if __name__ == "__main__":
    main()
