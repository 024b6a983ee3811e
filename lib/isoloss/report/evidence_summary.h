// Shows probe logs and null ensembles at a glance, for `isoloss show` and
// `isoloss probe`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/document/document.h"
#include "isoloss/runlog/ensemble.h"
#include "isoloss/runlog/probe_log.h"

namespace isoloss::report {

/// No order of accumulation explains this element.
struct WorstElement {
  std::string tensor;
  int64_t step = 0;
  int64_t row = 0;
  int64_t column = 0;
  double value = 0;
  double expected = 0;  ///< the oracle's value
  double ratio = 0;     ///< error over its bound; infinite if one is not finite
};

/// The oracle found this in one case.
struct ProbeCaseSummary {
  std::string name;
  int64_t steps = 0;
  int64_t tensors = 0;   ///< compared, each step for itself
  int64_t elements = 0;  ///< compared
  int64_t unseen = 0;    ///< elements that a sample left out
  int64_t flips = 0;
  double expected_flips = 0;
  int64_t other = 0;          ///< elements
  int64_t other_tensors = 0;  ///< tensors that have such elements
  int64_t tokens = 0;         ///< routed
  int64_t token_flips = 0;
  int64_t token_other = 0;
  /// Among the elements that are not explained, this one has the largest ratio;
  /// empty if there is none.
  std::optional<WorstElement> worst;
};

struct ProbeSummary {
  std::vector<ProbeCaseSummary> cases;
  ProbeCaseSummary total;  ///< over all cases; its name is "all"
  /// The share of a tensor's elements that could be wrong and were missed with
  /// a chance of runlog::kMissChance; 0 if all were seen.
  double missed_share = 0;
  bool complete = false;  ///< all cases were probed to their last step
  /// Names later recipes that no case looked at (gate::UnprobedPhases).
  std::vector<std::string> unprobed;

  /// Returns whether rounding explains all differences, and nothing is missing.
  bool passed() const {
    return complete && total.other == 0 && total.token_other == 0;
  }
};

ProbeSummary SummarizeProbe(const runlog::ProbeLog& log);

/// Returns a row for each case, and the routing.
document::Document DocumentOf(const ProbeSummary& summary);

/// Returns one line: PASS or FAIL, why, and the exit code. `what` was probed:
/// "arm mxfp8, seed 1".
document::Document ProbeVerdict(const ProbeSummary& summary,
                                const std::string& what);

/// Says how far a quantity of a member lies from that of its reference, as
/// (member - reference) / reference.
struct Spread {
  std::string quantity;     ///< "loss_nats", "grad_norm"
  double mean = 0;          ///< of all members and steps
  double largest = 0;       ///< by absolute value
  std::string member = {};  ///< which has the largest: "reverse_k, seed 1"
  int64_t step = 0;         ///< at which it has it
};

struct EnsembleSummary {
  size_t members = 0;
  std::vector<std::string> perturbations;  ///< different ones, sorted
  int64_t steps = 0;                       ///< of each member
  std::vector<int64_t> seeds;              ///< different ones, ascending
  size_t parameters = 0;                   ///< whose norms are recorded
  size_t tensors = 0;                      ///< probed for precision
  std::vector<int64_t> probe_steps;
  std::vector<Spread> spreads;
};

EnsembleSummary SummarizeEnsemble(const runlog::Ensemble& ensemble);

document::Document DocumentOf(const EnsembleSummary& summary);

}  // namespace isoloss::report
