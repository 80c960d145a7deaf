#!/usr/bin/env python3
"""Makes golden/oracle/judge.txt: what src/judge must compute, from definitions, by other means than its own.

Tango's interval: the likelihood is maximised under the constraint by halving its derivative, and the score statistic is
halved to its critical value, both with 40 digits; no closed form is used. Clopper and Pearson: the same halving with 40
digits, checked against exact rational sums. McNemar: exact rational sums. E-values: the beta function with 40 digits.
Adjusted p-values: statsmodels. The tool first checks itself against published intervals.

usage: make_judge_oracle.py OUTPUT_FILE        needs mpmath 1.4 and statsmodels 0.15; takes a minute
"""
import math
import struct
import sys
from fractions import Fraction

import mpmath as mp
from statsmodels.stats.multitest import multipletests

mp.mp.dps = 40


def bits(x):
    return struct.pack(">d", float(x)).hex()


def quantile(p):
    return mp.sqrt(2) * mp.erfinv(2 * mp.mpf(p) - 1)


def z_of(confidence):
    return -quantile((1 - mp.mpf(confidence)) / 2)


def halve(is_below, low, high, n_steps):
    for _ in range(n_steps):
        middle = (low + high) / 2
        low, high = (middle, high) if is_below(middle) else (low, middle)
    return low


def likeliest(b, c, n, delta):
    """The share of c, given that that of b is larger by delta."""

    def rises(p):
        slope = -2 * (n - b - c) / (1 - 2 * p - delta)
        return slope + (b / (p + delta) if b else 0) + (c / p if c else 0) > 0

    return halve(rises, max(mp.mpf(0), -delta), (1 - delta) / 2, 110)


def tango_upper(b, c, n, z):
    if b == n:
        return mp.mpf(1)

    def is_accepted(delta):
        p = likeliest(b, c, n, delta)
        return (b - c - n * delta) ** 2 <= z * z * n * (2 * p + delta * (1 - delta))

    return halve(is_accepted, mp.mpf(b - c) / n, mp.mpf(1), 75)


def tango(b, c, n, confidence):
    z = z_of(confidence)
    return -tango_upper(c, b, n, z), tango_upper(b, c, n, z)


def wilson(k, n, confidence):
    z, p = z_of(confidence), mp.mpf(k) / n
    middle, half = p + z * z / (2 * n), z * mp.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low, high = (middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)
    return low if k > 0 else mp.mpf(0), high if k < n else mp.mpf(1)


def newcombe(a, b, c, d, confidence):
    """b: only the test is right, c: only the reference. Newcombe (1998), method 10."""
    n = a + b + c + d
    (l1, u1), (l2, u2) = wilson(a + b, n, confidence), wilson(a + c, n, confidence)
    p1, p2 = mp.mpf(a + b) / n, mp.mpf(a + c) / n
    margins = (a + b) * (c + d) * (a + c) * (b + d)
    product = mp.mpf(a * d - b * c)
    if product > 0:
        product = max(product - mp.mpf(n) / 2, 0)
    phi = product / mp.sqrt(margins) if margins else mp.mpf(0)
    down = (p1 - l1) ** 2 - 2 * phi * (p1 - l1) * (u2 - p2) + (u2 - p2) ** 2
    up = (u1 - p1) ** 2 - 2 * phi * (u1 - p1) * (p2 - l2) + (p2 - l2) ** 2
    return p1 - p2 - mp.sqrt(down), p1 - p2 + mp.sqrt(up)


def tail(k, n, p):
    """P(X <= k), in exact rationals."""
    p = Fraction(p)
    return sum(math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k + 1))


def upper(k, n, alpha):
    """The p with P(X <= k) = alpha, by halving, then Newton's steps. Libraries do not do: scipy 1.17's beta quantile is
    1.9e-6 instead of 9.5e-7 for 1000 of 1e9."""
    log_choose = mp.loggamma(n + 1) - mp.loggamma(k + 1) - mp.loggamma(n - k + 1)

    def tail_and_slope(p):
        q = 1 - p
        term = mp.exp(log_choose + k * mp.log(p) + (n - k) * mp.log(q))
        slope, total = (n - k) * term / q, term
        for i in range(k, 0, -1):
            term *= i * q / ((n - i + 1) * p)
            total += term
            if term < total * mp.mpf(10) ** -25:
                break
        return total, slope

    p = halve(lambda p: tail_and_slope(p)[0] > alpha, mp.mpf(k) / n, mp.mpf(1), 50)
    for _ in range(3):
        total, slope = tail_and_slope(p)
        p += (total - alpha) / slope
    return p


def clopper_pearson(k, n, confidence):
    alpha = (1 - mp.mpf(confidence)) / 2
    low = 1 - upper(n - k, n, alpha) if k > 0 else mp.mpf(0)
    high = upper(k, n, alpha) if k < n else mp.mpf(1)
    if n <= 60:
        assert k == 0 or abs(1 - tail(k - 1, n, float(low)) - Fraction(float(alpha))) < 1e-9 * alpha, (k, n)
        assert k == n or abs(tail(k, n, float(high)) - Fraction(float(alpha))) < 1e-9 * alpha, (k, n)
    return low, high


