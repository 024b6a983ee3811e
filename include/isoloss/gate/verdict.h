// Defines a judgement: plain data that reports render.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/compare/arm_summary.h"
#include "isoloss/compare/curves.h"
#include "isoloss/compare/final_window.h"
#include "isoloss/compare/first_divergence.h"
#include "isoloss/gate/controls.h"
#include "isoloss/gate/looks.h"
#include "isoloss/gate/outcome.h"
#include "isoloss/gate/peer_opinion.h"
#include "isoloss/gate/policy.h"
#include "isoloss/gate/precision_measures.h"
#include "isoloss/stats/summary.h"

namespace isoloss::gate {

/// One gated question and its answer:
/// OUTCOME level name: quantity [value unit relation limit unit] (evidence);
/// next.
struct Check {
  std::string level{};   ///< "L0"; the ladder writes it, and the next two
  std::string title{};   ///< what people call it: "final loss"
  std::string remedy{};  ///< what one does about all of its kind; may be empty
  std::string name{};    ///< "final_window"
  Outcome outcome = Outcome::kInvalid;
  /// A sentence says that the value is one of this: "loss of steps 21 to 30".
  /// The ladder writes the title where a level says nothing.
  std::string subject{};
  /// Says what is measured, what holds, or what was found.
  std::string quantity{};
  std::optional<double> value{};  ///< empty where nothing is measured
  std::string relation{};         ///< e.g. "within +-"
  std::optional<double> limit{};
  /// Ends of the interval that the decision rests on; empty if there is none.
  std::optional<double> lower{};
  std::optional<double> upper{};
  std::optional<double> interval_level{};  ///< its coverage; empty likewise
  /// Of the seed pairs that a test of L5 rests on, in `unit`; empty elsewhere.
  std::optional<stats::Summary> pairs{};
  std::string unit{};
  std::string evidence{};
  /// Everything found; the first of the severest is the quantity.
  std::vector<std::string> findings{};
  std::string next{};  ///< what to do or where to look; may be empty
  /// Whether the verdict depends on it: a level that another one made
  /// unnecessary is shown, and counts for nothing.
  bool gates = true;

  /// Its own `next`, or else the remedy of one that did not pass.
  const std::string& WhatToDo() const;
};

/// FAIL if the check has findings: the first joins its evidence, and `next`
/// says what to do.
void FailOnFindings(std::string_view next, Check& check);

/// The severest outcome of those that gate; kInvalid if there is none, so that
/// judging nothing is never a pass.
Outcome Severest(std::span<const Check> checks);

/// A number that is reported but not gated (docs/gate.md says why).
struct Measure {
  std::string name;
  double value = 0;
  std::string unit;
  std::string evidence;
};

/// Compares one tensor with a null ensemble.
struct TensorFinding {
  std::string tensor;
  std::string statistic;  ///< the one furthest out
  int64_t step = 0;
  double z = 0;  ///< its deviation over its scale
  /// The probability is adjusted after Benjamini and Hochberg over all
  /// tensors.
  double adjusted_p = 1;
};

struct SeedDivergence {
  int64_t seed = 0;
  /// Empty if the pair is bit-equal.
  std::optional<compare::Divergence> first;
  /// The last step before it, and how many there are; 0 if none.
  int64_t equal_until = 0;
  int64_t equal_values = 0;
};

/// A level returns what it found. RunLadder() puts that into the verdict.
struct LevelFindings {
  std::vector<Check> checks = {};
  std::vector<Measure> measures = {};
  /// Level L1 compares the runs of each seed.
  std::vector<SeedDivergence> divergences = {};
  /// Level L1 found losses, gradient norms, held-out losses and final weights
  /// equal to the bit.
  bool bit_equal = false;
  /// Of level L1, of other programs' runs: all losses of all steps are equal,
  /// as far as their digits go, which is further than any limit. Nobody knows
  /// more.
  bool written_equal = false;
  /// Of level L1: a sentence on what equal losses leave open, such as other
  /// final weights, a tensor whose digests differ, or one log that is given
  /// twice. Empty if there is none.
  std::string equality_note = {};
  /// Level L3 lists tensors that stand out, the most unlikely first.
  std::vector<TensorFinding> tensors = {};
  /// Level L5 compares the ends of the runs.
  std::optional<compare::FinalWindow> final_window = {};
  /// The question `precision` has measures, unless there are no runs.
  std::optional<PrecisionMeasures> precision = {};

  /// Adds what another level found. Values that it did not measure stay.
  void Add(LevelFindings other);
};

/// Holds the findings of one level on its own.
struct LevelOutcome {
  std::string_view name;  ///< "L0"
  /// Empty if it had nothing to judge, or an earlier level ended the ladder.
  /// L1 under the question of regression: kPass if every bit is equal, else
  /// kFail, which it never tells the ladder.
  std::optional<Outcome> outcome = {};
  std::string title = {};  ///< what people call it: "log integrity"
  /// It can decide the question, but had nothing to judge.
  bool lacks_evidence = false;
  /// It says how to make evidence of runs that another program trained, and is
  /// empty for other runs.
  std::string remedy = {};
};

/// The candidate arm against the baseline arm: what the levels found, and what
/// it is about.
struct Judgement : LevelFindings {
  Policy policy;
  std::string experiment;
  std::string experiment_digest;
  std::string config_digest;
  std::string corpus;
  std::string corpus_digest;
  std::string tool_version;
  std::string commit;
  /// Who trained the runs, if any was not isoloss: "torchtitan, wandb_csv". Of
  /// what their logs do not tell, the fields around are empty, 0 or NaN.
  std::string origin;
  int64_t steps_planned = 0;
  /// Of another program's runs, whose logs need not have every step: "40 values
  /// of steps 1 to 400". Empty of isoloss' own.
  std::string compared_steps;
  int64_t tokens_per_step = 0;
  int64_t parameters = 0;
  double unigram_entropy_nats = 0;  ///< NaN if unknown
  double entropy_floor_nats = 0;    ///< NaN if unknown

  compare::ArmSummary baseline;
  compare::ArmSummary candidate;
  compare::Curves curves;  ///< empty if the runs are not comparable
  /// compare::RisingLoss of the runs.
  std::string rising_loss;
  std::vector<LevelOutcome> levels;
  /// This verdict used these files besides run logs: "probe FILE", …
  std::vector<std::string> evidence;
  std::vector<std::string> warnings;  ///< what weighs most comes first
  /// Other projects' rules say this of other programs' runs; it decides
  /// nothing.
  std::vector<PeerOpinion> peers;
  /// How often these seeds were tested; empty if nobody asked.
  std::optional<Looks> looks;
  /// Empty for a regression, and of runs that were stopped.
  std::optional<Controls> controls;
  Outcome outcome = Outcome::kInvalid;

  /// Names of the levels that lack evidence: "L3", …
  std::vector<std::string> WithoutEvidence() const;
};

}  // namespace isoloss::gate
