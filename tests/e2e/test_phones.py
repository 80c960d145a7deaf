#!/usr/bin/env python3
"""Devices on phones: real adb, real adbd on loopback, the real agent and the HTP simulator (phones.py says what stands in).
The random trials print their seed and take it from ND_SEED."""
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

from phone_captures import by_address, check_changed_store, device_facts, differences, library_digests
from phone_link import Disturbance
from phones import ARM64_DEVICE, Shelf, android_tools, arm64_trouble, marked, skip_without, wait_until
from support import Capture, MODELS, Scratch, acknowledged, bits_equal, capture, info, main, npudiff

MODEL = "cnn.w8a8.onnx"
N_SAMPLES = 100
PROBE = f"uniform:{N_SAMPLES}"
SHORT = "uniform:20"


class OnShelf(Scratch):
    """A class with a shelf of its own."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.shelf = Shelf()
        cls.addClassCleanup(cls.shelf.close)

    def capture(self, devices, probe, output, *arguments, expect=0, **environment):
        """npudiff capture on the shelf; what it said."""
        devices = [devices] if isinstance(devices, str) else devices
        done = self.shelf.run(*self.command(devices, probe, output, *arguments), **environment)
        self.assertEqual(done.returncode, expect, f"{devices}\n{done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    @staticmethod
    def command(devices, probe, output, *arguments, model=MODEL):
        return ["capture", MODELS / model, *(f for d in devices for f in ("-d", d)), "-p", probe, "-o", output, "--skip-untouched", *arguments]

    def assert_same(self, path, local):
        self.assertEqual(info(path)["status"], "complete")
        self.assertEqual(differences(path, local), [])


class Harness(OnShelf):
    """That the harness does what the tests rely on: against adb alone."""

    def test_commands_files_and_exit_codes(self):
        phone = self.shelf.phone("gen4")
        self.assertEqual(phone.shell("getprop ro.soc.model"), "SM8750\n")
        self.assertIn("[ro.product.cpu.abi]: [x86_64]\n", phone.shell("getprop"))
        self.assertEqual(phone.shell("exit 7", expect=None).returncode, 7)
        data = random.Random(1).randbytes(3_000_001)
        (self.folder / "sent").write_bytes(data)
        before = phone.link.up_bytes
        self.shelf.adb("-s", phone.serial, "push", self.folder / "sent", phone.disk / "there")
        self.assertGreater(phone.link.up_bytes - before, len(data))
        self.shelf.adb("-s", phone.serial, "pull", phone.disk / "there", self.folder / "back")
        self.assertEqual((self.folder / "back").read_bytes(), data)
        level = [int(phone.shell("dumpsys battery | sed -n 's/ *level: //p'")) for _ in range(2)]
        self.assertEqual(level[0] - level[1], 1)
        self.assertNotIn("an hour ago", phone.shell("logcat -d -T 1"))

    def test_a_link_that_is_cut_goes_down_and_stalls(self):
        phone = self.shelf.phone()
        (self.folder / "big").write_bytes(random.Random(2).randbytes(20_000_000)) # adb compresses what it can
        push = ["-s", phone.serial, "push", self.folder / "big", phone.disk / "big"]
        sent = phone.link.total_bytes()
        phone.link.cut_after(5_000_000)
        self.assertNotEqual(self.shelf.adb(*push, expect=None).returncode, 0)
        wait_until(lambda: phone.state() == "device", 30, "device")
        self.assertEqual(phone.link.n_cuts, 1)
        self.assertLess(phone.link.total_bytes() - sent, 6_000_000)
        phone.link.down()
        wait_until(lambda: phone.state() != "device", 30, "loss of the device")
        phone.link.up()
        phone.connect()
        phone.link.stall()
        with self.assertRaises(subprocess.TimeoutExpired):
            self.shelf.adb(*push, timeout=1)
        phone.link.flow()
        self.assertEqual(phone.shell("echo again"), "again\n")
        phone.link.limit(10_000_000)
        began = time.monotonic()
        self.shelf.adb(*push)
        self.assertGreater(time.monotonic() - began, 1.6) # 20 MB at 10 MB/s, at the least

    def test_a_phone_dies_with_all_that_runs_on_it_and_comes_back_with_its_files(self):
        phone, other = self.shelf.phone(), self.shelf.phone()
        for one in (phone, other):
            one.shell("echo kept >file; setsid sleep 1000 >/dev/null 2>&1 </dev/null &")
            wait_until(lambda: one.processes("sleep"), 10, "sleep")
        phone.die()
        self.assertEqual(phone.processes(), [])
        self.assertEqual(len(other.processes("sleep")), 1)
        self.assertNotEqual(phone.state(), "device")
        phone.start()
        self.assertEqual(phone.shell("cat file"), "kept\n")

    def test_nothing_outlives_a_test_that_is_killed(self):
        code = ("import sys, time; sys.path.insert(0, sys.argv[1]); from phones import Shelf\n"
                "phone = Shelf(sys.argv[2]).phone(); phone.shell('setsid sleep 1000 >/dev/null 2>&1 </dev/null &')\n"
                "print(phone.shelf.mark, flush=True); time.sleep(1000)")
        test = subprocess.Popen([sys.executable, "-c", code, pathlib.Path(__file__).parent, self.folder / "shelf"],
                                stdout=subprocess.PIPE, text=True)
        mark = test.stdout.readline().strip()
        self.assertGreaterEqual(len(marked(mark)), 3) # adb's server, adbd, sleep
        test.kill()
        test.communicate()
        wait_until(lambda: not marked(mark), 20, "end of what the test started")


class OnePhone(OnShelf):
    """One phone, the agent and the simulator of its chipset."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.local = cls.shared / "local.h5"
        capture(MODEL, ["htp-sim:gen3"], [SHORT], cls.local, "--repeats", "2")
        cls.local_cpu = cls.shared / "local-cpu.h5"
        capture(MODEL, ["cpu"], ["ramp"], cls.local_cpu)
        cls.phone = cls.shelf.phone("gen3")
        cls.remote = cls.shared / "remote.h5"
        done = cls.shelf.run(*cls.command([cls.phone.uri()], SHORT, cls.remote, "--repeats", "2"))
        if done.returncode != 0:
            raise AssertionError(f"exit code {done.returncode}\n{done.stdout}{done.stderr}")
        cls.first_up_bytes = cls.phone.link.up_bytes

    def test_a_phone_gives_what_this_machine_gives(self):
        self.assert_same(self.remote, self.local)
        self.assertEqual(library_digests(self.remote), library_digests(self.local))
        self.assertEqual(len(library_digests(self.local)), 4)

    def test_a_second_run_pushes_nothing_again_and_leaves_no_run_behind(self):
        def store():
            top = self.phone.root / "store"
            return {p: (p.stat().st_ino, p.stat().st_mtime_ns) for p in top.rglob("*")
                    if p.is_file() and p.name != ".complete"} # which every use renews
        before, sent = store(), self.phone.link.up_bytes
        self.assertGreater(self.first_up_bytes, 20_000_000) # the libraries, which adb may compress
        self.capture(self.phone.uri(), SHORT, self.folder / "again.h5", "--repeats", "2")
        self.assertEqual({p: store().get(p) for p in before}, before)
        self.assertLess(self.phone.link.up_bytes - sent, 1_000_000)
        self.assertEqual([f for f in self.phone.files() if f.startswith("runs/")], [])
        self.assertEqual(self.phone.processes(), [])
        self.assert_same(self.folder / "again.h5", self.local)

    def test_what_changed_in_the_store_is_sent_again(self):
        """Files of another content and the same size and times: neither run nor believed."""
        output = self.folder / "x.h5"
        self.capture(self.phone.uri(), SHORT, output, "--repeats", "2")
        check_changed_store(self, self.phone.root / "store", output, lambda: self.capture(self.phone.uri(), SHORT, output, "-f", "--repeats", "2"),
                            self.local)

    def test_what_the_phone_says_of_itself_is_kept(self):
        """Identity, battery and temperatures before and after, and what its system logged meanwhile."""
        facts = device_facts(self.remote)
        for name, value in (("transport", "adb"), ("address", self.phone.serial), ("serial", "stand-in-phone0"),
                            ("phone", "Xiaomi 23127PN0CC"), ("machine_soc", "SM8650"), ("machine_abi", "x86_64-linux"),
                            ("firmware", "Xiaomi/houji/houji:14/UKQ1.230804.001/V816.0.5.0.UNCCNXM:user/release-keys"),
                            ("chipset", "SM8650"), ("is_simulator", 1), ("kind", "htp-sim")):
            self.assertEqual(facts[name], value, name)
        self.assertEqual((facts["battery_before_percent"], facts["battery_after_percent"]), (87, 86))
        for when in ("before", "after"):
            self.assertEqual(facts[f"thermal_{when}_source"], "dumpsys thermalservice")
            self.assertIn("nsp0=35.0", facts[f"thermal_{when}_sensors"])
        with Capture(self.remote) as opened:
            log = bytes(opened.file["logs/logcat"][()]).decode()
        self.assertIn("W QnnDsp  : Performance Estimates unsupported", log)
        self.assertNotIn("an hour ago", log)
        self.assertIn("logcat", npudiff("logs", self.remote))

    def test_clean_leaves_nothing(self):
        phone = self.shelf.phone("gen3")
        self.capture(phone.uri("cpu"), "ramp", self.folder / "clean.h5", "--clean")
        self.assertEqual(phone.files(), [])
        self.assert_same(self.folder / "clean.h5", self.local_cpu)

    def test_the_cpu_and_the_chipset_that_the_phone_names(self):
        self.capture(self.phone.uri("cpu"), "ramp", self.folder / "cpu.h5")
        self.assert_same(self.folder / "cpu.h5", self.local_cpu)
        done = self.shelf.run("capture", MODELS / MODEL, "-d", self.phone.uri("cpu"), "-p", "ramp", "-o", self.folder / "whole.h5")
        self.assertEqual(done.returncode, 0, done.stderr)
        runtime = info(self.folder / "whole.h5")["attributes"]["runtime"] # the outputs of the untouched model were compared there
        self.assertEqual((int(runtime["untouched_samples"]) > 0, int(runtime["untouched_changed"])), (True, 0))
        self.capture(self.phone.uri("htp-sim"), SHORT, self.folder / "named.h5", "--repeats", "2")
        self.assert_same(self.folder / "named.h5", self.local)
        self.assertEqual(device_facts(self.folder / "named.h5")["chipset"], "SM8650")

    def test_a_phone_with_no_more_programs_than_android_has(self):
        path = android_tools(self.folder / "toybox")
        if path is None:
            self.skipTest("no toybox on this machine (tools/setup --tests installs it)")
        phone = self.shelf.phone("gen3", path=path)
        self.assertNotEqual(phone.shell("perl -e 1", expect=None).returncode, 0)
        self.capture(phone.uri("cpu"), "ramp", self.folder / "x.h5")
        self.assert_same(self.folder / "x.h5", self.local_cpu)
        self.assertEqual([f for f in phone.files() if f.startswith("runs/")], [])

    def test_the_only_phone_needs_no_serial(self):
        with Shelf() as shelf:
            phone = shelf.phone("gen3")
            done = shelf.run(*self.command(["adb:/agent/cpu"], "ramp", self.folder / "only.h5"))
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(list(by_address(self.folder)), [phone.serial])


