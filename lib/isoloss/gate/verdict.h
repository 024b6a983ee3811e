// What a judgement consists of: plain data that reports render.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/compare/arm_summary.h"
#include "isoloss/compare/curves.h"
#include "isoloss/compare/final_window.h"
#include "isoloss/compare/first_divergence.h"
#include "isoloss/gate/policy.h"

namespace isoloss::gate {

/// In the order in which one overrules another.
enum class Outcome { kPass, kInconclusive, kFail, kInvalid };

/// "PASS", "INCONCLUSIVE", "FAIL" or "INVALID".
std::string_view OutcomeName(Outcome outcome);

/// 0 pass, 1 fail, 3 invalid, 4 inconclusive.
int ExitCode(Outcome outcome);

/// One gated question and its answer:
/// OUTCOME level name: quantity [value unit relation limit unit] (evidence);
/// next.
struct Check {
  std::string level{};  ///< "L0"
  std::string name{};   ///< "final_window"
  Outcome outcome = Outcome::kInvalid;
  /// What is measured, what holds, or what was found.
  std::string quantity{};
  std::optional<double> value{};  ///< empty where nothing is measured
  std::string relation{};         ///< e.g. "within +-"
  std::optional<double> limit{};
  std::string unit{};
  std::string evidence{};
  /// Everything found; the first of the severest is the quantity.
  std::vector<std::string> findings{};
  std::string next{};  ///< what to do or where to look; may be empty
};

/// The severest outcome; kInvalid if there is no check, so that judging nothing
/// is never a pass.
Outcome Severest(const std::vector<Check>& checks);

/// A number that is reported but not gated (docs/gate.md says why).
struct Measure {
  std::string name;
  double value = 0;
  std::string unit;
  std::string evidence;
};

struct SeedDivergence {
  int64_t seed = 0;
  /// Empty if the pair is bit-equal.
  std::optional<compare::Divergence> first;
};

/// The candidate arm against the baseline arm.
struct Judgement {
  Policy policy;
  std::string experiment;
  std::string experiment_digest;
  std::string config_digest;
  std::string corpus;
  std::string corpus_digest;
  std::string tool_version;
  std::string commit;
  int64_t steps_planned = 0;
  int64_t tokens_per_step = 0;
  int64_t parameters = 0;
  double unigram_entropy_nats = 0;  ///< NaN if unknown
  double entropy_floor_nats = 0;    ///< NaN if unknown

  compare::ArmSummary baseline;
  compare::ArmSummary candidate;
  compare::Curves curves;  ///< empty if the runs are not comparable
  std::vector<SeedDivergence> divergences;           ///< filled by level L1
  std::optional<compare::FinalWindow> final_window;  ///< filled by level L5

  std::vector<Check> checks;
  std::vector<Measure> measures;
  std::vector<std::string> warnings;
  Outcome outcome = Outcome::kInvalid;
};

}  // namespace isoloss::gate
