#include "isoloss/campaign/kill_matrix_folder.h"

#include "isoloss/base/atomic_file.h"
#include "isoloss/base/build_info.h"
#include "isoloss/base/digest.h"
#include "isoloss/base/error.h"
#include "isoloss/base/executor.h"
#include "isoloss/campaign/kill_matrix_plan.h"
#include "isoloss/campaign/output_file.h"
#include "isoloss/campaign/plan_file.h"
#include "isoloss/config/writer.h"
#include "isoloss/report/kill_matrix.h"
#include "isoloss/train/numerics_digest.h"

namespace isoloss::campaign {
namespace {

namespace fs = std::filesystem;

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
  // What this build computes on this machine: others may share the folder.
  Executor executor(1);
  plan.Text("numerics",
            DigestToHex(train::NumericsDigest(matrix.arm, executor)));
  plan.Text("plan", DigestToHex(digest.Value()));
  plan.Text("ensemble",
            matrix.ensemble ? matrix.ensemble->ensemble.digest : "");
  return plan.text();
}

}  // namespace

void PrepareKillMatrixFolder(const KillMatrixPlan& matrix) {
  const fs::path path = matrix.folder / kPlanFile;
  const std::string plan = PlanText(matrix);
  CheckOutput(path, {}, "plan of a kill matrix",
              [&](const fs::path& file) { return HasKeysOfPlan(file, plan); });
  for (const char* result :
       {"kill_matrix.json", "kill_matrix.svg", "power.json"}) {
    if (fs::exists(path) || !fs::exists(matrix.folder / result)) continue;
    ThrowError(ErrorKind::kConfig,
               "{}: it is there without the plan.toml of a kill matrix that it "
               "would be of, so it is not replaced. Give another folder with "
               "--out.",
               (matrix.folder / result).string());
  }
  fs::create_directories(matrix.folder / "cells");
  fs::create_directories(matrix.folder / "work");
  if (!fs::exists(path) || fs::is_empty(matrix.folder / "cells")) {
    WriteFileAtomically(path, plan);
    return;
  }
  const std::string difference = PlanDifference(path, plan);
  if (difference.empty()) return;
  ThrowError(ErrorKind::kConfig,
             "{}: it holds cells of another plan, which differs in {} (plan: "
             "experiment or policy), but all cells of a matrix must be of one. "
             "Give another folder with --out, or remove this one.",
             matrix.folder.string(), difference);
}

std::string WriteKillMatrix(const KillMatrixPlan& plan,
                            const gate::KillMatrix& matrix) {
  WriteFileAtomically(plan.folder / "kill_matrix.json",
                      report::RenderKillMatrixJson(matrix));
  WriteFileAtomically(plan.folder / "kill_matrix.svg",
                      report::RenderKillMatrixSvg(matrix));
  const std::string files = "kill_matrix.json, kill_matrix.svg";
  if (!MeasuresTheGate(plan)) {
    return files + "; no power.json: that takes all mutants and --benign runs";
  }
  gate::WritePowerRecord(PowerOf(plan, matrix), plan.folder / "power.json");
  return files + ", power.json";
}

}  // namespace isoloss::campaign
