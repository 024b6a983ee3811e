#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "isoloss/compare/written_digits.h"
#include "isoloss/gate/count_floors.h"
#include "isoloss/gate/evidence.h"
#include "isoloss/gate/level.h"
#include "isoloss/gate/null_test.h"
#include "isoloss/gate/verdict.h"

namespace isoloss::gate {
namespace {

using runlog::ParameterColumns;
using runlog::StepColumns;

/// Holds a run and the run it is compared with, in the first steps of both.
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

/// Holds the data to compare, which are the same for all pairs.
struct EarlyWindow {
  std::vector<int64_t> steps = {};  ///< 1, 2, 3, ... of isoloss' own runs
  bool norms = true;  ///< other programs need not log the gradient's
  std::vector<std::string> names = {};  ///< of parameters

  size_t count() const { return steps.size(); }
};

bool StartsWith(const std::vector<int64_t>& step, const EarlyWindow& window) {
  return step.size() >= window.count() &&
         std::equal(window.steps.begin(), window.steps.end(), step.begin());
}

bool Holds(const StepColumns& steps, const EarlyWindow& window) {
  return StartsWith(steps.step, window) &&
         steps.loss_nats.size() >= window.count() &&
         (!window.norms || steps.grad_norm.size() >= window.count());
}

bool Holds(const ParameterColumns& parameters, const EarlyWindow& window) {
  const size_t values = window.count() * window.names.size();
  return window.names.empty() || (StartsWith(parameters.step, window) &&
                                  parameters.names == window.names &&
                                  parameters.grad_norm.size() >= values &&
                                  parameters.update_ratio.size() >= values);
}

/// Says what the pair lacks that EarlyValues needs; "" if nothing is missing.
std::string Gap(const EarlyPair& pair, const EarlyWindow& window) {
  const std::string where =
      fmt::format("{} steps from {} to {}", window.count(),
                  window.steps.front(), window.steps.back());
  if (!Holds(pair.steps, window) || !Holds(pair.reference_steps, window)) {
    return fmt::format("does not hold loss{} of {}",
                       window.norms ? " and gradient norm" : "", where);
  }
  if (!Holds(pair.parameters, window) ||
      !Holds(pair.reference_parameters, window)) {
    return fmt::format(
        "does not hold gradient norm and update ratio of the same {} "
        "parameters in {}",
        window.names.size(), where);
  }
  return "";
}

/// Returns ln(a / b). It is 0 if both are alike, so that two zeros are no
/// difference.
double LogRatio(double a, double b) {
  if (a == b) return 0;
  if (!std::isfinite(a) || !std::isfinite(b) || a < 0 || b < 0) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  // A zero is further from any nonzero value than any two normal FP32 numbers
  // are apart.
  constexpr double kLargest = 256 * 0.6931471805599453;
  if (a == 0) return -kLargest;
  if (b == 0) return kLargest;
  return std::clamp(std::log(a / b), -kLargest, kLargest);
}

// These constants are the change of the logarithm of a norm, times n, if one
// of n like elements changes. Chance decides at which step the first element
// does, so good runs need not show it.
/// The element's gradient is rounded to E4M3 the other way: d / n for a
/// relative change d.
constexpr double kGradientWhole = 0x1p-4;
/// The element's gradient is 0 or not, so that Adam's first steps are whole or
/// none. The norm's square changes by 1 / n.
constexpr double kUpdateWhole = 0.5;

/// `written` is the relative error that the losses' digits hide.
std::vector<NullStatistic> EarlyStatistics(const EarlyWindow& window,
                                           const CountFloors& counts,
                                           const Policy& policy,
                                           double written) {
  const double floor = policy.resolution_ulps * 0x1p-24;
  std::vector<NullStatistic> statistics;
  for (const int64_t step : window.steps) {
    statistics.push_back({"loss", "", step, std::max(floor, written)});
    if (window.norms) statistics.push_back({"gradient norm", "", step, floor});
    for (const std::string& name : window.names) {
      statistics.push_back({"gradient norm of " + name, name, step,
                            counts.Floor(name, floor, kGradientWhole)});
      statistics.push_back({"update of " + name, name, step,
                            counts.Floor(name, floor, kUpdateWhole)});
    }
  }
  return statistics;
}

/// The values are in the order of EarlyStatistics.
std::vector<double> EarlyValues(const EarlyPair& pair,
                                const EarlyWindow& window) {
  const size_t parameters = window.names.size();
  std::vector<double> values;
  for (size_t i = 0; i < window.count(); ++i) {
    const double reference = pair.reference_steps.loss_nats[i];
    values.push_back((pair.steps.loss_nats[i] - reference) / reference);
    if (window.norms) {
      values.push_back(
          LogRatio(pair.steps.grad_norm[i], pair.reference_steps.grad_norm[i]));
    }
    for (size_t j = i * parameters; j < (i + 1) * parameters; ++j) {
      values.push_back(LogRatio(pair.parameters.grad_norm[j],
                                pair.reference_parameters.grad_norm[j]));
      values.push_back(LogRatio(pair.parameters.update_ratio[j],
                                pair.reference_parameters.update_ratio[j]));
    }
  }
  return values;
}

/// Returns the names of the parameters that runs and members record. There are
/// none if the ensemble records none.
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

/// Lists the reasons why the ensemble or the runs can't be compared.
std::vector<std::string> Obstacles(const NullEnsemble& ensemble,
                                   runlog::EnsembleKind kind,
                                   const compare::Pairing& pairing,
                                   const EarlyWindow& window) {
  std::vector<std::string> findings = Mismatches(ensemble, kind, pairing);
  if (!findings.empty()) return findings;
  for (const runlog::EnsembleMember& member : ensemble.ensemble.members) {
    const EarlyPair pair = PairOf(member);
    const std::string gap = Gap(pair, window);
    if (!gap.empty()) {
      findings.push_back(MemberLabel(ensemble, member) + " " + gap);
    } else if (!AllFinite(EarlyValues(pair, window))) {
      findings.push_back(MemberLabel(ensemble, member) +
                         " has a value that is not finite, but members must "
                         "be good runs");
    }
  }
  for (const compare::SeedPair& pair : pairing.pairs) {
    const std::string gap = Gap(PairOf(pair), window);
    if (gap.empty()) continue;
    findings.push_back(
        fmt::format("{} or {} {}, but {} does", compare::Label(*pair.baseline),
                    compare::Label(*pair.candidate), gap, Label(ensemble)));
  }
  return findings;
}

/// The window has steps 1, 2, 3, ... of isoloss' own runs, or the first steps
/// that the logs of another program hold.
EarlyWindow WindowOf(const NullEnsemble& ensemble,
                     const compare::Pairing& pairing, const Policy& policy) {
  EarlyWindow window;
  window.names = ParameterNames(ensemble);
  const runlog::RunLog& baseline = pairing.baseline[0]->log;
  const auto most = static_cast<size_t>(policy.early_steps);
  if (pairing.Knows(runlog::Fact::kEveryStep)) {
    const auto planned = static_cast<size_t>(baseline.provenance.steps_planned);
    window.steps.resize(std::min(most, planned));
    std::iota(window.steps.begin(), window.steps.end(), 1);
    return window;
  }
  const auto& step = baseline.steps.step;
  window.steps.assign(
      step.begin(),
      step.begin() + static_cast<std::ptrdiff_t>(std::min(most, step.size())));
  window.norms = !baseline.steps.grad_norm.empty();
  return window;
}

/// Good runs of another program are compared with one of them. So the judged
/// runs are compared with that run, too, whatever they are paired with.
EarlyPair AgainstReference(const compare::SeedPair& pair,
                           const runlog::EnsembleMember& member) {
  return {member.reference_steps, pair.candidate->log.steps,
          member.reference_parameters, pair.candidate->log.parameters};
}

Check NothingSaid(std::string why, const char* next) {
  return {.name = "early_window",
          .outcome = Outcome::kInconclusive,
          .quantity = std::move(why),
          .next = next};
}

/// Is INCONCLUSIVE if the logs of other programs do not hold each loss of the
/// window's steps.
std::optional<Check> Untold(const NullEnsemble& ensemble,
                            const compare::Pairing& pairing,
                            const EarlyWindow& window) {
  if (pairing.Knows(runlog::Fact::kEveryStep)) return std::nullopt;
  for (const compare::Run* run : pairing.All()) {
    const std::string why = compare::WhyNotStepByStep(run->log);
    if (why.empty()) continue;
    return NothingSaid(fmt::format("{}: {}", compare::Label(*run), why),
                       "export every step's own loss");
  }
  for (const runlog::EnsembleMember& member : ensemble.ensemble.members) {
    const std::string gap = Gap(PairOf(member), window);
    if (gap.empty()) continue;
    return NothingSaid(fmt::format("{} {}", MemberLabel(ensemble, member), gap),
                       "log the judged run at the steps of the good ones");
  }
  return std::nullopt;
}

/// Returns one row of values for each good run.
std::vector<double> ValuesOfMembers(
    const std::vector<const runlog::EnsembleMember*>& members,
    const EarlyWindow& window) {
  std::vector<double> null;
  for (const runlog::EnsembleMember* member : members) {
    const auto values = EarlyValues(PairOf(*member), window);
    null.insert(null.end(), values.begin(), values.end());
  }
  return null;
}

std::vector<Observed> ValuesOfPairs(const compare::Pairing& pairing,
                                    const runlog::Ensemble& ensemble,
                                    const EarlyWindow& window) {
  std::vector<Observed> observed;
  for (const compare::SeedPair& pair : pairing.pairs) {
    const EarlyPair judged =
        ensemble.provenance.Knows(runlog::Fact::kExperiment)
            ? PairOf(pair)
            : AgainstReference(pair, ensemble.members.front());
    observed.push_back(
        {fmt::format("seed {}", pair.seed), EarlyValues(judged, window)});
  }
  return observed;
}

LevelFindings JudgeEarlyWindow(const Evidence& evidence, const Policy& policy) {
  LevelFindings found;
  const bool regression = policy.question == compare::Question::kRegression;
  const NullEnsemble* ensemble = regression ? evidence.benign : evidence.seeds;
  if (ensemble == nullptr) return found;
  const compare::Pairing& pairing = *evidence.pairing;
  const auto kind =
      regression ? runlog::EnsembleKind::kBenign : runlog::EnsembleKind::kSeeds;
  const EarlyWindow window = WindowOf(*ensemble, pairing, policy);
  if (auto check = Untold(*ensemble, pairing, window)) {
    found.checks.push_back(std::move(*check));
    return found;
  }
  const Check whole = EvidenceCheck(
      "ensemble", Obstacles(*ensemble, kind, pairing, window),
      fmt::format("{}, digest {}", Label(*ensemble), ensemble->ensemble.digest),
      pairing.Knows(runlog::Fact::kExperiment)
          ? "the evidence is of the judged configuration"
          : "the good runs are of their own, and logged alike");
  found.checks.push_back(whole);
  if (whole.outcome != Outcome::kPass) return found;

  const auto members = UsableMembers(*ensemble, pairing);
  if (static_cast<int64_t>(members.size()) < policy.min_members) {
    found.checks.push_back(TooFewMembers(*ensemble, members.size(), policy));
    return found;
  }
  const CountFloors counts =
      evidence.candidate_probes.empty()
          ? CountFloors()
          : CountFloors(evidence.candidate_probes[0].log);
  JudgeAgainstNull("early_window",
                   EarlyStatistics(window, counts, policy,
                                   compare::WrittenPercent(pairing) / 100),
                   ValuesOfMembers(members, window),
                   ValuesOfPairs(pairing, ensemble->ensemble, window),
                   policy.early_headroom, policy, found);
  return found;
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
        "make an ensemble and give it with --ensemble: isoloss lab ensemble "
        "build EXPERIMENT --arm ARM --out FILE (precision: with --kind seeds)",
    .foreign_remedy =
        "give with --ensemble as many good runs as the policy's min_members "
        "(40 by default) and one more: isoloss lab ensemble build --from "
        "LOG... --out FILE"};

}  // namespace isoloss::gate
