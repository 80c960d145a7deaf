# Where no capture can be written. Said before the device runs, where that can be known.
echo text >file
mkdir folder.h5
model=$GOLDEN/models/cnn.w8a8.onnx
run capture "$model" -d cpu -p zeros -o file
run capture "$model" -d cpu -p zeros -o file/below
run capture "$model" -d cpu -p zeros -o missing/x.h5 -q
run capture "$model" -d cpu -p zeros -o folder.h5 -q
run capture "$model" -d cpu -p zeros -o folder.h5 -q --force
run capture "$model" -d cpu -p zeros -o x.h5 -q --agent ./missing-agent
run capture "$model" -d cpu -p zeros -o x.h5 -q --agent /bin/true
TMPDIR=$PWD/none run capture "$model" -d cpu -p zeros -o y.h5 -q
find . | sort
