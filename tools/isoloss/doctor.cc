// Implements `isoloss lab doctor`, which examines whether this machine, with
// this build, is fit for its work.

#include "isoloss/doctor/doctor.h"

#include <fmt/format.h>

#include <CLI/Version.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "arguments.h"
#include "commands.h"
#include "doctor_job.h"
#include "doctor_products.h"
#include "isoloss/base/printable.h"
#include "isoloss/document/text_layout.h"
#include "isoloss/report/terminal_width.h"
#include "json_output.h"
#include "value_names.h"

namespace isoloss::cli {
namespace {

using doctor::Health;
using doctor::HealthCheck;

struct DoctorArguments {
  std::string out;
  DoctorJobArguments job;
  DoctorProductsArguments products;
  bool json = false;
};

const char* ColorOf(Health health) {
  switch (health) {
    case Health::kOk:
      return document::kGreen;
    case Health::kNote:
      return document::kYellow;
    case Health::kProblem:
      return document::kRed;
  }
  return document::kDim;
}

/// Prints health, topic and text, and below them what to do.
void Print(const HealthCheck& check, const document::TextStyle& style) {
  constexpr size_t kHealth = 9;
  constexpr size_t kIndent = kHealth + 12;
  const auto lines = [&](const std::string& text) {
    return document::WrappedLines(Printable(text), kIndent, kIndent,
                                  text.size(), style);
  };
  const std::string health = doctor::HealthName(check.health);
  std::string first = document::Paint(health, ColorOf(check.health), style) +
                      fmt::format("{:{}}{:<{}}", "", kHealth - health.size(),
                                  check.topic, kIndent - kHealth);
  for (const std::string& line : lines(check.text)) {
    fmt::print("{}{}\n", first, line);
    first.clear();
  }
  if (check.remedy.empty()) return;
  first = std::string(kIndent, ' ');
  for (const std::string& line : lines(check.remedy)) {
    fmt::print("{}{}\n", first, line);
    first.clear();
  }
}

/// Returns a text such as "9 ok, 2 notes, 1 problem".
std::string CountsText(const doctor::Examination& found) {
  const size_t notes = found.Count(Health::kNote);
  const size_t problems = found.Count(Health::kProblem);
  return fmt::format("{} ok, {} note{}, {} problem{}", found.Count(Health::kOk),
                     notes, notes == 1 ? "" : "s", problems,
                     problems == 1 ? "" : "s");
}

void PrintAsJson(const doctor::Examination& found, ExitCode code) {
  Json checks = Json::array();
  for (const HealthCheck& check : found.checks) {
    Json values = Json::object();
    for (const auto& [name, value] : check.values) {
      values[Printable(name)] = Printable(value);
    }
    checks.push_back({{"topic", check.topic},
                      {"health", doctor::HealthName(check.health)},
                      {"text", Printable(check.text)},
                      {"remedy", check.remedy},
                      {"values", std::move(values)}});
  }
  PrintJson({{"checks", std::move(checks)},
             {"seconds", found.seconds},
             {"exit_code", static_cast<int>(code)}});
}

ExitCode Doctor(const DoctorArguments& arguments) {
  if (!arguments.job.source.file.empty()) {
    return ExamineDoctorJob(arguments.job, arguments.out, arguments.json);
  }
  const bool of_devices = arguments.products.seconds > 0;
  const doctor::Examination found =
      of_devices
          ? ExamineDevices(arguments.products)
          : doctor::Examine(
                {.folder = arguments.out.empty() ? "runs" : arguments.out,
                 .more_libraries = {{"CLI11", CLI11_VERSION}}});
  const bool fit = found.Count(Health::kProblem) == 0;
  const ExitCode code = fit ? ExitCode::kPass : ExitCode::kFail;
  if (arguments.json) {
    PrintAsJson(found, code);
    return code;
  }
  const document::TextStyle style = report::TerminalStyle(/*ascii=*/false);
  for (const HealthCheck& check : found.checks) Print(check, style);
  const std::string result = fmt::format(
      "{} {}: {}, in {:.1f} seconds (exit code {})",
      of_devices ? "Multiplication, and nothing else," : "This machine",
      fit ? "is fit" : "is not fit", CountsText(found), found.seconds,
      static_cast<int>(code));
  fmt::print("\n{}\n", document::Wrap(result, 0, 0, style));
  return code;
}

Action DeclareDoctor(CLI::App& app) {
  auto arguments = std::make_shared<DoctorArguments>();
  AddOption(app, "--out", arguments->out,
            "Folder that results would go to (default: runs, and with --job "
            "runs/<experiment name>)")
      .TypeName(kFolder);
  DeclareDoctorJob(app, arguments->job);
  DeclareDoctorProducts(app, arguments->products);
  DeclareJson(app, arguments->json, "of all checks");
  Describe(app,
           "Say whether this machine is fit: kernels, libraries, MPI, Slurm, "
           "processors, memory, disk, terminal, and a test of about two "
           "seconds that short trainings have the known bits. The exit code is "
           "1 if there is a problem, and 0 whatever is worth a note. Leaves no "
           "file. With --job, started by the launcher of a job, each process "
           "examines its own machine and its links to the others within about "
           "ten seconds, and process 0 prints one table: arithmetic, memory, "
           "disk, clock, links; each sick node is named on standard error, "
           "and then the exit code of every process is 1. With --gpu, each "
           "GPU multiplies at full load, and each wrong element is located");
  return [arguments] { return Doctor(*arguments); };
}

}  // namespace

extern constinit const Command kCommand_doctor = {
    "doctor", "Say whether this machine is fit, with a self-test",
    "isoloss lab doctor --json", &DeclareDoctor};

}  // namespace isoloss::cli
