#include "isoloss/operations/partial_sums.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "isoloss/operations/check.h"
#include "isoloss/oracle/estimate_math.h"
#include "isoloss/oracle/scalar_quantize.h"

namespace isoloss::operations {
namespace {

using oracle::Comparison;
using oracle::Estimate;
using oracle::Grid;
using precision::GemmRole;

/// A bias belongs to the sum over ranks, to one part, or in shares to each.
enum class BiasPlace { kSum, kFirstPart, kEachPart };

/// In BF16, 14 roundings before the last one may move a sum by 6 % of the
/// largest partial sum. That is less than half of a part's usual size, so that
/// a lost part shows. Roundings of more parts would hide it.
constexpr size_t kMostNarrowParts = 16;

/// Returns half a unit of the last place, relative to the number.
double RoundoffOf(Grid grid) {
  switch (grid) {
    case Grid::kBf16:
      return 0x1p-8;
    case Grid::kFp16:
      return 0x1p-11;
    case Grid::kFp32:
      return oracle::kUnitRoundoff;
  }
  return 1.0;
}

void ReadQuantized(Side& side) {
  const auto tensor = Quantized(side);
  if (!tensor) return;
  const size_t depth = side.depth();
  side.Own(oracle::ScalarDequantize(*tensor, depth));
  side.down = false;
  side.quantization.reset();
  side.before.reset();
}

Side Steps(Side side, size_t part, size_t parts) {
  const size_t depth = side.depth();
  const size_t width = (depth + parts - 1) / parts;
  const size_t begin = std::min(depth, part * width);
  const size_t count = std::min(depth - begin, width);
  side.values = side.down ? side.values.Rows(begin, count)
                          : side.values.Cols(begin, count);
  return side;
}

/// Adds terms that several ranks hold.
struct TermSum {
  Estimate sum;
  double positive = 0.0;
  double negative = 0.0;
  double unit = HUGE_VAL;  ///< all terms are multiples of it; 0: of none

  void Add(const Estimate& term) {
    sum = sum + term;
    unit =
        term.bound == 0.0 ? std::min(unit, oracle::LowestBit(term.exact)) : 0.0;
    positive += std::max(0.0, term.exact + term.bound);
    negative += std::max(0.0, term.bound - term.exact);
  }
  /// No partial sum is larger, in any order.
  double largest() const { return std::max(positive, negative); }

  /// Adds what so many roundings of partial sums may change: nothing, if all
  /// have as few bits as the type. Else each is off by `roundoff` of a partial
  /// sum that is off by the earlier ones, too.
  Estimate Rounded(double roundoff, size_t roundings) const {
    const double most = roundoff * largest();
    if (most <= unit) return sum;
    const auto count = static_cast<double>(roundings);
    Estimate rounded = sum;
    rounded.bound += count * most / (1.0 - count * roundoff);
    // Any place between two numbers is alike.
    rounded.noise =
        oracle::RootOfSquares(rounded.noise, std::sqrt(count / 3.0) * most);
    return rounded;
  }
};

/// Tells errors that have a direction: they may hide below the bounds of single
/// elements, but roundings to nearest have none.
class Gain {
 public:
  /// Adds an element, whose last rounding has this roundoff.
  void Add(float found, const Estimate& estimate, double roundoff) {
    const double exact = estimate.exact;
    if (!std::isfinite(found) || !std::isfinite(exact)) return;
    excess_ += (static_cast<double>(found) - exact) * exact;
    square_ += exact * exact;
    const double noise = oracle::RootOfSquares(
        estimate.noise, roundoff * exact / std::sqrt(3.0));
    variance_ += noise * noise * exact * exact;
  }
  /// Beyond six deviations are 2e-9 of normal numbers. Adders that cut off lose
  /// less than 2^-12 of their sum.
  bool IsOff() const {
    return std::fabs(excess_) > 6.0 * std::sqrt(variance_) + 0x1p-12 * square_;
  }

 private:
  double excess_ = 0.0;
  double square_ = 0.0;
  double variance_ = 0.0;
};

/// Compares a result with sums of parts that are each added so many times: once
/// if nothing is wrong.
class PartComparison {
 public:
  PartComparison(const Product& product, std::vector<size_t> times)
      : product_(WithSharedScales(product)), times_(std::move(times)) {
    product_.arithmetic = {};
    product_.groups.swap(groups_);
    if (product_.bias == nullptr) return;
    for (size_t j = 0; j < product_.output.cols(); ++j) {
      shares_.push_back(
          RoundTo(product_.grid, static_cast<double>(product_.bias[j]) /
                                     static_cast<double>(times_.size())));
    }
  }

