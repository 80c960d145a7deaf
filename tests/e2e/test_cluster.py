#!/usr/bin/env python3
"""Campaigns that are cut into tasks: whatever runs them, in whatever order, killed or twice, the result is that of one
`npudiff qualify`. Stand-ins take the place of sbatch and of the machines of GitHub; tools/studies/cluster has the real ones."""
import fcntl
import hashlib
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import time

import yaml

from support import MODELS, GOLDEN, NPUDIFF, Scratch, main, npudiff, some_digits

# Names that a shell, make, YAML and Python read differently.
ODD = "a $b'c \"d\" #e%f"
RESULTS = ["result.json", "result.txt", "result.csv", "junit.xml"]
ENVIRONMENT = dict(os.environ, PATH=f"{pathlib.Path(NPUDIFF).parent}:{os.environ['PATH']}", SOURCE_DATE_EPOCH="1767225600")
SBATCH = r'''#!/usr/bin/env python3
"""Runs a job at once, as a Slurm without other jobs would: each index of an array."""
import os, subprocess, sys
script = sys.stdin.read()
options = dict(a.lstrip("-").partition("=")[::2] for a in sys.argv[1:])
with open(os.environ["JOBS"], "a") as log:
    log.write(" ".join(sys.argv[1:]) + "\n")
    n_jobs = sum(1 for line in open(os.environ["JOBS"]))
first, _, last = options.get("array", "0").partition("%")[0].partition("-")
code = 0
for index in range(int(first), int(last or first) + 1):
    done = subprocess.run(["sh", "-c", script], stdout=sys.stderr, env=dict(os.environ, SLURM_ARRAY_TASK_ID=str(index)))
    code = max(code, done.returncode)
if "parsable" in options:
    print(f"{100 + n_jobs};cluster")
sys.exit(code if "wait" in options else 0)
'''


