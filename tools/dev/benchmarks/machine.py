"""What a run ran on, in words: no name of a host, no path."""

import pathlib
import re

# Instruction sets that the kernels or their peers choose between.
FLAGS = ("avx2", "fma", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16", "asimd")


def cpu_fields(cpuinfo):
    """The fields of the first processor in the text of /proc/cpuinfo."""
    first = cpuinfo.split("\n\n")[0]
    return {key.strip(): value.strip() for key, _, value in
            (line.partition(":") for line in first.splitlines())}


def caches(context):
    """"L1d 48 KB, L2 1024 KB, L3 32768 KB" of Google Benchmark's context."""
    return ", ".join(
        f"L{cache['level']}{'d' if cache['type'] == 'Data' else ''} {cache['size'] // 1024} KB"
        for cache in context.get("caches", []) if cache["type"] != "Instruction")


def operating_system():
    try:
        release = pathlib.Path("/etc/os-release").read_text(encoding="utf-8")
    except OSError:
        return "unknown"
    name = re.search(r'^PRETTY_NAME="?([^"\n]*)', release, re.MULTILINE)
    return name[1] if name else "unknown"


def describe(contexts, torch, cpuinfo):
    """{what: words}; equal for two runs on one machine with the same libraries.

    `contexts` are those of the programs by name, `torch` what it says of itself; either may lack
    parts that were not run.
    """
    context = {key: value for part in contexts.values() for key, value in part.items()}
    cpu = cpu_fields(cpuinfo)
    flags = cpu.get("flags", cpu.get("Features", "")).split()
    description = {
        "processor": f"{cpu.get('vendor_id', '')} {cpu.get('model name', 'unknown')}, family "
                     f"{cpu.get('cpu family', '?')}, model {cpu.get('model', '?')}, stepping "
                     f"{cpu.get('stepping', '?')}".strip(),
        "instruction sets": ", ".join(flag for flag in FLAGS if flag in flags),
        "cores": context.get("num_cpus", "unknown"),
        "caches": caches(context),
        "system": operating_system(),
        "compiler": context.get("compiler", "unknown"),
        "kernel target": context.get("kernel_target", "unknown"),
    }
    for peer, label in (("openblas", "OpenBLAS"), ("eigen", "Eigen"), ("onednn", "oneDNN")):
        if peer in context:
            description[label] = context[peer].removeprefix("OpenBLAS ")
    if torch:
        build = "OpenMP" if any("openmp" in path for path in torch["blas"]) else "other"
        description["PyTorch"] = (f"{torch['torch']}, {torch['capability']}, OpenBLAS "
                                  f"{torch['openblas_core']} ({build} build)")
    return description
