#include "isoloss/operations/scale_grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

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
                     const Scales& scales, size_t block, size_t across)
    : down_(sides[0]->down), block_(block), across_(across) {
  for (size_t g = 0; g < sides.size(); ++g) {
    const size_t rows = Ceil(sides[g]->values.rows(), true);
    cols_ = Ceil(sides[g]->values.cols(), false);
    first_rows_.push_back(wanted.size() / std::max<size_t>(cols_, 1));
    for (size_t r = 0; r < rows; ++r) {
      for (size_t c = 0; c < cols_; ++c) {
        const oracle::ScalarScale& scale =
            down_ ? tensors[g].ScaleAt(across_ * c, block_ * r)
                  : tensors[g].ScaleAt(across_ * r, block_ * c);
        wanted.push_back(scales.Stored(tensors[g], scale));
      }
    }
  }
}

std::string ScaleGrid::Place(size_t index) const {
  return fmt::format("{} {}, {} {}", down_ ? "block" : "row", index / cols_,
                     down_ ? "column" : "block", index % cols_);
}

ScaleGrid ScaleGrid::Of(const std::vector<const Side*>& sides,
                        const std::vector<ScalarTensor>& tensors,
                        const Scales& scales) {
  constexpr size_t kBlock = 32;
  const ScalarTensor& first = tensors[0];
  const bool is_e8m0 = scales.format == formats::ScaleFormat::kE8m0;
  const bool is_empty = first.cell_cols == 0 || first.cell_rows == 0;
  ScaleGrid grid(sides, tensors, scales,
                 is_e8m0 || is_empty ? kBlock : first.cell_cols,
                 is_e8m0 || is_empty ? 1 : first.cell_rows);
  if (grid.Fits(scales) || is_empty) return grid;
  ScaleGrid other(sides, tensors, scales, first.cell_cols,
                  is_e8m0 ? first.cell_rows : 1);
  return other.Fits(scales) ? other : grid;
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
