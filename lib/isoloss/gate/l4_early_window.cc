#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "isoloss/gate/count_floors.h"
#include "isoloss/gate/evidence.h"
#include "isoloss/gate/level.h"
#include "isoloss/gate/null_test.h"
#include "isoloss/gate/verdict.h"

namespace isoloss::gate {
namespace {

using runlog::ParameterColumns;
using runlog::StepColumns;

/// A run and the run it is compared with, in the first steps of both.
struct EarlyPair {
  const StepColumns& reference_steps;
  const StepColumns& steps;
  const ParameterColumns& reference_parameters;
  const ParameterColumns& parameters;
};

EarlyPair PairOf(const compare::SeedPair& pair) {
  return {pair.baseline->log.steps, pair.candidate->log.steps,
          pair.baseline->log.parameters, pair.candidate->log.parameters};
}

EarlyPair PairOf(const runlog::EnsembleMember& member) {
  return {member.reference_steps, member.steps, member.reference_parameters,
          member.parameters};
}

bool StartsWithSteps(const std::vector<int64_t>& step, size_t count) {
  if (step.size() < count) return false;
  for (size_t i = 0; i < count; ++i) {
    if (step[i] != static_cast<int64_t>(i) + 1) return false;
  }
  return true;
}

bool Holds(const StepColumns& steps, size_t count) {
  return StartsWithSteps(steps.step, count) &&
         steps.loss_nats.size() >= count && steps.grad_norm.size() >= count;
}

bool Holds(const ParameterColumns& parameters, size_t count,
           const std::vector<std::string>& names) {
  const size_t values = count * names.size();
  return names.empty() ||
         (StartsWithSteps(parameters.step, count) &&
          parameters.names == names && parameters.grad_norm.size() >= values &&
          parameters.update_ratio.size() >= values);
}

/// "" if the pair has everything that EarlyValues needs of `count` steps.
std::string Gap(const EarlyPair& pair, size_t count,
                const std::vector<std::string>& names) {
  if (!Holds(pair.steps, count) || !Holds(pair.reference_steps, count)) {
    return fmt::format("does not hold loss and gradient norm of steps 1 to {}",
                       count);
  }
  if (!Holds(pair.parameters, count, names) ||
      !Holds(pair.reference_parameters, count, names)) {
    return fmt::format(
        "does not hold gradient norm and update ratio of the same {} "
        "parameters in steps 1 to {}",
        names.size(), count);
  }
  return "";
}

/// ln(a / b); 0 if both are alike, so that two zeros are no difference.
double LogRatio(double a, double b) {
  if (a == b) return 0;
  if (!std::isfinite(a) || !std::isfinite(b) || a < 0 || b < 0) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  // One of them 0: further than any ratio of normal FP32 numbers.
  constexpr double kLargest = 256 * 0.6931471805599453;
  if (a == 0) return -kLargest;
  if (b == 0) return kLargest;
  return std::clamp(std::log(a / b), -kLargest, kLargest);
}

// What one of n elements adds to the logarithm of their norm, times n, if the
// others are like it. At which step the first one moves is chance: good runs
// need not show it.
/// Its gradient falls to the other side of a rounding of E4M3: d / n for a
/// relative change d.
constexpr double kGradientWhole = 0x1p-4;
/// Its gradient is 0 or not, so that Adam's first steps are whole or none: the
/// norm's square changes by 1 / n.
constexpr double kUpdateWhole = 0.5;

std::vector<NullStatistic> EarlyStatistics(
    size_t count, const std::vector<std::string>& names,
    const CountFloors& counts, const Policy& policy) {
  const double floor = policy.resolution_ulps * 0x1p-24;
  std::vector<NullStatistic> statistics;
  for (size_t i = 0; i < count; ++i) {
    const int64_t step = static_cast<int64_t>(i) + 1;
    statistics.push_back({"loss", "", step, floor});
    statistics.push_back({"gradient norm", "", step, floor});
    for (const std::string& name : names) {
      statistics.push_back({"gradient norm of " + name, name, step,
                            counts.Floor(name, floor, kGradientWhole)});
      statistics.push_back({"update of " + name, name, step,
                            counts.Floor(name, floor, kUpdateWhole)});
    }
  }
  return statistics;
}

/// In the order of EarlyStatistics.
std::vector<double> EarlyValues(const EarlyPair& pair, size_t count,
                                size_t parameters) {
  std::vector<double> values;
  for (size_t i = 0; i < count; ++i) {
    const double reference = pair.reference_steps.loss_nats[i];
    values.push_back((pair.steps.loss_nats[i] - reference) / reference);
    values.push_back(
        LogRatio(pair.steps.grad_norm[i], pair.reference_steps.grad_norm[i]));
    for (size_t j = i * parameters; j < (i + 1) * parameters; ++j) {
      values.push_back(LogRatio(pair.parameters.grad_norm[j],
                                pair.reference_parameters.grad_norm[j]));
      values.push_back(LogRatio(pair.parameters.update_ratio[j],
                                pair.reference_parameters.update_ratio[j]));
    }
  }
  return values;
}

/// Names of the parameters that runs and members record; none if the ensemble
/// does not.
const std::vector<std::string>& ParameterNames(const NullEnsemble& ensemble) {
  static const std::vector<std::string> kNone;
  const auto& members = ensemble.ensemble.members;
  return members.empty() || members[0].parameters.step.empty()
             ? kNone
             : members[0].parameters.names;
}

bool AllFinite(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(),
                     [](double value) { return std::isfinite(value); });
}

std::string MemberLabel(const NullEnsemble& ensemble,
                        const runlog::EnsembleMember& member) {
  return fmt::format("{}: seed {}{}{}", Label(ensemble), member.seed,
                     member.perturbation.empty() ? "" : ", ",
                     member.perturbation);
}

/// What keeps the ensemble or the runs from being compared.
std::vector<std::string> Obstacles(const NullEnsemble& ensemble,
                                   runlog::EnsembleKind kind,
                                   const compare::Pairing& pairing,
                                   size_t count) {
  std::vector<std::string> findings = Mismatches(ensemble, kind, pairing);
  if (!findings.empty()) return findings;
  const auto& names = ParameterNames(ensemble);
  for (const runlog::EnsembleMember& member : ensemble.ensemble.members) {
    const EarlyPair pair = PairOf(member);
    const std::string gap = Gap(pair, count, names);
    if (!gap.empty()) {
      findings.push_back(MemberLabel(ensemble, member) + " " + gap);
    } else if (!AllFinite(EarlyValues(pair, count, names.size()))) {
      findings.push_back(MemberLabel(ensemble, member) +
                         " has a value that is not finite, but members must "
                         "be good runs");
    }
  }
  for (const compare::SeedPair& pair : pairing.pairs) {
    const std::string gap = Gap(PairOf(pair), count, names);
    if (gap.empty()) continue;
    findings.push_back(
        fmt::format("{} or {} {}, but {} does", compare::Label(*pair.baseline),
                    compare::Label(*pair.candidate), gap, Label(ensemble)));
  }
  return findings;
}

void JudgeEarlyWindow(const Evidence& evidence, Judgement& judgement) {
  const Policy& policy = judgement.policy;
  const bool regression = policy.question == compare::Question::kRegression;
  const NullEnsemble* ensemble = regression ? evidence.benign : evidence.seeds;
  if (ensemble == nullptr) return;
  const compare::Pairing& pairing = *evidence.pairing;
  const auto kind =
      regression ? runlog::EnsembleKind::kBenign : runlog::EnsembleKind::kSeeds;
  const size_t count = static_cast<size_t>(
      std::min(policy.early_steps, judgement.steps_planned));
  const Check whole =
      EvidenceCheck("ensemble", Obstacles(*ensemble, kind, pairing, count),
                    fmt::format("{}, digest {}", Label(*ensemble),
                                ensemble->ensemble.digest));
  judgement.checks.push_back(whole);
  if (whole.outcome != Outcome::kPass) return;

  const auto members = UsableMembers(*ensemble, pairing);
  if (static_cast<int64_t>(members.size()) < policy.min_members) {
    judgement.checks.push_back(
        TooFewMembers(*ensemble, members.size(), policy));
    return;
  }
  const auto& names = ParameterNames(*ensemble);
  std::vector<double> null;
  for (const runlog::EnsembleMember* member : members) {
    const auto values = EarlyValues(PairOf(*member), count, names.size());
    null.insert(null.end(), values.begin(), values.end());
  }
  std::vector<Observed> observed;
  for (const compare::SeedPair& pair : pairing.pairs) {
    observed.push_back({fmt::format("seed {}", pair.seed),
                        EarlyValues(PairOf(pair), count, names.size())});
  }
  const CountFloors counts =
      evidence.candidate_probes.empty()
          ? CountFloors()
          : CountFloors(evidence.candidate_probes[0].log);
  JudgeAgainstNull("early_window",
                   EarlyStatistics(count, names, counts, policy), null,
                   observed, policy.early_headroom, judgement);
}

}  // namespace

extern constinit const Level kLevel_l4_early_window = {
    .id = LevelId::l4_early_window,
    .name = "L4",
    .title = "first steps",
    .question = "do the first steps differ as those of good runs do?",
    .needs = Needs::kSoundRuns,
    .decides = Decides::kBoth,
    .run = &JudgeEarlyWindow,
    .remedy =
        "make an ensemble with `isoloss ensemble build` and give it with "
        "--ensemble (precision: one of --kind seeds)"};

}  // namespace isoloss::gate
