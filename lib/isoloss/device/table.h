// Lists of work that a kernel's blocks are divided among.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace isoloss::device {

/// Entries in the device's memory. Shares of an entry (blocks, tiles, elements)
/// end at entry.*kEnd in the list of all shares.
template <typename Entry, size_t Entry::*kEnd>
struct Table {
  const Entry* entries;
  size_t count;
  size_t total;  ///< shares

  struct Share {
    const Entry* entry;
    size_t number;  ///< among the shares of the entry
  };
  constexpr Share Find(size_t share) const {
    size_t first = 0;
    size_t last = count - 1;
    while (first < last) {
      const size_t middle = (first + last) / 2;
      if (share < entries[middle].*kEnd) {
        last = middle;
      } else {
        first = middle + 1;
      }
    }
    return {entries + first,
            first == 0 ? share : share - entries[first - 1].*kEnd};
  }
};

/// Returns the table of entries of which the host has a copy.
template <auto kEnd, typename Entry>
Table<Entry, kEnd> TableOf(std::span<const Entry> host, const Entry* entries) {
  return {entries, host.size(), host.empty() ? 0 : host.back().*kEnd};
}

/// A matrix whose rows are operand rows and whose columns are steps, in any
/// order of memory.
template <typename T>
struct StepRows {
  T* data = nullptr;
  size_t row_stride = 0;
  size_t step_stride = 1;

  constexpr T* At(size_t row, size_t step) const {
    return data + row * row_stride + step * step_stride;
  }
  constexpr T& operator()(size_t row, size_t step) const {
    return *At(row, step);
  }
  /// True if neighbours in memory are steps of a row.
  constexpr bool along_steps() const { return step_stride == 1; }
};

}  // namespace isoloss::device
