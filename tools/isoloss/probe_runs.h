// Probes of the arms that a command has trained.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "isoloss/compare/pair.h"
#include "isoloss/gate/policy.h"
#include "isoloss/oracle/probe.h"
#include "isoloss/train/experiment.h"

namespace isoloss::cli {

struct ProbedRuns {
  std::vector<std::filesystem::path> files;
  bool interrupted = false;
};

/// For each arm how many steps of case plain its comparison with the approved
/// run of its seed needs (gate::PlainStepsDue).
using PlainSteps = std::map<std::string, int64_t>;
PlainSteps PlainStepsDue(const std::vector<compare::Run>& runs,
                         const std::vector<compare::Run>& approved,
                         const gate::Policy& policy);

struct ProbeSettings {
  PlainSteps plain_steps = {};
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
