"""Measures a fleet of loopback phones, and links that are lost.

tools/studies/fleet fleet   eight phones, one command: four with the simulator of four chipsets, two emulated arm64 phones, one that
                    hangs and one that disappears in the middle. Every capture is held against a local one, bit for bit; the
                    two failures must be reported. Says how long each phone takes alone, what its files take to get there,
                    and how long all of them take at once.
tools/studies/fleet kills   one phone, and a link that is lost at random points: while files are pushed, while it runs, while its
                    spool is pulled; every third time for longer than npudiff waits, then resumed. Nothing that was
                    acknowledged may be lost, and the capture must be the undisturbed one, bit for bit.
tools/studies/fleet         both.

The phones are real adbd servers on this machine and share its processors, which phones do not.
Exit code 0: all as it must be (times are only printed); 1: not so; 2: trouble."""

import argparse
import json
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "e2e"))

import arm64  # noqa: E402
from phone_captures import by_address, differences  # noqa: E402
from phone_link import Disturbance  # noqa: E402
from phones import ARM64_DEVICE, Shelf, arm64_trouble, missing, wait_until  # noqa: E402
from support import MODELS, NPUDIFF, Capture, acknowledged, info  # noqa: E402

SIMULATED = ("gen1", "gen2", "gen4", "gen5")


