#include "isoloss/studies/ladder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "isoloss/base/atomic_file.h"
#include "isoloss/base/build_info.h"
#include "isoloss/base/digest.h"
#include "isoloss/base/error.h"
#include "isoloss/campaign/arm_roles.h"
#include "isoloss/campaign/plan_file.h"
#include "isoloss/config/writer.h"
#include "isoloss/report/ladder.h"
#include "isoloss/scaling/size_text.h"
#include "isoloss/studies/rung_model.h"

namespace isoloss::studies {
namespace {

/// Of its steps a rung warms up at most in so many.
constexpr int64_t kWarmupShare = 10;
constexpr double kSecondsOfAMinute = 60;
/// A held-out loss of fewer sequences is noisier than the seeds are.
constexpr size_t kEvaluatedSequences = 64;
/// Repeated more often, tokens teach less (Muennighoff et al., 2305.16264).
constexpr double kMostReadings = 4;

/// One rung's experiment.
train::Experiment RungExperiment(const train::Experiment& base,
                                 const LadderRung& rung,
                                 const model::ModelConfig& model, size_t seeds,
                                 size_t held_out_tokens) {
  train::Experiment experiment = base;
  experiment.name = base.name + "-" + rung.name;
  experiment.model = model;
  train::TrainConfig& train = experiment.train;
  const auto tokens_per_step = static_cast<double>(train.sequences_per_batch *
                                                   base.data.sequence_length);
  train.steps = std::max<int64_t>(
      1, std::llround(std::ceil(rung.size.tokens / tokens_per_step)));
  train.warmup_steps = std::min(train.warmup_steps, train.steps / kWarmupShare);
  train.lr = rung.lr;
  train.seeds = ConsecutiveSeeds(base, seeds);
  LogLossesOnly(experiment);
  const size_t held_out_sequences =
      (held_out_tokens - 1) / base.data.sequence_length;
  experiment.log.eval_sequences =
      std::max(experiment.log.eval_sequences,
               std::min(kEvaluatedSequences, held_out_sequences));
  return experiment;
}

void CheckRequest(const LadderRequest& request,
                  const train::Experiment& experiment) {
  if (experiment.arms.size() < 2) {
    ThrowError(ErrorKind::kConfig,
               "{}: `arms` holds {} alone, but a ladder compares arms. Add an "
               "arm.",
               experiment.path.string(), experiment.arms.front().name);
  }
  CheckSeeds("ladder", request.seeds);
  if (!(request.margin_percent > 0 && request.margin_percent < 100)) {
    ThrowError(ErrorKind::kConfig,
               "ladder: the margin is {} %, but it must be above 0 and below "
               "100. Give --margin 0.25.",
               request.margin_percent);
  }
  for (size_t i = 0; i < request.sizes.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const scaling::Size& a = request.sizes[i];
      const scaling::Size& b = request.sizes[j];
      if (a.parameters != b.parameters || a.tokens != b.tokens) continue;
      ThrowError(ErrorKind::kConfig,
                 "ladder: --at {} was given twice. Give it once.",
                 scaling::SizeText(a));
    }
  }
  for (const auto& [option, values] :
       {std::pair("--parameters", &request.parameters_in_millions),
        std::pair("--tokens-per-parameter", &request.tokens_per_parameter)}) {
    for (const double value : *values) {
      if (value > 0 && value <= kLargestFactor &&
          std::ranges::count(*values, value) == 1) {
        continue;
      }
      ThrowError(ErrorKind::kConfig,
                 "ladder: {} {} was given, but each of them must be above 0, "
                 "at most {:g}, and be given once.",
                 option, value, kLargestFactor);
    }
  }
}

/// Sizes and seeds of --quick, which tell nothing of large models.
void MakeQuick(LadderPlan& plan) {
  plan.request.parameters_in_millions = {0.1, 0.2, 0.34};
  plan.request.tokens_per_parameter = {1};
  plan.request.seeds = 4;
  plan.notes.push_back(
      "--quick trains three tiny sizes of 1 token a parameter: it shows that "
      "the ladder works, and nothing of large models. So its exit code is 4.");
}

/// Leaves out what the budget does not hold, from the most expensive one on.
void ChooseAffordable(LadderPlan& plan) {
  const std::filesystem::path kept_plan =
      plan.study.folder / campaign::kPlanFile;
  const bool chosen =
      (!plan.request.budget_minutes || !plan.request.estimate) &&
      std::filesystem::exists(kept_plan) &&
      campaign::PlanDifference(kept_plan, plan.study.plan).empty();
  const double minutes = plan.request.budget_minutes.value_or(kBudgetMinutes);
  double seconds = 0;
  std::vector<std::string> left_out;
  std::vector<StudyCell> kept;
  for (size_t i = 0; i < plan.rungs.size(); ++i) {
    LadderRung& rung = plan.rungs[i];
    StudyCell& cell = plan.study.cells[i];
    rung.affordable =
        std::filesystem::exists(plan.study.FolderOf(cell)) ||
        (!chosen && (minutes == 0 ||
                     seconds + rung.seconds <= minutes * kSecondsOfAMinute));
    if (rung.affordable) {
      seconds += rung.seconds;
      kept.push_back(std::move(cell));
    } else {
      left_out.push_back(rung.name);
    }
  }
  plan.study.cells = std::move(kept);
  if (plan.study.cells.empty()) {
    ThrowError(ErrorKind::kConfig,
               "ladder: no size fits --budget {:g}; the cheapest takes {:.2g} "
               "minutes. Give more, or fewer --seeds.",
               minutes, plan.rungs.front().seconds / kSecondsOfAMinute);
  }
  if (left_out.empty()) return;
  plan.notes.push_back(fmt::format(
      "{} of {} sizes are left out, as they {}: {}. Give --budget 0 to train "
      "all of them.",
      left_out.size(), plan.rungs.size(),
      chosen ? "were when this ladder began"
             : fmt::format("would take more than {:g} minutes here", minutes),
      fmt::join(left_out, ", ")));
}

std::string PlanText(const LadderPlan& plan) {
  Digest digest;
  digest.Update(plan.base.TomlWithoutSeeds());
  config::Writer text;
  text.Text("study", "ladder");
  text.Text("version", GetBuildInfo().version);
  text.Text("experiment", DigestToHex(digest.Value()));
  std::vector<std::string> rungs;
  for (const LadderRung& rung : plan.rungs) rungs.push_back(rung.name);
  text.Texts("sizes", rungs);
  return text.text();
}

/// How a run ended.
struct RunEnd {
  std::optional<double> loss;  // held-out
  bool diverged = false;
};
using EndsBySeed = std::map<int64_t, RunEnd>;

/// One rung's runs, by arm.
std::map<std::string, EndsBySeed> EndsOf(const Study& study,
                                         const StudyCell& cell) {
  std::map<std::string, EndsBySeed> ends;
  for (const compare::Run& run : RunsOf(study, cell)) {
    const runlog::Provenance& provenance = run.log.provenance;
    ends[provenance.arm][provenance.seed] = {FinalLoss(run.log),
                                             Diverged(run.log)};
  }
  return ends;
}

/// Adds a rung to an arm: the seeds that both arms ended with a loss. Seeds
/// that are missing, or that diverged in this arm alone, leave a doubt.
void AddRung(const LadderRung& rung, const std::vector<uint64_t>& seeds,
             const EndsBySeed& baseline, const EndsBySeed& ends,
             scaling::LadderArm& arm) {
  scaling::GapCell cell{
      .name = rung.name, .size = rung.size, .gaps = {}, .baseline = {}};
  size_t diverged = 0;
  size_t missing = 0;
  for (const uint64_t seed : seeds) {
    const auto ours = ends.find(static_cast<int64_t>(seed));
    const auto theirs = baseline.find(static_cast<int64_t>(seed));
    if (ours == ends.end() || theirs == baseline.end()) {
      ++missing;
      continue;
    }
    if (ours->second.diverged && !theirs->second.diverged) ++diverged;
    if (!ours->second.loss || !theirs->second.loss) continue;
    cell.gaps.push_back(*ours->second.loss - *theirs->second.loss);
    cell.baseline.push_back(*theirs->second.loss);
  }
  if (diverged > 0) {
    arm.doubts.push_back(fmt::format(
        "Arm {}, size {}: {} of {} seeds diverged where the baseline did not.",
        arm.name, rung.name, diverged, seeds.size()));
  }
  if (missing > 0) {
    arm.doubts.push_back(
        fmt::format("Arm {}, size {}: {} of {} seeds are not trained yet.",
                    arm.name, rung.name, missing, seeds.size()));
  }
  if (cell.gaps.size() >= 2) arm.cells.push_back(std::move(cell));
}

scaling::ArmRole RoleOf(const campaign::ArmRoles& roles,
                        const std::string& arm) {
  if (std::ranges::count(roles.nulls, arm) > 0) return scaling::ArmRole::kNull;
  return arm == roles.control ? scaling::ArmRole::kControl
                              : scaling::ArmRole::kCandidate;
}

/// Two rungs of one model and as many tokens would be the same runs.
void RefuseTwins(const LadderPlan& plan, const LadderRung& rung) {
  for (const LadderRung& other : plan.rungs) {
    const bool same = other.size.parameters == rung.size.parameters &&
                      other.size.tokens == rung.size.tokens;
    if (!same && other.name != rung.name) continue;
    ThrowError(ErrorKind::kConfig,
               "ladder: sizes {} and {} of --parameters and "
               "--tokens-per-parameter are too near to each other: widths are "
               "multiples of 8, so that they stand for models of {:g} and "
               "{:g} parameters. Give sizes that lie farther apart.",
               other.name, rung.name, other.size.parameters,
               rung.size.parameters);
  }
}

/// All rungs with their cells, ascending in operations, and what they take.
void MakeRungs(LadderPlan& plan, size_t held_out_tokens) {
  const LadderRequest& request = plan.request;
  const model::ModelConfig& base = plan.base.model;
  for (const double millions : request.parameters_in_millions) {
    const model::ModelConfig model = ScaledModel(base, millions * 1e6);
    const double parameters = train::EstimatedParameters(model);
    for (const double ratio : request.tokens_per_parameter) {
      const LadderRung rung{
          .name = fmt::format("{}-{:g}", scaling::NumberText(millions * 1e6),
                              ratio),
          .size = {parameters, ratio * parameters},
          .lr = TransferredRate(plan.base.train.lr, base, model)};
      RefuseTwins(plan, rung);
      plan.study.cells.push_back(
          {.name = rung.name,
           .experiment = RungExperiment(plan.base, rung, model, request.seeds,
                                        held_out_tokens)});
      plan.rungs.push_back(rung);
    }
  }
  if (request.estimate) EstimateStudy(plan.study.cells);
  std::vector<std::pair<LadderRung, StudyCell>> ordered;
  for (size_t i = 0; i < plan.rungs.size(); ++i) {
    plan.rungs[i].seconds = plan.study.cells[i].seconds;
    ordered.emplace_back(plan.rungs[i], plan.study.cells[i]);
  }
  std::ranges::stable_sort(
      ordered, {}, [](const auto& rung) { return rung.first.size.Flops(); });
  for (size_t i = 0; i < ordered.size(); ++i) {
    std::tie(plan.rungs[i], plan.study.cells[i]) = std::move(ordered[i]);
  }
}

/// Of a rung that is left out, what it would take.
std::string CostOfRung(const LadderPlan& plan, const LadderRung& rung) {
  const auto cell =
      std::ranges::find(plan.study.cells, rung.name, &StudyCell::name);
  return cell == plan.study.cells.end() ? CostText(rung.seconds)
                                        : CostText(plan.study, *cell);
}

}  // namespace

