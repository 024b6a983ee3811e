// Implements `isoloss study NAME`, which declares a study's arguments, trains
// its runs, and tells their result.

#include "study.h"

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <type_traits>

#include "arguments.h"
#include "experiment_arguments.h"
#include "isoloss/base/printable.h"
#include "isoloss/campaign/train_arms.h"
#include "isoloss/document/json.h"
#include "isoloss/document/text.h"
#include "isoloss/studies/study.h"
#include "json_output.h"
#include "prose.h"
#include "run_choice_arguments.h"
#include "value_names.h"

namespace isoloss::cli {
namespace {

struct StudyArguments {
  std::unique_ptr<studies::Study> study;
  std::string out;
  std::string part;  ///< "K/N"
  bool dry_run = false;
  bool no_train = false;
  bool json = false;
  RunChoiceArguments runs;
};

void AddRules(const studies::Option& given, const Option& option,
              bool is_whole) {
  if (given.most > given.least) {
    if (is_whole) {
      option.IntegerIn(static_cast<int64_t>(given.least),
                       static_cast<int64_t>(given.most));
    } else {
      option.NumberIn(given.least, given.most);
    }
  }
  if (!given.words.empty()) option.OneOf(given.words);
  if (given.type_name != nullptr) option.TypeName(given.type_name);
  if (given.required) option.Required();
  if (given.repeatable) option.Repeatable();
  if (given.not_quick) option.Excludes("--quick");
}

void DeclareOption(CLI::App& app, const studies::Option& given) {
  std::visit(
      [&](auto* value) {
        using T = std::remove_pointer_t<decltype(value)>;
        if constexpr (std::is_same_v<T, campaign::ExperimentSource>) {
          DeclareExperiment(app, *value).Required();
        } else if constexpr (std::is_same_v<T, bool>) {
          AddRules(given, AddFlag(app, given.name, *value, given.help), false);
        } else {
          AddRules(given, AddOption(app, given.name, *value, given.help),
                   std::is_integral_v<T>);
        }
      },
      given.value);
}

/// Declares the arguments that all studies that train take.
void DeclareTraining(CLI::App& app, const studies::StudyKind& kind,
                     StudyArguments& arguments) {
  AddOption(
      app, "--out", arguments.out,
      fmt::format("Folder for runs and results (default: {})", kind.folder))
      .TypeName(kFolder);
  AddFlag(app, "--dry-run", arguments.dry_run,
          "Only print what is trained and its cost");
  AddFlag(app, "--no-train", arguments.no_train,
          "Only judge the runs that are there")
      .Excludes("--dry-run");
}

void DeclareShares(CLI::App& app, StudyArguments& arguments) {
  AddOption(app, "--part", arguments.part,
            "Train the K-th of N shares of the seeds and judge nothing: for N "
            "machines that share the folder")
      .TypeName("K/N")
      .Hidden()
      .Excludes("--dry-run")
      .Excludes("--no-train")
      .Excludes("--json");
  arguments.runs.Declare(app);
}

/// Says how to go on after a signal.
ExitCode Interrupted(const studies::Plan& plan) {
  fmt::print(stderr,
             "isoloss: interrupted by a signal. Finished runs are in {}; the "
             "same command goes on, and --no-train judges what is there.\n",
             Printable(plan.folder.string()));
  return ExitCode::kInterrupted;
}

std::string DescriptionOf(const studies::Study& study,
                          const studies::Plan& plan) {
  return fmt::format("{}{}{}", study.Describe(plan),
                     fmt::join(plan.notes, "\n"),
                     plan.notes.empty() ? "" : "\n");
}

/// Shows what the study costs, and trains it as far as it is asked to. Returns
/// a code if the command ends with that: a dry run, a list, a part, or a
/// signal.
std::optional<ExitCode> TrainAsAsked(const studies::Plan& plan,
                                     const StudyArguments& arguments) {
  if (!arguments.runs.list.empty()) {
    if (!arguments.dry_run) studies::PrepareFolder(plan);
    campaign::WriteRunList(studies::ListRuns(plan), arguments.runs.list);
    return ExitCode::kPass;
  }
  const std::string description = DescriptionOf(*arguments.study, plan);
  if (arguments.dry_run) {
    PrintProse(stdout, description);
    return ExitCode::kPass;
  }
  const bool in_parts = !arguments.part.empty();
  studies::Part part =
      in_parts ? studies::ParsePart(arguments.part) : studies::Part();
  part.only = arguments.runs.choice();
  if (arguments.no_train) {
    studies::RequireFolder(plan);
    return std::nullopt;
  }
  studies::PrepareFolder(plan, part);
  PrintProse(stderr, description);
  if (!studies::Train(plan, part)) return Interrupted(plan);
  if (in_parts) {
    fmt::print(stderr,
               "Part {} is trained. Once all parts are, the same command "
               "without --part judges them.\n",
               arguments.part);
  }
  if (in_parts || arguments.runs.chosen()) return ExitCode::kPass;
  return std::nullopt;
}

/// Prints the answer, and says where its files are.
void PrintAnswer(const studies::Plan& plan, const studies::Answer& answer,
                 bool as_json) {
  if (as_json) return PrintJsonText(document::RenderJson(answer.document));
  std::string text = document::RenderText(answer.document);
  const std::string folder = Printable(plan.folder.string());
  for (const studies::File& file : answer.files) {
    if (file.text.empty()) continue;
    text += fmt::format("Wrote {}/{}\n", folder, file.name);
  }
  PrintProse(stdout, text);
  if (plan.folder.empty()) return;
  fmt::print("Wrote {}/{}.json, {}.svg\n", folder, plan.kind, plan.kind);
}

ExitCode RunStudy(const studies::StudyKind& kind, StudyArguments& arguments) {
  const bool trains = kind.folder != nullptr;
  if (trains) {
    campaign::RequireOneProcess(kind.name, "its runs go side by side in one");
  }
  // Costs need not be measured again by each of many processes.
  const bool estimate = !arguments.no_train && !arguments.runs.chosen();
  const studies::Plan plan =
      arguments.study->MakePlan({.out = arguments.out, .estimate = estimate});
  if (trains) {
    if (const auto code = TrainAsAsked(plan, arguments)) return *code;
  }
  const std::optional<studies::Answer> answer =
      arguments.study->Judge(plan, /*may_train=*/!arguments.no_train);
  if (!answer) return Interrupted(plan);
  if (!plan.folder.empty()) studies::WriteAnswer(plan, *answer);
  PrintAnswer(plan, *answer, arguments.json);
  return answer->code;
}

template <const studies::StudyKind& kKind>
Action DeclareStudy(CLI::App& app) {
  auto arguments = std::make_shared<StudyArguments>();
  arguments->study = kKind.make();
  for (const studies::Option& option : arguments->study->Options()) {
    DeclareOption(app, option);
  }
  const bool trains = kKind.folder != nullptr;
  if (trains) DeclareTraining(app, kKind, *arguments);
  const Option json = DeclareJson(
      app, arguments->json, fmt::format("the content of {}.json", kKind.name));
  if (trains) {
    json.Excludes("--dry-run");
    DeclareShares(app, *arguments);
  }
  return [arguments] { return RunStudy(kKind, *arguments); };
}

}  // namespace

std::vector<Command> StudyCommands() {
  return {
#define ISOLOSS_STUDY(kind)                                     \
  {studies::kStudy_##kind.name, studies::kStudy_##kind.summary, \
   studies::kStudy_##kind.example, &DeclareStudy<studies::kStudy_##kind>},
#include "isoloss/studies/studies.def"
#undef ISOLOSS_STUDY
  };
}

}  // namespace isoloss::cli
