// Tells the comparison of two layouts to people.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "isoloss/base/portable_math.h"
#include "isoloss/base/printable.h"
#include "isoloss/document/text_layout.h"
#include "isoloss/layouts/comparison.h"

namespace isoloss::layouts {
namespace {

std::string TensorLine(const TensorResult& tensor) {
  return fmt::format("  {:<28} {:>10} {:>10} {:>9.2g}  {}\n", tensor.tensor,
                     tensor.elements, tensor.different, tensor.relative,
                     StatusName(tensor.status));
}

std::string TableOf(const LayoutsComparison& comparison, bool all,
                    const document::TextStyle& style) {
  std::string text;
  std::string last;
  for (const TensorResult& tensor : comparison.tensors) {
    const bool is_good =
        tensor.status == Status::kEqual || tensor.status == Status::kExplained;
    if (is_good && !all) continue;
    const std::string name = fmt::format(
        "{}{}, step {}\n", Printable(tensor.module),
        tensor.type.empty() ? "" : " (" + tensor.type + ")", tensor.step);
    if (name != last) text += last = name;
    text += TensorLine(tensor);
    std::string sentences = tensor.text;
    if (!tensor.where.empty()) {
      sentences += fmt::format(" Where: {}.", tensor.where);
    }
    if (!tensor.mistake.empty()) {
      sentences += fmt::format(" ({})", tensor.mistake);
    }
    if (sentences.empty()) continue;
    text += "    " + document::Wrap(Printable(sentences), 4, 4, style) + "\n";
  }
  if (text.empty()) return "";
  return fmt::format("{:<30} {:>10} {:>10} {:>9}\n", "tensor", "elements",
                     "different", "|B-A|/|A|") +
         text;
}

/// Draws the differences in the order of computation, and what the inputs that
/// no operation made may differ by.
std::string ChartOf(const LayoutsComparison& comparison,
                    const document::TextStyle& style) {
  document::Chart chart = {
      .title =
          "log10 of |B-A|/|A|, in the order of computation; a step is a tensor",
      .step = {},
      .curves = {{.y = {}, .dotted = false, .name = "difference"},
                 {.y = {}, .dotted = true, .name = "explained up to"}},
      .guides = {},
      .rows = 8};
  const auto log10 = [](double value) {
    return value > 0.0 && std::isfinite(value)
               ? portable::Log10(value)
               : std::numeric_limits<double>::quiet_NaN();
  };
  int64_t place = 0;
  for (const TensorResult& tensor : comparison.tensors) {
    chart.step.push_back(++place);
    chart.curves[0].y.push_back(log10(tensor.relative));
    chart.curves[1].y.push_back(log10(tensor.bound));
    if (tensor.status == Status::kNotExplained && chart.marked_step == 0) {
      chart.marked_step = place;
    }
  }
  constexpr int64_t kFewest = 8;
  if (place < kFewest) return "";
  std::string text;
  for (const std::string& line : DrawChart(chart, style)) text += line + "\n";
  return text.empty() ? ""
                      : fmt::format("{}\n{}\n", chart.title,
                                    document::LegendOf(chart, style)) +
                            text;
}

}  // namespace

std::string SummaryOf(const LayoutsComparison& comparison) {
  const std::string counts = fmt::format(
      "Tensors: {} equal, {} explained, {} not explained, {} not judged.",
      comparison.Count(Status::kEqual), comparison.Count(Status::kExplained),
      comparison.Count(Status::kNotExplained),
      comparison.Count(Status::kNotJudged));
  if (const TensorResult* first = comparison.First()) {
    return fmt::format(
        "FAIL: the first difference that no order of sums explains is {} of "
        "{}{}, step {}{}. {}",
        first->tensor, Printable(first->module),
        first->module.empty() ? first->type : " (" + first->type + ")",
        first->step, first->mistake.empty() ? "" : ": " + first->mistake,
        counts);
  }
  if (comparison.Outcome() == system::ExitCode::kPass) {
    return "PASS: orders of sums explain all differences. " + counts;
  }
  return "INCONCLUSIVE: " + counts;
}

std::string RenderLayouts(const LayoutsComparison& comparison, bool all,
                          const document::TextStyle& style) {
  std::string text;
  for (const auto& [name, side] :
       {std::pair("A", &comparison.a), std::pair("B", &comparison.b)}) {
    text += document::Wrap(fmt::format("{}: {}, {}", name,
                                       Printable(side->name), side->Layout()),
                           0, 3, style) +
            "\n";
  }
  text += TableOf(comparison, all, style) + ChartOf(comparison, style);
  for (const std::string& note : comparison.notes) {
    text += document::Wrap("Note: " + note, 0, 2, style) + "\n";
  }
  return text + document::Wrap(SummaryOf(comparison), 0, 0, style) + "\n";
}

}  // namespace isoloss::layouts
