"""Blocks of images [1, channels, height, width]. Each takes (graph, tensor) and gives the tensor that the network continues with, or
None where it does not fit the shape."""
import numpy as np

from pieces import (activation, activation_alone, after_conv, batch_norm_alone, chance, channel_constant, conv, normal, pick,
                    positive_function)


def pointwise(graph, x):
    return after_conv(graph, conv(graph, x, int(pick(graph, [8, 12, 16, 24])), (1, 1)))


def convolution(graph, x):
    """3x3 or 5x5, perhaps with stride 2, dilations or groups."""
    _, channels, height, width = graph.shapes[x]
    size = int(pick(graph, [3, 3, 3, 5]))
    stride = int(pick(graph, [1, 1, 2])) if min(height, width) >= 8 else 1
    dilation = int(pick(graph, [1, 1, 1, 2])) if stride == 1 and min(height, width) >= 8 else 1
    group = int(pick(graph, [1, 1, 2])) if channels % 2 == 0 else 1
    pad = dilation * (size // 2) if chance(graph, 0.8) else 0
    if min(height, width) + 2 * pad <= dilation * (size - 1):
        return None
    return after_conv(graph, conv(graph, x, int(pick(graph, [8, 12, 16])), (size, size), strides=[stride] * 2,
                                  dilations=[dilation] * 2, group=group, pads=[pad] * 4))


def depthwise(graph, x):
    _, channels, height, width = graph.shapes[x]
    stride = 2 if min(height, width) >= 8 and chance(graph, 0.35) else 1
    return after_conv(graph, conv(graph, x, channels, (3, 3), group=channels, strides=[stride] * 2, pads=[1] * 4))


def transposed_conv(graph, x):
    _, channels, height, _ = graph.shapes[x]
    if height > 16:
        return None
    outputs = int(pick(graph, [4, 8, 12]))
    size = int(pick(graph, [2, 3, 4]))
    pad = {2: [0] * 4, 3: [1] * 4, 4: [1] * 4}[size]
    weight = graph.floats(normal(graph, (channels, outputs, size, size), np.sqrt(2 / channels / size)), "weight")
    inputs = [x, weight] + ([graph.floats(graph.random.normal(0, 0.15, outputs), "bias")] if chance(graph, 0.7) else [])
    extra = {"output_padding": [1, 1]} if size == 3 else {}
    y = graph.node("ConvTranspose", inputs, kernel_shape=[size] * 2, strides=[2, 2], pads=pad, **extra)
    return activation(graph, y) if chance(graph, 0.5) else y


def residual(graph, x):
    channels = graph.shapes[x][1]
    y = activation(graph, conv(graph, x, channels, (3, 3), pads=[1] * 4))
    if chance(graph, 0.5):
        y = conv(graph, y, channels, (1, 1))
    y = graph.node("Add", [x, y])
    return graph.node("Relu", [y]) if chance(graph, 0.4) else y


def squeeze_excite(graph, x):
    channels = graph.shapes[x][1]
    y = graph.node("GlobalAveragePool", [x]) if chance(graph, 0.6) else reduce_space(graph, x, "ReduceMean")
    y = graph.node("Relu", [conv(graph, y, max(channels // 4, 2), (1, 1))])
    y = conv(graph, y, channels, (1, 1))
    gate = graph.node("Sigmoid", [y]) if chance(graph, 0.5) else graph.node("HardSigmoid", [y], alpha=1 / 6, beta=0.5)
    return graph.node("Mul", [x, gate])


def pool(graph, x):
    _, _, height, width = graph.shapes[x]
    if min(height, width) < 6:
        return None
    size, stride, pad = pick(graph, [(2, 2, 0), (3, 2, 1), (3, 1, 1)])
    op_type = pick(graph, ["MaxPool", "AveragePool"])
    extra = {"count_include_pad": int(chance(graph, 0.5))} if op_type == "AveragePool" else {}
    return graph.node(op_type, [x], kernel_shape=[size] * 2, strides=[stride] * 2, pads=[pad] * 4, **extra)


def reduce_space(graph, x, op_type=None):
    op_type = op_type or pick(graph, ["ReduceMean", "ReduceMean", "ReduceSum", "ReduceMax"])
    if op_type == "ReduceSum" or graph.opset >= 18:
        return graph.node(op_type, [x, graph.integers([2, 3], "axes")], keepdims=1)
    return graph.node(op_type, [x], axes=[2, 3], keepdims=1)


def concat_branches(graph, x):
    first = graph.node("Relu", [conv(graph, x, 8, (1, 1))])
    second = conv(graph, x, int(pick(graph, [4, 8])), (3, 3), pads=[1] * 4)
    return graph.node("Concat", [first, second] + ([x] if chance(graph, 0.4) else []), axis=1)


def split_and_join(graph, x):
    """Half of the channels go through an operator, as in ShuffleNet and YOLO."""
    channels = graph.shapes[x][1]
    if channels % 2 or channels < 4:
        return None
    half = channels // 2
    first, second = graph.node("Split", [x, graph.integers([half, half], "split")], 2, axis=1)
    second = activation(graph, conv(graph, second, half, (1, 1)))
    return graph.node("Concat", [first, second], axis=1) if chance(graph, 0.7) else graph.node("Mul", [first, second])


def shuffle_channels(graph, x):
    _, channels, height, width = graph.shapes[x]
    if channels % 2 or channels < 4:
        return None
    y = graph.node("Reshape", [x, graph.integers([1, 2, channels // 2, height, width])])
    y = graph.node("Transpose", [y], perm=[0, 2, 1, 3, 4])
    return graph.node("Reshape", [y, graph.integers([1, channels, height, width])])


def crop(graph, x):
    _, channels, height, width = graph.shapes[x]
    if min(height, width) < 6:
        return None
    axis = int(pick(graph, [1, 2, 3]))
    size = graph.shapes[x][axis]
    if size < 4:
        return None
    return graph.node("Slice", [x, graph.integers([1], "starts"), graph.integers([size - 1], "ends"), graph.integers([axis], "axes"),
                                graph.integers([1], "steps")])


def patches(graph, x):
    """Every second row, and every second column: the Focus layer of YOLO, without its Concat."""
    _, _, height, width = graph.shapes[x]
    if height % 2 or width % 2 or height < 8:
        return None
    parts = [graph.node("Slice", [x, graph.integers([start, 0], "starts"), graph.integers([height, width], "ends"),
                                  graph.integers([2, 3], "axes"), graph.integers([2, 1], "steps")]) for start in (0, 1)]
    return graph.node("Concat", parts, axis=1)


def pad_space(graph, x):
    return graph.node("Pad", [x, graph.integers([0, 0, 1, 1, 0, 0, 1, 1], "pads"), graph.floats(0)], mode="constant") \
        if chance(graph, 0.6) else graph.node("Pad", [x, graph.integers([0, 0, 1, 1, 0, 0, 1, 1], "pads")], mode="reflect")


def resize(graph, x):
    if graph.shapes[x][2] > 12:
        return None
    mode, place = pick(graph, [("nearest", "asymmetric"), ("linear", "half_pixel"), ("linear", "align_corners"), ("linear", "asymmetric")])
    extra = {"nearest_mode": "floor"} if mode == "nearest" else {}
    return graph.node("Resize", [x, "", graph.floats([1, 1, 2, 2], "scales")], mode=mode, coordinate_transformation_mode=place, **extra)


def depth_to_space(graph, x):
    channels, height = graph.shapes[x][1:3]
    if channels % 4 or height > 12:
        return None
    return graph.node("DepthToSpace", [x], blocksize=2, mode=pick(graph, ["CRD", "DCR"]))


def space_to_depth(graph, x):
    channels, height, width = graph.shapes[x][1:]
    if height % 2 or width % 2 or channels > 8:
        return None
    return graph.node("SpaceToDepth", [x], blocksize=2)


def instance_norm(graph, x):
    channels, height = graph.shapes[x][1:3]
    if height < 3:
        return None
    return graph.node("InstanceNormalization", [x, graph.floats(graph.random.uniform(0.5, 1.5, channels), "gamma"),
                                                graph.floats(graph.random.normal(0, 0.2, channels), "beta")], epsilon=1e-5)


def to_tokens(graph, x):
    """From an image to a sequence, as a vision transformer does it."""
    _, channels, height, width = graph.shapes[x]
    if height * width > 144:
        return None
    y = graph.node("Reshape", [x, graph.integers([1, channels, height * width])])
    return graph.node("Transpose", [y], perm=[0, 2, 1])


IMAGE_BLOCKS = [
    (pointwise, 3), (convolution, 5), (depthwise, 3), (transposed_conv, 1.5), (residual, 2.5), (squeeze_excite, 1.5), (pool, 2.5),
    (reduce_space, 0.7), (concat_branches, 1.5), (split_and_join, 1.2), (shuffle_channels, 0.6), (crop, 0.8), (patches, 0.5),
    (pad_space, 0.8), (resize, 1.5), (depth_to_space, 0.8), (space_to_depth, 0.4), (instance_norm, 0.8), (channel_constant, 1.5),
    (activation_alone, 1), (batch_norm_alone, 0.8), (positive_function, 0.7), (to_tokens, 0.8)]
