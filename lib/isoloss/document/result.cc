#include "isoloss/document/result.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "isoloss/base/printable.h"

namespace isoloss::document {
namespace {

/// Returns `name`, or the first of "name (2)", "name (3)", … that looks like
/// none of `taken`.
std::string Untaken(const std::string& name, std::set<std::string>& taken) {
  std::string own = name;
  for (size_t n = 2; !taken.insert(Printable(own)).second; ++n) {
    own = fmt::format("{} ({})", name, n);
  }
  return own;
}

}  // namespace

std::string_view StatusName(Status status) {
  switch (status) {
    case Status::kSkipped:
      return "skipped";
    case Status::kPass:
      return "pass";
    case Status::kNoticed:
      return "noticed";
    case Status::kInconclusive:
      return "inconclusive";
    case Status::kFailure:
      return "failure";
    case Status::kError:
      break;
  }
  return "error";
}

bool IsRed(Status status) { return status >= Status::kInconclusive; }

Report MakeReport(std::string command, int exit_code,
                  std::vector<Result> results) {
  std::set<std::string> names;
  for (Result& result : results) {
    result.name = Untaken(result.name, names);
    std::map<std::string, std::set<std::string>> cases;
    for (Check& one : result.checks) {
      one.name = Untaken(one.name, cases[Printable(one.group)]);
    }
  }
  return {std::move(command), exit_code, std::move(results)};
}

Report ErrorReport(std::string command, int exit_code, std::string kind,
                   const std::string& message) {
  const size_t line_end = std::min(message.find('\n'), message.size());
  Result result{.name = command,
                .file = "",
                .status = Status::kError,
                .outcome = "ERROR",
                .exit_code = exit_code,
                .headline = fmt::format("{} has no verdict: {}", command,
                                        message.substr(0, line_end)),
                .facts = {{"kind of error", std::move(kind)}}};
  std::istringstream rest(message.substr(line_end));
  for (std::string line; std::getline(rest, line);) {
    if (!line.empty()) result.reasons.push_back(line);
  }
  return {std::move(command), exit_code, {std::move(result)}};
}

std::string Summary(const Result& result) {
  return fmt::format("{}: {}", result.outcome, result.headline);
}

Check VerdictCheck(const Result& result) {
  Check verdict{.group = "result",
                .name = "verdict",
                .title = "verdict",
                .status = result.status,
                .statement = Summary(result),
                .findings = result.reasons};
  for (const std::string& next : result.next) {
    verdict.next += (verdict.next.empty() ? "" : "; ") + next;
  }
  return verdict;
}

std::vector<Check> FindingsOf(const Result& result) {
  std::vector<Check> findings;
  std::ranges::copy_if(
      result.checks, std::back_inserter(findings),
      [](const Check& one) { return one.status >= Status::kNoticed; });
  std::ranges::stable_sort(findings, std::greater(), &Check::status);
  const bool explained = !findings.empty() && IsRed(findings.front().status);
  if (IsRed(result.status) && !explained) {
    findings.insert(findings.begin(), VerdictCheck(result));
  }
  return findings;
}

std::string FigureText(const Figure& number) {
  return fmt::format("{:.6g}{}{}", number.value, number.unit.empty() ? "" : " ",
                     number.unit);
}

}  // namespace isoloss::document
