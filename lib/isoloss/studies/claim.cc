// isoloss study claim: tests a published claim at a size that trains here.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string_view>

#include "isoloss/base/error.h"
#include "isoloss/base/text_file.h"
#include "isoloss/device/devices.h"
#include "isoloss/estimators/claim_file.h"
#include "isoloss/estimators/claim_judge.h"
#include "isoloss/studies/documents.h"
#include "isoloss/studies/student_runs.h"
#include "isoloss/studies/study.h"
#include "isoloss/treatments/stress_modes.h"

namespace isoloss::studies {
namespace {

namespace fs = std::filesystem;
using estimators::ClaimResult;
using estimators::ClaimVerdict;
using estimators::Contrast;
using estimators::Measure;
using system::ExitCode;

/// Returns the folder's name, even if the path ends in a slash
/// ("published/floor/").
std::string NameOf(const fs::path& folder) {
  fs::path path = fs::absolute(folder).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  return path.filename().string();
}

/// Returns the arms of a cell that contrasts name.
std::set<std::string> ArmsOf(const estimators::Claim& claim,
                             const std::string& cell) {
  std::set<std::string> arms;
  for (const Contrast& contrast : claim.contrasts) {
    arms.merge(estimators::ArmsIn(contrast, cell));
  }
  return arms;
}

/// Keeps only the named arms; refuses a name without an arm.
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
void CheckShares(const estimators::Claim& claim, const Cell& cell) {
  const int64_t steps = cell.experiment.train.steps;
  for (const Contrast& contrast : claim.contrasts) {
    if (estimators::ArmsIn(contrast, cell.name).empty()) continue;
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

/// Neither names nor TOML hold a zero character.
constexpr std::string_view kSeparator("\0", 1);

/// Returns the least number of seeds that the cells of a contrast have.
size_t SeedsOf(const Contrast& contrast, const std::vector<Cell>& cells) {
  size_t least = std::numeric_limits<size_t>::max();
  for (const Cell& cell : cells) {
    if (estimators::ArmsIn(contrast, cell.name).empty()) continue;
    least = std::min(least, cell.experiment.train.seeds.size());
  }
  return least;
}

/// Returns a sentence on what the planned seeds can decide.
std::string PowerNote(const Contrast& contrast, size_t seeds, double alpha) {
  const std::string begin = fmt::format("{}, published {}: ", contrast.name,
                                        estimators::SizeText(contrast));
  const auto power =
      estimators::PowerOf(contrast, seeds, contrast.spread, alpha);
  if (!power) {
    return begin +
           "its power is not known. Train a pilot with --seeds 4, and write "
           "the "
           "spread that it finds into claim.toml.";
  }
  std::string note =
      fmt::format("{}{}", begin, PowerText(contrast, *power, seeds));
  if (power->published >= estimators::kWantedPower &&
      power->nothing >= estimators::kWantedPower) {
    return note + ".";
  }
  const auto needed = estimators::SeedsNeeded(contrast, contrast.spread, alpha);
  return note + (needed ? fmt::format(": too few, {} would do.", *needed)
                        : ": too few, and no number of seeds here would do.");
}

estimators::RunCurve CurveOf(const runlog::RunLog& log) {
  estimators::RunCurve curve{.seed = log.provenance.seed};
  curve.diverged = Diverged(log);
  for (size_t i = 0; i < log.eval.step.size(); ++i) {
    curve.losses.emplace_back(log.eval.step[i], log.eval.loss_nats[i]);
  }
  return curve;
}

using CurvesByArm = std::map<std::string, std::vector<estimators::RunCurve>>;

CurvesByArm ReadExperiments(const Plan& plan, const Cell& cell) {
  CurvesByArm by_arm;
  for (const compare::Run& run : RunsOf(plan, cell)) {
    by_arm[run.log.provenance.arm].push_back(CurveOf(run.log));
  }
  return by_arm;
}

/// Leaves out arms that have no runs. `seeds` is what the claim asks for.
estimators::CellCurves CurvesOf(const Plan& plan, const Cell& cell,
                                size_t seeds) {
  const train::Experiment& experiment = cell.experiment;
  const auto tokens_per_step = static_cast<double>(
      experiment.train.sequences_per_batch * experiment.data.sequence_length);
  estimators::CellCurves curves{
      .name = cell.name,
      .steps = experiment.train.steps,
      .seeds = std::max(seeds, experiment.train.seeds.size()),
      .parameters = train::EstimatedParameters(experiment.model),
      .tokens = tokens_per_step * static_cast<double>(experiment.train.steps)};
  CurvesByArm by_arm = cell.execute ? ReadStudents(cell, plan.FolderOf(cell))
                                    : ReadExperiments(plan, cell);
  for (auto& entry : by_arm) {
    curves.arms.push_back({entry.first, std::move(entry.second)});
  }
  return curves;
}

ExitCode ClaimCode(ClaimVerdict verdict) {
  switch (verdict) {
    case ClaimVerdict::kReproduced:
      return ExitCode::kPass;
    case ClaimVerdict::kContradicted:
      return ExitCode::kFail;
    case ClaimVerdict::kTooSmall:
    case ClaimVerdict::kAbsent:
    case ClaimVerdict::kUndecided:
      break;
  }
  return ExitCode::kInconclusive;
}

class Claim : public Study {
 public:
  std::vector<Option> Options() override {
    return {{.name = "folder",
             .value = &folder_,
             .help = "Folder of a claim.toml and its experiments",
             .type_name = "FOLDER",
             .required = true},
            {.name = "--seeds",
             .value = &seeds_,
             .help = "Train this many seeds in place of the experiments' own, "
                     "from their first on: fewer make a pilot, which "
                     "finds the spread and decides nothing",
             .least = 2,
             .most = 10'000},
            {.name = "--on",
             .value = &on_,
             .help = "Where the models compute: cpu, or gpu",
             .words = device::DeviceNames()}};
  }

  /// Leaves out arms that no contrast names.
  Plan MakePlan(const Request& request) override {
    Plan plan{.kind = "claim", .folder = request.out, .cells = {}, .text = {}};
    if (plan.folder.empty()) {
      plan.folder = fs::path("runs") / ("claim-" + NameOf(folder_));
    }
    const fs::path file = folder_ / "claim.toml";
    claim_ = estimators::ParseClaim(
        ReadTextFile(file, "Give a folder that holds a claim.toml.",
                     estimators::kMaxClaimBytes),
        file.string());
    own_seeds_.clear();
    std::string trained;  // all that runs depend on
    for (const estimators::ClaimCell& cell : claim_.cells) {
      Cell read = ReadCell(cell);
      std::vector<uint64_t>& seeds = read.experiment.train.seeds;
      own_seeds_.push_back(seeds.size());
      if (seeds_ > 0) seeds = ConsecutiveSeeds(read.experiment, seeds_);
      for (const std::string& text :
           {cell.name, cell.stress,
            cell.student ? StudentText(cell) : PlannedToml(read.experiment)}) {
        trained.append(text).append(kSeparator);
      }
      plan.cells.push_back(std::move(read));
    }
    plan.text = BeginPlanText(plan.kind, "experiments", trained).text();
    AddDeviceNote(plan);
    for (const Contrast& contrast : claim_.contrasts) {
      if (contrast.role != estimators::ContrastRole::kClaim) continue;
      plan.notes.push_back(
          PowerNote(contrast, SeedsOf(contrast, plan.cells), claim_.Error()));
    }
    if (request.estimate) {
      EstimateCosts(plan.cells);
      EstimateStudents(claim_.cells, plan.cells);
    }
    return plan;
  }

  std::string Describe(const Plan& plan) const override {
    std::string text = claim_.title + "\n";
    for (const Cell& cell : plan.cells) {
      std::vector<std::string> arms;
      for (const train::Arm& arm : cell.experiment.arms) {
        arms.push_back(arm.name);
      }
      text += fmt::format(
          "{:<14} {:>20}  {} steps, {} seeds of {}\n", cell.name,
          CostText(plan, cell), cell.experiment.train.steps,
          cell.experiment.train.seeds.size(), fmt::join(arms, ", "));
    }
    return text + fmt::format("In all: {}.\n", CostText(plan));
  }

  std::optional<Answer> Judge(const Plan& plan, bool /*may_train*/) override {
    std::vector<estimators::CellCurves> cells;
    for (size_t i = 0; i < plan.cells.size(); ++i) {
      cells.push_back(CurvesOf(plan, plan.cells[i], own_seeds_[i]));
    }
    if (std::ranges::all_of(cells, [](const estimators::CellCurves& cell) {
          return cell.arms.empty();
        })) {
      ThrowNothingToJudge(plan);
    }
    const ClaimResult result = estimators::JudgeClaim(claim_, cells);
    return Answer{.code = ClaimCode(result.verdict),
                  .document = ClaimDocument(result),
                  .picture = ClaimPicture(result)};
  }

 private:
  /// Students are no models, and no device computes them. The plan says so.
  /// Errors   ConfigError if there is nothing else to compute.
  void AddDeviceNote(Plan& plan) const {
    std::string on = on_;
    std::vector<std::string> students;
    for (const Cell& cell : plan.cells) {
      if (cell.execute) {
        students.push_back(cell.name);
      } else {
        on = cell.experiment.parallel.on;
      }
    }
    if (students.empty() || on.empty() || on == device::kCpu) return;
    if (students.size() == plan.cells.size()) {
      ThrowError(ErrorKind::kConfig,
                 "{}: --on is {}, but all cells train students, which compute "
                 "on the CPU alone. Leave it out.",
                 (folder_ / "claim.toml").string(), on);
    }
    plan.notes.push_back(
        fmt::format("Models compute on {}, but the students of {} on the CPU.",
                    on, fmt::join(students, ", ")));
  }

  Cell ReadCell(const estimators::ClaimCell& cell) const {
    const std::set<std::string> arms = ArmsOf(claim_, cell.name);
    if (arms.empty()) {
      ThrowError(ErrorKind::kConfig,
                 "{}: no contrast reads cell {}. Remove it.",
                 (folder_ / "claim.toml").string(), cell.name);
    }
    Cell read =
        cell.student ? StudentCell(cell, arms) : ExperimentCell(cell, arms);
    CheckShares(claim_, read);
    return read;
  }

  /// Returns a cell that trains the experiment of `cell`.
  Cell ExperimentCell(const estimators::ClaimCell& cell,
                      const std::set<std::string>& arms) const {
    Cell result{.name = cell.name,
                .experiment =
                    campaign::ExperimentSource{
                        .file = (folder_ / cell.experiment).string(),
                        .overrides = cell.overrides,
                        .on = on_}
                        .Load()};
    train::Experiment& experiment = result.experiment;
    experiment.name = NameOf(folder_) + "-" + cell.name;
    KeepArms(arms, experiment);
    if (!cell.stress.empty()) {
      result.hooks = treatments::ApplyStress(
          treatments::StressModeByName(cell.stress), experiment);
    }
    LogNoTensors(experiment);  // A claim reads losses only.
    return result;
  }

  fs::path folder_;
  std::string on_;
  size_t seeds_ = 0;               ///< 0: the experiments' own
  std::vector<size_t> own_seeds_;  ///< that each cell's experiment has

  estimators::Claim claim_;
};

}  // namespace

extern constinit const StudyKind kStudy_claim = {
    "claim", "Put a published claim to the test",
    "isoloss study claim experiments/published/scale_rounding --dry-run",
    "runs/claim-<name of the claim's folder>",
    []() -> std::unique_ptr<Study> { return std::make_unique<Claim>(); }};

}  // namespace isoloss::studies
