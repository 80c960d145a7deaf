# Dynamic dimensions: asked for by name, refused when they make no sense, and then the model runs.
model=$GOLDEN/oracle/model/dynamic.onnx
run capture "$model" -d cpu -p ramp -o x.h5
run capture "$model" -d cpu -p ramp -o x.h5 --dim batch=2
run capture "$model" -d cpu -p ramp -o x.h5 --dim depth=2
run capture "$model" -d cpu -p ramp -o x.h5 --dim batch
run capture "$model" -d cpu -p ramp -o x.h5 --dim batch=0
run capture "$model" -d cpu -p ramp -o x.h5 --dim =2
run capture "$model" -d cpu -p ramp -o x.h5 --dim batch=two
ls
run capture "$model" -d cpu -p ramp -o x.h5 -q --dim batch=2 --dim a:1=3 --dim width=4
"$NPUDIFF" info --list x.h5 --json | python -c '
import json, sys
for row in json.load(sys.stdin)["objects"]:
    if "/inputs/" in row["path"] or "/outputs/" in row["path"]:
        print(row["path"], row["dims"])'
