#!/usr/bin/env python3
"""Devices behind ssh: a real sshd on loopback, with a configuration and keys of its own (phones.py)."""
import os
import pathlib
import shutil
import signal
import subprocess

from phone_captures import check_changed_store, device_facts, differences
from phones import Shelf, shared_connections, skip_without, wait_until
from support import Capture, MODELS, NPUDIFF, Scratch, acknowledged, capture, main, npudiff

MODEL = "cnn.w8a8.onnx"
PROBE = "uniform:100"
SHORT = "uniform:20"


class Ssh(Scratch):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.shelf = Shelf()
        cls.addClassCleanup(cls.shelf.close)
        cls.board = cls.shelf.board()
        cls.local = cls.shared / "local.h5"
        capture(MODEL, ["htp-sim:gen3"], [PROBE], cls.local)
        cls.local_short = cls.shared / "local-short.h5"
        capture(MODEL, ["htp-sim:gen3"], [SHORT], cls.local_short)

    def command(self, device, probe, output, *arguments):
        return ["capture", MODELS / MODEL, "-d", device, "-p", probe, "-o", output, "--skip-untouched", *arguments]

    def capture(self, device, probe, output, *arguments, expect=0, **environment):
        done = self.shelf.run(*self.command(device, probe, output, *arguments), **environment)
        self.assertEqual(done.returncode, expect, f"{device}\n{done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def failed(self, device, *words, **environment):
        """A failed cell that says these words."""
        output = self.folder / "failed.h5"
        said = self.capture(device, "ramp", output, "--link-limit", "1", "-f", expect=5, **environment)
        with Capture(output) as opened:
            self.assertEqual((opened.status, opened.failure()["stage"]), ("failed", "connect"))
            for word in words:
                self.assertIn(word.lower(), opened.failure()["message"].lower())
                self.assertIn(word.lower(), said.lower())

    def test_a_board_gives_what_this_machine_gives_and_pushes_nothing_twice(self):
        output = self.folder / "first.h5"
        before = self.board.link.up_bytes
        self.capture(self.board.uri("htp-sim:gen3"), SHORT, output)
        first = self.board.link.up_bytes - before
        self.assertEqual(differences(output, self.local_short), [])
        before = self.board.link.up_bytes
        self.capture(self.board.uri("htp-sim:gen3"), SHORT, self.folder / "second.h5")
        self.assertEqual(differences(self.folder / "second.h5", self.local_short), [])
        self.assertLess(self.board.link.up_bytes - before, 1_000_000)
        self.assertEqual([f for f in self.board.files() if f.startswith("runs/")], [])
        self.assertEqual(device_facts(output)["is_simulator"], 1)
        self.assertTrue(first >= 0)

    def test_a_capture_logs_in_once(self):
        temporary = self.folder / "tmp"
        temporary.mkdir()
        before = self.board.logins()
        self.capture(self.board.uri("htp-sim:gen3"), SHORT, self.folder / "x.h5", TMPDIR=str(temporary))
        self.assertEqual(self.board.logins() - before, 1)
        wait_until(lambda: shared_connections(temporary) == [], 10, "end of the connection")
        self.assertEqual(list(temporary.iterdir()), [])

    def test_a_capture_that_is_stopped_leaves_no_connection(self):
        self.end_a_capture(signal.SIGINT, 10)

    def test_a_capture_that_is_killed_leaves_no_connection_for_long(self):
        self.end_a_capture(signal.SIGKILL, 60)

    def end_a_capture(self, number, limit_s):
        process, temporary = self.begin(self.folder / "x.h5")
        self.assertEqual(len(shared_connections(temporary)), 1)
        process.send_signal(number)
        process.wait(timeout=60)
        self.board.thaw()
        wait_until(lambda: shared_connections(temporary) == [], limit_s, "end of the connection")

    def test_what_changed_in_the_store_is_sent_again(self):
        """Files of another content and the same size and times: neither run nor believed."""
        output = self.folder / "x.h5"
        self.capture(self.board.uri("htp-sim:gen3"), SHORT, output)
        check_changed_store(self, self.board.root / "store", output, lambda: self.capture(self.board.uri("htp-sim:gen3"), SHORT, output, "-f"),
                            self.local_short)

    def test_a_parent_that_ignores_sigchld(self):
        """Who started npudiff may ignore SIGCHLD, which it inherits; then it could not wait for ssh or an agent."""
        for device, environment in ((self.board.uri("cpu"), self.shelf.environment()), ("cpu", None)):
            output = self.folder / "x.h5"
            done = subprocess.run([NPUDIFF, *map(str, self.command(device, "ramp", output, "-f"))], env=environment,
                                  stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300,
                                  preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
            self.assertEqual(done.returncode, 0, done.stderr)
            with Capture(output) as opened:
                self.assertEqual(opened.status, "complete")

    def test_clean_leaves_nothing(self):
        board = self.shelf.board(name="other") # what is on the first one stays for the other tests
        self.capture(board.uri("cpu"), "ramp", self.folder / "clean.h5", "--clean", NPUDIFF_SSH=str(board.ssh))
        self.assertEqual(board.files(), [])

    def begin(self, output, *arguments):
        """A capture whose agent has stopped after 10 samples, which are acknowledged here; (process, its TMPDIR)."""
        temporary = self.folder / "tmp"
        temporary.mkdir()
        self.addCleanup(self.board.stop_point.withdraw)
        self.board.stop_point.ask("acknowledged 10")
        process = self.shelf.start(*self.command(self.board.uri("htp-sim:gen3"), PROBE, output, *arguments),
                                   TMPDIR=str(temporary))
        self.addCleanup(process.kill)
        wait_until(lambda: (self.board.has_stopped() and acknowledged(temporary) == 10) or process.poll() is not None, 300,
                   "agent that stopped")
        self.assertIsNone(process.poll(), "the capture ended before its agent was to stop")
        return process, temporary

    def test_the_link_is_lost_and_comes_back(self):
        output = self.folder / "x.h5"
        process, _ = self.begin(output)
        self.board.link.cut()
        self.board.thaw()
        out, err = process.communicate(timeout=300)
        self.assertEqual(process.returncode, 0, err)
        self.assertEqual(differences(output, self.local), [])

    def test_the_link_is_gone_and_the_run_is_resumed(self):
        output = self.folder / "x.h5"
        process, temporary = self.begin(output, "--link-limit", "1")
        self.addCleanup(self.board.link.up)
        self.board.link.down()
        out, err = process.communicate(timeout=300)
        self.assertEqual(process.returncode, 5, err)
        with Capture(output) as opened:
            self.assertEqual(opened.status, "partial")
            self.assertEqual(opened.n_samples("uniform"), 10)
        self.board.thaw()
        self.board.link.up()
        self.capture(self.board.uri("htp-sim:gen3"), PROBE, output, "--resume")
        self.assertEqual(differences(output, self.local), [])

    def test_a_host_that_is_unknown(self):
        self.failed("ssh:no-such-host.invalid/agent/cpu", "no-such-host.invalid")

    def test_a_host_that_does_not_answer(self):
        self.board.link.down()
        self.addCleanup(self.board.link.up)
        self.failed(self.board.uri("cpu"), self.board.name)

    def test_a_host_whose_key_is_not_known(self):
        known = self.board.known_hosts.read_text()
        self.addCleanup(self.board.known_hosts.write_text, known)
        self.board.known_hosts.write_text("")
        self.failed(self.board.uri("cpu"), "host key")
        self.assertEqual(self.board.known_hosts.read_text(), "") # nobody is trusted unasked

    def test_a_user_who_may_not(self):
        keys = self.board.folder / "authorized_keys"
        self.addCleanup(keys.write_text, keys.read_text())
        keys.write_text("")
        self.failed(self.board.uri("cpu"), "does not let this user in")

    def test_no_ssh(self):
        said = self.capture("ssh:board/agent/cpu", "ramp", self.folder / "x.h5", expect=2, NPUDIFF_SSH="/nowhere/ssh")
        self.assertIn("/nowhere/ssh", said)
        self.assertFalse((self.folder / "x.h5").exists())

    def test_a_login_that_talks(self):
        """A login shell whose start-up files print: it must not get into what is read."""
        wrapper = self.folder / "ssh"
        wrapper.write_text(f'#!/bin/sh\necho "welcome to the board"\necho "motd" >&2\nexec "{self.board.ssh}" "$@"\n')
        wrapper.chmod(0o755)
        self.capture(self.board.uri("htp-sim:gen3"), SHORT, self.folder / "x.h5", NPUDIFF_SSH=str(wrapper))
        self.assertEqual(differences(self.folder / "x.h5", self.local_short), [])


if __name__ == "__main__":
    skip_without("ssh", "sshd", "ssh-keygen")
    main()