class Arm64(OnShelf):
    """A phone of another architecture: the agent that was built for it, under user-mode emulation."""

    def test_an_arm64_phone(self):
        """The same integers as here; what floats give is its own (tests/e2e/test_arm64.py)."""
        trouble = arm64_trouble()
        if trouble is not None:
            self.skipTest(trouble)
        phone = self.shelf.phone("gen3", arm64=True)
        capture("mul.u8.onnx", ["cpu"], ["uniform:200", "ramp"], self.folder / "local.h5")
        done = self.shelf.run("capture", MODELS / "mul.u8.onnx", "-d", phone.uri(ARM64_DEVICE), "-p", "uniform:200", "-p", "ramp",
                              "-o", self.folder / "x.h5")
        self.assertEqual(done.returncode, 0, done.stderr)
        facts = device_facts(self.folder / "x.h5")
        self.assertEqual((facts["machine_abi"], facts["is_simulator"]), ("aarch64-linux", 0))
        with Capture(self.folder / "x.h5") as there, Capture(self.folder / "local.h5") as here:
            self.assertEqual(there.edges, here.edges)
            for probe in here.probes:
                for edge in here.edges:
                    self.assertTrue(bits_equal(there.values(probe, edge), here.values(probe, edge)), f"{probe} {edge}")

    def test_no_runtime_for_the_phone(self):
        """It says for what there is none, and how one is added."""
        phone = self.shelf.phone("gen3", properties={"ro.product.cpu.abi": "arm64-v8a"})
        said = self.capture(phone.uri("cpu"), "ramp", self.folder / "x.h5", expect=5, NPUDIFF_RUNTIMES=str(self.folder))
        self.assertIn("aarch64-linux", said)
        self.assertIn("npudiff runtimes add", said)


