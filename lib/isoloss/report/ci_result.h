// What a CI system is told of a result, whatever its format (docs/ci.md).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace isoloss::report {

/// In the order in which one overrules another.
enum class CiStatus {
  kSkipped,  ///< not judged: no evidence, not needed, or not run here
  kPass,
  kNoticed,       ///< found something that nothing rests on
  kInconclusive,  ///< not shown either way: never green
  kFailure,
  kError,  ///< invalid input, or no result at all
};

/// "skipped", "pass", "noticed", "inconclusive", "failure" or "error".
std::string_view CiStatusName(CiStatus status);

/// Whether a job that has it must not be green.
bool IsRed(CiStatus status);

struct CiNumber {
  std::string name;  ///< "statistic", "limit", "lower", "upper", "coverage"
  double value = 0;  ///< any, NaN too
  std::string unit;  ///< may be empty
};

/// One check.
struct CiCase {
  std::string group;    ///< "L5", "exact"
  std::string name;     ///< for programs: "final_window"
  std::string title{};  ///< for people: "final loss"
  CiStatus status = CiStatus::kError;
  std::string statement{};  ///< what was measured or found
  std::vector<CiNumber> numbers{};
  std::string evidence{};
  std::vector<std::string> findings{};
  std::string next{};  ///< what to do; may be empty
};

/// What one verdict consists of: a candidate arm, or a folder of goldens.
struct CiSuite {
  std::string name;  ///< of which no two are equal in a report
  std::string file;  ///< that it is about, as the repository names it
  CiStatus status = CiStatus::kError;
  std::string outcome;  ///< "PASS", ...
  int exit_code = 0;    ///< of this verdict alone
  std::string headline;
  std::vector<std::string> why{};
  std::vector<std::string> seen{};   ///< what it could have seen
  std::vector<std::string> holds{};  ///< for what it holds
  std::vector<std::string> next{};
  std::vector<std::string> warnings{};
  std::vector<std::pair<std::string, std::string>> facts{};  ///< name, value
  std::vector<CiCase> cases{};
};

/// All that one run of a command found. Its text may be of any encoding and
/// hold anything: formats escape it.
struct CiReport {
  std::string command;  ///< "isoloss verify"
  int exit_code = 0;
  std::vector<CiSuite> suites;
};

/// A report whose suites, and whose cases of one group of a suite, have names
/// of their own: CI systems take equal names for one. A name that comes again
/// gets a number.
CiReport MakeCiReport(std::string command, int exit_code,
                      std::vector<CiSuite> suites);

/// Of a command that ended without a result: one suite with one error, whose
/// headline has the first line of `message`; the others follow as `why`.
CiReport CiErrorReport(std::string command, int exit_code, std::string kind,
                       const std::string& message);

/// The suite's outcome as a check.
CiCase VerdictCase(const CiSuite& suite);

/// The suite's red checks and what else it noticed, the severest first. A red
/// suite without a red check has its verdict as one.
std::vector<CiCase> CiFindings(const CiSuite& suite);

/// "0.0213 %". Six digits.
std::string CiNumberText(const CiNumber& number);

}  // namespace isoloss::report
