#include "isoloss/gate/ladder.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/gate/check_titles.h"

namespace isoloss::gate {

#define ISOLOSS_LEVEL(name) extern const Level kLevel_##name;
#include "isoloss/gate/levels.def"
#undef ISOLOSS_LEVEL

namespace {

constexpr const Level* kLadder[] = {
#define ISOLOSS_LEVEL(name) &kLevel_##name,
#include "isoloss/gate/levels.def"
#undef ISOLOSS_LEVEL
};

using enum LevelId;

bool IsRegression(const Judgement& judgement) {
  return judgement.policy.question == compare::Question::kRegression;
}

/// L5 is always listed under the question of precision. Only whole runs say
/// how training ends, and a faithful emulation of a bad recipe passes all
/// remaining levels.
bool IsListed(const Level& level, const Policy& policy) {
  return std::ranges::count(policy.levels, level.name) != 0 ||
         (policy.question == compare::Question::kPrecision &&
          level.id == l5_final_window);
}

/// A list says which levels must have evidence. Evidence for a level that the
/// list omits is judged as well, so that no list can hide a bad probe.
bool IsAsked(const Level& level, const Policy& policy) {
  return policy.levels.empty() || level.decides == Decides::kNeither ||
         level.decides == Decides::kNoneAlone || !level.remedy.empty() ||
         IsListed(level, policy);
}

bool CanDecide(const Level& level, const Judgement& judgement) {
  return CanDecide(level, judgement.policy.question);
}

/// Returns "L1, L2": all levels that can decide the question.
std::string Deciders(Levels levels, const Judgement& judgement) {
  std::string names;
  for (const Level* level : levels) {
    if (!CanDecide(*level, judgement)) continue;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", level->name);
  }
  return names;
}

/// Returns the outcome of the checks that a level has appended; empty if there
/// is none.
std::optional<Outcome> OutcomeOf(std::string_view level,
                                 const Judgement& judgement) {
  std::optional<Outcome> outcome;
  for (const Check& check : judgement.checks) {
    if (check.level != level) continue;
    outcome = std::max(outcome.value_or(Outcome::kPass), check.outcome);
  }
  return outcome;
}

bool Passed(LevelId id, const Judgement& judgement) {
  return OutcomeOf(LevelName(id), judgement) == Outcome::kPass;
}

/// Makes inconclusive checks of a level count no longer.
void Release(std::string_view level, Judgement& judgement) {
  for (Check& check : judgement.checks) {
    if (check.level == level && check.outcome == Outcome::kInconclusive) {
      check.gates = false;
    }
  }
}

/// Only FAIL and INVALID count for levels that a list omits. A recipe that the
/// oracle does not know still counts, because nobody chose to leave it out.
void ReleaseUnlisted(const Evidence& evidence, Levels levels,
                     Judgement& judgement) {
  if (judgement.policy.levels.empty()) return;
  for (const Level* level : levels) {
    const bool is_gap = level->id == l2_oracle && !evidence.oracle_gap.empty();
    if (level->remedy.empty() || is_gap || IsListed(*level, judgement.policy)) {
      continue;
    }
    Release(level->name, judgement);
  }
}

void AddCheck(std::string_view level, Check check, Judgement& judgement) {
  Entitle(level, check);
  judgement.checks.push_back(std::move(check));
}

void ReportMissing(const Level& level, const Evidence& evidence,
                   Judgement& judgement) {
  if (OutcomeOf(level.name, judgement).has_value()) return;
  const std::string_view remedy =
      evidence.pairing->Knows(runlog::Fact::kExperiment) ? level.remedy
                                                         : level.foreign_remedy;
  AddCheck(level.name,
           {.name = "evidence",
            .outcome = Outcome::kInconclusive,
            .quantity = "this level has nothing to judge",
            .next = std::string(remedy)},
           judgement);
}

/// A list must not pass if its levels can't decide the question.
void ReportUndecided(Levels levels, Judgement& judgement) {
  const bool none = std::ranges::none_of(levels, [&](const Level* level) {
    return IsListed(*level, judgement.policy) && CanDecide(*level, judgement);
  });
  for (const std::string& name : judgement.policy.levels) {
    const auto found = std::ranges::find(
        levels, name, [](auto* level) { return level->name; });
    const bool known = found != levels.end();
    if (known && CanDecide(**found, judgement)) continue;
    const bool guards = known && (*found)->decides == Decides::kNoneAlone;
    if (guards && !none) continue;
    AddCheck(
        name,
        {.name = "levels",
         .outcome = Outcome::kInconclusive,
         .quantity = fmt::format("{} alone does not answer the question `{}`",
                                 name, QuestionName(judgement.policy.question)),
         .next = fmt::format("list one of {} in `levels`{}",
                             Deciders(levels, judgement),
                             guards ? "" : fmt::format(", without {}", name))},
        judgement);
  }
}

/// Whether a probe is of another program, which recorded only some operations
/// of some steps. Their being right says nothing of the operations that nobody
/// looked at.
bool OracleSawSome(const Evidence& evidence) {
  return std::ranges::any_of(evidence.candidate_probes, [](const Probe& probe) {
    return !probe.log.provenance.Knows(runlog::Fact::kGraph);
  });
}

/// Has the oracle looked at every step of every judged run? Then no step is
/// left for statistics to judge.
bool OracleSawAllSteps(const Evidence& evidence) {
  if (OracleSawSome(evidence)) return false;
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

/// Says which levels were enough, or which evidence is missing if none was.
void Decide(const Evidence& evidence, Levels levels, Judgement& judgement) {
  ReportUndecided(levels, judgement);
  ReleaseUnlisted(evidence, levels, judgement);
  for (const Level* level : levels) {
    if (IsListed(*level, judgement.policy) && CanDecide(*level, judgement) &&
        !level->remedy.empty() && !judgement.bit_equal) {
      ReportMissing(*level, evidence, judgement);
    }
  }
  if (!IsRegression(judgement)) {
    ReportMissing(kLevel_l5_final_window, evidence, judgement);
    return;
  }
  if (!judgement.policy.levels.empty() || judgement.bit_equal) return;
  if (judgement.written_equal) {
    Release(LevelName(l2_oracle), judgement);
    Release(LevelName(l4_early_window), judgement);
    Release(LevelName(l5_final_window), judgement);
  } else if (Passed(l2_oracle, judgement) && !OracleSawSome(evidence) &&
             Passed(l4_early_window, judgement)) {
    Release(LevelName(l1_exact), judgement);
    Release(LevelName(l5_final_window), judgement);
  } else if (Passed(l2_oracle, judgement) && OracleSawAllSteps(evidence)) {
    Release(LevelName(l4_early_window), judgement);
    Release(LevelName(l5_final_window), judgement);
  } else if (Passed(l5_final_window, judgement)) {
    Release(LevelName(l1_exact), judgement);
    Release(LevelName(l2_oracle), judgement);
    Release(LevelName(l4_early_window), judgement);
  } else {
    ReportMissing(kLevel_l2_oracle, evidence, judgement);
    ReportMissing(kLevel_l4_early_window, evidence, judgement);
  }
}

/// Runs the level, names its checks and returns its outcome.
std::optional<Outcome> Run(const Level& level, const Evidence& evidence,
                           Judgement& judgement) {
  LevelFindings found = level.run(evidence, judgement.policy);
  for (Check& check : found.checks) Entitle(level.name, check);
  judgement.Add(std::move(found));
  // Bits that differ are no failure of a regression, so there is no check of
  // them.
  if (level.id == l1_exact && IsRegression(judgement) && !judgement.bit_equal &&
      !judgement.written_equal &&
      !OutcomeOf(level.name, judgement).has_value()) {
    return Outcome::kFail;
  }
  return OutcomeOf(level.name, judgement);
}

/// No two levels may share a name, which marks their checks, or an id, which
/// says what they may settle.
void RefuseTaken(Levels levels) {
  for (const Level* level : levels) {
    const auto alike = [&](const Level* other) {
      return other->id == level->id || other->name == level->name;
    };
    const bool registered = std::ranges::any_of(
        kLadder, [&](auto* other) { return other != level && alike(other); });
    if (!registered && std::ranges::count_if(levels, alike) == 1) continue;
    ThrowError(ErrorKind::kConfig,
               "RunLadder: another level has the name `{}` or the id {}, but "
               "each level needs its own. Give a program's levels ids from "
               "{} on, and names that no other level has.",
               level->name, static_cast<int>(level->id),
               static_cast<int>(kFirstOther));
  }
}

void Climb(const Evidence& evidence, const LadderOptions& options,
           Judgement& judgement) {
  for (const Level* level : options.levels) {
    judgement.levels.push_back(
        {.name = level->name, .title = std::string(level->title)});
  }
  bool sound = true;
  for (size_t i = 0; i < options.levels.size(); ++i) {
    const Level& level = *options.levels[i];
    const bool stopped = !options.climb_all && !judgement.checks.empty() &&
                         Severest(judgement.checks) >= Outcome::kFail;
    const bool settled = judgement.bit_equal && IsRegression(judgement);
    const bool skipped =
        level.needs == Needs::kSoundRuns && (!sound || settled);
    if (stopped || skipped || !IsAsked(level, judgement.policy)) continue;
    auto& outcome = judgement.levels[i].outcome;
    outcome = Run(level, evidence, judgement);
    if (level.id != l0_integrity) continue;
    sound = outcome < Outcome::kFail;
    if (outcome == Outcome::kInvalid) return;
  }
}

/// Marks the levels that could decide but had no evidence. If all bits are
/// equal, no statistics are needed.
void MarkLackingLevels(Levels levels, Judgement& judgement) {
  for (size_t i = 0; i < levels.size(); ++i) {
    const Level& level = *levels[i];
    const bool settled =
        judgement.bit_equal && level.needs == Needs::kSoundRuns;
    // Digits that differ are evidence, although no check says so.
    const bool differs = level.id == l1_exact && !judgement.origin.empty();
    if (settled || differs || !CanDecide(level, judgement) ||
        OutcomeOf(level.name, judgement).has_value()) {
      continue;
    }
    judgement.levels[i].lacks_evidence = true;
    if (!judgement.origin.empty()) {
      judgement.levels[i].remedy = level.foreign_remedy;
    }
  }
}

}  // namespace

Levels Ladder() { return kLadder; }

std::string_view LevelName(LevelId id) {
  ISOLOSS_ASSERT(static_cast<size_t>(id) < std::size(kLadder));
  return kLadder[static_cast<size_t>(id)]->name;
}

std::string_view LevelTitle(LevelId id) {
  ISOLOSS_ASSERT(static_cast<size_t>(id) < std::size(kLadder));
  return kLadder[static_cast<size_t>(id)]->title;
}

bool CanDecide(const Level& level, compare::Question question) {
  switch (level.decides) {
    case Decides::kRegression:
      return question == compare::Question::kRegression;
    case Decides::kPrecision:
      return question == compare::Question::kPrecision;
    case Decides::kBoth:
      return true;
    case Decides::kNeither:
    case Decides::kNoneAlone:
      break;
  }
  return false;
}

void RunLadder(const Evidence& evidence, Judgement& judgement,
               const LadderOptions& options) {
  RefuseTaken(options.levels);
  Climb(evidence, options, judgement);
  if (Severest(judgement.checks) < Outcome::kFail) {
    Decide(evidence, options.levels, judgement);
  }
  judgement.outcome = Severest(judgement.checks);
  MarkLackingLevels(options.levels, judgement);
}

}  // namespace isoloss::gate
