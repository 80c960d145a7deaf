# TMPDIR is full: for the exposed model, for the job, and in the agent, for its spool.
model=$GOLDEN/models/cnn.w8a8.onnx
digits="digits=$GOLDEN/models/digits-test.npz"
(ulimit -f 8 && run capture "$model" -d cpu -p zeros -o model.h5 -q)
(ulimit -f 100 && run capture "$model" -d cpu -p "$digits" -o job.h5 -q)
(ulimit -f 500 && run capture "$model" -d cpu -p "$digits" -o spool.h5 -q --deflate 0)
# the first samples are kept in TMPDIR
run capture "$model" -d cpu -p "$digits" -o spool.h5 -q --deflate 0 --resume
find . "$TMPDIR" -mindepth 1
