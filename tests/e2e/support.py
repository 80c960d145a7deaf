"""What the end-to-end tests share: running npudiff on real runtimes, reading captures with h5py, and TAP for unittest."""
import faulthandler
import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import h5py
import numpy as np

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import hermetic # noqa: F401
import json_documents # noqa: E402

NPUDIFF = os.environ["NPUDIFF"]
GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "golden"
MODELS = GOLDEN / "models"
CASES = GOLDEN / "cases"
DIGITS = f"digits={MODELS / 'digits-test.npz'}"


def npudiff(*arguments, expect=0, **options):
    """Runs npudiff; its stdout. Fails the test when the exit code is not the expected one; expect=None gives the whole
    result instead."""
    done = subprocess.run([NPUDIFF, *map(str, arguments)], capture_output=True, text=True, timeout=900, **options)
    if expect is not None and done.returncode != expect:
        raise AssertionError(f"npudiff {' '.join(map(str, arguments))}: exit code {done.returncode}, not {expect}\n"
                             f"{done.stdout}{done.stderr}")
    if "--json" in arguments and done.stdout:
        check_document(done.stdout, arguments)
    return done if expect is None else done.stdout


def check_document(text, arguments):
    """Fails the test unless what a command printed with --json is valid against the schema of its kind."""
    _, problems = json_documents.check(text)
    if problems:
        raise AssertionError(f"npudiff {' '.join(map(str, arguments))}: {'; '.join(problems)}")


def capture_command(model, devices, probes, output, *arguments):
    flags = [f for d in devices for f in ("-d", d)] + [f for p in probes for f in ("-p", p)]
    return ["capture", MODELS / model, *flags, "-o", output, "-q", *arguments]


def capture(model, devices, probes, output, *arguments, **options):
    """Captures into the folder (or file) `output`, quietly. A model is one of golden/models, or a path."""
    return npudiff(*capture_command(model, devices, probes, output, *arguments), **options)


def compare(*captures, expect=1):
    """The comparison as JSON; expect=None: whatever it concludes."""
    done = npudiff("compare", *captures, "--json", expect=expect)
    return json.loads(done if expect is not None else done.stdout)


def without_stages(stderr):
    """What a command said, without the lines of stages: one that takes over a second has a line."""
    return re.sub(r"^compare: [a-z ]+(, \d+ [a-z]+)?\n", "", stderr, flags=re.MULTILINE)


def compare_bytes(*arguments, cpu=None):
    """What compare prints, without the paths of the captures. cpu: the best instructions it may use."""
    environment = dict(os.environ) if cpu is None else dict(os.environ, NPUDIFF_CPU=cpu)
    done = npudiff("compare", *arguments, expect=None, env=environment)
    if done.returncode not in (0, 1) or without_stages(done.stderr):
        raise AssertionError(f"exit code {done.returncode}: {done.stderr}")
    return re.sub(r'^ *"capture": .*\n', "", done.stdout, flags=re.MULTILINE)


def pair_of(report, edge, ref, test):
    """The pair of two devices in JSON, by their URIs, without its indices."""
    index = [d["uri"] for d in report["devices"]]
    for pair in edge["pairs"]:
        if (index[pair["ref"]], index[pair["test"]]) == (ref, test):
            return {k: v for k, v in pair.items() if k not in ("ref", "test")}
    raise AssertionError(f"no pair of {ref} and {test}")


def info(path):
    return json.loads(npudiff("info", path, "--json"))


def some_digits(path, n):
    """The first n test images and labels, as a file of their own; the probe that feeds them."""
    whole = np.load(MODELS / "digits-test.npz")
    np.savez(path, image=whole["image"][:n], labels=whole["labels"][:n])
    return f"digits={path}"


# ---- captures through h5py alone ----

def text(value):
    return value.decode() if isinstance(value, bytes) else value


def stored_name(name):
    """An edge's name as HDF5 shows it."""
    return "%2E" if name == "." else name.replace("%", "%25").replace("/", "%2F")


