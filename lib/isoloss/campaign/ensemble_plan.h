// From what an ensemble shall be to the members that make it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/campaign/ensemble_build.h"
#include "isoloss/campaign/experiment_source.h"

namespace isoloss::campaign {

struct EnsembleRequest {
  ExperimentSource source = {};
  runlog::EnsembleKind kind = runlog::EnsembleKind::kBenign;
  std::string arm = {};  ///< "": the only one besides the baseline
  size_t runs = 0;
  /// Empty: the window that level L4 looks at, or all if there are fewer.
  std::optional<int64_t> steps = std::nullopt;
  /// Of new seeds. Far from those that people choose, so that none is judged by
  /// itself.
  uint64_t first_seed = 1'000'001;
  std::vector<int64_t> probe_steps = {};  ///< kSeeds only
  std::filesystem::path out = {};         ///< of the ensemble, a file
  int workers = 0;
};

/// Errors   ConfigError if a new seed is one of the experiment's, it is of
///          seeds and of the baseline, or has more steps than the experiment;
///          as ExperimentSource::Load.
EnsemblePlan PlanEnsemble(const EnsembleRequest& request);

/// Before hours of training: what is there may be replaced only by its like.
/// Errors   ConfigError if `out` is a folder, or a file that is no ensemble.
void CheckEnsembleOutput(const std::filesystem::path& out);

}  // namespace isoloss::campaign
