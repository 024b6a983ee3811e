#include "isoloss/gate/evidence.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

#include "isoloss/compare/integrity.h"
#include "isoloss/gate/foreign_probes.h"
#include "isoloss/runlog/shared_columns.h"

namespace isoloss::gate {
namespace {

using Differences = std::vector<std::string>;
using runlog::Provenance;

/// Describes a text that two provenances must record and share.
struct Shared {
  const char* name;
  std::string Provenance::*field;
};

constexpr Shared kSameExperiment[] = {
    {"config_digest", &Provenance::config_digest},
    {"corpus_digest", &Provenance::corpus_digest},
};
constexpr Shared kSameArm[] = {
    {"recipe", &Provenance::recipe},
    {"exchange", &Provenance::exchange},
};
/// These are compared only where both have a table of formats; ensembles have
/// none.
constexpr Shared kSameFormats[] = {
    {"resolved_recipe", &Provenance::resolved_recipe},
};
constexpr Shared kSameNumerics[] = {
    {"numerics_digest", &Provenance::numerics_digest},
};
/// A probe speaks only for the program that made it.
constexpr Shared kSameBuild[] = {
    {"tool_version", &Provenance::tool_version},
    {"commit", &Provenance::commit},
    {"numerics_digest", &Provenance::numerics_digest},
};

/// Shows only the first line of a text, because resolved texts have many.
std::string Shown(const std::string& text) {
  constexpr size_t kLongest = 60;
  const std::string line = text.substr(0, text.find('\n'));
  if (line.size() == text.size() && text.size() <= kLongest) return text;
  return line.substr(0, kLongest) + "...";
}

void Compare(std::string_view what, const Provenance& found,
             std::string_view owner, const Provenance& expected,
             std::span<const Shared> fields, Differences& differences) {
  for (const Shared& shared : fields) {
    const std::string& a = found.*shared.field;
    const std::string& b = expected.*shared.field;
    if (a == b) continue;
    differences.push_back(
        fmt::format("{}: {} is '{}', but {} has '{}' and they must be equal",
                    what, shared.name, Shown(a), owner, Shown(b)));
  }
}

void CompareArms(std::string_view what, const Provenance& found,
                 std::string_view owner, const Provenance& expected,
                 Differences& differences) {
  Compare(what, found, owner, expected, kSameArm, differences);
  if (found.graph.empty() || expected.graph.empty()) {
    Compare(what, found, owner, expected, kSameFormats, differences);
  }
}

/// A candidate must not bring its own limits.
void ReportUnpredicted(const std::string& label,
                       const runlog::Ensemble& ensemble,
                       Differences& differences) {
  for (const runlog::EnsembleMember& member : ensemble.members) {
    if (member.perturbation == runlog::kPredicted) continue;
    differences.push_back(fmt::format(
        "{}: products of seed {} were computed by the code that is to be "
        "judged, but limits must come from those that the oracle predicts; "
        "build the ensemble anew",
        label, member.seed));
    return;  // one program made the others, too
  }
}

void ReportMembers(const std::string& label, const runlog::Ensemble& ensemble,
                   Differences& differences) {
  std::set<std::pair<std::string, int64_t>> seen;
  for (const runlog::EnsembleMember& member : ensemble.members) {
    if (seen.emplace(member.perturbation, member.seed).second) continue;
    differences.push_back(fmt::format(
        "{}: seed {}{} occurs twice, but members must be runs of their own",
        label, member.seed,
        member.perturbation.empty() ? "" : " with " + member.perturbation));
  }
}

/// The logs of another program tell only the curves. So the good runs must be
/// separate runs, made as the judged runs are.
void ReportUnlikeGoodRuns(const std::string& label,
                          const runlog::Ensemble& ensemble,
                          const compare::Pairing& pairing,
                          Differences& differences) {
  const auto& members = ensemble.members;
  std::vector<const runlog::StepColumns*> good;
  if (!members.empty()) good.push_back(&members.front().reference_steps);
  for (const auto& member : members) good.push_back(&member.steps);
  for (size_t i = 1; i < good.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (!compare::IsCopy(*good[i], *good[j])) continue;
      differences.push_back(
          fmt::format("{}: good run {} has the losses of good run {}, but "
                      "they must be runs of their own",
                      label, i + 1, j + 1));
      return;
    }
  }
  const int64_t values = ensemble.provenance.origin.loss_values;
  for (const compare::Run* run : pairing.candidate) {
    const runlog::Provenance& provenance = run->log.provenance;
    const bool is_one =
        std::ranges::any_of(good, [&](const runlog::StepColumns* steps) {
          return compare::IsCopy(*steps, run->log.steps);
        });
    if (is_one) {
      differences.push_back(fmt::format(
          "{}: {} has the losses of one of its good runs, but no run is judged "
          "by itself",
          label, compare::Label(*run)));
    }
    if (provenance.Knows(runlog::Fact::kExperiment)) {
      differences.push_back(fmt::format(
          "{}: it holds good runs of another program, but {} is isoloss' own",
          label, compare::Label(*run)));
    } else if (provenance.origin.loss_values != values) {
      differences.push_back(fmt::format(
          "{}: a loss of its runs and one of {} are not made alike (values of "
          "steps, or means), and they must be",
          label, compare::Label(*run)));
    }
  }
}

/// Returns the first step in which the probe's plain case differs from the
/// run, among the steps that both have. Empty if there is none.
std::string UnlikeStep(const runlog::PlainStepColumns& probed,
                       const runlog::StepColumns& run) {
  bool shared = false;
  for (const runlog::SharedRow& at : runlog::MatchRows(probed.step, run.step)) {
    if (at.b >= run.loss_nats.size() || at.b >= run.grad_norm.size()) continue;
    shared = true;
    const auto unlike = [&at](const char* what, double a, double b) {
      return fmt::format(
          "{} of step {} is {} in the probe and {} in "
          "the run, but they must have the same bits",
          what, at.step, a, b);
    };
    if (!runlog::SameBits(probed.loss_nats[at.a], run.loss_nats[at.b])) {
      return unlike("loss", probed.loss_nats[at.a], run.loss_nats[at.b]);
    }
    if (!runlog::SameBits(probed.grad_norm[at.a], run.grad_norm[at.b])) {
      return unlike("gradient norm", probed.grad_norm[at.a],
                    run.grad_norm[at.b]);
    }
  }
  return shared ? "" : "they have no step in common";
}

}  // namespace

