// Compares a run's log with the oracle for level L2: which experts the tokens
// were sent to, and how many bytes travelled, in every step that the oracle
// followed.
#pragma once

#include <optional>

#include "isoloss/gate/evidence.h"
#include "isoloss/gate/verdict.h"

namespace isoloss::gate {

/// Compares /moe/routing_digest and the bytes of /exchange of each probed run
/// with those that the oracle computed. Empty if no probe and log share any.
std::optional<Check> CheckFigures(const Evidence& evidence);

}  // namespace isoloss::gate
