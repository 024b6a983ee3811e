// Probes of the arms that a command has trained.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "isoloss/oracle/probe.h"
#include "isoloss/train/experiment.h"

namespace isoloss::cli {

struct ProbedRuns {
  std::vector<std::filesystem::path> files;
  bool interrupted = false;
};

struct ProbeSettings {
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

/// The run logs in `path`, or that file: no probes, dumps or partial logs.
/// Errors   ConfigError if there is none.
std::vector<std::filesystem::path> RunLogsIn(const std::filesystem::path& path);

}  // namespace isoloss::cli
