#!/usr/bin/env python3
"""Fleet files: labels, limits of hosts, and leases, on boards behind a real sshd (phones.py). The lab's command is a
script that writes down how it was called."""
import json
import pathlib
import shlex
import shutil
import signal
import subprocess
import time

from phones import Shelf, free_port, skip_without
from support import Capture, MODELS, Scratch, main, wait_until

MODEL = MODELS / "mul.u8.onnx"
EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
# What the test wants done, and who called how: one line for each call.
LEASE = """#!/bin/sh
set -e # so it fails when nobody reads what it prints
echo "asked to $1"
here=$(dirname "$0")
if [ -x "$here/before" ]; then "$here/before" "$@" || exit; fi
echo "$1 $2 $NPUDIFF_LEASE_ID $NPUDIFF_LEASE_HOST $NPUDIFF_LEASE_LABELS $NPUDIFF_LEASE_LIMIT" >> "$here/calls"
[ ! -x "$here/$1" ] || exec "$here/$1"
"""


class Fleet(Scratch):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.shelf = Shelf()
        cls.addClassCleanup(cls.shelf.close)
        cls.boards = [cls.shelf.board(name="one"), cls.shelf.board(name="two")]
        both = cls.shared / "ssh_config"
        both.write_text("".join(f"Include {b.folder}/ssh_config\n" for b in cls.boards))
        cls.ssh = cls.shared / "ssh"
        cls.ssh.write_text(f'#!/bin/sh\nexec ssh -F {shlex.quote(str(both))} "$@"\n')
        cls.ssh.chmod(0o755)

    def setUp(self):
        super().setUp()
        self.lab = self.folder / "lab"
        self.lab.mkdir()
        self.script("command", LEASE)
        self.out = self.folder / "out"

    def script(self, name, text):
        path = self.lab / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def environment(self, captures=2, limit=60, lease=True):
        places = self.folder / "places" # not the user's own, which other tests may use now
        places.mkdir(exist_ok=True)
        fleet = {"hosts": [{"name": "rack", "captures": captures}], "locks": str(places),
                 "devices": [{"device": "ssh:one", "host": "rack", "labels": ["lab", "first"]},
                             {"device": "ssh:two", "host": "rack", "labels": ["lab"]}]}
        if lease:
            fleet |= {"lease": [str(self.lab / "command")], "lease-limit": limit}
        path = self.folder / "fleet.yaml"
        path.write_text(json.dumps(fleet))
        return {"NPUDIFF_FLEET": str(path), "NPUDIFF_SSH": str(self.ssh)}

    def capture(self, device, *arguments, expect=0, output=None, **environment):
        done = self.shelf.run("capture", MODEL, "-d", device, "-p", "ramp", "-o", output or self.out, *arguments,
                              **environment)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def calls(self):
        """[what, device, id, host, labels, limit], in their order."""
        path = self.lab / "calls"
        return [line.split(" ") for line in path.read_text().splitlines()] if path.exists() else []

    def whats(self):
        return [call[0] for call in self.calls()]

    def failure(self):
        path, = self.out.glob("*.h5")
        with Capture(path) as opened:
            self.assertEqual(opened.status, "failed")
            return opened.failure()

    def test_a_label_is_each_of_its_devices_and_each_is_leased(self):
        self.capture("@lab/cpu", **self.environment())
        self.assertEqual(len(list(self.out.glob("*.h5"))), 2)
        calls = self.calls()
        self.assertEqual(sorted(self.whats()), ["lease", "lease", "release", "release"])
        self.assertEqual(self.whats()[:2], ["lease", "lease"]) # both at once, as the host allows
        for device, labels in (("ssh:one", "lab,first"), ("ssh:two", "lab")):
            mine = [c for c in calls if c[1] == device]
            self.assertEqual([c[0] for c in mine], ["lease", "release"])
            self.assertEqual(mine[0][1:], mine[1][1:])
            self.assertEqual(mine[0][3:], ["rack", labels, "60"])
        self.assertEqual(len({c[2] for c in calls}), 2) # ids

    def test_a_host_with_one_place(self):
        self.capture("@lab/cpu", **self.environment(captures=1))
        self.assertEqual(self.whats(), ["lease", "release"] * 2)

    def test_two_processes_share_the_places_of_a_host(self):
        """The second waits for the place of the first, and gets it when the first is killed."""
        environment = self.environment(captures=1)
        first = self.begin(**environment)
        second = self.shelf.start("capture", MODEL, "-d", "ssh:two/cpu", "-p", "ramp", "-o", self.folder / "second", **environment)
        self.addCleanup(second.communicate)
        self.addCleanup(second.kill)
        time.sleep(3)
        self.assertEqual([c[:2] for c in self.calls()], [["lease", "ssh:one"]])
        self.assertIsNone(second.poll())
        first.kill()
        first.wait(timeout=60)
        self.assertEqual(second.wait(timeout=120), 0)
        self.assertIn(["lease", "ssh:two"], [c[:2] for c in self.calls()])
        wait_until(lambda: sorted(self.whats()) == ["lease", "lease", "release", "release"], 20, "release")

    def test_places_without_a_folder(self):
        environment = self.environment()
        (self.folder / "places").rmdir()
        self.capture("@first/cpu", expect=5, **environment)
        self.assertIn("cannot lock", self.failure()["message"])
        self.assertEqual(self.calls(), [])

    def test_a_device_by_its_name_is_leased_and_one_that_is_not_listed_is_not(self):
        environment = self.environment()
        self.capture("ssh:one/cpu", **environment)
        self.assertEqual(self.whats(), ["lease", "release"])
        (self.lab / "calls").unlink()
        self.capture(f"ssh:127.0.0.1:{self.boards[0].link.port}/cpu", "--link-limit", "1", "-f", expect=5, **environment)
        self.assertEqual(self.calls(), [])

    def test_a_campaign_names_a_label(self):
        campaign = self.folder / "campaign.yaml"
        campaign.write_text(json.dumps({"models": [{"quantised": str(MODEL), "probes": ["ramp"]}],
                                        "devices": ["@first/cpu"], "policy": [{"gate": "finalize"}]}))
        done = self.shelf.run("qualify", campaign, "-o", self.out, **self.environment())
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(self.whats(), ["lease", "release"])
        result = json.loads((self.out / "result.json").read_text())
        self.assertEqual([d["device"] for d in result["models"][0]["devices"]], ["ssh:one/cpu"])

    def test_a_command_that_refuses(self):
        self.script("lease", "#!/bin/sh\necho 'asked the pool'\necho 'taken by jane' >&2\nexit 3\n")
        said = self.capture("@first/cpu", expect=5, **self.environment())
        failure = self.failure()
        self.assertEqual(failure["stage"], "lease")
        for text in (said, failure["message"]):
            self.assertIn("lease' ended with exit code 3: taken by jane", text)
        self.assertEqual(self.whats(), ["lease", "release"]) # it may have got half way

    def test_a_command_that_is_not_there(self):
        environment = self.environment()
        (self.lab / "command").unlink()
        self.capture("@first/cpu", expect=5, **environment)
        self.assertIn("exit code 127", self.failure()["message"])

    def test_a_command_that_takes_too_long(self):
        self.script("lease", "#!/bin/sh\nexec sleep 100000\n")
        self.capture("@first/cpu", expect=5, **self.environment(limit=2))
        self.assertIn("was not leased within 2 s", self.failure()["message"])
        wait_until(lambda: self.whats() == ["lease", "release"], 20, "release")

    def begin(self, **environment):
        """A capture that has its lease and whose agent has stopped."""
        board = self.boards[0]
        self.addCleanup(board.stop_point.withdraw)
        self.addCleanup(board.thaw)
        board.stop_point.ask("acknowledged 1")
        process = self.shelf.start("capture", MODEL, "-d", "@first/cpu", "-p", "uniform:20", "-o", self.out,
                                   **environment)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        wait_until(lambda: board.has_stopped() or process.poll() is not None, 120, "agent that stopped")
        self.assertIsNone(process.poll())
        board.stop_point.withdraw()
        return process

    def test_what_is_killed_or_stopped_is_released(self):
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
            with self.subTest(number.name):
                (self.lab / "calls").unlink(missing_ok=True)
                process = self.begin(**self.environment())
                self.assertEqual(self.whats(), ["lease"])
                process.send_signal(number)
                process.wait(timeout=60)
                wait_until(lambda: self.whats() == ["lease", "release"], 20, "release")
                self.boards[0].thaw()

    def test_stopped_while_it_waits(self):
        self.script("lease", "#!/bin/sh\nexec sleep 100000\n")
        process = self.shelf.start("capture", MODEL, "-d", "@first/cpu", "-p", "ramp", "-o", self.out,
                                   **self.environment())
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        wait_until(lambda: self.whats() == ["lease"], 60, "lease")
        process.send_signal(signal.SIGINT)
        process.wait(timeout=30)
        wait_until(lambda: self.whats() == ["lease", "release"], 20, "release")

    def test_the_example_with_flock(self):
        self.check_turns("lease-flock", NPUDIFF_LEASES=str(self.lab))
        self.assertEqual([p.name for p in self.lab.iterdir() if ".lock." in p.name], [])

    def test_the_example_with_labgrid(self):
        """With a real coordinator, where labgrid is installed (pip install labgrid)."""
        if shutil.which("labgrid-coordinator") is None:
            self.skipTest("no labgrid-coordinator in PATH")
        address = f"127.0.0.1:{free_port()}"
        coordinator = subprocess.Popen(["labgrid-coordinator", "-l", address], cwd=self.folder, stdin=subprocess.DEVNULL,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(coordinator.wait)
        self.addCleanup(coordinator.kill)
        def client(*words):
            return subprocess.run(["labgrid-client", "-x", address, *words], capture_output=True, text=True, timeout=60)
        wait_until(lambda: client("-p", "ssh_one", "create").returncode == 0, 60, "coordinator")
        self.check_turns("lease-labgrid", LG_COORDINATOR=address)
        self.assertIn("acquired: None", client("-p", "ssh_one", "show").stdout)
        for path in self.out.glob("*.h5"):
            path.unlink()
        self.assertEqual(client("-p", "ssh_one", "delete").returncode, 0)
        said = self.capture("@first/cpu", expect=5, **self.environment(), LG_COORDINATOR=address)
        self.assertIn("ssh_one", said) # labgrid's own words: there is no such place

    def check_turns(self, example, **variables):
        """Two that want one board take turns; the lease of one that is killed is free."""
        (self.lab / "before").symlink_to(EXAMPLES / example)
        environment = self.environment() | variables
        process = self.begin(**environment)
        second = self.shelf.start("capture", MODEL, "-d", "@first/cpu", "-p", "ramp", "-o", self.folder / "second",
                                  **environment)
        self.addCleanup(second.kill)
        time.sleep(2) # to see that it does not begin
        self.assertEqual(self.whats(), ["lease"])
        self.assertIsNone(second.poll())
        process.kill()
        process.wait()
        self.boards[0].thaw()
        out, err = second.communicate(timeout=120)
        self.assertEqual(second.returncode, 0, out + err)
        whats = self.whats()
        self.assertEqual((whats.count("lease"), whats.count("release"), whats[0], whats[-1]), (2, 2, "lease", "release"))


if __name__ == "__main__":
    skip_without("ssh", "sshd", "ssh-keygen", "flock")
    main()
