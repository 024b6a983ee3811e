#include "isoloss/layouts/partial_sums.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>

#include "isoloss/oracle/scalar_quantize.h"

namespace isoloss::layouts {
namespace {

using operations::Floats;
using operations::Operation;
using operations::Product;
using operations::ProductGroup;
using operations::Side;
using oracle::Estimate;
using precision::GemmRole;

/// Half a unit of the last place, relative to the number.
double RoundoffOf(oracle::Grid grid) {
  switch (grid) {
    case oracle::Grid::kBf16:
      return 0x1p-8;
    case oracle::Grid::kFp16:
      return 0x1p-11;
    case oracle::Grid::kFp32:
      return oracle::kUnitRoundoff;
  }
  return 1.0;
}

/// Replaces the values by what the product reads, if shards share the scales of
/// the whole tensor.
void ReadQuantized(Side& side) {
  const auto tensor = operations::Quantized(side);
  if (!tensor) return;
  const size_t depth = side.depth();
  side.Own(oracle::ScalarDequantize(*tensor, depth));
  side.down = false;
  side.quantization.reset();
  side.before.reset();
}

/// Keeps part `part` of the steps, as torch cuts them: all parts but the last
/// ones have equal length.
Side Steps(Side side, size_t part, size_t parts) {
  const size_t depth = side.depth();
  const size_t width = (depth + parts - 1) / parts;
  const size_t begin = std::min(depth, part * width);
  const size_t count = std::min(depth - begin, width);
  side.values = side.down ? side.values.Rows(begin, count)
                          : side.values.Cols(begin, count);
  return side;
}

Product WithSharedScales(Product product) {
  for (ProductGroup& group : product.groups) {
    ReadQuantized(group.left);
    ReadQuantized(group.right);
  }
  return product;
}

/// Takes part `left` of the left steps and part `right` of the right ones.
Product PartOf(Product product, size_t left, size_t right, size_t parts) {
  product.bias = nullptr;
  for (ProductGroup& group : product.groups) {
    group.left = Steps(group.left, left, parts);
    group.right = Steps(group.right, right, parts);
  }
  return product;
}

bool CanBeSplit(const Product& product, size_t parts) {
  return std::ranges::all_of(product.groups, [&](const ProductGroup& group) {
    return group.left.depth() == 0 || group.left.depth() >= parts;
  });
}

/// These are sums of parts, and of their magnitudes.
struct PartSums {
  std::vector<double> exact;
  std::vector<double> bound;
  std::vector<double> size;
};

Matrix<float> Rounded(const Product& product, const std::vector<double>& sums) {
  Matrix<float> result(product.output.rows(), product.output.cols());
  for (size_t i = 0; i < sums.size(); ++i) {
    result.data()[i] = static_cast<float>(sums[i]);
  }
  return result;
}

std::vector<double> SumsOf(const Product& product) {
  std::vector<double> sums(product.output.rows() * product.output.cols());
  Product plain = product;
  plain.arithmetic = {};
  operations::ForEachSum(
      plain, [&](size_t row, size_t column, const Estimate& sum) {
        sums[row * product.output.cols() + column] = sum.exact;
      });
  return sums;
}

void AddBias(const Product& product, double times, std::vector<double>& sums) {
  if (product.bias == nullptr) return;
  const size_t columns = product.output.cols();
  for (size_t i = 0; i < sums.size(); ++i) {
    sums[i] += times * static_cast<double>(product.bias[i % columns]);
  }
}

/// Adds single parts and parts in other orders, of one number of parts.
void AddParts(const Product& product, const RankCount& count,
              std::vector<Candidate>& candidates) {
  const size_t n = count.count;
  if (!CanBeSplit(product, n)) return;
  const Product shared = WithSharedScales(product);
  for (size_t r = 0; r < n; ++r) {
    std::vector<double> sums = SumsOf(PartOf(shared, r, r, n));
    AddBias(product, 1.0, sums);
    candidates.push_back(
        {"all_reduce_missing",
         fmt::format(
             "it is part {} of {} of the sum alone: the all-reduce over "
             "{} is missing",
             r, n, count.name),
         Rounded(product, sums)});
  }
  // The ranks' shards of one operand may stand in another order.
  for (size_t shift = 1; shift < n; ++shift) {
    std::vector<double> sums(product.output.rows() * product.output.cols());
    for (size_t r = 0; r < n; ++r) {
      const std::vector<double> part =
          SumsOf(PartOf(shared, r, (r + shift) % n, n));
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += part[i];
    }
    AddBias(product, 1.0, sums);
    candidates.push_back(
        {"shard_order",
         fmt::format("shards of one operand stand in another order: each is "
                     "that of the rank {} after it in {}",
                     shift, count.name),
         Rounded(product, sums)});
  }
}

bool IsQuantized(const Product& product) {
  return std::ranges::any_of(product.groups, [](const ProductGroup& group) {
    return group.left.quantization || group.right.quantization;
  });
}

/// Adds operands whose shards have scales of their own.
void AddScales(const Product& product, const RankCount& count,
               std::vector<Candidate>& candidates) {
  const size_t n = count.count;
  if (!IsQuantized(product) || !CanBeSplit(product, n)) return;
  std::vector<double> sums(product.output.rows() * product.output.cols());
  for (size_t r = 0; r < n; ++r) {
    const std::vector<double> part = SumsOf(PartOf(product, r, r, n));
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += part[i];
  }
  AddBias(product, 1.0, sums);
  candidates.push_back(
      {"scale_per_shard",
       fmt::format("operands were scaled by the maximum of each of {} shards "
                   "({}), not of the whole tensor",
                   n, count.name),
       Rounded(product, sums)});
}

/// Returns the number of ranks along the axes whose word `is_split` names.
size_t SplitBy(const std::vector<std::string>& words,
               const Recording& recording, const auto& is_split) {
  size_t count = 1;
  for (size_t d = 0; d < words.size(); ++d) {
    if (is_split(words[d], recording.mesh[d])) {
      count *= recording.mesh[d].size;
    }
  }
  return count;
}

}  // namespace

const char* ResultName(GemmRole role) {
  return role == GemmRole::kFprop   ? "output"
         : role == GemmRole::kDgrad ? "grad_input"
                                    : "grad_weight";
}

Parts PartsOf(const Operation& operation, GemmRole role,
              const Recording& recording) {
  const bool says_anything = std::ranges::any_of(
      operation.floats,
      [](const auto& named) { return !named.second.placements.empty(); });
  if (!says_anything) return {recording.replicas(), false};
  const Floats& result = *operation.Find(ResultName(role));
  const size_t partial =
      SplitBy(PlacementsOf(result, recording.mesh), recording,
              [](const std::string& word, const MeshAxis&) {
                return word.starts_with("Partial");
              });
  if (partial > 1 || role == GemmRole::kWgrad) return {partial, true};
  const Floats& weight = *operation.Find("weight");
  const size_t axes = weight.extent.size();
  const std::string steps =
      fmt::format("Shard({})", role == GemmRole::kFprop ? axes - 1 : axes - 2);
  return {SplitBy(PlacementsOf(weight, recording.mesh), recording,
                  [&](const std::string& word, const MeshAxis& axis) {
                    return word == steps && !axis.is_data;
                  }),
          true};
}

oracle::Comparison CompareParts(const Product& product, size_t parts) {
  oracle::Comparison comparison(product.grid);
  const size_t columns = product.output.cols();
  const size_t size = product.output.rows() * columns;
  PartSums sums = {std::vector<double>(size), std::vector<double>(size),
                   std::vector<double>(size)};
  const double roundoff = RoundoffOf(product.grid);
  Product shared = WithSharedScales(product);
  shared.arithmetic = {};
  const size_t count = CanBeSplit(product, parts) ? parts : 1;
  for (size_t r = 0; r < count; ++r) {
    operations::ForEachSum(PartOf(shared, r, r, count),
                           [&](size_t row, size_t column, const Estimate& sum) {
                             const size_t at = row * columns + column;
                             const double most =
                                 std::fabs(sum.exact) + sum.bound;
                             sums.exact[at] += sum.exact;
                             sums.bound[at] += sum.bound + roundoff * most;
                             sums.size[at] += (1 + roundoff) * most;
                           });
  }
  for (size_t i = 0; i < size; ++i) {
    double exact = sums.exact[i];
    double magnitude = sums.size[i];
    if (product.bias != nullptr) {
      const auto bias = static_cast<double>(product.bias[i % columns]);
      exact += bias;
      magnitude += std::fabs(bias);
    }
    // Each of count - 1 sums, and that with the bias, is at most `magnitude`.
    const double additions = static_cast<double>(count) * roundoff * magnitude;
    comparison.Add(i / columns, i % columns, product.output.data()[i],
                   {.exact = exact, .bound = sums.bound[i] + additions});
  }
  return comparison;
}

Matrix<float> ExactProduct(const Product& product) {
  return Rounded(product, SumsOf(product));
}

std::vector<Candidate> CandidatesOf(const Product& product,
                                    const std::vector<RankCount>& counts) {
  std::vector<Candidate> candidates;
  for (const RankCount& count : counts) {
    constexpr size_t kMostParts = 8;
    if (count.count > kMostParts) continue;
    AddParts(product, count, candidates);
    AddScales(product, count, candidates);
    if (product.bias == nullptr) continue;
    std::vector<double> sums = SumsOf(product);
    AddBias(product, static_cast<double>(count.count - 1), sums);
    candidates.push_back(
        {"bias_on_each_rank",
         fmt::format("the bias was added {} times, once on each of {} ({})",
                     count.count, count.count, count.name),
         Rounded(product, sums)});
  }
  return candidates;
}

}  // namespace isoloss::layouts
