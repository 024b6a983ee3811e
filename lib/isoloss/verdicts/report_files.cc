#include "isoloss/verdicts/report_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/base/nearest_name.h"
#include "isoloss/base/printable.h"
#include "isoloss/compare/arm_summary.h"
#include "isoloss/compare/dump_difference.h"
#include "isoloss/compare/error_growth.h"
#include "isoloss/logs/foreign_logs.h"
#include "isoloss/logs/log_files.h"
#include "isoloss/logs/open_log.h"
#include "isoloss/report/dump_json.h"
#include "isoloss/runlog/tensor_dump.h"
#include "isoloss/verdicts/arm_roles.h"
#include "isoloss/verdicts/judge_arms.h"
#include "isoloss/verdicts/verdict_file.h"

namespace isoloss::verdicts {
namespace {

namespace fs = std::filesystem;
using document::Json;

/// The name of a dump is RUN.dump-STEP.h5, and RUN is ARM-seedNUMBER.
struct NamedDump {
  fs::path file;
  std::string arm;
  std::string moment;  ///< "seed1.dump-3"
};

NamedDump ByName(const fs::path& file) {
  const std::string stem = file.stem().string();
  const size_t seed = stem.rfind("-seed");
  if (seed == stem.npos) return {file, stem, ""};
  return {file, stem.substr(0, seed), stem.substr(seed + 1)};
}

/// Compares how errors grow from the first dump to the second.
std::shared_ptr<const Json> GrowthOf(const fs::path& first,
                                     const fs::path& second) {
  const runlog::TensorDump a = logs::OnOneLine(runlog::ReadTensorDump, first);
  const runlog::TensorDump b = logs::OnOneLine(runlog::ReadTensorDump, second);
  Json growth = report::DumpComparisonJson(a, b, compare::CompareDumps(a, b),
                                           compare::MeasureErrorGrowth(a, b));
  return std::make_shared<const Json>(std::move(growth));
}

class FilesReader {
 public:
  explicit FilesReader(const ReportPlan& plan) : plan_(plan) {}

  ReportFiles Read() && {
    for (const fs::path& path : plan_.paths) {
      if (!IsNew(path)) continue;
      std::error_code error;
      if (fs::is_directory(path, error) && !logs::IsForeignLog(path)) {
        ReadFolder(path);
      } else {
        ReadFile(path);
      }
    }
    if (!plan_.verdict.empty())
      files_.verdicts = ReadVerdictFile(plan_.verdict);
    files_.approved = logs::ReadRuns(plan_.against);
    files_.baseline = plan_.baseline;
    CheckBaseline();
    if (!dumps_.empty()) {
      files_.growth = GrowthOf(dumps_[0], GivenDump(1));
    } else {
      ChooseDumps();
    }
    NoteOtherRuns();
    return std::move(files_);
  }

 private:
  /// Returns false if the file was given before, alone or in its folder, by any
  /// name. A run that stands twice would count twice in the means.
  bool IsNew(const fs::path& path) {
    std::error_code error;
    const fs::path file = fs::canonical(path, error);
    if (error) return true;  // reported when it is read
    if (taken_.insert(file).second) return true;
    files_.notes.push_back(fmt::format("{} was given twice and is taken once.",
                                       Printable(path.string())));
    return false;
  }

  /// The content of the file tells its kind.
  void ReadFile(const fs::path& file) {
    if (logs::IsForeignLog(file)) {
      std::ranges::move(logs::ReadRuns({file}),
                        std::back_inserter(files_.runs));
      return;
    }
    const hdf5::FileKind* kind =
        logs::IsJournal(file) ? nullptr : hdf5::KindOf(file);
    if (kind == nullptr || kind->version == hdf5::kRunLogFile.version) {
      logs::OpenedLog opened = logs::OpenLog(file);
      if (!opened.note.empty()) files_.notes.push_back(opened.note + ".");
      files_.runs.push_back({Printable(file.string()), std::move(opened.log)});
    } else if (kind->version == hdf5::kProbeLogFile.version) {
      logs::ReadProbes({file}, files_.evidence);
    } else if (kind->version == hdf5::kEnsembleFile.version) {
      logs::ReadEnsembles({file}, files_.evidence);
    } else {
      dumps_.push_back(file);
    }
  }

