// isoloss lab history: figures of one experiment over commits, and the commit
// that moved one.

#include "isoloss/campaign/history.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "arguments.h"
#include "commands.h"
#include "isoloss/base/atomic_file.h"
#include "isoloss/base/printable.h"
#include "isoloss/campaign/bisect.h"
#include "isoloss/campaign/output_file.h"
#include "isoloss/report/history.h"
#include "isoloss/report/terminal_width.h"
#include "json_output.h"
#include "value_names.h"

namespace isoloss::cli {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostLimit = 30LL * 24 * 3600;

struct RecordArguments {
  campaign::HistoryRecording recording;
  bool json = false;
};

ExitCode Record(const RecordArguments& arguments) {
  const campaign::HistoryRecording& recording = arguments.recording;
  const campaign::HistoryUpdate update = campaign::RecordHistory(recording);
  if (arguments.json) {
    PrintJson({{"file", recording.file.string()},
               {"added", update.added},
               {"replaced", update.replaced},
               {"known", update.known},
               {"commit", Printable(update.commit)}});
    return ExitCode::kPass;
  }
  fmt::print("{}: {} runs added, {} replaced, {} were there already\n",
             Printable(recording.file.string()), update.added, update.replaced,
             update.known);
  fmt::print("commit {}{}\n", Printable(update.commit),
             recording.commit.empty()
                 ? " of isoloss, which made the runs; --commit names one of "
                   "your own repository instead"
                 : "");
  return ExitCode::kPass;
}

Action DeclareRecord(CLI::App& app) {
  auto arguments = std::make_shared<RecordArguments>();
  campaign::HistoryRecording& recording = arguments->recording;
  AddOption(app, "logs", recording.logs,
            "Run logs of one commit, or folders of them; of a folder that "
            "`isoloss verify` wrote, the outcome of its verdict, too")
      .Required();
  AddOption(app, "--file", recording.file,
            "The history: a text file with one line for each run; it is made "
            "if need be")
      .Required()
      .TypeName(kAnyFile);
  AddOption(app, "--commit", recording.commit,
            "Commit that the figures are of, as git names it (default: the one "
            "that the logs name)");
  AddFlag(app, "--replace", recording.replace,
          "Replace what the file holds of this commit with other values");
  DeclareJson(app, arguments->json, "of how many runs were added");
  return [arguments] { return Record(*arguments); };
}

struct ShowHistoryArguments {
  campaign::HistoryView view;
  fs::path svg;
  bool ascii = false;
  bool json = false;
};

ExitCode ShowHistory(const ShowHistoryArguments& arguments) {
  const campaign::HistoryView& view = arguments.view;
  if (!arguments.svg.empty()) {
    campaign::CheckOutput(
        arguments.svg, {view.file}, "picture of isoloss",
        campaign::HasFirstLineOf(report::kHistorySvgFirstLine), "--svg");
  }
  const report::History history = campaign::ReadHistoryView(view);
  if (!arguments.svg.empty()) {
    WriteFileAtomically(arguments.svg, report::RenderHistorySvg(history));
  }
  if (arguments.json) {
    PrintJsonText(report::RenderHistoryJson(history));
    return ExitCode::kPass;
  }
  const bool details = !view.figures.empty() || !view.arms.empty();
  fmt::print("{}",
             report::RenderHistory(history, details,
                                   report::TerminalStyle(arguments.ascii)));
  return ExitCode::kPass;
}

Action DeclareHistoryShow(CLI::App& app) {
  auto arguments = std::make_shared<ShowHistoryArguments>();
  campaign::HistoryView& view = arguments->view;
  AddOption(app, "file", view.file, "The history")
      .Required()
      .TypeName(kAnyFile);
  AddOption(app, "--figure", view.figures,
            "Show this figure commit by commit, and as a chart: loss, "
            "held_out, grad_norm or difference_percent; repeatable")
      .Repeatable();
  AddOption(app, "--arm", view.arms,
            "Show this arm commit by commit, and as a chart; repeatable")
      .Repeatable();
  AddOption(app, "--tolerance", view.options.tolerance,
            "Changes within it are no move: in percent of the figure, or in "
            "percentage points of difference_percent (default: 0)")
      .NumberIn(0, 1e6);
  AddOption(app, "--alpha", view.options.alpha,
            "Chance that a commit which changed bits, but moved nothing, is "
            "named (default: 0.01)")
      .NumberIn(1e-9, 0.5);
  AddOption(app, "--svg", arguments->svg, "Draw it to this file, too")
      .TypeName(kAnyFile);
  AddFlag(app, "--ascii", arguments->ascii,
          "Draw charts with 7-bit characters");
  DeclareJson(app, arguments->json, "with every commit of every figure");
  Describe(app,
           "Show how figures went over commits, and name the commits at which "
           "one moved");
  return [arguments] { return ShowHistory(*arguments); };
}

struct BisectArguments {
  campaign::BisectPlan plan;
  int64_t limit = 24LL * 3600;
  bool json = false;
};

std::string Ending(const campaign::BisectStep& step) {
  const char* what = step.built ? "" : "build: ";
  if (!step.ended) return fmt::format("{}took too long", what);
  return fmt::format("{}exit code {}", what, step.exit_code);
}

/// A line of standard error. If nobody reads it, SIGPIPE ends the search.
void Tell(const std::string& line) {
  std::fputs((line + "\n").c_str(), stderr);
}

/// One line a commit.
void TellStep(const campaign::BisectStep& step) {
  Tell(fmt::format("{:<7}  {}  {}, {:.1f} s  {}",
                   campaign::BisectMarkName(step.mark), step.commit.Short(),
                   Ending(step), step.seconds, step.commit.subject));
  if (step.mark == campaign::BisectMark::kSkipped && !step.last_words.empty()) {
    Tell(fmt::format("         {}", step.last_words));
  }
}

Json CommitJson(const campaign::Commit& commit) {
  return {{"commit", commit.hash},
          {"date", commit.date},
          {"subject", commit.subject}};
}

Json BisectJson(const campaign::BisectResult& result) {
  Json json{{"first_bad", nullptr},
            {"candidates", Json::array()},
            {"tried", Json::array()}};
  if (result.first_bad) json["first_bad"] = CommitJson(*result.first_bad);
  for (const campaign::Commit& commit : result.candidates) {
    json["candidates"].push_back(CommitJson(commit));
  }
  for (const campaign::BisectStep& step : result.steps) {
    Json tried = CommitJson(step.commit);
    tried["mark"] = campaign::BisectMarkName(step.mark);
    tried["built"] = step.built;
    tried["exit_code"] = step.ended ? Json(step.exit_code) : Json(nullptr);
    tried["seconds"] = step.seconds;
    json["tried"].push_back(std::move(tried));
  }
  return json;
}

void PrintResult(const campaign::BisectResult& result) {
  if (result.first_bad) {
    fmt::print("first bad commit: {}\n  {}\n  {}\n", result.first_bad->hash,
               result.first_bad->subject, result.first_bad->date);
    return;
  }
  fmt::print(
      "inconclusive: skipped commits hide the first bad one. It is one of "
      "these {}, the oldest first:\n",
      result.candidates.size());
  for (const campaign::Commit& commit : result.candidates) {
    fmt::print("  {}  {}  {}\n", commit.Short(), commit.date.substr(0, 10),
               commit.subject);
  }
}

ExitCode BisectHistory(BisectArguments& arguments) {
  campaign::BisectPlan& plan = arguments.plan;
  plan.limit = std::chrono::seconds(arguments.limit);
  plan.on_step = TellStep;
  plan.on_progress = [](const std::string& text) { Tell(Printable(text)); };
  const campaign::BisectResult result = campaign::Bisect(plan);
  if (result.interrupted) {
    Tell("isoloss: interrupted by a signal. The work tree is removed.");
    return ExitCode::kInterrupted;
  }
  const ExitCode code =
      result.first_bad ? ExitCode::kPass : ExitCode::kInconclusive;
  if (arguments.json) {
    Json json = BisectJson(result);
    json["exit_code"] = static_cast<int>(code);
    PrintJson(json);
  } else {
    PrintResult(result);
  }
  return code;
}

Action DeclareBisect(CLI::App& app) {
  auto arguments = std::make_shared<BisectArguments>();
  campaign::BisectPlan& plan = arguments->plan;
  AddOption(app, "command", plan.command,
            "After --: the command that judges a commit, in a work tree of "
            "it. Exit code 0 is good, 1 is bad; others, such as 4 "
            "(inconclusive), skip the commit")
      .Required();
  AddOption(app, "--good", plan.good, "A commit that is good").Required();
  AddOption(app, "--bad", plan.bad, "A later commit that is bad").Required();
  AddOption(app, "--build", plan.build,
            "Shell command that is run before that one; where it fails, the "
            "commit is skipped");
  AddOption(app, "--repository", plan.repository,
            "Folder in the git repository (default: the working folder)")
      .TypeName(kFolder);
  AddFlag(app, "--first-parent", plan.first_parent,
          "Try merges only, not the commits that they brought");
  AddOption(app, "--limit", arguments->limit,
            "Seconds after which a build or a command is ended and its commit "
            "skipped (default: a day)")
      .IntegerIn(1, kMostLimit);
  AddOption(app, "--output", plan.output,
            "Folder that gets COMMIT.txt, what each commit's build and command "
            "wrote")
      .TypeName(kFolder);
  DeclareJson(app, arguments->json, "with every commit that was tried");
  Describe(app,
           "Find the first bad commit by git bisect, in a work tree of its "
           "own. Good and bad are tried first. Exit code 0 if it is found, 4 "
           "if skipped commits hide it");
  return [arguments] { return BisectHistory(*arguments); };
}

Action DeclareHistory(CLI::App& app) {
  static constexpr Command kSubcommands[] = {
      {"record", "Add the figures of a commit's runs to a history",
       "isoloss lab history record runs/mxfp8_vs_bf16 --file history.jsonl",
       DeclareRecord},
      {"show", "Show figures over commits, and where one moved",
       "isoloss lab history show history.jsonl --figure loss",
       DeclareHistoryShow},
      {"bisect", "Find the commit that made a command fail",
       "isoloss lab history bisect --good HEAD~16 --bad HEAD --build 'cmake -B "
       "b "
       "&& cmake --build b' -- b/bin/isoloss golden check --exact",
       DeclareBisect}};
  Describe(app,
           "Figures of one experiment over commits, and the commit that moved "
           "one");
  return DeclareCommands(app, kSubcommands);
}

}  // namespace

extern constinit const Command kCommand_history = {
    "history", "Keep figures over commits, find what moved them",
    "isoloss lab history record runs/mxfp8_vs_bf16 --file history.jsonl",
    &DeclareHistory};

}  // namespace isoloss::cli
