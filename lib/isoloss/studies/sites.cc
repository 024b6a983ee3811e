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

constexpr double kSitesMinute = 60;
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

std::string PieceName(const SitePieces::Piece& piece) {
  return piece.kind + " " + std::string(precision::GemmRoleName(piece.role));
}

train::Arm ArmOf(const SitePieces& pieces, const train::Arm& base,
                 std::span<const size_t> chosen, const std::string& name) {
  train::Arm arm{.name = name, .exchange = base.exchange};
  std::string recipe = name;
  std::ranges::replace(recipe, '-', '_');
  arm.Use(pieces.RecipeOf(chosen, recipe));
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

std::vector<sites::NamedSet> SetsOf(const SitePieces& pieces,
                                    const train::Arm& arm) {
  std::vector<sites::NamedSet> sets = {
      {.name = "arm " + arm.name,
       .source = "the sites of its own recipe",
       .pieces = pieces.PiecesOf(train::ArmRecipe(arm))}};
  for (const PublishedFilter& filter : kPublishedFilters) {
    const auto presets = precision::AllSitePresets();
    const auto preset =
        std::ranges::find(presets, filter.preset, &precision::SitePreset::name);
    sites::NamedSet set{
        .name = preset->name,
        .source = preset->source,
        .pieces = pieces.PiecesAt(preset->include, preset->exclude)};
    if (!filter.expert_wgrad) {
      std::erase_if(set.pieces, [&](size_t piece) {
        const SitePieces::Piece& p = pieces.pieces()[piece];
        return p.role == precision::GemmRole::kWgrad &&
               p.kind.starts_with("routed_experts");
      });
    }
    if (!set.pieces.empty()) sets.push_back(std::move(set));
  }
  return sets;
}

/// The baseline, all pieces, each alone, all but each, and the sets.
std::vector<train::Arm> ArmsOfDesign(const SitePieces& pieces,
                                     const std::vector<sites::NamedSet>& sets,
                                     const train::Arm& baseline) {
  std::vector<train::Arm> arms = {baseline};
  const auto add = [&](const std::vector<size_t>& chosen,
                       const std::string& name) {
    arms.push_back(ArmOf(pieces, baseline, chosen, FileName(name)));
  };
  add(pieces.AllBut({}), kAllArm);
  for (const char* what : {"only-", "all_but-"}) {
    for (size_t piece = 0; piece < pieces.pieces().size(); ++piece) {
      const std::vector alone = {piece};
      add(what == std::string_view("only-") ? alone : pieces.AllBut(alone),
          what + PieceName(pieces.pieces()[piece]));
    }
  }
  for (const sites::NamedSet& set : sets) add(set.pieces, "set-" + set.name);
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

/// Arms cost about the same, and the one with all pieces costs most: only it
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

sites::ArmLosses LossesOfArm(const std::string& arm, std::vector<size_t> pieces,
                             const std::vector<int64_t>& seeds,
                             const LossesByArm& losses) {
  sites::ArmLosses result{.name = arm, .pieces = std::move(pieces)};
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
  const size_t count = plan.pieces.pieces().size();
  std::vector<sites::ArmLosses> design;
  for (size_t i = 0; i < 2 + 2 * count; ++i) {
    std::vector<size_t> pieces;
    if (i == 1) pieces = plan.pieces.AllBut({});
    if (i >= 2 && i < 2 + count) pieces = {i - 2};
    if (i >= 2 + count) pieces = plan.pieces.AllBut(std::vector{i - 2 - count});
    design.push_back(
        LossesOfArm(arms[i].name, std::move(pieces), seeds, losses));
  }
  return design;
}

sites::SpeedModel SpeedModelOf671b() {
  return {WorkOf671b(), sites::kB200, sites::Assumptions()};
}

/// Names, shares and gradient errors of the pieces.
std::vector<sites::Piece> FactsOf(
    const SitesPlan& plan, const sites::SpeedModel& speed,
    const std::vector<std::vector<double>>& errors) {
  const train::Experiment& base = plan.base;
  const auto tokens = static_cast<double>(base.train.sequences_per_batch *
                                          base.data.sequence_length);
  const sites::ModelWork models[] = {
      WorkOf("this model", base.model, {.tokens = tokens}), WorkOf16b(),
      speed.work()};
  std::vector<sites::Piece> facts;
  for (size_t i = 0; i < plan.pieces.pieces().size(); ++i) {
    const sites::QuantizedProduct product = plan.pieces.Quantized(i);
    sites::Piece piece{.kind = product.kind,
                       .product = product.product,
                       .saved_seconds = speed.SavedSeconds(product)};
    for (const sites::ModelWork& model : models) {
      piece.shares.push_back(sites::ShareOf(model, product));
    }
    if (i < errors.size() && errors[i].size() == 2) {
      piece.first_error = errors[i].front();
      piece.last_error = errors[i].back();
    }
    facts.push_back(std::move(piece));
  }
  return facts;
}

}  // namespace

SitesPlan PlanSites(const SitesRequest& given) {
  SitesRequest request = given;
  if (request.quick) request.seeds = kQuickSeeds;
  train::Experiment base = request.source.Load();
  CheckSitesRequest(request, base);
  const train::Arm arm = ChooseArm(base, request.arm);
  SitePieces pieces(arm.BaseRecipe(), base.model);
  SitesPlan plan{.request = request,
                 .base = std::move(base),
                 .arm = arm.name,
                 .pieces = std::move(pieces),
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
  plan.sets = SetsOf(plan.pieces, arm);
  StudyCell cell{.name = "design", .experiment = plan.base};
  cell.experiment.name += "-sites";
  cell.experiment.arms =
      ArmsOfDesign(plan.pieces, plan.sets, plan.base.arms.front());
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
  for (const SitePieces::Piece& piece : plan.pieces.pieces()) {
    if (kinds.empty() || kinds.back() != piece.kind)
      kinds.push_back(piece.kind);
  }
  const StudyCell& cell = plan.study.cells.front();
  const size_t arms = cell.experiment.arms.size();
  const size_t count = plan.pieces.pieces().size();
  // The gradients take the baseline's run once more, and two steps of each
  // piece.
  const double gradients =
      plan.seconds_of_a_run *
      (1 + 2 * static_cast<double>(count) /
               static_cast<double>(cell.experiment.train.steps));
  const double recipe =
      2 * static_cast<double>(plan.request.seeds) * plan.seconds_of_a_run;
  std::string text = fmt::format(
      "{} of arm {} at {} products of {} kinds of sites: {}.\n"
      "{} arms (the baseline, all products, each alone, all but each, {} "
      "sets) x {} seeds of {} steps: {} runs, {:.1f} minutes here. The "
      "gradients take {:.1f} more, and the recipe {:.1f}.\n",
      train::ArmNamed(plan.base, plan.arm).recipe, plan.arm, count,
      kinds.size(), fmt::join(kinds, ", "), arms, plan.sets.size(),
      plan.request.seeds, cell.experiment.train.steps,
      arms * plan.request.seeds, cell.seconds / kSitesMinute,
      gradients / kSitesMinute, recipe / kSitesMinute);
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
  const size_t count = plan.pieces.pieces().size();
  sites::Evidence evidence{.pieces = FactsOf(plan, speed, errors),
                           .arms = DesignLosses(plan, seeds, losses),
                           .sets = plan.sets,
                           .set_losses = {},
                           .speed_up = {},
                           .margin_percent = plan.request.margin_percent};
  for (size_t i = 0; i < plan.sets.size(); ++i) {
    evidence.set_losses.push_back(LossesOfArm(
        arms[2 + 2 * count + i].name, plan.sets[i].pieces, seeds, losses));
  }
  evidence.speed_up = [&](std::span<const size_t> pieces) {
    std::vector<sites::QuantizedProduct> products;
    for (const size_t piece : pieces) {
      products.push_back(plan.pieces.Quantized(piece));
    }
    return speed.SpeedUp(products);
  };
  sites::Statement statement{
      .experiment = plan.base.name,
      .baseline = arms.front().name,
      .arm = plan.arm,
      .candidate = train::ArmNamed(plan.base, plan.arm).recipe,
      .steps = cell.experiment.train.steps,
      .runs = arms.size() * seeds.size(),
      .margin_percent = plan.request.margin_percent,
      .pieces = evidence.pieces,
      .findings = sites::Judge(evidence),
      .speed = speed,
      .notes = plan.notes};
  if (statement.findings.recipe) {
    const std::vector<size_t>& chosen = statement.findings.recipe->set.pieces;
    precision::Recipe recipe = plan.pieces.RecipeOf(chosen, kRecipeName);
    recipe.summary =
        fmt::format("{} of {} products of {}", chosen.size(),
                    plan.pieces.pieces().size(), statement.candidate);
    recipe.source = "isoloss sites, experiment " + plan.base.name;
    statement.recipe_text = precision::RecipeText(recipe);
  }
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
      baseline, ArmOf(plan.pieces, baseline,
                      statement.findings.recipe->set.pieces, kRecipeName)};
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
      LossesOfArm(arms.back().name, recipe.set.pieces, seeds, losses), recipe);
}

}  // namespace isoloss::studies
