# A disk that is full: exit 2, a message that says so, nothing left behind but what --resume takes up. A limit on the size of files stands for it.
model=$GOLDEN/models/cnn.w8a8.onnx
mkdir out
# the capture itself: the job and the spool of one sample are small, the provenance in the capture is not
(ulimit -f 24 && run capture "$model" -d cpu -p zeros -o out -t none -q)
(ulimit -f 24 && run capture "$model" -d cpu -p zeros -o out/x.h5 -t none -q)
find out -mindepth 1
# what was captured is not lost: nothing runs again
run capture "$model" -d cpu -p zeros -o out/x.h5 -t none -q --resume
run capture "$model" -d cpu -p zeros -o out -t none -q --resume
find out "$TMPDIR" -mindepth 1
rm out/*
# one that exists stays as it is
capture cnn.w8a8 -d cpu -p ones -o out
cp out/cpu.h5 kept.h5
(ulimit -f 24 && run capture "$model" -d cpu -p zeros -o out -t none -q --force)
cmp out/cpu.h5 kept.h5
find out -mindepth 1
run capture "$model" -d cpu -p zeros -o out -t none -q --force
find out "$TMPDIR" -mindepth 1
# libhdf5 crashed here at the end of the process
(ulimit -f 1 && run export aihub out/cpu.h5 -o hub.h5)
find . -name 'hub*'
