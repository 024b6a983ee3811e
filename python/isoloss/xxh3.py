"""XXH3-64 of equally long rows of bytes, in integer operations of torch.

Numbers are int64: sums and products wrap, and a shift to the right is made
logical by a mask. The algorithm is that of xxHash 0.8 without a seed
(https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md).
"""

import torch

_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e")
_MASK32 = 0xFFFFFFFF
_STRIPE = 64
_BLOCK = 1024


def signed(value):
    """The int64 with the 64 bits of a whole number."""
    value &= 0xFFFFFFFFFFFFFFFF
    return value - (1 << 64) if value >> 63 else value


_PRIME32_1, _PRIME32_2, _PRIME32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
_PRIME64_1 = signed(0x9E3779B185EBCA87)
_PRIME64_2 = signed(0xC2B2AE3D27D4EB4F)
_PRIME64_3 = signed(0x165667B19E3779F9)
_PRIME64_4 = signed(0x85EBCA77C2B2AE63)
_PRIME64_5 = signed(0x27D4EB2F165667C5)
_MX1 = signed(0x165667919E3779F9)
_MX2 = signed(0x9FB21C651E98DF25)
_START = (_PRIME32_3, _PRIME64_1, _PRIME64_2, _PRIME64_3, _PRIME64_4,
          _PRIME32_2, _PRIME64_5, _PRIME32_1)


