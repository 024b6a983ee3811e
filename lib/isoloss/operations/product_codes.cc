// Codes and scales of a quantised operand against those of a quantisation.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <set>

#include "isoloss/formats/format.h"
#include "isoloss/operations/product.h"

namespace isoloss::operations {
namespace {

using oracle::Comparison;
using oracle::ScalarTensor;

constexpr int kScaleBias = 127;

float ScaleOfByte(uint8_t code) {
  constexpr uint8_t kNan = 255;
  return code == kNan ? std::numeric_limits<float>::quiet_NaN()
                      : std::ldexp(1.0f, code - kScaleBias);
}

/// Scales of all groups, as operation files hold them.
class ScaleGrid {
 public:
  /// One for each `block` elements along the contraction and `across` rows of
  /// the operand.
  ScaleGrid(const std::vector<const Side*>& sides,
            const std::vector<ScalarTensor>& tensors, size_t block,
            size_t across)
      : down_(sides[0]->down), block_(block), across_(across) {
    for (size_t g = 0; g < sides.size(); ++g) {
      const size_t rows = Ceil(sides[g]->values.rows(), true);
      cols_ = Ceil(sides[g]->values.cols(), false);
      first_rows_.push_back(wanted.size() / std::max<size_t>(cols_, 1));
      for (size_t r = 0; r < rows; ++r) {
        for (size_t c = 0; c < cols_; ++c) {
          wanted.push_back(
              down_ ? tensors[g].ScaleAt(across_ * c, block_ * r).decode
                    : tensors[g].ScaleAt(across_ * r, block_ * c).decode);
        }
      }
    }
  }

  size_t cols() const { return cols_; }
  /// Index of the scale of an element of a group.
  size_t Of(size_t group, size_t row, size_t col) const {
    return (first_rows_[group] + row / Size(true)) * cols_ + col / Size(false);
  }
  std::string Place(size_t index) const {
    return fmt::format("{} {}, {} {}", down_ ? "block" : "row", index / cols_,
                       down_ ? "column" : "block", index % cols_);
  }

  std::vector<float> wanted = {};

 private:
  size_t Size(bool of_rows) const {
    return of_rows == down_ ? block_ : across_;
  }
  size_t Ceil(size_t size, bool of_rows) const {
    return (size + Size(of_rows) - 1) / Size(of_rows);
  }

