"""Random float networks of 3 to 12 operators. A network is a function of its seed alone."""
import dataclasses

import numpy as np

import images
import tokens
from graph import Graph
from pieces import chance

LEAST, MOST = 3, 12        # operators of a network
N_CALIBRATION, N_SAMPLES = 12, 4
OPSETS = [17, 20, 21]


@dataclasses.dataclass
class Network:
    seed: int
    model: object          # float ModelProto
    calibration: np.ndarray
    samples: np.ndarray    # what is captured: drawn as the calibration is, so that a few values leave its ranges


def drawn_block(graph, table):
    weights = np.array([weight for _, weight in table])
    return table[int(graph.random.choice(len(table), p=weights / weights.sum()))][0]


def blocks_for(shape):
    return {4: images.IMAGE_BLOCKS, 3: tokens.TOKEN_BLOCKS, 2: tokens.VECTOR_BLOCKS}[len(shape)]


def start_shape(random):
    kind = random.choice(3, p=[0.62, 0.3, 0.08])
    if kind == 0:
        size = int(random.choice([8, 12, 16, 16, 24, 32]))
        return (1, int(random.choice([3, 4, 8, 8, 16])), size, size)
    return (1, int(random.choice([8, 12, 16, 32])), int(random.choice([16, 24, 32]))) if kind == 1 else (1, int(random.choice([24, 32, 64])))


def inputs_of(random, shape, n):
    """Images and embeddings: correlated in the last axis, of a distribution that is not symmetric."""
    values = random.normal(0, 1, (n, *shape))
    values = 0.7 * values + 0.5 * np.roll(values, 1, axis=-1) + random.normal(0, 0.3, (1, *shape[:-1], 1))
    return np.where(values < 0, 0.7 * values, values).astype(np.float32)


def grow(graph, target):
    x = "input"
    stuck = 0
    while len(graph.nodes) < target and stuck < 50:
        shape = graph.shapes[x]
        ends = len(shape) != 2 and len(graph.nodes) >= 3 and chance(graph, 0.06)
        block = tokens.to_vector if ends else drawn_block(graph, blocks_for(shape))
        before = len(graph.nodes), len(graph.constants)
        y = block(graph, x)
        if len(graph.nodes) > MOST or y is None:   # The block is taken back.
            del graph.nodes[before[0]:]
            for name in list(graph.constants)[before[1]:]:
                del graph.constants[name]
            stuck += 1
            continue
        x = y


def float_network(seed):
    random = np.random.default_rng([20261123, seed])
    shape = start_shape(random)
    opset = int(random.choice(OPSETS))
    graph = Graph(random, opset, shape)
    grow(graph, int(random.integers(LEAST, MOST + 1)))
    inputs = np.random.default_rng([20261124, seed])
    return Network(seed, graph.model(), inputs_of(inputs, shape, N_CALIBRATION), inputs_of(inputs, shape, N_SAMPLES))
