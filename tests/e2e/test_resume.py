#!/usr/bin/env python3
"""Agents that are killed again and again, and gone on with by npudiff-agent --resume, give the capture of an undisturbed
run. A wrapper in the agent's place does the killing, so that npudiff itself makes the captures. The random trials print
their seed and take it from ND_SEED."""
import os
import pathlib
import random
import subprocess
import time

from support import NPUDIFF, Capture, Scratch, capture, main, npudiff

AGENT = pathlib.Path(os.environ.get("NPUDIFF_AGENT", pathlib.Path(NPUDIFF).parent.parent / "devices" / "agent" / "npudiff-agent"))
N_TRIALS = int(os.environ.get("ND_RESUME_TRIALS", "6"))  # each of RUNS once; a long run: 40 and more
MAX_KILLS = 4

# The first kill of each run comes at some sample, where the agent stops by itself; the others at some sample or time.
WRAPPER = '''#!/usr/bin/python3
import os, random, subprocess, sys, time
sys.path.insert(0, os.environ["ND_SUPPORT"])
from support import StopPoint, is_stopped
agent = os.environ["ND_REAL_AGENT"] + ("-exact" if sys.argv[0].endswith("-exact") else "")
dice, n_kills, span_s, n_samples, tale = eval(os.environ["ND_KILLS"])
dice = random.Random(dice)
job, spool = sys.argv[1:]
command = [agent, job, spool]
stop = StopPoint(spool + ".stop")
first = 1 # sample that no agent has stopped at

for kill in range(n_kills):
    is_at_time = first >= n_samples or (kill > 0 and dice.random() < 0.5)
    if not is_at_time:
        sample = dice.randrange(first, n_samples)
        first = sample + 1
        stop.ask(f"acknowledged {sample}")
    process = subprocess.Popen(command, env=dict(os.environ, **stop.environment))
    if is_at_time:
        try:
            process.wait(dice.uniform(0, span_s))
        except subprocess.TimeoutExpired:
            pass
    while not is_at_time and process.poll() is None and not is_stopped(process.pid):
        time.sleep(0.001)
    process.kill()
    stop.withdraw()
    if process.wait() == 0:
        break
    with open(tale, "a") as file:
        print(os.path.getsize(spool) if os.path.exists(spool) else 0, file=file)
    command = [agent, "--resume", job, spool]
sys.exit(subprocess.run([agent, "--resume", job, spool]).returncode)
'''

# model, device, probes, options
RUNS = {
    "cpu": ("cnn.w8a8.onnx", "cpu", ["uniform:5000", "ramp", "ties:2000"], []),
    "repeats": ("cnn.w8a8.onnx", "cpu", ["uniform:1500", "ties:1500"], ["--repeats", "3", "--deflate", "0"]),
    "prefixes": ("cnn.w8a8.onnx", "cpu", ["uniform:700", "zeros"], ["--prefixes"]),
    "digests": ("vit.w8a8.onnx", "cpu", ["uniform:400", "ties:200"], ["--store", "digest", "--repeats", "2"]),
    "htp-sim": ("cnn.w8a8.onnx", "htp-sim:gen3", ["uniform:100", "ties:80"], []),
    "stale": ("cnn.w8a8.onnx", "emu:stale@stem/relu", ["uniform:150", "ties:50"], ["--deflate", "0"]),
}


def comparable(path):
    """A capture without what differs between two runs; how often it was resumed."""
    with Capture(path) as opened:
        found = opened.contents()
        n = int(opened.file["runtime"].attrs.get("resumed", 0))
    for key in ("created", "content_digest"):
        found["/"][0].pop(key, None)
    found["runtime"][0].pop("resumed", None)
    kept = {p: v for p, v in found.items() if not p.startswith(("logs", "findings")) and not p.endswith("latency_us")}
    return kept, n


