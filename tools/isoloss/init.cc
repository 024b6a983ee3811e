// Implements `isoloss init`, which writes an experiment file for a text of the
// user's.

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "arguments.h"
#include "commands.h"
#include "isoloss/base/printable.h"
#include "isoloss/device/devices.h"
#include "isoloss/document/text_layout.h"
#include "isoloss/init/new_experiment.h"
#include "isoloss/report/live_view.h"
#include "isoloss/report/terminal_width.h"
#include "isoloss/sweeps/scripts.h"
#include "json_output.h"
#include "value_names.h"

namespace isoloss::cli {
namespace {

struct InitArguments {
  init::NewExperiment request;
  bool no_pilot = false;
  bool json = false;
};

std::vector<std::string> NextCommands(const init::WrittenExperiment& written) {
  std::string file = written.experiment.path.string();
  if (file.starts_with('-')) file.insert(0, "./");
  const std::string verify = "isoloss verify " + sweeps::Quoted(file);
  return {verify + " --dry-run", verify};
}

void Print(const init::WrittenExperiment& written) {
  const document::TextStyle style = report::TerminalStyle(/*ascii=*/false);
  const train::Experiment& experiment = written.experiment;
  const std::vector<train::Run> runs = train::PlanRuns(experiment);
  const auto field = [&](const char* name, const std::string& text) {
    fmt::print("{}", document::FieldLine(name, Printable(text), style));
  };
  field("wrote", experiment.path.string());
  field("corpus",
        fmt::format("{}: {} tokens to train on, {} held out", written.corpus,
                    written.training_tokens, written.held_out_tokens));
  field("trains",
        fmt::format("{} arms x {} seeds = {} runs of {} steps of {} tokens; a "
                    "run reads {:.2g} % of the text",
                    experiment.arms.size(), experiment.train.seeds.size(),
                    runs.size(), experiment.train.steps,
                    experiment.train.sequences_per_batch *
                        experiment.data.sequence_length,
                    100 * written.readings));
  field("time", fmt::format("about {} on this machine: training {}, the "
                            "oracle {}",
                            report::DurationText(written.Seconds()),
                            report::DurationText(written.training_seconds),
                            report::DurationText(written.oracle_seconds)));
  field("power",
        fmt::format("recipes that do not differ pass with probability {}, for "
                    "a margin of {:g} % and seed pairs that chance spreads by "
                    "{:g} % ({})",
                    init::PowerText(written.power),
                    experiment.gate.margin_percent.value(),
                    experiment.gate.spread_percent.value(),
                    init::SpreadText(written.spread)));
  field("measured", fmt::format("{}, one thread, just now",
                                campaign::RatesText(written.rates)));
  field("memory", campaign::MemoryText(experiment, runs));
  field("disk", campaign::DiskText(experiment, runs));
  for (const std::string& note : written.notes) field("note", note);
  fmt::print("\nNext:\n");
  for (const std::string& command : NextCommands(written)) {
    fmt::print("  {}\n", Printable(command));
  }
}

void PrintAsJson(const init::WrittenExperiment& written) {
  const train::Experiment& experiment = written.experiment;
  const std::vector<train::Run> runs = train::PlanRuns(experiment);
  PrintJson({{"file", Printable(experiment.path.string())},
             {"name", experiment.name},
             {"corpus",
              {{"description", Printable(written.corpus)},
               {"training_tokens", written.training_tokens},
               {"held_out_tokens", written.held_out_tokens},
               {"readings", written.readings}}},
             {"arms", train::ArmNames(experiment)},
             {"seeds", experiment.train.seeds.size()},
             {"steps", experiment.train.steps},
             {"training_seconds", written.training_seconds},
             {"oracle_seconds", written.oracle_seconds},
             {"margin_percent", experiment.gate.margin_percent.value()},
             {"spread_percent", experiment.gate.spread_percent.value()},
             {"spread_measured", written.spread.measured},
             {"power", written.power},
             {"memory", campaign::MemoryText(experiment, runs)},
             {"disk", campaign::DiskText(experiment, runs)},
             {"notes", written.notes},
             {"next", NextCommands(written)}});
}

Action DeclareInit(CLI::App& app) {
  auto arguments = std::make_shared<InitArguments>();
  init::NewExperiment& request = arguments->request;
  AddOption(app, "paths", request.paths,
            "Files and folders of text, or token files with --tokens")
      .Required();
  AddOption(app, "--out", request.out,
            "File to write, which must not be there (default: NAME.toml)");
  AddOption(app, "--name", request.name,
            "Name of the experiment; results go to runs/NAME (default: "
            "RECIPE_vs_bf16)");
  AddOption(app, "--candidate", request.candidate,
            "Recipe that is judged against BF16")
      .TypeName(kRecipeName)
      .ShowDefault();
  AddOption(app, "--preset", request.preset, "Model to train")
      .TypeName(kPresetName)
      .ShowDefault();
  AddOption(app, "--on", request.on,
            "Where models compute: cpu, or gpu; the cost is told for it")
      .OneOf(device::DeviceNames())
      .ShowDefault();
  AddOption(app, "--budget", request.budget_minutes,
            "Minutes that `isoloss verify` may take on this machine")
      .NumberIn(0.1, 1e6)
      .ShowDefault();
  AddOption(app, "--margin", request.margin_percent,
            "Largest difference of no concern, percent of the loss")
      .NumberIn(1e-6, 99)
      .ShowDefault();
  AddFlag(app, "--no-pilot", arguments->no_pilot,
          "Train nothing: tune no rate, grade no control, and assume how far "
          "chance "
          "drives two runs apart");
  AddOption(app, "--tokens", request.token_type,
            "The paths are token files: flat little-endian integers of this "
            "type")
      .OneOf({"uint16", "uint32"});
  DeclareJson(app, arguments->json, "of what was written and what it costs");
  Describe(app,
           "Write a commented experiment file for a text of your own, and say "
           "what it will cost. Four arms: BF16, the candidate, a null arm and "
           "a control. Of the steps and seeds that the budget allows it takes "
           "those that most probably give an answer. Besides, it trains BF16 "
           "at five learning rates or more, with two seeds each, the control "
           "in parts of its sites, if half of the budget is enough, and a "
           "pilot, of at most a fifth of it, which shows how far chance drives "
           "two runs apart. Replaces no file");
  return [arguments] {
    arguments->request.pilot = !arguments->no_pilot;
    const auto written = init::WriteExperiment(arguments->request);
    if (!written) return ExitCode::kInterrupted;
    arguments->json ? PrintAsJson(*written) : Print(*written);
    return ExitCode::kPass;
  };
}

}  // namespace

extern constinit const Command kCommand_init = {
    "init", "Write an experiment for your text, with its cost",
    "isoloss init experiments --name trial --budget 5", &DeclareInit};

}  // namespace isoloss::cli
