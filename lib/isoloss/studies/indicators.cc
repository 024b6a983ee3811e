// isoloss study indicators: decides whether the recorded indicators of a stress
// study announced its divergences.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "isoloss/base/error.h"
#include "isoloss/estimators/indicator_judge.h"
#include "isoloss/logs/log_files.h"
#include "isoloss/studies/documents.h"
#include "isoloss/studies/study.h"
#include "isoloss/treatments/indicator_recorder.h"

namespace isoloss::studies {
namespace {

namespace fs = std::filesystem;
using document::Document;
using estimators::Growth;
using estimators::IndicatorKindOf;
using estimators::IndicatorRun;
using estimators::IndicatorStatement;
using estimators::RuleStatement;
using estimators::RunAlarm;
using estimators::RunShare;
using system::ExitCode;

/// Returns the subfolders, sorted by name.
std::vector<fs::path> FoldersIn(const fs::path& folder) {
  std::vector<fs::path> folders;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.is_directory()) folders.push_back(entry.path());
  }
  std::ranges::sort(folders);
  return folders;
}

/// Removes `end` from a name: a cell's experiment is named after the study and
/// the cell.
std::string NameWithout(const std::string& end, std::string name) {
  if (name.ends_with(end)) name.resize(name.size() - end.size());
  return name;
}

class Indicators : public Study {
 public:
  std::vector<Option> Options() override {
    return {{.name = "folder",
             .value = &folder_,
             .help = "Folder of a study that `isoloss study stress "
                     "--indicators` trained",
             .type_name = "FOLDER",
             .required = true}};
  }

  Plan MakePlan(const Request& /*request*/) override {
    return {.kind = "indicators", .folder = folder_, .cells = {}, .text = {}};
  }

  /// Passes whatever it finds, because it judges indicators, not recipes.
  /// Without a divergence that could have been announced it is inconclusive.
  std::optional<Answer> Judge(const Plan& plan, bool /*may_train*/) override {
    if (!fs::is_directory(plan.folder / treatments::kIndicatorFolder) ||
        !fs::is_directory(plan.folder / "cells")) {
      ThrowError(ErrorKind::kConfig,
                 "{}: it holds no indicators of a study. Name the folder of "
                 "one that `isoloss study stress EXPERIMENT --indicators 5` "
                 "trained.",
                 plan.folder.string());
    }
    for (const fs::path& cell : FoldersIn(plan.folder / "cells")) {
      ReadCell(plan.folder, cell);
    }
    IndicatorStatement statement =
        estimators::JudgeIndicators(std::move(runs_));
    statement.experiment = experiment_;
    statement.notes = std::move(notes_);
    return Answer{.code = statement.Diverged(/*judged=*/true) > 0
                              ? ExitCode::kPass
                              : ExitCode::kInconclusive,
                  .document = IndicatorsDocument(statement),
                  .picture = IndicatorsPicture(statement)};
  }

 private:
  /// Reads all finished runs of a cell. The notes name runs without records and
  /// a cell without runs.
  void ReadCell(const fs::path& folder, const fs::path& cell) {
    const std::string name = cell.filename().string();
    if (logs::LogsIn(cell).empty()) {
      notes_.push_back(fmt::format("No run of {} is there.", name));
      return;
    }
    for (const compare::Run& run : logs::ReadRuns({cell})) {
      experiment_ = NameWithout("-" + name, run.log.provenance.experiment_name);
      const fs::path file = treatments::IndicatorFile(
          folder, name, fs::path(run.file).stem().string());
      if (fs::exists(file)) {
        runs_.push_back(treatments::ReadIndicators(name, run.log, file));
      } else {
        notes_.push_back(fmt::format("{} of {} has recorded nothing.",
                                     file.stem().string(), name));
      }
    }
  }

  fs::path folder_;

  std::vector<IndicatorRun> runs_;
  std::vector<std::string> notes_;
  std::string experiment_;
};

/// Returns "31 [22, 50]"; a negative number tends towards harmless values.
std::string DoublingText(const std::optional<Growth>& growth) {
  if (!growth) return "-";
  if (!growth->IsSettled()) return "none";
  return fmt::format("{:.3g} [{:.3g}, {:.3g}]", 1 / growth->rate,
                     1 / growth->upper, 1 / growth->lower);
}

std::string RunShareText(const RunShare& share) {
  if (share.of == 0) return "-";
  return fmt::format("{} of {} [{:.0f}, {:.0f}] %", share.count, share.of,
                     100 * share.lower, 100 * share.upper);
}

