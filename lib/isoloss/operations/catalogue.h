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
/// whose codes are these; all must outlive them.
std::vector<Trial> TrialsOf(const std::vector<const Side*>& sides,
                            const char* name, const Codes& codes,
                            const Scales& scales, CodePart part);

}  // namespace isoloss::operations
