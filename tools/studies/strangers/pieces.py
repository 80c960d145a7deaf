"""Pieces that blocks of operators share: weights, activations, convolutions."""
import numpy as np


def chance(graph, share):
    return graph.random.random() < share


def pick(graph, values):
    return values[int(graph.random.integers(len(values)))]


def normal(graph, shape, size):
    """Weights whose rows differ in size, as trained ones do."""
    values = graph.random.normal(0, size, shape)
    if len(shape) > 1:
        values = values * np.exp(graph.random.normal(0, 0.4, (shape[0],) + (1,) * (len(shape) - 1)))
    return values


def relu6(graph, x):
    return graph.node("Clip", [x, graph.floats(0), graph.floats(6)])


def hard_swish_in_parts(graph, x):
    """As exporters write it that have no HardSwish: x * clip(x + 3, 0, 6) / 6."""
    gate = relu6(graph, graph.node("Add", [x, graph.floats(3)]))
    product = graph.node("Mul", [x, gate])
    return graph.node("Div", [product, graph.floats(6)]) if chance(graph, 0.5) else graph.node("Mul", [product, graph.floats(1 / 6)])


def silu(graph, x):
    return graph.node("Mul", [x, graph.node("Sigmoid", [x])])


def hard_silu(graph, x):
    return graph.node("Mul", [x, graph.node("HardSigmoid", [x], alpha=1 / 6, beta=0.5)])


def gelu(graph, x):
    if graph.opset >= 20:
        return graph.node("Gelu", [x], approximate="none")
    erf = graph.node("Erf", [graph.node("Div", [x, graph.floats(np.sqrt(2))])])
    return graph.node("Mul", [graph.node("Mul", [x, graph.node("Add", [erf, graph.floats(1)])]), graph.floats(0.5)])


def prelu(graph, x):
    rank = len(graph.shapes[x])
    if rank != 4:
        return graph.node("LeakyRelu", [x], alpha=0.1)
    return graph.node("PRelu", [x, graph.floats(graph.random.uniform(0.05, 0.4, (graph.shapes[x][1], 1, 1)), "slope")])


ACTIVATIONS = {
    "Relu": lambda graph, x: graph.node("Relu", [x]),
    "Clip": relu6,
    "LeakyRelu": lambda graph, x: graph.node("LeakyRelu", [x], alpha=float(pick(graph, [0.01, 0.1, 0.2]))),
    "PRelu": prelu,
    "Sigmoid": lambda graph, x: graph.node("Sigmoid", [x]),
    "Tanh": lambda graph, x: graph.node("Tanh", [x]),
    "Gelu": gelu,
    "HardSigmoid": lambda graph, x: graph.node("HardSigmoid", [x], alpha=1 / 6, beta=0.5),
    "HardSwish": lambda graph, x: graph.node("HardSwish", [x]),
    "HardSwish in parts": hard_swish_in_parts,
    "SiLU": silu,
    "x * HardSigmoid": hard_silu,
    "Elu": lambda graph, x: graph.node("Elu", [x], alpha=1.0),
}
ACTIVATION_WEIGHTS = [6, 4, 2, 1.5, 1.5, 1.5, 1.5, 1, 1.5, 1, 2, 1, 1]


def activation(graph, x):
    weights = np.array(ACTIVATION_WEIGHTS)
    return list(ACTIVATIONS.values())[int(graph.random.choice(len(weights), p=weights / weights.sum()))](graph, x)


def batch_norm(graph, x):
    channels = graph.shapes[x][1]
    random = graph.random
    return graph.node("BatchNormalization", [
        x, graph.floats(random.uniform(0.5, 1.5, channels), "gamma"), graph.floats(random.normal(0, 0.2, channels), "beta"),
        graph.floats(random.normal(0, 0.2, channels), "mean"), graph.floats(random.uniform(0.5, 2, channels), "variance")])


def conv(graph, x, channels, kernel, **attributes):
    group = attributes.get("group", 1)
    fan_in = graph.shapes[x][1] // group * kernel[0] * kernel[1]
    inputs = [x, graph.floats(normal(graph, (channels, graph.shapes[x][1] // group, *kernel), np.sqrt(2 / fan_in)), "weight")]
    if chance(graph, 0.8):
        inputs.append(graph.floats(graph.random.normal(0, 0.15, channels), "bias"))
    return graph.node("Conv", inputs, kernel_shape=list(kernel), **attributes)


def after_conv(graph, y):
    if chance(graph, 0.2):
        y = batch_norm(graph, y)
    return activation(graph, y) if chance(graph, 0.7) else y


# --- Blocks of any shape.

def channel_constant(graph, x):
    """By a constant for each channel, or by one scalar: normalisation of inputs, LayerScale, FiLM."""
    op_type = pick(graph, ["Add", "Sub", "Mul", "Div"])
    rank = len(graph.shapes[x])
    channels = graph.shapes[x][1 if rank == 4 else -1]
    shape = () if chance(graph, 0.5) else ((channels, 1, 1) if rank == 4 else (channels,))
    values = graph.random.uniform(0.4, 2, shape) * (1 if op_type == "Div" else graph.random.choice([-1, 1], shape))
    return graph.node(op_type, [x, graph.floats(values)])


def activation_alone(graph, x):
    return activation(graph, x)


def batch_norm_alone(graph, x):
    return batch_norm(graph, x)


def positive_function(graph, x):
    """The root of what is not negative, and Exp of what is not large."""
    if chance(graph, 0.5):
        return graph.node("Sqrt", [graph.node("Relu", [x])])
    return graph.node("Exp", [graph.node("Tanh", [x])])
