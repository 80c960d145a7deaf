#!/usr/bin/env python3
"""Prints "N passed, N failed" for a JUnit file that meson wrote; exit code 1 when a test failed, or none ran.

A test program that ended badly without a failing case of its own (a crash, a time-out) counts as one failed case.
What was skipped is listed before, each with its reason; a case that gives none counts as failed.
"""
import re
import sys
import xml.etree.ElementTree as ElementTree

BAD = ("failure", "error")


def reason_of(case):
    """Why a skipped case was: its own words, or those of a whole program that was skipped. None: it does not say."""
    said = (case.findtext("system-out") or "").strip()
    plan = re.search(r"^1\.\.0 # SKIP\s+(.+)$", said, re.MULTILINE)
    return plan.group(1) if plan else said or None


def main():
    root = ElementTree.parse(sys.argv[1]).getroot()
    n_passed = n_failed = n_skipped = 0
    for suite in root.iter("testsuite"):
        n_bad = 0
        for case in suite.findall("testcase"):
            name = f"{suite.get('name')}: {case.get('name')}"
            is_skipped = case.find("skipped") is not None
            reason = reason_of(case) if is_skipped else None
            if any(case.find(tag) is not None for tag in BAD) or (is_skipped and reason is None):
                n_bad += 1
                print(f"failed: {name}")
            elif is_skipped:
                n_skipped += 1
                print(f"skipped: {name}: {reason}")
            else:
                n_passed += 1
        n_failed += n_bad
        if n_bad == 0 and (int(suite.get("errors", 0)) or int(suite.get("failures", 0))):
            n_failed += 1
            print(f"failed: {suite.get('name')} (ended badly)")
    if n_skipped:
        print(f"{n_skipped} skipped: what this machine cannot run, for the reasons above")
    print(f"{n_passed} passed, {n_failed} failed")
    return n_failed > 0 or n_passed == 0


if __name__ == "__main__":
    sys.exit(main())
