"""TensorBoard's event files in plain Python, for tests of what isoloss writes
and reads. Nothing here knows how isoloss does it."""

import struct


def crc32c(data):
    """Castagnoli's polynomial, reflected, a bit at a time."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(content):
    """The payloads; every checksum must be right, and nothing be left."""
    at = 0
    while at < len(content):
        head = content[at:at + 8]
        length, crc = struct.unpack_from("<QI", content, at)
        assert crc == masked(head), f"length at {at}"
        payload = content[at + 12:at + 12 + length]
        assert len(payload) == length, f"record at {at} is cut off"
        crc, = struct.unpack_from("<I", content, at + 12 + length)
        assert crc == masked(payload), f"payload at {at}"
        yield payload
        at += 16 + length


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at


def fields(message):
    """(number, value) of each field: int of a varint, bytes of all else."""
    at = 0
    while at < len(message):
        key, at = varint(message, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(message, at)
        else:
            size = {1: 8, 5: 4}.get(kind)
            if size is None:
                assert kind == 2, f"wire type {kind}"
                size, at = varint(message, at)
            value = message[at:at + size]
            assert len(value) == size
            at += size
        yield key >> 3, value


def signed(value):
    return value - (1 << 64) if value >> 63 else value


def decode(content):
    """[(wall_time, step, {tag: value})] and the texts of file_version."""
    events, versions = [], []
    for payload in records(content):
        event = dict(fields(payload))
        wall_time, = struct.unpack("<d", event[1])
        if 3 in event:
            versions.append(event[3].decode())
        scalars = {}
        for number, summary_value in fields(event.get(5, b"")):
            assert number == 1
            value = dict(fields(summary_value))
            scalars[value[1].decode()], = struct.unpack("<f", value[2])
        if scalars:
            events.append((wall_time, signed(event.get(2, 0)), scalars))
    return events, versions
