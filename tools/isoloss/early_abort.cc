#include "early_abort.h"

#include <fmt/format.h>

namespace isoloss::cli {

EarlyAbort::EarlyAbort(std::string baseline_arm, const gate::Policy& policy,
                       std::optional<gate::BatchSpread> spread)
    : baseline_arm_(std::move(baseline_arm)), policy_(policy), spread_(spread) {
  gate::SequentialWatch(policy_, spread_);  // refuses what it can't watch by
}

std::optional<std::string> EarlyAbort::Add(const train::Run& run,
                                           const runlog::StepRow& row) {
  const std::lock_guard lock(mutex_);
  if (run.arm->name == baseline_arm_) {
    baseline_steps_[run.seed].push_back(row);
    for (auto& [key, pair] : pairs_) {
      if (key.second != run.seed) continue;
      pair.baseline.push_back(row);
      Advance(key, pair);
    }
    return reason_;
  }
  const Key key{run.arm->name, run.seed};
  auto found = pairs_.find(key);
  if (found == pairs_.end()) {
    found = pairs_
                .emplace(key, Pair{gate::SequentialWatch(policy_, spread_),
                                   baseline_steps_[run.seed]})
                .first;
  }
  found->second.candidate.push_back(row);
  Advance(key, found->second);
  return reason_;
}

void EarlyAbort::Advance(const Key& key, Pair& pair) {
  while (!pair.baseline.empty() && !pair.candidate.empty()) {
    const auto& abort =
        pair.watch.Add(pair.baseline.front(), pair.candidate.front());
    pair.baseline.pop_front();
    pair.candidate.pop_front();
    if (abort && !reason_) {
      reason_ =
          fmt::format("{} against {}, seed {}, step {}: {}", key.first,
                      baseline_arm_, key.second, abort->step, abort->reason);
    }
  }
}

}  // namespace isoloss::cli
