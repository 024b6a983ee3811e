// isoloss study sites: finds which products of which GEMMs can be quantised.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "isoloss/base/atomic_file.h"
#include "isoloss/base/digest.h"
#include "isoloss/base/error.h"
#include "isoloss/base/executor.h"
#include "isoloss/device/devices.h"
#include "isoloss/document/json.h"
#include "isoloss/estimators/site_findings.h"
#include "isoloss/precision/recipe_file.h"
#include "isoloss/report/heartbeat.h"
#include "isoloss/studies/documents.h"
#include "isoloss/studies/study.h"
#include "isoloss/system/interrupt.h"
#include "isoloss/system/json_file.h"
#include "isoloss/train/arm_recipes.h"
#include "isoloss/train/batch_shares.h"
#include "isoloss/train/cost.h"
#include "isoloss/treatments/gradient_error.h"
#include "isoloss/treatments/model_work.h"
#include "isoloss/treatments/site_design.h"
#include "isoloss/verdicts/arm_roles.h"

namespace isoloss::studies {
namespace {

namespace fs = std::filesystem;
using document::Document;
using estimators::SitesStatement;
using system::ExitCode;
using treatments::SiteProducts;

constexpr const char* kRecipeName = "chosen_sites";

// These are the steps and seeds of --quick.
constexpr int64_t kQuickSteps = 20;
constexpr size_t kQuickSeeds = 3;
constexpr size_t kQuickSequences = 16;

// The gradients with each product alone are measured once for a folder.

using Errors = std::vector<std::vector<double>>;

fs::path ErrorsFile(const Plan& plan) {
  return plan.folder / "gradient_errors.json";
}

Errors ReadErrors(const fs::path& path, size_t products) {
  const system::JsonFile file(path, "file of gradient errors");
  file.Check(R"({"errors": [["n"]]})");
  Errors errors;
  for (const document::Json& of_product : file.json()["errors"]) {
    std::vector<double> values;
    for (const document::Json& value : of_product) {
      values.push_back(value.is_null()
                           ? std::numeric_limits<double>::quiet_NaN()
                           : value.get<double>());
    }
    errors.push_back(std::move(values));
  }
  if (errors.size() != products) {
    ThrowError(ErrorKind::kFormat,
               "{}: it has errors of {} products, but the plan has {}. Remove "
               "it, and it is made anew.",
               path.string(), errors.size(), products);
  }
  return errors;
}

void WriteErrors(const fs::path& path, const Errors& errors) {
  Document document;
  document.Put("errors", errors);  // what is not finite becomes null
  WriteFileAtomically(path, document::RenderJson(document));
}

/// Compares gradients with each product alone with the baseline's. Empty if a
/// signal came.
/// Shapes   result[product] = {at step 1, at the last step}; fewer where the
///          baseline's step was not finite.
std::optional<Errors> MeasureErrors(const train::Experiment& experiment,
                                    size_t products) {
  // The arms are the baseline, the arm with all products, and then these.
  const std::span<const train::Arm> alone =
      std::span(experiment.arms).subspan(2, products);
  const std::array<int64_t, 2> steps = {1, experiment.train.steps};
  report::Heartbeat heartbeat;
  const std::unique_ptr<Executor> executor =
      MakeExecutor(train::CrewFor(experiment, 1));
  treatments::GradientErrorHooks hooks;
  hooks.stop = &system::InterruptFlag();
  hooks.on_progress = [&](size_t done, size_t of) {
    heartbeat.Set(fmt::format("sites: gradients, {} of {} steps", done, of));
  };
  Errors errors = treatments::GradientErrors(
      experiment, experiment.arms.front(), alone,
      experiment.train.seeds.front(), train::LoadCorpusOf(experiment), steps,
      *executor, hooks);
  if (system::InterruptFlag().load()) return std::nullopt;
  return errors;
}

/// Holds the losses of the runs of some seeds.
class SeedLosses {
 public:
  /// Uses the seeds of the cell for which every arm has a run.
  SeedLosses(const Plan& plan, const Cell& cell) : ends_(EndsOf(plan, cell)) {
    for (const uint64_t seed : cell.experiment.train.seeds) {
      const auto number = static_cast<int64_t>(seed);
      const bool all =
          std::ranges::all_of(cell.experiment.arms, [&](const train::Arm& arm) {
            const auto found = ends_.find(arm.name);
            return found != ends_.end() && found->second.contains(number);
          });
      if (all) seeds_.push_back(number);
    }
  }

