// Reads everything that a report page can be made of.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "isoloss/compare/pair.h"
#include "isoloss/document/json.h"
#include "isoloss/logs/evidence_files.h"
#include "isoloss/report/page/data.h"

namespace isoloss::verdicts {

struct ReportPlan {
  /// Takes run logs, journals, probe logs, null ensembles, two dumps of
  /// tensors, and folders of them. From a folder, the verdicts, `probes` and
  /// `dumps` of `isoloss verify` are taken, too. A file that is given twice is
  /// taken once.
  std::vector<std::filesystem::path> paths;
  std::vector<std::filesystem::path> against = {};  ///< approved logs
  std::filesystem::path verdict = {};  ///< instead of verdicts in folders
  std::string baseline = {};           ///< "": as PageContent says
};

struct ReportFiles {
  std::vector<compare::Run> runs;
  std::vector<compare::Run> approved;
  logs::EvidenceFiles evidence;  ///< probes and ensembles
  std::vector<document::Json> verdicts;
  std::shared_ptr<const document::Json> growth;
  std::vector<std::string> notes;  ///< what was left out, in sentences
  std::string baseline;

  /// The content keeps pointers into this object.
  report::PageContent Content() const;
};

/// Reads what `plan` names.
/// Errors   as logs::OpenLog, runlog::ReadProbeLog, ReadEnsemble and
/// ReadTensorDump,
///          ReadVerdictFile. ConfigError if a folder holds nothing of all this,
///          if there is one dump, or more than two were named, or if no run is
///          of the arm `baseline`.
ReportFiles ReadReportFiles(const ReportPlan& plan);

}  // namespace isoloss::verdicts
