# Tables that need no runtime.
run probes
NPUDIFF_RUNTIMES=$PWD/none "$NPUDIFF" devices --json | python -c '
import json, sys
for row in json.load(sys.stdin)["chipsets"]:
    print(row["device"], row["sm"], row["soc_model"], row["arch"], row["available"])'
