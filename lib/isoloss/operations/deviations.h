// Collects the elements of a result that differ from predicted bits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "isoloss/oracle/estimate.h"
#include "isoloss/oracle/sample.h"

namespace isoloss::operations {

/// A set of places is known as long as they are few.
class FewPlaces {
 public:
  static constexpr size_t kMost = 8;

  void Add(oracle::Place place);
  void Merge(const FewPlaces& part);
  bool are_few() const { return places_.size() <= kMost; }
  /// Returns the places, ascending; their number is right only if they are few.
  const std::vector<oracle::Place>& all() const { return places_; }

 private:
  std::vector<oracle::Place> places_;
};

/// Collects the elements of one result that differ from their predicted bits.
/// Memory   a few KiB, however many elements differ.
/// Exact    every count; neither order nor tasks change any of them.
class Deviations {
 public:
  /// Tiles have this many rows, columns or both.
  static constexpr std::array<size_t, 6> kTiles = {1, 8, 16, 32, 64, 128};
  static constexpr size_t kLargestTile = kTiles.back();
  static constexpr size_t kMostBits = 32;

  /// It counts the elements by their rows, or by their columns.
  struct Axis {
    size_t extent = 0;
    size_t first = SIZE_MAX;  ///< where an element differs
    size_t last = 0;
    std::array<int64_t, kLargestTile> by_residue = {};
    /// Tiles have numbers from 0 on, which are in `row`.
    std::array<FewPlaces, kTiles.size()> tiles = {};

    void Add(size_t place);
    void Merge(const Axis& part);
  };

  /// Positions are those of the grid's own word: a BF16 number has bits 0 to
  /// 15, and its sign is bit 15.
  struct Bits {
    std::array<int64_t, kMostBits> up = {};     ///< found 1, predicted 0
    std::array<int64_t, kMostBits> down = {};   ///< found 0, predicted 1
    std::array<int64_t, kMostBits> alone = {};  ///< no other bit differs
    int64_t one_unit = 0;  ///< found is the predicted number's neighbour

    void Merge(const Bits& part);
  };

  Deviations(oracle::Grid grid, size_t rows, size_t columns);

  /// Adds an element whose two values lie on the grid. It must lie in the
  /// result.
  /// Special  zeros of either sign are equal, and so are two NaNs, as in
  ///          oracle::Comparison.
  void Add(size_t row, size_t column, float found, float predicted);
  /// Adds elements of the same result.
  void Merge(const Deviations& part);

  int64_t count() const { return count_; }
  oracle::Grid grid() const { return grid_; }
  const Axis& rows() const { return rows_; }
  const Axis& columns() const { return columns_; }
  const Bits& bits() const { return bits_; }
  /// Returns the square tiles, by row and column of tiles, for each of kTiles.
  const std::array<FewPlaces, kTiles.size()>& squares() const {
    return squares_;
  }

 private:
  oracle::Grid grid_;
  Axis rows_;
  Axis columns_;
  Bits bits_;
  std::array<FewPlaces, kTiles.size()> squares_ = {};
  int64_t count_ = 0;
};

}  // namespace isoloss::operations
