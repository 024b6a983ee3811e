// Compares codes and scales of a quantised operand with the oracle's.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <set>

#include "isoloss/formats/format.h"
#include "isoloss/operations/estimates.h"
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

double ByteOf(double scale) {
  return std::isnan(scale) ? 255.0 : std::ilogb(scale) + kScaleBias;
}

const char* NounOf(const Scales& scales) {
  return scales.has_bytes ? "scale bytes" : "scales";
}

/// Holds the scales of all groups in the order of operation files.
class ScaleGrid {
 public:
  /// There is one scale for each `block` elements along the contraction and
  /// `across` rows of the operand.
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
          const oracle::ScalarScale& scale =
              down_ ? tensors[g].ScaleAt(across_ * c, block_ * r)
                    : tensors[g].ScaleAt(across_ * r, block_ * c);
          wanted.push_back(scale.decode * tensors[g].tensor_scale);
        }
      }
    }
  }

  size_t cols() const { return cols_; }
  /// Returns the index of the scale of an element of a group.
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

/// Returns the grid of the scales. Scale bytes have the layout's blocks, or the
/// quantisation's own blocks if their number fits. FP32 scales always have the
/// quantisation's own blocks.
ScaleGrid GridOf(const std::vector<const Side*>& sides,
                 const std::vector<ScalarTensor>& tensors,
                 const Scales& scales) {
  constexpr size_t kBlock = 32;
  ScaleGrid grid(sides, tensors, kBlock, 1);
  const ScalarTensor& first = tensors[0];
  const size_t count = scales.values.size();
  if ((scales.has_bytes && grid.wanted.size() == count) ||
      first.cell_cols == 0 || first.cell_rows == 0) {
    return grid;
  }
  ScaleGrid own(sides, tensors, first.cell_cols, first.cell_rows);
  return !scales.has_bytes || own.wanted.size() == count ? own : grid;
}

/// Returns "each by +1" for bytes, or "by factors of 0.5 to 2".
std::string DifferenceText(const ScaleGrid& grid, const Scales& scales,
                           const std::set<size_t>& wrong) {
  double least = HUGE_VAL;
  double most = -HUGE_VAL;
  for (const size_t i : wrong) {
    const auto found = static_cast<double>(scales.values[i]);
    const auto wanted = static_cast<double>(grid.wanted[i]);
    const double by =
        scales.has_bytes ? ByteOf(found) - ByteOf(wanted) : found / wanted;
    if (!std::isfinite(by)) continue;
    least = std::min(least, by);
    most = std::max(most, by);
  }
  if (least > most) return "and no factor tells by how much";
  const char* each = wrong.size() > 1 && least == most ? "each " : "";
  if (scales.has_bytes) {
    return least == most ? fmt::format("{}by {:+}", each, least)
                         : fmt::format("by {:+} to {:+}", least, most);
  }
  return least == most
             ? fmt::format("{}by a factor of {:.6g}", each, least)
             : fmt::format("by factors of {:.6g} to {:.6g}", least, most);
}

/// Returns the cause if all wrong scales are inverse, or lack the scale of the
/// whole tensor; else "".
const char* CauseOf(const ScaleGrid& grid, const Scales& scales,
                    const std::set<size_t>& wrong, double tensor_scale) {
  constexpr double kFewRoundings = 0x1p-20;
  const auto all = [&](const auto& ratio) {
    return std::ranges::all_of(wrong, [&](size_t i) {
      return std::fabs(ratio(static_cast<double>(scales.values[i]),
                             static_cast<double>(grid.wanted[i])) -
                       1.0) < kFewRoundings;
    });
  };
  if (all([](double found, double wanted) { return found * wanted; })) {
    return " They are the inverses: scales must be what codes are multiplied "
           "by.";
  }
  return tensor_scale != 1.0 && all([=](double found, double wanted) {
           return found * tensor_scale / wanted;
         })
             ? " They lack the scale of the whole tensor: scales must be what "
               "codes are multiplied by."
             : "";
}

/// Returns "3 of 8 scale bytes are wrong, each by +1: row 0, block 0; ...".
std::string ScaleSentence(const ScaleGrid& grid, const Scales& scales,
                          const std::set<size_t>& wrong, double tensor_scale) {
  std::string places;
  constexpr size_t kMostPlaces = 4;
  size_t named = 0;
  for (const size_t i : wrong) {
    if (named++ == kMostPlaces) break;
    places += (places.empty() ? "" : "; ") + grid.Place(i);
  }
  return fmt::format("{} of {} {} are wrong, {}: {}{}.{}", wrong.size(),
                     scales.values.size(), NounOf(scales),
                     DifferenceText(grid, scales, wrong), places,
                     wrong.size() > kMostPlaces ? "; ..." : "",
                     CauseOf(grid, scales, wrong, tensor_scale));
}

