// A result as JUnit XML, which most CI systems read.
#pragma once

#include <string>
#include <string_view>

#include "isoloss/document/result.h"

namespace isoloss::document {

/// Every JUnit file of isoloss begins with this line.
inline constexpr std::string_view kJunitFirstLine =
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?> <!-- isoloss -->\n";

/// Returns a test suite for each result, with a test case for each check and
/// for the verdict. A file is red exactly if the exit code is not 0:
///
///   kError         error
///   kFailure       failure
///   kInconclusive  failure of type "inconclusive": "skipped" would look green
///   kNoticed       skipped, as nothing rests on it
///   kSkipped       skipped
///
/// The grammar knows properties of suites only. The numbers of a check
/// therefore stand there as "L5 final_window statistic", and in the check's
/// text.
///
/// Special  control characters, bytes that are no UTF-8 and code points that
///          XML 1.0 does not have are shown as escapes (base/printable.h).
/// Source   junit-10.xsd of Jenkins' xUnit plugin.
std::string RenderJunit(const Report& report);

}  // namespace isoloss::document
