#!/usr/bin/env python3
"""Makes the files beside it: a capture written by h5py from FORMAT.md alone (valid.h5), and files that each differ
from it in one thing that a reader must refuse. Run it in this folder; needs h5py and numpy."""
import os

import h5py
import numpy as np


def text(value):
    data = value.encode()
    return np.array(data, dtype=h5py.string_dtype("utf-8", max(1, len(data))))


def column(values):
    width = max([1] + [len(v.encode()) for v in values])
    return np.array([v.encode() for v in values], dtype=h5py.string_dtype("utf-8", width))


def put(group, name, data, **options):
    return group.create_dataset(name, data=data, track_times=False, **options)


OUTPUT = (np.arange(24, dtype=np.uint8) * 7 % 13).reshape(2, 3, 4)


def make(path, **changes):
    """Writes the valid capture; a change replaces one step of it."""
    with h5py.File(path, "w", libver="earliest") as file:
        file.attrs["npudiff_format"] = np.int64(changes.get("format", 1))
        file.attrs.create("npudiff_version", text("0.1.0"))
        file.attrs.create("status", text(changes.get("status", "complete")))
        device = file.create_group("device")
        device.attrs.create("uri", text("cpu"))
        edges = file.create_group("edges")
        names = changes.get("names", ["conv", "out/1"])
        n = len(names)
        put(edges, "name", column(names))
        put(edges, "onnx_name", column(names))
        put(edges, "op_types", column(["Conv+Relu"] * n))
        put(edges, "node", column(["node"] * n))
        put(edges, "provider", column(["CPU"] * n))
        put(edges, "dtype", column([changes.get("dtype", "uint8"), "float16"][:n]))
        put(edges, "rank", np.array([2, 1], np.int64))
        put(edges, "dims", np.array([[3, 4] + [0] * 6, [5] + [0] * 7], np.int64))
        put(edges, "is_model_input", np.zeros(n, np.uint8))
        put(edges, "is_model_output", np.array([0, 1], np.uint8))
        put(edges, "quant_n", np.array([changes.get("quant_n", 3), 0], np.int64))
        put(edges, "quant_axis", np.array([changes.get("axis", 0), -1], np.int64))
        put(edges, "scale", np.array([0.5, 0.25, 0.125], np.float32))
        put(edges, "zero_point", np.array([0, 128, 3], np.int64))
        nodes = file.create_group("nodes")
        for name in ("name", "op_type", "domain", "provider"):
            put(nodes, name, column(["n"]))
        probe = file.create_group("probes/p")
        for name, value in (("index", 0), ("n_inputs", 0), ("n_repeats", 1),
                            ("n_samples", changes.get("n_samples", 2)), ("n_samples_expected", 2)):
            probe.attrs[name] = np.int64(value)
        probe.attrs.create("source", text("h5py"))
        put(probe, "latency_us", np.zeros((2, 1)))
        outputs = probe.create_group("outputs")
        digests = probe.create_group("digests")
        changes.get("output", plain_output)(outputs)
        put(outputs, "out%2F1", np.linspace(-1, 1, 10).astype(np.float16).reshape(2, 5))
        for name in ("conv", "out%2F1"):
            put(digests, name, np.zeros((changes.get("n_digests", 2), 1, 2), np.uint64))
        changes.get("then", lambda _: None)(file)


def plain_output(outputs):
    put(outputs, "conv", OUTPUT, chunks=(1, 3, 4), shuffle=True, compression="gzip", compression_opts=6)


def missing_chunk(outputs):
    dataset = outputs.create_dataset("conv", (2, 3, 4), np.uint8, chunks=(1, 3, 4), track_times=False)
    dataset[0] = OUTPUT[0]


def virtual(outputs):
    layout = h5py.VirtualLayout((2, 3, 4), np.uint8)
    layout[:] = h5py.VirtualSource("elsewhere.h5", "data", (2, 3, 4))
    outputs.create_virtual_dataset("conv", layout)


def delete(path):
    def change(file):
        del file[path]
    return change


def replace(path, make_link):
    def change(file):
        del file[path]
        file[path] = make_link
    return change


def set_attr(path, name, value):
    return lambda file: file[path].attrs.create(name, value)


def user_block(path):
    with open("valid.h5", "rb") as file:
        data = file.read()
    with open(path, "wb") as file:
        file.write(b"\0" * 512 + data)


VLEN = h5py.string_dtype("utf-8")
make("valid.h5")
make("newer.h5", format=2)
make("version_zero.h5", format=0)
make("status.h5", status="finished")
make("same_name.h5", names=["conv", "conv"])
make("unknown_type.h5", dtype="float8")
make("quant_count.h5", quant_n=2)
make("quant_axis.h5", axis=1)
make("too_many_samples.h5", n_samples=3)
make("digests_short.h5", n_digests=1)
make("other_type.h5", output=lambda g: put(g, "conv", OUTPUT.astype(np.int8)))
make("other_shape.h5", output=lambda g: put(g, "conv", OUTPUT.reshape(2, 4, 3)))
make("big_endian.h5", output=lambda g: put(g, "conv", OUTPUT.astype(">u2")))
make("compound.h5", output=lambda g: put(g, "conv", np.zeros((2, 3, 4), [("a", "u1")])))
make("checksum_filter.h5", output=lambda g: put(g, "conv", OUTPUT, chunks=(1, 3, 4), fletcher32=True))
make("lzf_filter.h5", output=lambda g: put(g, "conv", OUTPUT, chunks=(1, 3, 4), compression="lzf"))
make("odd_chunks.h5", output=lambda g: put(g, "conv", OUTPUT, chunks=(2, 2, 2)))
make("missing_chunk.h5", output=missing_chunk)
make("external_data.h5", output=lambda g: g.create_dataset(
    "conv", (2, 3, 4), np.uint8, external=[("/etc/hostname", 0, 24)], track_times=False))
make("virtual_data.h5", output=virtual)
make("never_written.h5", output=lambda g: g.create_dataset("conv", (2, 3, 4), np.uint8, track_times=False))
make("soft_link.h5", then=replace("edges/name", h5py.SoftLink("/edges/node")))
make("external_link.h5", then=replace("probes/p/outputs/conv", h5py.ExternalLink("/etc/passwd", "/x")))
make("vlen_attribute.h5", then=lambda file: file["device"].attrs.create("note", "text", dtype=VLEN))
make("vlen_column.h5", then=lambda file: (delete("edges/name")(file),
                                          file.create_dataset("edges/name", data=["a", "b"], dtype=VLEN)))
make("no_digests.h5", then=delete("probes/p/digests/conv"))
make("no_edges.h5", then=delete("edges"))
make("no_probes.h5", then=delete("probes"))
make("stranger.h5", then=lambda file: put(file["probes/p/outputs"], "nobody", OUTPUT))
make("group_for_data.h5", then=lambda file: (delete("probes/p/outputs/conv")(file),
                                             file.create_group("probes/p/outputs/conv")))
make("scale_attribute.h5", then=set_attr("probes/p/outputs/conv", "scale", np.array([1, 2, 3], np.float32)))
user_block("user_block.h5")
with h5py.File("foreign.h5", "w") as foreign:
    foreign["data"] = np.arange(10)
with open("text.h5", "w") as out:
    out.write("this is not an HDF5 file\n")
open("empty.h5", "w").close()
with open("valid.h5", "rb") as whole, open("cut.h5", "wb") as out:
    data = whole.read()
    out.write(data[:len(data) // 2])
print(sum(os.path.getsize(name) for name in os.listdir(".")), "bytes")
