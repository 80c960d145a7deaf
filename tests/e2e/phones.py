"""Phones for tests: a real adb and real adbd servers on loopback, and boards behind a real sshd.

What is real: adb, adbd, its protocol over TCP, ssh and sshd, the shell, the agent and its runtimes. What stands in for
Android is in the folder `bin` of each phone, and says so (phone_standins.py). Between adb and adbd (ssh and sshd) lies a
Link, which can be cut (phone_link.py).

Everything that a Shelf starts, and all that those start in turn, carries the shelf's mark in its environment. So the end
of the test, even by SIGKILL, leaves no server, no adbd and no agent behind. adbd listens on all addresses without
authentication for as long as the phone is on: it has no option for less.
"""
import atexit
import contextlib
import functools
import os
import pathlib
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid

import arm64 as arm64_linux
from phone_link import Link
from phone_standins import DUMPSYS, GETPROP, LOGCAT, MODELS
from support import NPUDIFF, StopPoint, acknowledged, is_stopped, wait_until

SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
MARK = "NPUDIFF_TEST_SHELF"

def missing(*programs):
    """Why phones (boards) cannot be had on this machine, or None."""
    for program in programs:
        if shutil.which(program, path=SYSTEM_PATH) is None:
            return f"no {program} on this machine; tools/setup --tests installs it where the distribution has it"
    return None


def skip_without(*programs):
    """Ends the test program as skipped, in TAP, when one of the programs is not there."""
    reason = missing(*programs)
    if reason is not None:
        print(f"1..0 # SKIP {reason}")
        sys.exit(0)


RESERVED = [] # a socket for each port that this process was given


def free_port():
    """A port of this host that is this process's own until it ends: none of those that the kernel gives to whoever asks
    for any, and none that another test program was given, who would have its name in the abstract namespace."""
    first_given = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for step in range(1000): # each process begins elsewhere: a port that was closed a moment ago is not free yet
        port = 10000 + (os.getpid() * 16 + step) % (first_given - 10000)
        mine = socket.socket(socket.AF_UNIX)
        try:
            mine.bind(f"\0npudiff-test-port-{port}")
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            mine.close()
            continue
        RESERVED.append(mine)
        return port
    raise AssertionError("no free port")


# ---- processes ----

def marked(mark):
    """The ids of all processes whose environment holds this mark (NAME=VALUE), oldest first."""
    wanted, found = mark.encode(), []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (folder / "environ").read_bytes().split(b"\0") and int(folder.name) != os.getpid():
                found.append(int(folder.name))
        except (OSError, ValueError):
            continue
    return sorted(found)


def kill_marked(mark, number=signal.SIGKILL):
    """Sends the signal to all of them, until none is left when it is SIGKILL. How many there were."""
    n, before = 0, set()
    for _ in range(50):
        now = set(marked(mark))
        n += len(now - before)
        for process in now:
            try:
                os.kill(process, number)
            except ProcessLookupError:
                pass
        if not now or number != signal.SIGKILL:
            break
        before |= now
        time.sleep(0.01)
    return n


