"""Cases of golden/field of memory: outputs that are old, unwritten or another tensor's, and runs that differ."""
import numpy as np
from field_arithmetic import dense_values
from field_build import Case, Graph, Quant


def bytes_as_floats():
    """A float32 ReLU runs on int8 data: five bytes are no whole number of floats, and what it writes is zero."""
    rng = np.random.default_rng(10961)
    values = rng.integers(-128, 128, (8, 5)).astype(np.int8)
    values[0] = -128, -127, -126, -10, 5
    case = Case("relu-on-bytes-gives-zeros")
    case.dump("eager", relu=np.maximum(values, 0))
    case.dump("xnnpack", relu=np.zeros_like(values))


def chain():
    """Two MatMuls, the codes of each, and the inputs: what the cases of stale and unwritten outputs are made of."""
    rng = np.random.default_rng(5857)
    x, w, mid, y = Quant(1 / 64, 128), Quant(0.02, 0, "int8"), Quant(0.25, 128), Quant(1.5, 128)
    kernels = [rng.integers(-127, 128, (32, 32)), rng.integers(-127, 128, (32, 8))]
    graph = Graph()
    name = graph.node("MatMul", [graph.input("x", [1, 32], x), graph.quantised("w1", w, kernels[0])], "hidden", mid)
    graph.node("MatMul", [name, graph.quantised("w2", w, kernels[1])], "y", y, output="y")
    graph.output("y", [1, 8])
    values = rng.uniform(-2, 2, (12, 1, 32)).astype(np.float32)

    def back(hidden):
        return y.encode(dense_values(hidden, mid, kernels[1], w))

    codes = x.encode(values)
    return graph, values, codes, mid.encode(dense_values(codes, x, kernels[0], w)), back


def stale_input():
    """Inputs bound once are not copied again: every inference but the first works on the inputs of the one before."""
    graph, values, codes, _, _ = chain()
    _, _, _, hidden, back = chain()
    late = np.concatenate([hidden[:1], hidden[:-1]])
    case = Case("stale-bound-input")
    case.model(graph)
    case.dump("inputs", x=values)
    case.dump("device", x=codes, hidden=late, y=back(late))


def prompt_independent():
    """Whatever the prompt is, the NPU gives the output of the first one."""
    graph, values, codes, hidden, back = chain()
    case = Case("output-ignores-input")
    case.model(graph)
    case.dump("inputs", x=values)
    case.dump("device", x=codes, hidden=np.repeat(hidden[:1], 12, axis=0), y=back(np.repeat(hidden[:1], 12, axis=0)))


def first_quarter():
    """A tensor of 32 values is taken for 8 packs of 4: a quarter of it is worked out, and the rest is the zero point."""
    graph, values, codes, hidden, back = chain()
    hidden = hidden.copy()
    hidden[..., 8:] = 128
    case = Case("only-first-quarter")
    case.model(graph)
    case.dump("inputs", x=values)
    case.dump("device", x=codes, hidden=hidden, y=back(hidden))


def bytes_in_float_buffer():
    """A delegate writes one byte for each element into a buffer of floats: bytes that are read as floats come first, and
    three quarters of the buffer stay as they were."""
    rng = np.random.default_rng(19364)
    values = rng.normal(0, 1, (6, 1, 8, 8)).astype(np.float32)
    codes = np.clip(np.rint(values / 0.03), -128, 127).astype(np.int8)
    buffer = np.zeros((6, 256), np.int8)
    buffer[:, :64] = codes.reshape(6, 64)
    case = Case("bytes-in-float-buffer")
    case.dump("portable", attention=values)
    case.dump("ethosu", attention=buffer.view(np.float32).reshape(values.shape))


def scratch_not_zeroed():
    """Padding of a packed operand holds what the last model left there, 0 or 0.5 here: the result is 1.0 or 1.5, by which
    model ran before."""
    case = Case("scratch-not-zeroed")
    right = np.ones((4, 1, 2, 3), np.float32)
    case.dump("alone", conv=right)
    case.dump("after-b", conv=right)
    case.dump("after-a", conv=right + np.float32(0.5))


def later_runs_differ():
    """The first run is right; from the second on memory is planned, and these agree with one another on wrong values."""
    rng = np.random.default_rng(18672)
    right = rng.normal(0, 1, (3, 1, 24)).astype(np.float32)
    wrong = right.copy()
    wrong[1, 0, 8:] = rng.normal(0, 1, 16)
    case = Case("later-runs-differ")
    for run in range(1, 5):
        case.dump(f"run{run}", state=right if run == 1 else wrong)


def window_varies():
    """64 bytes of the output, from byte 64 on, hold something else in every run; the rest is the same."""
    rng = np.random.default_rng(2008)
    right = rng.normal(0, 1, (2, 1, 256)).astype(np.float16)
    case = Case("64-bytes-vary")
    for run in range(1, 4):
        made = right.copy()
        made[..., 32:64] = rng.integers(0, 0x7800, (2, 1, 32)).astype(np.uint16).view(np.float16)
        case.dump(f"run{run}", act=made)


def only_first_of_batch():
    """The engine was built for a batch of 1: of 8 images the first has its output and the others have zeros."""
    rng = np.random.default_rng(437)
    right = rng.uniform(0, 1, (8, 1, 12)).astype(np.float32)
    made = np.zeros_like(right)
    made[0] = right[0]
    case = Case("only-first-of-batch")
    case.dump("torch", features=right)
    case.dump("tensorrt", features=made)


def buffer_reused():
    """An intermediate tensor that is made an output shows what was put into its buffer later: here the third layer's values. What
    the network computes is right."""
    rng = np.random.default_rng(59311)
    quants = [Quant(1 / 64, 128), Quant(0.25, 128), Quant(4.0, 128), Quant(60.0, 128)]
    w, graph = Quant(0.02, 0, "int8"), Graph()
    name, values = graph.input("x", [1, 32], quants[0]), rng.uniform(-2, 2, (12, 1, 32)).astype(np.float32)
    arrays = {"x": quants[0].encode(values)}
    codes = arrays["x"]
    for layer, (before, quant) in enumerate(zip(quants, quants[1:]), 1):
        kernel = rng.integers(-127, 128, (32, 32))
        this = "y" if layer == 3 else f"layer{layer}"
        name = graph.node("MatMul", [name, graph.quantised(f"w{layer}", w, kernel)], this, quant,
                          output="y" if layer == 3 else None)
        codes = arrays[this] = quant.encode(dense_values(codes, before, kernel, w))
    graph.output("y", [1, 32])
    case = Case("reused-buffer-shown")
    case.model(graph)
    case.dump("inputs", x=values)
    case.dump("device", **(arrays | {"layer1": arrays["y"]}))


def runs_vary():
    """One detection in four runs, as printed: the last places differ, as the maintainers expect of this provider."""
    runs = [[364.738, 370.296, 452.347, 452.397, 0.930632, 7], [364.732, 370.294, 452.347, 452.404, 0.930677, 7],
            [364.737, 370.292, 452.347, 452.398, 0.930689, 7], [364.74, 370.285, 452.351, 452.401, 0.930678, 7]]
    case = Case("runs-vary-a-little")
    for number, made in enumerate(runs, 1):
        case.dump(f"run{number}", boxes=np.float32([made]))


CASES = [bytes_as_floats, stale_input, prompt_independent, first_quarter, bytes_in_float_buffer, scratch_not_zeroed,
         later_runs_differ, window_varies, only_first_of_batch, buffer_reused, runs_vary]
