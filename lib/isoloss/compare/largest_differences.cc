#include "isoloss/compare/largest_differences.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <variant>

#include "isoloss/runlog/shared_columns.h"

namespace isoloss::compare {
namespace {

using runlog::SharedColumn;
using runlog::Turn;

double Relative(double a, double b) {
  if (std::isnan(a) && std::isnan(b)) return 0;
  if (a == b) return 0;
  const double relative =
      std::fabs(a - b) / std::max(std::fabs(a), std::fabs(b));
  return std::isnan(relative) ? std::numeric_limits<double>::infinity()
                              : relative;
}

/// Finds the worst step of each place of the column.
void Rank(const SharedColumn& column, std::vector<LargestDifference>& all) {
  if (column.of->type != runlog::ValueType::kDouble || !column.labelled ||
      column.inner != 1) {
    return;
  }
  const auto& a = column.a.Values<double>(*column.of);
  const auto& b = column.b.Values<double>(*column.of);
  const auto& shared = column.group->names.shared;
  for (size_t place = 0; place < shared.size(); ++place) {
    LargestDifference worst{(*column.group->labels_a)[shared[place].a],
                            column.quantity(),
                            0,
                            0,
                            0,
                            0};
    for (const runlog::SharedRow& row : column.rows) {
      if (!IsRecorded(column, row, place)) continue;
      const double x = a[row.a * column.width_a + shared[place].a];
      const double y = b[row.b * column.width_b + shared[place].b];
      const double relative = Relative(x, y);
      if (relative <= worst.relative) continue;
      worst.step = row.step;
      worst.a = x;
      worst.b = y;
      worst.relative = relative;
    }
    if (worst.relative > 0) all.push_back(worst);
  }
}

/// Returns the largest differences in columns of a group whose turn is one of
/// `turns`, in the order of `turns`.
std::vector<LargestDifference> Largest(const runlog::RunLog& a,
                                       const runlog::RunLog& b, size_t top,
                                       const char* group,
                                       std::initializer_list<Turn> turns) {
  const runlog::SharedColumns shared(a, b);
  const runlog::Band columns = shared.Comparable();
  std::vector<LargestDifference> all;
  for (const Turn turn : turns) {
    for (const SharedColumn* column : columns) {
      const bool ranked =
          column->group == &shared.group(group) && column->field().turn == turn;
      if (ranked) Rank(*column, all);
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const LargestDifference& x, const LargestDifference& y) {
                     return x.relative > y.relative;
                   });
  all.resize(std::min(all.size(), top));
  return all;
}

}  // namespace

std::vector<LargestDifference> LargestParameterDifferences(
    const runlog::RunLog& a, const runlog::RunLog& b, size_t top) {
  return Largest(a, b, top, "parameters",
                 {Turn::kGradients, Turn::kUpdates, Turn::kMeasured});
}

std::vector<LargestDifference> LargestTensorDifferences(const runlog::RunLog& a,
                                                        const runlog::RunLog& b,
                                                        size_t top) {
  return Largest(a, b, top, "tensors",
                 {Turn::kNorm, Turn::kPeak, Turn::kSpread});
}

}  // namespace isoloss::compare
