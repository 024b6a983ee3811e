#include "isoloss/gate/ladder.h"

#include <fmt/format.h>

#include <algorithm>

namespace isoloss::gate {
namespace {

constexpr Level kLadder[] = {
    {"L0", &ClimbIntegrity, false, ""},
    {"L1", &ClimbExact, true, ""},
    {"L2", &ClimbOracle, false,
     "make a probe of the candidate with `isoloss probe` and give it with "
     "--probe"},
    {"L3", &ClimbPrecision, true,
     "make an ensemble with `isoloss ensemble build --kind seeds` and a probe "
     "with `isoloss probe`, and give them with --ensemble and --probe"},
    {"L4", &ClimbEarlyWindow, true,
     "make an ensemble with `isoloss ensemble build` and give it with "
     "--ensemble (precision: one of --kind seeds)"},
    {"L5", &ClimbFinalWindow, true, ""},
    {"L6", &ClimbSequential, true, ""},
};

bool IsRegression(const Judgement& judgement) {
  return judgement.policy.question == compare::Question::kRegression;
}

/// L0 guards all others and L6 never decides: both always run.
bool Asked(const Level& level, const Policy& policy) {
  return policy.levels.empty() || level.id == "L0" || level.id == "L6" ||
         std::ranges::count(policy.levels, level.id) != 0;
}

bool AskedByName(std::string_view id, const Policy& policy) {
  return std::ranges::count(policy.levels, id) != 0;
}

/// The outcome of the checks that a level has appended; empty if none.
std::optional<Outcome> OutcomeOf(std::string_view id,
                                 const Judgement& judgement) {
  std::optional<Outcome> outcome;
  for (const Check& check : judgement.checks) {
    if (check.level != id) continue;
    outcome = std::max(outcome.value_or(Outcome::kPass), check.outcome);
  }
  if (id == "L1" && IsRegression(judgement) && !judgement.bit_equal) {
    outcome = Outcome::kFail;
  }
  return outcome;
}

bool Passed(std::string_view id, const Judgement& judgement) {
  return OutcomeOf(id, judgement) == Outcome::kPass;
}

/// Inconclusive checks of a level count no longer.
void Release(std::string_view id, Judgement& judgement) {
  for (Check& check : judgement.checks) {
    if (check.level == id && check.outcome == Outcome::kInconclusive) {
      check.gates = false;
    }
  }
}

void ReportMissing(const Level& level, Judgement& judgement) {
  if (OutcomeOf(level.id, judgement).has_value()) return;
  judgement.checks.push_back({.level = std::string(level.id),
                              .name = "evidence",
                              .outcome = Outcome::kInconclusive,
                              .quantity = "this level has nothing to judge",
                              .next = std::string(level.remedy)});
}

/// L0 asks whether runs may be compared at all; equal bits and deviations from
/// BF16 answer one of the two questions each.
bool CanDecide(std::string_view id, const Judgement& judgement) {
  if (id == "L0") return false;
  if (id == "L1") return IsRegression(judgement);
  if (id == "L3") return !IsRegression(judgement);
  return true;
}

/// A list of levels that can't decide the question must not pass.
void ReportUndecided(Judgement& judgement) {
  const auto& listed = judgement.policy.levels;
  if (listed.empty()) return;
  const bool none = std::none_of(
      listed.begin(), listed.end(),
      [&](const std::string& id) { return CanDecide(id, judgement); });
  for (const std::string& id : listed) {
    // L0 may stand beside others.
    if (CanDecide(id, judgement) || (id == "L0" && !none)) continue;
    judgement.checks.push_back(
        {.level = id,
         .name = "levels",
         .outcome = Outcome::kInconclusive,
         .quantity = fmt::format("{} alone does not answer the question `{}`",
                                 id, QuestionName(judgement.policy.question)),
         .next = IsRegression(judgement)
                     ? "list one of L1, L2, L4 and L5 in `levels`"
                     : "list one of L2, L3, L4 and L5 in `levels`, without L1, "
                       "or ask for regression"});
  }
}

/// Has the oracle looked at every step of every judged run? Then no step is
/// left to which only statistics could speak.
bool OracleSawAllSteps(const Evidence& evidence) {
  return std::ranges::all_of(
      evidence.pairing->pairs, [&](const compare::SeedPair& pair) {
        const auto& steps = pair.candidate->log.steps.step;
        return std::ranges::any_of(
            evidence.candidate_probes, [&](const Probe& probe) {
              const auto& seen = probe.log.plain_steps.step;
              return probe.log.provenance.seed == pair.seed && !steps.empty() &&
                     !seen.empty() && seen.back() >= steps.back();
            });
      });
}

/// Which levels were enough for a regression; says what is missing if none.
void Decide(const Evidence& evidence, Judgement& judgement) {
  ReportUndecided(judgement);
  for (const Level& level : kLadder) {
    const bool listed = AskedByName(level.id, judgement.policy) &&
                        CanDecide(level.id, judgement);
    if (listed && !level.remedy.empty() && !judgement.bit_equal) {
      ReportMissing(level, judgement);
    }
  }
  if (!judgement.policy.levels.empty() || !IsRegression(judgement)) return;
  if (judgement.bit_equal) return;
  if (Passed("L2", judgement) && Passed("L4", judgement)) {
    Release("L5", judgement);
  } else if (Passed("L2", judgement) && OracleSawAllSteps(evidence)) {
    Release("L4", judgement);
    Release("L5", judgement);
  } else if (Passed("L5", judgement)) {
    Release("L2", judgement);
    Release("L4", judgement);
  } else {
    for (const Level& level : kLadder) {
      if (level.id == "L2" || level.id == "L4") {
        ReportMissing(level, judgement);
      }
    }
  }
}

void Climbing(const Evidence& evidence, const LadderOptions& options,
              Judgement& judgement) {
  bool sound = true;
  bool settled = false;
  for (const Level& level : kLadder) {
    judgement.levels.push_back({level.id});
    const bool stopped = !options.climb_all &&
                         Severest(judgement.checks) >= Outcome::kFail &&
                         !judgement.checks.empty();
    const bool skipped = (level.needs_sound_runs && (!sound || settled)) ||
                         (settled && level.id != "L2");
    if (stopped || skipped || !Asked(level, judgement.policy)) continue;
    const Climb climb = level.climb(evidence, judgement);
    settled = settled || climb == Climb::kSettled;
    judgement.levels.back().outcome = OutcomeOf(level.id, judgement);
    if (level.id == "L0") {
      sound = judgement.levels.back().outcome < Outcome::kFail;
      if (judgement.levels.back().outcome == Outcome::kInvalid) break;
    }
  }
  for (size_t i = judgement.levels.size(); i < std::size(kLadder); ++i) {
    judgement.levels.push_back({kLadder[i].id});
  }
}

}  // namespace

std::span<const Level> Ladder() { return kLadder; }

void RunLadder(const Evidence& evidence, Judgement& judgement,
               const LadderOptions& options) {
  Climbing(evidence, options, judgement);
  if (Severest(judgement.checks) < Outcome::kFail) Decide(evidence, judgement);
  judgement.outcome = Severest(judgement.checks);
}

void RunLadder(const compare::Pairing& pairing, Judgement& judgement) {
  RunLadder(Evidence{.pairing = &pairing}, judgement);
}

}  // namespace isoloss::gate
