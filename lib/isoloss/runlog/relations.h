// Declares the rules that a run log's columns obey together.
#pragma once

#include <span>
#include <string>

#include "isoloss/runlog/domain.h"
#include "isoloss/runlog/run_log.h"

namespace isoloss::runlog {

// In the order in which the rules are written; there are few.
// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding)
struct RelationRule {
  Relation relation;
  /// `isoloss show --schema` prints this rule after a column's range.
  const char* rule;
  Fault fault;
  /// Returns the first place at which the rule is broken, with numbers; "" if
  /// it holds. Columns are as long as they must be; a rule holds for columns
  /// that were not recorded, which are empty.
  std::string (*broken)(const RunLog& log);
};

/// Each function finds where its rule is broken, as RelationRule::broken.
#define ISOLOSS_RELATION(relation, broken, ...) \
  std::string broken(const RunLog& log);
#include "isoloss/runlog/relations.def"
#undef ISOLOSS_RELATION

/// True if the run went on with another mesh, which ends /exchange.
bool ChangedMesh(const RunLog& log);

/// Returns the rules in the order of Relation.
std::span<const RelationRule> RelationRules();

}  // namespace isoloss::runlog
