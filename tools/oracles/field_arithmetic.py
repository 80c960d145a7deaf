"""Cases of golden/field whose device computes with integers in another way than ONNX says: accumulators, clipping, rounding."""
import numpy as np
from field_build import Case, Graph, Quant, dense, one_operator

N_SAMPLES = 24


def real(quant):
    """The scale as the model has it, a float32, in double precision."""
    return np.float64(np.float32(quant.scale))


def dense_values(codes, x, weights, w):
    """The exact sums of a MatMul of codes, in real units."""
    return (codes.astype(np.int64) - x.zero_point) @ (weights.astype(np.int64) - w.zero_point) * real(x) * real(w)


def write_dense(slug, quants, weights, values, device):
    """A MatMul of which the device has the codes `device`."""
    x, w, y = quants
    case = Case(slug)
    codes = x.encode(values)
    case.model(dense(x, (weights, w), y))
    case.dump("inputs", x=values.astype(np.float32))
    case.dump("device", x=codes, y=device(codes))
    return case, codes


def pairs_saturate():
    """210 * -81 + 198 * -80 = -32850 is cut to -32768; other weights and inputs are random."""
    rng = np.random.default_rng(16105)
    x, w, y = Quant(1 / 64), Quant(0.02, 0, "int8"), Quant(0.25, 128)
    weights = rng.integers(-127, 128, (32, 16))
    weights[0:2, 0] = -81, -80
    values = rng.uniform(0, 4, (N_SAMPLES, 1, 32))
    values[0, 0, 0:2] = 210 / 64, 198 / 64

    def device(codes):
        products = codes.astype(np.int64)[..., None] * weights
        sums = np.clip(products[..., 0::2, :] + products[..., 1::2, :], -32768, 32767).sum(-2)
        return y.encode(sums * real(x) * real(w))

    write_dense("avx2-pairs-saturate", (x, w, y), weights, values, device)


def neon_lane_wraps():
    """-128 * -128 + -128 * -128 = 32768 wraps to -32768 in a lane of 16 bits: k and k + 8 of 16 share one."""
    rng = np.random.default_rng(31573)
    x, w, y = Quant(0.02, 0, "int8"), Quant(0.01, 0, "int8"), Quant(0.5, 0, "int8")
    weights = rng.integers(-128, 128, (32, 16))
    weights[rng.random(weights.shape) < 0.3] = -128
    values = real(x) * np.where(rng.random((N_SAMPLES, 1, 32)) < 0.3, -128, rng.integers(-128, 128, (N_SAMPLES, 1, 32)))

    def device(codes):
        products = (codes.astype(np.int64)[..., None] * weights).reshape(N_SAMPLES, 1, 2, 2, 8, 16)
        lanes = products.sum(axis=3)
        lanes = (lanes + 32768) % 65536 - 32768
        return y.encode(lanes.sum(axis=(2, 3)) * real(x) * real(w))

    write_dense("neon-lane-wraps", (x, w, y), weights, values, device)


def softmax_wraps():
    """A probability of 1 is 256 - 128 = 128: clipped to 255 instead of 127, it wraps to -128."""
    rng = np.random.default_rng(29727)
    x, y = Quant(0.25, 0, "int8"), Quant(1 / 256, -128, "int8")
    values = rng.normal(0, 1, (N_SAMPLES, 1, 10))
    sure = rng.integers(0, 10, N_SAMPLES)
    values[np.arange(N_SAMPLES), 0, sure] += np.where(np.arange(N_SAMPLES) % 3 == 0, 25, 3)
    codes = x.encode(values)
    powers = np.exp(x.decode(codes))
    shares = powers / powers.sum(-1, keepdims=True)
    case = Case("softmax-wraps")
    case.model(one_operator("Softmax", [1, 10], x, y, axis=-1))
    case.dump("inputs", x=values.astype(np.float32))
    case.dump("device", x=codes, y=np.clip(np.rint(shares * 256) - 128, -255, 255).astype(np.int64).astype(np.int8))


