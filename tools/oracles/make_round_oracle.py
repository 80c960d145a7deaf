#!/usr/bin/env python3
"""Makes golden/oracle/round.txt: exact quotients and what they are rounded to, in exact rational arithmetic.

A line is a case: "NUMERATOR / DENOMINATOR = FLOOR UPS VALUE". Numerator and denominator are sums of one to three doubles
(nd_wide in src/arithmetic/exact/linear/rounding.h); FLOOR is a whole number; UPS has a digit for each rounding in the order of enum
nd_rounding, 1 where the result is FLOOR + 1 instead of FLOOR; VALUE is the quotient as the nearest double. Doubles are
written as the hexadecimal of their 64 bits. Lines with # are comments.

usage: make_round_oracle.py OUTPUT_FILE
"""

import math
import random
import struct
import sys
from fractions import Fraction
from pathlib import Path

HALF = Fraction(1, 2)


def bits_of(value):
    return f"{struct.unpack('<Q', struct.pack('<d', value))[0]:016x}"


def to_double(exact):
    """The nearest double, ties to even: int / int rounds once in Python."""
    return exact.numerator / exact.denominator


def to_float(value):
    return Fraction(struct.unpack("<f", struct.pack("<f", value))[0])


def parts_of(exact):
    """The doubles that exact is the sum of; None when three do not suffice."""
    parts = []
    while exact != 0 or not parts:
        parts.append(to_double(exact))
        exact -= Fraction(parts[-1])
    return parts if len(parts) <= 3 else None


def is_up(rounding, floor, fraction):
    if fraction == 0:
        return False
    return {
        "half-even": fraction > HALF or fraction == HALF and floor % 2 == 1,
        "half-away": fraction > HALF or fraction == HALF and floor >= 0,
        "half-up": fraction >= HALF,
        "half-down": fraction > HALF,
        "floor": False,
        "ceil": True,
        "to-zero": floor < 0,
    }[rounding]


ROUNDINGS = ["half-even", "half-away", "half-up", "half-down", "floor", "ceil", "to-zero"]


def line_of(numerator, denominator):
    tops, bottoms = parts_of(numerator), parts_of(denominator)
    quotient = numerator / denominator
    floor = math.floor(quotient)
    if tops is None or bottoms is None or not -(2**52) <= floor < 2**52:
        return None
    ups = "".join(str(int(is_up(rounding, floor, quotient - floor))) for rounding in ROUNDINGS)
    fields = [*map(bits_of, tops), "/", *map(bits_of, bottoms), "=", str(floor), ups, bits_of(to_double(quotient))]
    return " ".join(fields) + "\n"


def random_scale(rng):
    kind = rng.randrange(4)
    if kind == 0:
        return Fraction(2) ** rng.randrange(-12, 3)
    if kind == 1:
        return Fraction(2) ** rng.randrange(-74, 39) * rng.randrange(1, 2**24)
    return to_float(math.exp(rng.uniform(-9, 2)))


def random_denominator(rng):
    scale = random_scale(rng)
    kind = rng.randrange(4)
    if kind == 0:  # a mean
        return scale * rng.choice([3, 7, 49, 64, 1000, 50176])
    if kind == 1:  # a quotient of codes
        return scale * random_scale(rng) * rng.randrange(1, 65536)
    return scale


def units(rng):
    """What a linear unit computes."""
    for _ in range(1000):
        n_bits = rng.choice([8, 12, 16, 24, 31, 40, 53])
        x, w = random_scale(rng), random_scale(rng)
        bias_scale = to_float(to_double(x * w)) if rng.random() < 0.7 else random_scale(rng)
        bias = rng.randrange(-(2**31), 2**31) if rng.random() < 0.5 else 0
        yield rng.randrange(-(2**n_bits), 2**n_bits + 1) * x * w + bias * bias_scale, random_denominator(rng)


def thresholds(rng):
    """Whole numbers and ties, exactly or with the least difference that the numerator can have."""
    for _ in range(1500):
        whole = rng.randrange(-(2 ** rng.choice([2, 8, 9, 16, 31, 45, 52])), 2 ** rng.choice([2, 8, 9, 16, 31, 45, 52]))
        denominator = random_denominator(rng)
        numerator = (whole + rng.choice([0, HALF])) * denominator
        least = min((math.ulp(part) for part in parts_of(numerator) if part), default=2.0**-200)
        least *= rng.choice([1.0, 1.0, 2.0**-40, 2.0**-52])
        yield numerator + rng.choice([-1, 0, 0, 1]) * Fraction(least), denominator


def halfway_values():
    """Quotients that lie between two doubles, or next to there."""
    for odd in [2**53 + 1, 2**53 + 3, 2**54 - 1, -(2**53) - 1, -(2**53) - 3]:
        for difference in [0, Fraction(1, 2**60), -Fraction(1, 2**60)]:
            for denominator in [1, 3, 7, 2**24 - 1]:
                yield (odd + difference) * Fraction(1, 2**20) * denominator, Fraction(denominator)


def edges():
    tiny = Fraction(1, 2**140)
    for base in [*range(-5, 6), 127, 128, 255, 256, 32767, 32768, 65535, 65536, 2**31, 2**51, 2**52 - 2, -(2**52)]:
        for offset in [0, HALF, -HALF, tiny, -tiny, HALF - tiny, HALF + tiny]:
            for denominator in [1, 3, Fraction(1, 256), to_float(0.1)]:
                yield (base + offset) * denominator, Fraction(denominator)
    yield Fraction(0), Fraction(7)
    yield HALF - Fraction(1, 2**54), Fraction(1)
    yield Fraction(1, 2**54) - HALF, Fraction(1)


def main():
    rng = random.Random(20250912)
    cases = [*edges(), *halfway_values(), *units(rng), *thresholds(rng)]
    lines = [line for case in cases if (line := line_of(*case)) is not None]
    header = "# Made by tools/oracles/make_round_oracle.py: NUMERATOR / DENOMINATOR = FLOOR UPS VALUE.\n"
    Path(sys.argv[1]).write_text(header + "".join(lines))


if __name__ == "__main__":
    main()
