#include "isoloss/operations/other_order.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "isoloss/base/portable_math.h"
#include "isoloss/operations/deviation_pattern.h"
#include "isoloss/operations/rows.h"

namespace isoloss::operations {
namespace {

/// No kernel splits fewer steps.
constexpr size_t kLeastSteps = 128;

/// Returns whether so few of `all` places have no wrong element as if each of
/// their elements was wrong with this probability, or an eighth of all.
bool AreFew(size_t clean, size_t all, double wrong, double elements) {
  const double by_chance =
      static_cast<double>(all) *
      portable::Pow(std::max(1.0 - wrong, 0x1p-1000), elements);
  return static_cast<double>(clean) <=
         static_cast<double>(all) / 8.0 + 2.0 * by_chance;
}

}  // namespace

bool MayHaveOtherOrder(const Product& product, const Deviations& deviations,
                       const std::vector<bool>& wrong_rows) {
  const size_t columns = product.output.cols();
  size_t rows = 0;
  size_t clean = 0;
  for (const ProductGroup& group : product.groups) {
    const Side& left = group.left;
    const size_t count = left.extent();
    const size_t depth = left.depth();
    for (size_t i = 0; i < count; ++i) {
      const float* row = product.output.Row(group.first_row + i);
      const bool is_wrong = Marks(wrong_rows, group.first_row + i);
      if (depth < kLeastSteps && is_wrong) return false;
      if (depth < kLeastSteps ||
          std::all_of(row, row + columns, [](float v) { return v == 0.0f; })) {
        continue;
      }
      ++rows;
      clean += is_wrong ? 0 : 1;
    }
  }
  if (rows == 0 || HaveOneBit(deviations)) return false;
  const double wrong = static_cast<double>(deviations.count()) /
                       static_cast<double>(rows * columns);
  const size_t residues = std::min(columns, Deviations::kLargestTile);
  const auto clean_residues =
      static_cast<size_t>(std::count(deviations.columns().by_residue.begin(),
                                     deviations.columns().by_residue.begin() +
                                         static_cast<std::ptrdiff_t>(residues),
                                     0));
  constexpr double kLeastWrong = 0.02;
  return wrong >= kLeastWrong &&
         AreFew(clean, rows, wrong, static_cast<double>(columns)) &&
         AreFew(clean_residues, residues, wrong,
                static_cast<double>(rows * columns / residues));
}

// The slope of found - exact over exact results is fitted. An instruction cuts
// the running sum off by half a unit on the average, and by one unit at most:
// 2^-fraction_bits of a sum that does not shrink. Products are cut off toward
// zero in either direction. The error of a fitted slope has a deviation of
// sigma / sqrt(sum of squares), and four of them are allowed.
bool ShrinksAsCutsDo(const Product& product,
                     const kernels::Accumulator& accumulator) {
  double squares = 0.0;
  double products = 0.0;
  double errors = 0.0;
  double count = 0.0;
  Product plain = product;
  plain.arithmetic = {};
  ForEachSum(plain,
             [&](size_t row, size_t column, const oracle::Estimate& sum) {
               const double error =
                   static_cast<double>(product.output(row, column)) - sum.exact;
               squares += sum.exact * sum.exact;
               products += sum.exact * error;
               errors += error * error;
               count += 1.0;
             });
  if (!(squares > 0.0)) return false;
  const double slope = products / squares;
  const double variance = (errors - slope * products) / count / squares;
  const double margin = 4.0 * std::sqrt(std::max(variance, 0.0));
  size_t depth = 0;
  for (const ProductGroup& group : product.groups) {
    depth = std::max(depth, group.left.depth());
  }
  const double instructions =
      static_cast<double>(depth / accumulator.steps + 1);
  const double most = std::ldexp(instructions, -accumulator.fraction_bits);
  return slope <= margin && slope >= -most - margin;
}

}  // namespace isoloss::operations
