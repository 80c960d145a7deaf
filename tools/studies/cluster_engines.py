"""What tools/studies/cluster runs campaigns with: a Slurm of its own, Snakemake in a virtual environment, and the processor time of
all processes. What is missing is installed."""
import collections
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("NPUDIFF_BUILD", ROOT / "build"))
CACHE = pathlib.Path.home() / ".cache/npudiff/cluster"
SNAKEMAKE = ["snakemake", "snakemake-executor-plugin-slurm"]
ENVIRONMENT = dict(os.environ, PATH=f"{BUILD}/src/cli:{os.environ['PATH']}", LD_LIBRARY_PATH=str(BUILD / "src"),
                   NPUDIFF_AGENT=str(BUILD / "src/devices/agent/npudiff-agent"), SOURCE_DATE_EPOCH="1767225600")
SLURM_CONF = """ClusterName=npudiff
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort=17810
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1,sched_min_interval=0
SlurmdTimeout=10
ReturnToService=2
JobRequeue=1
SlurmdParameters=config_overrides
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port=17811 CPUs=1 RealMemory=8000
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port=17812 CPUs=1 RealMemory=8000
PartitionName=lab Nodes=ALL Default=YES State=UP
"""


# What Debian package has which program.
PACKAGES = {"slurmctld": "slurmctld", "slurmd": "slurmd", "sbatch": "slurm-client", "munged": "munge"}
PR_SET_CHILD_SUBREAPER = 36
TICKS = os.sysconf("SC_CLK_TCK")

Took = collections.namedtuple("Took", "wall cpu")


def install(*packages):
    print(f"cluster: installing {' '.join(packages)}", file=sys.stderr)
    environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    for command in (["update", "-qq"], ["install", "-qq", "-y", "--no-install-recommends", *packages]):
        done = subprocess.run(["apt-get", *command], env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"cluster: apt-get install {' '.join(packages)} failed\n{done.stderr}")


def install_slurm():
    missing = sorted({package for program, package in PACKAGES.items() if shutil.which(program) is None})
    if missing:
        install(*missing)


def install_snakemake():
    """The program, in a virtual environment."""
    python = CACHE / "python/bin/python"
    own = dict(os.environ)
    if not python.exists() or run(python, "-m", "pip", "--version", env=own).returncode != 0:
        shutil.rmtree(CACHE / "python", ignore_errors=True)
        if run(sys.executable, "-m", "venv", CACHE / "python", env=own).returncode != 0:
            install("python3-venv")
            run(sys.executable, "-m", "venv", CACHE / "python", env=own, check=True)
    if run(python, "-m", "pip", "show", "-q", *SNAKEMAKE, env=own).returncode != 0:
        print(f"cluster: installing {' '.join(SNAKEMAKE)}", file=sys.stderr)
        run(python, "-m", "pip", "install", "-q", *SNAKEMAKE, env=own, check=True)
    return CACHE / "python/bin/snakemake"


def processor_seconds(daemons):
    """Of all processes that have ended, and of the daemons that run, with what they have waited for. Processes whose parent
    has ended are this one's children (PR_SET_CHILD_SUBREAPER), so that none is forgotten."""
    keep = {process.pid for process in daemons}
    children = {int(pid) for task in pathlib.Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()}
    for pid in children - keep:
        os.waitpid(pid, os.WNOHANG)
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime + sum(ticks_of(pid) for pid in keep) / TICKS


def ticks_of(pid):
    """utime, stime, cutime and cstime."""
    return sum(map(int, pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))


def run(*command, cwd=None, **options):
    return subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True,
                          **{"env": ENVIRONMENT, **options})


class Slurm:
    """munged, slurmctld and two slurmd of our own; ends them by their process ids."""

    def __init__(self, folder):
        install_slurm()
        self.folder = folder
        self.processes = {}
        (folder / "state").mkdir(parents=True)
        (folder / "munge").mkdir()
        (folder / "munge.key").write_bytes(os.urandom(128))
        (folder / "munge.key").chmod(0o400)
        (folder / "slurm.conf").write_text(SLURM_CONF.format(folder=folder, host=os.uname().nodename))
        self.environment = dict(ENVIRONMENT, SLURM_CONF=str(folder / "slurm.conf"))
        self.start("munged", "munged", "-F", "--force", f"--socket={folder}/munge.socket", f"--key-file={folder}/munge.key",
                   f"--pid-file={folder}/munged.pid", f"--log-file={folder}/munged.log", f"--seed-file={folder}/munge.seed")
        self.wait(lambda: (folder / "munge.socket").exists(), "munged")
        self.start("slurmctld", "slurmctld", "-D", "-c")
        for node in ("n1", "n2"):
            self.start_node(node)
        self.wait(lambda: run("sinfo", "-h", "-o", "%T", env=self.environment).stdout.split() == ["idle"], "two idle nodes")

    def start(self, name, *command):
        self.processes[name] = subprocess.Popen(command, env=self.environment, stdout=subprocess.DEVNULL,
                                                stderr=open(self.folder / f"{name}.err", "a"))

    def start_node(self, node):
        self.start(node, "slurmd", "-D", "-N", node)

    def wait(self, condition, what):
        for _ in range(600):
            if condition():
                return
            time.sleep(0.1)
        raise SystemExit(f"cluster: {what} did not come up; see {self.folder}")

    def kill_node(self, node):
        """As if the machine lost its power: slurmd and all that it started, at once. The processes that watch over the
        jobs go first, or they would still report that a job was killed."""
        marks = {f"SLURMD_NODENAME={node}".encode(), f"SLURM_CONF={self.folder}/slurm.conf".encode()}
        jobs, watchers = set(), set()
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if marks <= set((entry / "environ").read_bytes().split(b"\0")):
                    jobs.add(int(entry.name))
                    parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
                    if pathlib.Path("/proc", parent, "comm").read_text().startswith("slurmstepd"):
                        watchers.add(int(parent))
            except OSError:
                pass # it has ended
        self.processes[node].kill()
        for process in [*watchers, *(jobs - watchers)]:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.processes[node].wait()

    def daemons(self):
        return [process for process in self.processes.values() if process.poll() is None]

    def stop(self):
        for name in ("n1", "n2", "slurmctld", "munged"):
            process = self.processes.get(name)
            if process is not None and process.poll() is None:
                process.terminate()
                process.wait(60)
