"""Runs npudiff, and measures what it costs."""
import json
import os
import resource
import subprocess
import time

CAPTURE_LIMIT_S = 120   # a capture that takes longer counts as hung
EXPLAIN_LIMIT_S = 300
PROBE = "net"


class Result:
    def __init__(self, code, document, message, seconds, processor_s):
        self.code, self.document, self.message = code, document, message
        self.seconds, self.processor_s = seconds, processor_s


def npudiff(*arguments, limit_s):
    """Exit code (None: stopped after limit_s; below 0: a signal), the JSON document or None, and the last words on stderr."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    try:
        done = subprocess.run([os.environ["NPUDIFF"], *map(str, arguments), "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              timeout=limit_s, check=False)
        code, out, err = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired as stopped:
        code, out, err = None, stopped.stdout or b"", stopped.stderr or b""
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        document = json.loads(out)
    except ValueError:
        document = None
    words = err.decode(errors="replace").strip().splitlines()
    return Result(code, document, words[-1] if words else "", time.monotonic() - start,
                  after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def capture(model, device, samples, path, *arguments):
    """(one of the objects of 'captures', or what stands for it where there is no document; Result)"""
    uri = device if device == "cpu" else f"htp-sim:{device}"
    done = npudiff("capture", model, "-d", uri, "-p", f"{PROBE}={samples}", "-o", path, "-f", "--time-limit", CAPTURE_LIMIT_S, *arguments,
                   limit_s=CAPTURE_LIMIT_S + 60)
    if done.document and done.document.get("captures"):
        return done.document["captures"][0], done
    return {"status": "hung" if done.code is None else "crashed", "stage": "", "reason": done.message, "left_out": [], "sessions": 0}, done


def explain(model, path, *arguments):
    return npudiff("explain", "--quantised", model, path, *arguments, limit_s=EXPLAIN_LIMIT_S)
