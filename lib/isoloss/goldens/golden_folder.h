// Reads a folder of goldens. It holds an experiment, the logs that its runs
// must give, a text twin of each, and the history of the reasons for them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/compare/pair.h"
#include "isoloss/goldens/golden_history.h"
#include "isoloss/logs/evidence_files.h"
#include "isoloss/train/experiment.h"
#include "isoloss/verify/probe_runs.h"

namespace isoloss::goldens {

inline constexpr const char* kGoldenExperiment = "experiment.toml";
inline constexpr const char* kGoldenHistory = "history.toml";
inline constexpr const char* kGoldenSuite = "suite.toml";

/// A stop in a lane can lose one of these, as a killed process or a bad disk
/// may. Lost steps are computed and recorded again.
inline constexpr const char* kCheckpointLoss = "checkpoint";  ///< the newest
inline constexpr const char* kRecordLoss = "record";  ///< half of the last
inline constexpr const char* kRowLoss = "row";  ///< half of the last step's
inline constexpr const char* kJournalLoss = "journal";  ///< its first byte
inline constexpr const char* kPartialLoss = "partial";  ///< the partial log

/// A lane is one way to execute the experiment.
struct Lane {
  std::string name;
  /// Each is "section.key=value", as `--set` takes it.
  std::vector<std::string> overrides = {};
  std::string kernel = {};  ///< kernel target; "": the processor's best
  int processes = 1;        ///< under an MPI launcher, if more
  /// Each run is stopped after these steps, and resumed after each stop.
  std::vector<uint64_t> stops = {};
  /// Each stop loses these parts of the run's files: kCheckpointLoss, ....
  std::vector<std::string> losses = {};
  /// The runs go on after these steps. They are those of `stops`, unless
  /// checkpoints are lost.
  std::vector<uint64_t> resumes = {};
  /// From the first stop on, these overrides change the nodes of the mesh. The
  /// log keeps /exchange only up to there.
  std::vector<std::string> mesh_after_stop = {};
  /// Says why this machine can't run the lane; "" if it can.
  std::string impossible = {};
};

/// The suite asks for these besides one run of each arm.
struct Suite {
  /// True if the golden runs end early by a loss or gradient that is not
  /// finite.
  bool aborts = false;
  /// If true, the oracle of `golden check` also probes arms that have their
  /// goldens' bits. `golden update` always probes.
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

/// Reads the experiment of `folder`.
/// Errors   as campaign::ExperimentSource::Load.
train::Experiment LoadGoldenExperiment(const std::filesystem::path& folder);

/// Reads `folder`/suite.toml. Without that file the suite asks for nothing. A
/// lane with `each_kernel` becomes one lane for every target of this processor
/// but the one in use.
/// Errors   ConfigError that names the line, for TOML that is malformed or a
///          key that is unknown, of another type or out of range.
Suite ReadSuite(const std::filesystem::path& folder);

/// Reads a folder and checks that its files belong together. Each golden must
/// have the content that its history names and a twin with its text. Its run
/// must be whole, and no golden may be missing or left over.
/// Errors   ConfigError, FormatError or IoError for the first file that is not
///          what `golden update` wrote.
GoldenFolder OpenGoldenFolder(const std::filesystem::path& folder);

/// Checks that each golden is of the run that its folder's experiment asks for.
/// Errors   ConfigError that lists what differs.
void CheckConfiguration(const GoldenFolder& folder);

/// Returns whether a run ended early by a loss or gradient that is not finite.
bool EndedByItsNumbers(const runlog::RunLog& log);

/// Returns "mxfp8-seed1" for "…/mxfp8-seed1.h5".
std::string GoldenName(const compare::Run& golden);

/// Holds runs that were made again, unless a signal came.
struct Rerun {
  std::vector<compare::Run> runs;  ///< in the order of train::PlanRuns
  bool interrupted = false;
};

/// Returns hooks with `plant`, which may be empty, in all arms but the
/// baseline. Keeps a reference to `experiment`.
verify::MakeHooks PlantInCandidates(const train::Experiment& experiment,
                                    const verify::MakeHooks& plant);

/// Trains every arm and seed of `experiment` into `out`, and reads the logs.
/// `hooks` may be empty. If `quiet`, there are no progress bars, as other jobs
/// run at the same time.
Rerun RunAll(const train::Experiment& experiment,
             const std::filesystem::path& out,
             const verify::MakeHooks& hooks = {}, bool quiet = false);

/// Reads evidence for the statistical lane: the oracle's probes, and the null
/// ensemble golden/ensembles/NAME-ARM.h5 of each arm in golden/curves/NAME, if
/// that file exists.
logs::EvidenceFiles ReadEvidence(
    const train::Experiment& experiment, const std::filesystem::path& golden,
    const std::vector<std::filesystem::path>& probes);

/// Probes each arm anew in `out`, and reads the evidence. Returns nothing if a
/// signal came.
std::optional<logs::EvidenceFiles> GatherEvidence(
    const train::Experiment& experiment, const gate::Policy& policy,
    const std::filesystem::path& golden, const std::filesystem::path& out,
    const verify::PlainSteps& plain_steps);

}  // namespace isoloss::goldens
