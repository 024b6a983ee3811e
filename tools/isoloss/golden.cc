// Implements `isoloss golden`, which keeps runs whose every bit is checked, and
// changes them with a reason only.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "ci_arguments.h"
#include "commands.h"
#include "isoloss/base/printable.h"
#include "isoloss/goldens/golden_check.h"
#include "isoloss/goldens/golden_ci.h"
#include "isoloss/goldens/golden_update.h"
#include "json_output.h"
#include "value_names.h"

namespace isoloss::cli {
namespace {

struct CheckArguments {
  goldens::GoldenCheckPlan plan;
  bool exact = false;
  bool json = false;
  CiArguments ci;
};

void PrintExact(const goldens::ExactLane& lane) {
  fmt::print("  {:<20} exact: {}", lane.golden,
             lane.Reproduced() ? "pass" : "drift");
  if (lane.Reproduced()) {
    fmt::print(" ({} steps, {} tensors in {} of them)\n", lane.steps,
               lane.tensors, lane.tensor_steps);
  } else {
    fmt::print(": {}\n", lane.Drift());
  }
  if (!lane.content.added.empty()) {
    fmt::print("  {:<20} not in the golden, so not compared: {}\n", "",
               fmt::join(lane.content.added, ", "));
  }
}

void Print(const goldens::CheckedGoldens& checked) {
  const std::string path = Printable(checked.folder.string());
  fmt::print("golden {}\n", path);
  for (const goldens::ExactLane& lane : checked.exact) PrintExact(lane);
  for (const goldens::LaneOutcome& lane : checked.lanes) {
    fmt::print("  {:<20} lane: {}{}{}\n", lane.lane, lane.outcome,
               lane.why.empty() ? "" : ": ", lane.why);
  }
  for (const goldens::ArmOutcome& arm : checked.statistical) {
    fmt::print("  {:<20} statistical: {}\n", arm.arm, arm.levels);
  }
  if (checked.drift) {
    fmt::print(
        "DRIFT: bits of {0} changed{1}. If that is meant: isoloss golden "
        "update {0} --reason \"...\"\n",
        path,
        checked.code == ExitCode::kPass
            ? ", though the gate finds no harm in it"
            : "");
  }
}

Json JsonOf(const goldens::CheckedGoldens& checked, ExitCode code) {
  Json json{{"folder", checked.folder.string()},
            {"exit_code", static_cast<int>(code)},
            {"drift", checked.drift},
            {"exact", Json::array()},
            {"lanes", Json::array()},
            {"statistical", Json::array()}};
  for (const goldens::ExactLane& lane : checked.exact) {
    json["exact"].push_back({{"golden", lane.golden},
                             {"reproduced", lane.Reproduced()},
                             {"differing", lane.content.differing},
                             {"first_difference", lane.where},
                             {"not_in_the_golden", lane.content.added}});
  }
  for (const goldens::LaneOutcome& lane : checked.lanes) {
    json["lanes"].push_back(
        {{"lane", lane.lane}, {"outcome", lane.outcome}, {"why", lane.why}});
  }
  for (const goldens::ArmOutcome& arm : checked.statistical) {
    json["statistical"].push_back({{"arm", arm.arm},
                                   {"outcome", gate::OutcomeName(arm.outcome)},
                                   {"levels", arm.levels}});
  }
  return json;
}

/// Collects the results of all folders.
struct Found {
  ExitCode code = ExitCode::kPass;
  Json json{{"exit_code", 0}, {"goldens", Json::array()}};
  std::vector<document::Result> results;
  std::vector<goldens::CheckedGoldens> unprinted;

