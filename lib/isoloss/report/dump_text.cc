#include "isoloss/report/dump_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <string_view>
#include <vector>

namespace isoloss::report {
namespace {

using compare::BlockDifference;
using compare::ElementDifference;
using compare::TensorDifference;

constexpr size_t kTableRows = 20;
constexpr size_t kCodesPerLine = 16;

std::string CodesText(const std::vector<uint8_t>& codes, size_t first) {
  const size_t count = std::min(kCodesPerLine, codes.size() - first);
  return fmt::format(
      "{:02x}",
      fmt::join(codes.begin() + static_cast<ptrdiff_t>(first),
                codes.begin() + static_cast<ptrdiff_t>(first + count), " "));
}

/// Where the codes of two lines differ: "^^" below them.
std::string MarksText(const BlockDifference& block, size_t first) {
  std::string marks;
  const size_t end = std::min(first + kCodesPerLine, block.codes_a.size());
  for (size_t i = first; i < end; ++i) {
    marks += block.codes_a[i] == block.codes_b[i] ? "   " : "^^ ";
  }
  marks.resize(marks.find_last_not_of(' ') + 1);
  return marks;
}

std::string BlockText(std::string_view title, std::string_view format,
                      const std::optional<BlockDifference>& block,
                      bool columnwise) {
  if (!block) return "";
  const auto length = static_cast<int64_t>(block->codes_a.size()) - 1;
  const std::string place =
      columnwise ? fmt::format("rows {} to {}, column {}", block->row,
                               block->row + length, block->col)
                 : fmt::format("row {}, columns {} to {}", block->row,
                               block->col, block->col + length);
  std::string text = fmt::format(
      "  First of {} of {} {} blocks ({}) that differ: {}\n"
      "    scale A {:02x}  B {:02x}\n",
      block->count, block->of, title, format, place, block->scale_a,
      block->scale_b);
  for (size_t i = 0; i < block->codes_a.size(); i += kCodesPerLine) {
    text +=
        fmt::format("    codes A {}\n          B {}\n",
                    CodesText(block->codes_a, i), CodesText(block->codes_b, i));
    const std::string marks = MarksText(*block, i);
    if (!marks.empty()) text += fmt::format("            {}\n", marks);
  }
  return text;
}

std::string HexBits(float value) {
  return fmt::format("{:08x}", std::bit_cast<uint32_t>(value));
}

std::string ElementsText(const TensorDifference& tensor) {
  if (tensor.first_elements.empty()) return "";
  std::string text = fmt::format(
      "  First elements of {} of {} that differ (largest |A - B| {:.9g}, "
      "||A - B|| / ||A|| {:.4g}):\n"
      "    {:>8} {:>8}  {:>16} {:>8}  {:>16} {:>8}  {:>10}\n",
      tensor.differing, tensor.elements, tensor.max_abs, tensor.relative_l2,
      "row", "column", "A", "bits", "B", "bits", "ulps");
  for (const ElementDifference& e : tensor.first_elements) {
    const auto ulps = compare::UlpDistance(e.a, e.b);
    text += fmt::format("    {:>8} {:>8}  {:>16.9g} {}  {:>16.9g} {}  {:>10}\n",
                        e.row, e.col, e.a, HexBits(e.a), e.b, HexBits(e.b),
                        ulps ? fmt::to_string(*ulps) : "-");
  }
  return text;
}

std::string FormatName(const std::string& format) {
  return format.empty() ? "not quantised" : format;
}

std::string FormatsText(std::string_view title, const std::string& a,
                        const std::string& b) {
  if (a == b) return "";
  return fmt::format("  Along {} A is {}, B is {}: no copies to compare.\n",
                     title, FormatName(a), FormatName(b));
}

std::string FirstText(const compare::DumpDifference& difference) {
  const TensorDifference& first = difference.tensors.front();
  std::string text = fmt::format("First tensor that differs: {} [{}]\n",
                                 first.name, fmt::join(first.shape_a, ", "));
  if (!difference.agreeing_before_first.empty()) {
    text += fmt::format("  Before it agree: {}\n",
                        fmt::join(difference.agreeing_before_first, ", "));
  }
  if (first.shape_a != first.shape_b) {
    return text +
           fmt::format("  In B it is [{}]\n", fmt::join(first.shape_b, ", "));
  }
  text += FormatsText("rows", first.format_rowwise_a, first.format_rowwise_b);
  text += FormatsText("columns", first.format_columnwise_a,
                      first.format_columnwise_b);
  text += BlockText("row", first.format_rowwise_a, first.rowwise, false);
  text +=
      BlockText("column", first.format_columnwise_a, first.columnwise, true);
  return text + ElementsText(first);
}

}  // namespace

std::string RenderDumpDifference(const compare::DumpDifference& difference) {
  std::string text;
  if (difference.tensors.empty()) {
    text = fmt::format("All {} common tensors are equal to the bit\n",
                       difference.equal);
  } else {
    text = FirstText(difference);
    text += fmt::format(
        "\n{} of {} common tensors differ, in the order of computation\n"
        "  {:>14} {:>14} {:>14}  tensor\n",
        difference.tensors.size(),
        difference.equal + static_cast<int64_t>(difference.tensors.size()),
        "elements", "largest", "relative L2");
  }
  const size_t shown = std::min(difference.tensors.size(), kTableRows);
  for (size_t i = 0; i < shown; ++i) {
    const TensorDifference& tensor = difference.tensors[i];
    text += fmt::format("  {:>14} {:>14.6g} {:>14.4g}  {}\n", tensor.differing,
                        tensor.max_abs, tensor.relative_l2, tensor.name);
  }
  if (shown < difference.tensors.size()) {
    text +=
        fmt::format("  ... and {} more\n", difference.tensors.size() - shown);
  }
  for (const auto& [name, only] :
       {std::pair<const char*, const std::vector<std::string>&>(
            "A", difference.only_a),
        {"B", difference.only_b}}) {
    if (only.empty()) continue;
    text += fmt::format("Only {} has {} tensors, first {}\n", name, only.size(),
                        only.front());
  }
  return text;
}

std::string RenderErrorGrowth(const compare::ErrorGrowth& growth) {
  std::string text;
  if (growth.first_source) {
    const compare::OperationError& first = *growth.first_source;
    text += fmt::format(
        "First operation that adds error: {} (relative {:.4g}) from equal "
        "inputs {}\n",
        first.result, first.error, fmt::join(first.inputs, ", "));
  }
  std::vector<const compare::OperationError*> adding;
  for (const compare::OperationError& operation : growth.operations) {
    if (operation.added != 0) adding.push_back(&operation);
  }
  if (adding.empty()) return text;
  text += fmt::format(
      "Operations by the error they add, ||A - B|| / ||A||\n"
      "  {:>10} {:>10} {:>10} {:>10}  result\n",
      "added", "of inputs", "of result", "growth");
  for (size_t i = 0; i < std::min(adding.size(), kTableRows); ++i) {
    text += fmt::format("  {:>10.4g} {:>10.4g} {:>10.4g} {:>10.4g}  {}\n",
                        adding[i]->added, adding[i]->input_error,
                        adding[i]->error, adding[i]->growth, adding[i]->result);
  }
  if (adding.size() > kTableRows) {
    text += fmt::format("  ... and {} more\n", adding.size() - kTableRows);
  }
  return text;
}

}  // namespace isoloss::report
