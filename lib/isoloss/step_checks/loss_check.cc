#include "isoloss/step_checks/loss_check.h"

#include <algorithm>
#include <cmath>

#include "isoloss/base/portable_math.h"
#include "isoloss/oracle/estimate_math.h"

namespace isoloss::step_checks {
namespace {

using oracle::Comparison;
using oracle::Estimate;
using oracle::Exactly;
using oracle::Rounded32;

/// A token with this label takes no part in the loss (docs/model.md, section
/// 7).
constexpr int32_t kIgnoredLabel = -100;
constexpr double kElementaryUlps = 2.0;

/// Computes the softmax of one row of logits and its logarithm.
class LossRow {
 public:
  LossRow(const float* logits, size_t size)
      : logits_(logits), max_(*std::max_element(logits, logits + size)) {
    oracle::Sum32 sum;
    for (size_t j = 0; j < size; ++j) {
      exponentials_.push_back(Exponential(j));
      sum.Add(exponentials_.back());
    }
    sum_ = sum.Value();
  }

  Estimate Loss(size_t label) const {
    const double log = portable::Log(sum_.exact);
    // d ln S = dS / S; S >= 1, so the bound is far below 1.
    const double relative = sum_.bound / (sum_.exact - sum_.bound);
    const double ulp = oracle::Ulp(log);
    const Estimate of_log = {
        .exact = log,
        .bound = relative +
                 kElementaryUlps * (ulp + relative * oracle::kUnitRoundoff),
        .noise = oracle::RootOfSquares(sum_.noise / sum_.exact, 0.3 * ulp)};
    const Estimate gap = Rounded32(Exactly(
        static_cast<double>(max_) - static_cast<double>(logits_[label])));
    return of_log + gap;
  }

  /// Returns the factor that turns exponentials into scale * softmax.
  Estimate Factor(double scale) const {
    return Rounded32(Quotient(Exactly(scale), sum_));
  }
  /// Returns scale (softmax_j - [j = label]).
  Estimate Gradient(size_t j, size_t label, double scale,
                    const Estimate& factor) const {
    const Estimate product = Rounded32(Product(exponentials_[j], factor));
    return j == label ? Rounded32(product + Exactly(-scale)) : product;
  }

 private:
  Estimate Exponential(size_t j) const {
    const double exponent =
        static_cast<double>(logits_[j]) - static_cast<double>(max_);
    const double value = portable::Exp(exponent);
    const Estimate argument = Rounded32(Exactly(exponent));
    const double ulp = oracle::Ulp(value);
    return {.exact = value,
            .bound = value * portable::Expm1(argument.bound) +
                     kElementaryUlps *
                         (2.0 * oracle::kUnitRoundoff * value + oracle::kTiny),
            .noise = oracle::RootOfSquares(value * argument.noise, 0.3 * ulp)};
  }

  const float* logits_;
  float max_;
  std::vector<Estimate> exponentials_;
  Estimate sum_;
};

/// `sum` is that of the losses of all `counted` tokens.
void CheckMeanLoss(const StepInputs& inputs, double sum, double counted,
                   ReportSink& sink) {
  // Both sums are in FP64, whose errors are far below what FP32 shows.
  Comparison of_mean(oracle::Grid::kFp32);
  const double mean = sum / counted;
  of_mean.Add(
      0, 0, static_cast<float>(inputs.loss),
      Estimate{.exact = mean,
               .bound = static_cast<double>(inputs.batch.labels.size()) *
                        0x1p-52 * std::fabs(mean)});
  sink.Add(kMeanLoss, of_mean);
}

}  // namespace

void CheckLoss(const StepInputs& inputs, ReportSink& sink) {
  const MatrixView<const float> logits = inputs.Values("lm_head_output");
  const MatrixView<const float> losses = inputs.Values("loss_output");
  const MatrixView<const float> gradient = inputs.Values("lm_head_gradient");
  const std::vector<int32_t>& labels = inputs.batch.labels;
  const auto counted = static_cast<double>(
      labels.size() - static_cast<size_t>(std::count(
                          labels.begin(), labels.end(), kIgnoredLabel)));
  // The kernel gets the scale in FP32.
  const auto scale = static_cast<double>(static_cast<float>(1.0 / counted));

  // The losses of the rows in which it sees a gradient are compared.
  const oracle::Sample sample = inputs.SampleOf("lm_head_gradient");
  Comparison of_losses(oracle::Grid::kFp32);
  Comparison of_gradient(inputs.activations);
  double sum = 0.0;
  for (size_t t = 0; t < logits.rows(); ++t) {
    sum += static_cast<double>(losses(t, 0));
    if (!sample.Sees(t)) continue;
    if (labels[t] == kIgnoredLabel) {
      of_losses.AddExact(t, 0, losses(t, 0), 0.0f);
      sample.ForEachIn(t, [&](size_t, size_t j) {
        of_gradient.AddExact(t, j, gradient(t, j), 0.0f);
      });
      continue;
    }
    const auto label = static_cast<size_t>(labels[t]);
    const LossRow row(logits.Row(t), logits.cols());
    of_losses.Add(t, 0, losses(t, 0), row.Loss(label));
    const Estimate factor = row.Factor(scale);
    sample.ForEachIn(t, [&](size_t, size_t j) {
      of_gradient.Add(t, j, gradient(t, j),
                      row.Gradient(j, label, scale, factor));
    });
  }
  AddRest(losses.rows(), sample, of_losses);
  of_gradient.AddUnseen(sample);
  sink.Add("loss_output", of_losses);
  sink.Add("lm_head_gradient", of_gradient);
  CheckMeanLoss(inputs, sum, counted, sink);
}

}  // namespace isoloss::step_checks
