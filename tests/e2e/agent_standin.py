#!/usr/bin/env python3
"""An agent that cannot make a session in which a certain tensor is visible: $STANDIN_TENSOR, the names of it in the model. There
it is killed or, with $STANDIN_STUCK, stuck; with $STANDIN_CHANGES the session runs, but another value of that constant makes other
outputs. In all other sessions $STANDIN_AGENT does its work."""
import os
import pathlib
import re
import signal
import subprocess
import sys

import onnx_bytes

agent, tensors = os.environ["STANDIN_AGENT"], set(os.environ["STANDIN_TENSOR"].split())
models = re.findall(rb"/[^\0]*?\.onnx", pathlib.Path(sys.argv[1]).read_bytes())
guilty = [p for p in map(pathlib.Path, (m.decode() for m in models)) if tensors & set(onnx_bytes.outputs(p.read_bytes()))]
constant = os.environ.get("STANDIN_CHANGES")
for path in guilty if constant else []:
    data = bytearray(path.read_bytes())
    if constant in onnx_bytes.initializers(data):
        _, begin, _ = onnx_bytes.initializers(data)[constant]
        data[begin] ^= 8
        path.write_bytes(data)
if not guilty or constant:
    os.execv(agent, sys.argv)
stop = pathlib.Path("stop-here")
stop.write_text("stage session\n")
os.environ["NPUDIFF_TEST_AGENT_STOP"] = str(stop.resolve())
if "STANDIN_STUCK" in os.environ:
    os.execv(agent, sys.argv)
child = subprocess.Popen([agent, *sys.argv[1:]])
os.waitpid(child.pid, os.WUNTRACED)
child.kill()
os.kill(os.getpid(), signal.SIGKILL)
