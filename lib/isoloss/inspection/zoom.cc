#include "isoloss/inspection/zoom.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "isoloss/base/error.h"
#include "isoloss/corpus/corpus.h"
#include "isoloss/precision/recipe.h"
#include "isoloss/system/interrupt.h"
#include "isoloss/train/run_again.h"

namespace isoloss::inspection {
namespace {

namespace fs = std::filesystem;

/// Dumps of A and B have folders of their own, since both may be of one arm and
/// seed. RunAgain writes and removes files of the run's name there, so a log
/// must not lie there.
fs::path DumpFolder(const LogComparison& comparison, const fs::path& out,
                    const char* side) {
  const fs::path base =
      out.empty() ? fs::path(comparison.a->file).parent_path() / "zoom" : out;
  fs::path folder = base / side;
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
  hooks.stop = &system::InterruptFlag();
  return train::RunAgain(experiment, corpus, p, run.file, step, tensors, folder,
                         hooks);
}

/// Returns whether the log names every tensor of a step. It does not if only
/// some tensors had statistics and none had digests.
bool NamesAllTensors(const runlog::RunLog& log) {
  if (std::ranges::any_of(log.tensors.digest,
                          [](int64_t digest) { return digest != 0; })) {
    return true;
  }
  return !log.tensors.names.empty() &&
         log.provenance.experiment_text.find("statistics_tensors = []") !=
             std::string::npos;
}

}  // namespace

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

std::optional<std::pair<fs::path, fs::path>> DumpBothSides(
    const LogComparison& comparison, const ZoomPlan& plan) {
  const auto& first = comparison.report.first;
  // Held-out losses before step 1 differ in the forward pass, as step 1 will.
  const int64_t step =
      plan.step.value_or(first ? std::max<int64_t>(1, first->step) : 1);
  const fs::path folder_a = DumpFolder(comparison, plan.out, "A");
  const fs::path folder_b = DumpFolder(comparison, plan.out, "B");
  const train::Experiment experiment = plan.source.Load();
  const corpus::Corpus corpus = train::LoadCorpusOf(experiment);
  const std::vector<std::string> tensors =
      plan.tensors.empty() ? std::vector<std::string>{"*"} : plan.tensors;
  const fs::path a =
      DumpOf(*comparison.a, folder_a, step, experiment, corpus, tensors);
  if (a.empty()) return std::nullopt;
  const fs::path b =
      DumpOf(*comparison.b, folder_b, step, experiment, corpus, tensors);
  if (b.empty()) return std::nullopt;
  return std::pair(a, b);
}

}  // namespace isoloss::inspection
