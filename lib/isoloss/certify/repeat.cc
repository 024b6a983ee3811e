#include <fmt/format.h>

#include "isoloss/base/error.h"
#include "isoloss/certify/certificate.h"
#include "isoloss/certify/pair_of_runs.h"
#include "isoloss/certify/run_checks.h"

namespace isoloss::certify {
namespace {

/// Runs with other steps are no repetition, unless they part before.
void CheckSteps(size_t place, Certificate& certificate) {
  const RecordedRun& first = certificate.runs[0];
  const RecordedRun& other = certificate.runs[place];
  for (const auto& [rank, run] : first.logs) {
    const auto partner = other.logs.find(rank);
    if (partner == other.logs.end()) continue;
    const auto& a = run.log.steps.step;
    const auto& b = partner->second.log.steps.step;
    if (a == b) continue;
    certificate.invalid.push_back(fmt::format(
        "{} has {} steps, {} to {}, but {} has {}, {} to {}. All that both "
        "have is equal. Give logs of equal steps.",
        run.file, a.size(), a.empty() ? 0 : a.front(), a.empty() ? 0 : a.back(),
        partner->second.file, b.size(), b.empty() ? 0 : b.front(),
        b.empty() ? 0 : b.back()));
    return;
  }
}

bool HaveEqualLogs(const RecordedRun& a, const RecordedRun& b) {
  for (const auto& [rank, run] : a.logs) {
    const auto partner = b.logs.find(rank);
    if (partner == b.logs.end() ||
        CompareLogs(run.log, partner->second.log, true).first) {
      return false;
    }
  }
  return !a.logs.empty();
}

/// Says which of the runs that part from the first one are equal to each other.
void CompareOthers(Certificate& certificate) {
  const std::vector<Difference>& found = certificate.differences;
  for (size_t i = 0; i < found.size(); ++i) {
    for (size_t j = i + 1; j < found.size(); ++j) {
      if (!HaveEqualLogs(certificate.runs[found[i].run],
                         certificate.runs[found[j].run])) {
        continue;
      }
      certificate.remarks.push_back(fmt::format(
          "{} and {} have equal logs.", certificate.names[found[i].run],
          certificate.names[found[j].run]));
    }
  }
}

}  // namespace

Certificate CertifyRepeat(const CertifyRequest& request, Executor& executor) {
  Certificate certificate = {.gate = Gate::kRepeat,
                             .runs = ReadRecordedRuns(request.paths)};
  const size_t count = certificate.runs.size();
  if (count < 2) {
    ThrowError(ErrorKind::kConfig,
               "certify repeat: all files are of one run, but two or more are "
               "needed. Give the logs of another run; files of one run have "
               "one name and folder.");
  }
  for (size_t i = 0; i < count; ++i) {
    certificate.names.push_back(fmt::format("run {}", i + 1));
  }
  CheckFiles(certificate);
  const bool of_one_kind = certificate.invalid.empty();
  for (size_t i = 1; i < count && of_one_kind; ++i) {
    CheckSettings(i, certificate);
    CheckCopies(i, certificate);
  }
  if (!certificate.invalid.empty()) return certificate;
  const std::string recipe = RecipeOf(request, certificate);
  for (size_t i = 1; i < count; ++i) {
    const PairQuestion question = {.other = i, .recipe = recipe};
    if (const auto found = ComparePair(question, executor, certificate)) {
      FinishCauses(/*is_at_restart=*/false, certificate.differences[*found]);
    } else {
      CheckSteps(i, certificate);
    }
  }
  CompareOthers(certificate);
  CheckEnded(certificate);
  return certificate;
}

}  // namespace isoloss::certify
