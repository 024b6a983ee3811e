#include "isoloss/gate/ladder.h"

namespace isoloss::gate {
namespace {

constexpr Level kLadder[] = {
    {"L0", &ClimbIntegrity},
    {"L1", &ClimbExact},
    {"L5", &ClimbFinalWindow},
};

}  // namespace

std::span<const Level> Ladder() { return kLadder; }

void RunLadder(const compare::Pairing& pairing, Judgement& judgement) {
  for (const Level& level : kLadder) {
    const Climb climb = level.climb(pairing, judgement);
    if (climb == Climb::kSettled) break;
    if (Severest(judgement.checks) >= Outcome::kFail) break;
  }
  judgement.outcome = Severest(judgement.checks);
}

}  // namespace isoloss::gate
