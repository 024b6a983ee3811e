#include "qualification/kill_matrix_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "isoloss/base/atomic_file.h"
#include "isoloss/base/build_info.h"
#include "isoloss/base/digest.h"
#include "isoloss/base/error.h"
#include "isoloss/base/text_file.h"
#include "isoloss/campaign/job_queue.h"
#include "isoloss/campaign/plan_file.h"
#include "isoloss/compare/peer_rules.h"
#include "isoloss/config/writer.h"
#include "isoloss/gate/judge.h"
#include "isoloss/runlog/reader.h"
#include "isoloss/runlog/writer.h"
#include "isoloss/train/runner.h"
#include "isoloss/train/trainer.h"
#include "isoloss/verify/probe_runs.h"
#include "qualification/kill_matrix_report.h"
#include "qualification/kill_matrix_runner.h"

namespace isoloss::qualification {
namespace {

namespace fs = std::filesystem;

/// Ensembles are built from the variants below it (ensemble_build.cc): a run
/// must not be judged by a threshold that it helped to set.
constexpr size_t kFirstBenign = 6000;

/// Enough for a spread; seeds that nobody else uses.
constexpr size_t kMlperfReferences = 8;
constexpr uint64_t kFirstMlperfSeed = 1'000'001;

/// Cells of one plan must not stand beside those of another.
std::string PlanText(const KillMatrixPlan& matrix) {
  Digest digest;
  digest.Update(matrix.experiment.ResolvedToml());
  digest.Update(gate::FormatPolicy(matrix.policy));
  config::Writer plan;
  plan.Text("program", GetBuildInfo().version);
  plan.Text("commit", GetBuildInfo().commit);
  plan.Text("arm", matrix.arm.name);
  plan.Text("baseline", matrix.BaselineArm().name);
  plan.Text("plan", DigestToHex(digest.Value()));
  plan.Text("ensemble",
            matrix.ensemble ? matrix.ensemble->ensemble.digest : "");
  return plan.text();
}

/// Errors   ConfigError if the folder holds cells of another plan; IoError.
void PrepareFolder(const KillMatrixPlan& matrix) {
  const fs::path path = matrix.folder / campaign::kPlanFile;
  const std::string plan = PlanText(matrix);
  fs::create_directories(matrix.folder / "cells");
  fs::create_directories(matrix.folder / "work");
  if (!fs::exists(path) || fs::is_empty(matrix.folder / "cells")) {
    WriteFileAtomically(path, plan);
    return;
  }
  const std::string difference = campaign::PlanDifference(path, plan);
  if (difference.empty()) return;
  ThrowError(ErrorKind::kConfig,
             "{}: it holds cells of another plan, which differs in {} (plan: "
             "experiment or policy), but all cells of a matrix must be of one. "
             "Give another folder with --out, or remove this one.",
             matrix.folder.string(), difference);
}

}  // namespace

KillMatrixRunner::KillMatrixRunner(const KillMatrixPlan& plan,
                                   const std::atomic<bool>& stop)
    : plan_(plan), stop_(stop), corpus_(train::LoadCorpusOf(plan.experiment)) {
  for (size_t i = 0; i < plan.benign_runs; ++i) {
    variants_.push_back(BenignMutant(kFirstBenign + i));
  }
}

KillMatrixResult KillMatrixRunner::Run() {
  PrepareFolder(plan_);
  if (!MakeUnchanged() || !MakeBaselines()) return {{}, true};
  RequireSoundEvidence();
  if (!MakeMlperfReferences() || !MakeCells()) return {{}, true};
  return {Assemble(), false};
}

bool KillMatrixRunner::MakeUnchanged() {
  const size_t count = plan_.seeds.size();
  unchanged_.resize(count);
  std::vector<double> seconds(count);
  const bool done = campaign::RunJobs(
      "unchanged runs", count, campaign::OneThreadEach(count, plan_.workers),
      stop_, [&](size_t i, Executor& executor) {
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
  const fs::path file =
      plan_.folder / "work" / (train::Run{&arm, seed}.Name() + ".h5");
  if (!fs::exists(file)) {
    runlog::WriteRunLog(
        train::TrainRun(plan_.experiment, arm, seed, corpus_, executor), file);
  }
  return runlog::ReadRunLog(file);
}

bool KillMatrixRunner::MakeBaselines() {
  if (!plan_.reference) return true;
  baselines_.resize(plan_.seeds.size());
  return campaign::RunJobs(
      "runs of arm " + plan_.BaselineArm().name, baselines_.size(),
      campaign::OneThreadEach(baselines_.size(), plan_.workers), stop_,
      [&](size_t i, Executor& executor) {
        baselines_[i].log =
            KeptRun(plan_.BaselineArm(), plan_.seeds[i], executor);
      });
}

/// Its rule rests on the spread between seeds.
bool KillMatrixRunner::MakeMlperfReferences() {
  mlperf_references_.resize(kMlperfReferences);
  return campaign::RunJobs(
      "runs of other seeds", kMlperfReferences,
      campaign::OneThreadEach(kMlperfReferences, plan_.workers), stop_,
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
                   "{}. Make it again for this experiment and "
                   "arm: isoloss lab ensemble build.",
                   mismatches[0]);
      }
    }
    const KillCell cell = JudgeTraces({nullptr, plan_.seeds[i]}, unchanged_[i]);
    if (cell.verdict == gate::Outcome::kPass) continue;
    ThrowError(ErrorKind::kConfig,
               "the unchanged run of seed {} gets {}, but what is "
               "planted can only be judged where that passes. {}.",
               plan_.seeds[i], gate::OutcomeName(cell.verdict), cell.finding);
  }
}

