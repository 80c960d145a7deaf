"""Cases of golden/field of whole runs: tests that fail for some sizes and types only, steps that amplify one code, and logs."""
import numpy as np
from field_arithmetic import dense_values
from field_build import Case, Graph, Quant
from onnx import TensorProto


def tests(slug, names, wrong, samples=2):
    """Results of many small products, one tensor for each test: `wrong` says which of them come out wrong."""
    rng = np.random.default_rng(sum(map(ord, slug)))
    case, cpu, device = Case(slug), {}, {}
    for name, n in names:
        cpu[name] = rng.normal(0, 1, (samples, n, 2)).astype(np.float32)
        noise = rng.normal(0, 1, cpu[name].shape) if wrong(name, n) else np.zeros(cpu[name].shape)
        device[name] = (cpu[name] + noise).astype(np.float32)
    case.dump("cpu", **cpu)
    case.dump("device", **device)


def small_n():
    """Plain floating point types are wrong for n of 1 to 8 and right from 9 on; quantised types are right."""
    types, sizes = ["f32", "f16", "bf16", "q4_0", "q8_0"], [1, 4, 8, 9, 16]
    tests("float-types-small-n", [(f"{t}.n{n}", n) for t in types for n in sizes],
          lambda name, n: name[0] in "fb" and n <= 8)


def ubatch_32():
    """Prompts of 32 tokens and more are wrong, up to 31 they are right."""
    tests("wrong-from-32-tokens", [(f"{t}.tokens{n}", n) for t in ("q4_0", "q8_0") for n in (1, 8, 16, 31, 32, 33, 64)],
          lambda name, n: n >= 32)


def iq_from_5():
    """IQ types differ in bits at n of 5 and 8, and agree at 1 to 4; other types agree everywhere."""
    types = ["iq3_s", "iq4_xs", "q4_0", "f16"]
    tests("iq-types-from-n5", [(f"{t}.n{n}", n) for t in types for n in (1, 2, 3, 4, 5, 8)],
          lambda name, n: name.startswith("iq") and n >= 5)


def one_row():
    """One row and a zero point: wrong for every block length; more rows, or no zero point: right."""
    tests("asymmetric-one-row", [(f"{kind}.blk{block}.m{m}", m) for kind in ("symmetric", "asymmetric")
                                 for block in (16, 32, 64, 128) for m in (1, 2, 4)], lambda name, m: name.startswith("asym") and m == 1)


def argmax_at_ties():
    """Rounding twice changes codes by one; where the two largest are equal or one apart, the label changes with them."""
    rng = np.random.default_rng(3900)
    x, w, y = Quant(1 / 64, 128), Quant(0.02, 0, "int8"), Quant(1.2, 128)
    weights = rng.integers(-127, 128, (32, 10))
    graph = Graph()
    name = graph.node("MatMul", [graph.input("x", [1, 32], x), graph.quantised("w", w, weights)], "logits", y)
    graph.node("ArgMax", [name], "label", axis=1, keepdims=0)
    graph.output("label", [1], TensorProto.INT64)
    values = rng.uniform(-1.5, 1.5, (48, 1, 32)).astype(np.float32)
    codes = x.encode(values)
    exact = dense_values(codes, x, weights, w) / np.float64(np.float32(1.2))
    case = Case("argmax-at-ties")
    case.model(graph)
    case.dump("inputs", x=values)
    for name, made in (("tflite", np.rint(exact)), ("tvm", np.floor(np.floor(exact * 4 + 0.5) / 4 + 0.5))):
        logits = y.clip(made + 128)
        case.dump(name, x=codes, logits=logits, label=logits.argmax(-1).astype(np.int64))


def mean_then_rsqrt():
    """A mean that is one code too high, by rounding twice, goes through the table of 1 / sqrt: up to 37 codes."""
    rng = np.random.default_rng(7441)
    x, mean, y = Quant(1 / 16, 0), Quant(0.25, 0), Quant(1 / 96, 0)
    graph = Graph()
    axes = graph.constant("axes", np.int64([2]))
    name = graph.node("ReduceMean", [graph.input("x", [1, 4, 5], x), axes], "mean", mean, keepdims=1)
    root = graph.node("Sqrt", [name], "root")
    graph.node("Reciprocal", [root], "y", y, output="y")
    graph.output("y", [1, 4, 1])
    levels = rng.choice([0.3, 0.4, 0.6, 1.0, 3.0], (32, 1, 4, 1))
    values = (levels * rng.uniform(0.6, 1.4, (32, 1, 4, 5))).astype(np.float32)
    codes = x.encode(values)
    exact = codes.astype(np.float64).mean(-1, keepdims=True) / 16 / 0.25
    case = Case("mean-then-rsqrt")
    case.model(graph)
    case.dump("inputs", x=values)
    for who, made in (("reference", np.rint(exact)), ("litert", np.floor(np.floor(exact * 2 + 0.5) / 2 + 0.5))):
        means = mean.clip(made)
        with np.errstate(divide="ignore"):
            case.dump(who, x=codes, mean=means, y=y.clip(np.minimum(np.rint(96 / np.sqrt(mean.decode(means))), 255)))


