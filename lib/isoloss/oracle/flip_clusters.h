// Flips of a rounded tensor that are one piece of evidence.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "isoloss/runlog/probe_log.h"

namespace isoloss::oracle {

/// Elements whose exact values have the same significand lie equally far from
/// a tie, and what rounds one of them the other way does so to all: equal
/// tokens have equal rows, and products of few bits have few significands.
///
/// Memory: 16 bytes for each element near enough to a tie to flip.
class FlipClusters {
 public:
  /// `probability`: that of a flip.
  void Add(double exact, bool flip, double probability);
  void Merge(const FlipClusters& part);

  /// Sets repeated_flips and expected_repeated_flips: what is left of all if a
  /// cluster counts as one element, which flips if any of its own does.
  void Fill(runlog::OracleRow& row) const;

 private:
  struct Element {
    uint64_t significand_and_flip = 0;
    double probability = 0.0;
    // clang-tidy 14 takes the comparison with 0 within for a null pointer.
    auto operator<=>(const Element&) const =
        default;  // NOLINT(modernize-use-nullptr)
  };
  std::vector<Element> elements_;
};

}  // namespace isoloss::oracle
