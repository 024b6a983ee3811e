// Checks for rule `domains` of level L0 whether the experts' loads add up in
// another program's run. For isoloss' own runs, runlog/relations.cc does so.
#include <algorithm>
#include <numeric>
#include <vector>

#include "isoloss/compare/integrity_rules.h"

namespace isoloss::compare {
namespace {

/// Returns the labels of each step; empty if the log does not tell them.
std::vector<int64_t> LabelsOfSteps(const runlog::StepColumns& steps) {
  std::vector<int64_t> labels(steps.tokens_seen.size());
  std::adjacent_difference(steps.tokens_seen.begin(), steps.tokens_seen.end(),
                           labels.begin());
  return labels;
}

/// Returns the number of (token, slot) pairs of each step and layer.
std::vector<double> PairsOfLayers(const runlog::MoeColumns& moe) {
  const auto experts = static_cast<size_t>(moe.experts);
  std::vector<double> pairs(moe.step.size() * static_cast<size_t>(moe.layers));
  for (size_t at = 0; at < pairs.size(); ++at) {
    for (size_t i = at * experts; i < (at + 1) * experts; ++i) {
      pairs[at] += static_cast<double>(moe.tokens_per_expert[i]);
    }
    if (moe.dropped_tokens.empty()) continue;
    pairs[at] += static_cast<double>(moe.dropped_tokens[at]);
  }
  return pairs;
}

bool HasLoads(const runlog::RunLog& log) {
  const runlog::MoeColumns& moe = log.moe;
  if (moe.layers <= 0 || moe.experts <= 0 || moe.step.empty() ||
      moe.step != log.steps.step) {
    return false;
  }
  const size_t layers = moe.step.size() * static_cast<size_t>(moe.layers);
  return moe.tokens_per_expert.size() ==
             layers * static_cast<size_t>(moe.experts) &&
         (moe.dropped_tokens.empty() || moe.dropped_tokens.size() == layers) &&
         log.steps.tokens_seen.size() == moe.step.size();
}

}  // namespace

void ReportLoads(const Run& run, Findings& findings) {
  for (const runlog::Event& event : run.log.events) {
    if (event.kind != "loads") continue;
    Report(findings, Severity::kIncomparable, "{}: {}", Label(run), event.text);
    return;
  }
  if (!HasLoads(run.log)) return;
  const auto labels = LabelsOfSteps(run.log.steps);
  const auto pairs = PairsOfLayers(run.log.moe);
  const auto layers = static_cast<size_t>(run.log.moe.layers);
  const int64_t top_k = run.log.provenance.origin.top_k;
  const bool steady = std::ranges::count(labels, labels.front()) ==
                      static_cast<std::ptrdiff_t>(labels.size());
  for (size_t at = 0; at < pairs.size(); ++at) {
    const size_t row = at / layers;
    if (top_k > 0) {
      const double due =
          static_cast<double>(labels[row]) * static_cast<double>(top_k);
      if (pairs[at] == due) continue;
      Report(findings, Severity::kIncomparable,
             "{}: the loads of MoE layer {} add up to {} at step {}, but {} "
             "tokens with {} slots each have {}. The log is damaged or was "
             "edited: record the run again.",
             Label(run), at % layers, pairs[at], run.log.moe.step[row],
             labels[row], top_k, due);
      return;
    }
    // Without a number of slots, layers and equal steps must have equal sums.
    const size_t other = steady ? 0 : row * layers;
    if (pairs[at] == pairs[other]) continue;
    Report(findings, Severity::kUnverified,
           "{}: the loads of MoE layer {} add up to {} at step {}, but those "
           "of layer 0 to {} at step {}, and nothing says why tokens differ. "
           "Record the run with top_k, and with dropped= if a capacity drops "
           "tokens.",
           Label(run), at % layers, pairs[at], run.log.moe.step[row],
           pairs[other], run.log.moe.step[other / layers]);
    return;
  }
}

}  // namespace isoloss::compare