  size_t size() const { return seeds_.size(); }

  /// Returns the losses of an arm; NaN for a run without a finite loss.
  estimators::ArmLosses Of(const std::string& arm,
                           std::vector<size_t> products) const {
    estimators::ArmLosses result{.name = arm, .products = std::move(products)};
    for (const int64_t seed : seeds_) {
      result.losses.push_back(ends_.at(arm).at(seed).loss.value_or(
          std::numeric_limits<double>::quiet_NaN()));
    }
    return result;
  }

 private:
  std::map<std::string, std::map<int64_t, RunEnd>> ends_;
  std::vector<int64_t> seeds_;
};

/// A recipe fails if its gap is not the predicted one. It passes if its own
/// runs show a gap below the margin.
ExitCode CodeOfSites(const SitesStatement& statement) {
  const auto& recipe = statement.findings.recipe;
  if (!recipe || !recipe->measured) return ExitCode::kInconclusive;
  if (!recipe->inside()) return ExitCode::kFail;
  return recipe->safe(statement.findings.margin_nats) ? ExitCode::kPass
                                                      : ExitCode::kInconclusive;
}

class Sites : public Study {
 public:
  std::vector<Option> Options() override {
    return {{.name = "experiment", .value = &source_},
            {.name = "--arm",
             .value = &arm_,
             .help = "Arm whose formats are tried at every site (default: the "
                     "first candidate that quantises)"},
            {.name = "--quick",
             .value = &quick_,
             .help = "20 steps and 3 seeds, in less than 5 minutes: shows that "
                     "it works, and says nothing of sites"},
            SeedsOption(seeds_, "Seeds of each arm (default: 8)"),
            {.name = "--margin",
             .value = &margin_percent_,
             .help = "Largest gap that the recipe may be predicted to have, "
                     "percent of the baseline's loss (default: 0.25)",
             .least = 0,
             .most = 100}};
  }

  Plan MakePlan(const Request& request) override {
    Plan plan{.kind = "sites", .folder = {}, .cells = {}, .text = {}};
    if (quick_) seeds_ = kQuickSeeds;
    base_ = source_.Load();
    const train::Arm& baseline = base_.arms.front();
    if (train::QuantizesAnything(baseline)) {
      ThrowError(ErrorKind::kConfig,
                 "{}: the baseline {} has the recipe {}, which quantises, but "
                 "sites are held against high precision. Put a BF16 arm first.",
                 base_.path.string(), baseline.name, baseline.recipe);
    }
    const train::Arm arm = ChosenArm();
    arm_ = arm.name;
    if (!arm.then.empty()) {
      ThrowError(ErrorKind::kConfig,
                 "{}: arm {} has [[arms.{}.then]], but a study of sites asks "
                 "where one recipe can be used. Name an arm of one recipe with "
                 "--arm.",
                 base_.path.string(), arm_, arm_);
    }
    products_.emplace(arm.BaseRecipe(), base_.model);
    sets_ = treatments::SetsOf(*products_, arm);
    PrepareBase();
    AddNotes(train::ArmRecipe(arm), plan);
    plan.folder = FolderOfStudy(base_.name, plan.kind, quick_, request.out);
    Cell cell{.name = "design", .experiment = base_};
    cell.experiment.name += "-sites";
    cell.experiment.arms =
        treatments::ArmsOfDesign(*products_, sets_, base_.arms.front());
    if (request.estimate) {
      if (!fs::exists(ErrorsFile(plan))) CheckGradientMemory();
      Estimate(cell);
    }
    config::Writer text =
        BeginPlanText(plan.kind, "experiment", PlannedToml(cell.experiment));
    text.Text("arm", arm_);
    plan.text = text.text();
    plan.cells = {std::move(cell)};
    return plan;
  }

