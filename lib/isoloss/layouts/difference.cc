#include "isoloss/layouts/difference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

namespace isoloss::layouts {
namespace {

bool IsSkipped(const std::vector<bool>& skipped, size_t row) {
  return row < skipped.size() && skipped[row];
}

struct Squares {
  double of_a = 0.0;
  double of_difference = 0.0;
};

Squares SquaresOf(const float* a, const float* b, size_t begin, size_t end) {
  Squares sum;
  for (size_t j = begin; j < end; ++j) {
    const auto x = static_cast<double>(a[j]);
    const double d = static_cast<double>(b[j]) - x;
    sum.of_a += x * x;
    sum.of_difference += d * d;
  }
  return sum;
}

double Ratio(double difference, double of) {
  if (difference == 0.0) return 0.0;
  return of > 0.0 ? std::sqrt(difference / of) : HUGE_VAL;
}

/// These are sums of products of the elements of a block.
struct Products {
  double aa = 0.0;
  double ab = 0.0;
  double bb = 0.0;
};

Products ProductsOf(const float* a, const float* b, size_t begin, size_t end) {
  Products sum;
  for (size_t j = begin; j < end; ++j) {
    const auto x = static_cast<double>(a[j]);
    const auto y = static_cast<double>(b[j]);
    sum.aa += x * x;
    sum.ab += x * y;
    sum.bb += y * y;
  }
  return sum;
}

/// Short rows are differences of long ones, and are as far off as these.
constexpr double kShortest = 0.1;

double ShortestRow(MatrixView<const float> a) {
  double sum = 0.0;
  for (size_t i = 0; i < a.rows(); ++i) {
    sum += SquaresOf(a.Row(i), a.Row(i), 0, a.cols()).of_a;
  }
  return a.rows() == 0
             ? 0.0
             : kShortest * kShortest * sum / static_cast<double>(a.rows());
}

}  // namespace

Difference Differ(MatrixView<const float> a, MatrixView<const float> b,
                  const std::vector<bool>& skipped) {
  Difference result;
  Squares all;
  const double shortest = ShortestRow(a);
  for (size_t i = 0; i < a.rows(); ++i) {
    if (IsSkipped(skipped, i)) continue;
    const float* x = a.Row(i);
    const float* y = b.Row(i);
    result.elements += static_cast<int64_t>(a.cols());
    for (size_t j = 0; j < a.cols(); ++j) {
      const bool is_equal =
          std::bit_cast<uint32_t>(x[j]) == std::bit_cast<uint32_t>(y[j]) ||
          x[j] == y[j];
      result.different += is_equal ? 0 : 1;
    }
    const Squares row = SquaresOf(x, y, 0, a.cols());
    all.of_a += row.of_a;
    all.of_difference += row.of_difference;
    result.largest_row =
        std::max(result.largest_row,
                 Ratio(row.of_difference, std::max(row.of_a, shortest)));
  }
  result.relative = Ratio(all.of_difference, all.of_a);
  result.is_finite =
      std::isfinite(all.of_difference) && std::isfinite(all.of_a);
  return result;
}

double NormOf(MatrixView<const float> values) {
  double sum = 0.0;
  for (size_t i = 0; i < values.rows(); ++i) {
    for (size_t j = 0; j < values.cols(); ++j) {
      const auto x = static_cast<double>(values(i, j));
      sum += x * x;
    }
  }
  return std::sqrt(sum);
}

Region WholeOf(MatrixView<const float> matrix) {
  Region region = {.columns = matrix.cols()};
  region.rows.resize(matrix.rows());
  std::iota(region.rows.begin(), region.rows.end(), size_t{0});
  return region;
}

Region WrongRegion(MatrixView<const float> a, MatrixView<const float> b,
                   double bound, size_t shards) {
  Region region = {.columns = a.cols()};
  const double shortest = ShortestRow(a);
  size_t zeros = 0;  // rows that nothing could be wrong with
  for (size_t i = 0; i < a.rows(); ++i) {
    const Squares row = SquaresOf(a.Row(i), b.Row(i), 0, a.cols());
    if (Ratio(row.of_difference, std::max(row.of_a, shortest)) > bound) {
      region.rows.push_back(i);
    } else if (row.of_a == 0.0) {
      ++zeros;
    }
  }
  if (region.rows.empty() || region.rows.size() + zeros == a.rows()) {
    region = WholeOf(a);
  }
  if (shards < 2 || a.cols() % shards != 0) return region;
  const size_t width = a.cols() / shards;
  size_t first = shards;
  size_t last = 0;
  for (size_t s = 0; s < shards; ++s) {
    Squares block;
    for (const size_t i : region.rows) {
      const Squares row =
          SquaresOf(a.Row(i), b.Row(i), s * width, (s + 1) * width);
      block.of_a += row.of_a;
      block.of_difference += row.of_difference;
    }
    if (Ratio(block.of_difference, block.of_a) <= bound) continue;
    first = std::min(first, s);
    last = s;
  }
  if (first == shards) return region;
  region.first_column = first * width;
  region.columns = (last - first + 1) * width;
  return region;
}

FactorFit FitFactor(MatrixView<const float> a, MatrixView<const float> b,
                    const Region& region) {
  Products all;
  const size_t end = region.first_column + region.columns;
  for (const size_t i : region.rows) {
    const Products row =
        ProductsOf(a.Row(i), b.Row(i), region.first_column, end);
    all.aa += row.aa;
    all.ab += row.ab;
    all.bb += row.bb;
  }
  if (all.bb == 0.0) return {.factor = 0.0, .rest = 0.0};
  if (!(all.aa > 0.0)) return {};
  const double factor = all.ab / all.aa;
  const double rest = all.bb - factor * all.ab;
  return {.factor = factor, .rest = std::sqrt(std::max(rest, 0.0) / all.bb)};
}

double ShareOfShardFactors(MatrixView<const float> a, MatrixView<const float> b,
                           size_t shards) {
  if (shards < 2 || a.cols() % shards != 0) return 0.0;
  const size_t width = a.cols() / shards;
  double explained = 0.0;
  double all = 0.0;
  for (size_t i = 0; i < a.rows(); ++i) {
    const Products row = ProductsOf(a.Row(i), b.Row(i), 0, a.cols());
    if (!(row.aa > 0.0)) continue;
    const double mean = row.ab / row.aa;
    all += row.bb - mean * row.ab;
    for (size_t s = 0; s < shards; ++s) {
      const Products block =
          ProductsOf(a.Row(i), b.Row(i), s * width, (s + 1) * width);
      if (!(block.aa > 0.0)) continue;
      const double off = block.ab / block.aa - mean;
      explained += off * off * block.aa;
    }
  }
  return all > 0.0 ? explained / all : 0.0;
}

}  // namespace isoloss::layouts
