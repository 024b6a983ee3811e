// isoloss study ladder: trains one experiment at several sizes, and predicts
// the gap at a size that nobody trained.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "isoloss/base/error.h"
#include "isoloss/campaign/plan_file.h"
#include "isoloss/estimators/ladder_statement.h"
#include "isoloss/estimators/size_text.h"
#include "isoloss/studies/documents.h"
#include "isoloss/studies/rung.h"
#include "isoloss/studies/study.h"
#include "isoloss/studies/tuned_exponent.h"
#include "isoloss/train/arm_recipes.h"
#include "isoloss/train/cost.h"
#include "isoloss/treatments/rung_model.h"
#include "isoloss/verdicts/arm_roles.h"

namespace isoloss::studies {
namespace {

using estimators::LadderStatement;
using estimators::ScaleVerdict;
using system::ExitCode;

constexpr double kBudgetMinutes = 90;
constexpr double kSecondsOfAMinute = 60;
/// This is the limit of the millions of parameters, and of the tokens for each
/// parameter.
constexpr double kLargestFactor = 1e6;
/// One rung is trained with this many times the tokens a step, since the noise
/// of small batches hides what quantisation adds.
constexpr size_t kLargeBatch = 16;
/// That rung takes as many steps or more, so that it still warms up.
constexpr int64_t kLeastStepsOfLargeBatch = 64;
/// Tokens teach less if they are repeated more often (Muennighoff et al.,
/// 2305.16264).
constexpr double kMostReadings = 4;

/// A rung is a cell with its size.
struct Rung {
  estimators::Size size;
  Cell cell;
  std::string twin = {};  ///< of a large batch: the name of the plain rung
  bool affordable = true;
};

/// Refuses two rungs with equal models and tokens: they would be the same runs.
void RefuseTwins(const std::vector<Rung>& rungs, const Rung& rung) {
  for (const Rung& known : rungs) {
    const bool same = known.size.parameters == rung.size.parameters &&
                      known.size.tokens == rung.size.tokens;
    if (!same && known.cell.name != rung.cell.name) continue;
    ThrowError(ErrorKind::kConfig,
               "ladder: sizes {} and {} of --parameters and "
               "--tokens-per-parameter are too near to each other: widths are "
               "multiples of 8, so that they stand for models of {:g} and "
               "{:g} parameters. Give sizes that lie farther apart.",
               known.cell.name, rung.cell.name, known.size.parameters,
               rung.size.parameters);
  }
}

void RefuseTwice(const char* option, const std::vector<double>& values) {
  for (const double value : values) {
    if (std::ranges::count(values, value) == 1) continue;
    ThrowError(ErrorKind::kConfig,
               "ladder: {} {} was given, but each of them must be above 0, "
               "at most {:g}, and be given once.",
               option, value, kLargestFactor);
  }
}

std::vector<estimators::Size> ParseSizes(const std::vector<std::string>& at) {
  std::vector<estimators::Size> sizes;
  for (const std::string& text : at) {
    const estimators::Size size = estimators::ParseSize(text);
    for (const estimators::Size& known : sizes) {
      if (known.parameters != size.parameters || known.tokens != size.tokens ||
          known.ActiveParameters() != size.ActiveParameters()) {
        continue;
      }
      ThrowError(ErrorKind::kConfig,
                 "ladder: --at {} was given twice. Give it once.",
                 estimators::SizeText(size));
    }
    sizes.push_back(size);
  }
  return sizes;
}

using EndsBySeed = std::map<int64_t, RunEnd>;

/// Adds a rung to an arm, with the seeds for which both arms ended with a loss.
/// A seed leaves a doubt if it is missing, or if it diverged in either arm. So
/// does a rung that has too few seeds.
void AddRung(const Rung& rung, const EndsBySeed& baseline,
             const EndsBySeed& ends, estimators::LadderArm& arm) {
  const std::string& name = rung.cell.name;
  const std::vector<uint64_t>& seeds = rung.cell.experiment.train.seeds;
  estimators::GapCell gaps{
      .name = name, .size = rung.size, .gaps = {}, .baseline = {}};
  size_t diverged = 0;
  size_t of_baseline = 0;
  size_t missing = 0;
  for (const uint64_t seed : seeds) {
    const auto ours = ends.find(static_cast<int64_t>(seed));
    const auto theirs = baseline.find(static_cast<int64_t>(seed));
    if (ours == ends.end() || theirs == baseline.end()) {
      ++missing;
      continue;
    }
    if (ours->second.diverged) ++diverged;
    if (theirs->second.diverged) ++of_baseline;
    if (!ours->second.loss || !theirs->second.loss) continue;
    gaps.gaps.push_back(*ours->second.loss - *theirs->second.loss);
    gaps.baseline.push_back(*theirs->second.loss);
  }
  if (diverged + of_baseline > 0) {
    arm.doubts.push_back(
        fmt::format("Arm {}, size {}: {} of {} seeds diverged, and {} of the "
                    "baseline.",
                    arm.name, name, diverged, seeds.size(), of_baseline));
  }
  if (missing > 0) {
    arm.doubts.push_back(
        fmt::format("Arm {}, size {}: {} of {} seeds are not trained yet.",
                    arm.name, name, missing, seeds.size()));
  }
  if (gaps.gaps.size() < 2) {
    arm.doubts.push_back(
        fmt::format("Arm {}, size {}: {} of {} seeds ended with a loss in both "
                    "arms, and two are needed, so the size is left out.",
                    arm.name, name, gaps.gaps.size(), seeds.size()));
    return;
  }
  if (rung.twin.empty()) {
    arm.cells.push_back(std::move(gaps));
  } else {
    arm.large_batch = {std::move(gaps), rung.twin};
  }
}

estimators::ArmRole RoleOf(const verdicts::ArmRoles& roles,
                           const std::string& arm) {
  if (std::ranges::count(roles.nulls, arm) > 0) {
    return estimators::ArmRole::kNull;
  }
  return std::ranges::count(roles.controls, arm) != 0
             ? estimators::ArmRole::kControl
             : estimators::ArmRole::kCandidate;
}

/// Unsafe candidates fail; unsettled candidates are inconclusive.
ExitCode LadderCode(const LadderStatement& statement) {
  ExitCode code = ExitCode::kPass;
  for (const estimators::ArmStatement& arm : statement.arms) {
    if (arm.arm.role != estimators::ArmRole::kCandidate) continue;
    if (arm.sizes.empty()) code = Worse(code, ExitCode::kInconclusive);
    for (const estimators::SizeStatement& size : arm.sizes) {
      if (size.verdict == ScaleVerdict::kSafe) continue;
      code = Worse(code, size.verdict == ScaleVerdict::kUnsafe
                             ? ExitCode::kFail
                             : ExitCode::kInconclusive);
    }
  }
  return code;
}

class Ladder : public Study {
 public:
  std::vector<Option> Options() override {
    return {
        {.name = "experiment", .value = &source_},
        {.name = "--quick",
         .value = &quick_,
         .help = "Three tiny sizes and 4 seeds, in less than 5 minutes: it "
                 "shows that the ladder works, and says nothing of large "
                 "models. Exit code 4"},
        {.name = "--parameters",
         .value = &millions_,
         .help = "Sizes of models, million parameters with all experts "
                 "(default: 0.34 1.3 3 6.7)",
         .least = 1e-6,
         .most = kLargestFactor,
         .not_quick = true},
        {.name = "--tokens-per-parameter",
         .value = &ratios_,
         .help = "Tokens that each is trained with, for each parameter "
                 "(default: 1 4 20)",
         .least = 1e-6,
         .most = kLargestFactor,
         .not_quick = true},
        SeedsOption(seeds_, "Seeds of each size (default: 8)"),
        {.name = "--budget",
         .value = &budget_minutes_,
         .help = "Minutes that all sizes may take here; what is more expensive "
                 "is left out, and said so; 0: no limit (default: the sizes of "
                 "an earlier call in the folder, else 90)",
         .most = 1e6,
         .not_quick = true},
        {.name = "--at",
         .value = &at_,
         .help = "Size to predict, PARAMETERS@TOKENS such as 7B@2T, or "
                 "30B-A3B@36T if a token uses 3B of them; 16B and 671B alone "
                 "stand for 16B@50B and 671B@14.8T with 2.4B and 37B active; "
                 "repeatable (default: both)",
         .repeatable = true},
        {.name = "--margin",
         .value = &margin_percent_,
         .help = "Largest gap that is accepted, percent of the baseline's loss "
                 "(default: 0.25)",
         .least = 1e-6,
         .most = 99}};
  }

