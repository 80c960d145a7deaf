#!/usr/bin/env python3
"""What goes wrong with phones, and what is said then: a failed cell with its reason, exit code 5, and the others go on; or a
usage error, exit code 2, and nothing written."""
import os
import pathlib
import random
import shutil

from phone_captures import by_address, device_facts, differences
from phones import Shelf, can_be_small, skip_without
from support import Capture, MODELS, Scratch, capture, info, main, npudiff

MODEL = "cnn.w8a8.onnx"

# A stand-in for adb that answers as adb does for phones that cannot be had without Android: $1 is the state.
FAKE_ADB = r"""#!/bin/sh
# A stand-in for adb with phones in states that adbd on Linux never has; the texts are adb's own.
serial=
while [ $# -gt 0 ]; do
    case $1 in
    -s) serial=$2; shift ;;
    -[PHL]) shift ;;
    *) break ;;
    esac
    shift
done
state=$(sed -n "s/^$serial //p" "$STATES" | head -n 1)
case $1 in
devices)
    echo 'List of devices attached'
    sed 's/^\([^ ]*\) \(.*\)$/\1               \2 usb:1-1 transport_id:1/' "$STATES"
    echo ;;
version | start-server | connect | reconnect) echo 'Android Debug Bridge version 1.0.41' ;;
*)
    case $state in
    unauthorized) printf '%s\n' "error: device unauthorized." \
        "This adb server's \$ADB_VENDOR_KEYS is not set" \
        "Try 'adb kill-server' if that seems wrong." \
        'Otherwise check for a confirmation dialog on your device.' >&2 ;;
    offline) echo 'error: device offline' >&2 ;;
    'no permissions'*) echo "error: insufficient permissions for device: user in plugdev group; are your udev rules wrong?" >&2
        echo 'See [http://developer.android.com/tools/device.html] for more information' >&2 ;;
    '') echo "error: device '$serial' not found" >&2 ;;
    esac
    exit 1 ;;
esac
"""


