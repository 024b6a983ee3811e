#include "isoloss/train/continuation.h"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <string>
#include <string_view>
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

constexpr std::string_view kResumedFrom = "from step ";

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
             "one. Give the experiment, corpus and program that it was begun "
             "with, or start it anew with --restart. What differs:\n{}",
             file.string(), difference);
}

void RequireSameLog(const std::filesystem::path& file,
                    const runlog::Provenance& before,
                    const runlog::Provenance& now) {
  const std::string difference = LogDifference(before, now);
  if (difference.empty()) return;
  ThrowError(
      ErrorKind::kConfig,
      "{}: what is logged was chosen otherwise when it was begun, but "
      "all rows of a log have the same columns. Resume it as it was begun, "
      "or start it anew with --restart. What differs:\n{}",
      file.string(), difference);
}

/// Says why a checkpoint can't be of the run that `now` describes, or can't be
/// used up to step `last`.
checkpoint::Misfit MisfitOf(const runlog::Provenance& now, int64_t last) {
  return [facts = CheckpointFacts(now),
          last](const checkpoint::Checkpoint& checkpoint) -> std::string {
    for (const auto& [name, value] : facts) {
      if (name == "experiment" || name == "tool") continue;
      const auto found = checkpoint.facts().find(name);
      const std::string other =
          found == checkpoint.facts().end() ? "not given" : found->second;
      if (other != value) {
        return fmt::format("it is of another run: {} is {}, here {}", name,
                           other, value);
      }
    }
    if (checkpoint.step() <= last) return "";
    return fmt::format("it is of step {}, but what is on disk ends at step {}",
                       checkpoint.step(), last);
  };
}

/// Holds the content of a run's files; the log of an ended run comes first.
struct OnDisk {
  std::optional<runlog::RunLog> whole = std::nullopt;
  std::optional<runlog::JournalContent> journal = std::nullopt;
};

OnDisk ReadFiles(const runlog::RunPaths& paths) {
  OnDisk found;
  if (std::filesystem::exists(paths.Log())) {
    found.whole = runlog::ReadRunLog(paths.Log());
  }
  if (!IsUnfinished(paths)) return found;
  try {
    found.journal = runlog::ReadJournalOrPartial(paths);
  } catch (const Error&) {
    if (!found.whole) throw;
    return found;
  }
  // A kill may leave a journal beside the log that was built from it.
  const runlog::RunLog& recorded = found.journal->log;
  if (found.whole && (recorded.provenance.arm.empty() ||
                      LastStep(recorded) == LastStep(*found.whole))) {
    found.journal.reset();
  } else {
    found.whole.reset();
  }
  return found;
}

void RequireSame(const runlog::RunPaths& paths, const OnDisk& found,
                 const runlog::Provenance& now) {
  if (found.whole) {
    RequireSameRun(paths.Log(), found.whole->provenance, now);
  } else if (found.journal && !found.journal->log.provenance.arm.empty()) {
    const runlog::Provenance& before = found.journal->log.provenance;
    RequireSameRun(paths.Journal(), before, now);
    RequireSameLog(paths.Journal(), before, now);
  }
}

}  // namespace

bool WasAborted(const runlog::RunLog& log) {
  return !log.events.empty() && log.events.back().kind == "abort";
}

runlog::Event ResumeEvent(int64_t step, int64_t on_disk) {
  return {.kind = kResumeEvent,
          .text = fmt::format("{}{}; {} steps were on disk", kResumedFrom, step,
                              on_disk)};
}

std::vector<int64_t> ResumedSteps(const runlog::RunLog& log) {
  std::vector<int64_t> steps;
  for (const runlog::Event& event : log.events) {
    if (event.kind != kResumeEvent) continue;
    const std::string_view text = event.text;
    int64_t step = -1;  // what no event of ours names
    if (text.starts_with(kResumedFrom)) {
      std::from_chars(text.data() + kResumedFrom.size(),
                      text.data() + text.size(), step);
    }
    steps.push_back(step);
  }
  return steps;
}

std::string PerturbationOf(const runlog::RunLog& log) {
  std::string perturbation;
  for (const runlog::Event& event : log.events) {
    if (event.kind == kPerturbationEvent) perturbation = event.text;
  }
  return perturbation;
}

runlog::RunLog ReadFinished(const runlog::RunPaths& paths,
                            const runlog::Provenance& now,
                            const std::string& perturbation) {
  runlog::RunLog log = runlog::ReadRunLog(paths.Log());
  std::string difference = FinishedDifference(log.provenance, now);
  if (const std::string was = PerturbationOf(log); was != perturbation) {
    difference += fmt::format("  perturbed: {} before, {} now\n",
                              was.empty() ? "nothing" : was,
                              perturbation.empty() ? "nothing" : perturbation);
  }
  if (difference.empty()) return log;
  ThrowError(ErrorKind::kConfig,
             "{}: it is the finished log of another run, which this one would "
             "overwrite. Choose another folder with --out, or discard it with "
             "--restart. What differs:\n{}",
             paths.Log().string(), difference);
}

std::map<std::string, std::string> CheckpointFacts(
    const runlog::Provenance& provenance) {
  const runlog::Provenance& p = provenance;
  return {{"experiment", p.experiment_text},
          {"tool", p.tool_version + ", commit " + p.commit},
          {"arm", p.arm},
          {"seed", fmt::to_string(p.seed)},
          {"recipe", p.recipe},
          {"exchange", p.exchange},
          {"config_digest", p.config_digest},
          {"corpus_digest", p.corpus_digest},
          {"initial_weights_digest", p.initial_weights_digest},
          {"numerics_digest", p.numerics_digest}};
}

int64_t CheckContinuation(const runlog::RunPaths& paths,
                          const runlog::Provenance& planned) {
  const OnDisk found = ReadFiles(paths);
  RequireSame(paths, found, planned);
  if (found.whole) return LastStep(*found.whole);
  return found.journal ? LastStep(found.journal->log) : 0;
}

Continuation FindContinuation(const runlog::RunPaths& paths,
                              const runlog::Provenance& now) {
  OnDisk found = ReadFiles(paths);
  RequireSame(paths, found, now);
  Continuation result;
  if (found.whole) {
    result.whole = std::move(found.whole);
    return result;
  }
  if (!found.journal) return result;
  runlog::JournalContent& journal = *found.journal;
  if (!journal.note.empty()) result.notes.push_back(journal.note);
  if (journal.log.provenance.arm.empty()) {
    result.notes.push_back(paths.Journal().string() +
                           ": holds nothing yet, so the run starts at its "
                           "first step.");
    return result;
  }
  checkpoint::Found newest = checkpoint::FindNewest(
      paths.Checkpoints(), MisfitOf(now, LastStep(journal.log)));
  result.notes.insert(result.notes.end(), newest.notes.begin(),
                      newest.notes.end());
  result.checkpoint = std::move(newest.checkpoint);
  result.recorded = std::move(journal.log);
  return result;
}

Continuation FindOrigin(const RunOrigin& origin,
                        const runlog::Provenance& now) {
  RequireSameRun(origin.log, origin.recorded, now);
  checkpoint::Found found = checkpoint::FindNewestUpTo(
      origin.checkpoints, origin.last_step, MisfitOf(now, origin.last_step));
  Continuation result;
  result.checkpoint = std::move(found.checkpoint);
  result.notes = std::move(found.notes);
  return result;
}

}  // namespace isoloss::train
