#include "isoloss/compare/written_digits.h"

#include <cmath>

#include "isoloss/runlog/shared_columns.h"

namespace isoloss::compare {
namespace {

bool IsWrittenAlike(double a, double b, double resolution) {
  // Of the subtraction, and of the decimal numbers themselves.
  constexpr double kRounding = 1e-9;
  return a == b || (std::isnan(a) && std::isnan(b)) ||
         std::fabs(a - b) <= resolution * (1 + kRounding);
}

}  // namespace

double WrittenResolution(const runlog::RunLog& a, const runlog::RunLog& b) {
  return a.provenance.origin.loss_half_unit +
         b.provenance.origin.loss_half_unit;
}

std::optional<Divergence> FirstWrittenDivergence(
    const runlog::RunLog& baseline, const runlog::RunLog& candidate) {
  const double resolution = WrittenResolution(baseline, candidate);
  for (const runlog::SharedRow& at :
       runlog::MatchRows(baseline.steps.step, candidate.steps.step)) {
    const double a = baseline.steps.loss_nats[at.a];
    const double b = candidate.steps.loss_nats[at.b];
    if (IsWrittenAlike(a, b, resolution)) continue;
    return Divergence{at.step, "loss_nats", a, b};
  }
  return std::nullopt;
}

std::string WhyNotStepByStep(const runlog::RunLog& log) {
  switch (log.provenance.origin.values()) {
    case runlog::LossValues::kSmoothed:
      return "its losses are smoothed, so that each holds earlier steps";
    case runlog::LossValues::kOfBucket:
      return "its losses are means of points that a chart put together";
    case runlog::LossValues::kOfStep:
    case runlog::LossValues::kOfInterval:
      break;
  }
  if (!log.provenance.origin.loss_thinned) return "";
  return "points of its curve were left out";
}

}  // namespace isoloss::compare
