// isoloss study controls: finds parts of a bad recipe's sites that harm by half
// a margin and by about one, so that a verdict can say what it could have seen.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "isoloss/base/atomic_file.h"
#include "isoloss/document/picture.h"
#include "isoloss/stats/mean_interval.h"
#include "isoloss/studies/experiment_file.h"
#include "isoloss/studies/graded_controls.h"
#include "isoloss/studies/study.h"

namespace isoloss::studies {
namespace {

using document::Document;
using system::ExitCode;

/// Returns the 90 % interval of a part's harm; of a part that diverged, a
/// point.
stats::MeanInterval IntervalOf(const GradedControl& graded, size_t part) {
  constexpr double kAlpha = 0.05;
  const double mean = graded.Means()[part];
  if (!std::isfinite(mean)) return {mean, mean, mean};
  return stats::IntervalOfMean(stats::Summarize(graded.harms[part]), kAlpha);
}

std::string HarmText(double percent) {
  return std::isfinite(percent) ? fmt::format("{:+.3f}", percent) : "diverged";
}

std::string Rounded(double margins) {
  constexpr double kWhole = 10;
  return margins < kWhole ? fmt::format("{:.2g}", margins)
                          : fmt::format("{:.0f}", margins);
}

std::string MarginsText(double percent, const GradedControl& graded) {
  return std::isfinite(percent)
             ? "by " + Rounded(percent / graded.margin_percent)
             : "so that training diverged";
}

/// Says why no part serves a grade, and what to do.
std::string Remedy(const GradedControl& graded, const Grade& grade) {
  const std::vector<double> fit = graded.Fit();
  const double target = grade.margins * graded.margin_percent;
  if (fit.back() < target) {
    return fmt::format(
        "all sites do {}. Name a worse recipe, or choose a smaller margin, and "
        "grade again.",
        MarginsText(fit.back(), graded));
  }
  if (fit.front() > target) {
    const auto include = graded.parts.front().include.value_or(
        std::vector<std::string>{"a part of its sites"});
    return fmt::format(
        "the mildest does {}. Name a better recipe, or give {} the sites of "
        "that part, and grade again: include = [\"{}\"].",
        MarginsText(fit.front(), graded), graded.control,
        fmt::join(include, "\", \""));
  }
  const auto above = std::ranges::upper_bound(fit, target);
  return fmt::format(
      "one does {}, and the next {}. Train more --seeds, or name another "
      "recipe.",
      MarginsText(*(above - 1), graded), MarginsText(*above, graded));
}

/// Names the part of each grade.
std::vector<std::string> Choice(const GradedControl& graded) {
  std::vector<std::string> lines;
  std::map<std::string, std::vector<double>> missing;  // by remedy
  for (const Grade& grade : kGrades) {
    const auto part = graded.PartOf(grade);
    if (!part) {
      missing[Remedy(graded, grade)].push_back(grade.margins);
      continue;
    }
    const bool whole = *part + 1 == graded.parts.size();
    lines.push_back(
        fmt::format("{}: {}, which harms {} margins.",
                    whole ? graded.control : graded.control + grade.suffix,
                    whole ? "all of its sites" : graded.parts[*part].name,
                    MarginsText(graded.Fit()[*part], graded)));
  }
  for (const auto& [remedy, margins] : missing) {
    lines.push_back(fmt::format("No part harms by about {} margins: {}",
                                fmt::join(margins, " or "), remedy));
  }
  return lines;
}

/// Says how little so few seeds tell.
std::string Uncertainty(const GradedControl& graded) {
  double widest = 0;
  for (size_t part = 0; part < graded.parts.size(); ++part) {
    const stats::MeanInterval interval = IntervalOf(graded, part);
    widest = std::max(widest, interval.upper - interval.mean);
  }
  return fmt::format(
      "The choice is uncertain: a harm may be off by up to {} margins (90 % "
      "interval over {} seeds; more --seeds narrow it), and chance may exceed "
      "what a part does. No verdict rests on it: `verify` judges the controls "
      "on other seeds.",
      Rounded(widest / graded.margin_percent), graded.seeds.size());
}

Document PartDocument(const GradedControl& graded, size_t part) {
  const stats::MeanInterval interval = IntervalOf(graded, part);
  const train::Arm& arm = graded.parts[part];
  Document document;
  document.Put("name", arm.name);
  document.Put("include", arm.include.value_or(std::vector<std::string>()));
  document.Put("by_seed_percent", graded.harms[part]);
  document.PutInterval("harm_percent", interval.mean, interval.lower,
                       interval.upper);
  document.Put("fit_percent", graded.Fit()[part]);
  std::string seeds;
  for (const double harm : graded.harms[part]) seeds += " " + HarmText(harm);
  document.Say(fmt::format("{:<10} {:>8} [{:+.2f}, {:+.2f}] {:>8} {}", arm.name,
                           HarmText(interval.mean), interval.lower,
                           interval.upper, HarmText(graded.Fit()[part]), seeds),
               2);
  return document;
}

Document ControlsDocument(const GradedControl& graded) {
  const train::Experiment& experiment = graded.experiment;
  const train::Arm& control = train::ArmNamed(experiment, graded.control);
  Document document;
  document.Put("schema_version", 1);
  document.Put("experiment", experiment.name);
  document.Put("baseline", experiment.arms.front().name);
  document.Put("control", graded.control);
  document.Put("recipe", control.recipe);
  document.Put("seeds", graded.seeds);
  document.Put("margin_percent", graded.margin_percent);
  document.Put("controls", graded.Controls());
  document.Say(fmt::format(
      "Harm of {} in parts of the sites of {}, in % of the loss of {} at the "
      "end of {} steps: mean over {} seeds with 90 % interval, ascending fit, "
      "and each seed",
      control.recipe, graded.control, experiment.arms.front().name,
      experiment.train.steps, graded.seeds.size()));
  std::vector<size_t> places(graded.parts.size());
  for (size_t i = 0; i < places.size(); ++i) places[i] = i;
  document.PutEach("parts", places,
                   [&](size_t part) { return PartDocument(graded, part); });
  document.Say("");
  document.Say(fmt::format("The margin is {:g} %.", graded.margin_percent));
  SayNotes(Choice(graded), document);
  document.Say(Uncertainty(graded));
  return document;
}

document::Picture ControlsPicture(const GradedControl& graded) {
  document::PicturePanel panel{
      .x = {.widen = 0.05,
            .label = [](double part) { return fmt::format("{:g}", part); },
            .title = "part, the mildest first"},
      .y = {.widen = 0.1}};
  for (const Grade& grade : kGrades) {
    panel.rules.push_back({.at = grade.margins * graded.margin_percent});
    panel.y.holds.push_back(panel.rules.back().at);
  }
  document::PicturePath fitted{.points = {}, .colour = document::colour::kBlue};
  const std::vector<double> fit = graded.Fit();
  for (size_t part = 0; part < fit.size(); ++part) {
    if (!std::isfinite(fit[part])) continue;
    const auto x = static_cast<double>(part + 1);
    fitted.points.push_back({x, fit[part]});
    for (const double harm : graded.harms[part]) {
      if (!std::isfinite(harm)) continue;
      panel.marks.push_back(
          {.x = x, .y = harm, .colour = document::colour::kBlue});
    }
  }
  if (fitted.points.empty()) panel.instead = "Training diverged in every part.";
  panel.paths.push_back(std::move(fitted));
  return {
      .title =
          fmt::format("Harm of {} in parts of its sites, %", graded.control),
      .parts = {std::move(panel), document::PictureText{fmt::format(
                                      "{}", fmt::join(Choice(graded), " "))}},
      .width = 900};
}

class Controls : public Study {
 public:
  std::vector<Option> Options() override {
    return arguments_.Options(
        "Seeds of each part, which the experiment does not train (default: 2)",
        "Write the chosen parts into the experiment file as arms and into "
        "gate.control, in place of earlier ones");
  }