LadderPlan PlanLadder(const LadderRequest& given) {
  LadderPlan plan;
  LadderRequest& request = plan.request;
  request = given;
  if (request.quick) MakeQuick(plan);
  plan.base = request.source.Load();
  CheckRequest(request, plan.base);
  plan.study.kind = "ladder";
  plan.study.folder =
      StudyFolder(plan.base.name, "ladder", request.quick, request.out);
  const corpus::Corpus corpus = train::LoadCorpusOf(plan.base);
  MakeRungs(plan, corpus.held_out().count);
  plan.study.plan = PlanText(plan);
  ChooseAffordable(plan);
  if (plan.study.cells.size() < scaling::kCellsOfALaw) {
    plan.notes.push_back(fmt::format(
        "A law takes {} sizes, so that nothing will be predicted. Give more "
        "--parameters or --tokens-per-parameter, or a larger --budget.",
        scaling::kCellsOfALaw));
  }
  for (const LadderRung& rung : plan.rungs) {
    const double readings =
        rung.size.tokens / static_cast<double>(corpus.size());
    if (!rung.affordable || readings <= kMostReadings) continue;
    plan.notes.push_back(fmt::format(
        "Size {} reads each token of the corpus {:.1f} times; beyond {:g} "
        "times repeated tokens teach less. Give a larger corpus.",
        rung.name, readings, kMostReadings));
  }
  return plan;
}

