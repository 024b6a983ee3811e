// Starts another program, or this one again, as a process of its own.
#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace isoloss::system {

struct ChildResult {
  int exit_code = 0;   ///< 128 + the signal that ended it, if one did
  std::string errors;  ///< what it wrote to standard error, the first MiB
  bool ended = true;   ///< false: it was killed, by `limit` or `stop`
};

/// Gives variables of a child other values than this process has. If a value is
/// empty, the child does not have the variable.
using EnvironmentChanges = std::map<std::string, std::optional<std::string>>;

/// Says where a child works, and where its standard output goes.
struct ChildPlace {
  std::filesystem::path folder = {};  ///< empty: that of this process
  std::filesystem::path output = {};  ///< appended to; empty: nowhere
  bool output_to_errors = false;      ///< ChildResult::errors has both
};

/// Returns this program's file.
std::filesystem::path ThisProgram();

/// Returns the file that a shell would start as `name`; empty if there is none.
std::filesystem::path FindProgram(const std::string& name);

/// Runs `command` (program, then arguments) to its end, without standard input.
/// After `limit`, or when `stop` is set, it and the processes of its group are
/// killed.
/// Errors   IoError if it can't be started.
ChildResult RunChild(const std::vector<std::string>& command,
                     const EnvironmentChanges& environment,
                     std::chrono::seconds limit, const std::atomic<bool>& stop,
                     const ChildPlace& place = {});

/// Returns what `command` writes to standard output and error, the first MiB of
/// it. Returns "" if it can't be started, fails, or takes longer than a few
/// seconds.
std::string OutputOf(const std::vector<std::string>& command);

}  // namespace isoloss::system