  Plan MakePlan(const Request& request) override {
    experiment_ = arguments_.Load("controls");
    Plan plan = PlanControls(
        experiment_, arguments_.seeds,
        FolderOfStudy(experiment_.name, "controls", false, request.out));
    // A file that cannot be written is refused before anything is trained.
    if (arguments_.write) {
      RewrittenFile(
          {.experiment = experiment_, .control = ControlOf(experiment_).name});
    }
    if (request.estimate) EstimateCosts(plan.cells);
    return plan;
  }

  std::string Describe(const Plan& plan) const override {
    const train::Experiment& parts = plan.cells.front().experiment;
    const auto names = train::ArmNames(parts);
    return fmt::format(
        "{} and {} in {} parts ({}) x {} seeds of {} steps: {}\n",
        names.front(), parts.arms.back().recipe, names.size() - 1,
        fmt::join(names.begin() + 1, names.end(), ", "), arguments_.seeds,
        parts.train.steps, CostText(plan));
  }

  std::optional<Answer> Judge(const Plan& plan, bool /*may_train*/) override {
    const GradedControl graded = ReadParts(plan, experiment_);
    if (arguments_.write) {
      WriteFileAtomically(experiment_.path, RewrittenFile(graded));
    }
    const bool all = std::ranges::all_of(kGrades, [&](const Grade& grade) {
      return graded.PartOf(grade).has_value();
    });
    return Answer{.code = all ? ExitCode::kPass : ExitCode::kInconclusive,
                  .document = ControlsDocument(graded),
                  .picture = ControlsPicture(graded),
                  .files = {{"arms.toml", graded.ArmsText()}}};
  }

 private:
  WritingArguments arguments_;
  train::Experiment experiment_;
};

}  // namespace

extern constinit const StudyKind kStudy_controls = {
    "controls", "Find parts of a control that harm by about a margin",
    "isoloss study controls experiment.toml --write", "runs/<name>-controls",
    []() -> std::unique_ptr<Study> { return std::make_unique<Controls>(); }};

}  // namespace isoloss::studies