  void ReadFolder(const fs::path& folder) {
    size_t found = 0;
    size_t unfinished = 0;
    for (const fs::path& file : logs::LogsIn(folder)) {
      if (logs::IsPartial(file)) {
        ++unfinished;
      } else if (hdf5::KindOf(file) == &hdf5::kTensorDumpFile) {
        lying_dumps_.push_back(ByName(file));
      } else {
        if (IsNew(file)) ReadFile(file);
        ++found;
      }
    }
    if (unfinished > 0) {
      files_.notes.push_back(fmt::format(
          "{} runs in {} have not ended and are left out; --watch shows them.",
          unfinished, Printable(folder.string())));
    }
    found += ReadVerdicts(folder);
    std::error_code error;
    if (fs::is_directory(folder / logs::kProbeFolder, error)) {
      for (const fs::path& file : logs::LogsIn(folder / logs::kProbeFolder)) {
        if (IsNew(file)) logs::ReadProbes({file}, files_.evidence);
        ++found;
      }
    }
    if (fs::is_directory(folder / runlog::kDumpFolder, error)) {
      for (const fs::path& file : logs::LogsIn(folder / runlog::kDumpFolder)) {
        lying_dumps_.push_back(ByName(file));
      }
    }
    if (found == 0 && lying_dumps_.empty()) {
      ThrowError(ErrorKind::kConfig,
                 "{}: the folder holds 0 logs (NAME.h5) and verdicts, and {} "
                 "runs that have not ended (NAME.partial.h5), but a page needs "
                 "at least 1. Give another folder, or --watch.",
                 folder.string(), unfinished);
    }
  }

  /// With several candidates, verdict.json holds all that the other files do.
  /// Returns how many verdicts there are.
  size_t ReadVerdicts(const fs::path& folder) {
    if (!plan_.verdict.empty()) return 0;
    std::vector<fs::path> files;
    std::error_code error;
    if (fs::exists(folder / kVerdictFile, error)) {
      files = {folder / kVerdictFile};
    } else {
      files = VerdictsIn(folder);
    }
    for (const fs::path& file : files) {
      std::ranges::move(ReadVerdictFile(file),
                        std::back_inserter(files_.verdicts));
    }
    return files.size();
  }

  /// Returns the dump at `place` among those that were named.
  const fs::path& GivenDump(size_t place) const {
    if (dumps_.size() == 2) return dumps_[place];
    ThrowError(ErrorKind::kConfig,
               "{}: {} dumps of tensors are given, but two show how errors "
               "grow from one run to the other. Give two.",
               dumps_.front().string(), dumps_.size());
  }

  /// Chooses from the dumps in folders two of one step and seed. One belongs to
  /// the baseline. The other one belongs to the first candidate, or else to the
  /// first arm that is not the baseline.
  void ChooseDumps() {
    if (lying_dumps_.size() < 2 || files_.runs.empty()) return;
    std::vector<std::string> arms;
    for (const Json& verdict : files_.verdicts) {
      arms.push_back(verdict["candidate"]["arm"]);
    }
    for (const NamedDump& dump : lying_dumps_) arms.push_back(dump.arm);
    const std::string baseline =
        !files_.verdicts.empty()
            ? files_.verdicts[0]["baseline"]["arm"].get<std::string>()
        : !files_.baseline.empty()
            ? files_.baseline
            : files_.runs.front().log.provenance.baseline_arm;
    for (const std::string& arm : arms) {
      if (arm == baseline) continue;
      for (const NamedDump& first : lying_dumps_) {
        for (const NamedDump& second : lying_dumps_) {
          if (first.arm == baseline && second.arm == arm &&
              first.moment == second.moment) {
            return TakeDumps(first.file, second.file);
          }
        }
      }
    }
    files_.notes.push_back(
        "No two dumps of tensors are of the same seed and step of the baseline "
        "and another arm, so that none is shown.");
  }

  void TakeDumps(const fs::path& first, const fs::path& second) {
    files_.growth = GrowthOf(first, second);
    if (lying_dumps_.size() == 2) return;
    files_.notes.push_back(
        fmt::format("Of {} dumps of tensors the page compares two, {} and {}.",
                    lying_dumps_.size(), Printable(first.string()),
                    Printable(second.string())));
  }

