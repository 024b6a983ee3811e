#include "isoloss/gate/foreign_probes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "isoloss/base/saturating.h"
#include "isoloss/compare/written_digits.h"
#include "isoloss/gate/probe_completeness.h"
#include "isoloss/runlog/shared_columns.h"

namespace isoloss::gate {
namespace {

using Findings = std::vector<std::string>;
using runlog::ProbeLog;
using runlog::Provenance;

bool IsClose(double a, double b, double half_unit) {
  constexpr double kOtherOrder = 0x1p-20;
  return a == b || (std::isnan(a) && std::isnan(b)) ||
         std::fabs(a - b) <= half_unit + kOtherOrder * std::fabs(b);
}

/// Says how the steps that the probe and the run share differ; "" if they
/// agree.
std::string UnlikeStep(const ProbeLog& probe, const runlog::RunLog& run) {
  const auto& found = probe.plain_steps;
  const auto& steps = run.steps;
  bool shared = false;
  for (const runlog::SharedRow& at :
       runlog::MatchRows(found.step, steps.step)) {
    const auto unlike = [&](const char* what, double a, double b) {
      return fmt::format(
          "{} of step {} is {:.9g} in the probe and {:.9g} in "
          "the run, but they must be equal",
          what, at.step, a, b);
    };
    const double loss = found.loss_nats[at.a];
    const double norm = found.grad_norm[at.a];
    // A NaN is no evidence: nobody recorded the value, or the run has NaN,
    // too.
    if (!std::isnan(loss)) {
      shared = true;
      if (!IsClose(loss, steps.loss_nats[at.b],
                   run.provenance.origin.loss_half_unit)) {
        return unlike("loss", loss, steps.loss_nats[at.b]);
      }
    }
    if (!std::isnan(norm) && at.b < steps.grad_norm.size() &&
        !IsClose(norm, steps.grad_norm[at.b], run.told.grad_norm_half_unit)) {
      return unlike("gradient norm", norm, steps.grad_norm[at.b]);
    }
  }
  return shared ? ""
                : "no step has a loss in both, so that nothing binds one to "
                  "the other. Give check-tensors the files of all ranks of "
                  "a step that the run log has, with its loss";
}

/// Returns a text of all steps, such as "2, 3 and 7" or "1 to 9".
std::string StepText(const std::set<int64_t>& steps) {
  Findings parts;
  for (auto step = steps.begin(); step != steps.end();) {
    auto last = step;
    for (auto next = std::next(step); next != steps.end() && *next == *last + 1;
         ++next) {
      last = next;
    }
    parts.push_back(step == last ? fmt::format("{}", *step)
                                 : fmt::format("{} to {}", *step, *last));
    step = std::next(last);
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

const char* TrainerOf(const Provenance& provenance) {
  return provenance.Knows(runlog::Fact::kExperiment) ? "isoloss itself"
                                                     : "another program";
}

}  // namespace

Findings ForeignMismatches(const Probe& probe, const compare::Run& run) {
  const Provenance& found = probe.log.provenance;
  const Provenance& expected = run.log.provenance;
  const std::string label = Label(probe);
  const std::string owner = compare::Label(run);
  if (found.Knows(runlog::Fact::kExperiment) ||
      expected.Knows(runlog::Fact::kExperiment)) {
    return {fmt::format(
        "{}: it is of {}, but {} was trained by {}, and a probe is of the "
        "program that trained the run. Give it a probe of its own.",
        label, TrainerOf(found), owner, TrainerOf(expected))};
  }
  Findings findings;
  const auto compare_where_told = [&](const char* name,
                                      std::string Provenance::*field) {
    const std::string& a = found.*field;
    const std::string& b = expected.*field;
    if (a.empty() || b.empty() || a == b) return;
    findings.push_back(
        fmt::format("{}: {} is '{}', but {} has '{}' and they must be equal",
                    label, name, a, owner, b));
  };
  compare_where_told("recipe", &Provenance::recipe);
  compare_where_told("initial_weights_digest",
                     &Provenance::initial_weights_digest);
  const std::string unlike = UnlikeStep(probe.log, run.log);
  if (!unlike.empty()) {
    findings.push_back(fmt::format("{}: the probe is not of this run ({}): {}",
                                   label, owner, unlike));
  }
  return findings;
}

Findings ForeignGaps(const ProbeLog& log) {
  if (log.oracle.step.empty())
    return {"it holds no comparison with the oracle"};
  Findings findings;
  if (log.operations < 1) {
    findings.emplace_back(
        "attribute operations is 0, but it must say how many were compared");
  }
  if (log.cases != std::vector<std::string>{std::string(kPlainCase)}) {
    findings.push_back(fmt::format(
        "it has {} cases, but operations of another program are of case {}",
        log.cases.size(), kPlainCase));
  }
  const std::set<int64_t> compared(log.oracle.tensor.begin(),
                                   log.oracle.tensor.end());
  if (compared.size() != log.tensors.size()) {
    findings.push_back(fmt::format("it lists {} tensors, but has rows of {}",
                                   log.tensors.size(), compared.size()));
  }
  return findings;
}

std::set<int64_t> StepsLookedAt(const ProbeLog& log) {
  return {log.oracle.step.begin(), log.oracle.step.end()};
}

std::optional<Check> MissesParting(const Probe& probe,
                                   const compare::SeedPair& pair) {
  const auto parting =
      compare::FirstWrittenDivergence(pair.baseline->log, pair.candidate->log);
  if (!parting) return std::nullopt;
  const std::set<int64_t> steps = StepsLookedAt(probe.log);
  if (steps.contains(parting->step) || steps.contains(parting->step - 1)) {
    return std::nullopt;
  }
  return Check{
      .name = "parting",
      .outcome = Outcome::kInconclusive,
      .quantity = fmt::format(
          "the runs of seed {} part at step {}, but {} looked at step {}",
          pair.seed, parting->step, Label(probe), StepText(steps)),
      .next =
          fmt::format("record operations of steps {} and {}, and look at "
                      "them with `isoloss check-tensors`",
                      std::max<int64_t>(1, parting->step - 1), parting->step)};
}

std::optional<Check> ForeignScope(const Probes& probes) {
  Check check{.name = "scope", .outcome = Outcome::kPass};
  int64_t operations = 0;
  int64_t elements = 0;
  size_t tensors = 0;
  std::set<int64_t> steps;
  Findings open;
  size_t count = 0;
  for (const Probe* probe : probes) {
    const ProbeLog& log = probe->log;
    if (log.provenance.Knows(runlog::Fact::kGraph)) continue;
    ++count;
    operations = SaturatingAdd(operations, log.operations);
    tensors += log.oracle.step.size();
    int64_t here = 0;
    for (const int64_t of_tensor : log.oracle.elements) {
      here = SaturatingAdd(here, of_tensor);
    }
    elements = SaturatingAdd(elements, here);
    steps.merge(StepsLookedAt(log));
    check.findings.push_back(fmt::format(
        "{}: {} operations, {} tensors, {} elements of step {}, under recipe "
        "{}",
        Label(*probe), log.operations, log.oracle.step.size(), here,
        StepText(StepsLookedAt(log)), log.provenance.recipe));
    if (!log.provenance.complete) open.push_back(Label(*probe));
  }
  if (count == 0) return std::nullopt;
  if (!open.empty()) {
    check.outcome = Outcome::kInconclusive;
    check.quantity = fmt::format(
        "{}: it is not marked as complete, since points stayed open or values "
        "are not finite",
        fmt::join(open, ", "));
    check.evidence = check.findings[0];
    check.next =
        "see what is open: isoloss check-tensors; then record what it asks for";
    return check;
  }
  check.quantity = fmt::format(
      "{} recorded operations of step {} were compared, each with what its own "
      "inputs give, and nothing else of these runs",
      operations, StepText(steps));
  check.evidence = fmt::format("{} probes, {} tensors, {} elements", count,
                               tensors, elements);
  return check;
}

}  // namespace isoloss::gate
