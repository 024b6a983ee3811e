#include "isoloss/goldens/golden_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/base/temporary_folder.h"
#include "isoloss/campaign/job_queue.h"
#include "isoloss/campaign/train_arms.h"
#include "isoloss/compare/first_divergence.h"
#include "isoloss/corpus/corpus.h"
#include "isoloss/goldens/golden_dumps.h"
#include "isoloss/goldens/golden_folder.h"
#include "isoloss/goldens/golden_suite.h"
#include "isoloss/logs/log_files.h"
#include "isoloss/system/interrupt.h"
#include "isoloss/verdicts/judge_arms.h"
#include "isoloss/verify/question.h"

namespace isoloss::goldens {
namespace {

namespace fs = std::filesystem;

/// Returns golden/curves/* below the current folder, by name.
std::vector<fs::path> DefaultFolders() {
  const fs::path parent = fs::path("golden") / "curves";
  std::vector<fs::path> folders;
  if (fs::is_directory(parent)) {
    for (const fs::directory_entry& entry : fs::directory_iterator(parent)) {
      if (entry.is_directory()) folders.push_back(entry.path());
    }
  }
  if (folders.empty()) {
    ThrowError(ErrorKind::kConfig,
               "golden check: there is no folder in {}, so nothing would be "
               "checked. Name folders of goldens, or go to the source tree.",
               fs::absolute(parent).string());
  }
  std::ranges::sort(folders);
  return folders;
}

/// Nobody can compute a draft again from any commit.
void RefuseDrafts(const GoldenFolder& folder) {
  for (const compare::Run& golden : folder.goldens) {
    const HistoryEntry* entry = folder.history.LastOf(GoldenName(golden));
    if (!entry->IsDraft()) continue;
    ThrowError(
        ErrorKind::kConfig,
        "{}: it is a draft: the program that made it is of commit `{}`. "
        "Commit the source, build it and run `isoloss golden update {}`, "
        "or check it with --draft.",
        golden.file, entry->commit, folder.path.string());
  }
}

/// A Case is one folder on its way through the check.
struct Case {
  explicit Case(GoldenFolder opened)
      : folder(std::move(opened)),
        question(verify::QuestionOfApproved(
            folder.experiment, verdicts::PolicyOf("", folder.experiment),
            folder.goldens)) {}