def command_line(process):
    try:
        return pathlib.Path(f"/proc/{process}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def kill_sshd_below(folder):
    """Every sshd whose configuration lies in the folder: its title overwrites the environment, and so the mark."""
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        line = " ".join(command_line(path.name))
        if line.startswith("sshd: ") and f"{folder}/" in line:
            os.kill(int(path.name), signal.SIGKILL)


def shared_connections(folder):
    """The processes of ssh that hold a connection open whose socket lies below the folder; their title overwrites the mark."""
    lines = (" ".join(command_line(p.name)) for p in pathlib.Path("/proc").glob("[0-9]*"))
    return [line for line in lines if line.startswith("ssh: ") and f"{folder}/" in line and "[mux]" in line]


# ---- the shelf ----

WATCHDOG = """
import sys
if sys.stdin.buffer.read() != b"closed":
    sys.path.insert(0, sys.argv[2])
    from phones import kill_marked, kill_sshd_below, unmount_below
    kill_marked(sys.argv[1])
    kill_sshd_below(sys.argv[3])
    unmount_below(sys.argv[3])
"""


class Shelf:
    """Phones and boards, the adb server that serves them, and the environment in which npudiff finds it all."""

    def __init__(self, folder=None):
        self._scratch = None
        if folder is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="npudiff-shelf-")
            folder = self._scratch.name
        self.folder = pathlib.Path(folder)
        self.mark = f"{MARK}={uuid.uuid4().hex}"
        self.phones, self.boards = [], []
        self.port = free_port()
        self.home = self.folder / "home"
        self.home.mkdir(parents=True)
        # When this process ends in whatever way, its end of the pipe closes.
        self._watchdog = subprocess.Popen([sys.executable, "-c", WATCHDOG, self.mark, os.path.dirname(__file__),
                                           str(self.folder)], stdin=subprocess.PIPE, start_new_session=True)
        atexit.register(self.close)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def environment(self, **more):
        """The environment for adb and npudiff."""
        name, value = self.mark.split("=")
        own = {name: value, "HOME": str(self.home), "ANDROID_ADB_SERVER_PORT": str(self.port),
               "ADB_LOCAL_TRANSPORT_MAX_PORT": "5554", "ADB_MDNS_OPENSCREEN": "0"}
        # HOME is another one, for adb's keys and what ssh reads; the runtimes stay where they are.
        own["XDG_CACHE_HOME"] = os.environ.get("XDG_CACHE_HOME") or str(pathlib.Path.home() / ".cache")
        if len(self.boards) > 0:
            own["NPUDIFF_SSH"] = str(self.boards[0].ssh)
        return {**{k: v for k, v in os.environ.items() if k != "ANDROID_SERIAL"}, **own, **more}

    def adb(self, *arguments, expect=0, timeout=60, **options):
        """Runs adb; its stdout as text, or the whole result when expect is None."""
        done = subprocess.run(["adb", *map(str, arguments)], env=self.environment(), capture_output=True, text=True,
                              timeout=timeout, stdin=subprocess.DEVNULL, **options)
        if expect is not None and done.returncode != expect:
            raise AssertionError(f"adb {' '.join(map(str, arguments))}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return done if expect is None else done.stdout

    def phone(self, chipset="gen3", **options):
        """A phone that is on and connected. Options: see Phone."""
        phone = Phone(self, chipset, **options)
        self.phones.append(phone)
        phone.start()
        return phone

    def board(self, **options):
        board = Board(self, **options)
        self.boards.append(board)
        return board

    def run(self, *arguments, timeout=600, **environment):
        """npudiff in this shelf's environment: the whole result, whatever the exit code."""
        return subprocess.run([NPUDIFF, *map(str, arguments)], env=self.environment(**environment), capture_output=True,
                              text=True, timeout=timeout, stdin=subprocess.DEVNULL)

    def start(self, *arguments, **environment):
        """npudiff in the background."""
        return subprocess.Popen([NPUDIFF, *map(str, arguments)], env=self.environment(**environment), text=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def close(self):
        if self._watchdog is None:
            return
        atexit.unregister(self.close)
        for phone in self.phones:
            phone.link.close()
        kill_marked(self.mark)
        for phone in self.phones:
            phone.reap()
        for board in self.boards:
            board.close()
        unmount_below(self.folder)
        self._watchdog.communicate(b"closed", timeout=30)
        self._watchdog = None
        if self._scratch is not None:
            self._scratch.cleanup()


class Phone:
    """A phone: adbd on a port of its own behind a Link, with a folder of its own.

    arm64: it says that it is an arm64 phone, and runs the agent under user-mode emulation (see arm64_trouble).
    launcher: any other launcher, put before every agent (environment["NPUDIFF_LAUNCHER"], read when adbd starts).
    properties: more properties, or None for a machine without getprop. space_mb: how much its disk holds (a small tmpfs, see
    can_be_small). path: where its programs are instead of where this machine's are. root: the name of the folder that
    npudiff uses there; None: npudiff is not told. environment: more of the phone's own.
    """

    def __init__(self, shelf, chipset, *, name=None, arm64=False, launcher=None, properties=(), space_mb=None,
                 path=SYSTEM_PATH, root="device", environment=()):
        self.shelf = shelf
        self.chipset = chipset
        self.name = name or f"phone{len(shelf.phones)}"
        self.folder = shelf.folder / self.name
        self.bin = self.folder / "bin"
        self.bin.mkdir(parents=True)
        self.disk = self.folder / "disk"
        self.disk.mkdir()
        self.root = self.disk / root if root is not None else None
        self.space_mb = space_mb
        self.mark = f"{MARK}_PHONE={uuid.uuid4().hex}"
        self.environment = {"PATH": f"{self.bin}:{path}", **dict([shelf.mark.split("="), self.mark.split("=")])}
        if self.root is not None:
            self.environment["NPUDIFF_DEVICE_FOLDER"] = str(self.root)
        self.stop_point = StopPoint(self.folder / "stop")
        self.environment.update(self.stop_point.environment)
        self.is_arm64 = arm64
        if arm64:
            launcher = shlex.join(arm64_linux.launcher())
        if launcher:
            self.environment["NPUDIFF_LAUNCHER"] = str(launcher)
        self.environment.update(environment)
        if properties is not None:
            self._write_android("arm64-v8a" if arm64 else "x86_64", dict(properties))
        self.adbd = None
        self.port = free_port()
        self.link = Link(self.port)
        self.serial = f"localhost:{self.link.port}"

    def uri(self, device=None, way="agent", options=""):
        """adb:SERIAL/WAY/DEVICE; the simulator of the phone's chipset unless another device is named."""
        return f"adb:{self.serial}/{way}/{device or 'htp-sim:' + self.chipset}{options}"

    def start(self):
        """Switches it on and waits until adb sees it."""
        command = [shutil.which("adbd", path=SYSTEM_PATH)]
        if self.space_mb is not None:
            mount = f"mount -t tmpfs -o size={self.space_mb}m none {shlex.quote(str(self.disk))}"
            if way_to_mount() == "here" and not self.disk.is_mount():
                subprocess.run(["sh", "-c", mount], check=True, stdin=subprocess.DEVNULL)
            elif way_to_mount() == "private":
                command = [*_private_mounts(), "sh", "-c",
                           f"{mount} && cd {shlex.quote(str(self.disk))} && exec {command[0]}"]
        for _ in range(5):
            with open(self.folder / "adbd.log", "ab") as log:
                self.adbd = subprocess.Popen(command, cwd=self.disk, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                             env={**self.environment, "ADBD_PORT": str(self.port)},
                                             start_new_session=True)
            if self._listens():
                self.connect()
                return
            self.die()
            self.port = self.link.target_port = free_port() # someone else has taken it
        raise AssertionError(f"adbd does not start: {(self.folder / 'adbd.log').read_text()}")

    def connect(self, timeout_s=60):
        """Until adb calls it a device."""
        end = time.monotonic() + timeout_s
        while True:
            said = self.shelf.adb("connect", self.serial, expect=None)
            if self.state() == "device":
                return
            if time.monotonic() > end:
                raise AssertionError(f"no device {self.serial} within {timeout_s} s: {said.stdout}{said.stderr}; {self.state()}; "
                                     f"{(self.folder / 'adbd.log').read_text()}")
            time.sleep(0.05)

    def state(self):
        done = self.shelf.adb("-s", self.serial, "get-state", expect=None)
        return done.stdout.strip() if done.returncode == 0 else done.stderr.strip()

    def shell(self, command, expect=0):
        """A command on the phone; its stdout."""
        return self.shelf.adb("-s", self.serial, "shell", "-T", "-n", command, expect=expect)

    def processes(self, program=None):
        """What runs on the phone (adbd itself not): all, or those that run this program, also under an emulator."""
        found = [p for p in marked(self.mark) if self.adbd is None or p != self.adbd.pid]
        if program is None:
            return found
        return [p for p in found if any(os.path.basename(word) == program for word in command_line(p))]

    def agents(self):
        return self.processes("npudiff-agent")

    def wait_for_agent(self, timeout_s=120):
        return wait_until(self.agents, timeout_s, f"agent on {self.name}")

    def has_stopped(self):
        """Whether an agent has stopped at the point that self.stop_point was asked for."""
        return not self.stop_point.is_waiting() and any(is_stopped(process) for process in self.agents())

    def acknowledged(self):
        """How many samples of the first probe the spools on the phone acknowledge."""
        return acknowledged(self.disk)

    def thaw(self):
        """Its agents, which stopped at the point that self.stop_point was asked for, continue."""
        for process in self.agents():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGCONT)

    def die(self, with_processes=True):
        """It is gone: adbd ends, and all that runs on it unless only the link's end is meant. Its files stay."""
        if with_processes:
            kill_marked(self.mark)
        elif self.adbd is not None:
            self.adbd.kill()
        self.reap()
        self.link.cut()

    def reap(self):
        if self.adbd is not None:
            self.adbd.wait(timeout=30)
            self.adbd = None

    def files(self, under=""):
        """All files below the root folder, relative to it."""
        top = (self.root or self.disk) / under
        return sorted(str(p.relative_to(top)) for p in top.rglob("*") if not p.is_dir()) if top.is_dir() else []

    def _listens(self):
        end = time.monotonic() + 10
        while self.adbd.poll() is None and time.monotonic() < end:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return True
            except OSError:
                time.sleep(0.02)
        return False

    def _write_android(self, abi, more):
        sm, maker, model, device, release, sdk, build = MODELS.get(self.chipset, (self.chipset, *MODELS["gen3"][1:]))
        properties = {"ro.soc.model": sm, "ro.soc.manufacturer": "QTI", "ro.product.manufacturer": maker,
                      "ro.product.model": model, "ro.product.device": device, "ro.product.cpu.abi": abi,
                      "ro.product.cpu.abilist": abi, "ro.build.version.release": release,
                      "ro.build.version.sdk": sdk, "ro.build.fingerprint": f"{build}:user/release-keys",
                      "ro.build.type": "user", "ro.serialno": f"stand-in-{self.name}", "ro.board.platform": device,
                      "ro.hardware": "qcom", "sys.boot_completed": "1", "persist.sys.timezone": "Europe/Berlin", **more}
        (self.folder / "properties").write_text("".join(f"[{k}]: [{v}]\n" for k, v in sorted(properties.items())))
        (self.folder / "battery").write_text("87\n")
        for name, text in (("getprop", GETPROP), ("dumpsys", DUMPSYS), ("logcat", LOGCAT)):
            self.script(name, text)

    def script(self, name, text):
        """A program of the phone's own, before the system's of the same name; its path."""
        path = self.bin / name
        path.write_text(text)
        path.chmod(0o755)
        return path


# The device on such a phone: the only runtime that there is for it on any machine.
ARM64_DEVICE = f"cpu@{arm64_linux.RUNTIME}"


def arm64_trouble():
    """Why there are no emulated arm64 phones on this machine, or None."""
    try:
        arm64_linux.launcher()
        arm64_linux.runtime()
        arm64_linux.agent()
    except arm64_linux.Missing as missing_part:
        return str(missing_part)
    return None


def android_tools(folder):
    """A PATH with the programs that Android has, as it has them: those of toybox. None without toybox on this machine."""
    toybox = shutil.which("toybox", path=SYSTEM_PATH)
    if toybox is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    for name in subprocess.run([toybox], capture_output=True, text=True, check=True).stdout.split():
        (folder / name).symlink_to(toybox)
    for name in ("awk", "dd", "tr", "sh"): # of Android's toybox, or beside it; not of Debian's
        (folder / name).symlink_to(shutil.which(name, path=SYSTEM_PATH))
    return str(folder)


def _private_mounts():
    return ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]


