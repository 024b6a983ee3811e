// The levels of the gate, cheap and sharp ones first.
#pragma once

#include <span>
#include <string_view>

#include "isoloss/gate/evidence.h"
#include "isoloss/gate/verdict.h"

namespace isoloss::gate {

/// What a level says about those after it.
enum class Climb {
  kGoOn,
  /// The runs are the same run: only levels that look at the program itself
  /// (L2) can add anything.
  kSettled,
};

/// One level. It reads the evidence and judgement.policy and appends its
/// checks, measures and details to the judgement. Without evidence of its own
/// it appends no check. To add a level, write one function and one line of the
/// table in ladder.cc.
struct Level {
  std::string_view id;  ///< "L0"
  Climb (*climb)(const Evidence& evidence, Judgement& judgement);
  /// What it reads. A level that needs runs is left out when L0 found them
  /// broken.
  bool needs_sound_runs;
  /// What makes its evidence, for a verdict that lacks it; "" if runs suffice.
  std::string_view remedy;
};

std::span<const Level> Ladder();

struct LadderOptions {
  /// Climb on after a failure, so that Judgement::levels says what each level
  /// finds on its own (the kill matrix). The outcome is the same.
  bool climb_all = false;
};

/// Runs the levels that the policy asks for in order, up to and including the
/// first that fails, finds the input invalid or settles the question, and sets
/// judgement.levels and judgement.outcome.
///
/// The outcome is the severest of the checks that gate. Under policy.levels =
/// "auto", regression passes if
///   all bits are equal, or
///   L2 and L4 have evidence and pass, or
///   L5 passes,
/// and nothing failed; else the checks name what evidence is missing. A level
/// made unnecessary by this rule is shown, but does not gate.
void RunLadder(const Evidence& evidence, Judgement& judgement,
               const LadderOptions& options = {});

/// As above, from runs alone.
void RunLadder(const compare::Pairing& pairing, Judgement& judgement);

// L0: the rules of compare::IntegrityRules(), up to the first that finds the
// runs incomparable.
Climb ClimbIntegrity(const Evidence& evidence, Judgement& judgement);

// L1: the first step whose bits differ. Asked for regression, equality passes
// and settles; asked for precision, it is a measure.
Climb ClimbExact(const Evidence& evidence, Judgement& judgement);

// L2: each tensor of probed steps against an oracle of the same precision.
Climb ClimbOracle(const Evidence& evidence, Judgement& judgement);

// L3: each tensor of probed steps against BF16, compared with what approved
// candidates show. Asked for precision only.
Climb ClimbPrecision(const Evidence& evidence, Judgement& judgement);

// L4: the first steps against what good runs show.
Climb ClimbEarlyWindow(const Evidence& evidence, Judgement& judgement);

// L5: equivalence of the loss over the final window, and of the last held-out
// loss if there is one.
Climb ClimbFinalWindow(const Evidence& evidence, Judgement& judgement);

// L6: where a watch would have aborted the run; a measure.
Climb ClimbSequential(const Evidence& evidence, Judgement& judgement);

}  // namespace isoloss::gate