  std::string Describe(const Plan& plan) const override {
    std::vector<std::string> kinds;
    for (const SiteProducts::Entry& product : products_->products()) {
      if (kinds.empty() || kinds.back() != product.kind) {
        kinds.push_back(product.kind);
      }
    }
    const train::Experiment& design = plan.cells.front().experiment;
    const size_t count = products_->products().size();
    // Measuring the gradients trains the baseline's run once more, and two
    // steps of each product.
    const double gradients =
        seconds_of_a_run_ * (1 + 2 * static_cast<double>(count) /
                                     static_cast<double>(design.train.steps));
    return fmt::format(
        "{} of arm {} at {} products of {} kinds of sites: {}.\n"
        "{} arms (the baseline, all products, each alone, all but each, {} "
        "sets) x {} seeds of {} steps, {} runs: {}. Gradients: {}. The runs of "
        "the recipe, if they are not there yet: {}.\n",
        train::ArmNamed(base_, arm_).recipe, arm_, count, kinds.size(),
        fmt::join(kinds, ", "), design.arms.size(), sets_.size(), seeds_,
        design.train.steps, design.arms.size() * seeds_, CostText(plan),
        CostText(gradients, fs::exists(ErrorsFile(plan)) ? 0 : gradients),
        CostText(RecipeSeconds()));
  }

  std::optional<Answer> Judge(const Plan& plan, bool may_train) override {
    const size_t count = products_->products().size();
    const train::Experiment& design = plan.cells.front().experiment;
    std::optional<Errors> errors = Errors();
    if (fs::exists(ErrorsFile(plan))) {
      errors = ReadErrors(ErrorsFile(plan), count);
    } else if (may_train) {
      errors = MeasureErrors(design, count);
      if (!errors) return std::nullopt;
      WriteErrors(ErrorsFile(plan), *errors);
    }
    SitesStatement statement = StateSites(plan, *errors);
    if (statement.findings.recipe) {
      const Plan recipe = PlanRecipe(plan, statement);
      if (may_train && !Train(recipe)) return std::nullopt;
      AddRecipeRuns(recipe, statement);
    }
    return Answer{.code = CodeOfSites(statement),
                  .document = SitesDocument(statement),
                  .picture = SitesPicture(statement),
                  .files = {{"recipe.toml", statement.recipe_text}}};
  }

 private:
  /// Returns the arm that was named, or the first candidate that quantises.
  const train::Arm& ChosenArm() const {
    if (!arm_.empty()) return train::ArmNamed(base_, arm_);
    for (const std::string& arm : verdicts::RolesOf(base_).candidates) {
      const train::Arm& candidate = train::ArmNamed(base_, arm);
      if (train::ArmRecipe(candidate).quantizes()) return candidate;
    }
    ThrowError(ErrorKind::kConfig,
               "{}: no candidate of `arms` quantises a GEMM, but a study of "
               "sites asks which of them a recipe can quantise. Add an arm, or "
               "name one with --arm.",
               base_.path.string());
  }

  /// Sets what all arms of the design have in common.
  void PrepareBase() {
    train::TrainConfig& train = base_.train;
    train::LogConfig& log = base_.log;
    if (quick_) {
      train.steps = std::min(train.steps, kQuickSteps);
      train.warmup_steps = std::min(train.warmup_steps, train.steps / 4);
      log.eval_sequences = std::min(log.eval_sequences, kQuickSequences);
    }
    train.seeds = ConsecutiveSeeds(base_, seeds_);
    LogLossesOnly(base_);
    base_.gate = {};
  }

  /// Refuses gradients whose whole batches need too much memory, before hours
  /// of training.
  void CheckGradientMemory() const {
    train::Experiment whole = base_;
    if (train::TakeWholeBatches(whole).empty()) return;
    if (!device::IsHere(whole.parallel.on)) return;
    train::CheckMemory(whole, train::CrewFor(whole, 1));
  }

