#include "isoloss/gate/good_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/compare/written_digits.h"
#include "isoloss/gate/null_test.h"
#include "isoloss/runlog/shared_columns.h"
#include "isoloss/stats/equivalence.h"
#include "isoloss/stats/student_t.h"
#include "isoloss/stats/summary.h"

namespace isoloss::gate {
namespace {

using compare::FinalWindow;
using runlog::StepColumns;

/// Returns the mean of 100 (L - L_r) / L_r over the window's `steps` steps.
/// Empty if a step is missing.
std::optional<double> PercentOf(const StepColumns& run,
                                const StepColumns& reference,
                                const FinalWindow& window, size_t steps) {
  std::vector<double> percent;
  for (const runlog::SharedRow& at :
       runlog::MatchRows(run.step, reference.step)) {
    if (at.step < window.first_step || at.step > window.last_step) continue;
    percent.push_back(compare::PercentDifference(run.loss_nats[at.a],
                                                 reference.loss_nats[at.b]));
  }
  if (percent.size() != steps) return std::nullopt;
  return stats::Mean(percent);
}

/// Returns how many of the judged steps lie in the window.
size_t StepsOf(const compare::Pairing& pairing, const FinalWindow& window) {
  const auto& step = pairing.pairs[0].candidate->log.steps.step;
  return static_cast<size_t>(std::ranges::count_if(
      step, [&](int64_t at) { return at >= window.first_step; }));
}

Check Gap(std::string quantity, std::string next) {
  return {.name = "final_window",
          .outcome = Outcome::kInconclusive,
          .quantity = std::move(quantity),
          .next = std::move(next)};
}

/// Holds the samples of a test and their source.
struct Samples {
  stats::Summary good;
  stats::Summary candidate;
  std::string source;
  double resolution = 0;  ///< of the logs' digits, percent

  /// The spread is that of the good runs, or the candidate's if that is
  /// larger.
  double Spread() const {
    return candidate.count > 1 ? std::max(good.sd, candidate.sd) : good.sd;
  }
};

Check Decided(const Samples& samples, const FinalWindow& window,
              const stats::EquivalenceOptions& options) {
  const auto& [good, candidate, source, resolution] = samples;
  const auto n = static_cast<double>(candidate.count);
  const auto g = static_cast<double>(good.count);
  const double difference = candidate.mean - good.mean;
  const double half = stats::StudentTQuantile(1 - options.alpha, g - 1) *
                          samples.Spread() * std::sqrt(1 / n + 1 / g) +
                      resolution;
  const std::string side = options.one_sided ? "+" : "+-";
  Check check{
      .name = "final_window",
      .quantity = "mean loss difference from the good runs",
      .value = difference,
      .limit = options.margin,
      .lower = difference - half,
      .upper = difference + half,
      .interval_level = 1 - 2 * options.alpha,
      .pairs = stats::Summary{candidate.count, difference, samples.Spread()},
      .unit = "%"};
  check.evidence = fmt::format(
      "{:g} % interval [{:+.3f} %, {:+.3f} %], {} run{} against {} good ones "
      "of {} with a spread of {:.4f} %, as which the run is taken to spread, "
      "steps {} to {}",
      100 * (1 - 2 * options.alpha), *check.lower, *check.upper,
      candidate.count, candidate.count == 1 ? "" : "s", good.count, source,
      samples.Spread(), window.first_step, window.last_step);
  switch (stats::WhereIs(*check.lower, *check.upper, options)) {
    case stats::Equivalence::kInside:
      check.outcome = Outcome::kPass;
      check.relation = "within " + side;
      break;
    case stats::Equivalence::kOutside:
      check.outcome = Outcome::kFail;
      check.relation = "outside " + side;
      check.next = "see where the curves part: isoloss report LOGS --out PAGE";
      break;
    case stats::Equivalence::kUndecided:
      check.outcome = Outcome::kInconclusive;
      check.relation = "not shown to be within " + side;
      check.next =
          "give more runs of the candidate, or build the ensemble from more "
          "good ones";
      break;
  }
  return check;
}

/// Says why the good runs can't serve, whatever their losses are.
std::optional<Check> Unusable(const Evidence& evidence, const Policy& policy) {
  const NullEnsemble& ensemble = *evidence.benign;
  const std::string label = Label(ensemble);
  auto findings =
      Mismatches(ensemble, runlog::EnsembleKind::kBenign, *evidence.pairing);
  if (!findings.empty()) {
    return EvidenceCheck("final_window", std::move(findings), label);
  }
  if (policy.InTokens()) {
    return Gap("good runs of another program show no margin in tokens",
               "judge by margin_percent");
  }
  const size_t good = ensemble.ensemble.members.size() + 1;
  if (good < kFewestGoodRuns) {
    return Gap(fmt::format("{}: it holds {} good runs, but {} are the fewest "
                           "that show a spread",
                           label, good, kFewestGoodRuns),
               "build it from more logs: isoloss lab ensemble build --from "
               "LOG... --out FILE");
  }
  return std::nullopt;
}

}  // namespace

std::optional<Check> AgainstGoodRuns(const Evidence& evidence,
                                     const FinalWindow& window,
                                     const Policy& policy, double alpha) {
  if (evidence.benign == nullptr ||
      policy.question != compare::Question::kRegression ||
      evidence.pairing->Knows(runlog::Fact::kExperiment) ||
      evidence.benign->ensemble.provenance.Knows(runlog::Fact::kExperiment)) {
    return std::nullopt;
  }
  if (auto check = Unusable(evidence, policy)) return check;
  const NullEnsemble& ensemble = *evidence.benign;
  const std::string label = Label(ensemble);
  const auto& members = ensemble.ensemble.members;
  const size_t steps = StepsOf(*evidence.pairing, window);
  const StepColumns& reference = members.front().reference_steps;
  std::vector<double> good = {0};  // the reference itself
  std::vector<double> candidate;
  const auto take = [&](const StepColumns& run, std::vector<double>& values) {
    const auto percent = PercentOf(run, reference, window, steps);
    if (percent) values.push_back(*percent);
    return percent.has_value();
  };
  bool whole = true;
  for (const auto& member : members) whole = whole && take(member.steps, good);
  for (const compare::SeedPair& pair : evidence.pairing->pairs) {
    whole = whole && take(pair.candidate->log.steps, candidate);
  }
  if (!whole) {
    return Gap(fmt::format("{}: it lacks steps of the final window, {} to {}",
                           label, window.first_step, window.last_step),
               "build it from logs of whole runs: isoloss lab ensemble build "
               "--from LOG... --out FILE");
  }
  return Decided({.good = stats::Summarize(good),
                  .candidate = stats::Summarize(candidate),
                  .source = label,
                  .resolution = compare::WrittenPercent(*evidence.pairing)},
                 window,
                 {.margin = policy.margin_percent,
                  .alpha = alpha,
                  .power = policy.power,
                  .one_sided = policy.one_sided});
}

}  // namespace isoloss::gate
