# A probe whose median latency is infinite, and an attribute that is, are listed; JSON has no such number.
cat > infinite.py <<'PY'
import sys, h5py, numpy as np
sys.path[:0] = [sys.argv[2] + "/tests/e2e"]
from write_capture import seal
with h5py.File(sys.argv[1], "r+") as file:
    file["probes/zeros/latency_us"][...] = np.inf
    file["host"].attrs["load"] = np.float64("inf")
    seal(file, changed=())
PY
SOURCE_DATE_EPOCH= capture cnn.w8a8 -d cpu -p zeros -p ramp -o cpu.h5
python infinite.py cpu.h5 "$ROOT"
"$NPUDIFF" info cpu.h5 --json | grep -e '"probe"' -e '"load"' -A0
"$NPUDIFF" info cpu.h5 --json | grep -c '"median_us": null'
"$NPUDIFF" info cpu.h5 | grep -e zeros -e ramp | tr -s ' ' | cut -d' ' -f2,3
"$NPUDIFF" info cpu.h5 -v | grep load
