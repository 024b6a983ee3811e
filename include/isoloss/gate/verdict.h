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

/// A check asks one question and holds its answer, which reports show as:
/// OUTCOME level name: quantity [value unit relation limit unit] (evidence);
/// next.
struct Check {
  std::string level{};   ///< "L0"; the ladder writes it, and the next two
  std::string title{};   ///< what people call it: "final loss"
  std::string remedy{};  ///< what one does about all of its kind; may be empty
  std::string name{};    ///< "final_window"
  Outcome outcome = Outcome::kInvalid;
  /// A sentence calls the value by this phrase: "loss of steps 21 to 30". If a
  /// level leaves it empty, the ladder writes the title.
  std::string subject{};
  /// Says what was measured or found, or what holds.
  std::string quantity{};
  std::optional<double> value{};  ///< empty where nothing is measured
  std::string relation{};         ///< e.g. "within +-"
  std::optional<double> limit{};
  /// The decision rests on the interval with these ends; empty if there is
  /// none.
  std::optional<double> lower{};
  std::optional<double> upper{};
  std::optional<double> interval_level{};  ///< its coverage; empty likewise
  /// A test of L5 rests on these seed pairs, in `unit`. Empty for all
  /// remaining checks.
  std::optional<stats::Summary> pairs{};
  std::string unit{};
  std::string evidence{};
  /// The first of the severest findings becomes the quantity.
  std::vector<std::string> findings{};
  std::string next{};  ///< what to do or where to look; may be empty
  /// Whether the verdict depends on this check. A level that another level
  /// made unnecessary is shown, but its checks do not gate.
  bool gates = true;

  /// Returns the check's own `next`. If that is empty and the check did not
  /// pass, it returns the remedy.
  const std::string& WhatToDo() const;
};

/// Makes the check FAIL if it has findings: the first joins its evidence, and
/// `next` becomes its advice.
void FailOnFindings(std::string_view next, Check& check);

/// Returns the severest outcome of the checks that gate. It is kInvalid if
/// there is none, so that an empty judgement is never a pass.
Outcome Severest(std::span<const Check> checks);

/// Holds a number that is reported but not gated (docs/gate.md says why).
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
  /// The pair may be bit-equal; then this is empty.
  std::optional<compare::Divergence> first;
  /// The first divergence comes after these: the last equal step and the
  /// number of equal steps. Both are 0 if there is no such step.
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
  /// Level L1 sets this for runs of another program. All losses of all steps
  /// are equal up to the last digit written, which is finer than any limit.
  bool written_equal = false;
  /// This sentence of level L1 says what equal losses leave open: different
  /// final weights, a tensor whose digests differ, or one log that is given
  /// twice. Empty if nothing is open.
  std::string equality_note = {};
  /// Level L3 has found that these tensors stand out. The most unlikely comes
  /// first.
  std::vector<TensorFinding> tensors = {};
  /// Level L5 compares the ends of the runs.
  std::optional<compare::FinalWindow> final_window = {};
  /// Set for the question `precision`, unless there are no runs.
  std::optional<PrecisionMeasures> precision = {};

  /// Adds the findings of another level. Values that it did not measure stay.
  void Add(LevelFindings other);
};

/// Holds the findings of one level on its own.
struct LevelOutcome {
  std::string_view name;  ///< "L0"
  /// Empty if the level had nothing to judge, or an earlier level ended the
  /// ladder. For a regression L1 has kPass if every bit is equal, else kFail,
  /// which it never tells the ladder.
  std::optional<Outcome> outcome = {};
  std::string title = {};  ///< what people call it: "log integrity"
  /// The level can decide the question, but had nothing to judge.
  bool lacks_evidence = false;
  /// Says how to make the level's evidence for runs that another program
  /// trained. Empty for isoloss' own runs.
  std::string remedy = {};
};

/// Describes the candidate arm, the baseline arm and all that the levels found
/// about them.
struct Judgement : LevelFindings {
  Policy policy;
  std::string experiment;
  std::string experiment_digest;
  std::string config_digest;
  std::string corpus;
  std::string corpus_digest;
  std::string tool_version;
  std::string commit;
  /// Names the programs that trained the runs, if isoloss did not train them
  /// all: "torchtitan, wandb_csv". A fact that their logs do not tell is
  /// empty, 0 or NaN in the fields around.
  std::string origin;
  int64_t steps_planned = 0;
  /// Says which steps were compared if another program trained the runs, whose
  /// logs need not have every step: "40 values of steps 1 to 400". Empty for
  /// isoloss' own runs.
  std::string compared_steps;
  int64_t tokens_per_step = 0;
  int64_t parameters = 0;
  double unigram_entropy_nats = 0;  ///< NaN if unknown
  double entropy_floor_nats = 0;    ///< NaN if unknown

  compare::ArmSummary baseline;
  compare::ArmSummary candidate;
  compare::Curves curves;  ///< empty if the runs are not comparable
  /// Holds compare::RisingLoss of the runs.
  std::string rising_loss;
  /// Says that nobody judged the learning rate of a verdict on precision; empty
  /// if a check did.
  std::string rate_note;
  std::vector<LevelOutcome> levels;
  /// The verdict has used these files besides run logs: "probe FILE", …
  std::vector<std::string> evidence;
  std::vector<std::string> warnings;  ///< what weighs most comes first
  /// Says how the rules of different projects judge another program's runs.
  /// These opinions decide nothing.
  std::vector<PeerOpinion> peers;
  /// Says how often these seeds were tested; empty if nobody asked.
  std::optional<Looks> looks;
  /// Empty for a regression and for runs that were stopped.
  std::optional<Controls> controls;
  Outcome outcome = Outcome::kInvalid;

  /// Returns the names of the levels that lack evidence: "L3", …
  std::vector<std::string> WithoutEvidence() const;
};

/// Returns the severest outcome of the judgements. It is kInvalid if there is
/// none, so that a call that judged nothing does not pass.
Outcome Severest(std::span<const Judgement> judgements);

}  // namespace isoloss::gate
