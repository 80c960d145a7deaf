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
try 'htp-sim:gen3?op_packages=/tmp/x.so:f'
try cpu@
try cpu@qairt-9.9
try htp-sim:gen3@../../etc
# Emulated ones, and what their profiles say.
try emu:
try emu:round=flor
try emu:stale@residual/con
try emu:fallback=Softmax
try emu:saturate@pool=12
try emu:missing.yaml
profile() { printf -- "$1" > p.yaml; try emu:p.yaml; rm p.yaml; }
profile ''
profile 'items: [zero@pool'
profile '- zero@pool\n'
profile 'items: []\n'
profile 'items: zero@pool\n'
profile 'seed: 3\n'
profile 'items: [zero@pool]\nsed: 3\n'
profile 'items: [zero@pool]\nseed: three\n'
profile 'items: [zero@pool]\nseed: [3]\n'
profile 'items:\n  - zero@pool\n  - blur@pool\n'
profile 'items:\n  - zero@pool\n  - {zero: pool}\n'
profile 'items: [zero@pool]\nitems: [zero@pool]\n'
profile 'items: ["zero@pool,zero@logits"]\n'
profile 'items: [zero@pool]\n---\nitems: [zero@pool]\n'
ls