class Several(OnShelf):
    """More than one phone."""

    PROBE = "uniform:100" # what is acknowledged is looked up on the phone itself, without delay

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.phones = [cls.shelf.phone("gen1"), cls.shelf.phone("gen5")]
        capture(MODEL, [f"htp-sim:{p.chipset}" for p in cls.phones], [cls.PROBE], cls.shared / "local")
        cls.local = {p.serial: cls.shared / "local" / f"{p.chipset}.h5" for p in cls.phones}

    def test_every_phone_that_is_attached(self):
        """adb:* is one device for each, with the chipset that it says it has."""
        self.capture("adb:*/agent/htp-sim", self.PROBE, self.folder)
        found = by_address(self.folder)
        self.assertEqual(sorted(found), sorted(self.local))
        for serial, path in found.items():
            self.assert_same(path, self.local[serial])

    def test_one_hangs_one_disappears_and_the_others_go_on(self):
        hanging = self.shelf.phone("gen3")
        hanging.die()
        hanging.environment["NPUDIFF_LAUNCHER"] = hanging.script("hang", "#!/bin/sh\nexec sleep 100000\n")
        hanging.start()
        leaving = self.shelf.phone("gen4")
        phones = [*self.phones, hanging, leaving]
        devices = [p.uri("cpu" if p is hanging else None) for p in phones]
        leaving.stop_point.ask("acknowledged 20")
        process = self.shelf.start(*self.command(devices, self.PROBE, self.folder, "--stall-limit", "12", "--link-limit", "2",
                                                 "--json"))
        self.addCleanup(process.kill)
        wait_until(lambda: leaving.has_stopped() or process.poll() is not None, 300, "sample of the phone that is to leave")
        leaving.link.down()
        leaving.die()
        out, err = process.communicate(timeout=300)
        self.assertEqual(process.returncode, 5, err)
        found = by_address(self.folder)
        self.assertEqual(sorted(found), sorted(p.serial for p in phones))
        for phone in self.phones:
            self.assert_same(found[phone.serial], self.local[phone.serial])
        self.assertEqual(info(found[hanging.serial])["status"], "failed")
        self.assertIn("progress", self.failure(found[hanging.serial])["message"])
        self.assertEqual(hanging.processes(), []) # what hung was ended
        self.assertIn("link", self.failure(found[leaving.serial])["message"])
        for phone in (hanging, leaving):
            self.assertIn(phone.serial, out + err)
            phone.die()
            phone.link.down()

    @staticmethod
    def failure(path):
        with Capture(path) as opened:
            return opened.failure()


