"""Cases of golden/field of float dumps: half precision, its overflow, NaN, rows that repeat."""
import numpy as np
from field_build import Case, Graph, one_operator


def half(values):
    with np.errstate(over="ignore"):
        return np.asarray(values).astype(np.float16)


def clip_in_half():
    """A float32 Clip that the HTP computes in half precision: -4.54545403 comes back as -4.54687548, the float32 one beyond the
    half -4.546875. QAIRT 2.51.0 in the simulator gives all these 192 values, bit for bit."""
    rng = np.random.default_rng(26499)
    values = rng.uniform(-10, 10, (8, 1, 2, 3, 4)).astype(np.float32)
    values[0, 0, 0, 0, 3] = -4.54545403
    halves = half(np.clip(half(values), -5, 5)).astype(np.float32)
    case = Case("clip-in-half-precision")
    case.model(one_operator("Clip", [1, 2, 3, 4], None, None, constants=[np.float32(-5), np.float32(5)]))
    case.dump("inputs", x=values)
    case.dump("cpu", y=np.clip(values, -5, 5))
    case.dump("htp", y=np.nextafter(halves, np.copysign(np.float32(np.inf), halves)))


def conv_overflows():
    """Sums of up to 80 000 where half precision ends at 65504 (65519 still rounds to it): one layer of three overflows, and
    what follows it takes the infinities on."""
    rng = np.random.default_rng(3607)
    values = rng.uniform(0, 40, (8, 1, 24)).astype(np.float32)
    kernels = [np.float32(rng.uniform(0, 1, (24, 16)) * s) for s in (6, 5, 0.001)]
    kernels[1], kernels[2] = kernels[1][:16], kernels[2][:16]
    graph, name = Graph(), "x"
    graph.input("x", [1, 24])
    cpu, phone, arrays = values, half(values), {"cpu": {}, "phone": {}}
    for layer, kernel in enumerate(kernels):
        this = ("conv69", "conv70", "y")[layer]
        name = graph.node("MatMul", [name, graph.constant(f"w{layer}", kernel)], this)
        cpu = (cpu @ kernel).astype(np.float32)
        phone = half(phone.astype(np.float32) @ half(kernel).astype(np.float32))
        arrays["cpu"][this], arrays["phone"][this] = cpu, phone.astype(np.float32)
    graph.output("y", [1, 16])
    case = Case("conv-overflows-half")
    case.model(graph)
    case.dump("inputs", x=values)
    for who, made in arrays.items():
        case.dump(who, **made)


def pool_sum_overflows():
    """The mean of 256 x 256 values is about 1.2 and their sum 78 000: a half precision sum is infinite, its mean too. Maps
    whose sum stays below 65504 are right. The case has means of 64 values of up to 2000 each: the sums are the same."""
    rng = np.random.default_rng(2698)
    means = rng.uniform(200, 1900, (6, 1, 8, 1, 1))
    values = (means * rng.uniform(0.9, 1.1, (6, 1, 8, 8, 8))).astype(np.float32)
    sums = np.zeros((6, 1, 8), np.float16)
    with np.errstate(over="ignore"):
        for element in half(values).reshape(6, 1, 8, 64).transpose(3, 0, 1, 2):
            sums = half(sums.astype(np.float32) + element.astype(np.float32))
    case = Case("pool-sum-overflows-half")
    case.dump("cpu", pool=values.mean((3, 4)).astype(np.float32))
    case.dump("vulkan", pool=half(sums.astype(np.float32) / 64).astype(np.float32))


def infinities_become_nan():
    """A MatMul of a text encoder gives 5 infinities beside finite values of up to 60928; the norm after it makes NaN of
    them: 1 / sqrt(inf) is 0, and inf * 0 is NaN."""
    rng = np.random.default_rng(36504)
    wo = rng.normal(0, 9000, (8, 1, 64)).astype(np.float32)
    wo[wo > 60000] = 60928
    for sample, element in ((0, 3), (2, 17), (2, 40), (5, 9), (7, 63)):
        wo[sample, 0, element] = 66000 + 1000 * sample
    wo[1, 0, 5] = 60928
    residual = rng.normal(0, 100, wo.shape).astype(np.float32)

    def norm(x):
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            square = np.square(x.astype(np.float64)).mean(-1, keepdims=True)
            return (x * (1 / np.sqrt(square))).astype(np.float32)

    case = Case("matmul-infinite-norm-nan")
    gpu_wo = half(wo).astype(np.float32)
    gpu_add = half(gpu_wo + half(residual).astype(np.float32)).astype(np.float32)
    case.dump("cpu", **{"encoder/wo": wo, "encoder/residual": wo + residual, "norm": norm(wo + residual)})
    case.dump("gpu", **{"encoder/wo": gpu_wo, "encoder/residual": gpu_add, "norm": half(norm(gpu_add)).astype(np.float32)})


