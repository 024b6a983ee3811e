// A result in the formats of GitLab's merge requests; JUnit is another
// (report/junit.h).
#pragma once

#include <string>
#include <string_view>

#include "isoloss/report/ci_result.h"

namespace isoloss::report {

/// How the name of each check of ours begins in a code-quality report.
inline constexpr std::string_view kCodeQualityPrefix = "isoloss ";
/// The first line of every metrics report of ours.
inline constexpr std::string_view kMetricsFirstLine =
    "# TYPE isoloss_exit_code gauge\n";

/// Code-quality report: a JSON array of what is red or was noticed, the
/// severest first of each suite. error is a blocker, failure critical,
/// inconclusive major, noticed minor. The fingerprint is a digest of suite,
/// group and name, so that a merge request can tell what is new.
std::string RenderCodeQuality(const CiReport& report);

/// Metrics report in OpenMetrics text: the exit code, how many checks have
/// which status, and the numbers of each check.
/// Special  in names `#` is written as `_`: GitLab cuts lines there.
/// Source   the OpenMetrics specification, version 1.0.0.
std::string RenderMetrics(const CiReport& report);

}  // namespace isoloss::report
