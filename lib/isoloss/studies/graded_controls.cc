#include "isoloss/studies/graded_controls.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <sstream>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/base/text_file.h"
#include "isoloss/compare/final_window.h"
#include "isoloss/config/document.h"
#include "isoloss/config/writer.h"
#include "isoloss/gate/policy.h"
#include "isoloss/precision/recipe.h"
#include "isoloss/stats/isotonic.h"
#include "isoloss/stats/summary.h"
#include "isoloss/studies/experiment_file.h"
#include "isoloss/train/arm_recipes.h"
#include "isoloss/train/experiment_sections.h"
#include "isoloss/treatments/site_kinds.h"
#include "isoloss/verdicts/judge_arms.h"

namespace isoloss::studies {
namespace {

using Names = std::vector<std::string>;

constexpr size_t kMostParts = 6;
constexpr double kInfinite = std::numeric_limits<double>::infinity();

bool Has(const Names& names, const std::string& name) {
  return std::ranges::count(names, name) != 0;
}

/// Holds the sites of one kind that a part has.
struct Kind {
  std::string name;
  Names sites = {};
  size_t in_model = 0;

  Names Patterns() const {
    return sites.size() == in_model ? Names{name} : sites;
  }
};

std::vector<Kind> KindsOf(std::span<const std::string> chosen,
                          std::span<const std::string> all) {
  std::vector<Kind> kinds;
  for (const std::string& site : all) {
    const std::string name = treatments::KindOf(site);
    auto kind = std::ranges::find(kinds, name, &Kind::name);
    if (kind == kinds.end()) kind = kinds.insert(kinds.end(), {.name = name});
    ++kind->in_model;
    if (std::ranges::count(chosen, site) != 0) kind->sites.push_back(site);
  }
  std::erase_if(kinds, [](const Kind& kind) { return kind.sites.empty(); });
  return kinds;
}

template <typename T>
std::vector<T> EverySecond(const std::vector<T>& all) {
  std::vector<T> half;
  for (size_t i = 0; i < all.size(); i += 2) half.push_back(all[i]);
  return half;
}

Names PatternsOf(const std::vector<Kind>& kinds) {
  Names patterns;
  for (const Kind& kind : kinds) {
    const Names of_kind = kind.Patterns();
    patterns.insert(patterns.end(), of_kind.begin(), of_kind.end());
  }
  return patterns;
}

/// Returns the names that parts of `control` get.
Names GradeNames(const std::string& control) {
  Names names;
  for (const Grade& grade : kGrades) names.push_back(control + grade.suffix);
  return names;
}

/// Returns the arms of gate.control without parts of other ones.
Names WholeControls(const train::Experiment& experiment) {
  const Names& all = experiment.gate.control;
  Names whole = all;
  for (const std::string& control : all) {
    std::erase_if(whole, [names = GradeNames(control)](const auto& name) {
      return Has(names, name);
    });
  }
  return whole;
}

/// Returns the sites of the model, or those that `arm` quantises.
Names SitesOf(const train::Arm& arm, const train::Experiment& experiment,
              bool quantized) {
  const auto phases = train::ResolvePhases(experiment, arm);
  Names names;
  for (const precision::ResolvedSite& site : phases.front().recipe.sites()) {
    if (site.quantized || !quantized) names.push_back(site.site);
  }
  return names;
}

gate::Policy PolicyFor(const train::Experiment& experiment) {
  gate::Policy policy =
      verdicts::ForPrecision(verdicts::PolicyOf("", experiment), "");
  if (!policy.InTokens()) return policy;
  ThrowError(ErrorKind::kConfig,
             "{}: the policy has margin_tokens_percent = {:g}, but controls "
             "are graded by a margin of the loss. Set margin_percent instead.",
             experiment.path.string(), policy.margin_tokens_percent);
}

const compare::Run* FindRun(const std::vector<compare::Run>& runs,
                            const std::string& arm, uint64_t seed) {
  const auto found = std::ranges::find_if(runs, [&](const compare::Run& run) {
    return run.log.provenance.arm == arm &&
           static_cast<uint64_t>(run.log.provenance.seed) == seed;
  });
  return found == runs.end() ? nullptr : &*found;
}

double HarmOf(const compare::Run& baseline, const compare::Run& part,
              double window_share) {
  if (Diverged(baseline.log) || Diverged(part.log)) return kInfinite;
  const compare::Pairing pairing =
      compare::PairBySeed(baseline.log.provenance.arm, {&baseline},
                          part.log.provenance.arm, {&part});
  return compare::CompareFinalWindow(pairing, window_share).Percents().front();
}

/// Returns the keys of an arm that differ from what it would have without them.
std::string ArmText(const train::Arm& arm, const train::ExchangeConfig& usual) {
  const std::string keys = "\n" + config::TextOf(usual);
  std::istringstream lines(config::TextOf(arm));
  std::string text = fmt::format("[arms.{}]\n", arm.name);
  for (std::string line; std::getline(lines, line);) {
    const bool same = keys.find("\n" + line + "\n") != std::string::npos;
    if (!same) text += line + "\n";
  }
  return text;
}

bool IsToml(const std::string& text) {
  try {
    config::Document(text, "");
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// Returns the comments of lines that hold no "#" but these.
Names CommentsOf(const std::string& text) {
  Names comments;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t comment = line.find('#');
    if (comment != std::string::npos) comments.push_back(line.substr(comment));
  }
  return comments;
}

/// Replaces the value of `control`, which may have several lines, in the lines
/// of [gate]. A comment stays in its line, several go above the key.
std::string WithControlKey(const std::string& gate, const Names& controls) {
  config::Writer key;
  key.Names("control", controls);
  std::istringstream lines(gate);
  std::string text;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("control ") && !line.starts_with("control=")) {
      text += line + "\n";
      continue;
    }
    // A line of DOS ends in a carriage return, which needs its line feed.
    std::string value = line + "\n";
    bool whole = IsToml(value);
    while (!whole && std::getline(lines, line)) {
      value += line + "\n";
      whole = IsToml(value);
    }
    const Names comments = CommentsOf(value);
    if (!whole) {
      text += value;
    } else if (comments.size() == 1) {
      text += key.text();
      text.back() = ' ';
      text += " " + comments.front() + "\n";
    } else {
      for (const std::string& comment : comments) text += comment + "\n";
      text += key.text();
    }
  }
  return text;
}

}  // namespace

