// Compares a mistake with a window of a large product first.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "isoloss/operations/product.h"
#include "isoloss/oracle/comparison.h"

namespace isoloss::operations {

/// A mistake is made in one operand or in both.
enum class Which { kLeft, kRight, kBoth };
/// Returns false if the mistake can't be made in that operand.
using AlterSide = std::function<bool(Side& side)>;

/// Compares the product with a mistake in it. Returns nothing if the mistake
/// can't be made, or in one of two operands only.
std::optional<oracle::Comparison> CompareAltered(const Product& product,
                                                 const AlterSide& alter,
                                                 Which which);

/// A window has some rows of either operand of one group.
struct Sample {
  Product product;
  size_t group = 0;
  std::array<size_t, 2> first = {};  ///< of the left and the right operand
  int64_t other = 0;
};

/// Returns the window around the worst element of `found`; null if the product
/// is as fast as a window.
std::shared_ptr<const Sample> SampleOf(const Product& product,
                                       const oracle::Comparison& found);

/// Compares the window, or the whole product if there is none. Operands are
/// quantised as a whole before they are cut.
std::optional<oracle::Comparison> CompareOnWindow(const Product& product,
                                                  const Sample* sample,
                                                  const AlterSide& alter,
                                                  Which which);

/// Returns whether a mistake explains less than half of the window.
bool FailsOnWindow(const Product& product, const Sample* sample,
                   const AlterSide& alter, Which which);

}  // namespace isoloss::operations
