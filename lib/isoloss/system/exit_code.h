// Defines the program's exit codes.
#pragma once

#include <algorithm>
#include <iterator>

#include "isoloss/document/result.h"

namespace isoloss::system {

enum class ExitCode : int {
  kPass = 0,
  kFail = 1,
  kUsage = 2,
  kInvalid = 3,  ///< invalid or incomparable input, or a file operation failed
  kInconclusive = 4,
  kInternal = 5,
  kInterrupted = 130,  ///< SIGINT, SIGTERM or SIGHUP; finished runs are kept
};

struct ExitCodeMeaning {
  int code;
  const char* meaning;
};
/// Help and manual pages describe the exit codes in these words.
inline constexpr ExitCodeMeaning kExitCodeMeanings[] = {
    {0, "pass"},
    {1, "fail"},
    {2, "usage"},
    {3, "invalid or incomparable input"},
    {4, "inconclusive"},
    {5, "internal error"},
    {130, "interrupted"},
    {75, "a job of several processes lost one: start it again"},
};

/// Returns "PASS", "FAIL", "INCONCLUSIVE" or, for all other codes, "INVALID".
const char* OutcomeName(ExitCode code);
document::Status StatusOf(ExitCode code);

/// Returns the severer one, in the order pass, inconclusive, fail, invalid,
/// interrupted.
inline ExitCode Worse(ExitCode a, ExitCode b) {
  constexpr ExitCode kBySeverity[] = {ExitCode::kPass, ExitCode::kInconclusive,
                                      ExitCode::kFail, ExitCode::kInvalid,
                                      ExitCode::kInterrupted};
  const auto rank = [&](ExitCode code) {
    return std::find(std::begin(kBySeverity), std::end(kBySeverity), code) -
           std::begin(kBySeverity);
  };
  return rank(a) >= rank(b) ? a : b;
}

}  // namespace isoloss::system
