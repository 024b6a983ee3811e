// Where the checks of one step leave what they found.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/oracle/comparison.h"
#include "isoloss/runlog/probe_log.h"

namespace isoloss::oracle {

/// Bytes that the exchanges of a step move.
struct ExchangeBytes {
  int64_t to_self = 0;
  int64_t within_nodes = 0;
  int64_t between_nodes = 0;
};

/// Collects comparisons by tensor name ("<module>_<tensor>"). Checks of
/// different tensors may use it from several threads at once.
class ReportSink {
 public:
  /// What several checks say of one tensor is counted together.
  void Add(const std::string& tensor, const Comparison& comparison);
  /// Of a router; case and step are the caller's.
  void AddRouting(const runlog::OracleRoutingRow& row);

  /// Adds what `part` has of comparisons and routings. Nobody may use `part`
  /// meanwhile.
  void Merge(const ReportSink& part);

  /// Of the step; not while checks still run.
  void SetBytes(const ExchangeBytes& bytes) { bytes_ = bytes; }

  /// Not while checks still run.
  const std::map<std::string, Comparison>& comparisons() const {
    return comparisons_;
  }
  const std::vector<runlog::OracleRoutingRow>& routing() const {
    return routing_;
  }
  /// None without experts, or where the step lacks tensors.
  const std::optional<ExchangeBytes>& bytes() const { return bytes_; }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, Comparison> comparisons_;
  std::vector<runlog::OracleRoutingRow> routing_;
  std::optional<ExchangeBytes> bytes_;
};

}  // namespace isoloss::oracle
