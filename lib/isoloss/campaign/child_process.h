// Another program, or this one again, as a process of its own.
#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace isoloss::campaign {

struct ChildResult {
  int exit_code = 0;   ///< 128 + the signal that ended it, if one did
  std::string errors;  ///< what it wrote to standard error, the first MiB
  bool ended = true;   ///< false: it was killed, by `limit` or `stop`
};

/// Variables that a child has in place of this process' own; empty: it has none
/// of this name.
using EnvironmentChanges = std::map<std::string, std::optional<std::string>>;

/// Where a child works, and what becomes of its standard output.
struct ChildPlace {
  std::filesystem::path folder = {};  ///< empty: that of this process
  std::filesystem::path output = {};  ///< appended to; empty: nowhere
  bool output_to_errors = false;      ///< ChildResult::errors has both
};

/// This program's file.
std::filesystem::path ThisProgram();

/// The file that a shell would start as `name`; empty if there is none.
std::filesystem::path FindProgram(const std::string& name);

/// Runs `command` (program, then arguments) to its end, without standard input.
/// It and the processes of its group are killed after `limit`, or when `stop`
/// is set. Errors   IoError if it can't be started.
ChildResult RunChild(const std::vector<std::string>& command,
                     const EnvironmentChanges& environment,
                     std::chrono::seconds limit, const std::atomic<bool>& stop,
                     const ChildPlace& place = {});

/// What `command` writes to standard output and error, the first MiB of it;
/// empty if it can't be started, fails, or takes longer than a few seconds.
std::string OutputOf(const std::vector<std::string>& command);

}  // namespace isoloss::campaign
