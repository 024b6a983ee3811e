#include "isoloss/goldens/golden_update.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>

#include "isoloss/base/atomic_file.h"
#include "isoloss/base/build_info.h"
#include "isoloss/base/error.h"
#include "isoloss/base/files.h"
#include "isoloss/base/temporary_folder.h"
#include "isoloss/base/text_file.h"
#include "isoloss/campaign/train_arms.h"
#include "isoloss/compare/golden.h"
#include "isoloss/goldens/golden_folder.h"
#include "isoloss/goldens/golden_lanes.h"
#include "isoloss/goldens/golden_source.h"
#include "isoloss/logs/log_files.h"
#include "isoloss/precision/recipe.h"
#include "isoloss/runlog/layout.h"
#include "isoloss/train/runner.h"
#include "isoloss/verdicts/judge_arms.h"

namespace isoloss::goldens {
namespace {

namespace fs = std::filesystem;

/// Reviewers read the reason years later: a word or two explain nothing.
constexpr size_t kShortestReason = 20;

void CheckReason(const std::string& reason, const History& history) {
  const auto letters =
      std::ranges::count_if(reason, [](char c) { return c != ' '; });
  if (static_cast<size_t>(letters) < kShortestReason) {
    ThrowError(ErrorKind::kConfig,
               "golden update: --reason \"{}\" has {} letters, but at least {} "
               "must say what changed the numbers and why that is right.",
               reason, letters, kShortestReason);
  }
  if (std::ranges::any_of(reason, [](char c) {
        return static_cast<unsigned char>(c) < ' ' || c == 0x7f;
      })) {
    ThrowError(ErrorKind::kConfig,
               "golden update: --reason holds a line break or another control "
               "character, but is one line. Leave it out.");
  }
  for (const HistoryEntry& entry : history.entries()) {
    if (entry.reason != reason) continue;
    ThrowError(ErrorKind::kConfig,
               "golden update: --reason \"{}\" is that of an earlier update. "
               "Say what is new.",
               reason);
  }
}

/// Holds what the folder contains before the update. With --new that is
/// nothing; with --reconfigured the logs need not be of its experiment.
struct Before {
  History history;
  std::vector<compare::Run> goldens;
};

void RefuseExisting(const fs::path& folder) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const fs::path name = entry.path().filename();
    if (name != kGoldenHistory && name.extension() != ".h5" &&
        name.extension() != ".txt") {
      continue;
    }
    ThrowError(ErrorKind::kConfig,
               "{}: --new makes the first goldens of a folder that holds {} "
               "and what it reads, but this is there. Leave out --new, or "
               "remove it.",
               entry.path().string(), kGoldenExperiment);
  }
}

/// Reads the goldens that the history names, even if the experiment now asks
/// for different runs.
Before OpenReconfigured(const fs::path& folder) {
  Before before{History::Read(folder / kGoldenHistory), {}};
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".h5") continue;
    compare::Run golden = logs::ReadRuns({entry.path()}).front();
    if (compare::ContentDigest(golden.log) !=
        before.history.ContentOf(GoldenName(golden))) {
      ThrowError(ErrorKind::kFormat,
                 "{}: its content is not the one that {} names. Restore the "
                 "folder first.",
                 golden.file, kGoldenHistory);
    }
    before.goldens.push_back(std::move(golden));
  }
  return before;
}

Before Open(const GoldenUpdatePlan& plan) {
  const fs::path folder = plan.folder;
  if (plan.create) {
    RefuseExisting(folder);
    return {};
  }
  if (plan.reconfigured) return OpenReconfigured(folder);
  GoldenFolder opened = OpenGoldenFolder(folder);
  CheckConfiguration(opened);
  return {std::move(opened.history), std::move(opened.goldens)};
}

const compare::Run* Find(const std::vector<compare::Run>& runs,
                         const std::string& name) {
  const auto found = std::ranges::find(runs, name, &GoldenName);
  return found == runs.end() ? nullptr : &*found;
}

/// An Update is one golden before and after.
struct Update {
  GoldenChange change;
  const compare::Run* run = nullptr;  ///< null if it is given up
  std::string text;                   ///< its twin
};

/// Returns the evidence on the run's arm and seed.
logs::EvidenceFiles EvidenceOf(const compare::Run& run,
                               const logs::EvidenceFiles& evidence) {
  const runlog::Provenance& p = run.log.provenance;
  logs::EvidenceFiles own = evidence;
  std::erase_if(own.probes, [&](const gate::Probe& probe) {
    return probe.log.provenance.arm != p.arm ||
           probe.log.provenance.seed != p.seed;
  });
  std::erase_if(own.ensembles, [&](const gate::NullEnsemble& ensemble) {
    return ensemble.ensemble.provenance.arm != p.arm;
  });
  return own;
}

