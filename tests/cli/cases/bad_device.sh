# Devices that do not exist, and options that they do not have.
try() { run capture "$GOLDEN/models/cnn.w8a8.onnx" -p zeros -o x -d "$1"; }
try tpu
try ''
try CPU
try htp-sim
try htp-sim:
try htp-sim:gen9
try htp-sim:SM9999
try 'cpu?speed=fast'
try 'cpu?optimisation=most'
try 'cpu?optimisation'
try 'cpu?=all'
try 'cpu?'
try 'cpu?threads=0'
try 'cpu?threads=two'
try 'htp-sim:gen3?soc_model=57'
try 'htp-sim:gen3?backend_path=/tmp/x.so'
try cpu@
try cpu@qairt-9.9
try htp-sim:gen3@../../etc
ls
