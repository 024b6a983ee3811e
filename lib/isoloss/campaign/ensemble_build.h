// Makes a null ensemble: many runs that are known to be good, side by side,
// each kept when it is done.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "isoloss/campaign/run_list.h"
#include "isoloss/runlog/ensemble.h"
#include "isoloss/train/experiment.h"

namespace isoloss::campaign {

struct EnsemblePlan {
  train::Experiment experiment;
  runlog::EnsembleKind kind = runlog::EnsembleKind::kBenign;
  std::string arm;           ///< kSeeds: the candidate
  std::string baseline_arm;  ///< kSeeds only
  size_t runs = 0;
  int64_t steps = 0;  ///< of each member, from the first one
  /// Seed of each member: kBenign, the experiment's in turn; kSeeds, new ones.
  std::vector<uint64_t> seeds;
  /// Steps of the precision probe; kSeeds only.
  std::vector<int64_t> probe_steps;
  std::filesystem::path folder;  ///< keeps finished members
  int workers = 0;               ///< 0: one per available processor
};

struct EnsembleResult {
  runlog::Ensemble ensemble;  ///< without members if it was interrupted
  size_t kept = 0;            ///< members that an earlier call had made
  bool interrupted = false;
};

/// Computes the members that `plan.folder` does not hold yet, side by side on
/// one thread each, then joins all.
/// Errors   ConfigError if there is no such arm, if the folder holds members of
///          another plan (another recipe of the same name, too), or if a
///          member's numbers are not finite; FormatError if a kept member is
///          damaged, before any is trained; as train::TrainRun and
///          oracle::ProbePrecision.
/// Exact    depends on the plan, not on `workers`, nor on where an earlier call
///          was interrupted or whether it was to make fewer.
EnsembleResult BuildEnsemble(const EnsemblePlan& plan,
                             const std::atomic<bool>& stop);

/// The members, with what each takes; measures how fast the arms train here.
RunList ListMembers(const EnsemblePlan& plan);

/// Computes those of the chosen members that `plan.folder` does not hold yet,
/// and joins none. Returns whether all are there: not if `stop` became true.
/// Errors   as BuildEnsemble; ConfigError if there is no such member.
bool MakeMembers(const EnsemblePlan& plan, const RunChoice& only,
                 const std::atomic<bool>& stop);

/// Removes what members have left, once they are joined. Those of a sweep stay,
/// by which it knows what is finished.
void RemoveMembers(const EnsemblePlan& plan);

}  // namespace isoloss::campaign
