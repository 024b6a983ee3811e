#include "isoloss/compare/dump_difference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "isoloss/base/error.h"
#include "isoloss/formats/mx_block.h"
#include "isoloss/runlog/shared_columns.h"

namespace isoloss::compare {
namespace {

using runlog::DumpedTensor;
using runlog::TensorDump;

constexpr int64_t kBlock = 32;
constexpr size_t kElements = 8;
constexpr size_t kAgreeingBlocks = 3;
constexpr int64_t kOperandBlocks = 2;

bool SameBits(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

/// Returns an integer that orders FP32 values; both zeros are 0.
int64_t OrderedBits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const int64_t magnitude = bits & 0x7FFFFFFFU;
  return bits >> 31U ? -magnitude : magnitude;
}

/// Returns the values with which a GEMM computes.
std::vector<float> Decoded(const std::string& format, uint8_t scale,
                           const std::vector<uint8_t>& codes) {
  formats::MxMatrix block;
  block.codes.ResizeUninitialized(1, codes.size());
  block.scales.ResizeUninitialized(1, 1);
  std::ranges::copy(codes, block.codes.data());
  block.scales(0, 0) = scale;
  const Matrix<float> values =
      formats::DequantizeMx(block, formats::FormatByName(format));
  return {values.data(), values.data() + values.size()};
}

/// Compares codes and scales of a quantised copy, block by block.
class BlockComparison {
 public:
  BlockComparison(const std::vector<uint8_t>& scales_a,
                  const std::vector<uint8_t>& scales_b,
                  const std::vector<uint8_t>& codes_a,
                  const std::vector<uint8_t>& codes_b)
      : scales_a_(scales_a),
        scales_b_(scales_b),
        codes_a_(codes_a),
        codes_b_(codes_b) {}

  /// Compares the next block: `length` codes from `first` on, `stride` apart.
  void Add(size_t scale, int64_t row, int64_t col, size_t first, size_t stride,
           int64_t length) {
    BlockDifference block{.row = row,
                          .col = col,
                          .scale_a = scales_a_[scale],
                          .scale_b = scales_b_[scale],
                          .codes_a = {},
                          .codes_b = {},
                          .decoded_a = {},
                          .decoded_b = {}};
    bool equal = block.scale_a == block.scale_b;
    for (int64_t i = 0; i < length; ++i) {
      const size_t place = first + static_cast<size_t>(i) * stride;
      equal = equal && codes_a_[place] == codes_b_[place];
      if (found_) continue;
      block.codes_a.push_back(codes_a_[place]);
      block.codes_b.push_back(codes_b_[place]);
    }
    ++of_;
    count_ += equal ? 0 : 1;
    if (!equal && !found_) found_ = block;
  }

  std::optional<BlockDifference> Result(const std::string& format) const {
    std::optional<BlockDifference> result = found_;
    if (result) {
      result->decoded_a = Decoded(format, result->scale_a, result->codes_a);
      result->decoded_b = Decoded(format, result->scale_b, result->codes_b);
      result->count = count_;
      result->of = of_;
    }
    return result;
  }

