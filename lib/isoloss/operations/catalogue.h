// Lists mistakes that trainers make in quantised products.
#pragma once

#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <vector>

#include "isoloss/operations/explanation.h"
#include "isoloss/operations/mesh.h"
#include "isoloss/operations/product.h"

namespace isoloss::operations {

/// A mistake is made in one operand, or in both.
struct SideMistake {
  std::string_view name;
  std::string_view sentence;  ///< {} is the operand: "x", "both operands"
  /// Returns false if the mistake can't be made here.
  bool (*alter)(Side& side);
  /// If stored codes and scales show the mistake, this sentence replaces the
  /// first one; "": the first one is true of them.
  std::string_view of_codes = {};
  /// It is made in values, so that recorded codes can't have it.
  bool of_values = false;
  /// It is a second right way, which codes tell.
  bool is_right = false;
};
std::span<const SideMistake> SideMistakes();
/// Returns the mistakes that are made in codes and scales.
std::span<const SideMistake> ScaleMistakes();
/// Returns those of scales that follow another tensor, and those of products
/// that read other scales.
std::span<const SideMistake> EarlierScales();
std::span<const SideMistake> MisreadScales();

/// Sets the side's change. Returns false if the side is not quantised.
bool SetChange(Side& side, ChangeTensor change);
/// Lets products read the scales of two rows of blocks the wrong way round.
bool SwapScales(size_t a, size_t b, Side& side);

using Earlier = std::optional<MatrixView<const float>> Side::*;
/// Puts the earlier tensor in place of the side's values. Returns false if it
/// is unknown or the same.
bool TakeEarlier(Earlier earlier, Side& side);

/// Makes scales follow the maxima within this share of a block that spans the
/// operand's rows, or the contraction. Returns false if no block does.
bool FollowShare(const RankShare& share, bool along_rows, Side& side);

/// Makes scales follow the maxima times a constant; elements beyond the scaled
/// maximum are clamped.
bool FollowMaxima(double factor, Side& side);
/// Returns constants by which trainers multiplied maxima, and ratios of the
/// largest elements of formats.
std::span<const double> MaximaFactors();

/// A mistake is made in the product as a whole.
struct ProductMistake {
  std::string_view name;
  std::string_view sentence;
  bool (*alter)(Product& product);
  bool is_right = false;  ///< it is a second right way
};
std::span<const ProductMistake> ProductMistakes();

/// Each product has names for its sides: "x" and "weight" of fprop.
struct SideNames {
  const char* left;
  const char* right;
};

/// Returns trials of all mistakes in `product`, which must outlive them;
/// `found` is its comparison. If the product is large, mistakes of operands are
/// tried first on a window around its worst element. They count as impossible
/// if they explain less than half of the wrong elements in the window.
std::vector<Trial> TrialsOf(const Product& product, const SideNames& names,
                            const oracle::Comparison& found);
/// Returns trials of the mistakes that show in codes or scales of one operand.
/// `sides` are the sides of each group, which have these codes; all must
/// outlive the trials. Scales of `shares` are tried, and `maxima_factor` as a
/// factor of maxima; 1: none.
std::vector<Trial> TrialsOf(const std::vector<const Side*>& sides,
                            const char* name, const Codes& codes,
                            const Scales& scales, CodePart part,
                            const std::set<RankShare>& shares,
                            double maxima_factor);
/// Returns the factor of maxima that explains most of the wrong codes and
/// scales. It is one of the constants, or the ratio of the scales themselves.
/// 1: none explains anything.
double MaximaFactorOf(const std::vector<const Side*>& sides, const Codes& codes,
                      const Scales& scales);

}  // namespace isoloss::operations