  bool down_;
  size_t block_;
  size_t across_;
  size_t cols_ = 0;
  std::vector<size_t> first_rows_;
};

/// That of the layout, or of the quantisation's own blocks if the scales are as
/// many as those.
ScaleGrid GridOf(const std::vector<const Side*>& sides,
                 const std::vector<ScalarTensor>& tensors, size_t count) {
  constexpr size_t kBlock = 32;
  ScaleGrid grid(sides, tensors, kBlock, 1);
  const ScalarTensor& first = tensors[0];
  if (grid.wanted.size() == count || first.cell_cols == 0 ||
      first.cell_rows == 0) {
    return grid;
  }
  ScaleGrid own(sides, tensors, first.cell_cols, first.cell_rows);
  return own.wanted.size() == count ? own : grid;
}

/// "3 of 8 scale bytes are wrong, each by +1: row 0, block 0; ...".
std::string ScaleSentence(const ScaleGrid& grid, const Codes& scales,
                          const std::set<size_t>& wrong) {
  int least = std::numeric_limits<int>::max();
  int most = std::numeric_limits<int>::min();
  std::string places;
  constexpr size_t kMostPlaces = 4;
  size_t named = 0;
  for (const size_t i : wrong) {
    const float wanted = grid.wanted[i];
    const int byte = std::isnan(wanted) ? 255 : std::ilogb(wanted) + kScaleBias;
    least = std::min(least, scales.values[i] - byte);
    most = std::max(most, scales.values[i] - byte);
    if (named++ < kMostPlaces) {
      places += (places.empty() ? "" : "; ") + grid.Place(i);
    }
  }
  const std::string by = least == most
                             ? fmt::format("by {:+}", least)
                             : fmt::format("by {:+} to {:+}", least, most);
  return fmt::format("{} of {} scale bytes are wrong, {}{}: {}{}.",
                     wrong.size(), scales.values.size(),
                     wrong.size() > 1 && least == most ? "each " : "", by,
                     places, named > kMostPlaces ? "; ..." : "");
}

/// Where the codes that differ lie, as scales tell.
struct CodePlaces {
  int64_t inside = 0;  ///< of blocks whose scale is wrong
  int64_t outside = 0;
  bool same_values = true;  ///< code times scale is what it should be
};

std::string CodeSentence(const CodePlaces& places) {
  std::string text;
  if (places.inside + places.outside == 0) {
    text = " All codes are right.";
  } else if (places.outside == 0) {
    text = fmt::format(" {} codes differ, all in those blocks.", places.inside);
  } else {
    text = fmt::format(" {} codes differ in those blocks and {} in others.",
                       places.inside, places.outside);
  }
  return places.same_values
             ? text +
                   " Codes times scales give the values of the recipe, so "
                   "that the product does not change."
             : text;
}

}  // namespace

Comparison CodeComparison::Both() const {
  Comparison both = codes;
  both.Merge(scales);
  return both;
}

std::optional<CodeComparison> CompareCodes(
    const std::vector<const Side*>& sides, const Codes& codes,
    const Codes& scales) {
  std::vector<ScalarTensor> tensors;
  for (const Side* side : sides) {
    std::optional<ScalarTensor> tensor = Quantized(*side);
    if (!tensor) return std::nullopt;
    tensors.push_back(std::move(*tensor));
  }
  CodeComparison result;
  const ScaleGrid grid = GridOf(sides, tensors, scales.values.size());
  const bool fits = grid.wanted.size() == scales.values.size();
  std::set<size_t> wrong;
  for (size_t i = 0; i < scales.values.size(); ++i) {
    const float found = ScaleOfByte(scales.values[i]);
    if (!fits) {
      result.scales.AddOther(0, i, found, HUGE_VAL);
      continue;
    }
    const int64_t before = result.scales.other();
    result.scales.AddExact(i / grid.cols(), i % grid.cols(), found,
                           grid.wanted[i]);
    if (result.scales.other() > before) wrong.insert(i);
  }
  const formats::Format& format = formats::FormatByName(codes.type);
  CodePlaces places;
  size_t code = 0;
  size_t first_row = 0;
  for (size_t g = 0; g < sides.size(); ++g) {
    const Side& side = *sides[g];
    const bool is_format = side.quantization->element == &format;
    for (size_t r = 0; r < side.values.rows(); ++r) {
      for (size_t c = 0; c < side.values.cols(); ++c) {
        const float found = formats::Decode(format, codes.values[code++]);
        const float wanted =
            side.down ? tensors[g].codes(c, r) : tensors[g].codes(r, c);
        const int64_t before = result.codes.other();
        if (is_format) {
          const bool zeros = found == 0.0f && wanted == 0.0f;
          result.codes.AddExact(first_row + r, c, zeros ? wanted : found,
                                wanted);
        } else {
          result.codes.AddOther(first_row + r, c, found,
                                static_cast<double>(wanted));
        }
        if (!fits) continue;
        const size_t scale = grid.Of(g, r, c);
        if (result.codes.other() > before) {
          ++(wrong.contains(scale) ? places.inside : places.outside);
        }
        places.same_values =
            places.same_values && found * ScaleOfByte(scales.values[scale]) ==
                                      wanted * grid.wanted[scale];
      }
    }
    first_row += side.values.rows();
  }
  if (!fits) {
    result.remark = fmt::format(
        "There are {} scale bytes, but {} blocks of 32 along the contraction.",
        scales.values.size(), grid.wanted.size());
  } else if (!wrong.empty()) {
    result.remark = ScaleSentence(grid, scales, wrong) + CodeSentence(places);
  }
  return result;
}

}  // namespace isoloss::operations