  Plan MakePlan(const Request& request) override {
    Plan plan{.kind = "ladder", .folder = {}, .cells = {}, .text = {}};
    sizes_ = ParseSizes(at_);
    if (quick_) MakeQuick(plan);
    base_ = source_.Load();
    if (base_.arms.size() < 2) {
      ThrowError(ErrorKind::kConfig,
                 "{}: `arms` holds {} alone, but a ladder compares arms. Add "
                 "an arm.",
                 base_.path.string(), base_.arms.front().name);
    }
    RefuseTwice("--parameters", millions_);
    RefuseTwice("--tokens-per-parameter", ratios_);
    plan.folder = FolderOfStudy(base_.name, plan.kind, quick_, request.out);
    const corpus::Corpus corpus = train::LoadCorpusOf(base_);
    rate_ = TunedExponent(base_, corpus);
    MakeRungs(corpus.held_out().count, request.estimate);
    config::Writer text =
        BeginPlanText(plan.kind, "experiment", PlannedToml(base_));
    std::vector<std::string> names;
    for (const Rung& rung : rungs_) names.push_back(rung.cell.name);
    text.Texts("sizes", names);
    plan.text = text.text();
    ChooseAffordable(request.estimate, plan);
    AddLimits(static_cast<double>(corpus.size()), plan);
    return plan;
  }