def shift_right(x, bits):
    """Of unsigned numbers."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _secret64(at):
    return int.from_bytes(_SECRET[at:at + 8], "little", signed=True)


def _secret32(at):
    return int.from_bytes(_SECRET[at:at + 4], "little")


def _copy(data, at, count):
    """Aligned, so that it can be viewed as larger words."""
    return data[:, at:at + count].clone(memory_format=torch.contiguous_format)


def _read64(data, at):
    return _copy(data, at, 8).view(torch.int64)[:, 0]


def _read32(data, at):
    word = _copy(data, at, 4).view(torch.int32)[:, 0]
    return word.to(torch.int64) & _MASK32


def _swap64(x):
    swapped = torch.zeros_like(x)
    for byte in range(8):
        swapped |= (shift_right(x, 8 * byte) & 0xFF if byte else x & 0xFF) << (56 - 8 * byte)
    return swapped


def _rotate(x, bits):
    return (x << bits) | shift_right(x, 64 - bits)


def _fold(a, b):
    """Low half of the 128-bit product xor its high half."""
    a_low, a_high = a & _MASK32, shift_right(a, 32)
    b_low, b_high = b & _MASK32, shift_right(b, 32)
    low = a_low * b_low
    middle = a_high * b_low
    cross = shift_right(low, 32) + (middle & _MASK32) + a_low * b_high
    high = shift_right(middle, 32) + shift_right(cross, 32) + a_high * b_high
    return high ^ ((cross << 32) | (low & _MASK32))


def _avalanche(x):
    x = (x ^ shift_right(x, 37)) * _MX1
    return x ^ shift_right(x, 32)


def _avalanche_short(x):
    x = (x ^ shift_right(x, 33)) * _PRIME64_2
    x = (x ^ shift_right(x, 29)) * _PRIME64_3
    return x ^ shift_right(x, 32)


def _mix16(data, at, secret):
    return _fold(_read64(data, at) ^ _secret64(secret),
                 _read64(data, at + 8) ^ _secret64(secret + 8))


def _up_to_16(data, length):
    if length == 0:
        zero = torch.zeros(len(data), dtype=torch.int64, device=data.device)
        return _avalanche_short(zero ^ (_secret64(56) ^ _secret64(64)))
    if length <= 3:
        first, middle, last = (data[:, i].to(torch.int64)
                               for i in (0, length >> 1, length - 1))
        combined = (first << 16) | (middle << 24) | last | (length << 8)
        return _avalanche_short(combined ^ (_secret32(0) ^ _secret32(4)))
    if length <= 8:
        both = _read32(data, length - 4) + (_read32(data, 0) << 32)
        x = both ^ (_secret64(8) ^ _secret64(16))
        x = (x ^ _rotate(x, 49) ^ _rotate(x, 24)) * _MX2
        x = (x ^ (shift_right(x, 35) + length)) * _MX2
        return x ^ shift_right(x, 28)
    low = _read64(data, 0) ^ (_secret64(24) ^ _secret64(32))
    high = _read64(data, length - 8) ^ (_secret64(40) ^ _secret64(48))
    return _avalanche(length + _swap64(low) + high + _fold(low, high))


def _up_to_240(data, length):
    start = signed(length * _PRIME64_1)
    if length <= 128:
        total = _mix16(data, 0, 0) + _mix16(data, length - 16, 16) + start
        for i in range(1, (length - 1) // 32 + 1):
            total = total + _mix16(data, 16 * i, 32 * i)
            total = total + _mix16(data, length - 16 * (i + 1), 32 * i + 16)
        return _avalanche(total)
    total = _mix16(data, 0, 0) + start
    for i in range(1, 8):
        total = total + _mix16(data, 16 * i, 16 * i)
    total = _avalanche(total)
    for i in range(8, length // 16):
        total = total + _mix16(data, 16 * i, 16 * (i - 8) + 3)
    return _avalanche(total + _mix16(data, length - 16, 136 - 17))


def _gather(stripes, secrets):
    """What stripes [..., n, 8] add to the eight sums."""
    keyed = stripes ^ secrets
    swapped = stripes.reshape(*stripes.shape[:-1], 4, 2).flip(-1).reshape(stripes.shape)
    return (swapped + (keyed & _MASK32) * shift_right(keyed, 32)).sum(-2)


def _long(data, length):
    rows, device = len(data), data.device
    secret = torch.tensor([_secret64(8 * i) for i in range(24)], device=device)
    secrets = secret.unfold(0, 8, 1)  # [17, 8], 8 bytes on in each stripe
    sums = torch.tensor(_START, device=device).expand(rows, 8)
    blocks = (length - 1) // _BLOCK
    if blocks:
        words = _copy(data, 0, blocks * _BLOCK).view(torch.int64)
        added = _gather(words.reshape(rows, blocks, 16, 8), secrets[:16])
        for block in range(blocks):
            sums = sums + added[:, block]
            sums = (sums ^ shift_right(sums, 47) ^ secrets[16]) * _PRIME32_1
    stripes = (length - 1 - _BLOCK * blocks) // _STRIPE
    if stripes:
        begin = _BLOCK * blocks
        words = _copy(data, begin, stripes * _STRIPE).view(torch.int64)
        sums = sums + _gather(words.reshape(rows, stripes, 8), secrets[:stripes])
    last = _copy(data, length - _STRIPE, _STRIPE).view(torch.int64)
    keys = torch.tensor([_secret64(121 + 8 * i) for i in range(8)], device=device)
    sums = sums + _gather(last[:, None], keys)
    total = torch.full((rows,), signed(length * _PRIME64_1), device=device)
    for i in range(4):
        total = total + _fold(sums[:, 2 * i] ^ _secret64(11 + 16 * i),
                              sums[:, 2 * i + 1] ^ _secret64(19 + 16 * i))
    return _avalanche(total)


def hash_rows(data):
    """XXH3-64 of each row of uint8 [rows, bytes], as int64 [rows]."""
    length = data.shape[1]
    if length <= 16:
        return _up_to_16(data, length)
    if length <= 240:
        return _up_to_240(data, length)
    return _long(data, length)


def hash_bytes(data):
    """XXH3-64 of bytes, as a whole number from 0."""
    if not data:
        row = torch.zeros(1, 0, dtype=torch.uint8)
    else:
        row = torch.frombuffer(bytearray(data), dtype=torch.uint8)[None]
    return int(hash_rows(row)[0]) & 0xFFFFFFFFFFFFFFFF
