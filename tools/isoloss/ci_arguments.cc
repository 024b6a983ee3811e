#include "ci_arguments.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "isoloss/base/error.h"
#include "isoloss/base/printable.h"
#include "isoloss/base/random_token.h"
#include "isoloss/document/github.h"
#include "isoloss/transport/launch.h"

namespace isoloss::cli {
namespace {

constexpr const char* kJunit = "--junit";
constexpr const char* kMarkdown = "--markdown";
constexpr const char* kGithub = "--github";
constexpr const char* kSummaryVariable = "GITHUB_STEP_SUMMARY";

bool Speaks() { return transport::DetectLaunch().process == 0; }

/// Returns "" if GitHub Actions does not run the step.
std::string SummaryFile() {
  const char* file = std::getenv(kSummaryVariable);
  return file == nullptr ? "" : file;
}

/// GitHub's runner obeys no commands in the output until it reads this token.
/// If it is "", the runner obeys them.
std::string stop_token;

void StopCommands() {
  stop_token = RandomToken();
  fmt::print("{}", document::GithubStop(stop_token));
  std::fflush(stdout);
}

/// The runner must have read all earlier output before it reads annotations.
void PrintAnnotations(const document::Report& report) {
  std::fflush(stderr);
  if (!stop_token.empty()) fmt::print("{}", document::GithubResume(stop_token));
  stop_token.clear();
  fmt::print("{}", document::RenderGithubAnnotations(report));
  std::fflush(stdout);
}

/// Returns the value of `option` at argv[i], given as `--junit FILE` or
/// `--junit=FILE`; "" if argv[i] is another word.
std::string ValueAt(int argc, char** argv, int i, std::string_view option) {
  const std::string_view word = argv[i];
  if (word == option) {
    return i + 1 < argc && argv[i + 1][0] != '-' ? argv[i + 1] : "";
  }
  if (!word.starts_with(option)) return "";
  const std::string_view rest = word.substr(option.size());
  return rest.starts_with('=') ? std::string(rest.substr(1)) : "";
}

struct Named {
  verdicts::CiTargets targets;
  bool github = false;
};

Named NamedBy(int argc, char** argv) {
  Named named;
  for (int i = 1; i < argc; ++i) {
    const auto take = [&](const char* option, std::filesystem::path& target) {
      const std::string value = ValueAt(argc, argv, i, option);
      if (!value.empty()) target = value;
    };
    take(kJunit, named.targets.junit);
    take(kMarkdown, named.targets.markdown);
    if (std::string_view(argv[i]) == kGithub) {
      named.github = true;
      named.targets.summary = SummaryFile();
    }
  }
  return named;
}

/// Returns the words before the first option or file, such as "isoloss golden
/// check".
std::string CommandOf(int argc, char** argv) {
  std::string command = "isoloss";
  for (int i = 1; i < argc && i < 3; ++i) {
    const std::string_view word = argv[i];
    const bool is_name =
        word.find_first_not_of("abcdefghijklmnopqrstuvwxyz") == word.npos;
    if (!is_name || (i == 2 && std::string_view(argv[1]) != "golden")) break;
    command += fmt::format(" {}", word);
  }
  return command;
}

}  // namespace

void CiArguments::Declare(CLI::App& app, const std::string& command) {
  command_ = command;
  AddOption(app, kJunit, targets_.junit,
            "Write the verdict as JUnit XML to this file, a test case for each "
            "check");
  AddOption(app, kMarkdown, targets_.markdown,
            "Write it as Markdown to this file: a comment on a pull request");
  AddFlag(app, kGithub, github_,
          "In a step of GitHub Actions: append the Markdown to the step's "
          "summary, and print annotations")
      .Excludes("--json");
}

void CiArguments::Begin() {
  if (!Speaks()) {
    targets_ = {};
    github_ = false;
  }
  if (github_) {
    targets_.summary = SummaryFile();
    if (targets_.summary.empty()) {
      ThrowError(ErrorKind::kConfig,
                 "{}: {} is not set, but GitHub Actions sets it in each step, "
                 "to the file that takes the summary. Leave {} out elsewhere.",
                 kGithub, kSummaryVariable, kGithub);
    }
  }
  if (!Asked()) return;
  verdicts::BeginCiFiles(targets_, command());
  if (github_) StopCommands();
}

void CiArguments::Write(const document::Report& report) const {
  if (targets_.Any()) verdicts::WriteCiFiles(targets_, report);
}

void CiArguments::Annotate(const document::Report& report) const {
  if (github_) PrintAnnotations(report);
}

void ReportErrorToCi(int argc, char** argv, const std::string& kind,
                     const std::string& message, system::ExitCode code) {
  const Named named = NamedBy(argc, argv);
  if (!Speaks() || (!named.targets.Any() && !named.github)) return;
  const document::Report report = document::ErrorReport(
      CommandOf(argc, argv), static_cast<int>(code), kind, message);
  for (const std::string& fault :
       verdicts::WriteCiError(named.targets, report)) {
    // An error of the command line is `message` itself, which has been printed.
    if (fault == message) continue;
    fmt::print(stderr, "isoloss: {}\n", PrintableMessage(fault));
  }
  if (named.github) PrintAnnotations(report);
}

}  // namespace isoloss::cli
