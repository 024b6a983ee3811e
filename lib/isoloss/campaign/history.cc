#include "isoloss/campaign/history.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/base/nearest_name.h"
#include "isoloss/base/printable.h"
#include "isoloss/campaign/git.h"
#include "isoloss/campaign/judge_arms.h"
#include "isoloss/campaign/log_files.h"
#include "isoloss/campaign/verdict_file.h"
#include "isoloss/gate/policy.h"
#include "isoloss/train/continuation.h"

namespace isoloss::campaign {
namespace {

namespace fs = std::filesystem;
using compare::FigureRecord;

/// The one commit that all logs name.
std::string CommitOf(const std::vector<compare::Run>& runs) {
  const std::string& commit = runs.front().log.provenance.commit;
  for (const compare::Run& run : runs) {
    const std::string& other = run.log.provenance.commit;
    if (other == commit) continue;
    ThrowError(ErrorKind::kConfig,
               "history record: {} was made by commit {}, {} by {}, but one "
               "call records one commit. Give the logs of each by itself.",
               runs.front().file, Printable(commit), run.file,
               Printable(other));
  }
  if (commit == "unknown" || commit.empty() || commit.ends_with("-dirty")) {
    ThrowError(ErrorKind::kConfig,
               "history record: the logs were made by commit `{}`, but figures "
               "are kept of a source that others have. Commit it, build and "
               "run again, or say with --commit whose figures they are.",
               Printable(commit));
  }
  return commit;
}

/// "v0.1.0-5-gbc22e85fa012" of git describe: the digits behind the g. The
/// repository that is asked for them may have another v0.1.0.
std::string HashOf(const std::string& described) {
  const size_t mark = described.rfind("-g");
  return mark == described.npos ? described : described.substr(mark + 2);
}

void SetCommit(const HistoryRecording& recording,
               const std::vector<compare::Run>& runs,
               std::vector<FigureRecord>& records) {
  const Git git(".");
  std::optional<Commit> commit;
  if (!recording.commit.empty()) {
    commit = git.Resolve(recording.commit, "--commit");
  } else {
    const std::string named = HashOf(CommitOf(runs));
    commit = git.Find(named);
    if (!commit) commit = Commit{.hash = named};
  }
  for (FigureRecord& record : records) {
    record.commit = commit->hash;
    record.date = commit->date;
  }
}

/// A run that its own numbers ended is finished, too.
void RequireFinished(const std::vector<compare::Run>& runs) {
  for (const compare::Run& run : runs) {
    if (run.log.provenance.complete || train::WasAborted(run.log)) continue;
    ThrowError(ErrorKind::kConfig,
               "history record: {} has {} of {} steps, but figures are of the "
               "end of a run. Go on with `isoloss run --resume`, or leave it "
               "out.",
               run.file, run.log.steps.step.size(),
               run.log.provenance.steps_planned);
  }
}

void RequireDistinct(const std::vector<compare::Run>& runs) {
  std::map<std::pair<std::string, int64_t>, std::string> seen;
  for (const compare::Run& run : runs) {
    const auto& from = run.log.provenance;
    const auto [found, is_new] =
        seen.emplace(std::pair(from.arm, from.seed), run.file);
    if (is_new) continue;
    ThrowError(ErrorKind::kConfig,
               "history record: {} and {} are both of arm {}, seed {}, but a "
               "commit has one run of them. Leave one out.",
               found->second, run.file, Printable(from.arm), from.seed);
  }
}

/// What the verdicts in folders say of arms.
void SetOutcomes(const HistoryRecording& recording,
                 std::vector<FigureRecord>& records) {
  for (const fs::path& folder : recording.logs) {
    const fs::path file = folder / kVerdictFile;
    std::error_code error;
    if (!fs::exists(file, error)) continue;
    for (const document::Json& verdict : ReadVerdictFile(file)) {
      for (FigureRecord& record : records) {
        if (record.arm == verdict["candidate"]["arm"]) {
          record.outcome = verdict["outcome"];
        }
      }
    }
  }
}

/// The first `most` of names, and how many there are besides.
std::string SomeOf(const std::vector<std::string>& names, size_t most) {
  const auto end =
      names.begin() + static_cast<long>(std::min(most, names.size()));
  std::string text = fmt::format("{}", fmt::join(names.begin(), end, ", "));
  if (names.size() > most) {
    text += fmt::format(" and {} more", names.size() - most);
  }
  return text;
}

/// Puts the commits of the file into the order of git, if that knows any.
void OrderCommits(const Git& git, report::History& history) {
  const std::set<std::string> recorded(history.commits.begin(),
                                       history.commits.end());
  std::vector<std::string> ordered;
  std::map<std::string, size_t> places;
  size_t place = 0;
  for (const std::string& commit : git.FirstParents()) {
    if (recorded.contains(commit)) {
      ordered.push_back(commit);
      places[commit] = place;
    }
    ++place;
  }
  if (ordered.empty()) {
    history.notes.emplace_back(
        "No git repository around the file has these commits on the way to "
        "HEAD: they stand in the order of the file." +
        git.ShallowNote());
    return;
  }
  std::vector<std::string> others;
  for (const std::string& commit : history.commits) {
    if (!places.contains(commit)) others.push_back(commit.substr(0, 12));
  }
  if (!others.empty()) {
    history.notes.push_back(
        fmt::format("Left out, since they are no ancestors of HEAD in this "
                    "repository (only "
                    "first parents are followed): {}.{}",
                    SomeOf(others, 4), git.ShallowNote()));
  }
  history.in_git_order = true;
  history.commits = std::move(ordered);
  history.places = std::move(places);
}

std::vector<std::string> Distinct(const std::vector<FigureRecord>& records,
                                  std::string FigureRecord::*member) {
  std::set<std::string> seen;
  std::vector<std::string> names;
  for (const FigureRecord& record : records) {
    if (seen.insert(record.*member).second) names.push_back(record.*member);
  }
  return names;
}

/// Those of `asked` if any are, else all `known`.
std::vector<std::string> Chosen(const std::vector<std::string>& asked,
                                const std::vector<std::string>& known,
                                const char* option) {
  for (const std::string& name : asked) {
    if (std::ranges::count(known, name) != 0) continue;
    ThrowError(ErrorKind::kConfig,
               "history show: {} is `{}`, but there are {}. Give one of "
               "them.{}",
               option, name, SomeOf(known, 20), DidYouMean(name, known));
  }
  return asked.empty() ? known : asked;
}

/// Git is asked for those that are named.
void NameMoves(const Git& git, report::History& history) {
  if (!history.in_git_order) return;
  for (const compare::FigureSeries& series : history.series) {
    for (const compare::FigurePoint& point : series.points) {
      if (point.movement != compare::Movement::kMoved ||
          history.subjects.contains(point.commit)) {
        continue;
      }
      if (const auto commit = git.Find(point.commit)) {
        history.subjects[point.commit] = commit->subject;
      }
    }
  }
}

}  // namespace

HistoryUpdate RecordHistory(const HistoryRecording& recording) {
  const std::vector<compare::Run> runs = ReadRuns(recording.logs);
  RequireFinished(runs);
  RequireDistinct(runs);
  std::vector<FigureRecord> records =
      compare::FiguresOf(runs, gate::Policy{}.window_share);
  SetCommit(recording, runs, records);
  SetOutcomes(recording, records);
  HistoryUpdate update =
      AddToHistory(recording.file, records, recording.replace);
  update.commit = records.front().commit;
  return update;
}

report::History ReadHistoryView(const HistoryView& view) {
  const std::vector<FigureRecord> records = ReadHistory(view.file);
  if (records.empty()) {
    ThrowError(ErrorKind::kConfig,
               "{}: it has 0 records, but there is nothing to show without "
               "one. Add some with `isoloss lab history record`.",
               view.file.string());
  }
  report::History history;
  history.experiment = records.front().experiment;
  history.options = view.options;
  history.commits = Distinct(records, &FigureRecord::commit);
  const fs::path folder = view.file.parent_path();
  const Git git(folder.empty() ? "." : folder);
  OrderCommits(git, history);

  std::vector<std::string> names;
  for (const compare::Figure& figure : compare::kFigures) {
    names.emplace_back(figure.name);
  }
  const std::vector<std::string> figures =
      Chosen(view.figures, names, "--figure");
  const std::vector<std::string> arms =
      Chosen(view.arms, Distinct(records, &FigureRecord::arm), "--arm");
  for (const std::string& arm : arms) {
    for (size_t i = 0; i < compare::kFigureCount; ++i) {
      if (std::ranges::count(figures, names[i]) == 0) continue;
      compare::FigureSeries series =
          compare::FollowFigure(records, history.commits, arm, i, view.options);
      if (!series.points.empty()) history.series.push_back(std::move(series));
    }
  }
  if (history.series.empty()) {
    ThrowError(ErrorKind::kConfig,
               "{}: no run of the commits that are shown has such a figure. "
               "Ask for another --figure or --arm.",
               view.file.string());
  }
  NameMoves(git, history);
  return history;
}

}  // namespace isoloss::campaign
