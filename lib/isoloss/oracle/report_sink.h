// Where the checks of one step leave what they found.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "isoloss/oracle/comparison.h"
#include "isoloss/runlog/probe_log.h"

namespace isoloss::oracle {

/// Collects comparisons by tensor name ("<module>_<tensor>"). Checks of
/// different tensors may use it from several threads at once.
class ReportSink {
 public:
  /// What several checks say of one tensor is counted together.
  void Add(const std::string& tensor, const Comparison& comparison);
  /// Of a router; case and step are the caller's.
  void AddRouting(const runlog::OracleRoutingRow& row);

  bool Has(const std::string& tensor) const;
  /// Not while checks still run.
  const std::map<std::string, Comparison>& comparisons() const {
    return comparisons_;
  }
  const std::vector<runlog::OracleRoutingRow>& routing() const {
    return routing_;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, Comparison> comparisons_;
  std::vector<runlog::OracleRoutingRow> routing_;
};

}  // namespace isoloss::oracle