std::string DescribePlan(const LadderPlan& plan) {
  std::string text =
      fmt::format("{:<12} {:>10} {:>10} {:>10} {:>8} {:>10}\n", "size",
                  "parameters", "tokens", "steps", "lr", "time");
  for (const LadderRung& rung : plan.rungs) {
    const auto tokens_per_step = static_cast<double>(
        plan.base.train.sequences_per_batch * plan.base.data.sequence_length);
    text += fmt::format("{:<12} {:>10} {:>10} {:>10.0f} {:>8.2g} {:>10}{}\n",
                        rung.name, scaling::NumberText(rung.size.parameters),
                        scaling::NumberText(rung.size.tokens),
                        std::ceil(rung.size.tokens / tokens_per_step), rung.lr,
                        CostOfRung(plan, rung),
                        rung.affordable ? "" : "  left out");
  }
  text += fmt::format("{} arms x {} seeds of each, in all: {}.\n",
                      plan.base.arms.size(), plan.request.seeds,
                      CostText(plan.study));
  for (const std::string& note : plan.notes) text += note + "\n";
  return text;
}

scaling::LadderStatement JudgeLadder(const LadderPlan& plan) {
  const campaign::ArmRoles roles = campaign::RolesOf(plan.base);
  const std::string& baseline = plan.base.arms.front().name;
  std::vector<scaling::LadderArm> arms;
  for (size_t i = 1; i < plan.base.arms.size(); ++i) {
    const train::Arm& arm = plan.base.arms[i];
    arms.push_back({.name = arm.name,
                    .recipe = arm.recipe,
                    .role = RoleOf(roles, arm.name)});
  }
  bool trained = false;
  for (const StudyCell& cell : plan.study.cells) {
    const auto rung =
        std::ranges::find(plan.rungs, cell.name, &LadderRung::name);
    std::map<std::string, EndsBySeed> ends = EndsOf(plan.study, cell);
    trained = trained || !ends.empty();
    for (scaling::LadderArm& arm : arms) {
      AddRung(*rung, cell.experiment.train.seeds, ends[baseline],
              ends[arm.name], arm);
    }
  }
  if (!trained) ThrowNothingToJudge(plan.study);
  scaling::LadderStatement statement =
      scaling::StateLadder(plan.base.name, baseline, arms,
                           {.sizes = plan.request.sizes,
                            .margin_percent = plan.request.margin_percent});
  statement.notes.insert(statement.notes.begin(), plan.notes.begin(),
                         plan.notes.end());
  return statement;
}

void WriteLadder(const LadderPlan& plan,
                 const scaling::LadderStatement& statement) {
  WriteFileAtomically(plan.study.folder / "ladder.json",
                      report::RenderLadderJson(statement));
  WriteFileAtomically(plan.study.folder / "ladder.svg",
                      report::RenderLadderSvg(statement));
}

}  // namespace isoloss::studies
