#!/usr/bin/env python3
"""A stand-in for Qualcomm's qnn-net-run, for tests. It is NOT qnn-net-run: it takes its options, reads its input lists,
writes its output folder and fails in its words, and gets the numbers from Qualcomm's HTP backend in its x86 simulator.

It follows what is documented or was seen of the tool, for context binaries (--retrieve_context) alone:
* one inference per line of the input list; items are 'path' or 'name:=path'; lines with '#' or '%' at their start and
  empty lines do not count; paths are relative to the working folder;
* without native flags inputs are float32 and quantised by the tool (round half away from zero, clipped), outputs are
  dequantised to float32; Result_<i>/<name>.raw is float, <name>_native.raw native; float32 tensors are always <name>.raw;
* an input file must have exactly the tensor's size (a smaller one that divides it is a batch there: refused here);
* a context made by a newer SDK is refused with error 5000 (0x1388, "Using newer context binary on old SDK"); an older
  one is loaded; one for another Hexagon architecture is refused (there the result is 'indeterminate');
* execution_metadata.yaml: inferences_completed, graph_name, input_tensors, output_tensors with names, types, dimensions.

Assumed, because nothing said it: that an input list of several inputs without names is an error; that nothing is written
for an inference that fails, and the count in the metadata is that of those before it; exit code 1 for every failure.

What it needs and the real tool does not: context.onnx beside the binary, npudiff ($NPUDIFF) with an installed runtime
($QNN_STAND_IN_RUNTIME, an id: the 'SDK on the device'; newest), and the chipset that it plays ($QNN_STAND_IN_CHIPSET;
that of the context)."""
import argparse
import ctypes
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import h5py
import numpy as np

BANNER = "qnn-net-run STAND-IN of npudiff's tests; not Qualcomm's tool"


class Failure(Exception):
    """Ends the run: what the tool prints."""


def error(message):
    print(f"{time.monotonic() * 1000 % 1e6:9.1f}ms [ ERROR ] {message}", file=sys.stderr)


# ---- the context, by the SDK's own libQnnSystem.so ----

TYPES = {0x0008: "int8", 0x0016: "int16", 0x0032: "int32", 0x0064: "int64", 0x0108: "uint8", 0x0116: "uint16",
         0x0132: "uint32", 0x0164: "uint64", 0x0216: "float16", 0x0232: "float32", 0x0264: "float64",
         0x0308: "int8", 0x0316: "int16", 0x0332: "int32", 0x0408: "uint8", 0x0416: "uint16", 0x0432: "uint32",
         0x0508: "bool"}
TYPE_NAMES = {0x0008: "INT_8", 0x0016: "INT_16", 0x0032: "INT_32", 0x0064: "INT_64", 0x0108: "UINT_8",
              0x0116: "UINT_16", 0x0132: "UINT_32", 0x0164: "UINT_64", 0x0216: "FLOAT_16", 0x0232: "FLOAT_32",
              0x0264: "FLOAT_64", 0x0308: "SFIXED_POINT_8", 0x0316: "SFIXED_POINT_16", 0x0332: "SFIXED_POINT_32",
              0x0408: "UFIXED_POINT_8", 0x0416: "UFIXED_POINT_16", 0x0432: "UFIXED_POINT_32", 0x0508: "BOOL_8"}


def at(address, kind):
    return kind.from_address(address).value


class Tensor:
    """An input or output of the graph, from a Qnn_Tensor_t of 144 bytes."""

    def __init__(self, address):
        body = address + 8
        self.name = ctypes.string_at(at(body + 8, ctypes.c_uint64)).decode()
        self.code = at(body + 24, ctypes.c_uint32)
        self.dtype = np.dtype(TYPES[self.code])
        is_defined, encoding = at(body + 32, ctypes.c_uint32), at(body + 36, ctypes.c_uint32)
        self.is_quantised = self.code & 0xff00 in (0x0300, 0x0400) and is_defined == 1 and encoding == 0
        self.scale, self.offset = at(body + 40, ctypes.c_float), at(body + 44, ctypes.c_int32)
        dims = at(body + 80, ctypes.c_uint64)
        self.dims = [at(dims + 4 * i, ctypes.c_uint32) for i in range(at(body + 72, ctypes.c_uint32))]
        self.size = int(np.prod(self.dims, dtype=np.int64)) * self.dtype.itemsize

    def quantise(self, values):
        """What the tool does to floats: in double, half away from zero, clipped."""
        levels = 2.0 ** (8 * self.dtype.itemsize) - 1
        lowest = float(np.iinfo(self.dtype).min)
        scaled = values.astype(np.float64) / np.float64(self.scale) - self.offset - lowest
        rounded = np.sign(scaled) * np.floor(np.abs(scaled) + 0.5)
        return (np.clip(np.nan_to_num(rounded), 0, levels) + lowest).astype(self.dtype)

    def dequantise(self, codes):
        return ((codes.astype(np.float64) + self.offset) * np.float64(self.scale)).astype(np.float32)


