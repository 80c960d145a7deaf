"""Exact intervals of shares (Clopper and Pearson), without SciPy."""
import math

TAIL = 0.025   # 95 %, both sides


def upper_tail(k, n, p):
    """Chance of k or more of n."""
    if k <= 0:
        return 1.0
    if p in (0.0, 1.0):
        return p
    logs = [math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1) + i * math.log(p) + (n - i) * math.log1p(-p)
            for i in range(k, n + 1)]
    return math.fsum(math.exp(value) for value in logs)


def where(function, target):
    """The p where an increasing function reaches target."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if function(middle) < target else (low, middle)
    return (low + high) / 2


def clopper_pearson(k, n):
    """(lower, upper) of the share k of n."""
    lower = 0.0 if k == 0 else where(lambda p: upper_tail(k, n, p), TAIL)
    upper = 1.0 if k == n else where(lambda p: upper_tail(k + 1, n, p), 1 - TAIL)
    return lower, upper


def share(k, n):
    """'3 of 60: 5.0 % [1.0, 13.9]'"""
    if n == 0:
        return "none of 0"
    low, high = clopper_pearson(k, n)
    return f"{k} of {n}: {100 * k / n:.3g} % [{100 * low:.3g}, {100 * high:.3g}]"
