// Prints the result of a command with --json: one object on standard output
// even if the command fails. All other messages go to standard error.
#pragma once

#include <string>

#include "arguments.h"
#include "isoloss/document/json.h"
#include "isoloss/system/exit_code.h"

namespace isoloss::cli {

using document::Json;

using system::ExitCode;

/// Declares --json. `what` says what the object holds.
Option DeclareJson(CLI::App& app, bool& json, const std::string& what);

/// Returns whether --json is among the words, since an error may come before
/// they are parsed.
bool AsksForJson(int argc, char** argv);

/// Prints the object of this process. Call it once.
void PrintJson(const Json& object);
/// Prints `text`, which holds one object, as PrintJson does.
void PrintJsonText(const std::string& text);

/// Prints {"error": {"kind", "message"}, "exit_code"} for a command that ends
/// without an object. Prints nothing if an object has been printed.
void PrintJsonError(const std::string& kind, const std::string& message,
                    ExitCode code);

}  // namespace isoloss::cli
