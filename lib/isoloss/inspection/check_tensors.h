// Implements isoloss check-tensors, which runs the oracle on recorded
// operations of any trainer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/base/executor.h"
#include "isoloss/document/chart.h"
#include "isoloss/operations/check.h"
#include "isoloss/precision/recipe.h"
#include "isoloss/runlog/probe_log.h"
#include "isoloss/system/exit_code.h"

namespace isoloss::inspection {

struct CheckTensorsRequest {
  std::vector<std::filesystem::path> dumps;
  std::string recipe;  ///< a name, or a file of one
  /// The probe log takes these, instead of what the files say.
  std::string arm;
  std::optional<int64_t> seed;
  operations::CheckOptions options;
};

/// Counts elements of one tensor that are not finite. A logit, score or bias of
/// minus infinity masks an entry and does not count.
struct NonFiniteTensor {
  size_t file = 0;
  size_t operation = 0;
  std::string tensor = {};
  int64_t elements = 0;
  int64_t of = 0;
  /// True for the gradient of a step that is skipped because of it.
  bool is_expected = false;

  bool is_state_after() const { return tensor.ends_with("_after"); }
};

struct CheckedTensors {
  precision::Recipe recipe;
  std::vector<operations::OperationFile> files;
  std::vector<operations::Finding> findings;
  std::vector<NonFiniteTensor> non_finite = {};
  std::vector<operations::OpenPoint> open = {};
  /// If the recipe quantises, each linear module has an entry, which says
  /// whether it is quantised and why.
  std::vector<operations::ModuleChoice> modules = {};
  /// These are sentences about the patterns that chose the modules.
  std::vector<std::string> pattern_remarks = {};

  /// Returns whether bits of any product were predicted.
  bool has_known_sums() const;
  int64_t left_out() const;    ///< modules that are not quantised
  int64_t wrong() const;       ///< findings with elements that differ
  int64_t not_finite() const;  ///< tensors that were to be finite
  /// Returns whether nothing but differing elements could forbid a PASS.
  bool is_complete() const;
  /// Returns FAIL if elements differ, or if a parameter or moment is not finite
  /// after its step. Returns INCONCLUSIVE if nothing was compared, an input or
  /// result is not finite, or an open point forbids a PASS.
  system::ExitCode Outcome() const;
};

/// Reads all files and checks them.
/// Errors   those of ReadOperations and CheckOperations; ConfigError if files
///          are of different runs or of another recipe than the request's.
CheckedTensors CheckTensors(const CheckTensorsRequest& request,
                            Executor& executor);

/// Returns what is known of the run as a probe log. Its case is `plain`, its
/// steps those of the files.
runlog::ProbeLog ProbeLogOf(const CheckedTensors& checked,
                            const CheckTensorsRequest& request);

/// Describes the finding on one tensor in whole sentences; "" if the tensor is
/// right.
std::string Sentences(const operations::Finding& finding);

/// Prints a table of the tensors with elements that differ, each with what
/// explains them, and a summary. With `all` the tensors that are right come
/// after them.
std::string RenderChecked(const CheckedTensors& checked, bool all,
                          const document::TextStyle& style);

}  // namespace isoloss::inspection
