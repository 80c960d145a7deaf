# A runtime for boards from stand-in libraries (tests/support/elf_file.py): added, listed, checked, damaged, removed.
export NPUDIFF_RUNTIMES=$PWD/runtimes PYTHONPATH=$ROOT/tests/support PYTHONDONTWRITEBYTECODE=1
python - <<'END'
import pathlib
from elf_file import AARCH64, HEXAGON, library
for name, data in {
        "sdk/lib/aarch64-oe-linux-gcc11.2/libQnnHtp.so": library(AARCH64, payload=b"v2.99.3.260101123456"),
        "sdk/lib/aarch64-oe-linux-gcc11.2/libQnnHtpV75Stub.so": library(AARCH64, needed=("libcdsprpc.so", "libc.so.6")),
        "sdk/lib/hexagon-v75/unsigned/libQnnHtpV75Skel.so": library(HEXAGON, bits=32, needed=()),
        "sdk/bin/aarch64-oe-linux-gcc11.2/qnn-net-run": library(AARCH64),
        "package/libonnxruntime.so.1.77.0": library(AARCH64, version="1.77.0"),
        "phone/libonnxruntime.so": library(40, bits=32)}.items():
    path = pathlib.Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
END
run runtimes add sdk
run runtimes add package
run runtimes add package
run runtimes add package --id a/b
run runtimes add phone
run runtimes add nowhere
run runtimes add
run runtimes list --force
"$NPUDIFF" runtimes | grep -v 'not installed'
run runtimes check qnn-2.99.3
rm runtimes/qnn-2.99.3.aarch64-linux/lib/hexagon-v75/unsigned/libQnnHtpV75Skel.so
echo text >runtimes/ort-1.77.0.aarch64-linux/libonnxruntime.so.1.77.0
run runtimes check
run runtimes check other
run runtimes remove qnn-2.99.3
run runtimes remove qnn-2.99.3
run runtimes remove ort-1.77.0 --abi aarch64-android
run runtimes remove ort-1.77.0
ls -A runtimes
