#include "isoloss/verdicts/early_abort.h"

#include <fmt/format.h>

#include "isoloss/gate/judge.h"

namespace isoloss::verdicts {
namespace {

gate::Check StopCheck(const HopelessPair& hopeless, const std::string& arm,
                      const gate::Policy& policy,
                      const std::filesystem::path& folder) {
  const bool its_own = arm == hopeless.arm;
  const std::string where =
      fmt::format("{}seed {}, step {}: {}", its_own ? "" : hopeless.arm + ", ",
                  hopeless.seed, hopeless.step, hopeless.reason);
  gate::Check check;
  check.name = "sequential";
  check.outcome = its_own ? gate::Outcome::kFail : gate::Outcome::kInconclusive;
  check.quantity = its_own ? where : "stopped with an arm that had no hope";
  check.evidence =
      its_own ? fmt::format("alpha {:g} for all pairs and candidates together",
                            policy.sequential_alpha)
              : where;
  check.findings = {where};
  check.next = fmt::format(
      "all runs were stopped; finished ones are in {}/*.h5, what others had in "
      "*.partial.h5, and the same command with --resume in place of "
      "--abort-early goes on",
      folder.string());
  return check;
}

}  // namespace

std::vector<gate::Judgement> JudgeStopped(
    const HopelessPair& hopeless, const std::vector<compare::Run>& runs,
    const std::string& baseline_arm, const std::vector<std::string>& candidates,
    const std::optional<gate::Looks>& looks, const gate::Policy& policy,
    const std::filesystem::path& folder) {
  std::vector<gate::Judgement> judgements;
  for (const std::string& arm : candidates) {
    const auto pairing = compare::PairBySeed(
        baseline_arm, compare::RunsOfArm(runs, baseline_arm), arm,
        compare::RunsOfArm(runs, arm));
    judgements.push_back(gate::JudgeStopped(
        {.pairing = &pairing, .looks = looks ? &*looks : nullptr}, policy,
        StopCheck(hopeless, arm, policy, folder)));
  }
  return judgements;
}

EarlyAbort::EarlyAbort(std::string baseline_arm,
                       const std::vector<std::string>& candidates,
                       const gate::Policy& policy, int64_t pairs, int64_t steps)
    : baseline_arm_(std::move(baseline_arm)), policy_(policy), steps_(steps) {
  const gate::WatchLevels levels = gate::LevelsOfWatch(
      policy_, pairs, static_cast<int64_t>(candidates.size()));
  for (const std::string& arm : candidates) {
    seeds_.emplace(arm, gate::SeedWatch(policy_, levels));
  }
}

bool EarlyAbort::Add(const train::Run& run, const runlog::StepRow& row) {
  const std::lock_guard lock(mutex_);
  if (run.arm->name == baseline_arm_) {
    baseline_steps_[run.seed].push_back(row);
    for (auto& [key, pair] : pairs_) {
      if (key.second != run.seed) continue;
      pair.baseline.push_back(row);
      Advance(key, pair);
    }
    return hopeless_.has_value();
  }
  if (!seeds_.contains(run.arm->name)) return hopeless_.has_value();
  const Key key{run.arm->name, run.seed};
  auto found = pairs_.find(key);
  if (found == pairs_.end()) {
    found = pairs_
                .emplace(key, Pair{gate::PairWatch(policy_, steps_),
                                   baseline_steps_[run.seed]})
                .first;
  }
  found->second.candidate.push_back(row);
  Advance(key, found->second);
  return hopeless_.has_value();
}

void EarlyAbort::Advance(const Key& key, Pair& pair) {
  while (!hopeless_ && !pair.baseline.empty() && !pair.candidate.empty()) {
    std::string reason =
        pair.watch.Add(pair.baseline.front(), pair.candidate.front());
    pair.baseline.pop_front();
    pair.candidate.pop_front();
    const auto percent = pair.watch.window_percent();
    if (reason.empty() && percent) reason = seeds_.at(key.first).Add(*percent);
    if (reason.empty()) continue;
    hopeless_ = {.arm = key.first,
                 .seed = key.second,
                 .step = pair.watch.step(),
                 .reason = std::move(reason)};
  }
}

}  // namespace isoloss::verdicts