def parse(arguments):
    parser = argparse.ArgumentParser(prog="tools/studies/fleet", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", nargs="?", default="all", choices=["all", "fleet", "kills"])
    parser.add_argument("--model", default="cnn.w8a8.onnx", help="of golden/models, or a path (%(default)s)")
    parser.add_argument("--samples", type=int, default=300, help="of each capture (%(default)s)")
    parser.add_argument("--kills", type=int, default=50, help="how often the link is lost (%(default)s)")
    parser.add_argument("--stall-limit", type=int, default=30, help="seconds; of the phone that hangs (%(default)s)")
    parser.add_argument("--seed", type=int, default=20261121, help="(%(default)s)")
    return parser.parse_args(arguments)


class Study:
    def __init__(self, options, shelf, folder):
        self.options, self.shelf, self.folder = options, shelf, folder
        self.probe = f"uniform:{options.samples}"
        self.wrong = []
        self.local = {}

    def expect(self, is_right, what):
        if not is_right:
            self.wrong.append(what)
            print(f"WRONG: {what}", flush=True)
        return is_right

    def command(self, devices, output, *arguments):
        return ["capture", MODELS / self.options.model, *(f for d in devices for f in ("-d", d)), "-p", self.probe,
                "-o", output, *arguments]

    def reference(self, device):
        """The local capture of a device; that of an arm64 phone by the same emulator."""
        if device not in self.local:
            path = self.folder / f"local{len(self.local)}.h5"
            if device == ARM64_DEVICE:
                there = self.folder / "arm64"
                there.mkdir()
                done = self.shelf.run(*self.command([f"cpu@{arm64.HERE}"], path), **arm64.environment_here(there))
            else:
                done = self.shelf.run(*self.command([device], path))
            if done.returncode != 0:
                raise SystemExit(f"fleet: {device}: {done.stderr}")
            self.local[device] = path
        return self.local[device]

    def timed(self, devices, output, *arguments):
        started = time.monotonic()
        done = self.shelf.run(*self.command(devices, output, *arguments), timeout=3600)
        return done, time.monotonic() - started

    def is_same(self, path, device):
        return info(path)["status"] == "complete" and differences(path, self.reference(device)) == []


# ---- eight phones ----

def fleet(study):
    phones, devices, rows = [], {}, []
    for chipset in SIMULATED:
        phones.append(study.shelf.phone(chipset))
        devices[phones[-1]] = f"htp-sim:{chipset}"
    trouble = arm64_trouble()
    if trouble is not None:
        print(f"no arm64 phones: {trouble}")
    for _ in range(2 if trouble is None else 0):
        phones.append(study.shelf.phone("gen3", arm64=True))
        devices[phones[-1]] = ARM64_DEVICE
    hanging, leaving = study.shelf.phone("gen3"), study.shelf.phone("gen3")
    good = list(phones)
    for phone in (hanging, leaving):
        phones.append(phone)
        devices[phone] = "htp-sim:gen3"

    uri = {p: p.uri(devices[p]) for p in phones}
    alone = {}
    for phone in phones:
        one = study.folder / f"alone-{phone.name}.h5"
        done, cold_s = study.timed([uri[phone]], one, "-f")
        study.expect(done.returncode == 0, f"{phone.name} alone: {done.stderr}")
        sent = phone.link.up_bytes
        _, warm_s = study.timed([uri[phone]], one, "-f")
        alone[phone] = (cold_s, warm_s, sent)
        phone.shell(f"rm -rf '{phone.root}'")
    hanging.die()
    hanging.environment["NPUDIFF_LAUNCHER"] = str(hanging.script("hang", "#!/bin/sh\nexec sleep 100000\n"))
    hanging.start()
    started = time.monotonic()
    process = study.shelf.start(*study.command([uri[p] for p in phones], study.folder / "fleet", "--json", "--link-limit", "5",
                                               "--stall-limit", study.options.stall_limit))
    n = study.options.samples // 4
    wait_until(lambda: leaving.acknowledged() > n or process.poll() is not None, 600, "sample of the phone that leaves")
    leaving.link.down()
    leaving.die()
    out, err = process.communicate(timeout=3600)
    total_s = time.monotonic() - started
    study.expect(process.returncode == 5, f"exit code {process.returncode} of the fleet: {err}")
    found = by_address(study.folder / "fleet")
    study.expect(len(found) == len(phones), f"{len(found)} captures of {len(phones)} phones")
    for phone in phones:
        path = found.get(phone.serial)
        status = info(path)["status"] if path else "none"
        reason = ""
        if phone in good:
            same = path is not None and study.is_same(path, devices[phone])
            study.expect(same, f"{phone.name} is not what it is here: {status}")
            reason = "equal, bit for bit" if same else "NOT EQUAL"
        elif path is not None:
            study.expect(status in ("failed", "partial"), f"{phone.name}: {status}")
            with Capture(path) as capture:
                reason = capture.failure()["message"]
        cold_s, warm_s, sent = alone[phone]
        what = "hangs" if phone is hanging else "leaves" if phone is leaving else "arm64" if phone.is_arm64 else "x86"
        rows.append((phone.name, what, devices[phone], f"{warm_s:.1f}", f"{max(0, cold_s - warm_s):.1f}", f"{sent / 2**20:.0f}",
                     status, reason))
    table(("phone", "", "device", "alone_s", "transfer_s", "sent_mib", "status", ""), rows)
    slowest = max(max(warm for _, warm, _ in alone.values()), study.options.stall_limit)
    in_turn = sum(warm for p, (_, warm, _) in alone.items() if p is not hanging) + study.options.stall_limit
    transfers = sum(max(0, cold - warm) for cold, warm, _ in alone.values())
    print(f"all at once: {total_s:.1f} s; slowest phone (the limit of the one that hangs counts): {slowest:.1f} s; transfers: "
          f"{transfers:.1f} s; one after the other without transfers: {in_turn:.1f} s")
    print(f"total / (1.3 x slowest + transfers) = {total_s / (1.3 * slowest + transfers):.2f}")


def table(head, rows):
    widths = [max(len(str(r[i])) for r in [head, *rows]) for i in range(len(head))]
    for row in [head, *rows]:
        print("  ".join(str(v).ljust(w) for v, w in zip(row, widths)).rstrip())


# ---- lost links ----

def kills(study):
    shelf, options = study.shelf, study.options
    dice = random.Random(options.seed)
    study.reference("htp-sim:gen3")
    phone = shelf.phone("gen3")
    uri = phone.uri("htp-sim:gen3")
    before = phone.link.total_bytes()
    study.timed([uri], study.folder / "cold.h5")
    cold_bytes = phone.link.total_bytes() - before
    _, warm_s = study.timed([uri], study.folder / "warm.h5")
    n_equal = n_struck = n_resumed = n_acknowledged = n_left = 0
    started = time.monotonic()
    for trial in range(options.kills):
        at, n = (("byte", cold_bytes), ("time", warm_s), ("sample", options.samples))[trial % 3]
        if at == "byte":
            shutil.rmtree(phone.root, ignore_errors=True)
        output = study.folder / f"kill{trial}.h5"
        is_long, was_over = trial % 3 == 2 and trial % 2 == 0, False
        if is_long:
            kept, was_over = lose_for_long(study, phone, uri, output, dice)
            n_resumed += not was_over
            n_acknowledged += kept
            n_struck += 1
        else:
            with Disturbance(phone, dice, at, n) as disturbance:
                done, _ = study.timed([uri], output)
            study.expect(done.returncode == 0, f"trial {trial}, {disturbance.said}: exit code {done.returncode}: {done.stderr}")
            n_struck += disturbance.has_struck
        same = output.exists() and study.is_same(output, "htp-sim:gen3")
        n_equal += study.expect(same, f"trial {trial}: not equal")
        left = [f for f in phone.files() if f.startswith("runs/")]
        if was_over and left: # all was collected before the link went, but for the tidying up
            n_left += 1
            shutil.rmtree(phone.root / "runs")
        else:
            study.expect(not left and not phone.agents(), f"trial {trial}: left behind: {left} {phone.agents()}")
        output.unlink(missing_ok=True)
        phone.connect()
        print(f"\r{trial + 1} of {options.kills}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print(f"link lost {options.kills} times (seed {options.seed}) in {time.monotonic() - started:.0f} s, {n_struck} of them "
          f"during a capture: {n_equal} equal bit for bit; {n_resumed} of them stayed lost, with {n_acknowledged} samples "
          f"acknowledged, and were resumed; {n_left} were complete, with a run left on the phone that could not be reached")


def lose_for_long(study, phone, uri, output, dice):
    """The link stays down for longer than npudiff waits; then resumed. How many samples were acknowledged here, and whether
    that was all, so that nothing was left to resume."""
    temporary = pathlib.Path(tempfile.mkdtemp(dir=study.folder))
    process = study.shelf.start(*study.command([uri], output, "--link-limit", "1"), TMPDIR=str(temporary))
    point = dice.randrange(1, study.options.samples)
    wait_until(lambda: acknowledged(temporary) >= point or process.poll() is not None, 300, "sample")
    phone.link.down()
    if dice.random() < 0.5: # it restarts meanwhile
        phone.die()
    n = acknowledged(temporary)
    _, err = process.communicate(timeout=600)
    is_restarted = phone.adbd is None
    phone.link.up()
    if is_restarted:
        phone.start()
    if process.returncode != 0: # the end may have come first
        study.expect(process.returncode == 5, f"exit code {process.returncode}: {err}")
        with Capture(output) as capture:
            kept = capture.n_samples("uniform")
        study.expect(kept >= n, f"{n} samples were acknowledged, {kept} are stored")
        done, _ = study.timed([uri], output, "--resume")
        study.expect(done.returncode == 0, f"resume: exit code {done.returncode}: {done.stderr}")
    shutil.rmtree(temporary)
    return n, process.returncode == 0


def main(arguments):
    options = parse(arguments)
    reason = missing("adb", "adbd")
    if reason is not None:
        print(f"fleet: {reason}", file=sys.stderr)
        return 2
    print(subprocess.run([NPUDIFF, "--version"], capture_output=True, text=True).stdout.strip())
    with tempfile.TemporaryDirectory(prefix="npudiff-fleet-") as folder, Shelf() as shelf:
        study = Study(options, shelf, pathlib.Path(folder))
        for name, run in (("fleet", fleet), ("kills", kills)):
            if options.command in (name, "all"):
                run(study)
    print("all as it must be" if not study.wrong else f"{len(study.wrong)} wrong")
    return 1 if study.wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