  std::string Describe(const Plan& plan) const override {
    std::string text =
        fmt::format("{:<16} {:>10} {:>10} {:>10} {:>10} {:>8} {:>10}\n", "size",
                    "parameters", "active", "tokens", "steps", "lr", "time");
    for (const Rung& rung : rungs_) {
      const train::TrainConfig& train = rung.cell.experiment.train;
      text += fmt::format(
          "{:<16} {:>10} {:>10} {:>10} {:>10} {:>8.2g} {:>10}{}\n",
          rung.cell.name, estimators::NumberText(rung.size.parameters),
          estimators::NumberText(rung.size.ActiveParameters()),
          estimators::NumberText(rung.size.tokens), train.steps, train.lr,
          rung.affordable ? CostText(plan, rung.cell)
                          : CostText(rung.cell.seconds),
          rung.affordable ? "" : "  left out");
    }
    const std::string doubt = RateDoubt(rate_, base_);
    return text + fmt::format("{} arms x {} seeds of each, in all: {}.\n{}{}",
                              base_.arms.size(), seeds_, CostText(plan), doubt,
                              doubt.empty() ? "" : "\n");
  }

  std::optional<Answer> Judge(const Plan& plan, bool /*may_train*/) override {
    const verdicts::ArmRoles roles = verdicts::RolesOf(base_);
    const std::string& baseline = base_.arms.front().name;
    std::vector<std::string> doubts = {RateDoubt(rate_, base_)};
    std::erase(doubts, "");
    std::vector<estimators::LadderArm> arms;
    for (size_t i = 1; i < base_.arms.size(); ++i) {
      const train::Arm& arm = base_.arms[i];
      arms.push_back({.name = arm.name,
                      .recipe = train::RecipeNames(arm),
                      .role = RoleOf(roles, arm.name),
                      .doubts = doubts});
    }
    bool trained = false;
    for (const Rung& rung : rungs_) {
      if (!rung.affordable) continue;
      auto ends = EndsOf(plan, rung.cell);
      trained = trained || !ends.empty();
      for (estimators::LadderArm& arm : arms) {
        AddRung(rung, ends[baseline], ends[arm.name], arm);
      }
    }
    if (!trained) ThrowNothingToJudge(plan);
    LadderStatement statement = estimators::StateLadder(
        base_.name, baseline, arms,
        {.sizes = sizes_, .margin_percent = margin_percent_});
    statement.rate = rate_;
    statement.notes.insert(statement.notes.begin(), plan.notes.begin(),
                           plan.notes.end());
    return Answer{.code = LadderCode(statement),
                  .document = LadderDocument(statement),
                  .picture = LadderPicture(statement)};
  }

