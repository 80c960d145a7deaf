# How captures were configured; an HTP configuration that cannot be read is told before anything runs.
printf '{"graphs": [{"O": 3, "vtcm_mb": 8}]}' > htp.json
printf '{"graphs": [{"O": 3}' > broken.json
capture mul.u8 -d exact -p zeros -o plain.h5
capture mul.u8 -d exact -p zeros -o kept.h5 --htp-config htp.json
run compare --config -v kept.h5 | grep -E '^(\$|htp)' | tr -s ' ' # the rest is of this machine
run compare --config plain.h5 kept.h5
run compare --config plain.h5 plain.h5
run capture "$GOLDEN/models/mul.u8.onnx" -d exact -p zeros -o x.h5 --htp-config broken.json
run capture "$GOLDEN/models/mul.u8.onnx" -d exact -p zeros -o x.h5 --htp-config missing.json
run compare --config missing.h5
ls
