// Predicts chosen elements of a product, by which adders are told apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "isoloss/operations/arithmetic.h"
#include "isoloss/operations/predicted_sums.h"
#include "isoloss/operations/product.h"

namespace isoloss::operations {

/// A probe is an element of one group.
struct Probe {
  size_t group;
  size_t row;
  size_t col;
  float found;
  /// Some order of FP32 sums gives the value, too.
  bool is_possible = false;
};

/// Probes that an arithmetic predicts, and those that it does not, although
/// FP32 sums explain them.
struct Score {
  int64_t matches = 0;
  int64_t misses = 0;
};

/// Computes predicted results of chosen elements of a product.
class ProbedProduct {
 public:
  explicit ProbedProduct(const Product& product) : product_(product) {}

  /// Chooses elements of which the exact sum lies close to the middle between
  /// two numbers of the grid, and some others.
  void ChooseProbes(const Arithmetic& arithmetic);
  size_t size() const { return probes_.size(); }

  Score ScoreOf(const Arithmetic& arithmetic);
  /// Counts elements that are exact sums, or ascending FP32 chains; with the
  /// promotion and the scales of one of the `ways`.
  int64_t Fp32Matches(std::span<const Arithmetic> ways);
  /// Returns the splits that predict most elements, if these are nearly all.
  std::vector<Arithmetic> FindSplits(const Arithmetic& of_others);

 private:
  const PredictedSums& SumsOf(size_t group, const Arithmetic& arithmetic);
  bool Matches(const Probe& probe, float sum) const;
  double ExactResult(const PredictedSums& sums, const Probe& probe) const;

  const Product& product_;
  std::vector<Probe> probes_;
  int64_t exact_matches_ = 0;  ///< exact sums, rounded once
  std::map<size_t, PredictedSums> sums_;
};

}  // namespace isoloss::operations
