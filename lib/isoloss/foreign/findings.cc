#include "isoloss/foreign/findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <string_view>

#include "isoloss/foreign/smoothing.h"
#include "isoloss/foreign/table_names.h"
#include "isoloss/foreign/text.h"

namespace isoloss::foreign {
namespace {

void AddSteps(const Series& series, std::vector<std::string>& findings) {
  const Spacing spacing = SpacingOf(series.step);
  if (spacing.gaps > 0) {
    findings.push_back(
        fmt::format("{}: values stand {} steps apart, but not everywhere. "
                    "Places that differ: "
                    "{}, the first after step {}. Values missing: {}.",
                    series.name, spacing.stride, spacing.gaps,
                    spacing.first_gap, spacing.missing));
  }
  if (series.repeated > series.neighbours) {
    findings.push_back(fmt::format(
        "{}: steps were written again with another value, as after a resume: "
        "{}, the first is {}. The last value counts.",
        series.name, series.repeated, series.first_repeat));
  }
  if (series.copies > 0) {
    findings.push_back(
        fmt::format("{}: values were written again unchanged, as by several "
                    "ranks: {}. Each "
                    "counts once.",
                    series.name, series.copies));
  }
}

void AddValues(const Series& series, std::vector<std::string>& findings) {
  if (series.unreadable > 0) {
    findings.push_back(fmt::format(
        "{}: what is written is no number in {} places, the first is `{}` at "
        "step {}. Each counts as NaN.",
        series.name, series.unreadable, series.unreadable_text,
        series.first_unreadable));
  }
  const auto bad = std::ranges::find_if_not(
      series.value, [](double x) { return std::isfinite(x); });
  if (bad != series.value.end()) {
    findings.push_back(fmt::format(
        "{}: values are NaN or infinite: {}, the first at {}.", series.name,
        std::ranges::count_if(series.value,
                              [](double x) { return !std::isfinite(x); }),
        series.step[static_cast<size_t>(bad - series.value.begin())]));
  }
  if (series.averaging != Averaging::kInstant) {
    findings.push_back(fmt::format(
        "{}: each value is {}{}, which has less noise than the "
        "value of a step. Do not pair the two kinds.",
        series.name, series.averaging == Averaging::kSmoothed ? "" : "a ",
        AveragingText(series.averaging)));
  }
  if (LooksSmoothed(series)) {
    findings.push_back(fmt::format(
        "{}: it moves like a smoothed series. Differences in a row have the "
        "correlation {:.2f}, where independent batches give -0.5.",
        series.name, CorrelationOfDifferences(series.value).value));
  }
  if (series.thinned) {
    findings.push_back(fmt::format(
        "{}: points were left out by whoever exported it.", series.name));
  }
}

/// Reports steps with a gradient norm or rate of 0, in which no weight moves.
void AddIdleSteps(const Series& series, std::vector<std::string>& findings) {
  const auto zeros = std::ranges::count(series.value, 0);
  if (zeros == 0) return;
  if (series.quantity == Quantity::kLearningRate) {
    const auto last = std::find_if(series.value.rbegin(), series.value.rend(),
                                   [](double value) { return value != 0; });
    const auto late = last - series.value.rbegin();
    // A rate may end with 0, but not for a fifth of the run.
    const bool may_end = 5 * late < std::ssize(series.value);
    if (may_end && late == zeros) return;
    if (series.value.front() == 0 && zeros - (may_end ? late : 0) == 1) {
      findings.push_back(
          fmt::format("{}: it is 0 in step {}, so the first update did "
                      "nothing.",
                      series.name, series.step.front()));
      return;
    }
  }
  const auto first = std::ranges::find(series.value, 0);
  findings.push_back(fmt::format(
      "{}: it is 0 in {} of {} steps, the first is {}. No weight moves there.",
      series.name, zeros, series.value.size(),
      series.step[static_cast<size_t>(first - series.value.begin())]));
}

}  // namespace

std::vector<std::string> WarningsOf(const Series& series) {
  std::vector<std::string> warnings;
  if (series.attempts > 1) {
    warnings.push_back(fmt::format(
        "{}: its steps begin {} times with the first one, as of a run that was "
        "started anew. The last attempt counts alone, from step {} to {}.",
        series.name, series.attempts, series.step.front(), series.step.back()));
  }
  if (series.neighbours > 0) {
    warnings.push_back(fmt::format(
        "{}: a step has several values in a row, as of ranks or micro-batches: "
        "{} more than steps, the first at step {}. The last one counts, and "
        "no mean is taken.",
        series.name, series.neighbours, series.first_repeat));
  }
  return warnings;
}

namespace {

/// The words of its name say which statistic of which losses a series is.
struct Statistic {
  bool largest = false;
  bool smallest = false;
  bool exponential = false;
  std::set<std::string> of;  ///< the remaining words: "val" of eval_perplexity
};

Statistic StatisticOf(std::string_view name) {
  constexpr std::string_view kPlain[] = {
      "loss", "losses",  "lm",     "ce",       "cross",   "entropy", "mean",
      "avg",  "average", "global", "across",   "over",    "rank",    "ranks",
      "of",   "all",     "train",  "training", "metrics", "reduced"};
  constexpr std::string_view kEvaluations[] = {"eval", "evaluation", "valid",
                                               "validation"};
  Statistic statistic;
  for (Word& word : WordsOf(name)) {
    std::string& text = word.letters;
    if (text == "max" || text == "maximum") {
      statistic.largest = true;
    } else if (text == "min" || text == "minimum") {
      statistic.smallest = true;
    } else if (text == "perplexity" || text == "ppl") {
      statistic.exponential = true;
    } else if (std::ranges::count(kEvaluations, text) != 0) {
      statistic.of.insert("val");
    } else if (std::ranges::count(kPlain, text) == 0) {
      statistic.of.insert(std::move(text));
    }
  }
  return statistic;
}

/// Reports at how many common steps `broken(of, loss, slack)` holds. `slack` is
/// what the digits of both series leave open.
template <typename Broken>
void AddContradiction(const Series& of, const Series& loss, const char* rule,
                      const Broken& broken,
                      std::vector<std::string>& findings) {
  size_t common = 0;
  size_t wrong = 0;
  size_t at = 0;
  for (size_t i = 0; i < of.step.size(); ++i) {
    while (at < loss.step.size() && loss.step[at] < of.step[i]) ++at;
    if (at == loss.step.size()) break;
    if (loss.step[at] != of.step[i]) continue;
    ++common;
    wrong += broken(of.value[i], loss.value[at],
                    of.digits.HalfUnit(of.value[i]) +
                        loss.digits.HalfUnit(loss.value[at]))
                 ? 1
                 : 0;
  }
  if (wrong == 0) return;
  findings.push_back(fmt::format("{} {} {} at {} of {} steps, which cannot be.",
                                 of.name, rule, loss.name, wrong, common));
}

/// Reports contradictions: no loss is above the largest or below the smallest
/// loss of the ranks, and a perplexity is exp(loss).
void AddContradictions(const Series& series, const Series& loss,
                       std::vector<std::string>& findings) {
  const Statistic statistic = StatisticOf(series.name);
  const bool is_loss = series.name.find("oss") != std::string::npos;
  if (statistic.largest && is_loss) {
    AddContradiction(
        series, loss, "is below",
        [](double a, double b, double e) { return a < b - e; }, findings);
  } else if (statistic.smallest && is_loss) {
    AddContradiction(
        series, loss, "is above",
        [](double a, double b, double e) { return a > b + e; }, findings);
  } else if (statistic.exponential) {
    // `e` is the sum of both half units; an error of e in b moves exp(b) by e
    // exp(b).
    AddContradiction(
        series, loss, "is not exp of",
        [](double a, double b, double e) {
          constexpr double kRounding = 1e-6;
          return std::abs(a - std::exp(b)) >
                 e * (1 + std::exp(b)) + kRounding * a;
        },
        findings);
  }
}

void AddAllContradictions(const ForeignRun& run,
                          std::vector<std::string>& findings) {
  for (const Quantity quantity : {Quantity::kLoss, Quantity::kEvalLoss}) {
    const Series* loss = run.Main(quantity);
    if (loss == nullptr) continue;
    // A training loss has many names, and statistics of the run mean that loss.
    const std::set<std::string> of = quantity == Quantity::kLoss
                                         ? std::set<std::string>()
                                         : StatisticOf(loss->name).of;
    for (const Series& series : run.series) {
      if (series.quantity != Quantity::kOther) continue;
      const Statistic statistic = StatisticOf(series.name);
      if (statistic.of != of) continue;
      // Beside a loss with its auxiliary losses, the perplexity may be of the
      // loss without them, as in MaxText.
      const auto explains = [&](const Series& other) {
        std::vector<std::string> none;
        if (other.quantity != quantity || other.step != loss->step)
          return false;
        AddContradictions(series, other, none);
        return none.empty();
      };
      if (statistic.exponential && std::ranges::any_of(run.series, explains)) {
        continue;
      }
      AddContradictions(series, *loss, findings);
    }
  }
}

/// Reports a run whose last loss comes before its planned end.
void AddEarlyEnd(const ForeignRun& run, std::vector<std::string>& findings) {
  const Series* loss = run.Main(Quantity::kLoss);
  if (loss == nullptr || loss->step.empty()) return;
  const int64_t last = loss->step.back() + (loss->step.front() == 0 ? 1 : 0);
  const int64_t missing = run.steps_planned - last;
  if (missing < std::max<int64_t>(1, SpacingOf(loss->step).stride)) return;
  findings.push_back(fmt::format(
      "The run was to have {} steps, but its last loss is of step {}: {} of {} "
      "steps have none at the end.",
      run.steps_planned, last, missing, run.steps_planned));
}

/// Reports a loss that begins where the run's loss, under another name, ends.
void AddRenamedLoss(const ForeignRun& run, std::vector<std::string>& findings) {
  const Series* loss = run.Main(Quantity::kLoss);
  if (loss == nullptr) return;
  for (const Series& other : run.series) {
    if (&other == loss || other.quantity == Quantity::kEvalLoss ||
        other.name.find("loss") == std::string::npos ||
        other.name.starts_with("val")) {
      continue;
    }
    const Series& first = other.step < loss->step ? other : *loss;
    const Series& second = &first == loss ? other : *loss;
    if (first.step.back() >= second.step.front()) continue;
    findings.push_back(fmt::format(
        "{}: its last value is of step {}, and {} begins at step {}, as if a "
        "field had changed its name. Only {} counts as the loss.",
        first.name, first.step.back(), second.name, second.step.front(),
        loss->name));
  }
}

/// Says which series counts as the loss where that is a choice.
void AddChoiceOfLoss(const ForeignRun& run,
                     std::vector<std::string>& findings) {
  const Series* main = run.Main(Quantity::kLoss);
  const auto has = [](std::string_view name, std::string_view word) {
    return std::ranges::count(WordsOf(name), word, &Word::letters) != 0;
  };
  std::vector<std::string> names;
  for (const Series& series : run.series) {
    if (&series == main || series.quantity == Quantity::kEvalLoss ||
        !has(series.name, "loss")) {
      continue;
    }
    // A total has terms that the loss of the model lacks.
    if (main == nullptr ||
        (has(series.name, "total") && !has(main->name, "total"))) {
      names.push_back(series.name);
    }
  }
  const Series* evaluation = run.Main(Quantity::kEvalLoss);
  if (names.empty() && main == nullptr && evaluation != nullptr) {
    findings.push_back(fmt::format(
        "No series counts as the loss of training: the only losses, as `{}`, "
        "are of an evaluation.",
        evaluation->name));
  }
  if (names.empty()) return;
  findings.push_back(
      main == nullptr
          ? fmt::format("No series counts as the loss of training. These have "
                        "the word in their name: {}. Choose with --loss NAME.",
                        NamesText(names))
          : fmt::format("`{}` counts as the loss, and not {}. Choose another "
                        "with --loss NAME.",
                        main->name, NamesText(names)));
}

}  // namespace

std::vector<std::string> FindingsOf(const ForeignRun& run) {
  std::vector<std::string> findings = run.notes;
  if (!run.without_loss.empty()) {
    findings.push_back(fmt::format(
        "The loss of {} step{} is not known, though the log tells of them. The "
        "first is {}, the last {}.",
        run.without_loss.size(), run.without_loss.size() == 1 ? "" : "s",
        run.without_loss.front(), run.without_loss.back()));
  }
  AddEarlyEnd(run, findings);
  if (run.step_base != 1 && run.step_unit == "step") {
    findings.push_back(
        fmt::format("The log counts steps from {}. Training steps are counted "
                    "from 1 here.",
                    run.step_base));
  }
  for (const Series& series : run.series) {
    if (series.quantity == Quantity::kOther) continue;
    AddSteps(series, findings);
    std::ranges::move(WarningsOf(series), std::back_inserter(findings));
    const bool moves = series.quantity == Quantity::kGradNorm ||
                       series.quantity == Quantity::kLearningRate;
    if (moves && &series == run.Main(series.quantity)) {
      AddIdleSteps(series, findings);
    }
    // A schedule and a clock are smooth by nature.
    const bool is_loss = series.quantity == Quantity::kLoss ||
                         series.quantity == Quantity::kGradNorm ||
                         series.quantity == Quantity::kEvalLoss;
    if (is_loss) AddValues(series, findings);
  }
  AddAllContradictions(run, findings);
  AddRenamedLoss(run, findings);
  AddChoiceOfLoss(run, findings);
  return findings;
}

}  // namespace isoloss::foreign
