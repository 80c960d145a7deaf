"""What captures of phones are held against, through h5py alone."""
import hashlib
import os
import pathlib

from support import Capture, text

# What may differ between two captures of one device on two machines: when, where, how long, and what was logged.
OF_THE_MACHINE = ("device", "runtime", "host", "logs", "findings")


def same_contents(path):
    """What two captures of one kind of device must share to the bit, wherever they were made: {path: contents}."""
    with Capture(path) as capture:
        return {p: c for p, c in capture.contents().items()
                if p != "/" and p.split("/")[0] not in OF_THE_MACHINE and not p.endswith("/latency_us")}


def differences(path, other):
    """The paths at which two captures differ."""
    a, b = same_contents(path), same_contents(other)
    return sorted(p for p in a.keys() | b.keys() if a.get(p) != b.get(p))


def library_digests(path):
    """{file name: sha256} of the runtime's libraries that were really loaded."""
    with Capture(path) as capture:
        facts = {k: text(v) for k, v in capture.file["runtime"].attrs.items()}
    loaded = {os.path.basename(v): facts[k.replace("_path", "_sha256")]
              for k, v in facts.items() if k.startswith("library_") and k.endswith("_path")}
    return {k: v for k, v in loaded.items() if "onnxruntime" in k or "Qnn" in k or "Htp" in k}


def device_facts(path):
    with Capture(path) as capture:
        return {k: text(v) for k, v in capture.file["device"].attrs.items()}


def by_address(folder):
    """{serial or host: capture's path} of a folder of captures of remote devices."""
    found = {}
    for path in sorted(pathlib.Path(folder).glob("*.h5")):
        uri = device_facts(path)["uri"]
        found[uri.split(":", 1)[1].split("/")[0]] = path
    return found


def change_in_store(store):
    """Changes agent, a library and the models in a device's store, each at equal size and with its times; the paths."""
    changed = []
    for path in sorted(p for p in pathlib.Path(store).rglob("*") if p.is_file() and p.name != ".complete"):
        if path.name not in ("npudiff-agent", "libonnxruntime.so") and ".so" in path.name:
            continue
        before, data = path.stat(), bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        changed.append(path)
    return changed


def check_changed_store(test, store, output, capture, same_as):
    """What changed in a device's store is neither run nor believed: capture() makes `output` again, the same as
    `same_as`, from files with the right content, and says what the device measured."""
    digests = {p: hashlib.sha256(p.read_bytes()).hexdigest() for p in store.rglob("*") if p.is_file()}
    changed = change_in_store(store)
    test.assertEqual({p.name for p in changed} & {"npudiff-agent"}, {"npudiff-agent"})
    test.assertGreaterEqual(len(changed), 2)
    capture()
    test.assertEqual(differences(output, same_as), [])
    for path in changed:
        test.assertIn(hashlib.sha256(path.read_bytes()).hexdigest(), {digests[path]}, path)
    measured = dict(line.split(" ", 1)[::-1] for line in device_facts(output)["measured"].splitlines())
    agent = next(p for p in changed if p.name == "npudiff-agent")
    test.assertEqual(measured["npudiff-agent"], digests[agent])
    test.assertGreaterEqual(set(digests.values()), set(measured.values()))
    test.assertGreaterEqual(len(measured), 2)
