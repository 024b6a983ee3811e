#include "isoloss/compare/written_digits.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "isoloss/runlog/shared_columns.h"

namespace isoloss::compare {
namespace {

bool IsWrittenAlike(double a, double b, double resolution) {
  // This allows for rounding in the subtraction and in the decimal numbers.
  constexpr double kRounding = 1e-9;
  return a == b || (std::isnan(a) && std::isnan(b)) ||
         std::fabs(a - b) <= resolution * (1 + kRounding);
}

double Resolution(const runlog::RunLog& a, const runlog::RunLog& b) {
  return a.provenance.origin.loss_half_unit +
         b.provenance.origin.loss_half_unit;
}

struct Columns {
  const std::vector<int64_t>& step;
  const std::vector<double>& value;
};

std::optional<Divergence> FirstOf(const char* quantity, const Columns& a,
                                  const Columns& b, double resolution) {
  for (const runlog::SharedRow& at : runlog::MatchRows(a.step, b.step)) {
    if (IsWrittenAlike(a.value[at.a], b.value[at.b], resolution)) continue;
    return Divergence{at.step, quantity, a.value[at.a], b.value[at.b]};
  }
  return std::nullopt;
}

}  // namespace

double WrittenPercent(const Pairing& pairing) {
  double largest = 0;
  for (const SeedPair& pair : pairing.pairs) {
    const double resolution =
        Resolution(pair.baseline->log, pair.candidate->log);
    if (resolution == 0) continue;
    const double least = std::ranges::min(pair.baseline->log.steps.loss_nats);
    largest = std::max(largest, 100 * resolution / least);
  }
  return largest;
}

double FormatPercent(const Pairing& pairing) {
  double largest = 0;
  for (const Run* run : pairing.All()) {
    const double step = run->log.told.loss_step;
    if (step == 0) continue;
    const double least = std::ranges::min(run->log.steps.loss_nats);
    largest = std::max(largest, 100 * step / least);
  }
  return largest;
}

std::optional<Divergence> FirstWrittenDivergence(
    const runlog::RunLog& baseline, const runlog::RunLog& candidate) {
  const double resolution = Resolution(baseline, candidate);
  auto first = FirstOf(
      "loss_nats", Columns{baseline.steps.step, baseline.steps.loss_nats},
      {candidate.steps.step, candidate.steps.loss_nats}, resolution);
  if (first) return first;
  const bool alike = baseline.provenance.origin.loss_half_unit ==
                     candidate.provenance.origin.loss_half_unit;
  if (alike && !baseline.steps.grad_norm.empty() &&
      !candidate.steps.grad_norm.empty()) {
    auto norm = FirstOf(
        "grad_norm", Columns{baseline.steps.step, baseline.steps.grad_norm},
        {candidate.steps.step, candidate.steps.grad_norm},
        baseline.told.grad_norm_half_unit + candidate.told.grad_norm_half_unit);
    if (norm) return norm;
  }
  return FirstOf("held-out loss_nats",
                 Columns{baseline.eval.step, baseline.eval.loss_nats},
                 {candidate.eval.step, candidate.eval.loss_nats}, resolution);
}

std::string WhyDeclaredUnlikeSteps(const runlog::RunLog& log) {
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

std::string WhyNotStepByStep(const runlog::RunLog& log) {
  std::string why = WhyDeclaredUnlikeSteps(log);
  if (why.empty() && log.told.looks_smoothed) {
    why =
        "its losses move as smoothed ones do, each of which holds earlier "
        "steps";
  }
  return why;
}

}  // namespace isoloss::compare
