#include "isoloss/report/gitlab.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "isoloss/base/digest.h"
#include "isoloss/base/printable.h"
#include "isoloss/document/json.h"
#include "isoloss/document/text_layout.h"

namespace isoloss::report {
namespace {

using document::Json;
using document::Shortened;

constexpr size_t kMostDescriptionBytes = 4000;

const char* Severity(CiStatus status) {
  switch (status) {
    case CiStatus::kError:
      return "blocker";
    case CiStatus::kFailure:
      return "critical";
    case CiStatus::kInconclusive:
      return "major";
    case CiStatus::kNoticed:
      return "minor";
    case CiStatus::kPass:
    case CiStatus::kSkipped:
      break;
  }
  return "info";
}

std::string Description(const CiSuite& suite, const CiCase& one) {
  std::string text =
      fmt::format("{}: {}: {}", suite.name,
                  one.title.empty() ? one.name : one.title, one.statement);
  if (!one.next.empty()) text += fmt::format(" Next: {}", one.next);
  return Printable(Shortened(std::move(text), kMostDescriptionBytes));
}

/// One label with its value.
std::string Label(std::string_view name, std::string_view value) {
  std::string text = fmt::format("{}=\"", name);
  for (const char c : Printable(value)) {
    if (c == '\\' || c == '"') text += '\\';
    text += c == '#' ? '_' : c;
  }
  return text + '"';
}

std::string MetricNumber(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{:.9g}", value);
}

/// The names of all numbers, in the order in which they come first.
std::vector<std::string> NumberNames(const CiReport& report) {
  std::vector<std::string> names;
  for (const CiSuite& suite : report.suites) {
    for (const CiCase& one : suite.cases) {
      for (const CiNumber& number : one.numbers) {
        if (std::ranges::count(names, number.name) == 0) {
          names.push_back(number.name);
        }
      }
    }
  }
  return names;
}

/// One family of metrics: this number of all checks that have it.
std::string NumberMetrics(const CiReport& report, const std::string& name) {
  std::string text = fmt::format("# TYPE isoloss_check_{} gauge\n", name);
  for (const CiSuite& suite : report.suites) {
    for (const CiCase& one : suite.cases) {
      for (const CiNumber& number : one.numbers) {
        if (number.name != name) continue;
        text +=
            fmt::format("isoloss_check_{}{{{},{},{},{}}} {}\n", name,
                        Label("suite", suite.name), Label("group", one.group),
                        Label("check", one.name), Label("unit", number.unit),
                        MetricNumber(number.value));
      }
    }
  }
  return text;
}

}  // namespace

std::string RenderCodeQuality(const CiReport& report) {
  Json issues = Json::array();
  for (const CiSuite& suite : report.suites) {
    for (const CiCase& one : CiFindings(suite)) {
      const std::string identity =
          fmt::format("{}\n{}\n{}", suite.name, one.group, one.name);
      issues.push_back(
          {{"description", Description(suite, one)},
           {"check_name", Printable(fmt::format("{}{} {}", kCodeQualityPrefix,
                                                one.group, one.name))},
           {"fingerprint", DigestToHex(DigestOf(identity))},
           {"severity", Severity(one.status)},
           {"location",
            {{"path", suite.file.empty() ? "." : Printable(suite.file)},
             {"lines", {{"begin", 1}}}}}});
    }
  }
  return issues.dump(2) + "\n";
}

std::string RenderMetrics(const CiReport& report) {
  std::string text = fmt::format("{}isoloss_exit_code {}\n", kMetricsFirstLine,
                                 report.exit_code);
  text += "# TYPE isoloss_checks gauge\n";
  for (const CiSuite& suite : report.suites) {
    for (const CiStatus status : kCiStatuses) {
      text += fmt::format(
          "isoloss_checks{{{},{}}} {}\n", Label("suite", suite.name),
          Label("status", CiStatusName(status)),
          std::ranges::count(suite.cases, status, &CiCase::status));
    }
  }
  for (const std::string& name : NumberNames(report)) {
    text += NumberMetrics(report, name);
  }
  return text + "# EOF\n";
}

}  // namespace isoloss::report
