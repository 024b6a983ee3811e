// Finds the files that an earlier execution left of a run, and the step at
// which a new execution goes on.
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

/// An event of this kind is a ResumeEvent.
inline constexpr const char* kResumeEvent = "resume";
/// An event of this kind names what a run perturbs (RunHooks).
inline constexpr const char* kPerturbationEvent = "mutant";

/// Returns whether a run has begun in these files, but has not ended.
bool IsUnfinished(const runlog::RunPaths& paths);

struct Continuation {
  /// The log of a run that has ended leaves nothing to do.
  std::optional<runlog::RunLog> whole = std::nullopt;
  /// Holds every step that the journal has.
  std::optional<runlog::RunLog> recorded = std::nullopt;
  /// The run goes on after this checkpoint; none: at the first step.
  std::optional<checkpoint::Checkpoint> checkpoint = std::nullopt;
  /// There is one sentence for each damaged or missing thing.
  std::vector<std::string> notes = {};

  int64_t step() const { return checkpoint ? checkpoint->step() : 0; }
};

/// Looks for the log of an ended run, then for the journal and for the newest
/// whole checkpoint of the run whose steps the journal has.
/// Errors   ConfigError with RunDifference if they are not of the run that
///          `now` describes; as runlog::ReadJournal and runlog::ReadRunLog.
Continuation FindContinuation(const runlog::RunPaths& paths,
                              const runlog::Provenance& now);

/// Returns what a checkpoint says of its run, to people, programs and
/// FindContinuation.
std::map<std::string, std::string> CheckpointFacts(
    const runlog::Provenance& provenance);

/// Reads the log of a run that has ended and is kept.
/// Errors   ConfigError with FinishedDifference, or with what was perturbed, if
///          the log is not of the run that `now` describes (DescribePlannedRun)
///          with `perturbation` (RunHooks); as runlog::ReadRunLog.
runlog::RunLog ReadFinished(const runlog::RunPaths& paths,
                            const runlog::Provenance& now,
                            const std::string& perturbation = {});

/// Returns whether a loss, gradient or weight that is not finite ended the run.
bool WasAborted(const runlog::RunLog& log);

/// Says that a run goes on after `step`, when its files held `on_disk` steps.
runlog::Event ResumeEvent(int64_t step, int64_t on_disk);
/// Returns the steps after which the run went on, one for each ResumeEvent; -1
/// if the event names none.
std::vector<int64_t> ResumedSteps(const runlog::RunLog& log);

/// Returns the perturbation that the log declares (RunHooks); "" if there is
/// none.
std::string PerturbationOf(const runlog::RunLog& log);

/// Throws what FindContinuation would throw for a run that `planned` describes
/// (DescribePlannedRun), as far as that is known before its first step. Returns
/// the number of steps on disk.
int64_t CheckContinuation(const runlog::RunPaths& paths,
                          const runlog::Provenance& planned);

/// Finds the newest checkpoint with which a repetition may begin.
/// Errors   ConfigError with RunDifference if `now` is another run.
Continuation FindOrigin(const RunOrigin& origin, const runlog::Provenance& now);

}  // namespace isoloss::train
