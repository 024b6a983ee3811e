// Tiny whole runs of one experiment, executed in many ways, and what they log.
#pragma once

#include <cstddef>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "isoloss/runlog/run_log.h"
#include "isoloss/train/trainer.h"

namespace isoloss::train {

/// What is trained: of all this every bit may depend.
struct Case {
  std::string label;
  std::vector<std::string> overrides = {};
  /// Router gates are and stay 0: all scores are equal in every step.
  bool tied_gates = false;
  /// Batches that several processes can share.
  bool shareable = true;
};

/// Learned routing from the usual weights; exact ties with all tokens at the
/// first K of 256 experts, with and without bias updates; both other kinds of
/// choice; forced balance; and widths and batches that nothing divides.
const std::vector<Case>& AllCases();
const Case& CaseByLabel(const std::string& label);

/// bf16, mxfp8_rceil, mxfp8_rceil_wgrad_with_hp.
const std::vector<std::string>& AllRecipes();

/// How it is executed. "memory": `processes` trainers on as many threads of
/// this process, connected by memory links.
struct Execution {
  size_t ranks = 1;
  std::string transport = "loop";
  size_t processes = 1;
  int workers = 1;

  /// "V=8 memory n=4 W=2".
  std::string Label() const;
};

/// For messages of GoogleTest.
inline void PrintTo(const Execution& execution, std::ostream* out) {
  *out << execution.Label();
}

/// All V of {1, 2, 4, ..., 256} x {loop, threads, shuffled, memory links over n
/// of {1, 2, 4, 8} that divides V} x W of {1, 2, 5}.
std::vector<Execution> AllExecutions();

/// Exchanges that add rows up on ranks or nodes, or in BF16, and what goes with
/// them, as overrides.
struct Hierarchy {
  std::string label;
  std::vector<std::string> overrides;
};
/// For messages of GoogleTest.
inline void PrintTo(const Hierarchy& hierarchy, std::ostream* out) {
  *out << hierarchy.label;
}
const std::vector<Hierarchy>& AllHierarchies();

/// Experts kept `copies` times, their lists cut into `units`, as overrides.
std::vector<std::string> CopiesOfExperts(int copies, int units);

/// Trains 20 steps of a model with 256 experts; `more` overrides the case.
/// Returns the log of process 0.
runlog::RunLog RunOf(const Case& what, const std::string& recipe,
                     const Execution& how,
                     const std::vector<std::string>& more = {});

/// Every dataset and attribute of a log that equal runs have in common
/// (compare::ContentOf), by name.
using Content = std::map<std::string, std::string>;
Content ContentOf(const runlog::RunLog& log);

/// Without what describes the mesh: it holds for one number of ranks.
Content WithoutMesh(Content content);

/// Names of the parts that only one has or that differ. None: no bit differs.
std::vector<std::string> Differing(const Content& a, const Content& b);

}  // namespace isoloss::train
