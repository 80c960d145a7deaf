# A word that is nearly right: commands, actions, options, choices, devices, chipsets, runtimes, probes, tensors, sections.
cnn=$GOLDEN/models/cnn.w8a8.onnx
run comprae
run golden chekc store
run runtimes ad x
run import nunpy x -o y.h5
run capture "$cnn" --prob zeros
run capture "$cnn" --log-level warn
run capture "$cnn" -d cpuu -o x
run capture "$cnn" -d gen3 -o x
run capture "$cnn" -d htpsim:gen3 -o x
run capture "$cnn" -d htp-sim:gne3 -o x
run capture "$cnn" -d htp-sim:SM8651 -o x
run capture "$cnn" -d exact -p unifrom:3 -o x
run capture "$cnn" -d exact -t stem/rel -o x
run fingerprint -d exact --section liner-u8
capture cnn.w8a8 -d exact -p zeros -o a.h5
run compare a.h5 a.h5 -t logit
NPUDIFF_RUNTIMES=$PWD/none run capture "$cnn" -d cpu@qairt-2.51.00 -o x
run capture "$cnn" -d 'htp-sim:gen3?vtcm_mbb=4' -o x
# Nothing is near.
run capture "$cnn" -d 'htp-sim:gen3?op_packages=x.so' -o x
run weather
run capture "$cnn" -d weather -o x
