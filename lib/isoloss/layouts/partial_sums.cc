#include "isoloss/layouts/partial_sums.h"

#include <fmt/format.h>

#include <algorithm>

#include "isoloss/operations/partial_sums.h"

namespace isoloss::layouts {
namespace {

using operations::CanBeSplit;
using operations::Operation;
using operations::PartOf;
using operations::Product;
using operations::ProductGroup;
using oracle::Estimate;

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
  const Product shared = operations::WithSharedScales(product);
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

}  // namespace

size_t UndeclaredParts(const Operation& operation, const Recording& recording) {
  const bool says_anything = std::ranges::any_of(
      operation.floats,
      [](const auto& named) { return !named.second.placements.empty(); });
  return says_anything ? 1 : recording.replicas();
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
