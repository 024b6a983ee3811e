// Lists mistakes of products that read other scales than the codes were made
// with; scale_catalogue.cc has those in the codes and scales themselves.
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "isoloss/formats/bf16.h"
#include "isoloss/operations/catalogue.h"
#include "isoloss/operations/scale_changes.h"

namespace isoloss::operations {
namespace {

using formats::Quantization;
using formats::ScaleFormat;
using oracle::ScalarScale;
using oracle::ScalarTensor;

size_t ColsOf(const ScalarTensor& tensor) {
  return (tensor.codes.cols() + tensor.cell_cols - 1) / tensor.cell_cols;
}

/// Replaces each scale that products read by read(scale).
template <typename Read>
bool Misread(ScalarTensor& tensor, const Read& read) {
  bool changed = false;
  for (ScalarScale& scale : tensor.scales) {
    const float decode = read(scale);
    changed = changed || !(decode == scale.decode);
    scale.decode = decode;
  }
  return changed;
}

template <int kExponent>
bool DecodeOff(ScalarTensor& tensor, const Quantization& quantization) {
  return Misread(tensor, [&](const ScalarScale& scale) {
    return InScaleFormat(quantization, std::ldexp(scale.decode, kExponent));
  });
}

template <int kUnits>
bool DecodeUnitsOff(ScalarTensor& tensor, const Quantization& quantization) {
  return quantization.scale_format == ScaleFormat::kE4m3 &&
         Misread(tensor, [](const ScalarScale& scale) {
           return NextE4m3(scale.decode, kUnits);
         });
}

bool DecodeInBf16(ScalarTensor& tensor, const Quantization& /*quantization*/) {
  return Misread(tensor, [](const ScalarScale& scale) {
    return formats::RoundToBf16(scale.decode);
  });
}

bool Reciprocals(ScalarTensor& tensor, const Quantization& /*quantization*/) {
  tensor.tensor_scale = 1.0f;
  return Misread(tensor, [](const ScalarScale& scale) { return scale.encode; });
}

/// Reads the scales as if their matrix were stored transposed.
template <bool kStoredTransposed>
bool TransposedScales(ScalarTensor& tensor, const Quantization& /*q*/) {
  const std::vector<ScalarScale> scales = tensor.scales;
  const size_t cols = ColsOf(tensor);
  if (cols < 2 || scales.size() <= cols) return false;
  const size_t rows = scales.size() / cols;
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < cols; ++c) {
      const size_t here = r * cols + c;
      const size_t there = c * rows + r;
      if (kStoredTransposed) {
        tensor.scales[there].decode = scales[here].decode;
      } else {
        tensor.scales[here].decode = scales[there].decode;
      }
    }
  }
  return true;
}

/// Gives each block the scale of another one along its row.
template <size_t kForward>
bool ShiftedScales(ScalarTensor& tensor, const Quantization& /*q*/) {
  const std::vector<ScalarScale> scales = tensor.scales;
  const size_t cols = ColsOf(tensor);
  if (cols < 2) return false;
  const size_t by = kForward == 1 ? 1 : cols - 1;
  for (size_t i = 0; i < scales.size(); ++i) {
    const size_t first = i / cols * cols;
    tensor.scales[i].decode = scales[first + (i - first + by) % cols].decode;
  }
  return true;
}

/// Gives each row of blocks the scales of row from(row).
template <typename From>
bool MovedRows(ScalarTensor& tensor, const From& from) {
  const std::vector<ScalarScale> scales = tensor.scales;
  const size_t cols = ColsOf(tensor);
  const size_t rows = cols == 0 ? 0 : scales.size() / cols;
  if (rows < 2) return false;
  for (size_t i = 0; i < scales.size(); ++i) {
    tensor.scales[i].decode =
        scales[from(i / cols, rows) * cols + i % cols].decode;
  }
  return true;
}

template <size_t kForward>
bool ShiftedRows(ScalarTensor& tensor, const Quantization& /*quantization*/) {
  return MovedRows(tensor, [](size_t row, size_t rows) {
    return (row + (kForward == 1 ? 1 : rows - 1)) % rows;
  });
}

bool SwappedNeighbours(ScalarTensor& tensor, const Quantization& /*q*/) {
  return MovedRows(tensor, [](size_t row, size_t rows) {
    const size_t other = row % 2 == 0 ? row + 1 : row - 1;
    return other < rows ? other : row;
  });
}

bool ReversedRows(ScalarTensor& tensor, const Quantization& /*quantization*/) {
  return MovedRows(tensor,
                   [](size_t row, size_t rows) { return rows - 1 - row; });
}

/// Lets products read the scales of another tensor of as many blocks.
bool ReadScalesOf(const Side& other, Side& side) {
  const std::optional<ScalarTensor> tensor = Quantized(other);
  if (!tensor) return false;
  return SetChange(side,
                   [scales = tensor->scales, of_tensor = tensor->tensor_scale](
                       ScalarTensor& changed, const Quantization&) {
                     if (scales.size() != changed.scales.size()) return false;
                     changed.tensor_scale = of_tensor;
                     for (size_t i = 0; i < scales.size(); ++i) {
                       changed.scales[i].decode = scales[i].decode;
                     }
                     return true;
                   });
}