  GoldenFolder folder;
  std::unique_ptr<verify::Question> question;
  fs::path out;  ///< for what it computes
  Rerun rerun;
  std::vector<LaneResult> lanes;  ///< in the order of the suite; then empty
  std::atomic<size_t> unfinished = 1;  ///< its run of each arm, and its lanes
  verify::ProbeSettings probing;
  std::optional<corpus::Corpus> corpus;  ///< for the probes of all arms
  std::vector<fs::path> probes;          ///< in the order of ProbedArms
  CheckedGoldens found;
};

fs::path FolderOf(const Case& one, const Lane& lane) {
  return one.out / ("lane-" + lane.name);
}

/// Each job has a thread of its own.
using LaneJob = std::function<void(Executor& executor)>;

/// Gives the jobs executors by `make_executor`, as Crew. Returns false if a
/// signal ended them.
bool RunSideBySide(const char* title, const std::vector<LaneJob>& jobs,
                   const ExecutorMaker& make_executor) {
  Crew crew = campaign::OneThreadEach(jobs.size(), 0);
  crew.make_executor = make_executor;
  const bool done = campaign::RunJobs(
      title, jobs.size(), crew, system::InterruptFlag(),
      [&](size_t i, Executor& executor) { jobs[i](executor); });
  return done && !system::InterruptFlag().load();
}

/// Bits may not depend on how an experiment is executed, so a lane that differs
/// from the run of its arm is a fault, whatever the goldens hold. Then frees
/// the lanes' logs, since the logs of all cases would not fit into memory.
void CompareLanes(Case& one) {
  GoldenDumps dumps;
  for (size_t i = 0; i < one.lanes.size(); ++i) {
    const Lane& lane = one.folder.suite.lanes[i];
    if (!lane.impossible.empty()) {
      one.found.lanes.push_back(
          {lane.name, LaneOutcome::kNotRun, lane.impossible});
      continue;
    }
    const LaneResult& result = one.lanes[i];
    std::string difference =
        result.fault.empty()
            ? FirstDifference(ExpectedOfLane(lane, one.rerun.runs, result.runs),
                              result.runs)
            : result.fault;
    if (difference.empty()) {
      difference = dumps.Add(FolderOf(one, lane), result.runs);
    }
    if (!difference.empty()) {
      one.found.code = system::Worse(one.found.code, system::ExitCode::kFail);
    }
    one.found.lanes.push_back(
        {lane.name,
         difference.empty() ? LaneOutcome::kPass : LaneOutcome::kFail,
         difference});
  }
  one.lanes.clear();
}

/// Counts a finished training job of the case. The last one compares the lanes.
void FinishTraining(Case& one) {
  if (one.unfinished.fetch_sub(1) == 1) CompareLanes(one);
}

std::vector<LaneJob> TrainingJobs(std::vector<std::unique_ptr<Case>>& cases,
                                  const GoldenCheckPlan& plan) {
  std::vector<LaneJob> jobs;
  for (const auto& owned : cases) {
    Case* const one = owned.get();
    jobs.push_back([one, &plan](Executor&) {
      train::Experiment experiment = one->folder.experiment;
      experiment.parallel.workers = 1;
      experiment.parallel.on = plan.on;
      one->rerun = RunAll(experiment, one->out,
                          PlantInCandidates(experiment, plan.plant), true);
      FinishTraining(*one);
    });
    // With planted faults no lanes run, since lanes test the program as it is.
    if (plan.plant) continue;
    one->lanes.resize(one->folder.suite.lanes.size());
    for (size_t i = 0; i < one->lanes.size(); ++i) {
      const Lane& lane = one->folder.suite.lanes[i];
      if (!lane.impossible.empty()) continue;
      ++one->unfinished;
      jobs.push_back([one, &lane, i](Executor&) {
        one->lanes[i] = RunLane(one->folder, lane, FolderOf(*one, lane));
        FinishTraining(*one);
      });
    }
  }
  return jobs;
}

/// Checks whether each run has the bits of its golden.
void CompareWithGoldens(Case& one) {
  CheckedGoldens& found = one.found;
  for (size_t i = 0; i < one.folder.goldens.size(); ++i) {
    found.exact.push_back(
        CompareExactly(one.folder.goldens[i], one.rerun.runs[i]));
    found.drift = found.drift || !found.exact.back().Reproduced();
  }
}

std::vector<std::string> ProbedArms(const Case& one) {
  std::vector<std::string> arms;
  for (const train::Arm& arm : one.folder.experiment.arms) {
    bool probed = one.folder.suite.probe_equal_bits;
    for (size_t i = 0; i < one.rerun.runs.size(); ++i) {
      const bool is_own = one.rerun.runs[i].log.provenance.arm == arm.name;
      probed = probed || (is_own && !one.found.exact[i].Reproduced());
    }
    if (probed) arms.push_back(arm.name);
  }
  return arms;
}

std::vector<LaneJob> ProbingJobs(std::vector<std::unique_ptr<Case>>& cases,
                                 const verify::MakeHooks& plant) {
  std::vector<LaneJob> jobs;
  for (const auto& owned : cases) {
    Case* const one = owned.get();
    const train::Experiment& experiment = one->folder.experiment;
    one->probing = one->question->Witness(one->rerun.runs);
    one->probing.hooks = PlantInCandidates(experiment, plant);
    const std::vector<std::string> arms = ProbedArms(*one);
    if (arms.empty()) continue;
    one->corpus.emplace(train::LoadCorpusOf(experiment));
    one->probes.resize(arms.size());
    fs::create_directories(one->out / logs::kProbeFolder);
    for (size_t i = 0; i < arms.size(); ++i) {
      jobs.push_back([one, i, arm = arms[i]](Executor& executor) {
        one->probes[i] = verify::ProbeOneArm(
            one->folder.experiment, arm, *one->corpus,
            one->out / logs::kProbeFolder, one->probing, executor);
      });
    }
  }
  return jobs;
}

/// Says how the end of a run that aborted differs from its golden's; "" if it
/// does not.
std::string OtherEnd(const runlog::RunLog& golden, const runlog::RunLog& run) {
  if (run.provenance.initial_weights_digest !=
      golden.provenance.initial_weights_digest) {
    return "other initial weights than the golden's";
  }
  if (!EndedByItsNumbers(run) ||
      run.steps.step.size() != golden.steps.step.size()) {
    return fmt::format("{} steps, but the golden ends by its numbers in {}",
                       run.steps.step.size(), golden.steps.step.size());
  }
  if (run.events.back().text != golden.events.back().text) {
    return fmt::format("ends with `{}`, but the golden with `{}`",
                       run.events.back().text, golden.events.back().text);
  }
  // NaN in both says nothing of the last step, but its digests do.
  if (golden.tensors.digest.empty() || compare::FirstDivergence(golden, run) ||
      golden.provenance.final_weights_digest !=
          run.provenance.final_weights_digest) {
    return "";
  }
  const auto recorded = compare::FirstRecordedDifference(golden, run);
  if (!recorded) return "";
  return fmt::format(
      "the training has equal bits, but {} at step {} is {:.9g} in the golden "
      "and {:.9g} here",
      recorded->quantity, recorded->step, recorded->baseline,
      recorded->candidate);
}

/// No level of the gate takes runs that end by a loss or gradient that is not
/// finite. So they must end at the golden's step, name the same first element,
/// and record the same statistics of the same bits. The oracle must explain
/// them.
void JudgeAborted(Case& one) {
  CheckedGoldens& found = one.found;
  logs::EvidenceFiles evidence;
  logs::ReadProbes(one.probes, evidence);
  for (size_t i = 0; i < one.rerun.runs.size(); ++i) {
    const runlog::RunLog& run = one.rerun.runs[i].log;
    std::string fault = OtherEnd(one.folder.goldens[i].log, run);
    for (const gate::Probe& probe : evidence.probes) {
      if (probe.log.provenance.arm != run.provenance.arm) continue;
      const std::string unexplained = FirstUnexplained(probe.log);
      if (!unexplained.empty()) fault = unexplained;
    }
    found.statistical.push_back(
        {run.provenance.arm,
         fault.empty() ? gate::Outcome::kPass : gate::Outcome::kFail,
         fault.empty() ? "pass (ends by its numbers)" : "fail: " + fault});
    if (!fault.empty()) {
      found.code = system::Worse(found.code, system::ExitCode::kFail);
    }
  }
}

/// Values that follow from the experiment alone must equal the golden's.
void JudgeDescriptions(Case& one) {
  for (size_t i = 0; i < one.found.exact.size(); ++i) {
    const compare::Run& run = one.rerun.runs[i];
    const std::string other =
        OtherDescription(one.folder.goldens[i], run, one.found.exact[i]);
    if (other.empty()) continue;
    const auto arm = std::ranges::find(
        one.found.statistical, run.log.provenance.arm, &ArmOutcome::arm);
    ISOLOSS_ASSERT(arm != one.found.statistical.end());
    arm->outcome = std::max(arm->outcome, gate::Outcome::kFail);  // ordered
    arm->levels = fmt::format("fail: {}; {}", other, arm->levels);
    one.found.code = system::Worse(one.found.code, system::ExitCode::kFail);
  }
}

void Judge(Case& one) {
  CheckedGoldens& found = one.found;
  if (one.folder.suite.aborts) {
    JudgeAborted(one);
    return;
  }
  const logs::EvidenceFiles evidence =
      ReadEvidence(one.folder.experiment, one.folder.path, one.probes);
  for (const gate::Judgement& judgement :
       one.question->Judge(one.rerun.runs, evidence)) {
    found.statistical.push_back(
        {judgement.candidate.arm, judgement.outcome, LaneText(judgement)});
    found.code = system::Worse(
        found.code,
        static_cast<system::ExitCode>(gate::ExitCode(judgement.outcome)));
  }
}

/// The check must not replace files of earlier work.
void RequireEmpty(const fs::path& out) {
  std::error_code error;  // what can't be seen is refused when it is written
  if (!fs::exists(out, error) || fs::is_empty(out, error)) return;
  ThrowError(ErrorKind::kConfig,
             "{}: goldens are computed anew into a folder of their own, but "
             "this one holds files already. Choose another one with --out, or "
             "remove it.",
             out.string());
}

/// Opens all folders before anything is computed. Each case computes in a
/// folder of its own below `out`, never in that of the goldens.
std::vector<std::unique_ptr<Case>> OpenCases(const GoldenCheckPlan& plan,
                                             const fs::path& out) {
  std::vector<std::unique_ptr<Case>> cases;
  for (const fs::path& path :
       plan.folders.empty() ? DefaultFolders() : plan.folders) {
    const fs::path own =
        out /
        fmt::format("{}-{}", cases.size() + 1,
                    fs::absolute(path).lexically_normal().filename().string());
    RequireEmpty(own);
    auto one = std::make_unique<Case>(OpenGoldenFolder(path));
    if (!plan.draft) RefuseDrafts(one->folder);
    CheckConfiguration(one->folder);
    one->out = own;
    cases.push_back(std::move(one));
  }
  return cases;
}

}  // namespace

bool CheckGoldens(
    const GoldenCheckPlan& plan,
    const std::function<void(const CheckedGoldens&)>& on_checked) {
  campaign::RequireOneProcess("golden check", "it compares the logs of one");
  const TemporaryFolder temporary;
  std::vector<std::unique_ptr<Case>> cases =
      OpenCases(plan, plan.out.empty() ? temporary.path() : plan.out);
  if (!RunSideBySide("runs", TrainingJobs(cases, plan), {})) return false;
  for (const auto& one : cases) CompareWithGoldens(*one);
  if (!RunSideBySide("probes", ProbingJobs(cases, plan.plant),
                     device::FindDevice(plan.on).make_executor))
    return false;
  for (const auto& one : cases) {
    one->found.folder = one->folder.path;
    Judge(*one);
    JudgeDescriptions(*one);
    on_checked(one->found);
  }
  return true;
}

}  // namespace isoloss::goldens