def log_cases():
    """The lines as the threads print them, in a log of the form that the tools write."""
    Case("tcm-too-small").text("qnn.log", [
        "[INFO] [Qnn ExecuTorch]: Running level=3 optimization.",
        "     0.0ms [ ERROR ] initial_sequencer_dp.cc:149:ERROR:A single op, \"q::ForceFormat_Crouton\" (Op ID: 1165b600001430), "
        "requires 0x2400000 bytes of TCM, which is greater than the TCM size of 0x800000!",
        "     0.0ms [ ERROR ] QnnDsp <E> RouterHexagon graph prepare failed 13",
        "     0.0ms [ ERROR ] QnnDsp <E> Failed to finalize graph (id: 1) with err 1002"])
    Case("tcm-hidden-behind-1002").text("onnxruntime.log", [
        "[V:onnxruntime:, qnn_backend_manager.cc:249 QnnLogging] tcm_migration.cc:2088:ERROR:Operator named q::*InputSlicePad "
        "(0x1654900000002) not sufficiently tiled to fit in TCM. Requires 12441600 bytes",
        "[V:onnxruntime:, qnn_backend_manager.cc:249 QnnLogging] graph_prepare.cc:2808:ERROR:Graph prepare TCM Migration "
        "action failed",
        "[V:onnxruntime:, qnn_backend_manager.cc:249 QnnLogging] graph_prepare.cc:2868:ERROR:Graph prepare failed during "
        "optimization with err: 17, Fatal Optimize",
        "[E:onnxruntime:, qnn_model.cc:167 FinalizeGraphs] Failed to finalize QNN graph. Error code: 1002"])
    Case("execute-error-6001").text("logcat.txt", [
        "07-16 10:11:12.345  4242  4260 E onnxruntime: Non-zero status code returned while running "
        "QNN_17163145943253667351_257 node. Name:'QNNExecutionProvider_QNN_17163145943253667351_257_64' Status Message: QNN "
        "graph execute error. Error code: 6001"])
    Case("arch-overwritten").text("executorch.log", [
        "[INFO] [Qnn ExecuTorch]: create QNN Logger with log_level 2",
        "[WARNING] [Qnn ExecuTorch]: QnnDsp <W> Initializing HtpProvider",
        "[WARNING] [Qnn ExecuTorch]: QnnDsp <W> Performance Estimates unsupported",
        "[WARNING] [Qnn ExecuTorch]: QnnDsp <W> Arch 68 set by custom config is different from arch associated with SoC 57, "
        "will overwrite it to 75",
        "[INFO] [Qnn ExecuTorch]: Running level=3 optimization."])
    Case("stub-of-another-sdk").text("executorch.log", [
        "[WARNING] [Qnn ExecuTorch]:  <W> Initializing HtpProvider",
        "[ERROR] [Qnn ExecuTorch]:  <E> Stub lib id mismatch: expected (v2.28.2.241116104011_103376), detected "
        "(v2.25.17.241017130936_18858)",
        "[ERROR] [Qnn ExecuTorch]:  <E> Unable to load Remote symbols 1008",
        "[WARNING] [Qnn ExecuTorch]:  <W> Function not called, PrepareLib isn't loaded!"])
    Case("all-nodes-on-cpu").text("onnxruntime.log", [
        "[E:onnxruntime:, qnn_backend_manager.cc] Failed to create device. Error: QNN_DEVICE_ERROR_INVALID_CONFIG: Invalid "
        "config values",
        "[W:onnxruntime:, session_state.cc] Some nodes were not assigned to the preferred execution providers which may or may "
        "not have an negative impact on performance.",
        "[V:onnxruntime:, session_state.cc] Node placements",
        "[V:onnxruntime:, session_state.cc]  All nodes placed on [CPUExecutionProvider]. Number of nodes: 142"])


CASES = [small_n, ubatch_32, iq_from_5, one_row, argmax_at_ties, mean_then_rsqrt, log_cases]