class Context:
    def __init__(self, path, library):
        try:
            data = pathlib.Path(path).read_bytes()
        except OSError as problem:
            raise Failure(f"Failed to open input file: {path} ({problem.strerror})") from None
        system = ctypes.CDLL(str(library))
        providers, n = ctypes.c_uint64(), ctypes.c_uint32()
        system.QnnSystemInterface_getProviders(ctypes.byref(providers), ctypes.byref(n))
        interface = at(providers.value, ctypes.c_uint64)
        create = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)(at(interface + 32, ctypes.c_uint64))
        read = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p,
                                ctypes.c_void_p)(at(interface + 40, ctypes.c_uint64))
        handle, info, size = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
        self.buffer = ctypes.create_string_buffer(data, len(data)) # what is read points into it
        create(ctypes.byref(handle))
        if read(handle, self.buffer, len(data), ctypes.byref(info), ctypes.byref(size)) != 0:
            raise Failure("Failed to get context binary info.")
        body = info.value + 8
        self.build = ctypes.string_at(at(body + 8, ctypes.c_uint64)).decode()
        self.soc_model = at(body + 128, ctypes.c_uint32)
        graph = at(body + 96, ctypes.c_uint64) + 8
        self.graph = ctypes.string_at(at(graph, ctypes.c_uint64)).decode()

        def tensors(offset):
            first, count = at(graph + offset + 8, ctypes.c_uint64), at(graph + offset, ctypes.c_uint32)
            return [Tensor(first + 144 * i) for i in range(count)]

        self.inputs, self.outputs = tensors(8), tensors(24)


def build_number(build):
    return tuple(int(x) for x in re.match(r"v?(\d+)\.(\d+)\.(\d+)", build).groups())


class Sdk:
    """The 'SDK on the device': an installed runtime of npudiff."""

    def __init__(self):
        self.npudiff = os.environ.get("NPUDIFF", "npudiff")
        listed = json.loads(subprocess.run([self.npudiff, "runtimes", "--json"], capture_output=True, text=True,
                                           check=True).stdout)["runtimes"]
        wanted = os.environ.get("QNN_STAND_IN_RUNTIME")
        usable = [r for r in listed if r["installed"] and r["abi"] == "x86_64-linux" and "htp-sim" in r["uses"]
                  and wanted in (None, "", r["runtime"])]
        if not usable:
            raise Failure(f"Unable to load backend. dlerror(): npudiff has no runtime '{wanted or ''}'")
        self.runtime = usable[0]["runtime"]
        self.system = next(pathlib.Path(usable[0]["folder"]).rglob("libQnnSystem.so"))
        self.build = self.runtime.partition("-")[2] # "2.51.0" of "qairt-2.51.0"

    def check(self, context):
        if build_number(context.build) > build_number(self.build):
            print("QnnDsp <E> Using newer context binary on old SDK", file=sys.stderr)
            print("QnnDsp <E> Fail to get context blob with err 5000", file=sys.stderr)
            print("Failed to create context from binary with err 0x1388", file=sys.stderr)
            raise Failure("Could not create context from binary")
        wanted = os.environ.get("QNN_STAND_IN_CHIPSET")
        if wanted and wanted.lower() not in (self.chipset(context)["sm"].lower(), self.chipset(context)["alias"].lower()):
            print("Failed to create context from binary with err 0x138d", file=sys.stderr)
            raise Failure("Could not create context from binary")

    def chipset(self, context):
        chips = json.loads(subprocess.run([self.npudiff, "devices", "--json"], capture_output=True, text=True,
                                          check=True).stdout)["chipsets"]
        return next(c for c in chips if int(c["soc_model"]) == context.soc_model)


