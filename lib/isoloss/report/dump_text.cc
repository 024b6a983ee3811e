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
constexpr size_t kOptimizerRows = 5;
constexpr size_t kCodesPerLine = 16;

std::string CodesText(const std::vector<uint8_t>& codes, size_t first) {
  const size_t count = std::min(kCodesPerLine, codes.size() - first);
  return fmt::format(
      "{:02x}",
      fmt::join(codes.begin() + static_cast<ptrdiff_t>(first),
                codes.begin() + static_cast<ptrdiff_t>(first + count), " "));
}

constexpr size_t kValuesPerLine = 4;

/// Returns "    values A 0.5 -1 ...", over as many lines as it takes.
std::string ValuesText(std::string_view side,
                       const std::vector<float>& values) {
  std::string text;
  for (size_t i = 0; i < values.size(); ++i) {
    if (i % kValuesPerLine == 0) {
      text += fmt::format("{}    {:<8} {}", i == 0 ? "" : "\n",
                          i == 0 ? "values" : "", i == 0 ? side : " ");
    }
    text += fmt::format(" {:>15.9g}", values[i]);
  }
  return text + "\n";
}

/// Returns the text of an E8M0 scale: "0x78 (2^-7)".
std::string ScaleText(uint8_t scale) {
  constexpr int kBias = 127;
  constexpr int kNan = 255;
  return scale == kNan ? "0xff (NaN)"
                       : fmt::format("{:#04x} (2^{})", scale, scale - kBias);
}

std::string SideText(std::string_view side,
                     const compare::OperandBlock::Side& block) {
  std::string text;
  if (block.format.empty()) {
    text = fmt::format("    {} is not quantised\n", side);
  } else if (block.codes.empty()) {
    text = fmt::format("    {} is {}\n", side, block.format);
  } else {
    text = fmt::format("    {} is {}, scale {}\n", side, block.format,
                       ScaleText(block.scale));
    for (size_t i = 0; i < block.codes.size(); i += kCodesPerLine) {
      text += fmt::format("    {:<8} {} {}\n", i == 0 ? "codes" : "",
                          i == 0 ? side : " ", CodesText(block.codes, i));
    }
  }
  return text + ValuesText(side, block.values);
}

/// Shows the operands from which the first differing element is computed.
std::string OperandsText(const compare::DumpDifference& difference) {
  std::string text;
  for (const compare::OperandBlock& block : difference.operands) {
    const auto length = static_cast<int64_t>(block.a.values.size()) - 1;
    text += fmt::format("  Its operand {}, row {}, columns {} to {}:\n",
                        block.tensor, block.row, block.col, block.col + length);
    text += SideText("A", block.a) + SideText("B", block.b);
  }
  return text;
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

/// Marks where the codes of two lines differ, with "^^" below them.
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
      "    scale A {}  B {}\n",
      block->count, block->of, title, format, place, ScaleText(block->scale_a),
      ScaleText(block->scale_b));
  for (size_t i = 0; i < block->codes_a.size(); i += kCodesPerLine) {
    text +=
        fmt::format("    codes A {}\n          B {}\n",
                    CodesText(block->codes_a, i), CodesText(block->codes_b, i));
    const std::string marks = MarksText(*block, i);
    if (!marks.empty()) text += fmt::format("            {}\n", marks);
  }
  return text + ValuesText("A", block->decoded_a) +
         ValuesText("B", block->decoded_b);
}

/// Describes the first differing cell of an operand; "" if the operand has no
/// cells.
std::string CellText(std::string_view title, const std::string& format,
                     const std::optional<compare::CellDifference>& cell) {
  if (!cell) return "";
  return fmt::format(
      "  First of {} of {} cells along {} ({}) that differ: tensor {}, row {}, "
      "step {} of the contraction\n"
      "    scale A {:.9g}  B {:.9g}, code A {:#x}  B {:#x}\n",
      cell->count, cell->of, title, format, cell->segment, cell->row, cell->col,
      cell->scale_a, cell->scale_b, cell->code_a, cell->code_b);
}

std::string HexBits(float value) {
  return fmt::format("{:08x}", std::bit_cast<uint32_t>(value));
}

