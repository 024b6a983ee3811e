// Groups flips of a rounded tensor that are one piece of evidence.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "isoloss/runlog/probe_log.h"

namespace isoloss::oracle {

/// Elements whose exact values have the same significand are equally far from a
/// tie, and the same error flips all of them. Equal tokens have equal rows, and
/// products of few bits have few significands.
///
/// Each element that is near enough to a tie to flip takes 16 bytes.
class FlipClusters {
 public:
  /// `probability` is the probability of a flip.
  void Add(double exact, bool flip, double probability);
  void Merge(const FlipClusters& part);

  /// Sets repeated_flips and expected_repeated_flips. They are the flips that
  /// are left if a cluster counts as one element, which flips if any element of
  /// it does.
  void Fill(runlog::OracleRow& row) const;

 private:
  struct Element {
    uint64_t significand_and_flip = 0;
    double probability = 0.0;
    // clang-tidy 14 takes the inner comparison with 0 for a null pointer.
    auto operator<=>(const Element&) const =
        default;  // NOLINT(modernize-use-nullptr)
  };
  std::vector<Element> elements_;
};

}  // namespace isoloss::oracle
