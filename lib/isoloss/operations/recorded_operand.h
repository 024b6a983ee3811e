// Takes what a file tells of an operand: its codes, and the state that its
// quantisation depends on.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "isoloss/operations/check.h"
#include "isoloss/operations/product.h"

namespace isoloss::operations {

/// An operand has one side in each group of a product.
struct RecordedOperand {
  const OperationCase& given;
  const char* name;    ///< "fprop_x"
  const char* tensor;  ///< "x"
  std::vector<Side*> sides;

  const Codes* codes() const;
};

/// Prepares sides for a quantisation that rounds at random, looks back to
/// earlier steps or has random signs. Returns what is missing, as the end of a
/// sentence; "" if nothing is.
/// Errors   FormatError for a history or signs that no trainer can have.
std::string TakeState(const RecordedOperand& operand);

/// Lets elements be rounded by the scales of the file, whose own rule is not
/// known. Returns false if they do not fit.
bool TakeScales(const RecordedOperand& operand);

/// Fixes the sides' codes and scales to those of the file. Returns false if it
/// has none that fit.
bool TakeCodes(const RecordedOperand& operand);

}  // namespace isoloss::operations
