// Checks rule `seeds` of level L0: a seed is one independent run of each arm.
#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "isoloss/compare/integrity_rules.h"

namespace isoloss::compare {
namespace {

std::string SeedList(const std::vector<const Run*>& runs) {
  std::string list;
  for (const Run* run : runs) {
    list +=
        fmt::format("{}{}", list.empty() ? "" : ", ", run->log.provenance.seed);
  }
  return list.empty() ? "no run" : list;
}

/// Reports a log that is copied under another seed, and would count twice.
void ReportCopies(const std::vector<const Run*>& runs, Findings& findings) {
  for (auto run = runs.begin(); run != runs.end(); ++run) {
    const auto original =
        std::find_if(runs.begin(), run, [&](const Run* other) {
          return IsCopy(other->log.steps, (*run)->log.steps);
        });
    if (original == run) continue;
    Report(findings, Severity::kIncomparable,
           "{}: every loss has the bits of {}, but seeds must be independent "
           "runs. Remove the copy.",
           Label(**run), Label(**original));
  }
}

/// Reports a run of the baseline that is given under another seed as candidate.
/// Another rule reports equal runs of one seed, which are no declared change.
void ReportSwapped(const Pairing& pairing, Findings& findings) {
  for (const SeedPair& one : pairing.pairs) {
    for (const SeedPair& other : pairing.pairs) {
      if (one.seed == other.seed ||
          !IsCopy(one.baseline->log.steps, other.candidate->log.steps)) {
        continue;
      }
      Report(findings, Severity::kIncomparable,
             "{}: every loss has the bits of {}, which is a run of the "
             "baseline with another seed. Give each log to the arm that made "
             "it.",
             Label(*other.candidate), Label(*one.baseline));
      return;
    }
  }
}

/// Reports runs that are given under the name of another arm.
void ReportLabels(const std::string& arm, const std::vector<const Run*>& runs,
                  Findings& findings) {
  for (const Run* run : runs) {
    if (run->log.provenance.arm == arm) continue;
    Report(findings, Severity::kIncomparable,
           "{}: it says that it is of arm {}, but was given as a run of arm "
           "{}. Give each log to the arm that made it.",
           Label(*run), run->log.provenance.arm, arm);
  }
}

/// Both runs recorded these digests, and they are the same.
struct OneStart {
  bool weights = false;
  bool batches = false;
};

OneStart OneStartOf(const runlog::RunLog& a, const runlog::RunLog& b) {
  const auto& weights = a.provenance.initial_weights_digest;
  const auto& batches = a.steps.batch_digest;
  return {!weights.empty() && weights == b.provenance.initial_weights_digest,
          !batches.empty() && batches == b.steps.batch_digest};
}

/// Returns the noise between neighbouring values, by the median of second
/// differences, which a trend does not move. For independent values of standard
/// deviation s it is 0.6745 sqrt(6) s.
double NoiseOf(std::span<const double> values) {
  std::vector<double> bends;
  for (size_t i = 2; i < values.size(); ++i) {
    bends.push_back(std::fabs(values[i] - 2 * values[i - 1] + values[i - 2]));
  }
  const auto middle =
      bends.begin() + static_cast<std::ptrdiff_t>(bends.size() / 2);
  std::ranges::nth_element(bends, middle);
  return *middle / (0.6745 * std::sqrt(6.0));
}

/// Returns whether two curves are so near that batches and weights must be the
/// same. Different batches part them by sqrt(2) times the noise of batches, and
/// different weights by a tenth of it and more. Reruns of one seed are near in
/// the first steps only. A regression may be judged by such reruns, but a
/// precision question needs several seeds.
bool AreNearTwins(const runlog::RunLog& a, const runlog::RunLog& b,
                  Question question) {
  constexpr size_t kFewest = 10;
  constexpr size_t kFirst = 20;  // before chaos has set in
  constexpr double kNear = 0.01;
  const auto& x = a.steps.loss_nats;
  const auto& y = b.steps.loss_nats;
  if (x.size() < kFewest || a.steps.step != b.steps.step) return false;
  const size_t count =
      question == Question::kPrecision ? std::min(x.size(), kFirst) : x.size();
  double apart =
      a.provenance.origin.loss_half_unit + b.provenance.origin.loss_half_unit;
  for (size_t i = 0; i < count; ++i) {
    if (!std::isfinite(x[i]) || !std::isfinite(y[i])) return false;
    apart = std::max(apart, std::fabs(x[i] - y[i]));
  }
  return apart < kNear * NoiseOf(std::span(x).first(count));
}

/// Reports runs of one seed under two: the trainer ignores its seed, or a log
/// was copied and moved.
void ReportOneSeed(const std::vector<const Run*>& runs, Question question,
                   Findings& findings) {
  for (auto run = runs.begin(); run != runs.end(); ++run) {
    for (auto other = runs.begin(); other != run; ++other) {
      const runlog::RunLog& a = (*other)->log;
      const runlog::RunLog& b = (*run)->log;
      if (IsCopy(a.steps, b.steps)) continue;
      const OneStart start = OneStartOf(a, b);
      // isoloss draws both by the seed; another program may draw only one.
      const bool foreign = !a.provenance.Knows(runlog::Fact::kBatches) ||
                           !b.provenance.Knows(runlog::Fact::kBatches);
      if (foreign ? start.weights && start.batches
                  : start.weights || start.batches) {
        Report(findings, Severity::kIncomparable,
               "{}: its {}{}{} are those of {}, but seeds must be independent "
               "runs. These are one seed: train each from weights or batches "
               "of its own.",
               Label(**run),
               start.weights ? fmt::format("initial weights ({})",
                                           b.provenance.initial_weights_digest)
                             : "",
               start.weights && start.batches ? " and " : "",
               start.batches
                   ? fmt::format("all {} batches", b.steps.batch_digest.size())
                   : "",
               Label(**other));
        return;
      }
      if (ReportEqualParts(**other, **run, findings)) return;
      if (!AreNearTwins(a, b, question)) continue;
      Report(findings, Severity::kIncomparable,
             "{}: its losses differ from those of {} by less than a hundredth "
             "of what two batches differ by, but seeds must be independent "
             "runs. These are one seed: train each from weights or batches of "
             "its own.",
             Label(**run), Label(**other));
      return;
    }
  }
}

}  // namespace

Findings CheckSeeds(const Pairing& pairing, Question question) {
  Findings findings;
  const bool paired = !pairing.pairs.empty() &&
                      pairing.pairs.size() == pairing.baseline.size() &&
                      pairing.pairs.size() == pairing.candidate.size();
  if (!paired) {
    // Both arms of a regression have one name.
    const bool same = pairing.baseline_arm == pairing.candidate_arm;
    Report(findings, Severity::kIncomparable,
           "{}arm {} has {}, {}arm {} has {}, but each seed needs exactly one "
           "run in either arm. Run the missing ones or give one log each.",
           same ? "approved " : "", pairing.baseline_arm,
           SeedList(pairing.baseline), same ? "judged " : "",
           pairing.candidate_arm, SeedList(pairing.candidate));
    return findings;
  }
  ReportLabels(pairing.baseline_arm, pairing.baseline, findings);
  ReportLabels(pairing.candidate_arm, pairing.candidate, findings);
  const auto& declared = pairing.candidate[0]->log.provenance;
  // A log of another program does not say which arm is the baseline.
  if (question == Question::kPrecision &&
      declared.Knows(runlog::Fact::kExperiment) &&
      pairing.candidate_arm == declared.baseline_arm) {
    Report(findings, Severity::kIncomparable,
           "{}: arm {} is the experiment's baseline, but was given as the "
           "candidate. Swap the two arms.",
           Label(*pairing.candidate[0]), pairing.candidate_arm);
  }
  ReportCopies(pairing.baseline, findings);
  ReportCopies(pairing.candidate, findings);
  if (question == Question::kPrecision) ReportSwapped(pairing, findings);
  ReportOneSeed(pairing.baseline, question, findings);
  ReportOneSeed(pairing.candidate, question, findings);
  return findings;
}

}  // namespace isoloss::compare
