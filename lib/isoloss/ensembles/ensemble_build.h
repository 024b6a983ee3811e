// Makes a null ensemble: many runs that are known to be good, trained side by
// side. Each is kept when it is done.
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

namespace isoloss::ensembles {

struct EnsemblePlan {
  train::Experiment experiment;
  runlog::EnsembleKind kind = runlog::EnsembleKind::kBenign;
  std::string arm;           ///< kSeeds: the candidate
  std::string baseline_arm;  ///< kSeeds only
  size_t runs = 0;
  int64_t steps = 0;  ///< of each member, from the first one
  /// Each member has a seed. With kBenign the experiment's seeds take turns;
  /// with kSeeds all are new.
  std::vector<uint64_t> seeds;
  /// The precision probe takes these steps; kSeeds only.
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
/// Errors   ConfigError if there is no such arm; if the folder holds members of
///          another plan (another recipe of the same name, too); or if a
///          member's numbers are not finite. FormatError if a kept member is
///          damaged, before any is trained. As train::TrainRun and
///          step_checks::ProbePrecision.
/// Exact    The result depends on the plan alone. It does not depend on
///          `workers`, on where a signal ended an earlier call, or on whether
///          that call was to make fewer members.
EnsembleResult BuildEnsemble(const EnsemblePlan& plan,
                             const std::atomic<bool>& stop);

/// Lists the members with the time that each takes. Measures how fast the arms
/// train here.
campaign::RunList ListMembers(const EnsemblePlan& plan);

/// Computes the chosen members that `plan.folder` does not hold yet, and joins
/// none. Returns whether all are there, which is false if `stop` became true.
/// Errors   as BuildEnsemble; ConfigError if there is no such member.
bool MakeMembers(const EnsemblePlan& plan, const campaign::RunChoice& only,
                 const std::atomic<bool>& stop);

/// Removes the files of members, once they are joined. Members of a sweep stay,
/// since the sweep knows by them what is finished.
void RemoveMembers(const EnsemblePlan& plan);

}  // namespace isoloss::ensembles