@functools.cache
def way_to_mount():
    """How a phone gets a small disk: "private" to its processes, "here" for all to see (unshare is refused where / is no
    mount point, as in some chroots), or None."""
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(f"{folder}/disk")
        mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", f"{folder}/disk"]
        try:
            if subprocess.run([*_private_mounts(), *mount], capture_output=True, timeout=30).returncode == 0:
                return "private"
            if os.geteuid() == 0 and subprocess.run(mount, capture_output=True, timeout=30).returncode == 0:
                return "here" if unmount_below(folder) else None
        except (OSError, subprocess.TimeoutExpired):
            pass
    return None


def can_be_small():
    """Whether phones with a small disk can be had here: that takes a mount of its own."""
    return way_to_mount() is not None


def unmount_below(folder):
    """Ends all mounts below a folder; whether none is left."""
    top = os.path.realpath(folder)
    for point in reversed(_mounts_below(top)):
        subprocess.run(["umount", "-l", point], capture_output=True, timeout=30)
    return _mounts_below(top) == []


def _mounts_below(top):
    """In the order in which they were made."""
    with open("/proc/self/mounts", "rb") as mounts:
        points = [line.split()[1].decode("unicode_escape").encode("latin-1").decode(errors="surrogateescape")
                  for line in mounts]
    return [p for p in points if p.startswith(top + "/")]


