"""Prints everything in a run log, or one tensor of it, with nothing but h5py and
libxxhash (docs/run-log.md).

usage: read_with_h5py.py RUN.h5 [TENSOR]
"""

import ctypes
import json
import struct
import sys

import h5py

MAGIC = b"isolossT"


def digest(data):
    """XXH3-64, as xxhash.xxh3_64_intdigest of the package python3-xxhash."""
    function = ctypes.CDLL("libxxhash.so.0").XXH3_64bits
    function.restype = ctypes.c_uint64
    function.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    return function(data, len(data))


def verify(path):
    """Exits unless the trailer fits the HDF5 data before it."""
    with open(path, "rb") as file:
        data = file.read()
    data, trailer = data[:-24], data[-24:]
    if trailer != struct.pack("<8sQQ", MAGIC, len(data), digest(data)):
        sys.exit(f"{path}: cut off, damaged or changed since it was written")


def seal(path):
    """Gives a log that was changed on purpose a new trailer. h5py drops the old
    one when it opens a file for writing."""
    with open(path, "rb") as file:
        data = file.read()
    if data[-24:-16] == MAGIC:
        data = data[:-24]
    with open(path, "wb") as file:
        file.write(data + struct.pack("<8sQQ", MAGIC, len(data), digest(data)))


def text(value):
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if value.dtype.kind == "b":
        return "true" if value else "false"
    return str(value) if value.dtype.kind == "i" else "%.17g" % value


def lines(log):
    for name, value in log.attrs.items():
        yield f"{name} = {text(value)}"
    for group in log.values():
        for dataset in group.values():
            is_text = h5py.check_string_dtype(dataset.dtype) is not None
            values = dataset.asstr()[:] if is_text else dataset[:]
            extent = "x".join(str(size) for size in dataset.shape)
            yield "{} [{}] {} = {}".format(
                dataset.name.lstrip("/"),
                dataset.attrs["unit"],
                extent,
                " ".join(text(value) for value in values.flat),
            )


def tensor(log, name):
    """Everything that is known of one tensor: [steps] or [steps, 256] each."""
    group = log["tensors"]
    column = list(group["names"].asstr()).index(name)
    known = {"step": group["step"][:]}
    for statistic, dataset in group.items():
        if statistic not in ("step", "names"):
            known[statistic] = dataset[:, column]
    return known


if __name__ == "__main__":
    verify(sys.argv[1])
    with h5py.File(sys.argv[1], "r") as log:
        if len(sys.argv) > 2:
            for name, values in tensor(log, sys.argv[2]).items():
                print(name, *(text(value) for value in values.flat))
        else:
            print("\n".join(sorted(lines(log))))