  void CheckBaseline() const {
    if (files_.baseline.empty()) return;
    const std::vector<std::string> arms = ArmsOf(files_.runs);
    if (std::ranges::count(arms, files_.baseline) != 0) return;
    ThrowError(ErrorKind::kConfig,
               "report: --baseline is `{}`, but the runs are of arms {}. Give "
               "one of them.{}",
               files_.baseline, fmt::join(arms, ", "),
               DidYouMean(files_.baseline, arms));
  }

  /// Returns a run with these final weights; null if there is none.
  static const compare::Run* RunWith(const std::vector<compare::Run>& runs,
                                     const Json& weights) {
    const auto found = std::ranges::find_if(runs, [&](const auto& run) {
      return run.log.provenance.final_weights_digest == weights;
    });
    return found == runs.end() ? nullptr : &*found;
  }

  /// Returns whether the final losses of an arm in a verdict differ from those
  /// of its runs here. The verdict's file has them with all digits.
  static bool HasOtherLosses(const Json& verdict, const Json& arm,
                             const std::vector<const compare::Run*>& runs) {
    constexpr double kDigits = 1e-9;
    const auto& policy = verdict["policy"];
    const auto share = policy.find("window_share");
    const bool foreign = std::ranges::any_of(runs, [](const auto* run) {
      return !run->log.provenance.Knows(
          runlog::Fact::kBits);  // the page may align otherwise
    });
    if (foreign || share == policy.end() || !share->is_number() ||
        !(*share > 0 && *share <= 1)) {
      return false;
    }
    const auto now = compare::SummarizeArm("", runs, share->get<double>());
    for (const auto& [key, value] :
         {std::pair("final_loss_nats", now.final_loss_nats),
          std::pair("held_out_loss_nats", now.held_out_loss_nats)}) {
      const auto then = arm.find(key);
      if (!value || then == arm.end() || !then->is_number()) continue;
      const double apart = std::fabs(*value - then->get<double>());
      if (!(apart <= kDigits * std::fabs(*value))) return true;
    }
    return false;
  }

  /// Adds a note if a verdict was given on runs that the page lacks.
  void NoteOtherRuns() {
    for (const Json& verdict : files_.verdicts) {
      for (const char* side : {"baseline", "candidate"}) {
        const Json& arm = verdict[side];
        std::vector<const compare::Run*> runs;
        for (const Json& run : arm["runs"]) {
          const Json& weights = run["final_weights_digest"];
          const bool approved = side == std::string_view("baseline");
          const compare::Run* found =
              approved ? RunWith(files_.approved, weights) : nullptr;
          if (found == nullptr) found = RunWith(files_.runs, weights);
          if (found == nullptr) found = RunWith(files_.approved, weights);
          if (found == nullptr) {
            files_.notes.push_back(fmt::format(
                "The verdict on arm {} speaks of runs that are not on this "
                "page, such as {}.",
                verdict["candidate"]["arm"].get<std::string>(),
                run["file"].get<std::string>()));
            return;
          }
          runs.push_back(found);
        }
        if (!HasOtherLosses(verdict, arm, runs)) continue;
        files_.notes.push_back(fmt::format(
            "The verdict on arm {} was given on other losses of arm {} than "
            "those on this page. Judge these runs again.",
            verdict["candidate"]["arm"].get<std::string>(),
            arm["arm"].get<std::string>()));
        return;
      }
    }
  }

  const ReportPlan& plan_;
  ReportFiles files_;
  std::set<fs::path> taken_;
  std::vector<fs::path> dumps_;         // named on the command line
  std::vector<NamedDump> lying_dumps_;  // in folders
};

}  // namespace

report::PageContent ReportFiles::Content() const {
  return {.runs = runs,
          .approved = approved,
          .verdicts = &verdicts,
          .baseline = baseline,
          .probes = evidence.probes,
          .ensembles = evidence.ensembles,
          .growth = growth.get(),
          .notes = notes};
}

ReportFiles ReadReportFiles(const ReportPlan& plan) {
  return FilesReader(plan).Read();
}

}  // namespace isoloss::verdicts
