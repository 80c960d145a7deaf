#!/usr/bin/env python3
"""Files that others have made to cost much, or to look like what they are not: each is refused before it costs anything, with
a message that names the file and what was expected."""
import os
import pathlib
import subprocess
import sys
import time
import zipfile
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

import h5py
import numpy as np
import onnx_write
from support import MODELS, NPUDIFF, Scratch, main, npudiff

MIB = 1 << 20


def measured(*arguments):
    """(exit code, what the command said, the largest memory of it and its children in MiB)"""
    own = {name: value for name, value in os.environ.items() if name != "MALLOC_PERTURB_"} # which touches all that is allocated
    process = subprocess.Popen([NPUDIFF, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=own)
    said = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.stdout.close()
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, said, usage.ru_maxrss >> 10


class Yaml(Scratch):
    def test_deep_files_are_refused_at_once(self):
        path = self.folder / "c.yaml"
        for text, mark in (("[" * 200000, "1:65"), ("items: " + "[" * 20000, "1:71")):
            path.write_text(text)
            command = ["capture", MODELS / "mul.u8.onnx", "-d", f"emu:{path}", "-p", "uniform:2", "-q", "-o", self.folder / "a.h5"]
            code, said, _ = measured(*(command if text[0] == "i" else ["qualify", path, "-o", self.folder / "q"]))
            self.assertEqual(code, 2)
            self.assertIn(f"{path}:{mark}: lists and mappings lie more than 64 deep in each other", said)


class Archives(Scratch):
    def bomb(self, **arrays):
        """A .npz with zeros: {name: (type, shape)}."""
        path = self.folder / "bomb.npz"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, (dtype, shape) in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array_header_1_0(member, {"descr": dtype, "fortran_order": False, "shape": shape})
                    left = int(np.prod(shape)) * int(np.dtype(dtype).itemsize)
                    while left > 0:
                        left -= member.write(bytes(min(left, MIB)))
        return path

    def test_labels_and_targets_are_counted_before_they_are_read(self):
        for name, dtype, part in (("labels", "|u1", "has 134217728 labels for 2 samples"),
                                  ("target:logits", "<f4", "has 33554432 targets of output 'logits' for 2 samples")):
            n = 128 * MIB // np.dtype(dtype).itemsize
            path = self.bomb(**{name: (dtype, (n,)), "image": ("<f4", (2, 1, 8, 8))})
            code, said, mib = measured("capture", MODELS / "cnn.w8a8.onnx", "-d", "exact", "-p", f"x={path}", "-q", "-o", self.folder / "a.h5")
            self.assertEqual(code, 2, said)
            self.assertIn(part, said)
            self.assertLess(mib, 100)
            self.assertFalse((self.folder / "a.h5").exists())

    def test_an_array_is_in_memory_once(self):
        path = self.bomb(image=("<f4", (512 * 1024, 1, 8, 8)))
        code, said, mib = measured("import", "numpy", path, "-o", self.folder / "a.h5")
        self.assertEqual(code, 0, said)
        self.assertLess(mib, 128 + 100)

    def test_arrays_in_fortran_order_are_turned(self):
        values = np.arange(5 * 3 * 40 * 70, dtype=">i4").reshape(5, 3, 40, 70)
        np.savez(self.folder / "f.npz", t=np.asfortranarray(values), u=np.asfortranarray(values.astype(np.float64)))
        npudiff("import", "numpy", self.folder / "f.npz", "-o", self.folder / "a.h5")
        made = self.open(self.folder / "a.h5")
        self.assertTrue((made.values("numpy", "t") == values).all())
        self.assertTrue((made.values("numpy", "u") == values).all())


class Datasets(Scratch):
    """AI Hub files of some MB of which most is padding, and the rest zeros."""

    def dataset(self, n_samples, n_values, chunk, padding):
        path = self.folder / "hub.h5"
        deflate = zlib.compressobj(9)
        zeros = b"".join(deflate.compress(bytes(min(MIB, 4 * chunk - at))) for at in range(0, 4 * chunk, MIB)) + deflate.flush()
        with h5py.File(path, "w") as file:
            group = file.create_group("data/0")
            group.attrs.update(name="x", batch_count=n_samples)
            for i in range(n_samples):
                sample = group.create_dataset(f"batch_{i}", (n_values,), "<f4", chunks=(chunk,), maxshape=(None,), compression=9)
                for at in range(0, n_values, chunk):
                    sample.id.write_direct_chunk((at,), zeros)
            file.create_dataset("padding", data=np.random.default_rng(1).integers(0, 256, padding, np.uint8))
        return path

    def check(self, path, expect, said_of_it="", most=256):
        code, said, mib = measured("import", "aihub", path, "-o", self.folder / "a.h5", "-f", "-q")
        self.assertEqual(code, expect, said)
        self.assertIn(said_of_it, said)
        self.assertLess(mib, most)

    def test_samples_are_counted_before_they_are_read(self):
        path = self.dataset(40, 8 * MIB, 8 * MIB, 2 * MIB)
        self.check(path, 2, f"'{path}' is too small to hold the 33554432 bytes of '/data/0/batch_")
        self.check(self.dataset(1, 400 * MIB, MIB, 2 * MIB), 2, "is too small to hold the 1677721600 bytes of '/data/0/batch_0'")
        self.check(self.dataset(2, 8 * MIB, 8 * MIB, 3 * MIB), 0)

    def test_what_is_no_sample_does_not_count(self):
        """The larger the padding was, the more zeros were read: 1.3 GB of values, by a process of 3.2 GB."""
        for padding in (3 * MIB, 8 * MIB):
            path = self.dataset(40, 8 * MIB, 8 * MIB, padding)
            self.check(path, 2, f"'{path}' is too small to hold the 33554432 bytes of '/data/0/batch_")

    def test_samples_are_in_memory_twice_at_the_most(self):
        """While the room for them grows."""
        self.check(self.dataset(5, 8 * MIB, 8 * MIB, 0), 0, most=2 * 160 + 20)

    def test_a_chunk_is_not_far_larger_than_its_array(self):
        self.check(self.dataset(1, 1, 200 * MIB, 2 * MIB), 2, "'/data/0/batch_0' of")
        self.check(self.dataset(1, 1, 4 * MIB, 0), 0)
        self.check(self.dataset(1, 1, 4 * MIB + 1, 0), 2, "has chunks that cannot be")


class Models(Scratch):
    def write(self, name, nodes, outputs, constants, inputs=("x",)):
        path = self.folder / name
        path.write_bytes(onnx_write.model(nodes, [onnx_write.value_info(i, onnx_write.FLOAT, [1, 4]) for i in inputs],
                                          [onnx_write.value_info(o, onnx_write.FLOAT, [1, 4]) for o in outputs], constants))
        return path

    def external(self, size, length="4"):
        """The scale lies in a file of that size."""
        data = self.folder / "s.bin"
        data.unlink(missing_ok=True)
        scale = onnx_write.external_tensor("s", np.float32(0.02), data)
        field = onnx_write.piece(13, onnx_write.piece(1, "length") + onnx_write.piece(2, "4"))
        self.assertIn(field, scale)
        scale = scale.replace(field, onnx_write.piece(13, onnx_write.piece(1, "length") + onnx_write.piece(2, length)) if length else b"")
        os.truncate(data, size)
        return self.chain("x", scale)

    def test_external_data_of_holes_is_refused(self):
        code, said, _ = measured("info", "--list", self.external(1 << 40))
        self.assertEqual(code, 2)
        self.assertIn(f"external data '{self.folder}/s.bin' has 1099511627776 bytes", said)
        self.assertIn("4 GiB of such holes", said)
        npudiff("info", "--list", self.external(1 << 20))

    def test_a_tensor_takes_what_its_shape_needs(self):
        """Without a length external data goes on to the end of the file: here to 256 MiB of zeros."""
        code, said, mib = measured("info", "--list", self.external(256 * MIB, None))
        self.assertEqual(code, 0, said)
        self.assertIn("0.02", said)
        self.assertLess(mib, 100)
        code, said, mib = measured("info", "--list", self.external(256 * MIB, str(256 * MIB)))
        self.assertEqual(code, 2)
        self.assertIn(f"constant 's' has other data than its shape and type say: 268435456 bytes in '{self.folder}/s.bin', and 4 are needed", said)
        self.assertLess(mib, 100)

    def chain(self, name, scale=np.float32(0.02)):
        """A Relu between a quantised input of that name and an output named after it."""
        end = "o" + name[1:]
        quantise = [onnx_write.node("QuantizeLinear", [name, "s", "z"], ["q"], name="first"), onnx_write.node("DequantizeLinear", ["q", "s", "z"], ["d"])]
        return self.write("chain.onnx", [*quantise, onnx_write.node("Relu", ["d"], ["r"], name=name),
                                         onnx_write.node("QuantizeLinear", ["r", "s", "z"], ["y"]),
                                         onnx_write.node("DequantizeLinear", ["y", "s", "z"], [end], name="last")], [end],
                          {"s": scale, "z": np.uint8(3)}, [name])

    def test_weights_of_a_float_model_that_cannot_be_read_are_not_weights_that_it_lacks(self):
        """'align' went on with the quantised ones, whatever the failure was."""
        weights, data, real = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32), self.folder / "w.bin", self.folder / "float.onnx"
        scale, values = np.float32(0.03), {"s": np.float32(0.0123), "t": np.float32(0.0432), "z": np.uint8(128)}
        nodes = [onnx_write.node("QuantizeLinear", ["x", "s", "z"], ["xq"]), onnx_write.node("DequantizeLinear", ["xq", "s", "z"], ["a"]),
                 onnx_write.node("DequantizeLinear", ["wq", "ws", "wz"], ["w_DequantizeLinear_Output"]),
                 onnx_write.node("Gemm", ["a", "w_DequantizeLinear_Output"], ["g"], transB=1),
                 onnx_write.node("QuantizeLinear", ["g", "t", "z"], ["yq"]), onnx_write.node("DequantizeLinear", ["yq", "t", "z"], ["y"])]
        values.update({"ws": scale, "wz": np.int8(0), "wq": np.clip(np.rint(weights / scale), -127, 127).astype(np.int8)})
        shapes = [onnx_write.value_info("x", onnx_write.FLOAT, [1, 4])], [onnx_write.value_info("y", onnx_write.FLOAT, [1, 3])]
        quantised = self.folder / "quantised.onnx"
        quantised.write_bytes(onnx_write.model(nodes, *shapes, values))
        outside = onnx_write.external_tensor("w", weights, data)
        for constant, size, expect, said in ((weights, 48, 0, "Weights rounded anew from"), (outside, 48, 0, "1 of 1 layers."), (outside, 96, 0, "1 of 1 layers."),
                                             (outside, 47, 2, "of tensor 'w' ends too early"),
                                             (weights.astype(np.float64), 47, 2, "has the weights of none of the 1 layers")):
            real.write_bytes(onnx_write.model([onnx_write.node("Gemm", ["x", "w"], ["y"], transB=1)], *shapes, {"w": constant}))
            os.truncate(data, size)
            code, told, _ = measured("align", quantised, "--float", real, "-o", self.folder / "aligned.onnx", "-f")
            self.assertEqual(code, expect, told)
            self.assertIn(said, told)

    def test_long_names_are_kept_or_refused_at_once(self):
        longest = "/%" * 8192
        npudiff("capture", self.chain(longest), "-d", "exact", "-p", "uniform:2", "-q", "-o", self.folder / "a.h5")
        npudiff("verify", self.folder / "a.h5")
        self.assertEqual(self.open(self.folder / "a.h5").edges[0], longest)
        for command in (["info", "--list"], ["capture", "-d", "exact", "-p", "uniform:2", "-q", "-o", self.folder / "b.h5"]):
            done = npudiff(command[0], self.chain("x" * 70000), *command[1:], expect=None)
            self.assertEqual(done.returncode, 2)
            self.assertIn(f"reading '{self.folder}/chain.onnx': a name in the model has 70000 bytes; at most 16384 are accepted: 'xxx", done.stderr)
        self.assertFalse((self.folder / "b.h5").exists())

    def test_a_failure_names_the_users_model(self):
        nodes = [onnx_write.node("QuantizeLinear", ["x", "s", "z"], ["q"]), onnx_write.node("DequantizeLinear", ["q", "s", "z"], ["d"]),
                 onnx_write.node("Reshape", ["k", "shape"], ["kk"], name="fold"), onnx_write.node("Add", ["d", "kk"], ["r"]),
                 onnx_write.node("QuantizeLinear", ["r", "s", "z"], ["y"]), onnx_write.node("DequantizeLinear", ["y", "s", "z"], ["out"])]
        path = self.write("m.onnx", nodes, ["out"], {"k": np.ones(4, np.float32), "shape": np.array([7]), "s": np.float32(0.02), "z": np.uint8(3)})
        for device, said in (("exact", f"evaluating '{path}': node 'fold'"), ("cpu", f"Load model from {path} failed")):
            done = npudiff("capture", path, "-d", device, "-p", "uniform:2", "-q", "-o", self.folder / f"{device}.h5", expect=None)
            self.assertEqual(done.returncode, 5)
            self.assertIn(said, done.stderr)
            self.assertNotIn("pass0.onnx", done.stderr)
            self.assertIn(said, self.open(self.folder / f"{device}.h5").failure()["message"])

    def test_the_name_of_a_probe_is_short(self):
        values = self.folder / "x.npy"
        np.save(values, np.zeros((2, 4), np.float32))
        done = npudiff("capture", self.chain("x"), "-d", "exact", "-p", f"{'p' * 256}={values}", "-q", "-o", self.folder / "b.h5", expect=None)
        self.assertEqual(done.returncode, 2)
        self.assertIn("the name of a probe has 256 bytes; at most 255 are accepted", done.stderr)


