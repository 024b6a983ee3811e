"""Reads tensors.safetensors as its format says, with nothing but Python."""
import json
import struct
import subprocess
import sys
import tempfile


def read(path):
    with open(path, "rb") as file:
        content = file.read()
    (length,) = struct.unpack_from("<Q", content)
    header = json.loads(content[8:8 + length])
    data = content[8 + length:]
    tensors = {}
    covered = 0
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        assert begin == covered, f"{name}: a gap before it"
        covered = end
        count = 1
        for extent in entry["shape"]:
            count *= extent
        code = {"F32": "f", "I64": "q"}[entry["dtype"]]
        values = struct.unpack(f"<{count}{code}", data[begin:end])
        tensors[name] = (entry["dtype"], entry["shape"], values)
    assert covered == len(data), "bytes that belong to no tensor"
    assert (8 + length) % 8 == 0, "data does not begin at a multiple of 8"
    return header["__metadata__"], tensors


def main():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.argv[1], folder], check=True)
        metadata, tensors = read(f"{folder}/step-000120/tensors.safetensors")
        with open(f"{folder}/step-000120/manifest.json") as file:
            manifest = json.load(file)
        with open(f"{folder}/LATEST") as file:
            latest = file.read()
    assert latest == "step-000120\n", latest
    assert metadata == {"format": "isoloss-checkpoint", "step": "120"}, metadata
    assert list(tensors) == ["weights.a", "none", "counts"], list(tensors)
    dtype, shape, values = tensors["weights.a"]
    assert (dtype, shape) == ("F32", [2, 3])
    assert values[0] == 120 and values[2] == 2.0 ** -149 and values[5] == -2.5
    assert tensors["none"] == ("F32", [0, 4], ())
    assert tensors["counts"] == ("I64", [2], (120, -2 ** 63))
    assert manifest["format"] == "isoloss-checkpoint"
    assert manifest["version"] == 1 and manifest["step"] == 120
    assert manifest["facts"]["seed"] == "7"
    assert [t["name"] for t in manifest["tensors"]] == list(tensors)


main()