# ---- input lists ----

def sanitise(name):
    """As the tool looks for names."""
    clean = re.sub(r"\W+", "_", name, flags=re.ASCII)
    return clean if clean[:1].isalpha() or clean[:1] == "_" else "_" + clean


def read_list(path, context):
    try:
        lines = pathlib.Path(path).read_text().splitlines()
    except OSError as problem:
        raise Failure(f"Failed to open input file: {path} ({problem.strerror})") from None
    lines = [line for line in lines if line.strip() and line[0] not in "#%"]
    if not lines:
        raise Failure(f"Input list {path} is empty")
    return [read_line(line, context) for line in lines]


def read_line(line, context):
    """The path of every input, in the graph's order."""
    items = line.split()
    if len(items) != len(context.inputs):
        raise Failure(f"Number of inputs ({len(items)}) in '{line}' does not match the graph's "
                      f"({len(context.inputs)})")
    named = {}
    for item in items:
        name, mark, path = item.partition(":=")
        if mark:
            named[name] = named[sanitise(name)] = path
    if not named and len(items) == 1:
        return items
    if not named:
        raise Failure(f"Several inputs need names: '{line}'")
    missing = [t.name for t in context.inputs if t.name not in named]
    if missing:
        raise Failure(f"No path for input '{missing[0]}' in '{line}'")
    return [named[t.name] for t in context.inputs]


def read_input(path, tensor, is_native):
    try:
        data = pathlib.Path(path).read_bytes()
    except OSError:
        raise Failure(f"Failed to open input file: {path}") from None
    dtype = tensor.dtype if is_native else np.dtype(np.float32)
    expected = tensor.size // tensor.dtype.itemsize * dtype.itemsize
    if len(data) != expected:
        raise Failure(f"Given input file {path} with file size in bytes {len(data)}. If the model expects a batch size of "
                      f"one, the file size should match the tensor extent: {expected} bytes. If the model expects a batch "
                      f"size > 1, the file size should evenly divide the tensor extent: {expected} bytes.")
    values = np.frombuffer(data, dtype)
    if not is_native:
        values = tensor.quantise(values) if tensor.is_quantised else values.astype(tensor.dtype)
    return values.reshape(tensor.dims)


# ---- running and writing ----

def execute(context, sdk, binary, samples, folder):
    """Arrays of every output, [sample, dims...], from the simulator."""
    model = pathlib.Path(binary).with_name("context.onnx")
    if not model.exists():
        raise Failure(f"the stand-in needs '{model}' beside the binary")
    np.savez(folder / "in.npz", **{t.name: np.stack([s[i] for s in samples]) for i, t in enumerate(context.inputs)})
    device = f"htp-sim:{sdk.chipset(context)['sm']}@{sdk.runtime}"
    done = subprocess.run([sdk.npudiff, "capture", str(model), "-d", device, "--tensors", "none", "-q",
                           "-p", f"in={folder / 'in.npz'}", "-o", str(folder / "out.h5")], capture_output=True, text=True,
                          env=dict(os.environ, TMPDIR=str(folder))) # adbd names one that Android alone has
    if done.returncode != 0:
        raise Failure(f"Graph execution failed: {done.stderr.strip()}")
    with h5py.File(folder / "out.h5") as file:
        found = file["probes/in/outputs"]
        return {t.name: found[t.name][()] for t in context.outputs}


def write_result(folder, tensor, codes, style):
    folder.mkdir(parents=True, exist_ok=True)
    codes = np.ascontiguousarray(codes).astype(tensor.dtype)
    if tensor.dtype == np.float32:
        (folder / f"{tensor.name}.raw").write_bytes(codes.tobytes())
        return
    if style in ("float_only", "float_and_native"):
        floats = tensor.dequantise(codes) if tensor.is_quantised else codes.astype(np.float32)
        (folder / f"{tensor.name}.raw").write_bytes(floats.tobytes())
    if style in ("native_only", "float_and_native"):
        (folder / f"{tensor.name}_native.raw").write_bytes(codes.tobytes())


def describe(tensors, key):
    lines = [f"{key}:"]
    for t in tensors:
        lines += [f"  - tensor_name: {t.name}", f"    datatype: QNN_DATATYPE_{TYPE_NAMES[t.code]}",
                  f"    dimensions: [{', '.join(map(str, t.dims))}]"]
    return lines