/// Returns the gate's verdict on `now` against `old`, which is one golden.
std::string VerdictOf(const compare::Run* old, const compare::Run& now,
                      const logs::EvidenceFiles& evidence,
                      const gate::Policy& policy, bool reconfigured) {
  if (old == nullptr) return "new";
  if (reconfigured) return "of another configuration, so not compared";
  const ExactLane lane = CompareExactly(*old, now);
  const std::string other = OtherDescription(*old, now, lane);
  return fmt::format(
      "{}{}; drift: {}", other.empty() ? "" : "fail: " + other + "; ",
      LaneText(verdicts::JudgeAgainstApproved({now}, {*old}, policy,
                                              EvidenceOf(now, evidence))
                   .front()),
      lane.Drift());
}

/// Digests of the content do not cover columns without values.
bool HasLayoutOf(const compare::Run& old, const compare::Run& now) {
  return runlog::LayoutOf(old.file) == runlog::LayoutOf(now.file);
}

std::vector<Update> FindUpdates(const Before& before,
                                const std::vector<compare::Run>& runs,
                                const logs::EvidenceFiles& evidence,
                                const gate::Policy& policy, bool reconfigured) {
  std::vector<Update> updates;
  for (const compare::Run& run : runs) {
    const std::string name = GoldenName(run);
    const compare::Run* old = Find(before.goldens, name);
    const HistoryEntry* last = before.history.LastOf(name);
    const std::string content = compare::ContentDigest(run.log);
    const bool same =
        old != nullptr && before.history.ContentOf(name) == content;
    const bool laid_out = same && HasLayoutOf(*old, run);
    if (laid_out && !last->IsDraft()) continue;
    updates.push_back(
        {{name, old == nullptr ? "" : before.history.ContentOf(name), content,
          laid_out ? "equal to the draft"
          : same   ? "the same content in another layout"
                   : VerdictOf(old, run, evidence, policy, reconfigured)},
         &run,
         compare::GoldenText(run.log, name)});
  }
  for (const std::string& name : before.history.Goldens()) {
    if (Find(runs, name) != nullptr) continue;
    updates.push_back(
        {{name, before.history.ContentOf(name), "", "given up"}, nullptr, ""});
  }
  return updates;
}

std::span<const std::byte> Bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

/// Writes all files under other names first. Then each moves into place in one
/// step, the history last, so an error leaves the folder as it was.
void Write(const fs::path& folder, const std::vector<Update>& updates,
           const History& history) {
  for (const Update& update : updates) {
    const fs::path twin = folder / (update.change.golden + ".txt");
    if (!update.change.before.empty() || !fs::exists(twin)) continue;
    ThrowError(ErrorKind::kConfig,
               "{}: it is the twin of no golden, so it is not replaced. Remove "
               "it or give it another name.",
               twin.string());
  }
  const fs::path staged = folder / ".update";
  RemoveFolder(staged);
  fs::create_directory(staged);
  try {
    for (const Update& update : updates) {
      if (update.run == nullptr) continue;
      const std::string& name = update.change.golden;
      WriteFileAtomically(staged / (name + ".h5"),
                          Bytes(ReadTextFile(update.run->file, "Run it again.",
                                             hdf5::kMaxSealedBytes)));
      WriteFileAtomically(staged / (name + ".txt"), Bytes(update.text));
    }
    WriteFileAtomically(staged / kGoldenHistory, Bytes(history.Text()));
  } catch (...) {
    RemoveFolder(staged);
    throw;
  }
  for (const Update& update : updates) {
    for (const char* extension : {".h5", ".txt"}) {
      const std::string file = update.change.golden + extension;
      if (update.run == nullptr) {
        RemoveFile(folder / file);
      } else {
        Rename(staged / file, folder / file);
      }
    }
  }
  Rename(staged / kGoldenHistory, folder / kGoldenHistory);
  RemoveFolder(staged);
  SyncFolder(folder);
}