std::vector<Names> NestedParts(std::span<const std::string> chosen,
                               std::span<const std::string> all) {
  std::vector<Kind> kinds = KindsOf(chosen, all);
  std::vector<Names> parts = {PatternsOf(kinds)};
  while (kinds.size() > 1) {
    kinds = EverySecond(kinds);
    parts.push_back(PatternsOf(kinds));
  }
  Names sites = kinds.front().sites;
  while (sites.size() > 1) parts.push_back(sites = EverySecond(sites));
  parts.resize(std::min(parts.size(), kMostParts));
  std::ranges::reverse(parts);
  return parts;
}

std::optional<size_t> NearestPart(std::span<const double> harms,
                                  double target) {
  std::optional<size_t> nearest;
  double least = kInfinite;
  for (size_t part = 0; part < harms.size(); ++part) {
    if (!(harms[part] > 0)) continue;
    const double factor = std::max(harms[part] / target, target / harms[part]);
    if (factor > kFarthest || factor >= least) continue;
    least = factor;
    nearest = part;
  }
  return nearest;
}

std::vector<double> GradedControl::Means() const {
  std::vector<double> means;
  for (const auto& of_part : harms) {
    means.push_back(std::ranges::count(of_part, kInfinite) != 0
                        ? kInfinite
                        : stats::Mean(of_part));
  }
  return means;
}

std::vector<double> GradedControl::Fit() const {
  return stats::IsotonicFit(Means());
}

std::optional<size_t> GradedControl::PartOf(const Grade& grade) const {
  return NearestPart(Fit(), grade.margins * margin_percent);
}

std::vector<train::Arm> GradedControl::Arms() const {
  std::vector<train::Arm> arms;
  for (const Grade& grade : kGrades) {
    const auto part = PartOf(grade);
    if (!part || *part + 1 == parts.size()) continue;
    arms.push_back(parts[*part]);
    arms.back().name = control + grade.suffix;
  }
  return arms;
}

Names GradedControl::Controls() const {
  Names controls;
  for (const train::Arm& arm : Arms()) controls.push_back(arm.name);
  const Names earlier = GradeNames(control);
  for (const std::string& name : experiment.gate.control) {
    if (!Has(earlier, name)) controls.push_back(name);
  }
  return controls;
}

std::string GradedControl::ArmsText() const {
  std::string text;
  for (const train::Arm& arm : Arms()) {
    text += text.empty() ? "" : "\n";
    text += ArmText(arm, experiment.parallel.exchange);
  }
  return text;
}

