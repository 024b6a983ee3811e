// The runs and cells of a kill matrix; a part of kill_matrix_run alone.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "isoloss/compare/pair.h"
#include "isoloss/corpus/corpus.h"
#include "isoloss/runlog/run_log.h"
#include "qualification/kill_matrix_run.h"

namespace isoloss::qualification {

inline double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
      .count();
}

/// One cell: something planted, or nothing (the unchanged run), with one seed.
struct CellJob {
  const Mutant* mutant = nullptr;
  uint64_t seed = 0;

  std::string Name() const {
    return fmt::format("{}-seed{}", mutant ? mutant->name : "reference", seed);
  }
};

/// What one job leaves on disk, read back: the judge sees nothing else.
struct Traces {
  compare::Run run;
  gate::Probe probe;
};

class KillMatrixRunner {
 public:
  KillMatrixRunner(const KillMatrixPlan& plan, const std::atomic<bool>& stop);

  KillMatrixResult Run();

 private:
  std::vector<CellJob> Jobs() const;
  uint64_t BenignSeed(size_t variant) const {
    return plan_.seeds[variant % plan_.seeds.size()];
  }
  std::filesystem::path CellPath(const CellJob& job) const {
    return plan_.folder / "cells" / (job.Name() + ".json");
  }

  bool MakeUnchanged();
  bool MakeBaselines();
  bool MakeMlperfReferences();
  void RequireSoundEvidence() const;
  bool MakeCells();
  runlog::RunLog KeptRun(const train::Arm& arm, uint64_t seed,
                         Executor& executor) const;
  int64_t PartingStep(const CellJob& job, const runlog::RunLog& log) const;
  int64_t PlainSteps(const CellJob& job, const runlog::RunLog& log) const;
  Traces Make(const CellJob& job, Executor& executor) const;
  KillCell JudgeJob(const CellJob& job, Executor& executor) const;
  KillCell JudgeTraces(const CellJob& job, const Traces& traces) const;
  const compare::Run& BaselineOf(uint64_t seed) const;
  const Traces& UnchangedOf(uint64_t seed) const;
  /// Keeps pointers to `run` and the baseline.
  compare::Pairing PairWithBaseline(uint64_t seed,
                                    const compare::Run& run) const {
    return compare::PairBySeed(plan_.BaselineArm().name, {&BaselineOf(seed)},
                               plan_.arm.name, {&run});
  }
  KillCell ReadCell(const CellJob& job) const;
  KillMatrix Assemble() const;
  KillRow MakeRow(const Mutant& mutant) const;
  bool MlperfAccepts(const KillRow& row) const;

  const KillMatrixPlan& plan_;
  const std::atomic<bool>& stop_;
  const corpus::Corpus corpus_;
  std::vector<Mutant> variants_;
  std::vector<Traces> unchanged_;                       // of plan_.seeds
  std::vector<compare::Run> baselines_;                 // of the reference arm
  std::vector<std::vector<double>> mlperf_references_;  // loss curves
  double unchanged_seconds_ = 0;
};

}  // namespace isoloss::qualification
