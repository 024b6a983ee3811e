"""Products of one adder and one shape, every element of which is compared."""

import collections
import random

import torch

from . import adders, bit_patterns
from .cards import CardError, first_line

Deviation = collections.namedtuple("Deviation", "product row column expected found")

_BATCH_BYTES = 1 << 29
_BATCH_SECONDS = 0.05
_MOST_IN_BATCH = 64
_MOST_OF_PRODUCT = 1 << 12  # deviations that are kept, a random choice
_MOST = 1 << 16
_TILE = 128
_FEW_BITS = 6  # in which a fault may be; another arithmetic alters more
_MANY_ROUNDINGS = 16  # to BF16
_BITS_OF = {torch.float32: torch.int32, torch.bfloat16: torch.int16}


def _bits(matrix):
    return matrix.view(_BITS_OF[matrix.dtype])


class Trial:
    """Multiplies on a card again and again and counts wrong elements.

    The processor computes the product of the base rows alone. Rows of the
    operands are these with other signs and powers of two, anew in each turn, so
    that it knows each element.
    """

    def __init__(self, card, adder, shape):
        self.card, self.adder, self.shape = card, adder, shape
        self.products = self.wrong = self.wrong_products = 0
        self.seconds = 0.0  # of multiplying and comparing
        self.deviations = []
        self.not_judged = None  # the reason
        self.is_offered = True  # by PyTorch on this card
        self.missed = 0  # wrong elements that the card's own comparison missed
        self._output = self._last = None
        self._draw = random.Random(0)
        depth = shape[2]
        self._codes = tuple(adders.base_codes(adder.format, depth, 0))
        self._values = [adders.values_of(adder.format, codes) for codes in self._codes]
        self.known = adders.products(adder, *self._values)
        self.digest = adders.digest(self.known)
        due = adders.known_digest(adder, depth)
        if due not in (None, self.digest):
            self.not_judged = (
                f"this machine's processor gave known results with digest {self.digest}, isoloss {due}. "
                "Examine the processor first: isoloss doctor")

    @property
    def elements(self):
        return self.products * self.shape[0] * self.shape[1]

    @property
    def output(self):
        return {None: None, torch.float32: "FP32", torch.bfloat16: "BF16"}[self._output]

    def rate(self):
        """Operations per second, comparisons included in the time."""
        m, n, k = self.shape
        return 2.0 * m * n * k * self.products / self.seconds if self.seconds else 0.0

    def take_turn(self, seconds, seed):
        """Multiplies for some seconds, at least once."""
        if self.not_judged is not None:
            return
        self._arrange(seed)
        begin = self.card.clock()
        first = [] if self.products else self._begin()
        if self.not_judged is not None:
            return
        self._multiply_until(begin + seconds, first)
        self.card.synchronize()
        self.seconds += self.card.clock() - begin
        self._compare_last()

    def _arrange(self, seed):
        m, n, _ = self.shape
        self._arrangement = adders.arrange(m, n, seed)
        self._placed = adders.Arrangement(*(adders.Rows(*map(self.card.place, rows))
                                            for rows in self._arrangement))
        self._left, self._right = (
            adders.codes_of(self.adder.format, self.card.place(codes), rows)
            for codes, rows in zip(self._codes, self._placed))

    def _expected(self):
        """On the host."""
        return adders.expand(self.known.to(self._output), self._arrangement)

    def _multiply(self):
        return self.card.multiply(self.adder, self._left, self._right, self._output)

    def _begin(self):
        """Finds what the card offers and whether it can be judged. Returns a product."""
        for self._output in (torch.float32, torch.bfloat16):
            try:
                first = self._multiply()
                self.card.synchronize()
                break
            except (TypeError, RuntimeError) as error:
                reason = first_line(error)
                is_of_card = "CUDA error" in reason and "NOT_SUPPORTED" not in reason
                if is_of_card or "out of memory" in reason:
                    raise
        else:
            self.is_offered = False
            self.not_judged = f"PyTorch computes no such product on this card: {reason}"
            return []
        found = first.cpu()
        if self._is_other_arithmetic(found) and torch.equal(_bits(self._multiply().cpu()), _bits(found)):
            self.not_judged = (
                f"the products are not those of {self.adder.name}: another kernel, sums split along k, "
                "or another card. Pass another --adder or --size")
        return [first]

    def _is_other_arithmetic(self, found):
        """Whether elements differ as another order or adder of sums makes them
        differ: in an eighth of all tiles at least, in no lane, and by no more
        than sums can."""
        m, n, _ = self.shape
        expected = self._expected()
        differing = _bits(found) ^ _bits(expected)
        rows, columns = differing.nonzero(as_tuple=True)
        if len(rows) == 0:
            return False
        across = -(-n // _TILE)
        touched = (torch.bincount(rows // _TILE * across + columns // _TILE) > 0).sum()
        step = 1 + len(rows) // _MOST
        if (8 * touched < -(-m // _TILE) * across or
                bit_patterns.have_lane(rows[::step].tolist(), m) or
                bit_patterns.have_lane(columns[::step].tolist(), n)):
            return False
        masks = differing[rows, columns][::step]
        if self.output == "BF16":
            neighbours = ((_bits(found).int() - _bits(expected).int()).abs() <= 1).all()
            return len(rows) >= _MANY_ROUNDINGS and bool(neighbours and (masks != masks[0]).any())
        bits = sum(bool((masks >> bit & 1).any()) for bit in range(32))
        whole = 2 * len(rows) >= touched * min(m, _TILE) * min(n, _TILE)
        return bool(whole) and bits > _FEW_BITS and self._is_within_roundings(found, expected)

    def _is_within_roundings(self, found, expected):
        """Each of at most k cuts and roundings alters a sum by less than a share
        of the sum of magnitudes, which bounds the largest term, too."""
        sums = self._values[0].abs() @ self._values[1].abs().t()
        share = self.shape[2] * 2.0 ** -min(self.adder.fraction_bits, 23)
        bound = adders.expand(sums, self._arrangement).abs() * share
        return bool(((found.double() - expected.double()).abs() <= bound).all())

    def _multiply_until(self, end, first):
        """One batch is multiplied while the host reads the counts of the other."""
        expected = _bits(adders.expand(self.card.place(self.known.to(self._output)), self._placed))
        self._settle(self._compared(first, expected), expected)
        begun = self.card.clock()
        self._settle(self._launch(1, expected), expected)
        each = max(self.card.clock() - begun, 1e-6)
        size = max(1, min(_MOST_IN_BATCH, _BATCH_BYTES // (4 * self.shape[0] * self.shape[1]),
                          int(_BATCH_SECONDS / each)))
        before = None
        while self.card.clock() + each * size < end:
            batch = self._launch(size, expected)
            if before is not None:
                self._settle(before, expected)
            before = batch
        if before is not None:
            self._settle(before, expected)

    def _launch(self, count, expected):
        return self._compared([self._multiply() for _ in range(count)], expected)

    def _compared(self, results, expected):
        """Results, and the numbers of their wrong elements, on the card."""
        counts = [(_bits(result) != expected).sum() for result in results]
        return results, torch.stack(counts) if counts else torch.zeros(0)

    def _settle(self, batch, expected):
        results, counts = batch
        for result, wrong in zip(results, counts.tolist()):
            self.products += 1
            if self._last is not None:
                # A later product has this room. An element that it fails to write
                # must not have the right bits by chance.
                _bits(self._last).fill_(-1)
            self._last, self._last_wrong = result, wrong
            if wrong:
                self.wrong += wrong
                self.wrong_products += 1
                self._keep((_bits(result) != expected).reshape(-1).nonzero().reshape(-1).cpu(),
                           _bits(result).reshape(-1))

    def _keep(self, places, bits):
        room = min(_MOST_OF_PRODUCT, _MOST - len(self.deviations))
        if room == 0:
            return
        if len(places) > room:
            places = places[self._draw.sample(range(len(places)), room)].sort()[0]
        found = bits[places.to(bits.device)].tolist()
        rows, columns = places // self.shape[1], places % self.shape[1]
        expected = _bits(adders.expand_at(self.known.to(self._output), self._arrangement, rows,
                                          columns)).tolist()
        mask = 0xFFFFFFFF if self.output == "FP32" else 0xFFFF
        for row, column, has, due in zip(rows.tolist(), columns.tolist(), found, expected):
            if has != due:
                self.deviations.append(Deviation(self.products, row, column, due & mask, has & mask))

    def _compare_last(self):
        """The card may be too sick to compare: the host compares one result."""
        bits = _bits(self._last.cpu()).reshape(-1)
        places = (bits != _bits(self._expected()).reshape(-1)).nonzero().reshape(-1)
        missed = len(places) - self._last_wrong
        if missed > 0:
            self.missed += missed
            self.wrong += missed
            self.wrong_products += self._last_wrong == 0
            self._keep(places, bits)


def make_trials(card, names, shapes):
    """Trials of all adders and shapes that a card can be asked for."""
    for m, n, k in shapes:
        if min(m, n, k) < 1 or m % 16 or n % 16 or k % 16 or max(m, n, k) > 1 << 16:
            raise CardError(f"--size {m}x{n}x{k}: each must be a multiple of 16 from 16 to 65536.")
    return [Trial(card, adders.ADDERS[name], shape) for name in names for shape in shapes]
