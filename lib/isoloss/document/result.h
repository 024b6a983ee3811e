// Describes a verdict, or another result that people and CI systems are told
// of. It becomes text on a screen, JUnit, Markdown and annotations
// (docs/ci.md).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "isoloss/document/chart.h"

namespace isoloss::document {

/// A later status takes precedence over an earlier one.
enum class Status {
  kSkipped,  ///< not judged: no evidence, not needed, or not run here
  kPass,
  kNoticed,       ///< found something that nothing rests on
  kInconclusive,  ///< not shown either way: never green
  kFailure,
  kError,  ///< invalid input, or no result at all
};

/// Returns "skipped", "pass", "noticed", "inconclusive", "failure" or "error".
std::string_view StatusName(Status status);

/// Returns whether a job with this status must not be green.
bool IsRed(Status status);

struct Figure {
  std::string name;  ///< "statistic", "limit", "lower", "upper", "coverage"
  double value = 0;  ///< any, NaN too
  std::string unit;  ///< may be empty
};

/// A check of this name stands for a group that has no check.
inline constexpr std::string_view kGroupCheck = "level";

struct Check {
  std::string group;          ///< "L5", "exact"
  std::string group_title{};  ///< for people: "end of training"
  std::string name;           ///< for programs: "final_window"
  std::string title{};        ///< for people: "final loss"
  Status status = Status::kError;
  std::string outcome{};    ///< "PASS", ...; may be empty
  std::string statement{};  ///< what was measured or found
  std::vector<Figure> numbers{};
  std::string evidence{};
  std::vector<std::string> findings{};
  std::string next{};  ///< what to do; may be empty
  bool gates = true;   ///< whether the result depends on it
  /// The check explains what other checks found, so that people read it first.
  bool explains = false;
};

/// A result is one verdict: on a candidate arm, or on a folder of goldens.
struct Result {
  std::string name;  ///< of which no two are equal in a report
  std::string file;  ///< that it is about, as the repository names it
  Status status = Status::kError;
  std::string outcome;  ///< "PASS", ...
  int exit_code = 0;    ///< of this verdict alone
  /// The headline says in whole sentences what the outcome means.
  std::string headline;
  std::string subject{};     ///< "mxfp8 against bf16"
  std::string decided_by{};  ///< in one line: "9 checks pass; no evidence: L2"
  /// Everything that was compared is equal. After another such result there is
  /// little to say.
  bool is_equal = false;
  // Sentences end with a full stop. They hold names of users and files as logs
  // have them; formats escape these names.
  /// The reasons of a PASS say what was judged, group by group. Any other
  /// outcome has a sentence for each check that decided, with its limit.
  std::vector<std::string> reasons{};
  /// These sentences say the smallest difference that would have been seen and
  /// how surely, what control and null arms came to, and which checks had no
  /// evidence.
  std::vector<std::string> could_have_seen{};
  /// A PASS or FAIL holds for this, and for nothing else.
  std::vector<std::string> holds_for{};
  /// Each line says what to do. It has no full stop, as commands end it.
  std::vector<std::string> next{};
  std::vector<std::string> warnings{};
  std::vector<std::pair<std::string, std::string>> facts{};  ///< name, value
  std::vector<Check> checks{};
  std::optional<Chart> picture{};
};

/// All that one run of a command found. Its text may be of any encoding and
/// hold anything: formats escape it.
struct Report {
  std::string command;  ///< "isoloss verify"
  int exit_code = 0;
  std::vector<Result> results;
};

/// Gives results, and checks of one group of a result, names of their own, as
/// CI systems take equal names for one. A name that comes again gets a number.
Report MakeReport(std::string command, int exit_code,
                  std::vector<Result> results);

/// Reports a command that ended without a result: one result is an error, whose
/// headline has the first line of `message`; further lines are its reasons.
Report ErrorReport(std::string command, int exit_code, std::string kind,
                   const std::string& message);

/// Returns "FAIL: mxfp8 trains worse than bf16 …".
std::string Summary(const Result& result);

/// Returns the outcome as a check.
Check VerdictCheck(const Result& result);

/// Returns the red and the noticed checks, the severest first. A red result
/// without a red check has its verdict as one.
std::vector<Check> FindingsOf(const Result& result);

/// Returns the number with six digits, and its unit: "0.0213 %".
std::string FigureText(const Figure& number);

}  // namespace isoloss::document
