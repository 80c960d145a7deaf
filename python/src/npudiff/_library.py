"""libnpudiff by ctypes: as much of its headers as this package calls (model/model.h, devices/twin.h;
structs as there)."""
import ctypes
import functools
import os
import pathlib

from npudiff import _command
from npudiff._errors import error_for

MAX_RANK = 8
_SONAME = "libnpudiff.so.0"


class Error(ctypes.Structure):
    _fields_ = [("status", ctypes.c_int), ("id", ctypes.c_int), ("message", ctypes.c_char * 1024),
                ("object", ctypes.c_char * 512)]


class Shape(ctypes.Structure):
    _fields_ = [("rank", ctypes.c_int), ("dims", ctypes.c_int64 * MAX_RANK)]


class Quant(ctypes.Structure):
    _fields_ = [("n", ctypes.c_size_t), ("axis", ctypes.c_int), ("scale", ctypes.POINTER(ctypes.c_float)),
                ("zero_point", ctypes.POINTER(ctypes.c_int64))]


class Io(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("dtype", ctypes.c_int), ("shape", Shape), ("dim_params", ctypes.c_char_p * MAX_RANK),
                ("quant", ctypes.POINTER(Quant)), ("quant_dtype", ctypes.c_int)]


class TwinValue(ctypes.Structure):
    _fields_ = [("io", Io), ("op_types", ctypes.c_char_p), ("size_bytes", ctypes.c_size_t), ("why", ctypes.c_char_p),
                ("is_behind", ctypes.c_bool)]


class TwinSamples(ctypes.Structure):
    _fields_ = [("n", ctypes.c_size_t), ("inputs", ctypes.POINTER(ctypes.c_void_p)),
                ("outputs", ctypes.POINTER(ctypes.c_void_p)), ("tensors", ctypes.POINTER(ctypes.c_void_p))]


_OBJECT, _SLOT, _ERROR = ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(Error)
_FUNCTIONS = {
    "nd_version": (ctypes.c_char_p, []),
    "nd_status_exit_code": (ctypes.c_int, [ctypes.c_int]),
    "nd_dtype_name": (ctypes.c_char_p, [ctypes.c_int]),
    "nd_model_load": (ctypes.c_int, [ctypes.c_char_p, _SLOT, _ERROR]),
    "nd_model_set_dim": (ctypes.c_int, [_OBJECT, ctypes.c_char_p, ctypes.c_int64, _ERROR]),
    "nd_model_destroy": (None, [_SLOT]),
    "nd_twin_model_open": (ctypes.c_int, [_OBJECT, ctypes.c_char_p, ctypes.c_size_t, _SLOT, _ERROR]),
    "nd_twin_model_close": (None, [_SLOT]),
    "nd_twin_model_values": (ctypes.POINTER(TwinValue), [_OBJECT, ctypes.c_int, ctypes.POINTER(ctypes.c_size_t)]),
    "nd_twin_model_run": (ctypes.c_int, [_OBJECT, ctypes.POINTER(TwinSamples), _ERROR]),
}


def _candidates():
    """$NPUDIFF_LIBRARY; else the library that belongs to the command: in this package, of an installation, of a build
    folder; else the system's."""
    if os.environ.get("NPUDIFF_LIBRARY"):
        yield pathlib.Path(os.environ["NPUDIFF_LIBRARY"])
    try:
        folder = pathlib.Path(_command.command_path()).resolve().parent
        yield from (folder.parent / place / _SONAME for place in ("lib", ".", f"lib/{os.uname().machine}-linux-gnu", "lib64"))
    except FileNotFoundError:
        pass


@functools.lru_cache(maxsize=None)
def library():
    """The library, its functions declared. OSError: it is not there, or of another version than this package."""
    from npudiff import __version__
    path = next((str(p) for p in _candidates() if p.exists()), _SONAME)
    loaded = ctypes.CDLL(path)
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(loaded, name, None)
        if function is None:
            raise OSError(f"{path} lacks {name}: it is older than this package ({__version__})")
        function.restype, function.argtypes = result, arguments
    version = loaded.nd_version().decode()
    if version != __version__:
        raise OSError(f"{path} is npudiff {version}, and this package is {__version__}")
    return loaded


def call(name, *arguments):
    """A function whose last argument is the error: raises the exception of its exit code."""
    error = Error()
    status = getattr(library(), name)(*arguments, ctypes.byref(error))
    if status:
        said = error.object.decode("utf-8", "replace") or None
        raise error_for(library().nd_status_exit_code(status), error.message.decode("utf-8", "replace"), f"ND-{error.id}", said)
