# Fleet files: labels, and what is wrong in a file, with its line and column.
model="$GOLDEN/models/cnn.w8a8.onnx"
try() { # the text of the file, a device
    printf "$1" > fleet.yaml
    NPUDIFF_FLEET=fleet.yaml run capture "$model" -d "$2" -p ramp -o out
}
good='devices:\n  - {device: ssh:board, labels: [gen3, fast]}\n  - {device: ssh:other, labels: gen3}\n'
try "$good" @gen4
try "$good" @gen3/cpu
try "$good" @gen3/nonsense
try "$good" @
try 'devices: [{device: ssh:board}]\n' @gen3
try 'lease: [x]\n' @gen3
try "$good"'leese: [x]\n' @gen3
try "$good"'lease-limit: none\n' @gen3
try "$good"'lease-limit: 0\n' @gen3
try 'devices: [{device: cpu, labels: a}]\n' @a
try 'devices: [{device: adb:*, labels: a}]\n' @a
try 'devices: [{device: "adb:R5@lab7:0", labels: a}]\n' @a
try 'devices: [{device: ssh:board/cpu, labels: a}]\n' @a
try 'devices: [{device: ssh:board, labels: a/b}]\n' @a
try 'devices:\n  - device: ssh:board\n  - device: ssh:board\n' @a
try 'devices:\n  - device: ssh:board\n    host: lab\n' @a
try 'devices: [{device: ssh:board}]\nhosts:\n  - {name: lab, captures: 0}\n' @a
try 'devices: [{device: ssh:board}]\nhosts:\n  - name: lab\n  - name: lab\n' @a
try 'devices:\n  - {device: ssh:board\n' @a
try '[]\n' @a
run capture "$model" -d @gen3 -p ramp -o out
NPUDIFF_FLEET=missing.yaml run capture "$model" -d @gen3 -p ramp -o out
[ ! -e out ] || find out
