#include "isoloss/studies/stress.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "isoloss/base/atomic_file.h"
#include "isoloss/base/build_info.h"
#include "isoloss/base/digest.h"
#include "isoloss/base/error.h"
#include "isoloss/config/writer.h"
#include "isoloss/report/stress.h"
#include "isoloss/studies/indicator_recorder.h"
#include "isoloss/studies/stress_modes.h"

namespace isoloss::studies {
namespace {

constexpr const char* kGoodRecipe = "mxfp8_rceil";
constexpr std::array kBadRecipes = {"mxfp8_floor", "mxfp8_e5m2_grads",
                                    "mxfp4_floor",
                                    "deepseek_v3_fp8_block_grads"};

/// Steps that recording one takes besides: a recorded step took 2.2 (BF16) to
/// 2.6 times (MXFP8) as long as another step.
constexpr double kRecordingCost = 1.5;

/// The arm of a recipe, which is added if there is none.
std::string ArmOfRecipe(train::Experiment& experiment,
                        const std::string& recipe) {
  for (const train::Arm& arm : experiment.arms) {
    if (arm.recipe == recipe && !arm.perturb && !arm.include && !arm.exclude) {
      return arm.name;
    }
  }
  train::Arm arm;
  arm.name = recipe;
  arm.recipe = recipe;
  arm.exchange = experiment.parallel.exchange;
  experiment.arms.push_back(arm);
  return recipe;
}

StudyCell CellOf(const StressMode& mode, const train::Experiment& base) {
  StudyCell cell{.name = std::string(mode.name), .experiment = base};
  cell.experiment.name += "-" + cell.name;
  ApplyStress(mode, cell);
  return cell;
}

/// Has all runs of the cells record indicators.
void RecordIndicatorsOf(StressPlan& plan) {
  const std::filesystem::path folder = plan.study.folder;
  const int64_t every = plan.request.indicators_every;
  for (StudyCell& cell : plan.study.cells) {
    cell.seconds *= 1 + kRecordingCost / static_cast<double>(every);
    cell.hooks = [folder, every, name = cell.name,
                  model = cell.experiment.model,
                  hooks = cell.hooks](const train::Run& run) {
      return RecordIndicators(hooks ? hooks(run) : train::RunHooks(), model,
                              every, IndicatorFile(folder, name, run.Name()));
    };
  }
}

void CheckModes(const std::vector<std::string>& modes) {
  for (const std::string& mode : modes) {
    if (std::ranges::count(modes, mode) == 1) continue;
    ThrowError(ErrorKind::kConfig,
               "stress: --mode {} was given twice. Give it once.", mode);
  }
}

std::string StressPlanText(const StressPlan& plan) {
  Digest digest;
  digest.Update(plan.base.TomlWithoutSeeds());
  config::Writer text;
  text.Text("study", "stress");
  text.Text("version", GetBuildInfo().version);
  text.Text("experiment", DigestToHex(digest.Value()));
  if (plan.request.indicators_every > 0) {
    text.Integer("indicators_every", plan.request.indicators_every);
  }
  return text.text();
}

stress::StressRun RunOf(const runlog::RunLog& log) {
  stress::StressRun run{.seed = log.provenance.seed};
  run.diverged = Diverged(log);
  run.loss = FinalLoss(log);
  return run;
}

}  // namespace

StressPlan PlanStress(const StressRequest& given) {
  StressPlan plan;
  StressRequest& request = plan.request;
  request = given;
  if (request.quick) {
    request.modes = {"plain", "lr_10", "aligned_gates"};
    request.seeds = 4;
    plan.notes.push_back(
        "--quick puts 4 seeds under 3 modes: with so few seeds no rate of "
        "divergence can be told apart from another (p is 1 / 70 at best).");
  }
  CheckSeeds("stress", request.seeds);
  CheckModes(request.modes);
  plan.base = request.source.Load();
  plan.reference = ArmOfRecipe(plan.base, kGoodRecipe);
  for (const char* recipe : kBadRecipes) {
    plan.known_bad.push_back(ArmOfRecipe(plan.base, recipe));
  }
  train::TrainConfig& train = plan.base.train;
  train.seeds = ConsecutiveSeeds(plan.base, request.seeds);
  LogLossesOnly(plan.base);
  plan.study.kind = "stress";
  plan.study.folder =
      StudyFolder(plan.base.name, "stress", request.quick, request.out);
  for (const StressMode& mode : AllStressModes()) {
    if (request.modes.empty()) {
      plan.study.cells.push_back(CellOf(mode, plan.base));
    }
  }
  for (const std::string& name : request.modes) {
    plan.study.cells.push_back(CellOf(StressModeByName(name), plan.base));
  }
  if (request.estimate) EstimateStudy(plan.study.cells);
  if (request.indicators_every > 0) RecordIndicatorsOf(plan);
  plan.study.plan = StressPlanText(plan);
  return plan;
}

std::string DescribePlan(const StressPlan& plan) {
  std::string text;
  for (const StudyCell& cell : plan.study.cells) {
    text +=
        fmt::format("{:<18} {:>8}  {}\n", cell.name, CostText(plan.study, cell),
                    StressModeByName(cell.name).what);
  }
  return text + fmt::format("{} arms x {} seeds of each, in all: {}.\n",
                            plan.base.arms.size(), plan.request.seeds,
                            CostText(plan.study));
}

stress::StressMap JudgeStress(const StressPlan& plan) {
  std::vector<stress::StressedRuns> runs;
  std::vector<std::string> missing;
  for (const StudyCell& cell : plan.study.cells) {
    std::map<std::string, std::vector<stress::StressRun>> by_arm;
    for (const compare::Run& run : RunsOf(plan.study, cell)) {
      by_arm[run.log.provenance.arm].push_back(RunOf(run.log));
    }
    if (by_arm.empty()) {
      missing.push_back(
          fmt::format("No finished run of {} is there.", cell.name));
      continue;
    }
    stress::StressedRuns of_mode{.mode = cell.name, .arms = {}};
    for (const train::Arm& arm : plan.base.arms) {
      of_mode.arms.push_back({arm.name, by_arm[arm.name]});
    }
    runs.push_back(std::move(of_mode));
  }
  if (runs.empty()) ThrowNothingToJudge(plan.study);
  stress::StressMap map = stress::MakeStressMap(
      runs, plan.base.arms.front().name, plan.reference, plan.known_bad);
  map.experiment = plan.base.name;
  map.notes.insert(map.notes.end(), missing.begin(), missing.end());
  map.notes.insert(map.notes.end(), plan.notes.begin(), plan.notes.end());
  return map;
}

void WriteStress(const StressPlan& plan, const stress::StressMap& map) {
  WriteFileAtomically(plan.study.folder / "stress.json",
                      report::RenderStressJson(map));
  WriteFileAtomically(plan.study.folder / "stress.svg",
                      report::RenderStressSvg(map));
}

}  // namespace isoloss::studies
