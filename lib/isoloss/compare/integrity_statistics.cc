// Rule `statistics` of level L0: do a tensor's statistics fit each other?
#include <array>
#include <cmath>
#include <string>

#include "isoloss/compare/integrity_rules.h"
#include "isoloss/compare/tensor_divergence.h"

namespace isoloss::compare {
namespace {

/// Programs with FP32 buffers round some ten times; ours are good to 1e-15.
constexpr double kTolerance = 1e-5;

/// The columns that the identity is about, or a log without them.
bool HasThem(const runlog::TensorColumns& tensors) {
  for (const auto statistic :
       {runlog::kStat_numel, runlog::kStat_mean, runlog::kStat_variance,
        runlog::kStat_l2_norm, runlog::kStat_nonfinite_num}) {
    if (tensors.statistics[statistic].empty()) return false;
  }
  return true;
}

/// Sum of squares = (n - 1) variance + n mean^2. The commonest error of a merge
/// over ranks or buffers, the square of the means' distance with the wrong
/// sign, breaks it (NVIDIA/TransformerEngine, pull request 3044).
bool Fits(double n, double mean, double variance, double l2_norm) {
  const double squares = l2_norm * l2_norm;
  const double merged = (n - 1) * variance + n * mean * mean;
  return variance >= 0 && std::abs(squares - merged) <= kTolerance * squares;
}

void CheckRun(const Run& run, Findings& findings) {
  const runlog::TensorColumns& tensors = run.log.tensors;
  if (!HasThem(tensors)) return;
  const auto value = [&](runlog::TensorStatisticIndex statistic, size_t at) {
    return tensors.statistics[statistic][at];
  };
  const size_t count = tensors.names.size();
  for (size_t row = 0; row < tensors.step.size(); ++row) {
    for (size_t place = 0; place < count; ++place) {
      const size_t at = row * count + place;
      const double n = value(runlog::kStat_numel, at);
      if (!HasStatistics(tensors, row, place) || n < 2 ||
          value(runlog::kStat_nonfinite_num, at) > 0) {
        continue;
      }
      const double mean = value(runlog::kStat_mean, at);
      const double variance = value(runlog::kStat_variance, at);
      const double l2_norm = value(runlog::kStat_l2_norm, at);
      if (Fits(n, mean, variance, l2_norm)) continue;
      Report(findings, Severity::kBad,
             "{}: {} in step {} has l2_norm {:.6g}, mean {:.6g} and variance "
             "{:.6g} of {} elements, but l2_norm^2 must be (n - 1) variance + "
             "n mean^2. Statistics of parts were merged wrongly.",
             Label(run), tensors.names[place], tensors.step[row], l2_norm, mean,
             variance, n);
      return;
    }
  }
}

}  // namespace

Findings CheckStatistics(const Pairing& pairing, Question) {
  Findings findings;
  for (const Run* run : pairing.All()) CheckRun(*run, findings);
  return findings;
}

}  // namespace isoloss::compare
