// After how many seed pairs `verify` tests, and what a results folder remembers
// of it (looks.json).
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

namespace isoloss::campaign {

/// The seeds of an experiment in the parts in which `verify` trains them, with
/// a look behind each.
class SeedLooks {
 public:
  /// Plans the looks of gate.looks, or else those that the folder remembers, or
  /// else one. Gives `experiment` the seeds that the plan needs beyond its own,
  /// numbered from behind the largest, and `training` their runs. Changes no
  /// file.
  /// Errors   as gate::ReadLooks; ConfigError if the folder remembers looks of
  ///          another experiment (unless `leftovers` discards it) or by another
  ///          plan, or more pairs are asked for than the plan has.
  SeedLooks(train::Experiment& experiment, TrainingPlan& training,
            const std::filesystem::path& folder, train::Leftovers leftovers);

  /// The runs of each part, none twice; one part at least. The first one is
  /// empty if its pairs are there, with other seeds.
  const std::vector<std::vector<train::Run>>& parts() const { return parts_; }

  /// The folder remembers some.
  bool HasLooks() const { return !record_.looks.empty(); }

  /// What is ahead, for people: "looks at 4, 8, 12 pairs ...".
  std::string Announcement(const gate::Policy& policy) const;

  /// The look at these runs.
  gate::Looks At(std::span<const compare::Run> runs,
                 const gate::Policy& policy) const;

  /// Remembers that look, once, if L5 tested anything. `judgements`: of
  /// candidates.
  /// Errors   as gate::WriteLooks.
  void Remember(std::span<const compare::Run> runs,
                std::span<const gate::Judgement> judgements);

 private:
  std::filesystem::path file_;
  gate::LookRecord record_;
  std::vector<std::vector<train::Run>> parts_;
  std::vector<int64_t> pairs_;  ///< at the end of each part
};

/// Whether more seed pairs could change nothing of it: L5 has passed, or some
/// level failed.
bool IsDecided(const gate::Judgement& judgement);

/// "floor INCONCLUSIVE, 99.86 % interval [-0.5 %, +0.7 %]": what L5 says.
std::string FinalWindowText(const gate::Judgement& judgement);

/// For logs from anywhere: by the looks.json beside them, which stays as it is.
/// `logs`: files, or folders of them.
/// Errors   as gate::ReadLooks.
gate::Looks LooksBeside(const std::vector<std::filesystem::path>& logs,
                        std::span<const compare::Run> runs,
                        const std::string& baseline_arm,
                        const gate::Policy& policy);

}  // namespace isoloss::campaign
