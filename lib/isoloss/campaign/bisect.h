// Finds the commit that made a command fail, by git bisect in a work tree of
// its own.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/campaign/git.h"

namespace isoloss::campaign {

/// What a command says of a commit.
enum class BisectMark {
  kGood,
  kBad,
  kSkipped,  ///< it can't be told
};

/// "good", "bad", "skipped".
const char* BisectMarkName(BisectMark mark);

/// Exit code 0 is good and 1 is bad. Any other one below 128 says nothing of
/// the commit: 4 inconclusive, 3 invalid, 2 an option that it does not have,
/// 5 internal, 75 a lost process, 126 and 127 no program, 125 as git has it.
/// Empty for a signal, at which bisecting ends.
std::optional<BisectMark> MarkOf(int exit_code);

/// One commit that was tried.
struct BisectStep {
  Commit commit = {};
  BisectMark mark = BisectMark::kSkipped;
  bool built = true;  ///< false: the build failed, the command was not run
  bool ended = true;  ///< false: it took longer than the limit
  int exit_code = 0;  ///< of the command, or of the build if that failed
  double seconds = 0;
  /// The last line that it wrote; "" if none.
  std::string last_words = {};
};

struct BisectPlan {
  std::filesystem::path repository = ".";
  std::string good;
  std::string bad;
  std::string build;                 ///< for /bin/sh; "": none
  std::vector<std::string> command;  ///< program, then arguments
  bool first_parent = false;
  std::chrono::seconds limit{};  ///< of build and command, each
  /// Gets what each commit's build and command write, as COMMIT.txt; "": no
  /// file is kept. It must be there.
  std::filesystem::path output;
  std::function<void(const BisectStep&)> on_step = {};
  /// How many commits are left, in git's words.
  std::function<void(const std::string&)> on_progress = {};
};

struct BisectResult {
  bool interrupted = false;
  std::optional<Commit> first_bad;
  /// If skipped commits hide it: those among which it is, the oldest first.
  std::vector<Commit> candidates;
  std::vector<BisectStep> steps;
};

/// Tries the bad and the good commit first, then those that git bisect chooses,
/// in a new work tree in the system's folder for temporary files, which is
/// removed again. Files that git does not track stay in it from commit to
/// commit, so that builds are incremental.
/// Errors   ConfigError if a revision names no commit, good is not before bad,
///          or an end is not what it is said to be; IoError if git can't do
///          what is asked, or a signal ended a command.
BisectResult Bisect(const BisectPlan& plan);

}  // namespace isoloss::campaign
