#include <fmt/format.h>

#include "isoloss/gate/evidence.h"
#include "isoloss/gate/level.h"
#include "isoloss/gate/sequential_watch.h"
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

std::optional<Abort> Replay(const compare::SeedPair& pair, const Policy& policy,
                            const std::optional<BatchSpread>& spread) {
  const auto& baseline = pair.baseline->log.steps;
  const auto& candidate = pair.candidate->log.steps;
  SequentialWatch watch(policy, spread);
  for (size_t i = 0; i < candidate.step.size(); ++i) {
    if (watch.Add(RowOf(baseline, i), RowOf(candidate, i))) break;
  }
  return watch.abort();
}

void ReplayWatch(const Evidence& evidence, Judgement& judgement) {
  const Policy& policy = judgement.policy;
  if (judgement.steps_planned < 2 * policy.sequential_batch) {
    return;
  }
  std::optional<BatchSpread> spread;
  if (evidence.seeds != nullptr &&
      policy.question == compare::Question::kPrecision &&
      Mismatches(*evidence.seeds, runlog::EnsembleKind::kSeeds,
                 *evidence.pairing)
          .empty()) {
    spread = SpreadOfBatches(*evidence.seeds, policy);
  }
  int64_t earliest = 0;
  std::string reason = fmt::format(
      "0: a watch of batches of {} steps would have stopped no seed",
      policy.sequential_batch);
  for (const compare::SeedPair& pair : evidence.pairing->pairs) {
    const auto abort = Replay(pair, policy, spread);
    if (!abort.has_value()) continue;
    if (earliest != 0 && abort->step >= earliest) continue;
    earliest = abort->step;
    reason = fmt::format("a watch would have stopped seed {} here: {}",
                         pair.seed, abort->reason);
  }
  judgement.measures.push_back(
      {"sequential_abort", static_cast<double>(earliest), "step", reason});
}

}  // namespace

extern constinit const Level kLevel_l6_sequential = {
    .id = LevelId::l6_sequential,
    .name = "L6",
    .question = "when would a watch have stopped the run?",
    .needs = Needs::kSoundRuns,
    .decides = Decides::kNeither,
    .run = &ReplayWatch};

}  // namespace isoloss::gate
