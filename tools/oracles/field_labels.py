"""Cases of golden/field in which the numbers are right and something said of them, or where they lie, is wrong."""
import numpy as np
from field_arithmetic import N_SAMPLES, dense_values, real, write_dense
from field_build import Case, Graph, Quant, dense, one_operator


def image_without_128():
    """Pixels 0..255 as int8: the demo cast the bytes and did not subtract 128."""
    rng = np.random.default_rng(10930)
    x = Quant(1.0, -128, "int8")
    pixels = rng.integers(0, 256, (8, 1, 3, 4, 4))
    case = Case("image-without-128")
    case.model(one_operator("Identity", [1, 3, 4, 4], x, x))
    codes = pixels.astype(np.uint8).view(np.int8)
    case.dump("inputs", x=pixels.astype(np.float32))
    case.dump("device", x=codes, y=codes)


def unsigned_in_signed():
    """Codes 0..255 written through an int8 conversion that saturates: nothing above 127 is left."""
    rng = np.random.default_rng(666)
    x = Quant(1 / 64, 128)
    values = rng.normal(0, 1, (N_SAMPLES, 1, 24))
    codes = np.minimum(x.encode(values), 127).astype(np.uint8)
    case = Case("uint8-saturates-as-int8")
    case.model(one_operator("Identity", [1, 24], x, x))
    case.dump("inputs", x=values.astype(np.float32))
    case.dump("device", x=codes, y=codes)


def scale_of_ones():
    """A scale of ones quantised with 0.005 / 255: 51000 saturates to 255, which is 0.005. Outputs are 200 times too small."""
    rng = np.random.default_rng(417)
    values = rng.normal(0, 1, (8, 1, 4, 16)).astype(np.float32)
    mean, variance = values.mean(-1, keepdims=True), values.var(-1, keepdims=True)
    gamma = rng.uniform(0.5, 1.5, 16).astype(np.float32)
    normal = ((values - mean) / np.sqrt(variance + np.float32(1e-5))).astype(np.float32)
    one = np.float32(255 * np.float32(0.005 / 255))
    case = Case("layernorm-ones-saturate")
    case.model(one_operator("LayerNormalization", [1, 4, 16], None, None, constants=[gamma], axis=-1, epsilon=1e-5))
    case.dump("inputs", x=values)
    case.dump("cpu", y=normal * gamma)
    case.dump("htp", y=normal * one * gamma)


def one_step_of_twelve():
    """The twelve outputs that the thread prints of both sides, as printed: multiples of 0.003724, three of them one apart."""
    sim = [0.059581, 0.037238, 0.018619, -0.14523, -0.402175, -0.014895,
           0.044686, 0.011172, 0.059581, -0.171297, -0.014895, 0.227154]
    dsp = [0.059581, 0.037238, 0.018619, -0.148954, -0.398451, -0.014895,
           0.044686, 0.011172, 0.059581, -0.171297, -0.011172, 0.227154]
    case = Case("snpe-one-step")
    case.dump("quantsim", logits=np.float32([sim]))
    case.dump("dsp", logits=np.float32([dsp]))


def still_channels_last():
    """A converter made the input NCHW and left the output NHWC; its bytes are read in the shape of the NCHW output."""
    rng = np.random.default_rng(1973)
    x, y = Quant(1 / 32, 128), Quant(1 / 32, 0)
    values = rng.normal(0, 1.5, (8, 1, 3, 5, 4))
    codes = x.encode(values)
    outputs = y.encode(np.maximum(x.decode(codes), 0))
    case = Case("output-still-nhwc")
    case.model(one_operator("Relu", [1, 3, 5, 4], x, y))
    case.dump("inputs", x=values.astype(np.float32))
    case.dump("device", x=codes, y=np.ascontiguousarray(outputs.transpose(0, 1, 3, 4, 2)).reshape(outputs.shape))


def nearest(values):
    return values.repeat(2, axis=-1).repeat(2, axis=-2)


