#include "isoloss/certify/restart_causes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "isoloss/base/printable.h"
#include "isoloss/runlog/shared_columns.h"

namespace isoloss::certify {
namespace {

void Put(std::string_view kind, std::string text, Difference& difference) {
  const auto found = std::ranges::find(difference.causes, kind, &Cause::kind);
  if (found == difference.causes.end()) {
    difference.causes.push_back({kind, std::move(text)});
  } else {
    found->text = std::move(text);
  }
}

/// Says whose batch the differing step had.
void DescribeBatch(const RestartCase& given, Difference& difference) {
  const int64_t step = difference.where.step;
  const runlog::StepColumns& whole = given.whole.steps;
  const auto batch =
      At(given.resumed.steps, given.resumed.steps.batch_digest, step);
  if (!Has(difference.causes, kData) || !batch) return;
  const auto found = std::ranges::find(whole.batch_digest, *batch);
  if (found == whole.batch_digest.end()) {
    Put(kData,
        fmt::format("The batch of step {} of {} is of no step of the whole "
                    "run: the order of the data, or its random numbers, were "
                    "lost.",
                    step, given.name),
        difference);
    return;
  }
  const int64_t seen =
      whole.step[static_cast<size_t>(found - whole.batch_digest.begin())];
  Put(kData,
      fmt::format("The batch of step {} of {} is that of step {} of the whole "
                  "run: {}.",
                  step, given.name, seen,
                  seen < given.restart
                      ? "the order of the data began anew or went back"
                      : "batches were left out"),
      difference);
}

/// Returns whether rates after the restart are those of the first steps.
bool BeganAnew(const RestartCase& given) {
  constexpr size_t kMost = 8;
  const runlog::StepColumns& whole = given.whole.steps;
  const runlog::StepColumns& resumed = given.resumed.steps;
  const auto from = static_cast<size_t>(
      std::ranges::lower_bound(resumed.step, given.restart) -
      resumed.step.begin());
  const size_t count =
      std::min({kMost, resumed.lr.size() - std::min(from, resumed.lr.size()),
                whole.lr.size()});
  if (count == 0) return false;
  for (size_t i = 0; i < count; ++i) {
    if (!runlog::SameBits(resumed.lr[from + i], whole.lr[i])) return false;
  }
  return true;
}

void DescribeRates(const RestartCase& given, Difference& difference) {
  for (const int64_t step : {given.restart, difference.where.step}) {
    for (Cause& cause :
         StepCauses(given.whole, given.resumed, step, given.name)) {
      if (cause.kind == kSchedule)
        AddNew({std::move(cause)}, difference.causes);
    }
  }
  if (Has(difference.causes, kSchedule) && BeganAnew(given)) {
    Put(kSchedule,
        fmt::format("The schedule of {} began anew: its learning rates from "
                    "step {} on are those of the first steps.",
                    given.name, given.restart),
        difference);
  }
}

bool IsOfUpdate(const LogDifference& where) {
  return where.quantity == "final_weights_digest" ||
         where.name.ends_with("_parameter") || where.name.ends_with("_update");
}

bool IsOfRouting(const RestartCase& given, const LogDifference& where) {
  if (where.quantity.find("routing") != std::string::npos ||
      where.quantity.find("expert") != std::string::npos) {
    return true;
  }
  const runlog::SharedColumns shared(given.whole, given.resumed);
  for (const runlog::SharedColumn* column : shared.Comparable()) {
    if (column->field().name != "tokens_per_expert") continue;
    for (const runlog::SharedRow& row : column->rows) {
      if (row.step == where.step && runlog::FirstDifferent(*column, row, {})) {
        return true;
      }
    }
  }
  return false;
}

/// Lists what is known to be equal at the step after the restart.
std::string EqualAt(const RestartCase& given) {
  const auto has = [&](const std::vector<double>& column) {
    return At(given.whole.steps, column, given.restart).has_value();
  };
  std::vector<std::string> known = {"loss"};
  if (has(given.whole.steps.grad_norm)) known.emplace_back("gradient norm");
  if (has(given.whole.steps.lr)) known.emplace_back("learning rate");
  return fmt::format("The {}", fmt::join(known, " and "));
}

/// The update of the first step was another one.
Cause GuessOfUpdate(const RestartCase& given) {
  const bool knows_rate =
      At(given.whole.steps, given.whole.steps.lr, given.restart).has_value();
  return {knows_rate ? kMoments : kHiddenState,
          fmt::format(
              "{} of step {} {} equal, but its update was another one: "
              "moments{} step counter{} of the optimizer were lost.",
              EqualAt(given), given.restart,
              EqualAt(given).find(" and ") == std::string::npos ? "is" : "are",
              knows_rate ? " or the" : ", the",
              knows_rate ? "" : " or the learning rate")};
}

/// Nothing but the step and the quantity tells what was lost.
Cause Guess(const RestartCase& given, const LogDifference& where) {
  if (where.step == given.restart + 1 ||
      (where.step == given.restart && IsOfUpdate(where))) {
    return GuessOfUpdate(given);
  }
  if (where.step > given.restart) {
    return {kUnknown,
            fmt::format("Steps {} to {} after the restart are equal, so no "
                        "state that each step uses was lost. If two whole runs "
                        "part as well (isoloss certify repeat), it is no "
                        "matter of the restart.",
                        given.restart, where.step - 1)};
  }
  const char* const lost =
      "scales or their history, random numbers (dropout), biases of routers";
  if (where.quantity == "grad_norm") {
    return {kHiddenState,
            fmt::format("The loss of step {} is equal and its gradient is not: "
                        "a loss scale, random numbers or gradients that are "
                        "kept between steps were lost.",
                        where.step)};
  }
  const bool routes = IsOfRouting(given, where);
  if (!where.after.empty()) {
    return {
        routes ? kRouterBias : kHiddenState,
        fmt::format("{} is equal and {} is not: {} that is used between "
                    "them was lost.",
                    Printable(where.after), Printable(where.name),
                    routes ? "the bias of a router, or other state" : "state")};
  }
  if (given.has_equal_weights && routes) {
    return {kHiddenState,
            "Weights are equal and tokens chose other experts: biases of "
            "routers or random numbers (dropout) were lost."};
  }
  if (given.has_equal_weights) {
    return {kHiddenState,
            fmt::format("The weights are equal and the first forward pass is "
                        "not. Lost was state beside the weights: {}.",
                        lost)};
  }
  return {kUnknown,
          fmt::format("The first forward pass after the restart is another "
                      "one. Lost were weights, or state beside them: {}.",
                      lost)};
}

}  // namespace

void AddRestartCauses(const RestartCase& given, Difference& difference) {
  const LogDifference& where = difference.where;
  if (given.restart == 0) {
    difference.causes.push_back(
        {kUnknown,
         given.has_unknown_restart
             ? "The log does not say after which step the run was resumed, so "
               "nothing says what was lost."
             : "The runs part before the restart, so it is not to blame. "
               "Certify first that whole runs repeat (isoloss certify "
               "repeat)."});
    return;
  }
  std::erase_if(difference.causes,
                [](const Cause& cause) { return cause.kind == kUnknown; });
  DescribeBatch(given, difference);
  DescribeRates(given, difference);
  for (Cause& cause : difference.causes) {
    if (cause.kind != kUnrecorded || where.step != given.restart) continue;
    cause.text +=
        " Right after a restart that is state which it lost: random numbers, "
        "or a buffer of the model.";
  }
  if (difference.causes.empty()) {
    difference.causes.push_back(Guess(given, where));
  }
}

}  // namespace isoloss::certify