def clips_at_minus_127():
    """The issue's own inputs, -129 to 130 at a scale of 1, and random ones; -128 is given as -127."""
    rng = np.random.default_rng(3442)
    x = Quant(1.0, 0, "int8")
    values = np.rint(rng.uniform(-140, 140, (N_SAMPLES, 1, 16)) * 4) / 4
    values[0, 0, :8] = -129, -128, -127, -126, 126, 127, 128, 130
    case = Case("quantize-clips-at-minus-127")
    case.model(one_operator("Identity", [1, 16], x, x))
    codes = np.maximum(x.encode(values), -127).astype(np.int8)
    case.dump("inputs", x=values.astype(np.float32))
    case.dump("device", x=codes, y=codes)


def zero_point_127():
    """Symmetric uint8: the middle is 128; a range of 254 steps gives 127."""
    rng = np.random.default_rng(25823)
    x, w, y = Quant(1 / 64, 128), Quant(0.02, 0, "int8"), Quant(0.25, 128)
    weights = rng.integers(-127, 128, (32, 16))
    values = rng.uniform(-2, 2, (N_SAMPLES, 1, 32))
    write_dense("symmetric-zero-point-127", (x, w, y), weights, values,
                lambda codes: Quant(0.25, 127).encode(dense_values(codes, x, weights, w)))


def quantise_only(slug, quant, values, round_to_int):
    """A QuantizeLinear whose rounding of value / scale is the device's own, and nothing after it."""
    case = Case(slug)
    values = values.astype(np.float32)
    codes = quant.clip(round_to_int(np.float64(values) / real(quant)) + quant.zero_point)
    case.model(one_operator("Identity", list(values.shape[1:]), quant, quant))
    case.dump("inputs", x=values)
    case.dump("device", x=codes, y=codes)


def float16_truncates():
    """0.0500183 / 0.0999756 is cast to 0 where 1 is the nearest: 768 halves; the thread checked 4096."""
    rng = np.random.default_rng(18576)
    values = rng.uniform(-12, 12, 768).astype(np.float16)
    values[:2] = 0.050018310546875, -0.050018310546875
    quantise_only("float16-quantize-truncates", Quant(0.0999755859375, 0, "int8"), values.reshape(16, 1, 48), np.trunc)


def composite_truncates():
    """A scale of 0.02 and a zero point of 7, inputs from -2 to 2: half of the codes are one too near to zero."""
    rng = np.random.default_rng(51304)
    quantise_only("composite-quantize-truncates", Quant(0.02, 7, "int8"), rng.uniform(-2, 2, (16, 1, 48)), np.trunc)


def half_away(values):
    return np.copysign(np.floor(np.abs(values) + 0.5), values)


def openvino_ties():
    """Half away from zero: only inputs that lie half way between two codes differ. One in eight does."""
    rng = np.random.default_rng(25045)
    values = rng.integers(-900, 900, (16, 1, 32)) / 8 * 0.5
    quantise_only("openvino-half-away", Quant(0.5, 1, "int8"), values, half_away)


def tvm_upward():
    """Requantisation by 2^-3 rounds half up: -1.5 becomes -1. Sums are whole numbers, so that one in eight is a tie."""
    rng = np.random.default_rng(4131)
    x, w, y = Quant(1 / 16, 0, "int8"), Quant(1 / 16, 0, "int8"), Quant(1 / 32, 0, "int8")
    weights = rng.integers(-7, 8, (16, 16))
    values = rng.integers(-15, 16, (N_SAMPLES, 1, 16)) / 16
    write_dense("tvm-rounds-upward", (x, w, y), weights, values,
                lambda codes: y.clip(np.floor(dense_values(codes, x, weights, w) / real(y) + 0.5)))


