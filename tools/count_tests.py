#!/usr/bin/env python3
"""Prints "N passed, N failed" for a JUnit file that meson wrote; exit code 1 when a test failed, or none ran.

A test program that ended badly without a failing case of its own (a crash, a time-out) counts as one failed case.
A skipped case counts as failed: nothing here may be skipped.
"""
import sys
import xml.etree.ElementTree as ElementTree


def main():
    root = ElementTree.parse(sys.argv[1]).getroot()
    n_passed = n_failed = 0
    for suite in root.iter("testsuite"):
        cases = suite.findall("testcase")
        bad = [c for c in cases if any(c.find(tag) is not None for tag in ("failure", "error", "skipped"))]
        n_passed += len(cases) - len(bad)
        n_failed += len(bad)
        for case in bad:
            print(f"failed: {suite.get('name')}: {case.get('name')}")
        if not bad and (int(suite.get("errors", 0)) or int(suite.get("failures", 0))):
            n_failed += 1
            print(f"failed: {suite.get('name')} (ended badly)")
    print(f"{n_passed} passed, {n_failed} failed")
    return n_failed > 0 or n_passed == 0


if __name__ == "__main__":
    sys.exit(main())
