#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "isoloss/gate/evidence.h"
#include "isoloss/gate/level.h"
#include "isoloss/gate/seed_watch.h"
#include "isoloss/gate/verdict.h"

namespace isoloss::gate {
namespace {

runlog::StepRow RowOf(const runlog::StepColumns& steps, size_t i) {
  runlog::StepRow row;
  row.step = steps.step[i];
  row.loss_nats = steps.loss_nats[i];
  if (!steps.grad_norm.empty()) row.grad_norm = steps.grad_norm[i];
  return row;
}

/// Says why the watch would have given up the pair, or the candidate after its
/// mean; "" if neither.
std::string Replay(const compare::SeedPair& pair, const Policy& policy,
                   SeedWatch& seeds) {
  const auto& baseline = pair.baseline->log.steps;
  const auto& candidate = pair.candidate->log.steps;
  const auto steps = static_cast<int64_t>(candidate.step.size());
  PairWatch watch(policy, steps);
  for (size_t i = 0; i < candidate.step.size(); ++i) {
    std::string reason = watch.Add(RowOf(baseline, i), RowOf(candidate, i));
    if (!reason.empty()) return reason;
  }
  return seeds.Add(watch.window_percent().value());
}

/// Adds the pairs in the order of their seeds.
LevelFindings ReplayWatch(const Evidence& evidence, const Policy& policy) {
  const auto& pairs = evidence.pairing->pairs;
  // The watch knows only margins of loss and runs that isoloss trains.
  if (pairs.empty() || policy.InTokens() ||
      !evidence.pairing->Knows(runlog::Fact::kEveryStep)) {
    return {};
  }
  const auto count = static_cast<int64_t>(pairs.size());
  SeedWatch seeds(policy, LevelsOfWatch(policy, count, 1));
  Measure measure{"sequential_abort", 0, "pairs",
                  fmt::format("0: --abort-early would have stopped none of {} "
                              "pairs",
                              count)};
  for (size_t i = 0; i < pairs.size(); ++i) {
    const std::string reason = Replay(pairs[i], policy, seeds);
    if (reason.empty()) continue;
    measure.value = static_cast<double>(i + 1);
    measure.evidence =
        fmt::format("--abort-early would have stopped at seed {}: {}",
                    pairs[i].seed, reason);
    break;
  }
  return {.measures = {std::move(measure)}};
}

}  // namespace

extern constinit const Level kLevel_l6_sequential = {
    .id = LevelId::l6_sequential,
    .name = "L6",
    .title = "early abort",
    .question = "after how many pairs would a watch have stopped the job?",
    .needs = Needs::kSoundRuns,
    .decides = Decides::kNeither,
    .run = &ReplayWatch};

}  // namespace isoloss::gate
