#include "isoloss/campaign/kill_matrix_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <utility>

#include "isoloss/base/atomic_file.h"
#include "isoloss/base/error.h"
#include "isoloss/base/text_file.h"
#include "isoloss/campaign/job_queue.h"
#include "isoloss/campaign/kill_matrix_folder.h"
#include "isoloss/campaign/kill_matrix_runner.h"
#include "isoloss/campaign/probe_runs.h"
#include "isoloss/campaign/run_cost.h"
#include "isoloss/compare/peer_rules.h"
#include "isoloss/gate/judge.h"
#include "isoloss/report/kill_matrix.h"
#include "isoloss/runlog/reader.h"
#include "isoloss/runlog/writer.h"
#include "isoloss/train/trainer.h"

namespace isoloss::campaign {
namespace {

namespace fs = std::filesystem;

/// Ensembles are built from the variants below it (ensemble_build.cc): a run
/// must not be judged by a threshold that it helped to set.
constexpr size_t kFirstBenign = 6000;

/// Enough for a spread; seeds that nobody else uses.
constexpr size_t kMlperfReferences = 8;
constexpr uint64_t kFirstMlperfSeed = 1'000'001;

/// Below the folder of a matrix.
fs::path KeptRunFile(const train::Arm& arm, uint64_t seed) {
  return fs::path("work") / (train::Run{&arm, seed}.Name() + ".h5");
}

}  // namespace

KillMatrixRunner::KillMatrixRunner(const KillMatrixPlan& plan,
                                   const std::atomic<bool>& stop)
    : plan_(plan), stop_(stop), corpus_(train::LoadCorpusOf(plan.experiment)) {
  for (size_t i = 0; i < plan.benign_runs; ++i) {
    variants_.push_back(mutants::BenignVariant(kFirstBenign + i));
  }
}

KillMatrixResult KillMatrixRunner::Run() {
  PrepareKillMatrixFolder(plan_);
  if (!MakeUnchanged() || !MakeBaselines()) return {{}, true};
  RequireSoundEvidence();
  if (!MakeMlperfReferences() || !MakeCells({})) return {{}, true};
  return {Assemble(), false};
}

bool KillMatrixRunner::MakeUnchanged() {
  const size_t count = plan_.seeds.size();
  unchanged_.resize(count);
  std::vector<double> seconds(count);
  const bool done =
      RunJobs("unchanged runs", count, plan_.workers, stop_,
              [&](size_t i, Executor& executor) {
                const auto start = std::chrono::steady_clock::now();
                unchanged_[i] = Make({nullptr, plan_.seeds[i]}, executor);
                seconds[i] = SecondsSince(start);
              });
  for (const double of_one : seconds) {
    unchanged_seconds_ += of_one / static_cast<double>(count);
  }
  return done;
}

/// A run without a fault and without a probe.
runlog::RunLog KillMatrixRunner::KeptRun(const train::Arm& arm, uint64_t seed,
                                         Executor& executor) const {
  const fs::path file = plan_.folder / KeptRunFile(arm, seed);
  if (!fs::exists(file)) {
    runlog::WriteRunLog(
        train::TrainRun(plan_.experiment, arm, seed, corpus_, executor), file);
  }
  return runlog::ReadRunLog(file);
}

bool KillMatrixRunner::MakeBaselines() {
  if (!plan_.reference) return true;
  baselines_.resize(plan_.seeds.size());
  return RunJobs("runs of arm " + plan_.BaselineArm().name, baselines_.size(),
                 plan_.workers, stop_, [&](size_t i, Executor& executor) {
                   baselines_[i].log =
                       KeptRun(plan_.BaselineArm(), plan_.seeds[i], executor);
                 });
}

/// Its rule rests on the spread between seeds.
bool KillMatrixRunner::MakeMlperfReferences() {
  mlperf_references_.resize(kMlperfReferences);
  return RunJobs(
      "runs of other seeds", kMlperfReferences, plan_.workers, stop_,
      [&](size_t i, Executor& executor) {
        const uint64_t seed = kFirstMlperfSeed + i;
        mlperf_references_[i] =
            KeptRun(plan_.BaselineArm(), seed, executor).steps.loss_nats;
      });
}

/// Otherwise whatever is wrong with the evidence would count as a catch. The
/// ladder itself asks nothing of an ensemble that bit-equal runs do not need.
void KillMatrixRunner::RequireSoundEvidence() const {
  for (size_t i = 0; i < unchanged_.size(); ++i) {
    if (plan_.ensemble) {
      const auto mismatches =
          gate::Mismatches(*plan_.ensemble,
                           plan_.reference ? runlog::EnsembleKind::kSeeds
                                           : runlog::EnsembleKind::kBenign,
                           PairWithBaseline(plan_.seeds[i], unchanged_[i].run));
      if (!mismatches.empty()) {
        ThrowError(ErrorKind::kConfig,
                   "mutants run: {}. Make it again for this experiment and "
                   "arm: isoloss lab ensemble build.",
                   mismatches[0]);
      }
    }
    const gate::KillCell cell =
        JudgeTraces({nullptr, plan_.seeds[i]}, unchanged_[i]);
    if (cell.verdict == gate::Outcome::kPass) continue;
    ThrowError(ErrorKind::kConfig,
               "mutants run: the unchanged run of seed {} gets {}, but what is "
               "planted can only be judged where that passes. {}.",
               plan_.seeds[i], gate::OutcomeName(cell.verdict), cell.finding);
  }
}

bool KillMatrixRunner::MakeCells(const RunChoice& only) {
  std::vector<CellJob> missing = Jobs();
  std::erase_if(missing, [&](const CellJob& job) {
    return !only.Has(job.Name()) || fs::exists(CellPath(job));
  });
  return RunJobs("changed runs", missing.size(), plan_.workers, stop_,
                 [&](size_t i, Executor& executor) {
                   WriteFileAtomically(
                       CellPath(missing[i]),
                       report::RenderKillCell(JudgeJob(missing[i], executor),
                                              missing[i].Name()));
                 });
}

gate::KillCell KillMatrixRunner::ReadCell(const CellJob& job) const {
  const fs::path path = CellPath(job);
  return report::ParseKillCell(
      ReadTextFile(path, "Run the same command again."), job.Name(),
      path.string());
}

namespace {

/// Not one bit of a run or of a probe's verdict: there is nothing to catch in
/// this experiment.
bool ChangesNothing(const gate::KillRow& row) {
  return std::all_of(row.cells.begin(), row.cells.end(),
                     [](const gate::KillCell& cell) {
                       return cell.bit_equal && !cell.Caught();
                     });
}

}  // namespace

gate::KillRow KillMatrixRunner::MakeRow(const mutants::Mutant& mutant) const {
  gate::KillRow row{
      .name = mutant.name,
      .group = mutant.group,
      .mutant_class = gate::MutantClassByName(mutants::ClassName(mutant.kind)),
      .models = mutant.what,
      .link = mutant.link};
  for (const uint64_t seed : plan_.seeds) {
    row.cells.push_back(ReadCell({&mutant, seed}));
  }
  if (mutant.plant && ChangesNothing(row)) {
    row.mutant_class = gate::MutantClass::kEquivalent;
  }
  return row;
}

/// The target: what the references reach on average after three quarters of
/// the steps.
bool KillMatrixRunner::MlperfAccepts(const gate::KillRow& row) const {
  const std::vector<std::span<const double>> references(
      mlperf_references_.begin(), mlperf_references_.end());
  std::vector<std::span<const double>> submission;
  for (const gate::KillCell& cell : row.cells) {
    submission.emplace_back(cell.loss_nats);
  }
  compare::RcpTarget target;
  const size_t end = references[0].size() * 3 / 4;
  for (const auto& curve : references) {
    const auto window = curve.first(end).last(std::min(end, target.window));
    for (const double loss : window) {
      target.target += loss / static_cast<double>(window.size()) /
                       static_cast<double>(references.size());
    }
  }
  return compare::MlperfRcpAccepts(references, submission, target);
}

gate::KillMatrix KillMatrixRunner::Assemble() const {
  gate::KillMatrix matrix;
  matrix.question = gate::QuestionName(plan_.policy.question);
  for (const gate::Level* level : gate::Ladder()) {
    matrix.levels.emplace_back(level->name);
  }
  for (const compare::PeerRule& rule : compare::PeerRules()) {
    matrix.peers.emplace_back(rule.name);
  }
  for (const mutants::Mutant& mutant : plan_.mutants) {
    matrix.rows.push_back(MakeRow(mutant));
    matrix.rows.back().mlperf_accepts = MlperfAccepts(matrix.rows.back());
  }
  for (size_t i = 0; i < variants_.size(); ++i) {
    matrix.benign.push_back(ReadCell({&variants_[i], BenignSeed(i)}));
  }
  matrix.reference_seconds = unchanged_seconds_;
  return matrix;
}

/// Besides the unchanged ones, which have probes.
std::vector<train::Run> KillMatrixRunner::RunsWithoutFault() const {
  std::vector<train::Run> runs;
  if (plan_.reference) {
    for (const uint64_t seed : plan_.seeds) {
      runs.push_back({&plan_.BaselineArm(), seed});
    }
  }
  for (size_t i = 0; i < kMlperfReferences; ++i) {
    runs.push_back({&plan_.BaselineArm(), kFirstMlperfSeed + i});
  }
  return runs;
}

RunList KillMatrixRunner::List() const {
  const std::vector<train::Run> plain = RunsWithoutFault();
  const train::Run planted = {&plan_.arm, plan_.seeds.front()};
  std::vector<train::Run> measured = plain;
  measured.push_back(planted);
  const ArmRates rates = MeasureArms(plan_.experiment, measured);
  const double run_seconds = ThreadSeconds(plan_.experiment, planted, rates);
  const double probe_steps = static_cast<double>(
      OracleSteps(1, ProbedCases(plan_.policy).size()) * kOracleStepCost);
  const double cell_seconds =
      run_seconds *
      (1 + probe_steps / static_cast<double>(plan_.experiment.train.steps));
  RunList list{.folder = plan_.folder, .runs = {}};
  for (const uint64_t seed : plan_.seeds) {
    const std::string name = CellJob{nullptr, seed}.Name();
    // The probe is written last.
    list.runs.push_back({.name = name,
                         .file = fs::path("work") / (name + ".probe.h5"),
                         .thread_seconds = cell_seconds});
  }
  for (const train::Run& run : plain) {
    list.runs.push_back(
        {.name = run.Name(),
         .file = KeptRunFile(*run.arm, run.seed),
         .thread_seconds = ThreadSeconds(plan_.experiment, run, rates)});
  }
  for (const CellJob& job : Jobs()) {
    list.runs.push_back({.name = job.Name(),
                         .file = CellFile(job),
                         .thread_seconds = cell_seconds,
                         .stage = 2});
  }
  return list;
}

bool KillMatrixRunner::Make(const RunChoice& only) {
  std::vector<CellJob> jobs = Jobs();
  std::vector<train::Run> plain = RunsWithoutFault();
  std::vector<uint64_t> unchanged = plan_.seeds;
  std::vector<std::string> known;
  for (const CellJob& job : jobs) known.push_back(job.Name());
  for (const train::Run& run : plain) known.push_back(run.Name());
  for (const uint64_t seed : plan_.seeds) {
    known.push_back(CellJob{nullptr, seed}.Name());
  }
  only.Check(known);
  std::erase_if(jobs,
                [&](const CellJob& job) { return !only.Has(job.Name()); });
  std::erase_if(plain,
                [&](const train::Run& run) { return !only.Has(run.Name()); });
  std::erase_if(unchanged, [&](uint64_t seed) {
    return !only.Has(CellJob{nullptr, seed}.Name());
  });
  PrepareKillMatrixFolder(plan_);
  if (!RunJobs("runs without a fault", plain.size() + unchanged.size(),
               plan_.workers, stop_, [&](size_t i, Executor& executor) {
                 if (i < plain.size()) {
                   KeptRun(*plain[i].arm, plain[i].seed, executor);
                 } else {
                   Make({nullptr, unchanged[i - plain.size()]}, executor);
                 }
               })) {
    return false;
  }
  if (jobs.empty()) return true;
  if (!MakeUnchanged() || !MakeBaselines()) return false;
  RequireSoundEvidence();
  return MakeCells(only);
}

RunList ListKillMatrix(const KillMatrixPlan& plan) {
  const std::atomic<bool> never{false};
  return KillMatrixRunner(plan, never).List();
}

bool MakeChosenCells(const KillMatrixPlan& plan, const RunChoice& only,
                     const std::atomic<bool>& stop) {
  return KillMatrixRunner(plan, stop).Make(only);
}

KillMatrixResult RunKillMatrix(const KillMatrixPlan& plan,
                               const std::atomic<bool>& stop) {
  return KillMatrixRunner(plan, stop).Run();
}

}  // namespace isoloss::campaign
