#include "isoloss/logs/foreign_logs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/base/printable.h"
#include "isoloss/compare/integrity.h"
#include "isoloss/foreign/run_log_of.h"
#include "isoloss/gate/good_runs.h"
#include "isoloss/logs/log_files.h"
#include "isoloss/logs/open_log.h"

namespace isoloss::logs {
namespace {

namespace fs = std::filesystem;

bool IsThere(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

/// Returns the name of the run in a file, or in a folder of event files.
std::string NameOf(const fs::path& path) {
  const fs::path whole = fs::absolute(path).lexically_normal();
  const fs::path folder = whole.has_filename() ? whole : whole.parent_path();
  std::error_code error;
  return Printable(fs::is_directory(path, error) ? folder.filename().string()
                                                 : path.stem().string());
}

bool BeginsAsHdf5(const fs::path& file) {
  constexpr std::string_view kSignature = "\x89HDF\r\n\x1a\n";
  std::array<char, kSignature.size()> head{};
  std::ifstream stream(file, std::ios::binary);
  stream.read(head.data(), head.size());
  return std::string_view(head.data(), head.size()) == kSignature;
}

std::vector<compare::Run*> ForeignOf(std::span<compare::Run> runs) {
  std::vector<compare::Run*> foreign;
  for (compare::Run& run : runs) {
    if (!run.log.provenance.Knows(runlog::Fact::kExperiment))
      foreign.push_back(&run);
  }
  return foreign;
}

/// Returns whether each run has a seed of its own within its arm.
bool SeedsAreDistinct(const std::vector<compare::Run*>& runs) {
  std::set<std::pair<std::string, int64_t>> seen;
  return std::ranges::all_of(runs, [&](const compare::Run* run) {
    const auto& p = run->log.provenance;
    return p.seed >= 0 && seen.emplace(p.arm, p.seed).second;
  });
}

/// Returns the only arm of `runs`; "" if they have several.
std::string OnlyArm(const std::vector<compare::Run*>& runs) {
  if (runs.empty()) return "";
  const std::string& arm = runs.front()->log.provenance.arm;
  const bool only = std::ranges::all_of(runs, [&](const compare::Run* run) {
    return run->log.provenance.arm == arm;
  });
  return only ? arm : "";
}

/// Gives both sides the same seeds, unless they have them already.
void PairInOrder(const std::vector<compare::Run*>& against,
                 const std::vector<compare::Run*>& judged) {
  const auto seeds = [](const std::vector<compare::Run*>& runs) {
    std::set<int64_t> all;
    for (const compare::Run* run : runs) all.insert(run->log.provenance.seed);
    return all;
  };
  if (seeds(against) == seeds(judged) || against.size() != judged.size()) {
    return;
  }
  for (size_t i = 0; i < judged.size(); ++i) {
    judged[i]->log.provenance.seed = against[i]->log.provenance.seed;
    judged[i]->log.events.push_back(
        {0, "import",
         fmt::format("It is paired by its place with {}, for the seeds that "
                     "names and logs tell differ.",
                     compare::Label(*against[i]))});
  }
}

/// Files may hold anything, so steps and losses are checked.
void RequireSteps(const compare::Run& run) {
  const runlog::StepColumns& steps = run.log.steps;
  if (!steps.step.empty() && compare::Ascend(steps.step, 1) &&
      compare::ColumnsFit(run.log)) {
    return;
  }
  ThrowError(ErrorKind::kFormat,
             "{}: {} steps with {} losses, but a log must have a loss at each "
             "of its steps, which ascend from 1. The file is damaged: export "
             "it again.",
             compare::Label(run), steps.step.size(), steps.loss_nats.size());
}

void RequireGoodRun(const compare::Run& run) {
  const auto& log = run.log;
  if (log.provenance.Knows(runlog::Fact::kExperiment)) {
    ThrowError(ErrorKind::kConfig,
               "{}: isoloss itself trained this run, but --from is for logs of "
               "other programs. Give an experiment, whose ensemble isoloss "
               "makes.",
               compare::Label(run));
  }
  if (!log.provenance.complete) {
    ThrowError(ErrorKind::kConfig,
               "{}: it ends at step {} of {}, or broke off there, and good "
               "runs go equally far. Leave it out, or give --until {}.",
               compare::Label(run), log.steps.step.back(),
               log.provenance.steps_planned, log.steps.step.back());
  }
  if (log.told.looks_smoothed ||
      log.provenance.origin.values() == runlog::LossValues::kSmoothed) {
    ThrowError(ErrorKind::kConfig,
               "{}: its losses are smoothed, and say nothing of how far good "
               "runs lie apart. Export them without smoothing.",
               compare::Label(run));
  }
  const bool finite = std::ranges::none_of(
      log.events, [](const auto& event) { return event.kind == "nonfinite"; });
  const bool positive = std::ranges::all_of(
      log.steps.loss_nats, [](double loss) { return loss > 0; });
  if (finite && positive) return;
  ThrowError(
      ErrorKind::kConfig,
      "{}: it has a loss that is not above 0, or a loss or gradient norm "
      "that is not finite, but an ensemble is made of good runs. Leave "
      "it out.",
      compare::Label(run));
}

/// A copy would make the spread of good runs smaller than it is.
void RequireOwnRuns(const std::vector<compare::Run>& runs) {
  for (size_t i = 1; i < runs.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (!compare::IsCopy(runs[i].log.steps, runs[j].log.steps)) continue;
      ThrowError(ErrorKind::kConfig,
                 "{}: every loss is that of {}, but good runs must be runs of "
                 "their own. Remove the copy; a trainer that repeats itself to "
                 "the bit needs no ensemble.",
                 compare::Label(runs[i]), compare::Label(runs[j]));
    }
  }
}

/// Returns the first good runs of an ensemble, its reference first.
std::vector<compare::Run> GoodRunsOf(const gate::NullEnsemble& given,
                                     size_t count) {
  const runlog::Ensemble& ensemble = given.ensemble;
  const std::string& file = given.file;
  const auto& members = ensemble.members;
  if (members.size() + 1 < count) {
    ThrowError(ErrorKind::kConfig,
               "{}: it holds {} good runs, but {} are to be judged against "
               "them, one each. Give fewer, or an ensemble of more.",
               file, members.size() + 1, count);
  }
  std::vector<compare::Run> runs;
  for (size_t i = 0; i < count; ++i) {
    compare::Run run;
    run.file = i == 0
                   ? fmt::format("{} (reference)", file)
                   : fmt::format("{} ({})", file, members[i - 1].perturbation);
    run.log.provenance = ensemble.provenance;
    run.log.provenance.seed = static_cast<int64_t>(i) + 1;
    run.log.steps =
        i == 0 ? members.front().reference_steps : members[i - 1].steps;
    runs.push_back(std::move(run));
  }
  return runs;
}

}  // namespace

ArmPath SplitArm(const fs::path& given) {
  const std::string text = given.string();
  const size_t sign = text.find('=');
  if (sign == std::string::npos || sign == 0 || IsThere(given)) {
    return {"", given};
  }
  const fs::path path = text.substr(sign + 1);
  if (!IsThere(path)) return {"", given};
  return {text.substr(0, sign), path};
}

bool IsForeignLog(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return foreign::IsLogFolder(path);
  if (!fs::is_regular_file(path, error)) return false;
  const fs::path extension = path.extension();
  return extension != ".h5" && extension != ".journal" && !IsJournal(path) &&
         !BeginsAsHdf5(path);
}

std::vector<compare::Run> ReadForeignRuns(const ArmPath& given,
                                          const foreign::ReadOptions& options) {
  const std::string file = Printable(given.path.string());
  std::vector<compare::Run> runs;
  for (const foreign::ForeignRun& found :
       foreign::ReadLog(given.path, options)) {
    compare::Run run;
    const std::string name = Printable(found.name);
    run.file = name.empty() ? file : fmt::format("{} ({})", file, name);
    try {
      run.log = foreign::RunLogOf(found);
    } catch (const Error& error) {
      throw Error(error.kind(), fmt::format("{}: {}", file, error.what()));
    }
    auto named = foreign::SplitName(name.empty() ? NameOf(given.path) : name);
    if (named.seed < 0 && !given.arm.empty() && name.empty()) {
      named =
          foreign::SplitName(given.arm + "-" + NameOf(given.path));  // seed1
    }
    runlog::Provenance& provenance = run.log.provenance;
    provenance.arm = given.arm.empty() ? named.arm : Printable(given.arm);
    // The arm becomes part of files' names.
    std::ranges::replace(provenance.arm, '/', '_');
    provenance.seed = named.seed >= 0 ? named.seed : found.seed.value_or(-1);
    runs.push_back(std::move(run));
  }
  return runs;
}

void NameSeeds(const std::vector<compare::Run*>& runs) {
  if (SeedsAreDistinct(runs)) return;
  std::map<std::string, int64_t> count;  // by arm
  for (compare::Run* run : runs) {
    run->log.provenance.seed = ++count[run->log.provenance.arm];
  }
}

void AlignForeignRuns(std::span<compare::Run> runs,
                      std::span<compare::Run> approved,
                      const foreign::AlignOptions& options) {
  const std::vector<compare::Run*> judged = ForeignOf(runs);
  const std::vector<compare::Run*> against = ForeignOf(approved);
  if (const std::string arm = OnlyArm(judged);
      !arm.empty() && !OnlyArm(against).empty()) {
    for (compare::Run* run : against) run->log.provenance.arm = arm;
    PairInOrder(against, judged);
  }
  std::vector<runlog::RunLog*> logs;
  for (const auto* side : {&against, &judged}) {
    for (compare::Run* run : *side) {
      RequireSteps(*run);
      logs.push_back(&run->log);
    }
  }
  if (logs.empty() &&
      (options.until || options.by != foreign::AlignBy::kStep)) {
    ThrowError(ErrorKind::kConfig,
               "--until or --align is given, but all logs are of isoloss, "
               "which judges whole runs by step. Leave it out.");
  }
  foreign::Align(logs, options);
}

std::vector<compare::Run> ApprovedOf(const std::vector<compare::Run>& runs,
                                     const EvidenceFiles& evidence) {
  const bool alone = std::ranges::all_of(runs, [&](const compare::Run& run) {
    return !run.log.provenance.Knows(runlog::Fact::kExperiment) &&
           run.log.provenance.arm == runs.front().log.provenance.arm;
  });
  const auto ensemble = std::ranges::find_if(
      evidence.ensembles, [](const gate::NullEnsemble& given) {
        return !given.ensemble.provenance.Knows(runlog::Fact::kExperiment);
      });
  if (!alone || ensemble == evidence.ensembles.end()) return {};
  return GoodRunsOf(*ensemble, runs.size());
}

runlog::Ensemble EnsembleOfLogs(std::vector<compare::Run> runs,
                                const foreign::AlignOptions& options) {
  if (runs.size() < gate::kFewestGoodRuns) {
    ThrowError(ErrorKind::kConfig,
               "ensemble build --from: {} run{}, but fewer than {} show no "
               "spread. Give more logs of good runs.",
               runs.size(), runs.size() == 1 ? "" : "s", gate::kFewestGoodRuns);
  }
  AlignForeignRuns(runs, {}, options);
  for (const compare::Run& run : runs) RequireGoodRun(run);
  RequireOwnRuns(runs);
  runlog::Ensemble ensemble;
  ensemble.kind = runlog::EnsembleKind::kBenign;
  ensemble.provenance = runs.front().log.provenance;
  runlog::Origin& origin = ensemble.provenance.origin;
  for (size_t i = 1; i < runs.size(); ++i) {
    const runlog::Origin& other = runs[i].log.provenance.origin;
    if (other.loss_values != origin.loss_values) {
      ThrowError(ErrorKind::kConfig,
                 "{}: its losses are made otherwise than those of {} (means, "
                 "or values of single steps), but good runs are logged alike. "
                 "Export all in one way.",
                 compare::Label(runs[i]), compare::Label(runs.front()));
    }
    origin.loss_half_unit =
        std::max(origin.loss_half_unit, other.loss_half_unit);
    origin.loss_thinned = origin.loss_thinned || other.loss_thinned;
    ensemble.members.push_back({.perturbation = compare::Label(runs[i]),
                                .seed = static_cast<int64_t>(i),
                                .steps = std::move(runs[i].log.steps),
                                .reference_steps = runs.front().log.steps});
  }
  ensemble.reference_provenance = ensemble.provenance;
  return ensemble;
}

}  // namespace isoloss::logs