def mid_p(b, c):
    n, k = b + c, min(b, c)
    if b == c:
        return mp.mpf(1)
    if n < 5000:
        exact = Fraction(2 * sum(math.comb(n, i) for i in range(k)) + math.comb(n, k), 2**n)
        return mp.mpf(exact.numerator) / exact.denominator
    term = mp.exp(mp.loggamma(n + 1) - mp.loggamma(k + 1) - mp.loggamma(n - k + 1) - n * mp.log(2))
    total = term
    for i in range(k, 0, -1):
        term *= mp.mpf(i) / (n - i + 1)
        total += 2 * term
        if term < total * mp.mpf(10) ** -25:
            break
    return total


def log_e(b, c):
    half = mp.mpf(1) / 2
    log_beta = mp.loggamma(b + half) + mp.loggamma(c + half) - mp.loggamma(b + c + 1)
    return (b + c) * mp.log(2) + log_beta - mp.log(mp.pi)


def needed(kind, margin, alpha, power, discordant):
    miss = (1 - mp.mpf(power)) / (2 if kind == "equivalent" else 1)
    z = quantile(mp.mpf(alpha)) + quantile(miss)
    return int(mp.ceil(z * z * mp.mpf(discordant) / mp.mpf(margin) ** 2))


def check_published():
    # Fagerland, Lydersen and Laake (2014), airway hyper-responsiveness: n = 21, 1 and 7 discordant.
    low, high = tango(1, 7, 21, 0.95)
    assert abs(low + 0.517) < 6e-4 and abs(high + 0.026) < 6e-4, (low, high)
    low, high = newcombe(1, 1, 7, 12, 0.95)
    assert abs(low + 0.507) < 6e-4 and abs(high + 0.026) < 6e-4, (low, high)


TABLES = [(1, 1, 7, 12), (43, 0, 1, 0), (0, 0, 0, 1), (1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 10, 0, 0),
          (5, 5, 5, 5), (0, 5, 5, 0), (60, 3, 9, 28), (500, 10, 25, 165), (700, 0, 0, 0), (400, 0, 0, 300),
          (499, 1, 0, 200), (480, 0, 30, 190), (2, 7, 1, 0), (3000, 43, 41, 1198), (30000, 700, 900, 18400),
          (700000, 1000, 1000, 298000), (700000000, 1, 0, 299999999), (699999980, 0, 20, 300000000),
          (699000000, 500000, 499000, 300001000), (0, 499, 501, 0), (0, 999999, 1, 0), (90, 5, 0, 5)]
PROPORTIONS = [(0, 1), (1, 1), (1, 2), (0, 10), (3, 10), (10, 10), (9, 10), (0, 59), (1, 60), (30, 60), (59, 60),
               (0, 700), (1, 700), (14, 700), (350, 700), (699, 700), (5, 50000), (25000, 50000), (49999, 50000),
               (1, 10**6), (123456, 10**6), (0, 10**9), (1, 10**9), (1000, 10**9), (10**9 - 1, 10**9)]
FLIPS = [(0, 0), (1, 0), (0, 5), (3, 9), (12, 30), (5, 1000), (1000, 1100), (70000, 70500), (500000, 502000),
         (50000000, 50010000), (500000000, 499900000)]
EVALUES = [(0, 0), (1, 0), (0, 1), (1, 1), (7, 8), (8, 8), (15, 16), (0, 20), (35, 65), (38, 72), (500, 500), (3, 5000),
           (100000, 101000), (1000000, 10), (500000000, 500040000)]
P_LISTS = [[0.01], [0.04, 0.03, 0.005], [0.5, 0.5, 0.5, 0.02], [0.001, 0.008, 0.039, 0.041, 0.042, 0.06, 0.074, 0.205],
           [1.0, 0.9, 0.0, 1e-12]]


def lines():
    for a, b, c, d in TABLES:
        for confidence in (0.9, 0.95, 0.999):
            n = a + b + c + d
            ends = *tango(b, c, n, confidence), *newcombe(a, b, c, d, confidence)
            yield "paired", a, c, b, d, bits(confidence), *map(bits, ends)
    for k, n in PROPORTIONS:
        for confidence in (0.9, 0.95, 0.9999):
            ends = *clopper_pearson(k, n, confidence), *wilson(k, n, confidence)
            yield "proportion", k, n, bits(confidence), *map(bits, ends)
    for b, c in FLIPS:
        yield "mid_p", b, c, bits(mid_p(b, c))
    for b, c in EVALUES:
        yield "log_e", b, c, bits(log_e(b, c))
    for p in (1e-300, 1e-20, 1e-9, 1e-6, 0.001, 0.025, 0.05, 0.074, 0.076, 0.1, 0.3, 0.499, 0.501, 0.8, 0.93, 0.975, 0.999):
        yield "quantile", bits(p), bits(quantile(p))
    for kind in ("non-inferior", "equivalent"):
        for alpha, power in ((0.05, 0.9), (0.025, 0.8)):
            for discordant in (0.0, 0.002, 0.01, 0.02, 0.05, 1.0):
                for margin in (0.01, 0.005, 0.001):
                    row = margin, alpha, power, discordant
                    yield "needed", kind, *map(bits, row), needed(kind, *row)
    for p in P_LISTS:
        yield "adjust", "holm", len(p), *map(bits, p), *map(bits, multipletests(p, method="holm")[1])


def main():
    check_published()
    with open(sys.argv[1], "w", encoding="ascii") as out:
        out.write("# Made by tools/oracles/make_judge_oracle.py: doubles as their bits; tables as both right, reference only, "
                  "test only, both wrong.\n")
        for line in lines():
            out.write(" ".join(map(str, line)) + "\n")


if __name__ == "__main__":
    main()
