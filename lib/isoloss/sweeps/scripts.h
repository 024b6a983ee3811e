// Writes the text of shell scripts.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "isoloss/sweeps/sweep.h"

namespace isoloss::sweeps {

/// Returns one word of a shell, whatever characters `word` holds.
std::string Quoted(const std::string& word);
std::string Quoted(std::span<const std::string> words);

/// Returns the lines with which each script begins: where it works, and what
/// the user asked for. `what` is a comment.
std::string Beginning(const Sweep& sweep, const std::string& what,
                      const std::string& directives = {});

/// Errors   ConfigError if `path` has characters beyond plain ones, which mean
///          something else in `place`.
void RequirePlainPath(const std::string& path, const char* place);

/// Returns the program with these arguments.
std::vector<std::string> Command(const Sweep& sweep,
                                 const std::vector<std::string>& arguments);

/// Returns the scripts of the engines `local` and `make`. StartCommand returns
/// the command for them.
std::vector<Script> ScriptsOfOneMachine(const Sweep& sweep);
std::vector<std::string> StartCommand(const Sweep& sweep);

}  // namespace isoloss::sweeps