std::string ElementsText(const TensorDifference& tensor) {
  if (tensor.first_elements.empty()) return "";
  // A BF16 value is an FP32 value whose last 16 bits are 0.
  const int64_t unit = tensor.is_bf16 ? 1 << 16 : 1;
  std::string text = fmt::format(
      "  First elements of {} of {} that differ (largest |A - B| {:.9g}, "
      "||A - B|| / ||A|| {:.4g}):\n"
      "    {:>8} {:>8}  {:>16} {:>8}  {:>16} {:>8}  {:>10}\n",
      tensor.differing, tensor.elements, tensor.max_abs, tensor.relative_l2,
      "row", "column", "A", "bits", "B", "bits",
      tensor.is_bf16 ? "BF16 ulps" : "FP32 ulps");
  for (const ElementDifference& e : tensor.first_elements) {
    const auto ulps = compare::UlpDistance(e.a, e.b);
    text += fmt::format("    {:>8} {:>8}  {:>16.9g} {}  {:>16.9g} {}  {:>10}\n",
                        e.row, e.col, e.a, HexBits(e.a), e.b, HexBits(e.b),
                        ulps ? fmt::to_string(*ulps / unit) : "-");
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
  text += CellText("rows", first.format_rowwise_a, first.cells_rowwise);
  text +=
      CellText("columns", first.format_columnwise_a, first.cells_columnwise);
  return text + ElementsText(first) + OperandsText(difference);
}

/// Lists the first `rows` operations that add any error; "" if none does.
std::string AddingText(std::string_view title,
                       const std::vector<compare::OperationError>& operations,
                       size_t rows) {
  std::vector<const compare::OperationError*> adding;
  for (const compare::OperationError& operation : operations) {
    if (operation.added != 0) adding.push_back(&operation);
  }
  if (adding.empty()) return "";
  std::string text =
      fmt::format("{}\n  {:>10} {:>10} {:>10} {:>10}  result\n", title, "added",
                  "of inputs", "of result", "growth");
  for (size_t i = 0; i < std::min(adding.size(), rows); ++i) {
    text += fmt::format("  {:>10.4g} {:>10.4g} {:>10.4g} {:>10.4g}  {}\n",
                        adding[i]->added, adding[i]->input_error,
                        adding[i]->error, adding[i]->growth, adding[i]->result);
  }
  if (adding.size() > rows) {
    text += fmt::format("  ... and {} more\n", adding.size() - rows);
  }
  return text;
}

/// Returns a line for each of the first tensors.
std::string RowsText(const std::vector<TensorDifference>& tensors) {
  std::string text;
  const size_t shown = std::min(tensors.size(), kTableRows);
  for (size_t i = 0; i < shown; ++i) {
    const TensorDifference& tensor = tensors[i];
    if (tensor.shape_a != tensor.shape_b) {
      text +=
          fmt::format("  {:>44}  {}\n",
                      fmt::format("{} against {}", ShapeText(tensor.shape_a),
                                  ShapeText(tensor.shape_b)),
                      tensor.name);
      continue;
    }
    text += fmt::format("  {:>14} {:>14.6g} {:>14.4g}  {}\n", tensor.differing,
                        tensor.max_abs, tensor.relative_l2, tensor.name);
  }
  if (shown < tensors.size()) {
    text += fmt::format("  ... and {} more\n", tensors.size() - shown);
  }
  return text;
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
  text += RowsText(difference.tensors);
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
  if (!growth.unmeasured.empty()) {
    return fmt::format("Errors of operations are not measured: {}\n",
                       growth.unmeasured);
  }
  std::string text;
  if (growth.first_source) {
    const compare::OperationError& first = *growth.first_source;
    text += fmt::format(
        "First operation that adds error: {} (relative {:.4g}) from equal "
        "inputs {}\n",
        first.result, first.error, fmt::join(first.inputs, ", "));
  }
  for (const compare::LeftOut& of : growth.left_out) {
    text += fmt::format("Left out of {}: {}\n", of.module, of.reason);
    if (!of.rows) continue;
    text += fmt::format(
        "  Rows of its experts are of other tokens. What the choice adds shows "
        "in {0}.routed_experts_output and {0}.router.gate_gradient.\n",
        of.module);
  }
  text += AddingText("Operations by the error they add, ||A - B|| / ||A||",
                     growth.operations, kTableRows);
  text += AddingText(
      "Of the optimizer, whose first steps are almost signs of gradients",
      growth.optimizer, kOptimizerRows);
  return text;
}

}  // namespace isoloss::report