std::string RuleLine(const RuleStatement& rule) {
  const std::string lead = rule.median_lead_steps
                               ? fmt::format("{:g}", *rule.median_lead_steps)
                               : "-";
  return fmt::format(
      "{:<26} {:<22} {:<22} {:<20} {:>5}  {}", rule.rule.Name(),
      DoublingText(rule.diverged_growth), DoublingText(rule.healthy_growth),
      RunShareText(rule.announced), lead, RunShareText(rule.false_alarms));
}

/// Returns sentences on what the figures can't say.
std::vector<std::string> Cautions(const IndicatorStatement& statement) {
  std::vector<std::string> cautions;
  if (statement.Diverged(/*judged=*/true) == 0) {
    cautions.emplace_back(
        "No run with an even seed diverged here, so that nothing can be said "
        "of announcements.");
  } else if (!statement.ComparesWithinAMode()) {
    cautions.emplace_back(
        "No mode has judged runs that diverged and judged runs that did not: "
        "an indicator that only tells the modes apart looks here as if it "
        "announced divergences.");
  }
  std::string none;
  for (const RuleStatement& rule : statement.rules) {
    if (rule.not_judged == 0) continue;
    none += fmt::format("{}{} of {}", none.empty() ? "" : ", ", rule.not_judged,
                        rule.rule.Name());
  }
  if (!none.empty()) {
    cautions.push_back(fmt::format(
        "Runs that were not judged, since nothing was measured or no run of "
        "their arm with an odd seed stayed healthy: {}.",
        none));
  }
  return cautions;
}

/// Puts doublings per step; positive numbers tend towards alarming values.
void PutGrowth(const char* key, const std::optional<Growth>& growth,
               Document& document) {
  if (!growth) return document.Put(key, {});
  Document object;
  object.Put("count", growth->count);
  object.PutInterval("doublings_per_step", growth->rate, growth->lower,
                     growth->upper);
  object.Put("doubling_steps", growth->IsSettled()
                                   ? document::Value(1 / growth->rate)
                                   : document::Value());
  document.PutObject(key, std::move(object));
}

void PutShare(const char* key, const RunShare& share, Document& document) {
  Document object;
  object.Put("count", share.count);
  object.Put("of", share.of);
  if (share.of == 0) {
    object.Put("share", {});
  } else {
    object.PutInterval(
        "share",
        static_cast<double>(share.count) / static_cast<double>(share.of),
        share.lower, share.upper);
  }
  document.PutObject(key, std::move(object));
}

Document RunAlarmDocument(const RunAlarm& alarm) {
  Document document;
  document.Put("run", alarm.run);
  PutGrowth("growth", alarm.growth, document);
  document.Put("level_doublings", alarm.level);
  document.Put("first_alarm_step", alarm.first_alarm);
  return document;
}

Document RuleDocument(const RuleStatement& rule) {
  const estimators::IndicatorKind& kind = IndicatorKindOf(rule.rule.indicator);
  Document document;
  document.Put("rule", rule.rule.Name());
  document.Put("indicator", kind.name);
  document.Put("unit", kind.unit);
  document.Put("what", kind.what);
  document.Put("falls", kind.falls);
  document.Put("fixed_level", rule.rule.fixed_level);
  PutGrowth("growth_diverged", rule.diverged_growth, document);
  PutGrowth("growth_healthy", rule.healthy_growth, document);
  PutShare("announced", rule.announced, document);
  document.Put("median_lead_steps", rule.median_lead_steps);
  PutShare("false_alarms", rule.false_alarms, document);
  document.Put("not_judged", rule.not_judged);
  document.PutEach("runs", rule.runs, RunAlarmDocument);
  document.Say(RuleLine(rule));
  return document;
}

Document IndicatorRunDocument(const IndicatorRun& run) {
  Document document;
  document.Put("mode", run.mode);
  document.Put("arm", run.arm);
  document.Put("seed", run.seed);
  document.Put("judged", estimators::IsJudged(run));
  document.Put("recorded_steps", run.steps.size());
  document.Put("diverged_at_step", run.diverged_at);
  return document;
}

}  // namespace