# ---- boards ----

class Board:
    """A Linux board: sshd on a port of its own behind a Link, for this user, with keys and a configuration of its own.
    Nothing of the system's or the user's ssh is read or written: `ssh` is a wrapper that names the configuration."""

    def __init__(self, shelf, *, name="board", environment=()):
        self.shelf = shelf
        self.name = name
        self.folder = shelf.folder / name
        self.folder.mkdir(mode=0o700)
        self.root = self.folder / "device"
        self.mark = f"{MARK}_BOARD={uuid.uuid4().hex}"
        self.port = free_port()
        self.link = Link(self.port)
        self.known_hosts = self.folder / "known_hosts"
        self.stop_point = StopPoint(self.folder / "stop")
        self.environment = {"NPUDIFF_DEVICE_FOLDER": str(self.root), **self.stop_point.environment, **dict(environment)}
        for key in ("host_key", "user_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "npudiff test", "-f", self.folder / key],
                           check=True, stdin=subprocess.DEVNULL)
        (self.folder / "authorized_keys").write_text((self.folder / "user_key.pub").read_text())
        self._write_configuration()
        self.sshd = None
        self.start()

    def uri(self, device, way="agent", options=""):
        return f"ssh:{self.name}/{way}/{device}{options}"

    def _write_configuration(self):
        host_key = (self.folder / "host_key.pub").read_text().rsplit(" ", 2)[0]
        self.known_hosts.write_text(f"[127.0.0.1]:{self.link.port} {host_key}\n")
        given = [*(f"{k}={v}" for k, v in self.environment.items()), self.shelf.mark, self.mark]
        (self.folder / "sshd_config").write_text("\n".join([
            f"Port {self.port}", "ListenAddress 127.0.0.1", f"HostKey {self.folder}/host_key",
            f"AuthorizedKeysFile {self.folder}/authorized_keys", "PasswordAuthentication no",
            "KbdInteractiveAuthentication no", "UsePAM no", "StrictModes no", "PidFile none", "PermitRootLogin yes",
            "MaxStartups 100", "MaxSessions 100", "SetEnv " + " ".join(f'"{g}"' for g in given), ""]))
        (self.folder / "ssh_config").write_text("\n".join([
            f"Host {self.name}", "  HostName 127.0.0.1", f"  Port {self.link.port}", f"  IdentityFile {self.folder}/user_key",
            "  IdentitiesOnly yes", f"  UserKnownHostsFile {self.known_hosts}", "  GlobalKnownHostsFile /dev/null",
            "  StrictHostKeyChecking yes",
            "  KexAlgorithms curve25519-sha256", "  Compression no", ""]))
        self.ssh = self.folder / "ssh"
        self.ssh.write_text(f'#!/bin/sh\nexec ssh -F {shlex.quote(str(self.folder / "ssh_config"))} "$@"\n')
        self.ssh.chmod(0o755)

    def start(self):
        sshd = shutil.which("sshd", path=SYSTEM_PATH)
        if os.geteuid() == 0:
            os.makedirs("/run/sshd", mode=0o755, exist_ok=True) # which sshd of Debian wants when root starts it
        name, value = self.shelf.mark.split("=")
        with open(self.folder / "sshd.log", "ab") as log:
            self.sshd = subprocess.Popen([sshd, "-D", "-e", "-f", self.folder / "sshd_config"], stdin=subprocess.DEVNULL,
                                         stdout=log, stderr=log, start_new_session=True,
                                         env={"PATH": SYSTEM_PATH, name: value})
        wait_until(self._answers, 20, f"sshd: {(self.folder / 'sshd.log').read_text()}")

    def _answers(self):
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as one:
                one.settimeout(5)
                return one.recv(4) == b"SSH-"
        except OSError:
            return False

    def shell(self, command, expect=0):
        done = subprocess.run([self.ssh, "-oBatchMode=yes", self.name, "--", command], capture_output=True, text=True,
                              timeout=60, stdin=subprocess.DEVNULL)
        if expect is not None and done.returncode != expect:
            raise AssertionError(f"ssh {command}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return done if expect is None else done.stdout

    def logins(self):
        """How many times sshd has let somebody in, by its log."""
        return (self.folder / "sshd.log").read_text().count("Accepted publickey for ")

    def agents(self):
        """The agents on the board."""
        return [p for p in marked(self.mark) if any(os.path.basename(w) == "npudiff-agent" for w in command_line(p))]

    def has_stopped(self):
        """Whether an agent has stopped at the point that self.stop_point was asked for."""
        return not self.stop_point.is_waiting() and any(is_stopped(process) for process in self.agents())

    def thaw(self):
        """Its agents continue."""
        for process in self.agents():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGCONT)

    def files(self, under=""):
        top = self.root / under
        return sorted(str(p.relative_to(top)) for p in top.rglob("*") if not p.is_dir()) if top.is_dir() else []

    def close(self):
        self.link.close()
        kill_marked(self.mark)
        if self.sshd is not None:
            self.sshd.kill()
            self.sshd.wait(timeout=30)
            self.sshd = None
