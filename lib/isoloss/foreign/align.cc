#include "isoloss/foreign/align.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/foreign/foreign_run.h"
#include "isoloss/runlog/schema.h"

namespace isoloss::foreign {
namespace {

using runlog::RunLog;
using Logs = std::span<RunLog* const>;
using Steps = std::vector<int64_t>;

bool AllComplete(Logs logs) {
  return std::ranges::all_of(
      logs, [](const RunLog* log) { return log->provenance.complete; });
}

void Note(RunLog& log, std::string text) {
  log.events.push_back({0, "import", std::move(text)});
}

/// Keeps the rows of `column` whose `key` is in `keys`; both ascend.
template <typename T>
void KeepRows(const Steps& key, const Steps& keys, std::vector<T>& column) {
  if (column.size() != key.size()) return;
  size_t kept = 0;
  size_t at = 0;
  for (size_t i = 0; i < key.size(); ++i) {
    while (at < keys.size() && keys[at] < key[i]) ++at;
    if (at == keys.size()) break;
    if (keys[at] == key[i]) column[kept++] = column[i];
  }
  column.resize(kept);
}

Steps Both(const Steps& a, const Steps& b) {
  Steps both;
  std::ranges::set_intersection(a, b, std::back_inserter(both));
  return both;
}

/// Returns the steps that `member` gives for every log.
template <typename Member>
Steps Common(Logs logs, const Member& member) {
  Steps common = member(*logs.front());
  for (const RunLog* log : logs.subspan(1)) common = Both(common, member(*log));
  return common;
}

/// Throws the error about the first log without a common step.
[[noreturn]] void ThrowNoCommonStep(Logs logs) {
  const Steps& first = logs.front()->steps.step;
  Steps common = first;
  const auto other = std::ranges::find_if(logs, [&](const RunLog* log) {
    common = Both(common, log->steps.step);
    return common.empty();
  });
  const Steps& step = (*other)->steps.step;
  ThrowError(ErrorKind::kConfig,
             "the logs have no step in common: one has {} from {} to {}, "
             "another {} from {} to {}. Give logs of the same steps, or align "
             "them by tokens.",
             first.size(), first.front(), first.back(), step.size(),
             step.front(), step.back());
}

void KeepStepRows(const Steps& keys, const Steps& kept,
                  runlog::StepColumns& steps) {
  for (const auto& column : runlog::ColumnsOf<runlog::StepColumns>()) {
    runlog::MutableView(steps).WithValues(
        column, [&](auto& values) { KeepRows(keys, kept, values); });
  }
}

void KeepSteps(const Steps& kept, RunLog& log) {
  KeepStepRows(Steps(log.steps.step), kept, log.steps);
}

/// Returns how many evaluations were left out.
size_t KeepEvaluations(const Steps& kept, RunLog& log) {
  const Steps step = log.eval.step;
  KeepRows(step, kept, log.eval.loss_nats);
  KeepRows(step, kept, log.eval.step);
  // A judge of other programs' runs only looks at which evaluations exist.
  log.eval.per_sequence_loss_nats.clear();
  log.eval.sequences = 0;
  return step.size() - log.eval.step.size();
}

void CutAfter(int64_t until, RunLog& log) {
  const auto is_late = [&](int64_t at) { return at > until; };
  const Steps step = log.steps.step;
  Steps kept = step;
  std::erase_if(kept, is_late);
  if (kept.empty()) {
    ThrowError(ErrorKind::kConfig,
               "--until is {}, but a log begins with step {}, and steps must "
               "be left. Give a later step.",
               until, step.front());
  }
  Steps evaluated = log.eval.step;
  std::erase_if(evaluated, is_late);
  KeepSteps(kept, log);
  KeepEvaluations(evaluated, log);
  // A log that is judged up to `until` is whole if it got that far.
  if (until <= log.provenance.steps_planned) {
    log.provenance.complete = true;
    log.provenance.steps_planned =
        kept.size() < step.size() ? kept.back() : until;
  }
  if (kept.size() == step.size()) return;
  Note(log, fmt::format("Steps after {} are left out, as --until asks: {} of "
                        "{}.",
                        until, step.size() - kept.size(), step.size()));
}

/// A log's progress is its steps or its tokens: the values of this column.
using Progress = std::vector<int64_t> runlog::StepColumns::*;

int64_t DistanceOf(const Steps& progress) {
  return std::max<int64_t>(1, SpacingOf(progress).stride);
}

/// Finds the logs that stop before the longest log or before their own plan,
/// and marks them as incomplete.
void MarkShortOnes(Logs logs, Progress progress) {
  int64_t last = 0;
  int64_t last_step = 0;
  for (const RunLog* log : logs) {
    last = std::max(last, (log->steps.*progress).back());
    last_step = std::max(last_step, log->steps.step.back());
  }
  for (RunLog* log : logs) {
    const Steps& own = log->steps.*progress;
    const Steps& step = log->steps.step;
    const bool as_planned =
        log->provenance.steps_planned - step.back() < DistanceOf(step);
    if (as_planned && last - own.back() < DistanceOf(own)) continue;
    log->provenance.complete = false;
    log->provenance.steps_planned =
        std::max(log->provenance.steps_planned, last_step);
  }
}

/// Notes values that are not finite. They tell how the run went, even if the
/// other logs lack that step or column.
void NoteNonfinite(RunLog& log) {
  const auto note = [&](const std::vector<double>& column, const char* name) {
    const auto bad = std::ranges::find_if_not(
        column, [](double value) { return std::isfinite(value); });
    if (bad == column.end()) return;
    const auto row = static_cast<size_t>(bad - column.begin());
    log.events.push_back({0, "nonfinite",
                          fmt::format("the {} of step {} is {}", name,
                                      log.steps.step[row], *bad)});
  };
  note(log.steps.loss_nats, "loss");
  note(log.steps.grad_norm, "gradient norm");
}

void RequireAlikeIntervals(Logs logs) {
  const RunLog& first = *logs.front();
  for (const RunLog* log : logs) {
    const auto& origin = log->provenance.origin;
    const int64_t distance = DistanceOf(log->steps.step);
    if (origin.values() != runlog::LossValues::kOfInterval ||
        origin.values() != first.provenance.origin.values() ||
        distance == DistanceOf(first.steps.step)) {
      continue;
    }
    ThrowError(ErrorKind::kConfig,
               "a loss is a mean over {} steps in one log and over {} in "
               "another, but means of unequal length are no pair. Log both at "
               "equal distances.",
               DistanceOf(first.steps.step), distance);
  }
}

/// Notes learning rates that one of the logs lacks. They stay, since a rate may
/// be wrong by itself.
void NameUnsharedRates(Logs logs) {
  const auto has_rates = [](const RunLog* log) {
    return !log->steps.lr.empty();
  };
  if (std::ranges::all_of(logs, has_rates)) return;
  for (RunLog* log : logs) {
    if (!has_rates(log)) continue;
    Note(*log,
         "Its learning rates are not compared, since another log has none.");
  }
}

/// Drops columns that one of the logs lacks, since nothing can be compared.
/// Norms of 0 are kept in `told`: they tell by themselves that no weight moved.
void DropUnshared(Logs logs) {
  const auto drop = [&](auto column, const char* name, const auto& keep) {
    const bool shared = std::ranges::all_of(
        logs, [&](const RunLog* log) { return !(log->steps.*column).empty(); });
    if (shared) return;
    for (RunLog* log : logs) {
      if ((log->steps.*column).empty()) continue;
      keep(*log);
      (log->steps.*column).clear();
      Note(*log,
           fmt::format("Its {} is left out, which another log lacks.", name));
    }
  };
  drop(&runlog::StepColumns::grad_norm, "gradient norm", [](RunLog& log) {
    log.told.idle.push_back({.says = "the gradient norm is 0",
                             .step = log.steps.step,
                             .value = log.steps.grad_norm,
                             .half_unit = log.told.grad_norm_half_unit});
  });
  drop(&runlog::StepColumns::tokens_seen, "number of tokens",
       [](RunLog& /*log*/) {});
  NameUnsharedRates(logs);
}

/// Requires that the logs share their end and half of the steps of the sparsest
/// log. A few steps that are equal by chance make no curve.
void RequireMostSteps(Logs logs, const Steps& common) {
  const auto sparsest = std::ranges::min_element(
      logs, {}, [](const RunLog* log) { return log->steps.step.size(); });
  const Steps& fewest = (*sparsest)->steps.step;
  int64_t distance = 1;
  int64_t last = 0;  // of complete logs; MarkShortOnes marked the rest
  for (const RunLog* log : logs) {
    distance = std::max(distance, DistanceOf(log->steps.step));
    if (log->provenance.complete) last = std::max(last, log->steps.step.back());
  }
  const bool reaches_end = last - common.back() < distance;
  if (2 * common.size() >= fewest.size() &&
      (reaches_end || !AllComplete(logs))) {
    return;
  }
  ThrowError(ErrorKind::kConfig,
             "the logs share {} steps, from {} to {}, of {} that the shortest "
             "has, up to {}. They must share half of them, and their end. Log "
             "at equal steps, or align by tokens.",
             common.size(), common.front(), common.back(), fewest.size(),
             fewest.back());
}

void KeepCommonSteps(Logs logs) {
  const Steps common =
      Common(logs, [](const RunLog& log) { return log.steps.step; });
  if (common.empty()) ThrowNoCommonStep(logs);
  RequireMostSteps(logs, common);
  for (RunLog* log : logs) {
    const size_t all = log->steps.step.size();
    if (all > common.size()) {
      Note(*log,
           fmt::format("{} of its {} steps are judged, which all logs "
                       "have: from {} to {}.",
                       common.size(), all, common.front(), common.back()));
    }
    KeepSteps(common, *log);
    if (log->provenance.complete) log->provenance.steps_planned = common.back();
  }
}

void KeepCommonEvaluations(Logs logs) {
  const Steps common =
      Common(logs, [](const RunLog& log) { return log.eval.step; });
  for (RunLog* log : logs) {
    const size_t all = log->eval.step.size();
    if (const size_t left_out = KeepEvaluations(common, *log)) {
      Note(*log, fmt::format("{} of its {} held-out losses are left out, which "
                             "another log lacks.",
                             left_out, all));
    }
  }
}

/// Gives each log the first log's steps at equal tokens.
void CountByTokens(Logs logs) {
  const Steps common =
      Common(logs, [](const RunLog& log) { return log.steps.tokens_seen; });
  if (common.empty()) {
    ThrowError(ErrorKind::kConfig,
               "the logs have no number of tokens in common. Log at equal "
               "numbers of tokens, or align by step.");
  }
  Steps steps = logs.front()->steps.step;
  KeepRows(Steps(logs.front()->steps.tokens_seen), common, steps);
  for (RunLog* log : logs) {
    const Steps tokens = log->steps.tokens_seen;
    if (2 * common.size() < tokens.size() && AllComplete(logs)) {
      ThrowError(
          ErrorKind::kConfig,
          "the logs share {} numbers of tokens, but one has {}, and they "
          "must share half of them. Log at equal numbers of tokens.",
          common.size(), tokens.size());
    }
    KeepStepRows(tokens, common, log->steps);
    log->steps.step = steps;
    Note(*log, fmt::format("{} of its {} steps are judged, which all logs have "
                           "at equal tokens; steps are the first log's.",
                           common.size(), tokens.size()));
    if (!log->eval.step.empty()) {
      Note(*log,
           "Its held-out losses are left out, whose tokens it does not "
           "tell.");
    }
    log->eval = {};
    if (log->provenance.complete) log->provenance.steps_planned = steps.back();
  }
}

/// Drops what the logs tell of their batches, which the user means to differ.
void ForgetBatches(Logs logs) {
  const Steps& tokens = logs.front()->steps.tokens_seen;
  const bool alike = std::ranges::all_of(logs, [&](const RunLog* log) {
    return log->steps.tokens_seen == tokens;
  });
  for (RunLog* log : logs) {
    const bool told = !log->told.numbers.empty() || !alike;
    log->told.numbers.clear();
    if (!told) continue;
    Note(*log,
         "What it tells of its batches is not held against another log, as "
         "--align asks.");
  }
  if (alike) return;
  for (RunLog* log : logs) log->steps.tokens_seen.clear();
}

void RequireTokens(Logs logs) {
  for (const RunLog* log : logs) {
    if (!log->steps.tokens_seen.empty()) continue;
    ThrowError(ErrorKind::kConfig,
               "a log of format {} does not tell how many tokens were seen, a "
               "whole number that grows with each step, but logs are to be "
               "aligned by it. Align by step.",
               log->provenance.origin.format);
  }
}

}  // namespace

void Align(Logs logs, const AlignOptions& options) {
  if (logs.empty()) return;
  if (options.until) {
    for (RunLog* log : logs) CutAfter(*options.until, *log);
  }
  for (RunLog* log : logs) NoteNonfinite(*log);
  RequireAlikeIntervals(logs);
  if (options.by == AlignBy::kTokens) {
    RequireTokens(logs);
    MarkShortOnes(logs, &runlog::StepColumns::tokens_seen);
    CountByTokens(logs);
  } else {
    MarkShortOnes(logs, &runlog::StepColumns::step);
    KeepCommonSteps(logs);
    KeepCommonEvaluations(logs);
  }
  if (options.other_batches) ForgetBatches(logs);
  DropUnshared(logs);
}

void KeepSharedSteps(Logs logs) {
  const Steps common =
      Common(logs, [](const RunLog& log) { return log.steps.step; });
  if (common.empty()) ThrowNoCommonStep(logs);
  for (RunLog* log : logs) KeepSteps(common, *log);
  KeepCommonEvaluations(logs);
}

}  // namespace isoloss::foreign
