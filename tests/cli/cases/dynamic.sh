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
# The sizes that are proposed fit the samples: of an archive, of one array with a dimension of samples before it; and 1 where
# nothing says one.
python -c '
import numpy as np
np.savez("fits.npz", a=np.zeros((5, 2, 3), np.float32), b=np.zeros((5, 3), np.float32), c=np.zeros((5, 4), np.float32))
np.savez("more.npz", a=np.zeros((5, 1, 2, 3, 4), np.float32))
np.save("a.npy", np.zeros((5, 2, 3), np.float32))'
run capture "$model" -d cpu -p fits=fits.npz -o z.h5
run capture "$model" -d cpu -p ramp -p more=more.npz -o z.h5
run capture "$model" -d cpu -p a=a.npy -o z.h5
