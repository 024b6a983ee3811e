#include "isoloss/goldens/golden_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/base/text_file.h"
#include "isoloss/campaign/experiment_source.h"
#include "isoloss/campaign/train_arms.h"
#include "isoloss/compare/golden.h"
#include "isoloss/corpus/corpus.h"
#include "isoloss/logs/log_files.h"
#include "isoloss/runlog/reader.h"
#include "isoloss/system/interrupt.h"
#include "isoloss/train/continuation.h"
#include "isoloss/train/run_description.h"
#include "isoloss/train/run_hooks.h"
#include "isoloss/train/runner.h"
#include "isoloss/verify/probe_runs.h"

namespace isoloss::goldens {
namespace {

namespace fs = std::filesystem;

/// Refuses files that end like a golden's but belong to no planned run.
void RefuseLeftOver(const fs::path& folder,
                    const std::vector<std::string>& names) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const fs::path& path = entry.path();
    if (path.extension() != ".h5" && path.extension() != ".txt") continue;
    if (std::ranges::count(names, path.stem().string()) > 0) continue;
    ThrowError(ErrorKind::kConfig,
               "{}: it is no run of {}, so nothing would check it. Remove it, "
               "or `isoloss golden update` with --reconfigured.",
               path.string(), (folder / kGoldenExperiment).string());
  }
}

/// Refuses goldens that the history has but the experiment no longer asks for.
/// Nothing would check them, nor say that an arm or a seed is gone.
void RefuseVanished(const fs::path& folder,
                    const std::vector<std::string>& names,
                    const History& history) {
  for (const std::string& golden : history.Goldens()) {
    if (std::ranges::count(names, golden) > 0) continue;
    ThrowError(ErrorKind::kConfig,
               "{}: the history has golden {}, but {} asks for no such run, so "
               "nothing would check it. Restore its arm or seed, or give it up "
               "with `isoloss golden update {} --reconfigured`.",
               (folder / kGoldenHistory).string(), golden, kGoldenExperiment,
               folder.string());
  }
}

/// The golden's log, twin and history must belong together.
compare::Run OpenGolden(const fs::path& folder, const std::string& name,
                        const History& history) {
  const fs::path file = folder / (name + ".h5");
  if (!fs::exists(file)) {
    ThrowError(ErrorKind::kConfig,
               "{}: the golden is missing. Restore it. If the experiment has a "
               "new arm or seed, make it with `isoloss golden update {} "
               "--reconfigured`.",
               file.string(), folder.string());
  }
  compare::Run golden = {file.string(), runlog::ReadRunLog(file)};
  const std::string content = compare::ContentDigest(golden.log);
  if (content != history.ContentOf(name)) {
    ThrowError(ErrorKind::kFormat,
               "{}: its content has digest {}, but {} names {}. It was changed "
               "by hand, or not all files are of one commit: restore them.",
               golden.file, content, (folder / kGoldenHistory).string(),
               history.ContentOf(name).empty() ? "no such golden"
                                               : history.ContentOf(name));
  }
  const fs::path twin = folder / (name + ".txt");
  if (ReadTextFile(twin, "Restore it: it is the golden's text for reviews.") !=
      compare::GoldenText(golden.log, name)) {
    ThrowError(ErrorKind::kFormat,
               "{}: it is not the text of {}.h5, which reviewers take it for. "
               "It was changed by hand, or not all files are of one commit: "
               "restore them.",
               twin.string(), name);
  }
  return golden;
}

void CheckWhole(const compare::Run& golden, const Suite& suite) {
  const runlog::Provenance& p = golden.log.provenance;
  const auto steps = static_cast<int64_t>(golden.log.steps.step.size());
  if (suite.aborts && EndedByItsNumbers(golden.log)) return;
  if (!suite.aborts && p.complete && steps == p.steps_planned) return;
  if (suite.aborts) {
    ThrowError(ErrorKind::kFormat,
               "{}: it has {} of {} steps and no event `abort` at its end, but "
               "{} says that its runs end by their numbers. Restore it.",
               golden.file, steps, p.steps_planned, kGoldenSuite);
  }
  ThrowError(ErrorKind::kFormat,
             "{}: it has {} of {} steps, but a golden is a whole run. Restore "
             "it.",
             golden.file, steps, p.steps_planned);
}

/// Candidates are judged against the baseline. A single arm is judged itself.
bool IsCandidate(const train::Experiment& experiment, const std::string& arm) {
  return experiment.arms.size() == 1 || arm != experiment.arms.front().name;
}

}  // namespace

train::Experiment LoadGoldenExperiment(const fs::path& folder) {
  campaign::ExperimentSource source;
  source.file = (folder / kGoldenExperiment).string();
  return source.Load();
}

