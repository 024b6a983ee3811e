#include "isoloss/studies/claim.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

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

bool Uses(const Contrast& contrast, const std::string& cell) {
  return contrast.measure == Measure::kParameterFactor ||
         contrast.cell == cell ||
         (contrast.measure == Measure::kInteraction &&
          contrast.other_cell == cell);
}

/// Arms of a cell that contrasts name.
std::set<std::string> ArmsOf(const claims::Claim& claim,
                             const std::string& cell) {
  std::set<std::string> arms;
  for (const Contrast& contrast : claim.contrasts) {
    const bool first =
        contrast.measure == Measure::kParameterFactor || contrast.cell == cell;
    if (first) arms.insert({contrast.arm, contrast.reference});
    if (contrast.measure == Measure::kInteraction &&
        contrast.other_cell == cell) {
      arms.insert({contrast.other_arm, contrast.other_reference});
    }
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
void CheckShares(const claims::Claim& claim, const std::string& cell,
                 const std::string& where, int64_t steps, int64_t every) {
  for (const Contrast& contrast : claim.contrasts) {
    if (!Uses(contrast, cell)) continue;
    for (const double share : {contrast.at, contrast.from}) {
      const int64_t step = std::llround(share * static_cast<double>(steps));
      if (step == steps || step % every == 0) continue;
      ThrowError(ErrorKind::kConfig,
                 "{}: contrast {} reads losses at step {} of {}, but "
                 "they are measured every {} steps. Set log.eval_every of an "
                 "experiment to a divisor of both; a student's are measured "
                 "after each tenth.",
                 where, contrast.name, step, steps, every);
    }
  }
}

StudyCell StudyCellOf(const ClaimRequest& request, const claims::Claim& claim,
                      const claims::Cell& cell,
                      const train::Experiment& loaded) {
  StudyCell result{.name = cell.name, .experiment = loaded};
  train::Experiment& experiment = result.experiment;
  experiment.name = NameOf(request.folder) + "-" + cell.name;
  KeepArms(ArmsOf(claim, cell.name), experiment);
  if (request.seeds) {
    experiment.train.seeds = ConsecutiveSeeds(experiment, *request.seeds);
  }
  if (!cell.stress.empty()) {
    ApplyStress(StressModeByName(cell.stress), result);
  }
  LogNoTensors(experiment);  // A claim reads losses only.
  CheckShares(claim, cell.name, experiment.path.string(),
              experiment.train.steps, experiment.log.eval_every);
  return result;
}

std::string ClaimPlanText(const ClaimPlan& plan) {
  Digest digest;
  for (const StudyCell& cell : plan.study.cells) {
    digest.Update(cell.name);
    digest.Update(cell.experiment.TomlWithoutSeeds());
  }
  for (const claims::Cell& cell : plan.claim.cells) digest.Update(cell.stress);
  for (const StudentCell& cell : plan.students) {
    digest.Update(StudentText(cell));
  }
  config::Writer text;
  text.Text("study", "claim");
  text.Text("version", GetBuildInfo().version);
  text.Text("experiments", DigestToHex(digest.Value()));
  return text.text();
}

/// Reads the student of a cell; its seeds as asked for.
StudentCell StudentCellOf(const ClaimRequest& request,
                          const claims::Claim& claim,
                          const claims::Cell& cell) {
  const std::set<std::string> arms = ArmsOf(claim, cell.name);
  StudentCell result{.name = cell.name,
                     .student = *cell.student,
                     .arms = {arms.begin(), arms.end()}};
  if (request.seeds) result.student.seeds = *request.seeds;
  CheckStudentCell(result);
  CheckShares(claim, cell.name, "claim: cell " + cell.name,
              result.student.steps, result.student.steps / 10);
  return result;
}

/// Half-width of a t interval of n seeds in standard deviations.
double HalfWidth(size_t seeds, double alpha) {
  const auto count = static_cast<double>(seeds);
  return stats::StudentTQuantile(1 - alpha / 2, count - 1) / std::sqrt(count);
}

/// What fewer seeds can't show.
std::string FewerSeedsNote(const claims::Claim& claim, size_t own,
                           size_t given) {
  const double alpha =
      (1 - claims::kClaimConfidence) / static_cast<double>(claim.Deciding());
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

fs::path FolderOf(const ClaimPlan& plan, const StudentCell& cell) {
  return plan.study.folder / "cells" / cell.name;
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
    if (ArmsOf(plan.claim, cell.name).empty()) {
      ThrowError(ErrorKind::kConfig,
                 "{}: no contrast reads cell {}. Remove it.", file.string(),
                 cell.name);
    }
    if (cell.student) {
      plan.students.push_back(StudentCellOf(request, plan.claim, cell));
      own_seeds = std::max(own_seeds, cell.student->seeds);
      continue;
    }
    const train::Experiment loaded =
        campaign::ExperimentSource{
            .file = (request.folder / cell.experiment).string(),
            .overrides = cell.overrides}
            .Load();
    own_seeds = std::max(own_seeds, loaded.train.seeds.size());
    plan.study.cells.push_back(StudyCellOf(request, plan.claim, cell, loaded));
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
  for (StudentCell& cell : plan.students) EstimateStudent(cell);
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
        fmt::format("{:<14} {:>5.1f} minutes  {} steps, {} seeds of {}\n",
                    cell.name, cell.seconds / 60, cell.experiment.train.steps,
                    cell.experiment.train.seeds.size(), fmt::join(arms, ", "));
  }
  double seconds = plan.study.Seconds();
  for (const StudentCell& cell : plan.students) {
    text += fmt::format("{:<14} {:>5.1f} minutes  {} steps, {} seeds of {}\n",
                        cell.name, cell.seconds / 60, cell.student.steps,
                        cell.student.seeds, fmt::join(cell.arms, ", "));
    seconds += cell.seconds;
  }
  text += fmt::format("{:.1f} minutes in all.\n", seconds / 60);
  for (const std::string& note : plan.notes) text += note + "\n";
  return text;
}

bool TrainClaim(const ClaimPlan& plan) {
  if (!TrainStudy(plan.study)) return false;
  for (const StudentCell& cell : plan.students) {
    if (!TrainStudents(cell, FolderOf(plan, cell))) return false;
  }
  return true;
}

claims::ClaimResult JudgeClaim(const ClaimPlan& plan) {
  std::vector<claims::CellCurves> cells;
  for (const StudentCell& cell : plan.students) {
    cells.push_back(ReadStudents(cell, FolderOf(plan, cell)));
  }
  for (const StudyCell& cell : plan.study.cells) {
    const train::Experiment& experiment = cell.experiment;
    std::map<std::string, std::vector<claims::RunCurve>> by_arm;
    for (const compare::Run& run : RunsOf(plan.study, cell)) {
      by_arm[run.log.provenance.arm].push_back(CurveOf(run.log));
    }
    if (by_arm.empty()) continue;
    const auto tokens_per_step = static_cast<double>(
        experiment.train.sequences_per_batch * experiment.data.sequence_length);
    claims::CellCurves curves{
        .name = cell.name,
        .steps = experiment.train.steps,
        .seeds = experiment.train.seeds.size(),
        .parameters = train::EstimatedParameters(experiment.model),
        .tokens =
            tokens_per_step * static_cast<double>(experiment.train.steps)};
    for (auto& entry : by_arm) {
      curves.arms.push_back({entry.first, std::move(entry.second)});
    }
    cells.push_back(std::move(curves));
  }
  if (cells.empty()) ThrowNothingToJudge(plan.study);
  return claims::JudgeClaim(plan.claim, cells);
}

void WriteClaim(const ClaimPlan& plan, const claims::ClaimResult& result) {
  WriteFileAtomically(plan.study.folder / "claim.json",
                      report::RenderClaimJson(result));
  WriteFileAtomically(plan.study.folder / "claim.svg",
                      report::RenderClaimSvg(result));
}

}  // namespace isoloss::studies
