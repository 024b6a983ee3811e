// Collects what the checks of one step find.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/oracle/comparison.h"
#include "isoloss/runlog/probe_log.h"

namespace isoloss::step_checks {

/// The exchanges of a step send these bytes.
struct ExchangeBytes {
  int64_t to_self = 0;
  int64_t within_nodes = 0;
  int64_t between_nodes = 0;
};

/// Collects comparisons by tensor name ("<module>_<tensor>"). Checks of
/// different tensors may use it from several threads at once.
class ReportSink {
 public:
  /// Several comparisons of one tensor are merged.
  void Add(const std::string& tensor, const oracle::Comparison& comparison);
  /// Adds a router's row; the caller sets case and step.
  void AddRouting(const runlog::OracleRoutingRow& row);

  /// Adds the comparisons and routings of `part`, which no thread may use
  /// meanwhile.
  void Merge(const ReportSink& part);

  /// Sets the step's bytes; no check may run at the same time.
  void SetBytes(const ExchangeBytes& bytes) { bytes_ = bytes; }

  /// No check may run while these are read.
  const std::map<std::string, oracle::Comparison>& comparisons() const {
    return comparisons_;
  }
  const std::vector<runlog::OracleRoutingRow>& routing() const {
    return routing_;
  }
  /// There are none without experts, or if the step lacks tensors.
  const std::optional<ExchangeBytes>& bytes() const { return bytes_; }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, oracle::Comparison> comparisons_;
  std::vector<runlog::OracleRoutingRow> routing_;
  std::optional<ExchangeBytes> bytes_;
};

}  // namespace isoloss::step_checks