GoldenFolder OpenGoldenFolder(const fs::path& folder) {
  GoldenFolder opened{folder,
                      LoadGoldenExperiment(folder),
                      History::Read(folder / kGoldenHistory),
                      ReadSuite(folder),
                      {}};
  std::vector<std::string> names;
  for (const train::Run& run : train::PlanRuns(opened.experiment)) {
    names.push_back(run.Name());
  }
  RefuseLeftOver(folder, names);
  RefuseVanished(folder, names, opened.history);
  for (const std::string& name : names) {
    opened.goldens.push_back(OpenGolden(folder, name, opened.history));
    CheckWhole(opened.goldens.back(), opened.suite);
  }
  return opened;
}

void CheckConfiguration(const GoldenFolder& folder) {
  const train::Experiment& experiment = folder.experiment;
  const corpus::Corpus corpus = train::LoadCorpusOf(experiment);
  const std::vector<train::Run> runs = train::PlanRuns(experiment);
  for (size_t i = 0; i < runs.size(); ++i) {
    const runlog::Provenance& golden = folder.goldens[i].log.provenance;
    runlog::Provenance planned = train::DescribePlannedRun(
        experiment, *runs[i].arm, runs[i].seed, corpus);
    // The check must find changed numerics, so they are no difference here.
    planned.numerics_digest = golden.numerics_digest;
    const std::string difference = train::RunDifference(golden, planned) +
                                   train::LogDifference(golden, planned);
    if (difference.empty()) continue;
    ThrowError(ErrorKind::kConfig,
               "{}: it is a golden of another configuration than {} asks "
               "for. Restore the experiment, or make new goldens with `isoloss "
               "golden update {} --reconfigured`. What differs:\n{}",
               folder.goldens[i].file, experiment.path.string(),
               folder.path.string(), difference);
  }
}

bool EndedByItsNumbers(const runlog::RunLog& log) {
  return !log.provenance.complete && train::WasAborted(log);
}

std::string GoldenName(const compare::Run& golden) {
  return fs::path(golden.file).stem().string();
}

verify::MakeHooks PlantInCandidates(const train::Experiment& experiment,
                                    const verify::MakeHooks& plant) {
  if (!plant) return {};
  return [&experiment, plant](const train::Experiment& of_case,
                              const train::Arm& arm, uint64_t seed) {
    return IsCandidate(experiment, arm.name) ? plant(of_case, arm, seed)
                                             : train::RunHooks{};
  };
}

Rerun RunAll(const train::Experiment& experiment, const fs::path& out,
             const verify::MakeHooks& hooks, bool quiet) {
  campaign::TrainArmsOptions options{.leftovers = train::Leftovers::kDiscard,
                                     .quiet = quiet};
  if (hooks) {
    options.run_hooks = [&](const train::Run& run) {
      return hooks(experiment, *run.arm, run.seed);
    };
  }
  system::ListenToSignals();
  const campaign::ExecutedRuns executed = campaign::TrainArms(
      experiment, campaign::PlanTraining(experiment), out, options);
  if (executed.interrupted) return {{}, true};
  return {logs::ReadRuns(executed.logs), false};
}

logs::EvidenceFiles ReadEvidence(const train::Experiment& experiment,
                                 const fs::path& golden,
                                 const std::vector<fs::path>& probes) {
  logs::EvidenceFiles evidence;
  logs::ReadProbes(probes, evidence);
  const fs::path folder = fs::absolute(golden).lexically_normal();
  const fs::path named = folder.has_filename() ? folder : folder.parent_path();
  if (named.parent_path().filename() != "curves") return evidence;
  const fs::path ensembles = named.parent_path().parent_path() / "ensembles";
  for (const train::Arm& arm : experiment.arms) {
    const fs::path file =
        ensembles /
        fmt::format("{}-{}.h5", named.filename().string(), arm.name);
    if (fs::exists(file)) logs::ReadEnsembles({file}, evidence);
  }
  return evidence;
}

std::optional<logs::EvidenceFiles> GatherEvidence(
    const train::Experiment& experiment, const gate::Policy& policy,
    const fs::path& golden, const fs::path& out,
    const verify::PlainSteps& plain_steps) {
  const verify::ProbedRuns probed = verify::ProbeArms(
      experiment, train::LoadCorpusOf(experiment), train::ArmNames(experiment),
      out, {.plain_steps = plain_steps, .cases = verify::ProbedCases(policy)});
  if (probed.interrupted) return std::nullopt;
  return ReadEvidence(experiment, golden, probed.files);
}

}  // namespace isoloss::goldens
