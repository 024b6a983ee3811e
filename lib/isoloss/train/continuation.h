// Finds the files that an earlier execution left of a run, and the step at
// which a new one goes on.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/checkpoint/checkpoint.h"
#include "isoloss/runlog/recorder.h"
#include "isoloss/runlog/run_log.h"
#include "isoloss/train/trainer.h"

namespace isoloss::train {

/// Kind of ResumeEvent.
inline constexpr const char* kResumeEvent = "resume";
/// Kind of the event that names what a run perturbs (RunHooks).
inline constexpr const char* kPerturbationEvent = "mutant";

/// Has a run begun in these files, but not ended?
bool IsUnfinished(const runlog::RunPaths& paths);

struct Continuation {
  /// The log of a run that has ended: nothing is left to do.
  std::optional<runlog::RunLog> whole = std::nullopt;
  /// Every step that the journal has.
  std::optional<runlog::RunLog> recorded = std::nullopt;
  /// Where to go on; none: at the first step.
  std::optional<checkpoint::Checkpoint> checkpoint = std::nullopt;
  /// One sentence for each thing that was found damaged or missing.
  std::vector<std::string> notes = {};

  int64_t step() const { return checkpoint ? checkpoint->step() : 0; }
};

/// Looks for the log of an ended run, then for the journal and for the newest
/// whole checkpoint of the run whose steps the journal has. Errors ConfigError
/// with RunDifference if they are not of the run that
///          `now` describes; as runlog::ReadJournal and runlog::ReadRunLog.
Continuation FindContinuation(const runlog::RunPaths& paths,
                              const runlog::Provenance& now);

/// What a checkpoint says of its run, to people, other programs and
/// FindContinuation.
std::map<std::string, std::string> CheckpointFacts(
    const runlog::Provenance& provenance);

/// The log of a run that has ended, to be kept.
/// Errors   ConfigError with FinishedDifference, or with what was perturbed, if
///          it is not that of the run that `now` describes (DescribePlannedRun)
///          with `perturbation` (RunHooks); as runlog::ReadRunLog.
runlog::RunLog ReadFinished(const runlog::RunPaths& paths,
                            const runlog::Provenance& now,
                            const std::string& perturbation = {});

/// Whether the run ended by a loss, gradient or weight that is not finite.
bool WasAborted(const runlog::RunLog& log);

/// Says that a run goes on after `step`, when its files held `on_disk` steps.
runlog::Event ResumeEvent(int64_t step, int64_t on_disk);
/// Returns the steps after which the run went on, one for each ResumeEvent; -1
/// if the event names none.
std::vector<int64_t> ResumedSteps(const runlog::RunLog& log);

/// Returns the perturbation that the log declares (RunHooks); "" if there is
/// none.
std::string PerturbationOf(const runlog::RunLog& log);

/// Throws what FindContinuation would for a run that `planned` describes
/// (DescribePlannedRun), as far as that is known before its first step. Returns
/// how many steps are on disk.
int64_t CheckContinuation(const runlog::RunPaths& paths,
                          const runlog::Provenance& planned);

/// The newest checkpoint that a repetition may begin with.
/// Errors   ConfigError with RunDifference if `now` is another run.
Continuation FindOrigin(const RunOrigin& origin, const runlog::Provenance& now);

}  // namespace isoloss::train
