#include "isoloss/studies/sites.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "isoloss/base/build_info.h"
#include "isoloss/base/digest.h"
#include "isoloss/base/error.h"
#include "isoloss/campaign/arm_roles.h"
#include "isoloss/campaign/log_files.h"
#include "isoloss/config/writer.h"
#include "isoloss/precision/recipe_file.h"
#include "isoloss/precision/site_presets.h"
#include "isoloss/studies/model_work.h"
#include "isoloss/train/arm_recipes.h"

namespace isoloss::studies {
namespace {

constexpr const char* kAllArm = "all";
constexpr const char* kRecipeName = "chosen_sites";

// Of --quick.
constexpr int64_t kQuickSteps = 20;
constexpr size_t kQuickSeeds = 3;
constexpr size_t kQuickSequences = 16;

/// Filters that were published, and what they leave in high precision besides.
struct PublishedFilter {
  const char* preset;
  bool expert_wgrad;  ///< of routed experts quantised too
};
constexpr PublishedFilter kPublishedFilters[] = {
    {"nebius_16b", false}, {"routed_experts", true}, {"llama4_scout", true}};

/// A name for files: letters, digits, '-' and '_'.
std::string FileName(std::string name) {
  for (char& c : name) {
    if (c == '.' || c == ' ') c = c == '.' ? '_' : '-';
  }
  return name;
}

std::string ProductName(const SiteProducts::Entry& product) {
  return product.kind + " " +
         std::string(precision::GemmRoleName(product.role));
}

train::Arm ArmOf(const SiteProducts& products, const train::Arm& base,
                 std::span<const size_t> chosen, const std::string& name) {
  train::Arm arm{.name = name, .exchange = base.exchange};
  std::string recipe = name;
  std::ranges::replace(recipe, '-', '_');
  arm.Use(products.RecipeOf(chosen, recipe));
  return arm;
}

/// The arm that was named, or the first candidate.
const train::Arm& ChooseArm(const train::Experiment& experiment,
                            const std::string& name) {
  if (!name.empty()) return train::ArmNamed(experiment, name);
  const campaign::ArmRoles roles = campaign::RolesOf(experiment);
  for (const std::string& arm : roles.candidates) {
    const train::Arm& candidate = train::ArmNamed(experiment, arm);
    if (train::ArmRecipe(candidate).quantizes()) return candidate;
  }
  ThrowError(ErrorKind::kConfig,
             "{}: no candidate of `arms` quantises a GEMM, but a study of "
             "sites asks which of them a recipe can quantise. Add an arm, or "
             "name one with --arm.",
             experiment.path.string());
}

void CheckSitesRequest(const SitesRequest& request,
                       const train::Experiment& experiment) {
  const train::Arm& baseline = experiment.arms.front();
  if (train::ArmRecipe(baseline).quantizes_anything()) {
    ThrowError(ErrorKind::kConfig,
               "{}: the baseline {} has the recipe {}, which quantises, but "
               "sites are held against high precision. Put a BF16 arm first.",
               experiment.path.string(), baseline.name, baseline.recipe);
  }
  CheckSeeds("sites", request.seeds);
}

void Prepare(const SitesRequest& request, train::Experiment& experiment) {
  train::TrainConfig& train = experiment.train;
  train::LogConfig& log = experiment.log;
  if (request.quick) {
    train.steps = std::min(train.steps, kQuickSteps);
    train.warmup_steps = std::min(train.warmup_steps, train.steps / 4);
    log.eval_sequences = std::min(log.eval_sequences, kQuickSequences);
  }
  train.seeds = ConsecutiveSeeds(experiment, request.seeds);
  LogLossesOnly(experiment);
  experiment.gate = {};
}

std::vector<sites::NamedSet> SetsOf(const SiteProducts& products,
                                    const train::Arm& arm) {
  std::vector<sites::NamedSet> sets = {
      {.name = "arm " + arm.name,
       .source = "the sites of its own recipe",
       .products = products.ProductsOf(train::ArmRecipe(arm))}};
  for (const PublishedFilter& filter : kPublishedFilters) {
    const auto presets = precision::AllSitePresets();
    const auto preset =
        std::ranges::find(presets, filter.preset, &precision::SitePreset::name);
    sites::NamedSet set{
        .name = preset->name,
        .source = preset->source,
        .products = products.ProductsAt(preset->include, preset->exclude)};
    if (!filter.expert_wgrad) {
      std::erase_if(set.products, [&](size_t product) {
        const SiteProducts::Entry& p = products.products()[product];
        return p.role == precision::GemmRole::kWgrad &&
               p.kind.starts_with("routed_experts");
      });
    }
    if (!set.products.empty()) sets.push_back(std::move(set));
  }
  return sets;
}

/// The baseline, all products, each alone, all but each, and the sets.
std::vector<train::Arm> ArmsOfDesign(const SiteProducts& products,
                                     const std::vector<sites::NamedSet>& sets,
                                     const train::Arm& baseline) {
  std::vector<train::Arm> arms = {baseline};
  const auto add = [&](const std::vector<size_t>& chosen,
                       const std::string& name) {
    arms.push_back(ArmOf(products, baseline, chosen, FileName(name)));
  };
  add(products.AllBut({}), kAllArm);
  for (const char* what : {"only-", "all_but-"}) {
    for (size_t product = 0; product < products.products().size(); ++product) {
      const std::vector alone = {product};
      add(what == std::string_view("only-") ? alone : products.AllBut(alone),
          what + ProductName(products.products()[product]));
    }
  }
  for (const sites::NamedSet& set : sets) add(set.products, "set-" + set.name);
  return arms;
}

std::string SitesPlanText(const SitesPlan& plan) {
  Digest digest;
  digest.Update(plan.study.cells.front().experiment.TomlWithoutSeeds());
  config::Writer text;
  text.Text("study", "sites");
  text.Text("version", GetBuildInfo().version);
  text.Text("experiment", DigestToHex(digest.Value()));
  text.Text("arm", plan.arm);
  return text.text();
}

/// Arms cost about the same, and the one with all products costs most: only it
/// and the baseline are measured.
void Estimate(SitesPlan& plan) {
  StudyCell& cell = plan.study.cells.front();
  std::vector<StudyCell> pair = {cell};
  std::vector<train::Arm>& arms = pair.front().experiment.arms;
  arms.resize(2);
  EstimateStudy(pair);
  plan.seconds_of_a_run = pair.front().seconds /
                          static_cast<double>(arms.size() * plan.request.seeds);
  cell.seconds =
      plan.seconds_of_a_run *
      static_cast<double>(cell.experiment.arms.size() * plan.request.seeds);
}

using LossesByArm = std::map<std::string, std::map<int64_t, double>>;

/// Held-out losses at the end of runs; NaN without a finite one.
LossesByArm LossesOfCell(const Study& study, const StudyCell& cell) {
  LossesByArm losses;
  for (const compare::Run& run : RunsOf(study, cell)) {
    const runlog::Provenance& provenance = run.log.provenance;
    losses[provenance.arm][provenance.seed] =
        FinalLoss(run.log).value_or(std::numeric_limits<double>::quiet_NaN());
  }
  return losses;
}

/// Seeds of which every arm has a run.
std::vector<int64_t> CommonSeeds(const std::vector<train::Arm>& arms,
                                 const std::vector<uint64_t>& seeds,
                                 const LossesByArm& losses) {
  std::vector<int64_t> common;
  for (const uint64_t seed : seeds) {
    const auto number = static_cast<int64_t>(seed);
    const bool all = std::ranges::all_of(arms, [&](const train::Arm& arm) {
      const auto found = losses.find(arm.name);
      return found != losses.end() && found->second.contains(number);
    });
    if (all) common.push_back(number);
  }
  return common;
}

sites::ArmLosses LossesOfArm(const std::string& arm,
                             std::vector<size_t> products,
                             const std::vector<int64_t>& seeds,
                             const LossesByArm& losses) {
  sites::ArmLosses result{.name = arm, .products = std::move(products)};
  for (const int64_t seed : seeds) {
    result.losses.push_back(losses.at(arm).at(seed));
  }
  return result;
}

/// What the runs of the design say: of its arms but those of the sets.
std::vector<sites::ArmLosses> DesignLosses(const SitesPlan& plan,
                                           const std::vector<int64_t>& seeds,
                                           const LossesByArm& losses) {
  const std::vector<train::Arm>& arms =
      plan.study.cells.front().experiment.arms;
  const size_t count = plan.products.products().size();
  std::vector<sites::ArmLosses> design;
  for (size_t i = 0; i < 2 + 2 * count; ++i) {
    std::vector<size_t> products;
    if (i == 1) products = plan.products.AllBut({});
    if (i >= 2 && i < 2 + count) products = {i - 2};
    if (i >= 2 + count)
      products = plan.products.AllBut(std::vector{i - 2 - count});
    design.push_back(
        LossesOfArm(arms[i].name, std::move(products), seeds, losses));
  }
  return design;
}

sites::SpeedModel SpeedModelOf671b() {
  return {WorkOf671b(), sites::kB200, sites::Assumptions()};
}

/// Names, shares and gradient errors of the products.
std::vector<sites::Product> FactsOf(
    const SitesPlan& plan, const sites::SpeedModel& speed,
    const std::vector<std::vector<double>>& errors) {
  const train::Experiment& base = plan.base;
  const auto tokens = static_cast<double>(base.train.sequences_per_batch *
                                          base.data.sequence_length);
  const sites::ModelWork models[] = {
      WorkOf("this model", base.model, {.tokens = tokens}), WorkOf16b(),
      speed.work()};
  std::vector<sites::Product> facts;
  for (size_t i = 0; i < plan.products.products().size(); ++i) {
    const sites::QuantizedProduct quantized = plan.products.Quantized(i);
    sites::Product product{.kind = quantized.kind,
                           .role = quantized.role,
                           .saved_seconds = speed.SavedSeconds(quantized)};
    for (const sites::ModelWork& model : models) {
      product.shares.push_back(sites::ShareOf(model, quantized));
    }
    if (i < errors.size() && errors[i].size() == 2) {
      product.first_error = errors[i].front();
      product.last_error = errors[i].back();
    }
    facts.push_back(std::move(product));
  }
  return facts;
}

sites::Evidence EvidenceOf(const SitesPlan& plan,
                           const sites::SpeedModel& speed,
                           const std::vector<std::vector<double>>& errors,
                           const std::vector<int64_t>& seeds,
                           const LossesByArm& losses) {
  const std::vector<train::Arm>& arms =
      plan.study.cells.front().experiment.arms;
  sites::Evidence evidence{.products = FactsOf(plan, speed, errors),
                           .arms = DesignLosses(plan, seeds, losses),
                           .sets = plan.sets,
                           .set_losses = {},
                           .speed_up = {},
                           .margin_percent = plan.request.margin_percent};
  for (size_t i = 0; i < plan.sets.size(); ++i) {
    evidence.set_losses.push_back(
        LossesOfArm(arms[evidence.arms.size() + i].name, plan.sets[i].products,
                    seeds, losses));
  }
  evidence.speed_up = [&](std::span<const size_t> products) {
    std::vector<sites::QuantizedProduct> quantized;
    for (const size_t product : products) {
      quantized.push_back(plan.products.Quantized(product));
    }
    return speed.SpeedUp(quantized);
  };
  return evidence;
}

/// TOML; "" if there is no recipe.
std::string TextOfRecipe(const SitesPlan& plan,
                         const sites::Statement& statement) {
  if (!statement.findings.recipe) return "";
  const std::vector<size_t>& chosen = statement.findings.recipe->set.products;
  precision::Recipe recipe = plan.products.RecipeOf(chosen, kRecipeName);
  recipe.summary =
      fmt::format("{} of {} products of {}", chosen.size(),
                  plan.products.products().size(), statement.candidate);
  recipe.source = "isoloss sites, experiment " + plan.base.name;
  return precision::RecipeText(recipe);
}

}  // namespace

SitesPlan PlanSites(const SitesRequest& given) {
  SitesRequest request = given;
  if (request.quick) request.seeds = kQuickSeeds;
  train::Experiment base = request.source.Load();
  CheckSitesRequest(request, base);
  const train::Arm arm = ChooseArm(base, request.arm);
  SiteProducts products(arm.BaseRecipe(), base.model);
  SitesPlan plan{.request = request,
                 .base = std::move(base),
                 .arm = arm.name,
                 .products = std::move(products),
                 .sets = {},
                 .study = {},
                 .notes = {}};
  Prepare(request, plan.base);
  const precision::Recipe recipe = train::ArmRecipe(arm);
  if (recipe.attention.quantizes() || recipe.norm_gains) {
    plan.notes.push_back(
        "The recipe quantises attention's own products or gains of norms, "
        "which are no GEMM sites: no arm of this study has that.");
  }
  if (request.quick) {
    plan.notes.push_back(
        "--quick trains 3 seeds for 20 steps: it shows that the study works. "
        "Intervals with 2 degrees of freedom are so wide, and models so little "
        "trained, that the ranking and the recipe say nothing.");
  }
  plan.sets = SetsOf(plan.products, arm);
  StudyCell cell{.name = "design", .experiment = plan.base};
  cell.experiment.name += "-sites";
  cell.experiment.arms =
      ArmsOfDesign(plan.products, plan.sets, plan.base.arms.front());
  plan.study = {.kind = "sites",
                .folder = StudyFolder(plan.base.name, "sites", request.quick,
                                      request.out),
                .cells = {std::move(cell)},
                .plan = {}};
  plan.study.plan = SitesPlanText(plan);
  if (request.estimate) Estimate(plan);
  return plan;
}

std::string DescribePlan(const SitesPlan& plan) {
  std::vector<std::string> kinds;
  for (const SiteProducts::Entry& product : plan.products.products()) {
    if (kinds.empty() || kinds.back() != product.kind)
      kinds.push_back(product.kind);
  }
  const StudyCell& cell = plan.study.cells.front();
  const size_t arms = cell.experiment.arms.size();
  const size_t count = plan.products.products().size();
  // The gradients take the baseline's run once more, and two steps of each
  // product.
  const double gradients =
      plan.seconds_of_a_run *
      (1 + 2 * static_cast<double>(count) /
               static_cast<double>(cell.experiment.train.steps));
  const bool measured = std::filesystem::exists(ErrorsFile(plan));
  const double recipe =
      2 * static_cast<double>(plan.request.seeds) * plan.seconds_of_a_run;
  std::string text = fmt::format(
      "{} of arm {} at {} products of {} kinds of sites: {}.\n"
      "{} arms (the baseline, all products, each alone, all but each, {} "
      "sets) x {} seeds of {} steps, {} runs: {}. Gradients: {}. The runs of "
      "the recipe, if they are not there yet: {}.\n",
      train::ArmNamed(plan.base, plan.arm).recipe, plan.arm, count,
      kinds.size(), fmt::join(kinds, ", "), arms, plan.sets.size(),
      plan.request.seeds, cell.experiment.train.steps,
      arms * plan.request.seeds, CostText(plan.study),
      CostText(gradients, measured ? 0 : gradients), CostText(recipe));
  for (const std::string& note : plan.notes) text += note + "\n";
  return text;
}

sites::Statement JudgeSites(const SitesPlan& plan,
                            const std::vector<std::vector<double>>& errors) {
  const StudyCell& cell = plan.study.cells.front();
  const std::vector<train::Arm>& arms = cell.experiment.arms;
  const LossesByArm losses = LossesOfCell(plan.study, cell);
  const std::vector<int64_t> seeds =
      CommonSeeds(arms, cell.experiment.train.seeds, losses);
  if (seeds.size() < 2) ThrowNothingToJudge(plan.study);
  const sites::SpeedModel speed = SpeedModelOf671b();
  const sites::Evidence evidence =
      EvidenceOf(plan, speed, errors, seeds, losses);
  sites::Statement statement{
      .experiment = plan.base.name,
      .baseline = arms.front().name,
      .arm = plan.arm,
      .candidate = train::ArmNamed(plan.base, plan.arm).recipe,
      .steps = cell.experiment.train.steps,
      .runs = arms.size() * seeds.size(),
      .margin_percent = plan.request.margin_percent,
      .products = evidence.products,
      .findings = sites::Judge(evidence),
      .speed = speed,
      .notes = plan.notes};
  statement.recipe_text = TextOfRecipe(plan, statement);
  return statement;
}

std::optional<Study> RecipeStudy(const SitesPlan& plan,
                                 const sites::Statement& statement) {
  if (!statement.findings.recipe) return std::nullopt;
  Digest digest;
  digest.Update(statement.recipe_text);
  // Another margin may choose another recipe, whose runs lie beside these.
  StudyCell cell{.name = "recipe-" + DigestToHex(digest.Value()).substr(0, 8),
                 .experiment = plan.base};
  cell.experiment.name += "-" + cell.name;
  // The design's seeds chose the recipe. Only others can test it.
  for (uint64_t& seed : cell.experiment.train.seeds) {
    seed += plan.request.seeds;
  }
  const train::Arm baseline = plan.base.arms.front();
  cell.experiment.arms = {
      baseline, ArmOf(plan.products, baseline,
                      statement.findings.recipe->set.products, kRecipeName)};
  cell.seconds =
      2 * static_cast<double>(plan.request.seeds) * plan.seconds_of_a_run;
  return Study{.kind = "sites",
               .folder = plan.study.folder,
               .cells = {std::move(cell)},
               .plan = plan.study.plan};
}

void AddRecipeRuns(const Study& study, sites::Statement& statement) {
  const StudyCell& cell = study.cells.front();
  const std::vector<train::Arm>& arms = cell.experiment.arms;
  const LossesByArm losses = LossesOfCell(study, cell);
  const std::vector<int64_t> seeds =
      CommonSeeds(arms, cell.experiment.train.seeds, losses);
  if (seeds.size() < cell.experiment.train.seeds.size()) {
    statement.notes.push_back(
        "The recipe is not trained with all seeds yet, so that nothing is "
        "said of the gap that it has.");
    return;
  }
  sites::SetFinding& recipe = *statement.findings.recipe;
  sites::CompareAfresh(
      LossesOfArm(arms.front().name, {}, seeds, losses),
      LossesOfArm(arms.back().name, recipe.set.products, seeds, losses),
      recipe);
}

}  // namespace isoloss::studies