class Outputs(Scratch):
    def test_long_names_are_written(self):
        for n in (234, 235, 255):
            path = self.folder / ("\u00e9" * 200)[:(n - 3) // 2]
            path = path.with_name(path.name + "n" * (n - 3 - len(path.name.encode())) + ".h5")
            self.assertEqual(len(path.name.encode()), n)
            npudiff("capture", MODELS / "mul.u8.onnx", "-d", "exact", "-p", "uniform:2", "-q", "-o", path)
            npudiff("verify", path)
        self.assertEqual(len(list(self.folder.iterdir())), 3)
        done = npudiff("capture", MODELS / "mul.u8.onnx", "-d", "exact", "-p", "uniform:2", "-q", "-o", self.folder / ("n" * 253 + ".h5"), expect=None)
        self.assertEqual(done.returncode, 2)
        self.assertIn("File name too long", done.stderr)

    def test_an_empty_name_is_said_to_be_empty(self):
        for command in (["capture", MODELS / "mul.u8.onnx", "-d", "exact", "-p", "uniform:2", "-q"], ["align", MODELS / "mul.u8.onnx"],
                        ["golden", "bundle", self.folder / "a.h5"]):
            done = npudiff(*command, "-o", "", expect=None)
            self.assertEqual(done.returncode, 2)
            self.assertIn("the name that --output gives is empty", done.stderr)
        self.assertEqual(list(self.folder.iterdir()), [])


class Work(Scratch):
    """A model of some hundred bytes that wants much: 'explain' and 'align' give up at limits, as 'capture' does."""

    def hostile(self, n_elems, n_times):
        x = np.float32([[1, -1, 0.5, 0.2]])
        quantised = lambda read, made: [onnx_write.node("QuantizeLinear", [read, "s", "z"], ["q" + made]), # noqa: E731
                                        onnx_write.node("DequantizeLinear", ["q" + made, "s", "z"], [made])]
        large = [onnx_write.node("Expand", ["a", "large"], ["n0"])]
        large += [onnx_write.node("Sin", [f"n{i}"], [f"n{i + 1}"]) for i in range(n_times)]
        large += [onnx_write.node("ReduceMax", [f"n{n_times}"], ["r"], axes=[0], keepdims=0)]
        model = self.folder / "hostile.onnx"
        model.write_bytes(onnx_write.model(
            quantised("x", "a") + large + quantised("r", "y"), [onnx_write.value_info("x", onnx_write.FLOAT, (1, 4))],
            [onnx_write.value_info("y", onnx_write.FLOAT, (1, 4))],
            {"s": np.float32(0.1), "z": np.uint8(128), "large": np.int64([n_elems // 4, 1, 4])}))
        np.savez(self.folder / "in.npz", x=x)
        np.savez(self.folder / "npu.npz", a=x, y=x)
        npudiff("import", "numpy", self.folder / "npu.npz", "--model", model, "--inputs", self.folder / "in.npz", "-p", "in",
                "--kind", "npu", "-o", self.folder / "npu.h5", "-f", "-q")
        return ["--quantised", model, self.folder / "npu.h5"]

    def test_memory(self):
        code, said, mib = measured("explain", *self.hostile(1 << 29, 1), "--memory-limit", 256)
        self.assertLess(mib, 400)
        self.assertNotIn("HEALTHY", said.split("\n")[0])
        self.assertNotEqual(code, 0, said)

    def test_report(self):
        page = self.folder / "r.html"
        for n, fits in ((1 << 29, False), (1 << 12, True)):
            code, said, mib = measured("report", *self.hostile(n, 1), "-o", page, "--memory-limit", 256)
            self.assertLess(mib, 400)
            self.assertIn(code, (0, 2), said)
            self.assertEqual("out of memory" in said + (page.read_text() if page.exists() else ""), not fits, said)
            page.unlink(missing_ok=True)

    def test_time(self):
        for command in (["explain"], ["report", "-o", self.folder / "r.html"]):
            begun = time.monotonic()
            code, said, _ = measured(*command, *self.hostile(1 << 24, 1000), "--time-limit", 1)
            self.assertEqual(code, 2, said)
            self.assertIn("npudiff: stopped after --time-limit, 1 s; nothing is kept", said)
            self.assertLess(time.monotonic() - begun, 30)
            self.assertFalse((self.folder / "r.html").exists())

    def aligned(self, n_elems, n_times, *options):
        """What 'align' does with a Gemm and, behind it, as much as hostile() wants."""
        weights, scale, made = np.random.default_rng(1).normal(size=(4, 4)).astype(np.float32), np.float32(0.03), []
        large = lambda read, end: ([onnx_write.node("Expand", [read, "large"], ["n0"])] # noqa: E731
                                   + [onnx_write.node("Sin", [f"n{i}"], [f"n{i + 1}"]) for i in range(n_times)]
                                   + [onnx_write.node("ReduceMax", [f"n{n_times}"], [end], axes=[0], keepdims=0)])
        for read, end in (("x", "a"), ("g", "b"), ("r", "y")):
            made.append([onnx_write.node("QuantizeLinear", [read, "s", "z"], ["q" + end]), onnx_write.node("DequantizeLinear", ["q" + end, "s", "z"], [end])])
        gemm = [onnx_write.node("DequantizeLinear", ["wq", "ws", "wz"], ["w_DequantizeLinear_Output"]),
                onnx_write.node("Gemm", ["a", "w_DequantizeLinear_Output"], ["g"], transB=1)]
        shapes = [onnx_write.value_info("x", onnx_write.FLOAT, (1, 4))], [onnx_write.value_info("y", onnx_write.FLOAT, (1, 4))]
        constants, quantised, real = {"large": np.int64([n_elems // 4, 1, 4])}, self.folder / "quantised.onnx", self.folder / "float.onnx"
        quantised.write_bytes(onnx_write.model(made[0] + gemm + made[1] + large("b", "r") + made[2], *shapes, {
            **constants, "s": np.float32(0.1), "z": np.uint8(128), "ws": scale, "wz": np.int8(0), "wq": np.rint(weights / scale).astype(np.int8)}))
        real.write_bytes(onnx_write.model([onnx_write.node("Gemm", ["x", "w"], ["g"], transB=1), *large("g", "y")], *shapes, {**constants, "w": weights}))
        return measured("align", quantised, "--float", real, "-p", "uniform:1", "-o", self.folder / "aligned.onnx", "-f", *options)

    def test_align(self):
        for n, n_times, options, expect, words in ((1 << 29, 1, ["--memory-limit", 256], 2, "out of memory"),
                                                   (1 << 24, 1000, ["--time-limit", 1], 2, "stopped after --time-limit, 1 s; nothing is kept"),
                                                   (1 << 12, 1, ["--memory-limit", 256, "--time-limit", 60], 4, "(1 proven equal, 0 as tested)")):
            code, said, mib = self.aligned(n, n_times, *options)
            self.assertEqual(code, expect, said)
            self.assertIn(words, said)
            self.assertLess(mib, 400 if "--memory-limit" in options else 8192)
            self.assertEqual((self.folder / "aligned.onnx").exists(), expect != 2)

    def test_a_model_that_wants_little_is_explained(self):
        code, said, _ = measured("explain", *self.hostile(1 << 12, 2), "--memory-limit", 256, "--time-limit", 60)
        self.assertIn(code, (0, 1, 4), said)


if __name__ == "__main__":
    main()