def write_metadata(folder, context, n):
    lines = [f"inferences_completed: {n}", f"graph_name: {context.graph}",
             *describe(context.inputs, "input_tensors"), *describe(context.outputs, "output_tensors")]
    (folder / "execution_metadata.yaml").write_text("\n".join(lines) + "\n")


def run(options):
    sdk = Sdk()
    context = Context(options.retrieve_context, sdk.system)
    sdk.check(context)
    lines = read_list(options.input_list.split(",")[0], context)
    if options.num_inferences:
        lines = [lines[i % len(lines)] for i in range(options.num_inferences)]
    native = options.use_native_input_files or options.input_data_type == "native"
    style = "native_only" if options.use_native_output_files else options.output_data_type
    output = pathlib.Path(options.output_dir)
    output.mkdir(parents=True, exist_ok=True)
    samples, problem = [], None
    for line in lines:
        try:
            samples.append([read_input(p, t, native) for p, t in zip(line, context.inputs)])
        except Failure as failure:
            problem = failure
            break
    print("Executing Graphs")
    if samples:
        with tempfile.TemporaryDirectory() as scratch:
            results = execute(context, sdk, options.retrieve_context, samples, pathlib.Path(scratch))
        first = max(0, len(samples) - options.keep_num_outputs) if options.keep_num_outputs else 0
        for i in range(first, len(samples)):
            for tensor in context.outputs:
                write_result(output / f"Result_{i}", tensor, results[tensor.name][i], style)
    write_metadata(output, context, len(samples))
    if options.profiling_level:
        (output / "qnn-profiling-data_0.log").write_bytes(b"\x00stand-in: no profile\x00")
    if problem is not None:
        raise problem
    print("Finished Executing Graphs")


# ---- the command ----

class Parser(argparse.ArgumentParser):
    def error(self, message):
        error(message)
        sys.exit(1)


def parse(arguments):
    parser = Parser(prog="qnn-net-run", description=BANNER, allow_abbrev=False)
    add = parser.add_argument
    for name in ("model", "dlc_path", "retrieve_context", "backend", "input_list", "set_output_tensors",
                 "native_input_tensor_names", "profiling_option", "perf_profile", "config_file", "op_packages",
                 "duration", "log_level", "batch_multiplier"):
        add(f"--{name}")
    for name in ("use_native_input_files", "use_native_output_files", "debug", "shared_buffer", "synchronous",
                 "use_mmap", "validate_binary"):
        add(f"--{name}", action="store_true")
    add("--output_dir", default="./output")
    add("--input_data_type", choices=("float", "native"), default="float")
    add("--output_data_type", choices=("float_only", "native_only", "float_and_native"), default="float_only")
    add("--profiling_level", choices=("basic", "detailed", "backend", "client"))
    add("--num_inferences", type=int, default=0)
    add("--keep_num_outputs", type=int, default=0)
    add("--version", action="store_true")
    options = parser.parse_args(arguments)
    if options.version:
        return options
    if options.model and options.retrieve_context:
        parser.error("--model and --retrieve_context are mutually exclusive")
    if not options.retrieve_context:
        parser.error("Missing option: --model or --retrieve_context (the stand-in runs context binaries alone)")
    for name in ("backend", "input_list"):
        if not getattr(options, name):
            parser.error(f"Missing option: --{name}")
    if options.debug or options.set_output_tensors:
        parser.error("--debug and --set_output_tensors cannot be used with --retrieve_context")
    if options.use_native_input_files and options.native_input_tensor_names:
        parser.error("--use_native_input_files and --native_input_tensor_names are mutually exclusive")
    return options


def check_config(path):
    """The outer file names the inner one; both must be there and be JSON."""
    if path is None:
        return
    try:
        outer = json.loads(pathlib.Path(path).read_text())
        json.loads(pathlib.Path(outer["backend_extensions"]["config_file_path"]).read_text())
    except (OSError, ValueError, KeyError) as problem:
        raise Failure(f"Failed to parse config file {path}: {problem}") from None


def main():
    options = parse(sys.argv[1:])
    if options.version:
        print(BANNER)
        return 0
    try:
        check_config(options.config_file)
        run(options)
    except Failure as failure:
        error(failure)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
