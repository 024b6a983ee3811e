#include "isoloss/foreign/run_log_of.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <functional>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/base/printable.h"
#include "isoloss/foreign/findings.h"
#include "isoloss/foreign/smoothing.h"
#include "isoloss/foreign/told.h"

namespace isoloss::foreign {
namespace {

/// The words of a run's name have these characters between them.
constexpr std::string_view kSeparators = "-_. /=";

/// An error gives the names of at most this many series.
constexpr size_t kMostNamed = 12;

[[noreturn]] void ThrowNoLoss(const ForeignRun& run) {
  std::string names;
  for (size_t i = 0; i < std::min(run.series.size(), kMostNamed); ++i) {
    names += fmt::format("{}`{}`", i == 0 ? "" : ", ",
                         Printable(run.series[i].name));
  }
  ThrowError(ErrorKind::kFormat,
             "{}the log has {} series ({}{}), none of which is known as a "
             "training loss. Name it with --loss.",
             run.name.empty() ? "" : "run " + Printable(run.name) + ": ",
             run.series.size(), names,
             run.series.size() > kMostNamed ? ", ..." : "");
}

/// Returns the values at these steps; empty if one is missing.
std::vector<double> ValuesAt(const Series* series,
                             const std::vector<int64_t>& steps) {
  std::vector<double> values;
  if (series == nullptr) return values;
  size_t at = 0;
  for (const int64_t step : steps) {
    while (at < series->step.size() && series->step[at] < step) ++at;
    if (at == series->step.size() || series->step[at] != step) return {};
    values.push_back(series->value[at]);
  }
  return values;
}

/// Converts to whole numbers that FP64 holds; empty if a value is none.
std::vector<int64_t> WholeNumbers(const std::vector<double>& values) {
  std::vector<int64_t> whole;
  for (const double value : values) {
    if (!(value >= 1 && value <= 0x1p53) || value != std::floor(value)) {
      return {};
    }
    whole.push_back(static_cast<int64_t>(value));
  }
  const bool ascend =
      std::ranges::adjacent_find(whole, std::greater_equal<>()) == whole.end();
  return ascend ? whole : std::vector<int64_t>();
}

double HalfUnitOf(const Series* series) {
  double largest = 0;
  if (series == nullptr) return largest;
  for (const double value : series->value) {
    largest = std::max(largest, series->digits.HalfUnit(value));
  }
  return largest;
}

runlog::LossValues ValuesOf(const Series& loss) {
  switch (loss.averaging) {
    case Averaging::kIntervalMean:
      return runlog::LossValues::kOfInterval;
    case Averaging::kBucketMean:
      return runlog::LossValues::kOfBucket;
    case Averaging::kSmoothed:
      return runlog::LossValues::kSmoothed;
    case Averaging::kInstant:
      break;
  }
  return runlog::LossValues::kOfStep;
}

/// Returns the largest power of 2 that all losses are multiples of, as far as
/// their digits go. A program that computes its loss in a coarse format shows
/// such steps. Returns 0 if chance alone may have made the multiples.
double StepOfValues(const Series& loss) {
  constexpr size_t kFewest = 20;
  constexpr int kFinest = 20;
  if (loss.value.size() < kFewest) return 0;
  for (int power = 0; power <= kFinest; ++power) {
    const double step = std::ldexp(1.0, -power);
    // By chance, at most one value in four is a multiple.
    const auto is_multiple = [&](double value) {
      const double unit = loss.digits.HalfUnit(value);
      return 8 * unit < step &&
             std::fabs(std::remainder(value, step)) <= unit * (1 + 1e-9);
    };
    if (std::ranges::all_of(loss.value, is_multiple)) return step;
  }
  return 0;
}

runlog::Told ToldBy(const ForeignRun& run, const Series& loss) {
  runlog::Told told;
  told.numbers = BatchFactsOf(run);
  told.idle = IdleOf(run);
  const Series* norm = run.Main(Quantity::kGradNorm);
  told.grad_norm_half_unit = HalfUnitOf(norm);
  // Norms that stand at each loss are in the columns.
  if (norm != nullptr && ValuesAt(norm, loss.step).empty()) {
    told.idle.push_back({.says = "the gradient norm is 0",
                         .step = norm->step,
                         .value = norm->value,
                         .half_unit = told.grad_norm_half_unit});
  }
  // If the losses' steps begin with 0, all steps of the run log count from 1.
  const auto count_from_one = [&loss](std::vector<int64_t>& steps) {
    if (loss.step.front() != 0 || steps == std::vector<int64_t>{0}) return;
    for (int64_t& step : steps) ++step;
  };
  for (auto& number : told.numbers) count_from_one(number.step);
  for (auto& idle : told.idle) count_from_one(idle.step);
  told.loss_step = StepOfValues(loss);
  told.looks_smoothed =
      loss.averaging != Averaging::kIntervalMean && LooksSmoothed(loss);
  return told;
}

/// Returns the tokens of each step if all steps have equally many; else 0.
int64_t TokensPerStep(const runlog::StepColumns& steps) {
  if (steps.tokens_seen.empty()) return 0;
  const int64_t first = steps.tokens_seen.front();
  if (first % steps.step.front() != 0) return 0;
  const int64_t each = first / steps.step.front();
  for (size_t i = 0; i < steps.step.size(); ++i) {
    if (steps.tokens_seen[i] / steps.step[i] != each ||
        steps.tokens_seen[i] % steps.step[i] != 0) {
      return 0;
    }
  }
  return each;
}

runlog::StepColumns StepsOf(const ForeignRun& run, const Series& loss) {
  runlog::StepColumns steps;
  steps.step = loss.step;
  steps.loss_nats = loss.value;
  const auto at = [&](Quantity quantity) {
    return ValuesAt(run.Main(quantity), loss.step);
  };
  steps.grad_norm = at(Quantity::kGradNorm);
  steps.lr = at(Quantity::kLearningRate);
  steps.tokens_seen = WholeNumbers(at(Quantity::kTokensSeen));
  steps.step_seconds = at(Quantity::kStepSeconds);
  steps.tokens_per_second = at(Quantity::kTokensPerSecond);
  // A clock is not judged, so a column is left out if a value is no time.
  const auto is_time = [](double value) {
    return std::isfinite(value) && value >= 0;
  };
  for (auto* clock : {&steps.step_seconds, &steps.tokens_per_second}) {
    if (!std::ranges::all_of(*clock, is_time)) clock->clear();
  }
  if (steps.step.front() == 0) {
    for (int64_t& step : steps.step) ++step;
  }
  return steps;
}

runlog::EvalColumns EvalOf(const ForeignRun& run) {
  runlog::EvalColumns eval;
  const Series* loss = run.Main(Quantity::kEvalLoss);
  if (loss == nullptr || loss->averaging == Averaging::kSmoothed) return eval;
  eval.step = loss->step;
  eval.loss_nats = loss->value;
  return eval;
}

/// Notes what becomes of gradient norms that do not stand at every loss.
void AppendNormEvents(const ForeignRun& run, const Series& loss,
                      std::vector<runlog::Event>& events) {
  const Series* norm = run.Main(Quantity::kGradNorm);
  if (norm == nullptr || !ValuesAt(norm, loss.step).empty()) return;
  events.push_back(
      {0, "import", "Its gradient norm is left out, which some steps lack."});
  const auto bad = std::ranges::find_if_not(
      norm->value, [](double value) { return std::isfinite(value); });
  if (bad == norm->value.end()) return;
  const auto place = static_cast<size_t>(bad - norm->value.begin());
  events.push_back({0, "nonfinite",
                    fmt::format("the gradient norm of step {} is {}",
                                norm->step[place], *bad)});
}

/// Notes a loss scale that has come down to 1. Such a scale keeps no gradient
/// of FP16 from becoming 0, and it only comes down because gradients overflow.
void AppendScaleEvent(const ForeignRun& run,
                      std::vector<runlog::Event>& events) {
  for (const Series& series : run.series) {
    if (!IsLossScale(series.name)) continue;
    const double most = std::ranges::max(series.value);
    const auto least = std::ranges::min_element(series.value);
    if (!(*least > 0 && *least <= 1 && most > *least)) continue;
    events.push_back(
        {0, "warning",
         fmt::format(
             "Its loss scale falls from {:g} to {:g} at step {}, so "
             "gradients overflowed again and again.",
             most, *least,
             series.step[static_cast<size_t>(least - series.value.begin())])});
    return;
  }
}

/// Returns what must be known of the losses, and what the log itself says.
std::vector<runlog::Event> EventsOf(const ForeignRun& run, const Series& loss) {
  ForeignRun told;
  told.notes = run.notes;
  told.without_loss = run.without_loss;
  told.step_unit = run.step_unit;
  told.step_base = run.step_base;
  told.series.push_back(loss);
  std::vector<runlog::Event> events;
  const std::vector<std::string> warnings = WarningsOf(loss);
  for (const std::string& finding : FindingsOf(told)) {
    const bool warns = std::ranges::count(warnings, finding) != 0;
    events.push_back({0, warns ? "warning" : "import", Printable(finding)});
  }
  AppendNormEvents(run, loss, events);
  AppendScaleEvent(run, events);
  constexpr size_t kMostUnknown = 10'000;
  const auto& unknown = run.without_loss;
  const size_t first = unknown.size() - std::min(unknown.size(), kMostUnknown);
  for (const int64_t step : std::span(unknown).subspan(first)) {
    events.push_back({0, "unknown_loss",
                      fmt::format("{}", step + (loss.step.front() == 0))});
  }
  if (!CanTellSmoothing(loss)) {
    events.push_back({0, "import",
                      "It has too few losses to tell whether they were "
                      "smoothed."});
  }
  if (loss.step.front() == 0) {
    events.push_back({0, "import", "Its first step is 0, which counts as 1."});
  }
  return events;
}

/// Returns the last step that is due.
int64_t PlanOf(const ForeignRun& run, const Series& loss) {
  const int64_t first = loss.step.front() == 0 ? 1 : 0;
  // A run may go on beyond its plan.
  int64_t planned = std::max(loss.step.back() + first, run.steps_planned);
  if (!run.without_loss.empty()) {
    planned = std::max(planned, run.without_loss.back() + first);
  }
  return planned;
}

}  // namespace

runlog::RunLog RunLogOf(const ForeignRun& run) {
  const Series* loss = run.Main(Quantity::kLoss);
  if (loss == nullptr || loss->step.empty()) ThrowNoLoss(run);
  if (loss->step.front() < 0) {
    ThrowError(ErrorKind::kFormat,
               "{}: its first step is {}, but steps count from 0 or 1. Export "
               "the curve over steps.",
               Printable(loss->name), loss->step.front());
  }
  runlog::RunLog log;
  log.steps = StepsOf(run, *loss);
  log.eval = EvalOf(run);
  log.events = EventsOf(run, *loss);
  log.told = ToldBy(run, *loss);
  runlog::Provenance& provenance = log.provenance;
  provenance.origin.format = run.format;
  provenance.origin.loss_values = static_cast<int64_t>(ValuesOf(*loss));
  provenance.origin.loss_thinned = loss->thinned;
  provenance.origin.loss_half_unit = HalfUnitOf(loss);
  if (!log.steps.lr.empty()) {
    provenance.origin.lr_half_unit =
        HalfUnitOf(run.Main(Quantity::kLearningRate));
  }
  provenance.steps_planned = PlanOf(run, *loss);
  provenance.tokens_per_step = TokensPerStep(log.steps);
  constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  provenance.unigram_entropy_nats = kUnknown;
  provenance.entropy_floor_nats = kUnknown;
  provenance.bigram_entropy_nats = kUnknown;
  provenance.deflated_bits = kUnknown;
  // An error after the planned end does not matter to the losses.
  provenance.complete =
      run.broke_off.empty() ||
      (run.steps_planned > 0 && log.steps.step.back() >= run.steps_planned);
  if (!provenance.complete) {
    log.events.push_back({0, "broke_off", run.broke_off});
  }
  return log;
}

ArmAndSeed SplitName(const std::string& name) {
  constexpr std::array<std::string_view, 5> kWords = {"seed", "run", "rep", "s",
                                                      "r"};
  size_t digits = name.size();
  while (digits > 0 &&
         std::isdigit(static_cast<unsigned char>(name[digits - 1])) != 0) {
    --digits;
  }
  int64_t seed = 0;
  const auto read =
      std::from_chars(name.data() + digits, name.data() + name.size(), seed);
  if (read.ec != std::errc()) return {name, -1};
  std::string_view rest = name;
  rest = rest.substr(0, digits);
  const auto trim = [&rest] {
    const size_t last = rest.find_last_not_of(kSeparators);
    rest = rest.substr(0, last + 1);
  };
  trim();
  for (const std::string_view word : kWords) {
    if (!rest.ends_with(word)) continue;
    std::string_view arm = rest.substr(0, rest.size() - word.size());
    // The number of "fp8-s1" is a seed, but "loss1" is a name.
    if (arm.empty() || kSeparators.find(arm.back()) == std::string_view::npos) {
      continue;
    }
    rest = arm;
    trim();
    if (rest.empty()) break;
    return {std::string(rest), seed};
  }
  return {name, -1};
}

}  // namespace isoloss::foreign