class Capture:
    """A capture as h5py reads it, without npudiff."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.file = h5py.File(path, "r")
        self.status = text(self.file.attrs["status"])
        self.edges = [text(n) for n in self.file["edges/name"][:]]
        self.probes = sorted(self.file["probes"], key=lambda p: self.file["probes"][p].attrs["index"])

    def close(self):
        self.file.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def column(self, table, column):
        return [text(v) for v in self.file[table][column][:]]

    def output(self, probe, edge):
        return self.file[f"probes/{probe}/outputs/{stored_name(edge)}"]

    def values(self, probe, edge):
        return self.output(probe, edge)[()]

    def n_samples(self, probe):
        return int(self.file[f"probes/{probe}"].attrs["n_samples"])

    def labels(self, probe):
        return self.file[f"probes/{probe}/labels"][:]

    def digests(self, probe, edge):
        return self.file[f"probes/{probe}/digests/{stored_name(edge)}"][()]

    def failure(self):
        return {k: text(v) for k, v in self.file["failure"].attrs.items()}

    def contents(self):
        """Everything: {path: attributes, type, shape, bytes}."""
        found = {"/": ({k: np.asarray(v).tobytes() for k, v in self.file.attrs.items()},)}

        # Not visititems: it also asks how much room the trees of chunks take, and follows pointers for that which no
        # reader of data follows.
        def visit(group):
            for item in group.values():
                attributes = {k: np.asarray(v).tobytes() for k, v in item.attrs.items()}
                data = (item.dtype.str, item.shape, item[()].tobytes()) if isinstance(item, h5py.Dataset) else ()
                found[item.name[1:]] = (attributes, *data)
                if isinstance(item, h5py.Group):
                    visit(item)

        visit(self.file)
        return found


def bits_equal(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


# ---- a capture while it runs ----

def acknowledged(top):
    """How many samples of the first probe the spools below a folder acknowledge so far, as whole records on disk."""
    n = 0
    for folder, _, files in os.walk(top): # which minds nothing that vanishes meanwhile
        try:
            data = pathlib.Path(folder, "spool.nds").read_bytes() if "spool.nds" in files else b""
        except FileNotFoundError:
            continue
        at = 0
        while len(data) - at >= 56 and data[at:at + 4] == b"NDS1":
            kind = int.from_bytes(data[at + 4:at + 8], "little")
            samples = int.from_bytes(data[at + 16:at + 24], "little")
            at += 56 + int.from_bytes(data[at + 40:at + 48], "little")
            if kind == 25 and at <= len(data): # ND_RECORD_ACK
                n = max(n, samples)
    return n


def wait_until(condition, timeout_s, what):
    """What the condition gives, once it is true. Give it time enough for a machine that is busy with other work."""
    end = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"no {what} within {timeout_s} s")
        time.sleep(0.02)


class StopPoint:
    """Agents that have `environment` stop themselves (SIGSTOP) at the point that is asked for, once for each request:
    "stage NAME" or "acknowledged N" (src/devices/agent/stop.h). What a test does in the middle of a run it does then, however
    fast the agent is."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.environment = {"NPUDIFF_TEST_AGENT_STOP": str(path)}

    def ask(self, point):
        new = self.path.with_name(self.path.name + ".new")
        new.write_text(f"{point}\n")
        new.rename(self.path)

    def is_waiting(self):
        """Whether a point was asked for that no agent has come to."""
        return self.path.exists()

    def withdraw(self):
        self.path.unlink(missing_ok=True)


def is_stopped(pid):
    """Whether a process was stopped by a signal."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"
    except (FileNotFoundError, ProcessLookupError):
        return False


def agents_of(pid):
    """The agents that a process has started, once they are agents (after exec)."""
    found = []
    for process in filter(str.isdecimal, os.listdir("/proc")): # a glob stumbles over processes that end
        try:
            name, rest = pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(rest.split()[1]) == pid and name.split(" ", 1)[1].startswith("(npudiff-agent"):
            found.append(int(process))
    return found


class Running:
    """npudiff capture in the background, and the agent that it starts. stop: the point at which the agent is to stop."""

    def __init__(self, command, temporary, stop=None):
        environment = dict(os.environ, TMPDIR=str(temporary))
        if stop is not None:
            point = StopPoint(pathlib.Path(temporary).with_name(pathlib.Path(temporary).name + ".stop"))
            point.ask(stop)
            environment.update(point.environment)
        self.temporary = pathlib.Path(temporary)
        self.process = subprocess.Popen([NPUDIFF, *map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True, env=environment)

    def agent(self, timeout_s=60):
        """The process id of the agent, once it is one (after exec)."""
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            for agent in agents_of(self.process.pid):
                return agent
            if self.process.poll() is not None:
                break
            time.sleep(0.005)
        raise AssertionError(f"no agent was seen; {self.finish()}")

    def stopped_agent(self, timeout_s=300):
        """The process id of the agent, once it has stopped at its point."""
        agent = self.agent(timeout_s)
        wait_until(lambda: is_stopped(agent) or not is_alive(agent), timeout_s, "agent that stopped")
        if not is_stopped(agent):
            raise AssertionError(f"the agent ended before its point; {self.finish()}")
        return agent

    def acknowledged(self):
        return acknowledged(self.temporary)

    def finish(self, timeout_s=300):
        """(exit code, what it said)"""
        out, err = self.process.communicate(timeout=timeout_s)
        return self.process.returncode, out + err


def is_alive(pid):
    """A process that has not ended; one that only waits for its parent to notice has."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


