"""One class of exception for each exit code of the command."""


class NpudiffError(Exception):
    """What keeps a command from giving the result that was asked for.

    id is the stable number of the error ("ND-204"), or None; message says what failed; object is the file, tensor or
    option that it is about, or None."""

    exit_code = None

    def __init__(self, message, id=None, object=None):
        super().__init__(f"{message} [{id}]" if id else message)
        self.message, self.id, self.object = message, id, object


class DifferenceError(NpudiffError, AssertionError):
    """The captures differ, or a device is faulty or unexplained."""
    exit_code = 1


class TroubleError(NpudiffError):
    """Wrong options, or a file that cannot be read or written."""
    exit_code = 2


class NotComparableError(NpudiffError):
    """The captures are of different models or inputs."""
    exit_code = 3


class InconclusiveError(NpudiffError, AssertionError):
    """There is too little data for the question."""
    exit_code = 4


class DeviceError(NpudiffError):
    """A device failed."""
    exit_code = 5


_CLASSES = {c.exit_code: c for c in (DifferenceError, TroubleError, NotComparableError, InconclusiveError, DeviceError)}


def error_for(exit_code, message, id=None, object=None):
    """The exception for an exit code; one that the command does not document is plain NpudiffError."""
    return _CLASSES.get(exit_code, NpudiffError)(message, id, object)
