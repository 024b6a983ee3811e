#include "isoloss/doctor/product_health.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <deque>

#include "isoloss/base/error.h"
#include "isoloss/base/stopwatch.h"
#include "isoloss/kernels/gemm.h"
#include "isoloss/kernels/row_digests.h"
#include "isoloss/operations/deviation_pattern.h"
#include "isoloss/operations/deviations.h"

namespace isoloss::doctor {
namespace {

using Steady = std::chrono::steady_clock;

/// Multiplies one kind on the device.
class Trial {
 public:
  Trial(const ProductKind& kind, const ProductShape& shape, Executor& device,
        Executor& host)
      : kind_(kind),
        device_(device),
        host_(host),
        known_(kind, shape.depth, host),
        deviations_(oracle::Grid::kFp32, shape.rows, shape.cols),
        result_{.kind = kind.name, .shape = shape} {
    result_.digest = known_.digest();
  }

  const ProductResult& result() const { return result_; }

  /// Multiplies for some seconds, or once if devices compute each element
  /// alone: that is no load.
  void TakeTurn(double seconds, uint32_t seed) {
    if (!result_.not_judged.empty()) return;
    known_.Arrange(result_.shape.rows, result_.shape.cols, seed);
    left_.CopyFrom(known_.Left());
    right_.CopyFrom(known_.Right());
    const std::vector<uint64_t> expected = known_.ExpectedDigests(host_);
    const auto begin = Steady::now();
    try {
      do {
        Multiply(expected);
      } while (is_load() && SecondsSince(begin) < seconds);
    } catch (const Error& error) {
      // Tensor cores of another adder are refused. Whatever else prevents a
      // product, such as too little memory, must not pass for health.
      const bool may_refuse = kind_.accumulation.accumulator != nullptr;
      if (error.kind() != ErrorKind::kConfig || !may_refuse ||
          result_.products > 0) {
        throw;
      }
      result_.not_judged = error.what();
    }
    result_.seconds += SecondsSince(begin);
  }

  ProductResult Finish() {
    result_.pattern = operations::PatternText(deviations_, result_.elements);
    return result_;
  }

 private:
  bool is_load() const {
    return kind_.accumulation.exponents() ==
           kernels::FactorExponents::kOfValues;
  }

  void Multiply(const std::vector<uint64_t>& expected) {
    // An element that is not written must not have the bits of the last one.
    product_.Resize(result_.shape.rows, result_.shape.cols);
    const kernels::GemmProblem problem{.a = {left_.view()},
                                       .b = {right_.view()},
                                       .c = product_.view(),
                                       .accumulation = kind_.accumulation};
    kernels::GemmBatch({&problem, 1}, device_);
    digests_.resize(expected.size());
    kernels::RowDigests(product_.view(), digests_, device_);
    ++result_.products;
    result_.elements += static_cast<int64_t>(result_.shape.elements());
    if (digests_ != expected) Locate();
  }

  /// Compares the elements of the last product on the host.
  void Locate() {
    constexpr size_t kShown = 10;
    const HostRows<float> found(product_.view(), device_.memory());
    const int64_t before = result_.wrong;
    for (size_t i = 0; i < product_.rows(); ++i) {
      for (size_t j = 0; j < product_.cols(); ++j) {
        const float due = known_.Expected(i, j);
        const float has = found.view()(i, j);
        const auto due_bits = std::bit_cast<uint32_t>(due);
        const auto has_bits = std::bit_cast<uint32_t>(has);
        if (due_bits == has_bits) continue;
        ++result_.wrong;
        deviations_.Add(i, j, has, due);
        if (result_.first.size() < kShown) {
          result_.first.push_back({result_.products, i, j, due_bits, has_bits});
        }
      }
    }
    ++(result_.wrong == before ? result_.wrong_digests
                               : result_.wrong_products);
  }

  const ProductKind& kind_;
  Executor& device_;
  Executor& host_;
  KnownProduct known_;
  Matrix<float> left_{device_.memory()};
  Matrix<float> right_{device_.memory()};
  Matrix<float> product_{device_.memory()};
  std::vector<uint64_t> digests_;
  operations::Deviations deviations_;
  ProductResult result_;
};

}  // namespace

double ProductResult::FlopPerSecond() const {
  return seconds == 0 ? 0
                      : 2.0 * static_cast<double>(elements) *
                            static_cast<double>(shape.depth) / seconds;
}

std::vector<ProductResult> ExamineProducts(
    Executor& device, const ProductHealthOptions& options) {
  Executor host(AvailableProcessors());
  std::deque<Trial> trials;
  for (const ProductKind& kind : options.kinds) {
    trials.emplace_back(kind, options.shape, device, host);
  }
  // Two turns of each, so that no kind finds the device cold each time.
  const double turn =
      options.seconds / (2.0 * static_cast<double>(trials.size()));
  const auto begin = Steady::now();
  for (uint32_t seed = 0;
       seed < trials.size() || SecondsSince(begin) < options.seconds; ++seed) {
    Trial& trial = trials[seed % trials.size()];
    trial.TakeTurn(std::min(turn, options.seconds - SecondsSince(begin)), seed);
    if (options.progress) options.progress(trial.result());
    const bool all_refused = std::ranges::none_of(
        trials,
        [](const Trial& each) { return each.result().not_judged.empty(); });
    if (all_refused) break;
  }
  std::vector<ProductResult> results;
  for (Trial& trial : trials) results.push_back(trial.Finish());
  return results;
}

}  // namespace isoloss::doctor
