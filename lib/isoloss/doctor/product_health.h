// Lets a device multiply at full load, and compares every element with the bits
// that the host knows.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "isoloss/base/executor.h"
#include "isoloss/doctor/known_products.h"

namespace isoloss::doctor {

struct WrongElement {
  int64_t product;  ///< counted from 1
  size_t row;
  size_t col;
  uint32_t expected;  ///< bits
  uint32_t found;
};

/// Holds what was found in products of one kind.
struct ProductResult {
  std::string kind;
  ProductShape shape;
  int64_t products = 0;
  int64_t elements = 0;
  int64_t wrong = 0;
  int64_t wrong_products = 0;
  /// The device's digests of so many products were wrong, but no element was.
  int64_t wrong_digests = 0;
  double seconds = 0;   ///< of multiplying and comparing
  uint64_t digest = 0;  ///< of the host's result, as KnownProduct::digest
  std::vector<WrongElement> first = {};  ///< a few
  std::string pattern = {};              ///< sentences on the wrong elements
  std::string not_judged = {};  ///< the reason for which there is no product

  bool is_healthy() const { return wrong == 0 && wrong_digests == 0; }
  double FlopPerSecond() const;
};

struct ProductHealthOptions {
  double seconds = 60;  ///< at least one product of each kind is computed
  ProductShape shape = {4096, 4096, 4096};
  std::span<const ProductKind> kinds = AllProductKinds();
  /// If set, it is called after each turn of a kind.
  std::function<void(const ProductResult&)> progress = {};
};

/// Kinds take turns, with operands arranged anew. A kind whose accumulator the
/// device refuses is not judged.
/// Errors   DeviceError if the device fails; ConfigError if it has no room.
std::vector<ProductResult> ExamineProducts(Executor& device,
                                           const ProductHealthOptions& options);

}  // namespace isoloss::doctor
