// Probes of the arms that a command has trained.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "isoloss/compare/pair.h"
#include "isoloss/oracle/probe.h"
#include "isoloss/train/experiment.h"

namespace isoloss::cli {

struct ProbedRuns {
  std::vector<std::filesystem::path> files;
  bool interrupted = false;
};

/// For each arm the latest step at which a run of it first differs from the
/// approved run of its seed; 0: none does.
using PartingSteps = std::map<std::string, int64_t>;
PartingSteps FindPartingSteps(const std::vector<compare::Run>& runs,
                              const std::vector<compare::Run>& approved);

struct ProbeSettings {
  /// Case plain goes on to the step at which the runs part: what is wrong, if
  /// anything is, need not show before.
  PartingSteps plain_steps = {};
  /// Arms but this one are compared with it too (level L3); "": none.
  std::string reference = {};
  /// Of each probed run; may be empty.
  decltype(oracle::ProbeOptions::make_hooks) hooks = {};
};

/// Has the oracle check the first seed of each of `arms`, and writes
/// <arm>-seed<N>.probe.h5 to `folder`.
/// Errors   as oracle::ProbeArm.
ProbedRuns ProbeArms(const train::Experiment& experiment,
                     const std::vector<std::string>& arms,
                     const std::filesystem::path& folder,
                     const ProbeSettings& settings = {});

}  // namespace isoloss::cli