 private:
  /// Sets the sizes and seeds of --quick, which tell nothing of large models.
  void MakeQuick(Plan& plan) {
    millions_ = {0.1, 0.2, 0.34};
    ratios_ = {1};
    seeds_ = 4;
    plan.notes.push_back(
        "--quick trains three tiny sizes of 1 token a parameter: it shows that "
        "the ladder works, and nothing of large models. So its exit code is "
        "4.");
  }

  train::Experiment ExperimentOf(const model::ModelConfig& model, double tokens,
                                 size_t batch_factor,
                                 size_t held_out_tokens) const {
    train::Experiment experiment =
        RungExperiment(base_,
                       {.model = model,
                        .tokens = tokens,
                        .rate_exponent = rate_.value,
                        .batch_factor = batch_factor},
                       held_out_tokens);
    experiment.train.seeds = ConsecutiveSeeds(base_, seeds_);
    return experiment;
  }

  /// Makes all rungs with their costs, in ascending order of operations.
  void MakeRungs(size_t held_out_tokens, bool estimate) {
    for (const double millions : millions_) {
      const model::ModelConfig model =
          treatments::ScaledModel(base_.model, millions * 1e6);
      const double parameters = train::EstimatedParameters(model);
      for (const double ratio : ratios_) {
        const estimators::Size size = {parameters, ratio * parameters,
                                       train::ActiveParameters(model)};
        const std::string name = fmt::format(
            "{}-{:g}", estimators::NumberText(millions * 1e6), ratio);
        Rung rung{.size = size,
                  .cell = {.name = name,
                           .experiment = ExperimentOf(model, size.tokens, 1,
                                                      held_out_tokens)}};
        rung.cell.experiment.name += "-" + name;
        RefuseTwins(rungs_, rung);
        rungs_.push_back(std::move(rung));
      }
    }
    std::ranges::stable_sort(
        rungs_, {}, [](const Rung& rung) { return rung.size.Flops(); });
    AddLargeBatch(held_out_tokens);
    if (!estimate) return;
    std::vector<Cell> cells;
    for (const Rung& rung : rungs_) cells.push_back(rung.cell);
    EstimateCosts(cells);
    for (size_t i = 0; i < rungs_.size(); ++i) {
      rungs_[i].cell.seconds = cells[i].seconds;
    }
  }

  /// Adds the twin of the cheapest rung that has steps enough, after it.
  void AddLargeBatch(size_t held_out_tokens) {
    const auto plain = std::ranges::find_if(rungs_, [](const Rung& rung) {
      return rung.cell.experiment.train.steps >=
             kLeastStepsOfLargeBatch * static_cast<int64_t>(kLargeBatch);
    });
    if (plain == rungs_.end()) return;
    const std::string name =
        fmt::format("{}-batch{}", plain->cell.name, kLargeBatch);
    Rung rung{.size = plain->size,
              .cell = {.name = name,
                       .experiment = ExperimentOf(
                           plain->cell.experiment.model, plain->size.tokens,
                           kLargeBatch, held_out_tokens)},
              .twin = plain->cell.name};
    rung.cell.experiment.name += "-" + name;
    rungs_.insert(plain + 1, std::move(rung));
  }

