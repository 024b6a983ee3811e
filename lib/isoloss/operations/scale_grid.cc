#include "isoloss/operations/scale_grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "isoloss/formats/format.h"

namespace isoloss::operations {
namespace {

using oracle::ScalarTensor;

float ScaleOfByte(uint8_t code) {
  constexpr uint8_t kNan = 255;
  constexpr int kBias = 127;
  return code == kNan ? std::numeric_limits<float>::quiet_NaN()
                      : std::ldexp(1.0f, code - kBias);
}

}  // namespace

ScaleGrid::ScaleGrid(const std::vector<const Side*>& sides,
                     const std::vector<ScalarTensor>& tensors,
                     const Scales& scales, Way way)
    : down_(sides[0]->down) {
  for (size_t g = 0; g < sides.size(); ++g) {
    Append(*sides[g], tensors[g], scales, way);
  }
}

void ScaleGrid::Append(const Side& side, const ScalarTensor& tensor,
                       const Scales& scales, Way way) {
  constexpr size_t kBlock = 32;
  const size_t block = way.blocks_of_32 ? kBlock : tensor.cell_cols;
  const size_t across = way.each_row ? 1 : tensor.cell_rows;
  Group group = {.first_row = 0, .rows = across, .cols = block};
  if (down_) std::swap(group.rows, group.cols);
  const MatrixView<const float>& values = side.values;
  size_t rows = (values.rows() + group.rows - 1) / group.rows;
  cols_ = (values.cols() + group.cols - 1) / group.cols;
  group.first_row = wanted.size() / std::max<size_t>(cols_, 1);
  groups_.push_back(group);
  const formats::Cell& cell = side.quantization->cell;
  const bool spans_group = (down_ ? cell.cols : cell.rows) == 0;
  const bool is_unused = rows == 0 && spans_group && way.of_empty_groups;
  if (is_unused) rows = 1;
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < cols_; ++c) {
      if (is_unused) {
        unused_.insert(wanted.size());
        wanted.push_back(0.0f);
        continue;
      }
      const oracle::ScalarScale& scale =
          down_ ? tensor.ScaleAt(across * c, block * r)
                : tensor.ScaleAt(across * r, block * c);
      wanted.push_back(scales.Stored(tensor, scale));
    }
  }
}

void ScaleGrid::Share() {
  constexpr size_t kAll = std::numeric_limits<size_t>::max();
  wanted.resize(1);
  groups_.assign(groups_.size(), {.first_row = 0, .rows = kAll, .cols = kAll});
}

std::string ScaleGrid::Place(size_t index) const {
  return fmt::format("{} {}, {} {}", down_ ? "block" : "row", index / cols_,
                     down_ ? "column" : "block", index % cols_);
}

ScaleGrid ScaleGrid::Of(const std::vector<const Side*>& sides,
                        const std::vector<ScalarTensor>& tensors,
                        const Scales& scales) {
  const bool is_e8m0 = scales.format == formats::ScaleFormat::kE8m0;
  const Way usual = {.blocks_of_32 = is_e8m0, .each_row = is_e8m0};
  const Way other = {.each_row = !is_e8m0};
  for (const bool of_empty : {false, true}) {
    for (Way way : {usual, other}) {
      way.of_empty_groups = of_empty;
      ScaleGrid grid(sides, tensors, scales, way);
      if (grid.Fits(scales)) return grid;
    }
  }
  ScaleGrid grid(sides, tensors, scales, usual);
  const bool shares = sides[0]->shared_amax && scales.values.size() == 1 &&
                      sides[0]->quantization->cell == formats::Cell{0, 0};
  if (shares && !grid.wanted.empty()) grid.Share();
  return grid;
}

std::optional<Scales> ScalesOf(const Operation& operation,
                               const std::string& operand) {
  const std::string name = operand + "_scales";
  Scales scales;
  if (const Floats* of_tensor = operation.Find(operand + "_tensor_scale")) {
    scales.of_tensors = of_tensor->values;
  }
  if (const Floats* floats = operation.Find(name)) {
    scales.values = floats->values;
    return scales;
  }
  const Codes* bytes = operation.FindCodes(name);
  if (bytes == nullptr) return std::nullopt;
  const bool is_e4m3 = bytes->type == "e4m3";
  scales.format =
      is_e4m3 ? formats::ScaleFormat::kE4m3 : formats::ScaleFormat::kE8m0;
  const formats::Format& e4m3 = formats::FormatByName("e4m3");
  for (const uint8_t byte : bytes->values) {
    scales.values.push_back(is_e4m3 ? formats::Decode(e4m3, byte)
                                    : ScaleOfByte(byte));
  }
  return scales;
}

}  // namespace isoloss::operations
