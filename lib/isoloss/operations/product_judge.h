// Judges the recorded result of one product.
#pragma once

#include <string>

#include "isoloss/operations/arithmetic_search.h"
#include "isoloss/operations/catalogue.h"
#include "isoloss/operations/check.h"
#include "isoloss/operations/explanation.h"
#include "isoloss/operations/product.h"

namespace isoloss::operations {

/// Compares the result with the sums that were found. Mistakes are tried under
/// these, or under those that the card may have. `kind` is that of the output's
/// name in probe logs.
Finding JudgeProduct(const OperationCase& given, const SideNames& names,
                     const char* kind, const Product& product,
                     const SumsOfProduct& sums);

/// Returns a sentence on mistakes of scales that are not tried; "": none.
std::string UntriedOf(const Side& side);

}  // namespace isoloss::operations
