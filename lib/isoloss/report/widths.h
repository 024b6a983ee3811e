// Whether errors of narrow models foretell those at real width, for people and
// for programs.
#pragma once

#include <string>

#include "isoloss/compare/width_transfer.h"

namespace isoloss::report {

/// A table, the operands whose prediction fails first.
std::string RenderWidths(const compare::WidthTransfer& transfer);

/// One JSON object.
std::string RenderWidthsJson(const compare::WidthTransfer& transfer);

/// A row for each operand: SQNR at the real width, and the interval that narrow
/// models predict.
std::string RenderWidthsSvg(const compare::WidthTransfer& transfer);

}  // namespace isoloss::report