  /// Returns the comparison that leaves the fewest elements, of both types of
  /// sums.
  Comparison With(BiasPlace bias) const {
    // Sums of so many elements lie in a cache.
    constexpr size_t kElements = size_t{1} << 16;
    const size_t count =
        kElements / std::max<size_t>(1, product_.output.cols()) + 1;
    Comparison wide(product_.grid);
    Comparison narrow(product_.grid);
    Gain gain;
    for (const ProductGroup& group : groups_) {
      const size_t rows = group.left.extent();
      for (size_t first = 0; first < rows; first += count) {
        AddRows(RowsOf(group, first, std::min(count, rows - first)), bias, wide,
                narrow, gain);
      }
    }
    Comparison& best = narrow.other() < wide.other() ? narrow : wide;
    // It is an error of all elements together.
    if (gain.IsOff()) best.AddOther(0, 0, 0.0f, 0.0);
    return best;
  }

 private:
  /// Takes rows of one group's result.
  Product RowsOf(ProductGroup group, size_t first, size_t count) const {
    Side& left = group.left;
    left.values = left.down ? left.values.Cols(first, count)
                            : left.values.Rows(first, count);
    group.first_row += first;
    Product rows = product_;
    rows.groups.push_back(std::move(group));
    return rows;
  }

  Product Part(const Product& rows, size_t part, BiasPlace bias) const {
    Product product = PartOf(rows, part, part, times_.size());
    if (bias == BiasPlace::kEachPart) product.bias = shares_.data();
    if (bias == BiasPlace::kFirstPart && part == 0) product.bias = rows.bias;
    return product;
  }

  void AddRows(const Product& rows, BiasPlace bias, Comparison& wide,
               Comparison& narrow, Gain& gain) const {
    const Grid grid = product_.grid;
    const ProductGroup& group = rows.groups.front();
    const size_t columns = product_.output.cols();
    std::vector<TermSum> sums(group.left.extent() * columns);
    // A group without steps has one part, which is zero.
    const size_t parts =
        std::min(times_.size(), std::max<size_t>(1, group.left.depth()));
    for (size_t part = 0; part < parts; ++part) {
      if (times_[part] == 0) continue;
      ForEachSum(Part(rows, part, bias), [&](size_t row, size_t column,
                                             const Estimate& sum) {
        const Estimate term =
            grid == Grid::kFp32 ? Rounded32(sum) : RoundedOnTheWay(grid, sum);
        TermSum& total = sums[(row - group.first_row) * columns + column];
        for (size_t n = 0; n < times_[part]; ++n) total.Add(term);
      });
    }
    const bool adds_bias = rows.bias != nullptr && bias == BiasPlace::kSum;
    // The last sum has the rounding of the result.
    const size_t additions =
        std::accumulate(times_.begin(), times_.end(), size_t{0}) - 1 +
        (adds_bias ? 1 : 0);
    const bool is_narrow = additions > 1 && times_.size() <= kMostNarrowParts;
    for (size_t i = 0; i < sums.size(); ++i) {
      const size_t row = group.first_row + i / columns;
      const size_t column = i % columns;
      if (adds_bias) {
        sums[i].Add({.exact = static_cast<double>(rows.bias[column])});
      }
      const float found = product_.output(row, column);
      const Estimate in_fp32 =
          sums[i].Rounded(RoundoffOf(Grid::kFp32), additions);
      wide.Add(row, column, found, in_fp32);
      const Estimate in_type =
          is_narrow ? sums[i].Rounded(RoundoffOf(grid), additions - 1)
                    : in_fp32;
      narrow.Add(row, column, found, in_type);
      gain.Add(found, in_type, RoundoffOf(grid));
    }
  }

