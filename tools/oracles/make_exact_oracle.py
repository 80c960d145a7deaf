#!/usr/bin/env python3
"""Makes golden/oracle/exact_sum.txt: sums of doubles in exact rational arithmetic (docs/reference/metrics.md#sums).

A line is a case, its parts separated by a space: the sum rounded to double and the sum itself as text (the form that
src/compare/metrics/kernels/exact_sum.h describes), then the doubles that are added. Doubles are written as the hexadecimal of their 64
bits. Lines with # are comments.

usage: make_exact_oracle.py OUTPUT_FILE
"""

import math
import random
import struct
import sys
from fractions import Fraction
from pathlib import Path

LARGEST = sys.float_info.max


def bits_of(value):
    return f"{struct.unpack('<Q', struct.pack('<d', value))[0]:016x}"


def from_bits(bits):
    return struct.unpack("<d", struct.pack("<Q", bits))[0]


def to_double(exact):
    """The nearest double, ties to even: int / int rounds once in Python, subnormal results too."""
    try:
        return exact.numerator / exact.denominator
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def as_text(exact):
    if exact == 0:
        return "0"
    odd, power = abs(exact.numerator), 1 - exact.denominator.bit_length()
    while odd % 2 == 0:
        odd //= 2
        power += 1
    return f"{'-' if exact < 0 else ''}{odd:x}p{power}"


def line_of(values):
    exact = sum(map(Fraction, values), Fraction(0))
    return " ".join([bits_of(to_double(exact)), as_text(exact), *map(bits_of, values)])


def by_hand():
    tiny, ulp = 5e-324, 2.0**-52
    yield []
    yield [0.0]
    yield [-0.0, -0.0]
    yield [1.0, -1.0]
    yield [1e308, -1e308, 1e-308]
    yield [1e308, 1e-308, -1e308, -1e-308, tiny]
    yield [tiny]
    yield [-tiny, -tiny]
    yield [tiny] * 5
    yield [2.0**-1022, -tiny]
    yield [2.0**-1022 - tiny, tiny]
    yield [1.0, ulp / 2]  # a tie that goes down to even
    yield [1.0, ulp / 2, tiny]
    yield [1.0, ulp / 2, -tiny]
    yield [1.0, ulp, ulp / 2]  # a tie that goes up to even
    yield [1.0, ulp, ulp / 2, -tiny]
    yield [2.0, -ulp / 2]
    yield [2.0, -ulp / 2, -tiny]
    yield [-1.0, -ulp / 2, -tiny]
    yield [2.0**53, 1.0]
    yield [2.0**53, 1.0, 1.0]
    yield [2.0**53, 1.0, 2.0**-1000]
    yield [LARGEST]
    yield [LARGEST, LARGEST]
    yield [-LARGEST] * 3
    yield [LARGEST, 2.0**969]  # just below where it becomes infinite
    yield [LARGEST, 2.0**970]  # the tie between the largest double and infinity
    yield [LARGEST, 2.0**970, -tiny]
    yield [-LARGEST, -(2.0**970)]
    yield [LARGEST, LARGEST, -LARGEST]
    yield [LARGEST] * 9 + [-LARGEST] * 8 + [tiny]
    for power in range(-1074, 1024, 31):
        yield [2.0**power]
        yield [2.0**power, -tiny]
        yield [from_bits(0x3FFFFFFFFFFFFFFF) * 2.0**power if -1022 <= power < 1023 else 1.0, 2.0**power]


def random_double(rng, low, high):
    return from_bits(rng.getrandbits(1) << 63 | rng.randrange(low, high) << 52 | rng.getrandbits(52))


def at_random(rng):
    for _ in range(120):
        low = rng.randrange(2047)
        high = min(2047, low + 1 + rng.choice([1, 5, 60, 2000]))
        values = [random_double(rng, low, high) for _ in range(rng.choice([2, 3, 10, 40]))]
        if rng.random() < 0.5:
            values += [-value for value in rng.sample(values, rng.randrange(len(values)))]
        rng.shuffle(values)
        yield values


def main():
    cases = [*by_hand(), *at_random(random.Random(20250711))]
    header = "# Made by tools/oracles/make_exact_oracle.py: rounded sum, exact sum, what is added.\n"
    Path(sys.argv[1]).write_text(header + "".join(line_of(values) + "\n" for values in cases))


if __name__ == "__main__":
    main()
