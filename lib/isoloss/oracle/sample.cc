#include "isoloss/oracle/sample.h"

#include <algorithm>

namespace isoloss::oracle {

Sample::Sample(size_t rows, size_t columns, size_t draws, const CounterRng& rng)
    : Sample(rows, columns) {
  if (size() <= draws) return;
  draws_ = draws;
  places_.reserve(draws);
  for (size_t i = 0; i < draws; ++i) {
    const size_t place = rng.Below(i, size());
    places_.push_back({place / columns, place % columns});
  }
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
