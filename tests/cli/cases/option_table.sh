# The option table has every command and every option of the help, in the same order, with the same words.
lab=$BUILT/../../lab/npudiff-lab
"$NPUDIFF" --option-table >table.json
"$lab" --option-table >lab.json
"$NPUDIFF" --help | sed -n '/^help:/q;s/^  \([a-z][a-z]*\)  *[a-z].*/\1/p' >names
cat >check.py <<'END'
import json, re, subprocess, sys

commands = [c for name in ("table.json", "lab.json") for c in json.load(open(name))["commands"]]
names = open("names").read().split()
print("commands of the help:", [c["name"] for c in commands] == names)
for command in commands:
    text = subprocess.run([sys.argv[1], command["name"], "--help"], capture_output=True, text=True).stdout
    listed = re.findall(r"^  (?:-(.), |    )--([a-z-]+) ?(\S.*?)?(?:  .*)?$", text.split("\noptions:\n")[1], re.M)
    made = [(o["letter"] or "", o["name"], o["argument"] or "") for o in command["options"]]
    if listed != made + [("h", "help", "")]:
        print(command["name"], listed, made)
    words = " ".join(text.split())
    for option in command["options"]:
        if " ".join(option["help"].split()) not in words:
            print(command["name"], option["name"], "other words")
        if (option["kind"] == "choice") != ("choices" in option) or (option["kind"] in ("number", "integer", "real")) != ("max" in option):
            print(command["name"], option["name"], "no limits")
        if (option["kind"] == "flag") == (option["argument"] is not None):
            print(command["name"], option["name"], "flag with an argument, or value without")
    if not 2 <= len(command["examples"]) <= 3 or any(not e["what"].endswith(".") for e in command["examples"]):
        print(command["name"], "examples")
kinds = {o["kind"] for c in commands for o in c["options"]}
values = {o["value"] for c in commands for o in c["options"]} - {None}
print(sorted(kinds))
print(sorted(values))
END
"$PYTHON" check.py "$NPUDIFF"
