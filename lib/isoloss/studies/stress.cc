// isoloss study stress: trains recipes under conditions from which low
// precision is known to suffer.

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "isoloss/base/error.h"
#include "isoloss/estimators/stress_map.h"
#include "isoloss/studies/documents.h"
#include "isoloss/studies/study.h"
#include "isoloss/train/batch_shares.h"
#include "isoloss/train/run_hooks.h"
#include "isoloss/treatments/indicator_recorder.h"
#include "isoloss/treatments/stress_modes.h"

namespace isoloss::studies {
namespace {

using document::Document;
using estimators::Separation;
using estimators::StressMap;
using estimators::StressResult;
using system::ExitCode;
using treatments::StressMode;

constexpr const char* kGoodRecipe = "mxfp8_rceil";
constexpr std::array kBadRecipes = {"mxfp8_floor", "mxfp8_e5m2_grads",
                                    "mxfp4_floor",
                                    "deepseek_v3_fp8_block_grads"};

/// Recording a step takes this many steps in addition: a recorded step took 2.2
/// (BF16) to 2.6 times (MXFP8) as long as a step without a record.
constexpr double kRecordingCost = 1.5;

/// Returns the arm of a recipe; adds the arm if there is none.
std::string ArmOfRecipe(train::Experiment& experiment,
                        const std::string& recipe) {
  for (const train::Arm& arm : experiment.arms) {
    if (arm.recipe == recipe && !arm.perturb && !arm.include && !arm.exclude &&
        arm.then.empty()) {
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

/// Makes the runs of a cell record indicators.
void RecordIndicatorsOf(const Plan& plan, int64_t every, Cell& cell) {
  cell.seconds *= 1 + kRecordingCost / static_cast<double>(every);
  cell.hooks = [folder = plan.folder, every, name = cell.name,
                experiment = cell.experiment,
                hooks = cell.hooks](const train::Run& run) {
    return treatments::RecordIndicators(
        hooks ? hooks(run) : train::RunHooks(), experiment, every,
        treatments::IndicatorFile(folder, name, run.Name()));
  };
}

class Stress : public Study {
 public:
  std::vector<Option> Options() override {
    return {{.name = "experiment", .value = &source_},
            {.name = "--quick",
             .value = &quick_,
             .help = "Three modes and 4 seeds, in less than 5 minutes"},
            {.name = "--mode",
             .value = &modes_,
             .help = "Train in this mode only; repeatable (default: all; "
                     "--dry-run lists them)",
             .repeatable = true,
             .not_quick = true},
            SeedsOption(seeds_, "Seeds of each arm in each mode (default: 8)"),
            {.name = "--indicators",
             .value = &indicators_every_,
             .help = "Record leading indicators of divergence at step 1 and "
                     "each step that this divides, for `isoloss study "
                     "indicators` (default: none); each takes another step in "
                     "BF16",
             .least = 1,
             .most = 1e9,
             .type_name = "STEPS"}};
  }

  Plan MakePlan(const Request& request) override {
    Plan plan{.kind = "stress", .folder = {}, .cells = {}, .text = {}};
    if (quick_) {
      modes_ = {"plain", "lr_10", "aligned_gates"};
      seeds_ = 4;
      plan.notes.push_back(
          "--quick puts 4 seeds under 3 modes: with so few seeds no rate of "
          "divergence can be told apart from another (p is 1 / 70 at best).");
    }
    base_ = source_.Load();
    if (indicators_every_ > 0) {
      std::string whole = train::TakeWholeBatches(base_);
      if (!whole.empty()) plan.notes.push_back(std::move(whole));
    }
    reference_ = ArmOfRecipe(base_, kGoodRecipe);
    for (const char* recipe : kBadRecipes) {
      known_bad_.push_back(ArmOfRecipe(base_, recipe));
    }
    base_.train.seeds = ConsecutiveSeeds(base_, seeds_);
    LogLossesOnly(base_);
    plan.folder = FolderOfStudy(base_.name, plan.kind, quick_, request.out);
    for (const StressMode* mode : ChosenModes()) {
      Cell cell{.name = std::string(mode->name), .experiment = base_};
      cell.experiment.name += "-" + cell.name;
      cell.hooks = treatments::ApplyStress(*mode, cell.experiment);
      plan.cells.push_back(std::move(cell));
    }
    if (request.estimate) EstimateCosts(plan.cells);
    config::Writer text =
        BeginPlanText(plan.kind, "experiment", PlannedToml(base_));
    if (indicators_every_ > 0) {
      text.Integer("indicators_every", indicators_every_);
      for (Cell& cell : plan.cells) {
        RecordIndicatorsOf(plan, indicators_every_, cell);
      }
    }
    plan.text = text.text();
    return plan;
  }

  std::string Describe(const Plan& plan) const override {
    std::string text;
    for (const Cell& cell : plan.cells) {
      text += fmt::format("{:<18} {:>8}  {}\n", cell.name, CostText(plan, cell),
                          treatments::StressModeByName(cell.name).what);
    }
    return text + fmt::format("{} arms x {} seeds of each, in all: {}.\n",
                              base_.arms.size(), seeds_, CostText(plan));
  }

  std::optional<Answer> Judge(const Plan& plan, bool /*may_train*/) override {
    std::vector<estimators::StressedRuns> runs;
    std::vector<std::string> missing;
    for (const Cell& cell : plan.cells) {
      auto ends = EndsOf(plan, cell);
      if (ends.empty()) {
        missing.push_back(
            fmt::format("No finished run of {} is there.", cell.name));
        continue;
      }
      auto& of_mode = runs.emplace_back(
          estimators::StressedRuns{.mode = cell.name, .arms = {}});
      for (const train::Arm& arm : base_.arms) {
        auto& of_arm = of_mode.arms.emplace_back(
            estimators::ArmRuns{.arm = arm.name, .runs = {}});
        for (const auto& [seed, end] : ends[arm.name]) {
          of_arm.runs.push_back(
              {.seed = seed, .diverged = end.diverged, .loss = end.loss});
        }
      }
    }
    if (runs.empty()) ThrowNothingToJudge(plan);
    StressMap map = estimators::MakeStressMap(runs, base_.arms.front().name,
                                              reference_, known_bad_);
    map.experiment = base_.name;
    for (const auto& notes : {missing, plan.notes}) {
      map.notes.insert(map.notes.end(), notes.begin(), notes.end());
    }
    return Answer{
        .code = map.SeparatesAny() ? ExitCode::kPass : ExitCode::kInconclusive,
        .document = StressDocument(map),
        .picture = StressPicture(map)};
  }

 private:
  /// Returns all modes, or the modes of --mode.
  /// Errors   ConfigError for an unknown mode, or for a mode that was given
  ///          twice.
  std::vector<const StressMode*> ChosenModes() const {
    std::vector<const StressMode*> chosen;
    for (const StressMode& mode : treatments::AllStressModes()) {
      if (modes_.empty()) chosen.push_back(&mode);
    }
    for (const std::string& name : modes_) {
      chosen.push_back(&treatments::StressModeByName(name));
      if (std::ranges::count(modes_, name) == 1) continue;
      ThrowError(ErrorKind::kConfig,
                 "stress: --mode {} was given twice. Give it once.", name);
    }
    return chosen;
  }

  campaign::ExperimentSource source_;
  bool quick_ = false;
  std::vector<std::string> modes_;
  size_t seeds_ = 8;
  int64_t indicators_every_ = 0;  ///< 0: never

  train::Experiment base_;
  std::string reference_;               ///< the arm of kGoodRecipe
  std::vector<std::string> known_bad_;  ///< arms
};

/// Returns "2/8": 2 of 8 runs diverged.
std::string DivergedText(const StressResult& result) {
  return fmt::format("{}/{}", result.diverged, result.seeds);
}
std::string StressGap(const StressMap& map, const StressResult& result) {
  if (result.arm == map.baseline) return "baseline";
  return result.gap ? fmt::format("{:+.4f}", *result.gap) : "no gap";
}
std::string StressInterval(const StressResult& result) {
  if (!result.gap) return "";
  return fmt::format("[{:+.4f}, {:+.4f}]", result.gap_lower, result.gap_upper);
}

std::string SeparationText(const StressMap& map, const Separation& separation) {
  if (!separation.separated) {
    return fmt::format(
        "{} is not told apart from {} in any mode (least p {:.2g}).",
        separation.arm, map.reference, separation.p);
  }
  return fmt::format(
      "{} is told apart from {} by its {} in mode {} (p {:.2g}).",
      separation.arm, map.reference, separation.by, separation.mode,
      separation.p);
}

/// Returns one sentence for each remark; conclusions come before the notes.
std::vector<std::string> RemarksOn(const StressMap& map) {
  std::vector<std::string> remarks;
  for (const Separation& separation : map.separations) {
    remarks.push_back(SeparationText(map, separation));
  }
  if (!map.SeparatesAny()) {
    remarks.push_back(fmt::format(
        "These modes do not tell the recipes that are known to be bad apart "
        "from {}.",
        map.reference));
  }
  remarks.insert(remarks.end(), map.notes.begin(), map.notes.end());
  return remarks;
}

Document StressResultDocument(const StressResult& result) {
  Document document;
  document.Put("mode", result.mode);
  document.Put("arm", result.arm);
  document.Put("seeds", result.seeds);
  document.Put("diverged", result.diverged);
  if (result.seeds > 0) {
    document.PutInterval("diverged_share",
                         static_cast<double>(result.diverged) /
                             static_cast<double>(result.seeds),
                         result.diverged_lower, result.diverged_upper);
  } else {
    document.Put("diverged_share", {});
  }
  document.Put("gap_seeds", result.gap_seeds);
  if (result.gap) {
    document.PutInterval("gap_nats", *result.gap, result.gap_lower,
                         result.gap_upper);
  } else {
    document.Put("gap_nats", {});
  }
  document.Put("p_diverges", result.p_diverges);
  document.Put("p_worse", result.p_worse);
  return document;
}

Document SeparationDocument(const Separation& separation) {
  const bool known = !separation.mode.empty();
  Document document;
  document.Put("arm", separation.arm);
  document.Put("separated", separation.separated);
  document.Put("p", separation.p);
  document.Put("by",
               known ? document::Value(separation.by) : document::Value());
  document.Put("mode",
               known ? document::Value(separation.mode) : document::Value());
  return document;
}

std::string_view StressColour(const StressResult& result) {
  if (result.diverged * 2 > result.seeds) return "#f28b82";
  if (result.diverged > 0) return "#f6ad6b";
  if (result.gap && result.gap_lower > 0) return "#fff3a8";
  if (result.gap && result.gap_upper < 0) return "#d2e3fc";
  return "#e6f4ea";
}

}  // namespace

Document StressDocument(const StressMap& map) {
  size_t width = 16;
  for (const std::string& arm : map.arms) width = std::max(width, arm.size());
  Document document;
  document.Put("schema_version", 1);
  document.Put("experiment", map.experiment);
  document.Put("baseline", map.baseline);
  document.Put("reference", map.reference);
  document.Put("confidence", estimators::kStressConfidence);
  document.Put("separates_any", map.SeparatesAny());
  document.PutEach("results", map.results, StressResultDocument);
  document.PutEach("separations", map.separations, SeparationDocument);
  document.Put("notes", map.notes);
  document.Say(fmt::format(
      "Diverged runs, and mean gap to {} in nats with its 95 % interval",
      map.baseline));
  for (size_t mode = 0; mode < map.modes.size(); ++mode) {
    document.Say(map.modes[mode]);
    for (size_t arm = 0; arm < map.arms.size(); ++arm) {
      const StressResult& result = map.At(mode, arm);
      document.Say(fmt::format("{:<{}} {:>6}  {:>9} {}", result.arm, width,
                               DivergedText(result), StressGap(map, result),
                               StressInterval(result)),
                   2);
    }
  }
  document.Say("");
  SayNotes(RemarksOn(map), document);
  return document;
}

document::Picture StressPicture(const StressMap& map) {
  document::PictureGrid grid{.columns = map.arms, .rows = {}};
  for (size_t mode = 0; mode < map.modes.size(); ++mode) {
    auto& row = grid.rows.emplace_back(
        map.modes[mode], std::vector<document::PictureGrid::Cell>());
    for (size_t arm = 0; arm < map.arms.size(); ++arm) {
      const StressResult& result = map.At(mode, arm);
      row.second.push_back(
          {.fill = StressColour(result),
           .text = DivergedText(result) + "  " + StressGap(map, result),
           .note = StressInterval(result)});
    }
  }
  document::Picture picture{
      .title = fmt::format(
          "Diverged runs, and gap to {} in nats [95 % interval]", map.baseline),
      .parts = {document::SmallPrint(
                    "red: most runs diverged; orange: some; yellow: the gap "
                    "lies above 0; blue: below; green: neither"),
                std::move(grid)},
      .width = 700};
  for (const std::string& remark : RemarksOn(map)) {
    picture.parts.emplace_back(document::PictureText{remark});
  }
  return picture;
}

extern constinit const StudyKind kStudy_stress = {
    "stress", "Put recipes under known strains of low precision",
    "isoloss study stress experiments/demo/experiment.toml --mode "
    "lr_10",
    "runs/<name>-stress",
    []() -> std::unique_ptr<Study> { return std::make_unique<Stress>(); }};

}  // namespace isoloss::studies
