// Makes files of records as W&B and SwanLab write them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "event_file_bytes.h"

namespace isoloss::test_support {

/// Returns CRC-32 of zlib, one bit after another.
inline uint32_t SlowCrc32(const std::string& bytes) {
  uint32_t crc = ~0u;
  for (const char c : bytes) {
    crc ^= static_cast<uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) {
      crc = crc % 2 != 0 ? crc / 2 ^ 0xEDB88320u : crc / 2;
    }
  }
  return ~crc;
}

/// Returns a file with a head of 7 bytes and the records.
inline std::string RecordLogBytes(const std::string& head,
                                  const std::vector<std::string>& records) {
  constexpr size_t kBlock = 32768;
  constexpr size_t kHead = 7;
  std::string file = head;
  const auto add = [&file](char type, const std::string& data) {
    file += Little(SlowCrc32(type + data), 4);
    file += Little(data.size(), 2) + type + data;
  };
  for (std::string rest : records) {
    bool first = true;
    while (true) {
      size_t room = kBlock - file.size() % kBlock;
      if (room < kHead) {
        file.append(room, '\0');
        room = kBlock;
      }
      room -= kHead;
      const bool last = rest.size() <= room;
      const char full_or_last = first ? 1 : 4;
      const char begun = first ? 2 : 3;
      add(last ? full_or_last : begun, rest.substr(0, room));
      if (last) break;
      rest = rest.substr(room);
      first = false;
    }
  }
  return file;
}

}  // namespace isoloss::test_support
