// Tells which linear modules a trainer quantised, whatever it was meant to do.
#pragma once

#include <array>
#include <iterator>
#include <vector>

#include "isoloss/operations/check.h"

namespace isoloss::operations {

/// Tells which operands of a product had the recipe's formats.
enum class QuantizedOperands {
  kUnknown,    ///< nothing tells
  kBoth,       ///< all that the recipe quantises
  kNeither,    ///< none
  kLeftOnly,   ///< x, or dy of dgrad and wgrad
  kRightOnly,  ///< the weight, or x of wgrad
  kOther,      ///< results fit none of these
};

/// Tells how that is known. A later one counts more than those before it.
enum class AuditEvidence {
  kDeclared,  ///< patterns alone: the product is not recorded
  kGrid,      ///< both operands lie on the recipe's grid already
  kCodes,     ///< the file holds codes of operands
  kResults,   ///< the results are those of such operands, and of no others
};

struct ProductAudit {
  /// The patterns say so; codes do not count.
  bool is_expected = false;
  QuantizedOperands found = QuantizedOperands::kUnknown;
  AuditEvidence evidence = AuditEvidence::kDeclared;

  /// Returns whether something tells, and it is not as expected.
  bool contradicts() const;
};

struct ModuleAudit {
  ModuleChoice choice;  ///< by patterns alone
  /// Products are in the order of kGemmRoles.
  std::array<ProductAudit, std::size(precision::kGemmRoles)> products = {};

  /// Returns whether any product has results, codes or values that tell.
  bool has_evidence() const;
};

/// Compares samples of the results of each linear module with products of
/// operands that are quantised by the recipe, and of those that are not. The
/// closest kind is found if the others are at least four times as far away, in
/// root mean square: quantisation moves results by percents, and rounding or
/// any order of sums by some thousandths at most. A module that no pattern
/// names is tried under the recipe's formats, too.
/// Errors   those of ModuleChoices; ConfigError for a recipe that quantises
///          nothing.
/// Cost     that of quantising each operand once.
std::vector<ModuleAudit> AuditModules(const std::vector<OperationFile>& files,
                                      const precision::Recipe& recipe,
                                      const CheckOptions& options);

}  // namespace isoloss::operations