const train::Arm& ControlOf(const train::Experiment& experiment) {
  const std::string file = experiment.path.string();
  const Names controls = WholeControls(experiment);
  if (controls.empty()) {
    ThrowError(ErrorKind::kConfig,
               "{}: gate.control names no arm, but its sites are what is "
               "graded. Add an arm of a bad recipe, such as mxfp4_floor, and "
               "name it there.",
               file);
  }
  const train::Arm& control = train::ArmNamed(experiment, controls.front());
  if (!control.then.empty() || !train::ArmRecipe(control).quantizes()) {
    ThrowError(ErrorKind::kConfig,
               "{}: the control {} has {}, but sites of one recipe are graded. "
               "Name a control of one recipe that quantises GEMMs.",
               file, control.name,
               control.then.empty() ? "a recipe that quantises no GEMM"
                                    : "recipes that follow in mid-run");
  }
  for (const std::string& name : GradeNames(control.name)) {
    if (!Has(train::ArmNames(experiment), name) ||
        Has(experiment.gate.control, name)) {
      continue;
    }
    ThrowError(ErrorKind::kConfig,
               "{}: the arm {} is no control, but a part of {} is to have this "
               "name. Rename the arm.",
               file, name, control.name);
  }
  return control;
}

Plan PlanControls(const train::Experiment& experiment, size_t seeds,
                  const std::filesystem::path& folder) {
  const train::Arm& control = ControlOf(experiment);
  PolicyFor(experiment);
  Cell cell{.name = "parts", .experiment = OnSeedsOfItsOwn(experiment, seeds)};
  const auto parts = NestedParts(SitesOf(control, experiment, true),
                                 SitesOf(control, experiment, false));
  for (const Names& part : parts) {
    train::Arm arm = control;
    if (&part != &parts.back()) arm.include = part;
    arm.name = fmt::format("sites-{}", SitesOf(arm, experiment, true).size());
    cell.experiment.arms.push_back(std::move(arm));
  }
  Plan plan{.kind = "controls", .folder = folder, .cells = {}, .text = {}};
  plan.text =
      BeginPlanText(plan.kind, "experiment", PlannedToml(cell.experiment))
          .text();
  plan.cells = {std::move(cell)};
  return plan;
}

GradedControl ReadParts(const Plan& plan, const train::Experiment& experiment) {
  const Cell& cell = plan.cells.front();
  const std::vector<train::Arm>& arms = cell.experiment.arms;
  const gate::Policy policy = PolicyFor(experiment);
  GradedControl graded{.experiment = experiment,
                       .control = ControlOf(experiment).name,
                       .seeds = cell.experiment.train.seeds,
                       .parts = {arms.begin() + 1, arms.end()},
                       .harms = {},
                       .margin_percent = policy.margin_percent};
  const std::vector<compare::Run> runs = RunsOf(plan, cell);
  for (const train::Arm& part : graded.parts) {
    std::vector<double>& harms = graded.harms.emplace_back();
    for (const uint64_t seed : graded.seeds) {
      const auto* baseline = FindRun(runs, arms.front().name, seed);
      const auto* run = FindRun(runs, part.name, seed);
      if (baseline == nullptr || run == nullptr) ThrowNothingToJudge(plan);
      harms.push_back(HarmOf(*baseline, *run, policy.window_share));
    }
  }
  return graded;
}

std::string WithControls(const std::string& toml, const GradedControl& graded) {
  std::vector<TableText> tables = TablesOf(toml);
  for (TableText& table : tables) {
    if (table.heading != "[gate]") continue;
    table.lines = WithControlKey(table.lines, graded.Controls());
  }
  std::string text = TextOf(tables);
  const std::vector<train::Arm> arms = graded.Arms();
  for (const std::string& name : GradeNames(graded.control)) {
    const auto arm = std::ranges::find(arms, name, &train::Arm::name);
    text = WithTable(text, fmt::format("[arms.{}]", name),
                     arm == arms.end()
                         ? ""
                         : ArmText(*arm, graded.experiment.parallel.exchange));
  }
  return text;
}

std::string RewrittenFile(const GradedControl& graded) {
  const std::filesystem::path& file = graded.experiment.path;
  std::string text =
      WithControls(ReadTextFile(file, "Give an experiment file."), graded);
  const train::Experiment rewritten =
      ParseRewrite(text, file, GradeNames(graded.control));
  if (rewritten.gate.control != graded.Controls()) {
    ThrowError(ErrorKind::kConfig,
               "{}: no line of a table [gate] begins with `control =`, but "
               "--write replaces this line. Write gate.control so.",
               file.string());
  }
  return text;
}

}  // namespace isoloss::studies
