// Plans after how many seed pairs `verify` tests. A results folder remembers
// the tests (looks.json).
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "isoloss/campaign/train_arms.h"
#include "isoloss/compare/pair.h"
#include "isoloss/gate/looks.h"
#include "isoloss/gate/policy.h"
#include "isoloss/gate/verdict.h"
#include "isoloss/train/experiment.h"
#include "isoloss/train/runner.h"

namespace isoloss::verify {

/// Divides the seeds of an experiment into the parts in which `verify` trains
/// them, with a look after each part.
class SeedLooks {
 public:
  /// Plans the looks of gate.looks, or else those that the folder remembers, or
  /// else one. Adds to `experiment` the seeds that the plan needs, counted up
  /// from its largest, and to `training` their runs. Changes no file.
  /// Errors   as gate::ReadLooks; ConfigError if the folder remembers looks of
  ///          another experiment (unless `leftovers` discards it) or by another
  ///          plan, or more pairs are asked for than the plan has.
  SeedLooks(train::Experiment& experiment, campaign::TrainingPlan& training,
            const std::filesystem::path& folder, train::Leftovers leftovers);

  /// Returns the runs of each part: at least one part, and no run twice. The
  /// first part is empty if the pairs of a look exist already, with other
  /// seeds.
  const std::vector<std::vector<train::Run>>& parts() const { return parts_; }

  /// Returns whether the folder remembers looks.
  bool HasLooks() const { return !record_.looks.empty(); }

  /// Tells people which looks the plan has.
  std::string Announcement(const gate::Policy& policy) const;

  /// Returns the look at these runs.
  gate::Looks At(std::span<const compare::Run> runs,
                 const gate::Policy& policy) const;

  /// Remembers that look, once, if L5 tested anything. `judgements` has the
  /// candidates only.
  /// Errors   as gate::WriteLooks.
  void Remember(std::span<const compare::Run> runs,
                std::span<const gate::Judgement> judgements);

 private:
  std::filesystem::path file_;
  gate::LookRecord record_;
  std::vector<std::vector<train::Run>> parts_;
  std::vector<int64_t> pairs_;  ///< at the end of each part
};

/// Returns whether more seed pairs could not change the verdict: L5 has passed,
/// or some level failed.
bool IsDecided(const gate::Judgement& judgement);

/// Returns the arm with what L5 says: each check, its outcome and its interval.
std::string FinalWindowText(const gate::Judgement& judgement);

/// Reads the looks.json beside logs from anywhere, and changes no file. `logs`
/// has files, or folders of them. Without a looks.json, a verdict in the folder
/// `out` on fewer of the pairs is named as an earlier look; `out` may be empty.
/// Errors   as gate::ReadLooks.
gate::Looks LooksBeside(const std::vector<std::filesystem::path>& logs,
                        std::span<const compare::Run> runs,
                        const std::string& baseline_arm,
                        const gate::Policy& policy,
                        const std::filesystem::path& out);

}  // namespace isoloss::verify
