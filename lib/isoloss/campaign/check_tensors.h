// isoloss check-tensors: the oracle on recorded operations of any trainer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/base/threads.h"
#include "isoloss/operations/check.h"
#include "isoloss/precision/recipe.h"
#include "isoloss/report/chart.h"
#include "isoloss/runlog/probe_log.h"

namespace isoloss::campaign {

struct CheckTensorsRequest {
  std::vector<std::filesystem::path> dumps;
  std::string recipe;  ///< a name, or a file of one
  /// Of the probe log, in place of what the files say.
  std::string arm;
  std::optional<int64_t> seed;
  operations::CheckOptions options;
};

struct CheckedTensors {
  precision::Recipe recipe;
  std::vector<operations::OperationFile> files;
  std::vector<operations::Finding> findings;

  int64_t wrong() const;  ///< findings that have others
};

/// Reads all files and checks them.
/// Errors   those of ReadOperations and CheckOperations; ConfigError if files
///          are of different runs or of another recipe than the request's.
CheckedTensors CheckTensors(const CheckTensorsRequest& request,
                            ThreadTeam& team);

/// What is known of the run; its case is `plain`, its steps those of the files.
runlog::ProbeLog ProbeLogOf(const CheckedTensors& checked,
                            const CheckTensorsRequest& request);

/// What was found in one tensor, in whole sentences; "" if it is right.
std::string Sentences(const operations::Finding& finding);

/// A table of all, with sentences below what is not right, and a summary.
std::string RenderChecked(const CheckedTensors& checked,
                          const report::TextStyle& style);

}  // namespace isoloss::campaign
