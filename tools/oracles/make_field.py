#!/usr/bin/env python3
"""Makes the models, dumps and logs of golden/field from the numbers that public issues print; case.yaml beside them is
written by hand and says which.

Pinned: onnx 1.23.2, numpy 2.4.6 (Python 3.11). The committed files are the reference; the script writes the same bytes
again with those versions. What a device made is worked out here by numpy, as the thread found that the device does it;
nothing of npudiff is used.

    python -m venv VENV && VENV/bin/pip install onnx==1.23.2 numpy==2.4.6
    VENV/bin/python tools/oracles/make_field.py [NAME ...]
"""
import sys

import field_arithmetic
import field_floats
import field_labels
import field_memory
import field_runs

GROUPS = [field_arithmetic, field_labels, field_floats, field_memory, field_runs]


def main():
    for group in GROUPS:
        for make in group.CASES:
            if len(sys.argv) == 1 or make.__name__ in sys.argv[1:]:
                make()


if __name__ == "__main__":
    main()
