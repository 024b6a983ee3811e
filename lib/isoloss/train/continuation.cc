#include "isoloss/train/continuation.h"

#include <filesystem>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/runlog/journal.h"
#include "isoloss/runlog/reader.h"
#include "isoloss/train/run_description.h"

namespace isoloss::train {

bool IsUnfinished(const runlog::RunPaths& paths) {
  return std::filesystem::exists(paths.Journal());
}

namespace {

int64_t LastStep(const runlog::RunLog& log) {
  return log.steps.step.empty() ? 0 : log.steps.step.back();
}

void RequireSameRun(const std::filesystem::path& file,
                    const runlog::Provenance& before,
                    const runlog::Provenance& now) {
  const std::string difference = RunDifference(before, now);
  if (difference.empty()) return;
  ThrowError(ErrorKind::kConfig,
             "{}: it was begun as another run, so it can't go on as this "
             "one:\n{}Give the experiment, corpus and program that it was "
             "begun with, or start it anew with --restart.",
             file.string(), difference);
}

}  // namespace

Continuation FindContinuation(const runlog::RunPaths& paths,
                              const runlog::Provenance& now) {
  Continuation result;
  runlog::JournalContent journal;
  if (IsUnfinished(paths)) journal = runlog::ReadJournal(paths.Journal());
  const runlog::RunLog& recorded = journal.log;
  if (std::filesystem::exists(paths.Log())) {
    runlog::RunLog log = runlog::ReadRunLog(paths.Log());
    // A kill may leave a journal beside the log that was built from it.
    if (recorded.provenance.arm.empty() ||
        LastStep(recorded) == LastStep(log)) {
      RequireSameRun(paths.Log(), log.provenance, now);
      result.whole = std::move(log);
      return result;
    }
  }
  if (!IsUnfinished(paths)) return result;
  if (!journal.note.empty()) result.notes.push_back(journal.note);
  if (recorded.provenance.arm.empty()) {
    result.notes.push_back(paths.Journal().string() +
                           ": holds nothing yet, so the run starts at its "
                           "first step.");
    return result;
  }
  RequireSameRun(paths.Journal(), recorded.provenance, now);
  checkpoint::Found found =
      checkpoint::FindNewestUpTo(paths.Checkpoints(), LastStep(recorded));
  result.notes.insert(result.notes.end(), found.notes.begin(),
                      found.notes.end());
  result.checkpoint = std::move(found.checkpoint);
  result.recorded = std::move(journal.log);
  return result;
}

Continuation FindOrigin(const RunOrigin& origin,
                        const runlog::Provenance& now) {
  RequireSameRun(origin.log, origin.recorded, now);
  checkpoint::Found found =
      checkpoint::FindNewestUpTo(origin.checkpoints, origin.last_step);
  Continuation result;
  result.checkpoint = std::move(found.checkpoint);
  result.notes = std::move(found.notes);
  return result;
}

}  // namespace isoloss::train
