// Finds which rows of two recordings belong to the same token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/layouts/batch.h"

namespace isoloss::layouts {

/// Tells for each row of A the row of B that has its token.
struct RowOrder {
  std::vector<size_t> b_of_a = {};
  bool is_same = true;  ///< each row stands at its own place
  /// A sentence says why tokens are not those of the other side; "": they are.
  std::string mismatch = {};
  /// Nothing tells the order, so it is taken to be the same.
  bool is_assumed = false;
};

/// Matches tokens by the labels of losses, and by the bits of the rows that the
/// first linear operation reads.
RowOrder OrderOfTokens(const Batch& a, const Batch& b);

/// Returns the place in `b` of each key of `a`, with long runs kept together;
/// nothing if `b` has other keys.
std::optional<std::vector<size_t>> MatchKeys(const std::vector<uint64_t>& a,
                                             const std::vector<uint64_t>& b);

/// Returns the row of `b` that is nearest to each row of `a`; each is taken
/// once. kNoRow: none is nearer than `farthest` times the length of the row.
inline constexpr size_t kNoRow = static_cast<size_t>(-1);
std::vector<size_t> NearestRows(MatrixView<const float> a,
                                MatrixView<const float> b, double farthest);

}  // namespace isoloss::layouts
