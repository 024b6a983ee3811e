"""Compiles the device's code as for GPUs, where nvcc is installed: no GPU is needed.

Usage: device_code_test.py NVCC ARCHITECTURE SOURCE_ROOT OPTION…

nvcc makes a trap of what it cannot run on a GPU, without a word; and what it flushes, or
approximates, has other bits than the CPU. Exit code 77: there is no nvcc.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

WRONG = re.compile(r"\btrap;|\.ftz\b|\.approx\b")


def ptx_of(source, nvcc, root, architecture, options):
    with tempfile.TemporaryDirectory(prefix="isoloss-gpu-code-") as folder:
        done = subprocess.run([nvcc, "-std=c++20", f"-arch={architecture}", "-cubin", "-keep",
                               f"-keep-dir={folder}", *options, f"-I{root}/include",
                               f"-I{root}/lib", source, "-o", f"{folder}/code.cubin"], check=False)
        if done.returncode != 0:
            sys.exit(f"{source}: nvcc refuses it for {architecture}")
        return pathlib.Path(folder, source.stem + ".ptx").read_text(encoding="utf-8")


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
    nvcc, architecture, root, *options = sys.argv[1:]
    if not pathlib.Path(nvcc).is_file():
        print("Skipped: nvcc, CUDA's compiler, is not installed here.")
        return 77
    sources = [source for folder in ("lib", "tests")
               for source in sorted(pathlib.Path(root, folder).rglob("*.cu"))]
    total, wrong = 0, []
    for source in sources:
        kernels, found = faults(ptx_of(source, nvcc, root, architecture, options))
        total += kernels
        wrong += found
    print(*wrong, f"{total} kernels of {len(sources)} files for {architecture}, {len(wrong)} faults",
          sep="\n")
    return 0 if total and not wrong else 1


if __name__ == "__main__":
    sys.exit(main())
