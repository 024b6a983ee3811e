#include "study_arguments.h"

#include <fmt/format.h>

#include "isoloss/base/printable.h"
#include "isoloss/document/text_layout.h"
#include "isoloss/report/terminal_width.h"
#include "json_output.h"

namespace isoloss::cli {

void StudyArguments::Declare(CLI::App& app, const std::string& kind,
                             const std::string& folder) {
  AddOption(app, "--out", out,
            fmt::format("Folder for runs and results (default: {})",
                        folder.empty() ? "runs/<name>-" + kind : folder))
      .TypeName("FOLDER");
  AddFlag(app, "--dry-run", dry_run, "Only print what is trained and its cost");
  AddFlag(app, "--no-train", no_train, "Only judge the runs that are there")
      .Excludes("--dry-run");
  DeclareJson(app, json, fmt::format("the content of {}.json", kind))
      .Excludes("--dry-run");
  AddOption(app, "--part", part,
            "Train the K-th of N shares of the seeds and judge nothing: for N "
            "machines that share the folder")
      .TypeName("K/N")
      .Hidden()
      .Excludes("--dry-run")
      .Excludes("--no-train")
      .Excludes("--json");
  runs.Declare(app);
}

void PrintProse(std::FILE* file, const std::string& text) {
  fmt::print(file, "{}",
             document::WrapProse(PrintableLines(text),
                                 report::ProseStyle(fileno(file))));
}

void PrintResult(const studies::Study& study, const std::string& text,
                 const std::string& json, bool as_json) {
  if (as_json) return PrintJsonText(json);
  PrintProse(stdout, text);
  fmt::print("Wrote {}/{}.json, {}.svg\n", Printable(study.folder.string()),
             study.kind, study.kind);
}

ExitCode Interrupted(const studies::Study& study) {
  fmt::print(stderr,
             "isoloss: interrupted by a signal. Finished runs are in {}; the "
             "same command goes on, and --no-train judges what is there.\n",
             Printable(study.folder.string()));
  return ExitCode::kInterrupted;
}

std::optional<ExitCode> TrainAsAsked(const studies::Study& study,
                                     const std::string& description,
                                     const StudyArguments& arguments) {
  if (!arguments.runs.list.empty()) {
    if (!arguments.dry_run) studies::PrepareStudy(study);
    campaign::WriteRunList(studies::ListStudy(study), arguments.runs.list);
    return ExitCode::kPass;
  }
  if (arguments.dry_run) {
    PrintProse(stdout, description);
    return ExitCode::kPass;
  }
  const bool in_parts = !arguments.part.empty();
  studies::StudyPart part =
      in_parts ? studies::ParseStudyPart(arguments.part) : studies::StudyPart();
  part.only = arguments.runs.choice();
  if (arguments.no_train) {
    studies::RequireStudy(study);
    return std::nullopt;
  }
  studies::PrepareStudy(study, part);
  PrintProse(stderr, description);
  if (!studies::TrainStudy(study, part)) return Interrupted(study);
  if (in_parts) {
    fmt::print(stderr,
               "Part {} is trained. Once all parts are, the same command "
               "without --part judges them.\n",
               arguments.part);
  }
  if (in_parts || arguments.runs.chosen()) return ExitCode::kPass;
  return std::nullopt;
}

}  // namespace isoloss::cli
