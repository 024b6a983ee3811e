// Chooses the elements of a tensor that the oracle looks at: all, or a few that
// are drawn.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "isoloss/base/rng.h"

namespace isoloss::oracle {

struct Place {
  size_t row = 0;
  size_t column = 0;
  auto operator<=>(const Place&) const =
      default;  // NOLINT(modernize-use-nullptr)
};

class Sample {
 public:
  /// Sees all elements.
  Sample(size_t rows, size_t columns) : rows_(rows), columns_(columns) {}
  /// Sees the elements of `draws` independent draws from `rng`, each with the
  /// same chance for every element. It sees all if they are not more than the
  /// draws.
  Sample(size_t rows, size_t columns, size_t draws, const CounterRng& rng);

  /// Sees some elements of the last row and the last column in addition, where
  /// kernels compute less than a tile. Groups of rows have a last row each;
  /// `begins` are theirs and the end. These elements are no draws.
  void AddEdges(const CounterRng& rng, std::span<const size_t> begins = {});

  /// The number of draws; 0 if all elements are seen.
  size_t draws() const { return draws_; }
  bool all() const { return draws_ == 0; }
  size_t size() const { return rows_ * columns_; }
  /// The number of seen elements; two draws may hit the same one.
  size_t seen() const { return all() ? size() : places_.size(); }

  /// Returns the drawn places of rows [first, end), ascending and each once.
  std::span<const Place> In(size_t first, size_t end) const;
  /// Returns whether it sees an element of a row.
  bool Sees(size_t row) const { return all() || !In(row, row + 1).empty(); }
  bool Sees(size_t row, size_t column) const {
    return all() || std::ranges::binary_search(places_, Place{row, column});
  }

  /// Calls use(row, column) for each seen element, row by row.
  template <typename Use>
  void ForEach(const Use& use) const {
    for (const Place& place : places_) use(place.row, place.column);
    for (size_t row = 0; all() && row < rows_; ++row) ForEachIn(row, use);
  }
  /// Does so for one row.
  template <typename Use>
  void ForEachIn(size_t row, const Use& use) const {
    for (const Place& place : In(row, row + 1)) use(row, place.column);
    for (size_t column = 0; all() && column < columns_; ++column) {
      use(row, column);
    }
  }

 private:
  void Order();

  size_t rows_;
  size_t columns_;
  size_t draws_ = 0;
  std::vector<Place> places_;
};

}  // namespace isoloss::oracle
