// Probes of the arms that a command has trained.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "isoloss/base/threads.h"
#include "isoloss/compare/pair.h"
#include "isoloss/corpus/corpus.h"
#include "isoloss/gate/policy.h"
#include "isoloss/oracle/probe.h"
#include "isoloss/train/experiment.h"

namespace isoloss::campaign {

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

/// Cases of the oracle that a verdict by `policy` needs: its own, and the
/// experiment as it is, which levels L2 and L3 follow to where runs part.
std::vector<std::string> ProbedCases(const gate::Policy& policy);

/// Makes what is at work in a run, anew for each run and each of its probes.
using MakeHooks = decltype(oracle::ProbeOptions::make_hooks);

struct ProbeSettings {
  PlainSteps plain_steps = {};
  /// Arms but this one are compared with it too (level L3); "": none.
  std::string reference = {};
  /// Names of oracle::ProbeCases; empty: all.
  std::vector<std::string> cases = {};
  /// Of each case; 0: the oracle's own number. 2 are the fewest that a verdict
  /// takes.
  int64_t steps = 0;
  /// Of each probed run; may be empty.
  MakeHooks hooks = {};
};

/// `folder`/ARM-seedN.probe.h5.
std::filesystem::path ProbeFile(const std::filesystem::path& folder,
                                const std::string& arm, uint64_t seed);

/// Has the oracle check the first seed of `arm`, and writes
/// <arm>-seed<N>.probe.h5 to `folder`, which is there, in place of one that is
/// there. Returns its path.
/// Errors   as oracle::ProbeArm.
std::filesystem::path ProbeOneArm(const train::Experiment& experiment,
                                  const std::string& arm,
                                  const corpus::Corpus& corpus,
                                  const std::filesystem::path& folder,
                                  const ProbeSettings& settings,
                                  ThreadTeam& team);

/// Has the oracle check the first seed of each of `arms`, and writes
/// probes/<arm>-seed<N>.probe.h5 to `folder`, in place of those that are there
/// (CheckProbeOutputs).
/// Errors   as oracle::ProbeArm.
ProbedRuns ProbeArms(const train::Experiment& experiment,
                     const corpus::Corpus& corpus,
                     const std::vector<std::string>& arms,
                     const std::filesystem::path& folder,
                     const ProbeSettings& settings = {});

/// CheckProbeOutput for each file that ProbeArms would write.
void CheckProbeOutputs(const train::Experiment& experiment,
                       const std::vector<std::string>& arms,
                       const corpus::Corpus& corpus,
                       const std::filesystem::path& folder);

/// Before a probe log is written to `file`: one of the same run is replaced,
/// whatever program made it, because it is made anew in seconds.
/// Errors   ConfigError with train::RunDifference if it is of another run, or
///          no probe log.
void CheckProbeOutput(const std::filesystem::path& file,
                      runlog::Provenance planned);

}  // namespace isoloss::campaign
