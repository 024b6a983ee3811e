#include "compare_zoom.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "arguments.h"
#include "compare_dumps.h"
#include "interrupt.h"
#include "isoloss/base/error.h"
#include "isoloss/corpus/corpus.h"
#include "isoloss/precision/recipe.h"
#include "isoloss/train/run_again.h"
#include "json_output.h"

namespace isoloss::cli {
namespace {

namespace fs = std::filesystem;

/// Dumps of A and B have folders of their own: both may be of one arm and seed.
/// RunAgain writes and removes files of the run's name there, so it must not be
/// where a log lies.
fs::path DumpFolder(const LogComparison& comparison, const fs::path& out,
                    const char* side) {
  const fs::path base =
      out.empty() ? fs::path(comparison.a->file).parent_path() / "zoom" : out;
  const fs::path folder = base / side;
  for (const compare::Run* run : {comparison.a, comparison.b}) {
    const fs::path of_log = fs::absolute(run->file).parent_path();
    std::error_code error;
    if (fs::equivalent(folder, of_log, error)) {
      ThrowError(ErrorKind::kConfig,
                 "{}: --zoom works in this folder, but {} lies in it and would "
                 "be overwritten. Choose another folder with --out.",
                 folder.string(), run->file);
    }
  }
  return folder;
}

fs::path DumpOf(const compare::Run& run, const fs::path& folder, int64_t step,
                const train::Experiment& experiment,
                const corpus::Corpus& corpus,
                const std::vector<std::string>& tensors) {
  const runlog::Provenance& p = run.log.provenance;
  fmt::print(stderr, "running {}, seed {}, again up to step {}\n", p.arm,
             p.seed, step);
  train::RunAgainHooks hooks;
  hooks.stop = &InterruptFlag();
  return train::RunAgain(experiment, corpus, p, run.file, step, tensors, folder,
                         hooks);
}

/// Does the log name every tensor of a step? Not if only some had statistics
/// and none digests.
bool NamesAllTensors(const runlog::RunLog& log) {
  if (std::ranges::any_of(log.tensors.digest,
                          [](int64_t digest) { return digest != 0; })) {
    return true;
  }
  return !log.tensors.names.empty() &&
         log.provenance.experiment_text.find("statistics_tensors = []") !=
             std::string::npos;
}

/// Refuses a pattern that no tensor has before runs are made for it.
void CheckPatterns(const LogComparison& comparison,
                   const std::vector<std::string>& patterns) {
  const compare::Run* known = nullptr;
  for (const compare::Run* run : {comparison.a, comparison.b}) {
    if (NamesAllTensors(run->log)) known = run;
  }
  if (known == nullptr) return;
  const std::vector<std::string>& names = known->log.tensors.names;
  for (const std::string& pattern : patterns) {
    const bool matches = std::ranges::any_of(names, [&](const auto& name) {
      return precision::SiteMatches(pattern, name);
    });
    if (matches) continue;
    ThrowError(ErrorKind::kConfig,
               "compare: --tensors `{}` matches none of the {} tensors of {}; "
               "the first is `{}`, the last `{}`. `isoloss show --tensors '*'` "
               "lists all.",
               pattern, names.size(), known->file, names.front(), names.back());
  }
}

}  // namespace

void ZoomArguments::Declare(CLI::App& app) {
  CLI::Option* flag = app.add_flag(
      "--zoom", zoom,
      "Run both again up to the first step that differs and show the first "
      "tensor, block and elements that do, and which operation adds error");
  CLI::Option* experiment =
      app.add_option("--experiment", source.file,
                     "Experiment that the logs were made with, for --zoom")
          ->needs(flag);
  flag->needs(experiment);
  app.add_option("--set", source.overrides,
                 "section.key=value; overrides the experiment; repeatable")
      ->take_all()
      ->allow_extra_args(false)
      ->needs(flag);
  app.add_option("--tensors", tensors,
                 "Look at tensors whose name holds this; `*` stands for any "
                 "characters; repeatable; without it at all")
      ->take_all()
      ->allow_extra_args(false)
      ->type_name("PATTERN")
      ->needs(flag);
  app.add_option("--step", step, "Look at this step")
      ->check(IntegerIn(1, kMostSteps))
      ->needs(flag);
  app.add_option("--out", out,
                 "Folder for the dumps (default: zoom beside the first log)")
      ->needs(flag);
}

ExitCode Zoom(const LogComparison& comparison, const ZoomArguments& arguments,
              bool json) {
  const auto& first = comparison.report.first;
  CheckPatterns(comparison, arguments.tensors);
  if (!arguments.step && !first && json) {
    PrintJson(ComparisonJson(comparison));
    return comparison.Equal() ? ExitCode::kPass : ExitCode::kFail;
  }
  if (!arguments.step && !first) {
    fmt::print("No step differs, so there is nothing to zoom into\n");
    return comparison.Equal() ? ExitCode::kPass : ExitCode::kFail;
  }
  // Held-out losses before step 1 differ in the forward pass, as step 1 will.
  const int64_t step =
      arguments.step.value_or(first ? std::max<int64_t>(1, first->step) : 1);
  const fs::path folder_a = DumpFolder(comparison, arguments.out, "A");
  const fs::path folder_b = DumpFolder(comparison, arguments.out, "B");
  const train::Experiment experiment = arguments.source.Load();
  const corpus::Corpus corpus = corpus::LoadCorpus(
      experiment.corpus_source, experiment.data.held_out_share);
  const std::vector<std::string> tensors = arguments.tensors.empty()
                                               ? std::vector<std::string>{"*"}
                                               : arguments.tensors;
  const fs::path a =
      DumpOf(*comparison.a, folder_a, step, experiment, corpus, tensors);
  const fs::path b = a.empty() ? fs::path()
                               : DumpOf(*comparison.b, folder_b, step,
                                        experiment, corpus, tensors);
  if (a.empty() || b.empty()) return ExitCode::kInterrupted;
  if (!json) fmt::print("\n");
  return CompareDumpFiles(a, b, json);
}

}  // namespace isoloss::cli
