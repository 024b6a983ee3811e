"""XXH3-64 of bytes and of equally long rows of bytes, by python3-xxhash.

Digests are int64 in torch: sums and products wrap, and a shift to the right is
made logical by a mask.
"""

import torch
import xxhash


def signed(value):
    """The int64 with the 64 bits of a whole number."""
    value &= 0xFFFFFFFFFFFFFFFF
    return value - (1 << 64) if value >> 63 else value


def shift_right(x, bits):
    """Of unsigned numbers."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def hash_rows(data):
    """XXH3-64 of each row of uint8 [rows, bytes], as int64 [rows] on its device."""
    digests = [signed(xxhash.xxh3_64_intdigest(row)) for row in data.cpu().contiguous().numpy()]
    return torch.tensor(digests, dtype=torch.int64, device=data.device)


def hash_bytes(data):
    """XXH3-64 of bytes, as a whole number from 0."""
    return xxhash.xxh3_64_intdigest(data)
