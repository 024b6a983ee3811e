// A folder of goldens: an experiment, the logs that its runs must give, a text
// twin of each, and the history of why they are what they are.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/campaign/evidence_files.h"
#include "isoloss/campaign/golden_history.h"
#include "isoloss/campaign/probe_runs.h"
#include "isoloss/compare/pair.h"
#include "isoloss/train/experiment.h"

namespace isoloss::campaign {

inline constexpr const char* kGoldenExperiment = "experiment.toml";
inline constexpr const char* kGoldenHistory = "history.toml";
inline constexpr const char* kGoldenSuite = "suite.toml";

/// What a killed process, or a disk, may leave less of. Steps are computed and
/// recorded again.
inline constexpr const char* kCheckpointLoss = "checkpoint";  ///< the newest
inline constexpr const char* kRecordLoss = "record";  ///< half of the last
inline constexpr const char* kRowLoss = "row";  ///< half of the last step's
inline constexpr const char* kJournalLoss = "journal";  ///< its first byte
inline constexpr const char* kPartialLoss = "partial";  ///< the partial log

/// One way to execute the experiment.
struct Lane {
  std::string name;
  /// "section.key=value", as `--set` takes them.
  std::vector<std::string> overrides = {};
  std::string kernel = {};  ///< kernel target; "": the processor's best
  int processes = 1;        ///< under an MPI launcher, if more
  /// Each run is stopped after these steps, and resumed after each stop.
  std::vector<uint64_t> stops = {};
  /// What each stop loses of the run's files: kCheckpointLoss, ....
  std::vector<std::string> losses = {};
  /// The steps behind which the runs go on; those of `stops`, unless
  /// checkpoints are lost.
  std::vector<uint64_t> resumes = {};
  /// Overrides from the first stop on that change the nodes of the mesh: the
  /// log keeps the /exchange of the first one only.
  std::vector<std::string> mesh_after_stop = {};
  /// Why this machine can't run it; "" if it can.
  std::string impossible = {};
};

/// What a folder asks for besides one run of each arm.
struct Suite {
  /// The runs end by a loss or gradient that is not finite, before their last
  /// step; that is their golden.
  bool aborts = false;
  /// `golden check` has the oracle look at arms that have their goldens' bits,
  /// too. `golden update` always asks it.
  bool probe_equal_bits = true;
  /// Further executions, all of which must leave the same content.
  std::vector<Lane> lanes;
};

struct GoldenFolder {
  std::filesystem::path path;
  train::Experiment experiment;
  History history;
  Suite suite;
  std::vector<compare::Run> goldens;  ///< in the order of train::PlanRuns
};

/// Its experiment. Errors   as ExperimentSource::Load.
train::Experiment LoadGoldenExperiment(const std::filesystem::path& folder);

/// Reads `folder`/suite.toml; nothing besides if there is none. A lane with
/// `each_kernel` becomes one for every target of this processor but the one in
/// use.
/// Errors   ConfigError that names the line, for TOML that is malformed or a
///          key that is unknown, of another type or out of range.
Suite ReadSuite(const std::filesystem::path& folder);

/// Reads a folder and all that ties its files together: each golden's content
/// is the one that its history names, its twin is its text, the run is whole,
/// and no golden is missing or left over.
/// Errors   ConfigError, FormatError or IoError for the first file that is not
///          what `golden update` wrote.
GoldenFolder OpenGoldenFolder(const std::filesystem::path& folder);

/// That each golden is of the run which its folder's experiment asks for.
/// Errors   ConfigError that lists what differs.
void CheckConfiguration(const GoldenFolder& folder);

/// Whether a run ended early by a loss or gradient that is not finite.
bool EndedByItsNumbers(const runlog::RunLog& log);

/// "mxfp8-seed1" of "…/mxfp8-seed1.h5".
std::string GoldenName(const compare::Run& golden);

/// Runs that were made again, or why not.
struct Rerun {
  std::vector<compare::Run> runs;  ///< in the order of train::PlanRuns
  bool interrupted = false;
};

/// `plant`, which may be empty, in all arms but the baseline. Keeps a reference
/// to `experiment`.
MakeHooks PlantInCandidates(const train::Experiment& experiment,
                            const MakeHooks& plant);

/// Trains every arm and seed of `experiment` into `out`, and reads the logs.
/// `hooks` may be empty. `quiet`: without progress bars, as other jobs run
/// beside it.
Rerun RunAll(const train::Experiment& experiment,
             const std::filesystem::path& out, const MakeHooks& hooks = {},
             bool quiet = false);

/// What the statistical lane rests on besides the runs: the oracle's probes,
/// and for each arm the null ensemble golden/ensembles/NAME-ARM.h5 of goldens
/// in golden/curves/NAME, if it is there.
EvidenceFiles ReadEvidence(const train::Experiment& experiment,
                           const std::filesystem::path& golden,
                           const std::vector<std::filesystem::path>& probes);

/// Probes each arm, anew in `out`, and reads the evidence. Empty if it was
/// interrupted.
std::optional<EvidenceFiles> GatherEvidence(const train::Experiment& experiment,
                                            const gate::Policy& policy,
                                            const std::filesystem::path& golden,
                                            const std::filesystem::path& out,
                                            const PlainSteps& plain_steps);

}  // namespace isoloss::campaign
