// Finds which tensor cores added up the products of recorded results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "isoloss/base/executor.h"
#include "isoloss/operations/arithmetic.h"
#include "isoloss/operations/product.h"

namespace isoloss::operations {

/// Says how the sums of one product are to be judged.
struct SumsOfProduct {
  /// Some elements of the product were predicted to the bit by `arithmetic`;
  /// else it has no bits.
  Arithmetic arithmetic = {};
  /// These predict as many of the elements that were tried.
  std::vector<Arithmetic> alike = {};
  /// Other products of the files were predicted by these. The most fitting ones
  /// come first.
  std::vector<Arithmetic> of_others = {};
  /// Known tensor cores multiply such factors so, and lose bits that FP32 has.
  std::vector<Arithmetic> possible = {};
};

/// Tries all known adders, with and without promotion, on the
/// elements of each product whose rounding hangs on the order of sums. Products
/// with the same kinds of factors vote for an arithmetic. It must predict at
/// least three elements more than exact sums and than ascending FP32 chains,
/// and nearly all that some order of FP32 sums explains.
///
/// Nothing is sought for products whose recipe declares an accumulator.
/// A product has the elected arithmetic, or another one, if that predicts three
/// quarters of its elements: a sick processor may spoil some.
/// Cost     at most some 2^29 multiplications a product.
/// `done` is called after each product, from several threads.
std::vector<SumsOfProduct> FindSums(std::span<const Product> products,
                                    Executor& executor,
                                    const std::function<void()>& done);

/// Returns the ways to split the steps that predict most of such elements, if
/// they predict nearly all. The chains of parts are those of other products.
/// Cost     at most some 2^32 multiplications.
std::vector<Arithmetic> FindSplits(const Product& product,
                                   const Arithmetic& of_others);

}  // namespace isoloss::operations
