#!/usr/bin/env python3
"""'npudiff runtimes': adding wheels, AARs, packages and SDKs, checking and removing them. The libraries of this machine
are those that tools/setup installed; those of phones are stand-ins made byte by byte (support/elf_file.py)."""
import base64
import hashlib
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import stat
import struct
import subprocess
import sys
import time
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from elf_file import AARCH64, ARM, HEXAGON, X86_64, library # noqa: E402
from support import MODELS, NPUDIFF, Capture, Scratch, capture, main, npudiff # noqa: E402

BUILD = "v2.99.3.260101123456"
ARCHS = ("68", "75", "81")
MODEL = MODELS / "cnn.w8a8.onnx"


def installed(runtime="qairt-2.51.0"):
    """The folder of a runtime that tools/setup installed."""
    rows = json.loads(npudiff("runtimes", "--json"))["runtimes"]
    row = next(r for r in rows if r["runtime"] == runtime and r["abi"] == "x86_64-linux")
    if not row["installed"]:
        raise AssertionError(f"{runtime}: {row['state']}")
    return pathlib.Path(row["folder"])


def put(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def record(members):
    """RECORD of a wheel with such members, without a line about itself."""
    lines = []
    for name, content in members.items():
        data = content.read_bytes() if isinstance(content, pathlib.Path) else content
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        quoted = '"' + name.replace('"', '""') + '"' if set(name) & set(',"') else name
        lines.append(f"{quoted},sha256={digest},{len(data)}\n")
    return "".join(lines).encode()


def zipped(path, members, compression=zipfile.ZIP_STORED):
    """A zip file of {name: bytes or path}; one with METADATA is a wheel and gets a RECORD."""
    info = [n.removesuffix("METADATA") for n in members if n.endswith(".dist-info/METADATA")]
    if info and info[0] + "RECORD" not in members:
        members = members | {info[0] + "RECORD": record(members) + f"{info[0]}RECORD,,\r\n".encode()}
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            if isinstance(content, pathlib.Path):
                archive.write(content, name)
            else:
                archive.writestr(name, content)
    return path


def ort(machine=AARCH64, **options):
    options = {"needed": ("libstdc++.so.6", "libc.so.6"), "soname": "libonnxruntime.so.1", "version": "1.77.0", **options}
    return library(machine, **options)


def metadata(name, version):
    return f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nSummary: none\n".encode()


def ort_wheel(path, machine=AARCH64, **options):
    return zipped(path, {"onnxruntime/capi/libonnxruntime.so.1.77.0": ort(machine, **options),
                         "onnxruntime/capi/libonnxruntime_providers_shared.so": library(machine),
                         "onnxruntime/capi/onnxruntime_pybind11_state.so": library(machine),
                         "onnxruntime-1.77.0.dist-info/METADATA": metadata("onnxruntime", "1.77.0")},
                  zipfile.ZIP_DEFLATED)


def qnn_libraries(machine, **options):
    """{name: bytes} of what lies beside the backend."""
    found = {"libQnnHtp.so": library(machine, payload=b"x" * 5000 + BUILD.encode() + b"_tail", **options),
             "libQnnSystem.so": library(machine, **options),
             "libQnnHtpPrepare.so": library(machine, **options),
             "libQnnGpu.so": library(machine, **options),
             "libGenie.so": library(machine, **options)}
    needed = options.pop("needed", ("libc.so.6",)) + ("libcdsprpc.so",)
    found |= {f"libQnnHtpV{a}Stub.so": library(machine, needed=needed, **options) for a in ARCHS}
    return found


def skeleton(arch):
    return library(HEXAGON, needed=("libc++.so.1",), bits=32, payload=arch.encode())


def qnn_wheel(path, machine=AARCH64):
    members = {f"onnxruntime_qnn/{n}": d for n, d in qnn_libraries(machine, needed=("libhelp-1.so", "libc.so.6")).items()}
    members |= {f"onnxruntime_qnn/libQnnHtpV{a}Skel.so": skeleton(a) for a in ARCHS}
    members |= {"onnxruntime_qnn/libonnxruntime_providers_qnn.so": library(machine),
                "onnxruntime_qnn.libs/libhelp-1.so": library(machine),
                "onnxruntime_qnn-7.7.0.dist-info/METADATA": metadata("onnxruntime-qnn", "7.7.0")}
    return zipped(path, members)


def sdk(root, abis=("aarch64-android", "aarch64-oe-linux-gcc11.2")):
    """A QAIRT SDK's layout."""
    for folder in abis:
        options = {"android": True, "needed": ("libc.so", "liblog.so")} if "android" in folder else {}
        for name, data in qnn_libraries(AARCH64, **options).items():
            put(root / "lib" / folder / name, data)
        put(root / "bin" / folder / "qnn-net-run", library(AARCH64, **options))
    for arch in ARCHS:
        put(root / "lib" / f"hexagon-v{arch}" / "unsigned" / f"libQnnHtpV{arch}Skel.so", skeleton(arch))
    return root


class Runtimes(Scratch):
    """Every test has a runtimes folder of its own."""

    def setUp(self):
        super().setUp()
        self.root = self.folder / "runtimes"
        self.environment = dict(os.environ, NPUDIFF_RUNTIMES=str(self.root))

    def run_it(self, *arguments, expect=0):
        return npudiff("runtimes", *arguments, expect=expect, env=self.environment)

    def add(self, *arguments, notes=None):
        """The rows of what was added."""
        done = self.run_it("add", *arguments, "--json", expect=None)
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        if notes is not None:
            notes += report["notes"]
        return {row["abi"]: row for row in report["added"]}

    def refused(self, *arguments, expect=2):
        """The message; and nothing is left of the attempt."""
        before = self.listed()
        done = self.run_it("add", *arguments, expect=None)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertEqual(self.listed(), before)
        self.assertEqual([p.name for p in self.root.glob(".add.*")] if self.root.is_dir() else [], [])
        self.assertEqual(list(self.folder.glob("evil*")), [])
        return done.stderr

    def listed(self):
        rows = json.loads(self.run_it("list", "--json"))["runtimes"]
        return {(r["runtime"], r["abi"]): r for r in rows if r["installed"]}

    def check(self, *arguments, expect=0):
        rows = json.loads(self.run_it("check", *arguments, "--json", expect=expect) if expect is not None else "")
        return {(r["runtime"], r["abi"]): r for r in rows["runtimes"]}


class Phones(Runtimes):
    def test_two_wheels_of_another_machine_make_one_runtime(self):
        rows = self.add(ort_wheel(self.folder / "ort.whl"), qnn_wheel(self.folder / "qnn.whl"))
        self.assertEqual(list(rows), ["aarch64-linux"])
        row = rows["aarch64-linux"]
        self.assertEqual((row["runtime"], row["onnxruntime"], row["onnxruntime_qnn"], row["build_id"]),
                         ("qairt-2.99.3", "1.77.0", "7.7.0", BUILD))
        self.assertEqual((row["uses"], row["archs"]), (["cpu", "htp"], ["v68", "v75", "v81"]))
        folder = pathlib.Path(row["folder"])
        self.assertEqual(folder, self.root / "qairt-2.99.3.aarch64-linux")
        manifest = json.loads((folder / "runtime.json").read_text())
        self.assertEqual({p.relative_to(folder).as_posix() for p in folder.rglob("*.so*")}, set(manifest["files"]))
        names = {pathlib.Path(p).name for p in manifest["files"]}
        self.assertTrue({"libhelp-1.so", "libQnnHtpV75Skel.so", "libQnnHtpV75Stub.so", "libQnnHtpPrepare.so",
                         "libonnxruntime_providers_shared.so"} <= names)
        self.assertFalse({"libGenie.so", "libQnnGpu.so", "onnxruntime_pybind11_state.so"} & names)
        found = self.check()[("qairt-2.99.3", "aarch64-linux")]
        self.assertEqual((found["state"], found["problems"], found["loads"]), ("ok", [], None))
        self.assertEqual(sorted(found["needs"]), ["libc.so.6", "libcdsprpc.so", "libstdc++.so.6"])
        chipsets = {c["chipset"]: c["state"] for c in found["chipsets"]}
        self.assertEqual((chipsets["SM8650"], chipsets["SM8350"], chipsets["SM8750"]), ("has code", "has code", "no code"))
        machines = {f["path"]: (f["machine"], f["state"], f["gnu_build_id"]) for f in found["files"]}
        self.assertEqual(machines["onnxruntime_qnn/libQnnHtpV75Skel.so"], ("Hexagon", "ok", bytes(range(20)).hex()))
        self.assertEqual(machines["onnxruntime_qnn/libQnnHtp.so"][0], "AArch64")

    def test_an_id_has_several_abis_that_are_removed_apart(self):
        self.add(ort_wheel(self.folder / "a.whl"), "--id", "mine")
        self.add(ort_wheel(self.folder / "b.whl", android=True, needed=("libc.so",)), "--id", "mine")
        self.assertEqual(set(self.listed()), {("mine", "aarch64-linux"), ("mine", "aarch64-android")})
        done = npudiff("capture", MODEL, "-d", "cpu@mine", "-p", "zeros", "-o", "x", env=self.environment, expect=None)
        self.assertEqual(done.returncode, 2)
        self.assertIn("runtime 'mine' is not installed for x86_64-linux, only for aarch64-linux, aarch64-android; add its "
                      "libraries with 'npudiff runtimes add", done.stderr)
        self.run_it("remove", "mine", "--abi", "aarch64-linux")
        self.assertEqual(set(self.listed()), {("mine", "aarch64-android")})
        self.run_it("remove", "mine")
        self.assertEqual(self.listed(), {})
        self.assertEqual([p.name for p in self.root.iterdir()], [".lock"])
        self.assertIn("there is no runtime 'mine'", self.run_it("remove", "mine", expect=None).stderr)

    def test_an_sdk_gives_every_abi_that_it_has(self):
        root = sdk(self.folder / "SDK für Jürgen 2.99", ("aarch64-android", "aarch64-oe-linux-gcc11.2",
                                                        "aarch64-oe-linux-gcc9.3"))
        notes = []
        rows = self.add(root, notes=notes)
        self.assertEqual(set(rows), {"aarch64-linux", "aarch64-android"})
        for abi, row in rows.items():
            self.assertEqual((row["runtime"], row["uses"], row["onnxruntime"]), ("qnn-2.99.3", ["qnn-net-run"], "none"))
            self.assertEqual(row["archs"], ["v68", "v75", "v81"])
            self.assertTrue(any(n.startswith(f"{abi}: without ONNX Runtime it is for qnn-net-run alone") for n in notes))
            programs = list(pathlib.Path(row["folder"]).rglob("qnn-net-run"))
            self.assertEqual(len(programs), 1)
            self.assertTrue(programs[0].stat().st_mode & stat.S_IXUSR)
        # Of two builds for one ABI one is taken, whole, and the other named.
        linux = [p for p in json.loads((pathlib.Path(rows["aarch64-linux"]["folder"]) / "runtime.json").read_text())["files"]]
        self.assertFalse([p for p in linux if "gcc11.2" in p and any("gcc9.3" in q for q in linux)])
        self.assertEqual(sum("was passed over" in n for n in notes), 1)
        self.assertEqual({c["state"] for c in self.check()[("qnn-2.99.3", "aarch64-android")]["chipsets"]},
                         {"has code", "no code"})

    def test_an_sdk_borrows_onnx_runtime(self):
        self.add(ort_wheel(self.folder / "a.whl"), qnn_wheel(self.folder / "q.whl"), "--id", "giver")
        notes = []
        rows = self.add(sdk(self.folder / "sdk"), "--with", "giver", "--id", "both", notes=notes)
        self.assertEqual(rows["aarch64-linux"]["uses"], ["cpu", "htp", "qnn-net-run"])
        self.assertEqual(rows["aarch64-linux"]["onnxruntime"], "1.77.0")
        self.assertEqual(rows["aarch64-linux"]["onnxruntime_qnn"], "7.7.0")
        self.assertEqual(rows["aarch64-android"]["uses"], ["qnn-net-run"])
        self.assertTrue(any("runtime 'giver' is not installed for aarch64-android" in n for n in notes), notes)
        self.assertEqual(self.check("both")[("both", "aarch64-linux")]["state"], "ok")

    def test_an_aar_and_a_package_are_read(self):
        android = dict(android=True, needed=("libc.so", "liblog.so"))
        aar = zipped(self.folder / "ort.aar", {"jni/arm64-v8a/libonnxruntime.so": ort(**android),
                                               "jni/armeabi-v7a/libonnxruntime.so": ort(ARM, bits=32, **android),
                                               "jni/x86_64/libonnxruntime.so": ort(X86_64, **android),
                                               "AndroidManifest.xml": b"<manifest/>"})
        rows = self.add(aar)
        self.assertEqual({a: (r["runtime"], r["uses"]) for a, r in rows.items()}, {"aarch64-android": ("ort-1.77.0", ["cpu"])})
        package = self.folder / "package"
        put(package / "bin/napi-v6/linux/arm64/libonnxruntime.so.1", ort())
        put(package / "bin/napi-v6/darwin/arm64/libonnxruntime.1.77.dylib", b"\xcf\xfa\xed\xfe")
        rows = self.add(package)
        self.assertEqual({a: r["runtime"] for a, r in rows.items()}, {"aarch64-linux": "ort-1.77.0"})

    def test_what_is_there_is_not_replaced_unasked(self):
        wheel = ort_wheel(self.folder / "a.whl")
        folder = pathlib.Path(self.add(wheel)["aarch64-linux"]["folder"])
        self.assertIn("is there for aarch64-linux; --force overwrites it", self.refused(wheel))
        marker = put(folder / "marker", b"")
        self.add(wheel, "--force")
        self.assertFalse(marker.exists())
        # Not one that somebody else put there, in whatever state it is.
        manifest = json.loads((folder / "runtime.json").read_text())
        del manifest["made_by"]
        (folder / "runtime.json").write_text(json.dumps(manifest))
        self.assertIn("'npudiff runtimes add' did not make it", self.refused(wheel, "--force"))
        self.assertIn("was not made by", self.run_it("remove", "ort-1.77.0", expect=None).stderr)
        put(self.root / "other.aarch64-linux" / "something", b"")
        self.assertIn("is there and is no runtime", self.refused(wheel, "--id", "other", "--force"))

    def test_ids_that_cannot_be(self):
        wheel = ort_wheel(self.folder / "a.whl")
        for name in ("", ".hidden", "a/b", "a@b", "a?b", "../up", "é", "-x", "x" * 65, "a.aarch64-linux"):
            self.assertIn("cannot be a runtime's id", self.refused(wheel, f"--id={name}"), name)

    def test_damage_is_found_by_check(self):
        self.add(ort_wheel(self.folder / "ort.whl"), qnn_wheel(self.folder / "qnn.whl"))
        folder = self.root / "qairt-2.99.3.aarch64-linux"
        key = ("qairt-2.99.3", "aarch64-linux")
        backend = folder / "onnxruntime_qnn/libQnnHtp.so"
        whole = backend.read_bytes()
        backend.write_bytes(whole.replace(b"x" * 5000, b"x" * 4999 + b"y"))
        found = self.check(expect=5)[key]
        self.assertEqual(found["problems"], ["'onnxruntime_qnn/libQnnHtp.so' is not what was added: its digest differs"])
        backend.write_bytes(whole.replace(BUILD.encode(), BUILD.encode()[:-1] + b"9"))
        self.assertTrue(any("its backend is build v2.99.3.260101123459, not" in p for p in self.check(expect=5)[key]["problems"]))
        backend.write_bytes(whole[:300])
        self.assertTrue(any("is damaged: " in p for p in self.check(expect=5)[key]["problems"]))
        backend.write_bytes(library(X86_64))
        self.assertTrue(any("is for x86-64, not for aarch64-linux" in p for p in self.check(expect=5)[key]["problems"]))
        backend.write_bytes(whole)
        self.check()
        skel = folder / "onnxruntime_qnn/libQnnHtpV75Skel.so"
        skel.unlink()
        found = self.check(expect=5)[key]
        self.assertEqual(found["problems"], ["'onnxruntime_qnn/libQnnHtpV75Skel.so' is gone"])
        self.assertEqual({c["state"] for c in found["chipsets"] if c["arch"] == "v75"}, {"no code"})
        self.assertEqual(self.listed(), {})
        self.assertIn("there is no runtime 'none'", self.run_it("check", "none", expect=None).stderr)

    def test_a_manifest_that_cannot_be_used_is_a_problem_of_its_runtime(self):
        self.add(ort_wheel(self.folder / "ort.whl"), "--id", "mine")
        manifest = self.root / "mine.aarch64-linux/runtime.json"
        whole = manifest.read_text()
        members = json.loads(whole)
        library, = [p for p in members["sha256"] if "shared" not in p]
        damaged = "its manifest runtime.json is damaged: "
        for text, problem in (
                (whole[:100], damaged + "line 6, "), ("", damaged + "line 1, "), ("[]", damaged + "it is no JSON object"),
                (whole.replace('"abi"', '"abi\\u00"'), damaged + "line "),
                (json.dumps({**members, "sha256": "none"}), damaged + "'sha256' has a wrong type"),
                (json.dumps({**members, "files": [7]}), damaged + "'files' has a wrong type"),
                (json.dumps({**members, "onnxruntime": 1}), damaged + "'onnxruntime' has a wrong type"),
                (json.dumps({**members, "sha256": {}}), f"runtime.json has no digest of '{library}'"),
                (json.dumps({k: v for k, v in members.items() if k != "sha256"}), f"runtime.json has no digest of '{library}'")):
            manifest.write_text(text)
            found = self.check(expect=5)
            self.assertEqual(list(found), [("mine", "aarch64-linux")], text)
            self.assertTrue(any(p.startswith(problem) for p in found["mine", "aarch64-linux"]["problems"]), (problem, found))
            self.assertIn("problem: " + problem, self.run_it("check", "mine", expect=5))
        manifest.unlink()
        manifest.mkdir()
        problem, = self.check("mine", expect=5)["mine", "aarch64-linux"]["problems"]
        self.assertRegex(problem, "^its manifest cannot be read: cannot read '.*/mine.aarch64-linux/runtime.json': ")
        manifest.rmdir()
        manifest.write_text(whole)
        self.check("mine")


class BadSources(Runtimes):
    def test_archives_that_are_damaged_or_unsafe(self):
        good = ort()
        cases = {}
        whole = ort_wheel(self.folder / "whole.whl").read_bytes()
        cases["cut"] = (whole[:len(whole) // 2], ("is neither a folder nor a wheel", "truncated")) # by libzip's age
        cases["text"] = (b"no archive at all", "is neither a folder nor a wheel")
        cases["empty"] = (b"", "is neither a folder nor a wheel")
        # One bit of the compressed data: the archive's own checksum tells.
        flipped = bytearray(whole)
        flipped[200] ^= 0x10
        cases["flipped"] = (bytes(flipped), "cannot read")
        for name in ("../evil.so", "/evil.so", "a/../../evil.so", "a\\..\\evil.so", "C:\\evil", "a/./b.so"):
            data = zipped(self.folder / "x.zip", {"onnxruntime/capi/libonnxruntime.so.1": good, name: b"evil"}).read_bytes()
            cases[f"name {name!r}"] = (data, "would lie outside of the folder")
        link = zipfile.ZipInfo("onnxruntime/capi/libonnxruntime.so")
        link.create_system, link.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
        path = self.folder / "link.zip"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(link, "/etc/passwd")
        cases["link"] = (path.read_bytes(), "is a symbolic link")
        twice = self.folder / "twice.zip"
        zipped(twice, {"onnxruntime/capi/libonnxruntime.so.1": good, "onnxruntime/capi/libonnxruntime.so.2": good})
        cases["twice"] = (twice.read_bytes().replace(b"libonnxruntime.so.2", b"libonnxruntime.so.1"), "is there twice")
        # The list of members says a size that no compression reaches.
        bomb = bytearray(zipped(self.folder / "bomb.zip", {"onnxruntime/capi/libonnxruntime.so": good}, zipfile.ZIP_DEFLATED)
                         .read_bytes())
        struct.pack_into("<I", bomb, bomb.rindex(b"PK\x01\x02") + 24, 0xfffffff0)
        struct.pack_into("<I", bomb, 22, 0xfffffff0)
        cases["bomb"] = (bytes(bomb), "claims a size that it cannot have")
        for name, (data, message) in cases.items():
            path = put(self.folder / "bad.whl", data)
            with self.subTest(name):
                said = self.refused(path)
                messages = (message,) if isinstance(message, str) else message
                self.assertTrue(any(m in said for m in messages), (messages, said))
                self.assertIn(str(path), said)

    def test_wheels_are_what_their_record_says(self):
        name, info = "onnxruntime/capi/libonnxruntime.so.1.77.0", "onnxruntime-1.77.0.dist-info/"
        members = {name: ort(), info + "METADATA": metadata("onnxruntime", "1.77.0"), 'a, "b".txt': b"text"}
        whole = record(members)
        wrong = record(members | {name: ort() + b"x"})
        for what, text, message in (
                ("another digest", wrong, f"its RECORD says that '{name}' has the SHA-256 "),
                ("metadata", record(members | {info + "METADATA": b""}), f"its RECORD says that '{info}METADATA' has the SHA-256 "),
                ("not named", record({k: v for k, v in members.items() if k != name}), f"its RECORD has no SHA-256 of '{name}'"),
                ("weak", whole.replace(b"sha256=", b"md5="), "its RECORD has no SHA-256 of '"),
                ("no record", None, "it is a wheel without RECORD"),
                ("twice", whole + whole, "its RECORD has two lines about '"),
                ("text", b"nothing\n", "line 1 of its RECORD is not a path, a digest and a size")):
            with self.subTest(what):
                path = self.folder / "x.whl"
                zipped(path, members | {info + "RECORD": text} if text is not None else members)
                if text is None: # zipped() gives every wheel one
                    path.write_bytes(path.read_bytes().replace(b"info/RECORD", b"info/DECORE"))
                said = self.refused(path)
                self.assertIn(f"'{path}' is refused: {message}", said)
        self.add(zipped(self.folder / "x.whl", members | {info + "RECORD": whole.replace(b"\n", b"\r\n")}))

    def test_names_that_a_terminal_obeys(self):
        for name in ("lib\x1b[2J/libonnxruntime.so.1", "lib\u202e/libonnxruntime.so.1", "lib\x7f/libonnxruntime.so.1"):
            root = self.folder / "package"
            put(root / name, ort())
            self.assertIn("characters that a terminal obeys", self.refused(root))
            shutil.rmtree(root)

    def test_libraries_that_are_not_what_their_names_say(self):
        good = ort()
        cases = {"text": (b"INPUT(libonnxruntime.so.1)", "it is no library or program (not an ELF file)"),
                 "empty": (b"", "it is no library or program"),
                 "cut": (good[:len(good) // 2], "is damaged"),
                 "header only": (good[:64], "is damaged"),
                 "arm": (ort(ARM, bits=32), "is for 32-bit Arm"),
                 "big endian": (ort(AARCH64, order=">"), "is for AArch64"),
                 "x86 android": (ort(X86_64, android=True), "is for x86-64 Android"),
                 "hexagon": (ort(HEXAGON, bits=32), "has no ONNX Runtime"),
                 "unknown machine": (ort(999), "is for machine 999")}
        for name, (data, message) in cases.items():
            path = zipped(self.folder / "bad.whl", {"onnxruntime/capi/libonnxruntime.so.1": data})
            with self.subTest(name):
                self.assertIn(message, self.refused(path))

    def test_sources_without_a_runtime(self):
        path = zipped(self.folder / "win.whl", {"onnxruntime/capi/onnxruntime.dll": b"MZ"})
        self.assertIn("its libraries are for Windows", self.refused(path))
        self.assertIn("has the QNN provider for aarch64-linux, but no ONNX Runtime: give its wheel as well",
                      self.refused(qnn_wheel(self.folder / "q.whl")))
        (self.folder / "nothing").mkdir()
        self.assertIn("has no ONNX Runtime, QNN provider or qnn-net-run", self.refused(self.folder / "nothing"))
        self.assertIn("No such file or directory", self.refused(self.folder / "gone.whl"))
        self.assertIn("neither a folder nor a file", self.refused("/dev/null"))
        two = [ort_wheel(self.folder / "a.whl"), ort_wheel(self.folder / "b.whl")]
        self.assertIn("two libraries for aarch64-linux: ", self.refused(*two))
        nameless = zipped(self.folder / "n.whl", {"libonnxruntime.so": ort(version=None)})
        self.assertIn("do not say their version; name the runtime with --id", self.refused(nameless))

    def test_folders_with_links(self):
        """Links to files are files, links to folders are not followed: one leads back to the root of all."""
        root = self.folder / "package"
        real = put(self.folder / "elsewhere" / "real", ort())
        (root / "lib").mkdir(parents=True)
        (root / "lib" / "libonnxruntime.so.1").symlink_to(real)
        (root / "lib" / "libonnxruntime.so").symlink_to("libonnxruntime.so.1")
        (root / "lib" / "dangling.so").symlink_to("nowhere")
        (root / "lib" / "loop").symlink_to("..")
        (root / "lib" / "root").symlink_to("/")
        row = self.add(root)["aarch64-linux"]
        files = [p for p in pathlib.Path(row["folder"]).rglob("*") if p.is_file() and p.name != "runtime.json"]
        self.assertEqual([p.name for p in files], ["libonnxruntime.so.1"])
        self.assertFalse(files[0].is_symlink())
        self.assertEqual(files[0].read_bytes(), real.read_bytes())

    def test_mutated_libraries_never_crash(self):
        seed = int(os.environ.get("ND_SEED", "20261122"))
        print(f"# ND_SEED={seed}")
        rng = random.Random(seed)
        good = ort(android=True)
        n_taken = 0
        for i in range(60):
            data = bytearray(good)
            for _ in range(rng.choice((1, 1, 2, 8))):
                at = rng.randrange(len(data))
                data[at] = rng.choice((0, 1, 0xff, 0x80, rng.randrange(256)))
            put(self.folder / f"m{i}" / "libonnxruntime.so", bytes(data[:rng.choice((len(data), rng.randrange(1, len(data))))]))
            done = self.run_it("add", self.folder / f"m{i}", "--id", f"m{i}", expect=None)
            self.assertIn(done.returncode, (0, 2), done.stderr)
            n_taken += done.returncode == 0
        self.assertEqual(len(self.listed()), n_taken)
        self.assertTrue(0 < n_taken < 60)


class Trouble(Runtimes):
    def test_places_where_nothing_can_be_written(self):
        wheel = ort_wheel(self.folder / "a.whl")
        put(self.folder / "file", b"")
        for root, named in ((self.folder / "file" / "below", self.folder / "file"), ("/proc/npudiff", "/proc/npudiff")):
            self.environment["NPUDIFF_RUNTIMES"] = str(root)
            done = self.run_it("add", wheel, expect=None)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(str(named), done.stderr)

    def test_a_write_that_fails_leaves_nothing(self):
        """A limit on the size of files, which fails as a full disk does."""
        big = put(self.folder / "pkg" / "libonnxruntime.so.1.77.0", ort(payload=bytes(1 << 20)))

        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 19, 1 << 19))

        done = npudiff("runtimes", "add", big.parent, env=self.environment, preexec_fn=limit, expect=None)
        self.assertEqual(done.returncode, 2)
        self.assertIn("File too large", done.stderr)
        self.assertEqual([p.name for p in self.root.iterdir()], [".lock"])

    def test_killed_and_interrupted_adding_leaves_no_runtime(self):
        root = self.folder / "pkg"
        put(root / "libonnxruntime.so.1.77.0", ort(payload=bytes(400 << 20)))
        for sent in (signal.SIGINT, signal.SIGKILL):
            process = subprocess.Popen([NPUDIFF, "runtimes", "add", root], env=self.environment, stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, preexec_fn=lambda: os.nice(19)) # this process comes first
            end = time.monotonic() + 60
            while not list(self.root.glob(".add.*/*/*.so*")) and time.monotonic() < end:
                time.sleep(0.001) # until it copies
            process.send_signal(sent)
            process.communicate(timeout=60)
            self.assertEqual(process.returncode, -sent)
            self.assertEqual(self.listed(), {})
            leftovers = list(self.root.glob(".add.*"))
            self.assertEqual(len(leftovers), 1 if sent == signal.SIGKILL else 0)
        self.add(ort_wheel(self.folder / "a.whl"))
        self.assertEqual(list(self.root.glob(".add.*")), [])

    def test_two_at_once_take_turns(self):
        wheel = ort_wheel(self.folder / "a.whl")
        started = [subprocess.Popen([NPUDIFF, "runtimes", "add", wheel, "--id", f"r{i % 3}"], env=self.environment,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE) for i in range(9)]
        codes = [p.communicate(timeout=120) and p.returncode for p in started]
        self.assertEqual(sorted(codes), [0] * 3 + [2] * 6)
        self.assertEqual({k[0] for k in self.listed()}, {"r0", "r1", "r2"})
        self.check()

    def test_usage(self):
        for arguments in (["add"], ["remove"], ["remove", "a", "b"], ["check", "a", "b"], ["list", "x"], ["what"],
                          ["list", "--force"], ["add", "x", "--files-only"], ["check", "--abi", "aarch64-linux"]):
            done = self.run_it(*arguments, expect=None)
            self.assertEqual((done.returncode, done.stdout), (2, ""), arguments)


class ThisMachine(Runtimes):
    """The real libraries of tools/setup, packed again."""

    def test_wheels_run_as_the_installed_runtime_does(self):
        source = installed()
        packed = {"onnxruntime": {}, "onnxruntime_qnn": {}}
        for path in source.rglob("*"):
            name = path.relative_to(source).as_posix()
            if path.is_file() and (".so" in path.name or path.name == "METADATA"):
                packed["onnxruntime_qnn" if name.startswith("onnxruntime_qnn") else "onnxruntime"][name] = path
        wheels = [zipped(self.folder / f"{n} ä.whl", m) for n, m in packed.items()]
        row = self.add(*wheels, "--id", "again")["x86_64-linux"]
        for wheel in wheels:
            wheel.unlink()
        self.assertEqual((row["onnxruntime"], row["onnxruntime_qnn"], row["uses"]), ("1.31.1", "2.7.0", ["cpu", "htp-sim"]))
        self.assertTrue(row["build_id"].startswith("v2.51.0."))
        names = {pathlib.Path(n).name for n in json.loads((self.root / "again/runtime.json").read_text())["files"]}
        self.assertFalse({"libHtpPrepare.so", "libGenie.so", "libQnnGpu.so", "libQnnSaver.so"} & names)
        capture("cnn.w8a8.onnx", ["htp-sim:gen3@again"], ["ties:2"], self.folder / "again.h5", env=self.environment)
        capture("cnn.w8a8.onnx", ["htp-sim:gen3@qairt-2.51.0"], ["ties:2"], self.folder / "first.h5")
        with Capture(self.folder / "again.h5") as again, Capture(self.folder / "first.h5") as first:
            self.assertEqual(again.edges, first.edges)
            for edge in first.edges:
                self.assert_bits_equal(again.values("ties", edge), first.values("ties", edge), edge)
            # What was copied is all that was loaded: nothing came from the other folder.
            loaded = [v.decode() for k, v in again.file["runtime"].attrs.items() if k.endswith("_path")]
            self.assertTrue(any("libQnnHtp.so" in p for p in loaded))
            self.assertFalse([p for p in loaded if p.startswith(str(source))])
        found = self.check("again")[("again", "x86_64-linux")]
        self.assertEqual((found["state"], found["loads"], found["problems"]), ("ok", True, []))
        self.assertEqual({c["state"] for c in found["chipsets"]}, {"runs"})
        self.assertTrue(all(f["state"] == "ok" for f in found["files"]))

    def test_an_sdk_of_this_machine_with_the_provider_of_another_runtime(self):
        source = installed() / "onnxruntime_qnn"
        root = self.folder / "sdk ü"
        folder = root / "lib" / "x86_64-linux-clang"
        folder.mkdir(parents=True)
        for name in ("libQnnHtp.so", "libQnnSystem.so", "libQnnSaver.so", "libQnnHtpNetRunExtensions.so"):
            (folder / name).symlink_to(source / name)
        (root / "lib" / "onnxruntime_qnn.libs").mkdir() # where these builds of them look for their C++ library
        for path in (source.parent / "onnxruntime_qnn.libs").iterdir():
            (root / "lib" / "onnxruntime_qnn.libs" / path.name).symlink_to(path)
        put(root / "bin" / "x86_64-linux-clang" / "qnn-net-run", library(X86_64))
        giver = self.root / "giver"
        self.root.mkdir()
        giver.symlink_to(source.parent)
        rows = self.add(root)
        self.assertEqual((rows["x86_64-linux"]["runtime"], rows["x86_64-linux"]["uses"]), ("qnn-2.51.0", ["qnn-net-run"]))
        done = npudiff("capture", MODEL, "-d", "cpu@qnn-2.51.0", "-p", "zeros", "-o", "x",
                       env=self.environment, expect=None)
        self.assertEqual(done.returncode, 2)
        self.assertIn("runtime 'qnn-2.51.0' (x86_64-linux) has no ONNX Runtime: it is for qnn-net-run alone", done.stderr)
        rows = self.add(root, "--with", "giver")
        self.assertEqual((rows["x86_64-linux"]["runtime"], rows["x86_64-linux"]["uses"]),
                         ("qairt-2.51.0", ["cpu", "htp-sim", "qnn-net-run"]))
        giver.unlink() # what it gave was copied
        found = self.check("qairt-2.51.0", "--files-only")[("qairt-2.51.0", "x86_64-linux")]
        self.assertEqual((found["state"], found["problems"]), ("ok", []))
        # One run is enough here: all chipsets have had theirs with these libraries above.
        npudiff("capture", MODEL, "-d", "htp-sim:gen4@qairt-2.51.0", "-p", "zeros", "-o", self.folder / "x.h5", "-q",
                env=self.environment)
        with Capture(self.folder / "x.h5") as captured:
            loaded = [v.decode() for k, v in captured.file["runtime"].attrs.items() if k.endswith("_path")]
        self.assertTrue([p for p in loaded if p.startswith(str(self.root)) and "libQnnHtp.so" in p], loaded)

    def test_an_onnx_runtime_alone_is_for_the_cpu(self):
        source = installed()
        package = self.folder / "package"
        package.mkdir()
        library_path = next(source.glob("onnxruntime/capi/libonnxruntime.so.*"))
        shutil.copy(library_path, package)
        row = self.add(package)["x86_64-linux"]
        self.assertEqual((row["runtime"], row["uses"], row["onnxruntime_qnn"]), ("ort-1.31.1", ["cpu"], "none"))
        found = self.check()[("ort-1.31.1", "x86_64-linux")]
        self.assertEqual((found["state"], found["loads"], found["chipsets"]), ("ok", True, []))
        done = npudiff("capture", MODEL, "-d", "htp-sim:gen3@ort-1.31.1", "-p", "zeros", "-o", "x",
                       env=self.environment, expect=None)
        self.assertEqual(done.returncode, 2)
        self.assertIn("runtime 'ort-1.31.1' (x86_64-linux) has no QNN provider: it is for the CPU alone", done.stderr)
        # A library that does not load is found out in a process of its own.
        path = next((self.root / "ort-1.31.1").rglob("libonnxruntime.so.*"))
        path.write_bytes(library(X86_64, needed=("libnowhere.so.7",)))
        found = self.check(expect=5)[("ort-1.31.1", "x86_64-linux")]
        self.assertFalse(found["loads"])
        self.assertTrue(any("libnowhere.so.7" in p for p in found["problems"]), found["problems"])


if __name__ == "__main__":
    main()
