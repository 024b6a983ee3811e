// Implements isoloss check-tensors, which runs the oracle on recorded
// operations of any trainer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/base/executor.h"
#include "isoloss/document/chart.h"
#include "isoloss/operations/audit.h"
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
  /// Modules are audited.
  bool audits = false;
  /// Audited modules must be as the recipe says, and named by a pattern.
  bool expects_recipe = false;
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
  /// They tell of each linear module how it was computed, if that was asked.
  std::vector<operations::ModuleAudit> audits = {};
  /// Sentences name audited modules that are not as expected.
  std::vector<std::string> unexpected = {};

  /// Returns whether bits of any product were predicted.
  bool has_known_sums() const;
  int64_t left_out() const;    ///< modules that are not quantised
  int64_t wrong() const;       ///< findings with elements that differ
  int64_t not_finite() const;  ///< tensors that were to be finite
  /// Returns whether nothing but differing elements could forbid a PASS.
  bool is_complete() const;
  /// Returns FAIL if elements differ, a parameter or moment is not finite after
  /// its step, or a module is not as expected. Returns INCONCLUSIVE if nothing
  /// was compared, an input or result is not finite, or an open point forbids a
  /// PASS.
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

/// Names a product's quantised operands, such as "quantised" or "x only".
std::string AuditName(const operations::ModuleAudit& audit,
                      precision::GemmRole role);
/// Names the evidence of a product: "results", "codes", "grid" or "declared".
std::string_view EvidenceName(operations::AuditEvidence evidence);

/// Lists audited modules that are not as the recipe says, or that no pattern
/// names, in whole sentences.
std::vector<std::string> UnexpectedModules(
    const std::vector<operations::ModuleAudit>& audits);

/// Prints a table of the audited modules. Modules that differ by numbers in
/// their names alone share a row.
std::string RenderAudit(const CheckedTensors& checked,
                        const document::TextStyle& style);

/// Prints a table of the tensors with elements that differ, each with what
/// explains them, and a summary. With `all` the tensors that are right come
/// after them.
std::string RenderChecked(const CheckedTensors& checked, bool all,
                          const document::TextStyle& style);

}  // namespace isoloss::inspection
