#!/usr/bin/env python3
"""An agent that cannot make a session in which a certain tensor is visible: $STANDIN_TENSOR, the name of the model's tensor. There
it is killed or, with $STANDIN_STUCK, stuck; in all other sessions $STANDIN_AGENT does its work."""
import os
import pathlib
import re
import signal
import subprocess
import sys

import onnx_bytes

agent, tensor = os.environ["STANDIN_AGENT"], os.environ["STANDIN_TENSOR"]
models = re.findall(rb"/[^\0]*?\.onnx", pathlib.Path(sys.argv[1]).read_bytes())
if not any(tensor in onnx_bytes.outputs(pathlib.Path(m.decode()).read_bytes()) for m in models):
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
