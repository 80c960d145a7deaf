# What is there is not overwritten, unless asked.
capture cnn.w8a8 -d cpu -p zeros -o x/first.h5 2>/dev/null || mkdir x
capture cnn.w8a8 -d cpu -p zeros -o x
cp x/cpu.h5 kept.h5
run capture "$GOLDEN/models/cnn.w8a8.onnx" -d cpu -p ones -o x -q
run capture "$GOLDEN/models/cnn.w8a8.onnx" -d cpu -p ones -o x/cpu.h5 -q
cmp x/cpu.h5 kept.h5
run capture "$GOLDEN/models/cnn.w8a8.onnx" -d cpu -p ones -o x -q --force
run capture "$GOLDEN/models/cnn.w8a8.onnx" -d cpu -p ones -o x -q -f
"$NPUDIFF" info --list x/cpu.h5 --json | grep -c '/probes/ones/inputs/image'
ls x