 private:
  const std::vector<uint8_t>& scales_a_;
  const std::vector<uint8_t>& scales_b_;
  const std::vector<uint8_t>& codes_a_;
  const std::vector<uint8_t>& codes_b_;
  std::optional<BlockDifference> found_;
  int64_t count_ = 0;
  int64_t of_ = 0;
};

std::optional<BlockDifference> CompareRowwise(const DumpedTensor& a,
                                              const DumpedTensor& b) {
  if (a.format_rowwise.empty() || a.format_rowwise != b.format_rowwise ||
      runlog::HasCells(a.format_rowwise)) {
    return std::nullopt;
  }
  BlockComparison blocks(a.scales_rowwise, b.scales_rowwise, a.codes_rowwise,
                         b.codes_rowwise);
  size_t scale = 0;
  for (int64_t row = 0; row < a.rows; ++row) {
    for (int64_t col = 0; col < a.cols; col += kBlock) {
      blocks.Add(scale++, row, col, static_cast<size_t>(row * a.cols + col), 1,
                 std::min(kBlock, a.cols - col));
    }
  }
  return blocks.Result(a.format_rowwise);
}

/// Blocks begin anew in each segment.
std::optional<BlockDifference> CompareColumnwise(const DumpedTensor& a,
                                                 const DumpedTensor& b) {
  if (a.format_columnwise.empty() ||
      a.format_columnwise != b.format_columnwise ||
      runlog::HasCells(a.format_columnwise) ||
      a.segment_ends != b.segment_ends) {
    return std::nullopt;
  }
  BlockComparison blocks(a.scales_columnwise, b.scales_columnwise,
                         a.codes_columnwise, b.codes_columnwise);
  std::vector<int64_t> ends = a.segment_ends;
  if (ends.empty()) ends.push_back(a.rows);
  size_t scale = 0;
  int64_t begin = 0;
  for (const int64_t end : ends) {
    for (int64_t row = begin; row < end; row += kBlock) {
      for (int64_t col = 0; col < a.cols; ++col) {
        blocks.Add(scale++, row, col, static_cast<size_t>(row * a.cols + col),
                   static_cast<size_t>(a.cols), std::min(kBlock, end - row));
      }
    }
    begin = end;
  }
  return blocks.Result(a.format_columnwise);
}

/// Finds where a cell differs: at its first element, if only scales differ.
std::optional<CellDifference> CompareCell(const runlog::CellTensor& tensor,
                                          int64_t cell,
                                          const runlog::DumpedCells& a,
                                          const runlog::DumpedCells& b,
                                          bool same_tensor_scale) {
  CellDifference difference;
  const size_t scale = tensor.first_scale + static_cast<size_t>(cell);
  difference.scale_a = a.scales[scale];
  difference.scale_b = b.scales[scale];
  const int64_t first_row = cell / tensor.cells_in_row() * tensor.cell_rows;
  const int64_t first_col = cell % tensor.cells_in_row() * tensor.cell_cols;
  const auto set = [&](int64_t row, int64_t col) {
    const size_t code =
        tensor.first_code + static_cast<size_t>(row * tensor.cols + col);
    difference.row = row;
    difference.col = col;
    difference.code_a = a.codes[code];
    difference.code_b = b.codes[code];
    return difference.code_a != difference.code_b;
  };
  const int64_t row_end = std::min(first_row + tensor.cell_rows, tensor.rows);
  const int64_t col_end = std::min(first_col + tensor.cell_cols, tensor.cols);
  for (int64_t row = first_row; row < row_end; ++row) {
    for (int64_t col = first_col; col < col_end; ++col) {
      if (set(row, col)) return difference;
    }
  }
  if (same_tensor_scale && SameBits(difference.scale_a, difference.scale_b)) {
    return std::nullopt;
  }
  set(first_row, first_col);
  return difference;
}

std::optional<CellDifference> CompareCells(const DumpedTensor& a,
                                           const DumpedTensor& b,
                                           bool columnwise) {
  const std::string& format =
      columnwise ? a.format_columnwise : a.format_rowwise;
  const runlog::DumpedCells& of_a =
      columnwise ? a.cells_columnwise : a.cells_rowwise;
  const runlog::DumpedCells& of_b =
      columnwise ? b.cells_columnwise : b.cells_rowwise;
  if (!runlog::HasCells(format) ||
      format != (columnwise ? b.format_columnwise : b.format_rowwise) ||
      of_a.extents != of_b.extents || a.segment_ends != b.segment_ends) {
    return std::nullopt;
  }
  std::optional<CellDifference> first;
  int64_t count = 0;
  int64_t cells = 0;
  const std::vector<runlog::CellTensor> tensors =
      runlog::CellTensorsOf(a, columnwise);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const bool same_scale =
        SameBits(of_a.tensor_scales[i], of_b.tensor_scales[i]);
    for (int64_t cell = 0; cell < tensors[i].cells(); ++cell, ++cells) {
      const auto found = CompareCell(tensors[i], cell, of_a, of_b, same_scale);
      if (!found) continue;
      ++count;
      if (first) continue;
      first = found;
      first->segment = static_cast<int64_t>(i);
      first->scale_a *= of_a.tensor_scales[i];
      first->scale_b *= of_b.tensor_scales[i];
    }
  }
  if (first) {
    first->count = count;
    first->of = cells;
  }
  return first;
}

bool HoldsBf16(const std::vector<float>& values) {
  return std::ranges::all_of(values, [](float value) {
    return (std::bit_cast<uint32_t>(value) & 0xFFFFU) == 0;
  });
}

void CompareValues(const DumpedTensor& a, const DumpedTensor& b,
                   TensorDifference& difference) {
  difference.elements = static_cast<int64_t>(a.values.size());
  difference.is_bf16 = HoldsBf16(a.values) && HoldsBf16(b.values);
  for (size_t i = 0; i < a.values.size(); ++i) {
    const float x = a.values[i];
    const float y = b.values[i];
    if (SameBits(x, y)) continue;
    ++difference.differing;
    const double apart =
        std::fabs(static_cast<double>(x) - static_cast<double>(y));
    if (std::isnan(apart) || apart > difference.max_abs) {
      difference.max_abs = apart;  // a NaN stays, because nothing exceeds it
    }
    if (difference.first_elements.size() < kElements) {
      const auto place = static_cast<int64_t>(i);
      difference.first_elements.push_back(
          {place / a.cols, place % a.cols, x, y});
    }
  }
  difference.relative_l2 = RelativeL2(a.values, b.values);
}

TensorDifference CompareTensors(const DumpedTensor& a, const DumpedTensor& b) {
  TensorDifference difference;
  difference.name = a.name;
  difference.order = a.order;
  difference.shape_a = {a.rows, a.cols};
  difference.shape_b = {b.rows, b.cols};
  difference.format_rowwise_a = a.format_rowwise;
  difference.format_rowwise_b = b.format_rowwise;
  difference.format_columnwise_a = a.format_columnwise;
  difference.format_columnwise_b = b.format_columnwise;
  if (difference.shape_a != difference.shape_b) return difference;
  CompareValues(a, b, difference);
  difference.rowwise = CompareRowwise(a, b);
  difference.columnwise = CompareColumnwise(a, b);
  difference.cells_rowwise = CompareCells(a, b, false);
  difference.cells_columnwise = CompareCells(a, b, true);
  return difference;
}

const DumpedTensor* Find(const TensorDump& dump, const std::string& name) {
  const auto found = std::ranges::find(dump.tensors, name, &DumpedTensor::name);
  return found == dump.tensors.end() ? nullptr : &*found;
}

/// Returns the values of row `row`, from `col` on, with which a GEMM computes.
std::vector<float> DecodedCells(const DumpedTensor& dumped, int64_t row,
                                int64_t col, int64_t length) {
  const formats::Format& element = formats::FormatByName(
      dumped.format_rowwise.substr(0, dumped.format_rowwise.find("·")));
  const runlog::DumpedCells& cells = dumped.cells_rowwise;
  const auto tensors = runlog::CellTensorsOf(dumped, false);
  size_t i = 0;
  while (dumped.segment_ends[i] <= row) ++i;
  const runlog::CellTensor& tensor = tensors[i];
  row -= tensor.first_row;
  std::vector<float> values;
  for (const int64_t end = col + length; col < end; ++col) {
    const auto code = static_cast<uint32_t>(
        cells.codes[tensor.first_code +
                    static_cast<size_t>(row * tensor.cols + col)]);
    const int64_t cell =
        row / tensor.cell_rows * tensor.cells_in_row() + col / tensor.cell_cols;
    const uint32_t all = (uint32_t{1} << element.bits()) - 1;
    values.push_back(
        formats::Decode(element, code & all) *
        cells.scales[tensor.first_scale + static_cast<size_t>(cell)] *
        cells.tensor_scales[i]);
  }
  return values;
}

OperandBlock::Side SideOf(const DumpedTensor& tensor, int64_t row,
                          int64_t col) {
  const auto length =
      static_cast<ptrdiff_t>(std::min(kBlock, tensor.cols - col));
  const auto at = static_cast<ptrdiff_t>(row * tensor.cols + col);
  OperandBlock::Side side;
  side.format = tensor.format_rowwise;
  if (side.format.empty()) {
    side.values.assign(tensor.values.begin() + at,
                       tensor.values.begin() + at + length);
    return side;
  }
  if (runlog::HasCells(side.format)) {
    side.values = DecodedCells(tensor, row, col, length);
    return side;
  }
  const int64_t blocks = (tensor.cols + kBlock - 1) / kBlock;
  side.scale =
      tensor.scales_rowwise[static_cast<size_t>(row * blocks + col / kBlock)];
  side.codes.assign(tensor.codes_rowwise.begin() + at,
                    tensor.codes_rowwise.begin() + at + length);
  side.values = Decoded(side.format, side.scale, side.codes);
  return side;
}

void AppendOperand(const TensorDump& a, const TensorDump& b,
                   const std::string& name, int64_t rows, int64_t row,
                   std::vector<OperandBlock>& blocks) {
  const DumpedTensor* of_a = Find(a, name);
  const DumpedTensor* of_b = Find(b, name);
  if (of_a == nullptr || of_b == nullptr ||
      of_a->format_rowwise == of_b->format_rowwise || of_a->rows != rows ||
      of_b->rows != rows || of_a->cols != of_b->cols) {
    return;
  }
  const int64_t end = std::min(of_a->cols, kOperandBlocks * kBlock);
  for (int64_t col = 0; col < end; col += kBlock) {
    blocks.push_back(
        {name, row, col, SideOf(*of_a, row, col), SideOf(*of_b, row, col)});
  }
}

/// Returns the operands of y = x W^T: an element's row is x's row, and its
/// column is W's row.
std::vector<OperandBlock> OperandsOf(const TensorDump& a, const TensorDump& b,
                                     const TensorDifference& first) {
  std::vector<OperandBlock> blocks;
  const DumpedTensor& output = *Find(a, first.name);
  if (output.kind != "output" || first.first_elements.empty()) return blocks;
  const ElementDifference& element = first.first_elements.front();
  AppendOperand(a, b, output.module + "_activation", output.rows, element.row,
                blocks);
  AppendOperand(a, b, output.module + "_weight", output.cols, element.col,
                blocks);
  return blocks;
}

}  // namespace