def scale_too_late():
    """half(1016) * 127 is 129032, infinite in half precision, before it is multiplied by a scale that would make it small:
    values behind the cliff are infinite though the right ones are at most 2048."""
    rng = np.random.default_rng(34528)
    sums = np.abs(rng.normal(0, 300, (8, 1, 64))).clip(0, 1037).round()
    sums[0, 0, 0] = 1016
    weight_scale = np.where(rng.random((1, 1, 64)) < 0.3, 127.0, rng.uniform(20, 60, (1, 1, 64)))
    weight_scale[..., 0] = 127
    case = Case("scaled-too-late-half")
    first = half(half(sums).astype(np.float32) * half(weight_scale).astype(np.float32)).astype(np.float32)
    case.dump("cpu", fc=(sums * weight_scale * 0.0158).astype(np.float32))
    case.dump("gpu", fc=half(first * np.float32(0.0158)).astype(np.float32))


def norm_becomes_zero():
    """val^2 / n summed in half precision is infinite once |val| exceeds sqrt(65504 n): the row becomes exactly zero, without
    NaN. n is 64 here: rows of magnitude above about 2000."""
    rng = np.random.default_rng(29034)
    magnitude = np.float32([1, 20, 300, 1500, 4000, 9000, 20000, 50000]).reshape(8, 1, 1)
    values = half(rng.normal(0, 1, (8, 1, 64)).clip(-1.2, 1.2) * magnitude).astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        variance = np.square(values / 64 ** 0.5, dtype=np.float64).sum(-1, keepdims=True)
        rows = half(variance).astype(np.float32)
        device = np.where(np.isinf(rows), 0, values / np.sqrt(np.where(np.isinf(rows), 1, rows) + 1e-5))
    case = Case("norm-collapses-to-zero")
    case.dump("cpu", norm=(values / np.sqrt(variance + 1e-5)).astype(np.float32))
    case.dump("cuda", norm=half(device).astype(np.float32))


def masked_rows_nan():
    """-65504 + (-17) is minus infinity in half precision; a row of nothing else gives NaN in the softmax."""
    rng = np.random.default_rng(17306)
    scores = rng.normal(0, 6, (6, 1, 4, 8)).astype(np.float32)
    masked = np.zeros((6, 1, 4, 8), bool)
    masked[:, :, 0] = True
    scores[::2, :, 0] = rng.uniform(-40, -33, (3, 1, 8))

    def softmax(x):
        with np.errstate(invalid="ignore"):
            e = np.exp(x - x.max(-1, keepdims=True))
            return (e / e.sum(-1, keepdims=True)).astype(np.float32)

    sums = scores + np.where(masked, np.float32(-65504), np.float32(0))
    in_half = half(half(scores).astype(np.float32) + np.where(masked, np.float32(-65504), np.float32(0))).astype(np.float32)
    case = Case("masked-row-nan")
    case.dump("cpu", **{"attention/scores": sums, "probabilities": softmax(sums)})
    case.dump("gpu", **{"attention/scores": in_half, "probabilities": half(softmax(in_half)).astype(np.float32)})


def equal_rows():
    """Rows of float32 as printed, and the one row that half precision gave for all six."""
    cpu = [[6.0549564, -3.183563, -2.8680713], [6.1917925, -3.354034, -2.8344436], [6.169338, -3.3007898, -2.8652153],
           [6.1567574, -3.3921351, -2.7612722], [6.079842, -3.1844094, -2.8921494], [6.04279, -3.3625133, -2.6769447]]
    case = Case("instancenorm-equal-rows")
    case.dump("float32", scores=np.float32([cpu]))
    case.dump("float16", scores=np.float32([[[3.953125, -1.5253906, -2.4238281]] * 6]))


def rows_of_bias():
    """Some rows of a MatMul are zero, so that the rows of the output are the bias and nothing else."""
    rng = np.random.default_rng(12726)
    values = rng.normal(0, 1, (2, 1, 20, 16)).astype(np.float32)
    kernel, bias = rng.normal(0, 0.1, (16, 24)).astype(np.float32), rng.normal(0, 0.3, 24).astype(np.float32)
    product = half(values).astype(np.float32) @ half(kernel).astype(np.float32)
    broken = product.copy()
    broken[:, :, [3, 4, 7, 11, 12, 13, 18]] = 0
    graph = Graph()
    made = graph.node("MatMul", [graph.input("x", [1, 20, 16]), graph.constant("w", kernel)], "product")
    graph.node("Add", [made, graph.constant("bias", bias)], "y")
    graph.output("y", [1, 20, 24])
    case = Case("rows-are-the-bias")
    case.model(graph)
    case.dump("inputs", x=values)
    case.dump("cpu", product=half(product).astype(np.float32), y=half(product + bias).astype(np.float32))
    case.dump("cuda", product=half(broken).astype(np.float32), y=half(broken + bias).astype(np.float32))


def sign_of_nan():
    """Sign of NaN is NaN; the GPU says -1."""
    rng = np.random.default_rng(37732)
    values = rng.normal(0, 1, (4, 1, 16)).astype(np.float32)
    values[0, 0, [2, 9]] = values[3, 0, 4] = np.nan
    cpu = np.sign(values)
    case = Case("sign-of-nan")
    case.model(one_operator("Sign", [1, 16], None, None))
    case.dump("inputs", x=values)
    case.dump("cpu", y=cpu)
    case.dump("gpu", y=np.where(np.isnan(cpu), np.float32(-1), cpu))


CASES = [clip_in_half, conv_overflows, pool_sum_overflows, infinities_become_nan, scale_too_late, norm_becomes_zero,
         masked_rows_nan, equal_rows, rows_of_bias, sign_of_nan]
