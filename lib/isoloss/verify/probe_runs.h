// Has the oracle probe the arms that a command has trained.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "isoloss/base/executor.h"
#include "isoloss/compare/pair.h"
#include "isoloss/corpus/corpus.h"
#include "isoloss/gate/policy.h"
#include "isoloss/step_checks/probe.h"
#include "isoloss/train/experiment.h"

namespace isoloss::verify {

struct ProbedRuns {
  std::vector<std::filesystem::path> files;
  bool interrupted = false;
};

/// The comparison of an arm with the approved run of its seed needs this many
/// steps of case plain (gate::PlainStepsDue).
using PlainSteps = std::map<std::string, int64_t>;
PlainSteps PlainStepsDue(const std::vector<compare::Run>& runs,
                         const std::vector<compare::Run>& approved,
                         const gate::Policy& policy);

/// Returns the cases of the oracle that a verdict by `policy` needs: those of
/// the policy, and the experiment as it is. Levels L2 and L3 follow the latter
/// to where runs part.
std::vector<std::string> ProbedCases(const gate::Policy& policy);

/// Makes the hooks of a run, anew for each run and each of its probes.
using MakeHooks = decltype(step_checks::ProbeOptions::make_hooks);

struct ProbeSettings {
  PlainSteps plain_steps = {};
  /// All arms but this one are compared with it, too (level L3). With "" none
  /// is.
  std::string reference = {};
  /// Has names of step_checks::ProbeCases; if it is empty, all are taken.
  std::vector<std::string> cases = {};
  /// Each case has this many steps; 0 stands for the oracle's own number. A
  /// verdict takes at least 2.
  int64_t steps = 0;
  /// Each probed run gets these hooks; may be empty.
  MakeHooks hooks = {};
};

/// Returns `folder`/ARM-seedN.probe.h5.
std::filesystem::path ProbeFile(const std::filesystem::path& folder,
                                const std::string& arm, uint64_t seed);

/// Has the oracle check the first seed of `arm`, and writes
/// <arm>-seed<N>.probe.h5 to `folder`, which must exist. Replaces an earlier
/// file. Returns the path of the file.
/// Errors   as step_checks::ProbeArm.
std::filesystem::path ProbeOneArm(const train::Experiment& experiment,
                                  const std::string& arm,
                                  const corpus::Corpus& corpus,
                                  const std::filesystem::path& folder,
                                  const ProbeSettings& settings,
                                  Executor& executor);

/// Has the oracle check the first seed of each of `arms`, and writes
/// probes/<arm>-seed<N>.probe.h5 to `folder`. Replaces earlier files
/// (CheckProbeOutputs).
/// Errors   as step_checks::ProbeArm.
ProbedRuns ProbeArms(const train::Experiment& experiment,
                     const corpus::Corpus& corpus,
                     const std::vector<std::string>& arms,
                     const std::filesystem::path& folder,
                     const ProbeSettings& settings = {});

/// Calls CheckProbeOutput for each file that ProbeArms would write.
void CheckProbeOutputs(const train::Experiment& experiment,
                       const std::vector<std::string>& arms,
                       const corpus::Corpus& corpus,
                       const std::filesystem::path& folder);

/// Checks that a probe log may be written to `file`. A probe log of the same
/// run, by any program, may be replaced, since it is made anew in seconds.
/// Errors   ConfigError with train::RunDifference if it is of another run, or
///          no probe log.
void CheckProbeOutput(const std::filesystem::path& file,
                      runlog::Provenance planned);

}  // namespace isoloss::verify