# ---- unittest -> TAP ----

class Scratch(unittest.TestCase):
    """A test case with a folder of its own, self.folder, and one of the class, self.shared."""

    maxDiff = None

    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.shared = pathlib.Path(scratch.name)

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def open(self, path):
        capture = Capture(path)
        self.addCleanup(capture.close)
        return capture

    def assert_bits_equal(self, a, b, message=""):
        if not bits_equal(a, b):
            n = int(np.count_nonzero(a != b)) if a.shape == b.shape else "all"
            raise AssertionError(f"{message}: {a.dtype}{a.shape} and {b.dtype}{b.shape} differ in {n} elements")


def processor_time():
    """Seconds of processor time that this process and its children that have ended have used."""
    return sum(usage.ru_utime + usage.ru_stime
               for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))


def with_own_mounts(test, script, what, **options):
    """Runs a shell script that may mount, and ends with 77 where it could not: then there is no `what`, and the test is skipped."""
    done = subprocess.run([*(["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]), "sh", "-c", script], capture_output=True,
                          text=True, timeout=300, **options)
    if done.returncode == 77 or "unshare" in done.stderr:
        test.skipTest(f"no {what} here: {done.stderr}")
    return done


class _TapResult(unittest.TestResult):
    """One line per test, or per group of tests that cannot be set up."""

    def __init__(self):
        super().__init__()
        self.number = 0
        self.problems = {}
        self.skipped_because = {}
        self.took = []
        self.since = (time.monotonic(), processor_time())

    def startTest(self, test):
        super().startTest(test)
        self.problems[test] = []

    def stopTest(self, test):
        super().stopTest(test)
        now = (time.monotonic(), processor_time())
        # The first case of a class includes what sets up the class.
        self.took.append((now[0] - self.since[0], now[1] - self.since[1], test.id().removeprefix("__main__.")))
        self.since = now
        self._line(test.id(), self.problems.pop(test), self.skipped_because.get(test))

    def _line(self, name, problems, reason=None):
        self.number += 1
        skipped = f" # SKIP {reason}" if reason is not None and not problems else ""
        print(f"{'not ' if problems else ''}ok {self.number} - {name.removeprefix('__main__.')}{skipped}")
        for line in "".join(problems).splitlines():
            print(f"# {line}")
        sys.stdout.flush()

    def _problem(self, test, recorded):
        if test in self.problems:
            self.problems[test].append(recorded[-1][1])
        else: # setUpClass
            self._line(test.id(), [recorded[-1][1]])

    def addError(self, test, err):
        super().addError(test, err)
        self._problem(test, self.errors)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._problem(test, self.failures)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        test = getattr(test, "test_case", test) # of a subTest
        if test in self.problems:
            self.skipped_because[test] = reason
        else: # setUpClass
            self._line(test.id(), [], reason)

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.problems[test].append(f"{subtest._subDescription()}\n{(self.errors + self.failures)[-1][1]}")

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.problems[test].append("unexpected success")


def main():
    """Runs the tests of the calling script and prints TAP; arguments choose tests by part of their name."""
    faulthandler.register(signal.SIGTERM, chain=True) # of a time-out: what it was doing
    names = [a for a in sys.argv[1:] if not a.startswith("-")]
    suite, n = unittest.TestSuite(), 0
    for group in unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"]):
        chosen = [t for t in group if not names or any(a in t.id() for a in names)]
        suite.addTests(chosen)
        n += len(chosen)
    print(f"1..{n}")
    result = _TapResult()
    suite.run(result)
    for wall_s, processor_s, name in result.took: # for tools/count_tests.py --times
        print(f"# took {wall_s:.2f} s, {processor_s:.2f} s of processor time: {name}")
    sys.exit(not result.wasSuccessful() or result.number != n or n == 0)
