# Commands and options that do not exist, and operands that are too few or too many.
run captrue
run ''
run capture m.onnx --devise cpu
run capture m.onnx -x
run capture -qx m.onnx
run compare a.h5 b.h5 --json=yes
run compare a.h5 b.h5 --lsb
run compare a.h5
run compare
run capture
run capture a.onnx b.onnx -d cpu -o x
run info
run info a.h5 b.h5
run info --list
run verify
run probes zeros
run devices cpu
run runtimes qairt-2.51.0
run capture m.onnx -o x
run capture m.onnx -d cpu
run capture m.onnx -d cpu -d htp-sim:gen3 -o x.h5
run capture -- -m.onnx
ls