def resize_reads_nhwc():
    """Resize by 2 of a tensor whose memory is NHWC, read as if it were NCHW: the values are the same ones, elsewhere."""
    rng = np.random.default_rng(31986)
    values = rng.normal(0, 1, (4, 1, 3, 4, 4)).astype(np.float32)
    memory = np.ascontiguousarray(values.transpose(0, 1, 3, 4, 2)).reshape(values.shape)
    graph = Graph()
    scales = graph.constant("scales", np.float32([1, 1, 2, 2]))
    graph.node("Resize", [graph.input("x", [1, 3, 4, 4]), "", scales], "y", mode="nearest", output="y",
               coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    graph.output("y", [1, 3, 8, 8])
    case = Case("resize-reads-nhwc")
    case.model(graph)
    case.dump("inputs", x=values)
    case.dump("cpu", y=nearest(values))
    case.dump("migraphx", y=nearest(memory))


def transposed_twice():
    """Square weights: the pass transposes them once more and nothing throws."""
    rng = np.random.default_rng(38118)
    x, w, y = Quant(1 / 64, 128), Quant(0.02, 0, "int8"), Quant(0.25, 128)
    weights = rng.integers(-127, 128, (16, 16))
    write_dense("weights-transposed-twice", (x, w, y), weights, rng.uniform(-2, 2, (N_SAMPLES, 1, 16)),
                lambda codes: y.encode(dense_values(codes, x, weights.T, w)))


def scales_of_other_axis():
    """Per-channel scales of the weights belong to the output channels; the backend gives them to the input channels."""
    rng = np.random.default_rng(557)
    x, y = Quant(1 / 64, 128), Quant(0.25, 128)
    scales = np.float32(rng.uniform(0.005, 0.05, 16))
    w = Quant(scales, 0, "int8")
    weights = rng.integers(-127, 128, (16, 16))
    values = rng.uniform(-2, 2, (N_SAMPLES, 1, 16))
    codes = x.encode(values)
    made = ((codes.astype(np.float64) - 128) * np.float64(scales)) @ weights * real(x)
    case = Case("scales-of-other-axis")
    case.model(dense(x, (weights, w, 1), y))
    case.dump("inputs", x=values.astype(np.float32))
    case.dump("device", x=codes, y=y.encode(made))


def padded_channels():
    """9 x 9 outputs lie 84 floats apart, since a channel begins at a multiple of 16 bytes; they are read 81 apart."""
    rng = np.random.default_rng(1014)
    outputs = rng.normal(0, 1, (4, 1, 4, 9, 9)).astype(np.float32)
    memory = np.zeros((4, 4, 84), np.float32)
    memory[:, :, :81] = outputs.reshape(4, 4, 81)
    case = Case("padded-channels-read-dense")
    case.dump("reference", conv2=outputs)
    case.dump("read", conv2=memory.reshape(4, -1)[:, :324].reshape(outputs.shape))


def depth():
    """Nine layers; the scale of each is 4.6 times that of the one before, and every layer of the device rounds twice. In
    real units the difference grows 200 000 times, in steps it does not."""
    rng = np.random.default_rng(3978)
    graph, scale, before = Graph(), 1 / 64, "x"
    quant, weights = Quant(scale, 128), Quant(1 / 64, 0, "int8")
    name = graph.input("x", [1, 16], quant)
    values = rng.uniform(-1.5, 1.5, (N_SAMPLES, 1, 16))
    reference = {"x": quant.encode(values)}
    device = dict(reference)
    for layer in range(1, 10):
        kernel = rng.integers(-127, 128, (16, 16))
        this, of_input = "y" if layer == 9 else f"layer{layer}", quant
        scale *= 4.6
        quant = Quant(scale, 128)
        name = graph.node("MatMul", [name, graph.quantised(f"w{layer}", weights, kernel)], this, quant,
                          output="y" if layer == 9 else None)
        for made, round_to_int in ((reference, np.rint), (device, lambda v: np.floor(np.floor(v * 16 + 0.5) / 16 + 0.5))):
            exact = dense_values(made[before], of_input, kernel, weights) / real(quant)
            made[this] = quant.clip(round_to_int(exact) + 128)
        before = this
    graph.output("y", [1, 16])
    case = Case("aimet-depth")
    case.model(graph)
    case.dump("inputs", x=values.astype(np.float32))
    case.dump("quantsim", **reference)
    case.dump("device", **device)


def last_digit_of_scale():
    """The same codes dequantised with the two scales that the thread prints, which are neighbours among the float32."""
    rng = np.random.default_rng(4075)
    scale, other = 0.0015838879626244307, 0.0015838880790397525
    x = Quant(scale, 0, "int8")
    codes = rng.integers(-128, 128, (8, 1, 32)).astype(np.int8)
    case = Case("last-digit-of-scale")
    case.model(one_operator("Identity", [1, 32], x, x))
    case.dump("inputs", x=x.decode(codes).astype(np.float32))
    case.dump("codes", x=codes, y=codes)
    case.dump("floats", y=(np.float32(other) * codes.astype(np.float32)).astype(np.float32))


def converter_chose_encodings():
    """A tensor that the encodings lack gets parameters that the converter works out from its own data: codes of another scale
    and another zero point are read with those of the simulation."""
    rng = np.random.default_rng(4071)
    x, w, y = Quant(1 / 64, 128), Quant(0.02, 0, "int8"), Quant(0.25, 128)
    weights = rng.integers(-127, 128, (32, 16))
    write_dense("converter-chose-encodings", (x, w, y), weights, rng.uniform(-1, 1, (N_SAMPLES, 1, 32)),
                lambda codes: Quant(0.137, 109).encode(dense_values(codes, x, weights, w)))


def int8_called_uint8():
    """Codes of int8 with a scale of 0.0186584 and a zero point of -14, written as uint8: the bytes are right, the type is not."""
    rng = np.random.default_rng(1361)
    x, y = Quant(0.01865844801068306, -14, "int8"), Quant(0.01865844801068306, -14, "int8")
    values = rng.uniform(-0.5, 1, (8, 1, 3, 4, 4)).astype(np.float32)
    codes = x.encode(values)
    case = Case("int8-called-uint8")
    case.model(one_operator("Identity", [1, 3, 4, 4], x, y))
    case.dump("inputs", x=values)
    case.dump("device", x=codes.view(np.uint8), y=codes.view(np.uint8))


def bgr_for_rgb():
    """A network trained on RGB is fed BGR: the first and the last channel of its input are exchanged."""
    rng = np.random.default_rng(657)
    x, y = Quant(1 / 255, 0), Quant(1 / 255, 0)
    values = np.float32(rng.integers(0, 256, (8, 1, 3, 4, 4)) / 255 * np.float32([1, 0.7, 0.4]).reshape(3, 1, 1))
    codes = x.encode(values)[:, :, ::-1]
    case = Case("bgr-for-rgb")
    case.model(one_operator("Identity", [1, 3, 4, 4], x, y))
    case.dump("inputs", x=values)
    case.dump("device", x=codes, y=codes)


def labels_in_another_order():
    """Float and quantised model predict alike, and both are right in about none of the images: the labels are of another list."""
    rng = np.random.default_rng(669)
    x, w, y = Quant(1 / 64, 128), Quant(0.02, 0, "int8"), Quant(0.3, 128)
    weights = rng.integers(-127, 128, (32, 10))
    values = rng.uniform(-1.5, 1.5, (40, 1, 32)).astype(np.float32)
    codes = x.encode(values)
    exact = dense_values(codes, x, weights, w)
    case = Case("labels-in-another-order")
    case.model(dense(x, (weights, w), y))
    predicted = exact.argmax(-1).reshape(-1)
    case.dump("inputs", x=values, labels=((predicted + 3) % 10).astype(np.int64))
    case.dump("float", y=exact.astype(np.float32))
    case.dump("int8", x=codes, y=y.encode(exact))


def cpu_runs_floats():
    """The Arm CPU backend does not run the model quantised: its outputs are those of floats, on no grid of codes."""
    rng = np.random.default_rng(1626)
    x, w, y = Quant(1 / 64, 128), Quant(0.02, 0, "int8"), Quant(0.25, 128)
    weights = rng.integers(-127, 128, (32, 16))
    values = rng.uniform(-2, 2, (N_SAMPLES, 1, 32)).astype(np.float32)
    case = Case("backend-runs-floats")
    case.model(dense(x, (weights, w), y))
    case.dump("inputs", x=values)
    case.dump("device", x=values, y=(values @ (weights * np.float32(0.02)).astype(np.float32)))


CASES = [image_without_128, unsigned_in_signed, scale_of_ones, one_step_of_twelve, still_channels_last, resize_reads_nhwc,
         transposed_twice, scales_of_other_axis, padded_channels, depth, last_digit_of_scale, converter_chose_encodings,
         int8_called_uint8, bgr_for_rgb, labels_in_another_order, cpu_runs_floats]
