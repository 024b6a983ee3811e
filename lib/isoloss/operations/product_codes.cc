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
#include "isoloss/operations/roundings.h"
#include "isoloss/operations/scale_grid.h"

namespace isoloss::operations {
namespace {

using oracle::Comparison;
using oracle::ScalarTensor;

/// Returns the scale's number among those of its format.
double ByteOf(const Scales& scales, double scale) {
  if (scales.format == formats::ScaleFormat::kE4m3) {
    return formats::Encode(formats::FormatByName("e4m3"),
                           static_cast<float>(scale),
                           formats::Overflow::kSaturate);
  }
  constexpr int kBias = 127;
  return std::isnan(scale) ? 255.0 : std::ilogb(scale) + kBias;
}

const char* NounOf(const Scales& scales) {
  return scales.has_bytes() ? "scale bytes" : "scales";
}

/// Returns "each by +1" for bytes, or "by factors of 0.5 to 2".
std::string DifferenceText(const ScaleGrid& grid, const Scales& scales,
                           const std::set<size_t>& wrong) {
  double least = HUGE_VAL;
  double most = -HUGE_VAL;
  for (const size_t i : wrong) {
    const auto found = static_cast<double>(scales.values[i]);
    const auto wanted = static_cast<double>(grid.wanted[i]);
    const double by = scales.has_bytes()
                          ? ByteOf(scales, found) - ByteOf(scales, wanted)
                          : found / wanted;
    if (!std::isfinite(by)) continue;
    least = std::min(least, by);
    most = std::max(most, by);
  }
  if (least > most) return "and no factor tells by how much";
  const char* each = wrong.size() > 1 && least == most ? "each " : "";
  if (scales.has_bytes()) {
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

/// Adds all scales to `comparison` and returns the indices of those that are
/// wrong; none if their number does not fit.
std::set<size_t> CompareScales(const std::vector<const Side*>& sides,
                               const std::vector<ScalarTensor>& tensors,
                               const ScaleGrid& grid, const Scales& scales,
                               Comparison& comparison) {
  // Powers of two are exact. The product with a scale of the whole tensor adds
  // one rounding on either side.
  const bool is_two_level =
      scales.of_tensors.empty() &&
      std::ranges::any_of(tensors, [](const ScalarTensor& t) {
        return t.tensor_scale != 1.0f;
      });
  const bool rounds = !scales.has_bytes() &&
                      (is_two_level || sides[0]->quantization->scale_format ==
                                           formats::ScaleFormat::kFp32);
  const bool fits = grid.Fits(scales);
  for (size_t i = scales.values.size(); i < grid.wanted.size(); ++i) {
    comparison.AddOther(0, i, 0.0f, HUGE_VAL);  // it is missing
  }
  std::set<size_t> wrong;
  for (size_t i = 0; i < scales.values.size(); ++i) {
    const float found = scales.values[i];
    if (!fits) {
      comparison.AddOther(0, i, found, HUGE_VAL);
      continue;
    }
    if (grid.IsUnused(i)) continue;
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

/// Compares the scales of whole tensors. A trainer may keep the scale itself,
/// its inverse or the maximum: two roundings lead from each to the others.
void CompareTensorScales(const std::vector<const Side*>& sides,
                         const std::vector<ScalarTensor>& tensors,
                         const Scales& scales, CodeComparison& result) {
  const std::vector<float>& found = scales.of_tensors;
  if (found.empty()) return;
  const bool is_shared = found.size() == 1 && sides[0]->shared_amax;
  if (found.size() != tensors.size() && !is_shared) {
    for (size_t i = 0; i < found.size(); ++i) {
      result.of_tensors.AddOther(i, 0, found[i], HUGE_VAL);
    }
    result.remark_of_tensors =
        fmt::format("There are {} scales of whole tensors, but {} tensors.",
                    found.size(), tensors.size());
    return;
  }
  for (size_t i = 0; i < found.size(); ++i) {
    const auto wanted = static_cast<double>(tensors[i].tensor_scale);
    const int64_t before = result.of_tensors.other();
    result.of_tensors.Add(i, 0, found[i], Around(wanted, wanted, 2));
    if (result.of_tensors.other() == before || before > 0) continue;
    result.remark_of_tensors = fmt::format(
        "The scale of the whole tensor is {:.9g}, but should be {:.9g}: a "
        "factor of {:.6g}.",
        found[i], wanted, static_cast<double>(found[i]) / wanted);
  }
}

/// Adds the codes of all groups to `comparison`. Returns in which blocks wrong
/// ones lie, if the scales fit.
CodePlaces CompareElements(const std::vector<const Side*>& sides,
                           const std::vector<ScalarTensor>& tensors,
                           const Codes& codes, const ScaleGrid& grid,
                           const Scales& scales, const std::set<size_t>& wrong,
                           Comparison& comparison) {
  const formats::Format& format = formats::FormatByName(codes.type);
  const bool fits = grid.Fits(scales);
  CodePlaces places;
  size_t code = 0;
  size_t first_row = 0;
  for (size_t g = 0; g < sides.size(); ++g) {
    const Side& side = *sides[g];
    const bool is_format = side.quantization->element == &format;
    for (size_t r = 0; r < side.values.rows(); ++r) {
      for (size_t c = 0; c < side.values.cols(); ++c) {
        const float found = formats::Decode(format, codes.values[code++]);
        const size_t i = side.down ? c : r;
        const size_t k = side.down ? r : c;
        float wanted = tensors[g].codes(i, k);
        if (side.random_bits > 0 && is_format &&
            IsRoundedUp(
                format, codes.values[code - 1], wanted,
                tensors[g].elements(i, k) * tensors[g].ScaleAt(i, k).encode)) {
          wanted = found;
        }
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

Comparison CodeComparison::Both() const {
  Comparison both = codes;
  both.Merge(scales);
  both.Merge(of_tensors);
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
  const ScaleGrid grid = ScaleGrid::Of(sides, tensors, scales);
  const bool fits = grid.Fits(scales);
  const std::set<size_t> wrong =
      CompareScales(sides, tensors, grid, scales, result.scales);
  CompareTensorScales(sides, tensors, scales, result);
  const CodePlaces places =
      CompareElements(sides, tensors, codes, grid, scales, wrong, result.codes);
  if (!fits) {
    result.remark =
        fmt::format("There are {} {}, but {} blocks{}.", scales.values.size(),
                    NounOf(scales), grid.wanted.size(),
                    scales.format == formats::ScaleFormat::kE8m0
                        ? " of 32 along the contraction"
                        : " of the recipe");
  } else if (!wrong.empty()) {
    result.remark =
        ScaleSentence(grid, scales, wrong,
                      static_cast<double>(tensors[0].tensor_scale)) +
        CodeSentence(places);
  }
  return result;
}

}  // namespace isoloss::operations
