"""Compiles the device's code as for a GPU, where nvcc is installed: no GPU is needed.

Usage: device_code_test.py NVCC SOURCE_ROOT OPTION…

nvcc makes a trap of what it cannot run on a GPU, without a word; and what it flushes, or
approximates, has other bits than the CPU. Exit code 77: there is no nvcc.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

WRONG = re.compile(r"\btrap;|\.ftz\b|\.approx\b")


def ptx_of(source, nvcc, root, options):
    with tempfile.TemporaryDirectory(prefix="isoloss-ptx-") as folder:
        out = pathlib.Path(folder) / "code.ptx"
        done = subprocess.run([nvcc, "-std=c++20", "-arch=sm_90", "-ptx", *options,
                               f"-I{root}/include", f"-I{root}/lib", source, "-o", out], check=False)
        if done.returncode != 0:
            sys.exit(f"{source}: nvcc refuses it")
        return out.read_text(encoding="utf-8")


def faults(ptx):
    """(number of kernels, lines that are wrong, each behind its kernel's name)."""
    kernels, found = [], []
    for line in ptx.splitlines():
        entry = re.search(r"\.entry (\w+)", line)
        if entry:
            kernels.append(entry[1])
        elif WRONG.search(line):
            found.append(f"{kernels[-1] if kernels else 'a function'}: {line.strip()}")
    return len(kernels), found


def main():
    nvcc, root, *options = sys.argv[1:]
    if not pathlib.Path(nvcc).is_file():
        print("Skipped: nvcc, CUDA's compiler, is not installed here.")
        return 77
    sources = [source for folder in ("lib", "tests")
               for source in sorted(pathlib.Path(root, folder).rglob("*.cu"))]
    total, wrong = 0, []
    for source in sources:
        kernels, found = faults(ptx_of(source, nvcc, root, options))
        total += kernels
        wrong += found
    print(*wrong, f"{total} kernels of {len(sources)} files, {len(wrong)} faults", sep="\n")
    return 0 if total and not wrong else 1


if __name__ == "__main__":
    sys.exit(main())
