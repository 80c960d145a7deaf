"""Blocks of sequences [1, tokens, width] and of vectors [1, width]. Each takes (graph, tensor) and gives the tensor that the network
continues with, or None where it does not fit the shape."""
import numpy as np

from pieces import activation, activation_alone, chance, channel_constant, gelu, normal, pick, positive_function, silu


def dense(graph, x, outputs):
    width = graph.shapes[x][-1]
    weight = graph.floats(normal(graph, (outputs, width), np.sqrt(1.5 / width)).T.copy(), "weight")
    y = graph.node("MatMul", [x, weight])
    return graph.node("Add", [y, graph.floats(graph.random.normal(0, 0.15, outputs), "bias")]) if chance(graph, 0.7) else y


def projection(graph, x):
    y = dense(graph, x, int(pick(graph, [16, 24, 32])))
    return activation(graph, y) if chance(graph, 0.6) else y


def mlp(graph, x):
    y = dense(graph, gelu(graph, dense(graph, x, 32)), graph.shapes[x][-1])
    return graph.node("Add", [x, y]) if chance(graph, 0.6) else y


def gated_mlp(graph, x):
    gate = silu(graph, dense(graph, x, 24))
    return dense(graph, graph.node("Mul", [gate, dense(graph, x, 24)]), graph.shapes[x][-1])


def attention(graph, x):
    width = graph.shapes[x][-1]
    query, key, value = (dense(graph, x, 16) for _ in range(3))
    scores = graph.node("MatMul", [query, graph.node("Transpose", [key], perm=[0, 2, 1])])
    scores = graph.node("Mul", [scores, graph.floats(0.25)]) if chance(graph, 0.5) else graph.node("Div", [scores, graph.floats(4)])
    y = graph.node("MatMul", [graph.node("Softmax", [scores], axis=-1), value])
    return graph.node("Add", [x, dense(graph, y, width)]) if chance(graph, 0.6) else y


def attention_of_heads(graph, x):
    _, tokens, width = graph.shapes[x]
    heads, depth = 2, 8

    def head(perm):
        y = graph.node("Reshape", [dense(graph, x, heads * depth), graph.integers([1, tokens, heads, depth])])
        return graph.node("Transpose", [y], perm=perm)
    scores = graph.node("MatMul", [head([0, 2, 1, 3]), head([0, 2, 3, 1])])
    y = graph.node("MatMul", [graph.node("Softmax", [scores], axis=-1), head([0, 2, 1, 3])])
    return graph.node("Reshape", [graph.node("Transpose", [y], perm=[0, 2, 1, 3]), graph.integers([1, tokens, heads * depth])])


def layer_norm(graph, x):
    width = graph.shapes[x][-1]
    return graph.node("LayerNormalization", [x, graph.floats(graph.random.uniform(0.5, 1.5, width), "gamma"),
                                             graph.floats(graph.random.normal(0, 0.2, width), "beta")], axis=-1, epsilon=1e-5)


def reduce_last(graph, x, op_type):
    if op_type == "ReduceSum" or graph.opset >= 18:
        return graph.node(op_type, [x, graph.integers([-1], "axes")], keepdims=1)
    return graph.node(op_type, [x], axes=[-1], keepdims=1)


def rms_norm(graph, x):
    """In parts, as exporters of language models write it."""
    mean = reduce_last(graph, graph.node("Mul", [x, x]), "ReduceMean")
    root = graph.node("Sqrt", [graph.node("Add", [mean, graph.floats(1e-5)])])
    y = graph.node("Div", [x, root])
    return graph.node("Mul", [y, graph.floats(graph.random.uniform(0.5, 1.5, graph.shapes[x][-1]), "gamma")])


def position(graph, x):
    return graph.node("Add", [x, graph.floats(graph.random.normal(0, 0.3, graph.shapes[x]), "position")])


def take_tokens(graph, x):
    tokens = graph.shapes[x][1]
    if tokens < 4:
        return None
    return graph.node("Gather", [x, graph.integers(sorted(graph.random.choice(tokens, tokens // 2, replace=False)), "indices")], axis=1)


def reduce_tokens(graph, x):
    return reduce_last(graph, x, pick(graph, ["ReduceMean", "ReduceSum", "ReduceMax"]))


def soft_max(graph, x):
    return graph.node("Softmax", [x], axis=-1)


def split_tokens(graph, x):
    width = graph.shapes[x][-1]
    if width % 2 or width < 8:
        return None
    first, second = graph.node("Split", [x, graph.integers([width // 2] * 2, "split")], 2, axis=2)
    return graph.node("Mul", [first, graph.node("Sigmoid", [second])])


def join_tokens(graph, x):
    return graph.node("Concat", [x, dense(graph, x, graph.shapes[x][-1])], axis=int(pick(graph, [1, 2])))


TOKEN_BLOCKS = [
    (projection, 4), (mlp, 2), (gated_mlp, 1), (attention, 2), (attention_of_heads, 1.2), (layer_norm, 2.5), (rms_norm, 1.5), (position, 1),
    (take_tokens, 1), (reduce_tokens, 1), (soft_max, 0.8), (split_tokens, 0.8), (join_tokens, 0.8), (channel_constant, 1.5),
    (activation_alone, 1.5), (positive_function, 1)]


# --- Blocks of vectors [1, width].

def gemm(graph, x):
    width, outputs = graph.shapes[x][-1], int(pick(graph, [10, 16, 32, 48]))
    transposed = chance(graph, 0.6)
    weight = normal(graph, (outputs, width), np.sqrt(1.5 / width))
    bias = graph.random.normal(0, 0.15, outputs)
    inputs = [x, graph.floats(weight if transposed else weight.T.copy(), "weight"), graph.floats(bias, "bias")]
    y = graph.node("Gemm", inputs, transB=int(transposed))
    return activation(graph, y) if chance(graph, 0.6) else y


VECTOR_BLOCKS = [(gemm, 5), (channel_constant, 1), (activation_alone, 1), (soft_max, 0.7), (layer_norm, 1), (positive_function, 0.5)]


def to_vector(graph, x):
    shape = graph.shapes[x]
    size = int(np.prod(shape))
    if len(shape) == 4 and size > 1024:
        x = graph.node("GlobalAveragePool", [x])
        size = shape[1]
    elif size > 1024:
        return None
    return graph.node("Flatten", [x], axis=1) if chance(graph, 0.5) else graph.node("Reshape", [x, graph.integers([1, size])])
