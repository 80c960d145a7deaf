#!/usr/bin/env python3
"""Agents that die, hang or take too much: a failed cell with its reason and every acknowledged sample, never a missing or
a damaged file. The random trials print their seed and take it from ND_SEED."""
import math
import os
import pathlib
import random
import shlex
import shutil
import signal
import subprocess
import time

from support import (MODELS, NPUDIFF, Capture, Running, Scratch, acknowledged, bits_equal, capture, capture_command, compare, info,
                     is_alive, main, npudiff, wait_until, with_own_mounts)

AGENT = pathlib.Path(os.environ.get("NPUDIFF_AGENT", pathlib.Path(NPUDIFF).parent.parent / "devices" / "agent" / "npudiff-agent"))
MODEL = "cnn.w8a8.onnx"
N_SAMPLES = 2000
N_TRIALS = 50
STAGES = ["stage load", "stage session", "stage placement", "stage run"] # before the first sample
PROBE = f"uniform:{N_SAMPLES}"


class Death(Scratch):
    """An agent killed in the middle of its work."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        started = time.monotonic()
        capture(MODEL, ["cpu"], [PROBE], cls.shared / "whole.h5")
        cls.duration_s = time.monotonic() - started
        with Capture(cls.shared / "whole.h5") as whole:
            cls.edges = whole.edges
            cls.whole = {edge: whole.values("uniform", edge) for edge in whole.edges}

    def limit_s(self, least):
        """A limit of time, in whole seconds, that loading does not reach on a machine that is busy with other work."""
        return max(least, math.ceil(4 * self.duration_s))

    def start(self, number=0, *arguments, probe=PROBE, device="cpu", stop=None):
        """A capture in the background with an output folder and a TMPDIR of its own; stop: where its agent stops itself."""
        out, temporary = self.folder / f"out{number}", self.folder / f"tmp{number}"
        out.mkdir()
        temporary.mkdir()
        return Running(capture_command(MODEL, [device], [probe], out / "x.h5", *arguments), temporary, stop), out, temporary

    def end_of(self, process):
        wait_until(lambda: not is_alive(process), 60, "end of the agent")

    def kill_host(self, running):
        """kill -9 of npudiff itself where its agent has stopped itself: the agent goes, too."""
        agent = running.stopped_agent()
        running.process.kill()
        code, _ = running.finish()
        self.assertEqual(code, -signal.SIGKILL)
        self.end_of(agent)

    def check_stored(self, path):
        """Every stored sample is what the undisturbed run gave; how many there are."""
        with Capture(path) as opened:
            n = opened.n_samples("uniform")
            self.assertEqual(opened.edges, self.edges)
            for edge in self.edges:
                if n > 0:
                    values = opened.values("uniform", edge)
                    self.assertTrue(bits_equal(values, self.whole[edge][:n]), f"{path}: {edge}, {n} samples")
            self.assertEqual(int(opened.file["probes/uniform"].attrs["n_samples_expected"]), N_SAMPLES)
        return n

    def failed(self, path, output, *words):
        """The capture is marked failed, with a reason that holds these words, on stderr as in the file."""
        with Capture(path) as opened:
            self.assertEqual(opened.status, "failed")
            message = opened.failure()["message"]
        for word in words:
            self.assertIn(word, message)
        self.assertIn(message, output)
        return message

    def test_50_kills_lose_nothing_acknowledged(self):
        """kill -9 at a random sample, stage or time: exit 5, a sound capture that names the signal, every stored sample
        bit-equal, and at least as many as the spool had acknowledged before the kill."""
        seed = int(os.environ.get("ND_SEED", "20260728"))
        print(f"# ND_SEED={seed}", flush=True)
        dice = random.Random(seed)
        stored, n_killed = [], 0
        for trial in range(N_TRIALS):
            stop = None # a fifth at some time
            if trial % 5 < 2:
                stop = f"acknowledged {dice.randrange(1, N_SAMPLES)}"
            elif trial % 5 < 4:
                stop = dice.choice(STAGES)
            running, out, temporary = self.start(trial, stop=stop)
            agent = running.agent() if stop is None else running.stopped_agent()
            if stop is None:
                time.sleep(dice.uniform(0, 1.1 * self.duration_s))
            acknowledged = running.acknowledged()
            try:
                os.kill(agent, signal.SIGKILL)
            except ProcessLookupError:
                pass
            code, said = running.finish()
            with Capture(out / "x.h5") as opened:
                is_complete = opened.status == "complete"
            if is_complete: # the kill came after its end
                self.assertEqual((code, self.check_stored(out / "x.h5")), (0, N_SAMPLES), said)
            else:
                n_killed += 1
                self.assertEqual(code, 5, said)
                self.failed(out / "x.h5", said, "signal 9", "Killed")
                stored.append(self.check_stored(out / "x.h5"))
                self.assertGreaterEqual(stored[-1], acknowledged, f"trial {trial}")
            npudiff("verify", "-q", out / "x.h5")
            self.assertEqual([p.name for p in out.iterdir()], ["x.h5"])
            self.assertEqual(list(temporary.iterdir()), [])
            (out / "x.h5").unlink()
        print(f"# {n_killed} killed; samples kept: {sorted(stored)}", flush=True)
        # Only those at some time may come too late.
        self.assertGreaterEqual(n_killed, N_TRIALS * 4 // 5)
        self.assertGreaterEqual(sum(n == 0 for n in stored), N_TRIALS * 2 // 5)
        self.assertGreaterEqual(sum(0 < n < N_SAMPLES for n in stored), N_TRIALS * 2 // 5)

    def test_late_kill_keeps_most(self):
        """A kill once two thirds are acknowledged leaves two thirds or more; comparing that capture exits 5, says why, and
        judges it by the samples it has."""
        running, out, _ = self.start(stop=f"acknowledged {2 * N_SAMPLES // 3}")
        os.kill(running.stopped_agent(), signal.SIGKILL)
        code, said = running.finish()
        self.assertEqual(code, 5, said)
        self.assertGreaterEqual(self.check_stored(out / "x.h5"), 2 * N_SAMPLES // 3)
        result = compare(self.shared / "whole.h5", out / "x.h5", expect=5)
        self.assertEqual(result["verdict"], "failed")
        self.assertIn("signal 9", result["devices"][1]["failure"])
        pair = result["tensors"][-1]["pairs"][0]
        self.assertEqual((pair["coverage"], pair["differing"]), ("part", 0))
        text = " ".join(npudiff("compare", self.shared / "whole.h5", out / "x.h5", expect=5).split())
        self.assertIn("failed: ", text)
        self.assertIn("signal 9", text)
        self.assertEqual(info(out / "x.h5")["attributes"]["failure"]["stage"], "run")

    def test_segmentation_fault_is_named(self):
        """A crash in the provider is told apart from a kill."""
        running, out, _ = self.start(stop="acknowledged 1000")
        agent = running.stopped_agent()
        os.kill(agent, signal.SIGSEGV)
        os.kill(agent, signal.SIGCONT)
        code, said = running.finish()
        self.assertEqual(code, 5, said)
        self.failed(out / "x.h5", said, "signal 11", "Segmentation fault")
        self.assertGreaterEqual(self.check_stored(out / "x.h5"), 1000)

    def test_hang_is_ended_by_the_stall_limit(self):
        """An agent that stops making progress is ended, and what it had acknowledged is kept."""
        limit_s = self.limit_s(3)
        running, out, _ = self.start(0, "--stall-limit", limit_s, stop="acknowledged 100")
        agent = running.stopped_agent()
        stopped = time.monotonic()
        code, said = running.finish()
        self.assertEqual(code, 5, said)
        self.assertGreater(time.monotonic() - stopped, limit_s - 1)
        self.failed(out / "x.h5", said, f"no progress for {limit_s} s")
        self.assertEqual(self.check_stored(out / "x.h5"), 100)
        self.assertFalse(is_alive(agent))

    def test_time_limit_keeps_what_was_done(self):
        """A run that is too long is ended after its time with the samples that were complete."""
        limit_s = self.limit_s(5)
        running, out, _ = self.start(0, "--time-limit", limit_s, stop="acknowledged 1000")
        agent = running.stopped_agent()
        code, said = running.finish()
        self.assertEqual(code, 5, said)
        self.failed(out / "x.h5", said, f"time limit of {limit_s} s")
        self.assertEqual(self.check_stored(out / "x.h5"), 1000)
        self.assertFalse(is_alive(agent))

    def test_memory_limit_is_kept(self):
        """The simulator needs some 200 MB: with a limit of 60 MB it is ended, and the capture says so."""
        path = self.folder / "x.h5"
        done = capture(MODEL, ["htp-sim:gen3"], ["uniform:100"], path, "--memory-limit", "60", expect=None)
        self.assertEqual(done.returncode, 5, done.stderr)
        self.failed(path, done.stderr, "over its limit of 60 MiB")
        self.assertLess(self.open(path).n_samples("uniform"), 100)

    def test_agent_dies_with_its_host(self):
        """kill -9 of npudiff itself: its agent, which hangs, is gone as well and the output folder is empty."""
        running, out, _ = self.start(stop="acknowledged 1")
        self.kill_host(running)
        self.assertEqual(list(out.iterdir()), [])

    def check_resumed(self, path):
        """A whole capture of two agents, bit-equal to that of one."""
        with Capture(path) as opened:
            self.assertEqual(opened.status, "complete")
            self.assertEqual(int(opened.file["runtime"].attrs["resumed"]), 1)
        self.assertEqual(self.check_stored(path), N_SAMPLES)
        npudiff("verify", "-q", path)

    def test_a_killed_host_is_resumed(self):
        """kill -9 of npudiff itself: --resume goes on behind what was acknowledged; another capture meanwhile leaves it alone."""
        running, out, temporary = self.start(stop="acknowledged 1000")
        self.kill_host(running)
        self.assertEqual(acknowledged(temporary), 1000)
        capture(MODEL, ["cpu"], ["ramp"], out / "other.h5", env=dict(os.environ, TMPDIR=str(temporary)))
        self.assertEqual(acknowledged(temporary), 1000)
        capture(MODEL, ["cpu"], [PROBE], out / "x.h5", "--resume", env=dict(os.environ, TMPDIR=str(temporary)))
        self.check_resumed(out / "x.h5")
        self.assertEqual(list(temporary.iterdir()), [])

    def test_what_is_complete_leaves_nothing_of_a_killed_host(self):
        """The host is killed when its capture is there, and its folder not gone yet: --resume runs nothing, and cleans up."""
        running, out, temporary = self.start(stop="acknowledged 1000")
        self.kill_host(running)
        self.assertNotEqual(list(temporary.iterdir()), [])
        shutil.copy(self.shared / "whole.h5", out / "x.h5")
        capture(MODEL, ["cpu"], [PROBE], out / "x.h5", "--resume", env=dict(os.environ, TMPDIR=str(temporary)))
        self.assertEqual(list(temporary.iterdir()), [])
        self.assertEqual((out / "x.h5").read_bytes(), (self.shared / "whole.h5").read_bytes())

    def test_without_resume_a_killed_host_leaves_nothing(self):
        """The same output is made from the beginning; other samples are not gone on with either."""
        for number, arguments in enumerate((["-f"], ["--resume"])):
            running, out, temporary = self.start(number, stop="acknowledged 1000")
            self.kill_host(running)
            capture(MODEL, ["cpu"], ["uniform:7" if number else PROBE], out / "x.h5", *arguments,
                    env=dict(os.environ, TMPDIR=str(temporary)))
            with Capture(out / "x.h5") as opened:
                self.assertNotIn("resumed", opened.file["runtime"].attrs)
                self.assertEqual(opened.n_samples("uniform"), 7 if number else N_SAMPLES)
            self.assertEqual(list(temporary.iterdir()), [])

    def on_small_disk(self, disk, size, before, after):
        """Runs shell commands with a file system of that size at `disk`, and others once it has 300 MB."""
        disk.mkdir()
        script = f"mount -t tmpfs -o size={size} none {disk} || exit 77; {before}; mount -o remount,size=300m none {disk}; {after}"
        return with_own_mounts(self, script, "small disk")

    def test_a_full_disk_is_resumed(self):
        """TMPDIR is full (a small tmpfs): a partial capture, which --resume completes when there is room."""
        out, disk = self.folder / "x.h5", self.folder / "disk"
        command = shlex.join(map(str, [NPUDIFF, *capture_command(MODEL, ["cpu"], [PROBE], out)]))
        done = self.on_small_disk(disk, "2m", f"export TMPDIR={disk}; {command}; echo code $?; cp {out} {out}.partial",
                                  f"{command} --resume; echo code $?; ls -A {disk}")
        self.assertEqual(done.stdout, "code 2\ncode 0\n", done.stderr)
        self.assertIn("is the disk full? The samples before are kept; '--resume' continues after them", done.stderr)
        n = self.check_stored(f"{out}.partial")
        self.assertGreater(n, 0)
        self.check_resumed(out)

    def test_a_capture_that_cannot_be_written_is_resumed(self):
        """The disk of the output is full: what was acknowledged stays in the TMPDIR, and --resume writes it."""
        disk, temporary = self.folder / "disk", self.folder / "tmp"
        temporary.mkdir()
        command = shlex.join(map(str, [NPUDIFF, *capture_command(MODEL, ["cpu"], [PROBE], disk / "x.h5")]))
        done = self.on_small_disk(disk, "300k", f"export TMPDIR={temporary}; {command}; echo code $?; ls -A {disk}",
                                  f"{command} --resume; echo code $?; cp {disk}/x.h5 {self.folder}")
        self.assertEqual(done.stdout, "code 2\ncode 0\n", done.stderr)
        self.assertEqual(self.check_stored(self.folder / "x.h5"), N_SAMPLES)
        self.assertEqual(list(temporary.iterdir()), [])

    def interrupt(self, number, stop):
        """A signal that asks npudiff to end: its agent ends too, and the output folder stays empty. (what it said, TMPDIR)"""
        running, out, temporary = self.start(number, stop=stop)
        agent = running.stopped_agent()
        running.process.send_signal(number)
        code, said = running.finish()
        self.assertNotEqual(code, 0, said)
        self.end_of(agent)
        self.assertEqual(list(out.iterdir()), [])
        return said, temporary

    def test_interrupt_ends_the_agent(self):
        """Ctrl-C and a polite kill."""
        self.interrupt(signal.SIGINT, "acknowledged 1")
        self.interrupt(signal.SIGTERM, "acknowledged 1")

    def test_interrupt_before_the_first_sample_leaves_nothing(self):
        """Ctrl-C and a polite kill leave no temporary files behind where no sample is in them."""
        for number in (signal.SIGINT, signal.SIGTERM):
            said, temporary = self.interrupt(number, "stage run")
            self.assertEqual(list(temporary.iterdir()), [])
            self.assertIn("stopped; 0 of 1 capture is complete and kept\n", said)

    def test_an_interrupt_is_resumed(self):
        """Ctrl-C and a polite kill: the samples are kept, which is told, and --resume goes on behind them."""
        for number in (signal.SIGINT, signal.SIGTERM):
            said, temporary = self.interrupt(number, "acknowledged 1000")
            self.assertIn("complete and kept, and the samples of 1 more for a day\n", said)
            self.assertEqual(acknowledged(temporary), 1000)
            out = self.folder / f"out{number}" / "x.h5"
            capture(MODEL, ["cpu"], [PROBE], out, "--resume", env=dict(os.environ, TMPDIR=str(temporary)))
            self.check_resumed(out)
            self.assertEqual(list(temporary.iterdir()), [])

    def test_a_second_one_is_refused(self):
        """Two that make the same capture at once: the second does nothing, and the first is complete."""
        running, out, temporary = self.start(stop="acknowledged 1000")
        agent = running.stopped_agent()
        for arguments in (["--resume"], ["-f"], []):
            done = capture(MODEL, ["cpu"], [PROBE], out / "x.h5", *arguments, expect=2, env=dict(os.environ, TMPDIR=str(temporary)))
            self.assertEqual(done, "")
        done = capture(MODEL, ["cpu"], [PROBE], out / "x.h5", "--resume", expect=None, env=dict(os.environ, TMPDIR=str(temporary)))
        self.assertIn(f"'{out.resolve() / 'x.h5'}' is being made by another process [ND-217]", done.stderr)
        self.assertEqual(len(list(temporary.iterdir())), 1)
        os.kill(agent, signal.SIGCONT)
        code, said = running.finish()
        self.assertEqual(code, 0, said)
        self.assertEqual(self.check_stored(out / "x.h5"), N_SAMPLES)
        self.assertEqual(list(temporary.iterdir()), [])

    def test_two_at_the_same_time_damage_nothing(self):
        """Eight that begin together: each is complete or refused, and at the end there is a whole capture."""
        out, temporary = self.folder / "out", self.folder / "tmp"
        out.mkdir()
        temporary.mkdir()
        command = [NPUDIFF, *map(str, capture_command(MODEL, ["cpu"], [PROBE], out / "x.h5", "--resume"))]
        running = [subprocess.Popen(command, env=dict(os.environ, TMPDIR=str(temporary)), stderr=subprocess.PIPE, text=True)
                   for _ in range(8)]
        said = [process.communicate(timeout=300)[1] for process in running]
        self.assertLessEqual({process.returncode for process in running}, {0, 2}, said)
        for process, text in zip(running, said, strict=True):
            self.assertEqual("[ND-217]" in text, process.returncode == 2, text)
        capture(MODEL, ["cpu"], [PROBE], out / "x.h5", "--resume", env=dict(os.environ, TMPDIR=str(temporary)))
        self.assertEqual(self.check_stored(out / "x.h5"), N_SAMPLES)
        self.assertEqual(list(temporary.iterdir()), [])

    def test_another_model_begins_anew(self):
        """A model that was changed between a kill and --resume: nothing of the old one is in the capture, and that is told."""
        model, out, temporary = self.folder / "m.onnx", self.folder / "x.h5", self.folder / "tmp"
        temporary.mkdir()
        data = bytearray((MODELS / MODEL).read_bytes())
        model.write_bytes(data)
        command = ["capture", model, "-d", "cpu", "-p", PROBE, "-o", out]
        running = Running(command, temporary, "acknowledged 1000")
        self.kill_host(running)
        for i in range(len(data) // 2, len(data) // 2 + 40): # weights
            data[i] ^= 1
        model.write_bytes(data)
        done = npudiff(*command, "--resume", expect=None, env=dict(os.environ, TMPDIR=str(temporary)))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("device 'cpu' began anew, since the interrupted run cannot be continued: spool 'spool.nds' is of another job",
                      done.stderr)
        npudiff(*command[:-1], self.folder / "whole.h5")
        self.assertEqual(compare(out, self.folder / "whole.h5", expect=0)["verdict"], "same")

    def test_a_stopped_host_blames_nobody(self):
        """Ctrl-Z of npudiff and its agent for longer than the stall limit: afterwards the run goes on."""
        limit_s = self.limit_s(3)
        running, out, _ = self.start(0, "--stall-limit", limit_s, stop="acknowledged 100")
        agent = running.stopped_agent()
        running.process.send_signal(signal.SIGSTOP)
        time.sleep(limit_s + 2)
        running.process.send_signal(signal.SIGCONT)
        time.sleep(0.5)
        if is_alive(agent):
            os.kill(agent, signal.SIGCONT)
        code, said = running.finish()
        self.assertEqual(code, 0, said)
        self.assertEqual(self.check_stored(out / "x.h5"), N_SAMPLES)

    def test_sweep_keeps_nothing_on_a_full_disk(self):
        """It has no --resume: a full disk is an error of this machine, its files go, and nothing is promised."""
        for command in (["sweep", MODELS / MODEL, "-d", "cpu", "-s", "threads=1,2", "-p", PROBE],
                        ["fingerprint", "-d", "cpu", "-o", self.folder / "f.json", "--agent", self.folder / "agent"]):
            with self.subTest(command=command[0]):
                (self.folder / "agent").write_text(f"#!/bin/sh\n{AGENT} \"$@\"\ntruncate -s -56 spool.nds\nexit 3\n")
                (self.folder / "agent").chmod(0o755)
                disk = self.folder / command[0]
                done = self.on_small_disk(disk, "2m", f"export TMPDIR={disk}; {shlex.join(map(str, [NPUDIFF, *command]))}; echo code $?",
                                          f"ls -A {disk}")
                self.assertEqual(done.stdout.splitlines()[-1], "code 2", done.stderr)
                self.assertIn("is the disk full?", done.stderr)
                self.assertNotIn("resume", done.stderr)


if __name__ == "__main__":
    main()
