"""npudiff: capture, compare and explain the tensors of quantised models on several devices.

`Twin` gives the bits of a chip in this process, without the chip. The functions run the command `npudiff`, which this package carries, and give back what it prints with --json. `load`
reads a capture, an HDF5 file, as NumPy arrays."""
from npudiff._capture_file import CaptureFile, Edge, load
from npudiff._command import Captured, Result, capture, command_path, compare, explain, run
from npudiff._errors import (DeviceError, DifferenceError, InconclusiveError, NotComparableError, NpudiffError,
                             TroubleError)
from npudiff._twin import Accuracy, Twin, Value

__all__ = ["Accuracy", "CaptureFile", "Captured", "DeviceError", "DifferenceError", "Edge", "InconclusiveError",
           "NotComparableError", "NpudiffError", "Result", "TroubleError", "Twin", "Value", "capture", "command_path", "compare",
           "explain", "load", "run"]
__version__ = "0.2.0"
