// Another program, or this one again, as a process of its own.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace isoloss::cli {

struct ChildResult {
  int exit_code = 0;   ///< 128 + the signal that ended it, if one did
  std::string errors;  ///< what it wrote to standard error
};

/// This program's file.
std::filesystem::path ThisProgram();

/// The file that a shell would start as `name`; empty if there is none.
std::filesystem::path FindProgram(const std::string& name);

/// Runs `command` (program, then arguments) to its end, without standard input
/// and output. `environment` is set besides that of this process.
/// Errors   IoError if it can't be started.
ChildResult RunChild(const std::vector<std::string>& command,
                     const std::map<std::string, std::string>& environment);

}  // namespace isoloss::cli
