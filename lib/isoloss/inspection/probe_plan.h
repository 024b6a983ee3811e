// Turns the request of `isoloss lab probe` into options of the oracle.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/campaign/experiment_source.h"
#include "isoloss/step_checks/probe.h"

namespace isoloss::inspection {

struct ProbeRequest {
  campaign::ExperimentSource source = {};
  std::string arm = {};        ///< "": all, as campaign::ArmsNamed
  std::string reference = {};  ///< "": none
  std::vector<int64_t> reference_steps = {};  ///< empty: the oracle's
  std::optional<uint64_t> seed = {};          ///< empty: the experiment's first
  int64_t plain_steps = 0;
  int64_t steps = 0;  ///< 0: the oracle's, or all if there are fewer
  bool full = false;  ///< no samples of large tensors
  std::vector<std::string> cases = {};  ///< empty: all
  std::filesystem::path out = {};  ///< "": probes in campaign::ResultsFolder

  std::filesystem::path Folder(const train::Experiment& experiment) const;
};

/// Refuses what no probe can do, before anything is trained.
/// Errors   ConfigError if a step is after the experiment's last one, or if
///          this process is one of several.
void CheckProbe(const ProbeRequest& request,
                const train::Experiment& experiment);

/// Returns the options for one arm. If all arms are probed, the reference alone
/// is not compared with itself. The result points into `experiment`.
/// Errors   as campaign::ArmsNamed.
step_checks::ProbeOptions ProbeOptionsOf(const ProbeRequest& request,
                                         const train::Experiment& experiment,
                                         const train::Arm& arm);

}  // namespace isoloss::inspection
