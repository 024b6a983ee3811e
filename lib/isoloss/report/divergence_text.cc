#include "isoloss/report/divergence_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>
#include <vector>

namespace isoloss::report {
namespace {

using compare::DivergenceReport;
using compare::TensorDivergence;

/// Longer lists are cut.
constexpr size_t kListed = 8;

template <typename T>
std::string OneByOneText(const std::vector<T>& values) {
  if (values.size() <= kListed)
    return fmt::format("{}", fmt::join(values, ", "));
  const std::span<const T> all(values);
  return fmt::format("{}, ... {} ({} in all)",
                     fmt::join(all.first(kListed - 1), ", "), all.back(),
                     all.size());
}

std::string What(const TensorDivergence& first) {
  if (first.name.empty()) return first.quantity;
  return fmt::format("{} of {}{}", first.quantity, first.name,
                     first.phase && first.is_tensor
                         ? fmt::format(" ({})", PhaseName(*first.phase))
                         : "");
}

std::string NeighboursText(const TensorDivergence& first) {
  if (!first.is_tensor) return "";
  if (first.agreeing.empty()) return "  It is the first tensor of the step.\n";
  return fmt::format("  Before it {} {} of the step still {}, last {}.\n",
                     first.agreeing_count,
                     first.agreeing_count == 1 ? "tensor" : "tensors",
                     first.agreeing_count == 1 ? "agrees" : "agree",
                     fmt::join(first.agreeing, ", "));
}

std::string LoggedText(const DivergenceReport& report) {
  if (!report.can_zoom || !report.HidesTensors()) return "";
  if (report.tensor_steps.empty()) {
    return "  Tensors can be compared at no common step; `--zoom` finds the "
           "first that differs.\n";
  }
  return fmt::format(
      "  Tensors were logged at {} {}; `--zoom` looks at what "
      "was not.\n",
      report.tensor_steps.size() == 1 ? "step" : "steps",
      OneByOneText(report.tensor_steps));
}

void AppendOnly(const char* what, const char* log,
                const std::vector<std::string>& names, std::string& text) {
  if (names.empty()) return;
  text += fmt::format("Only {} has {} {}: not compared\n", log, what,
                      OneByOneText(names));
}

}  // namespace

std::string RenderDivergence(const DivergenceReport& report,
                             const compare::DivergenceOptions& options) {
  std::string text;
  const std::string bound =
      options.tolerance
          ? fmt::format("within {:g} of each other", *options.tolerance)
      : report.of_digits ? "equal in every digit"
                         : "equal to the bit";
  if (report.first) {
    const TensorDivergence& first = *report.first;
    text += fmt::format("First difference: step {}, {}: {} against {}\n",
                        first.step, What(first), first.a, first.b);
    text += NeighboursText(first);
    if (first.last_equal_step) {
      text += fmt::format("  What both logs hold up to step {} is {}.\n",
                          *first.last_equal_step, bound);
    }
    text += LoggedText(report);
  } else {
    text += fmt::format(
        "{} that both logs hold of {} common steps is {}\n",
        report.other_extents.empty() ? "No difference: all" : "All else",
        report.steps, bound);
    text +=
        report.tensor_steps.empty()
            ? "  No tensors were compared: no common step has them.\n"
            : fmt::format("  Tensors were compared at {} {}.\n",
                          report.tensor_steps.size() == 1 ? "step" : "steps",
                          OneByOneText(report.tensor_steps));
  }
  if (!report.other_extents.empty()) {
    text += fmt::format("Not compared, because extents differ: {}\n",
                        OneByOneText(report.other_extents));
  }
  AppendOnly("tensors", "A", report.tensors_only_a, text);
  AppendOnly("tensors", "B", report.tensors_only_b, text);
  AppendOnly("parameters", "A", report.parameters_only_a, text);
  AppendOnly("parameters", "B", report.parameters_only_b, text);
  return text;
}

std::string RenderRouting(const compare::RoutingDifference& routing) {
  const auto layers = static_cast<size_t>(routing.layers);
  const auto steps = static_cast<int64_t>(routing.step.size());
  std::string text =
      fmt::format("Routing: {} of {} (step, MoE layer) pairs are equal\n",
                  routing.equal, steps * routing.layers);
  if (routing.flips.empty() || steps == 0) return text;
  text += fmt::format(
      "  Choices of B that are not among A's of that token, of "
      "{} per step\n{:>7} {:>11} {:>14} {:>9}\n",
      routing.choices, "layer", "last step", "mean of steps", "worst");
  for (size_t layer = 0; layer < layers; ++layer) {
    int64_t sum = 0;
    int64_t worst = 0;
    for (size_t i = layer; i < routing.flips.size(); i += layers) {
      sum += routing.flips[i];
      worst = std::max(worst, routing.flips[i]);
    }
    text += fmt::format("{:>7} {:>11} {:>14.2f} {:>9}\n", layer,
                        routing.flips[routing.flips.size() - layers + layer],
                        static_cast<double>(sum) / static_cast<double>(steps),
                        worst);
  }
  return text;
}

std::string RenderLargest(
    const std::vector<compare::LargestDifference>& largest) {
  if (largest.empty()) return "";
  std::string text =
      fmt::format("  {:>9} {:>7} {:>13} {:>13}  quantity and name\n",
                  "relative", "step", "A", "B");
  for (const compare::LargestDifference& of : largest) {
    text += fmt::format("  {:>9.3g} {:>7} {:>13.6g} {:>13.6g}  {} of {}\n",
                        of.relative, of.step, of.a, of.b, of.quantity, of.name);
  }
  return text;
}

}  // namespace isoloss::report
