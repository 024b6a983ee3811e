#include "isoloss/oracle/sample.h"

#include <algorithm>

namespace isoloss::oracle {
namespace {

// So many elements of an edge are looked at.
constexpr size_t kOfRow = 16;
constexpr size_t kOfColumn = 64;

}  // namespace

Sample::Sample(size_t rows, size_t columns, size_t draws, const CounterRng& rng)
    : Sample(rows, columns) {
  if (size() <= draws) return;
  draws_ = draws;
  places_.reserve(draws);
  for (size_t i = 0; i < draws; ++i) {
    const size_t place = rng.Below(i, size());
    places_.push_back({place / columns, place % columns});
  }
  Order();
}

void Sample::AddEdges(const CounterRng& rng, std::span<const size_t> begins) {
  if (all()) return;
  uint64_t next = draws_;
  const auto add_row = [&](size_t end) {
    places_.push_back({end - 1, columns_ - 1});
    for (size_t i = 1; i < kOfRow; ++i) {
      places_.push_back({end - 1, rng.Below(next++, columns_)});
    }
  };
  for (size_t g = 1; g < begins.size(); ++g) {
    if (begins[g] > begins[g - 1]) add_row(begins[g]);
  }
  add_row(rows_);
  for (size_t i = 0; i < kOfColumn; ++i) {
    places_.push_back({rng.Below(next++, rows_), columns_ - 1});
  }
  Order();
}

/// Makes the places ascend, each once.
void Sample::Order() {
  std::ranges::sort(places_);
  const auto repeated = std::ranges::unique(places_);
  places_.erase(repeated.begin(), repeated.end());
}

std::span<const Place> Sample::In(size_t first, size_t end) const {
  const auto at = [this](size_t row) {
    return std::ranges::lower_bound(places_, row, {}, &Place::row);
  };
  return {at(first), at(end)};
}

}  // namespace isoloss::oracle
