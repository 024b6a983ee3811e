"""The version of package and program. CMakeLists.txt of the sources states it; where the package
is installed, this file holds it (python/backend/isoloss_backend.py)."""

import pathlib
import re


def _stated(file):
    try:
        return re.search(r"(?m)^project\(isoloss VERSION ([\d.]+)", file.read_text("utf-8"))[1]
    except (OSError, TypeError) as error:
        raise ImportError(f"{file}: states no version of isoloss, but this package of the "
                          "sources reads it there. Use it in a clone, or install it with pip.") from error


VERSION = _stated(pathlib.Path(__file__).resolve().parents[2] / "CMakeLists.txt")
