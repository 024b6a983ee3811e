#include "isoloss/studies/claim.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string_view>

#include "isoloss/base/atomic_file.h"
#include "isoloss/base/build_info.h"
#include "isoloss/base/digest.h"
#include "isoloss/base/error.h"
#include "isoloss/base/text_file.h"
#include "isoloss/campaign/experiment_source.h"
#include "isoloss/claims/claim_file.h"
#include "isoloss/config/writer.h"
#include "isoloss/report/claim.h"
#include "isoloss/stats/fisher_exact.h"
#include "isoloss/stats/student_t.h"
#include "isoloss/studies/stress_modes.h"
#include "isoloss/studies/student_cells.h"

namespace isoloss::studies {
namespace {

namespace fs = std::filesystem;
using claims::Contrast;
using claims::Measure;

/// The folder's name, of "published/floor/" too.
std::string NameOf(const fs::path& folder) {
  fs::path path = fs::absolute(folder).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  return path.filename().string();
}

/// Arms of a cell that contrasts name.
std::set<std::string> ArmsOf(const claims::Claim& claim,
                             const std::string& cell) {
  std::set<std::string> arms;
  for (const Contrast& contrast : claim.contrasts) {
    arms.merge(claims::ArmsIn(contrast, cell));
  }
  return arms;
}

/// Leaves the named arms; refuses a name without one.
void KeepArms(const std::set<std::string>& names,
              train::Experiment& experiment) {
  std::vector<std::string> known;
  for (const train::Arm& arm : experiment.arms) known.push_back(arm.name);
  for (const std::string& name : names) {
    if (std::ranges::count(known, name) > 0) continue;
    ThrowError(ErrorKind::kConfig,
               "{}: a contrast names arm {}, but the experiment has {}. "
               "Correct the name.",
               experiment.path.string(), name, fmt::join(known, ", "));
  }
  std::erase_if(experiment.arms, [&](const train::Arm& arm) {
    return !names.contains(arm.name);
  });
}

/// Refuses a share of the steps at which no loss is measured.
void CheckShares(const claims::Claim& claim, const StudyCell& cell) {
  const int64_t steps = cell.experiment.train.steps;
  for (const Contrast& contrast : claim.contrasts) {
    if (claims::ArmsIn(contrast, cell.name).empty()) continue;
    for (const double share : {contrast.at, contrast.from}) {
      const int64_t step = std::llround(share * static_cast<double>(steps));
      if (step == steps || step % cell.experiment.log.eval_every == 0) continue;
      ThrowError(ErrorKind::kConfig,
                 "claim: contrast {} reads losses of cell {} at step {} of {}, "
                 "but they are measured every {} steps. Set log.eval_every of "
                 "an experiment to a divisor of both; a student's are measured "
                 "after each tenth.",
                 contrast.name, cell.name, step, steps,
                 cell.experiment.log.eval_every);
    }
  }
}

/// A cell that trains the experiment of `cell`.
StudyCell ExperimentCell(const fs::path& folder, const claims::Cell& cell,
                         const std::set<std::string>& arms) {
  StudyCell result{.name = cell.name,
                   .experiment =
                       campaign::ExperimentSource{
                           .file = (folder / cell.experiment).string(),
                           .overrides = cell.overrides}
                           .Load()};
  train::Experiment& experiment = result.experiment;
  experiment.name = NameOf(folder) + "-" + cell.name;
  KeepArms(arms, experiment);
  if (!cell.stress.empty()) {
    ApplyStress(StressModeByName(cell.stress), result);
  }
  LogNoTensors(experiment);  // A claim reads losses only.
  return result;
}

std::string ClaimPlanText(const ClaimPlan& plan) {
  // Neither names nor TOML hold a zero.
  constexpr std::string_view kSeparator("\0", 1);
  Digest digest;
  for (size_t i = 0; i < plan.claim.cells.size(); ++i) {
    const claims::Cell& cell = plan.claim.cells[i];
    const std::string trained =
        cell.student ? StudentText(cell)
                     : plan.study.cells[i].experiment.TomlWithoutSeeds();
    for (const std::string& text : {cell.name, cell.stress, trained}) {
      digest.Update(text);
      digest.Update(kSeparator);
    }
  }
  config::Writer text;
  text.Text("study", "claim");
  text.Text("version", GetBuildInfo().version);
  text.Text("experiments", DigestToHex(digest.Value()));
  return text.text();
}

/// Half-width of a t interval of n seeds in standard deviations.
double HalfWidth(size_t seeds, double alpha) {
  const auto count = static_cast<double>(seeds);
  return stats::StudentTQuantile(1 - alpha / 2, count - 1) / std::sqrt(count);
}

/// What fewer seeds can't show.
std::string FewerSeedsNote(const claims::Claim& claim, size_t own,
                           size_t given) {
  const double alpha = claim.Error();
  std::string note = fmt::format(
      "{} seeds instead of {}: intervals of gaps are about {:.1f} times as "
      "wide.",
      given, own, HalfWidth(given, alpha) / HalfWidth(own, alpha));
  // All runs of one arm against none of the other.
  const auto n = static_cast<int64_t>(given);
  const double least = stats::FisherExactGreater(n, n, 0, n);
  const bool rates = std::ranges::count(claim.contrasts, Measure::kDivergence,
                                        &Contrast::measure) > 0;
  if (rates && least >= alpha / 2) {
    note += fmt::format(
        " No rates of divergence can be told apart: p is {:.2g} at best, and "
        "must be below {:.2g}.",
        least, alpha / 2);
  }
  return note;
}

claims::RunCurve CurveOf(const runlog::RunLog& log) {
  claims::RunCurve curve{.seed = log.provenance.seed};
  curve.diverged = Diverged(log);
  for (size_t i = 0; i < log.eval.step.size(); ++i) {
    curve.losses.emplace_back(log.eval.step[i], log.eval.loss_nats[i]);
  }
  return curve;
}

using CurvesByArm = std::map<std::string, std::vector<claims::RunCurve>>;

CurvesByArm ReadExperiments(const Study& study, const StudyCell& cell) {
  CurvesByArm by_arm;
  for (const compare::Run& run : RunsOf(study, cell)) {
    by_arm[run.log.provenance.arm].push_back(CurveOf(run.log));
  }
  return by_arm;
}

/// Without runs of arms that there are none of.
claims::CellCurves CurvesOf(const Study& study, const StudyCell& cell) {
  const train::Experiment& experiment = cell.experiment;
  const auto tokens_per_step = static_cast<double>(
      experiment.train.sequences_per_batch * experiment.data.sequence_length);
  claims::CellCurves curves{
      .name = cell.name,
      .steps = experiment.train.steps,
      .seeds = experiment.train.seeds.size(),
      .parameters = train::EstimatedParameters(experiment.model),
      .tokens = tokens_per_step * static_cast<double>(experiment.train.steps)};
  CurvesByArm by_arm = cell.execute ? ReadStudents(cell, study.FolderOf(cell))
                                    : ReadExperiments(study, cell);
  for (auto& entry : by_arm) {
    curves.arms.push_back({entry.first, std::move(entry.second)});
  }
  return curves;
}

}  // namespace

ClaimPlan ReadClaimPlan(const ClaimRequest& request) {
  ClaimPlan plan;
  plan.request = request;
  const fs::path file = request.folder / kClaimFile;
  plan.claim = claims::ParseClaim(
      ReadTextFile(file, "Give a folder that holds a claim.toml.",
                   claims::kMaxClaimBytes),
      file.string());
  plan.study.kind = "claim";
  plan.study.folder =
      request.out.empty()
          ? fs::path("runs") / ("claim-" + NameOf(request.folder))
          : request.out;
  size_t own_seeds = 0;
  for (const claims::Cell& cell : plan.claim.cells) {
    const std::set<std::string> arms = ArmsOf(plan.claim, cell.name);
    if (arms.empty()) {
      ThrowError(ErrorKind::kConfig,
                 "{}: no contrast reads cell {}. Remove it.", file.string(),
                 cell.name);
    }
    StudyCell read = cell.student ? StudentCell(cell, arms)
                                  : ExperimentCell(request.folder, cell, arms);
    std::vector<uint64_t>& seeds = read.experiment.train.seeds;
    own_seeds = std::max(own_seeds, seeds.size());
    if (request.seeds) {
      seeds = ConsecutiveSeeds(read.experiment, *request.seeds);
    }
    CheckShares(plan.claim, read);
    plan.study.cells.push_back(std::move(read));
  }
  if (request.seeds && *request.seeds >= 2 && *request.seeds < own_seeds) {
    plan.notes.push_back(FewerSeedsNote(plan.claim, own_seeds, *request.seeds));
  }
  plan.study.plan = ClaimPlanText(plan);
  return plan;
}

ClaimPlan PlanClaim(const ClaimRequest& request) {
  ClaimPlan plan = ReadClaimPlan(request);
  EstimateStudy(plan.study.cells);
  EstimateStudents(plan.claim.cells, plan.study.cells);
  return plan;
}

std::string DescribePlan(const ClaimPlan& plan) {
  std::string text = plan.claim.title + "\n";
  for (const StudyCell& cell : plan.study.cells) {
    std::vector<std::string> arms;
    for (const train::Arm& arm : cell.experiment.arms) {
      arms.push_back(arm.name);
    }
    text +=
        fmt::format("{:<14} {:>20}  {} steps, {} seeds of {}\n", cell.name,
                    CostText(plan.study, cell), cell.experiment.train.steps,
                    cell.experiment.train.seeds.size(), fmt::join(arms, ", "));
  }
  text += fmt::format("In all: {}.\n", CostText(plan.study));
  for (const std::string& note : plan.notes) text += note + "\n";
  return text;
}

claims::ClaimResult JudgeClaim(const ClaimPlan& plan) {
  std::vector<claims::CellCurves> cells;
  for (const StudyCell& cell : plan.study.cells) {
    cells.push_back(CurvesOf(plan.study, cell));
  }
  if (std::ranges::all_of(cells, [](const claims::CellCurves& cell) {
        return cell.arms.empty();
      })) {
    ThrowNothingToJudge(plan.study);
  }
  return claims::JudgeClaim(plan.claim, cells);
}

void WriteClaim(const ClaimPlan& plan, const claims::ClaimResult& result) {
  WriteFileAtomically(plan.study.folder / "claim.json",
                      report::RenderClaimJson(result));
  WriteFileAtomically(plan.study.folder / "claim.svg",
                      report::RenderClaimSvg(result));
}

}  // namespace isoloss::studies
