#include "isoloss/operations/deviations.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>

#include "isoloss/base/error.h"
#include "isoloss/formats/format.h"

namespace isoloss::operations {
namespace {

using oracle::Grid;
using oracle::Place;

uint32_t WordOf(Grid grid, float value) {
  static const formats::Format& fp16 = formats::FormatByName("fp16");
  const auto bits = std::bit_cast<uint32_t>(value);
  switch (grid) {
    case Grid::kBf16:
      return bits >> 16;
    case Grid::kFp16:
      return formats::Encode(fp16, value, formats::Overflow::kNonFinite);
    case Grid::kFp32:
      break;
  }
  return bits;
}

size_t WordBits(Grid grid) { return grid == Grid::kFp32 ? 32 : 16; }

/// Returns a number that grows by 1 from each value to the next.
int64_t OrderOf(uint32_t word, size_t bits) {
  const uint32_t sign = uint32_t{1} << (bits - 1);
  const auto magnitude = static_cast<int64_t>(word & (sign - 1));
  return (word & sign) != 0 ? -magnitude : magnitude;
}

template <typename Counts>
void AddCounts(const Counts& part, Counts& sum) {
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
}

}  // namespace

void FewPlaces::Add(Place place) {
  if (!are_few()) return;
  const auto at = std::ranges::lower_bound(places_, place);
  if (at == places_.end() || *at != place) places_.insert(at, place);
}

void FewPlaces::Merge(const FewPlaces& part) {
  for (const Place& place : part.places_) Add(place);
}

void Deviations::Axis::Add(size_t place) {
  first = std::min(first, place);
  last = std::max(last, place);
  ++by_residue[place % kLargestTile];
  for (size_t i = 0; i < kTiles.size(); ++i) {
    tiles[i].Add({place / kTiles[i], 0});
  }
}

void Deviations::Axis::Merge(const Axis& part) {
  first = std::min(first, part.first);
  last = std::max(last, part.last);
  AddCounts(part.by_residue, by_residue);
  for (size_t i = 0; i < kTiles.size(); ++i) tiles[i].Merge(part.tiles[i]);
}

void Deviations::Bits::Merge(const Bits& part) {
  AddCounts(part.up, up);
  AddCounts(part.down, down);
  AddCounts(part.alone, alone);
  one_unit += part.one_unit;
}

Deviations::Deviations(Grid grid, size_t rows, size_t columns)
    : grid_(grid), rows_{.extent = rows}, columns_{.extent = columns} {}

void Deviations::Add(size_t row, size_t column, float found, float predicted) {
  if (found == predicted || (std::isnan(found) && std::isnan(predicted))) {
    return;
  }
  ++count_;
  rows_.Add(row);
  columns_.Add(column);
  for (size_t i = 0; i < kTiles.size(); ++i) {
    squares_[i].Add({row / kTiles[i], column / kTiles[i]});
  }
  const uint32_t word = WordOf(grid_, found);
  const uint32_t due = WordOf(grid_, predicted);
  const uint32_t differing = word ^ due;
  for (size_t bit = 0; bit < kMostBits; ++bit) {
    const uint32_t mask = uint32_t{1} << bit;
    bits_.up[bit] += (differing & word & mask) != 0 ? 1 : 0;
    bits_.down[bit] += (differing & due & mask) != 0 ? 1 : 0;
    bits_.alone[bit] += differing == mask ? 1 : 0;
  }
  const size_t width = WordBits(grid_);
  if (std::abs(OrderOf(word, width) - OrderOf(due, width)) == 1) {
    ++bits_.one_unit;
  }
}

void Deviations::Merge(const Deviations& part) {
  ISOLOSS_ASSERT(part.grid_ == grid_ && part.rows_.extent == rows_.extent &&
                 part.columns_.extent == columns_.extent);
  rows_.Merge(part.rows_);
  columns_.Merge(part.columns_);
  bits_.Merge(part.bits_);
  for (size_t i = 0; i < kTiles.size(); ++i) {
    squares_[i].Merge(part.squares_[i]);
  }
  count_ += part.count_;
}

}  // namespace isoloss::operations
