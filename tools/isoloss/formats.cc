// Implements `isoloss lab formats`, which shows number formats and what they
// can hold.

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "arguments.h"
#include "commands.h"
#include "isoloss/formats/format.h"
#include "isoloss/report/format_text.h"
#include "isoloss/report/terminal_width.h"
#include "json_output.h"
#include "value_names.h"

namespace isoloss::cli {
namespace {

struct FormatsArguments {
  std::string name;
  bool ascii = false;
  bool json = false;
};

ExitCode Formats(const FormatsArguments& arguments) {
  const document::TextStyle style = report::TerminalStyle(arguments.ascii);
  if (!arguments.name.empty()) {
    const formats::Format& format = formats::FormatByName(arguments.name);
    if (arguments.json) {
      PrintJson(report::FormatJson(format));
    } else {
      fmt::print("{}", report::RenderFormat(format, style));
    }
    return ExitCode::kPass;
  }
  if (!arguments.json) {
    fmt::print("{}", report::RenderFormats(formats::AllFormats(), style));
    return ExitCode::kPass;
  }
  Json json{{"formats", Json::array()}};
  for (const formats::Format* format : formats::AllFormats()) {
    json["formats"].push_back(report::FormatJson(*format));
  }
  PrintJson(json);
  return ExitCode::kPass;
}

Action DeclareFormats(CLI::App& app) {
  auto arguments = std::make_shared<FormatsArguments>();
  AddOption(app, "name", arguments->name,
            "A number format; without it, all are listed")
      .TypeName(kFormatName);
  AddFlag(app, "--ascii", arguments->ascii, "Draw with 7-bit characters only");
  DeclareJson(app, arguments->json,
              "of the format, or without a name the list `formats`");
  return [arguments] { return Formats(*arguments); };
}

}  // namespace

extern constinit const Command kCommand_formats = {
    "formats", "Show number formats: ranges, errors, values",
    "isoloss lab formats e4m3", &DeclareFormats};

}  // namespace isoloss::cli