class Bad(Scratch):
    """Each test has phones of its own, of which none is left on the shelf afterwards."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.shelf = Shelf()
        cls.addClassCleanup(cls.shelf.close)

    def setUp(self):
        super().setUp()
        self.out = self.folder / "out"

    def phone(self, *arguments, **options):
        phone = self.shelf.phone(*arguments, **options)
        self.addCleanup(self.put_away, phone)
        return phone

    def put_away(self, phone):
        phone.die()
        phone.link.close()
        self.shelf.adb("disconnect", phone.serial, expect=None)

    def run_capture(self, *devices, probe="ramp", output=None, model=MODELS / MODEL, arguments=(), **environment):
        done = self.shelf.run("capture", model, *(f for d in devices for f in ("-d", d)), "-p", probe, "-o",
                              output or self.out, *arguments, **environment)
        return done.returncode, done.stdout + done.stderr

    def refused(self, *devices, words, **options):
        """A usage error that says these words; nothing is written."""
        code, said = self.run_capture(*devices, **options)
        self.assertEqual(code, 2, said)
        self.says(said, words)
        self.assertFalse(self.out.exists() and any(self.out.iterdir()), "something was written")

    def says(self, said, words):
        for word in words:
            self.assertIn(word.lower(), said.lower())

    def failed(self, *devices, words, stage=None, **options):
        """Every cell failed, with a reason of these words, in the capture and on the terminal; the captures."""
        code, said = self.run_capture(*devices, **options)
        self.assertEqual(code, 5, said)
        self.says(said, words)
        paths = sorted(self.out.glob("*.h5"))
        self.assertEqual(len(paths), len(devices), said)
        for path in paths:
            with Capture(path) as opened:
                self.assertEqual(opened.status, "failed")
                self.says(opened.failure()["message"], words)
                if stage is not None:
                    self.assertEqual(opened.failure()["stage"], stage)
            npudiff("verify", path)
        return paths

    # ---- usage ----

    def test_no_adb(self):
        self.refused("adb:0123456789", words=["adb", "nowhere/adb"], NPUDIFF_ADB="/nowhere/adb")
        self.refused("adb:*", words=["adb", "NPUDIFF_ADB"], PATH="/nowhere")

    def test_several_phones_and_no_serial(self):
        phones = [self.phone("gen3"), self.phone("gen4")]
        self.refused("adb:", words=[p.serial for p in phones])

    def test_no_phone_at_all(self):
        self.refused("adb:", words=["no "])
        self.refused("adb:*", words=["no "])

    def test_references_stay_on_this_machine(self):
        phone = self.phone("gen3")
        for device in ("exact", "float64"):
            self.refused(phone.uri(device), words=["evaluated on this machine"])
        self.refused(phone.uri("emu:round=half-even"), words=["a phone or board runs", "not 'emu:"])

    # ---- phones that cannot be reached ----

    def fake_adb(self, **states):
        path = self.folder / "adb"
        path.write_text(FAKE_ADB)
        path.chmod(0o755)
        (self.folder / "states").write_text("".join(f"{k} {v}\n" for k, v in states.items()))
        return {"NPUDIFF_ADB": str(path), "STATES": str(self.folder / "states")}

    def test_states_that_only_android_has(self):
        """Unauthorised, no permissions, offline: by a stand-in for adb."""
        for state, words in (("unauthorized", ["unauthori", "allow usb debugging"]), ("offline", ["offline"]),
                             ("no permissions (user in plugdev group; are your udev rules wrong?)", ["permissions", "udev"])):
            with self.subTest(state):
                shutil.rmtree(self.out, ignore_errors=True)
                self.failed("adb:R5CT", words=["R5CT", *words], stage="connect", arguments=["--link-limit", "1"],
                            **self.fake_adb(R5CT=state))

    def test_all_phones_tells_of_those_that_cannot_be_used(self):
        environment = self.fake_adb(R5CT1="unauthorized", R5CT2="offline")
        code, said = self.run_capture("adb:*/agent/cpu", arguments=["--link-limit", "1"], **environment)
        self.assertEqual(code, 5, said)
        self.says(said, ["R5CT1", "unauthori", "R5CT2", "offline"])
        self.assertEqual(len(list(self.out.glob("*.h5"))), 2)

    def test_a_serial_that_is_not_there(self):
        phone = self.phone("gen3")
        self.failed("adb:0123456789/agent/cpu", words=["0123456789", phone.serial], stage="connect",
                    arguments=["--link-limit", "1"])

    def test_a_phone_that_is_off_and_one_that_is_on(self):
        on, off = self.phone("gen3"), self.phone("gen4")
        off.link.down()
        off.die()
        code, said = self.run_capture(on.uri("cpu"), off.uri("cpu"), arguments=["--link-limit", "2"])
        self.assertEqual(code, 5, said)
        found = by_address(self.out)
        self.assertEqual(info(found[on.serial])["status"], "complete")
        with Capture(found[off.serial]) as opened:
            self.assertEqual((opened.status, opened.failure()["stage"]), ("failed", "connect"))

    # ---- phones that cannot run it ----

    def test_no_space(self):
        if not can_be_small():
            self.skipTest("a disk of its own needs the right to mount")
        phone = self.phone("gen3", space_mb=24)
        self.failed(phone.uri(), words=["no space", "needs", "MiB", "has"], stage="push")

    def test_space_that_runs_out_while_it_runs(self):
        """The disk is full in the middle: the samples that were acknowledged are kept."""
        if not can_be_small():
            self.skipTest("a disk of its own needs the right to mount")
        phone = self.phone("gen3", space_mb=200)
        self.run_capture(phone.uri("cpu"), output=self.folder / "first.h5")
        free_kb = int(phone.shell("df -k . | tail -n 1 | awk '{print $4}'"))
        phone.shell(f"head -c {(free_kb - 2000) * 1024} /dev/zero >filler")
        code, said = self.run_capture(phone.uri("cpu"), probe="uniform:20000", arguments=["--deflate", "0"])
        self.assertEqual(code, 5, said)
        self.says(said, ["space"])
        for path in self.out.glob("*.h5"):
            npudiff("verify", path)

    def test_a_root_folder_that_cannot_be_written(self):
        phone = self.phone("gen3")
        phone.root.write_text("a file where the folder should be\n")
        self.failed(phone.uri("cpu"), words=[str(phone.root)])

    def test_an_abi_that_there_is_no_agent_for(self):
        phone = self.phone("gen3", properties={"ro.product.cpu.abi": "armeabi-v7a"})
        self.failed(phone.uri("cpu"), words=["armeabi-v7a"])

    def test_a_file_that_is_no_program_there(self):
        """The agent is of another machine."""
        phone = self.phone("gen3")
        agents = self.folder / "agents"
        (agents / "x86_64-linux").mkdir(parents=True)
        (agents / "x86_64-linux" / "npudiff-agent").write_bytes(b"\x7fELF\2\1\1\0" + bytes(8) + b"\3\0\xb7\0" + bytes(200))
        (agents / "x86_64-linux" / "npudiff-agent").chmod(0o755)
        self.failed(phone.uri("cpu"), words=["npudiff-agent"], NPUDIFF_AGENT=str(agents / "x86_64-linux" / "npudiff-agent"))

    def test_a_library_that_is_missing_there(self):
        """One that the provider needs, and that neither the runtime nor the phone has: it is named."""
        cache = self.shelf.environment()["XDG_CACHE_HOME"]
        runtimes = os.environ.get("NPUDIFF_RUNTIMES") or pathlib.Path(cache, "npudiff/runtimes")
        name = "qairt-2.51.0"
        shutil.copytree(pathlib.Path(runtimes, name), self.folder / "runtimes" / name, copy_function=os.symlink)
        lacking, = (self.folder / "runtimes" / name).glob("onnxruntime_qnn.libs/libunwind-*")
        lacking.unlink()
        phone = self.phone("gen3")
        self.failed(phone.uri(f"htp-sim:gen3@{name}"), words=[lacking.name], NPUDIFF_RUNTIMES=str(self.folder / "runtimes"))

    def test_the_agent_dies_at_once(self):
        phone = self.phone("gen3")
        phone.die()
        phone.environment["NPUDIFF_LAUNCHER"] = phone.script("dies", "#!/bin/sh\necho no such luck >&2\nexit 42\n")
        phone.start()
        self.failed(phone.uri("cpu"), words=["no such luck"])

    # ---- phones that talk too much ----

    def test_endless_output(self):
        """Of a command (getprop) and of the agent: cut, and it neither fills the disk nor hangs."""
        phone = self.phone("gen3")
        phone.script("dumpsys", "#!/bin/sh\nexec yes 'level: 80'\n")
        phone.script("logcat", "#!/bin/sh\nexec cat /dev/zero\n")
        code, said = self.run_capture(phone.uri("cpu"))
        self.assertEqual(code, 0, said)
        self.assertEqual(phone.processes(), [])
        for path in self.out.glob("*.h5"):
            self.assertLess(path.stat().st_size, 50_000_000)

    def test_an_agent_that_prints_without_end(self):
        phone = self.phone("gen3")
        phone.die()
        noisy = phone.script("noisy", '#!/bin/sh\nyes noise &\n"$@"\ncode=$?\nkill $!\nexit $code\n')
        phone.environment["NPUDIFF_LAUNCHER"] = noisy
        phone.start()
        code, said = self.run_capture(phone.uri("cpu"), probe="uniform:200")
        self.assertEqual(code, 0, said)
        for path in self.out.glob("*.h5"):
            self.assertLess(path.stat().st_size, 100_000_000)
        self.assertEqual(phone.processes(), [])

    # ---- names ----

    def test_spaces_quotes_and_other_alphabets_in_paths(self):
        phone = self.phone("gen3", name="the phone's «Gerät» 手机", root="a 'root' \"of\" $HOME ünï 目录")
        model = self.folder / "ein Modell's «größe» 模型.onnx"
        shutil.copy(MODELS / MODEL, model)
        probe = self.folder / "eine Probe 'x'.npz"
        shutil.copy(MODELS / "digits-test.npz", probe)
        local = self.folder / "local.h5"
        capture(model, ["cpu"], ["ramp"], local)
        output = self.folder / "the output's ÿ.h5"
        code, said = self.run_capture(phone.uri("cpu"), model=model, output=output)
        self.assertEqual(code, 0, said)
        self.assertEqual(differences(output, local), [])

    # ---- facts ----

    def test_a_clock_that_is_wrong(self):
        """The phone lives in another year and zone."""
        phone = self.phone("gen3", environment={"TZ": "Asia/Kathmandu"})
        phone.script("date", '#!/bin/sh\n# A stand-in for a clock that is wrong.\n'
                             'exec /usr/bin/date -d "@$(($(/usr/bin/date +%s) - 900000000))" "$@"\n')
        local = self.folder / "local.h5"
        capture(MODEL, ["cpu"], ["ramp"], local)
        code, said = self.run_capture(phone.uri("cpu"), output=self.folder / "x.h5")
        self.assertEqual(code, 0, said)
        self.assertEqual(differences(self.folder / "x.h5", local), [])

    def test_a_machine_that_says_nothing_of_itself(self):
        """No getprop, no dumpsys, no logcat: a plain board; unknown stays unknown."""
        phone = self.phone("gen3", properties=None)
        code, said = self.run_capture(phone.uri("cpu"), output=self.folder / "x.h5")
        self.assertEqual(code, 0, said)
        facts = device_facts(self.folder / "x.h5")
        self.assertFalse([k for k in facts if "battery" in k and facts[k]])
        self.assertNotIn("chipset", facts)

    def test_binary_rubbish_in_properties(self):
        phone = self.phone("gen3", properties={"ro.product.model": "x" * 100_000 + "\x1b[31m\x07"})
        with open(phone.folder / "properties", "ab") as properties:
            properties.write(random.Random(1).randbytes(5_000_000).replace(b"\n", b"\0"))
        code, said = self.run_capture(phone.uri("cpu"), output=self.folder / "x.h5")
        self.assertEqual(code, 0, said)
        self.assertNotIn("\x1b", said)
        npudiff("verify", self.folder / "x.h5")
        for value in device_facts(self.folder / "x.h5").values():
            if isinstance(value, str):
                self.assertNotIn("\x1b", value)
                self.assertLess(len(value), 10_000)


if __name__ == "__main__":
    skip_without("adb", "adbd")
    main()