/// Says why the runs are no goldens: L0 does not pass, or their bits change on
/// one thread. Returns "" if they are.
std::string RepeatedFault(const std::vector<compare::Run>& runs,
                          const std::vector<compare::Run>& again,
                          const gate::Policy& policy, const Suite& suite) {
  if (suite.aborts) {
    for (const compare::Run& run : runs) {
      if (EndedByItsNumbers(run.log)) continue;
      return fmt::format("{} does not end by its numbers, as {} says",
                         GoldenName(run), kGoldenSuite);
    }
  }
  for (const gate::Judgement& judgement :
       suite.aborts ? std::vector<gate::Judgement>()
                    : verdicts::JudgeAgainstApproved(again, runs, policy)) {
    if (judgement.outcome == gate::Outcome::kPass) continue;
    return fmt::format("these runs are no goldens: {}: {}",
                       judgement.candidate.arm, LaneText(judgement));
  }
  for (size_t i = 0; i < runs.size(); ++i) {
    const ExactLane lane = CompareExactly(runs[i], again[i]);
    if (lane.Reproduced()) continue;
    return fmt::format("{} is not reproducible: {}", lane.golden, lane.Drift());
  }
  return "";
}

train::Experiment OnOneThread(train::Experiment experiment) {
  experiment.parallel.workers = 1;
  return experiment;
}

/// If no order of summation explains a tensor's values, the program or the
/// oracle has a bug. Nobody may approve that by accident.
void CheckAccepted(const logs::EvidenceFiles& evidence,
                   const std::vector<std::string>& accepted) {
  std::vector<std::string> refused;
  for (const gate::Probe& probe : evidence.probes) {
    const runlog::OracleColumns& rows = probe.log.oracle;
    for (size_t i = 0; i < rows.step.size(); ++i) {
      const std::string& name =
          probe.log.tensors[static_cast<size_t>(rows.tensor[i])];
      const bool named =
          std::ranges::any_of(accepted, [&](const std::string& pattern) {
            return precision::SiteMatches(pattern, name);
          });
      if (rows.other[i] == 0 || named ||
          std::ranges::count(refused, name) != 0) {
        continue;
      }
      refused.push_back(name);
    }
  }
  if (refused.empty()) return;
  ThrowError(
      ErrorKind::kConfig,
      "golden update: {} tensors hold values that no order of summation "
      "explains (class other), the first {}. Find out why (isoloss "
      "lab probe), or name them with --accept-numerics-change.",
      refused.size(),
      fmt::join(std::span(refused).first(std::min<size_t>(refused.size(), 3)),
                ", "));
}

/// The lock lasts until the descriptor is closed.
Descriptor LockGoldens(const fs::path& folder) {
  Descriptor lock = LockFolder(folder, /*wait=*/false);
  if (lock.get() >= 0) return lock;
  ThrowError(ErrorKind::kConfig,
             "{}: another `golden update` is at work on this folder, and this "
             "one would replace what that one writes. Wait until it has ended.",
             folder.string());
}

}  // namespace

GoldenUpdate UpdateGoldens(const GoldenUpdatePlan& plan) {
  campaign::RequireOneProcess("golden update", "it writes the logs of one");
  const fs::path folder = plan.folder;
  const train::Experiment experiment = LoadGoldenExperiment(folder);
  const gate::Policy policy = verdicts::PolicyOf("", experiment);
  const Suite suite = ReadSuite(folder);
  const Descriptor lock = LockGoldens(folder);
  Before before = Open(plan);
  CheckReason(plan.reason, before.history);
  if (!plan.draft) CheckSourceIsCommitted(folder);

  const TemporaryFolder temporary;
  const Rerun rerun = RunAll(experiment, temporary.path() / "runs");
  if (rerun.interrupted) return {.interrupted = true};
  const Rerun again =
      RunAll(OnOneThread(experiment), temporary.path() / "again");
  if (again.interrupted) return {.interrupted = true};
  std::string fault = RepeatedFault(rerun.runs, again.runs, policy, suite);
  if (!fault.empty()) return {.refused = std::move(fault)};

  const std::optional<logs::EvidenceFiles> evidence =
      GatherEvidence(experiment, policy, folder, temporary.path() / "probes",
                     verify::PlainStepsDue(rerun.runs, before.goldens, policy));
  if (!evidence) return {.interrupted = true};
  CheckAccepted(*evidence, plan.accepted);
  const std::vector<Update> updates =
      FindUpdates(before, rerun.runs, *evidence, policy, plan.reconfigured);
  if (updates.empty()) {
    ThrowError(ErrorKind::kConfig,
               "{}: this program gives every bit of its goldens, so there is "
               "nothing to update.",
               folder.string());
  }
  const BuildInfo build = GetBuildInfo();
  HistoryEntry entry{.tool = "isoloss " + build.version,
                     .commit = build.commit,
                     .reason = plan.reason,
                     .accepted = plan.accepted};
  for (const Update& update : updates) entry.changes.push_back(update.change);
  if (plan.on_changes) plan.on_changes(entry.changes);
  before.history.Append(std::move(entry));
  Write(folder, updates, before.history);
  return {.changed = updates.size(), .runs = rerun.runs.size()};
}

}  // namespace isoloss::goldens