  void AddNotes(const precision::Recipe& recipe, Plan& plan) const {
    train::Experiment whole = base_;
    std::string said = train::TakeWholeBatches(whole);
    if (!said.empty()) {
      plan.notes.push_back("Of the gradients: " + std::move(said));
    }
    if (recipe.attention.quantizes() || recipe.norm_gains) {
      plan.notes.push_back(
          "The recipe quantises attention's own products or gains of norms, "
          "which are no GEMM sites: no arm of this study has that.");
    }
    if (quick_) {
      plan.notes.push_back(
          "--quick trains 3 seeds for 20 steps: it shows that the study works. "
          "Intervals with 2 degrees of freedom are so wide, and models so "
          "little trained, that the ranking and the recipe say nothing.");
    }
  }

  /// Measures only the baseline and the arm with all products: all arms take
  /// about as long, and the arm with all products takes longest.
  void Estimate(Cell& design) {
    std::vector<Cell> pair = {design};
    pair.front().experiment.arms.resize(2);
    EstimateCosts(pair);
    const auto seeds = static_cast<double>(seeds_);
    seconds_of_a_run_ = pair.front().seconds / (2 * seeds);
    design.seconds = seconds_of_a_run_ * seeds *
                     static_cast<double>(design.experiment.arms.size());
  }

  double RecipeSeconds() const {
    return 2 * static_cast<double>(seeds_) * seconds_of_a_run_;
  }

  /// Returns the names, shares and gradient errors of the products.
  std::vector<estimators::SiteProduct> Facts(
      const estimators::SpeedModel& speed, const Errors& errors) const {
    const auto tokens = static_cast<double>(base_.train.sequences_per_batch *
                                            base_.data.sequence_length);
    const estimators::ModelWork models[] = {
        treatments::WorkOf("this model", base_.model, {.tokens = tokens}),
        treatments::WorkOf16b(), speed.work()};
    std::vector<estimators::SiteProduct> facts;
    for (size_t i = 0; i < products_->products().size(); ++i) {
      const estimators::QuantizedProduct quantized = products_->Quantized(i);
      estimators::SiteProduct product{
          .kind = quantized.kind,
          .role = quantized.role,
          .saved_seconds = speed.SavedSeconds(quantized)};
      for (const estimators::ModelWork& model : models) {
        product.shares.push_back(estimators::ShareOfModel(model, quantized));
      }
      if (i < errors.size() && errors[i].size() == 2) {
        product.first_error = errors[i].front();
        product.last_error = errors[i].back();
      }
      facts.push_back(std::move(product));
    }
    return facts;
  }

  estimators::SiteEvidence EvidenceOf(const std::vector<train::Arm>& arms,
                                      const estimators::SpeedModel& speed,
                                      const Errors& errors,
                                      const SeedLosses& losses) const {
    estimators::SiteEvidence evidence{.products = Facts(speed, errors),
                                      .arms = {},
                                      .sets = sets_,
                                      .set_losses = {},
                                      .speed_up = {},
                                      .margin_percent = margin_percent_};
    const size_t count = evidence.products.size();
    const auto add = [&](std::vector<size_t> products) {
      const std::string& arm = arms[evidence.arms.size()].name;
      evidence.arms.push_back(losses.Of(arm, std::move(products)));
    };
    add({});
    add(products_->AllBut({}));
    for (size_t i = 0; i < count; ++i) add({i});
    for (size_t i = 0; i < count; ++i) add(products_->AllBut(std::vector{i}));
    for (size_t i = 0; i < sets_.size(); ++i) {
      evidence.set_losses.push_back(
          losses.Of(arms[evidence.arms.size() + i].name, sets_[i].products));
    }
    evidence.speed_up = [this, &speed](std::span<const size_t> products) {
      std::vector<estimators::QuantizedProduct> quantized;
      for (const size_t product : products) {
        quantized.push_back(products_->Quantized(product));
      }
      return speed.SpeedUp(quantized);
    };
    return evidence;
  }