  /// Leaves out rungs until the rest fits the budget, the most expensive rungs
  /// first. Without a budget it keeps the sizes that an earlier call chose.
  void ChooseAffordable(bool estimated, Plan& plan) {
    const std::filesystem::path kept = plan.folder / campaign::kPlanFile;
    const bool chosen = (!budget_minutes_ || !estimated) &&
                        std::filesystem::exists(kept) &&
                        campaign::PlanDifference(kept, plan.text).empty();
    const double minutes = budget_minutes_.value_or(kBudgetMinutes);
    double seconds = 0;
    std::vector<std::string> left_out;
    for (Rung& rung : rungs_) {
      const double after = seconds + rung.cell.seconds;
      rung.affordable =
          std::filesystem::exists(plan.FolderOf(rung.cell)) ||
          (!chosen && (minutes == 0 || after <= minutes * kSecondsOfAMinute));
      if (rung.affordable) {
        seconds = after;
        plan.cells.push_back(rung.cell);
      } else {
        left_out.push_back(rung.cell.name);
      }
    }
    if (plan.cells.empty()) {
      ThrowError(ErrorKind::kConfig,
                 "ladder: no size fits --budget {:g}; the cheapest takes "
                 "{:.2g} minutes. Give more, or fewer --seeds.",
                 minutes, rungs_.front().cell.seconds / kSecondsOfAMinute);
    }
    if (left_out.empty()) return;
    plan.notes.push_back(fmt::format(
        "{} of {} sizes are left out, as they {}: {}. Give --budget 0 to train "
        "all of them.",
        left_out.size(), rungs_.size(),
        chosen ? "were when this ladder began"
               : fmt::format("would take more than {:g} minutes here", minutes),
        fmt::join(left_out, ", ")));
  }

  /// Adds notes on what the ladder can't say.
  void AddLimits(double corpus_tokens, Plan& plan) const {
    const auto of_line = std::ranges::count_if(rungs_, [](const Rung& rung) {
      return rung.affordable && rung.twin.empty();
    });
    if (of_line < static_cast<long>(estimators::kCellsOfALine)) {
      plan.notes.push_back(fmt::format(
          "A line takes {} sizes, so that nothing will be predicted. Give more "
          "--parameters or --tokens-per-parameter, or a larger --budget.",
          estimators::kCellsOfALine));
    }
    if (std::ranges::none_of(rungs_, [](const Rung& rung) {
          return rung.affordable && !rung.twin.empty();
        })) {
      plan.notes.push_back(fmt::format(
          "No size with {} times the batch is trained: nothing tells whether "
          "the noise of small batches hides a gap.",
          kLargeBatch));
    }
    for (const Rung& rung : rungs_) {
      const double readings = rung.size.tokens / corpus_tokens;
      if (!rung.affordable || readings <= kMostReadings) continue;
      plan.notes.push_back(fmt::format(
          "Size {} reads each token of the corpus {:.1f} times; beyond {:g} "
          "times repeated tokens teach less. Give a larger corpus.",
          rung.cell.name, readings, kMostReadings));
    }
  }

  campaign::ExperimentSource source_;
  bool quick_ = false;
  std::vector<double> millions_ = {0.34, 1.3, 3, 6.7};
  std::vector<double> ratios_ = {1, 4, 20};
  size_t seeds_ = 8;
  std::optional<double> budget_minutes_;
  std::vector<std::string> at_ = {"16B", "671B"};
  double margin_percent_ = 0.25;

  std::vector<estimators::Size> sizes_;  ///< of --at
  train::Experiment base_;
  estimators::RateExponent rate_;
  std::vector<Rung> rungs_;
};

}  // namespace

extern constinit const StudyKind kStudy_ladder = {
    "ladder", "Predict the gaps of large models from small ones",
    "isoloss study ladder experiments/demo/experiment.toml --budget "
    "30 "
    "--at 16B@50B",
    "runs/<name>-ladder",
    []() -> std::unique_ptr<Study> { return std::make_unique<Ladder>(); }};

}  // namespace isoloss::studies