class Cluster(Scratch):
    def campaign(self, name=ODD, devices="cpu, 'emu:floor', 'emu:ceil'", n=24):
        """Writes the campaign into the test's folder; its file's name."""
        some_digits(self.folder / "digits.npz", n)
        head = {"name": "odd", "models": [
            {"name": name, "quantised": str(MODELS / "cnn.w8a8.onnx"), "float": str(MODELS / "cnn.float.onnx"),
             "probes": ["digits=digits.npz"]},
            {"name": "mul", "quantised": str(MODELS / "mul.u8.onnx"), "probes": [f"mul={MODELS / 'mul-probe.npz'}"]}]}
        (self.folder / "c.yaml").write_text(yaml.safe_dump(head) + f"devices: [{devices}]\nexplain: yes\npolicy:\n"
                                            "- {gate: finalize}\n- {gate: lsb, max: 2}\n- {gate: lsb, max: 200, to: cpu, models: mul}\n"
                                            "- {gate: accuracy-drop, margin: 0.5}\n")
        return "c.yaml"

    def place(self, name):
        """A folder beside the campaign, for results called "out"."""
        place = self.folder / name
        (place / "out").mkdir(parents=True)
        (place / "c.yaml").symlink_to("../c.yaml")
        (place / "digits.npz").symlink_to("../digits.npz")
        return place

    def run_in(self, place, *command, expect=0, **options):
        done = subprocess.run(list(map(str, command)), cwd=place, capture_output=True, text=True, timeout=600,
                              **{"env": ENVIRONMENT, **options})
        if expect is not None:
            self.assertEqual(done.returncode, expect, f"{done.args}: {done.stdout}{done.stderr}")
        return done

    def emit(self, place, engine, name="script", options=()):
        text = self.run_in(place, "npudiff", "qualify", "c.yaml", "-o", "out", "--emit", engine, *options).stdout
        (place / name).write_text(text)
        return text

    of_one_process = {} # by the text of the campaign

    def local(self):
        """{file: bytes} and what is printed, of one process."""
        text = (self.folder / "c.yaml").read_text()
        if text not in self.of_one_process:
            self.of_one_process[text] = self.run_local()
        return self.of_one_process[text]

    def run_local(self):
        place = self.place("local")
        done = self.run_in(place, "npudiff", "qualify", "c.yaml", "-o", "out", "--report", "out/report.html", expect=1)
        return self.results(place), done.stdout, done.returncode

    def results(self, place):
        files = {name: (place / "out" / name).read_bytes() for name in RESULTS}
        page = place / "out/report.html"
        return files | ({"report.html": page.read_bytes()} if page.exists() else {})

    def assert_equal_results(self, place, expected):
        found = self.results(place)
        self.assertEqual({name: found[name] for name in RESULTS}, {name: expected[name] for name in RESULTS})

    def test_shell_and_make(self):
        """Exit code, text, JSON, CSV, JUnit and report are those of one process."""
        self.campaign()
        files, text, code = self.local()
        place = self.place("sh")
        lines = [x for x in self.emit(place, "tasks").splitlines() if not x.startswith("#")]
        self.assertEqual(len(lines), 5 + 4 + 3 + 2 + 1) # captures of both models, comparisons, explanations, verdict
        lines[-1] += " --report out/report.html"
        (place / "script").write_text("\n".join(lines))
        done = self.run_in(place, "sh", "script", expect=code)
        self.assertEqual(done.stdout, text)
        self.assertEqual(self.results(place), files)
        again = self.run_in(place, "sh", "script", expect=code).stderr
        self.assertNotIn("captur", again) # nothing is done twice
        self.assertNotIn("explaining", again)
        self.assert_equal_results(place, files)
        place = self.place("make")
        self.emit(place, "make", "Makefile")
        self.run_in(place, "make", "-j", 2, "-s", expect=2)
        self.assert_equal_results(place, files)
        done = self.run_in(place, "npudiff", "qualify", "c.yaml", "-o", "out", expect=code)
        self.assertEqual(done.stdout, text) # one process finds it all done
        self.assertNotIn("captur", done.stderr)

    def test_explanations_in_parts(self):
        """Any number of parts gives the result of one process; what is missing or damaged is made again."""
        self.campaign()
        files, _, code = self.local()
        for n in (2, 7):
            place = self.place(f"parts-{n}")
            script = self.emit(place, "tasks", options=["--explain-parts", n])
            lines = [x for x in script.splitlines() if not x.startswith("#")]
            self.assertEqual(len(lines), 5 + 4 + 3 + 2 * n + 2 + 1)
            self.run_in(place, "sh", "script", expect=code)
            self.assert_equal_results(place, files)
        place = self.place("make")
        self.emit(place, "make", "Makefile", options=["--explain-parts", 3])
        self.run_in(place, "make", "-j", 2, "-s", expect=2)
        self.assert_equal_results(place, files)
        # A part that its digest vouches for is read, and refused for what it holds; one that is damaged is not.
        place = self.folder / "parts-2"
        explain = [x for x in (place / "script").read_text().splitlines() if "explain.txt" in x and ODD[:1] in x][0]
        part = place / "out/parts" / ODD / "explain-2-of-2.json"
        whole, keys = part.read_bytes(), part.with_name(part.name + ".key").read_text().splitlines()
        damaged = whole.replace(b'"part": 1', b'"part": 0')
        part.write_bytes(damaged)
        (place / "out/parts" / ODD / "explain.txt").unlink()
        self.run_in(place, "sh", "-c", explain)
        self.run_in(place, "sh", "script", expect=code)
        self.assert_equal_results(place, files)
        part.write_bytes(damaged)
        part.with_name(part.name + ".key").write_text(f"{keys[0]}\n{hashlib.sha256(damaged).hexdigest()}\n")
        (place / "out/parts" / ODD / "explain.txt").unlink()
        self.assertIn("[ND-931]", self.run_in(place, "sh", "-c", explain, expect=2).stderr)
        # The key is that of one part: no other number of parts makes it.
        line = [x for x in lines if "explain-1-of-7" in x][0]
        self.assertIn("[ND-1112]", self.run_in(place, "sh", "-c", line.replace("parts 7", "parts 6"), expect=2).stderr)

    def test_slurm(self):
        self.campaign()
        files, _, code = self.local()
        place = self.place("slurm")
        self.emit(place, "slurm")
        (place / "sbatch").write_text(SBATCH)
        (place / "sbatch").chmod(0o755)
        environment = dict(ENVIRONMENT, PATH=f"{place}:{ENVIRONMENT['PATH']}", JOBS=str(place / "jobs"))
        self.run_in(place, "sh", "script", "--wait", expect=code, env=environment)
        self.assert_equal_results(place, files)
        jobs = (place / "jobs").read_text().splitlines()
        self.assertIn("--dependency=afterany:", jobs[-1]) # it says what is missing; a job that is cancelled has no exit code
        self.assertEqual([("--dependency=afterok:" in job) for job in jobs[:-1]], ["--array" not in job for job in jobs[:-1]])
        for job in jobs:
            self.assertRegex(job, r"--time=\d+ --mem=\d+")
        n_captures = sum(int(job.partition("--array=1-")[2].partition(" ")[0]) for job in jobs if "--array" in job)
        self.assertEqual(n_captures, 9)

    def test_slurm_asks_for_phones(self):
        """One thing at a time on each machine elsewhere; a phone is a resource, unless every node reaches it over the network."""
        self.campaign(devices="cpu, 'adb:10.0.0.7:5555', 'adb:10.0.0.7:5555/cpu', 'ssh:board', 'adb:R5@lab7:5037'")
        place = self.place("phones")
        environment = dict(ENVIRONMENT, NPUDIFF_ADB="/bin/true", NPUDIFF_SSH="/bin/true")
        text = self.run_in(place, "npudiff", "qualify", "c.yaml", "-o", "out", "--emit", "slurm", env=environment).stdout
        arrays = [line for line in text.splitlines() if "--array" in line]
        phones = [line for line in arrays if "%1" in line]
        self.assertEqual(len(phones), 3)
        self.assertIn("--array=1-4%1", phones[0]) # two devices of one phone, two models
        self.assertIn("--gres=phone:10_0_0_7_5555:1", phones[0])
        for elsewhere in phones[1:]:
            self.assertNotIn("--gres", elsewhere)
            self.assertIn("--array=1-2%1", elsewhere)

    def test_snakefile_is_python_up_to_its_rules(self):
        self.campaign("a $b'c \"d\" #e%f\\")
        place = self.place("snake")
        head, _, rules = self.emit(place, "snakemake").partition("\nfor ")
        names = {}
        exec(head, names) # its literals mean what the shell's lines say
        lines = [x for x in self.emit(place, "tasks").splitlines() if not x.startswith("#")]
        self.assertEqual([task[-1] for task in names["TASKS"]], lines)
        self.assertIn("rule:", rules)
        self.campaign("a{b}")
        done = self.run_in(place, "npudiff", "qualify", "c.yaml", "-o", "out", "--emit", "snakemake", expect=2)
        self.assertIn("has a brace", done.stderr)

    def test_workflow(self):
        """Its steps, each job in a folder of its own, with archives carried between them."""
        self.campaign()
        files, _, code = self.local()
        place = self.place("github")
        jobs = yaml.safe_load(self.emit(place, "github"))["jobs"]
        store, codes = self.folder / "artifacts", []
        for name in ("capture", "compare", "explain", "judge"):
            for entry in jobs[name].get("strategy", {}).get("matrix", {}).get("include", [{}]):
                machine = self.place(f"{name}-{entry.get('number', 0)}")
                temporary = machine / "temporary"
                temporary.mkdir()
                environment = dict(ENVIRONMENT, FOLDER="out", RUNNER_TEMP=str(temporary))
                for step in jobs[name]["steps"]:
                    if "download" in step.get("uses", ""):
                        shutil.copytree(store, temporary / "npudiff")
                    if "run" not in step or "npudiff-install" in step["run"]:
                        continue
                    for key, value in step.get("env", {}).items():
                        for word in ("command", "number"):
                            value = value.replace("${{ matrix.%s }}" % word, str(entry.get(word)))
                        environment[key] = value
                    codes.append(self.run_in(machine, "bash", "-ec", step["run"], env=environment, expect=None).returncode)
                for archive in temporary.glob("*.tar"):
                    (store / archive.stem).mkdir(parents=True)
                    shutil.copy(archive, store / archive.stem)
        self.assertEqual((set(codes[:-1]), codes[-1]), ({0}, code))
        self.assert_equal_results(machine, files)

    def test_killed_at_any_time(self):
        """kill -9 at random moments, again and again; the run that is left alone gives the same bytes."""
        self.campaign()
        files, _, code = self.local()
        place = self.place("killed")
        self.emit(place, "tasks")
        seed = int(os.environ.get("ND_SEED", "23"))
        print(f"# seed {seed}")
        dice = random.Random(seed)
        for _ in range(12):
            running = subprocess.Popen(["sh", "script"], cwd=place, env=ENVIRONMENT, stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL, start_new_session=True)
            try:
                running.wait(dice.uniform(0, 1.5))
            except subprocess.TimeoutExpired:
                os.killpg(running.pid, signal.SIGKILL)
                running.wait()
        self.run_in(place, "sh", "script", expect=code)
        self.assert_equal_results(place, files)

    def test_two_engines_at_once(self):
        """Each capture is made once, and both come to the verdict."""
        self.campaign()
        files, _, code = self.local()
        place = self.place("two")
        self.emit(place, "tasks")
        running = [subprocess.Popen(["sh", "script"], cwd=place, env=ENVIRONMENT, stdout=subprocess.PIPE,
                                    stderr=subprocess.PIPE, text=True) for _ in range(2)]
        told = [process.communicate() for process in running]
        self.assertEqual([process.returncode for process in running], [code, code])
        self.assertEqual(told[0][0], told[1][0])
        self.assertEqual(sum(err.count("npudiff: captured ") for _, err in told), 9)
        self.assert_equal_results(place, files)

    def test_clocks_that_differ(self):
        """Every task on a host whose clock is wrong by up to two years: its files have such times. What is done stays done,
        and the result is the same; a probe that changed under the time of the former one is noticed."""
        self.campaign()
        files, _, code = self.local()
        place = self.place("clocks")
        lines = [x for x in self.emit(place, "tasks").splitlines() if not x.startswith("#")]
        dice = random.Random(7)
        def disturb():
            for path in [*(place / "out").rglob("*"), self.folder / "digits.npz", self.folder / "c.yaml"]:
                if path.is_file():
                    wrong_s = time.time() + dice.uniform(-1, 1) * 2 * 365 * 86400
                    os.utime(path, (wrong_s, wrong_s))
        for line in lines:
            done = self.run_in(place, "sh", "-c", line, expect=None)
            self.assertEqual(done.returncode, code if line == lines[-1] else 0, line + done.stderr)
            disturb()
        self.assert_equal_results(place, files)
        made = {path: path.stat().st_ino for path in (place / "out").rglob("*.h5")}
        self.run_in(place, "sh", "script", expect=code)
        self.assertEqual({path: path.stat().st_ino for path in (place / "out").rglob("*.h5")}, made)
        self.assert_equal_results(place, files)
        before = (self.folder / "digits.npz").stat()
        some_digits(self.folder / "digits.npz", 25)
        os.utime(self.folder / "digits.npz", ns=(before.st_atime_ns, before.st_mtime_ns))
        self.assertIn("captures/", lines[0]) # of the first model, which has this probe
        self.assertIn("[ND-1113]", self.run_in(place, "sh", "-c", lines[0], expect=2).stderr)

    def test_whole_campaign_and_tasks_exclude_one_another(self):
        self.campaign("cnn")
        place = self.place("locked")
        with open(place / "out/.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH)
            self.assertIn("ND-1111", self.run_in(place, "npudiff", "qualify", "c.yaml", "-o", "out", expect=2).stderr)
            self.run_in(place, "npudiff", "qualify", "c.yaml", "-o", "out", "--task", "captures/mul/cpu.h5")
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.assertIn("ND-1111", self.run_in(place, "npudiff", "qualify", "c.yaml", "-o", "out", "--task",
                                                 "captures/mul/cpu.h5", expect=2).stderr)

    def test_other_workers_are_refused(self):
        self.campaign("cnn")
        place = self.place("worker")
        line = [x for x in self.emit(place, "tasks").splitlines() if "captures/cnn/cpu.h5" in x][0]
        done = self.run_in(place, "sh", "-c", line.replace("--key ", "--key 9."), expect=2)
        self.assertRegex(done.stderr, r"is for npudiff 9\.\S+; this is npudiff .* \[ND-1113\]")
        some_digits(self.folder / "digits.npz", 25) # another probe than when the tasks were listed
        self.assertIn("[ND-1113]", self.run_in(place, "sh", "-c", line, expect=2).stderr)
        self.assertFalse((place / "out/captures").exists())

    def test_what_is_missing_or_damaged(self):
        """A task whose needs are not done says so; a damaged part is made again, with the same result."""
        self.campaign()
        files, _, code = self.local()
        place = self.place("damaged")
        lines = [x for x in self.emit(place, "tasks").splitlines() if not x.startswith("#")]
        for line in (lines[-1], [x for x in lines if "compare" in x][0]):
            self.assertIn("[ND-1114]", self.run_in(place, "sh", "-c", line, expect=2).stderr)
        self.run_in(place, "sh", "script", expect=code)
        for name in (f"parts/{ODD}/compare-quantised.json", f"parts/{ODD}/explain.txt"):
            with open(place / "out" / name, "r+b") as file:
                file.write(b"9")
        (place / "out/result.json").unlink()
        self.run_in(place, "sh", "-c", lines[-1], expect=code)
        self.assert_equal_results(place, files)
        with open(place / "out/captures" / ODD / "cpu.h5", "ab") as file:
            file.write(b"x")
        self.assertIn("[ND-1114]", self.run_in(place, "sh", "-c", lines[-1], expect=2).stderr)
        self.run_in(place, "sh", "script", expect=code) # the capture's task makes it again
        self.assert_equal_results(place, files)

    def test_what_cannot_be_read_is_not_missing(self):
        """A file that is there and cannot be opened is no task that was never done: an error names it, and it is not made again."""
        self.campaign("cnn")
        place = self.place("unreadable")
        self.emit(place, "tasks")
        self.run_in(place, "sh", "script", expect=1)
        for name in ("captures/cnn/cpu.h5", "parts/cnn/explain.txt", "parts/cnn/compare-quantised.json.key"):
            file, kept = place / "out" / name, place / "kept"
            file.rename(kept)
            file.symlink_to(file.name) # to itself
            for command in (["qualify", "--plan", "c.yaml", "-o", "out"], ["qualify", "c.yaml", "-o", "out", "--emit", "tasks"]):
                self.assertIn(f"out/{name}", self.run_in(place, "npudiff", *command, expect=2).stderr)
            if name.startswith("captures"):
                self.assertIn(f"out/{name}", self.run_in(place, "npudiff", "qualify", "c.yaml", "-o", "out", expect=2).stderr)
            self.assertTrue(file.is_symlink())
            file.unlink()
            kept.rename(file)
        plan = json.loads(self.run_in(place, "npudiff", "qualify", "--plan", "c.yaml", "-o", "out", "--json").stdout)
        self.assertEqual({task["done"] for task in plan["tasks"][:-1]}, {True})

    def test_full_disk(self):
        """A task that cannot write ends with exit code 2; with room it can be repeated."""
        self.campaign("cnn")
        place = self.place("full")
        line = [x for x in self.emit(place, "tasks").splitlines() if "captures/cnn/quantised.h5" in x][0]

        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))

        self.run_in(place, "sh", "-c", line, expect=2, preexec_fn=limit)
        self.assertFalse((place / "out/captures/cnn/quantised.h5.key").exists())
        self.run_in(place, "sh", "-c", line)
        self.assertTrue((place / "out/captures/cnn/quantised.h5.key").exists())

    def test_plan(self):
        """Nothing is captured; afterwards the estimates are what was measured."""
        self.campaign("cnn")
        place = self.place("plan")
        os.chdir(place)
        plan = json.loads(npudiff("qualify", "--plan", "c.yaml", "-o", "out", "--json"))
        self.assertEqual({task["source"] for task in plan["tasks"]}, {"default"})
        self.assertFalse((place / "out/captures").exists())
        self.assertEqual([task["task"] for task in plan["tasks"]], ["capture"] * 9 + ["compare"] * 3 + ["explain"] * 2 + ["judge"])
        self.assertEqual(plan["tasks"][-1]["needs"], list(range(14)))
        self.emit(place, "tasks")
        self.run_in(place, "sh", "script", expect=1)
        after = json.loads(npudiff("qualify", "--plan", "c.yaml", "-o", "out", "--json"))
        self.assertEqual([task["done"] for task in after["tasks"]], [True] * 14 + [False])
        for task in after["tasks"]:
            took = dict(x.split(" ", 1) for x in (place / "out" / f"{task['file']}.took").read_text().splitlines())
            if task["task"] == "capture":
                self.assertEqual((task["source"], task["bytes"]), (task["file"], (place / "out" / task["file"]).stat().st_size))
                self.assertAlmostEqual(task["seconds"], float(took["seconds"]), 6)
        again = json.loads(npudiff("qualify", "--plan", "c.yaml", "-o", "other", "--from", "out", "--json"))
        self.assertEqual([t["seconds"] for t in again["tasks"]], [t["seconds"] for t in after["tasks"]])
        self.assertEqual((again["seconds_left"], after["seconds_left"]), (again["seconds"], after["tasks"][-1]["seconds"]))
        (place / "out/captures/cnn/cpu.h5.took").write_text("seconds nan\n") # damaged: one of the same kind takes its place, or none
        damaged = json.loads(npudiff("qualify", "--plan", "c.yaml", "-o", "out", "--json"))
        self.assertEqual(damaged["tasks"][0]["source"], "default")


if __name__ == "__main__":
    main()
