// The levels of the gate, cheap and sharp ones first.
#pragma once

#include <span>
#include <string_view>

#include "isoloss/compare/pair.h"
#include "isoloss/gate/verdict.h"

namespace isoloss::gate {

/// What a level says about those after it.
enum class Climb {
  kGoOn,
  kSettled,  ///< the question is answered; later levels add nothing
};

/// One level. It reads judgement.policy and appends its checks, measures and
/// details to the judgement. To add a level, write one function and one line of
/// the table in ladder.cc.
struct Level {
  std::string_view id;  ///< "L0"
  Climb (*climb)(const compare::Pairing& pairing, Judgement& judgement);
};

std::span<const Level> Ladder();

/// Runs the levels in order, up to and including the first that fails, finds
/// the input invalid or settles the question, and sets judgement.outcome.
void RunLadder(const compare::Pairing& pairing, Judgement& judgement);

// L0: the rules of compare::IntegrityRules(), up to the first that finds the
// runs incomparable.
Climb ClimbIntegrity(const compare::Pairing& pairing, Judgement& judgement);

// L1: the first step whose bits differ. Asked for regression, equality passes
// and settles; asked for precision, it is a measure.
Climb ClimbExact(const compare::Pairing& pairing, Judgement& judgement);

// L5: equivalence of the loss over the final window, and of the last held-out
// loss if there is one.
Climb ClimbFinalWindow(const compare::Pairing& pairing, Judgement& judgement);

}  // namespace isoloss::gate
