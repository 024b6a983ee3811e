#include "isoloss/goldens/golden_lanes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <span>

#include "isoloss/compare/tensor_divergence.h"
#include "isoloss/goldens/golden_folder.h"
#include "isoloss/runlog/layout.h"

namespace isoloss::goldens {
namespace {

/// `one` and `other` say where the two values come from.
std::string Where(const compare::TensorDivergence& first, const char* one,
                  const char* other) {
  const std::string what =
      first.name.empty() ? first.quantity
                         : fmt::format("{} of {}", first.quantity, first.name);
  const std::string phase =
      first.is_tensor && first.phase
          ? fmt::format(" ({})", compare::PhaseName(*first.phase))
          : "";
  return fmt::format("step {}: {}{} is {} {}, {} {}", first.step, what, phase,
                     first.a, one, first.b, other);
}

std::string ListText(const std::vector<std::string>& names) {
  constexpr size_t kListed = 4;
  if (names.size() <= kListed) return fmt::format("{}", fmt::join(names, ", "));
  return fmt::format("{} and {} more",
                     fmt::join(std::span(names).first(kListed), ", "),
                     names.size() - kListed);
}

/// Turns "PASS" into "pass", since a lane is no verdict.
std::string Lower(std::string_view text) {
  std::string lower;
  for (const char c : text) {
    lower += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return lower;
}

}  // namespace

std::string ExactLane::Drift() const {
  const std::string parts = ListText(content.differing);
  return where.empty() ? parts : fmt::format("{}; differing: {}", where, parts);
}

ExactLane CompareExactly(const compare::Run& golden, const compare::Run& run) {
  ExactLane lane = {.golden = GoldenName(golden),
                    .content = compare::CompareContent(golden.log, run.log),
                    .where = {},
                    .steps = golden.log.steps.step.size(),
                    .tensors = golden.log.tensors.names.size(),
                    .tensor_steps = golden.log.tensors.step.size()};
  if (lane.Reproduced()) return lane;
  const compare::DivergenceReport report =
      compare::FindDivergence(golden.log, run.log);
  if (report.first) lane.where = Where(*report.first, "in the golden", "now");
  return lane;
}

std::string OtherDescription(const compare::Run& golden,
                             const compare::Run& run, const ExactLane& lane) {
  constexpr const char* kRemedy =
      "if that is meant, `isoloss golden update` makes it the golden's";
  if (!lane.content.description.empty()) {
    return fmt::format("{} describes the run otherwise than the golden: {}; {}",
                       lane.golden, ListText(lane.content.description),
                       kRemedy);
  }
  const std::vector<std::string> left = runlog::LayoutOf(golden.file);
  const std::vector<std::string> right = runlog::LayoutOf(run.file);
  std::vector<std::string> lost;
  std::ranges::set_difference(left, right, std::back_inserter(lost));
  if (lost.empty()) return "";
  return fmt::format("{} does not have what the golden's file has: {}; {}",
                     lane.golden, ListText(lost), kRemedy);
}

std::string FirstDifference(const std::vector<compare::Run>& runs,
                            const std::vector<compare::Run>& others) {
  for (size_t i = 0; i < runs.size(); ++i) {
    // Several processes exchange data that a mesh of one process does not. So
    // content that only the other run has is no difference.
    const std::vector<std::string> differing =
        compare::CompareContent(runs[i].log, others[i].log).differing;
    if (differing.empty()) continue;
    const auto report = compare::FindDivergence(runs[i].log, others[i].log);
    const std::string where =
        report.first
            ? Where(*report.first, "in the plain run", "in this one") + "; "
            : "";
    return fmt::format("{}: {}differing: {}", GoldenName(runs[i]), where,
                       ListText(differing));
  }
  return "";
}

std::string FirstUnexplained(const runlog::ProbeLog& probe) {
  const runlog::OracleColumns& rows = probe.oracle;
  for (size_t i = 0; i < rows.step.size(); ++i) {
    if (rows.other[i] == 0) continue;
    return fmt::format("{} in case {}, step {}: {} of {} elements are wrong",
                       probe.tensors[static_cast<size_t>(rows.tensor[i])],
                       probe.cases[static_cast<size_t>(rows.probe_case[i])],
                       rows.step[i], rows.other[i], rows.elements[i]);
  }
  return "";
}

std::string LaneText(const gate::Judgement& judgement) {
  std::map<std::string, gate::Outcome> levels;
  const gate::Check* severest = nullptr;
  for (const gate::Check& check : judgement.checks) {
    if (!check.gates) continue;  // made unnecessary by other levels
    gate::Outcome& outcome =
        levels.try_emplace(check.level, check.outcome).first->second;
    outcome = std::max(outcome, check.outcome);
    if (severest == nullptr || check.outcome > severest->outcome) {
      severest = &check;
    }
  }
  std::vector<std::string> words;
  for (const auto& [level, outcome] : levels) {
    words.push_back(level + " " + Lower(gate::OutcomeName(outcome)));
  }
  std::string text =
      fmt::format("{} ({})", Lower(gate::OutcomeName(judgement.outcome)),
                  fmt::join(words, ", "));
  if (severest != nullptr && judgement.outcome != gate::Outcome::kPass) {
    text +=
        fmt::format(": {} {}", severest->name,
                    severest->findings.empty() ? severest->quantity
                                               : severest->findings.front());
  }
  return text;
}

}  // namespace isoloss::goldens
