#!/usr/bin/env python3
"""Oracle values for the probes: writes golden/oracle/probe and golden/bad/probes again, byte for byte.

The generators are written here a second time from docs/reference/probes.md, and the files come from NumPy itself
(1.24 wrote the committed ones), so that the library is held to something that shares no code with it.

usage: tools/oracles/make_probe_oracle.py [GOLDEN_FOLDER]
"""
import json
import shutil
import struct
import sys
import zipfile
import zlib
from hashlib import sha256
from pathlib import Path

import numpy as np

U64 = (1 << 64) - 1
F32, F64 = np.float32, np.float64
CODES = {"uint8": (0, 255), "int8": (-128, 127), "uint16": (0, 65535), "int16": (-32768, 32767)}


# ---- Generators: docs/reference/probes.md#arithmetic to #ties ----

def bfloat16_bits(value):
    """float32 to bfloat16, by comparing the distances to both neighbours in exact integers."""
    bits = int(np.array(value, F32).view(np.uint32))
    low, rest = bits >> 16, bits & 0xFFFF
    return low + (1 if rest > 0x8000 or (rest == 0x8000 and low & 1) else 0)


def bfloat16_value(bits):
    return np.array(bits << 16, np.uint32).view(F32)[()]


def is_float(target):
    return target["dtype"] in ("float16", "bfloat16", "float32", "float64")


def n_elems(target):
    n = 1
    for dim in target["shape"]:
        n *= dim
    return n


def pack(target, values):
    """Bytes of one input: floats are float32 before they are stored."""
    dtype = target["dtype"]
    if dtype == "bfloat16":
        return np.array([bfloat16_bits(v) for v in values], "<u2").tobytes()
    if is_float(target):
        return np.array(values, F32).astype(np.dtype(dtype).newbyteorder("<")).tobytes()
    if dtype == "bool":
        return bytes(int(v) for v in values)
    size = np.dtype(dtype).itemsize
    return b"".join((int(v) & ((1 << 8 * size) - 1)).to_bytes(size, "little") for v in values)


def quantiser_of(target, i):
    """(scale, zero point, smallest, largest code) of element i, or None."""
    quant = target["quant"]
    if quant is None or not is_float(target):
        return None
    channel = 0
    if len(quant["scale"]) > 1:
        channel = int(np.unravel_index(i, target["shape"])[quant["axis"]])
    low, high = CODES[quant["dtype"]]
    return F32(quant["scale"][channel]), quant["zero_point"][channel], low, high


def input_codes(target):
    info = np.iinfo(target["dtype"])
    low, high = int(info.min), int(info.max)
    if target["quant"] is not None:
        other = CODES[target["quant"]["dtype"]]
        low, high = max(low, other[0]), min(high, other[1])
    return low, high


def ramp(target, samples, seed):
    n, out = n_elems(target), []
    for i in range(n):
        if target["dtype"] == "bool":
            out.append(i % 2)
        elif not is_float(target):
            low, high = input_codes(target)
            code = i % (high - low + 1)
            out.append(code if code <= high else code - (high - low + 1))
        elif target["quant"] is not None:
            scale, zero, low, high = quantiser_of(target, i)
            code = low if n == 1 else low + i * (high - low) // (n - 1)
            out.append(scale * F32(code - zero))
        else:
            out.append(F32(-1) if n == 1 else F32(F64(2 * i - (n - 1)) / F64(n - 1)))
    return out


def mix(z):
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & U64
    z = (z ^ z >> 27) * 0x94D049BB133111EB & U64
    return z ^ z >> 31


def uniform(target, samples, seed):
    gamma, hashed, out = 0x9E3779B97F4A7C15, 0xCBF29CE484222325, []
    for byte in target["name"].encode():
        hashed = (hashed ^ byte) * 0x100000001B3 & U64
    stream = mix(mix(seed) ^ hashed)
    for s in range(samples):
        state = mix((stream + s * gamma) & U64)
        for i in range(n_elems(target)):
            bits = mix((state + (i + 1) * gamma) & U64)
            if target["dtype"] == "bool":
                out.append(bits >> 63)
            elif not is_float(target):
                low, high = input_codes(target)
                out.append(low + (bits >> 64 - (high - low + 1).bit_length() + 1))
            elif target["quant"] is not None:
                scale, zero, low, high = quantiser_of(target, i)
                bottom, width = F64(scale) * F64(low - zero), F64(scale) * F64(high - low)
                out.append(F32(bottom + F64(bits >> 11) * F64(2.0**-53) * width))
            else:
                out.append(F32(bits >> 40) * F32(2.0**-24))
    return out


