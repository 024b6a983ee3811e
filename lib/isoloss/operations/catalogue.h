// Mistakes that trainers make in quantised products: a table.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "isoloss/operations/explanation.h"
#include "isoloss/operations/product.h"

namespace isoloss::operations {

/// A mistake in one operand, or in both.
struct SideMistake {
  std::string_view name;
  std::string_view
      sentence;  ///< {} stands for the operand: "x", "both operands"
  /// False: it can't be made here.
  bool (*alter)(Side& side);
  /// The sentence where stored codes and scales show it, if another one is true
  /// of them.
  std::string_view of_codes = {};
};
std::span<const SideMistake> SideMistakes();
/// Those of them in codes and scales.
std::span<const SideMistake> ScaleMistakes();

using Earlier = std::optional<MatrixView<const float>> Side::*;
/// The earlier tensor in place of the side's values; false: it is unknown, or
/// the same.
bool TakeEarlier(Earlier earlier, Side& side);

/// Scales follow the maxima times a constant: elements beyond it are clamped.
bool FollowMaxima(double factor, Side& side);
/// Constants that trainers multiplied maxima by, and ratios of the largest
/// elements of formats.
std::span<const double> MaximaFactors();

/// A mistake in the product as a whole.
struct ProductMistake {
  std::string_view name;
  std::string_view sentence;
  bool (*alter)(Product& product);
  bool is_right = false;  ///< another right way
};
std::span<const ProductMistake> ProductMistakes();

/// Names of the sides: "x" and "weight" of fprop.
struct SideNames {
  const char* left;
  const char* right;
};

/// All of them, made in `product`, of which `found` was found. It must outlive
/// them. Of a large product, mistakes of operands are tried on a window around
/// its worst element first, and count as impossible if they explain less than
/// half of what is wrong there.
std::vector<Trial> TrialsOf(const Product& product, const SideNames& names,
                            const oracle::Comparison& found);
/// Those that show in codes or scales of one operand. `sides` of each group,
/// whose codes are these; all must outlive them. `maxima_factor`: what maxima
/// are tried times; 1: nothing.
std::vector<Trial> TrialsOf(const std::vector<const Side*>& sides,
                            const char* name, const Codes& codes,
                            const Scales& scales, CodePart part,
                            double maxima_factor);
/// The factor of maxima that explains most of codes and scales that are not
/// those of `sides`: of the constants, or the ratio of the scales themselves.
/// 1: none explains anything.
double MaximaFactorOf(const std::vector<const Side*>& sides, const Codes& codes,
                      const Scales& scales);

}  // namespace isoloss::operations
