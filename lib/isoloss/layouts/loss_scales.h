// Finds by which factors gradients of two layouts differ, since each rank
// divides its loss by its own numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "isoloss/layouts/batch.h"
#include "isoloss/layouts/token_rows.h"

namespace isoloss::layouts {

/// Returns how many labels of a loss count.
double CountLabels(const operations::Operation& loss);

class LossScales {
 public:
  /// Reads the factors from the gradient of the last operation that both sides
  /// have. Each side divides by the labels of the batch, of a rank or of a
  /// micro-batch, or by the number of micro-batches once more: of the factors
  /// that follow, the nearest one is taken.
  LossScales(const Batch& a, const Batch& b, const TokenRows& rows,
             const std::vector<OperationKey>& both);

  /// Returns whether all parts of B's batch have one factor.
  bool is_one() const { return all_.size() < 2; }
  /// Returns that factor, or the smallest one.
  double common() const { return all_.empty() ? 1.0 : *all_.begin(); }
  double Of(const Piece& piece, size_t calls) const;
  /// Divides B's gradients by their factors.
  void Remove(const OperationKey& key, Pair& pair) const;

 private:
  double Nearest(double factor, double parts_of_a, double parts_of_b) const;
  double OfRow(const Pair& pair, size_t row) const;

  const Batch& a_;
  const Batch& b_;
  std::vector<double> of_row_;
  std::set<double> all_;
  std::map<std::pair<int64_t, size_t>, double> of_piece_;
};

}  // namespace isoloss::layouts
