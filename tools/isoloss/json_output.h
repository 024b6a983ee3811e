// What a command prints with --json: one object on standard output, whatever
// happens; all else that it has to say goes to standard error.
#pragma once

#include <string>

#include "arguments.h"
#include "isoloss/campaign/exit_code.h"
#include "isoloss/document/json.h"

namespace isoloss::cli {

using document::Json;

using campaign::ExitCode;

/// Declares --json. `what` says what the object holds.
Option DeclareJson(CLI::App& app, bool& json, const std::string& what);

/// Is it among the arguments? Asked of them, since an error may come before
/// they are parsed.
bool AsksForJson(int argc, char** argv);

/// The object of this process; called once.
void PrintJson(const Json& object);
/// As PrintJson, of text that holds one object.
void PrintJsonText(const std::string& text);

/// Of a command that ends without one: {"error": {"kind", "message"},
/// "exit_code"}. Nothing if an object has been printed.
void PrintJsonError(const std::string& kind, const std::string& message,
                    ExitCode code);

}  // namespace isoloss::cli