  Product product_;  ///< without its groups
  std::vector<ProductGroup> groups_;
  std::vector<size_t> times_;
  std::vector<float> shares_;  ///< of the bias, rounded
};

/// Compares with the way to add a bias that leaves the fewest elements.
Comparison CompareTimes(const Product& product, std::vector<size_t> times) {
  const PartComparison sums(product, std::move(times));
  Comparison best = sums.With(BiasPlace::kSum);
  if (product.bias == nullptr) return best;
  for (const BiasPlace bias : {BiasPlace::kFirstPart, BiasPlace::kEachPart}) {
    if (best.other() == 0) break;
    Comparison tried = sums.With(bias);
    if (tried.other() < best.other()) best = std::move(tried);
  }
  return best;
}

/// Shards of the outermost axis hold tokens; a later one may be that of the
/// steps.
constexpr std::string_view kOuterShard = "Shard(0)";

}  // namespace

size_t PartsOf(const Operation& operation, GemmRole role,
               std::span<const MeshAxis> mesh, int64_t ranks) {
  const auto words = [&](const char* name) {
    const Floats* tensor = operation.Find(name);
    std::vector<std::string> found = tensor == nullptr
                                         ? std::vector<std::string>()
                                         : PlacementsOf(*tensor, mesh);
    found.resize(mesh.size());
    return found;
  };
  const auto result = words(ResultName(role));
  const auto weight = words("weight");
  const auto left = words(role == GemmRole::kFprop ? "x" : "grad_output");
  const auto x = words("x");
  const std::string steps =
      fmt::format("Shard({})", operation.Find("weight")->extent.size() -
                                   (role == GemmRole::kFprop ? 1 : 2));
  size_t parts = 1;
  for (size_t d = 0; d < mesh.size(); ++d) {
    const bool has_steps =
        role == GemmRole::kWgrad
            ? left[d] == kOuterShard && x[d] == kOuterShard
            : weight[d] == steps && left[d] != kOuterShard &&
                  (left[d].starts_with("Shard") || !mesh[d].is_data);
    if (has_steps || result[d].starts_with("Partial")) parts *= mesh[d].size;
  }
  parts = std::min(parts, static_cast<size_t>(std::max<int64_t>(1, ranks)));
  // Roundings of more parts would explain anything.
  constexpr size_t kMostParts = 1024;
  return parts > kMostParts ? 1 : parts;
}

Product WithSharedScales(Product product) {
  for (ProductGroup& group : product.groups) {
    ReadQuantized(group.left);
    ReadQuantized(group.right);
  }
  return product;
}

bool CanBeSplit(const Product& product, size_t parts) {
  return std::ranges::all_of(product.groups, [&](const ProductGroup& group) {
    return group.left.depth() == 0 || group.left.depth() >= parts;
  });
}

Product PartOf(Product product, size_t left, size_t right, size_t parts) {
  product.bias = nullptr;
  for (ProductGroup& group : product.groups) {
    group.left = Steps(group.left, left, parts);
    group.right = Steps(group.right, right, parts);
  }
  return product;
}

Comparison CompareParts(const Product& product, size_t parts) {
  return CompareTimes(
      product, std::vector<size_t>(CanBeSplit(product, parts) ? parts : 1, 1));
}

std::vector<Trial> TrialsOfParts(const Product& product) {
  // Each of them takes a product's time.
  constexpr size_t kMostParts = 8;
  const size_t parts = product.parts;
  std::vector<Trial> trials;
  if (parts < 2 || parts > kMostParts || !CanBeSplit(product, parts)) {
    return trials;
  }
  const auto add = [&](const char* name, std::string sentence, size_t others,
                       size_t part, size_t times) {
    std::vector<size_t> all(parts, others);
    all[part] = times;
    trials.push_back({.name = fmt::format("{}.{}", name, part),
                      .sentence = std::move(sentence),
                      .compare = [&product, all = std::move(all)] {
                        return CompareTimes(product, all);
                      }});
  };
  for (size_t r = 0; r < parts; ++r) {
    add("all_reduce_missing",
        fmt::format("the result is part {} of {} alone: the sum over ranks is "
                    "missing",
                    r, parts),
        0, r, 1);
    // If there are two parts, the other one is then alone.
    if (parts > 2) {
      add("part_missing",
          fmt::format("part {} of {} is missing in the sum over ranks", r,
                      parts),
          1, r, 0);
    }
    add("part_twice",
        fmt::format("part {} of {} came twice in the sum over ranks", r, parts),
        1, r, 2);
  }
  return trials;
}

}  // namespace isoloss::operations
