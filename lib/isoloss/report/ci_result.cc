#include "isoloss/report/ci_result.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "isoloss/base/printable.h"

namespace isoloss::report {
namespace {

/// `name`, or the first of "name (2)", "name (3)", … that looks like none of
/// `taken`.
std::string Untaken(const std::string& name, std::set<std::string>& taken) {
  std::string own = name;
  for (size_t n = 2; !taken.insert(Printable(own)).second; ++n) {
    own = fmt::format("{} ({})", name, n);
  }
  return own;
}

}  // namespace

std::string_view CiStatusName(CiStatus status) {
  switch (status) {
    case CiStatus::kSkipped:
      return "skipped";
    case CiStatus::kPass:
      return "pass";
    case CiStatus::kNoticed:
      return "noticed";
    case CiStatus::kInconclusive:
      return "inconclusive";
    case CiStatus::kFailure:
      return "failure";
    case CiStatus::kError:
      break;
  }
  return "error";
}

bool IsRed(CiStatus status) { return status >= CiStatus::kInconclusive; }

CiReport MakeCiReport(std::string command, int exit_code,
                      std::vector<CiSuite> suites) {
  std::set<std::string> names;
  for (CiSuite& suite : suites) {
    suite.name = Untaken(suite.name, names);
    std::map<std::string, std::set<std::string>> cases;
    for (CiCase& one : suite.cases) {
      one.name = Untaken(one.name, cases[Printable(one.group)]);
    }
  }
  return {std::move(command), exit_code, std::move(suites)};
}

CiReport CiErrorReport(std::string command, int exit_code, std::string kind,
                       const std::string& message) {
  const size_t line_end = std::min(message.find('\n'), message.size());
  CiSuite suite{.name = command,
                .file = "",
                .status = CiStatus::kError,
                .outcome = "ERROR",
                .exit_code = exit_code,
                .headline = fmt::format("ERROR: {} has no verdict: {}", command,
                                        message.substr(0, line_end)),
                .facts = {{"kind of error", std::move(kind)}}};
  std::istringstream rest(message.substr(line_end));
  for (std::string line; std::getline(rest, line);) {
    if (!line.empty()) suite.why.push_back(line);
  }
  return {std::move(command), exit_code, {std::move(suite)}};
}

CiCase VerdictCase(const CiSuite& suite) {
  CiCase verdict{.group = "result",
                 .name = "verdict",
                 .title = "verdict",
                 .status = suite.status,
                 .statement = suite.headline,
                 .findings = suite.why};
  for (const std::string& next : suite.next) {
    verdict.next += (verdict.next.empty() ? "" : "; ") + next;
  }
  return verdict;
}

std::vector<CiCase> CiFindings(const CiSuite& suite) {
  std::vector<CiCase> findings;
  std::ranges::copy_if(
      suite.cases, std::back_inserter(findings),
      [](const CiCase& one) { return one.status >= CiStatus::kNoticed; });
  std::ranges::stable_sort(findings, std::greater(), &CiCase::status);
  const bool explained = !findings.empty() && IsRed(findings.front().status);
  if (IsRed(suite.status) && !explained) {
    findings.insert(findings.begin(), VerdictCase(suite));
  }
  return findings;
}

std::string CiNumberText(const CiNumber& number) {
  return fmt::format("{:.6g}{}{}", number.value, number.unit.empty() ? "" : " ",
                     number.unit);
}

}  // namespace isoloss::report