def neighbours(dtype, c):
    """c, one up, one down, two up, two down in the type, as float32."""
    if dtype == "bfloat16":
        def step(v, up):
            if v == 0:
                return bfloat16_value(1) if up else -bfloat16_value(1)
            bits = bfloat16_bits(abs(v)) + (1 if (v > 0) == up else -1)
            return bfloat16_value(bits) if v > 0 else -bfloat16_value(bits)
        c = bfloat16_value(bfloat16_bits(c))
    else:
        kind = np.float16 if dtype == "float16" else F32

        def step(v, up):
            return F32(np.nextafter(kind(v), kind(np.inf if up else -np.inf)))
        c = F32(kind(c))
    up, down = step(c, True), step(c, False)
    return [F32(0) if v == 0 else v for v in (c, up, down, step(up, True), step(down, False))]


def tie(dtype, scale, t, above):
    near = neighbours(dtype, F32(F64(t) * F64(scale)))
    quotients = [F32(x / scale) for x in near]
    for x, q in zip(near, quotients):
        if q == t:
            return x
    side = [x for x, q in zip(near, quotients) if (q > t if above else q < t)]
    return (min(side) if above else max(side)) if side else near[0]


def ties(target, samples, seed):
    n, out = n_elems(target), []
    for j in range(samples * n):
        if not is_float(target) or target["quant"] is None:
            out.append(0)
            continue
        scale, zero, low, high = quantiser_of(target, j % n)
        count = high - low
        m = j % count * 40504 % count
        out.append(tie(target["dtype"], scale, F32(low + m - zero) + F32(0.5), (m + j // count) % 2 == 1))
    return out


GENERATORS = {"zeros": lambda t, s, seed: [0] * (s * n_elems(t)), "ones": lambda t, s, seed: [1] * (s * n_elems(t)),
              "ramp": ramp, "uniform": uniform, "ties": ties}


# ---- Cases ----

def target(name, dtype, shape, quant=None, scale=(), zero_point=(), axis=-1):
    made = {"name": name, "dtype": dtype, "shape": list(shape), "quant": None}
    if quant is not None:
        made["quant"] = {"dtype": quant, "axis": axis, "zero_point": list(zero_point),
                         "scale": [float(F32(s)) for s in scale]}
    return made


IMAGE = target("image", "float32", [1, 1, 8, 8], "uint8", [1 / 255], [0])
SYMMETRIC = target("x", "float32", [16, 17], "int8", [0.0123], [0])
WIDE = target("x", "float32", [3, 5, 7], "uint16", [3.1e-5], [31234])
CHANNELS = target("per/channel", "float32", [1, 3, 4], "int8", [0.5, 0.01, 3.7], [0, -7, 127], 1)
FLOATS = [target("free", "float32", [2, 9]), target("half", "float16", [9]), target("brain", "bfloat16", [9]),
          target("double", "float64", [9])]
HALVES = [target("half", "float16", [260], "uint8", [0.017], [128]),
          target("brain", "bfloat16", [260], "int8", [0.25], [3]),
          target("double", "float64", [260], "uint8", [0.3], [0])]
INTEGERS = [target("bytes", "uint8", [300]), target("signed", "int8", [300]), target("flag", "bool", [5]),
            target("i32", "int32", [5]), target("i64", "int64", [5]), target("u64", "uint64", [5]),
            target("u32", "uint32", [5]), target("i16", "int16", [5]), target("u16", "uint16", [5]),
            target("narrow", "int32", [260], "uint8", [1], [0]), target("both", "int8", [130], "uint8", [1], [0])]
ODD = [target("scalar", "float32", [], "uint8", [0.1], [5]), target("none", "float32", [0, 3]),
       target("naïve/名", "float32", [3])]
LARGE = target("large", "float32", [70000], "uint16", [0.00071], [1000])

CASES = [("zeros", FLOATS + INTEGERS + [IMAGE]), ("ones", FLOATS + INTEGERS + [IMAGE]),
         ("ramp", FLOATS + INTEGERS + ODD + HALVES), ("ramp", [IMAGE]), ("ramp", [SYMMETRIC]), ("ramp", [WIDE]),
         ("ramp", [CHANNELS]), ("ramp", [LARGE]),
         ("uniform", [IMAGE]), ("uniform:3:7", FLOATS + INTEGERS + ODD), ("uniform:2", [CHANNELS]),
         ("uniform:2:18446744073709551615", [IMAGE, WIDE]), ("uniform:1:0", HALVES), ("uniform:1:1", [LARGE]),
         ("ties", [IMAGE]), ("ties:2", [SYMMETRIC]), ("ties:3", [WIDE]), ("ties:25", [CHANNELS]),
         ("ties:2", HALVES), ("ties:2", [IMAGE, FLOATS[0], INTEGERS[0]]), ("ties:1", [ODD[0], ODD[1]]),
         ("ties:2", [LARGE])]
SHOWN_BYTES = 2400  # larger inputs are given as their SHA-256


def generator_case(spec, targets):
    parts = spec.split(":")
    samples = int(parts[1]) if len(parts) > 1 else 8 if parts[0] in ("uniform", "ties") else 1
    seed = int(parts[2]) if len(parts) > 2 else 1
    source = {"uniform": f"uniform:{samples}:{seed}", "ties": f"ties:{samples}"}.get(parts[0], parts[0])
    data = [pack(t, GENERATORS[parts[0]](t, samples, seed)) for t in targets]
    return {"spec": spec, "name": parts[0], "source": source, "samples": samples, "targets": targets,
            "inputs": [d.hex() if len(d) <= SHOWN_BYTES else "sha256:" + sha256(d).hexdigest() for d in data],
            "labels": None}


# ---- Files ----

def npy(path, array, version=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as file:
        np.lib.format.write_array(file, np.asanyarray(array), version=version)


def npz(path, compress=False, **arrays):
    path.parent.mkdir(parents=True, exist_ok=True)
    (np.savez_compressed if compress else np.savez)(path, **arrays)


def header(text, version=(1, 0)):
    raw = text.encode() if isinstance(text, str) else text
    length = struct.pack("<H" if version[0] == 1 else "<I", len(raw))
    return b"\x93NUMPY" + bytes(version) + length + raw


def file_case(spec, targets, arrays, labels=None):
    """What must come out of a user's files: spec has the path from the folder of the files."""
    inputs = []
    for t, array in zip(targets, arrays):
        assert array.dtype.newbyteorder("=") == np.dtype(t["dtype"]), (spec, array.dtype)
        inputs.append(np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes().hex())
    elems = n_elems(targets[0])
    return {"spec": spec, "name": spec.split("=")[0], "source": spec.split("=", 1)[1],
            "samples": arrays[0].size // elems, "targets": targets, "inputs": inputs, "labels": labels}


def good_files(root):
    random = np.random.RandomState(20240607)
    x = target("x", "float32", [2, 3])
    data = random.standard_normal((4, 2, 3)).astype(F32)
    data.view(np.uint32)[1, 0, :] = [0x7FC12345, 0xFF800000, 0x80000000]  # a NaN with payload, -inf, -0
    cases = []

    npy(root / "c.npy", data)
    npy(root / "fortran.npy", np.asfortranarray(data))
    npy(root / "big.npy", data.astype(">f4"))
    npy(root / "big-fortran.npy", np.asfortranarray(data.astype(">f4")))
    npy(root / "v2.npy", data, (2, 0))
    npy(root / "v3.npy", data, (3, 0))
    (root / "keys.npy").write_bytes(
        header('{"shape":(4L,2,3),\t"fortran_order":False,"descr":"=f4"}') + data.tobytes())
    for name in ("c", "fortran", "big", "big-fortran", "v2", "v3", "keys"):
        cases.append(file_case(f"set={name}.npy", [x], [data]))
    npy(root / "single.npy", data[2])
    cases.append(file_case("set=single.npy", [x], [data[2]]))
    cases.append(file_case("set=single.npy", [target("x", "float32", [1, 3])], [data[2]]))
    cases.append(file_case("set=single.npy", [target("x", "float32", [3])], [data[2]]))
    cases.append(file_case("set=c.npy", [target("x", "float32", [1, 2, 3])], [data]))
    npy(root / "scalar.npy", np.int64(-5))
    cases.append(file_case("set=scalar.npy", [target("n", "int64", [])], [np.array(-5)]))
    npy(root / "vector.npy", np.array([1, -2, 3], ">i8"))
    cases.append(file_case("set=vector.npy", [target("n", "int64", [])], [np.array([1, -2, 3])]))
    npy(root / "nine.npy", np.arange(8, dtype=np.uint8).reshape((2,) + (1,) * 6 + (2, 2)))
    cases.append(file_case("set=nine.npy", [target("n", "uint8", [1] * 6 + [2, 2])], [np.arange(8, dtype=np.uint8)]))

    types = "float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool".split()
    many = {}
    for i, name in enumerate(types):
        values = random.randint(0, 2 if name == "bool" else 100, (3, 4)).astype(name)
        many[name] = values.astype(values.dtype.newbyteorder(">")) if i % 2 else np.asfortranarray(values)
    npz(root / "types.npz", **many)
    targets = [target(name, name, [4]) for name in types]
    cases.append(file_case("types=types.npz", targets, [many[name] for name in types]))

    a = random.randint(0, 256, (5, 1, 6)).astype(np.uint8)
    b = random.standard_normal((5, 1)).astype(F32)
    pair = [target("b/in", "float32", [1]), target("a", "uint8", [1, 6])]
    labels = [3, 0, 9, 9, 1]
    npz(root / "pair.npz", **{"a": a, "b/in": b, "labels": np.array(labels)})
    npz(root / "pair-deflated.npz", True, **{"a": a, "b/in": b, "y": np.array(labels, ">u2")})
    cases += [file_case(f"p.1-_X={name}.npz", pair, [b, a], labels) for name in ("pair", "pair-deflated")]
    npz(root / "labels-apart.npz", other=np.zeros(3), label=np.array(labels[::-1], np.int8))
    npy(root / "labels-apart.npy", np.array([-1, -128, 127, 0, 1], np.int8))
    cases.append(file_case("p=pair.npz,labels=labels-apart.npz", pair, [b, a], labels[::-1]))
    cases.append(file_case("p=pair.npz,labels=labels-apart.npy", pair, [b, a], [-1, -128, 127, 0, 1]))
    npz(root / "renamed.npz", anything=a, label=np.array(labels, np.uint64))
    cases.append(file_case("p=renamed.npz", pair[1:], [a], labels))

    npy(root / "by-input" / "a.npy", a)
    npy(root / "by-input" / "b%2Fin.npy", b)
    npy(root / "by-input" / "labels.npy", np.array(labels, np.int32))
    (root / "by-input" / ".hidden").write_text("passed over\n")
    cases.append(file_case("p=by-input", pair, [b, a], labels))
    for i in range(3):
        npy(root / "by-sample" / f"{[10, 9, 'z'][i]}.npy", a[i])
        npz(root / "by-sample-npz" / f"s{i}.npz", **{"a": a[i], "b/in": b[i], "label": np.array(labels[i])})
        (root / f"a{i}.raw").write_bytes(a[i].tobytes())
    npy(root / "by-sample" / "labels.npy", np.array(labels[:3]))
    cases.append(file_case("p=by-sample", pair[1:], [a[:3]], labels[:3]))
    cases.append(file_case("p=by-sample-npz/", pair, [b[:3], a[:3]], labels[:3]))
    npy(root / "b2.npy", b[2])
    npy(root / "b0.npy", b[:1])
    (root / "list.txt").write_bytes(b"#out\n%more\n\nb/in:=b0.npy a:=a0.raw\r\n  a:=a2.raw\t b/in:=b2.npy  \n\n"
                                    b"a:=by-sample/9.npy b/in:=b2.npy")
    cases.append(file_case("p=list.txt", pair, [b[[0, 2, 2]], a[[0, 2, 1]]]))
    (root / "list-one.txt").write_text("a1.raw\na:=by-sample/10.npy\n")
    cases.append(file_case("p=list-one.txt,labels=labels-two.npy", pair[1:], [a[[1, 0]]], [4, 5]))
    npy(root / "labels-two.npy", np.array([4, 5]))
    return cases


def patched_zip(source, **changes):
    """A .npz with fields of its first member changed, in the local header and in the directory."""
    data = bytearray(source)
    fields = {"flags": (6, 8, "<H"), "method": (8, 10, "<H"), "size": (22, 24, "<I")}
    central = data.index(b"PK\x01\x02")
    for name, value in changes.items():
        local_at, central_at, form = fields[name]
        struct.pack_into(form, data, local_at, value)
        struct.pack_into(form, data, central + central_at, value)
    return bytes(data)


def plain_zip(path, members, method=zipfile.ZIP_DEFLATED):
    """A .npz without zip64 fields, so that it can be patched; the same bytes every time."""
    with zipfile.ZipFile(path, "w", method) as file:
        for name, content in members:
            file.writestr(zipfile.ZipInfo(name), content, method)
    return path.read_bytes()


def npy_bytes(array):
    return header(repr({"descr": np.lib.format.dtype_to_descr(array.dtype), "fortran_order": False,
                        "shape": array.shape})) + array.tobytes()


def bad_files(root):
    data = np.arange(24, dtype=F32).reshape(4, 2, 3)
    whole = npy_bytes(data)
    put = {
        "empty.npy": b"", "not-npy.npy": b"not an array at all\n", "only-magic.npy": b"\x93NUMPY\x01\x00",
        "cut-header.npy": whole[:40], "cut-data.npy": whole[:-1], "trailing.npy": whole + b"\0",
        "version-4.npy": whole[:6] + b"\x04" + whole[7:],
        "header-65537.npy": b"\x93NUMPY\x02\x00" + struct.pack("<I", 65537) + data.tobytes(),
        "header-4g.npy": b"\x93NUMPY\x02\x00\xff\xff\xff\xff",
        "header-zero.npy": header("{'descr': '<f4',\0'fortran_order': False, 'shape': (4, 2, 3)}") + data.tobytes(),
    }
    dictionaries = {
        "no-shape": "{'descr': '<f4', 'fortran_order': False}", "number": "7", "nothing": "",
        "twice": "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (4, 2, 3)}",
        "extra-key": "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 2, 3), 'more': 1}",
        "rest": "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 2, 3)} x",
        "no-tuple": "{'descr': '<f4', 'fortran_order': False, 'shape': (24)}",
        "negative": "{'descr': '<f4', 'fortran_order': False, 'shape': (-4, 2, 3)}",
        "huge": "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 2, 3)}",
        "too-large": "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999, 2, 3)}",
        "billions": "{'descr': '<f4', 'fortran_order': False, 'shape': (4000000000, 2, 3)}",
        "ten-dims": "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 2, 3, 1, 1, 1, 1, 1, 1, 1)}",
        "open-list": "{'descr': [('a', '<f4'), 'fortran_order': False",
    }
    for name, text in dictionaries.items():
        put[f"dict-{name}.npy"] = header(text) + data.tobytes()
    for name, content in put.items():
        (root / name).write_bytes(content)
    npy(root / "object.npy", np.array([{"a": 1}, None], object))
    npy(root / "structured.npy", np.zeros(2, [("a", "<f4"), ("b", "<i2")]))
    npy(root / "complex.npy", np.zeros((4, 2, 3), np.complex64))
    npy(root / "float64.npy", data.astype(F64))
    npy(root / "int32.npy", data.astype(np.int32))
    npy(root / "shape.npy", data.reshape(4, 3, 2))
    npy(root / "flat.npy", data.reshape(24))
    npy(root / "no-samples.npy", data[:0])
    npy(root / "two-samples.npy", data[:2])
    (root / "bool-2.npy").write_bytes(header("{'descr': '|b1', 'fortran_order': False, 'shape': (3,)}") + b"\0\1\2")

    a, b = np.zeros((2, 3), F32), np.zeros((2, 1), np.uint8)
    good = {"a": a, "b": b}
    npz(root / "lacks-b.npz", a=a)
    npz(root / "extra.npz", **good, c=a)
    npz(root / "type.npz", a=a, b=b.astype(np.int8))
    npz(root / "shape.npz", a=a[:, :2], b=b)
    npz(root / "unequal.npz", a=a, b=b[:1])
    npz(root / "object.npz", a=np.array([None, 1], object), b=b)
    npz(root / "labels-short.npz", **good, labels=np.array([1]))
    npz(root / "labels-float.npz", **good, labels=np.array([1.0, 2.0]))
    npz(root / "labels-2d.npz", **good, labels=np.array([[1], [2]]))
    npz(root / "labels-large.npz", **good, labels=np.array([1, 1 << 63], np.uint64))
    npz(root / "labels-two.npz", **good, labels=np.array([1, 2]), y=np.array([1, 2]))
    members = [("a.npy", npy_bytes(a)), ("b.npy", npy_bytes(b))]
    plain = plain_zip(root / "cut.npz", members)
    (root / "cut.npz").write_bytes(plain[:-30])
    (root / "no-zip.npz").write_bytes(b"this is no zip archive, although it is named so\n" * 3)
    (root / "empty.npz").write_bytes(b"")
    at = plain.index(zlib.compress(npy_bytes(a), -1)[2:10])
    (root / "damaged.npz").write_bytes(plain[:at + 3] + b"\xff\xff\xff" + plain[at + 6:])
    stored = bytearray(plain_zip(root / "checksum.npz", members, zipfile.ZIP_STORED))
    stored[stored.index(npy_bytes(a)) + len(npy_bytes(a)) - 1] ^= 1
    (root / "checksum.npz").write_bytes(stored)
    (root / "bomb.npz").write_bytes(patched_zip(plain, size=1 << 30))
    (root / "encrypted.npz").write_bytes(patched_zip(plain, flags=1))
    plain_zip(root / "lzma.npz", members, zipfile.ZIP_LZMA)
    plain_zip(root / "member.npz", members + [("notes.txt", b"hello")])
    doubled = plain_zip(root / "doubled.npz", members + [("c.npy", npy_bytes(a))])
    (root / "doubled.npz").write_bytes(doubled.replace(b"c.npy", b"a.npy"))
    (root / "cut-member.npz").write_bytes(plain_zip(root / "cut-member.npz", [("a.npy", npy_bytes(a)[:-4]), members[1]]))

    (root / "short.raw").write_bytes(b"\0" * 11)
    (root / "a.raw").write_bytes(b"\0" * 12)
    (root / "b.raw").write_bytes(b"\0")
    lists = {"missing": "a:=a.raw b:=nowhere.raw", "unknown": "a:=a.raw b:=b.raw c:=b.raw", "bare": "a.raw",
             "lacks": "a:=a.raw b:=b.raw\na:=a.raw", "twice": "a:=a.raw b:=b.raw a:=a.raw", "empty": "\n# only\n",
             "size": "a:=short.raw b:=b.raw", "kind": "a:=a.txt b:=b.raw", "zero": "a:=a.raw\0 b:=b.raw",
             "two": "a:=a.raw b:=no-samples.npy", "surplus": "a.raw a.raw"}
    for name, text in lists.items():
        (root / f"list-{name}.txt").write_text(text)
    npy(root / "foreign" / "a.npy", a)
    npy(root / "foreign" / "b.npy", b)
    (root / "foreign" / "README.txt").write_text("what am I\n")
    npy(root / "half" / "a.npy", a)
    npy(root / "many" / "s.npy", a)
    npy(root / "labels-only" / "labels.npy", np.array([1, 2]))
    npz(root / "some-labels" / "s0.npz", a=a[0], b=b[0], y=np.array(3))
    npz(root / "some-labels" / "s1.npz", a=a[1], b=b[1])
    npy(root / "zipped" / "a.npy", a)
    npz(root / "zipped" / "b.npz", b=b)


def main():
    golden = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[2] / "golden"
    oracle, bad = golden / "oracle" / "probe", golden / "bad" / "probes"
    for folder in (oracle, bad):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)

    def write(name, cases):
        text = ",\n".join(json.dumps(case) for case in cases)
        (oracle / name).write_text("[\n" + text + "\n]\n")

    with np.errstate(all="ignore"):
        write("generators.json", [generator_case(spec, targets) for spec, targets in CASES])
    (oracle / "files").mkdir()
    write("files.json", good_files(oracle / "files"))
    bad_files(bad)


if __name__ == "__main__":
    main()
