#include "json_output.h"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string_view>

#include "isoloss/base/error.h"

namespace isoloss::cli {
namespace {

bool printed = false;

}  // namespace

Option DeclareJson(CLI::App& app, bool& json, const std::string& what) {
  return AddFlag(
      app, "--json", json,
      fmt::format("Print one JSON object, {}, in place of text; of an "
                  "error its kind and message",
                  what));
}

bool AsksForJson(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--") return false;  // words of another program follow
    if (argument == "--json") return true;
  }
  return false;
}

void PrintJson(const Json& object) {
  // Text of files may be in any encoding; JSON is UTF-8.
  PrintJsonText(object.dump(2, ' ', false, Json::error_handler_t::replace));
}

void PrintJsonText(const std::string& text) {
  ISOLOSS_ASSERT(!printed);
  printed = true;
  fmt::print("{}{}", text, text.ends_with('\n') ? "" : "\n");
}

void PrintJsonError(const std::string& kind, const std::string& message,
                    ExitCode code) {
  if (printed) return;
  PrintJson({{"error", {{"kind", kind}, {"message", message}}},
             {"exit_code", static_cast<int>(code)}});
}

}  // namespace isoloss::cli
