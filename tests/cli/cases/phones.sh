# Which phone is meant, and those that cannot be. The adb here is a stand-in: a script that prints what adb prints.
model=$GOLDEN/models/cnn.w8a8.onnx
try() { run capture "$model" -p zeros -o x -d "$@"; }

echo '# no adb, no ssh'
try adb:R5CX10ABCDE
try adb:
try 'adb:*'
try ssh:board
run devices -v --no-phones | tail -1
run devices -v | tail -1

stand_in() {
    printf '#!/bin/sh\n# A stand-in for adb.\n[ "$1" = devices ] && printf "List of devices attached\\n%s" || echo SM8650\n' "$1" > adb
    chmod +x adb
    export NPUDIFF_ADB=$PWD/adb
}
echo '# none'
stand_in '\\n'
try adb:
try 'adb:*'
run devices -v | tail -1
printf 'models: [{quantised: %s, probes: zeros}]\ndevices:\n  - "adb:*/cpu"\npolicy: [{gate: finalize}]\n' "$model" > campaign.yaml
run qualify campaign.yaml -o x
rm campaign.yaml
echo '# several, and no serial'
stand_in 'R5CX10ABCDE device product:e3q model:SM_S928B transport_id:1\\nemulator-5554 device\\n0123 unauthorized usb:1-1\\n'
try adb:
run devices -v | tail -4
"$NPUDIFF" devices --json | python -c '
import json, sys
for phone in json.load(sys.stdin)["phones"]:
    print(phone["device"], phone["state"], phone["model"], phone["chipset"], phone["available"])'
run capture "$model" -p zeros -o x.h5 -d 'adb:*'
echo '# one that may not be used'
stand_in '0123 unauthorized usb:1-1\\n'
try adb:
echo '# what cannot run there'
stand_in 'R5CX10ABCDE device\\n'
try adb:/exact
try adb:R5CX10ABCDE/emu:round=floor
try adb:R5CX10ABCDE/qnn-net-run/cpu
try adb:R5CX10ABCDE/
try adb:R5CX10ABCDE/htp:gen9
try adb:R5CX10ABCDE/cpu@qairt-9.9
try 'adb:R5CX10ABCDE?soc_model=57'
try 'adb:R5*'
try ssh:-oProxyCommand=x
try htp:gen9
echo '# where one is needed'
run fingerprint -d 'adb:*'
rm adb
ls
