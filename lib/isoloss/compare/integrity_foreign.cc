// Checks the steps of other programs' runs for level L0; see integrity.cc.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string_view>

#include "isoloss/compare/integrity_rules.h"
#include "isoloss/runlog/shared_columns.h"

namespace isoloss::compare {
namespace {

std::string_view ValuesText(runlog::LossValues values) {
  switch (values) {
    case runlog::LossValues::kOfStep:
      return "values of single steps";
    case runlog::LossValues::kOfInterval:
      return "means over the steps since the loss before";
    case runlog::LossValues::kOfBucket:
      return "means of points that a chart put together";
    case runlog::LossValues::kSmoothed:
      break;
  }
  return "smoothed";
}

bool IsFiniteAtEnd(const runlog::StepColumns& steps) {
  return std::isfinite(steps.loss_nats.back()) &&
         (steps.grad_norm.empty() || std::isfinite(steps.grad_norm.back()));
}

using runlog::Told;

/// Logs have epochs with two decimals or more, counted from 0 or 1.
constexpr std::string_view kEpochs = "epochs seen";

/// Returns whether epochs are whole numbers, which stay the same for some rows.
bool CountsWhole(const Told::Number& epochs) {
  return std::ranges::adjacent_find(epochs.value) != epochs.value.end() &&
         std::ranges::all_of(epochs.value, [](double value) {
           return value == std::floor(value);
         });
}

/// Returns how much the digits of epochs, one whole epoch, or the FP32 of an
/// event file may hide.
double SlackOf(const Told::Number& a, const Told::Number& b, bool of_formats,
               double value) {
  constexpr double kOfEpochs = 0.02;
  if (a.name != kEpochs) return 0x1p-23 * std::fabs(value);
  const bool whole_a = CountsWhole(a);
  const bool whole_b = CountsWhole(b);
  const bool whole = whole_a != whole_b || (whole_a && of_formats);
  return kOfEpochs * std::max(1.0, std::fabs(value)) + (whole ? 1 : 0);
}

/// Describes the first step at which both logs tell a number and it differs:
/// "fp8-seed1: batch size is 8 at step 3, but 4 in bf16-seed1"; "" if there is
/// none. Programs may count what was seen before or after a step. So its growth
/// is compared if the formats differ, and always for epochs.
std::string OtherNumber(const SeedPair& pair, const Told::Number& a,
                        const Told::Number& b) {
  const auto rows = runlog::MatchRows(a.step, b.step);
  if (rows.empty()) return "";
  const bool of_formats = pair.baseline->log.provenance.origin.format !=
                          pair.candidate->log.provenance.origin.format;
  const bool grows =
      a.name == kEpochs || (a.name.ends_with(" seen") && of_formats);
  const double from_a = grows ? a.value[rows[0].a] : 0;
  const double from_b = grows ? b.value[rows[0].b] : 0;
  for (const runlog::SharedRow& at : rows) {
    const double x = a.value[at.a];
    const double y = b.value[at.b];
    const double apart = std::fabs((x - from_a) - (y - from_b));
    if (!std::isfinite(apart) ||
        apart <= SlackOf(a, b, of_formats, x - from_a)) {
      continue;
    }
    return fmt::format("{}: {} is {}{}, but {} in {}", Label(*pair.candidate),
                       a.name, y,
                       at.step == 0 ? "" : fmt::format(" at step {}", at.step),
                       x, Label(*pair.baseline));
  }
  return "";
}

/// Returns the numbers of batches in which both logs differ. If `sure`, their
/// names surely mean batches; else the names are unsure.
std::vector<std::string> OtherBatches(const SeedPair& pair, bool sure) {
  std::vector<std::string> texts;
  const auto& numbers = pair.candidate->log.told.numbers;
  for (const Told::Number& a : pair.baseline->log.told.numbers) {
    const auto b = std::ranges::find(numbers, a.name, &Told::Number::name);
    if (b == numbers.end() || (a.sure && b->sure) != sure) continue;
    std::string text = OtherNumber(pair, a, *b);
    if (!text.empty()) texts.push_back(std::move(text));
  }
  return texts;
}

/// Reports a pair with too few common losses for a curve. Such a pair neither
/// passes nor fails.
void ReportFewLosses(const SeedPair& pair, Findings& findings) {
  constexpr size_t kFewest = 3;
  const auto& step = pair.baseline->log.steps.step;
  const size_t evaluated = std::min(pair.baseline->log.eval.step.size(),
                                    pair.candidate->log.eval.step.size());
  if (step.empty() || step.size() >= kFewest || evaluated >= kFewest) return;
  Report(
      findings, Severity::kUnverified,
      "{}: it shares {} loss{} with {}, from step {} to {}, but a curve needs "
      "at least {}. Log more steps of both runs.",
      Label(*pair.candidate), step.size(), step.size() == 1 ? "" : "es",
      Label(*pair.baseline), step.front(), step.back(), kFewest);
}

void ReportOtherBatches(const SeedPair& pair, Findings& findings) {
  for (const std::string& text : OtherBatches(pair, true)) {
    Report(findings, Severity::kIncomparable,
           "{}, and runs of a pair must be made of equal batches. Train both "
           "alike, or say with --align step or --align tokens that they are "
           "meant to differ.",
           text);
  }
}

/// Describes gradient norms that differ by a factor at nearly all steps.
/// Rounding makes a norm larger, but such a factor is another unit, or another
/// sum of ranks or micro-batches.
std::string OtherNorms(const SeedPair& pair) {
  constexpr double kFactor = 1.25;
  constexpr size_t kFewest = 20;
  const runlog::StepColumns& a = pair.baseline->log.steps;
  const runlog::StepColumns& b = pair.candidate->log.steps;
  if (a.grad_norm.empty() || b.grad_norm.empty()) return "";
  std::vector<double> factors;
  for (const runlog::SharedRow& at : runlog::MatchRows(a.step, b.step)) {
    const double factor = b.grad_norm[at.b] / a.grad_norm[at.a];
    if (std::isfinite(factor) && factor > 0) factors.push_back(factor);
  }
  if (factors.size() < kFewest) return "";
  std::ranges::sort(factors);
  const size_t quarter = factors.size() / 4;
  const bool above = factors[quarter] > kFactor;
  const bool below = factors[factors.size() - 1 - quarter] < 1 / kFactor;
  if (!above && !below) return "";
  return fmt::format(
      "{}: its gradient norm is {:.3g} times that of {}. At three steps in "
      "four "
      "it is {} than {:g} times. Was it computed alike?",
      Label(*pair.candidate), factors[factors.size() / 2],
      Label(*pair.baseline), above ? "more" : "less",
      above ? kFactor : 1 / kFactor);
}

/// Returns the steps that the log has without their loss: the text of an event
/// "unknown_loss" is the step.
std::vector<int64_t> UnknownLosses(const runlog::RunLog& log) {
  std::vector<int64_t> steps;
  for (const runlog::Event& event : log.events) {
    if (event.kind != "unknown_loss") continue;
    int64_t at = 0;
    const char* end = event.text.data() + event.text.size();
    const bool is_step =
        std::from_chars(event.text.data(), end, at).ec == std::errc();
    if (is_step && at <= log.provenance.steps_planned) steps.push_back(at);
  }
  return steps;
}

/// Reports losses that are not known. No run can be judged without all losses
/// of the last fifth and most losses of each tenth.
void ReportUnknownLosses(const runlog::RunLog& log, const Run& run,
                         Findings& findings) {
  constexpr int64_t kTenths = 10;
  const std::vector<int64_t> unknown = UnknownLosses(log);
  if (unknown.empty()) return;
  const auto& step = log.steps.step;
  const int64_t last = std::max(step.back(), unknown.back());
  const int64_t first = std::min(step.front(), unknown.front());
  const auto tenth = [&](int64_t at) {
    return (at - first) * kTenths / (last - first + 1);
  };
  std::array<int64_t, kTenths> missing{};
  std::array<int64_t, kTenths> known{};
  for (const int64_t at : unknown) ++missing[static_cast<size_t>(tenth(at))];
  for (const int64_t at : step) ++known[static_cast<size_t>(tenth(at))];
  for (size_t part = 0; part < kTenths; ++part) {
    const bool at_end = part + 2 >= kTenths;
    if (missing[part] == 0 || (!at_end && missing[part] <= known[part])) {
      continue;
    }
    const int64_t where = *std::ranges::find_if(unknown, [&](int64_t at) {
      return tenth(at) == static_cast<int64_t>(part);
    });
    Report(findings, Severity::kUnverified,
           "{}: the losses of {} of {} steps are not known in one tenth of the "
           "run, the first is that of step {}. A tenth is judged by most of "
           "its losses, and the last two tenths by all. Log the loss of each "
           "step, or judge the steps before with --until {}.",
           Label(run), missing[part], missing[part] + known[part], where,
           where - 1);
    return;
  }
}

void ReportShortRun(const Run& run, Findings& findings) {
  const runlog::RunLog& log = run.log;
  const int64_t last = log.steps.step.back();
  if (!IsFiniteAtEnd(log.steps)) {
    Report(findings, Severity::kBad,
           "{}: ends at step {} of {} with a loss or gradient norm that is not "
           "finite.",
           Label(run), last, log.provenance.steps_planned);
    return;
  }
  for (const runlog::Event& event : log.events) {
    if (event.kind != "broke_off") continue;
    Report(findings, Severity::kIncomparable,
           "{}: after step {} its log has `{}`, so the run broke off, and a "
           "run must be whole. Train it on, or judge all up to a step that "
           "they share with --until {}.",
           Label(run), last, event.text, last);
    return;
  }
  Report(findings, Severity::kIncomparable,
         "{}: ends at step {} of {}, which another run or its own plan has, "
         "and all must go equally far. Train it on, or judge all up to a step "
         "that they share with --until {}.",
         Label(run), last, log.provenance.steps_planned, last);
}

}  // namespace

void ReportForeignSteps(const Run& run, Findings& findings) {
  const runlog::RunLog& log = run.log;
  const auto& step = log.steps.step;
  if (step.empty() || !ColumnsFit(log) || !Ascend(step, 1) ||
      !Ascend(log.steps.tokens_seen, 1) || !Ascend(log.eval.step, 0)) {
    Report(findings, Severity::kIncomparable,
           "{}: {} steps with {} losses and {} held-out ones at {} steps, but "
           "each step must have a loss, and steps and tokens ascend from 1. "
           "The log is damaged: export it again.",
           Label(run), step.size(), log.steps.loss_nats.size(),
           log.eval.loss_nats.size(), log.eval.step.size());
    return;
  }
  for (const runlog::Event& event : log.events) {
    if (event.kind != "nonfinite") continue;
    Report(findings, Severity::kBad,
           "{}: {}. The run diverged or computed garbage.", Label(run),
           event.text);
  }
  ReportUnknownLosses(log, run, findings);
  if (!log.provenance.complete) ReportShortRun(run, findings);
}

void ReportUnlikeCurves(const SeedPair& pair, Findings& findings) {
  const auto& a = pair.baseline->log;
  const auto& b = pair.candidate->log;
  if (a.steps.step != b.steps.step) {
    Report(findings, Severity::kIncomparable,
           "{}: its {} steps are not the {} of {}, but both runs of a seed "
           "must have the same. Export both with the same steps.",
           Label(*pair.candidate), b.steps.step.size(), a.steps.step.size(),
           Label(*pair.baseline));
  }
  ReportFewLosses(pair, findings);
  ReportOtherBatches(pair, findings);
  const auto values_a = a.provenance.origin.values();
  const auto values_b = b.provenance.origin.values();
  if (values_a == values_b) return;
  Report(findings, Severity::kIncomparable,
         "{}: its losses are {}, those of {} are {}, and a pair must have one "
         "kind. Export both in one way.",
         Label(*pair.candidate), ValuesText(values_b), Label(*pair.baseline),
         ValuesText(values_a));
}

std::vector<std::string> PairWarnings(const Pairing& pairing) {
  std::vector<std::string> warnings;
  for (const SeedPair& pair : pairing.pairs) {
    for (const std::string& text : OtherBatches(pair, false)) {
      warnings.push_back(text + ". Did both runs train on equal batches?");
    }
    if (std::string text = OtherNorms(pair); !text.empty()) {
      warnings.push_back(std::move(text));
    }
    if (!warnings.empty()) break;  // one pair is enough
  }
  return warnings;
}

}  // namespace isoloss::compare
