"""One sentence on where wrong elements lie and in which bits."""

_LARGEST_TILE = 256
_CHANCE = 0.02  # that rows at random share a pattern which is still told


def _bits_text(masks):
    union = 0
    for mask in masks:
        union |= mask
    bits = [bit for bit in range(union.bit_length()) if union >> bit & 1]
    if len(bits) == 1:
        return f"{'all ' if len(masks) > 1 else ''}in bit {bits[0]}"
    single = all(mask & (mask - 1) == 0 for mask in masks)
    return f"{'one bit each, ' if single else ''}in bits {bits[0]} to {bits[-1]}"


def _blocks(extent):
    length = 2
    while length < extent:
        yield length
        length *= 2


def _axis_text(places, extent, noun):
    """Text of what all places share, and whether that is one place or block."""
    distinct = sorted(set(places))
    first = distinct[0]
    if len(distinct) == 1:
        return f"{noun} {first}", True
    found = []  # share of all places, size of the period, text, whether it is a block
    for length in _blocks(extent):
        if len({place // length for place in distinct}) == 1:
            begin = first // length * length
            found.append((length / extent, extent, f"{noun}s {begin} to {begin + length - 1}", True))
    for tile in _blocks(min(extent, 2 * _LARGEST_TILE)):
        for length in (1, *_blocks(tile)):
            if len({place % tile // length for place in distinct}) > 1:
                continue
            begin = first % tile // length * length
            some = f"{noun} {begin}" if length == 1 else f"{noun}s {begin} to {begin + length - 1}"
            found.append((length / tile, tile, f"{some} of tiles of {tile}", False))
    found = [each for each in found if each[0] ** (len(distinct) - 1) <= _CHANCE]
    return min(found)[2:] if found else (None, False)


def have_lane(places, extent):
    """Whether these rows, or columns, have the same places in each tile."""
    text, is_block = _axis_text(places, extent, "row")
    return text is not None and not is_block


def describe(rows, columns, masks, shape):
    """Text such as "all in bit 21, in rows 8 to 15 of tiles of 64" of wrong
    elements: their places in a matrix of this shape, and bits that differ."""
    row_text, is_row_block = _axis_text(rows, shape[0], "row")
    column_text, is_column_block = _axis_text(columns, shape[1], "column")
    if is_row_block and is_column_block:
        is_one = len(set(rows)) == len(set(columns)) == 1
        place = f"in {'' if is_one else 'the tile of '}{row_text}{',' if is_one else ' and'} {column_text}"
    else:
        texts = [f"in {text}" for text in (row_text, column_text) if text]
        place = ", ".join(texts) or "in no pattern of rows and columns"
    return f"{_bits_text(masks)}, {place}"