class Resume(Scratch):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.wrapper = cls.shared / "agent"
        for path in (cls.wrapper, cls.shared / "agent-exact"):
            path.write_text(WRAPPER)
            path.chmod(0o755)
        cls.whole = {}

    def reference(self, name):
        """The undisturbed capture, and how long it took."""
        if name not in self.whole:
            model, device, probes, options = RUNS[name]
            path = self.shared / f"{name}.h5"
            begun = time.monotonic()
            capture(model, [device], probes, path, *options)
            self.whole[name] = (comparable(path)[0], time.monotonic() - begun)
        return self.whole[name]

    def interrupted(self, name, seed, n_kills):
        """The same capture by agents that are killed: (capture, how often killed)."""
        model, device, probes, options = RUNS[name]
        _, span_s = self.reference(name)
        n_samples = int(probes[0].split(":")[1])
        path, tale = self.folder / f"{seed}.h5", self.folder / f"{seed}.txt"
        kills = repr((seed, n_kills, span_s, n_samples, str(tale)))
        environment = dict(os.environ, ND_REAL_AGENT=str(AGENT), ND_KILLS=kills,
                           ND_SUPPORT=str(pathlib.Path(__file__).parent))
        capture(model, [device], probes, path, "--agent", self.wrapper, *options, env=environment)
        return path, len(tale.read_text().splitlines()) if tale.exists() else 0

    def check(self, name, path, n_kills):
        found, n_resumed = comparable(path)
        whole = self.reference(name)[0]
        self.assertEqual(sorted(found), sorted(whole))
        for key, value in whole.items():
            self.assertEqual(found[key], value, f"{name}: {key}")
        self.assertLessEqual(n_resumed, n_kills)
        npudiff("verify", "-q", path)
        return n_resumed

    def test_killed_at_random_comes_out_as_if_nothing_had_happened(self):
        """The CPU provider in four ways of storing, the simulator, and a device that remembers the sample before."""
        seed = int(os.environ.get("ND_SEED", "20270122"))
        print(f"# ND_SEED={seed}", flush=True)
        dice = random.Random(seed)
        total_kills = total_resumed = 0
        for trial in range(N_TRIALS):
            name = list(RUNS)[trial % len(RUNS)]
            path, n_kills = self.interrupted(name, dice.randrange(10**9), dice.randrange(1, MAX_KILLS + 1))
            total_resumed += self.check(name, path, n_kills)
            total_kills += n_kills
            path.unlink()
        print(f"# {total_kills} kills, {total_resumed} times gone on behind an acknowledgement", flush=True)
        # The first kill of each trial comes behind an acknowledgement.
        self.assertGreaterEqual(total_kills, N_TRIALS)
        self.assertGreaterEqual(total_resumed, N_TRIALS)

    def test_bad_use_is_told(self):
        """What cannot be resumed: exit 4 with the reason, and the file is as it was."""
        job, spool = self.folder / "job.nds", self.folder / "spool.nds"
        keep = self.folder / "keep"
        keep.write_text(f'#!/bin/sh\ncp "$1" {job}\n{AGENT} "$1" {spool}\nexec cp {spool} "$2"\n')
        keep.chmod(0o755)
        capture("cnn.w8a8.onnx", ["cpu"], ["uniform:3"], self.folder / "a.h5", "--agent", keep, "--skip-untouched")
        whole = spool.read_bytes()

        def resume(job, spool):
            return subprocess.run([AGENT, "--resume", job, spool], capture_output=True, text=True, timeout=60)

        done = resume(job, spool)
        self.assertEqual((done.returncode, done.stderr, spool.read_bytes()), (0, "", whole))
        other = self.folder / "other.nds"
        keep.write_text(f'#!/bin/sh\ncp "$1" {other}\nexec {AGENT} "$1" "$2"\n')
        capture("cnn.w8a8.onnx", ["cpu"], ["uniform:4"], self.folder / "b.h5", "--agent", keep)
        done = resume(other, spool)
        self.assertEqual((done.returncode, spool.read_bytes()), (4, whole))
        self.assertIn("is of another job [ND-607]", done.stderr)
        (self.folder / "text").write_text("a letter to somebody")
        done = resume(job, self.folder / "text")
        self.assertEqual((done.returncode, (self.folder / "text").read_text()), (4, "a letter to somebody"))
        self.assertIn("is not a spool", done.stderr)
        self.assertEqual(resume(self.folder / "none", spool).returncode, 3)


if __name__ == "__main__":
    main()