bool KillMatrixRunner::MakeCells() {
  std::vector<CellJob> missing = Jobs();
  std::erase_if(missing,
                [&](const CellJob& job) { return fs::exists(CellPath(job)); });
  return campaign::RunJobs(
      "changed runs", missing.size(),
      campaign::OneThreadEach(missing.size(), plan_.workers), stop_,
      [&](size_t i, Executor& executor) {
        WriteFileAtomically(
            CellPath(missing[i]),
            RenderKillCell(JudgeJob(missing[i], executor), missing[i].Name()));
      });
}

KillCell KillMatrixRunner::ReadCell(const CellJob& job) const {
  const fs::path path = CellPath(job);
  return ParseKillCell(ReadTextFile(path, "Run the same command again."),
                       job.Name(), path.string());
}

namespace {

/// Not one bit of a run or of a probe's verdict: there is nothing to catch in
/// this experiment.
bool ChangesNothing(const KillRow& row) {
  return std::all_of(
      row.cells.begin(), row.cells.end(),
      [](const KillCell& cell) { return cell.bit_equal && !cell.Caught(); });
}

}  // namespace

KillRow KillMatrixRunner::MakeRow(const Mutant& mutant) const {
  KillRow row{.name = mutant.name,
              .group = mutant.group,
              .kind = mutant.kind,
              .models = mutant.what,
              .link = mutant.link};
  for (const uint64_t seed : plan_.seeds) {
    row.cells.push_back(ReadCell({&mutant, seed}));
  }
  if (mutant.plant && ChangesNothing(row)) {
    row.kind = Class::kEquivalent;
  }
  return row;
}

/// The target: what the references reach on average after three quarters of
/// the steps.
bool KillMatrixRunner::MlperfAccepts(const KillRow& row) const {
  const std::vector<std::span<const double>> references(
      mlperf_references_.begin(), mlperf_references_.end());
  std::vector<std::span<const double>> submission;
  for (const KillCell& cell : row.cells) {
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

KillMatrix KillMatrixRunner::Assemble() const {
  KillMatrix matrix;
  matrix.question = gate::QuestionName(plan_.policy.question);
  for (const gate::Level* level : gate::Ladder()) {
    matrix.levels.emplace_back(level->name);
  }
  for (const compare::PeerRule& rule : compare::PeerRules()) {
    matrix.peers.emplace_back(rule.name);
  }
  for (const Mutant& mutant : plan_.mutants) {
    matrix.rows.push_back(MakeRow(mutant));
    matrix.rows.back().mlperf_accepts = MlperfAccepts(matrix.rows.back());
  }
  for (size_t i = 0; i < variants_.size(); ++i) {
    matrix.benign.push_back(ReadCell({&variants_[i], BenignSeed(i)}));
  }
  matrix.reference_seconds = unchanged_seconds_;
  return matrix;
}

void WriteKillMatrix(const KillMatrixPlan& plan, const KillMatrix& matrix) {
  WriteFileAtomically(plan.folder / "kill_matrix.json",
                      RenderKillMatrixJson(matrix));
}

KillMatrixResult RunKillMatrix(const KillMatrixPlan& plan,
                               const std::atomic<bool>& stop) {
  return KillMatrixRunner(plan, stop).Run();
}

}  // namespace isoloss::qualification
