"""Adders of tensor cores, as they are published, and operands that tell them apart.

The definition is kernels::TruncatingSum of isoloss; this is the same in vectors
of FP64, in which all of it is exact. A test holds both to equal bits.
"""

import collections
import json
import pathlib

import torch

Format = collections.namedtuple("Format",
                                "name mantissa_bits sign_bit bias lowest exponents dtype")
# Elements are normal, and stay so with the powers of two of an arrangement.
BF16 = Format("BF16", 7, 15, 127, -8, 16, torch.int16)
E4M3 = Format("E4M3", 3, 7, 7, -3, 8, torch.uint8)

# Per `terms` of k, ascending, products and the sum so far are cut off toward zero
# below 2^(E - fraction_bits), E being their largest exponent, and added exactly;
# the sum is cut off to `bits`. Chains of `promote` terms are added in FP32.
Adder = collections.namedtuple("Adder", "name format terms fraction_bits bits promote",
                               defaults=(None,))
ADDERS = {adder.name: adder for adder in (
    Adder("hopper_bf16", BF16, 16, 25, 24),
    Adder("ampere_bf16", BF16, 8, 24, 24),
    Adder("hopper_f13", E4M3, 32, 13, 14),
    Adder("hopper_f13_promote128", E4M3, 32, 13, 14, 128),
    Adder("ada_fp8", E4M3, 16, 13, 14),
    Adder("blackwell_f25", E4M3, 32, 25, 24),
)}
# By the compute capability. Those of Hopper were seen on an H100 and an H200; the
# others are MMA-Sim's.
ADDERS_OF_CARD = {
    (8, 0): ("ampere_bf16",),
    (8, 6): ("ampere_bf16",),
    (8, 9): ("ampere_bf16", "ada_fp8"),
    (9, 0): ("hopper_bf16", "hopper_f13", "hopper_f13_promote128"),
    (10, 0): ("hopper_bf16", "blackwell_f25"),
    (10, 3): ("hopper_bf16", "blackwell_f25"),
}

BASE_ROWS = 256  # an operand's rows are these, with other signs and powers of two
_LEFT, _RIGHT, _LEFT_ROWS, _RIGHT_ROWS = range(4)


def _mix(x):
    """A bijection of 32-bit words (lowbias32 of C. Wellons), in int64."""
    word = 0xFFFFFFFF
    x = ((x ^ x >> 16) * 0x7FEB352D) & word
    x = ((x ^ x >> 15) * 0x846CA68B) & word
    return x ^ x >> 16


def _words(count, stream, seed):
    key = _mix(torch.tensor(4 * seed + stream, dtype=torch.int64))
    return _mix(_mix(torch.arange(count, dtype=torch.int64)) ^ key)


def base_codes(form, depth, seed):
    """Codes [BASE_ROWS, depth] of the base rows of both operands, as int64."""
    for stream in (_LEFT, _RIGHT):
        words = _words(BASE_ROWS * depth, stream, seed).reshape(BASE_ROWS, depth)
        exponent = form.bias + form.lowest + (words >> 16) % form.exponents
        mantissa = words & ((1 << form.mantissa_bits) - 1)
        yield words >> 31 << form.sign_bit | exponent << form.mantissa_bits | mantissa


Arrangement = collections.namedtuple("Arrangement", "left right")
Rows = collections.namedtuple("Rows", "base shift negative factor")


def digest(base):
    """64 bits of FP32 results, in hexadecimal: the sum of their bits times odd numbers."""
    bits = base.contiguous().view(torch.int32).to(torch.int64).reshape(-1) & 0xFFFFFFFF
    total = int((bits * (2 * torch.arange(len(bits)) + 1)).sum())
    return f"{total & 0xFFFFFFFFFFFFFFFF:016x}"


def known_digest(adder, depth):
    """Digest of the base rows' product with seed 0 that isoloss gave; None: of
    another depth."""
    path = pathlib.Path(__file__).with_name("known_products.json")
    return json.loads(path.read_text())[adder.name].get(str(depth))


def arrange(rows, columns, seed):
    """Which base row each row of the operands is, shifted by which power of two,
    and whether negated."""
    def draw(count, stream):
        words = _words(count, stream, seed)
        shift, negative = (words >> 16) % 4 - 1, words >> 31
        factor = (negative << 31 | shift + 127 << 23).to(torch.int32).view(torch.float32)
        return Rows(words % BASE_ROWS, shift, negative, factor)
    return Arrangement(draw(rows, _LEFT_ROWS), draw(columns, _RIGHT_ROWS))


def codes_of(form, base, rows):
    """Codes of an operand's rows, in integers of the format's width, which wrap."""
    shift = (rows.shift << form.mantissa_bits).to(form.dtype)
    sign = (rows.negative << form.sign_bit).to(form.dtype)
    return (base.to(form.dtype)[rows.base] + shift[:, None]) ^ sign[:, None]


def values_of(form, codes):
    """FP64 values of the codes of normal elements."""
    codes = codes.to(torch.int64)
    magnitude = codes & ((1 << form.sign_bit) - 1)
    bits = ((codes >> form.sign_bit & 1) << 63 |
            (magnitude << 52 - form.mantissa_bits) + (1023 - form.bias << 52))
    return bits.view(torch.float64)


def _exponents(x):
    """Of FP64 values; far below all others of zero."""
    return (x.view(torch.int64) >> 52 & 0x7FF) - 1023


def _power(exponents):
    return (exponents + 1023 << 52).view(torch.float64)


def _step(adder, total, a, b):
    """The sum [M, N] after the terms a [M, t] and b [N, t]."""
    a, b = a.t()[:, :, None], b.t()[:, None, :]
    largest = (_exponents(a) + _exponents(b)).amax(dim=0)
    largest = torch.maximum(largest, _exponents(total))
    units = _power(adder.fraction_bits - largest)
    exact = (a * b * units).trunc_().sum(dim=0) + (total * units).trunc_()
    cut = exact.view(torch.int64) & -(1 << 53 - adder.bits)
    return cut.view(torch.float64) * _power(largest - adder.fraction_bits)


def products(adder, a, b):
    """FP32 [M, N]: rows of a [M, K] times rows of b [N, K], FP64 values of the
    adder's format. All results and parts of them must be zero or normal in FP32."""
    def chain(begin, end):
        total = torch.zeros(len(a), len(b), dtype=torch.float64)
        for k in range(begin, end, adder.terms):
            till = min(k + adder.terms, end)
            total = _step(adder, total, a[:, k:till].contiguous(), b[:, k:till].contiguous())
        return total.to(torch.float32)

    depth = a.shape[1]
    piece = adder.promote or depth
    total = chain(0, min(piece, depth))
    for begin in range(piece, depth, piece):
        total = total + chain(begin, min(begin + piece, depth))
    return total


def expand(base, arrangement):
    """The product of arranged operands of that of the base rows [BASE_ROWS,
    BASE_ROWS]: powers of two and signs commute with every adder. Zero is +0."""
    left, right = arrangement
    return (base[left.base][:, right.base] * left.factor.to(base.dtype)[:, None] *
            right.factor.to(base.dtype)) + 0.0


def expand_at(base, arrangement, rows, columns):
    """Elements of expand() at these places."""
    left = Rows(*(each[rows] for each in arrangement.left))
    right = Rows(*(each[columns] for each in arrangement.right))
    return (base[left.base, right.base] * left.factor.to(base.dtype) *
            right.factor.to(base.dtype)) + 0.0