std::string Label(const Probe& probe) {
  if (!probe.file.empty()) return probe.file;
  return fmt::format("probe of arm {}, seed {}", probe.log.provenance.arm,
                     probe.log.provenance.seed);
}

std::string Label(const NullEnsemble& ensemble) {
  if (!ensemble.file.empty()) return ensemble.file;
  return fmt::format("{} ensemble",
                     runlog::EnsembleKindName(ensemble.ensemble.kind));
}

Differences Mismatches(const Probe& probe,
                       const std::vector<const compare::Run*>& runs) {
  Differences differences;
  const Provenance& found = probe.log.provenance;
  const auto run = std::find_if(
      runs.begin(), runs.end(), [&](const compare::Run* candidate) {
        return candidate->log.provenance.seed == found.seed;
      });
  if (run == runs.end()) {
    differences.push_back(
        fmt::format("{}: seed {} is none of the arm's {} runs, but a probe "
                    "belongs to one of them",
                    Label(probe), found.seed, runs.size()));
    return differences;
  }
  const Provenance& expected = (*run)->log.provenance;
  if (!found.Knows(runlog::Fact::kExperiment) ||
      !expected.Knows(runlog::Fact::kExperiment)) {
    return ForeignMismatches(probe, **run);
  }
  const std::string label = Label(probe);
  const std::string owner = compare::Label(**run);
  Compare(label, found, owner, expected, kSameExperiment, differences);
  CompareArms(label, found, owner, expected, differences);
  Compare(label, found, owner, expected, kSameBuild, differences);
  constexpr Shared kWeights[] = {
      {"initial_weights_digest", &Provenance::initial_weights_digest}};
  Compare(label, found, owner, expected, kWeights, differences);
  if (found.graph != expected.graph) {
    differences.push_back(
        fmt::format("{}: the model's graph or recipe is not that of {}, but a "
                    "probe is of the run's own model",
                    label, owner));
  }
  if (found.initial_weights_digest.empty()) {
    differences.push_back(
        fmt::format("{}: initial_weights_digest is empty, but it must name the "
                    "weights that "
                    "were probed",
                    label));
  }
  const std::string unlike =
      UnlikeStep(probe.log.plain_steps, (*run)->log.steps);
  if (!unlike.empty()) {
    differences.push_back(fmt::format(
        "{}: the probe is not of this run ({}): {}", label, owner, unlike));
  }
  return differences;
}

Differences Mismatches(const NullEnsemble& ensemble, runlog::EnsembleKind kind,
                       const compare::Pairing& pairing) {
  Differences differences;
  const std::string label = Label(ensemble);
  const runlog::Ensemble& content = ensemble.ensemble;
  if (content.kind != kind) {
    differences.push_back(
        fmt::format("{}: holds members of kind {}, but this level needs {}",
                    label, runlog::EnsembleKindName(content.kind),
                    runlog::EnsembleKindName(kind)));
    return differences;
  }
  if (!content.provenance.Knows(runlog::Fact::kExperiment)) {
    ReportUnlikeGoodRuns(label, content, pairing, differences);
    return differences;
  }
  const compare::Run& baseline = *pairing.baseline[0];
  const compare::Run& candidate = *pairing.candidate[0];
  const std::string owner = compare::Label(candidate);
  const Provenance& expected = candidate.log.provenance;
  Compare(label, content.provenance, owner, expected, kSameExperiment,
          differences);
  CompareArms(label, content.provenance, owner, expected, differences);
  const bool benign = kind == runlog::EnsembleKind::kBenign;
  const Provenance& reference =
      benign ? content.provenance : content.reference_provenance;
  const std::string of = benign ? label : label + ", reference";
  if (!benign) {
    CompareArms(of, reference, compare::Label(baseline),
                baseline.log.provenance, differences);
  }
  Compare(of, reference, compare::Label(baseline), baseline.log.provenance,
          kSameNumerics, differences);
  if (!benign) ReportUnpredicted(label, content, differences);
  ReportMembers(label, content, differences);
  return differences;
}

}  // namespace isoloss::gate