  void Add(const goldens::CheckedGoldens& folder, bool exact) {
    const ExitCode own = goldens::CodeOf(folder, exact);
    code = Worse(code, own);
    json["goldens"].push_back(JsonOf(folder, own));
    results.push_back(goldens::ResultOf(folder, exact));
  }
};

ExitCode Check(CheckArguments& arguments) {
  arguments.ci.Begin();
  Found found;
  const auto on_checked = [&](const goldens::CheckedGoldens& folder) {
    found.Add(folder, arguments.exact);
    if (arguments.json) return;
    // Reports are written first, so that no printed result is missing in them.
    if (arguments.ci.Asked()) {
      found.unprinted.push_back(folder);
    } else {
      Print(folder);
    }
  };
  if (!goldens::CheckGoldens(arguments.plan, on_checked)) {
    return ExitCode::kInterrupted;
  }
  const document::Report ci =
      document::MakeReport(arguments.ci.command(), static_cast<int>(found.code),
                           std::move(found.results));
  arguments.ci.Write(ci);
  for (const goldens::CheckedGoldens& folder : found.unprinted) {
    Print(folder);
  }
  if (arguments.json) {
    found.json["exit_code"] = static_cast<int>(found.code);
    PrintJson(found.json);
  }
  arguments.ci.Annotate(ci);
  return found.code;
}

Action DeclareGoldenCheck(CLI::App& app) {
  auto arguments = std::make_shared<CheckArguments>();
  AddOption(app, "folders", arguments->plan.folders,
            "Folders of goldens (default: golden/curves/*)")
      .TypeName(kFolder);
  AddOption(app, "--out", arguments->plan.out,
            "Keep the logs that were made again in this folder")
      .TypeName(kFolder);
  AddFlag(app, "--exact", arguments->exact,
          "Changed bits are a failure, whatever the gate says of them");
  AddFlag(app, "--draft", arguments->plan.draft,
          "Take goldens that were made by a modified source");
  AddOption(app, "--on", arguments->plan.on,
            "Where the runs compute: cpu, or gpu; lanes run on the CPU "
            "(default: cpu)")
      .OneOf(device::DeviceNames());
  DeclareJson(app, arguments->json, "with all lanes of each golden");
  arguments->ci.Declare(app, "golden check");
  return [arguments] { return Check(*arguments); };
}

void PrintChanges(const std::vector<goldens::GoldenChange>& changes) {
  for (const goldens::GoldenChange& change : changes) {
    fmt::print("  {:<20} {} -> {}\n  {:<20} {}\n", change.golden,
               change.before.empty() ? "none" : change.before,
               change.after.empty() ? "none" : change.after, "",
               change.verdict);
  }
}

ExitCode Update(goldens::GoldenUpdatePlan& plan) {
  plan.on_changes = PrintChanges;
  const goldens::GoldenUpdate update = goldens::UpdateGoldens(plan);
  if (update.interrupted) return ExitCode::kInterrupted;
  if (!update.refused.empty()) {
    fmt::print("REFUSED: {}\n", update.refused);
    return ExitCode::kFail;
  }
  fmt::print("{}: {} of {} goldens written. Commit them with the reason.\n",
             Printable(plan.folder.string()), update.changed, update.runs);
  return ExitCode::kPass;
}

Action DeclareGoldenUpdate(CLI::App& app) {
  auto arguments = std::make_shared<goldens::GoldenUpdatePlan>();
  AddOption(app, "folder", arguments->folder, "Folder of goldens")
      .Required()
      .TypeName(kFolder);
  AddOption(app, "--reason", arguments->reason,
            "What changed the numbers, and why that is right; one line, "
            "kept in history.toml")
      .Required();
  AddOption(app, "--accept-numerics-change", arguments->accepted,
            "Tensors whose new values the oracle does not explain, by "
            "name or pattern; repeatable")
      .Repeatable();
  AddFlag(
      app, "--new", arguments->create,
      "Make the first goldens of a folder that holds experiment.toml alone");
  AddFlag(app, "--reconfigured", arguments->reconfigured,
          "The experiment was changed on purpose: the old goldens are of "
          "another one and are not compared")
      .Excludes("--new");
  AddFlag(app, "--draft", arguments->draft,
          "From a modified source too; `golden check` refuses such "
          "goldens without --draft");
  return [arguments] { return Update(*arguments); };
}

Action DeclareGolden(CLI::App& app) {
  static constexpr Command kSubcommands[] = {
      {"check", "Run the experiments of goldens again and compare",
       "isoloss golden check --exact", DeclareGoldenCheck},
      {"update", "Replace goldens by what this program computes",
       "isoloss golden update golden/curves/nano --reason "
       "'sums of the router in another order'",
       DeclareGoldenUpdate}};
  Describe(app,
           "Golden runs: check that this program still gives their every bit, "
           "or replace them, with a reason");
  return DeclareCommands(app, kSubcommands);
}

}  // namespace

extern constinit const Command kCommand_golden = {
    "golden", "Check or replace runs whose every bit is kept",
    "isoloss golden check --exact", &DeclareGolden};

}  // namespace isoloss::cli