class Links(OnShelf):
    """Links that are lost, phones that restart, a host that dies."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.local = cls.shared / "local.h5"
        started = time.monotonic()
        capture(MODEL, ["htp-sim:gen3"], [PROBE], cls.local)
        cls.warm_s = time.monotonic() - started # no phone is faster
        cls.phone = cls.shelf.phone("gen3")
        before = cls.phone.link.total_bytes()
        cls.shelf.run(*cls.command([cls.phone.uri()], PROBE, cls.shared / "first.h5"))
        cls.cold_bytes = cls.phone.link.total_bytes() - before

    def setUp(self):
        super().setUp()
        self.phone.link.up()
        self.phone.connect()

    def test_the_link_is_lost_at_random_points(self):
        """While files are pushed, while it runs and while its spool is pulled: the capture is complete and the same."""
        seed = int(os.environ.get("ND_SEED", "20261121"))
        print(f"# ND_SEED={seed}", flush=True)
        dice = random.Random(seed)
        n_struck = 0
        trials = [("byte", self.cold_bytes), ("time", self.warm_s), ("sample", N_SAMPLES)]
        for trial, (at, n) in enumerate(trials):
            if at == "byte":
                shutil.rmtree(self.phone.root)
            with Disturbance(self.phone, dice, at, n) as disturbance:
                self.capture(self.phone.uri(), PROBE, self.folder / f"{trial}.h5")
            print(f"# {disturbance.said}")
            n_struck += disturbance.has_struck
            with self.subTest(disturbance.said):
                self.assert_same(self.folder / f"{trial}.h5", self.local)
            self.phone.connect()
        self.assertGreaterEqual(n_struck, len(trials) - 1) # a time may come after the end

    def begin(self, n_samples, *arguments):
        """A capture in the background, whose agent has stopped after so many samples, which are acknowledged here;
        (process, its TMPDIR)."""
        temporary = self.folder / "tmp"
        temporary.mkdir()
        self.addCleanup(self.phone.stop_point.withdraw)
        self.phone.stop_point.ask(f"acknowledged {n_samples}")
        process = self.shelf.start(*self.command([self.phone.uri()], PROBE, self.folder / "x.h5", *arguments),
                                   TMPDIR=str(temporary))
        self.addCleanup(process.kill)
        wait_until(lambda: (self.phone.has_stopped() and acknowledged(temporary) == n_samples) or process.poll() is not None,
                   300, "agent that stopped")
        self.assertIsNone(process.poll(), "the capture ended before its agent was to stop")
        return process, temporary

    def end(self, process, temporary):
        """Its exit code is 5, and what was acknowledged here is in a partial capture; what it said."""
        n = acknowledged(temporary)
        out, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 5, err)
        with Capture(self.folder / "x.h5") as opened, Capture(self.local) as local:
            self.assertEqual(opened.status, "partial")
            n_stored = opened.n_samples("uniform")
            self.assertGreaterEqual(n_stored, n)
            self.assertLess(n_stored, N_SAMPLES)
            for edge in local.edges:
                self.assert_bits_equal(opened.values("uniform", edge), local.values("uniform", edge)[:n_stored], edge)
        self.assertIn(f"{n_stored} of {N_SAMPLES}", out + err)
        return out + err

    def resume(self):
        """The same command again with --resume: complete, the same, and nothing left on the phone."""
        self.capture(self.phone.uri(), PROBE, self.folder / "x.h5", "--resume")
        self.assert_same(self.folder / "x.h5", self.local)
        self.assertEqual([f for f in self.phone.files() if f.startswith("runs/")], [])

    def test_the_link_is_gone_for_longer_than_allowed(self):
        process, temporary = self.begin(10, "--link-limit", "1")
        self.phone.link.down()
        said = self.end(process, temporary)
        self.assertIn("--resume", said)
        self.phone.thaw()
        wait_until(lambda: self.phone.acknowledged() == N_SAMPLES, 120, "end of the run without a link")
        self.phone.link.up()
        self.resume()

    def test_a_link_that_is_lost_under_the_untouched_model_costs_no_run(self):
        """Its session is the last: the capture is whole, and says that the outputs were not compared. A link that comes back costs nothing."""
        for is_gone in (True, False):
            temporary, output = self.folder / f"tmp{is_gone}", self.folder / f"{is_gone}.h5"
            temporary.mkdir()
            command = [word for word in self.command([self.phone.uri()], PROBE, output) if word != "--skip-untouched"]
            process = self.shelf.start(*command, *(["--link-limit", "1"] if is_gone else []), TMPDIR=str(temporary))
            self.addCleanup(process.kill)
            wait_until(lambda: list(temporary.glob("*/untouched/run/job.nds")) or process.poll() is not None, 300, "the untouched model")
            self.assertIsNone(process.poll())
            self.phone.link.down() if is_gone else self.phone.link.cut()
            out, err = process.communicate(timeout=300)
            self.assertEqual(process.returncode, 0, out + err)
            self.assert_same(output, self.local)
            runtime = info(output)["attributes"]["runtime"]
            self.assertEqual(("untouched_samples" in runtime, "untouched_unknown" in runtime), (not is_gone, is_gone), runtime)
            if is_gone:
                self.assertIn("the link", runtime["untouched_unknown"])
                self.phone.link.up()
                self.phone.connect()

    def test_the_phone_restarts(self):
        process, temporary = self.begin(10, "--link-limit", "1")
        self.phone.link.down()
        self.phone.die()
        self.end(process, temporary)
        self.assertLess(self.phone.acknowledged(), N_SAMPLES)
        self.phone.link.up()
        self.phone.start()
        self.resume()

    def test_the_host_is_killed(self):
        process, temporary = self.begin(10)
        process.kill()
        process.communicate()
        self.phone.thaw()
        wait_until(lambda: self.phone.acknowledged() == N_SAMPLES, 120, "end of the run without a host")
        self.resume()

    def test_what_is_complete_is_not_run_again(self):
        self.capture(self.phone.uri(), SHORT, self.folder / "x.h5")
        before = (self.folder / "x.h5").read_bytes()
        self.capture(self.phone.uri(), SHORT, self.folder / "x.h5", "--resume")
        self.assertEqual((self.folder / "x.h5").read_bytes(), before)

    def test_the_link_stalls(self):
        """No byte comes and nothing is cut: that is a link lost as well, and found out."""
        process, temporary = self.begin(10)
        self.phone.link.stall()
        self.phone.thaw()
        wait_until(lambda: self.phone.acknowledged() == N_SAMPLES, 120, "end of the run behind the link")
        time.sleep(3) # for longer than the link may be silent
        self.phone.link.flow()
        out, err = process.communicate(timeout=300)
        self.assertEqual(process.returncode, 0, err)
        self.assert_same(self.folder / "x.h5", self.local)

    def test_an_agent_that_hangs_in_the_middle(self):
        """It is stopped at the limit, and what it had acknowledged is kept."""
        process, temporary = self.begin(10, "--stall-limit", "15") # which loading on a busy machine must not reach
        n = acknowledged(temporary)
        out, err = process.communicate(timeout=300)
        self.assertEqual(process.returncode, 5, err)
        with Capture(self.folder / "x.h5") as opened:
            self.assertEqual(opened.status, "failed")
            self.assertIn("progress", opened.failure()["message"])
            self.assertGreaterEqual(opened.n_samples("uniform"), n)
        self.assertEqual(self.phone.agents(), [])

    def test_a_capture_that_is_given_up_ends_the_agent(self):
        process, _ = self.begin(10)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
        self.assertNotEqual(process.returncode, 0)
        wait_until(lambda: not self.phone.agents(), 20, "end of the agent")


if __name__ == "__main__":
    skip_without("adb", "adbd")
    main()
