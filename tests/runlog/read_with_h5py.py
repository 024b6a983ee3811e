"""Prints everything in a run log with nothing but h5py (docs/run-log.md).

usage: read_with_h5py.py RUN.h5
"""

import json
import sys

import h5py


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


if __name__ == "__main__":
    with h5py.File(sys.argv[1], "r") as log:
        print("\n".join(sorted(lines(log))))
