#include "isoloss/foreign/align.h"

#include <fmt/format.h>

#include <algorithm>
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

/// Of what `member` gives of a log, all have these.
template <typename Member>
Steps Common(Logs logs, const Member& member) {
  Steps common = member(*logs.front());
  for (const RunLog* log : logs.subspan(1)) common = Both(common, member(*log));
  return common;
}

/// Of the first log that shares no step with those before it.
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

void CutAfter(int64_t until, RunLog& log) {
  const Steps step = log.steps.step;
  Steps kept = step;
  std::erase_if(kept, [&](int64_t at) { return at > until; });
  if (kept.empty()) {
    ThrowError(ErrorKind::kConfig,
               "--until is {}, but a log begins with step {}, and steps must "
               "be left. Give a later step.",
               until, step.front());
  }
  runlog::VisitSteps(
      [&](const runlog::Field&, auto& column) { KeepRows(step, kept, column); },
      log.steps);
  const Steps evaluated = log.eval.step;
  Steps kept_evaluations = evaluated;
  std::erase_if(kept_evaluations, [&](int64_t at) { return at > until; });
  KeepRows(evaluated, kept_evaluations, log.eval.loss_nats);
  log.eval.step = kept_evaluations;
  log.provenance.steps_planned = log.steps.step.back();
}

/// Whether each ends where the last one does.
void MarkShortOnes(Logs logs) {
  int64_t last = 0;
  for (const RunLog* log : logs) last = std::max(last, log->steps.step.back());
  for (RunLog* log : logs) {
    const Steps& step = log->steps.step;
    const int64_t distance = std::max<int64_t>(1, SpacingOf(step).stride);
    log->provenance.steps_planned = last;
    log->provenance.complete = last - step.back() < distance;
  }
}

/// Columns that one of the logs lacks are no use.
void DropUnshared(Logs logs) {
  const auto drop = [&](auto column, const char* name) {
    const bool shared = std::ranges::all_of(
        logs, [&](const RunLog* log) { return !(log->steps.*column).empty(); });
    if (shared) return;
    for (RunLog* log : logs) {
      if ((log->steps.*column).empty()) continue;
      (log->steps.*column).clear();
      Note(*log,
           fmt::format("Its {} is left out, which another log lacks.", name));
    }
  };
  drop(&runlog::StepColumns::grad_norm, "gradient norm");
  drop(&runlog::StepColumns::tokens_seen, "number of tokens");
}

void KeepCommonSteps(Logs logs) {
  const Steps common =
      Common(logs, [](const RunLog& log) { return log.steps.step; });
  if (common.empty()) ThrowNoCommonStep(logs);
  for (RunLog* log : logs) {
    const Steps step = log->steps.step;
    if (step.size() > common.size()) {
      Note(*log, fmt::format("{} of its {} steps are judged, which all logs "
                             "have: from {} to {}.",
                             common.size(), step.size(), common.front(),
                             common.back()));
    }
    runlog::VisitSteps([&](const runlog::Field&,
                           auto& column) { KeepRows(step, common, column); },
                       log->steps);
    if (log->provenance.complete) log->provenance.steps_planned = common.back();
  }
}

void KeepCommonEvaluations(Logs logs) {
  const Steps common =
      Common(logs, [](const RunLog& log) { return log.eval.step; });
  for (RunLog* log : logs) {
    const Steps step = log->eval.step;
    KeepRows(step, common, log->eval.loss_nats);
    KeepRows(step, common, log->eval.step);
  }
}

/// Gives each the first log's steps at equal tokens.
void CountByTokens(Logs logs) {
  for (const RunLog* log : logs) {
    if (!log->steps.tokens_seen.empty()) continue;
    ThrowError(ErrorKind::kConfig,
               "a log of format {} does not tell how many tokens were seen, "
               "but logs are to be aligned by them. Align by step.",
               log->provenance.origin.format);
  }
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
    runlog::VisitSteps([&](const runlog::Field&,
                           auto& column) { KeepRows(tokens, common, column); },
                       log->steps);
    log->steps.step = steps;
    log->eval = {};
    Note(*log, fmt::format("{} of its {} steps are judged, which all logs have "
                           "at equal tokens; steps are the first log's.",
                           common.size(), tokens.size()));
  }
}

}  // namespace

void Align(Logs logs, const AlignOptions& options) {
  if (logs.empty()) return;
  if (options.until) {
    for (RunLog* log : logs) CutAfter(*options.until, *log);
  }
  if (options.by == AlignBy::kTokens) CountByTokens(logs);
  MarkShortOnes(logs);
  KeepCommonSteps(logs);
  KeepCommonEvaluations(logs);
  DropUnshared(logs);
}

}  // namespace isoloss::foreign
