"""Operators of ONNX written down from the specification in numpy and plain loops, for tools/oracles/make_exact_ops_oracle.py."""

import itertools
import math

import numpy as np

erf = np.vectorize(math.erf, otypes=[float])
erfc = np.vectorize(math.erfc, otypes=[float])


def gelu(x):
    return x * (erfc(-x / math.sqrt(2)) / 2)


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


# Where onnx.reference works in single precision or rounds its constants.
UNARY = {
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Softplus": lambda x: np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0),
    "Mish": lambda x: x * np.tanh(np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0)),
    "Gelu": gelu,
    "Erf": erf,
    "HardSwish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "Celu": lambda x: np.maximum(x, 0) + np.minimum(0, np.expm1(np.minimum(x, 0))),
}


def clip(x, low, high):
    if low is not None:
        x = np.where(x < low, low, x)
    return x if high is None else np.where(x > high, high, x)


def quantize(x, scale, zero, dtype):
    info = np.iinfo(dtype)
    return np.clip(np.rint(x / scale) + np.asarray(zero, float), info.min, info.max).astype(dtype)


def same_pads(n, kernel, stride, dilation, mode):
    out = -(-n // stride)
    total = max((out - 1) * stride + (kernel - 1) * dilation + 1 - n, 0)
    less = total // 2
    return (less, total - less) if mode == "SAME_UPPER" else (total - less, less)


def window(x, kernel, strides, dilations, pads, auto_pad, ceil_mode=0):
    """Pads at the beginning and end of every axis, and the size of the output."""
    n = x.ndim - 2
    strides, dilations = strides or [1] * n, dilations or [1] * n
    pads = list(pads or [0] * 2 * n)
    outs = []
    for a in range(n):
        size = x.shape[a + 2]
        if auto_pad.startswith("SAME"):
            pads[a], pads[a + n] = same_pads(size, kernel[a], strides[a], dilations[a], auto_pad)
        room = size + pads[a] + pads[a + n] - (kernel[a] - 1) * dilations[a] - 1
        out = (-(-room // strides[a]) if ceil_mode else room // strides[a]) + 1
        if ceil_mode and (out - 1) * strides[a] >= size + pads[a]:
            out -= 1
        outs.append(out)
    return strides, dilations, pads, outs


def conv(x, w, bias=None, *, strides=None, dilations=None, pads=None, group=1, auto_pad="NOTSET", kernel_shape=None):
    kernel, n = w.shape[2:], x.ndim - 2
    strides, dilations, pads, outs = window(x, kernel, strides, dilations, pads, auto_pad)
    y = np.zeros((x.shape[0], w.shape[0], *outs))
    per = w.shape[0] // group
    for m, o, k in itertools.product(range(w.shape[0]), np.ndindex(*outs), np.ndindex(*kernel)):
        at = [o[a] * strides[a] + k[a] * dilations[a] - pads[a] for a in range(n)]
        if all(0 <= at[a] < x.shape[a + 2] for a in range(n)):
            first = m // per * w.shape[1]
            y[(slice(None), m, *o)] += x[(slice(None), slice(first, first + w.shape[1]), *at)] @ w[(m, slice(None), *k)]
    return y if bias is None else y + bias.reshape(-1, *[1] * n)


def conv_transpose(x, w, bias=None, *, strides=None, dilations=None, pads=None, group=1, auto_pad="NOTSET",
                   output_padding=None, output_shape=None):
    n, kernel = x.ndim - 2, w.shape[2:]
    strides, dilations = strides or [1] * n, dilations or [1] * n
    pads, extra = list(pads or [0] * 2 * n), output_padding or [0] * n
    outs = []
    for a in range(n):
        full = strides[a] * (x.shape[a + 2] - 1) + extra[a] + (kernel[a] - 1) * dilations[a] + 1
        if output_shape or auto_pad.startswith("SAME"):
            wanted = output_shape[a] if output_shape else x.shape[a + 2] * strides[a]
            total = max(full - wanted, 0)
            pads[a] = total // 2 if auto_pad == "SAME_UPPER" else total - total // 2
            outs.append(wanted)
        else:
            outs.append(full - pads[a] - pads[a + n])
    y = np.zeros((x.shape[0], w.shape[1] * group, *outs))
    per = x.shape[1] // group
    for c, i, k in itertools.product(range(x.shape[1]), np.ndindex(*x.shape[2:]), np.ndindex(*kernel)):
        at = [i[a] * strides[a] + k[a] * dilations[a] - pads[a] for a in range(n)]
        if all(0 <= at[a] < outs[a] for a in range(n)):
            first = c // per * w.shape[1]
            y[(slice(None), slice(first, first + w.shape[1]), *at)] += np.outer(x[(slice(None), c, *i)],
                                                                               w[(c, slice(None), *k)])
    return y if bias is None else y + bias.reshape(-1, *[1] * n)


def pool(kind, x, *, kernel_shape, strides=None, dilations=None, pads=None, auto_pad="NOTSET", ceil_mode=0,
         count_include_pad=0, p=2):
    """The pooled tensor, and the indices of the maxima."""
    n = x.ndim - 2
    strides, dilations, pads, outs = window(x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    y, where = np.zeros((*x.shape[:2], *outs)), np.zeros((*x.shape[:2], *outs), np.int64)
    for b, c, o in itertools.product(range(x.shape[0]), range(x.shape[1]), np.ndindex(*outs)):
        values, padded = [], 0
        for k in np.ndindex(*kernel_shape):
            at = [o[a] * strides[a] + k[a] * dilations[a] - pads[a] for a in range(n)]
            if all(0 <= at[a] < x.shape[a + 2] for a in range(n)):
                index = (b, c, *at)
                values.append((x[index], np.ravel_multi_index(index, x.shape)))
            if all(-pads[a] <= at[a] < x.shape[a + 2] + pads[a + n] for a in range(n)):
                padded += 1
        numbers = np.array([v for v, _ in values])
        if kind == "max":
            best = int(np.argmax(numbers))  # NaN goes first
            y[(b, c, *o)], where[(b, c, *o)] = values[best]
        elif kind == "average":
            y[(b, c, *o)] = numbers.sum() / (padded if count_include_pad else len(numbers))
        else:
            y[(b, c, *o)] = (np.abs(numbers)**p).sum()**(1 / p)
    return [y, where]


def coerced(op, x, axis):
    """Softmax and its like before opset 13: the axes from `axis` on are one."""
    flat = x.reshape(int(np.prod(x.shape[:axis % x.ndim])), -1)
    shifted = flat - flat.max(1, keepdims=True)
    sums = np.exp(shifted).sum(1, keepdims=True)
    made = {"Softmax": np.exp(shifted) / sums, "LogSoftmax": shifted - np.log(sums),
            "Hardmax": np.eye(flat.shape[1])[flat.argmax(1)]}[op]
    return made.reshape(x.shape)


def cumsum(x, axis, exclusive, reverse):
    x = np.flip(x, axis) if reverse else x
    sums = np.cumsum(x, axis)
    sums = sums - x if exclusive else sums
    return np.flip(sums, axis) if reverse else sums


def topk(x, k, axis, largest):
    order = np.argsort(-x if largest else x, axis, kind="stable")
    indices = np.take(order, np.arange(k), axis)
    return [np.take_along_axis(x, indices, axis), indices.astype(np.int64)]


def layer(x, gamma, beta, epsilon):
    mean = x.mean(-1, keepdims=True)
    inverse = 1 / np.sqrt(((x - mean)**2).mean(-1, keepdims=True) + float(np.float32(epsilon)))
    return (x - mean) * inverse * gamma + beta, mean, inverse


def rms(x, scale, axis, epsilon=1e-5):
    axes = tuple(range(axis % x.ndim, x.ndim))
    return x / np.sqrt((x * x).mean(axes, keepdims=True) + float(np.float32(epsilon))) * scale


def group(x, scale, bias, n_groups, epsilon=1e-5):
    parts = x.reshape(x.shape[0], n_groups, -1)
    mean, variance = parts.mean(2, keepdims=True), parts.var(2, keepdims=True)
    made = ((parts - mean) / np.sqrt(variance + float(np.float32(epsilon)))).reshape(x.shape)
    shape = (1, -1, *[1] * (x.ndim - 2))
    return made * scale.reshape(shape) + bias.reshape(shape)


def pad(x, pads, mode):
    widths = [(pads[a], pads[a + x.ndim]) for a in range(x.ndim)]
    return np.pad(x, widths, mode)


def gather_nd(x, indices, batch):
    y = np.zeros(indices.shape[:-1] + x.shape[batch + indices.shape[-1]:])
    for at in np.ndindex(*indices.shape[:-1]):
        y[at] = x[(*at[:batch], *indices[at])]
    return y


def lrn(x, size, alpha=1e-4, beta=0.75, bias=1.0):
    alpha, beta, bias = (float(np.float32(v)) for v in (alpha, beta, bias))
    y = np.zeros(x.shape)
    for c in range(x.shape[1]):
        first, last = max(c - (size - 1) // 2, 0), c + math.ceil((size - 1) / 2)
        squares = (x[:, first:last + 1]**2).sum(1)
        y[:, c] = x[:, c] / (bias + alpha / size * squares)**beta
    return y


def cubic_weight(distance, a):
    d = abs(distance)
    if d <= 1:
        return (a + 2) * d**3 - (a + 3) * d**2 + 1
    return a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a if d < 2 else 0.0


def resize_cubic(x, targets, where, a=-0.75, exclude_outside=0, roi=None, extrapolation=0.0):
    """targets: per axis the size and the scale of the output. A matrix per axis: out x in."""
    for axis, (out, scale) in enumerate(targets):
        n = x.shape[axis]
        first, last = (roi[axis], roi[axis + x.ndim]) if roi is not None else (0.0, 1.0)
        if out == n and scale == 1 and (first, last) == (0, 1):
            continue
        matrix, outside = np.zeros((out, n)), np.zeros(out, bool)
        for i in range(out):
            at = {"half_pixel": (i + 0.5) / scale - 0.5, "pytorch_half_pixel": (i + 0.5) / scale - 0.5 if out > 1 else 0.0,
                  "half_pixel_symmetric": n / 2 * (1 - out / (scale * n)) + (i + 0.5) / scale - 0.5,
                  "align_corners": i * (n - 1) / max(out - 1, 1), "asymmetric": i / scale,
                  "tf_crop_and_resize": first * (n - 1) + i * (last - first) * (n - 1) / max(out - 1, 1)}[where]
            outside[i] = where == "tf_crop_and_resize" and not 0 <= at <= n - 1
            taps = [(k, cubic_weight(at - k, a)) for k in range(math.floor(at) - 1, math.floor(at) + 3)]
            if exclude_outside:
                taps = [(k, weight) for k, weight in taps if 0 <= k < n]
                taps = [(k, weight / sum(w for _, w in taps)) for k, weight in taps]
            for k, weight in taps:
                matrix[i, min(max(k, 0), n - 1)] += weight
        x = np.moveaxis(np.tensordot(matrix, x, (1, axis)), 0, axis)
        x[(slice(None),) * axis + (outside,)] = extrapolation
    return x


def resize_nearest_symmetric(x, target, rule):
    """half_pixel_symmetric by a coordinate in float32, as ONNX Runtime's CPU provider has it; onnx.reference has it in double, where
    an error of rounding decides which element is the nearest to a whole coordinate."""
    f4 = np.float32
    rules = {"round_prefer_floor": lambda v: np.ceil(v - 0.5), "round_prefer_ceil": lambda v: np.floor(v + 0.5), "floor": np.floor,
             "ceil": np.ceil}
    for axis, n in enumerate(x.shape):
        scale = f4(target["scales"][axis]) if "scales" in target else f4(target["sizes"][axis] / n)
        out = int(np.floor(float(scale) * n)) if "scales" in target else target["sizes"][axis]
        offset = f4(f4(n / 2) * f4(1 - f4(f4(out) / f4(scale * f4(n)))))
        at = np.array([f4(float(offset) + (i + 0.5) / float(scale) - 0.5) for i in range(out)], np.float64)
        x = np.take(x, np.clip(rules[rule](at), 0, n - 1).astype(int), axis)
    return x


# ---- recurrent ----

def recurrent(op, x, w, r, b=None, lengths=None, h0=None, c0=None, p=None, *, direction="forward", layout=0, clip=0.0,
              linear_before_reset=0, input_forget=0, functions=None):
    """[Y, Y_h, Y_c (LSTM)] of the specification's equations, in float64."""
    known = {"Sigmoid": lambda v: 1 / (1 + np.exp(-v)), "Tanh": np.tanh, "Relu": lambda v: np.maximum(v, 0),
             "Softsign": lambda v: v / (1 + np.abs(v)), "Softplus": lambda v: np.log1p(np.exp(v))}
    if layout:
        x, h0, c0 = x.swapaxes(0, 1), *(None if s is None else s.swapaxes(0, 1) for s in (h0, c0))
    n_steps, n_batch, _ = x.shape
    n_directions, rows, n = r.shape
    functions = functions or {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}[op] * n_directions
    each = len(functions) // n_directions
    lengths = np.full(n_batch, n_steps) if lengths is None else lengths
    y, last, cells = np.zeros((n_steps, n_directions, n_batch, n)), np.zeros((n_directions, n_batch, n)), np.zeros((n_directions, n_batch, n))
    for d in range(n_directions):
        f = [known[name] for name in functions[d * each:(d + 1) * each]]
        wb, rb = (np.zeros(rows), np.zeros(rows)) if b is None else (b[d, :rows], b[d, rows:])
        for batch in range(n_batch):
            h = np.zeros(n) if h0 is None else h0[d, batch].copy()
            c = np.zeros(n) if c0 is None else c0[d, batch].copy()
            times = range(lengths[batch])
            for t in reversed(times) if direction == "reverse" or d == 1 else times:
                a = lambda v: np.clip(v, -clip, clip) if clip else v
                of_x, of_h = w[d] @ x[t, batch] + wb, r[d] @ h + rb
                gx, gh = of_x.reshape(-1, n), of_h.reshape(-1, n)
                if op == "RNN":
                    h = f[0](a(gx[0] + gh[0]))
                elif op == "GRU":
                    z, reset = f[0](a(gx[0] + gh[0])), f[0](a(gx[1] + gh[1]))
                    inner = reset * gh[2] if linear_before_reset else r[d, 2 * n:] @ (reset * h) + rb[2 * n:]
                    h = (1 - z) * f[1](a(gx[2] + inner)) + z * h
                else:
                    pi, po, pf = np.zeros((3, n)) if p is None else p[d].reshape(3, n)
                    i = f[0](a(gx[0] + gh[0] + pi * c))
                    forget = 1 - i if input_forget else f[0](a(gx[2] + gh[2] + pf * c))
                    c = forget * c + i * f[1](a(gx[3] + gh[3]))
                    h = f[0](a(gx[1] + gh[1] + po * c)) * f[2](c)
                y[t, d, batch] = h
            last[d, batch], cells[d, batch] = h, c
    if layout:
        y, last, cells = y.transpose(2, 0, 1, 3), last.swapaxes(0, 1), cells.swapaxes(0, 1)
    return [y, last, cells] if op == "LSTM" else [y, last]


def cubic_grid_sample(x, grid, padding, aligned):
    """GridSample with mode cubic in float64 (onnx.reference has weights in float32, and clamps the place at a border,
    which ONNX Runtime does with pixels only)."""
    n, channels, *sizes = x.shape
    y = np.zeros((n, channels, *grid.shape[1:3]))

    def mirror(at, low, high):
        span = high - low
        at = (at - low) % (2 * span)
        return low + (at if at <= span else 2 * span - at)

    def weights(t):
        a, d = -0.75, np.abs(np.arange(-1, 3) - t)
        return np.where(d <= 1, (a + 2) * d**3 - (a + 3) * d**2 + 1, a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a)

    for place in itertools.product(range(n), *map(range, grid.shape[1:3])):
        taps = []
        for size, g in zip(sizes, grid[place][::-1]):
            low, high = (0, size - 1) if aligned else (-0.5, size - 0.5)
            at = (g + 1) / 2 * (size - 1) if aligned else ((g + 1) * size - 1) / 2
            if not low <= at <= high and padding == "reflection":
                at = mirror(at, low, high)
            first = np.floor(at)
            pixels = first + np.arange(-1, 3)
            w = weights(at - first)
            if padding == "zeros":
                w = np.where((pixels < 0) | (pixels >= size), 0, w)
            elif padding == "reflection":
                pixels = np.trunc([mirror(p, low, high) for p in pixels])
            taps.append((np.clip(pixels, 0, size - 1).astype(int), w))
        (rows, wy), (columns, wx) = taps
        y[place[0], :, place[1], place[2]] = np.einsum("cij,i,j->c", x[place[0]][:, rows][:, :, columns], wy, wx)
    return y