/// Scales tell in which blocks the wrong codes lie.
struct CodePlaces {
  int64_t inside = 0;  ///< in blocks whose scale is wrong
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

/// Scales fit a grid if there is one for each of its blocks.
bool FitsGrid(const Scales& scales, const ScaleGrid& grid) {
  return grid.wanted.size() == scales.values.size();
}

/// Adds all scales to `comparison` and returns the indices of those that are
/// wrong; none if their number does not fit.
std::set<size_t> CompareScales(const std::vector<const Side*>& sides,
                               const std::vector<ScalarTensor>& tensors,
                               const ScaleGrid& grid, const Scales& scales,
                               Comparison& comparison) {
  // Powers of two are exact. The product with a scale of the whole tensor adds
  // one rounding on either side.
  const bool is_two_level = std::ranges::any_of(
      tensors, [](const ScalarTensor& t) { return t.tensor_scale != 1.0f; });
  const bool rounds = !scales.has_bytes &&
                      (is_two_level || sides[0]->quantization->scale_format ==
                                           formats::ScaleFormat::kFp32);
  const bool fits = FitsGrid(scales, grid);
  std::set<size_t> wrong;
  for (size_t i = 0; i < scales.values.size(); ++i) {
    const float found = scales.values[i];
    if (!fits) {
      comparison.AddOther(0, i, found, HUGE_VAL);
      continue;
    }
    const int64_t before = comparison.other();
    const size_t row = i / grid.cols();
    const size_t column = i % grid.cols();
    if (rounds) {
      const auto wanted = static_cast<double>(grid.wanted[i]);
      comparison.Add(row, column, found,
                     Around(wanted, wanted, is_two_level ? 4 : 2));
    } else {
      comparison.AddExact(row, column, found, grid.wanted[i]);
    }
    if (comparison.other() > before) wrong.insert(i);
  }
  return wrong;
}

/// Adds the codes of all groups to `comparison`. Returns in which blocks wrong
/// ones lie, if the scales fit.
CodePlaces CompareElements(const std::vector<const Side*>& sides,
                           const std::vector<ScalarTensor>& tensors,
                           const Codes& codes, const ScaleGrid& grid,
                           const Scales& scales, const std::set<size_t>& wrong,
                           Comparison& comparison) {
  const formats::Format& format = formats::FormatByName(codes.type);
  const bool fits = FitsGrid(scales, grid);
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
        const int64_t before = comparison.other();
        if (is_format) {
          const bool zeros = found == 0.0f && wanted == 0.0f;
          comparison.AddExact(first_row + r, c, zeros ? wanted : found, wanted);
        } else {
          comparison.AddOther(first_row + r, c, found,
                              static_cast<double>(wanted));
        }
        if (!fits) continue;
        const size_t scale = grid.Of(g, r, c);
        if (comparison.other() > before) {
          ++(wrong.contains(scale) ? places.inside : places.outside);
        }
        places.same_values =
            places.same_values &&
            found * scales.values[scale] == wanted * grid.wanted[scale];
      }
    }
    first_row += side.values.rows();
  }
  return places;
}

}  // namespace

std::optional<Scales> ScalesOf(const Operation& operation,
                               const std::string& operand) {
  const std::string name = operand + "_scales";
  if (const Floats* floats = operation.Find(name)) {
    return Scales{.values = floats->values};
  }
  const Codes* bytes = operation.FindCodes(name);
  if (bytes == nullptr) return std::nullopt;
  Scales scales = {.values = {}, .has_bytes = true};
  for (const uint8_t byte : bytes->values) {
    scales.values.push_back(ScaleOfByte(byte));
  }
  return scales;
}

Comparison CodeComparison::Both() const {
  Comparison both = codes;
  both.Merge(scales);
  return both;
}

std::optional<CodeComparison> CompareCodes(
    const std::vector<const Side*>& sides, const Codes& codes,
    const Scales& scales) {
  std::vector<ScalarTensor> tensors;
  for (const Side* side : sides) {
    std::optional<ScalarTensor> tensor = Quantized(*side);
    if (!tensor) return std::nullopt;
    tensors.push_back(std::move(*tensor));
  }
  CodeComparison result;
  const ScaleGrid grid = GridOf(sides, tensors, scales);
  const bool fits = FitsGrid(scales, grid);
  const std::set<size_t> wrong =
      CompareScales(sides, tensors, grid, scales, result.scales);
  const CodePlaces places =
      CompareElements(sides, tensors, codes, grid, scales, wrong, result.codes);
  if (!fits) {
    result.remark = fmt::format(
        "There are {} {}, but {} blocks{}.", scales.values.size(),
        NounOf(scales), grid.wanted.size(),
        scales.has_bytes ? " of 32 along the contraction" : " of the recipe");
  } else if (!wrong.empty()) {
    result.remark =
        ScaleSentence(grid, scales, wrong,
                      static_cast<double>(tensors[0].tensor_scale)) +
        CodeSentence(places);
  }
  return result;
}

}  // namespace isoloss::operations
