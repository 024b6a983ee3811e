#include "isoloss/layouts/gradients.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "isoloss/operations/check.h"

namespace isoloss::layouts {
namespace {

using operations::Floats;

/// Returns the root mean square of roundings to BF16, FP16 or FP32.
double RoundoffOf(const std::string& type) {
  return type == "bfloat16" ? 0x1p-9 : type == "float16" ? 0x1p-12 : 0x1p-25;
}

constexpr double kLeftOut = std::numeric_limits<double>::infinity();

/// Tries sums of one data rank alone, and of one micro-batch alone.
Mistake MistakeOf(const Batch& batch, const OperationKey& linear,
                  const Whole& gradient, double bound) {
  const std::vector<Piece>& pieces = batch.Of(linear);
  std::set<int64_t> data_ranks;
  std::set<size_t> calls;
  for (const Piece& piece : pieces) {
    data_ranks.insert(batch.FileOf(piece).data_rank);
    calls.insert(piece.call);
  }
  const auto is_alone = [&](const auto& belongs) {
    const Matrix<float> sum = SumOfGradients(batch, linear, [&](size_t piece) {
      return belongs(pieces[piece]) ? 1.0 : kLeftOut;
    });
    const FactorFit fit =
        FitFactor(sum.view(), gradient.view(), WholeOf(sum.view()));
    return fit.factor != 0.0 && fit.rest <= bound;
  };
  for (const int64_t rank : data_ranks) {
    if (data_ranks.size() < 2) break;
    if (is_alone([&](const Piece& piece) {
          return batch.FileOf(piece).data_rank == rank;
        })) {
      return {"all_reduce_missing",
              fmt::format("the optimizer read the gradient of data rank {} "
                          "alone, not the sum over all {}: the all-reduce is "
                          "missing",
                          rank, data_ranks.size())};
    }
  }
  for (const size_t call : calls) {
    if (calls.size() < 2) break;
    if (is_alone([&](const Piece& piece) { return piece.call == call; })) {
      return {"micro_batches_lost",
              fmt::format("the optimizer read the gradient of micro-batch {} "
                          "alone, not the sum over all {}",
                          call, calls.size())};
    }
  }
  return {"",
          "it is not the sum of the recorded gradients of all ranks and "
          "micro-batches"};
}

}  // namespace

Matrix<float> SumOfGradients(
    const Batch& batch, const OperationKey& key,
    const std::function<double(size_t piece)>& factor_of) {
  const std::vector<Piece>& pieces = batch.Of(key);
  std::map<size_t, std::vector<double>> sums;  // by first expert
  size_t cols = 1;
  for (size_t p = 0; p < pieces.size(); ++p) {
    const Floats* part = pieces[p].operation->Find("grad_weight");
    if (part == nullptr) continue;
    cols = part->Rows().cols();
    std::vector<double>& sum = sums[pieces[p].first_expert];
    sum.resize(std::max(sum.size(), part->values.size()));
    const double factor = factor_of(p);
    if (factor == kLeftOut) continue;
    for (size_t i = 0; i < part->values.size(); ++i) {
      sum[i] += static_cast<double>(part->values[i]) / factor;
    }
  }
  size_t count = 0;
  for (const auto& [first, sum] : sums) count += sum.size();
  Matrix<float> result(cols == 0 ? 0 : count / cols, cols);
  float* to = result.data();
  for (const auto& [first, sum] : sums) {
    for (const double value : sum) *to++ = static_cast<float>(value);
  }
  return result;
}

std::vector<Reduction> ReductionsOf(const Batch& batch) {
  std::vector<Reduction> reductions;
  for (const OperationKey& linear : batch.order()) {
    if (!linear.is_linear()) continue;
    const auto update =
        std::ranges::find_if(batch.order(), [&](const OperationKey& key) {
          const auto names = operations::UpdateNamesOf(linear.module);
          return batch.Has(key, "gradient") &&
                 std::ranges::find(names, key.module) != names.end();
        });
    if (update == batch.order().end()) continue;
    const std::vector<Piece>& pieces = batch.Of(linear);
    double sizes = 0.0;
    bool is_whole = true;
    double roundoff = 0.0;
    for (const Piece& piece : pieces) {
      const Floats* part = piece.operation->Find("grad_weight");
      is_whole = is_whole && part != nullptr;
      if (!is_whole) break;
      sizes += NormOf(part->Rows());
      roundoff = std::max(roundoff, RoundoffOf(part->type));
    }
    const auto gradient = batch.Shared(*update, "gradient");
    if (!is_whole || !gradient) continue;
    const Matrix<float> sum =
        SumOfGradients(batch, linear, [](size_t) { return 1.0; });
    if (sum.rows() * sum.cols() !=
        gradient->values.rows() * gradient->values.cols()) {
      continue;
    }
    Reduction reduction = {.update = *update, .linear = linear};
    reduction.fit =
        FitFactor(sum.view(), gradient->view(), WholeOf(sum.view()));
    // Each part is rounded once, and each of as many sums of parts; four
    // standard deviations of their root mean square are allowed.
    const double size = NormOf(sum.view());
    roundoff = std::max(roundoff, RoundoffOf(gradient->type));
    reduction.bound = size > 0.0 ? 4 * roundoff * 2 * sizes / size : 1.0;
    if (reduction.fit.rest > reduction.bound) {
      reduction.mistake =
          MistakeOf(batch, linear, *gradient, std::max(reduction.bound, 1e-6));
    }
    reductions.push_back(std::move(reduction));
  }
  return reductions;
}

}  // namespace isoloss::layouts
