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

/// SQNR at the real width over the one that narrow models predict, with
/// intervals; a point on the diagonal is predicted exactly.
std::string RenderWidthsSvg(const compare::WidthTransfer& transfer);

}  // namespace isoloss::report
