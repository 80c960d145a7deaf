"""Shared libraries of any machine, made byte by byte: what 'npudiff runtimes add' reads of one, and nothing that runs.
They stand in for libraries of phones that cannot be had on every machine that runs the tests."""
import struct

X86_64, AARCH64, ARM, HEXAGON = 62, 183, 40, 164


def _note(name, kind, value, order):
    name += b"\0"
    pad = lambda data: data + bytes(-len(data) % 4)
    return struct.pack(order + "III", len(name), len(value), kind) + pad(name) + pad(value)


def library(machine, needed=("libc.so.6",), soname=None, build_id=bytes(range(20)), version=None, android=False,
            bits=64, order="<", payload=b""):
    """The bytes of a library: DT_NEEDED, DT_SONAME, a GNU build id, Android's note, a version that it defines
    ("VERS_1.31.1", as ONNX Runtime does), and any bytes behind (QNN's build id is just text in the file)."""
    strings, offsets = b"\0", {}
    for text in (*needed, *([soname] if soname else []), *([f"VERS_{version}"] if version else [])):
        offsets[text] = len(strings)
        strings += text.encode() + b"\0"
    notes = _note(b"GNU", 3, build_id, order) if build_id else b""
    notes += _note(b"Android", 1, struct.pack(order + "I", 28), order) if android else b""
    n_header, n_segment = (64, 56) if bits == 64 else (52, 32)
    at_notes = n_header + 4 * n_segment
    at_strings = at_notes + len(notes)
    at_dynamic = -(-(at_strings + len(strings)) // 16) * 16
    word = "Q" if bits == 64 else "I"
    entries = [(1, offsets[n]) for n in needed] + ([(14, offsets[soname])] if soname else []) + [
        (5, at_strings), (10, len(strings)), (0, 0)]
    dynamic = b"".join(struct.pack(order + word * 2, *entry) for entry in entries)
    total = at_dynamic + len(dynamic) + len(payload)

    def segment(kind, at, size):
        if bits == 64:
            return struct.pack(order + "IIQQQQQQ", kind, 4, at, at, at, size, size, 4)
        return struct.pack(order + "IIIIIIII", kind, at, at, at, size, size, 4, 4)

    header = b"\x7fELF" + bytes([2 if bits == 64 else 1, 1 if order == "<" else 2, 1]) + bytes(9)
    header += struct.pack(order + "HHI" + word * 3 + "IHHHHHH", 3, machine, 1, 0, n_header, 0, 0, n_header, n_segment, 4,
                          0, 0, 0)
    data = header + segment(1, 0, total) + segment(4, at_notes, len(notes)) + segment(2, at_dynamic, len(dynamic))
    data += segment(0x6474e551, 0, 0) # PT_GNU_STACK: without it glibc 2.41 takes the stack for executable, and refuses
    data += notes + strings
    return data + bytes(at_dynamic - len(data)) + dynamic + payload
