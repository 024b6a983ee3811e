// Plans the members that make an ensemble.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/campaign/experiment_source.h"
#include "isoloss/ensembles/ensemble_build.h"

namespace isoloss::ensembles {

struct EnsembleRequest {
  campaign::ExperimentSource source = {};
  runlog::EnsembleKind kind = runlog::EnsembleKind::kBenign;
  std::string arm = {};  ///< "": the only one besides the baseline
  size_t runs = 0;
  /// The default is the window of level L4, or all steps if there are fewer.
  std::optional<int64_t> steps = std::nullopt;
  /// New seeds begin far from seeds that people choose, so that no run is
  /// judged by itself.
  uint64_t first_seed = 1'000'001;
  std::vector<int64_t> probe_steps = {};  ///< kSeeds only
  std::filesystem::path out = {};         ///< of the ensemble, a file
  int workers = 0;
};

/// Makes the plan.
/// Errors   ConfigError if a new seed is one of the experiment's, if an
///          ensemble of seeds is of the baseline, or if it has more steps than
///          the experiment; as campaign::ExperimentSource::Load.
EnsemblePlan PlanEnsemble(const EnsembleRequest& request);

/// Checks before hours of training that `out` is absent or an ensemble.
/// Errors   ConfigError if `out` is a folder, or a file that is no ensemble.
void CheckEnsembleOutput(const std::filesystem::path& out);

}  // namespace isoloss::ensembles
