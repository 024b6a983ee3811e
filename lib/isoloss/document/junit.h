// A result as JUnit XML, which most CI systems read.
#pragma once

#include <string>
#include <string_view>

#include "isoloss/document/result.h"

namespace isoloss::document {

/// The first line of every such file of ours.
inline constexpr std::string_view kJunitFirstLine =
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?> <!-- isoloss -->\n";

/// A test suite for each result, and a test case for each check and
/// for the verdict, so that a file is red exactly if the exit code is not 0:
///
///   kError         error
///   kFailure       failure
///   kInconclusive  failure of type "inconclusive": "skipped" would look green
///   kNoticed       skipped, as nothing rests on it
///   kSkipped       skipped
///
/// The grammar knows properties of suites only, so that numbers of a check
/// stand there as "L5 final_window statistic", and in its text.
///
/// Special  control characters, bytes that are no UTF-8 and code points that
///          XML 1.0 does not have are shown as escapes (base/printable.h).
/// Source   junit-10.xsd of Jenkins' xUnit plugin.
std::string RenderJunit(const Report& report);

}  // namespace isoloss::document
