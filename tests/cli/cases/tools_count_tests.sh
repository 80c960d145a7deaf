# What tools/test prints of meson's log: why a case failed, the last output of what hung or died, reasons of what was skipped.
cat >log.json <<'END'
{"name": "p:e2e / python", "result": "ERROR", "returncode": 1, "duration": 1.5, "stdout": "1..4\n# ND_SEED=1\nok 1 - A.test_a\nnot ok 2 - A.test_b\n# Traceback\n# AssertionError: 0 != 5\nok 3 - A.test_c # SKIP no adb here\nok 4 - A.test_d\n", "stderr": "(test program exited with status code 1)\n"}
{"name": "p:unit / cmocka", "result": "FAIL", "returncode": 2, "duration": 0.5, "stdout": "1..3\nok 1 - one\n# seed 7\nnot ok 2 - two\n# 0x2 != 0\n# x.c:148: error: Failure!\nnot ok 3 - three\n# x.c:200: error: Failure!\n# not ok - tests\n"}
{"name": "p:unit / good", "result": "OK", "returncode": 0, "duration": 0.5, "stdout": "1..1\nok 1 - one\n"}
{"name": "p:unit / plain", "result": "OK", "returncode": 0, "duration": 0.5, "stdout": ""}
{"name": "p:e2e / hangs", "result": "TIMEOUT", "returncode": -15, "duration": 900.02, "stdout": "1..2\nok 1 - B.test_a\n# working\n", "stderr": "in test_import.py, line 12\n"}
{"name": "p:unit / crashes", "result": "ERROR", "returncode": -11, "duration": 0.1, "stdout": "1..2\nok 1 - one\n", "stderr": "AddressSanitizer\n"}
{"name": "p:e2e / phones", "result": "SKIP", "returncode": 0, "duration": 0.1, "stdout": "1..0 # SKIP no adb on this machine\n"}
{"name": "p:e2e / silent", "result": "SKIP", "returncode": 77, "duration": 0.1, "stdout": ""}
END
"$PYTHON" "$ROOT/tools/count_tests.py" log.json && echo "exit code 0" || echo "exit code $?"
# Where a list says what may be skipped, nothing else may.
printf '# What may be skipped.\nphones  there may be no adb\n' >allowed
sed -n '1p;7p' log.json >skips.json
"$PYTHON" "$ROOT/tools/count_tests.py" --allowed allowed skips.json || echo "exit code $?"
echo "python: A.*" >bad
"$PYTHON" "$ROOT/tools/count_tests.py" --allowed bad skips.json || echo "exit code $?"
sed -n 3,4p log.json >good.json
"$PYTHON" "$ROOT/tools/count_tests.py" good.json && echo "exit code 0" || echo "exit code $?"
: >empty.json
"$PYTHON" "$ROOT/tools/count_tests.py" empty.json && echo "exit code 0" || echo "exit code $?"
# What each took: the longest first.
cat >times.json <<'EOF'
{"name": "p:e2e / python", "result": "ERROR", "returncode": 1, "starttime": 101.5, "duration": 8.5, "stdout": "1..2\nok 1 - A.test_a\nnot ok 2 - A.test_b\n# AssertionError\n# took 1.50 s, 1.25 s of processor time: A.test_a\n# took 6.00 s, 0.50 s of processor time: A.test_b\n"}
{"name": "p:unit / cmocka", "result": "OK", "returncode": 0, "starttime": 100.0, "duration": 12.0, "stdout": "1..1\nok 1 - one\n"}
EOF
"$PYTHON" "$ROOT/tools/count_tests.py" --times times.json
"$PYTHON" "$ROOT/tools/count_tests.py" times.json || echo "exit code $?"
