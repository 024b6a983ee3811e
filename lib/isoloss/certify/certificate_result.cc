#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "isoloss/base/build_info.h"
#include "isoloss/certify/certificate.h"
#include "isoloss/certify/sentences.h"

namespace isoloss::certify {
namespace {

using document::Status;
using system::ExitCode;

/// Says why there is no certificate.
std::vector<std::string> ReasonsOf(const Certificate& certificate) {
  std::vector<std::string> reasons = certificate.invalid;
  for (const Difference& difference : certificate.differences) {
    reasons.push_back(fmt::format(
        "{} parts from {} at {}{}.", certificate.names[difference.run],
        certificate.names[0], WhereText(difference.where),
        difference.rank == kAllRanks
            ? ""
            : fmt::format(" (rank {})", difference.rank)));
    if (difference.operation) {
      reasons.push_back(fmt::format("Step {}: {}.", difference.operation->step,
                                    difference.operation->Text()));
    }
    for (const Cause& cause : difference.causes) reasons.push_back(cause.text);
  }
  std::ranges::copy(certificate.lacking, std::back_inserter(reasons));
  for (std::string& text : reasons) {
    text = Sentence(certificate, std::move(text));
  }
  return reasons;
}

std::vector<std::string> NextOf(const Certificate& certificate) {
  std::vector<std::string> next;
  for (const Difference& difference : certificate.differences) {
    if (!difference.next.empty() &&
        std::ranges::find(next, difference.next) == next.end()) {
      next.push_back(difference.next);
    }
  }
  return next;
}

/// Makes a test case of a run.
document::Check CheckOf(const Certificate& certificate, size_t place) {
  const auto found =
      std::ranges::find(certificate.differences, place, &Difference::run);
  const bool is_equal = found == certificate.differences.end();
  document::Check check = {
      .group = "bits",
      .name = certificate.names[place],
      .title = certificate.runs[place].name,
      .status = is_equal ? Status::kPass : Status::kFailure};
  check.outcome = is_equal ? "PASS" : "FAIL";
  check.statement = is_equal ? "all that was compared is equal"
                             : "parts at " + WhereText(found->where);
  if (is_equal) return check;
  for (const Cause& cause : found->causes) {
    check.findings.push_back(Sentence(certificate, cause.text));
  }
  check.next = found->next;
  return check;
}

}  // namespace

document::Result ResultOf(const Certificate& certificate) {
  const ExitCode code = certificate.Outcome();
  const BuildInfo build = GetBuildInfo();
  document::Result result{
      .name = certificate.gate == Gate::kRepeat ? "certify repeat"
                                                : "certify restart",
      .file = certificate.runs.empty() ? "" : certificate.runs.front().name,
      .status = system::StatusOf(code),
      .outcome = system::OutcomeName(code),
      .exit_code = static_cast<int>(code),
      .headline = HeadlineOf(certificate)};
  result.is_equal = code == ExitCode::kPass;
  result.reasons = code == ExitCode::kPass ? ComparedTexts(certificate.compared)
                                           : ReasonsOf(certificate);
  result.holds_for = {HoldsFor(certificate)};
  result.next = NextOf(certificate);
  result.warnings = certificate.remarks;
  for (const std::string& text : certificate.uncertified) {
    result.warnings.push_back(fmt::format("Not certified: {}.", text));
  }
  const bool is_valid = code != ExitCode::kInvalid;
  for (size_t i = 1; i < certificate.runs.size() && is_valid; ++i) {
    result.checks.push_back(CheckOf(certificate, i));
  }
  result.facts = {{"program", "isoloss " + build.version},
                  {"commit", build.commit}};
  return result;
}

}  // namespace isoloss::certify
