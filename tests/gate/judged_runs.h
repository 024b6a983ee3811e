// What the tests of judging share: an experiment that passes.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "isoloss/gate/check_titles.h"
#include "isoloss/gate/judge.h"
#include "support/synthetic_runs.h"

namespace isoloss::gate {

using Runs = std::vector<compare::Run>;

inline Runs HealthyRuns() {
  return test_support::SyntheticExperiment({0.05, 0.06, 0.07, 0.04});
}

/// All learning rates fall from step 2 on, so that nobody knows the slope of
/// the loss against tokens.
inline Runs WithFallingRates(Runs runs) {
  for (auto& run : runs) {
    auto& rates = run.log.steps.lr;
    for (size_t i = 0; i < rates.size(); ++i) {
      rates[i] /= 1.0 + static_cast<double>(i);
    }
  }
  return runs;
}

// Index of the runs with seed 3 in HealthyRuns.
inline constexpr size_t kBaseline3 = 2;
inline constexpr size_t kCandidate3 = 6;

/// Judges the second arm against the first; runs of others are ignored.
inline Judgement JudgeArms(const Runs& runs, std::string_view baseline,
                           std::string_view candidate,
                           const Policy& policy = {}) {
  return Judge(
      compare::PairBySeed(baseline, compare::RunsOfArm(runs, baseline),
                          candidate, compare::RunsOfArm(runs, candidate)),
      policy);
}

inline Judgement JudgeRuns(const Runs& runs, const Policy& policy = {}) {
  return JudgeArms(runs, "bf16", "mxfp8", policy);
}

/// All checks that do not pass say what to do next, in one line.
inline const Check& CheckNamed(const Judgement& judgement,
                               const std::string& name) {
  for (const Check& check : judgement.checks) {
    if (check.outcome == Outcome::kPass) continue;
    EXPECT_NE(check.WhatToDo(), "") << check.level << " " << check.name;
    EXPECT_EQ(check.WhatToDo().find('\n'), std::string::npos) << check.name;
  }
  for (const Check& check : judgement.checks) {
    if (check.name == name) return check;
  }
  ADD_FAILURE() << "no check " << name;
  static const Check kNone;
  return kNone;
}

/// Whether a value of the evidence lies outside of its column's domain, which
/// ends the judgement before any level looks. It never passes then.
inline bool EndsByDomains(const Judgement& judgement) {
  for (const Check& check : judgement.checks) {
    if (check.name != "evidence_domains" || check.outcome == Outcome::kPass) {
      continue;
    }
    EXPECT_TRUE(judgement.outcome == Outcome::kFail ||
                judgement.outcome == Outcome::kInvalid);
    return true;
  }
  return false;
}

}  // namespace isoloss::gate
