#include "isoloss/studies/indicators.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/base/atomic_file.h"
#include "isoloss/base/error.h"
#include "isoloss/campaign/log_files.h"
#include "isoloss/compare/pair.h"
#include "isoloss/indicators/record.h"
#include "isoloss/report/indicators.h"
#include "isoloss/stats/divergence.h"
#include "isoloss/studies/indicator_recorder.h"

namespace isoloss::studies {
namespace {

namespace fs = std::filesystem;
using indicators::Indicator;
using indicators::IndicatorRun;

/// Subfolders by name.
std::vector<fs::path> FoldersIn(const fs::path& folder) {
  std::vector<fs::path> folders;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.is_directory()) folders.push_back(entry.path());
  }
  std::ranges::sort(folders);
  return folders;
}

/// A cell's experiment is named after the study's and the cell.
std::string NameWithout(const std::string& end, std::string name) {
  if (name.ends_with(end)) name.resize(name.size() - end.size());
  return name;
}

IndicatorRun IndicatorRunOf(const std::string& cell, const runlog::RunLog& log,
                            const fs::path& file) {
  IndicatorRun run{.mode = cell,
                   .arm = log.provenance.arm,
                   .seed = log.provenance.seed,
                   .steps = {},
                   .values = {}};
  const std::vector<double>& losses = log.steps.loss_nats;
  run.diverged_at = stats::DivergedAt(losses, log.provenance.steps_planned,
                                      log.provenance.complete);
  double least = std::numeric_limits<double>::infinity();
  size_t seen = 0;  // losses that `least` is of
  for (const indicators::Record& record : indicators::ReadRecords(file)) {
    const auto found = std::ranges::lower_bound(log.steps.step, record.step);
    if (found == log.steps.step.end() || *found != record.step) {
      ThrowError(ErrorKind::kFormat,
                 "{}: it holds step {}, but its run has {} steps. Remove the "
                 "study's folder and train it anew.",
                 file.string(), record.step, log.steps.step.size());
    }
    const auto place = static_cast<size_t>(found - log.steps.step.begin());
    indicators::IndicatorValues values;
    std::ranges::copy(record.values, values.begin());
    values[static_cast<size_t>(Indicator::kGradientNorm)] =
        log.steps.grad_norm[place];
    for (; seen <= place; ++seen) least = std::min(least, losses[seen]);
    values[static_cast<size_t>(Indicator::kLossRise)] = losses[place] - least;
    run.steps.push_back(record.step);
    run.values.push_back(values);
  }
  return run;
}

}  // namespace

indicators::IndicatorStatement JudgeIndicatorsOf(const fs::path& folder) {
  if (!fs::is_directory(folder / kIndicatorFolder) ||
      !fs::is_directory(folder / "cells")) {
    ThrowError(ErrorKind::kConfig,
               "{}: it holds no indicators of a study. Name the folder of one "
               "that `isoloss study stress EXPERIMENT --indicators 5` trained.",
               folder.string());
  }
  std::vector<IndicatorRun> runs;
  std::vector<std::string> notes;
  std::string experiment;
  for (const fs::path& cell : FoldersIn(folder / "cells")) {
    const std::string name = cell.filename().string();
    if (campaign::LogsIn(cell).empty()) {
      notes.push_back(fmt::format("No run of {} is there.", name));
      continue;
    }
    for (const compare::Run& run : campaign::ReadRuns({cell})) {
      experiment = NameWithout("-" + name, run.log.provenance.experiment_name);
      const fs::path file =
          IndicatorFile(folder, name, fs::path(run.file).stem().string());
      if (fs::exists(file)) {
        runs.push_back(IndicatorRunOf(name, run.log, file));
      } else {
        notes.push_back(fmt::format("{} of {} has recorded nothing.",
                                    file.stem().string(), name));
      }
    }
  }
  indicators::IndicatorStatement statement =
      indicators::JudgeIndicators(std::move(runs));
  statement.experiment = experiment;
  statement.notes = std::move(notes);
  return statement;
}

void WriteIndicators(const fs::path& folder,
                     const indicators::IndicatorStatement& statement) {
  WriteFileAtomically(folder / "indicators.json",
                      report::RenderIndicatorsJson(statement));
  WriteFileAtomically(folder / "indicators.svg",
                      report::RenderIndicatorsSvg(statement));
}

}  // namespace isoloss::studies
