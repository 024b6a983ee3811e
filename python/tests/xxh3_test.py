"""XXH3-64 of rows, against the library that isoloss links."""

import ctypes
import ctypes.util
import random
import unittest

import torch

from isoloss import xxh3


def library():
    found = ctypes.CDLL(ctypes.util.find_library("xxhash"))
    found.XXH3_64bits.restype = ctypes.c_uint64
    found.XXH3_64bits.argtypes = (ctypes.c_char_p, ctypes.c_size_t)
    return lambda data: found.XXH3_64bits(data, len(data))


class Xxh3(unittest.TestCase):
    def test_bytes(self):
        expected = library()
        draw = random.Random(1)

        for length in (0, 3, 16, 240, 241, 1025):
            data = draw.randbytes(length)
            self.assertEqual(xxh3.hash_bytes(data), expected(data), length)

    def test_rows_are_hashed_each_alone(self):
        expected = library()
        draw = random.Random(2)

        for length in (4, 12, 64, 200, 256, 4100):
            rows = [draw.randbytes(length) for _ in range(5)]
            data = torch.frombuffer(bytearray(b"".join(rows)), dtype=torch.uint8)
            found = xxh3.hash_rows(data.reshape(5, length)).tolist()
            self.assertEqual(found, [xxh3.signed(expected(row)) for row in rows])


if __name__ == "__main__":
    unittest.main()