template <Earlier kEarlier>
bool ReadEarlierScale(Side& side) {
  if (side.change != nullptr || side.fixed != nullptr) return false;
  Side before = side;
  return TakeEarlier(kEarlier, before) && ReadScalesOf(before, side);
}

bool ReadPartnerScale(Side& side) {
  return side.partner != nullptr && side.change == nullptr &&
         ReadScalesOf(*side.partner, side);
}

template <int kTimes>
bool TensorScaleTimes(ScalarTensor& tensor, const Quantization& quantization) {
  if (!quantization.scales_tensor()) return false;
  const float scale = tensor.tensor_scale;
  tensor.tensor_scale = kTimes == 0 ? 1.0f : scale * scale;
  return tensor.tensor_scale != scale;
}

template <bool (*kChange)(ScalarTensor&, const Quantization&)>
bool Read(Side& side) {
  return SetChange(side, kChange);
}

constexpr SideMistake kMisreadScales[] = {
    {"decode_scale_plus_1",
     "products read the scales of {} with an exponent that was one too large",
     Read<DecodeOff<1>>,
     "the scales of {} were stored with an exponent that is one too large"},
    {"decode_scale_minus_1",
     "products read the scales of {} with an exponent that was one too small",
     Read<DecodeOff<-1>>,
     "the scales of {} were stored with an exponent that is one too small"},
    {"decode_scale_unit_plus_1",
     "products read the scales of {} one unit of E4M3 too large",
     Read<DecodeUnitsOff<1>>,
     "the scales of {} were stored one unit of E4M3 too large"},
    {"decode_scale_unit_minus_1",
     "products read the scales of {} one unit of E4M3 too small",
     Read<DecodeUnitsOff<-1>>,
     "the scales of {} were stored one unit of E4M3 too small"},
    {"scale_bf16", "products read the scales of {} rounded to BF16",
     Read<DecodeInBf16>, "the scales of {} were stored rounded to BF16"},
    {"decode_scale_inverse",
     "products read the inverse of the scales of {}: what elements are "
     "multiplied by",
     Read<Reciprocals>,
     "the inverse of the scales of {} was stored: what elements are multiplied "
     "by"},
    {"tensor_scale_missing",
     "products left out the scale of the whole tensor of {}",
     Read<TensorScaleTimes<0>>, "the scale of the whole tensor of {} was 1"},
    {"tensor_scale_twice",
     "products were multiplied twice by the scale of the whole tensor of {}",
     Read<TensorScaleTimes<2>>,
     "the scale of the whole tensor of {} was stored squared"},
    {"transposed_scale", "the scales of {} were read transposed",
     Read<TransposedScales<false>>,
     "the scales of {} were stored as if their matrix had been read "
     "transposed"},
    {"scale_stored_transposed", "the scales of {} were stored transposed",
     Read<TransposedScales<true>>},
    {"scale_of_block_before",
     "each block of {} had the scale of the one before",
     Read<ShiftedScales<0>>},
    {"scale_of_block_after", "each block of {} had the scale of the one after",
     Read<ShiftedScales<1>>},
    {"scale_of_row_before",
     "the blocks of each row of {} had the scales of the row before",
     Read<ShiftedRows<0>>},
    {"scale_of_row_after",
     "the blocks of each row of {} had the scales of the row after",
     Read<ShiftedRows<1>>},
    {"scales_of_neighbours",
     "rows of {} had the scales of their neighbours: 0 and 1, 2 and 3, and so "
     "on",
     Read<SwappedNeighbours>},
    {"scales_reversed", "rows of {} had scales in the reverse order",
     Read<ReversedRows>},
    {"decode_scale_of_step_before",
     "products read the scales of {} of the step before, and its codes of this "
     "one",
     ReadEarlierScale<&Side::previous>,
     "the scales of {} were stored of the step before"},
    {"decode_scale_of_call_before",
     "products read the scales of {} of the call before, and its codes of this "
     "one",
     ReadEarlierScale<&Side::previous_call>,
     "the scales of {} were stored of the call before"},
    {"decode_scale_of_other_operand",
     "products read the scales of the other operand for {}", ReadPartnerScale,
     "the scales of the other operand were stored for {}"},
};

}  // namespace

bool SetChange(Side& side, ChangeTensor change) {
  if (!side.quantization) return false;
  side.change = std::move(change);
  return true;
}

bool SwapScales(size_t a, size_t b, Side& side) {
  return SetChange(side, [a, b](ScalarTensor& tensor, const Quantization&) {
    return MovedRows(tensor, [&](size_t row, size_t rows) {
      if (a >= rows || b >= rows) return row;
      return row == a ? b : row == b ? a : row;
    });
  });
}

std::span<const SideMistake> MisreadScales() { return kMisreadScales; }

}  // namespace isoloss::operations