Document IndicatorsDocument(const IndicatorStatement& statement) {
  Document document;
  document.Put("schema_version", 1);
  document.Put("experiment", statement.experiment);
  document.Put("confidence", estimators::kIndicatorConfidence);
  document.Put("margin", estimators::kAlarmMargin);
  document.Put("compares_within_a_mode", statement.ComparesWithinAMode());
  document.PutEach("runs", statement.runs, IndicatorRunDocument);
  document.Say(fmt::format(
      "Levels come from {} runs with odd seeds, of which {} diverged; {} with "
      "even seeds are judged, of which {} diverged.",
      statement.Count(false), statement.Diverged(false), statement.Count(true),
      statement.Diverged(true)));
  document.Say(
      "Doubling times in steps with 95 % intervals over runs: how long an "
      "indicator takes to become twice as alarming; negative: half as "
      "alarming; none: the interval of its slope holds 0.");
  document.Say("");
  document.Say(fmt::format("{:<26} {:<22} {:<22} {:<20} {:>5}  {}", "indicator",
                           "doubling, diverged", "doubling, healthy",
                           "announced", "lead", "false alarms"));
  document.PutEach("rules", statement.rules, RuleDocument);
  document.Put("notes", statement.notes);
  document.Say("");
  SayNotes(Cautions(statement), document);
  SayNotes(statement.notes, document);
  return document;
}

namespace {

/// Adds one run's distance from its level, with a gap where nothing was
/// measured. A mark on the lower edge shows the step at which the run diverged.
void AddCurve(const IndicatorRun& run, const RuleStatement& rule, double level,
              document::PicturePanel& panel) {
  const std::string_view ink =
      run.diverged_at ? document::colour::kRed : document::colour::kBlue;
  const auto& kind = IndicatorKindOf(rule.rule.indicator);
  document::PicturePath path{.points = {}, .colour = ink, .opacity = 0.45};
  for (size_t i = 0; i < run.steps.size(); ++i) {
    const double value =
        run.values[i][static_cast<size_t>(rule.rule.indicator)];
    path.points.push_back({static_cast<double>(run.steps[i]),
                           estimators::Alarm(kind, value) - level});
  }
  panel.paths.push_back(std::move(path));
  if (!run.diverged_at) return;
  panel.marks.push_back({.x = static_cast<double>(*run.diverged_at),
                         .colour = ink,
                         .sign = document::PictureMark::Sign::kFoot});
}

document::PicturePanel RulePanel(const IndicatorStatement& statement,
                                 const RuleStatement& rule, double last_step) {
  /// A panel shows this many doublings from the level; a value further away is
  /// drawn at its edge.
  constexpr double kReach = 6;
  document::PicturePanel panel{
      .title = rule.rule.Name(),
      .caption = fmt::format("announced {} of {}, false alarms {} of {}",
                             rule.announced.count, rule.announced.of,
                             rule.false_alarms.count, rule.false_alarms.of),
      .x = {.holds = {0, last_step},
            .fixed = true,
            .label = [](double tick) { return fmt::format("{:g}", tick); }},
      .y = {.holds = {-kReach, kReach},
            .fixed = true,
            .spacing = 20,
            .label =
                [](double tick) {
                  return tick == 0 ? "alarm" : document::SignedTick(tick);
                }},
      .rules = {{.at = 0, .colour = document::colour::kInk}},
      .width = 430,
      .height = 210};
  // Runs that diverged are drawn above the rest.
  for (const bool diverged : {false, true}) {
    for (const RunAlarm& alarm : rule.runs) {
      const IndicatorRun& run = statement.runs[alarm.run];
      const bool drawn = estimators::IsJudged(run) && alarm.level &&
                         std::isfinite(*alarm.level) &&
                         run.diverged_at.has_value() == diverged;
      if (drawn) AddCurve(run, rule, *alarm.level, panel);
    }
  }
  if (panel.paths.empty()) panel.instead = "nothing to draw: no finite level";
  return panel;
}

}  // namespace

document::Picture IndicatorsPicture(const IndicatorStatement& statement) {
  int64_t last = 1;
  for (const IndicatorRun& run : statement.runs) {
    if (!run.steps.empty()) last = std::max(last, run.steps.back());
    if (run.diverged_at) last = std::max(last, *run.diverged_at);
  }
  document::Picture picture{
      .title =
          "Indicators of the judged runs over steps, in doublings from "
          "the level that alarms",
      .parts = {document::PictureKeys{
          {{document::colour::kBlue, "stayed healthy"},
           {document::colour::kRed, "diverged, at the step of the mark"}}}}};
  bool beside = false;
  for (const RuleStatement& rule : statement.rules) {
    document::PicturePanel panel =
        RulePanel(statement, rule, static_cast<double>(last));
    panel.beside = beside;
    beside = !beside;
    picture.parts.emplace_back(std::move(panel));
  }
  return picture;
}

extern constinit const StudyKind kStudy_indicators = {
    "indicators", "Say what announced divergences under stress",
    "isoloss study indicators runs/demo-stress", nullptr,
    []() -> std::unique_ptr<Study> { return std::make_unique<Indicators>(); }};

}  // namespace isoloss::studies
