// A folder of goldens: an experiment, the logs that its runs must give, a text
// twin of each, and the history of why they are what they are.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "evidence_files.h"
#include "golden_history.h"
#include "isoloss/compare/pair.h"
#include "isoloss/mutants/mutant.h"
#include "isoloss/train/experiment.h"
#include "probe_runs.h"

namespace isoloss::cli {

inline constexpr const char* kGoldenExperiment = "experiment.toml";
inline constexpr const char* kGoldenHistory = "history.toml";

struct GoldenFolder {
  std::filesystem::path path;
  train::Experiment experiment;
  History history;
  std::vector<compare::Run> goldens;  ///< in the order of train::PlanRuns
};

/// Its experiment. Errors   as ExperimentSource::Load.
train::Experiment LoadGoldenExperiment(const std::filesystem::path& folder);

/// Reads a folder and all that ties its files together: each golden's content
/// is the one that its history names, its twin is its text, the run is whole,
/// and no golden is missing or left over.
/// Errors   ConfigError, FormatError or IoError for the first file that is not
///          what `golden update` wrote.
GoldenFolder OpenGoldenFolder(const std::filesystem::path& folder);

/// That each golden is of the run which its folder's experiment asks for.
/// Errors   ConfigError that lists what differs.
void CheckConfiguration(const GoldenFolder& folder);

/// "mxfp8-seed1" of "…/mxfp8-seed1.h5".
std::string GoldenName(const compare::Run& golden);

/// A new folder of the system's for temporary files that is removed again.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// Runs that were made again, or why not.
struct Rerun {
  std::vector<compare::Run> runs;  ///< in the order of train::PlanRuns
  bool interrupted = false;
};

/// Trains every arm and seed of `experiment` into `out`, and reads the logs.
/// `planted`, if not null, is at work in all arms but the baseline.
Rerun RunAll(const train::Experiment& experiment,
             const std::filesystem::path& out,
             const mutants::Mutant* planted = nullptr);

/// What the statistical lane rests on besides the runs: the oracle's probe of
/// each arm, made anew in `out`, and for each arm the null ensemble
/// golden/ensembles/NAME-ARM.h5 of goldens in golden/curves/NAME, if it is
/// there. `parting`: where new runs part from the goldens. Empty if it was
/// interrupted.
std::optional<EvidenceFiles> GatherEvidence(
    const train::Experiment& experiment, const std::filesystem::path& golden,
    const std::filesystem::path& out, const PlainSteps& plain_steps,
    const mutants::Mutant* planted = nullptr);

}  // namespace isoloss::cli
