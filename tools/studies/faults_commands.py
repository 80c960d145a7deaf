"""The commands of tools/studies/faults."""
import dataclasses
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODELS, CASES = ROOT / "golden/models", ROOT / "golden"
WHEEL = CASES / "fuzz/wheel/small.whl"


@dataclasses.dataclass
class Command:
    name: str
    arguments: list              # {in}: the folder of inputs, {url}: the same on a server, {out}: the output
    output: str | None = None    # its name; ".": several files; None: the answer is on stdout alone
    program: str = "npudiff"     # whose calls fail
    replaces: bool = False       # an old output is there
    does_last: bool = False      # --resume must give what was acknowledged
    own: dict = dataclasses.field(default_factory=dict) # of the environment
    needs_fleet: bool = False    # a board behind a real sshd (tests/e2e/phones.py)


CAPTURE = ["capture", MODELS / "mul.u8.onnx", "-d", "{device}", "-p", "uniform:40", "-o", "{out}", "-q"]


def capture(device):
    return [device if a == "{device}" else a for a in CAPTURE]


COMMANDS = [
    Command("capture exact", capture("exact"), "x.h5"),
    Command("capture exact, old", [*capture("exact"), "-f"], "x.h5", replaces=True),
    Command("capture exact, agent", capture("exact"), "x.h5", program="npudiff-agent", does_last=True),
    Command("capture cpu", capture("cpu"), "x.h5"),
    Command("capture cpu, agent", capture("cpu"), "x.h5", program="npudiff-agent", does_last=True),
    Command("import numpy", ["import", "numpy", CASES / "imports/bits.npz", "-o", "{out}"], "x.h5"),
    Command("import aihub", ["import", "aihub", CASES / "imports/aihub.h5", "-o", "{out}"], "x.h5"),
    Command("export aihub", ["export", "aihub", "{in}/a.h5", "-o", "{out}"], "x.h5"),
    Command("export aihub, old", ["export", "aihub", "{in}/a.h5", "-o", "{out}", "-f"], "x.h5", replaces=True),
    Command("export model-explorer", ["export", "model-explorer", MODELS / "mul.u8.onnx", "{in}/a.h5", "{in}/b.h5", "-o", "{out}"],
            "overlays"),
    Command("encodings apply", ["encodings", "apply", MODELS / "cnn.float.onnx", CASES / "encodings/cnn.per-tensor.1.0.0.encodings",
                                "-o", "{out}"], "x.onnx"),
    Command("encodings apply, old", ["encodings", "apply", MODELS / "cnn.float.onnx",
                                     CASES / "encodings/cnn.per-tensor.1.0.0.encodings", "-o", "{out}", "-f"], "x.onnx", replaces=True),
    Command("compare", ["compare", "{in}/a.h5", "{in}/b.h5", "--json"]),
    Command("compare --report", ["compare", "{in}/a.h5", "{in}/b.h5", "--report", "{out}"], "x.html"),
    Command("explain --report", ["explain", "--quantised", MODELS / "mul.u8.onnx", "{in}/a.h5", "{in}/b.h5", "--report", "{out}"], "x.html"),
    Command("report", ["report", "{in}/a.h5", "{in}/b.h5", "-o", "{out}"], "x.html"),
    Command("bundle", ["golden", "bundle", "{in}/a.h5", "-o", "{out}"], "x.json"),
    Command("init", ["init", MODELS / "mul.u8.onnx", "-d", "exact", "--no-phones", "-o", "{out}"], "x.yaml"),
    Command("align", ["align", MODELS / "mul.u8.onnx", "-o", "{out}"], "x.onnx"),
    Command("lint --fix", ["lint", "{in}/lint.onnx", "--fix", "-o", "{out}"], "x.onnx"),
    Command("lint --sarif", ["lint", "{in}/lint.onnx", "--sarif", "{out}"], "x.sarif"),
    Command("golden add", ["golden", "add", "{out}", "{in}/a.h5"], "store"),
    Command("qualify", ["qualify", "{in}/campaign.yaml", "-o", "{out}"], "result"),
    Command("qualify --emit", ["qualify", "{in}/campaign.yaml", "--emit", "tasks", "-o", "{in}/result"]),
    Command("qualify --task capture", ["qualify", "{in}/campaign.yaml", "-o", "{out}", "--task", "captures/mul.u8/cpu.h5"], "result"),
    Command("qualify --task result", ["qualify", "{in}/campaign.yaml", "-o", "{in}/result", "--task", "result.json"]),
    Command("plan", ["qualify", "--plan", "{in}/campaign.yaml", "-o", "{in}/result", "-v"]),
    Command("align --certificate", ["align", MODELS / "mul.u8.onnx", "-o", "{out}/x.onnx", "--certificate", "{out}/x.json", "-v"], "."),
    Command("align --verify", ["align", MODELS / "mul.u8.onnx", "-d", "exact", "-d", "emu:floor", "-p", "uniform:2", "-v"]),
    Command("verify certificate", ["verify", "{in}/aligned.json", "{in}/aligned.onnx"]),
    Command("promote", ["promote", MODELS / "cnn.w8a8.onnx", "--float", MODELS / "cnn.float.onnx", "-d", "exact", "-p", "uniform:2",
                        "--layers", "1", "-v", "-o", "{out}"], "x.onnx"),
    Command("fingerprint", ["fingerprint", "-d", "exact", "--section", "quantise", "-o", "{out}"], "x.json"),
    Command("sweep", ["sweep", MODELS / "mul.u8.onnx", "-d", "cpu", "-p", "uniform:2", "-q"]),
    Command("devices --check", ["devices", "--no-phones", "--check", "exec:{in}/npudiff-runner-header", "--trust-options"]),
    Command("fingerprint --diff", ["fingerprint", "--diff", "{in}/sheet.json", "{in}/other.json", "--json"]),
    Command("golden check", ["golden", "check", "{in}/store", "{in}/b.h5", "--json"]),
    Command("golden list", ["golden", "list", "{in}/store", "--json"]),
    Command("align --encodings", ["align", MODELS / "mul.u8.onnx", "-o", "{out}/x.onnx", "--encodings", "{out}/e.json", "--overrides",
                                  "{out}/o.json"], "."),
    Command("encodings list", ["encodings", "list", CASES / "encodings/cnn.per-tensor.1.0.0.encodings", "--json"]),
    Command("runtimes list", ["runtimes", "list", "--json"], own={"NPUDIFF_RUNTIMES": "{in}/runtimes"}),
    Command("runtimes check", ["runtimes", "check", "--files-only", "--json"], own={"NPUDIFF_RUNTIMES": "{in}/runtimes"}),
    Command("runtimes add", ["runtimes", "add", WHEEL, "--json"], ".", own={"NPUDIFF_RUNTIMES": "{out}"}),
    Command("info", ["info", "{in}/a.h5"]),
    Command("ls", ["info", "--list", "{in}/a.h5"]),
    Command("verify", ["verify", "{in}/a.h5"]),
    Command("capture fleet", ["capture", MODELS / "mul.u8.onnx", "-d", "cpu", "-d", "exact", "-d", "emu:floor", "-p", "uniform:4", "--json",
                              "-o", "{out}"], "captures"),
    Command("fleet tasks", ["qualify", "{in}/fleet-campaign.yaml", "--emit", "tasks", "-o", "{in}/none"],
            own={"NPUDIFF_FLEET": "{in}/fleet.yaml"}, needs_fleet=True),
    Command("fleet capture", ["capture", MODELS / "mul.u8.onnx", "-d", "@lab/cpu", "-p", "uniform:4", "--json", "-o", "{out}"], "x.h5",
            own={"NPUDIFF_FLEET": "{in}/fleet.yaml"}, needs_fleet=True),
    Command("run", ["run", MODELS / "mul.u8.onnx", "-d", "cpu", "-d", "exact", "-p", "uniform:4", "--json", "-o", "{out}"], "captures"),
    Command("report campaign", ["report", "{in}/result", "-o", "{out}"], "x.html"),
    Command("json info", ["info", "{in}/a.h5", "--json"]),
    Command("json ls", ["info", "--list", "{in}/a.h5", "--json"]),
    Command("json ls model", ["info", "--list", MODELS / "mul.u8.onnx", "--json"]),
    Command("json verify", ["verify", "{in}/a.h5", "{in}/b.h5", "--json"]),
    Command("json config", ["compare", "--config", "{in}/a.h5", "{in}/b.h5", "--json"]),
    Command("json logs", ["logs", CASES / "field/all-nodes-on-cpu/onnxruntime.log", "--json", "--unknown"]),
    Command("json devices", ["devices", "--no-phones", "--json"]),
    Command("json probes", ["probes", "--json"]),
    Command("json import", ["import", "--formats", "--json"]),
    Command("text ls", ["info", "--list", "{in}/a.h5", "-v"]),
    Command("text verify", ["verify", "{in}/a.h5", "{in}/b.h5"]),
    Command("text config", ["compare", "--config", "{in}/a.h5", "{in}/b.h5", "-v"]),
    Command("text logs", ["logs", CASES / "field/all-nodes-on-cpu/onnxruntime.log", "--unknown"]),
    Command("text devices", ["devices", "--no-phones"]),
    Command("option table", ["--option-table"]),
    Command("server info", ["info", "{url}/a.h5", "--json"]),
    Command("server ls", ["info", "--list", "{url}/a.h5", "-v"]),
    Command("server verify", ["verify", "{url}/a.h5"]),
    Command("server compare", ["compare", "{url}/a.h5", "{url}/b.h5", "--json"]),
    Command("server explain", ["explain", "--quantised", MODELS / "mul.u8.onnx", "{url}/a.h5", "{url}/b.h5", "--json"]),
    Command("server report", ["report", "{url}/a.h5", "{in}/b.h5", "-o", "{out}"], "x.html"),
    Command("server bundle", ["golden", "bundle", "{url}/a.h5", "-o", "{out}"], "x.json"),
]
