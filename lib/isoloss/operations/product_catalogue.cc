// Lists mistakes in products as a whole; catalogue.cc has those in operands.
#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>

#include "isoloss/formats/format.h"
#include "isoloss/kernels/accumulator.h"
#include "isoloss/operations/catalogue.h"

namespace isoloss::operations {
namespace {

template <size_t kInterval>
bool Accumulator(Product& product, const char* name) {
  const Arithmetic arithmetic = {
      .accumulation = {&kernels::AccumulatorByName(name), kInterval}};
  if (product.arithmetic.accumulation == arithmetic.accumulation) return false;
  product.arithmetic = arithmetic;
  return true;
}

/// Requires several intervals, since one over all steps rounds the result.
template <size_t kInterval>
bool Bf16Sums(Product& product) {
  if (std::ranges::all_of(product.groups, [](const ProductGroup& group) {
        const MatrixView<const float>& left = group.left.values;
        return (group.left.down ? left.rows() : left.cols()) <= kInterval;
      })) {
    return false;
  }
  product.arithmetic = {.accumulation = {.accumulator = nullptr,
                                         .interval = kInterval,
                                         .outer = kernels::Rounding::kBf16}};
  return true;
}

bool PlainSums(Product& product) {
  if (product.arithmetic == Arithmetic()) return false;
  product.arithmetic = {};
  return true;
}

bool OnBf16Grid(Product& product) {
  if (product.grid != oracle::Grid::kFp32) return false;
  product.grid = oracle::Grid::kBf16;
  return true;
}

template <int kBits, size_t kSteps>
bool CutSums(Product& product) {
  product.arithmetic = {};
  product.sum_bits = kBits;
  product.sum_steps = kSteps;
  return true;
}

bool CutOutput(Product& product) {
  if (product.grid != oracle::Grid::kBf16) return false;
  product.cuts_output = true;
  return true;
}

bool ThroughFp16(Product& product) {
  if (product.grid == oracle::Grid::kFp16) return false;
  product.through_fp16 = true;
  return true;
}

/// Rounds the output to FP8. With a scale, the largest magnitude becomes the
/// largest number.
bool CodesOfOutput(Product& product, const char* name, bool is_scaled) {
  product.codes_of_output = &formats::FormatByName(name);
  if (!is_scaled) return true;
  double amax = 0.0;
  for (size_t r = 0; r < product.output.rows(); ++r) {
    for (size_t c = 0; c < product.output.cols(); ++c) {
      amax =
          std::max(amax, std::fabs(static_cast<double>(product.output(r, c))));
    }
  }
  product.code_scale =
      amax / static_cast<double>(formats::MaxFinite(*product.codes_of_output));
  return std::isnormal(product.code_scale);
}

bool BiasAfter(Product& product) {
  if (product.bias == nullptr) return false;
  product.bias_after = true;
  return true;
}

bool NoBias(Product& product) {
  if (product.bias == nullptr) return false;
  product.bias = nullptr;
  return true;
}

/// Gives the group the weight of `from` or, in wgrad, both operands.
void TakeGroup(const ProductGroup& from, Product& product, size_t group) {
  product.groups[group].right = from.right;
  if (product.role == precision::GemmRole::kWgrad) {
    product.groups[group].left = from.left;
  }
}

/// Gives group g the operands of group g + shift.
bool Rotated(Product& product, size_t shift) {
  const std::vector<ProductGroup> groups = product.groups;
  const size_t count = groups.size();
  if (count < 2 || (shift > 1 && count < 3)) return false;
  for (size_t g = 0; g < count; ++g) {
    TakeGroup(groups[(g + shift) % count], product, g);
  }
  return true;
}

/// Swaps the operands of the two groups that have the most wrong elements.
bool Swapped(Product& product) {
  std::vector<std::pair<int64_t, size_t>> wrong;
  for (size_t g = 0; g < product.groups.size(); ++g) {
    Product one = product;
    one.groups = {product.groups[g]};
    const auto comparison = Compare(one);
    if (!comparison) return false;
    wrong.emplace_back(-comparison->other(), g);
  }
  std::ranges::sort(wrong);
  if (wrong.size() < 2 || wrong[1].first == 0) return false;
  ProductGroup& a = product.groups[wrong[0].second];
  ProductGroup& b = product.groups[wrong[1].second];
  std::swap(a.right, b.right);
  if (product.role == precision::GemmRole::kWgrad) std::swap(a.left, b.left);
  return true;
}

/// Gives each wrong group the operands of another one, if that is neither a
/// swap nor a rotation by one. This computes a product for each group, so large
/// products are left out.
bool Mixed(Product& product) {
  constexpr double kMostMultiplyAdds = 0x1p33;
  const std::vector<ProductGroup> groups = product.groups;
  const size_t count = groups.size();
  if (count < 2 ||
      static_cast<double>(count) * MultiplyAdds(product) > kMostMultiplyAdds) {
    return false;
  }
  std::vector<size_t> from_of(count);
  for (size_t g = 0; g < count; ++g) {
    const auto is_right = [&](size_t from) {
      Product one = product;
      TakeGroup(groups[from], one, g);
      one.groups = {one.groups[g]};
      const auto comparison = Compare(one);
      return comparison && comparison->other() == 0;
    };
    size_t& from = from_of[g] = g;
    if (is_right(g)) continue;
    for (from = 0; from < count && !is_right(from);) ++from;
    if (from == count) return false;
    TakeGroup(groups[from], product, g);
  }
  std::set<size_t> moved, shifts;
  bool is_swap = true;
  for (size_t g = 0; g < count; ++g) {
    if (from_of[g] == g) continue;
    moved.insert(g);
    shifts.insert((from_of[g] + count - g) % count);
    is_swap = is_swap && from_of[from_of[g]] == g;
  }
  const bool is_rotated = moved.size() == count && shifts.size() == 1 &&
                          (shifts.contains(1) || shifts.contains(count - 1));
  return !moved.empty() && !is_rotated && !(is_swap && moved.size() == 2);
}

/// Gives operands of zeros to groups whose output is zero throughout.
bool MissingGroups(Product& product) {
  if (product.groups.size() < 2) return false;
  bool found = false;
  for (size_t g = 0; g < product.groups.size(); ++g) {
    ProductGroup& group = product.groups[g];
    const size_t end = g + 1 < product.groups.size()
                           ? product.groups[g + 1].first_row
                           : product.output.rows();
    bool is_zero = end > group.first_row;
    for (size_t r = group.first_row; r < end; ++r) {
      const float* row = product.output.Row(r);
      is_zero = is_zero && std::all_of(row, row + product.output.cols(),
                                       [](float v) { return v == 0.0f; });
    }
    if (!is_zero) continue;
    found = true;
    group.left.Own(
        Matrix<float>(group.left.values.rows(), group.left.values.cols()));
  }
  return found;
}

constexpr ProductMistake kProductMistakes[] = {
    {"bias_after_rounding", "the bias was added to the rounded product",
     BiasAfter, /*is_right=*/true},
    {"bias_missing", "the bias was not added", NoBias},
    {"experts_swapped", "two experts had each other's weights", Swapped},
    {"experts_rotated", "each expert had the weight of the next one",
     [](Product& product) { return Rotated(product, 1); }},
    {"experts_rotated_back", "each expert had the weight of the one before",
     [](Product& product) {
       return Rotated(product, std::max<size_t>(product.groups.size(), 1) - 1);
     }},
    {"experts_mixed", "experts had what other experts were to have", Mixed},
    {"expert_missing", "an expert was left out: what it gives is zero",
     MissingGroups},
    {"sums_hopper_f13", "sums kept 13 bits after the point, as Hopper's do",
     [](Product& product) { return Accumulator<0>(product, "hopper_f13"); }},
    {"sums_hopper_f13_128",
     "sums kept 13 bits after the point, promoted every 128 steps",
     [](Product& product) { return Accumulator<128>(product, "hopper_f13"); }},
    {"sums_blackwell_f25",
     "sums were truncated at 25 bits after the point, as Blackwell's are",
     [](Product& product) { return Accumulator<0>(product, "blackwell_f25"); }},
    {"sums_fp32", "sums were FP32 chains, not those of the recipe", PlainSums},
    {"sums_10_bits", "sums kept 10 bits, cut off every 32 steps",
     CutSums<10, 32>},
    {"sums_13_bits", "sums kept 13 bits, cut off every 32 steps",
     CutSums<13, 32>},
    {"sums_13_bits_128", "sums kept 13 bits, cut off every 128 steps",
     CutSums<13, 128>},
    {"output_truncated", "the result was cut off to BF16, not rounded",
     CutOutput},
    {"sums_bf16_16", "sums were rounded to BF16 every 16 steps", Bf16Sums<16>},
    {"sums_bf16_32", "sums were rounded to BF16 every 32 steps", Bf16Sums<32>},
    {"sums_bf16_64", "sums were rounded to BF16 every 64 steps", Bf16Sums<64>},
    {"sums_bf16_128", "sums were rounded to BF16 every 128 steps",
     Bf16Sums<128>},
    {"output_fp16", "the result was rounded to FP16 on the way", ThroughFp16},
    {"output_e4m3", "the result was rounded to E4M3",
     [](Product& product) { return CodesOfOutput(product, "e4m3", false); }},
    {"output_e5m2", "the result was rounded to E5M2",
     [](Product& product) { return CodesOfOutput(product, "e5m2", false); }},
    {"output_e4m3_scaled", "the result was quantised to E4M3, with one scale",
     [](Product& product) { return CodesOfOutput(product, "e4m3", true); }},
    {"output_e5m2_scaled", "the result was quantised to E5M2, with one scale",
     [](Product& product) { return CodesOfOutput(product, "e5m2", true); }},
    {"output_bf16", "the result was rounded to BF16 and kept in FP32",
     OnBf16Grid},
};

}  // namespace

std::span<const ProductMistake> ProductMistakes() { return kProductMistakes; }

}  // namespace isoloss::operations
