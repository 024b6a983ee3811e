#include "isoloss/certify/run_checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "isoloss/certify/pair_of_runs.h"
#include "isoloss/certify/settings.h"
#include "isoloss/runlog/shared_columns.h"

namespace isoloss::certify {
namespace {

/// Independent runs never take the same times in the steps that both have.
/// Equal times that are all one number were not measured.
bool HasSameClock(const runlog::RunLog& a, const runlog::RunLog& b) {
  const std::vector<double>& times = a.steps.step_seconds;
  const std::vector<double>& others = b.steps.step_seconds;
  std::set<double> met;
  for (const auto& [i, j, step] :
       runlog::MatchRows(a.steps.step, b.steps.step)) {
    if (i >= times.size() || j >= others.size() ||
        !runlog::SameBits(times[i], others[j])) {
      return false;
    }
    met.insert(times[i]);
  }
  return met.size() > 1;
}

/// Returns whether equal times show a copy. Printed times are coarse, so that a
/// few may be equal by chance; a part may go on the log of the part before.
bool IsClockTelling(const runlog::RunLog& a, const runlog::RunLog& b,
                    bool may_be_few) {
  return may_be_few || a.steps.step == b.steps.step;
}

/// A part that was resumed has fewer steps than are planned of all parts.
bool HasEnded(const runlog::RunLog& log) {
  const bool has_finished =
      std::ranges::count(log.events, "finish", &runlog::Event::kind) > 0;
  return log.provenance.complete ||
         (has_finished && !log.steps.step.empty() &&
          log.steps.step.back() >= log.provenance.steps_planned);
}

}  // namespace

void CheckCopies(size_t place, Certificate& certificate) {
  const RecordedRun& other = certificate.runs[place];
  for (size_t earlier = 0; earlier < place; ++earlier) {
    const bool tells_of_few =
        !other.has_printed_log() &&
        (certificate.gate == Gate::kRepeat || earlier == 0);
    for (const auto& [rank, run] : certificate.runs[earlier].logs) {
      const auto partner = other.logs.find(rank);
      if (partner == other.logs.end()) continue;
      const compare::Run& copy = partner->second;
      const compare::Sameness sameness = compare::SamenessOf(run, copy);
      // A program may print the same in two runs.
      if (other.has_printed_log() && sameness == compare::Sameness::kBytes) {
        certificate.lacking.push_back(
            fmt::format("{} and {} have the same bytes: if one is a copy, "
                        "nothing was compared.",
                        run.file, copy.file));
        continue;
      }
      if (sameness == compare::Sameness::kNone &&
          !(IsClockTelling(run.log, copy.log, tells_of_few) &&
            HasSameClock(run.log, copy.log))) {
        continue;
      }
      certificate.invalid.push_back(fmt::format(
          "{} and {} are one run: their logs have the same bytes, or the same "
          "times of all steps. Give the log of another run.",
          run.file, copy.file));
    }
  }
}

void CheckSettings(size_t place, Certificate& certificate) {
  const SettingsPair settings =
      CompareSettings(certificate.runs[0], certificate.runs[place]);
  if (!settings.different.empty()) {
    certificate.invalid.push_back(fmt::format(
        "{} and {} have other settings: {}. Give runs that share them.",
        certificate.names[0], certificate.names[place],
        fmt::join(settings.different, "; ")));
  }
  for (const std::string& text : settings.unknown) {
    AddOnce(text, certificate.uncertified);
  }
  for (const std::string& text : settings.remarks) {
    AddOnce(text, certificate.remarks);
  }
}

void CheckEnded(Certificate& certificate) {
  for (size_t i = 0; i < certificate.runs.size(); ++i) {
    const RecordedRun& run = certificate.runs[i];
    if (run.logs.empty()) {
      certificate.lacking.push_back(fmt::format(
          "{} has operation files and no log, so steps between them are not "
          "known.",
          certificate.names[i]));
      continue;
    }
    const bool is_before =
        certificate.gate == Gate::kRestart && i > 0 &&
        i + 1 < certificate.runs.size();  // it was interrupted
    const runlog::RunLog& log = run.log();
    if (!run.has_printed_log() && !is_before && !HasEnded(log)) {
      certificate.lacking.push_back(fmt::format(
          "{} did not end: its log ends with step {}, and {} are planned.",
          certificate.names[i],
          log.steps.step.empty() ? 0 : log.steps.step.back(),
          log.provenance.steps_planned));
    }
  }
}

void CheckFiles(Certificate& certificate) {
  for (size_t i = 0; i < certificate.runs.size(); ++i) {
    const RecordedRun& run = certificate.runs[i];
    const std::vector<int64_t> missing = run.MissingRanks();
    if (!missing.empty()) {
      certificate.lacking.push_back(fmt::format(
          "{} has no log of rank {}. Give the logs of all ranks, or merge "
          "them.",
          certificate.names[i], fmt::join(missing, ", ")));
    }
    if (run.has_printed_log() != certificate.runs[0].has_printed_log()) {
      certificate.invalid.push_back(fmt::format(
          "{} is a log of another program, with printed digits, and {} is "
          "none. Give logs of one kind.",
          certificate.runs[run.has_printed_log() ? i : 0].name,
          certificate.runs[run.has_printed_log() ? 0 : i].name));
    }
    if (!run.has_printed_log()) continue;
    AddOnce(
        "Logs of other programs hold printed digits of losses and nothing that "
        "is exact. Equal digits are weaker than equal bits: record the runs.",
        certificate.lacking);
  }
}

}  // namespace isoloss::certify
