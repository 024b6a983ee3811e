// Climbs the levels of the gate; cheap and sharp levels come first.
#pragma once

#include <span>

#include "isoloss/gate/evidence.h"
#include "isoloss/gate/level.h"
#include "isoloss/gate/verdict.h"

namespace isoloss::gate {

using Levels = std::span<const Level* const>;

struct LadderOptions {
  /// Climb on after a failure, so that Judgement::levels says what each level
  /// finds on its own (the kill matrix). The outcome is the same.
  bool climb_all = false;
  /// Lists the levels to climb, in this order: Ladder(), or a program's own.
  /// No two levels, registered ones included, may share a name or an id.
  Levels levels = Ladder();
};

/// Runs the levels that the policy asks for in order and sets judgement.levels
/// and judgement.outcome. It ends with the first level that fails, finds the
/// input invalid or settles the question.
///
/// The outcome is the severest of the checks that gate. Under policy.levels =
/// "auto", regression passes if nothing failed and
///   all bits are equal, or
///   L2 and L4 have evidence and pass, or
///   L5 passes.
/// If no rule holds, the checks name the missing evidence. A level that this
/// rule makes unnecessary is shown, but does not gate.
/// Errors   ConfigError if two levels share a name or an id.
void RunLadder(const Evidence& evidence, Judgement& judgement,
               const LadderOptions& options = {});

}  // namespace isoloss::gate