def tflite_rounds_twice():
    """7984 * 1583594044 / 2^40 is 11.4988: rounded at 2^31 and again at 2^9 it is 12. The multiplier is 1583594044 / 2^40."""
    rng = np.random.default_rng(25087)
    multiplier, shift = 1583594044, 9
    x, w = Quant(1.0, 0, "int8"), Quant(1.0, 0, "int8")
    y = Quant(float(np.float32(2.0 ** (31 + shift) / multiplier)), 0, "int8")
    weights = rng.integers(-127, 128, (32, 32))
    values = rng.integers(-127, 128, (24, 1, 32)).astype(np.float64)
    values[0, 0] = 0
    values[0, 0, :2], weights[:2, 0] = (62, 1), (127, 110)

    def device(codes):
        sums = (codes.astype(np.int64) @ weights)
        high = (sums * multiplier + (1 << 30)) >> 31
        low = (np.abs(high) + (1 << (shift - 1))) >> shift
        return y.clip(np.sign(high) * low)

    write_dense("tflite-rounds-twice", (x, w, y), weights, values, device)


def ncnn_fma():
    """int8 sums to float32 as sum * scale + bias, then half away from zero: with one rounding (fma) and with two. The biases put
    the sums of the first sample beside a tie, where the last place of a float decides."""
    rng = np.random.default_rng(3224)
    x, w, y = Quant(4.956984e-04 / 0.02, 0, "int8"), Quant(0.02, 0, "int8"), Quant(0.03, 0, "int8")
    weights = rng.integers(-127, 128, (32, 32))
    values = real(x) * rng.integers(-127, 128, (24, 1, 32))
    codes = x.encode(values)
    sums = codes.astype(np.int64) @ weights
    scale, inverse = np.float32(real(x) * real(w)), np.float32(1 / real(y))
    steps = rng.integers(-100, 100, 32) + 0.5
    bias = np.float32(steps * real(y) - sums[0, 0] * np.float64(scale))
    fused = np.float32(np.float64(sums) * np.float64(scale) + np.float64(bias))
    apart = np.float32(sums) * scale + bias
    case = Case("ncnn-fma")
    case.model(dense(x, (weights, w), y, bias))
    case.dump("inputs", x=values.astype(np.float32))
    for name, made in (("x86", fused), ("arm", apart)):
        case.dump(name, x=codes, y=y.clip(half_away(np.float64(made * inverse))))


def magnitude():
    """-10 at a scale of 1 gives 10, not 0: the rounding instruction drops the sign."""
    rng = np.random.default_rng(56290)
    values = np.rint(rng.uniform(-200, 300, (N_SAMPLES, 1, 16)))
    values[0, 0, :5] = -10, -100, 0, 5, 300
    quantise_only("uint8-keeps-magnitude", Quant(1.0, 0), values, lambda v: np.abs(np.rint(v)))


def float32_beside_tie():
    """The issue's parameters: -112.50000794 in exact numbers is -112.5 in float32, a tie that goes to -112."""
    a, b, y = Quant(0.02534690499305725, -106, "int8"), Quant(0.035809919238090515, -120, "int8"), \
        Quant(0.0365859717130661, -105, "int8")
    rng = np.random.default_rng(25512)
    graph = Graph()
    constant = rng.integers(-128, 128, (1, 32))
    constant[0, 0] = -122
    graph.node("Add", [graph.input("x", [1, 32], a), graph.quantised("b", b, constant)], "y", y, output="y")
    graph.output("y", [1, 32])
    codes = rng.integers(-128, 128, (16, 1, 32)).astype(np.int8)
    codes[0, 0, 0] = -114
    case = Case("float32-beside-tie")
    case.model(graph)
    sums = np.float32(a.scale) * np.float32(codes.astype(np.int32) + 106) + np.float32(b.scale) * np.float32(constant + 120)
    case.dump("inputs", x=a.decode(codes).astype(np.float32))
    case.dump("device", x=codes, y=y.clip(np.rint(np.float64(sums / np.float32(y.scale))) - 105))


CASES = [pairs_saturate, neon_lane_wraps, softmax_wraps, clips_at_minus_127, zero_point_127, float16_truncates,
         composite_truncates, openvino_ties, tvm_upward, tflite_rounds_twice, ncnn_fma, magnitude,
         float32_beside_tie]
