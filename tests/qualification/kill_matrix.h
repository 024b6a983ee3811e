// What the gate catches: planted bugs and benign changes against its levels.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/gate/verdict.h"
#include "qualification/mutant.h"

namespace isoloss::qualification {

/// One changed run under the gate.
struct KillCell {
  int64_t seed = 0;
  /// Of each level of KillMatrix::levels on its own; empty: not judged.
  std::vector<std::optional<gate::Outcome>> levels = {};
  /// Does the ladder as a whole, in its order, let it pass?
  gate::Outcome verdict = gate::Outcome::kInvalid;
  /// What the first check as severe as the verdict found; empty for a pass.
  std::string finding = {};
  /// Of each rule of KillMatrix::peers.
  std::vector<bool> peer_accepts = {};
  std::vector<double> loss_nats = {};  ///< of each step; empty: no run
  bool bit_equal = false;  ///< losses, gradient norms and final weights
  /// First step whose loss or gradient norm differs in any bit; 0: none.
  int64_t first_different_step = 0;
  double seconds = 0;  ///< run, probe and verdict

  /// FAIL or INVALID: a CI job would stop.
  bool Caught() const;
  /// Did level number `level` catch it?
  bool CaughtBy(size_t level) const;
};

struct KillRow {
  std::string name;
  std::string group;
  Class kind = Class::kBug;
  std::string models = {};  ///< what it stands for, one sentence
  std::string link = {};    ///< a public report of it, or ""
  std::vector<KillCell> cells = {};
  /// MLPerf's rule on all seeds at once.
  bool mlperf_accepts = true;

  /// In every seed.
  bool Caught() const;
};

/// k of n with the exact (Clopper-Pearson) limits of the rate behind it.
struct Rate {
  int64_t count = 0;
  int64_t of = 0;
  double lower = 0;  ///< two-sided 95 % interval
  double upper = 1;
  double upper_one_sided = 1;  ///< 95 %
};

struct KillMatrix {
  std::string question = {};             ///< gate::QuestionName: what was asked
  std::vector<std::string> levels = {};  ///< "L0", "L1", …
  std::vector<std::string> peers = {};   ///< names of compare::PeerRules()
  std::vector<KillRow> rows = {};        ///< mutants
  std::vector<KillCell> benign = {};     ///< one benign change each
  double reference_seconds = 0;          ///< of the same work without a change

  /// Mutants of class bug that were caught in every seed.
  Rate Score() const;
  /// The same for one level or one peer's rule alone.
  Rate ScoreOfLevel(size_t level) const;
  Rate ScoreOfPeer(size_t peer) const;
  Rate ScoreOfMlperf() const;
  /// Of `benign`, those that did not pass; an inconclusive verdict counts as an
  /// alarm, but not on `precision`, which no single pair passes. Rows of class
  /// benign are left out: ensembles hold such runs.
  Rate FalseAlarms() const;
  Rate FalseAlarmsOfLevel(size_t level) const;
  Rate FalseAlarmsOfPeer(size_t peer) const;
};

}  // namespace isoloss::qualification