  SitesStatement StateSites(const Plan& plan, const Errors& errors) const {
    const Cell& cell = plan.cells.front();
    const std::vector<train::Arm>& arms = cell.experiment.arms;
    const SeedLosses losses(plan, cell);
    if (losses.size() < 2) ThrowNothingToJudge(plan);
    const estimators::SpeedModel speed(treatments::WorkOf671b(),
                                       estimators::kB200,
                                       estimators::SpeedAssumptions());
    const estimators::SiteEvidence evidence =
        EvidenceOf(arms, speed, errors, losses);
    SitesStatement statement{.experiment = base_.name,
                             .baseline = arms.front().name,
                             .arm = arm_,
                             .candidate = train::ArmNamed(base_, arm_).recipe,
                             .steps = cell.experiment.train.steps,
                             .runs = arms.size() * losses.size(),
                             .margin_percent = margin_percent_,
                             .products = evidence.products,
                             .findings = estimators::JudgeSites(evidence),
                             .speed = speed,
                             .notes = plan.notes};
    statement.recipe_text = RecipeText(statement);
    return statement;
  }

  /// Returns the recipe as TOML; "" if there is no recipe.
  std::string RecipeText(const SitesStatement& statement) const {
    if (!statement.findings.recipe) return "";
    const std::vector<size_t>& chosen = statement.findings.recipe->set.products;
    precision::Recipe recipe = products_->RecipeOf(chosen, kRecipeName);
    recipe.summary =
        fmt::format("{} of {} products of {}", chosen.size(),
                    products_->products().size(), statement.candidate);
    recipe.source = "isoloss sites, experiment " + base_.name;
    return precision::RecipeText(recipe);
  }

  /// Returns the plan of the chosen recipe and the baseline, in the same
  /// folder.
  Plan PlanRecipe(const Plan& plan, const SitesStatement& statement) const {
    Digest digest;
    digest.Update(statement.recipe_text);
    // A different margin may choose a different recipe, whose runs lie beside
    // these.
    Cell cell{.name = "recipe-" + DigestToHex(digest.Value()).substr(0, 8),
              .experiment = base_};
    cell.experiment.name += "-" + cell.name;
    // The design's seeds chose the recipe. Only new seeds can test it.
    for (uint64_t& seed : cell.experiment.train.seeds) seed += seeds_;
    const train::Arm& baseline = base_.arms.front();
    cell.experiment.arms = {
        baseline, treatments::ArmOf(*products_, baseline,
                                    statement.findings.recipe->set.products,
                                    kRecipeName)};
    cell.seconds = RecipeSeconds();
    return {.kind = plan.kind,
            .folder = plan.folder,
            .cells = {std::move(cell)},
            .text = plan.text};
  }

  /// Adds the findings of the recipe's runs, if all seeds are there.
  static void AddRecipeRuns(const Plan& plan, SitesStatement& statement) {
    const Cell& cell = plan.cells.front();
    const std::vector<train::Arm>& arms = cell.experiment.arms;
    const SeedLosses losses(plan, cell);
    if (losses.size() < cell.experiment.train.seeds.size()) {
      statement.notes.push_back(
          "The recipe is not trained with all seeds yet, so that nothing is "
          "said of the gap that it has.");
      return;
    }
    estimators::SetFinding& recipe = *statement.findings.recipe;
    estimators::CompareAfresh(losses.Of(arms.front().name, {}),
                              losses.Of(arms.back().name, recipe.set.products),
                              recipe);
  }

  campaign::ExperimentSource source_;
  std::string arm_;  ///< "": the first candidate that quantises
  bool quick_ = false;
  size_t seeds_ = 8;
  double margin_percent_ = 0.25;

  train::Experiment base_;
  std::optional<SiteProducts> products_;
  std::vector<estimators::NamedSet> sets_;  ///< the arm's own, and published
  double seconds_of_a_run_ = 0;
};

}  // namespace

extern constinit const StudyKind kStudy_sites = {
    "sites", "Find which GEMMs can be quantised",
    "isoloss study sites experiments/demo/experiment.toml --seeds 4",
    "runs/<name>-sites",
    []() -> std::unique_ptr<Study> { return std::make_unique<Sites>(); }};

}  // namespace isoloss::studies
