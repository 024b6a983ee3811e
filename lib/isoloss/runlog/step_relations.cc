#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "isoloss/runlog/recording.h"
#include "isoloss/runlog/relation_numbers.h"
#include "isoloss/runlog/relations.h"

namespace isoloss::runlog {

bool ChangedMesh(const RunLog& log) {
  return std::ranges::any_of(
      log.events, [](const Event& event) { return event.kind == "mesh"; });
}

std::string WrongStepRows(const RunLog& log) {
  const Recording recording(log.provenance);
  const bool known = recording.missing_keys().empty();
  const auto& steps = log.steps.step;
  const auto broken = [&](const char* group, int64_t since, When when,
                          const std::vector<int64_t>& step,
                          bool ends_early) -> std::string {
    const bool due =
        log.schema_version >= since && recording.IsDue(when) && !steps.empty();
    const bool all =
        step == steps || (ends_early && step.size() < steps.size() &&
                          std::equal(step.begin(), step.end(), steps.begin()));
    if (step.empty() ? !due || ends_early : all && (due || !known)) return "";
    return fmt::format(
        "/{}/step has {} rows, which are not those of the {} in /steps{}",
        group, step.size(), steps.size(),
        due ? "" : ", but the run records nothing there");
  };
  for (const std::string& text :
       {broken("parameters", 3, When::kAlways, log.parameters.step, false),
        broken("moe", 2, When::kExperts, log.moe.step, false),
        broken("exchange", 2, When::kTransport, log.exchange.step,
               ChangedMesh(log))}) {
    if (!text.empty()) return text;
  }
  return "";
}

namespace {

/// Says where `found` differs from the steps for which the experiment asks.
std::string Difference(const char* group, const std::vector<int64_t>& found,
                       const std::vector<int64_t>& expected) {
  const auto [a, b] = std::mismatch(found.begin(), found.end(),
                                    expected.begin(), expected.end());
  const auto shown = [](auto place, const auto& steps) {
    return place == steps.end() ? std::string("none")
                                : fmt::format("step {}", *place);
  };
  return fmt::format(
      "/{}/step has {} rows, by experiment_text {}; row {} is {}, by the text "
      "{}",
      group, found.size(), expected.size(), a - found.begin(), shown(a, found),
      shown(b, expected));
}

}  // namespace

std::string WrongTensorSteps(const RunLog& log) {
  const Recording recording(log.provenance);
  const auto& found = log.tensors.step;
  if (recording.missing_keys().empty() && log.schema_version >= 3) {
    const auto expected =
        recording.TensorSteps(static_cast<int64_t>(log.steps.step.size()));
    return found == expected ? "" : Difference("tensors", found, expected);
  }
  for (const int64_t step : found) {
    if (std::ranges::binary_search(log.steps.step, step)) continue;
    return fmt::format("/tensors/step has step {}, which /steps has not", step);
  }
  return "";
}

std::string WrongEvaluations(const RunLog& log) {
  const Recording recording(log.provenance);
  const auto last = static_cast<int64_t>(log.steps.step.size());
  if (!recording.missing_keys().empty() || last == 0) return "";
  auto expected = recording.EvaluatedSteps(last);
  if (log.eval.step == expected) return "";
  // If the numbers of a step end a run, that step is not evaluated.
  if (!log.provenance.complete && expected.back() == last) {
    expected.pop_back();
    if (log.eval.step == expected) return "";
  }
  return Difference("eval", log.eval.step, expected);
}

std::string WrongTokensSeen(const RunLog& log) {
  const auto per_step = static_cast<double>(log.provenance.tokens_per_step);
  for (size_t i = 0; i < log.steps.tokens_seen.size(); ++i) {
    const double expected = static_cast<double>(log.steps.step[i]) * per_step;
    if (static_cast<double>(log.steps.tokens_seen[i]) == expected) continue;
    return fmt::format("/steps/tokens_seen is {} at step {} of {} tokens each",
                       log.steps.tokens_seen[i], log.steps.step[i],
                       log.provenance.tokens_per_step);
  }
  return "";
}

std::string WrongThroughput(const RunLog& log) {
  const auto& steps = log.steps;
  if (steps.step_seconds.empty()) return "";
  for (size_t i = 0; i < steps.tokens_per_second.size(); ++i) {
    const double tokens = steps.tokens_per_second[i] * steps.step_seconds[i];
    if (Near(tokens, static_cast<double>(log.provenance.tokens_per_step))) {
      continue;
    }
    return fmt::format(
        "{} tokens/s for {} s at step {} are not the {} tokens "
        "of a step",
        steps.tokens_per_second[i], steps.step_seconds[i], steps.step[i],
        log.provenance.tokens_per_step);
  }
  return "";
}

std::string WrongNorms(const RunLog& log) {
  const auto& whole = log.steps.grad_norm;
  const auto& parts = log.parameters.grad_norm;
  if (parts.empty() || log.parameters.step != log.steps.step) return "";
  const size_t count = Size(log.parameters.count);
  // A parameter's norm is rounded once, its square twice, and a sum of n terms
  // n times, by at most 2^-53 each.
  const double tolerance = kExact + static_cast<double>(count) * 0x1p-53;
  for (size_t i = 0; i < whole.size(); ++i) {
    double squares = 0;
    for (size_t j = i * count; j < (i + 1) * count; ++j) {
      squares += parts[j] * parts[j];
    }
    // A norm that is not finite lies outside of its column's domain.
    const double norm = std::sqrt(squares);
    if (!std::isfinite(whole[i]) || !std::isfinite(norm) ||
        Near(whole[i], norm, tolerance)) {
      continue;
    }
    return fmt::format(
        "/steps/grad_norm is {} at step {}, that of the {} parameters together "
        "{}",
        whole[i], log.steps.step[i], count, norm);
  }
  return "";
}

std::string WrongEvaluationMean(const RunLog& log) {
  const auto& eval = log.eval;
  if (eval.per_sequence_loss_nats.empty()) return "";
  const Recording recording(log.provenance);
  if (recording.missing_keys().empty() &&
      eval.sequences != recording.eval_sequences()) {
    return fmt::format(
        "/eval has {} sequences, by log.eval_sequences of experiment_text {}",
        eval.sequences, recording.eval_sequences());
  }
  const size_t width = Size(eval.sequences);
  // A sum of n numbers has n roundings of at most 2^-53 of the sum each.
  const double tolerance = kExact + static_cast<double>(width) * 0x1p-53;
  for (size_t i = 0; i < eval.loss_nats.size(); ++i) {
    const double mean = Sum(eval.per_sequence_loss_nats, i * width, width) /
                        static_cast<double>(width);
    if (Near(eval.loss_nats[i], mean, tolerance)) continue;
    return fmt::format(
        "/eval/loss_nats is {} at step {}, the mean of the {} "
        "sequences {}",
        eval.loss_nats[i], eval.step[i], width, mean);
  }
  return "";
}

}  // namespace isoloss::runlog