std::optional<int64_t> UlpDistance(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return std::nullopt;
  return std::abs(OrderedBits(a) - OrderedBits(b));
}

bool TensorDifference::Differs() const {
  return shape_a != shape_b || differing > 0 || rowwise || columnwise ||
         cells_rowwise || cells_columnwise;
}

double RelativeL2(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const auto x = static_cast<double>(a[i]);
    if (std::isfinite(x)) norm += x * x;
    if (SameBits(a[i], b[i])) continue;
    const double apart = x - static_cast<double>(b[i]);
    difference += apart * apart;
  }
  if (difference == 0) return 0;
  if (norm == 0) {
    return std::isnan(difference) ? difference
                                  : std::numeric_limits<double>::infinity();
  }
  return std::sqrt(difference / norm);
}

DumpDifference CompareDumps(const TensorDump& a, const TensorDump& b) {
  if (a.step != b.step) {
    ThrowError(ErrorKind::kFormat,
               "compare: the dumps are of steps {} and {}, but must be of the "
               "same step. Dump both runs at one of them.",
               a.step, b.step);
  }
  runlog::MatchedNames names =
      runlog::MatchNames(a.TensorNames(), b.TensorNames());
  if (names.shared.empty()) {
    ThrowError(
        ErrorKind::kFormat,
        "compare: the dumps hold {} and {} tensors, but none of a common "
        "name. Dump the same tensors of both runs.",
        a.tensors.size(), b.tensors.size());
  }
  DumpDifference result;
  result.only_a = std::move(names.only_a);
  result.only_b = std::move(names.only_b);
  for (const runlog::SharedName& shared : names.shared) {
    TensorDifference difference =
        CompareTensors(a.tensors[shared.a], b.tensors[shared.b]);
    if (difference.Differs()) {
      result.tensors.push_back(std::move(difference));
      continue;
    }
    ++result.equal;
    if (!result.tensors.empty()) continue;
    auto& agreeing = result.agreeing_before_first;
    agreeing.push_back(difference.name);
    if (agreeing.size() > kAgreeingBlocks) agreeing.erase(agreeing.begin());
  }
  if (!result.tensors.empty()) {
    result.operands = OperandsOf(a, b, result.tensors.front());
  }
  return result;
}

}  // namespace isoloss::compare
