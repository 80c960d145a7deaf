# The datasheets of several devices in one folder, and the table of them. Emulated devices answer without a runtime.
sections="--section normalise"
run fingerprint --campaign sheets -d emu:htp-v69 -d emu:htp-v73 $sections -q
ls sheets
# Datasheets that are there stay as they are; one that is missing is taken, and one that lacks a section is taken
# with the sections that it has, too.
touch -d 2001-01-01 sheets/*.json
run fingerprint --campaign sheets -d emu:htp-v69 -d emu:htp-v73 -d exact $sections -q
find sheets -name '*.json' -newermt 2002-01-01
run fingerprint --campaign sheets -d exact --section quantise -q
python -c 'import json; print(list(json.load(open("sheets/exact.json"))["sections"]))'
# Without a device: the table of those that are there.
run fingerprint --campaign sheets
run fingerprint --campaign sheets -v
"$NPUDIFF" fingerprint --campaign sheets --json >document.json || echo "exit $?"
python -c 'import json; d = json.load(open("document.json")); print([d[k] for k in ("verdict", "devices", "runtimes")])' | sed 's/npudiff-[0-9.]*/npudiff-VERSION/'
# A device that fails in every operator has no datasheet, and does not end the campaign.
run fingerprint --campaign others -d float64 -d exact $sections -q
ls others
# A file that is not the device's datasheet stays.
echo '{}' >others/float64.json
run fingerprint --campaign others -d float64 $sections -q
cat others/float64.json
run fingerprint --campaign none
mkdir empty
run fingerprint --campaign empty
run fingerprint -d exact -d cpu --section quantise
run fingerprint -d exact --runtime qairt-2.51.0 --section quantise
# Chips and SDKs: what changes, at which step, and where. Written here, because the simulator takes minutes.
python - <<'END'
import json
import os

os.mkdir("chips")
def sheet(arch, chipset, version, **programs):
    entries = [{"operator": name, "types": "u8 -> u8", "verdict": "identified", "possible_arithmetic": [program]} for name, program in programs.items()]
    device = {"uri": f"htp-sim:{chipset}@qairt-{version}", "runtime": f"qairt-{version}", "arch": arch}
    with open(f"chips/{arch}-{version}.json", "w") as file:
        json.dump({"npudiff_datasheet": 2, "device": device, "sections": {"table-u8": entries}}, file)
for version in ("2.9.0", "2.10.0", "2.11.0"):
    new = "new" if version != "2.9.0" else "old"
    sheet("v69", "SM8450", version, Abs="one", Exp="one", Sqrt=new, Log=new)
    if version != "2.10.0":
        sheet("v73", "SM8550", version, Abs="one", Exp=new, Sqrt=new, Log=new)
END
run fingerprint --campaign chips
run fingerprint --campaign chips -v
